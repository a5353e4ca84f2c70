"""Tensors that share memory: writing into one changes the others, whether they are followed or not."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex, Index

from walkwise.errors import TraceError
from walkwise.tracing.private import base_of, version_of


def unseen_write(through: str, remedy: str = "") -> TraceError:
    """The error for a write that the tape does not see."""
    return TraceError(
        f"The model wrote into a node tensor through {through}, which cannot be followed.",
        remedy=remedy
        or "Write into a copy (h.detach().clone() instead of h.detach()), or use the out-of-place operation.",
    )


def unseen_part() -> TraceError:
    """The error for a part of a complex tensor that was set."""
    return unseen_write("z.real = ... or z.imag = ...", "Make z of its parts: torch.complex(real, imag).")


class Aliases:
    """Tensors that share memory with followed ones but are not followed: detached, or made without gradients."""

    def __init__(self) -> None:
        """None yet."""
        self._known: list[tuple[Tensor, Tensor]] = []  # each with a copy

    def add(self, alias: Tensor) -> None:
        """Watch a tensor for being written into."""
        self._known.append((alias, alias.clone()))

    def check(self) -> None:
        """Refuse a model that has written into one of them."""
        if any(differ(alias, copy) for alias, copy in self._known):
            raise unseen_write("a tensor that is detached from it (h.detach(), h.data)")

    def renew(self) -> None:
        """Take their values as they are now."""
        self._known = [(alias, alias.clone()) for alias, _ in self._known]


class ComplexConstants:
    """Complex tensors that are not followed: torch tells no one when a part of them is set, ``z.real = h``."""

    def __init__(self) -> None:
        """None yet."""
        self._known: list[tuple[Tensor, int]] = []  # each with how often it has been written into

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._known)

    def add(self, tensor: Tensor) -> None:
        """Watch a tensor for being written into."""
        self._known.append((tensor, version_of(tensor)))

    def check(self, followed: Sequence[Tensor]) -> None:
        """Refuse a model that has set a part of one of them to something that is followed; the values tell."""
        for tensor, version in self._known:
            if version_of(tensor) != version:
                parts = tensor.detach().real, tensor.detach().imag
                if any(_holds(part, value) for part in parts for value in followed):
                    raise unseen_part()
        self.renew()

    def renew(self) -> None:
        """Take them as they are now."""
        self._known = [(tensor, version_of(tensor)) for tensor, _ in self._known]


class ConstantViews:
    """Views of constants, into which node features may be written later: slices, and constants that were detached."""

    def __init__(self) -> None:
        """None yet."""
        self._views: list[weakref.ref[Tensor]] = []
        self._detached: dict[int, tuple[Tensor, Tensor]] = {}  # by identity, each with what it was detached from

    def add(self, result: Any, detached_from: Tensor | None = None) -> Any:
        """Remember a function's result from constants, if it is a view."""
        if detached_from is not None:
            self._detached[id(result)] = result, detached_from
        for item in result if type(result) in (tuple, list) else (result,):
            if isinstance(item, Tensor) and self.root(item) is not item and item.is_floating_point():
                self._views.append(weakref.ref(item))
        return result

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor that another is a view of, or that other one itself."""
        base = base_of(tensor)
        root = tensor if base is None else base
        found = self._detached.get(id(root))
        return root if found is None else self.root(found[1])

    def sharing(self, tensor: Tensor, others: Iterable[Tensor]) -> list[Tensor]:
        """The other tensors and views that have the same root as this one, or are the root."""
        root = self.root(tensor)
        views = [view for ref in self._views if (view := ref()) is not None]
        distinct = {id(other): other for other in (*others, *views) if other is not tensor}
        return [other for other in distinct.values() if self.root(other) is root]


def _holds(part: Tensor, value: Tensor) -> bool:
    """Whether a tensor holds the values of another, repeated where it has more dimensions."""
    if value.is_complex() or value.dim() > part.dim():
        return False
    fits = all(size in (1, wide) for size, wide in zip(value.shape[::-1], part.shape[::-1], strict=False))
    return fits and not differ(part, value.to(part).expand(part.shape))


def memory_of(tensor: Tensor) -> int:
    """The address of a tensor's numbers; 0 if they lie in several places."""
    tensor = tensor.as_tensor() if isinstance(tensor, (EdgeIndex, Index)) else tensor  # which wrap another
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two views of one tensor have entries in common.

    >>> import torch
    >>> root = torch.zeros(3, 4)
    >>> overlap(root[:, :2], root[1]), overlap(root[:, ::2], root[:, 1::2])
    (True, False)
    """
    if not a.numel() or not b.numel():
        return False
    if a.dtype != b.dtype:  # the parts of complex numbers, say
        return True
    if any(_covers(*pair) for pair in ((a, b), (b, a))):
        return True
    first = min(a.storage_offset(), b.storage_offset())
    ends = [t.storage_offset() + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) for t in (a, b)]
    taken = torch.zeros(max(ends) - first + 1, dtype=torch.bool)
    taken.as_strided(a.shape, a.stride(), a.storage_offset() - first).fill_(True)
    return bool(taken.as_strided(b.shape, b.stride(), b.storage_offset() - first).any())


def _covers(whole: Tensor, part: Tensor) -> bool:
    """Whether a contiguous tensor holds the first entry of another."""
    return whole.is_contiguous() and 0 <= part.storage_offset() - whole.storage_offset() < whole.numel()


def differ(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of one shape hold different numbers."""
    return not torch.equal(a, b) and not torch.equal(a.nan_to_num(), b.nan_to_num())


def place_in(view: Tensor, root: Tensor) -> tuple[int | slice, ...] | None:
    """The index of a view within a tensor; None if it is not made of slices, such as a transpose, or of other numbers.

    >>> import torch
    >>> root = torch.arange(12.0).view(3, 4)
    >>> place_in(root[1:, ::2], root), place_in(root.t(), root)
    ((slice(1, 3, 1), slice(0, 3, 2)), None)
    """
    if view.dtype != root.dtype:
        return None
    offset = rest = int(view.storage_offset() - root.storage_offset())
    starts = dict.fromkeys(range(root.dim()), 0)
    for dim in sorted(starts, key=root.stride, reverse=True):
        if root.shape[dim] > 1:
            starts[dim], rest = divmod(rest, max(root.stride(dim), 1))
    place: list[int | slice] = []
    left = list(zip(view.shape, view.stride(), strict=True))
    for dim, start in starts.items():
        size, stride = left[0] if left else (0, 0)
        step, over = divmod(stride, max(root.stride(dim), 1))
        end = start + (size - 1) * step + 1
        if over or step < 1 or end > root.shape[dim]:
            place.append(start)
        else:
            place.append(slice(start, end, step))
            left.pop(0)
    numbers = torch.arange(1 + sum((size - 1) * step for size, step in zip(root.shape, root.stride(), strict=True)))
    told = numbers.as_strided(root.shape, root.stride())[tuple(place)]
    return tuple(place) if torch.equal(told, numbers.as_strided(view.shape, view.stride(), offset)) else None


def reshapes(view: Tensor, root: Tensor) -> bool:
    """Whether a view has all the entries of a tensor, in their order."""
    whole = view.is_contiguous() and root.is_contiguous()
    return view.numel() == root.numel() and view.dtype == root.dtype and whole
