"""Whole numbers of all nodes, in order: those that the model was given, and what it makes of them row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from walkwise.tracing.private import base_of, version_of
from walkwise.tracing.recording.aliases import memory_of
from walkwise.tracing.recording.kinds import RESHAPING
from walkwise.tracing.recording.words import Word

#: Functions of one tensor of numbers and plain numbers, entry by entry.
_BY_ENTRY = frozenset({
    "add", "sub", "rsub", "mul", "remainder", "fmod", "floor_divide", "clamp", "abs", "neg", "to", "type", "long",
})  # fmt: skip


class Numbers:
    """The tensors of such numbers that the model has not written into."""

    def __init__(self, given: Sequence[Tensor] = ()) -> None:
        """Know those that the model was given."""
        self._known = [(tensor, version_of(tensor)) for tensor in given]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._valid())

    def _valid(self) -> list[Tensor]:
        return [tensor for tensor, version in self._known if version_of(tensor) == version]

    def hold(self, index: Tensor) -> bool:
        """Whether numbers are those of nodes, all of them and in order: a column, say."""
        return any(_are_of(index, given) for given in self._valid())

    def note(self, known: Word, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Know a function's result, if it was made row by row of such numbers."""
        if not self._known or not isinstance(result, Tensor) or result.dtype != torch.long or not result.dim():
            return
        rows, given = len(self._known[0][0]), [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        if len(result) == rows and self._keeps(known, args, given, result):
            self._known.append((result, version_of(result)))

    def _keeps(self, known: Word, args: Sequence[Any], given: Sequence[Tensor], result: Tensor) -> bool:
        """Whether a function makes rows of nodes, in order, of such rows."""
        if known.name == "cat" and isinstance(args[0], (list, tuple)):
            return bool(args[0]) and all(len(part) == len(result) and self.hold(part) for part in args[0])
        if known.name == "getitem" and isinstance(args[1], Tensor):  # of a table of numbers
            return args[1].dtype == torch.long and not self.hold(args[0]) and self.hold(args[1])
        if len(given) != 1 or not self.hold(given[0]):
            return False
        by_entry = known.name in _BY_ENTRY and result.shape == given[0].shape
        return by_entry or known.same or (known.name in RESHAPING and len(given[0]) == len(result))


def _are_of(index: Tensor, given: Tensor) -> bool:
    """Whether numbers are all of others, in order, or columns of them."""
    same = memory_of(index) == memory_of(given) and index.storage_offset() == given.storage_offset()
    whole = same and index.numel() == given.numel() and index.is_contiguous() and given.is_contiguous()
    return index is given or whole or has_columns_of(index, given)


def has_columns_of(part: Tensor, whole: Tensor) -> bool:
    """Whether a tensor is a view of columns of another, with all of its rows."""
    if base_of(part) is None or memory_of(part) != memory_of(whole) or part.shape[:1] != whole.shape[:1]:
        return False
    offset = int(part.storage_offset() - whole.storage_offset())
    return whole.dim() > 1 and part.stride(0) == whole.stride(0) and 0 <= offset < whole.stride(0)
