"""R_α of subgraphs from their surroundings: walks that leave S and return are followed, the rest is known.

Cut a walk where it visits S. The parts before the first visit and after the last do not depend on S, and the messages
of the whole chain, computed once, contain them (:mod:`walkwise.questions.standings`). Between two visits the walk is on
an excursion of at most L steps, so it stays within ⌊L / 2⌋ steps of S, and the rows of that ball are all that a query
carries, whatever the size of the graph. If a model passes messages h times between two positions, a step has h hops,
and the ball has radius ⌊h L / 2⌋.

A message has lanes for walks that have visited S after the position where it stands. The walks that have not are the
rest of the whole, at a node of S: F minus those lanes, where F is the message of the whole chain.

The walk's beginning still lies ahead, and its visits there are not known yet. So a walk is counted at *every* visit to
S, with what the whole chain sends there (Φ), and whatever is counted too often is subtracted again. Let n of a walk's V
visits be to S. Let F, Φ and a lane T have weight α on each visit but the one where they stand, and a lane A weight 1 on
S and α elsewhere. At its last visit to S a walk counts in ⟨F − T, Φ⟩ with weight α^(V − 1), and at the j-th of its n −
1 others in (1 − α) ⟨A, Φ⟩ with (1 − α) α^(V − 1 − n + j). All together

    α^(V − 1) + (1 − α) Σ_{j = 1 … n − 1} α^(V − 1 − n + j) = α^(V − n),  its weight in R_α.

This is exact, also for walks that bypass positions: V may differ from walk to walk. The rounding error is about the
last digit of the relevance of all walks through S.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import Weigh, run_backward
from walkwise.core.operators import Visit
from walkwise.core.rows import Rows
from walkwise.core.sending import sent
from walkwise.questions.balls import Surroundings, surroundings
from walkwise.questions.nodesets import NodeSets, budget
from walkwise.questions.standings import graded_standings

#: Up to so many numbers, what surrounds sets in main memory is looked up there.
_FEW = 1 << 17
#: How many times as much as in the whole graph a row may cost that is carried for one subgraph alone.
_DEARER = 3


@dataclass(frozen=True, eq=False)
class Batch:
    """Some subgraphs, and the balls around them."""

    sets: NodeSets
    rows: Rows  # of the balls
    at: Tensor  # (S,) which of them are in S

    def known(self, lanes: Tensor) -> Tensor:
        """A message of the whole chain in S.  # (M, D, N) -> (S, D, N)"""
        return lanes.index_select(0, self.sets.there.nodes)

    def arrived(self, message: Tensor) -> Tensor:
        """The message in S.  # (K, 1, D, N) -> (S, D, N)"""
        return message.index_select(0, self.at).squeeze(1)

    def put(self, message: Tensor, lanes: Tensor) -> Tensor:
        """The message, in place, with these lanes in S.  # (K, 1, D, N), (S, D, N)"""
        return message.index_copy_(0, self.at, lanes.unsqueeze(1))

    def add(self, total: Tensor, each: Tensor) -> None:
        """What every node of S adds to its set's first totals.  # (B, D'), (S, D)"""
        total[:, : each.shape[1]].index_add_(0, self.sets.there.owner, each)


def fewer_rows(around: Surroundings, sets: NodeSets) -> bool:
    """Whether balls around the sets promise to be less work than all nodes for each, judged by sizes, not by timing."""
    most = sets.count * around.whole
    return _DEARER * around.at_least(sets) <= most and _DEARER * around.extents(sets).numbers[-1] <= most


def discounted_nearby(chain: RelevanceChain, sets: NodeSets, alpha: float) -> Tensor:
    """R_α of every set, for α > 0 and a chain whose steps keep to neighbours: (B,)."""
    known, roots = {s.visit.slot: s for s in graded_standings(chain)}, dict(chain.roots)

    def weights(batch: Batch, total: Tensor) -> Weigh:
        def weigh(visit: Visit, message: Tensor) -> Tensor | None:
            if visit.slot not in known:
                return None
            standing = known[visit.slot]
            F = _at(alpha, batch.known(standing.backward), standing.after)
            Phi = _at(alpha, batch.known(standing.forward), standing.before)
            message = pad(message, (0, 0, 0, 2 - message.shape[2]))  # from the read-out alone comes one lane, of zeros
            T, A = torch.split(batch.arrived(message), 1, dim=1)
            ending = F - T
            batch.add(total, ((ending + (1 - alpha) * A) * Phi).sum(-1))
            if visit.slot in roots:
                return None
            return batch.put(alpha * message, torch.cat([alpha * F, A + ending], dim=1))

        return weigh

    return in_batches(chain, sets, 2, 1, weights)[:, 0]


def _at(alpha: float, lanes: Tensor, first: int) -> Tensor:
    """Σ over lanes of α^(its number) · lane, the numbers beginning at the first.  # (S, D, N) -> (S, 1, N)"""
    if lanes.shape[1] == 1:
        return alpha**first * lanes
    powers = torch.tensor([[alpha ** (first + d)] for d in range(lanes.shape[1])], dtype=lanes.dtype)
    return (lanes * sent(powers, lanes.device)).sum(1, keepdim=True)


def in_batches(
    chain: RelevanceChain, sets: NodeSets, lanes: int, totals: int, weights: Callable[[Batch, Tensor], Weigh]
) -> Tensor:
    """The totals that ``weights`` adds up for every set in a contraction over balls: (B, totals).

    Messages begin as zeros: at the read-out no walk has visited S yet.

    Args:
        chain: the traced prediction, with steps that keep to neighbours.
        sets: the subgraphs.
        lanes: the most lanes that a message will have.
        totals: the number of totals for every set.
        weights: given a batch and its totals (B, totals), the node weights, which add to the totals on their way.
    """
    around, parts = surroundings(chain), []
    for some, balls in batches(chain, sets, lanes, around):
        total = torch.zeros(some.count, totals, dtype=chain.dtype, device=chain.device)
        if len(some.keys):
            batch = Batch(some, balls.rows(), sent(torch.searchsorted(balls.keys, some.keys), chain.device))
            seeds = [(slot, seed.new_zeros(len(balls.keys), 1, 1, seed.shape[1])) for slot, seed in chain.seeds]
            run_backward(chain, batch.rows, weights(batch, total), seeds=seeds)
        parts.append(total)
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def batches(
    chain: RelevanceChain, sets: NodeSets, lanes: int, around: Surroundings
) -> Iterator[tuple[NodeSets, NodeSets]]:
    """The sets a few at a time and the balls around them, by whose sizes they are told off."""
    known, first = around.extents(sets), 0
    if known.numbers[-1] > _FEW:
        sets = sets.there
    for some in sets.cut(known.offsets, known.numbers, sets.count, max(1, budget(chain) // lanes)):
        last = first + some.count
        yield some, around.balls(some, known.leaving_of(first, last))
        first = last
