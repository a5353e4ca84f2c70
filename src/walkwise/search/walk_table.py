"""All walks of a chain, gathered by the nodes they visit: every R_α(S) is a sum over this ledger.

The relevance of a subgraph asks of a walk only how often it stands at which node, not in which
order. So walks that visit the same nodes equally often are one entry, and while the chain is run
backward, partial walks that stand at the same node with the same past are one message. Shallow
models on sparse graphs have few entries (a molecule of 18 atoms and three layers: about 250), and
then thousands of subgraphs cost less than one contraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import all_rows, run_backward
from walkwise.core.edges import Edges
from walkwise.core.operators import Visit
from walkwise.core.rows import Fan
from walkwise.questions.nodesets import budget
from walkwise.search.neighbours import Floats, Ints, Neighbours, add_up, as_array

#: How many batches of queries are worth taking together: each step has its bookkeeping.
_BATCHES = 8
#: It takes as long to look for so few walks without message as to follow them.
_FEW = 256

#: Node ids in as few bytes as they fit into: there may be millions of walks.
Ids = NDArray[np.signedinteger[Any]]
Array = TypeVar("Array", Ints, Floats, Ids)


@dataclass(frozen=True, eq=False)
class WalkLedger:
    """The relevance of all walks with the same visits, for every way to visit nodes."""

    visits: Ids  # (T, L + 1) the nodes visited, ascending; -1 first where there are fewer visits
    relevance: Floats  # (T,)


@dataclass(frozen=True, eq=False)
class _Partial:
    """Walks followed from the read-out down to a visit, those with the same past added up."""

    node: Ints  # (K,) where they stand
    past: Ids  # (K, L + 1) the node visited at each position, that one included, -1 elsewhere
    message: Tensor  # (K, 1, 1, N)

    def __getitem__(self, some: slice) -> _Partial:
        return _Partial(self.node[some], self.past[some], self.message[some])


def walk_ledger(
    chain: RelevanceChain, near: Neighbours, *, max_rows: int, how_often: bool = True, ends: Ints | None = None
) -> WalkLedger | None:
    """The ledger of all walks, or None where listing them takes more than ``max_rows`` messages.

    Args:
        chain: the traced prediction.
        near: its :func:`~walkwise.search.neighbours.step_neighbours`.
        max_rows: how many messages at single nodes may be computed.
        how_often: whether to tell apart how often a node is visited; α = 0 need not know, and there are
            fewer entries, each with the visits of one of its walks.
        ends: list only the walks that stand at one of these nodes (K,) when the read-out reads them; by
            default all.
    """
    return _Follow(chain, near, max_rows, how_often).all_walks(ends)


def count_walks(chain: RelevanceChain, near: Neighbours) -> Floats:
    """How many walks of L steps end at each node, at most: (M,)."""
    there, here = near.of(np.arange(near.num_nodes))
    counts = np.ones(near.num_nodes)
    for _ in range(chain.num_layers):
        counts = add_up(here, counts[there], near.num_nodes)
    return counts


class _Follow:
    """Runs the chain backward from visit to visit, with a message for every past.

    Who has been where is bookkeeping in integers and stays in main memory; messages stay where the chain is.
    """

    def __init__(self, chain: RelevanceChain, near: Neighbours, max_rows: int, how_often: bool) -> None:
        self.chain = chain
        self.device = chain.device
        self.near = near
        self.rows_left = max_rows
        self.most = max(1, _BATCHES * budget(chain) // chain.width)  # rows at a time
        self.most_steps = int(near.degree.max(initial=0))
        self.how_often = how_often
        self.first = dict(chain.roots)
        self.waiting: dict[int, list[_Partial]] = {}
        self.finished: list[tuple[Ids, Floats]] = []
        self.weights: dict[tuple[int, int, float], Tensor | None] = {}  # of pairs of neighbours, as _per_pair has them

    def all_walks(self, ends: Ints | None) -> WalkLedger | None:
        nodes = np.arange(self.chain.num_nodes) if ends is None else ends
        blank = np.full((len(nodes), self.chain.num_layers + 1), -1, np.min_scalar_type(-len(self.near.offsets)))

        def open_walks(visit: Visit, message: Tensor) -> None:
            some = message if ends is None else message.index_select(0, self._there(ends))
            self._arrive(visit, some, nodes, blank.copy())

        run_backward(self.chain, all_rows(self.chain), open_walks)
        for visit in reversed(self.chain.visits):
            partials = self.waiting.pop(visit.slot, [])
            if partials and not self._extend(visit, self._merged(partials, visit.position)):
                return None
        if not self.finished:
            return WalkLedger(blank[:0], np.zeros(0))
        past = _stacked([past for past, _ in self.finished])
        relevance = _stacked([relevance for _, relevance in self.finished])
        first, same = self._alike(past)
        return WalkLedger(np.sort(past[first], axis=1), add_up(same, relevance, len(first)))

    def _merged(self, partials: list[_Partial], position: int) -> _Partial:
        """The walks that stand at the same node with the same past, added up."""
        opened = position == self.chain.num_layers
        check = opened or len(partials) > 1 or len(partials[0].node) > _FEW
        all_of = _joined(partials) if check else partials[0]
        if len(partials) == 1 and self.chain.num_layers + 1 - position < 4:
            return all_of  # of walks with so few visits too few are alike
        first, same = self._alike(all_of.past, all_of.node)
        if len(first) == len(same):
            return all_of
        total = all_of.message.new_zeros(len(first), *all_of.message.shape[1:])
        total.index_add_(0, self._there(same), all_of.message)
        return _Partial(all_of.node[first], all_of.past[first], total)

    def _extend(self, visit: Visit, partial: _Partial) -> bool:
        """Take the walks one step further down; False where that would be too many."""
        at_most = len(partial.node) * self.most_steps
        if 0 < at_most <= min(self.most, self.rows_left):  # no need to count
            self.rows_left -= at_most
            self._step(visit, partial)
            return True
        counts = self.near.degree[partial.node]
        self.rows_left -= int(counts.sum())
        if self.rows_left < 0:
            return False
        for part in _chunks(counts, self.most):
            self._step(visit, partial[part])
        return True

    def _step(self, visit: Visit, partial: _Partial) -> None:
        """Take some walks one step further down."""
        pairs, owner = self.near.pairs(partial.node)
        nodes = self.near.nodes.take(pairs)
        standing, going, whose = self._there(partial.node), self._there(nodes), self._there(owner)
        fan = Fan(self.chain.num_nodes, standing, going, whose, self._weights(pairs))
        run_backward(
            self.chain,
            fan,
            lambda v, m: self._arrive(v, fan.spread(m), nodes, partial.past.take(owner, axis=0)),
            seeds=[(visit.slot, partial.message)],
        )

    def _weights(self, pairs: Ints) -> Callable[[Edges, Tensor | None, float], Tensor | None]:
        """What the edges behind pairs of neighbours weigh in all: (K,) or (K, H), or None for 1 each."""

        def weights(edges: Edges, weight: Tensor | None, root: float) -> Tensor | None:
            key = id(edges), id(weight), root
            if key not in self.weights:
                self.weights[key] = self._per_pair(edges, weight, root)
            of_all = self.weights[key]
            return None if of_all is None else of_all.index_select(0, self._there(pairs))

        return weights

    def _per_pair(self, edges: Edges, weight: Tensor | None, root: float) -> Tensor | None:
        """What the edges of every pair of neighbours weigh in all, and the root at a node and itself."""
        near = self.near
        if weight is None and root == 1 and near.once is edges:
            return None
        pair = np.searchsorted(near.keys, as_array(edges.target) * near.num_nodes + as_array(edges.source))
        if weight is None:
            counts = np.bincount(pair, minlength=len(near.keys)) + root * near.own
            return torch.from_numpy(counts).to(self.device, self.chain.dtype)
        own = torch.from_numpy(near.own).to(weight).view(-1, *[1] * (weight.dim() - 1))
        total = weight.new_zeros(len(near.keys), *weight.shape[1:]).index_add_(0, self._there(pair), weight)
        return total.add_(own, alpha=root)

    def _arrive(self, visit: Visit, message: Tensor, nodes: Ints, past: Ids) -> None:
        """Write down the walks that have come to a visit."""
        past[:, visit.position] = nodes
        if visit.slot in self.first:
            H = self.first[visit.slot].index_select(0, self._there(nodes))
            self.finished.append((past, (message[:, 0, 0] * H).sum(-1).double().cpu().numpy()))
        else:
            self.waiting.setdefault(visit.slot, []).append(_Partial(nodes, past, message))

    def _alike(self, past: Ids, node: Ints | None = None) -> tuple[Ints, Ints]:
        """The first of all walks that have visited the same, and for every walk which of them it equals.

        If nodes are given, only walks that stand at the same one are alike.
        """
        M = self.chain.num_nodes
        digits = self.chain.num_layers + 2 if self.how_often else 2
        if M * math.log2(digits) + math.log2(M) > 62:
            first, same = _distinct(self._visited(past), M)
            return (first, same) if node is None else _grouped(same * M + node)
        # How often each node was visited, as the digits of one number.
        digit = np.zeros(M + 1, dtype=np.int64)  # the last for node -1
        digit[:-1] = digits ** np.arange(M)
        of_visit = digit.take(past.T, mode="wrap")  # (L + 1, K)
        keys = of_visit.sum(axis=0) if self.how_often else np.bitwise_or.reduce(of_visit, axis=0)
        return _grouped(keys if node is None else keys * M + node)

    def _visited(self, past: Ids) -> Ids:
        """The nodes that walks have visited, whenever that was, ascending.  # (K, L + 1) -> (K, L + 1)"""
        visited = np.sort(past, axis=1)
        if not self.how_often:
            visited[:, 1:][visited[:, 1:] == visited[:, :-1]] = -1
            visited.sort(axis=1)
        return visited

    def _there(self, ids: Ints) -> Tensor:
        """An array where the chain is."""
        there = torch.from_numpy(ids)
        return there if self.device.type == "cpu" else there.to(self.device)


def _joined(partials: list[_Partial]) -> _Partial:
    """Walks from several sides, those without message dropped."""
    node, past = _stacked([p.node for p in partials]), _stacked([p.past for p in partials])
    message = partials[0].message if len(partials) == 1 else torch.cat([p.message for p in partials])
    rows = message.flatten(1)
    alive = rows.cpu().numpy().any(axis=1) if len(node) <= _FEW else rows.any(1).cpu().numpy()
    if not alive.all():
        node, past, message = node[alive], past[alive], message[torch.from_numpy(alive)]
    return _Partial(node, past, message)


def _distinct(table: Ids, num_nodes: int) -> tuple[Ints, Ints]:
    """The first of each distinct row of the table, and for every row which one it equals.

    Ids from -1 to M - 1 are digits to base M + 1, and as many columns as fit are read as one number.
    """
    base, bits, width = num_nodes + 1, math.log2(num_nodes + 1), table.shape[1]
    room = 62 - (0 if width * bits <= 62 else math.log2(len(table) + 1))  # left by what was read before
    fit = max(1, int(room / bits))
    same: Ints = np.zeros(len(table), dtype=np.int64)
    first = same[:0]
    for start in range(0, width, fit):
        for column in table[:, start : start + fit].T:
            same *= base
            same += column
        first, same = _grouped(same)
    return first, same


def _grouped(keys: Ints) -> tuple[Ints, Ints]:
    """The first of all equal numbers, by size, and for every number which one it equals; quicker than np.unique."""
    order = keys.argsort(kind="stable")
    ranked = keys[order]
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(ranked[1:], ranked[:-1], out=new[1:])
    same = np.empty(len(keys), dtype=np.int64)
    same[order] = new.cumsum() - 1
    return order[new], same


def _chunks(counts: Ints, most: int) -> list[slice]:
    """Consecutive pieces with about so many rows each."""
    ends = np.cumsum(counts).tolist()
    pieces, first, before = [], 0, 0
    for last, end in enumerate(ends):
        if end - before > most and last > first:
            pieces.append(slice(first, last))
            first, before = last, ends[last - 1]
    if first < len(ends):
        pieces.append(slice(first, len(ends)))
    return pieces


def _stacked(arrays: list[Array]) -> Array:
    """Arrays one after the other."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
