"""Bounds on what the messages at a node can still reach: all paths up to it from the input, or their range.

A walk from the input up to a node of a position acts on the message there as a linear functional.
Where those walks are few they are kept one by one; where they are many, only the least and the most
that any of them makes of each neuron. Both come from one recursion over the positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walkwise.questions.progress import shown
from walkwise.questions.steps import Partials, WalkSteps, descend

#: How many numbers the walks that are kept one by one may take.
ROOM = 1 << 22


@dataclass(frozen=True, eq=False)
class Completions:
    """Walks up to one node of a position, each as what it makes of a message there."""

    functionals: Tensor  # (W, N) relevance = ⟨message, functional⟩
    walks: Tensor | None  # (W, position + 1); None where rows are ranges, not walks


@dataclass(frozen=True, eq=False)
class Bounds:
    """Ranges at every node, and near the input all completions."""

    upper: dict[int, Tensor]  # {position: (M, N)}
    lower: dict[int, Tensor]
    completions: dict[int, dict[int, Completions]]  # {position: {node: ...}}

    def range(self, at: Partials) -> tuple[Tensor, Tensor]:
        """The least and the most relevance that a completion of each partial walk can have.  # (B, D) each

        Σ_n max(g_n, 0) lower_n + min(g_n, 0) upper_n, and the same with upper and lower exchanged.
        """
        upper, lower = self.upper[at.position][at.nodes, :, None], self.lower[at.position][at.nodes, :, None]
        plus, minus = at.message.clamp(min=0), at.message.clamp(max=0)  # (B, D, N)
        return (plus @ lower + minus @ upper)[..., 0], (plus @ upper + minus @ lower)[..., 0]


def bounds(steps: WalkSteps, room: int = ROOM, progress: bool | None = False) -> Bounds:
    """Ranges and completions, from the input up, one position after the other."""
    made, stages = Bounds({}, {}, {}), steps.stages
    taken = 0.0
    for position in stages.positions:
        N, M = stages.width(position), stages.chain.num_nodes
        taken += float(steps.ways[position].sum()) * (N + position + 1)
        if taken <= room:
            made.completions[position] = {}
        made.upper[position] = torch.zeros(M, N, dtype=stages.chain.dtype, device=stages.chain.device)
        made.lower[position] = torch.zeros_like(made.upper[position])
        nodes = stages.there(np.flatnonzero(steps.ways[position] > 0))
        batches = torch.split(nodes, stages.batch(lanes=max(1, N)))
        for batch in shown(batches, progress, desc=f"bounds at position {position}"):
            if N:
                _bound(steps, made, position, batch)
    return made


def _bound(steps: WalkSteps, made: Bounds, position: int, nodes: Tensor) -> None:
    """The ranges of a few nodes, and their completions where those are kept."""
    for node, pieces in zip(nodes.tolist(), _continued(steps, made, position, nodes), strict=True):
        functionals = torch.cat([piece.functionals for piece in pieces])
        made.upper[position][node] = functionals.amax(0)
        made.lower[position][node] = functionals.amin(0)
        if position in made.completions:
            tables = torch.cat([piece.walks for piece in pieces if piece.walks is not None])
            made.completions[position][node] = Completions(functionals, tables)


def _continued(steps: WalkSteps, made: Bounds, position: int, nodes: Tensor) -> list[list[Completions]]:
    """What is known one step below each node, carried up to it."""
    N = steps.stages.width(position)
    unit = torch.eye(N, dtype=steps.stages.chain.dtype, device=nodes.device).expand(len(nodes), N, N)
    beginning, below = descend(steps, Partials(position, nodes, unit, nodes))
    pieces: list[list[Completions]] = [[] for _ in nodes]
    if steps.stages.begins(position):
        for i, node in enumerate(nodes.tolist()):
            pieces[i].append(Completions(beginning[i : i + 1], _standing(position, node, nodes)))
    for at in below:
        continued = zip(at.parent.tolist(), at.nodes.tolist(), at.message, strict=True)
        if at.position in made.completions:
            for i, node, block in continued:
                shorter = made.completions[at.position][node]
                pieces[i].append(_longer(shorter, block, _standing(position, int(nodes[i]), nodes)))
        else:
            for (i, _, _), low, high in zip(continued, *made.range(at), strict=True):
                pieces[i].append(Completions(torch.stack([low, high]), None))
    return pieces


def _standing(position: int, node: int, like: Tensor) -> Tensor:
    """A walk that begins at a node.  # (1, position + 1)"""
    walk = torch.full((1, position + 1), -1, device=like.device)
    walk[0, position] = node
    return walk


def _longer(shorter: Completions, block: Tensor, top: Tensor) -> Completions:
    """Completions carried one step up, through the map (N, N') of that step."""
    assert shorter.walks is not None
    table = top.repeat(len(shorter.walks), 1)
    table[:, : shorter.walks.shape[1]] = shorter.walks
    return Completions(shorter.functionals @ block.t(), table)
