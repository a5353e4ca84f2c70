"""The bookkeeping of walks: whole numbers in NumPy arrays, or in tensors where arrays would mean a wait.

Small arrays are fastest in NumPy. For a chain on an accelerator the books are kept there, so that listing a million
walks takes a few operations and no transfers. Every function here takes either kind and gives the same result.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: An array of main memory, or a tensor.
Book = TypeVar("Book", NDArray[Any], Tensor)


def counting(count: int, like: Book) -> Book:
    """The numbers from 0 on.  # (count,)"""
    return torch.arange(count, device=like.device) if isinstance(like, Tensor) else np.arange(count)


def repeated(values: Book, counts: Book) -> Book:
    """Repeat every value as often as its count says.  # (K,), (K,) -> (R,)"""
    if isinstance(values, Tensor):
        return values.repeat_interleave(counts)
    return values.repeat(counts)


def rows(values: Book, index: Book) -> Book:
    """Some rows.  # (K, …), (R,) -> (R, …)"""
    if isinstance(values, Tensor):
        return values.index_select(0, index.long())
    return values.take(index, axis=0)


def places(mask: Book) -> Book:
    """Where a mask is true.  # (K,) -> (R,)"""
    return mask.nonzero()[:, 0] if isinstance(mask, Tensor) else np.flatnonzero(mask)


def stacked(parts: list[Book]) -> Book:
    """Arrays one after the other."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if isinstance(parts[0], Tensor) else np.concatenate(parts)


def places_ascending(keys: Book) -> Book:
    """The places of numbers, ascending; equal ones in the order they have.  # (K,) -> (K,)"""
    return keys.argsort(stable=True) if isinstance(keys, Tensor) else keys.argsort(kind="stable")


def largest(values: Book, k: int) -> Book:
    """The places of the k largest numbers, the largest first, and of equal ones the first.  # (K,) -> (k,)"""
    if isinstance(values, Tensor):
        return values.sort(descending=True, stable=True).indices[:k]
    kept = np.arange(len(values))
    if k < len(values):  # a part alone is sorted
        kept = np.flatnonzero(values >= np.partition(values, len(values) - k)[len(values) - k])
    return kept[(-values.take(kept)).argsort(kind="stable")][:k]


def row_maximum(values: Book) -> Book:
    """The largest number of every row.  # (K, P) -> (K,)"""
    if isinstance(values, Tensor):
        return values.amax(1)
    highest: NDArray[Any] = values.max(axis=1)
    return highest


def counted(values: Book, count: int) -> Book:
    """How often each number from 0 on occurs.  # (K,) -> (count,)"""
    return values.bincount(minlength=count) if isinstance(values, Tensor) else np.bincount(values, minlength=count)


def ascending(values: Book) -> Book:
    """The same with every row ascending.  # (K, P) -> (K, P)"""
    return values.sort(dim=1).values if isinstance(values, Tensor) else np.sort(values, axis=1)


def add_up(place: Book, value: Book, count: int) -> Book:
    """The sum of the values at every place.  # (K,), (K,) -> (count,)"""
    if isinstance(place, Tensor):
        return value.new_zeros(count).index_add_(0, place, value)
    return np.bincount(place.ravel(), value.ravel(), count).astype(np.float64, copy=False)


def turned(values: Book) -> Book:
    """Rows as columns, each contiguous in memory and so fast to work on.  # (K, P) -> (P, K)"""
    return values.T.contiguous() if isinstance(values, Tensor) else np.ascontiguousarray(values.T)


def spans(first: Book, counts: Book) -> tuple[Book, Book]:
    """Runs of numbers first, first + 1, …, with given lengths, and the run of each.  # (K,), (K,) -> (R,), (R,)"""
    owner = repeated(counting(len(counts), counts), counts)
    shift = first + counts
    shift -= counts.cumsum(0)
    return counting(len(owner), owner) + rows(shift, owner), owner


def grouped(keys: Book) -> tuple[Book, Book]:
    """The distinct numbers, ascending, and for every number which of them it equals; faster than np.unique."""
    order = places_ascending(keys)
    ranked = rows(keys, order)
    new = counting(len(keys), keys) == 0
    new[1:] = ranked[1:] != ranked[:-1]
    same = counting(len(keys), keys)
    same[order] = new.cumsum(0) - 1
    return rows(order, places(new)), same


def read(values: NDArray[Any] | Tensor) -> NDArray[Any]:
    """The same in main memory, which waits for an accelerator."""
    return values.cpu().numpy() if isinstance(values, Tensor) else values
