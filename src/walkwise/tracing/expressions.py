"""Expressions of linear maps over settled tensors, and the ways a rule writes them into a chain.

An expression is written as it is, or once with lifted weights (the paper's γ), or twice: with the contributions of
either sign apart (αβ), or with the contributions and their sizes (the generalised γ).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.operators import Aggregate, Embed, Identity, Operator, RowMap, Scale
from walkwise.core.row_maps import Gather, Scatter, Send
from walkwise.rules import Rule

Make = Callable[[Tensor], Operator]
#: Makes a new slot that holds the sum of what operators make of slots.
Emit = Callable[[Sequence[Operator], Sequence[int]], int]

#: Every neuron is turned over.
_EVERY = torch.full((1,), -1.0)

#: The slot and the value of the contributions of one sign, or None where there are none.
_Side = tuple[int, Tensor] | None


@dataclass(frozen=True, eq=False, slots=True)
class Coefficients:
    """A linear map: ``make(tensor)``, or an operator without negative coefficients."""

    operator: Operator | None = None
    make: Make | None = None
    tensor: Tensor | None = None
    learned: bool = False  # a weight matrix: what rules lift
    by_neuron: bool = False  # whether the rows of the tensor are the neurons of the output
    folds: bool = False  # a normalisation that is one map with the weights and biases before it
    borrowed: bool = False  # whether the tensor is the model's own, which training may change

    def whole(self) -> Operator:
        """The map as it is."""
        if self.operator is not None:
            return self.operator
        assert self.make is not None and self.tensor is not None
        return self.make(self.tensor.clone() if self.borrowed else self.tensor)

    def lifted(self, rule: Rule, turn: Tensor | None) -> Operator:
        """The map with a rule's lifted weights; ``turn`` is -1 at neurons whose sign is turned over afterwards."""
        if not self.learned:
            return self.whole()
        assert self.make is not None and self.tensor is not None
        if turn is _EVERY:
            return self.make(-rule.lift(-self.tensor))
        if turn is None or not self.by_neuron:
            return self.make(rule.lift(self.tensor))
        turned = turn[: len(self.tensor)].view(-1, 1)
        return self.make(rule.lift(self.tensor * turned) * turned)

    def signed(self) -> tuple[Operator | None, Operator | None]:
        """Its positive and its negative coefficients apart; None where there are none."""
        if self.operator is not None:
            return self.operator, None
        assert self.make is not None and self.tensor is not None
        low, high = (float(end) for end in torch.aminmax(self.tensor)) if self.tensor.numel() else (0.0, 0.0)
        if low >= 0:
            return self.whole(), None
        return None if high <= 0 else self.make(self.tensor.clamp(min=0)), self.make(self.tensor.clamp(max=0))

    def sized(self) -> tuple[Operator, Operator]:
        """The map as it is, and with the sizes of its coefficients; the same one where none is negative."""
        whole = self.whole()
        if self.nonnegative:
            return whole, whole
        assert self.make is not None and self.tensor is not None
        return whole, self.make(self.tensor.abs())

    @property
    def nonnegative(self) -> bool:
        """Whether no coefficient is negative."""
        return self.tensor is None or not _has_negative(self.tensor)


def moved(operator: Operator) -> Coefficients:
    """A map whose coefficients are 0 or positive."""
    return Coefficients(operator)


#: What leaves a tensor as it is.
UNCHANGED = Identity()
SAME = Coefficients(UNCHANGED)


def scaled(factor: Tensor, *, folds: bool = False) -> Coefficients:
    """factor ⊙, entry by entry."""
    return Coefficients(make=Scale, tensor=factor, folds=folds)


@dataclass(eq=False, slots=True)
class Term:
    """Σ map(term) + constant, or (``slot``) a settled tensor of the chain."""

    value: Tensor  # (K, N)
    slot: int = -1
    maps: Sequence[tuple[Term, Coefficients]] = ()
    constant: Tensor | None = None


def with_held(total: Tensor, held: Tensor | None, *, own: bool = False) -> Tensor:
    """A sum of contributions with the constants that stand in its denominator; in its place, where that is its own."""
    if held is None:
        return total
    return total.add_(held) if own and _fits(held, total) else total + held


def _fits(part: Tensor, total: Tensor) -> bool:
    """Whether a part can be added to a total in its place."""
    return part.dtype == total.dtype and part.shape[1] == total.shape[1] and len(part) in (1, len(total))


def one_sided(term: Term, z: Tensor, value: Tensor | None, rectified: Container[int] = ()) -> bool:
    """Whether contributions have the signs of their weights, and nothing negative keeps any relevance.

    ``value`` is what z has become, or None where that is 0 wherever z is negative. ``rectified`` holds the identities
    of tensors that are known to have no negative entry.
    """
    if value is z:
        if _has_negative(z):
            return False
    elif value is not None and bool((value != 0).logical_and_(z < 0).any()):
        return False
    seen: set[int] = set()
    todo = [term]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if part.slot >= 0:
            if id(part.value) not in rectified and _has_negative(part.value):
                return False
            continue
        for inner, coefficients in part.maps:
            if not (coefficients.learned or coefficients.folds or coefficients.nonnegative):
                return False
            todo.append(inner)
    return True


def _has_negative(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and tensor.min().item() < 0


@dataclass(eq=False)
class Plain:
    """An expression written as it is."""

    emit: Emit
    _made: dict[int, int] = field(default_factory=dict)

    def slot(self, term: Term) -> int:
        """Where an expression is written."""
        if term.slot >= 0:
            return term.slot
        if id(term) not in self._made:
            operators = [coefficients.whole() for _, coefficients in term.maps]
            self._made[id(term)] = self.emit(operators, [self.slot(inner) for inner, _ in term.maps])
        return self._made[id(term)]


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """An expression with its weights lifted, and the constants that stand beside it."""

    slot: int
    total: Tensor  # its surrogate
    held: Tensor | None = None  # the constants lifted
    constant: Tensor | None = None  # as they are
    own: bool = False  # whether nothing else reads the surrogate


@dataclass(eq=False)
class Lifted:
    """An expression written once, its weights lifted."""

    emit: Emit
    rule: Rule
    _made: dict[tuple[int, int], tuple[Term, Tensor | None, _Part]] = field(default_factory=dict)

    def surrogate(self, term: Term) -> tuple[int, Tensor]:
        """Where an expression is written, and what its outputs are divided by, in a tensor that nothing else reads."""
        part = self.part(term, None)
        total = part.total if part.own or part.held is not None else part.total.clone()
        return part.slot, with_held(total, part.held, own=part.own)

    def part(self, term: Term, turn: Tensor | None) -> _Part:
        """What an expression comes to, the neurons of its output turned over by ``turn``."""
        if term.slot >= 0:
            return _Part(term.slot, term.value)
        key = id(term), id(turn)
        if key not in self._made:
            self._made[key] = term, turn, self._sum(term, turn)
        return self._made[key][2]

    def _sum(self, term: Term, turn: Tensor | None) -> _Part:
        operators, sources, pushing, held, raw = [], [], [], [], []
        folds, as_it_is = False, term.constant is None
        for inner, coefficients in [way for each in term.maps for way in _ways(*each)]:
            operator = coefficients.lifted(self.rule, turn)
            part = self.part(inner, _turned(turn, coefficients, operator))
            operators.append(operator)
            sources.append(part.slot)
            as_it_is = as_it_is and part.total is inner.value and not coefficients.learned
            pushing.append((operator, part.total))
            folds = folds or coefficients.folds
            if part.held is not None and part.constant is not None:
                held.append(_pushed(operator, part.held, inner.value))
                raw.append(_pushed(coefficients.whole(), part.constant, inner.value))
        if term.constant is not None:
            held.append(self.rule.hold(term.constant)[0])
            raw.append(term.constant)
        slot = self.emit(operators, sources)
        total, own = (term.value, False) if as_it_is and not raw else _total(pushing)
        if not raw:
            return _Part(slot, total, own=own)
        constant = _sum_of(raw)  # once folded, the biases before a normalisation and its shift are one bias
        return _Part(slot, total, self.rule.hold(constant)[0] if folds else _sum_of(held), constant, own)


@dataclass(frozen=True, eq=False, slots=True)
class _Split:
    """The contributions of both signs, with the constants that stand beside them."""

    sides: tuple[_Side, _Side]
    held: tuple[Tensor, Tensor] | None = None  # in the denominators
    constant: Tensor | None = None  # as it is


@dataclass(eq=False)
class Signs:
    """An expression written twice: what contributes positively, and what contributes negatively."""

    emit: Emit
    rule: Rule
    _made: dict[int, tuple[Term, _Split]] = field(default_factory=dict)

    def parts(self, term: Term) -> _Split:
        """What an expression comes to."""
        if id(term) not in self._made:
            self._made[id(term)] = term, (self._leaf(term) if term.slot >= 0 else self._sum(term))
        return self._made[id(term)][1]

    def _leaf(self, term: Term) -> _Split:
        low, high = (float(end) for end in torch.aminmax(term.value)) if term.value.numel() else (0.0, 0.0)
        if low >= 0:
            return _Split(((term.slot, term.value), None))
        if high <= 0:
            return _Split((None, (term.slot, term.value)))
        masks = [(term.value > 0).to(term.value.dtype), (term.value < 0).to(term.value.dtype)]
        plus, minus = ((self.emit([Scale(mask)], [term.slot]), term.value * mask) for mask in masks)
        return _Split((plus, minus))

    def _sum(self, term: Term) -> _Split:
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
            _pushed(coefficients.whole(), split.constant, value)
            for split, value, coefficients in inner
            if split.constant is not None
        ]
        raw += [] if term.constant is None else [term.constant]
        if not raw:
            return _Split(sides)
        constant = _sum_of(raw)
        if any(coefficients.folds for _, coefficients in term.maps):  # one bias with those before it
            plus, minus = self.rule.hold(constant)
            return _Split(sides, (plus, minus), constant)
        return _Split(sides, self._held(term, signed, constant), constant)

    def _held(
        self,
        term: Term,
        signed: list[tuple[_Split, Tensor, tuple[Operator | None, Operator | None]]],
        like: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The constants as they stand in the two denominators."""
        totals = [torch.zeros_like(like), torch.zeros_like(like)]
        for split, value, operators in signed:
            for turned, side in itertools.product((0, 1), (0, 1)):
                operator = operators[turned]
                if operator is not None and split.held is not None:
                    pushed = _pushed(operator, split.held[side], value)
                    totals[side ^ turned] = totals[side ^ turned] + pushed
        if term.constant is not None:
            totals = [total + own for total, own in zip(totals, self.rule.hold(term.constant), strict=True)]
        return totals[0], totals[1]

    def _emitted(self, pieces: list[tuple[Operator, int, Tensor]]) -> _Side:
        if not pieces:
            return None
        slot = self.emit([operator for operator, _, _ in pieces], [source for _, source, _ in pieces])
        return slot, _sum_of([value for _, _, value in pieces])


@dataclass(frozen=True, eq=False, slots=True)
class _Sized:
    """Contributions and their sizes, with the constants that stand beside them."""

    slot: int  # of the contributions
    sizes: int  # the slot of their sizes
    total: Tensor  # the sum of the sizes
    held: Tensor | None = None  # the sizes of the constants
    constant: Tensor | None = None  # as it is
    own: bool = False  # whether nothing else reads the total


@dataclass(eq=False)
class Sizes:
    """An expression written twice: the contributions, and their sizes. What has no sign is written once."""

    emit: Emit
    _made: dict[int, tuple[Term, _Sized]] = field(default_factory=dict)

    def part(self, term: Term) -> _Sized:
        """What an expression comes to."""
        if id(term) not in self._made:
            self._made[id(term)] = term, (self._leaf(term) if term.slot >= 0 else self._sum(term))
        return self._made[id(term)][1]

    def _leaf(self, term: Term) -> _Sized:
        if not _has_negative(term.value):
            return _Sized(term.slot, term.slot, term.value)
        return _Sized(term.slot, self.emit([Scale(term.value.sign())], [term.slot]), term.value.abs())

    def _sum(self, term: Term) -> _Sized:
        parts = [self.part(inner) for inner, _ in term.maps]
        maps = [coefficients.sized() for _, coefficients in term.maps]
        unsigned = all(whole is size for whole, size in maps) and all(part.slot == part.sizes for part in parts)
        slot = self.emit([whole for whole, _ in maps], [part.slot for part in parts])
        sizes = slot if unsigned else self.emit([size for _, size in maps], [part.sizes for part in parts])
        values = [inner.value for inner, _ in term.maps]
        pushed = [(size, part.total, value) for (_, size), part, value in zip(maps, parts, values, strict=True)]
        known = unsigned and term.constant is None and all(total is value for _, total, value in pushed)
        total, own = (term.value, False) if known else _total([(size, total) for size, total, _ in pushed])
        held, raw = [], []
        for (whole, size), part, value in zip(maps, parts, values, strict=True):
            if part.held is not None and part.constant is not None:
                held.append(_pushed(size, part.held, value))
                raw.append(_pushed(whole, part.constant, value))
        if term.constant is not None:
            held.append(term.constant.abs())
            raw.append(term.constant)
        if not raw:
            return _Sized(slot, sizes, total, own=own)
        constant = _sum_of(raw)
        folds = any(coefficients.folds for _, coefficients in term.maps)  # one bias with those before it
        return _Sized(slot, sizes, total, constant.abs() if folds else _sum_of(held), constant, own)


def _ways(inner: Term, coefficients: Coefficients) -> list[tuple[Term, Coefficients]]:
    """A map once; or twice, where it turns some neurons over and the weights before it are not told by neuron."""
    factor = coefficients.tensor
    if not coefficients.folds or factor is None or not _has_negative(factor) or _by_neuron(inner):
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
_KEEPING = (Aggregate, Gather, Identity, Scale, Scatter, Send, Embed, RowMap)


def _turned(turn: Tensor | None, coefficients: Coefficients, operator: Operator) -> Tensor | None:
    """Which neurons of a map's input are turned over after it, given those of its output.  # (N,) or None"""
    if coefficients.folds and coefficients.tensor is not None and bool((coefficients.tensor <= 0).all()):
        return None if turn is _EVERY else _EVERY if turn is None else -turn
    if turn is _EVERY and not coefficients.folds:
        return turn
    if coefficients.folds and coefficients.tensor is not None and coefficients.tensor.shape[0] == 1:
        if bool((coefficients.tensor >= 0).all()):
            return turn
        own = torch.where(coefficients.tensor[0] < 0, -1.0, 1.0).to(coefficients.tensor.dtype)
        return own if turn is None else -own if turn is _EVERY else own * turn
    if turn is None or isinstance(operator, (Aggregate, Gather, Identity, Scale, Scatter, Send)):
        return turn
    if isinstance(operator, Embed):
        return turn.narrow(0, operator.start, operator.length)
    if isinstance(operator, RowMap) and not coefficients.learned:
        return torch.where(turn @ operator.matrix < 0, -1.0, 1.0).to(turn.dtype)
    return None


def _pushed(operator: Operator, constant: Tensor, value: Tensor) -> Tensor:
    """What a map makes of a constant that was added to a value; a single row stays one where all nodes are alike."""
    by_row = isinstance(operator, (Identity, RowMap)) or (isinstance(operator, Scale) and len(operator.factor) == 1)
    alike = by_row and len(constant) == 1 and constant.shape[1] == value.shape[1]
    return operator.push(constant if alike else _rows_like(constant, value))


def _rows_like(constant: Tensor, value: Tensor) -> Tensor:
    """A constant with as many rows and columns as the value it was added to."""
    return constant if constant.shape == value.shape else constant.expand_as(value)


#: Maps whose outputs are tensors of their own.
_MAKING = (Aggregate, RowMap, Scale)


def _total(pushing: Sequence[tuple[Operator, Tensor]]) -> tuple[Tensor, bool]:
    """The sum of what maps make of tensors, and whether it is a tensor of its own."""
    (first, values), *others = pushing
    total, own = first.push(values), type(first) in _MAKING
    for operator, values in others:
        pushed = operator.push(values)
        total, own = total.add_(pushed) if own and pushed.shape == total.shape else total + pushed, True
    return total, own


def _sum_of(tensors: Sequence[Tensor]) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total
