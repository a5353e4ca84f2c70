"""R_α of subgraphs for every α at once, from their surroundings: the same cut as in excursions, degree by degree."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import Weigh
from walkwise.core.operators import Visit
from walkwise.questions.excursions import Batch, in_batches
from walkwise.questions.nodesets import NodeSets
from walkwise.questions.standings import graded_standings


def polynomial_nearby(chain: RelevanceChain, sets: NodeSets) -> Tensor:
    """The coefficients of R_α of every set, lowest first, for a local chain: (B, L + 1).

    They are exact up to about the last digit of the relevance of all walks through S; much smaller coefficients have
    fewer correct digits.
    """
    return (_by_visits if chain.straight else _by_powers)(chain, sets)


def _by_visits(chain: RelevanceChain, sets: NodeSets) -> Tensor:
    """If no walk bypasses positions: n visits to S mean L + 1 − n steps outside.

    Lane n holds the walks that visit S just n times from where it stands on. Over all positions, ⟨lane n, Φ⟩ counts
    each walk of at least n visits once, and two such sums in a row differ by the walks of just n visits.
    """
    last, known = chain.num_layers, {s.visit.slot: s for s in graded_standings(chain)}

    def weights(batch: Batch, total: Tensor) -> Weigh:
        def weigh(visit: Visit, message: Tensor) -> Tensor | None:
            if visit.slot not in known:
                return None
            F, Phi = batch.known(known[visit.slot].backward), batch.known(known[visit.slot].forward)  # (S, 1, N)
            message = message[:, :, : last - visit.position]  # no lane at the last position
            arrived = batch.arrived(message)
            lanes = torch.cat([F - arrived.sum(1, keepdim=True), arrived], dim=1)
            batch.add(total, (lanes * Phi).sum(-1))
            return batch.put(pad(message, (0, 0, 0, 1)), lanes) if visit.position else None

        return weigh

    at_least = in_batches(chain, sets, last + 1, last + 1, weights)  # (B, L + 1) for 1, …, L + 1 visits
    return (at_least - pad(at_least[:, 1:], (0, 1))).flip(1)


def _by_powers(chain: RelevanceChain, sets: NodeSets) -> Tensor:
    """For walks that may bypass positions: T, A, F and Φ of one α, each as a polynomial in α.

    The powers of T and A take turns in the lanes, T₀, A₀, T₁, A₁, …, so that messages of fewer lanes can be added.
    """
    last, known = chain.num_layers, {s.visit.slot: s for s in graded_standings(chain)}
    roots = dict(chain.roots)

    def weights(batch: Batch, total: Tensor) -> Weigh:
        def weigh(visit: Visit, message: Tensor) -> Tensor | None:
            F, Phi = batch.known(known[visit.slot].backward), batch.known(known[visit.slot].forward)
            powers = F.shape[1]  # both have come past the same visits
            message = _lanes(message, 2, 2 * powers)
            T, A = torch.unbind(batch.arrived(message).view(-1, powers, 2, F.shape[2]), dim=2)  # (S, D, N) each
            F = _lanes(F, 1, powers)
            ending = F - T
            counted = pad(ending + A, (0, 0, 0, 1)) - pad(A, (0, 0, 1, 0))  # E + (1 − α) A
            batch.add(total, _product(counted, Phi)[:, : last + 1])
            if visit.slot in roots:
                return None
            inside = torch.stack([pad(F, (0, 0, 1, 0)), pad(ending + A, (0, 0, 0, 1))], dim=2).flatten(1, 2)
            return batch.put(pad(message, (0, 0, 2, 0)), inside)

        return weigh

    return in_batches(chain, sets, 2 * (last + 1), last + 1, weights)


def _lanes(message: Tensor, axis: int, count: int) -> Tensor:
    """The message with this many lanes, those it lacks being zero."""
    return pad(message, (0, 0) * (message.dim() - 1 - axis) + (0, count - message.shape[axis]))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """The coefficients of Σ_n a_n(α) · b_n(α).  # (S, D, N), (S, D', N) -> (S, D + D' − 1)"""
    pairs = torch.bmm(a, b.transpose(1, 2))  # (S, D, D')
    product = pairs.new_zeros(len(pairs), a.shape[1] + b.shape[1] - 1)
    for d in range(b.shape[1]):
        product[:, d : d + a.shape[1]] += pairs[:, :, d]
    return product
