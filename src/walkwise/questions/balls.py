"""Balls around sets of nodes: as far as a walk can go from a set and still return to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.edges import Edges, running_totals, whose
from walkwise.core.homed_rows import edges_of
from walkwise.core.lazy import cached_property
from walkwise.questions.neighbours import Ints
from walkwise.questions.nodesets import NodeSets


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Which nodes are neighbours along the steps of a chain's walks, in either direction, and how far to look."""

    near: Edges  # every pair once in each direction
    radius: int  # in hops
    numbers: Tensor  # (M,) at most this many numbers stand for the ball around a node, in a message and in its edges
    whole: int  # and this many for the whole graph
    least: int  # and this many for the ball around some node, which has the fewest

    def sizes(self, sets: NodeSets) -> Tensor:
        """At most this many numbers stand for the ball around each set.  # (B,)"""
        return _per_set(sets, self._there(sets)[1]).clamp_(max=self.whole)

    def at_least(self, sets: NodeSets) -> int:
        """A lower bound on the numbers in all balls, known without looking at the sets."""
        smallest = sets.sizes[0] if sets.sizes else 0
        return sets.count * min(self.whole, smallest * self.least)

    def extents(self, sets: NodeSets) -> Extents:
        """The sizes of the sets and their balls, computed once; one wait for an accelerator reads all of them."""
        if self not in sets.memo:
            found = [sets.offsets, running_totals(self.sizes(sets))]
            if sets.keys.device.type == "cpu":
                sets.memo[self] = Extents(*(each.numpy() for each in found))
            else:
                leaving = _per_set(sets, self.near.offsets.diff())
                sets.memo[self] = Extents(*torch.stack([*found, running_totals(leaving)]).cpu().numpy())
        kept: Extents = sets.memo[self]
        return kept

    def balls(self, sets: NodeSets, leaving: int | None = None) -> NodeSets:
        """Every set with all nodes around it; ``leaving`` is the number of edges that leave its nodes, if known."""
        M, keys, near = sets.num_nodes, sets.keys, self._there(sets)[0]
        for _ in range(self.radius):
            nodes = keys % M
            first, counts = near.offsets[nodes], near.offsets[nodes + 1] - near.offsets[nodes]
            row = whose(counts, leaving)
            pair = torch.arange(len(row), device=row.device) + (first - running_totals(counts)[:-1])[row]
            keys = torch.unique(torch.cat([keys, (keys - nodes)[row] + near.sorted_target[pair]]))
            leaving = None
        return NodeSets(M, sets.count, keys, sets.device)

    def _there(self, sets: NodeSets) -> tuple[Edges, Tensor]:
        """The neighbours, and the numbers of every node, where the sets are."""
        near = self.near.on(sets.keys.device)
        return near, self.numbers if near is self.near else self._numbers_here

    @cached_property
    def usual(self) -> float:
        """How many numbers stand for the ball around a node, as it is on average."""
        return float(self.numbers.double().mean())

    @cached_property
    def _numbers_here(self) -> Tensor:
        return self.numbers.cpu()


@dataclass(frozen=True, eq=False)
class Extents:
    """How large sets and their balls are, in running totals in main memory.  # (B + 1,) each"""

    offsets: Ints  # the nodes of the sets
    numbers: Ints  # at most this many stand for their balls
    leaving: Ints | None = None  # the edges that leave their nodes, where an accelerator would be asked for it

    def leaving_of(self, first: int, last: int) -> int | None:
        """How many edges leave the nodes of some sets, where that is known."""
        return None if self.leaving is None else int(self.leaving[last] - self.leaving[first])


def _per_set(sets: NodeSets, each: Tensor) -> Tensor:
    """What the nodes of every set have, added up.  # (M,) -> (B,)"""
    return each.new_zeros(sets.count).index_add_(0, sets.owner, each.index_select(0, sets.nodes))


def surroundings(chain: RelevanceChain, radius: int | None = None) -> Surroundings:
    """The surroundings in a chain whose steps keep to neighbours, computed once for every radius.

    The default radius is that of excursions: of at most L steps, half the hops lead away from S and half back.
    """
    assert chain.hops is not None
    radius = chain.num_layers * max(1, chain.hops.between) // 2 if radius is None else radius
    memo = chain.memo
    if (Surroundings, radius) not in memo:
        memo[Surroundings, radius] = _surroundings(chain, radius)
    kept: Surroundings = memo[Surroundings, radius]
    return kept


def _surroundings(chain: RelevanceChain, radius: int) -> Surroundings:
    """A ball has no more nodes than there are walks of its radius, and these are quickly counted."""
    edges, M = edges_of(chain.steps), chain.num_nodes
    near, degree = _both_ways(edges, M, chain.device), torch.zeros(M, dtype=torch.long, device=chain.device)
    for each in edges:
        degree = torch.maximum(degree, each.offsets.diff())
    numbers = chain.width + degree
    whole = numbers.sum()
    for _ in range(radius):
        numbers = numbers.index_add(0, near.source, numbers[near.target])
        numbers = torch.minimum(numbers, whole)
    known: list[int] = torch.stack([whole, numbers.min()]).tolist() if M else [0, 0]
    return Surroundings(near, radius, numbers, *known)


def _both_ways(edges: list[Edges], num_nodes: int, device: torch.device) -> Edges:
    """All pairs of different nodes that edges connect, in both directions, each once."""
    keys = [torch.empty(0, dtype=torch.long, device=device)]
    for e in edges:
        proper = e.source != e.target
        source, target = e.source[proper], e.target[proper]
        keys += [source * num_nodes + target, target * num_nodes + source]
    pairs = torch.unique(torch.cat(keys))
    return Edges(pairs // max(1, num_nodes), pairs % max(1, num_nodes), num_nodes)
