"""The interpreter: carries flows through recorded operations, each under the rule of its layer."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from walkwise.core.cast import mapped
from walkwise.core.differential import MOVING, Differential, leaves
from walkwise.tracing.meaning.entrywise import MERGING, as_activation
from walkwise.tracing.recording.recorded import Op, Ref, filled
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.recording.words import word
from walkwise.tracing.stretches.expressions import Coefficients, Term, nonnegative_map
from walkwise.tracing.stretches.stretch import Builder, Flow


class Interpreter:
    """The context of handlers: the recorded values, the flows made so far, and the chain under construction.

    Values and messages are flat here: a tensor of shape (K, …) is (K, N), whatever its rows are.
    """

    def __init__(
        self,
        tape: Tape,
        builder: Builder,
        *,
        made: Mapping[int, Op],
        standing: Container[int],
        along_nodes: Callable[[int, int], bool | None],
        are_nodes: Callable[[int], bool],
        missing: Callable[[int], Flow],
        gating: frozenset[int],
        weighed: frozenset[int],
    ) -> None:
        """An interpreter that knows what was recorded, and writes with a builder.

        Args:
            tape: what was recorded.
            builder: what to write with.
            made: the operations of the run, by the slots of what they made.
            standing: the slots at which walks stand.
            along_nodes: whether a dimension of a slot runs over nodes; None where nobody knows.
            are_nodes: whether the rows of a slot are nodes, and not edges.
            missing: makes the flow of a slot that nothing here has made.
            gating: the slots of gates that multiply something followed.
            weighed: the slots of what looks like a gate, but weights or layers read it.
        """
        self.values: Sequence[Tensor] = tape.values
        self.origins, self.parameters, self.data = tape.origins, tape.parameters, tape.data
        self.given = tape.given
        self.builder = builder
        self.made, self.standing, self.along_nodes, self.are_nodes = dict(made), standing, along_nodes, are_nodes
        self.gating, self.weighed = gating, weighed
        self.held: set[int] = set()  # slots that count as constant: products of a gate with constant features
        self.missing: Callable[[int], Flow] | None = missing
        self.flows: dict[int, Flow] = {}
        self.lasting = True  # whether what is made must outlive later changes of the model's weights
        self.uncovered: list[tuple[Op, int]] = []  # operations without a rule, and the slots they emit
        self.remarks: dict[str, None] = {}
        #: What was put together in a new dimension: which it is, and the slots.
        self.stacks: dict[int, tuple[int, list[int]]] = {}
        self.factors: dict[int, tuple[int, Tensor]] = {}  # products with what is learned: the other factor, and that
        self.squashes: list[tuple[str, int]] = []  # remarks on what an operation emits, and the slot of that
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def run(self, op: Op) -> None:
        """Make the flows of an operation's outputs."""
        if not self.held.isdisjoint(op.inputs):
            op = self._without_held(op)
            if not op.inputs:
                return
        (op.word.handler or gradient)(self, op)
        if op.word.pointwise or op.word.name in MERGING:
            as_activation(self, op)

    def hold(self, op: Op) -> None:
        """Count what an operation makes as constant."""
        self.held.update(slot for slot in op.outputs if slot is not None)

    def _without_held(self, op: Op) -> Op:
        """An operation with constants in the place of what counts as constant; if nothing else is left, held itself."""

        def fill(slot: int) -> Any:
            return self.values[slot].detach() if slot in self.held else Ref(slot)

        args, kwargs = filled((op.args, op.kwargs), fill, {})
        left = tuple(slot for slot in op.inputs if slot not in self.held)
        if not left:
            self.hold(op)
        terms, constant = [], op.constant
        for slot, operator in op.terms:
            if slot in self.held:
                added = operator.push(self.value(slot))
                constant = added if constant is None else constant + added
            else:
                terms.append((slot, operator))
        return replace(op, args=args, kwargs=kwargs, inputs=left, terms=tuple(terms), constant=constant)

    def written(self, op: Op, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Write one of the functions that an operation consists of; a function of constants is a constant."""
        given, named = filled((args, kwargs), lambda slot: self.values[slot], {})
        value = func(*given, **named).detach()
        inputs = tuple(dict.fromkeys(a.slot for a in leaves((args, kwargs)) if isinstance(a, Ref)))
        if not inputs:
            return value
        slot = len(self.values)
        self.values = [*self.values, value]
        part = replace(op, word=word(func), func=func, args=args, kwargs=kwargs, inputs=inputs, outputs=(slot,))
        self.made[slot] = part
        self.run(part)
        self.uncovered = [(op if found is part else found, emitted) for found, emitted in self.uncovered]
        return Ref(slot)

    def replayed(self, slot: int, root: int, value: Tensor) -> Tensor:
        """What a slot would hold for another value of a root that it was computed from."""
        if slot == root:
            return value
        op = self.made[slot]
        result: Tensor = op.run(lambda inner: self.replayed(inner, root, value))[op.outputs.index(slot)]
        return result

    def value(self, slot: int) -> Tensor:
        """A recorded value, flat.  # (K, N)"""
        return flat(self.values[slot])

    def shape(self, slot: int) -> torch.Size:
        """The shape of a recorded value."""
        return self.values[slot].shape

    def learned(self, constant: Tensor) -> bool:
        """Whether a constant is a parameter or computed from parameters; frozen ones are known by their address."""
        return constant.requires_grad or self.is_parameter(constant)

    def is_parameter(self, constant: Tensor) -> bool:
        """Whether a constant is a parameter, or a part of one."""
        return constant.layout == torch.strided and constant.untyped_storage().data_ptr() in self.parameters

    def flow(self, slot: int) -> Flow:
        """The flow in a slot, whatever its state."""
        flow = self.flows.get(slot)
        if flow is None and slot in self.held:
            return Flow(self.value(slot), self.builder.new_slot())
        if flow is None:
            assert self.missing is not None
            flow = self.flows[slot] = self.missing(slot)
        return flow

    def read(self, op: Op, slot: int, *, within: bool = False) -> Flow:
        """The flow in a slot. Its stretch goes on only ``within`` the call it began in."""
        flow = self.flow(slot)
        if flow.term is not None and not (within and flow.call == op.call):
            return self.builder.settle(flow)
        return flow

    def moves_on(self, op: Op) -> bool:
        """Whether a stretch goes on when entries are moved: inside a layer, and if none is dropped."""
        (given, *others), (made, *more) = op.inputs, op.outputs
        whole = not others and not more and made is not None
        return op.call is not None or (whole and self.values[given].numel() == self.values[made].numel())  # type: ignore[index]

    def write(self, op: Op, flow: Flow, output: int = 0) -> None:
        """Put a flow into one of the operation's output slots."""
        slot = op.outputs[output]
        if slot is not None:
            self.flows[slot] = Flow(flow.value, flow.slot, flow.term, flow.rule, flow.weighted, op.call, flow.gate)

    def combine(
        self,
        op: Op,
        terms: Sequence[tuple[Flow, Coefficients]],
        constant: Tensor | None = None,
        output: int = 0,
    ) -> None:
        """Write Σ map(flow) + constant: into the chain if the rule does not matter, else into the stretch."""
        slot = op.outputs[output]
        if slot is None:
            return
        value, rule = self.value(slot), op.rule
        terms = [(self._in_type(flow, value.dtype), coefficients) for flow, coefficients in terms]
        learned = weighted = False
        begun, gate = None, terms[0][0].gate
        for flow, coefficients in terms:
            learned, weighted = learned or coefficients.learned, weighted or flow.weighted
            begun, gate = begun or flow.rule, min(gate, flow.gate)
        begins = (learned and not rule.exact) or (rule.splits and op.call is not None and not op.activated)
        if begun is None and not begins:
            emitted = self.builder.emit([c.whole() for _, c in terms], [f.slot for f, _ in terms])
            self.flows[slot] = Flow(value, emitted, call=op.call, gate=gate)
        else:
            term = Term(value, maps=[(f.as_term(), c) for f, c in terms], constant=constant)
            self.flows[slot] = Flow(value, -1, term, begun or rule, learned or weighted, op.call, gate)

    def _in_type(self, flow: Flow, dtype: torch.dtype) -> Flow:
        """A flow in the type of the result, which a constant of another type may have changed."""
        if flow.value.dtype == dtype:
            return flow
        flow = self.builder.settle(flow)
        value = flow.value.to(dtype)
        convert = Differential(Tensor.to, (MOVING, dtype), {}, flow.value, 0, value.shape)
        return Flow(value, self.builder.emit([convert], [flow.slot]), call=flow.call, gate=flow.gate)

    def settled(self, op: Op, value: Tensor, operators: Sequence[tuple[Flow, Any]], *, gate: int) -> None:
        """Write Σ operator(flow) of settled flows as it is, whatever the rule."""
        slot = self.builder.emit([operator for _, operator in operators], [flow.slot for flow, _ in operators])
        assert op.outputs[0] is not None
        self.flows[op.outputs[0]] = Flow(value, slot, call=op.call, gate=gate)

    def derivative(
        self, op: Op, slot: int, output: int = 0, *, others_zero: bool = False, swap: dict[int, Tensor] | None = None
    ) -> Differential:
        """An operation as a map of one of its inputs, the others at their values (or zero)."""
        values = self.values

        def fill(other: int) -> Any:
            if other == slot:
                return MOVING
            return torch.zeros_like(values[other]) if others_zero else values[other].detach()

        args, kwargs = filled((op.args, op.kwargs), fill, swap or {})
        args, kwargs = self.kept((args, kwargs)) if self.lasting else (args, kwargs)
        shape = values[op.outputs[output]].shape  # type: ignore[index]
        return Differential(op.func, args, kwargs, values[slot].detach(), output, shape)

    def kept(self, nested: Any) -> Any:
        """Arguments with copies of their tensors: the model's own may change, the chain must not."""

        def copied(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or leaf.layout != torch.strided:
                return leaf
            if id(leaf) not in self._copies:
                self._copies[id(leaf)] = leaf, leaf.detach().clone()
            return self._copies[id(leaf)][1]

        return mapped(nested, copied)


def gradient(run: Interpreter, op: Op) -> None:
    """There is no rule: use the plain gradient, and name the operation in a note."""
    selection(run, op)
    made = [run.flows[slot] for slot in op.outputs if slot is not None]
    for flow in made:
        flow.gate = 0
    run.uncovered += [(op, flow.slot) for flow in made]


def selection(run: Interpreter, op: Op) -> None:
    """Use the plain gradient as the rule: a selected value gets all relevance."""
    flows = {slot: run.read(op, slot) for slot in op.inputs}
    for output, slot in enumerate(op.outputs):
        if slot is not None:
            maps = [run.derivative(op, source, output) for source in flows]
            emitted = run.builder.emit(maps, [flow.slot for flow in flows.values()])
            gate = min([flow.gate for flow in flows.values()])
            run.flows[slot] = Flow(run.value(slot), emitted, call=op.call, gate=gate)


def structural(run: Interpreter, op: Op, *, within: bool = False) -> None:
    """Linear with coefficients ≥ 0, by its own derivative: one map per input, the other inputs being zero."""
    within = within or op.call is not None
    flows = {slot: run.read(op, slot, within=within) for slot in op.inputs}
    several = len(flows) > 1
    for output, slot in enumerate(op.outputs):
        if slot is None:
            continue
        maps = [
            (flow, nonnegative_map(run.derivative(op, source, output, others_zero=several)))
            for source, flow in flows.items()
        ]
        run.combine(op, maps, result_at_zero(run, op, flows, output), output)


def result_at_zero(run: Interpreter, op: Op, flows: dict[int, Flow], output: int) -> Tensor | None:
    """An operation's result for zero inputs, if a stretch needs it."""
    if op.call is None and all(flow.settled for flow in flows.values()):
        return None
    given = leaves((op.args, op.kwargs))
    numbers = (
        a.is_floating_point() or a.is_complex() if isinstance(a, Tensor) else isinstance(a, float) and a for a in given
    )
    if not any(numbers):
        return None
    zero: Tensor = op.run(lambda slot: torch.zeros_like(run.values[slot]))[output]
    return flat(zero.detach())


def flat(tensor: Tensor) -> Tensor:
    """A tensor's values by rows.  # (K, …) -> (K, N)"""
    if tensor.dim() == 2:
        return tensor
    return tensor.reshape(tensor.shape[0] if tensor.dim() else 1, tensor.shape[1:].numel())
