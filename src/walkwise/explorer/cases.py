"""One prediction made ready for questions: traced, placed on the page, its nodes named."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor
from torch_geometric.data import Data

from walkwise.core.chain import RelevanceChain
from walkwise.errors import InputError, MissingExtraError
from walkwise.evaluation.predictions import Prediction, predict, traced
from walkwise.explorer.session import Session
from walkwise.plotting._style import Floats
from walkwise.plotting.chemistry import Skeleton, as_molecule, skeleton_of
from walkwise.plotting.layouts import graph_layout
from walkwise.questions.marginals import node_relevance
from walkwise.smarts import functional_groups


@dataclass(frozen=True)
class Line:
    """One of the lines of an edge: how far beside the straight one it lies, as a multiple of the gap, and its kind."""

    x: float = 0.0
    y: float = 0.0
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Drawing:
    """Where things stand on the page: the screen's y grows downwards, neighbours are about 1 apart."""

    labels: tuple[str, ...]  # (M,) a name per node, perhaps empty
    places: Floats  # (M, 2)
    edges: tuple[tuple[int, int], ...]  # every pair of neighbours once
    lines: tuple[tuple[Line, ...], ...]  # (E,) one line for an edge, or as many as a bond has
    molecule: bool = False
    names: tuple[str, ...] = ()  # (M,) what nodes are called beside their number, where that is not the label
    groups: Mapping[str, list[int]] = field(default_factory=dict)  # parts that are known beforehand


@dataclass(frozen=True, eq=False)
class Case:
    """A prediction, its chain, and how its graph is drawn."""

    graph: int
    title: str
    prediction: Prediction
    chain: RelevanceChain
    heat: Tensor  # (M,) relevance of the walks that begin at a node
    drawing: Drawing
    classes: tuple[str, ...]
    label: str | None  # the class that the data name
    #: Holds while the model runs: tracing watches the model, so two requests must not run it at once.
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def num_nodes(self) -> int:
        """M, the nodes of the graph."""
        return self.chain.num_nodes

    @property
    def target(self) -> int:
        """The explained output column."""
        assert isinstance(self.prediction.target, int)
        return self.prediction.target

    @property
    def target_title(self) -> str:
        """What the explained output column is called."""
        return self.classes[self.target]

    def node_title(self, node: int) -> str:
        """What a node is called: its name and its number."""
        name = (self.drawing.names or self.drawing.labels)[node]
        return f"{name}{node}" if len(name) <= 2 else f"{name} ({node})"


def open_case(session: Session, graph: int, target: int | None = None, *, lock: threading.RLock | None = None) -> Case:
    """The prediction for one graph, traced.

    Args:
        session: the model and the graphs.
        graph: the graph's number.
        target: the output column, by default the largest output.
        lock: held by whoever runs the model, where several do.
    """
    if not 0 <= graph < len(session.graphs):
        raise InputError(f"There are {len(session.graphs)} graphs, 0 to {len(session.graphs) - 1}; got {graph}.")
    data = session.graphs[graph]
    prediction = predict(session.model, data, target=target, index=session.index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows the chain's report, notes included
        chain = traced(prediction, rule=session.rule)
    classes = tuple(session.class_title(column) for column in range(len(prediction.logits)))
    heat = node_relevance(chain).double().cpu()
    drawing = draw(session, data)
    lock = lock or threading.RLock()
    return Case(graph, session.title(graph), prediction, chain, heat, drawing, classes, _label(data, classes), lock)


def _label(data: Data, classes: tuple[str, ...]) -> str | None:
    """The class that the data name, if they name one."""
    truth = torch.as_tensor(data.y) if data.y is not None else torch.empty(0)
    whole = truth.numel() == 1 and not truth.is_floating_point()
    return classes[int(truth)] if whole and 0 <= int(truth) < len(classes) else None


@final
class Desk:
    """The cases of a session: each is traced once, by one request at a time, and the last ones are kept."""

    def __init__(self, session: Session, *, room: int = 64) -> None:
        self.session = session
        self._lock = threading.RLock()
        self._open = functools.lru_cache(maxsize=room)(functools.partial(open_case, session, lock=self._lock))

    def case(self, graph: int, target: int | None = None) -> Case:
        """The prediction for a graph and an output column, by default the largest."""
        with self._lock:
            return self._open(graph, target)


# -- drawings -------------------------------------------------------------------------------------


def draw(session: Session, data: Data) -> Drawing:
    """How a graph is drawn: as a molecule where its nodes are atoms and RDKit is there, else by a layout."""
    assert data.edge_index is not None
    labels, atoms = _labels(session, data)
    truth = getattr(data, "ground_truth", None)
    groups = {} if truth is None else {"motif": torch.as_tensor(truth).bool().nonzero().flatten().tolist()}
    if atoms or isinstance(getattr(data, "smiles", None), str):
        try:
            return _molecule(data, labels, groups)
        except (ValueError, MissingExtraError):  # bonds that cannot be read: still a graph
            pass
    pairs = {(min(u, v), max(u, v)) for u, v in data.edge_index.t().tolist() if u != v}
    edges = tuple(sorted(pairs))
    places = graph_layout(data.edge_index.cpu(), len(labels))
    return Drawing(labels, places, edges, ((Line(),),) * len(edges), groups={n: g for n, g in groups.items() if g})


def _labels(session: Session, data: Data) -> tuple[tuple[str, ...], bool]:
    """The nodes' names, empty where they have none, and whether they are atoms."""
    assert data.x is not None
    count = data.x.shape[0]
    for attribute in ("symbols", "tokens"):
        given = getattr(data, attribute, None)
        if given is not None and len(given) == count:
            return tuple(map(str, given)), attribute == "symbols"
    names = session.node_names
    if names is None or data.x.dim() != 2 or data.x.shape[1] != len(names):
        return ("",) * count, False
    return tuple(str(names[i]) for i in data.x.argmax(1).tolist()), all(len(name) <= 2 for name in names)


def _molecule(data: Data, symbols: tuple[str, ...], groups: dict[str, list[int]]) -> Drawing:
    molecule = as_molecule(data, symbols if any(symbols) else None)
    drawn = skeleton_of(molecule)
    places = drawn.places * [1, -1] / 1.5  # a bond is 1.5 ångström
    known = {**groups, **functional_groups(molecule)}
    lines = tuple(_bond(drawn, at) for at in range(len(drawn.bonds)))
    labels = tuple(letter or symbol for letter, symbol in zip(drawn.letters, drawn.symbols, strict=True))
    return Drawing(labels, places, drawn.bonds, lines, True, drawn.symbols, {n: g for n, g in known.items() if g})


def _bond(drawn: Skeleton, at: int) -> tuple[Line, ...]:
    """The lines of a bond: in a ring the second one lies inside, dashed where the bond is aromatic."""
    order, (x, y) = drawn.orders[at], drawn.side(at) * [1, -1]
    beside = [0.0, 1.0] if drawn.in_ring[at] else [-0.5, 0.5]
    shifts = {2.0: beside, 1.5: beside, 3.0: [-1.0, 0.0, 1.0]}.get(order, [0.0])
    return tuple(Line(float(s * x), float(s * y), order == 1.5 and i == 1) for i, s in enumerate(shifts))
