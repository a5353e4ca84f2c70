"""Guess what a map does to rows from a few messages, and accept a guess if it treats a random message alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.edges import Edges
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Identity, Operator, RowMap, Scale
from walkwise.core.row_maps import Gather, Scatter, Send
from walkwise.core.rows import AllNodes, OwnRows
from walkwise.tracing.steps.axes import Axis, Maps

#: Rows wider than that are not looked into for a matrix.
_WIDEST = 1024
#: So often a function is tried on some rows alone, and on so many of them at most.
_TRIALS, _TRIED = 4, 1024
#: Numbers within so many roundings are equal; a map that is only nearly another is not mistaken for it.
_ROUNDINGS = 1024


@dataclass(eq=False)
class Guesses:
    """An operator between tensors whose rows are known, tried with messages."""

    given: Operator  # as it was recorded
    operator: Operator  # the same, in the precision that it is tried in
    start: Axis
    end: Axis
    like: Tensor
    generator: torch.Generator
    _expected: tuple[Tensor, Tensor] | None = None

    def best(self) -> Maps | None:
        """The first guess that holds, the simplest ones first."""
        guesses = [self.scale, self.matrix, self.put, self.picked, self.function]
        if self.operator.has_matrices:
            guesses = guesses[::-1]
        return next((found for guess in guesses if (found := guess()) is not None), None)

    def scale(self) -> Maps | None:
        """Entry by entry."""
        if (self.start.rows, self.start.width) != (self.end.rows, self.end.width):
            return None
        factor = self._ones
        return self._checked(Identity() if bool((factor == 1).all()) else Scale(factor))

    def matrix(self) -> Maps | None:
        """One matrix for every row."""
        if self.start.rows != self.end.rows or max(self.start.width, self.end.width) > _WIDEST:
            return None
        every = torch.arange(self.start.rows, device=self.like.device)
        return self._checked(RowMap(self._matrix(every, every)))

    def picked(self) -> Maps | None:
        """Every row comes from one row of the input, by one matrix if the widths differ, or from none."""
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

    def put(self) -> Maps | None:
        """Every row, or a share of it, is added to a row of the output, by one matrix if the widths differ."""
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
        """The result for ones everywhere."""
        return self._pulled(self.like.new_ones(self.end.rows, self.end.width))

    def _between(self, source: Tensor, target: Tensor) -> Maps | None:
        """The matrix that maps rows, if they cannot stay as they are."""
        if self.start.width == self.end.width or not len(source):
            return ()
        if max(self.start.width, self.end.width) > _WIDEST:
            return None
        each, place = torch.unique(target, return_inverse=True)  # one of the rows that go to each
        chosen = torch.empty_like(each).scatter(0, place, source)
        once, place = torch.unique(chosen, return_inverse=True)
        return (RowMap(self._matrix(once, torch.empty_like(once).scatter(0, place, each))),)

    def _matrix(self, source: Tensor, target: Tensor) -> Tensor:
        """The matrix that maps rows, read off from rows that get a unit vector each."""
        width, found = self.end.width, []
        for first in range(0, width, len(source)):
            columns = torch.arange(first, min(first + len(source), width), device=self.like.device)
            units = self.like.new_zeros(self.end.rows, width)
            units[target[: len(columns)], columns] = 1
            found.append(self._pulled(units)[source[: len(columns)]])
        return torch.cat(found)

    def function(self) -> Maps | None:
        """The function itself, if it does the same to some rows, in another order, as to all."""
        if self.operator.shapes is None or self.start.rows != self.end.rows:
            return None
        start, end = (
            axis.within(shape) for axis, shape in zip((self.start, self.end), self.operator.shapes, strict=True)
        )
        if start is None or end is None:
            return None
        for constants in (True, False):
            guess, kept = (operator.by_rows(start, end, constants) for operator in (self.operator, self.given))
            if guess is not None and kept is not None and all(self._same_on_some(guess, rows) for rows in self._some()):
                return (kept,)
        return None

    def _some(self) -> Iterator[Tensor]:
        """Half of the rows, and the other half, several times."""
        K = self.start.rows
        for _ in range(_TRIALS // 2):
            order = torch.randperm(K, generator=self.generator).to(self.like.device)
            for rows in (order, order.flip(0)):
                yield rows[: max(1, min(K // 2, _TRIED))]

    def _same_on_some(self, guess: Operator, once: Tensor) -> bool:
        K = self.start.rows
        some = once if K > 1 else once.repeat(2)  # of two queries: as many rows as there are would show nothing
        message, expected = self._random()
        queries = torch.zeros_like(some) if K > 1 else torch.arange(2).to(some)
        try:
            pulled = guess.pull(message[some].view(len(some), 1, 1, -1), OwnRows(K, 2, some, queries))
        except (RuntimeError, IndexError, ValueError):  # it asks for as many rows as there are
            return False
        return _close(pulled.reshape(len(some), -1), expected[some])

    def _checked(self, *guess: Operator) -> Maps | None:
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
        rows = found[:, 0].round().long()
        sound = (found == rows.view(-1, 1)).all() & (rows >= 0).all() & (rows <= most).all()
        return rows if bool(sound) else None


def _close(ours: Tensor, theirs: Tensor) -> bool:
    """Equal within rounding."""
    if ours.shape != theirs.shape:
        return False
    far = _ROUNDINGS * torch.finfo(theirs.dtype).eps
    return not theirs.numel() or bool((ours - theirs).abs().max() <= far * theirs.abs().max())
