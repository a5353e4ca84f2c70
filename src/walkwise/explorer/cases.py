"""One prediction made ready for questions: traced, placed on the page, its nodes named."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, final
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from walkwise.core.chain import RelevanceChain
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.errors import InputError, MissingExtraError, WalkwiseError
from walkwise.evaluation.naming import answer_title
from walkwise.evaluation.predictions import Prediction, predict, traced
from walkwise.explorer.session import Session
from walkwise.plotting._style import Floats
from walkwise.plotting.chemistry import Skeleton, as_molecule, skeleton_of
from walkwise.plotting.layouts import graph_layout, part_that_matters
from walkwise.plotting.typed import edges_of_types, typed_labels
from walkwise.questions.marginals import edge_relevance, node_relevance
from walkwise.questions.progress import while_wanted
from walkwise.smarts import functional_groups

#: Above this many nodes, the part of a graph that matters is drawn.
MOST_DRAWN = 150

#: Up to this many node types are offered as groups.
_MOST_PARTS = 6

#: ... and of it, the nodes with at least this share of the largest relevance, and what joins them.
_LEAST = 0.02


@dataclass(frozen=True)
class View:
    """What is asked of a graph: which class, against which, of which node, by which rule; None for the default."""

    column: int | None = None
    against: int | None = None
    rule: str | None = None
    index: int | None = None

    @classmethod
    def of(cls, given: Any) -> View:
        """From what a tab keeps: nothing, a column, or a dictionary of these fields.

        >>> View.of(1), View.of({"column": 1, "rule": "zero"}).rule
        (View(column=1, against=None, rule=None, index=None), 'zero')
        """
        if isinstance(given, Mapping):
            return cls(**{name: given.get(name) for name in ("column", "against", "rule", "index")})
        return given if isinstance(given, View) else cls(given)


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
    places: Floats  # (number of drawn nodes, 2)
    edges: tuple[tuple[int, int], ...]  # every pair of neighbours that are drawn, once
    lines: tuple[tuple[Line, ...], ...]  # (E,) one line for an edge, or as many as a bond has
    molecule: bool = False
    names: tuple[str, ...] = ()  # (M,) what nodes are called beside their number, where that is not the label
    groups: Mapping[str, list[int]] = field(default_factory=dict)  # parts that are known beforehand
    rdkit: Any = None  # the molecule, for patterns
    shown: tuple[int, ...] | None = None  # the nodes that are drawn, ascending; None for all
    types: NodeTypes | None = None  # of a heterogeneous graph

    @property
    def nodes(self) -> Sequence[int]:
        """The nodes that are drawn, in the order of the places."""
        return range(len(self.labels)) if self.shown is None else self.shown


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

    @property
    def num_nodes(self) -> int:
        """M, the nodes of the graph."""
        return self.chain.num_nodes

    @property
    def molecule(self) -> Any:
        """The RDKit molecule that the graph is drawn as, or None."""
        return self.drawing.rdkit

    @property
    def target(self) -> int:
        """The number of the explained class."""
        assert isinstance(self.prediction.target, int)
        return int(not self.prediction.negative) if self.one_logit else self.prediction.target

    @property
    def one_logit(self) -> bool:
        """Whether two classes share one logit."""
        return len(self.prediction.logits) == 1 and len(self.classes) == 2

    @property
    def said(self) -> int | None:
        """The number of the class that the model decides for; None where its one output has no classes."""
        if self.one_logit:
            return int((float(self.prediction.logits[0]) > 0) != self.prediction.negative)
        return int(self.prediction.logits.argmax()) if len(self.classes) > 1 else None

    @property
    def target_title(self) -> str:
        """What is explained: a class, perhaps against another."""
        title, against = self.classes[self.target], self.prediction.against
        return title if against is None else f"{title}, not {self.classes[against]}"

    @functools.cached_property
    def edge_heat(self) -> dict[tuple[int, int], float]:
        """The relevance of every pair of neighbours that is drawn, both directions added up."""
        if not self.drawing.edges:
            return {}
        pairs = torch.tensor(self.drawing.edges, device=self.chain.device).t()
        both = edge_relevance(self.chain, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1)).double().cpu()
        sums = (both[: pairs.shape[1]] + both[pairs.shape[1] :]).tolist()
        return dict(zip(self.drawing.edges, sums, strict=True))

    def node_title(self, node: int) -> str:
        """What a node is called: its name and its number, in a heterogeneous graph its type and its number among it."""
        if self.drawing.types is not None:
            return self.drawing.types.written([node])[0]
        name = (self.drawing.names or self.drawing.labels)[node]
        return f"{name}{node}" if len(name) <= 2 else f"{name} ({node})"


def open_case(session: Session, graph: int, view: Any = None) -> Case:
    """The prediction for one graph, traced.

    Args:
        session: the model and the graphs.
        graph: the graph's number.
        view: what is asked; by default the largest output. A number is a class.
    """
    if not 0 <= graph < len(session.graphs):
        last = len(session.graphs) - 1
        raise InputError(argument="graph", expected=f"the number of a graph, 0 to {last}", got=graph)
    data, view = session.graphs[graph], View.of(view)
    types = node_types(data)
    index: Any = session.index if view.index is None else view.index
    if types is not None and isinstance(index, int):
        index = types.named(index)
    names = session.class_names
    column: Any = view.column
    if names is not None and len(names) == 2 and column is not None:
        column = str(names[column]) if column in (0, 1) else column  # of one logit, too
    prediction = predict(
        session.model, data, target=column, against=view.against, index=index, class_names=list(names or [])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page shows the chain's report, notes included
        chain = traced(prediction, rule=view.rule or session.rule)
    classes = session.classes(len(prediction.logits))
    began = node_relevance(chain, layer="start")
    heat = (began if types is None else torch.cat([began[name] for name in types.counts])).double().cpu()
    drawing = draw(session, data, heat)
    label = label_of(data, classes, index)
    return Case(graph, session.title(graph), prediction, chain, heat, drawing, classes, label)


def node_types(data: Data | HeteroData) -> NodeTypes | None:
    """The node types of a heterogeneous graph; None of others."""
    if not isinstance(data, HeteroData):
        return None
    return NodeTypes({name: int(data[name].num_nodes or 0) for name in data.node_types})


def label_of(data: Data | HeteroData, classes: tuple[str, ...], index: int | TypedNode | None = None) -> str | None:
    """The class that the data name, if they name one: the graph's, or that of the explained node.

    Args:
        data: the graph.
        classes: what the classes are called.
        index: the explained node.
    """
    store, row = (data[index[0]], index[1]) if isinstance(index, tuple) else (data, index)
    named = store.get("y") if "y" in store else None
    truth = torch.as_tensor(named) if named is not None else torch.empty(0)
    if row is not None and truth.dim() == 1 and truth.numel() == store.num_nodes:
        truth = truth[row]
    whole = truth.numel() == 1 and not truth.is_floating_point()
    return classes[int(truth)] if whole and 0 <= int(truth) < len(classes) else None


@final
class Desk:
    """The cases of a session: each is traced once, whoever asks for it, and the last ones are kept."""

    def __init__(self, session: Session, *, room: int = 64) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._tracing: WeakValueDictionary[tuple[int, View], threading.Lock] = WeakValueDictionary()
        self._turns: dict[tuple[str, str], object] = {}  # the last long question of every tab, of each kind
        self._open = functools.lru_cache(maxsize=room)(functools.partial(open_case, session))

    @contextmanager
    def turn(self, tab: str | None, kind: str) -> Iterator[None]:
        """What a tab asks here is given up, with an AbandonedError, once it asks for the same kind again, or is closed.

        Args:
            tab: whose question it is; None for nobody's, which is never given up.
            kind: of the question.
        """
        key, mine = (tab or "", kind), object()
        self._turns[key] = mine
        try:
            with while_wanted(lambda: not tab or self._turns.get(key) is mine):
                yield
        finally:
            if self._turns.get(key) is mine:
                del self._turns[key]

    def leave(self, tab: str) -> None:
        """A tab is closed: what it has asked for is given up."""
        for key in [key for key in list(self._turns) if key[0] == tab]:
            self._turns.pop(key, None)

    def case(self, graph: int, view: Any = None) -> Case:
        """The prediction for a graph and what is asked of it, by default its largest output."""
        key = graph, View.of(view)
        with self._lock:
            mine = self._tracing.setdefault(key, threading.Lock())
        with mine:  # others trace other cases meanwhile
            return self._open(*key)

    @functools.cached_property
    def summaries(self) -> list[tuple[str, str | None, str | None]]:
        """Of every graph its name, what the model says, and what the data say; None where nobody says."""
        session = self.session
        found = []
        for number, data in enumerate(session.graphs):
            try:
                prediction = predict(session.model, data, index=session.index)
                classes = session.classes(len(prediction.logits))
                said = answer_title(prediction.logits, classes) or None
                found.append((session.title(number), said, label_of(data, classes, session.index)))
            except (WalkwiseError, RuntimeError, ValueError, TypeError):  # a graph that does not fit is listed, too
                found.append((session.title(number), None, None))
        return found


# -- drawings -------------------------------------------------------------------------------------


def draw(session: Session, data: Data | HeteroData, heat: Tensor | None = None) -> Drawing:
    """How a graph is drawn: as a molecule where its nodes are atoms and RDKit is there, else by a layout.

    Args:
        session: the model and the graphs.
        data: the graph.
        heat: the relevance of its nodes; of a large graph, those that matter are drawn.
    """
    if (types := node_types(data)) is not None:
        edges = edges_of_types(data.edge_index_dict, types)
        parts = {name: list(range(first, first + types.counts[name])) for name, first in types.offsets.items()}
        found = _graph(tuple(typed_labels(types)), torch.from_numpy(edges), heat)
        return replace(found, types=types, groups=parts if len(parts) <= _MOST_PARTS else {})
    assert isinstance(data, Data) and data.edge_index is not None
    labels, atoms = _labels(session, data)
    truth = getattr(data, "ground_truth", None)
    groups = {} if truth is None else {"motif": torch.as_tensor(truth).bool().nonzero().flatten().tolist()}
    if atoms or isinstance(getattr(data, "smiles", None), str):
        try:
            return _molecule(data, labels, groups)
        except (ValueError, MissingExtraError):  # bonds that cannot be read: still a graph
            pass
    return replace(_graph(labels, data.edge_index.cpu(), heat), groups={n: g for n, g in groups.items() if g})


def _graph(labels: tuple[str, ...], edge_index: Tensor, heat: Tensor | None) -> Drawing:
    """A graph by a layout; of a large one, the nodes that matter."""
    pairs = {(min(u, v), max(u, v)) for u, v in edge_index.t().tolist() if u != v}
    shown = None
    if heat is not None and len(labels) > MOST_DRAWN:
        weight = heat.abs().numpy()
        weight = np.where(weight >= _LEAST * weight.max(initial=0), weight, 0.0)
        kept = part_that_matters(weight, edge_index.numpy(), MOST_DRAWN)
        row = {int(node): i for i, node in enumerate(kept)}
        pairs = {pair for pair in pairs if pair[0] in row and pair[1] in row}
        shown = tuple(row)
        ends = torch.tensor([[row[u], row[v]] for u, v in pairs], dtype=torch.long).reshape(-1, 2).t()
        places = graph_layout(ends, len(row))
    else:
        places = graph_layout(edge_index, len(labels))
    edges = tuple(sorted(pairs))
    return Drawing(labels, places, edges, ((Line(),),) * len(edges), shown=shown)


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
    found = {n: g for n, g in known.items() if g}
    return Drawing(labels, places, drawn.bonds, lines, True, drawn.symbols, found, molecule)


def _bond(drawn: Skeleton, at: int) -> tuple[Line, ...]:
    """The lines of a bond: in a ring the second one lies inside, dashed where the bond is aromatic."""
    order, (x, y) = drawn.orders[at], drawn.side(at) * [1, -1]
    beside = [0.0, 1.0] if drawn.in_ring[at] else [-0.5, 0.5]
    shifts = {2.0: beside, 1.5: beside, 3.0: [-1.0, 0.0, 1.0]}.get(order, [0.0])
    return tuple(Line(float(s * x), float(s * y), order == 1.5 and i == 1) for i, s in enumerate(shifts))
