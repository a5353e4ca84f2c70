"""What each node contributes to R, from one pass over the chosen nodes and the surroundings of each candidate.

The walks that a node m adds to S, or takes from it, are those inside S ∪ {m} that visit m. Take such a walk apart at
its visits to m: above the first and below the last it stays in S, and what lies between two of them leaves m and
returns. With L steps in all it comes no further than ⌊L/2⌋ steps from m: nodes beyond that ball matter only through the
messages that reach m from the output and from the input, and one pass over S in either direction gives these to all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import all_rows, run_backward
from walkwise.core.operators import Visit
from walkwise.core.rows import OwnRows
from walkwise.questions.neighbours import Bools, Ints, Neighbours
from walkwise.questions.nodesets import budget
from walkwise.search.contributions import QueryContributions

#: How many rows the balls of some candidates may have together before they are cut to batches.
_MOST_ROWS = 1 << 21


class LocalContributions(QueryContributions):
    """Contributions with α = 0, for local chains whose walks pass no position by."""

    near: Neighbours

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
            passing = _passing(self.chain, inside)
            brought, size = node_contributions(self.chain, self.near, passing, inside, graphs.node[here])
            self._round(size.double().cpu().numpy())
            sign = 1 if self.criterion.adds else -1
            self.change[i, here] = sign * brought.double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class _Passing:
    """What passes a visit while walks stay in S, but for that visit itself."""

    backward: dict[int, Tensor]  # {slot: (M, N)} the message that arrives from the output
    forward: dict[int, Tensor]  # {slot: (M, N)} what the input sends there: relevance is ⟨backward, forward⟩


def _passing(chain: RelevanceChain, inside: Bools) -> _Passing:
    """The messages that come to every visit through S, from both sides."""
    mask = torch.from_numpy(inside).to(chain.device, chain.dtype)[:, None]  # (M, 1)
    backward: dict[int, Tensor] = {}

    def weigh(visit: Visit, message: Tensor) -> Tensor:
        backward[visit.slot] = message[:, 0, 0]
        return message * mask[:, :, None, None]

    run_backward(chain, all_rows(chain), weigh)
    values, forward = dict(chain.roots), {}
    for step in chain.steps:
        parts = [o.push(values[s]) for o, s in zip(step.operators, step.sources, strict=True) if s in values]
        if parts:
            total = sum(parts[1:], start=parts[0])
            if step.visit is not None:
                forward[step.visit.slot] = total
                total = total * mask
            values[step.target] = total
    return _Passing(backward, forward)


def node_contributions(
    chain: RelevanceChain, near: Neighbours, passing: _Passing, inside: Bools, candidates: Ints
) -> tuple[Tensor, Tensor]:
    """The relevance of the walks inside S ∪ {m} that visit m, for every candidate m: (C,), and its parts' size: (C,).

    With f the backward and h the forward message at m, and r what returns to m from its visits further up,

        Σ over positions of ⟨f + r, h⟩ where m is not in S: the walks are cut at their last visit,
        Σ over positions of ⟨f - r, h⟩ where it is, and f and h know of m already: they are cut at their first.
    """
    found, sizes = [torch.zeros(0, dtype=chain.dtype, device=chain.device)], []
    for some, keys in _balls(chain, near, inside, candidates):
        total, size = _with_returns(chain, passing, inside[some], some, keys)
        found.append(total)
        sizes.append(size)
    return torch.cat(found), torch.cat([found[0], *sizes])


def _with_returns(
    chain: RelevanceChain, passing: _Passing, known: Bools, candidates: Ints, keys: Ints
) -> tuple[Tensor, Tensor]:
    """One batch of candidates, the rows of whose balls are given: candidate · M + node."""
    M, C = chain.num_nodes, len(candidates)
    nodes, row = (torch.from_numpy(ids).to(chain.device) for ids in (keys % M, keys // M))
    rows = OwnRows(M, C, nodes, row)
    here = torch.from_numpy(np.searchsorted(keys, np.arange(C) * M + candidates)).to(chain.device)
    middle = torch.from_numpy(candidates).to(chain.device)
    in_S = torch.from_numpy(known).to(chain.device)[:, None]
    total = torch.zeros(C, dtype=chain.dtype, device=chain.device)
    size = torch.zeros_like(total)

    def weigh(visit: Visit, message: Tensor) -> Tensor | None:
        f = passing.backward[visit.slot].index_select(0, middle)  # (C, N)
        returned = message[here, 0, 0]
        if visit.slot in passing.forward:
            h = passing.forward[visit.slot].index_select(0, middle)
            total.add_(((f + torch.where(in_S, -returned, returned)) * h).sum(-1))
            size.add_((f * h).abs().sum(-1) + (returned * h).abs().sum(-1))
        message = message.clone()
        message[here, 0, 0] = torch.where(in_S, f, f + returned)
        return message

    nothing = [(slot, rows.take(torch.zeros_like(seed))) for slot, seed in chain.seeds]
    run_backward(chain, rows, weigh, seeds=nothing)
    return total, size


def _balls(chain: RelevanceChain, near: Neighbours, inside: Bools, candidates: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Candidates a batch at a time, each with the nodes of S around it as keys: candidate · M + node, ascending."""
    M, most = chain.num_nodes, max(1, budget(chain) // chain.width)
    at_once = max(1, _MOST_ROWS // (int(inside.sum()) + 1))
    for begin in range(0, len(candidates), at_once):
        some = candidates[begin : begin + at_once]
        keys = _ball_keys(near, inside, some, chain.num_layers // 2)
        ends = np.searchsorted(keys, np.arange(1, len(some) + 1) * M)
        first = row = 0
        while first < len(some):
            last = max(first + 1, int(np.searchsorted(ends, row + most, side="right")))
            yield some[first:last], keys[row : ends[last - 1]] - first * M
            first, row = last, int(ends[last - 1])


def _ball_keys(near: Neighbours, inside: Bools, candidates: Ints, radius: int) -> Ints:
    """The rows of all balls.  # (R,)"""
    M = near.num_nodes
    keys = edge = np.arange(len(candidates)) * M + candidates
    for _ in range(radius):
        nodes, which = near.of(edge % M)
        kept = inside[nodes]
        reached = np.unique((edge // M)[which][kept] * M + nodes[kept])
        edge = np.setdiff1d(reached, keys, assume_unique=True)
        keys = np.union1d(keys, edge)
    return keys
