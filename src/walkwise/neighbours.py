"""Who is next to whom: along the steps of a chain's walks, or along the edges of the graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.chain import RelevanceChain
from walkwise.operators import Aggregate, Jacobian


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For every node a list of others, one after the other."""

    nodes: Tensor  # (P,) ascending for each node
    offsets: Tensor  # (M + 1,)

    @staticmethod
    def from_pairs(here: Tensor, there: Tensor, num_nodes: int) -> Neighbours:
        """The neighbours of every node, given all pairs, in any order and more than once."""
        keys = torch.unique(here * num_nodes + there)
        counts = torch.bincount(keys // max(1, num_nodes), minlength=num_nodes)
        return Neighbours(keys % max(1, num_nodes), torch.nn.functional.pad(counts.cumsum(0), (1, 0)))

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return len(self.offsets) - 1

    def counts(self, nodes: Tensor) -> Tensor:
        """How many neighbours each node has.  # (K,)"""
        return self.offsets[nodes + 1] - self.offsets[nodes]

    def of(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes' neighbours one after the other, and whose each is.  # (K,) -> (R,), (R,)"""
        counts = self.counts(nodes)
        owner = torch.repeat_interleave(counts)
        shift = self.offsets[nodes] - (counts.cumsum(0) - counts)
        return self.nodes[torch.arange(len(owner), device=owner.device) + shift[owner]], owner

    def both_ways(self) -> Neighbours:
        """The same with every pair in both directions."""
        everyone = torch.arange(self.num_nodes, device=self.nodes.device)
        there, here = self.of(everyone)
        return Neighbours.from_pairs(torch.cat([here, there]), torch.cat([there, here]), self.num_nodes)

    def within(self, node: int, hops: int) -> Tensor:
        """The nodes that so many steps can reach from a node, itself included.  # (K,)"""
        reached = torch.tensor([node], device=self.nodes.device)
        for _ in range(hops):
            reached = torch.unique(torch.cat([reached, self.of(reached)[0]]))
        return reached


def step_neighbours(chain: RelevanceChain) -> Neighbours | None:
    """The node itself and where a walk that stands there can have come from, by one step.

    None where walks can step beyond the neighbours that the chain's aggregations name.
    """
    if not chain.local:
        return None
    everyone = torch.arange(chain.num_nodes, device=chain.device)
    here, there = [everyone], [everyone]
    for step in chain.steps:
        assert not isinstance(step.operators, Jacobian)  # it may reach anywhere: not local
        for operator in step.operators:
            if isinstance(operator, Aggregate):
                here.append(operator.edges.target)
                there.append(operator.edges.source)
            elif operator.reach != 0:
                return None
    return Neighbours.from_pairs(torch.cat(here), torch.cat(there), chain.num_nodes)


def edge_neighbours(chain: RelevanceChain) -> Neighbours:
    """The neighbours of every node along the graph's edges, whichever way they point."""
    here, there = chain.edge_index.to(chain.device)
    proper = here != there
    return Neighbours.from_pairs(here[proper], there[proper], chain.num_nodes).both_ways()
