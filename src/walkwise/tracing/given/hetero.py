"""The arguments of a heterogeneous model: features and edges by type, or a HeteroData."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.utils import is_sparse

from walkwise.core.lazy import cached_property
from walkwise.core.node_types import EdgeType, NodeTypes
from walkwise.errors import Described, InputError, described
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.holders import again
from walkwise.tracing.given.inputs import check_dense, check_some, named_outside
from walkwise.tracing.given.manners import Manner
from walkwise.tracing.given.signatures import left_for_a_graph, parameters_of
from walkwise.tracing.private import made_by_type
from walkwise.tracing.running.found import sparse_ends

_DICT = "_dict"
_OF_ONE_OBJECT = " For a homogeneous graph in a dictionary, write ww.trace(model, Data(x=..., edge_index=...))."


@dataclass(frozen=True, eq=False)
class HeteroGiven(Given):
    """One input of a heterogeneous model: x is {type: features}, edge_index {edge type: edges}."""

    x: dict[str, Any]
    edge_index: dict[EdgeType, Any]

    @cached_property
    def types(self) -> NodeTypes:
        """The node types, their nodes counted by features, by the graph, or by the edges that name them."""
        counts: dict[str, int] = {}
        stores = {} if self.data is None else {name: self.data[name].num_nodes for name in self.data.node_types}
        for name in [*stores, *self.x, *(end for source, _, target in self.edge_index for end in (source, target))]:
            x = self.x.get(name)
            counts[name] = int(x.shape[0] if isinstance(x, Tensor) else stores.get(name) or self._named(name))
        edges = {kind: self.edges_of(kind).shape[1] for kind in self.edge_index}
        return NodeTypes(counts, edges, [name for name in self.x if name in self.features])

    @property
    def features(self) -> dict[str, Tensor]:
        """The features that relevance is traced to, by type."""
        return {n: x for n, x in self.x.items() if isinstance(x, Tensor) and x.is_floating_point() and x.dim() > 0}

    @property
    def num_nodes(self) -> int:
        """M, the nodes of all types."""
        return self.types.num_nodes

    @property
    def num_graphs(self) -> int:
        """G, the graphs of a batch."""
        batch = self.arguments.get("batch_dict")
        if isinstance(batch, Mapping):
            return 1 + max((int(b.max()) for b in batch.values() if isinstance(b, Tensor) and b.numel()), default=0)
        return 1

    def edges_of(self, kind: EdgeType) -> Tensor:
        """The edges of a type.  # (2, E_t)"""
        edges = self.edge_index[kind]
        return sparse_ends(edges) if is_sparse(edges) else torch.as_tensor(edges)

    @property
    def edges(self) -> Tensor:
        """All edges, between nodes of all types.  # (2, E)"""
        first = self.types.offsets
        held = {kind: self.edges_of(kind) for kind in self.edge_index}
        shifted = [e + e.new_tensor([[first[kind[0]]], [first[kind[2]]]]) for kind, e in held.items()]
        return torch.cat(shifted, 1) if shifted else torch.empty(2, 0, dtype=torch.long)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that the model computes with, by name and type."""
        named = {"x": self.x, "edge_index": self.edge_index} | self.arguments
        pairs = [
            (f"{n}[{key!r}]", v) for n, held in named.items() if isinstance(held, Mapping) for key, v in held.items()
        ]
        return {name: value for name, value in pairs if isinstance(value, Tensor) and value.layout == torch.strided}

    def copied(self, dtype: torch.dtype | None = None) -> HeteroGiven:
        """A copy of the input for one run, since a model may write into it; half precision becomes another type."""
        return replace(self, x=again(self.x, dtype), arguments=again(self.arguments, dtype))

    def run(self, model: nn.Module) -> Any:
        """The output of the model, or of its shadow; one that computes with tensors takes no dictionaries."""
        try:
            return super().run(model)
        except TypeError as error:
            if "must be Tensor, not dict" not in str(error):
                raise
            raise InputError(
                "The model computes with tensors, but for a heterogeneous graph it got dictionaries by type "
                f"({error}).",
                argument="x",
                expected="a tensor, for this model",
                got=Described("dict"),
                remedy="Trace data.to_homogeneous(), or convert the model with torch_geometric.nn.to_hetero.",
            ) from error

    def check(self) -> None:
        """Refuse anything that is not a heterogeneous graph."""
        check_dense({f"x[{name!r}]": x for name, x in self.x.items()})
        for name, x in self.x.items():
            if x is not None and not isinstance(x, Tensor):
                expected, remedy = "a tensor with one row per node", f"Write torch.as_tensor(x[{name!r}])."
                raise InputError(argument=f"x[{name!r}]", expected=expected, got=described(x), remedy=remedy)
        for kind in self.edge_index:
            self._check_edges(kind)
        check_some(self.num_nodes)

    def _check_edges(self, kind: EdgeType) -> None:
        """Refuse edges of a type that are no edges, or lead to nodes that do not exist."""
        if not isinstance(kind, tuple) or len(kind) != 3:
            raise InputError(
                f"The keys of edge_index must be (source type, relation, target type), got {kind!r}.",
                argument="edge_index",
                expected="a dictionary from (source type, relation, target type) to edges",
                got=kind,
            )
        edges, argument = self.edges_of(kind), f"edge_index[{kind!r}]"
        if edges.is_floating_point() or edges.dtype == torch.bool:
            raise InputError(argument=argument, expected="node ids, of torch.long", got=edges.dtype)
        if edges.dim() != 2 or edges.shape[0] != 2:
            raise InputError(argument=argument, expected="of shape (2, E)", got=tuple(edges.shape))
        for ids, name in zip(edges, kind[::2], strict=True):
            count = self.types.counts[name]
            if wrong := named_outside(ids, count):
                raise InputError(
                    f"{argument} names {name} nodes {wrong}, but there are {count} of them, 0 to {count - 1}.",
                    argument=argument,
                    expected=f"ids of {name} nodes from 0 to {count - 1}",
                    got=wrong,
                )

    def _named(self, name: str) -> int:
        """How many nodes of a type the edges name."""
        ends = [self.edges_of(k)[row] for k in self.edge_index for row in (0, 1) if k[2 * row] == name]
        return max((int(end.max()) + 1 for end in ends if end.numel()), default=0)


def of_types(model: nn.Module, x: Any, edge_index: Any, arguments: dict[str, Any]) -> HeteroGiven:
    """The model's arguments from features and edges by type."""
    if not isinstance(x, Mapping) or not isinstance(edge_index, Mapping):
        got = Described(f"{described(x)} and {'no edges' if edge_index is ... else described(edge_index)}")
        raise InputError(
            f"For a heterogeneous graph, x and edge_index must be dictionaries by type, got {got}.",
            argument="x" if isinstance(edge_index, Mapping) else "edge_index",
            expected="a dictionary by type, for a heterogeneous graph",
            got=got,
            remedy="Write ww.trace(model, data) with a HeteroData, or ww.trace(model, x_dict, edge_index_dict)."
            + (_OF_ONE_OBJECT if edge_index is ... else ""),
        )
    return HeteroGiven(model, dict(x), dict(edge_index), arguments)


def of_hetero_graph(model: nn.Module, data: HeteroData, given: Mapping[str, Any]) -> HeteroGiven:
    """The model's arguments from a HeteroData: ``x_dict``, ``edge_index_dict``, ..., or the graph itself."""
    x, edges = data.collect("x", True), data.collect("edge_index", True) or data.collect("adj_t", True)
    parameters = parameters_of(model)
    needed = [p for p in left_for_a_graph(parameters, given) if p.default is p.empty and p.name not in given]
    if len(needed) == 1 and not any(p.name.endswith(_DICT) for p in parameters):  # the graph itself
        place = needed[0].name if needed[0] is not parameters[0] else None
        manner = _Graph("x", "edge_index", False, data, frozenset(given), name=place)
        return HeteroGiven(model, x, edges, dict(given), manner, data=data)  # type: ignore[arg-type]
    by_type = made_by_type(model)
    held = {p.name: _by_type(data, p) if by_type else _held(data, p) for p in parameters[2:]} | dict(given)
    arguments = {name: value for name, value in held.items() if value is not None}
    return HeteroGiven(model, x, edges, arguments, data=data)  # type: ignore[arg-type]


def _by_type(data: HeteroData, parameter: inspect.Parameter) -> Any:
    """The argument for a parameter of a model made by to_hetero, whose inputs are dictionaries by type."""
    return data.collect(parameter.name, True) or _held(data, parameter)


def _held(data: HeteroData, parameter: inspect.Parameter) -> Any:
    """The argument for a parameter from a graph: for ``edge_attr_dict``, its edge_attr by type.

    An attribute by its own name is the graph's, or that of the one type which has it: ``edge_label_index``, say.
    """
    name = parameter.name
    if name.endswith(_DICT):
        return data.collect(name.removesuffix(_DICT), True) or None
    graph, *types = [store.get(name) for store in data.stores]  # data[name] would make a type of that name
    held = [value for value in types if value is not None]
    return graph if graph is not None else held[0] if len(held) == 1 else None


@dataclass(frozen=True)
class _Graph(Manner):
    """A ``forward(data)``: it gets a copy of the graph with these features."""

    def _graph(self, x: Any, edge_index: Any, arguments: Mapping[str, Any]) -> Any:
        assert self.whole is not None
        graph = copy.copy(self.whole)
        for name, value in x.items():
            graph[name].x = value
        return graph
