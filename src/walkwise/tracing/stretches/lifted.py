"""An expression written once, with lifted weights: the paper's γ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.operators import Aggregate, Columns, Identity, Operator, RowMap, Scale
from walkwise.core.postponed import NodeTensor, Postponed, some
from walkwise.core.row_maps import Gather, Scatter, Send
from walkwise.core.rows import AllNodes
from walkwise.rules import Rule
from walkwise.tracing.stretches.expressions import (
    EVERY,
    Coefficients,
    Emit,
    Term,
    has_negative,
    postponed_total,
    push_constant,
    scaled,
    sum_of,
    total_of,
)


@dataclass(eq=False, slots=True)
class Part:
    """An expression with its weights lifted, and the constants that stand beside it."""

    slot: int
    known: NodeTensor | None = None  # its surrogate without them, once it is known
    pushing: Sequence[tuple[Operator, NodeTensor]] = ()  # what that is made of
    held: Tensor | None = None  # the constants lifted
    constant: Tensor | None = None  # as they are

    def total(self) -> NodeTensor:
        """The surrogate without the constants."""
        if self.known is None:
            self.known = total_of(self.pushing)[0]
        return self.known

    def whole(self) -> Tensor:
        """The surrogate, in a tensor that nothing else reads."""
        if self.known is not None:
            return self.some(None)
        total, own = total_of(self.pushing, self.held)
        return total if own else total.clone()

    @property
    def later(self) -> bool:
        """Whether it is postponed."""
        return isinstance(self.known, Postponed)

    def some(self, nodes: Tensor | None) -> Tensor:
        """Some of its rows, or all, in a tensor that nothing else reads; of one that is known, or postponed."""
        assert self.known is not None
        rows = some(self.known, nodes)
        return rows.clone() if self.held is None else rows + some(self.held, nodes)


@dataclass(eq=False)
class Lifted:
    """An expression written once, its weights lifted."""

    emit: Emit
    rule: Rule
    later: bool = False  # whether sums may be postponed
    _made: dict[tuple[int, int], tuple[Term, Tensor | None, Part]] = field(default_factory=dict)

    def part(self, term: Term, turn: Tensor | None = None) -> Part:
        """The value of an expression, with the signs of its output neurons flipped by ``turn``."""
        if term.slot >= 0:
            return Part(term.slot, term.value)
        key = id(term), id(turn)
        if key not in self._made:
            self._made[key] = term, turn, self._sum(term, turn)
        return self._made[key][2]

    def _sum(self, term: Term, turn: Tensor | None) -> Part:
        operators, sources, pushing, held, raw = [], [], [], [], []
        as_it_is = term.constant is None
        folding = any(coefficients.folds for _, coefficients in term.maps)
        for inner, coefficients in [way for each in term.maps for way in _ways(*each)] if folding else term.maps:
            operator = coefficients.lifted(self.rule, turn)
            part = self.part(inner, _turned(turn, coefficients, operator))
            operators.append(operator)
            sources.append(part.slot)
            as_it_is = as_it_is and part.known is inner.value and not coefficients.learned
            pushing.append((operator, part.total()))
            if part.held is not None and part.constant is not None:
                held.append(push_constant(operator, part.held, inner.value))
                raw.append(push_constant(coefficients.whole(), part.constant, inner.value))
        if term.constant is not None:
            held.append(self.rule.hold(term.constant)[0])
            raw.append(term.constant)
        made = Part(self.emit(operators, sources), term.value if as_it_is and not raw else None, pushing)
        if self.later and made.known is None:
            made.known = postponed_total(pushing, term.value)
        if raw:
            made.constant = sum_of(raw)  # once folded, the biases before a normalisation and its shift are one bias
            made.held = self.rule.hold(made.constant)[0] if folding else sum_of(held)
        return made


def _ways(inner: Term, coefficients: Coefficients) -> list[tuple[Term, Coefficients]]:
    """A map once; or twice, where it turns some neurons over and the weights before it are not told by neuron."""
    factor = coefficients.tensor
    if not coefficients.folds or factor is None or not has_negative(factor) or _by_neuron(inner):
        return [(inner, coefficients)]
    return [(inner, scaled(part, folds=True)) for part in (factor.clamp(min=0), factor.clamp(max=0))]


def _by_neuron(term: Term) -> bool:
    """Whether it can be told, weight by weight, which of the neurons that come out each leads to."""
    for inner, coefficients in term.maps:
        if coefficients.learned:
            if not coefficients.by_neuron:
                return False
        elif not isinstance(coefficients.whole(), _KEEPING) or not _by_neuron(inner):
            return False
    return True


#: Maps after which it is known which neuron is which.
_KEEPING = (Aggregate, Gather, Identity, Scale, Scatter, Send, Columns, RowMap)


def _turned(turn: Tensor | None, coefficients: Coefficients, operator: Operator) -> Tensor | None:
    """Which neurons of a map's input have their sign flipped after it, given those of its output.  # (N,) or None"""
    if turn is None and not coefficients.folds:
        return None
    if coefficients.folds and coefficients.tensor is not None and bool((coefficients.tensor <= 0).all()):
        return None if turn is EVERY else EVERY if turn is None else -turn
    if turn is EVERY and not coefficients.folds:
        return turn
    if coefficients.folds and coefficients.tensor is not None and coefficients.tensor.shape[0] == 1:
        if bool((coefficients.tensor >= 0).all()):
            return turn
        own = torch.where(coefficients.tensor[0] < 0, -1.0, 1.0).to(coefficients.tensor.dtype)
        return own if turn is None else -own if turn is EVERY else own * turn
    if turn is None or isinstance(operator, (Aggregate, Gather, Identity, Scale, Scatter, Send)):
        return turn
    if isinstance(operator, Columns) or (isinstance(operator, RowMap) and not coefficients.learned):
        before = operator.pull(turn.view(1, 1, 1, -1), AllNodes(1, 1))[0, 0, 0]
        return torch.where(before < 0, -1.0, 1.0).to(turn.dtype)
    return None
