"""A torch function that works on every row by itself, and so on some of the rows as on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from walkwise.core.cast import Cast
from walkwise.core.differential import Differential, mapped
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Operator
from walkwise.core.rows import Rows


@dataclass(frozen=True)
class Dimension:
    """The dimension of a tensor that runs over its rows, which may share it with others: (outer, rows, inner)."""

    number: int = 0
    outer: int = 1
    inner: int = 1

    def by_row(self, tensor: Tensor, more: int = 0) -> Tensor:
        """A tensor's entries, row by row, ``more`` dimensions at the end aside.  # (…, *more) -> (K, N, *more)"""
        n, shape = self.number, tensor.shape
        rows = shape[n] // (self.outer * self.inner)
        moved = tensor.reshape(*shape[:n], self.outer, rows, self.inner, *shape[n + 1 :]).movedim(n + 1, 0)
        return moved.reshape(rows, moved.shape[1 : moved.dim() - more].numel(), *shape[len(shape) - more :])

    def back(self, by_row: Tensor, shape: Sequence[int]) -> Tensor:
        """The tensor again, of the given shape but for the number of rows.  # (K, N, *more) -> (…, *more)"""
        n, rows, more = self.number, len(by_row), by_row.shape[2:]
        apart = by_row.reshape(rows, *shape[:n], self.outer, self.inner, *shape[n + 1 :], *more)
        return apart.movedim(0, n + 1).reshape(*self.resized(shape, rows), *more)

    def resized(self, shape: Sequence[int], rows: int) -> torch.Size:
        """The shape with another number of rows."""
        return torch.Size((*shape[: self.number], self.outer * rows * self.inner, *shape[self.number + 1 :]))


@dataclass(frozen=True, eq=False)
class RowFunction(Operator):
    """The derivative of a function that mixes no rows: what is asked of some rows is worked out for those alone."""

    derivative: Differential
    by_row: bool  # whether constants that are as long as the argument where it has its rows have one for each of them
    start: Dimension = Dimension()  # where the argument's rows are
    end: Dimension = Dimension()  # and the result's

    @property
    def widest(self) -> int:
        """The entries in a row, at the input or the output."""
        return self.derivative.widest

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The vector-Jacobian product of the function on the rows at hand."""
        derivative = self.derivative if rows.whole else self._of_rows(message, rows)
        _, B, D, _ = message.shape
        arriving = self.end.back(message.permute(0, 3, 1, 2), derivative.shape)
        first = derivative.shape[0]
        arriving = arriving.reshape(first, derivative.shape[1:].numel(), B, D).permute(0, 2, 3, 1)
        pulled = derivative.pull(arriving, rows).permute(0, 3, 1, 2).reshape(*derivative.at.shape, B, D)
        return self.start.by_row(pulled, more=2).permute(0, 2, 3, 1)

    def push(self, values: Tensor) -> Tensor:
        """The function's own."""
        pushed = self.derivative.push(self.start.back(values, self.derivative.at.shape))
        return self.end.by_row(pushed.reshape(self.derivative.shape))

    def to(self, cast: Cast) -> RowFunction:
        """The same function, cast."""
        return replace(self, derivative=self.derivative.to(cast))

    def _of_rows(self, message: Tensor, rows: Rows) -> Differential:
        """The derivative for the rows at hand."""

        def taken(each: Any) -> Any:
            if not isinstance(each, _ByRow):
                return each
            some = rows.take(each.rows, message).reshape(len(message), each.rows.shape[1])
            return self.start.back(some, each.shape)

        at, args, kwargs = mapped(self._told_by_row, taken)
        shape = self.end.resized(self.derivative.shape, len(message))
        return replace(self.derivative, args=args, kwargs=kwargs, at=at, shape=shape)

    @cached_property
    def _told_by_row(self) -> tuple[Any, ...]:
        """The argument's value, and the other arguments, with those told row by row that have one for each."""
        at, number = self.derivative.at, self.start.number

        def told(each: Any) -> Any:
            alike = isinstance(each, Tensor) and self.by_row and each.shape[number:][:1] == at.shape[number:][:1]
            return _ByRow(self.start.by_row(each), each.shape) if alike else each

        value = _ByRow(self.start.by_row(at), at.shape)
        return value, mapped(self.derivative.args, told), mapped(self.derivative.kwargs, told)


@dataclass(frozen=True, eq=False)
class _ByRow:
    """A tensor, row by row."""

    rows: Tensor  # (K, N)
    shape: torch.Size
