"""Expressions of linear maps over settled tensors, which a rule writes into a chain.

An expression is written as it is, or once with lifted weights (the paper's γ, ``lifted``), or twice: with the
contributions of either sign apart (αβ, ``signs``), or with the contributions and their sizes (the generalised γ,
``sizes``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.operators import Aggregate, Columns, Identity, Operator, RowMap, Scale
from walkwise.core.postponed import NodeTensor, Postponed, whole
from walkwise.rules import Rule

Make = Callable[[Tensor], Operator]
#: Makes a new slot that holds the sum of what operators make of slots.
Emit = Callable[[Sequence[Operator], Sequence[int]], int]

#: From this many entries on, a sum of which perhaps not all rows are needed is postponed.
_MANY = 1 << 15
#: The sign of every neuron is flipped.
EVERY = torch.full((1,), -1.0)


@dataclass(eq=False, slots=True)
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
        """The map with a rule's lifted weights; ``turn`` is -1 at neurons whose sign is flipped afterwards."""
        if not self.learned:
            return self.whole()
        assert self.make is not None and self.tensor is not None
        if turn is EVERY:
            return self.make(-rule.lift(-self.tensor))
        if turn is None or not self.by_neuron:
            return self.make(rule.lift(self.tensor))
        turned = turn[: len(self.tensor)].view(-1, 1)
        return self.make(rule.lift(self.tensor * turned) * turned)

    def signed(self) -> tuple[Operator | None, Operator | None]:
        """Its positive and its negative coefficients, separately; None if there are none."""
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
        return self.tensor is None or not has_negative(self.tensor)


def nonnegative_map(operator: Operator) -> Coefficients:
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


def one_sided(term: Term, z: Tensor, value: Tensor | None, rectified: Container[int] = ()) -> bool:
    """Whether contributions have the signs of their weights, and nothing negative keeps any relevance.

    ``value`` is what z has become, or None if that is 0 wherever z is negative. ``rectified`` holds the identities of
    tensors that are known to have no negative entry.
    """
    if value is z:
        if has_negative(z):
            return False
    elif value is not None and bool((value != 0).logical_and_(z < 0).any()):
        return False
    return _signed_by_weights(term, rectified)


def _signed_by_weights(term: Term, rectified: Container[int]) -> bool:
    """Whether every path has a weight, and takes its sign from that."""
    seen: set[tuple[int, bool]] = set()
    todo = [(term, False)]  # and whether a weight follows
    while todo:
        part, weighted = todo.pop()
        if (id(part), weighted) in seen:
            continue
        seen.add((id(part), weighted))
        if part.slot >= 0:
            if not weighted or (id(part.value) not in rectified and has_negative(part.value)):
                return False
            continue
        if weighted and part.constant is not None:  # it would be lifted twice, by itself and by the weight
            return False
        for inner, coefficients in part.maps:
            if not (coefficients.learned or coefficients.folds or coefficients.nonnegative):
                return False
            todo.append((inner, weighted or coefficients.learned))
    return True


def has_negative(tensor: Tensor) -> bool:
    """Whether any entry is negative."""
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


def with_held(total: Tensor, held: Tensor | None, *, own: bool = False) -> Tensor:
    """A sum of contributions plus the constants in its denominator, computed in place if the tensor is its own."""
    if held is None:
        return total
    return total.add_(held) if own and _fits(held, total) else total + held


def _fits(part: Tensor, total: Tensor) -> bool:
    """Whether a part can be added to a total in its place."""
    return part.dtype == total.dtype and part.shape[1] == total.shape[1] and part.shape[0] in (1, total.shape[0])


def push_constant(operator: Operator, constant: Tensor, value: Tensor) -> Tensor:
    """A map's result for a constant that was added to a value; a single row stays one if all nodes are alike."""
    by_row = isinstance(operator, (Identity, RowMap, Columns)) or (
        isinstance(operator, Scale) and operator.shape[0] == 1
    )
    alike = by_row and constant.shape[0] == 1 and constant.shape[1] == value.shape[1]
    return operator.push(constant if alike else _rows_like(constant, value))


def _rows_like(constant: Tensor, value: Tensor) -> Tensor:
    """A constant with as many rows and columns as the value it was added to."""
    return constant if constant.shape == value.shape else constant.expand_as(value)


#: Maps whose outputs are tensors of their own.
_MAKING = (Aggregate, RowMap, Scale)


def total_of(pushing: Sequence[tuple[Operator, NodeTensor]], held: Tensor | None = None) -> tuple[Tensor, bool]:
    """The sum of the maps' results for tensors and constants, and whether it is a tensor of its own."""
    (first, values), *others = [(operator, whole(each)) for operator, each in pushing]
    if held is not None and type(first) is RowMap and held.shape[0] == 1 and held.dtype == values.dtype:
        total, own, held = torch.addmm(held, values, first.matrix.t()), True, None  # takes hardly longer without it
    else:
        total, own = first.push(values), type(first) in _MAKING
    for operator, values in others:
        pushed = operator.push(values)
        total, own = total.add_(pushed) if own and pushed.shape == total.shape else total + pushed, True
    return with_held(total, held, own=own), own or held is not None


def postponed_total(pushing: Sequence[tuple[Operator, NodeTensor]], like: Tensor) -> Postponed | None:
    """The same sum, shaped like a tensor, for requested rows only; None if it is better computed at once.

    An accelerator computes all rows fast, and would have to wait to learn which are requested.
    """
    few = like.numel() < _MANY or like.device.type != "cpu"
    if few or not all(operator.pushes_some for operator, _ in pushing):
        return None

    def make(nodes: Tensor | None) -> Tensor:
        if nodes is None:
            return total_of(pushing)[0]
        return sum_of([operator.push_some(values, nodes) for operator, values in pushing])

    return Postponed((like.shape[0], like.shape[1]), make)


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of tensors, which may be those of a single row."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total
