"""Linear maps with weights, where the rules act, and message passing between them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from walkwise.core.operators import Aggregate, Operator, RowMap, Scale
from walkwise.rules import Rule
from walkwise.tracing.arithmetic import Arithmetic
from walkwise.tracing.flow import Apply, Flow, SignedMap, signed
from walkwise.tracing.reading import NotClosedError, flat
from walkwise.tracing.tape import Op, Ref


class Weights(Arithmetic):
    """Weight matrices and aggregations."""

    def _linear(self, op: Op) -> None:
        weight, bias = op.args[1], op.args[2] if len(op.args) > 2 else op.kwargs.get("bias")
        if isinstance(weight, Ref) or not isinstance(op.args[0], Ref):
            return self._product(op)
        if isinstance(bias, Ref):
            return self._gradient(op)
        if not self.builder.graph and self.values[op.args[0].slot].dim() != 2:
            raise NotClosedError
        self._weighted(op, op.args[0].slot, weight.detach(), RowMap, bias)

    def _matmul(self, op: Op) -> None:
        left, right = op.args[0], op.args[1]
        if isinstance(left, Ref) and isinstance(right, Ref):
            return self._product(op)
        if isinstance(right, Ref):
            return self._from_the_left(op, left, right)
        if not self.builder.graph and (self.values[left.slot].dim(), right.dim()) != (2, 2):
            raise NotClosedError
        if right.dim() != 2:
            return self._multilinear(op)
        self._weighted(op, left.slot, right.detach().t(), RowMap, None)

    def _from_the_left(self, op: Op, left: Tensor, right: Ref) -> None:
        """A constant matrix that mixes rows: a weight if it is learned, otherwise such as an adjacency."""
        if not self.builder.graph or left.layout != torch.strided:
            return self._structural(op)

        def make(matrix: Tensor) -> Operator:
            return Apply(lambda p: torch.matmul(matrix, p))

        if left.requires_grad:
            return self._weighted(op, right.slot, left.detach(), make, None)
        flow = self.read(op, right.slot, within=op.call is not None)
        self.combine(op, [(flow, signed(make, left, len(flow.parts) == 2))])

    def _addmm(self, op: Op) -> None:
        """beta · bias + alpha · left · right; the bias may be a followed tensor, a skip."""
        bias, left, right = op.args[:3]
        beta, alpha = float(op.kwargs.get("beta", 1)), float(op.kwargs.get("alpha", 1))
        if not isinstance(left, Ref) or isinstance(right, Ref):
            return self._gradient(op)
        weight = right.detach().t() * alpha
        if not isinstance(bias, Ref):
            return self._weighted(op, left.slot, weight, RowMap, bias * beta)
        flow, weights = self._lifted(op, left.slot, weight, RowMap)
        skip = self.read(op, bias.slot, within=op.call is not None)
        if len(flow.parts) == 2:
            skip = self.builder.split(skip, op.rule)
        self.combine(op, [(flow, weights), (skip, self._times(op, skip, beta))])

    def _multilinear(self, op: Op) -> None:
        """einsum, bmm and the like: linear in the one followed argument, the other one a weight."""
        if not self.builder.graph:
            raise NotClosedError
        tensors = [a for a in flat(op.args) if isinstance(a, (Tensor, Ref))]
        if sum(isinstance(a, Ref) for a in tensors) != 1 or len(tensors) != 2:
            return self._product(op) if len(op.inputs) == 2 else self._gradient(op)
        ref = next(a for a in tensors if isinstance(a, Ref))
        weight = next(a for a in tensors if isinstance(a, Tensor))

        def make(coefficients: Tensor) -> Operator:
            return Apply(lambda p: op.run(lambda _: p, {id(weight): coefficients})[0])

        self._weighted(op, ref.slot, weight.detach(), make, None)

    _einsum = _bmm = _mv = _multilinear

    def _weighted(
        self, op: Op, slot: int, weight: Tensor, make: Callable[[Tensor], Operator], bias: Tensor | None
    ) -> None:
        """A weight matrix and its bias: where the rule acts."""
        rule = op.rule
        if rule.shares is None and op.sign is None and not self.builder.graph:
            return self._row_mapped(op, slot, weight, rule, _detached(bias))
        self.combine(op, [self._lifted(op, slot, weight, make)], _detached(bias))

    def _row_mapped(self, op: Op, slot: int, weight: Tensor, rule: Rule, bias: Tensor | None) -> None:
        """The same, straight on, for rules that do not split: what most operations are."""
        flow = self.flows[slot]
        if flow.rule is not None:  # a second weight begins a new stretch
            flow = self.flows[slot] = self.builder.settle(flow)
        output = op.outputs[0]
        assert output is not None
        value = self.value(output)
        lifted = RowMap(rule.lift(weight))
        slots = self.builder.emit([lifted], [flow.slots[0]])
        if rule.exact:
            self.flows[output] = Flow(value, (value,), slots, call=op.call, gate=flow.gate)
            return
        held = None if bias is None else rule.hold(bias)
        part = lifted.push(flow.parts[0])
        self.flows[output] = Flow(value, (part,), slots, bias, held, rule, True, op.call, flow.gate)

    def _lifted(self, op: Op, slot: int, weight: Tensor, make: Callable[[Tensor], Operator]) -> tuple[Flow, SignedMap]:
        """A flow and the lifted weight it meets. A second weight in a stretch begins a new stretch."""
        rule = op.rule
        flow = self.read(op, slot, within=True)
        if flow.linear:
            flow = self.flows[slot] = self.builder.settle(flow)
            flow = self.read(op, slot, within=True)
        if rule.shares is not None:
            flow = self.builder.split(flow, rule)
            weights = signed(make, weight, split=True)
        elif rule.exact:
            weights = SignedMap.positive(make(rule.lift(weight)))
        else:
            flow = flow.but(rule=rule)
            weights = SignedMap.positive(make(_lift(rule, weight, op.sign)))
        return flow.but(linear=not flow.settled), weights

    def _propagate(self, op: Op) -> None:
        terms = [(self.read(op, slot, within=not op.activated), operator) for slot, operator in op.terms]
        self.combine(op, [(flow, self._edge_map(flow, operator)) for flow, operator in terms], op.constant)

    def _edge_map(self, flow: Flow, operator: Operator) -> SignedMap:
        if self.builder.graph:
            shape = flow.parts[0].shape
            return self._signs(flow, operator, lambda o: Apply(lambda p: o.push(p.flatten(1)).view(shape)))
        return self._signs(flow, operator, lambda o: o)

    def _signs(self, flow: Flow, operator: Operator, wrap: Callable[[Operator], Operator]) -> SignedMap:
        split = len(flow.parts) == 2
        if not split:
            return SignedMap.positive(wrap(operator))
        if isinstance(operator, Aggregate) and operator.weight is not None:
            edges = operator.edges
            return signed(lambda w: wrap(Aggregate(edges, w)), operator.weight, split)
        if isinstance(operator, Scale):
            return signed(lambda f: wrap(Scale(f)), operator.factor, split)
        return SignedMap.positive(wrap(operator))


def _lift(rule: Rule, weight: Tensor, sign: Tensor | None) -> Tensor:
    """W↑, where a batch normalisation that follows may turn the sign of a neuron."""
    if sign is None or weight.shape[0] % sign.numel():
        return rule.lift(weight)
    turn = sign.repeat(weight.shape[0] // sign.numel()).view(-1, *[1] * (weight.dim() - 1))
    return rule.lift(weight * turn) * turn


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()
