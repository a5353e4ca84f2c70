"""How flows are read and written, and what is done with an operation that no rule speaks of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from walkwise.errors import CoverageWarning
from walkwise.tracing import vocabulary
from walkwise.tracing.flow import Apply, Builder, Flow, SignedMap
from walkwise.tracing.tape import Op


class NotClosedError(Exception):
    """This operation has no closed form here; autograd must carry it."""


class Reader:
    """Carries flows through recorded operations, each under the rule of its layer.

    In a chain (``builder.graph`` false) node tensors are kept flat, (M, N), and an operation without a
    closed form raises :class:`NotClosedError`; in a graph every operation runs under autograd.
    """

    def __init__(self, builder: Builder, values: Sequence[Tensor] | dict[int, Tensor]) -> None:
        """An interpreter that knows the recorded values."""
        self.builder = builder
        self.values = values
        self.flows: dict[int, Flow] = {}
        self.uncovered: dict[str, Op] = {}
        self.remarks: set[str] = set()

    def value(self, slot: int) -> Tensor:
        """A recorded value, flat in a chain."""
        value = self.values[slot]
        if self.builder.graph:
            return value
        if value.dim() == 0 or value.shape[0] != self.builder.num_nodes:
            raise NotClosedError
        return value if value.dim() == 2 else value.reshape(self.builder.num_nodes, -1)

    def read(self, op: Op, slot: int, *, within: bool = False) -> Flow:
        """The flow in a slot. Its stretch goes on only ``within`` the call it began in."""
        flow = self.flows[slot]
        if flow.rule is not None and not (within and flow.call == op.call):
            flow = self.flows[slot] = self.builder.settle(flow)
        if within and op.call is not None and flow.rule is None and op.rule.shares is not None:
            return self.builder.split(flow, op.rule).but(call=op.call)
        return flow

    def write(self, op: Op, flow: Flow, output: int = 0) -> None:
        """Put a flow into one of the operation's output slots."""
        slot = op.outputs[output]
        if slot is not None:
            self.flows[slot] = flow if flow.call == op.call else flow.but(call=op.call)

    def combine(
        self, op: Op, terms: list[tuple[Flow, SignedMap]], constant: Tensor | None = None, output: int = 0
    ) -> None:
        """Write Σ map(flow) + constant."""
        slot = op.outputs[output]
        if slot is None:
            return
        if len(terms) > 1 and len({len(flow.parts) for flow, _ in terms}) > 1:
            terms = [(self.builder.settle(flow), m) for flow, m in terms]
        flow = self.builder.combine(self.value(slot), terms, constant)
        flow.call, flow.gate = op.call, min([f.gate for f, _ in terms])  # nobody else has it yet
        self.flows[slot] = flow

    def _structural(self, op: Op) -> None:
        """Linear with coefficients ≥ 0: each part goes through as it is."""
        if not self.builder.graph:
            raise NotClosedError
        within = op.call is not None
        flows = {slot: self.read(op, slot, within=within) for slot in op.inputs}
        constants = any(isinstance(a, Tensor) and a.is_floating_point() for a in flat((op.args, op.kwargs)))
        if not all(f.settled for f in flows.values()) and (constants or len(flows) > 1):
            return self._sum_of_moves(op, flows)
        for output, slot in enumerate(op.outputs):
            if slot is None:
                continue
            if all(f.settled for f in flows.values()):
                part = op.run(lambda s: flows[s].parts[0])[output]
                gate = min(f.gate for f in flows.values())
                self.write(op, Flow(self.values[slot], (part,), (), gate=gate), output)
            else:
                (flow,) = flows.values()
                move = SignedMap.positive(Apply(lambda p, o=output: op.run(lambda _: p)[o]))  # type: ignore[misc]
                self.combine(op, [(flow, move)], output=output)

    def _sum_of_moves(self, op: Op, flows: dict[int, Flow]) -> None:
        """One map per input, the other inputs being zero."""
        zeros = {slot: torch.zeros_like(self.values[slot]) for slot in flows}
        for output, slot in enumerate(op.outputs):
            if slot is None:
                continue
            base: Tensor = op.run(lambda s: zeros[s])[output].detach()
            terms = []
            for moving, flow in flows.items():

                def move(p: Tensor, moving: int = moving, output: int = output, base: Tensor = base) -> Tensor:
                    moved: Tensor = op.run(lambda s: p if s == moving else zeros[s])[output]
                    return moved - base

                terms.append((flow, SignedMap.positive(Apply(move))))
            self.combine(op, terms, base, output)

    def _gradient(self, op: Op) -> None:
        """No rule: the plain gradient. A selection needs none; anything else is named."""
        if not self.builder.graph:
            raise NotClosedError
        flows = {slot: self.read(op, slot) for slot in op.inputs}
        parts = op.run(lambda slot: flows[slot].parts[0])
        for output, slot in enumerate(op.outputs):
            if slot is not None:
                self.write(op, Flow(self.values[slot], (parts[output],), ()), output)
        reduces = op.name in vocabulary.REDUCE_ARGUMENT
        if op.name not in vocabulary.SELECTION and not reduces:
            self.uncovered.setdefault(op.name, op)


def flat(nested: Any) -> list[Any]:
    """The leaves of nested arguments."""
    if isinstance(nested, dict):
        return flat(list(nested.values()))
    if isinstance(nested, (list, tuple)):
        return [leaf for item in nested for leaf in flat(item)]
    return [nested]


def warn_uncovered(uncovered: dict[str, Op], where: Callable[[Op], str]) -> tuple[str, ...]:
    """Warn about operations that no rule covers; returns the notes for the report."""
    notes = tuple(f"{name} in {where(op)} has no rule; its plain gradient was used" for name, op in uncovered.items())
    for note in notes:
        warnings.warn(note + ".", CoverageWarning, stacklevel=5)
    return notes
