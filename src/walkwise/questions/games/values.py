"""The contributions of nodes and of sets of nodes to the relevance of a graph."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.display import html_box, html_table, number
from walkwise.questions.parts import per_node
from walkwise.questions.ties import by_size


@dataclass(frozen=True, eq=False, repr=False)
class ShapleyValues:
    """The contribution of each node to the relevance of the graph."""

    values: Tensor  # (M,) they sum to R of the whole graph
    standard_error: Tensor  # (M,) zero where the values are exact
    method: str  # "walks" (exact) or "permutations" (sampled)
    nodes: Tensor  # (M,) the nodes they belong to: all nodes of the chain, or those of one graph
    route: str  # how they were found, in words
    types: NodeTypes | None = None  # of a heterogeneous graph

    @property
    def named(self) -> dict[TypedNode | None, float]:
        """The values of a heterogeneous graph by node: {(type, i): value}."""
        return {} if self.types is None else dict(zip(self.types.walk(self.nodes), self.values.tolist(), strict=True))

    def __repr__(self) -> str:
        """How many, their sum, and the route."""
        return f"ShapleyValues({len(self.nodes)} nodes, sum {float(self.values.sum()):.4g}; {self.route})"

    def _repr_html_(self) -> str:
        """A table for notebooks: the nodes with the largest values."""
        given = self.nodes[:, None], self.values, self.standard_error, self.route
        return _largest_html("Shapley values", *given, types=self.types)


@dataclass(frozen=True, eq=False)
class ShapleyInteractions:
    """Shapley interaction indices of sets of nodes; sets that no walk visits have none."""

    order: int
    num_nodes: int
    nodes: Tensor  # (P, order) ascending
    values: Tensor  # (P,)
    standard_error: Tensor  # (P,) zero where the values are exact
    method: str  # "walks" (exact) or "permutations" (sampled)

    def dense(self) -> Tensor:
        """The same as a symmetric table, zero where a node would stand twice.  # (M,) * order"""
        table = self.values.new_zeros((self.num_nodes,) * self.order)
        for order in itertools.permutations(range(self.order)):
            table[tuple(self.nodes[:, i] for i in order)] = self.values
        return table

    def _repr_html_(self) -> str:
        """A table for notebooks: the sets with the largest values."""
        route = "exactly, from the walks" if self.method == "walks" else "from sampled orders of the nodes"
        return _largest_html("Shapley interactions", self.nodes, self.values, self.standard_error, route)


def _largest_html(
    title: str, sets: Tensor, values: Tensor, errors: Tensor, route: str, most: int = 20, types: NodeTypes | None = None
) -> str:
    """A table of the sets of nodes with the largest values."""
    best = by_size(values)[:most]
    sampled = bool((errors > 0).any())
    rows = [
        (
            ", ".join(map(str, sets[i].tolist()) if types is None else types.written(sets[i])),
            float(values[i]),
            *([float(errors[i])] if sampled else []),
        )
        for i in best
    ]
    columns = ["node" if sets.shape[1] == 1 else "nodes", ">value", *([">standard error"] if sampled else [])]
    left = len(values) - len(best)
    note = f"{route[:1].upper()}{route[1:]}." + (f" {left:,} of smaller magnitude are not shown." if left else "")
    return html_box(html_table(columns, rows, title=f"{title}, sum {number(float(values.sum()))}", note=note))


def values_in_graph(chain: RelevanceChain, found: ShapleyValues) -> ShapleyValues:
    """Spread the values of a part's nodes over all nodes; the others contribute nothing."""
    values, error = per_node(chain, found.values), per_node(chain, found.standard_error)
    nodes = torch.arange(chain.num_nodes, device=chain.device)
    return replace(found, values=values, standard_error=error, nodes=nodes)
