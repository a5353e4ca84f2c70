"""Flow: a recorded tensor on its way through the rules, before it becomes part of a chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkwise.core.operators import Identity, Operator, Scale, Step
from walkwise.core.rows import Rows
from walkwise.rules import Rule


@dataclass(eq=False, slots=True)
class Flow:
    """A tensor of the model with its surrogate.

    A *stretch* is a run of linear maps that share one denominator. While it lasts the surrogate (with
    lifted weights; its positive and negative part apart where the rule splits) differs from the value,
    and constants are kept aside. Settling multiplies by the rule's ratio and ends the stretch.
    """

    value: Tensor
    parts: tuple[Tensor, ...]  # the surrogate, or its positive and negative part
    slots: tuple[int, ...]  # of the parts in the chain; empty where autograd carries them
    constant: Tensor | None = None  # added within the stretch
    held: tuple[Tensor, ...] | None = None  # the same as it stands in each part's denominator
    rule: Rule | None = None  # pending, while the stretch lasts
    linear: bool = False  # whether the stretch has met a weight matrix
    call: int | None = None
    gate: int = 0

    @property
    def settled(self) -> bool:
        """Whether the surrogate is the value."""
        return self.rule is None

    def but(self, **changes: Any) -> Flow:
        """The flow with some of its fields changed."""
        flow = Flow(
            self.value, self.parts, self.slots, self.constant, self.held, self.rule, self.linear, self.call, self.gate
        )
        for name, value in changes.items():
            setattr(flow, name, value)
        return flow


@dataclass(frozen=True, eq=False)
class Apply(Operator):
    """A map that only autograd can transpose."""

    func: Callable[[Tensor], Tensor]

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Never asked for: autograd carries the message."""
        raise AssertionError("this map is carried by autograd")

    def push(self, values: Tensor) -> Tensor:
        """The map applied."""
        return self.func(values)


class SignedMap(NamedTuple):
    """A linear map, with its positive and its negative coefficients apart for rules that split."""

    whole: Operator
    plus: Operator
    minus: Operator | None = None

    @classmethod
    def positive(cls, operator: Operator) -> SignedMap:
        """A map without negative coefficients."""
        return cls(operator, operator)


class Builder:
    """Turns maps between flows into steps of a chain, or (``graph``) into an autograd graph."""

    def __init__(self, num_nodes: int) -> None:
        """No steps yet."""
        self.num_nodes = num_nodes
        self.steps: list[Step] = []
        self.graph = False
        self._next = 0

    def new_slot(self) -> int:
        """A slot that no step uses yet."""
        self._next += 1
        return self._next - 1

    def emit(self, operators: list[Operator], sources: list[int]) -> tuple[int, ...]:
        """A new slot that holds the sum of the operators' outputs."""
        if self.graph:
            return ()
        if len(operators) == 1 and type(operators[0]) is Identity:
            return (sources[0],)
        slot = self._next
        self._next += 1
        self.steps.append(Step(tuple(operators), tuple(sources), (slot,)))
        return (slot,)

    def combine(self, value: Tensor, terms: list[tuple[Flow, SignedMap]], constant: Tensor | None = None) -> Flow:
        """The flow of Σ map(flow) + constant, all flows having equally many parts."""
        if not self.graph and all(flow.rule is None for flow, _ in terms):  # the surrogate is the value
            return Flow(value, (value,), self.emit([m.whole for _, m in terms], [f.slots[0] for f, _ in terms]))
        rule = next((flow.rule for flow, _ in terms if flow.rule is not None), None)
        base = Flow(value, (value,), (), rule=rule, linear=any(flow.linear for flow, _ in terms))
        sides = range(len(terms[0][0].parts))
        pieces = [_pieces(terms, side) for side in sides]
        slots = [s for p in pieces for s in self.emit([o for o, _, _ in p], [f.slots[i] for _, f, i in p if f.slots])]
        base = base.but(slots=tuple(slots))
        if self.graph or rule is not None:
            parts = tuple(sum_of([o.push(f.parts[i]) for o, f, i in p]) for p in pieces)
            base = base.but(parts=parts)
        if rule is None:
            return self.corrected(base) if constant is not None else base
        return _with_constants(base, terms, pieces, constant)

    def corrected(self, flow: Flow) -> Flow:
        """In a graph, the surrogate with a constant added that makes it equal to the value."""
        if not self.graph:
            return flow
        part = flow.parts[0]
        return flow.but(parts=(part + (flow.value - part).detach(),))

    def scaled(self, value: Tensor, terms: list[tuple[Flow, int, Tensor]]) -> Flow:
        """The settled flow of Σ factor ⊙ part, the factors held constant."""
        slots = self.emit([Scale(f) for _, _, f in terms], [] if self.graph else [a.slots[i] for a, i, _ in terms])
        parts = (sum_of([a.parts[i] * f for a, i, f in terms]),) if self.graph else (value,)
        return self.corrected(Flow(value, parts, slots))

    def split(self, flow: Flow, rule: Rule) -> Flow:
        """The flow's positive and negative entries as two parts of a new stretch."""
        if len(flow.parts) == 2:
            return flow
        masks = [(flow.value > 0).to(flow.value.dtype), (flow.value < 0).to(flow.value.dtype)]
        slots = [slot for mask in masks for slot in self.emit([Scale(mask)], list(flow.slots))]
        return flow.but(parts=tuple(flow.parts[0] * m for m in masks), slots=tuple(slots), rule=rule)

    def settle(self, flow: Flow) -> Flow:
        """The flow with its stretch ended: the surrogate times the rule's ratio."""
        if flow.rule is None:
            return flow
        return self._ended(flow, flow.value).but(call=flow.call, gate=flow.gate)

    def activated(self, flow: Flow, value: Tensor, slope: Callable[[Tensor], Tensor]) -> Flow:
        """The settled flow of an entry-by-entry function, h = z · [h / z]; ``slope`` gives h / z."""
        if flow.rule is not None and flow.linear and not self.graph:
            return self._ended(flow, value)  # z · [z / p] · [h / z] needs no division by z
        settled = self.settle(flow)
        return self.scaled(value, [(settled, 0, slope(settled.value))])

    def _ended(self, flow: Flow, value: Tensor) -> Flow:
        """Σ part · [share · value / (part + its constants)]."""
        assert flow.rule is not None
        if not flow.linear:  # no weight has been met, so there is nothing for the rule to act on
            one = torch.ones(1, 1, dtype=value.dtype, device=value.device)
            return self.scaled(value, [(flow, side, one) for side in range(len(flow.parts))])
        if len(flow.parts) == 1 and not self.graph:
            surrogate = flow.parts[0] if flow.held is None else flow.parts[0] + flow.held[0]
            ratio = flow.rule.ratio(value, surrogate)
            return Flow(value, (value,), self.emit([Scale(ratio)], [flow.slots[0]]))
        shares = (1.0,) if len(flow.parts) == 1 else flow.rule.shares
        assert shares is not None
        terms = []
        for side, share in enumerate(shares):
            if share != 0:
                surrogate = flow.parts[side] if flow.held is None else flow.parts[side] + flow.held[side]
                ratio = flow.rule.ratio(value, surrogate.detach())
                terms.append((flow, side, ratio if share == 1 else share * ratio))
        return self.scaled(value, terms)


def _pieces(terms: list[tuple[Flow, SignedMap]], side: int) -> list[tuple[Operator, Flow, int]]:
    """What makes one part of a sum: (operator, flow, the flow's part).

    Positive coefficients keep a part's sign, negative ones turn it over.
    """
    if len(terms[0][0].parts) == 1:
        return [(m.whole, flow, 0) for flow, m in terms]
    kept = [(m.plus, flow, side) for flow, m in terms]
    return kept + [(m.minus, flow, 1 - side) for flow, m in terms if m.minus is not None]


def _with_constants(
    flow: Flow, terms: list[tuple[Flow, SignedMap]], pieces: list[list[tuple[Operator, Flow, int]]], new: Tensor | None
) -> Flow:
    """The flow with the constants of its stretch, old and new."""
    if new is None and all(f.constant is None for f, _ in terms):
        return flow
    assert flow.rule is not None
    raw = [m.whole.push(f.constant.expand_as(f.value)) for f, m in terms if f.constant is not None]
    held = [[o.push(f.held[i].expand_as(f.value)) for o, f, i in p if f.held is not None] for p in pieces]
    if new is not None:
        raw.append(new)
        for side, piece in zip(held, flow.rule.hold(new), strict=True):
            side.append(piece)
    return flow.but(constant=sum_of(raw), held=tuple(sum_of(side) for side in held))


def sum_of(tensors: list[Tensor]) -> Tensor:
    """The sum of one or more tensors."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def signed(make: Callable[[Tensor], Operator], coefficients: Tensor, split: bool) -> SignedMap:
    """The map with these coefficients, its signs apart if a rule splits."""
    whole = make(coefficients)
    if not split:
        return SignedMap(whole, whole)
    minus = make(coefficients.clamp(max=0)) if bool((coefficients < 0).any()) else None
    return SignedMap(whole, make(coefficients.clamp(min=0)), minus)
