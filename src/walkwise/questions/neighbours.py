"""Who is next to whom: along the steps of a chain's walks, or along the edges of the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.edges import Edges
from walkwise.core.homed_rows import edges_of
from walkwise.core.lazy import cached_property
from walkwise.questions.bookkeeping import add_up, spans

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
#: The most pairs of nodes that are looked at to find where several hops lead.
_MOST_PAIRS = 1 << 26


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For every node a list of others, one after the other: pair p leads from one node to ``nodes[p]``."""

    nodes: Ints  # (P,) ascending for each node
    offsets: Ints  # (M + 1,)
    once: Edges | None = None  # if each pair is one of these edges, or none and leads from a node to itself

    @staticmethod
    def from_pairs(here: Ints, there: Ints, num_nodes: int) -> Neighbours:
        """The neighbours of every node, given all pairs, in any order and more than once."""
        return Neighbours._from_keys(here * num_nodes + there, num_nodes)

    @staticmethod
    def along(edges: list[Edges], num_nodes: int) -> Neighbours:
        """Every node itself, and those that edges lead to it from."""
        keys = [as_array(e.target * num_nodes + e.source) for e in edges]
        own = np.arange(num_nodes) * (num_nodes + 1)
        near = Neighbours._from_keys(np.concatenate([own, *keys]), num_nodes)
        return replace(near, once=edges[0]) if len(edges) == 1 and len(near.nodes) == num_nodes + len(keys[0]) else near

    @staticmethod
    def everywhere(num_nodes: int) -> Neighbours:
        """Every node beside every node, itself included."""
        nodes = np.arange(num_nodes)
        return Neighbours(np.tile(nodes, num_nodes), np.arange(num_nodes + 1) * num_nodes)

    @staticmethod
    def _from_keys(keys: Ints, num_nodes: int) -> Neighbours:
        keys = np.sort(keys)
        new = np.ones(len(keys), dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        here, there = np.divmod(keys[new], max(1, num_nodes))
        return Neighbours(there, running_totals(np.bincount(here, minlength=num_nodes)))

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.offsets) - 1

    @cached_property
    def degree(self) -> Ints:
        """How many neighbours each node has.  # (M,)"""
        return np.diff(self.offsets)

    @cached_property
    def here(self) -> Ints:
        """The node that each pair leads from, ascending.  # (P,)"""
        return np.arange(self.num_nodes).repeat(self.degree)

    @cached_property
    def own(self) -> Bools:
        """Which pairs lead from a node to itself.  # (P,)"""
        own: Bools = self.nodes == self.here
        return own

    @cached_property
    def keys(self) -> Ints:
        """Every pair as one number, ascending.  # (P,)"""
        return self.here * self.num_nodes + self.nodes

    def pairs(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The pairs of some nodes one after the other, and whose each is.  # (K,) -> (R,), (R,)"""
        return spans(self.offsets.take(nodes), self.degree.take(nodes))

    def of(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The nodes' neighbours one after the other, and whose each is.  # (K,) -> (R,), (R,)"""
        pairs, owner = self.pairs(nodes)
        return self.nodes[pairs], owner

    def both_ways(self) -> Neighbours:
        """The same with every pair in both directions."""
        there, here = self.of(np.arange(self.num_nodes))
        return Neighbours.from_pairs(np.concatenate([here, there]), np.concatenate([there, here]), self.num_nodes)

    def after(self, other: Neighbours) -> Neighbours:
        """Where a step of these leads, and one of the others after it."""
        nodes, pair = other.of(self.nodes)
        return Neighbours.from_pairs(self.here[pair], nodes, self.num_nodes)

    def ways(self, steps: int) -> Floats:
        """In how many ways one can come to each node by this many steps.  # (M,)"""
        ways = np.ones(self.num_nodes)
        for _ in range(steps):
            ways = add_up(self.here, ways[self.nodes], self.num_nodes)
        return ways

    def within(self, node: int, hops: int) -> Ints:
        """The nodes that this many steps can reach from a node, itself included.  # (K,)"""
        reached = np.array([node])
        for _ in range(hops):
            reached = np.unique(np.concatenate([reached, self.of(reached)[0]]))
        return reached


def step_neighbours(chain: RelevanceChain) -> Neighbours | None:
    """The node itself and where a walk that stands there can have come from, by one step, which may be of several hops.

    None where walks can step anywhere, or to so many nodes that it makes no difference.
    """
    memo = chain.memo  # once: of threads that ask a new chain, each may be given its own
    if "step neighbours" not in memo:
        memo["step neighbours"] = _step_neighbours(chain)
    near: Neighbours | None = memo["step neighbours"]
    return near


def _step_neighbours(chain: RelevanceChain) -> Neighbours | None:
    near = None if chain.hops is None else hop_neighbours(chain)
    if near is None or chain.hops is None or chain.local:
        return near
    hop = reached = near
    for _ in range(chain.hops.between - 1):
        if hop.degree[reached.nodes].sum() > _MOST_PAIRS:
            return None
        reached = reached.after(hop)
    return reached


def hop_neighbours(chain: RelevanceChain) -> Neighbours:
    """The node itself and where messages can come to it from as they are passed once; walks may step further."""
    return Neighbours.along(edges_of(chain.steps), chain.num_nodes)


def edge_neighbours(chain: RelevanceChain) -> Neighbours:
    """The neighbours of every node along the graph's edges, whichever way they point."""
    here, there = as_array(chain.edge_index)
    proper = here != there
    return Neighbours.from_pairs(here[proper], there[proper], chain.num_nodes).both_ways()


def as_array(ids: Tensor) -> Ints:
    """Node ids where there is no need of the chain's device."""
    array: Ints = ids.cpu().numpy()
    return array


def running_totals(counts: Ints) -> Ints:
    """The sums of all counts before each, and of all.  # (K,) -> (K + 1,)"""
    totals = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=totals[1:])
    return totals
