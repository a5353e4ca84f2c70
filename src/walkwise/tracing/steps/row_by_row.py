"""Steps that rearrange tensors, written as maps of rows.

A layer may put its heads first and its nodes second, stack tensors and add them up again, copy rows into their places,
or multiply every row by a matrix of its own. As recorded, such a map may lead anywhere. Here its rows are found again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from walkwise.core.cast import Cast
from walkwise.core.operators import Identity, Operator, RowMap, Step, Visit
from walkwise.core.row_maps import Gather, Reshape, Scatter, SumRows
from walkwise.tracing.steps.axes import Axis, Maps, axes_after, axis_before, merged_axes
from walkwise.tracing.steps.guesses import Guesses
from walkwise.tracing.steps.layouts import rewritten


def row_by_row(
    steps: Sequence[Step], new_slot: Callable[[], int], like: Tensor
) -> tuple[list[Step], dict[int, Axis]] | None:
    """The steps with maps of rows instead of rearrangements, and the slots that now have other rows.

    None if a map is of another kind.

    Args:
        steps: in the model's order.
        new_slot: gives a slot that no step uses yet.
        like: a message.
    """
    if any(isinstance(operator, SumRows) for step in steps for operator in step.operators):
        return None  # all rows in one: there is nothing to gain
    found = _Rows(like, _sizes(steps), _counts(steps))
    written = rewritten(steps, found.rewrite, new_slot)
    if written is None:
        return None
    return written, {slot: axis for slot, axis in found.turned.items() if axis is not None}


@dataclass(eq=False)
class _Rows:
    """Steps on their way to being written row by row."""

    like: Tensor
    sizes: Sequence[int]  # of axes beside the first, where rows may have been moved; the largest first
    counts: frozenset[int]  # how many rows there are where rows are read or added up
    turned: dict[int, Axis | None] = field(default_factory=dict)  # by slot; None where its rows are rows
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    known: dict[Hashable, Maps | None] = field(default_factory=dict)  # what operators are, between which rows

    def rewrite(self, operator: Operator, source: int, target: int) -> Maps | None:
        """The operator as maps of rows; decides where the rows of the target lie, unless another operator has."""
        before, wanted = self.turned.get(source), self.turned.get(target)
        if before is None and wanted is None and operator.shapes is None:
            self.turned[target] = None
            return (operator,)
        if isinstance(operator, Visit):
            return None
        if before is None:
            before = axis_before(operator, wanted)
        if before is None:
            return None
        views = list(self._views(before, wanted))
        for merged in (False, True):
            for first, start in views:
                for end in self._ends(operator, start, target, merged):
                    if (maps := self._map(operator, start, end)) is not None:
                        self.turned[target] = None if end.natural else end
                        return (*first, *maps)
        return None

    def _views(self, before: Axis, wanted: Axis | None) -> Iterator[tuple[Maps, Axis]]:
        """The possible rows of an operator's input, and the maps that make them from the present rows."""
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
            found = merged_axes(operator.shapes[1]) if known is None and operator.shapes is not None else []
        else:
            found = [known] if known is not None else axes_after(operator, start, self.sizes, self.like)
        only = target in self.turned and known is None
        yield from (end for end in dict.fromkeys(found) if end.natural or not only)

    def _map(self, operator: Operator, start: Axis, end: Axis) -> Maps | None:
        """The operator as maps between these rows."""
        if type(operator) in (Identity, Reshape) and (start.shape, start.axis) == (end.shape, end.axis):
            return (Identity(),)
        if start.natural and end.natural and operator.shapes is None:
            return (operator,)
        if not min(start.width, end.width):
            return None
        if not start.rows and not end.rows:
            return (RowMap(self.like.new_zeros(end.width, start.width)),)
        if not start.rows or not end.rows:
            nothing = torch.zeros(0, dtype=torch.long, device=self.like.device)
            between = Gather(nothing, start.rows) if start.rows else Scatter(nothing, end.rows)
            return (between,) if start.width == end.width else None
        key = operator.recorded, start, end  # under some rules, what was recorded once is written several times
        if key not in self.known:
            self.known[key] = self._guessed(operator, start, end)
        return self.known[key]

    def _guessed(self, operator: Operator, start: Axis, end: Axis) -> Maps | None:
        """The same, tried in double precision, so that a map that is only nearly another is not mistaken for it."""
        fine = self.like.double()
        try:
            tried = operator.to(Cast(None, fine.dtype))
            found = Guesses(operator, tried, start, end, fine, self.generator).best()
        except (RuntimeError, TypeError):  # it runs in its own precision alone
            return Guesses(operator, operator, start, end, self.like, self.generator).best()
        back = Cast(None, self.like.dtype)
        return None if found is None else tuple(each.to(back) for each in found)


def _sizes(steps: Sequence[Step]) -> list[int]:
    """How long the axes are, beside the first, of tensors that functions take or give; the longest first."""
    shapes = [shape for step in steps for operator in step.operators for shape in operator.shapes or ()]
    return sorted({size for shape in shapes for size in shape[1:] if size > 1}, reverse=True)


def _counts(steps: Sequence[Step]) -> frozenset[int]:
    """How many rows there are where rows are read, or added up: nodes, or those of a type."""
    moves = [o for step in steps for o in step.operators if isinstance(o, (Gather, Scatter))]
    return frozenset(o.num_rows for o in moves)
