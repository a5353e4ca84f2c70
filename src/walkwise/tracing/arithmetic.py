"""Sums, differences, products and quotients of tensors and constants."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walkwise.core.operators import Identity, Operator, Scale
from walkwise.rules import divide
from walkwise.tracing.flow import Apply, Flow, SignedMap, signed
from walkwise.tracing.functions import Functions
from walkwise.tracing.reading import NotClosedError
from walkwise.tracing.tape import Op, Ref

_SAME = SignedMap.positive(Identity())


class Arithmetic(Functions):
    """The four operations."""

    def _add(self, op: Op, sign: float = 1.0) -> None:
        left, right = op.args[0], op.args[1] if len(op.args) > 1 else op.kwargs["other"]
        scale = sign * float(op.kwargs.get("alpha", 1))
        if not isinstance(left, Ref):
            if not isinstance(right, Ref):
                return self._gradient(op)
            return self._add_constant(op, right.slot, scale, left)
        if not isinstance(right, Ref):
            return self._add_constant(op, left.slot, 1.0, right, scale)
        flows = [self.read(op, ref.slot, within=op.call is not None) for ref in (left, right)]
        if scale == 1 and not self.builder.graph and flows[0].value.shape == flows[1].value.shape:
            return self.combine(op, [(flow, _SAME) for flow in flows])
        maps = [self._times(op, f, s) for f, s in zip(flows, (1.0, scale), strict=True)]
        self.combine(op, list(zip(flows, maps, strict=True)))

    def _sub(self, op: Op) -> None:
        self._add(op, -1.0)

    def _rsub(self, op: Op) -> None:
        left, right = op.args[0], op.args[1]
        flipped = replace_args(op, (right, left))
        self._add(flipped, -1.0)

    def _neg(self, op: Op) -> None:
        flow = self.read(op, op.inputs[0], within=op.call is not None)
        self.combine(op, [(flow, self._times(op, flow, -1.0))])

    def _add_constant(self, op: Op, slot: int, scale: float, other: Any, other_scale: float = 1.0) -> None:
        """A bias: it takes its share in the stretch's denominator and passes nothing on."""
        flow = self.read(op, slot, within=True)
        constant = torch.as_tensor(other, dtype=flow.value.dtype, device=flow.value.device).detach() * other_scale
        if not self.builder.graph:
            constant = self._flat_factor(op, slot, constant)
        self.combine(op, [(flow, self._times(op, flow, scale))], constant)

    def _times(self, op: Op, flow: Flow, number: float) -> SignedMap:
        out = self.values[op.outputs[0]]  # type: ignore[index]
        if self.builder.graph:
            shaped = Apply(lambda p: (p * number).expand(out.shape))
            return SignedMap.positive(shaped) if number >= 0 else _negative(shaped)
        if flow.value.shape != self.value(op.outputs[0]).shape:  # type: ignore[arg-type]
            raise NotClosedError
        if number == 1:
            return SignedMap.positive(Identity())
        operator = Scale(flow.value.new_full((1, 1), number))
        return SignedMap.positive(operator) if number >= 0 else _negative(operator)

    def _mul(self, op: Op) -> None:
        left, right = op.args[0], op.args[1] if len(op.args) > 1 else op.kwargs["other"]
        if isinstance(left, Ref) and isinstance(right, Ref):
            return self._product(op)
        ref, factor = (left, right) if isinstance(left, Ref) else (right, left)
        self._scale_by(op, ref.slot, torch.as_tensor(factor, dtype=self.values[ref.slot].dtype).detach())

    def _div(self, op: Op) -> None:
        left, right = op.args[0], op.args[1] if len(op.args) > 1 else op.kwargs["other"]
        if not isinstance(left, Ref):  # constant / x
            return self._elementwise(op)
        divisor = self.values[right.slot] if isinstance(right, Ref) else right
        divisor = torch.as_tensor(divisor, dtype=self.values[left.slot].dtype)
        self._scale_by(op, left.slot, divide(torch.ones_like(divisor), divisor).detach())

    def _scale_by(self, op: Op, slot: int, factor: Tensor) -> None:
        """A constant factor, part of the stretch."""
        flow = self.read(op, slot, within=op.call is not None)
        if factor.numel() == 1 and float(factor) == 1 and self.values[slot].shape == self.values[op.outputs[0]].shape:  # type: ignore[index]
            return self.write(op, flow)
        factor = factor.to(flow.value.device, copy=True)  # it may be a weight, which training may change
        if self.builder.graph:
            self.combine(op, [(flow, signed(lambda f: Apply(lambda p: p * f), factor, len(flow.parts) == 2))])
        else:
            factor = self._flat_factor(op, slot, factor)
            self.combine(op, [(flow, signed(Scale, factor, len(flow.parts) == 2))])

    def _flat_factor(self, op: Op, slot: int, factor: Tensor) -> Tensor:
        """A factor that broadcasts against a node tensor, flattened like it: (M or 1, N or 1)."""
        shape = self.values[slot].shape
        if self.values[op.outputs[0]].shape != shape:  # type: ignore[index]
            raise NotClosedError
        if factor.numel() == 1:
            return factor.reshape(1, 1)
        factor = factor.reshape((1,) * (len(shape) - factor.dim()) + factor.shape)
        return factor.expand(-1, *shape[1:]).reshape(factor.shape[0], -1)

    def _product(self, op: Op) -> None:
        """A product of two followed tensors: the one that is a gate is held constant.

        Where neither is, each gets half of the relevance.
        """
        refs = [a for a in op.args if isinstance(a, Ref)][:2]
        if len(refs) < 2:
            return self._gradient(op)
        a, b = (self.flows[ref.slot] for ref in refs)
        ranks = [(flow.gate, -flow.value.numel() if op.name == "mul" else 0) for flow in (a, b)]
        moving = [0, 1] if ranks[0] == ranks[1] else [0 if ranks[1] > ranks[0] else 1]
        if len(moving) == 1 and a.gate == b.gate:
            self.remarks.add("a factor that is broadcast over neurons is held constant, as a gate")
        if op.name == "mul" and len(moving) == 1:
            return self._scale_by(op, refs[moving[0]].slot, self.values[refs[1 - moving[0]].slot].detach())
        share = 1 / len(moving)
        self.combine(op, [(self.read(op, refs[i].slot), self._product_map(op, refs, i, share)) for i in moving])

    def _product_map(self, op: Op, refs: list[Ref], moving: int, share: float) -> SignedMap:
        if self.builder.graph:

            def run(p: Tensor) -> Tensor:
                args = [a if not isinstance(a, Ref) else None for a in op.args]
                seen = 0
                for position, a in enumerate(op.args):
                    if isinstance(a, Ref):
                        args[position] = p if seen == moving else self.values[a.slot]
                        seen += 1
                result: Tensor = op.func(*args, **op.kwargs) * share
                return result

            return SignedMap.positive(Apply(run))
        if op.name != "mul":
            raise NotClosedError
        factor = self._flat_factor(op, refs[moving].slot, self.values[refs[1 - moving].slot])
        return SignedMap.positive(Scale(factor * share))


def _negative(operator: Operator) -> SignedMap:
    """A map with coefficients ≤ 0 only."""
    return SignedMap(operator, Nothing(), operator)


class Nothing(Operator):
    """The zero map."""

    def pull(self, message: Tensor, rows: Any) -> Tensor:
        """Zero."""
        return torch.zeros_like(message)

    def push(self, values: Tensor) -> Tensor:
        """Zero."""
        return torch.zeros_like(values)


def replace_args(op: Op, args: tuple[Any, ...]) -> Op:
    """The operation with other arguments."""
    fields = {name: getattr(op, name) for name in op.__dataclass_fields__}
    return Op(**(fields | {"args": args}))
