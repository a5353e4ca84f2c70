"""Where the rows of a tensor lie: along which of its axes, or along which part of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.operators import Columns, Identity, Operator, RowMap, Scale
from walkwise.core.row_maps import Gather, Reshape
from walkwise.core.rows import Dimension

#: Maps that are taken one after the other, in the model's order.
Maps = tuple[Operator, ...]


@dataclass(frozen=True)
class Axis:
    """Where a tensor's rows are: its entries in order have this shape, and this axis of it runs over the rows."""

    shape: tuple[int, ...]
    axis: int
    first: int  # how long the tensor's own first axis is

    @property
    def natural(self) -> bool:
        """Whether rows are just the tensor's own first axis."""
        return self.leading and self.rows == self.first

    @property
    def leading(self) -> bool:
        """Whether each row is contiguous."""
        return math.prod(self.shape[: self.axis]) == 1

    @property
    def own(self) -> Axis:
        """The tensor's own first axis."""
        return Axis((self.first, math.prod(self.shape) // max(1, self.first)), 0, self.first)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.shape[self.axis]

    @property
    def rest(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def width(self) -> int:
        """How many entries a row has."""
        return math.prod(self.rest)

    def by_row(self, tensor: Tensor) -> Tensor:
        """The tensor's entries, row by row.  # -> (K, N)"""
        return tensor.reshape(self.shape).movedim(self.axis, 0).reshape(self.rows, self.width)

    def back(self, by_row: Tensor) -> Tensor:
        """The entries in their own order again, flat as the tensor is.  # (K, N)"""
        entries = by_row.reshape(self.rows, *self.rest).movedim(0, self.axis)
        return entries.reshape(self.first, math.prod(self.shape) // max(1, self.first))

    def within(self, shape: Sequence[int]) -> Dimension | None:
        """The one dimension of a tensor of this shape that runs over these rows, if there is one."""
        outside, so_far = math.prod(self.shape[: self.axis]), 1
        for number, size in enumerate(shape):
            past = so_far * size
            if self.rows > 1 and outside % so_far == 0 and past % (outside * self.rows) == 0:
                return Dimension(number, outside // so_far, past // (outside * self.rows))
            so_far = past
        return Dimension() if self.natural else None

    def regrouped(self, other: Axis, device: torch.device) -> Maps | None:
        """The maps from these rows to others that are made of several of them, or the other way round."""
        few, many = sorted((self.rows, other.rows))
        if math.prod(self.shape) != math.prod(other.shape) or few == many or not few or many % few:
            return None
        join = Reshape(torch.Size((self.rows, self.width)), torch.Size((other.rows, other.width)))
        if self.leading and other.leading:
            return (join,)
        fewer, more = (self, other) if self.rows == few else (other, self)
        if not more.natural or (place := fewer.within(more.shape)) is None or place.number:
            return None
        order = place.by_row(torch.arange(many, device=device)).flatten()  # of the parts, row by row
        if self is more:
            return Gather(order, many), join
        return join, Gather(torch.empty_like(order).scatter(0, order, torch.arange(many, device=device)), many)


def axis_before(operator: Operator, wanted: Axis | None) -> Axis | None:
    """The rows of an operator's input; ``wanted`` are those of its output, if not its own."""
    if operator.shapes is not None:
        shape = _shape(operator.shapes[0])
        return Axis(shape, 0, shape[0])
    if wanted is None or not isinstance(operator, (Identity, Scale, RowMap, Columns)):
        return None
    rows, width = wanted.own.shape
    if isinstance(operator, (RowMap, Columns)):
        width = operator.width if isinstance(operator, Columns) else operator.matrix.shape[1]
    return Axis((rows, width), 0, rows)


def axes_after(operator: Operator, start: Axis, sizes: Sequence[int], like: Tensor) -> list[Axis]:
    """Where the rows of an operator's output can lie, the likeliest first."""
    if isinstance(operator, Reshape):
        return [Axis(start.shape, start.axis, operator.after[0])]
    if operator.shapes is not None:
        shape = _shape(operator.shapes[1])
        axes = [axis for axis, size in enumerate(shape) if size == start.rows]
        heads = [] if axes else [axis for size in sizes for axis in _parted(shape, size)]  # the rows of several heads
        axes += [start.axis] if len(shape) == len(start.shape) else []
        return [*heads, *(Axis(shape, axis, shape[0]) for axis in (*axes, 0)), *_parted(shape, start.rows)]
    first, width = operator.push(start.back(like.new_zeros(start.rows, start.width))).shape
    rows = first * width // max(1, start.width)
    shape = (*start.shape[: start.axis], rows, *start.shape[start.axis + 1 :])
    alike = [Axis(shape, start.axis, first)] if math.prod(shape) == first * width else []
    return [*alike, Axis((first, width), 0, first)]


def _parted(shape: tuple[int, ...], rows: int) -> Iterator[Axis]:
    """Rows that share an axis with something else."""
    for axis, size in enumerate(shape):
        if rows and size > rows and size % rows == 0:
            for parts, within in (((rows, size // rows), 0), ((size // rows, rows), 1)):
                yield Axis((*shape[:axis], *parts, *shape[axis + 1 :]), axis + within, shape[0])


def merged_axes(shape: Sequence[int]) -> list[Axis]:
    """Rows that are the first axes together."""
    counts = [math.prod(shape[:axes]) for axes in range(len(shape) - 1, 1, -1)]
    return [Axis((rows, math.prod(shape) // rows), 0, shape[0]) for rows in counts if rows]


def _shape(shape: torch.Size) -> tuple[int, ...]:
    return tuple(shape) or (1,)
