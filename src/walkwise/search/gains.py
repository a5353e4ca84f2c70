"""By how much R_α changes when a node comes in or goes out, kept up to date as nodes are chosen."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.errors import InputError
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.search.neighbours import Floats, Ints, Neighbours, add_up, running_totals, spans
from walkwise.search.walk_table import WalkLedger

Mode = Literal["activation", "pruning"]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Layout:
    """Graphs side by side in W places each: node m stands at ``place[m]`` of G · W places."""

    sizes: Ints  # (G,)
    width: int  # W, the size of the largest graph
    place: Ints  # (M,)
    node: Ints  # (G · W,) the node at each place, -1 where there is none

    @staticmethod
    def alone(num_nodes: int) -> Layout:
        """The layout of one graph."""
        nodes = np.arange(num_nodes)
        return Layout(np.array([num_nodes]), num_nodes, nodes, nodes)

    @staticmethod
    def of(graph: Ints) -> Layout:
        """The layout of nodes whose graphs are given.  # (M,)"""
        sizes = np.bincount(graph, minlength=1)
        width = int(sizes.max())
        by_graph = np.argsort(graph, kind="stable")
        within = np.arange(len(graph)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        place = np.empty(len(graph), dtype=np.int64)
        place[by_graph] = graph[by_graph] * width + within
        node = np.full(len(sizes) * width, -1)
        node[place] = np.arange(len(graph))
        return Layout(sizes, width, place, node)

    @property
    def nodes(self) -> Ints:
        """All nodes of the graphs.  # (M,)"""
        return self.node[self.node >= 0]

    def some(self, first: int, last: int) -> Layout:
        """The layout of some of the graphs alone; the places of other nodes are of no meaning."""
        if last - first == len(self.sizes):
            return self
        width = int(self.sizes[first:last].max())
        node = self.node.reshape(-1, self.width)[first:last, :width].ravel()
        place = np.zeros_like(self.place)
        place[node[node >= 0]] = np.flatnonzero(node >= 0)
        return Layout(self.sizes[first:last], width, place, node)

    def graph(self, places: Ints) -> Ints:
        """The graph that each place belongs to."""
        return places // max(1, self.width)


@dataclass(frozen=True, eq=False)
class Task:
    """What is asked: a mode, A discounts, G graphs."""

    mode: Mode
    alphas: tuple[float, ...]
    layout: Layout
    tolerance: float = 0.0
    progress: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """(A, G, W)."""
        return len(self.alphas), len(self.layout.sizes), self.layout.width

    @property
    def adds(self) -> bool:
        """Whether choosing a node puts it into the subgraph."""
        return self.mode == "activation"

    @property
    def sign(self) -> int:
        """By how much choosing a node changes the visits outside, for every visit to it."""
        return -1 if self.adds else 1


class Gains(Protocol):
    """What a greedy search asks and tells."""

    gain: Floats  # (A, G · W): R_α once the node is chosen, less R_α now; of no meaning once it has been
    rounding: float  # how far gains may be off, besides what is relative to themselves

    def choose(self, a: Ints, place: Ints) -> None:
        """Nodes were chosen: for every discount and unfinished graph, its place.  # (K,), (K,)"""


class LedgerGains:
    """Gains as sums over a ledger of all walks.

    With o visits outside S, a walk of n visits counts φ(o) = α^o, or 0 where o = n (Eqs. 8-9). Choosing m
    changes o by s · v, v the visits to m, s = -1 (activation) or +1 (pruning), so

    gain(m) = Σ over walks through m of R(walk) · Ψ_v(o),  Ψ_v(o) = φ(o + s·v) - φ(o).

    When a node is chosen, o changes for the walks through it, and nothing else does.
    """

    rounding = 0.0  # what no walk changes is exactly 0

    def __init__(self, ledger: WalkLedger, task: Task) -> None:
        A, G, W = task.shape
        self.places = G * W
        table = tabled(ledger, task)
        times, visited, row, outside = table.times, table.visited, table.row, table.outside
        psi = differences(task.alphas, times.shape[1], task.sign)  # (A, n, v, o)
        self.psi, self.stride = psi.ravel(), psi[0].size
        value = (self.psi[row + outside[:, None] + a * self.stride] for a in range(A))
        self.gain: Floats = np.stack([add_up(visited, ledger.relevance[:, None] * v, self.places) for v in value])
        self.count, self.outside = len(outside), np.tile(outside.astype(np.int16), A)  # T, (A · T,)
        # From here on by place: for each one after the other the X walks that come there.
        walk, column = np.nonzero(times)
        place = visited[walk, column]
        order = np.argsort(place, kind="stable")
        self.offsets = running_totals(np.bincount(place, minlength=self.places))
        self.walk, self.step = walk[order], task.sign * times[walk, column][order]  # (X,) and how o changes
        self.row, self.visited, self.relevance = row, visited, ledger.relevance[:, None]  # (T, P), (T, 1)

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
        self.gain += add_up(places, change, self.gain.size).reshape(self.gain.shape)

    def _entries(self, a: Ints, place: Ints) -> tuple[slice | Ints, Ints]:
        """The walks through the places, and each one's discount.  # (X',), (X', 1) or (1, 1)"""
        if len(place) == 1:
            only = int(place[0])
            return slice(self.offsets[only], self.offsets[only + 1]), a[:, None]
        first = self.offsets[place]
        entry, which = spans(first, self.offsets[place + 1] - first)
        return entry, a[which, None]


class AskedGains:
    """Gains asked of the chain as one batch of subgraphs a step, for the nodes whose gain can have changed.

    No walk joins nodes more than L steps apart, so choosing a node leaves the gains beyond as they are; and
    with α = 0, a node that no step joins to S gains its own walks alone, whatever S is elsewhere.
    """

    def __init__(self, chain: RelevanceChain, task: Task, near: Neighbours | None) -> None:
        A, G, W = task.shape
        self.chain, self.task = chain, task
        self.near = None if near is None else near.both_ways()
        self.graph = task.layout.graph(np.arange(G * W))
        everyone = np.repeat(task.layout.node[None] >= 0, A, axis=0)  # (A, G · W)
        self.free = everyone.copy()
        self.inside = np.zeros_like(everyone) if task.adds else everyone.copy()
        self.beside = np.zeros_like(everyone)  # joined to S by a step
        whole = self._masks(np.eye(G, dtype=bool).repeat(W, axis=1) & everyone[:1])
        full: Floats = subgraph_relevance(chain, whole).double().cpu().numpy()  # (G,) R(G)
        self.rounding = self._rounding(full)
        self.relevance = np.repeat(np.zeros((1, G)) if task.adds else full[None], A, axis=0)  # (A, G) R_α now
        self.gain: Floats = np.zeros(everyone.shape)
        self._ask(everyone)

    def choose(self, a: Ints, place: Ints) -> None:
        """Move the chosen nodes, and ask again for those they share walks with."""
        graph = self.graph[place]
        self.relevance[a, graph] += self.gain[a, place]
        self.inside[a, place] = self.task.adds
        self.free[a, place] = False
        stale = np.zeros_like(self.free)
        for i, p in zip(a.tolist(), place.tolist(), strict=True):
            stale[i] |= self._disturbed(i, p)
        self._ask(stale & self.free)

    def _disturbed(self, a: int, place: int) -> Bools:
        """Whose gain a choice can have changed.  # (G · W,)"""
        if self.near is None:
            everyone: Bools = self.graph == self.graph[place]
            return everyone
        node = int(self.task.layout.node[place])
        disturbed: Bools = np.zeros(self.free.shape[1], dtype=bool)
        disturbed[self.task.layout.place[self.near.within(node, self.chain.num_layers)]] = True
        if self.task.adds and self.task.alphas[a] == 0:
            self.beside[a, self.task.layout.place[self.near.within(node, 1)]] = True
            disturbed &= self.beside[a]
        return disturbed

    def _ask(self, wanted: Bools) -> None:
        """R_α with each wanted node chosen; discounts that have chosen the same so far share the answers."""
        a, place = np.nonzero(wanted)
        if not len(a):
            return
        graph = self.graph[place]
        sets = self.inside[a] & (self.graph == graph[:, None])
        sets[np.arange(len(a)), place] = self.task.adds
        distinct, which = np.unique(np.packbits(sets, axis=1), axis=0, return_inverse=True)
        masks = np.unpackbits(distinct, axis=1, count=sets.shape[1]).astype(bool)
        answers = subgraph_relevance(self.chain, self._masks(masks), alpha=self.task.alphas).double().cpu().numpy()
        self.rounding = max(self.rounding, self._rounding(answers))
        self.gain[a, place] = answers[which.ravel(), a] - self.relevance[a, graph]

    def _rounding(self, answers: Floats) -> float:
        """How far the difference of two such numbers may be off."""
        return 16 * torch.finfo(self.chain.dtype).eps * float(np.abs(answers).max(initial=0.0))

    def _masks(self, sets: Bools) -> Tensor:
        """Sets of places as sets of nodes.  # (B, G · W) -> (B, M)"""
        nodes = self.task.layout.nodes
        masks = np.zeros((len(sets), self.chain.num_nodes), dtype=bool)
        masks[:, nodes] = sets[:, self.task.layout.place[nodes]]
        return torch.from_numpy(masks).to(self.chain.device)


def check_separate(layout: Layout, near: Neighbours) -> None:
    """Refuse edges between graphs: their relevance could not be told apart."""
    if len(layout.sizes) == 1:
        return
    ends, starts = near.of(np.arange(near.num_nodes))
    across = layout.graph(layout.place[starts]) != layout.graph(layout.place[ends])
    if across.any():
        e = int(across.argmax())
        raise InputError(f"graphs puts nodes {starts[e]} and {ends[e]} into different graphs, but an edge joins them.")


class Tabled(NamedTuple):
    """The entries of a ledger (T) and the nodes that each visits (P), as the table of Ψ_v(o) is read."""

    times: Ints  # (T, P) how often the node is visited, 0 where none is named
    visited: Ints  # (T, P) its place
    row: Ints  # (T, P) where Ψ_v begins in the table
    outside: Ints  # (T,) o, before anything is chosen


def tabled(ledger: WalkLedger, task: Task) -> Tabled:
    """A ledger as the table of Ψ_v(o) is read."""
    times = _times(ledger.visits)
    visited = np.where(times > 0, task.layout.place[ledger.visits], 0)
    length, size = times.sum(axis=1), times.shape[1] + 1
    row = (length[:, None] * size + times) * size
    return Tabled(times, visited, row, length if task.adds else 0 * length)


def _times(visits: Ints) -> Ints:
    """How often a walk visits a node, written where the node is first named, 0 elsewhere.  # (T, P)"""
    by_position = visits.T.copy()  # (P, T): quick to add up
    times: Ints = (by_position[:, None] == by_position).sum(axis=0)
    times[1:][by_position[1:] == by_position[:-1]] = 0
    times[by_position < 0] = 0
    return np.ascontiguousarray(times.T)


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
