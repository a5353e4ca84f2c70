"""When numbers are equal up to rounding, and which comes first then: one rule for walks, subgraphs and orders.

Floating-point arithmetic gives numbers that are equal by symmetry slightly different values. They tie if they differ by
no more than :func:`rounding` times a scale: their own size, or that of the numbers they come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def rounding(dtype: torch.dtype) -> float:
    """The relative difference allowed between two numbers that are equal up to rounding."""
    return 1e-9 if dtype == torch.float64 else 1e-6


def tie_runs(scores: Sequence[float], relative: float, scale: float | None = None) -> list[int]:
    """For each of the scores, sorted best first, the place where its run of equal scores begins.

    A run ends at a score that differs from the run's first by more than ``relative`` times the scale, which by default
    is that first score.

    >>> tie_runs([3.0, 2.9999999, 1.0], relative=1e-6)
    [0, 0, 2]
    """
    runs: list[int] = []
    first = float("nan")  # equal to nothing
    for i, score in enumerate(scores):
        ties = abs(score - first) <= relative * (abs(first) if scale is None else scale)
        first = first if ties else score
        runs.append(runs[-1] if ties else i)
    return runs


def by_size(values: Tensor, *, zeros: bool = True) -> list[int]:
    """Sort the places of numbers by magnitude, largest first; ties keep their order.

    Args:
        values: the numbers, (M,).
        zeros: whether to list numbers that are zero up to rounding, too.

    >>> by_size(torch.tensor([1.0, 3.0 - 1e-7, -3.0, 3.0]))
    [1, 2, 3, 0]
    >>> by_size(torch.tensor([1e-9, 1.0, 0.0, -3.0]), zeros=False)
    [3, 1]
    """
    sizes = values.detach().abs().double()
    places = sizes.argsort(descending=True, stable=True).tolist()
    scale = float(sizes.max()) if places else 0.0
    if not zeros:
        places = [place for place in places if float(sizes[place]) > rounding(values.dtype) * scale]
    runs = tie_runs(sizes[places].tolist(), rounding(values.dtype), scale)
    return [place for _, place in sorted(zip(runs, places, strict=True))]


def ties_in_order(walks: Tensor, score: Tensor) -> Tensor:
    """The order in which to list walks so that, of those that tie, the lexicographically smallest comes first: (K,).

    Args:
        walks: the walks in the order of a search, (K, L + 1).
        score: what they were ordered by, (K,).

    >>> import torch
    >>> ties_in_order(torch.tensor([[2, 0], [1, 3], [1, 2], [0, 0]]), torch.tensor([5.0, 3.0, 2.9999999, 1.0]))
    tensor([0, 2, 1, 3])
    """
    order = order_of_ties(walks.cpu().numpy(), score.cpu().numpy(), rounding(score.dtype))
    return torch.from_numpy(order).to(walks.device)


def order_of_ties(
    walks: NDArray[Any], scores: NDArray[np.float64], relative: float, sizes: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """The same in main memory, given the relative difference within which scores tie.

    Several lists of walks may follow each other; ``sizes`` says how many walks each has.
    """
    listed, runs = scores.tolist(), list[int]()
    for size in [len(listed)] if sizes is None else sizes:
        first = len(runs)
        runs += [first + run for run in tie_runs(listed[first : first + size], relative)]
    if len(set(runs)) == len(runs):
        return np.arange(len(runs))
    order: NDArray[np.int64] = np.lexsort((*walks.T[::-1], runs))  # the last key counts most
    return order


def first_of_the_best(score: NDArray[np.float64], apart: NDArray[np.float64]) -> NDArray[np.int64]:
    """The first score of every row that ties with the row's largest: (R,).

    Args:
        score: (R, W), NaN where there is none.
        apart: by how much a score may fall short, (R,).

    >>> first_of_the_best(np.array([[1.0, np.nan, 3.0, 3.0 - 1e-12, 3.0]]), np.array([1e-9])).tolist()
    [2]
    """
    enough = np.fmax.reduce(score, axis=1) - apart
    first: NDArray[np.int64] = (score >= enough[:, None]).argmax(axis=1)
    return first


def first_of_the_best_there(score: Tensor, apart: Tensor) -> Tensor:
    """The same for numbers on an accelerator, without a wait: (..., W), (..., 1) -> (..., 1).

    >>> first_of_the_best_there(torch.tensor([[1.0, -torch.inf, 3.0, 2.999, 3.0]]), torch.tensor([[0.01]]))
    tensor([[2]])
    """
    places = torch.arange(score.shape[-1], device=score.device)
    enough = score.amax(-1, keepdim=True) - apart
    return torch.where(score >= enough, places, len(places)).amin(-1, keepdim=True)
