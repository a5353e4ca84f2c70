"""Balls around sets of nodes: as far as a walk can go from a set and still come back to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.edges import Edges, running_totals, whose
from walkwise.core.homed_rows import edges_of
from walkwise.questions.nodesets import NodeSets


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Who is next to whom along the steps of a chain's walks, in either direction, and how far to look."""

    near: Edges  # every pair once in each direction
    radius: int  # in hops
    numbers: Tensor  # (M,) at most this many numbers stand for the ball around a node, in a message and in its edges
    whole: int  # and this many for the whole graph
    least: int  # and this many for the ball around some node, which has the fewest

    def sizes(self, sets: NodeSets) -> Tensor:
        """At most this many numbers stand for the ball around each set.  # (B,)"""
        each = self.numbers.index_select(0, sets.nodes)
        return each.new_zeros(sets.count).index_add_(0, sets.owner, each).clamp_(max=self.whole)

    def at_least(self, sets: NodeSets) -> int:
        """At least so many numbers stand for all balls: what can be told without looking at the sets."""
        smallest = sets.sizes[0] if sets.sizes else 0
        return sets.count * min(self.whole, smallest * self.least)

    def balls(self, sets: NodeSets) -> NodeSets:
        """Every set with all nodes around it."""
        M, keys = sets.num_nodes, sets.keys
        for _ in range(self.radius):
            nodes = keys % M
            first, counts = self.near.offsets[nodes], self.near.offsets[nodes + 1] - self.near.offsets[nodes]
            row = whose(counts)
            pair = torch.arange(len(row), device=row.device) + (first - running_totals(counts)[:-1])[row]
            keys = torch.unique(torch.cat([keys, (keys - nodes)[row] + self.near.sorted_target[pair]]))
        return NodeSets(M, sets.count, keys)


def surroundings(chain: RelevanceChain, radius: int | None = None) -> Surroundings:
    """Those of a chain whose steps keep to neighbours, worked out once for every radius.

    By default it is that of excursions: of at most L steps, half the hops lead away from S and half back.
    """
    assert chain.hops is not None
    radius = chain.num_layers * max(1, chain.hops.between) // 2 if radius is None else radius
    memo = chain.memo
    if (Surroundings, radius) not in memo:
        memo[Surroundings, radius] = _surroundings(chain, radius)
    kept: Surroundings = memo[Surroundings, radius]
    return kept


def _surroundings(chain: RelevanceChain, radius: int) -> Surroundings:
    """A ball has no more nodes than there are walks of its radius, and those are quickly counted."""
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
