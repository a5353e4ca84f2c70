"""What each recorded operation does to flows: the rules, applied operation by operation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from walkwise.errors import CoverageWarning
from walkwise.operators import Aggregate, Embed, Identity, Operator, RowMap, Scale
from walkwise.rules import Rule, divide
from walkwise.trace import vocabulary
from walkwise.trace.flow import Apply, Builder, Flow, SignedMap, share_constant, signed
from walkwise.trace.tape import Op, Ref

_SQUASHED = "{} as h = z · [h / z] turns the sign of relevance where z < 0; if it is the output, explain the logit"


class NotClosedError(Exception):
    """This operation has no closed form here; autograd must carry it."""


class Interpreter:
    """Carries flows through recorded operations, each under the rule of its layer.

    In a chain (``builder.graph`` false) node tensors are kept flat, (M, N), and an operation without a
    closed form raises :class:`NotClosedError`; in a graph every operation runs under autograd.
    """

    def __init__(self, builder: Builder, values: list[Tensor], rule_of: Callable[[Op], Rule]) -> None:
        """An interpreter that knows the recorded values."""
        self.builder = builder
        self.values = values
        self.rule_of = rule_of
        self.flows: dict[int, Flow] = {}
        self.uncovered: dict[str, Op] = {}
        self.remarks: set[str] = set()

    def run(self, op: Op) -> None:
        """Make the flows of an operation's outputs."""
        handler = getattr(self, f"_{op.name}", None)
        if op.name in vocabulary.ELEMENTWISE:
            handler = self._elementwise
        elif op.name in vocabulary.STRUCTURAL and (handler is None or self.builder.graph):
            handler = self._structural
        (handler or self._gradient)(op)

    # -- reading and writing ------------------------------------------------------------------

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
        rule = self.rule_of(op)
        if not flow.settled and not (within and flow.call == op.call):
            flow = self.flows[slot] = self.builder.settle(flow)
        if within and op.call is not None and rule.shares is not None and flow.settled:
            return self.builder.split(flow, rule)._replace(call=op.call)
        return flow

    def write(self, op: Op, flow: Flow, output: int = 0) -> None:
        """Put a flow into one of the operation's output slots."""
        slot = op.outputs[output]
        if slot is not None:
            self.flows[slot] = flow._replace(call=op.call)

    def combine(
        self, op: Op, terms: list[tuple[Flow, SignedMap]], constant: Tensor | None = None, output: int = 0
    ) -> None:
        """Write Σ map(flow) + constant."""
        slot = op.outputs[output]
        if slot is None:
            return
        if len({len(flow.parts) for flow, _ in terms}) > 1:
            terms = [(self.builder.settle(flow), m) for flow, m in terms]
        flow = self.builder.combine(self.value(slot), terms, constant)
        gate = min(f.gate for f, _ in terms)
        self.write(op, flow._replace(gate=gate) if gate else flow, output)

    # -- linear maps --------------------------------------------------------------------------

    def _linear(self, op: Op) -> None:
        weight, bias = op.args[1], op.args[2] if len(op.args) > 2 else op.kwargs.get("bias")
        if isinstance(weight, Ref) or not isinstance(op.args[0], Ref):
            return self._product(op)
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
            skip = self.builder.split(skip, self.rule_of(op))
        self.combine(op, [(flow, weights), (skip, self._times(op, skip, beta))])

    def _multilinear(self, op: Op) -> None:
        """einsum, bmm and the like: linear in the one followed argument, the other one a weight."""
        if not self.builder.graph:
            raise NotClosedError
        tensors = [a for a in _flat(op.args) if isinstance(a, (Tensor, Ref))]
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
        self.combine(op, [self._lifted(op, slot, weight, make)], _detached(bias))

    def _lifted(self, op: Op, slot: int, weight: Tensor, make: Callable[[Tensor], Operator]) -> tuple[Flow, SignedMap]:
        """A flow and the lifted weight it meets. A second weight in a stretch begins a new stretch."""
        rule = self.rule_of(op)
        flow = self.read(op, slot, within=True)
        if flow.linear:
            flow = self.flows[slot] = self.builder.settle(flow)
            flow = self.read(op, slot, within=True)
        if rule.shares is not None:
            flow = self.builder.split(flow, rule)
            weights = signed(make, weight, split=True)
        elif rule.exact:
            weights = SignedMap.positive(make(weight))
        else:
            flow = flow._replace(rule=rule)
            weights = SignedMap.positive(make(_lift(rule, weight, op.sign)))
        return flow._replace(linear=not flow.settled), weights

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
        if isinstance(operator, Aggregate) and operator.weight is not None:
            edges = operator.edges
            return signed(lambda w: wrap(Aggregate(edges, w)), operator.weight, split)
        if isinstance(operator, Scale):
            return signed(lambda f: wrap(Scale(f)), operator.factor, split)
        return SignedMap.positive(wrap(operator))

    # -- arithmetic ---------------------------------------------------------------------------

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
        self._scale_by(op, ref.slot, torch.as_tensor(factor, dtype=self.values[ref.slot].dtype))

    def _div(self, op: Op) -> None:
        left, right = op.args[0], op.args[1] if len(op.args) > 1 else op.kwargs["other"]
        if not isinstance(left, Ref):  # constant / x
            return self._elementwise(op)
        divisor = self.values[right.slot] if isinstance(right, Ref) else right
        divisor = torch.as_tensor(divisor, dtype=self.values[left.slot].dtype)
        self._scale_by(op, left.slot, divide(torch.ones_like(divisor), divisor))

    def _scale_by(self, op: Op, slot: int, factor: Tensor) -> None:
        """A constant factor, part of the stretch."""
        flow = self.read(op, slot, within=op.call is not None)
        if factor.numel() == 1 and float(factor) == 1 and self.values[slot].shape == self.values[op.outputs[0]].shape:  # type: ignore[index]
            return self.write(op, flow)
        factor = factor.detach().to(flow.value.device)
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
            return self._scale_by(op, refs[moving[0]].slot, self.values[refs[1 - moving[0]].slot])
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

    # -- functions and normalisations ---------------------------------------------------------

    def _elementwise(self, op: Op) -> None:
        refs = [a for a in _flat((op.args, op.kwargs)) if isinstance(a, Ref)]
        if len(refs) != 1 or op.outputs[0] is None:
            return self._gradient(op)
        flow = self.flows[refs[0].slot]

        def slope(z: Tensor) -> Tensor:
            if op.name == "relu":
                return (z > 0).to(z.dtype)
            if op.name in vocabulary.SINGULAR:
                return divide(value, z)
            near = torch.where(z == 0, -1e-6, z)
            image: Tensor = op.run(lambda _: near.view(shape))[0].reshape(z.shape)
            return image / near

        shape, value = self.values[refs[0].slot].shape, self.value(op.outputs[0])
        if value.shape != flow.value.shape:
            return self._gradient(op)
        if op.name == "sigmoid" and op.call is None:
            self.remarks.add(_SQUASHED.format("sigmoid"))
        flow = self.builder.activated(flow, value, slope)
        self.write(op, flow._replace(gate=vocabulary.GATE_RANK.get(op.name, 0)))

    def _softmax(self, op: Op) -> None:
        """As an output, the logit scaled; in a product, a gate."""
        if op.call is None:
            self.remarks.add(_SQUASHED.format("softmax"))
        self._rescaled(op, lambda z, h: divide(h, z), gate=2)

    def _log_softmax(self, op: Op) -> None:
        """The logit; the normaliser is a statistic and held constant."""
        self.remarks.add("log_softmax's normaliser is held constant, so that the logit is explained")
        self._rescaled(op, lambda z, h: torch.ones_like(z))

    def _layer_norm(self, op: Op) -> None:
        """Mean and variance are held constant."""
        shape = op.args[1] if len(op.args) > 1 else op.kwargs["normalized_shape"]
        weight = op.args[2] if len(op.args) > 2 else op.kwargs.get("weight")
        eps = op.args[4] if len(op.args) > 4 else op.kwargs.get("eps", 1e-5)
        dims = tuple(range(-len(shape), 0))

        def factor(z: Tensor, h: Tensor) -> Tensor:
            natural = self.values[op.inputs[0]]
            scale = (natural.var(dims, unbiased=False, keepdim=True) + eps).rsqrt().expand(natural.shape)
            scaled: Tensor = scale if weight is None else scale * weight.detach()
            return scaled.reshape(z.shape)

        self._rescaled(op, factor)

    def _normalize(self, op: Op) -> None:
        """The norm is held constant."""
        given = dict(zip(("p", "dim", "eps"), op.args[1:], strict=False)) | op.kwargs

        def factor(z: Tensor, h: Tensor) -> Tensor:
            natural = self.values[op.inputs[0]]
            norm = natural.norm(given.get("p", 2.0), given.get("dim", 1), keepdim=True)
            share: Tensor = norm.clamp(min=given.get("eps", 1e-12)).reciprocal()
            return share.expand_as(natural).reshape(z.shape)

        self._rescaled(op, factor)

    def _rescaled(self, op: Op, factor: Callable[[Tensor, Tensor], Tensor], gate: int = 0) -> None:
        """h = factor ⊙ z + constant, entry by entry."""
        if len(op.inputs) != 1 or op.outputs[0] is None:
            return self._gradient(op)
        flow = self.read(op, op.inputs[0])
        value = self.value(op.outputs[0])
        scaled = self.builder.scaled(value, [(flow, 0, factor(flow.value, value).detach())])
        self.write(op, scaled._replace(gate=gate))

    def _batch_norm(self, op: Op) -> None:
        """In evaluation an affine map per neuron, folded into the linear map before it."""
        mean, var = op.args[1], op.args[2]
        names = ("weight", "bias", "training", "momentum", "eps")
        given = dict(zip(names, op.args[3:], strict=False)) | op.kwargs
        weight, bias, eps = given.get("weight"), given.get("bias"), given.get("eps", 1e-5)
        if mean is None or given.get("training", False):
            return self._standardised(op, weight, eps)
        scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
        shift = -mean * scale if bias is None else bias - mean * scale
        flow = self.read(op, op.inputs[0], within=True)
        if not self.builder.graph and flow.value.shape[1] != scale.numel():
            raise NotClosedError
        shape = (1, -1, *[1] * (self.values[op.inputs[0]].dim() - 2))
        scale, shift = scale.detach().view(shape), shift.detach().view(shape)
        make: Callable[[Tensor], Operator] = Scale if not self.builder.graph else lambda f: Apply(lambda p: p * f)
        self.combine(op, [(flow, signed(make, scale, len(flow.parts) == 2))], shift)
        self._fold_constant(op)

    def _fold_constant(self, op: Op) -> None:
        """The biases of a stretch and a batch normalisation's shift are one bias once folded."""
        slot = op.outputs[0]
        assert slot is not None
        flow = self.flows[slot]
        if flow.rule is not None and flow.constant is not None:
            self.flows[slot] = flow._replace(held=share_constant(flow.rule, flow.constant))

    def _standardised(self, op: Op, weight: Tensor | None, eps: float) -> None:
        """Batch statistics (no running ones are kept): held constant."""

        def factor(z: Tensor, h: Tensor) -> Tensor:
            scale = (z.var(0, unbiased=False, keepdim=True) + eps).rsqrt()
            return (scale if weight is None else scale * weight.detach()).expand_as(z)

        self._rescaled(op, factor)

    # -- everything that moves entries about --------------------------------------------------

    def _structural(self, op: Op) -> None:
        """Linear with coefficients ≥ 0: each part goes through as it is."""
        if not self.builder.graph:
            raise NotClosedError
        within = op.call is not None
        flows = {slot: self.read(op, slot, within=within) for slot in op.inputs}
        constants = any(isinstance(a, Tensor) and a.is_floating_point() for a in _flat((op.args, op.kwargs)))
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

    def _reshape(self, op: Op) -> None:
        """A node's entries in another shape: the flat tensor is the same."""
        slot = op.outputs[0]
        assert slot is not None
        flow = self.read(op, op.inputs[0], within=op.call is not None)
        if self.value(slot).shape != flow.value.shape:
            raise NotClosedError
        self.write(op, flow)

    _view = _flatten = _unflatten = _squeeze = _unsqueeze = _view_as = _reshape_as = _reshape

    def _cat(self, op: Op) -> None:
        """Columns side by side."""
        tensors = op.args[0] if op.args else op.kwargs["tensors"]
        dim = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)
        ranks = {(self.values[t.slot] if isinstance(t, Ref) else t).dim() for t in tensors}
        if ranks != {2} or dim not in (1, -1):
            raise NotClosedError
        width = self.values[op.outputs[0]].shape[1]  # type: ignore[index]
        start, terms, constant = 0, [], torch.zeros_like(self.values[op.outputs[0]])  # type: ignore[index]
        for t in tensors:
            length = (self.values[t.slot] if isinstance(t, Ref) else t).shape[1]
            if isinstance(t, Ref):
                flow = self.read(op, t.slot, within=op.call is not None)
                terms.append((flow, SignedMap.positive(Embed(start, length, width))))
            else:
                constant[:, start : start + length] = t.detach()
            start += length
        self.combine(op, terms, constant if len(terms) < len(tensors) else None)

    def _within_rows(self, op: Op) -> None:
        """A linear map of every row by itself, found by applying it to unit vectors."""
        if len(op.inputs) != 1:
            raise NotClosedError
        flow = self.read(op, op.inputs[0], within=op.call is not None)
        shape = self.values[op.inputs[0]].shape
        units = torch.eye(flow.value.shape[1], dtype=flow.value.dtype, device=flow.value.device)
        try:
            images = op.run(lambda _: units.view(-1, *shape[1:]))
        except Exception as error:
            raise NotClosedError from error
        for output, slot in enumerate(op.outputs):
            if slot is None:
                continue
            matrix = images[output].reshape(len(units), -1).t()
            value = self.value(slot)
            if matrix.shape[0] != value.shape[1] or not _alike(flow.value @ matrix.t(), value):
                raise NotClosedError
            self.combine(op, [(flow, SignedMap.positive(RowMap(matrix)))], output=output)

    _getitem = _mean = _sum = _split = _chunk = _narrow = _select = _unbind = _within_rows

    def _scatter_reduce(self, op: Op) -> None:
        """Sums and means move entries; maxima and minima select."""
        reduce = op.kwargs.get("reduce", op.args[3] if len(op.args) > 3 else None)
        self._structural(op) if reduce in ("sum", "mean") else self._gradient(op)

    _index_reduce = _segment_reduce = _scatter_reduce

    # -- the rest -----------------------------------------------------------------------------

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


def warn_uncovered(uncovered: dict[str, Op], where: Callable[[Op], str]) -> tuple[str, ...]:
    """Warn about operations that no rule covers; returns the notes for the report."""
    notes = tuple(f"{name} in {where(op)} has no rule; its plain gradient was used" for name, op in uncovered.items())
    for note in notes:
        warnings.warn(note + ".", CoverageWarning, stacklevel=5)
    return notes


def _alike(a: Tensor, b: Tensor) -> bool:
    """Equal within rounding, whatever their scale."""
    return bool((a - b).abs().max() <= 1e-4 * b.abs().max())


def _lift(rule: Rule, weight: Tensor, sign: Tensor | None) -> Tensor:
    """W↑, where a batch normalisation that follows may turn the sign of a neuron."""
    if sign is None or weight.shape[0] % sign.numel():
        return rule.lift(weight)
    turn = sign.repeat(weight.shape[0] // sign.numel()).view(-1, *[1] * (weight.dim() - 1))
    return rule.lift(weight * turn) * turn


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


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _flat(nested: Any) -> list[Any]:
    if isinstance(nested, dict):
        return _flat(list(nested.values()))
    if isinstance(nested, (list, tuple)):
        return [leaf for item in nested for leaf in _flat(item)]
    return [nested]


def replace_args(op: Op, args: tuple[Any, ...]) -> Op:
    """The operation with other arguments."""
    fields = {name: getattr(op, name) for name in op.__dataclass_fields__}
    return Op(**(fields | {"args": args}))
