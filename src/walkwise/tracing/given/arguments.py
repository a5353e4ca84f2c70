"""A model's arguments: x, edge_index and everything else that the caller gave, as its ``forward`` takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.nn import HypergraphConv, MessagePassing

from walkwise.core.lazy import cached_property
from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError, WalkwiseError, described
from walkwise.tracing.given.holders import EDGES, again, in_main_memory, is_graph
from walkwise.tracing.given.in_order import are_told, are_turned, edges_first
from walkwise.tracing.given.manners import NOT_TAKEN, Manner
from walkwise.tracing.given.misfits import (
    explain_batch,
    explain_edges,
    explain_kinds,
    explain_precision,
    explain_types,
    refuse_call,
    refuse_missing,
)
from walkwise.tracing.given.objects import refuse_whole, taken_apart
from walkwise.tracing.given.outside import reads
from walkwise.tracing.given.second import graphs_beside
from walkwise.tracing.given.signatures import (
    ordered_names,
    parameters_of,
    signature_of,
    takes_any_name,
    takes_any_order,
    takes_anything,
    takes_none,
)
from walkwise.tracing.private import EDGE_MASK
from walkwise.tracing.running.found import Found

#: Names of parameters that are not features: atomic numbers and positions.
_NO_FEATURES = frozenset({"z", "pos", "atomic_numbers", "atomic_number", "atom_types", "atoms", "species"})
_BESIDE = (
    "{0} is a second graph, not the explained one: its features, and what the model computes from them, count as "
    "constant; to explain it, pass it first and give the other graph by name"
)
_STANDS_IN = (
    "the graph has no {0}, which forward takes first, so the model got x instead; if x is something else, set data.{0}"
)
_MASKED = (
    "an explainer has left edge masks on the model's layers, and these weight the messages; "
    "torch_geometric.explain.algorithm.utils.clear_masks(model) removes them"
)


@dataclass(frozen=True, eq=False)
class Given:
    """One input of a model."""

    model: nn.Module  # whose forward says what it takes
    x: Any  # the features (M, F), or what stands in their place; None of a model that has its own
    edge_index: Any
    arguments: dict[str, Any] = field(default_factory=dict)  # what else the model gets
    manner: Manner = field(default_factory=Manner)
    data: Any = None  # the graph that all this was taken from
    static: bool = False  # whether the model takes x, (M, T, F) here, as T matrices on one graph, (T, M, F)
    here: bool = False  # whether it was brought into main memory, where the model is not
    layers: tuple[Found, ...] = ()  # that were found in a model without message-passing modules
    missed: str | None = None  # what the model takes and the graph does not have, for which it gets x

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of a chain."""
        missed = () if self.missed is None else (_STANDS_IN.format(self.missed),)
        return (*missed, *self.manner.notes, *map(_BESIDE.format, self.others))

    @cached_property
    def others(self) -> dict[str, list[Tensor]]:
        """The tensors of graphs other than the explained one, by their names."""
        return graphs_beside(self.arguments, self.x, self.edge_index, self.num_nodes)

    @property
    def outside(self) -> list[Tensor]:
        """The tensors of those graphs."""
        return [tensor for tensors in self.others.values() for tensor in tensors]

    @property
    def masked(self) -> tuple[str, ...]:
        """A note on a model on which an explainer has left its masks."""
        layers = (module for module in self.model.modules() if isinstance(module, MessagePassing))
        return (_MASKED,) if any(getattr(layer, EDGE_MASK, None) is not None for layer in layers) else ()

    @property
    def types(self) -> NodeTypes | None:
        """The node types of a heterogeneous graph."""
        return None

    @property
    def features(self) -> dict[str, Tensor]:
        """The features that relevance is traced to, by name."""
        return {"x": self.x} if isinstance(self.x, Tensor) and self.x.is_floating_point() else {}

    @property
    def has_all_features(self) -> bool:
        """Whether every node has features that relevance is traced to."""
        return sum(map(len, self.features.values())) >= self.num_nodes

    @property
    def num_nodes(self) -> int:
        """M, the nodes of the graph."""
        return self.x.shape[0] if self.x is not None else int((self.data and self.data.num_nodes) or 0)

    @property
    def num_graphs(self) -> int:
        """G, the graphs of a batch."""
        if (graphs := _graphs_of(self.data)) is not None:
            return graphs
        batch = self.arguments.get("batch", getattr(self.data, "batch", None))
        return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that the model computes with, by name; for a graph taken whole, those that most models read."""
        read = (
            self.arguments
            if self.manner.whole is None
            else {n: v for n, v in self.arguments.items() if n in self.manner.beside or n in _READ}
        )
        named = {"x": self.x, "edge_index": self.edge_index} | read
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}

    def copied(self, dtype: torch.dtype | None = None) -> Given:
        """A copy of the input for one run, since a model may write into it; half precision becomes another type."""
        x = self.x if self.x is None else again(self.x.detach(), dtype)
        x = x.clone() if x is not None and x.data_ptr() == self.x.data_ptr() else x
        arguments = {name: x if value is self.x else again(value, dtype) for name, value in self.arguments.items()}
        return replace(self, x=x, edge_index=self.edge_index, arguments=arguments)

    def in_main_memory(self) -> Given:
        """The same input in main memory, wherever the model is."""
        made: dict[int, Any] = {}  # an object in several places stays one object
        whole: Any = in_main_memory(self.manner.whole, made)
        x, edge_index, arguments = (in_main_memory(part, made) for part in (self.x, self.edge_index, self.arguments))
        manner = replace(self.manner, whole=whole)
        return replace(self, x=x, edge_index=edge_index, arguments=arguments, manner=manner, here=True)

    def taken(self, run: Callable[[Given], Any]) -> tuple[Given, Any]:
        """The input in the first manner that ``run`` succeeds with, and the result.

        Each manner is tried by itself. If all fail, the first error is raised.
        """
        wrong: Exception | None = None
        for manner in self.manner.ways():
            way = replace(self, manner=manner)
            try:
                return way, run(way)
            except NOT_TAKEN as error:
                wrong = wrong or error
        assert wrong is not None
        raise wrong

    def turned(self) -> Given:
        """The same input, with x read as several matrices on one static graph."""
        return replace(self, x=self.x.transpose(0, 1), static=True)

    def run(self, model: nn.Module) -> Any:
        """Run the model or its shadow. If the call does not fit its ``forward``, the error explains why."""
        x = self.x.transpose(0, 1) if self.static else self.x
        try:
            return self.manner.call(model, x, self.edge_index, self.arguments)
        except WalkwiseError:
            raise
        except TypeError as error:
            self._check_call()
            refuse_whole(error, self.model, self.manner.whole)
            explain_kinds(error, self.edge_index, self.arguments)
            explain_types(error, self.tensors(), self.missed)
            raise
        except (AssertionError, AttributeError, LookupError, RuntimeError, ValueError) as error:
            refuse_whole(error, self.model, self.manner.whole)
            explain_kinds(error, self.edge_index, self.arguments)
            explain_batch(error, self.arguments, self.num_nodes)
            explain_edges(error, self.edge_index, self.arguments)
            explain_precision(error, self.model, self.tensors())
            explain_types(error, self.tensors(), self.missed)
            self._check_ends()
            raise

    def _check_ends(self) -> None:
        """Refuse bad edges that were let through as possible hyperedges of a custom layer."""
        from walkwise.tracing.given.inputs import check_edges

        if self.types is None and not any(isinstance(module, HypergraphConv) for module in self.model.modules()):
            check_edges(self.edge_index, self.num_nodes)

    def _check_call(self) -> None:
        """Raise an error about the call, if the call is wrong and not the model."""
        signature = signature_of(self.model)
        if signature is None:
            return
        try:
            self.manner.call(signature.bind, self.x, self.edge_index, self.arguments)  # type: ignore[arg-type]
        except TypeError as error:
            whole = self.manner.whole is not None
            names = ["the graph", *sorted(self.manner.beside)] if whole else ["x", "edge_index", *self.arguments]
            refuse_call(self.model, signature, ", ".join(names), str(error))


_READ = ("edge_attr", "edge_weight", "pos", "batch")


def given_as(model: nn.Module, x: Any, edge_index: Any, arguments: dict[str, Any]) -> Given:
    """The model's arguments; if a PyG graph was given as x, the attributes that its ``forward`` takes."""
    own = taken_apart(model, x, arguments) if edge_index is ... else None
    if own is not None:
        return Given(model, *own)
    if isinstance(x, Mapping) or isinstance(edge_index, Mapping):
        from walkwise.tracing.given.hetero import of_types

        return of_types(model, x, edge_index, arguments)
    if isinstance(x, BaseData) and edge_index is ...:
        return of_graph(model, x, arguments)
    parameters = parameters_of(model)
    manner = Manner() if _in_place(parameters, arguments) else _manner(parameters)
    turned = edges_first(parameters)
    if turned is not None and are_turned(x, edge_index):
        x, edge_index = edge_index, x
    if turned is not None and manner == Manner() and are_told(x, edge_index):
        manner = Manner(*turned, False)
    if takes_anything(model) or takes_any_name(model):
        manner = Manner("x", "edge_index", False, instead=manner if takes_anything(model) else None)
    return Given(model, x, edge_index, arguments, manner)


def of_graph(model: nn.Module, data: Any, given: Mapping[str, Any]) -> Given:
    """The model's arguments from a PyG graph: attributes by the names of parameters, or the graph itself.

    Args:
        model: the model; the parameters of its ``forward`` decide.
        data: a Data or a Batch.
        given: what the caller gave by name; it takes precedence.
    """
    if isinstance(data, HeteroData):
        from walkwise.tracing.given.hetero import of_hetero_graph

        return of_hetero_graph(model, data, given)
    if not isinstance(data, Data):
        raise InputError(argument="graph", expected="a torch_geometric Data, HeteroData or Batch", got=described(data))
    held = {name: data[name] for name in data.keys() if data[name] is not None}  # noqa: SIM118  (it is no dict)
    parameters = parameters_of(model)
    if not parameters and reads(model, data):
        whole = _whole(model, data, held, given)
        return replace(whole, manner=replace(whole.manner, outside=True))
    if takes_anything(model) and not parameters:
        return _by_any_name(model, data, held, given)
    if takes_any_name(model):
        return _by_every_name(model, data, held, given)
    if takes_any_order(model) and not held.keys().isdisjoint(_READ):
        return _whole_or_in_order(model, data, held, given)
    if _takes_whole(parameters, held, given):
        return _whole(model, data, held, given)
    return _by_name(model, data, held, given, parameters)


def wants(model: nn.Module, name: str) -> bool:
    """Whether the model's ``forward`` has a parameter of this name."""
    return any(parameter.name == name for parameter in parameters_of(model))


def _whole(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    edges = next((name for name in EDGES if name in held), "edge_index")
    arguments = {name: value for name, value in held.items() if name not in ("x", edges)} | dict(given)
    has_x, has_edges = "x" in held, edges in held
    manner = Manner("x" if has_x else None, edges if has_edges else None, False, data, frozenset(given))
    manner = replace(manner, name=_place_left(parameters_of(model), given))
    return Given(model, held.get("x"), held.get(edges), arguments, manner, data)


def _whole_or_in_order(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    """The arguments of a ``forward(*argv)``: the graph, or x and edge_index if that is all the graph has."""
    whole = _whole(model, data, held, given)
    if set(_READ) & held.keys() != {"batch"} or whole.num_graphs > 1:
        return whole
    return replace(whole, manner=replace(whole.manner, instead=Manner(only=frozenset(given))))


def _by_any_name(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    """The arguments of a ``forward(*args, **kwargs)``: what most models read, by name, or else the graph itself."""
    whole = _whole(model, data, held, given)
    read = frozenset(given).union(_READ)
    in_order = Manner(only=frozenset({*given, "batch"}))
    as_object = replace(whole.manner, name="data", instead=replace(whole.manner, instead=in_order))
    by_name = replace(whole.manner, whole=None, beside=frozenset(), only=read, instead=as_object)
    return replace(whole, manner=by_name)


def _by_every_name(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    """The arguments of a ``forward(**kwargs)``: all that the graph has, or what most models read, or the least."""
    whole = _whole(model, data, held, given)
    least, read = frozenset(given), frozenset(given).union(_READ)
    plain = replace(whole.manner, whole=None, beside=frozenset(), name=None)
    manner = replace(plain, instead=replace(plain, only=read, instead=replace(plain, only=least)))
    return replace(whole, manner=manner)


def _by_name(
    model: nn.Module,
    data: Data,
    held: dict[str, Any],
    given: Mapping[str, Any],
    parameters: list[inspect.Parameter],
) -> Given:
    edge_index, x = next((held[name] for name in EDGES if name in held), None), held.get("x")
    manner = _manner(parameters, {**held, **given})
    if manner.edges == "adj_t":
        edge_index = held.get("adj_t", edge_index)
    taken = [p for p in parameters if p.name not in (manner.x, manner.edges)]
    arguments = {p.name: value for p in taken if (value := _value(p, data, held, given)) is not None} | dict(given)
    manner = replace(manner, x=None if x is None else manner.x, edges=None if edge_index is None else manner.edges)
    arguments |= {p.name: None for p in parameters if x is None and p.name == "x" and takes_none(p)}
    bound = {manner.x, manner.edges, *arguments}
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in bound]
    signature = signature_of(model)
    if missing and signature is not None:
        refuse_missing(model, signature, missing, held)
    usual = ordered_names(parameters)[:2] == [manner.x, manner.edges] and not takes_anything(model)
    missed = manner.x if manner.x in _NO_FEATURES else None
    return Given(model, x, edge_index, arguments, Manner() if usual else manner, data, missed=missed)


def _manner(parameters: list[inspect.Parameter], known: Mapping[str, Any] | None = None) -> Manner:
    """How a ``forward`` with these parameters is given x and edge_index; with ``known``, always by name.

    Those of other names (``h``, ``adj``) are found by their places, the first and the second.
    """
    names = [parameter.name for parameter in parameters]
    if known is None:  # tensors: in order, unless their names stand elsewhere
        in_order = ordered_names(parameters)[:2]
        if {"x", "edge_index"} <= set(names):
            return Manner() if in_order == ["x", "edge_index"] else Manner("x", "edge_index", False)
        return Manner("x", in_order[0], False) if (edges_first(parameters) or ())[:1] == ("x",) else Manner()
    if not names:
        return Manner()
    unknown = [p.name if p.default is p.empty and p.name not in known else None for p in parameters[:2]] + [None, None]
    x = "x" if "x" in names else unknown[0]
    edges = next((name for name in EDGES if name in names), unknown[1])
    return Manner(x, edges, False)


def _in_place(parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> bool:
    """Whether features go to a ``forward(z, edge_index, x=None)`` as ``z``, the first argument if it is missing."""
    first, others = parameters[:1], {p.name: p for p in parameters[1:]}
    optional = "x" in others and others["x"].default is not inspect.Parameter.empty
    return optional and ordered_names(parameters)[1:2] == ["edge_index"] and first[0].name not in given


def _takes_whole(parameters: list[inspect.Parameter], held: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether ``forward`` takes the graph as one object: ``forward(data)``, ``forward(batch)``, ..."""
    names = {parameter.name for parameter in parameters}
    left = [p for p in parameters if not is_graph(given.get(p.name))]  # other graphs have their places
    if not left or names & {"x", *EDGES}:
        return False
    first, *others = left
    if first.name in given or (first.name in held and first.name != "batch"):
        return False
    return all(p.default is not p.empty or p.name in given for p in others)


def _place_left(parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> str | None:
    """The name of the parameter left for a graph if another graph is given as the first."""
    left = [p.name for p in parameters if not is_graph(given.get(p.name))]
    return left[0] if left and left[0] != parameters[0].name else None


def _value(parameter: inspect.Parameter, data: Data, held: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """What a parameter gets from a graph, or None."""
    name = parameter.name
    if name in given:
        return given[name]
    needed = parameter.default is parameter.empty and name in held
    if name == "batch_size" and "batch" not in held and not needed:  # of a sampled graph: how many nodes are asked for
        return None
    if name in held:
        return held[name]
    if parameter.default is not parameter.empty:
        return None
    num_nodes = int(data.num_nodes or 0)
    if name == "batch":
        edges = next((held[n] for n in (*EDGES, "x") if isinstance(held.get(n), Tensor)), None)
        return torch.zeros(num_nodes, dtype=torch.long, device=None if edges is None else edges.device)
    graphs = _graphs_of(data) or 1
    return {"num_nodes": num_nodes, "num_edges": data.num_edges, "num_graphs": graphs, "batch_size": graphs}.get(name)


def _graphs_of(data: Any) -> int | None:
    """How many graphs a Batch holds, or None if it is not a Batch."""
    return int(data.num_graphs) if isinstance(data, Batch) else None
