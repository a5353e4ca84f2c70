"""The contribution of each node to R_α, from one pass over the graph and the surroundings of each candidate.

A walk of R_α counts α for every visit outside S, unless it never visits S. So R_α is the difference of two sums over
all walks, in each of which a walk counts the product of its nodes' weights: 1 in S and α outside, less 0 in S and α
outside. Putting m into S, or taking it out, changes the weight of one node, from u to v, say. Take walks apart at their
visits to m: counting the new weight above a visit and the old one below, each sum changes by

    (v − u) Σ over positions of ⟨f + r, h⟩,

with f and h what the old weights send to m from the output and from the input, which one pass in either direction gives
for all nodes, and r what is new in f: it has left m further up and returned. With L steps in all it comes no further
than ⌊L/2⌋ steps from m, so that it is followed in that ball alone. With α = 0 the second sum is none, and the ball is
that of the nodes in S. Where messages are passed h times between two positions, the ball is of ⌊h L/2⌋ hops, and of all
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import all_rows, run_backward
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Visit
from walkwise.core.rows import OwnRows
from walkwise.core.sending import sent
from walkwise.questions.neighbours import Bools, Ints, Neighbours, hop_neighbours
from walkwise.questions.nodesets import budget
from walkwise.search.contributions import QueryContributions

#: How many rows the balls of some candidates may have together before they are cut to batches.
_MOST_ROWS = 1 << 21


class LocalContributions(QueryContributions):
    """Contributions for local chains."""

    near: Neighbours

    @cached_property
    def hops(self) -> Neighbours:
        """The neighbours of every node, both ways; a step may lead further."""
        return self.near if self.chain.local else hop_neighbours(self.chain).both_ways()

    def _begin(self, everyone: Bools) -> None:
        """There is nothing to take differences of."""

    def _move(self, a: Ints, place: Ints) -> None:
        """Changes are not differences of what has been chosen so far."""

    def _ask_some(self, a: Ints, place: Ints) -> None:
        graphs = self.criterion.graphs
        for i in np.unique(a).tolist():
            here = place[a == i]
            inside = np.zeros(self.chain.num_nodes, dtype=bool)
            inside[graphs.nodes] = self.inside[i, graphs.place[graphs.nodes]]
            alpha = self.criterion.alphas[i]
            change, size = node_contributions(self.chain, self.hops, inside, alpha, graphs.node[here])
            self.change[i, here], sizes = torch.stack([change, size]).double().cpu().numpy()
            self._round(sizes)


@dataclass(frozen=True, eq=False)
class _Passing:
    """What the weights of nodes send to every visit, but for the weight of that visit itself; D sums over walks."""

    weights: Tensor  # (M, D) what a visit to each node counts
    swapped: Tensor  # (M, D) what it would count if the node were moved into S, or out of it
    signs: Tensor  # (D,) R_α is the sum with these signs
    backward: dict[int, Tensor]  # {slot: (M, D, N)} the message that arrives from the output
    forward: dict[int, Tensor]  # {slot: (M, D, N)} what the input sends there: relevance is ⟨backward, forward⟩


def _passing(chain: RelevanceChain, inside: Bools, alpha: float) -> _Passing:
    """The messages that come to every visit, from both sides."""
    sums = 2 if alpha else 1  # without a discount, walks that never visit S count nothing anyway
    given = sent(torch.tensor([[1.0, 0.0], [alpha, alpha], [1.0, -1.0]], dtype=chain.dtype), chain.device)[:, :sums]
    within, outside, signs = given.unbind()
    in_S = sent(inside, chain.device)[:, None]
    weights, swapped = torch.where(in_S, within, outside), torch.where(in_S, outside, within)
    backward: dict[int, Tensor] = {}

    def weigh(visit: Visit, message: Tensor) -> Tensor:
        backward[visit.slot] = message[:, 0]
        return message * weights[:, None, :, None]

    rows = all_rows(chain)
    seeds = [(slot, rows.take(seed).expand(-1, -1, sums, -1)) for slot, seed in chain.seeds]
    run_backward(chain, rows, weigh, seeds=seeds)
    each = [_forward(chain, weights[:, d, None]) for d in range(sums)]
    forward = {slot: torch.stack([sent[slot] for sent in each], dim=1) for slot in each[0]}
    return _Passing(weights, swapped, signs, backward, forward)


def _forward(chain: RelevanceChain, weight: Tensor) -> dict[int, Tensor]:
    """What the input sends to every visit, under weights (M, 1).  # {slot: (M, N)}"""
    values, forward = dict(chain.roots), {}
    for step in chain.steps:
        parts = [o.push(values[s]) for o, s in zip(step.operators, step.sources, strict=True) if s in values]
        if parts:
            total = sum(parts[1:], start=parts[0])
            if step.visit is not None:
                forward[step.visit.slot] = total
                total = total * weight
            values[step.target] = total
    return forward


def node_contributions(
    chain: RelevanceChain, near: Neighbours, inside: Bools, alpha: float, candidates: Ints
) -> tuple[Tensor, Tensor]:
    """By how much R_α of S changes as each candidate is moved into S, or out of it: (C,), and its parts' size: (C,).

    Args:
        chain: whose walks lead from neighbour to neighbour.
        near: the neighbours of every node, both ways, by hops.
        inside: S, (M,).
        alpha: the discount α.
        candidates: the nodes, (C,).
    """
    passing = _passing(chain, inside, alpha)
    found, sizes = [torch.zeros(0, dtype=chain.dtype, device=chain.device)], []
    among = inside | (alpha > 0 or not chain.local)  # between positions, messages pass nodes outside S
    for some, keys in _balls(chain, near, among, candidates):
        total, size = _with_returns(chain, passing, some, keys)
        found.append(total)
        sizes.append(size)
    return torch.cat(found), torch.cat([found[0], *sizes])


def _with_returns(chain: RelevanceChain, passing: _Passing, candidates: Ints, keys: Ints) -> tuple[Tensor, Tensor]:
    """One batch of candidates, the rows of whose balls are given: candidate · M + node."""
    M, C = chain.num_nodes, len(candidates)
    nodes, row = (sent(ids, chain.device) for ids in (keys % M, keys // M))
    rows = OwnRows(M, C, nodes, row)
    here = sent(np.searchsorted(keys, np.arange(C) * M + candidates), chain.device)
    middle = sent(candidates, chain.device)
    weight = passing.weights.index_select(0, nodes)[:, None, :, None]  # (K, 1, D, 1)
    after = passing.swapped.index_select(0, middle)[:, :, None]  # (C, D, 1)
    moved = after - passing.weights.index_select(0, middle)[:, :, None]
    counted = moved * passing.signs[:, None]
    total = torch.zeros(C, dtype=chain.dtype, device=chain.device)
    size = torch.zeros_like(total)

    def weigh(visit: Visit, message: Tensor) -> Tensor | None:
        f = passing.backward[visit.slot].index_select(0, middle)  # (C, D, N)
        returned = message[here, 0]
        if visit.slot in passing.forward:
            h = counted * passing.forward[visit.slot].index_select(0, middle)
            total.add_(((f + returned) * h).sum((1, 2)))
            size.add_((f * h).abs().sum((1, 2)) + (returned * h).abs().sum((1, 2)))
        message = message * weight
        message[here, 0] = moved * f + after * returned
        return message

    blank = total.new_zeros(len(nodes), 1, passing.weights.shape[1], 1)
    nothing = [(slot, blank.expand(-1, -1, -1, seed.shape[-1])) for slot, seed in chain.seeds]
    run_backward(chain, rows, weigh, seeds=nothing)
    return total, size


def _balls(chain: RelevanceChain, near: Neighbours, among: Bools, candidates: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Candidates a batch at a time, each with the nodes around it as keys: candidate · M + node, ascending."""
    M, most = chain.num_nodes, max(1, budget(chain) // chain.width)
    at_once = max(1, _MOST_ROWS // (int(among.sum()) + 1))
    for begin in range(0, len(candidates), at_once):
        some = candidates[begin : begin + at_once]
        keys = _ball_keys(near, among, some, radius(chain))
        ends = np.searchsorted(keys, np.arange(1, len(some) + 1) * M)
        first = row = 0
        while first < len(some):
            last = max(first + 1, int(np.searchsorted(ends, row + most, side="right")))
            yield some[first:last], keys[row : ends[last - 1]] - first * M
            first, row = last, int(ends[last - 1])


def radius(chain: RelevanceChain) -> int:
    """How many hops away from a node a walk can go and still return to it."""
    assert chain.hops is not None
    return chain.num_layers * max(1, chain.hops.between) // 2


def _ball_keys(near: Neighbours, among: Bools, candidates: Ints, radius: int) -> Ints:
    """The rows of all balls.  # (R,)"""
    M = near.num_nodes
    keys = edge = np.arange(len(candidates)) * M + candidates
    for _ in range(radius):
        nodes, which = near.of(edge % M)
        kept = among[nodes]
        reached = np.unique((edge // M)[which][kept] * M + nodes[kept])
        edge = np.setdiff1d(reached, keys, assume_unique=True)
        keys = np.union1d(keys, edge)
    return keys
