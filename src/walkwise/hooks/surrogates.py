"""A stretch of linear maps z under a rule, as a surrogate that autograd carries: p ⊙ [z / p], the bracket constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.rules import Rule
from walkwise.tracing.stretches.expressions import Coefficients, Term


@dataclass(frozen=True, eq=False)
class _Contributions:
    """The contributions of an expression, lifted or by sign, and the constants beside them."""

    parts: tuple[Tensor, ...]
    held: tuple[Tensor, ...]  # the constants in the denominators
    constant: Tensor  # as it is


@dataclass(eq=False)
class Surrogate:
    """The surrogate of an expression under a rule.

    ``leaf`` gives the tensor that autograd follows for a tensor that the expression begins with.
    """

    rule: Rule
    leaf: Callable[[Term], Tensor]
    _made: dict[tuple[int, int], _Contributions] = field(default_factory=dict)  # of terms, by identity and sign

    def of(self, term: Term, value: Tensor) -> Tensor:
        """Σ part ⊙ [factor], where z has become ``value``: the factor is value / p, or what a rule that splits says."""
        with torch.enable_grad():
            sums = self._sums(term)
        totals = [part.detach() + held for part, held in zip(sums.parts, sums.held, strict=True)]
        splits = self.rule.splits
        factors = self.rule.factors(value, term.value, *totals) if splits else (self.rule.ratio(value, totals[0]),)
        with torch.enable_grad():
            shares = [part * factor for part, factor in zip(sums.parts, factors, strict=True) if factor is not None]
            return torch.stack(shares).sum(0)

    def _sums(self, term: Term, sign: int = 1) -> _Contributions:
        """The contributions of an expression, or of the expression with its sign flipped."""
        key = id(term), sign
        if key not in self._made:
            self._made[key] = self._split(term) if self.rule.splits else self._lifted(term, sign)
        return self._made[key]

    def _lifted(self, term: Term, sign: int) -> _Contributions:
        """The expression with its weights lifted, or the same with its sign flipped."""
        nothing = torch.zeros_like(term.value)
        if term.slot >= 0:
            return _Contributions((sign * self.leaf(term),), (nothing,), nothing)
        surrogate, held, constant = nothing, nothing, nothing
        for inner, coefficients in term.maps:
            if coefficients.folds:  # weights that it turns over are lifted the other way
                above, below = self._sums(inner, sign), self._sums(inner, -sign)
                up, down = coefficients.tensor.clamp(min=0), -coefficients.tensor.clamp(max=0)  # type: ignore[union-attr]
                surrogate = surrogate + up * above.parts[0] + down * below.parts[0]
            else:
                above = self._sums(inner, 1 if coefficients.learned else sign)
                lifted = self._map(coefficients, sign)
                surrogate = surrogate + lifted(above.parts[0])
                held = held + lifted(above.held[0])
            constant = constant + coefficients.whole().push(above.constant)
        return self._beside(term, (surrogate,), (held,), constant)

    def _map(self, coefficients: Coefficients, sign: int) -> Callable[[Tensor], Tensor]:
        """A linear map with its weights lifted, if it has any."""
        if not coefficients.learned:
            return coefficients.whole().push
        assert coefficients.make is not None and coefficients.tensor is not None
        return coefficients.make(self.rule.lift(sign * coefficients.tensor)).push

    def _split(self, term: Term) -> _Contributions:
        """The positive and the negative contributions, separated path by path."""
        nothing = torch.zeros_like(term.value)
        if term.slot >= 0:
            x = self.leaf(term)
            return _Contributions((x * (term.value > 0), x * (term.value < 0)), (nothing, nothing), nothing)
        parts, held, constant = [nothing, nothing], [nothing, nothing], nothing
        for inner, coefficients in term.maps:
            before = self._sums(inner)
            for turns, operator in enumerate(coefficients.signed()):
                if operator is not None:
                    for side in (0, 1):
                        parts[side ^ turns] = parts[side ^ turns] + operator.push(before.parts[side])
                        held[side ^ turns] = held[side ^ turns] + operator.push(before.held[side])
            constant = constant + coefficients.whole().push(before.constant)
        return self._beside(term, tuple(parts), tuple(held), constant)

    def _beside(
        self, term: Term, parts: tuple[Tensor, ...], held: tuple[Tensor, ...], constant: Tensor
    ) -> _Contributions:
        """The sums of an expression with its own constant beside them; a normalisation that folds leaves one bias."""
        own = torch.zeros_like(term.value) if term.constant is None else term.constant.expand_as(term.value)
        constant = constant + own
        if any(coefficients.folds for _, coefficients in term.maps):
            return _Contributions(parts, self.rule.hold(constant), constant)
        both = tuple(before + added for before, added in zip(held, self.rule.hold(own), strict=True))
        return _Contributions(parts, both, constant)
