"""The edges along which a layer aggregates, and the matrices Λᵀ that they make."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.lazy import cached_property
from walkwise.core.sending import sent

#: Up to this many rows a dense product is faster than a sparse one.
DENSE = 96
#: Where nodes have so many times as many edges as they have lighter ends of, edges are looked up from there.
_HUBS = 4
#: Up to so many queries and lanes it is quicker to weigh every edge's message than to build a sparse matrix.
_FEW_LANES = 2


@dataclass(frozen=True, eq=False)
class Edges:
    """Directed edges between nodes, as the aggregation of one layer uses them.

    ``source[e]`` sends to ``target[e]``. Relevance runs the other way, so what a contraction needs
    is, for every source, the list of its targets.
    """

    source: Tensor  # (E,)
    target: Tensor  # (E,)
    num_nodes: int
    _dense: dict[tuple[float, torch.dtype, int], tuple[Tensor | None, Tensor]] = field(default_factory=dict, repr=False)
    _compressed: list[tuple[Tensor | None, Tensor]] = field(default_factory=list, repr=False)

    def __reduce__(self) -> tuple[type[Edges], tuple[Tensor, Tensor, int]]:
        """Copies begin without what was worked out: it is known by the identity of weights, and theirs are others."""
        return Edges, (self.source, self.target, self.num_nodes)

    def on(self, device: torch.device) -> Edges:
        """The same edges on their own device, or in main memory, where they are copied once."""
        return self if device == self.source.device else self._here

    @cached_property
    def _here(self) -> Edges:
        return Edges(self.source.cpu(), self.target.cpu(), self.num_nodes)

    @cached_property
    def order(self) -> Tensor:
        """The edges sorted by source.  # (E,)"""
        return _by_node(self.source, self.num_nodes)

    @cached_property
    def sorted_target(self) -> Tensor:
        """The targets in that order.  # (E,)"""
        return self.target[self.order]

    @cached_property
    def offsets(self) -> Tensor:
        """Where each source's edges begin in that order.  # (M + 1,)"""
        return _begins(self.source, self.order, self.num_nodes)

    @cached_property
    def arriving(self) -> Adjacency:
        """For every node, the edges that come to it."""
        order = _by_node(self.target, self.num_nodes)
        return Adjacency(_begins(self.target, order, self.num_nodes), self.source[order], order)

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Every pair that edges join as target · M + source, ascending and then filled up, and each edge's place.

        # (E,), (E,)
        """
        keys, order = (self.target * self.num_nodes + self.source).sort()
        new = torch.ones_like(keys, dtype=torch.bool)
        torch.ne(keys[1:], keys[:-1], out=new[1:])
        rank = new.cumsum(0) - 1
        filled = torch.full_like(keys, torch.iinfo(keys.dtype).max).scatter_(0, rank, keys)
        return filled, torch.empty_like(rank).scatter_(0, order, rank)

    def between(self, targets: Tensor, sources: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        """What the edges from sources to targets weigh in all: 0 where there are none.  # (…) -> (…) or (…, H)"""
        keys, place = self.pairs
        if not len(keys):
            return torch.zeros(targets.shape, dtype=dtype, device=targets.device)
        each = torch.ones_like(place, dtype=dtype) if weight is None else weight
        total = each.new_zeros(each.shape).index_add_(0, place, each)
        wanted = targets * self.num_nodes + sources
        at = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        joined = keys[at] == wanted
        return total[at] * (joined if total.dim() == 1 else joined.unsqueeze(-1))

    @cached_property
    def light_ends(self) -> LightEnds | None:
        """Every edge at the end that has fewer edges, where that spares looking through those of hubs; else None."""
        if self.source.device.type != "cpu" or not len(self.source):
            return None
        degree = torch.bincount(torch.cat([self.source, self.target]), minlength=self.num_nodes)
        source, target = self.source[self.order], self.sorted_target
        forward = degree[source] <= degree[target]
        node, other = torch.where(forward, source, target), torch.where(forward, target, source)
        counts = torch.bincount(node, minlength=self.num_nodes)
        leaving = self.offsets.diff()
        if int((degree * leaving).sum()) < _HUBS * int((degree * counts).sum()):  # nodes are met by their degrees
            return None
        place = torch.argsort(node, stable=True)
        return LightEnds(running_totals(counts), place, other[place], forward[place])

    def dense(self, weight: Tensor | None, root: float, dtype: torch.dtype) -> Tensor | None:
        """Λ + root, what the edges to a node (row) from another weigh, for few nodes.  # (M, M), or None for many"""
        if self.num_nodes > DENSE or (weight is not None and weight.dim() > 1):
            return None
        key = root, dtype, id(weight)
        if key not in self._dense:  # kept with the weight, so that its identity is not used again
            matrix = torch.zeros(self.num_nodes, self.num_nodes, dtype=dtype, device=self.source.device)
            each = matrix.new_ones(()) if weight is None else weight.to(dtype)
            matrix.fill_diagonal_(root).index_put_((self.target, self.source), each, accumulate=True)
            self._dense[key] = weight, matrix
        return self._dense[key][1]

    def compressed(self, weight: Tensor | None, like: Tensor) -> Tensor:
        """Λ in compressed rows, kept until one with other weights is asked for: layers often share theirs.  # (M, M)"""
        for known, matrix in self._compressed:
            if known is weight and matrix.dtype == like.dtype:
                return matrix
        self._compressed[:] = [(weight, matrix_of(self.arriving, like, weight))]
        return self._compressed[0][1]

    def shares(self, dtype: torch.dtype) -> Tensor:
        """1 / (number of edges that come to the target): the weights of a mean.  # (E,)"""
        counts = self.arriving.offsets.diff().clamp(min=1).to(dtype)
        return counts.reciprocal()[self.target]

    def same_as(self, other: Edges) -> bool:
        """Whether the other has the very same edges in the same order."""
        return (
            self.num_nodes == other.num_nodes
            and self.source.shape == other.source.shape
            and bool(torch.equal(self.source, other.source) and torch.equal(self.target, other.target))
        )

    def shared(self, known: list[Edges]) -> Edges:
        """The one of some known edges that is the same, so that what is computed for it is shared; else these."""
        for other in known:
            if other.same_as(self):
                return other
        known.append(self)
        return self


@dataclass(frozen=True)
class LightEnds:
    """The edges of a graph, each listed once, at one of its ends."""

    offsets: Tensor  # (M + 1,) where those of each node begin
    place: Tensor  # (E,) each one's place among the edges sorted by source
    other: Tensor  # (E,) the node at the other end
    forward: Tensor  # (E,) whether that is the target


@dataclass(frozen=True)
class Adjacency:
    """For every row, the rows its node sends to (or gets from), in compressed form."""

    offsets: Tensor  # (K + 1,)
    target_row: Tensor  # (P,) the other row
    edge: Tensor  # (P,) index into the edges

    def of_rows(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The entries of some rows: whose of these each is, the other row, and the edge.  # (P,) each"""
        first = self.offsets.index_select(0, rows)
        counts = self.offsets.index_select(0, rows + 1) - first
        row = whose(counts)
        place = torch.arange(row.numel(), device=row.device) + (first - running_totals(counts)[:-1])[row]
        return row, self.target_row[place], self.edge[place]

    def on(self, device: torch.device) -> Adjacency:
        """The same on a device."""
        return Adjacency(*(sent(each, device) for each in (self.offsets, self.target_row, self.edge)))


def every_edge(edges: Edges) -> Adjacency:
    """All edges of the graph, between all nodes."""
    return Adjacency(edges.offsets, edges.sorted_target, edges.order)


def weighted_sum(message: Tensor, adjacency: Adjacency, weight: Tensor) -> Tensor:
    """Λᵀ · message with weights (E,), or (E, H) for as many equal parts of the neurons."""
    if weight.dim() == 1:
        return (matrix_of(adjacency, message, weight) @ message.flatten(1)).view_as(message)
    K, B, D, N = message.shape
    H = weight.shape[1]
    if B * D <= _FEW_LANES:
        return _added_up(message, adjacency, weight)
    by_head = message.view(K, B * D, H, N // H).transpose(1, 2).reshape(K * H, B * D * (N // H))
    pulled = _sparse_matrix(*_per_head(adjacency, weight[adjacency.edge])) @ by_head
    return pulled.view(K, H, B * D, N // H).transpose(1, 2).reshape(K, B, D, N)


def _added_up(message: Tensor, adjacency: Adjacency, weight: Tensor) -> Tensor:
    """The same, edge by edge."""
    P, H = len(adjacency.edge), weight.shape[1]
    _, B, D, N = message.shape
    row = torch.repeat_interleave(adjacency.offsets.diff(), output_size=P)
    each = weight.index_select(0, adjacency.edge).view(P, 1, H, 1)
    carried = message.index_select(0, adjacency.target_row).view(P, B * D, H, N // H) * each
    return torch.zeros_like(message).index_add(0, row, carried.view(P, B, D, N))


def matrix_of(adjacency: Adjacency, like: Tensor, weight: Tensor | None = None) -> Tensor:
    """Λᵀ, dense where there are few rows.  # (K, K)"""
    values = torch.ones_like(adjacency.edge, dtype=like.dtype) if weight is None else weight[adjacency.edge]
    matrix = _sparse_matrix(adjacency.offsets, adjacency.target_row, values)
    return matrix.to_dense() if len(matrix) <= DENSE and not like.requires_grad else matrix


def _per_head(adjacency: Adjacency, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sparse matrix of (row, head) pairs: offsets, columns and values.  # weight (P, H)"""
    H = weight.shape[1]
    head = torch.arange(H, device=weight.device)
    counts = adjacency.offsets.diff()  # (K,)
    row = torch.repeat_interleave(counts, output_size=len(weight))  # (P,)
    within = torch.arange(row.numel(), device=row.device) - adjacency.offsets[row]
    # Pairs are listed row by row, and within a row head by head.
    place = (adjacency.offsets[row] * H + within)[:, None] + counts[row, None] * head  # (P, H)
    starts = adjacency.offsets[:-1, None] * H + counts[:, None] * head  # (K, H)
    last = adjacency.offsets[-1:] * H
    target_row = torch.empty_like(place).flatten()
    target_row[place.flatten()] = (adjacency.target_row[:, None] * H + head).flatten()
    values = torch.empty_like(weight).flatten()
    values[place.flatten()] = weight.flatten()
    return torch.cat([starts.flatten(), last]), target_row, values


def _sparse_matrix(offsets: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """The square matrix with these entries in compressed rows."""
    _silence_beta_notice()
    size = (len(offsets) - 1, len(offsets) - 1)
    return torch.sparse_csr_tensor(offsets, columns, values, size, check_invariants=False)


@functools.cache
def _silence_beta_notice() -> None:
    """Make PyTorch give its one-time notices about CSR tensors where nobody hears them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), (1, 1))


def _by_node(nodes: Tensor, num_nodes: int) -> Tensor:
    """The places of nodes, ascending, those of one node in their order; short numbers are sorted faster.  # (E,)"""
    return torch.argsort(nodes.int() if num_nodes <= torch.iinfo(torch.int32).max else nodes, stable=True)


def _begins(nodes: Tensor, order: Tensor, num_nodes: int) -> Tensor:
    """Where each node's entries begin in that order, and the end of all.  # (E,), (E,) -> (M + 1,)"""
    if nodes.device.type == "cpu":
        return running_totals(torch.bincount(nodes, minlength=num_nodes))
    return torch.searchsorted(nodes[order], torch.arange(num_nodes + 1, device=nodes.device))  # to count is to wait


def whose(counts: Tensor, total: int | None = None) -> Tensor:
    """Each number as often as counted: 0, 0, 1, 1, 1, …  # (K,) -> (sum of the counts,), asked for unless known"""
    return torch.repeat_interleave(counts, output_size=int(counts.sum()) if total is None else total)


def running_totals(counts: Tensor) -> Tensor:
    """Running totals with a leading zero.  # (K,) -> (K + 1,)"""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))
