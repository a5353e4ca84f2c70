"""Stretches: runs of linear maps that share one denominator, kept as an expression until the rule acts on them.

Under a rule other than LRP-0, a linear map cannot become part of the chain by itself: the paper's γ divides by the
result of the sum over neighbours *and* neurons, and αβ and the generalised γ separate contributions path by path. So
the maps of a layer are kept as an expression over settled tensors. When something ends the stretch (an activation, the
end of the layer, a second weight matrix), the rule decides how to write it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from walkwise.core.operators import Identity, Operator, Scale, Step
from walkwise.core.postponed import NodeTensor, Postponed, some
from walkwise.rules import Rule
from walkwise.tracing.stretches.expressions import UNCHANGED, Plain, Term, one_sided, with_held
from walkwise.tracing.stretches.lifted import Lifted, Part
from walkwise.tracing.stretches.signs import Signs
from walkwise.tracing.stretches.sizes import Sizes


@dataclass(eq=False, slots=True)
class Flow:
    """A recorded tensor on its way into the chain: settled in a slot, or a stretch that is still open."""

    value: Tensor  # (K, N)
    slot: int = -1
    term: Term | None = None  # while the stretch lasts
    rule: Rule | None = None  # of the stretch
    weighted: bool = False  # whether the stretch has met a weight matrix
    call: int | None = None  # the message-passing call it was made in
    gate: int = 0  # how much it looks like a gate

    @property
    def settled(self) -> bool:
        """Whether the flow is in the chain."""
        return self.term is None

    def as_term(self) -> Term:
        """The flow as part of an expression."""
        return Term(self.value, self.slot) if self.term is None else self.term


@dataclass(eq=False)
class Builder(ABC):
    """The interface that handlers write to: maps between slots, and stretches closed by their rule."""

    count: int = 0  # of slots
    _settled: dict[int, tuple[Term, int]] = field(default_factory=dict)  # stretches that have been ended somewhere
    _rectified: dict[int, Tensor] = field(default_factory=dict)  # tensors without negative entries, by identity

    def new_slot(self) -> int:
        """A slot that nothing uses yet."""
        self.count += 1
        return self.count - 1

    @abstractmethod
    def emit(self, operators: Sequence[Operator], sources: Sequence[int]) -> int:
        """A slot that holds the sum of the operators' outputs; an unchanged tensor keeps its slot."""

    @abstractmethod
    def ended(self, flow: Flow, value: Tensor, rectified: bool = False) -> int:
        """The slot of a stretch with a weight, whose output z has become ``value``: each part times its share.

        ``rectified`` says that the value is 0 wherever z is negative.
        """

    def apart(self, flow: Flow) -> Flow:
        """A settled flow in a slot of its own."""
        return Flow(flow.value, self.emit([Identity()], [flow.slot]), call=flow.call, gate=flow.gate)

    def settle(self, flow: Flow) -> Flow:
        """The flow with its stretch ended; other readers may continue the stretch."""
        if flow.term is None:
            return flow
        if id(flow.term) not in self._settled:
            # Without a weight there is nothing for the rule to act on.
            slot = self.ended(flow, flow.value) if flow.weighted else Plain(self.emit).slot(flow.term)
            self._settled[id(flow.term)] = flow.term, slot
        return Flow(flow.value, self._settled[id(flow.term)][1], call=flow.call, gate=flow.gate)

    def activated(
        self, flow: Flow, value: Tensor, slope: Callable[[Tensor], Tensor], *, rectifies: bool = False
    ) -> Flow:
        """The settled flow of an entry-by-entry function, h = z · [h / z].

        Args:
            flow: z.
            value: h.
            slope: gives h / z.
            rectifies: whether h is 0 wherever z is negative, and nowhere negative.
        """
        if rectifies:
            self._rectified[id(value)] = value
        if flow.term is not None and flow.weighted:
            return Flow(value, self.ended(flow, value, rectifies))  # z · [z / p] · [h / z] needs no division by z
        settled = self.settle(flow)
        return Flow(value, self.emit([Scale(slope(settled.value))], [settled.slot]))


@dataclass(frozen=True, eq=False, slots=True)
class Unwritten:
    """The end of a stretch on its way into the chain: the slot of the stretch whose output z has become ``value``."""

    target: int
    flow: Flow
    value: Tensor
    rectified: bool


@dataclass(eq=False)
class ChainBuilder(Builder):
    """Turns maps between flows into steps of a chain; a stretch that leads nowhere is never written."""

    steps: list[Step | Unwritten] = field(default_factory=list)
    part_of: dict[int, int] = field(default_factory=dict)  # slots within a stretch, and the slot where that ends

    def emit(self, operators: Sequence[Operator], sources: Sequence[int]) -> int:
        """A new slot that holds the sum of the operators' outputs."""
        if len(operators) == 1 and operators[0] is UNCHANGED:
            return sources[0]
        slot = self.count
        self.count += 1
        self.steps.append(Step(tuple(operators), tuple(sources), slot))
        return slot

    def ended(self, flow: Flow, value: Tensor, rectified: bool = False) -> int:
        """The slot of a stretch, which is written only once it is known to lead somewhere."""
        target = self.new_slot()
        self.steps.append(Unwritten(target, flow, value, rectified))
        return target

    def taken(self) -> list[Step | Unwritten]:
        """The steps made since they were last taken."""
        steps, self.steps = self.steps, []
        return steps

    def leading(self, steps: Sequence[Step | Unwritten], slots: set[int]) -> list[Step]:
        """The steps passed by a message that reaches these slots."""
        reached, kept = set(slots), list[Step]()
        for given in reversed(steps):
            if given.target in reached:
                for step in reversed(self._written(given)) if isinstance(given, Unwritten) else (given,):
                    if step.target in reached:  # of a stretch, a rule may take one part alone
                        reached.update(step.sources)
                        kept.append(step)
        return kept[::-1]

    def _written(self, ending: Unwritten) -> list[Step]:
        """The steps of a stretch, written once with lifted weights or twice, as its rule says."""
        around, self.steps = self.steps, []
        last = self._write(ending.flow, ending.value, ending.rectified)
        made, self.steps = self.steps, around
        steps = [step for step in made if isinstance(step, Step)]
        assert len(steps) == len(made)  # no stretch is within another
        self.part_of.update((step.target, ending.target) for step in steps)
        return [replace(step, target=ending.target) if step.target == last else step for step in steps]

    def _write(self, flow: Flow, value: Tensor, rectified: bool) -> int:
        """The slot of what a stretch has become."""
        assert flow.term is not None and flow.rule is not None
        rule = flow.rule
        later = rule.bounded and (rectified or value is flow.value)
        if rule.splits:
            one_sign = rule.one_sided
            into = None if rectified else value
            if one_sign is None or not one_sided(flow.term, flow.value, into, self._rectified):
                return self._by_size(flow, value, later) if rule.by_size else self._by_sign(flow, value)
            rule = one_sign
        part = Lifted(self.emit, rule, later).part(flow.term)
        return self.emit([Scale(_ratio(rule, value, part))], [part.slot])

    def _by_size(self, flow: Flow, value: Tensor, later: bool) -> int:
        """The same for a rule that weighs contributions and their sizes; ``later`` lets their sums be postponed."""
        assert flow.term is not None and flow.rule is not None
        rule, z = flow.rule, flow.value
        sized = Sizes(self.emit, later).part(flow.term)
        factors: Sequence[NodeTensor]
        if isinstance(sized.total, Postponed):
            shape = z.shape[0], 2 * z.shape[1]
            both = Postponed(
                shape, lambda n: torch.cat(rule.size_factors(some(value, n), some(z, n), sized.some(n)), 1)
            )
            factors = both.columns(2)
        else:
            factors = rule.size_factors(value, z, sized.some(None))
        return self.emit([Scale(factor) for factor in factors], [sized.slot, sized.sizes])

    def _by_sign(self, flow: Flow, value: Tensor) -> int:
        """The same for a rule that separates positive and negative contributions."""
        assert flow.term is not None and flow.rule is not None
        split = Signs(self.emit, flow.rule).parts(flow.term)
        held = split.held or (None, None)
        totals = [torch.zeros_like(flow.value) if side is None else side[1] for side in split.sides]
        sums = [with_held(total, constant) for total, constant in zip(totals, held, strict=True)]
        factors = flow.rule.factors(value, flow.value, *sums)
        terms = [(Scale(f), side[0]) for f, side in zip(factors, split.sides, strict=True) if f is not None and side]
        if not terms:  # nothing contributes
            return self.emit([Scale(torch.zeros_like(value))], [self.new_slot()])
        return self.emit([operator for operator, _ in terms], [slot for _, slot in terms])


def _ratio(rule: Rule, value: Tensor, part: Part) -> NodeTensor:
    """A value divided by its surrogate."""
    if not part.later:
        return rule.spent_ratio(value, part.whole())
    shape = value.shape[0], value.shape[1]
    return Postponed(shape, lambda nodes: rule.spent_ratio(some(value, nodes), part.some(nodes)))
