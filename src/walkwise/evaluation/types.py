"""A heterogeneous graph and its parts as input of a model, by node number."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import EdgeStorage

from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.errors import Described, InputError
from walkwise.evaluation.edge_orders import edge_orders
from walkwise.tracing.given.hetero import HeteroGiven, of_hetero_graph

#: What to do without features of a type.
WITHOUT_PARTS = (
    "Give them features, or ask the chain, which needs no parts: ww.trace(model, data, ...), then "
    "ww.subgraph_relevance(chain, [{type: ids}])."
)


def node_types(data: Data | HeteroData) -> NodeTypes | None:
    """The node types of a heterogeneous graph; None of others."""
    if not isinstance(data, HeteroData):
        return None
    return NodeTypes({name: int(data[name].num_nodes or 0) for name in data.node_types})


def node_of(data: Data | HeteroData, index: int | TypedNode | None) -> int | TypedNode | None:
    """A node as :func:`walkwise.trace` takes it: of a heterogeneous graph (type, i), also where a number is given.

    >>> data = HeteroData(user={"num_nodes": 2}, item={"num_nodes": 3})
    >>> node_of(data, 3), node_of(data, ("user", 1)), node_of(Data(num_nodes=5), 3)
    (('item', 1), ('user', 1), 3)
    """
    types = node_types(data)
    if types is None:
        if isinstance(index, tuple):
            expected = "a number, for a graph with one node type"
            raise InputError(argument="index", expected=expected, got=Described(" ".join(map(str, index))))
        return index
    if isinstance(index, tuple):
        types.number(index)  # which refuses what is not there
        return index
    if index is not None and not 0 <= index < types.num_nodes:
        some = next((name for name, count in types.counts.items() if count), "type")
        expected = f"a node such as '{some} 0', or its number, 0 to {types.num_nodes - 1}, counted on from type to type"
        raise InputError(argument="index", expected=expected, got=index)
    return None if index is None else types.named(index)


class AllTypes(nn.Module):
    """A model of heterogeneous graphs behind the usual call: x numbers nodes of all types, edge_index joins them.

    Args:
        model: the model; it gets the part of the graph that the nodes induce, by type.
        data: the whole graph.
        arguments: what else the model gets.
        index: the explained node, (type, i); None for an output of the whole graph. Rows of the output are then those
            of all nodes, and zeros at nodes of other types.
    """

    def __init__(self, model: nn.Module, data: HeteroData, arguments: Mapping[str, Any], index: Any = None) -> None:
        super().__init__()
        given: HeteroGiven = of_hetero_graph(model, data, arguments)
        given.check()
        self.whole = given
        bare = [name for name, count in given.types.counts.items() if count and given.x.get(name) is None]
        #: A type whose nodes have no features: the model has a row for each, by its number, which changes in a part.
        self.bare = bare[0] if bare else None
        self.index: TypedNode | None = self._checked(index)
        self.model = model
        self.data = data
        self.arguments = dict(arguments)
        self.training = model.training

    @property
    def types(self) -> NodeTypes:
        """The node types of the whole graph."""
        return self.whole.types

    @property
    def features(self) -> dict[str, Tensor]:
        """The features of every type that has nodes, in order; an error without them.  # (M_t, F_t) each"""
        if self.bare is not None:
            raise InputError(
                f"{self.lacking}.",
                argument="graph",
                expected="a HeteroData with features x of every type",
                got=f"{self.bare!r} without x",
                remedy=WITHOUT_PARTS,
            )
        return {name: self.data[name].x for name, count in self.types.counts.items() if count}

    @property
    def lacking(self) -> str:
        """What is to be said where parts of the graph, or its features, are asked for and a type has none."""
        return f"Nodes of type {self.bare!r} have no features, and a part of the graph needs the features of its nodes"

    def with_features(self, features: Sequence[Tensor]) -> HeteroData:
        """The graph with other features, in the same order."""
        data = copy.copy(self.data)
        for name, x in zip(self.features, features, strict=True):
            data[name].x = x
        return data

    @property
    def row(self) -> int | None:
        """The number of the explained node among all."""
        return None if self.index is None else self.types.number(self.index)

    def _checked(self, index: Any) -> TypedNode | None:
        if index is not None and not isinstance(index, tuple):
            kinds = ", ".join(map(repr, self.types.counts))
            expected = f"(type, i), of a heterogeneous graph of the types {kinds}"
            pairs = "For the score of a pair, the fourth say, write target=lambda output: output[3]."
            raise InputError(argument="index", expected=expected, got=index, remedy=pairs)
        return index

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        """The model's output for the part of the graph that these nodes induce; edge_index follows from them."""
        first = self.types.offsets
        part = {name: x[(x >= first[name]) & (x < first[name] + n)] - first[name] for name, n in self._counts.items()}
        output = of_hetero_graph(self.model, self._induced(part), self.arguments).run(self.model)
        if self.index is None:
            return output
        name = self.index[0]
        here = NodeTypes({other: len(nodes) for other, nodes in part.items()})
        rows = output.get(name) if isinstance(output, dict) else here.rows_of(name, output)
        if not isinstance(rows, Tensor) or rows.dim() == 0 or len(rows) != len(part[name]):
            count = len(rows) if isinstance(rows, Tensor) and rows.dim() else 0
            fitting = [other for other, nodes in part.items() if count and len(nodes) == count]
            raise InputError(
                f"The model's output does not have one row for each of the {len(part[name])} nodes of type {name!r}"
                f"{f'; its {count} rows fit those of type {fitting[0]!r}' if fitting else ''}.",
                argument="index",
                expected="a node of a type that the model has an output for",
                got=self.index,
            )
        table = rows.new_zeros(len(x), *rows.shape[1:])
        table[sum(len(part[other]) for other in self._counts if first[other] < first[name]) :][: len(rows)] = rows
        return table

    def _induced(self, part: dict[str, Tensor]) -> HeteroData:
        """The graph of some nodes; where these do not ascend, with edges sorted again that were sorted."""
        data: HeteroData = self.data.subgraph(part)
        if all(bool((nodes.diff() > 0).all()) for nodes in part.values()):
            return data
        for kind in data.edge_types:
            before, store = self.data[kind].get("edge_index"), data[kind]
            if isinstance(before, Tensor):
                order = next(edge_orders(before, store.edge_index))
                rows = {name: value[order] for name, value in store.items() if _of_edges(store, name)}
                store.update(rows | {"edge_index": store.edge_index[:, order]})
        return data

    @property
    def _counts(self) -> Mapping[str, int]:
        return self.types.counts

    @property
    def nodes(self) -> Tensor:
        """The numbers of all nodes.  # (M,)"""
        return torch.arange(self.types.num_nodes, device=self.edges.device)

    @property
    def edges(self) -> Tensor:
        """All edges, between nodes of all types.  # (2, E)"""
        return self.whole.edges


def _of_edges(store: EdgeStorage, name: str) -> bool:
    """Whether an attribute has a row for every edge."""
    return name != "edge_index" and store.is_edge_attr(name)
