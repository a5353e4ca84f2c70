"""An expression written twice, with the contributions of either sign apart: αβ."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.operators import Operator, Scale
from walkwise.rules import Rule
from walkwise.tracing.stretches.expressions import Emit, Term, push_constant, sum_of

#: The slot and the value of the contributions of one sign, or None where there are none.
_Side = tuple[int, Tensor] | None


@dataclass(frozen=True, eq=False, slots=True)
class _BySign:
    """The contributions of both signs, with the constants that stand beside them."""

    sides: tuple[_Side, _Side]
    held: tuple[Tensor, Tensor] | None = None  # in the denominators
    constant: Tensor | None = None  # as it is


@dataclass(eq=False)
class Signs:
    """An expression written twice: what contributes positively, and what contributes negatively."""

    emit: Emit
    rule: Rule
    _made: dict[int, tuple[Term, _BySign]] = field(default_factory=dict)

    def parts(self, term: Term) -> _BySign:
        """What an expression comes to."""
        if id(term) not in self._made:
            self._made[id(term)] = term, (self._leaf(term) if term.slot >= 0 else self._sum(term))
        return self._made[id(term)][1]

    def _leaf(self, term: Term) -> _BySign:
        low, high = (float(end) for end in torch.aminmax(term.value)) if term.value.numel() else (0.0, 0.0)
        if low >= 0:
            return _BySign(((term.slot, term.value), None))
        if high <= 0:
            return _BySign((None, (term.slot, term.value)))
        masks = [(term.value > 0).to(term.value.dtype), (term.value < 0).to(term.value.dtype)]
        plus, minus = ((self.emit([Scale(mask)], [term.slot]), term.value * mask) for mask in masks)
        return _BySign((plus, minus))

    def _sum(self, term: Term) -> _BySign:
        """Positive coefficients keep a contribution's sign, negative ones turn it over."""
        inner = [(self.parts(part), part.value, coefficients) for part, coefficients in term.maps]
        signed = [(split, value, coefficients.signed()) for split, value, coefficients in inner]
        pieces: tuple[list[tuple[Operator, int, Tensor]], ...] = ([], [])
        for split, _, operators in signed:
            for turned, side in itertools.product((0, 1), (0, 1)):
                operator, part = operators[turned], split.sides[side]
                if operator is not None and part is not None:
                    pieces[side ^ turned].append((operator, part[0], operator.push(part[1])))
        sides = self._emitted(pieces[0]), self._emitted(pieces[1])
        raw = [
            push_constant(coefficients.whole(), split.constant, value)
            for split, value, coefficients in inner
            if split.constant is not None
        ]
        raw += [] if term.constant is None else [term.constant]
        if not raw:
            return _BySign(sides)
        constant = sum_of(raw)
        if any(coefficients.folds for _, coefficients in term.maps):  # one bias with those before it
            plus, minus = self.rule.hold(constant)
            return _BySign(sides, (plus, minus), constant)
        return _BySign(sides, self._held(term, signed, constant), constant)

    def _held(
        self,
        term: Term,
        signed: list[tuple[_BySign, Tensor, tuple[Operator | None, Operator | None]]],
        like: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The constants as they stand in the two denominators."""
        totals = [torch.zeros_like(like), torch.zeros_like(like)]
        for split, value, operators in signed:
            for turned, side in itertools.product((0, 1), (0, 1)):
                operator = operators[turned]
                if operator is not None and split.held is not None:
                    pushed = push_constant(operator, split.held[side], value)
                    totals[side ^ turned] = totals[side ^ turned] + pushed
        if term.constant is not None:
            totals = [total + own for total, own in zip(totals, self.rule.hold(term.constant), strict=True)]
        return totals[0], totals[1]

    def _emitted(self, pieces: list[tuple[Operator, int, Tensor]]) -> _Side:
        if not pieces:
            return None
        slot = self.emit([operator for operator, _, _ in pieces], [source for _, source, _ in pieces])
        return slot, sum_of([value for _, _, value in pieces])
