"""The contribution of each node to R_α, from a table of all walks or from the chain, step by step."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.sending import sent
from walkwise.questions.bookkeeping import add_up, spans, turned
from walkwise.questions.neighbours import Bools, Floats, Ints, Neighbours, running_totals
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.questions.walk_tables import WalkTable
from walkwise.search.greedy import Contributions, Criterion

#: The longest table, in entries times visits times nodes, for which adding all up anew is quicker than keeping up.
_SHORT = 200_000
#: How many entries the sets of one batch of queries may have.
_MOST_ENTRIES = 1 << 25


def from_table(table: WalkTable, criterion: Criterion) -> Contributions:
    """Contributions as sums over a table of all walks.

    With o visits outside S, a walk of n visits counts φ(o) = α^o, or 0 where o = n (Eqs. 8-9). Choosing m
    changes o by s · v, v the visits to m, s = -1 (activation) or +1 (pruning), so R_α changes by

        Σ over walks through m of R(walk) · Ψ_v(o),  Ψ_v(o) = φ(o + s·v) - φ(o).

    When a node is chosen, o changes for the walks through it, and nothing else does.
    """
    A, G, W = criterion.shape
    short = A * G == 1 and table.visits.size * W <= _SHORT
    return _ShortTable(table, criterion) if short else _LongTable(table, criterion)


class _ShortTable:
    """One graph, one discount, few walks: every change is added up anew at every step.

    Of every entry (T) and node it visits (P) just the place of Ψ_v(o) is kept; choosing a node moves the places of the
    walks through it.
    """

    rounding = 0.0  # what no walk changes is exactly 0

    def __init__(self, table: WalkTable, criterion: Criterion) -> None:
        (T, P), self.width = table.visits.shape, criterion.graphs.width
        times, visited, row, outside = visit_counts(table.visits, criterion.graphs.place, criterion.adds)
        psi = differences(criterion.alphas, P, criterion.sign).reshape(-1, P + 1)  # Ψ_v of n visits for every o
        self.psi = (psi.take(row // (P + 1), axis=0) * table.relevance[:, None, None]).ravel()
        self.at = (np.arange(0, len(self.psi), P + 1).reshape(T, P) + outside[:, None]).ravel()  # (T · P,)
        steps = (criterion.sign * times).ravel()
        moves = np.bincount((visited * T + np.arange(T)[:, None]).ravel(), steps, self.width * T)
        self.moves = (
            moves.astype(np.int64).reshape(self.width, T).repeat(P, axis=1)
        )  # (M, T · P) how far a node moves all
        self.visited, self.chosen = visited.ravel(), np.zeros(self.width, dtype=bool)
        self.change: Floats = self._added_up()

    def choose(self, a: Ints, place: Ints) -> None:
        """Count the visits of the chosen node as inside, or outside."""
        self.at += self.moves[place[0]]
        self.chosen[place] = True
        self.change = self._added_up()
        self.change[0, self.chosen] = np.nan

    def _added_up(self) -> Floats:
        return np.bincount(self.visited, self.psi.take(self.at), self.width)[None].astype(np.float64, copy=False)


class _LongTable:
    """Changes kept up to date, entry by entry that a choice moves."""

    rounding = 0.0  # what no walk changes is exactly 0

    def __init__(self, table: WalkTable, criterion: Criterion) -> None:
        A, G, W = criterion.shape
        self.places = G * W
        times, visited, row, outside = visit_counts(table.visits, criterion.graphs.place, criterion.adds)
        psi = differences(criterion.alphas, times.shape[1], criterion.sign)  # (A, n, v, o)
        self.psi, self.stride = psi.ravel(), psi[0].size
        value = (self.psi[row + outside[:, None] + a * self.stride] for a in range(A))
        self.change: Floats = np.stack([add_up(visited, table.relevance[:, None] * v, self.places) for v in value])
        self.count, self.outside = len(outside), np.tile(outside.astype(np.int16), A)  # T, (A · T,)
        # From here on by place: for each one after the other the X walks that come there.
        walk, column = np.nonzero(times)
        place = visited[walk, column]
        order = np.argsort(place, kind="stable")
        self.offsets = running_totals(np.bincount(place, minlength=self.places))
        self.walk, self.step = walk[order], criterion.sign * times[walk, column][order]  # (X,) and how o changes
        self.row, self.visited, self.relevance = row, visited, table.relevance[:, None]  # (T, P), (T, 1)

    def choose(self, a: Ints, place: Ints) -> None:
        """Count the visits of the chosen nodes as inside, or outside."""
        entry, a = self._entries(a, place)
        walk = self.walk[entry]  # (X',)
        now = walk + a[:, 0] * self.count
        before = self.outside[now]
        after = before + self.step[entry]
        self.outside[now] = after
        row = self.row.take(walk, axis=0) + a * self.stride  # (X', P)
        change = self.psi[row + after[:, None]]
        change -= self.psi[row + before[:, None]]
        change *= self.relevance.take(walk, axis=0)
        places = self.visited.take(walk, axis=0) + a * self.places
        self.change += add_up(places, change, self.change.size).reshape(self.change.shape)

    def _entries(self, a: Ints, place: Ints) -> tuple[slice | Ints, Ints]:
        """The walks through the places, and each one's discount.  # (X',), (X', 1) or (1, 1)"""
        if len(place) == 1:
            only = int(place[0])
            return slice(self.offsets[only], self.offsets[only + 1]), a[:, None]
        first = self.offsets[place]
        entry, which = spans(first, self.offsets[place + 1] - first)
        return entry, a[which, None]


class VisitCounts(NamedTuple):
    """The entries of a table (T) and the nodes that each visits (P), as Ψ_v(o) is looked up: arrays, or tensors."""

    times: Any  # (T, P) how often the node is visited, 0 where none is named
    visited: Any  # (T, P) its place
    row: Any  # (T, P) where Ψ_v begins
    outside: Any  # (T,) o, before anything is chosen


def visit_counts(visits: Any, place: Any, adds: bool) -> VisitCounts:
    """The visits of walks as Ψ_v(o) is looked up.

    Args:
        visits: the nodes that each walk visits, ascending, -1 where none is named, (T, P).
        place: of every node, (M,).
        adds: whether nodes are added, or taken away.
    """
    times = _times(visits)
    visited = place[visits] * (times > 0)
    length, size = times.sum(1), times.shape[1] + 1
    row = (length[:, None] * size + times) * size
    return VisitCounts(times, visited, row, length if adds else 0 * length)


def _times(visits: Any) -> Any:
    """How often a walk visits a node, written where the node is first named, 0 elsewhere.  # (T, P)"""
    by_position = turned(visits)  # (P, T)
    times = (by_position[:, None] == by_position).sum(0)
    times[1:] *= by_position[1:] != by_position[:-1]
    times *= by_position >= 0
    return turned(times)


@functools.lru_cache(maxsize=8)
def differences(alphas: tuple[float, ...], positions: int, sign: int) -> Floats:
    """Ψ_v(o) = φ(o + s·v) - φ(o) of a walk of n visits for every discount; 0 where it cannot be: (A, n, v, o)."""
    size = positions + 1
    n, v, o = np.ogrid[:size, :size, :size]
    moved = o + sign * v
    possible = (o <= n) & (moved >= 0) & (moved <= n)

    def phi(alpha: float, outside: Ints) -> Floats:
        counted: Floats = np.where(outside < n, float(alpha) ** np.clip(outside, 0, None), 0.0)
        return counted

    return np.stack([np.where(possible, phi(a, moved) - phi(a, o), 0.0) for a in alphas])


class QueryContributions:
    """Contributions asked of the chain as one batch of subgraphs a step, for the nodes whose own can have changed.

    No walk joins nodes more than L steps apart, so choosing a node leaves the contributions beyond as they are; and
    with α = 0, a node that no step joins to S contributes its own walks alone, whatever S is elsewhere.
    """

    def __init__(self, chain: RelevanceChain, criterion: Criterion, near: Neighbours | None) -> None:
        A, G, W = criterion.shape
        self.chain, self.criterion = chain, criterion
        self.near = None if near is None else near.both_ways()
        self.graph = np.arange(G * W) // max(1, W)
        everyone = np.repeat(criterion.graphs.node[None] >= 0, A, axis=0)  # (A, G · W)
        self.free = everyone.copy()
        self.inside = np.zeros_like(everyone) if criterion.adds else everyone.copy()
        self.beside = np.zeros_like(everyone)  # joined to S by a step
        self.rounding = 0.0
        self.change: Floats = np.zeros(everyone.shape)
        self._begin(everyone)
        self._ask(everyone)

    def choose(self, a: Ints, place: Ints) -> None:
        """Move the chosen nodes, and ask again for those they share walks with."""
        self._move(a, place)
        self.inside[a, place] = self.criterion.adds
        self.free[a, place] = False
        stale = np.zeros_like(self.free)
        for i, p in zip(a.tolist(), place.tolist(), strict=True):
            stale[i] |= self._disturbed(i, p)
        self._ask(stale & self.free)

    def _begin(self, everyone: Bools) -> None:
        """Ask for R(G), with which pruning begins and all differences are compared."""
        A, G, W = self.criterion.shape
        whole = self._masks(np.eye(G, dtype=bool).repeat(W, axis=1) & everyone[:1])
        full: Floats = subgraph_relevance(self.chain, whole).double().cpu().numpy()  # (G,) R(G)
        self._round(full)
        self.relevance = np.repeat(np.zeros((1, G)) if self.criterion.adds else full[None], A, axis=0)  # (A, G) now

    def _move(self, a: Ints, place: Ints) -> None:
        self.relevance[a, self.graph[place]] += self.change[a, place]

    def _disturbed(self, a: int, place: int) -> Bools:
        """Whose contribution a choice can have changed.  # (G · W,)"""
        if self.near is None:
            everyone: Bools = self.graph == self.graph[place]
            return everyone
        graphs = self.criterion.graphs
        node = int(graphs.node[place])
        disturbed: Bools = np.zeros(self.free.shape[1], dtype=bool)
        disturbed[graphs.place[self.near.within(node, self.chain.num_layers)]] = True
        if self.criterion.adds and self.criterion.alphas[a] == 0:
            self.beside[a, graphs.place[self.near.within(node, 1)]] = True
            disturbed &= self.beside[a]
        return disturbed

    def _ask(self, wanted: Bools) -> None:
        """R_α with each wanted node chosen, so many at a time that the sets have room."""
        a, place = np.nonzero(wanted)
        most = max(1, _MOST_ENTRIES // max(1, wanted.shape[1]))
        for first in range(0, len(a), most):
            self._ask_some(a[first : first + most], place[first : first + most])

    def _ask_some(self, a: Ints, place: Ints) -> None:
        """R_α with each node chosen; discounts that have chosen the same so far share the answers."""
        graph = self.graph[place]
        sets = self.inside[a] & (self.graph == graph[:, None])
        sets[np.arange(len(a)), place] = self.criterion.adds
        distinct, which = np.unique(np.packbits(sets, axis=1), axis=0, return_inverse=True)
        masks = self._masks(np.unpackbits(distinct, axis=1, count=sets.shape[1]).astype(bool))
        answers = subgraph_relevance(self.chain, masks, alpha=self.criterion.alphas).double().cpu().numpy()
        self._round(answers)
        self.change[a, place] = answers[which.ravel(), a] - self.relevance[a, graph]

    def _round(self, answers: Floats) -> None:
        """Remember how far the difference of two such numbers may be off."""
        off = 16 * torch.finfo(self.chain.dtype).eps * float(np.abs(answers).max(initial=0.0))
        self.rounding = max(self.rounding, off)

    def _masks(self, sets: Bools) -> Tensor:
        """Sets of places as sets of nodes.  # (B, G · W) -> (B, M)"""
        graphs = self.criterion.graphs
        masks = np.zeros((len(sets), self.chain.num_nodes), dtype=bool)
        masks[:, graphs.nodes] = sets[:, graphs.place[graphs.nodes]]
        return sent(masks, self.chain.device)
