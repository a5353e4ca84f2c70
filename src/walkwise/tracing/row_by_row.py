"""Steps that rearrange tensors, written as maps of rows.

A layer may put its heads first and its nodes second, stack tensors and add them up again, copy rows into their places,
or multiply every row by a matrix of its own: as recorded, such a map may lead anywhere. Here its rows are found again.
What a map does to rows is guessed from a few messages, and the guess is taken where it does the same to a random one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from walkwise.core.differential import Differential
from walkwise.core.edges import Edges
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Cast, Identity, Operator, RowMap, Scale, Step, Visit
from walkwise.core.row_function import Dimension, RowFunction
from walkwise.core.row_maps import Gather, Reshape, Scatter, Send, SumRows
from walkwise.core.rows import AllNodes, OwnRows
from walkwise.tracing.interpreter import leaves
from walkwise.tracing.layouts import rewritten

#: Rows wider than that are not looked into for a matrix.
_WIDEST = 1024
#: So often a function is tried on some rows alone, and on so many of them at most.
_TRIALS, _TRIED = 4, 1024
#: So many rows are looked at before all are.
_GLANCE = 64
#: Numbers that are no further apart than so many roundings are equal: a map that is nearly another is not taken for it.
_ROUNDINGS = 1024
#: Maps that are taken one after the other, in the model's order.
_Maps = tuple[Operator, ...]


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
        """Whether a row's entries follow one another, and then those of the next row."""
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

    def regrouped(self, other: Axis, device: torch.device) -> _Maps | None:
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


def row_by_row(
    steps: Sequence[Step], new_slot: Callable[[], int], like: Tensor
) -> tuple[list[Step], dict[int, Axis]] | None:
    """The steps with maps of rows in the place of those that rearrange, and where slots now have other rows.

    None where a map is nothing of the kind.

    Args:
        steps: in the model's order.
        new_slot: gives a slot that no step uses yet.
        like: a message.
    """
    if any(isinstance(operator, SumRows) for step in steps for operator in step.operators):
        return None  # all rows in one: there is nothing to gain
    found = _Rows(like, _sizes(steps), _counts(steps))
    written = rewritten(steps, found.told, new_slot)
    if written is None:
        return None
    return written, {slot: axis for slot, axis in found.turned.items() if axis is not None}


@dataclass(eq=False)
class _Rows:
    """Steps on their way to being told row by row."""

    like: Tensor
    sizes: Sequence[int]  # of axes beside the first, where rows may have been moved; the largest first
    counts: frozenset[int]  # how many rows there are where rows are read or added up
    turned: dict[int, Axis | None] = field(default_factory=dict)  # by slot; None where its rows are rows
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    known: dict[Hashable, _Maps | None] = field(default_factory=dict)  # what operators are, between which rows

    def told(self, operator: Operator, source: int, target: int) -> _Maps | None:
        """The operator as maps of rows; decides where the rows of the target are, unless another has."""
        before, wanted = self.turned.get(source), self.turned.get(target)
        if before is None and wanted is None and not isinstance(operator, (Differential, Reshape)):
            self.turned[target] = None
            return (operator,)
        if isinstance(operator, Visit):
            return None
        if before is None:
            before = _taken(operator, wanted)
        if before is None:
            return None
        views = list(self._views(before, wanted))
        for merged in (False, True):
            for first, start in views:
                for end in self._ends(operator, start, target, merged):
                    if (told := self._map(operator, start, end)) is not None:
                        self.turned[target] = None if end.natural else end
                        return (*first, *told)
        return None

    def _views(self, before: Axis, wanted: Axis | None) -> Iterator[tuple[_Maps, Axis]]:
        """The rows that an operator can be said to take, and the maps that make them of those that there are."""
        yield (), before
        own = before.own if before.rows < before.first or before.first in self.counts else None
        for other in (own, None if wanted is None else replace(wanted, first=before.first)):
            maps = None if other is None else before.regrouped(other, self.like.device)
            if maps is not None and other is not None:
                yield maps, other

    def _ends(self, operator: Operator, start: Axis, target: int, merged: bool) -> Iterator[Axis]:
        """Where the rows of the result can be: in one of its axes, or in the first ones ``merged``."""
        known = self.turned.get(target)
        if merged:
            found = _merged(operator.shape) if known is None and isinstance(operator, Differential) else []
        else:
            found = [known] if known is not None else _axes(operator, start, self.sizes, self.like)
        only = target in self.turned and known is None
        yield from (end for end in dict.fromkeys(found) if end.natural or not only)

    def _map(self, operator: Operator, start: Axis, end: Axis) -> _Maps | None:
        """The operator as maps between these rows."""
        if type(operator) in (Identity, Reshape) and (start.shape, start.axis) == (end.shape, end.axis):
            return (Identity(),)
        if start.natural and end.natural and not isinstance(operator, (Differential, Reshape)):
            return (operator,)
        if not min(start.width, end.width):
            return None
        if not start.rows and not end.rows:
            return (RowMap(self.like.new_zeros(end.width, start.width)),)
        if not start.rows or not end.rows:
            nothing = torch.zeros(0, dtype=torch.long, device=self.like.device)
            between = Gather(nothing, start.rows) if start.rows else Scatter(nothing, end.rows)
            return (between,) if start.width == end.width else None
        key = _recorded(operator), start, end  # under some rules, what was recorded once is written several times
        if key not in self.known:
            self.known[key] = self._guessed(operator, start, end)
        return self.known[key]

    def _guessed(self, operator: Operator, start: Axis, end: Axis) -> _Maps | None:
        """The same, tried in double precision: what is nearly another map must not be taken for it."""
        fine = self.like.double()
        try:
            found = _Guesses(operator.to(Cast(None, fine.dtype)), start, end, fine, self.generator).best()
        except (RuntimeError, TypeError):  # it runs in its own precision alone
            return _Guesses(operator, start, end, self.like, self.generator).best()
        if found is None or fine is self.like:
            return found
        back = Cast(None, self.like.dtype)
        if isinstance(operator, Differential) and isinstance(found[0], RowFunction):
            return (replace(found[0], derivative=operator),)
        return tuple(told.to(back) for told in found)


@dataclass(eq=False)
class _Guesses:
    """An operator between tensors whose rows are known, tried with messages."""

    operator: Operator
    start: Axis
    end: Axis
    like: Tensor
    generator: torch.Generator
    _expected: tuple[Tensor, Tensor] | None = None

    def best(self) -> _Maps | None:
        """The first guess that holds, the simplest ones first."""
        guesses = [self.scale, self.matrix, self.put, self.picked, self.function]
        if isinstance(self.operator, Differential) and _has_matrices(self.operator):
            guesses = guesses[::-1]
        return next((found for guess in guesses if (found := guess()) is not None), None)

    def scale(self) -> _Maps | None:
        """Entry by entry."""
        if (self.start.rows, self.start.width) != (self.end.rows, self.end.width):
            return None
        factor = self._ones
        return self._checked(Identity() if bool((factor == 1).all()) else Scale(factor))

    def matrix(self) -> _Maps | None:
        """One matrix for every row."""
        if self.start.rows != self.end.rows or max(self.start.width, self.end.width) > _WIDEST:
            return None
        every = torch.arange(self.start.rows, device=self.like.device)
        return self._checked(RowMap(self._matrix(every, every)))

    def picked(self) -> _Maps | None:
        """Every row is made of a row of the input, by one matrix if the widths differ, or nothing."""
        numbers = self._numbers(self.start)
        rows = self._from_numbers(self.end.by_row(self.operator.push(self.start.back(numbers))), self.start.rows)
        if rows is None:
            return None
        there = rows.nonzero().view(-1)
        source = rows[there] - 1
        if len(there) == len(rows):
            pick: Operator = Gather(source, self.start.rows)
        else:
            edges = Edges(source, there, max(self.start.rows, self.end.rows))
            pick = Send(edges, None, self.start.rows, self.end.rows)
        between = self._between(source, there)
        return None if between is None else self._checked(pick, *between)

    def put(self) -> _Maps | None:
        """Every row is added to a row of the output, by one matrix if the widths differ; or a share of it is."""
        numbers = self._pulled(self._numbers(self.end))
        rows = self._from_numbers(numbers, self.end.rows)
        if rows is None and (share := self._share()) is not None:
            rows = self._from_numbers((numbers / share.factor).round(), self.end.rows)
            return None if rows is None else self._checked(share, Scatter((rows - 1).clamp(min=0), self.end.rows))
        if rows is None or not bool(rows.all()):
            return None
        every = torch.arange(self.start.rows, device=self.like.device)
        between = self._between(every, rows - 1)
        return None if between is None else self._checked(*between, Scatter(rows - 1, self.end.rows))

    def _share(self) -> Scale | None:
        """The one number that every entry is multiplied by, if it is not 1."""
        if self.start.width != self.end.width:
            return None
        share = self._ones[:1, :1]
        return Scale(share) if bool((self._ones == share).all() & (share != 0).all()) else None

    @cached_property
    def _ones(self) -> Tensor:
        """What comes of ones everywhere."""
        return self._pulled(self.like.new_ones(self.end.rows, self.end.width))

    def _between(self, source: Tensor, target: Tensor) -> _Maps | None:
        """The matrix by which rows become others, where it cannot be that they stay as they are."""
        if self.start.width == self.end.width or not len(source):
            return ()
        if max(self.start.width, self.end.width) > _WIDEST:
            return None
        each, place = torch.unique(target, return_inverse=True)  # one of the rows that go to each
        chosen = torch.empty_like(each).scatter(0, place, source)
        once, place = torch.unique(chosen, return_inverse=True)
        return (RowMap(self._matrix(once, torch.empty_like(once).scatter(0, place, each))),)

    def _matrix(self, source: Tensor, target: Tensor) -> Tensor:
        """The matrix by which rows become others, read off from as many of these that get a unit vector each."""
        width, found = self.end.width, []
        for first in range(0, width, len(source)):
            columns = torch.arange(first, min(first + len(source), width), device=self.like.device)
            units = self.like.new_zeros(self.end.rows, width)
            units[target[: len(columns)], columns] = 1
            found.append(self._pulled(units)[source[: len(columns)]])
        return torch.cat(found)

    def function(self) -> _Maps | None:
        """The function itself, where it does the same to some rows, in another order, as to all."""
        if not isinstance(self.operator, Differential) or self.start.rows != self.end.rows:
            return None
        start, end = self.start.within(self.operator.at.shape), self.end.within(self.operator.shape)
        if start is None or end is None:
            return None
        for by_row in (True, False):
            guess = RowFunction(self.operator, by_row, start, end)
            if all(self._same_on_some(guess) for _ in range(_TRIALS)):
                return (guess,)
        return None

    def _same_on_some(self, guess: RowFunction) -> bool:
        K = self.start.rows
        some = torch.randperm(K, generator=self.generator)[: max(1, min(K // 2, _TRIED))].to(self.like.device)
        message, expected = self._random()
        try:
            pulled = guess.pull(message[some].view(len(some), 1, 1, -1), OwnRows(K, 1, some, torch.zeros_like(some)))
        except (RuntimeError, IndexError, ValueError):  # it asks for as many rows as there are
            return False
        return _close(pulled.reshape(len(some), -1), expected[some])

    def _checked(self, *guess: Operator) -> _Maps | None:
        """The guess, if a random message comes back from it as from the operator."""
        message, expected = self._random()
        pulled = message.unsqueeze(1).unsqueeze(1)
        for operator in reversed(guess):
            if type(operator) is RowMap and pulled.shape[-1] != len(operator.matrix):
                return None
            pulled = operator.pull(pulled, AllNodes(len(pulled), 1))
        return guess if _close(pulled[:, 0, 0], expected) else None

    def _random(self) -> tuple[Tensor, Tensor]:
        if self._expected is None:
            message = torch.randn(self.end.rows, self.end.width, generator=self.generator).to(self.like)
            self._expected = message, self._pulled(message)
        return self._expected

    def _pulled(self, message: Tensor) -> Tensor:
        """A message pulled by the operator.  # (K', N') -> (K, N)"""
        natural = self.end.back(message)
        pulled = self.operator.pull(natural.unsqueeze(1).unsqueeze(1), AllNodes(len(natural), 1))
        return self.start.by_row(pulled[:, 0, 0])

    def _numbers(self, axis: Axis) -> Tensor:
        """Every row's number, from 1, in all its entries."""
        numbers = torch.arange(1, axis.rows + 1, device=self.like.device).to(self.like.dtype)
        return numbers.view(-1, 1).expand(-1, axis.width)

    @staticmethod
    def _from_numbers(found: Tensor, most: int) -> Tensor | None:
        """The number in each row, if there is one.  # (K, N) -> (K,)"""
        if not found.shape[1]:
            return None
        some = found[:_GLANCE]
        if not bool((some == some[:, :1]).all()):
            return None
        rows = found[:, 0].round().long()
        sound = (found == rows.view(-1, 1)).all() & (rows >= 0).all() & (rows <= most).all()
        return rows if bool(sound) else None


def _shape(shape: torch.Size) -> tuple[int, ...]:
    return tuple(shape) or (1,)


def _taken(operator: Operator, wanted: Axis | None) -> Axis | None:
    """The rows of what an operator takes, as they are; ``wanted`` are those of what it gives, if not its own."""
    if isinstance(operator, (Differential, Reshape)):
        shape = _shape(operator.at.shape if isinstance(operator, Differential) else operator.before)
        return Axis(shape, 0, shape[0])
    if wanted is None or not isinstance(operator, (Identity, Scale, RowMap)):
        return None
    rows, width = wanted.own.shape
    width = operator.matrix.shape[1] if isinstance(operator, RowMap) else width
    return Axis((rows, width), 0, rows)


def _recorded(operator: Operator) -> Hashable:
    """The same for operators that are the same function of the same tensor, with the same arguments."""
    if not isinstance(operator, Differential):
        return id(operator)
    given = [
        item if isinstance(item, (int, float, str)) else id(item) for item in leaves((operator.args, operator.kwargs))
    ]
    at = operator.at
    return id(operator.func), at.data_ptr(), at.shape, at.stride(), operator.output, tuple(given)


def _has_matrices(operator: Differential) -> bool:
    """Whether a function is given something like a matrix for every row."""
    constants = [a for a in (*operator.args, *operator.kwargs.values()) if isinstance(a, Tensor)]
    return any(constant.dim() > 2 and constant.shape[:1] == operator.at.shape[:1] for constant in constants)


def _axes(operator: Operator, start: Axis, sizes: Sequence[int], like: Tensor) -> list[Axis]:
    """Where the rows of what an operator gives can be, the likeliest first."""
    if isinstance(operator, Reshape):
        return [Axis(start.shape, start.axis, operator.after[0])]
    if isinstance(operator, Differential):
        shape = _shape(operator.shape)
        axes = [axis for axis, size in enumerate(shape) if size == start.rows]
        heads = [] if axes else [axis for size in sizes for axis in _parted(shape, size)]  # the rows of several heads
        axes += [start.axis] if len(shape) == len(start.shape) else []
        return [*heads, *(Axis(shape, axis, shape[0]) for axis in (*axes, 0)), *_parted(shape, start.rows)]
    first, width = operator.push(start.back(like.new_zeros(start.rows, start.width))).shape
    rows = first * width // max(1, start.width)
    shape = (*start.shape[: start.axis], rows, *start.shape[start.axis + 1 :])
    alike = [Axis(shape, start.axis, first)] if math.prod(shape) == first * width else []
    return [*alike, Axis((first, width), 0, first)]


def _sizes(steps: Sequence[Step]) -> list[int]:
    """How long the axes are, beside the first, of tensors that functions take or give; the longest first."""
    functions = [o for step in steps for o in step.operators if isinstance(o, Differential)]
    return sorted({size for o in functions for size in (*o.at.shape[1:], *o.shape[1:]) if size > 1}, reverse=True)


def _counts(steps: Sequence[Step]) -> frozenset[int]:
    """How many rows there are where rows are read, or added up: nodes, or those of a type."""
    moves = [o for step in steps for o in step.operators if isinstance(o, (Gather, Scatter))]
    return frozenset(o.num_rows for o in moves)


def _parted(shape: tuple[int, ...], rows: int) -> Iterator[Axis]:
    """Rows that share an axis with something else."""
    for axis, size in enumerate(shape):
        if rows and size > rows and size % rows == 0:
            for parts, within in (((rows, size // rows), 0), ((size // rows, rows), 1)):
                yield Axis((*shape[:axis], *parts, *shape[axis + 1 :]), axis + within, shape[0])


def _merged(shape: Sequence[int]) -> list[Axis]:
    """Rows that are the first axes together."""
    counts = [math.prod(shape[:axes]) for axes in range(len(shape) - 1, 1, -1)]
    return [Axis((rows, math.prod(shape) // rows), 0, shape[0]) for rows in counts if rows]


def _close(ours: Tensor, theirs: Tensor) -> bool:
    """Equal within rounding."""
    if ours.shape != theirs.shape:
        return False
    far = _ROUNDINGS * torch.finfo(theirs.dtype).eps
    return not theirs.numel() or bool((ours - theirs).abs().max() <= far * theirs.abs().max())
