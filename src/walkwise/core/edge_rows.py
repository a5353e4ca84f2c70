"""Maps of edges' rows: what a layer reads from nodes along its edges, works out edge by edge, and adds up at nodes.

A question about a subgraph carries no more of them than the edges that come to its nodes, whatever the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor

from walkwise.core.edges import Edges, running_totals, whose
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Cast, Largest, Operator
from walkwise.core.rows import Places, Rows


@dataclass(frozen=True, eq=False)
class Incoming:
    """The edges of a layer, by the nodes that they come to."""

    target: Tensor  # (E,)
    num_nodes: int

    @cached_property
    def order(self) -> Tensor:
        """The edges sorted by target.  # (E,)"""
        return torch.argsort(self.target, stable=True)

    @cached_property
    def offsets(self) -> Tensor:
        """Where each target's edges begin in that order.  # (M + 1,)"""
        return running_totals(torch.bincount(self.target, minlength=self.num_nodes))

    @property
    def per_node(self) -> int:
        """How many edges come to a node, on average and rounded up."""
        return -(-len(self.target) // max(1, self.num_nodes))

    def same_as(self, other: Incoming) -> bool:
        """Whether the other has the same edges in the same order."""
        return self.num_nodes == other.num_nodes and torch.equal(self.target, other.target)


@dataclass(frozen=True, eq=False)
class EdgeRows(Rows):
    """A row for every edge that comes to a node where a message stands, for every query."""

    num_nodes: int  # of the graph
    num_queries: int
    edge: Tensor | None  # (P,) which edge each row is; None for all edges in their order
    row: Tensor  # (P,) the row of the message that each edge comes to
    below: Places | None  # the nodes of the rows that the message can go on to; None for all nodes
    owner: Tensor | None  # (P,) whose each row is
    _found: dict[int, tuple[Tensor, Tensor, Tensor | None]] = field(default_factory=dict, repr=False)

    @property
    def whole(self) -> bool:
        """Whether rows are all edges in their order."""
        return self.edge is None

    def take(self, per_node: Tensor, like: Tensor | None = None) -> Tensor:
        """The rows of the edges.  # (E, N) -> (P, 1, 1, N)"""
        taken = per_node if self.edge is None else per_node.index_select(0, self.edge)
        return taken.unsqueeze(1).unsqueeze(1)

    def gone(self, message: Tensor, end: Tensor) -> Tensor:
        """The message at the nodes that the edges were read from; what leads to no row ends.  # end (E,)"""
        rows = self.num_nodes if self.below is None else len(self.below.nodes)
        place, kept = self._places(end)
        arriving = message if kept is None else message.index_select(0, kept)
        return message.new_zeros(rows, *message.shape[1:]).index_add_(0, place, arriving)

    def _places(self, end: Tensor) -> tuple[Tensor, Tensor | None]:
        """The rows that edges lead to, and which edges those are, if not all."""
        if self.below is None or self.edge is None or self.owner is None:
            return end, None
        if id(end) not in self._found:  # kept with the tensor, so that its identity is not used again
            found, inside = self.below.rows_of(self.owner, end.index_select(0, self.edge), self.num_nodes)
            kept = inside.nonzero().view(-1)
            self._found[id(end)] = end, found.index_select(0, kept), kept
        _, place, edges = self._found[id(end)]
        return place, edges

    def total(self, message: Tensor, values: Tensor) -> NoReturn:
        """No walk begins at an edge."""
        raise NotImplementedError

    def sum(self, message: Tensor, edges: Edges, weight: Tensor | None, root: float) -> NoReturn:
        """No message is passed from edge to edge."""
        raise NotImplementedError


def edge_rows(rows: Rows, edges: Incoming) -> EdgeRows:
    """The rows of the edges that come to the rows of a message, found once."""
    if id(edges) not in rows.edge_rows:  # kept with the edges, so that their identity is not used again
        rows.edge_rows[id(edges)] = edges, _edge_rows(rows, edges)
    found = rows.edge_rows[id(edges)][1]
    assert isinstance(found, EdgeRows)
    return found


def _edge_rows(rows: Rows, edges: Incoming) -> EdgeRows:
    above, below = rows.places
    if above is None:
        return EdgeRows(rows.num_nodes, rows.num_queries, None, edges.target, None, None)
    first = edges.offsets[above.nodes]
    counts = edges.offsets[above.nodes + 1] - first
    counts = counts if above.present is None else counts * above.present
    row = whose(counts)
    position = torch.arange(len(row), device=row.device) + (first - running_totals(counts)[:-1])[row]
    return EdgeRows(rows.num_nodes, rows.num_queries, edges.order[position], row, below, above.owner[row])


@dataclass(frozen=True, eq=False)
class EndOf(Operator):
    """The row of a node at one end of every edge: what an edge reads."""

    end: Tensor  # (E,) the node
    incoming: Incoming

    reach = 1

    @cached_property
    def edges(self) -> Edges:
        """The edges from the nodes that are read to those that the edges come to."""
        return Edges(self.end, self.incoming.target, self.incoming.num_nodes)

    def growth(self, largest: Largest) -> float:
        """All edges could read one node."""
        return float(len(self.end))

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every node gets the messages of the edges that read it."""
        return edge_rows(rows, self.incoming).gone(message, self.end)

    def push(self, values: Tensor) -> Tensor:
        """The rows that are read."""
        return values.index_select(0, self.end)

    def to(self, cast: Cast) -> EndOf:
        """The same, moved."""
        return EndOf(cast(self.end), cast.shared(self.incoming, _moved))


@dataclass(frozen=True, eq=False)
class AddedUp(Operator):
    """Edges' rows added up at the nodes that the edges come to."""

    incoming: Incoming

    def growth(self, largest: Largest) -> float:
        """Nothing grows."""
        return 1.0

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every edge gets the message of its node."""
        return message.index_select(0, edge_rows(rows, self.incoming).row)

    def push(self, values: Tensor) -> Tensor:
        """The sums."""
        total = values.new_zeros(self.incoming.num_nodes, values.shape[1])
        return total.index_add_(0, self.incoming.target, values)

    def to(self, cast: Cast) -> AddedUp:
        """The same, moved."""
        return AddedUp(cast.shared(self.incoming, _moved))


@dataclass(frozen=True, eq=False)
class OnEdges(Operator):
    """A map of single rows, applied to edges' rows."""

    operator: Operator
    incoming: Incoming

    @property
    def widest(self) -> int:
        """As many neurons as a node's edges have together."""
        return self.operator.widest * self.incoming.per_node

    def growth(self, largest: Largest) -> float | None:
        """That of the map."""
        return self.operator.growth(largest)

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The map's own."""
        return self.operator.pull(message, edge_rows(rows, self.incoming))

    def push(self, values: Tensor) -> Tensor:
        """The map's own."""
        return self.operator.push(values)

    def to(self, cast: Cast) -> OnEdges:
        """The same, cast."""
        return OnEdges(self.operator.to(cast), cast.shared(self.incoming, _moved))


def _moved(incoming: Incoming, cast: Cast) -> Incoming:
    return Incoming(cast(incoming.target), incoming.num_nodes)
