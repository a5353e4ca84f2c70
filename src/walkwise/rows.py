"""Which rows of the node tensors a contraction carries: all nodes, or just those of each subgraph."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

#: Up to so many rows a dense product is faster than a sparse one.
_DENSE = 96


@dataclass(frozen=True, eq=False)
class Edges:
    """Directed edges between nodes, as the aggregation of one layer uses them.

    ``source[e]`` sends to ``target[e]``. Relevance runs the other way, so what a contraction needs
    is, for every source, the list of its targets.
    """

    source: Tensor  # (E,)
    target: Tensor  # (E,)
    num_nodes: int

    @cached_property
    def order(self) -> Tensor:
        """The edges sorted by source.  # (E,)"""
        return torch.argsort(self.source, stable=True)

    @cached_property
    def sorted_target(self) -> Tensor:
        """The targets in that order.  # (E,)"""
        return self.target[self.order]

    @cached_property
    def offsets(self) -> Tensor:
        """Where each source's edges begin in that order.  # (M + 1,)"""
        return _offsets(torch.bincount(self.source, minlength=self.num_nodes))

    @cached_property
    def dense(self) -> Tensor | None:
        """How many edges lead from one node to another, for few nodes.  # (M, M), or None for many"""
        M = self.num_nodes
        if M > _DENSE:
            return None
        return torch.bincount(self.source * M + self.target, minlength=M * M).view(M, M).float()

    def same_as(self, other: Edges) -> bool:
        """Whether the other has the very same edges in the same order."""
        return (
            self.num_nodes == other.num_nodes
            and self.source.shape == other.source.shape
            and bool(torch.equal(self.source, other.source) and torch.equal(self.target, other.target))
        )


@dataclass(frozen=True)
class Adjacency:
    """For every row, the rows its node sends to, in compressed form."""

    offsets: Tensor  # (K + 1,)
    target_row: Tensor  # (P,)
    edge: Tensor  # (P,) index into the edges


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a contraction: a message has shape (K rows, B queries, D lanes, N neurons).

    Either every row is a node and all queries share them (``nodes`` is None, K = M), or every
    query brings its own rows, one after the other (B = 1; ``owner`` says whose a row is). Only the
    node axis comes first in both, so the same products serve them.
    """

    num_nodes: int
    num_queries: int
    nodes: Tensor | None = None  # (K,) ascending within each owner
    owner: Tensor | None = None  # (K,) ascending
    _adjacency: dict[int, Adjacency] = field(default_factory=dict, repr=False)
    _matrices: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def take(self, per_node: Tensor) -> Tensor:
        """A node tensor laid out as a message.  # (M, N) -> (K, 1, 1, N)"""
        chosen = per_node if self.nodes is None else per_node.index_select(0, self.nodes)
        return chosen[:, None, None, :]

    def total(self, message: Tensor, values: Tensor) -> Tensor:
        """⟨message, values⟩ for every query and lane.  # (K, B, D, N), (M, N) -> (B, D)"""
        if self.nodes is None and message.shape[1] == message.shape[2] == 1:
            return torch.dot(message.reshape(-1), values.reshape(-1)).view(1, 1)
        if self.nodes is None:
            return torch.einsum("kbdn,kn->bd", message, values)
        per_row = torch.einsum("kdn,kn->kd", message[:, 0], values.index_select(0, self.nodes))
        assert self.owner is not None
        return per_row.new_zeros(self.num_queries, per_row.shape[1]).index_add(0, self.owner, per_row)

    def adjacency(self, edges: Edges) -> Adjacency:
        """The edges between rows of the same query."""
        key = id(edges)
        if key not in self._adjacency:
            if self.nodes is None:
                self._adjacency[key] = Adjacency(edges.offsets, edges.sorted_target, edges.order)
            else:
                self._adjacency[key] = self._induced(edges)
        return self._adjacency[key]

    def matrix(self, edges: Edges, weight: Tensor | None, like: Tensor) -> Tensor:
        """Λᵀ between rows of the same query, dense where they are few.  # (K, K)"""
        key = id(edges)
        if weight is None and key in self._matrices:
            return self._matrices[key]
        if weight is None and self.nodes is None and edges.dense is not None:
            self._matrices[key] = edges.dense.to(like.dtype)
            return self._matrices[key]
        adjacency = self.adjacency(edges)
        values = torch.ones_like(adjacency.edge, dtype=like.dtype) if weight is None else weight[adjacency.edge]
        matrix = sparse_matrix(adjacency.offsets, adjacency.target_row, values)
        if len(matrix) <= _DENSE and not like.requires_grad:
            matrix = matrix.to_dense()
        if weight is None:
            self._matrices[key] = matrix
        return matrix

    def _induced(self, edges: Edges) -> Adjacency:
        """The edges of every query's induced subgraph, found by looking up each neighbour's row."""
        assert self.nodes is not None and self.owner is not None
        keys = self.owner * self.num_nodes + self.nodes  # (K,) ascending
        first = edges.offsets[self.nodes]
        counts = edges.offsets[self.nodes + 1] - first  # (K,)
        row = torch.repeat_interleave(counts)  # (P',) every out-edge of every row
        position = torch.arange(row.numel(), device=row.device) + (first - _offsets(counts)[:-1])[row]
        wanted = (self.owner * self.num_nodes)[row] + edges.sorted_target[position]
        found = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
        inside = keys[found] == wanted
        kept = torch.bincount(row[inside], minlength=keys.numel())
        return Adjacency(_offsets(kept), found[inside], edges.order[position[inside]])


def sparse_matrix(offsets: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """The square matrix with these entries in compressed rows."""
    _hear_out_beta_notice()
    size = (len(offsets) - 1, len(offsets) - 1)
    return torch.sparse_csr_tensor(offsets, columns, values, size, check_invariants=False)


@functools.cache
def _hear_out_beta_notice() -> None:
    """Make PyTorch give its one-time notices about CSR tensors where nobody hears them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), (1, 1))


def _offsets(counts: Tensor) -> Tensor:
    """Running totals with a leading zero.  # (K,) -> (K + 1,)"""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))
