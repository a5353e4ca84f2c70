"""Which rows of the node tensors a contraction carries: all nodes, or only those of each subgraph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from walkwise.core.edges import (
    DENSE,
    Adjacency,
    Edges,
    LightEnds,
    every_edge,
    matrix_of,
    running_totals,
    weighted_sum,
    whose,
)
from walkwise.core.lazy import cached_property
from walkwise.core.postponed import NodeTensor

#: Up to this many edges it is quicker to look at all of them than to sort them.
_FEW_EDGES = 1 << 14


@dataclass(frozen=True, eq=False)
class Places:
    """Which node each row of a message is, and to which query it belongs."""

    nodes: Tensor  # (K,)
    owner: Tensor  # (K,)
    present: Tensor | None = None  # (K,) which rows are not empty; None where all are

    def rows_of(self, owner: Tensor, nodes: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
        """The rows of these nodes of these owners, and which of them there are.  # (P,), (P,) -> (P,), (P,)"""
        wanted = owner * num_nodes + nodes
        if not len(self.nodes):
            return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
        keys, order = self._keys(num_nodes)
        at = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        return order[at], keys[at] == wanted

    def _keys(self, num_nodes: int) -> tuple[Tensor, Tensor]:
        """Every row's owner and node as one number, ascending, and the rows in that order."""
        keys = self.owner * num_nodes + self.nodes
        ascending, order = (keys if self.present is None else keys.masked_fill(~self.present, -1)).sort()
        return ascending, order


class Rows(ABC):
    """The rows of a contraction: a message has shape (K rows, B queries, D lanes, N neurons).

    Either every row is a node and all queries share them (:class:`AllNodes`), or every query has rows of its own, one
    after the other, and B = 1. The node axis comes first in both, so the same products serve both.
    """

    num_nodes: int
    num_queries: int

    @property
    def places(self) -> tuple[Places | None, Places | None]:
        """The nodes of a message's rows, before and after it is passed along edges; None for all nodes."""
        return None, None

    @property
    def whole(self) -> bool:
        """Whether rows are all nodes in their order."""
        return self.places[0] is None

    def found(self, item: object, count: int, find: Callable[[], Any]) -> Any:
        """A cache for what depends on these rows, an item and a number of rows."""
        if (id(item), count) not in self._known:  # kept with the item, so that its identity is not used again
            self._known[id(item), count] = item, find()
        return self._known[id(item), count][1]

    @cached_property
    def _known(self) -> dict[tuple[int, int], tuple[object, Any]]:
        return {}

    @abstractmethod
    def take(self, per_node: NodeTensor, like: Tensor | None = None) -> Tensor:
        """A node tensor laid out as a message, with the rows of another.  # (M, N) -> (K, 1, 1, N)"""

    @abstractmethod
    def total(self, message: Tensor, values: Tensor) -> Tensor:
        """⟨message, values⟩ for every query and lane.  # (K, B, D, N), (M, N) -> (B, D)"""

    @abstractmethod
    def sum(self, message: Tensor, edges: Edges, weight: Tensor | None, root: float) -> Tensor:
        """(Λᵀ + root) · message between rows of the same query, as in Aggregate.  # (K, B, D, N) -> (K, B, D, N)"""

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Two messages that meet, added up."""
        return add_lanes(a, b)


@dataclass(frozen=True, eq=False)
class AllNodes(Rows):
    """Every node's row, shared by all queries."""

    num_nodes: int
    num_queries: int
    _matrices: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    def take(self, per_node: NodeTensor, like: Tensor | None = None) -> Tensor:
        """The tensor itself."""
        return per_node.unsqueeze(1).unsqueeze(1)

    def total(self, message: Tensor, values: Tensor) -> Tensor:
        """⟨message, values⟩ over all nodes."""
        if message.shape[1] == message.shape[2] == 1:
            return torch.dot(message.reshape(-1), values.reshape(-1)).view(1, 1)
        return torch.einsum("kbdn,kn->bd", message, values)

    def sum(self, message: Tensor, edges: Edges, weight: Tensor | None, root: float) -> Tensor:
        """(Λᵀ + root) · message between all nodes."""
        dense = edges.dense(weight, root, message.dtype)
        if dense is not None:
            return (dense.t() @ message.flatten(1)).view_as(message)
        if weight is not None:
            return _rooted(weighted_sum(message, every_edge(edges), weight), message, root)
        key = id(edges), message.dtype
        if key not in self._matrices:
            self._matrices[key] = matrix_of(every_edge(edges), message)
        return _rooted((self._matrices[key] @ message.flatten(1)).view_as(message), message, root)


@dataclass(frozen=True, eq=False)
class OwnRows(Rows):
    """Just the nodes of each query."""

    num_nodes: int
    num_queries: int
    nodes: Tensor  # (K,) ascending within each owner
    owner: Tensor  # (K,) ascending, whose each row is
    keys: Tensor | None = None  # (K,) owner · M + node, in main memory where edges are to be looked up there
    _adjacency: dict[int, Adjacency] = field(default_factory=dict, repr=False)
    _matrices: dict[tuple[int, int, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def places(self) -> tuple[Places, Places]:
        """The nodes of each query."""
        places = Places(self.nodes, self.owner)
        return places, places

    def take(self, per_node: NodeTensor, like: Tensor | None = None) -> Tensor:
        """The rows of the nodes."""
        return per_node.index_select(0, self.nodes).unsqueeze(1).unsqueeze(1)

    def total(self, message: Tensor, values: Tensor) -> Tensor:
        """⟨message, values⟩ over each query's rows."""
        if self.num_queries == 1 and message.shape[2] == 1:
            return torch.dot(message.reshape(-1), values.index_select(0, self.nodes).view(-1)).view(1, 1)
        return total_by_owner(message, values, self.nodes, self.owner, self.num_queries)

    def sum(self, message: Tensor, edges: Edges, weight: Tensor | None, root: float) -> Tensor:
        """(Λᵀ + root) · message between the nodes of each query."""
        few = self.num_queries == 1 and len(self.nodes) <= DENSE and len(edges.source) <= _FEW_EDGES
        if weight is not None and (weight.dim() > 1 or not few):
            return _rooted(weighted_sum(message, self._between(edges), weight), message, root)
        key = id(edges), id(weight), message.dtype
        if key not in self._matrices:
            matrix = self._looked_up(edges, weight, message) if few else matrix_of(self._between(edges), message)
            self._matrices[key] = matrix
        return _rooted((self._matrices[key] @ message.flatten(1)).view_as(message), message, root)

    def _looked_up(self, edges: Edges, weight: Tensor | None, like: Tensor) -> Tensor:
        """Λᵀ between the nodes of the one query, found by looking at every edge.  # (K, K)"""
        K = len(self.nodes)
        row = torch.full((self.num_nodes,), K, device=self.nodes.device)  # all other nodes share a row
        row = row.index_copy_(0, self.nodes, torch.arange(K, device=row.device))
        ends = row.index_select(0, edges.source), row.index_select(0, edges.target)
        each = like.new_ones(()) if weight is None else weight
        return like.new_zeros(K + 1, K + 1).index_put_(ends, each, accumulate=True)[:K, :K]

    def _between(self, edges: Edges) -> Adjacency:
        if id(edges) not in self._adjacency:
            keys = self.owner * self.num_nodes + self.nodes if self.keys is None else self.keys  # (K,) ascending
            self._adjacency[id(edges)] = _induced(edges.on(keys.device), keys).on(self.nodes.device)
        return self._adjacency[id(edges)]


def _induced(edges: Edges, keys: Tensor) -> Adjacency:
    """The edges of every query's induced subgraph, found by looking up each neighbour's row."""
    light = edges.light_ends
    if light is not None:
        return _from_light_ends(edges, light, keys)
    _, position, found, inside, starts = _looked_through(edges.num_nodes, keys, edges.offsets, edges.sorted_target)
    kept = inside.nonzero().view(-1)  # (P,)
    return Adjacency(running_totals(inside)[starts], found[kept], edges.order[position[kept]])


def _from_light_ends(edges: Edges, light: LightEnds, keys: Tensor) -> Adjacency:
    """The same from lists in which hubs have few edges; they come in the same order."""
    row, position, found, inside, _ = _looked_through(edges.num_nodes, keys, light.offsets, light.other)
    kept = inside.nonzero().view(-1)  # (P,)
    here, there, at = row[kept], found[kept], position[kept]
    forward, place = light.forward[at], light.place[at]
    source, target = torch.where(forward, here, there), torch.where(forward, there, here)
    order = torch.argsort(source * len(edges.source) + place)
    counts = torch.bincount(source, minlength=len(keys))
    return Adjacency(running_totals(counts), target[order], edges.order[place[order]])


def _looked_through(num_nodes: int, keys: Tensor, offsets: Tensor, others: Tensor) -> tuple[Tensor, ...]:
    """Every entry of the lists of every row's node: its row, its place, the row it leads to, and whether there is one.

    # (P',) each; and where those of each row begin, (K + 1,)
    """
    nodes = keys % num_nodes
    first = offsets[nodes]
    counts = offsets[nodes + 1] - first  # (K,)
    starts = running_totals(counts)
    row = whose(counts)
    position = torch.arange(row.numel(), device=row.device) + (first - starts[:-1])[row]
    wanted = (keys - nodes)[row] + others[position]
    found = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
    return row, position, found, keys[found] == wanted, starts


def _rooted(pulled: Tensor, message: Tensor, root: float) -> Tensor:
    """The messages along edges, plus the root's share of the message itself."""
    return pulled.add_(message, alpha=root) if root else pulled


def add_lanes(a: Tensor, b: Tensor) -> Tensor:
    """a + b, where one may have fewer lanes: missing lanes are zero.  # (…, D, N) or (B, D)"""
    axis = 2 if a.dim() == 4 else 1
    if a.shape[axis] == b.shape[axis]:
        return a + b
    lanes = max(a.shape[axis], b.shape[axis])
    return _widen(a, axis, lanes) + _widen(b, axis, lanes)


def _widen(tensor: Tensor, axis: int, lanes: int) -> Tensor:
    missing = lanes - tensor.shape[axis]
    if missing == 0:
        return tensor
    pad = (0, 0) * (tensor.dim() - 1 - axis) + (0, missing)
    return torch.nn.functional.pad(tensor, pad)


def total_by_owner(message: Tensor, values: Tensor, nodes: Tensor, owner: Tensor, count: int) -> Tensor:
    """⟨message, values⟩ over the rows of each owner.  # (K, 1, D, N), (M, N) -> (B, D)"""
    per_row = torch.einsum("kdn,kn->kd", message[:, 0], values.index_select(0, nodes))
    return per_row.new_zeros(count, per_row.shape[1]).index_add(0, owner, per_row)


@dataclass(frozen=True)
class Dimension:
    """The dimension of a tensor that runs over its rows, which may share it with others: (outer, rows, inner)."""

    number: int = 0
    outer: int = 1
    inner: int = 1

    def by_row(self, tensor: Tensor, more: int = 0) -> Tensor:
        """A tensor's entries, row by row, ``more`` dimensions at the end aside."""
        n, shape = self.number, tensor.shape
        rows = shape[n] // (self.outer * self.inner)
        moved = tensor.reshape(*shape[:n], self.outer, rows, self.inner, *shape[n + 1 :])
        moved = moved.movedim(n + 1, 0)  # (K, …, *more)
        return moved.reshape(rows, moved.shape[1 : moved.dim() - more].numel(), *shape[len(shape) - more :])

    def back(self, by_row: Tensor, shape: Sequence[int]) -> Tensor:
        """The tensor again, of the given shape but for the number of rows."""
        n, rows, more = self.number, len(by_row), by_row.shape[2:]
        apart = by_row.reshape(rows, *shape[:n], self.outer, self.inner, *shape[n + 1 :], *more)
        return apart.movedim(0, n + 1).reshape(*self.resized(shape, rows), *more)

    def resized(self, shape: Sequence[int], rows: int) -> torch.Size:
        """The shape with another number of rows."""
        return torch.Size((*shape[: self.number], self.outer * rows * self.inner, *shape[self.number + 1 :]))


#: The first dimension, for rows alone.
FIRST = Dimension()
