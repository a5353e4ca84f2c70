"""One prediction ready for questions: traced, laid out, with named nodes; shared by all tabs."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from walkwise.core.chain import RelevanceChain
from walkwise.core.node_types import TypedNode
from walkwise.errors import InputError, WalkwiseError
from walkwise.evaluation.naming import answer_title, has_one_logit
from walkwise.evaluation.predictions import Prediction, predict, traced
from walkwise.evaluation.types import node_of, node_types
from walkwise.explorer.drawings import Drawing, draw
from walkwise.explorer.session import Session
from walkwise.questions.marginals import edge_relevance, node_relevance
from walkwise.questions.progress import while_wanted


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
        return has_one_logit(self.prediction.logits, self.classes)

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
    index = node_of(data, session.index if view.index is None else view.index)
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
    heat = (began if types is None else types.joined(began)).double().cpu()
    drawing = draw(session, data, heat)
    label = label_of(data, classes, index)
    return Case(graph, session.title(graph), prediction, chain, heat, drawing, classes, label)


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
                index = node_of(data, session.index)
                prediction = predict(session.model, data, index=index)
                classes = session.classes(len(prediction.logits))
                said = answer_title(prediction.logits, classes) or None
                found.append((session.title(number), said, label_of(data, classes, index)))
            except (WalkwiseError, RuntimeError, ValueError, TypeError):  # a graph that does not fit is listed, too
                found.append((session.title(number), None, None))
        return found
