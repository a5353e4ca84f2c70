"""Which rows of tensors the rows of another depend on, as derivatives show; all tensors here have their rows first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from walkwise.tracing.recording.recorded import Op

#: How many rows to inspect one by one, to see which others they depend on.
_LOOKED_AT = 16


def rerun(ops: Iterable[Op], values: Sequence[Tensor], begun: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """What operations make, by slot, with other values at some slots; these are given back, too.

    Args:
        ops: in order.
        values: what was recorded, by slot.
        begun: the other values, by slot.
    """
    made = dict(begun)
    for op in ops:
        results = op.run(lambda slot: made[slot] if slot in made else values[slot].detach())
        made.update({slot: tensor for slot, tensor in zip(op.outputs, results, strict=True) if slot is not None})
    return made


def uneven(part: Tensor) -> Tensor:
    """The sum of all entries, each times another factor, so that their derivatives do not cancel."""
    entries = part.flatten()
    return (entries * torch.linspace(1, 2, len(entries)).to(entries)).sum()


def gradients(total: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The derivatives of a number by those tensors that it depends on."""
    if not total.requires_grad:
        return []
    found = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def reached(made: Tensor, leaves: Sequence[Tensor], rows: Tensor | None = None) -> Tensor:
    """Which rows of tensors a result, or some rows of it, depends on.  # (M,)"""
    found = torch.zeros(len(made), dtype=torch.bool, device=made.device)
    for gradient in gradients(uneven(made if rows is None else made[rows]), leaves):
        found |= (gradient.flatten(1) != 0).any(1)
    return found


def dependence(made: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Some rows of a result, and which rows of tensors each depends on.  # (K,), (K, M)"""
    rows = torch.arange(0, len(made), -(-len(made) // _LOOKED_AT), device=made.device)
    return rows, torch.stack([reached(made, leaves, row) for row in rows])


def mixes(made: Tensor, leaves: Sequence[Tensor]) -> bool:
    """Whether any row of a result depends on a row of tensors with another number. Two numbers differ in some bit."""
    M = len(made)
    ids = torch.arange(M, device=made.device)
    bits = [(ids >> bit & 1).bool() for bit in range((M - 1).bit_length())]
    return any(bool(reached(made, leaves, rows)[~rows].any()) for bit in bits for rows in (bit, ~bit))


def is_along(rows: Tensor, depends: Tensor, ends: Tensor) -> bool:
    """Whether rows depend only on rows that edges join them to, in whichever direction.

    Args:
        rows: which they are.  # (K,)
        depends: which rows each depends on.  # (K, M)
        ends: of the edges.  # (2, E)
    """
    M = depends.shape[1]
    place = torch.full((M,), -1, device=rows.device).index_put((rows,), torch.arange(len(rows), device=rows.device))
    joined = torch.zeros_like(depends)
    ends = ends[:, (ends < M).all(0)]
    for here, there in (ends, ends.flip(0)):
        known = place[here] >= 0
        joined[place[here[known]], there[known]] = True
    return not bool((depends & ~joined).any())
