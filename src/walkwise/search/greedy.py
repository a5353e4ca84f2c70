"""Greedy node orders for anything that scores node sets."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from walkwise.errors import InputError


def greedy_order(scores: Callable[[Tensor], Tensor], num_nodes: int, mode: str = "activation") -> Tensor:
    """The nodes in the order in which a greedy search takes (or removes) them: (M,), section 7.2.1.

    Activation takes the node with the largest score(chosen + node), most important first; pruning removes
    the one with the smallest |score(rest − node) − score(G)|, least important first. Of nodes that tie, up to
    rounding, the one with the lowest id comes first: symmetric nodes differ by rounding alone.

    Args:
        scores: a score for every node set of a boolean mask (B, M).
        num_nodes: M.
        mode: "activation" or "pruning".

    >>> weights = torch.tensor([0.1, -2.0, 3.0])
    >>> greedy_order(lambda sets: sets.float() @ weights, 3).tolist()
    [2, 0, 1]
    >>> greedy_order(lambda sets: sets.float() @ weights, 3, "pruning").tolist()
    [0, 1, 2]
    """
    if mode not in ("activation", "pruning"):
        raise InputError(f'mode is "activation" or "pruning", got {mode!r}.')
    whole = scores(torch.ones(1, num_nodes, dtype=torch.bool)) if mode == "pruning" else None
    chosen = torch.zeros(num_nodes, dtype=torch.bool)
    order: list[int] = []
    for _ in range(num_nodes):
        free = (~chosen).nonzero()[:, 0]
        sets = chosen.repeat(len(free), 1)  # (B, M), one candidate each
        sets[torch.arange(len(free)), free] = True
        gains = scores(sets) if whole is None else -(scores(~sets) - whole).abs()
        order.append(int(free[_first_best(gains)]))
        chosen[order[-1]] = True
    return torch.tensor(order, dtype=torch.long)


def _first_best(gains: Tensor) -> int:
    """The first of the largest, up to rounding."""
    rounding = torch.finfo(gains.dtype).eps ** 0.75 * gains.abs().max()
    return int((gains >= gains.max() - rounding).nonzero()[0])
