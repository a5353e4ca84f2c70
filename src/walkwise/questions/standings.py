"""The messages at every position of a chain when all nodes have weight 1; the chain keeps them for later questions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import all_rows, contract
from walkwise.core.operators import Visit


@dataclass(frozen=True)
class Standing:
    """The messages at a visit when all node weights are 1."""

    visit: Visit
    backward: Tensor  # (M, N) the message that arrives from the output
    forward: Tensor  # (M, N) what the input sends there: relevance is ⟨backward, forward⟩


@dataclass(frozen=True)
class GradedStanding:
    """The same with walks separated by how many visits they have made: a lane for every number."""

    visit: Visit
    backward: Tensor  # (M, D, N) of walks that have this many visits after this one
    forward: Tensor  # (M, D', N) of walks that have this many before it
    after: int = 0  # the numbers of visits that the first lanes stand for
    before: int = 0


def standings_of(chain: RelevanceChain) -> list[Standing]:
    """Backward and forward messages at every visit that a walk can pass."""
    memo = chain.memo
    if Standing not in memo:
        memo[Standing] = _standings(chain)
    kept: list[Standing] = memo[Standing]
    return kept


def graded_standings(chain: RelevanceChain) -> list[GradedStanding]:
    """The same with walks separated by their visits; if none bypasses a position, each position has one number."""
    memo = chain.memo
    if GradedStanding not in memo:
        memo[GradedStanding] = _one_lane_each(chain) if chain.straight else _graded(chain)
    kept: list[GradedStanding] = memo[GradedStanding]
    return kept


def _standings(chain: RelevanceChain) -> list[Standing]:
    """Relevance is linear in the message at a visit, so the forward message is its gradient."""
    seen: list[tuple[Visit, Tensor, Tensor]] = []

    def weigh(visit: Visit, message: Tensor) -> Tensor:
        nothing = torch.zeros_like(message, requires_grad=True)
        seen.append((visit, message, nothing))
        return message + nothing

    with torch.enable_grad():
        total = contract(chain, all_rows(chain), weigh).sum()
        if not total.requires_grad:  # no walk gets from where the model begins to where it ends
            return []
        flows = torch.autograd.grad(total, [nothing for _, _, nothing in seen], allow_unused=True)
    return [
        Standing(visit, message[:, 0, 0].detach(), flow[:, 0, 0])
        for (visit, message, _), flow in zip(seen, flows, strict=True)
        if flow is not None
    ]


def _one_lane_each(chain: RelevanceChain) -> list[GradedStanding]:
    return [
        GradedStanding(
            s.visit,
            s.backward.unsqueeze(1),
            s.forward.unsqueeze(1),
            after=chain.num_layers - s.visit.position,
            before=s.visit.position,
        )
        for s in standings_of(chain)
    ]


def _graded(chain: RelevanceChain) -> list[GradedStanding]:
    """Messages move up a lane at every visit; what goes into lane 0 arrives in the lane of the visits before."""
    seen: list[tuple[Visit, Tensor, Tensor]] = []

    def weigh(visit: Visit, message: Tensor) -> Tensor:
        nothing = torch.zeros_like(message[:, :, :1], requires_grad=True)
        seen.append((visit, message, nothing))
        return torch.cat([nothing, message], dim=2)

    with torch.enable_grad():
        totals = contract(chain, all_rows(chain), weigh)[0]  # (D,)
        nothings = [nothing for _, _, nothing in seen]
        flows = [torch.autograd.grad(t, nothings, retain_graph=True, allow_unused=True) for t in totals]
    graded = []
    for (visit, message, nothing), lanes in zip(seen, zip(*flows, strict=True), strict=True):
        sent = [torch.zeros_like(nothing) if lane is None else lane for lane in lanes[: visit.position + 1]]
        graded.append(GradedStanding(visit, message[:, 0].detach(), torch.cat(sent, dim=2)[:, 0].detach()))
    return graded
