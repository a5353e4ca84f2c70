"""Sums, differences, products and quotients of tensors and constants."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from walkwise.core.differential import MOVING, Differential
from walkwise.core.operators import Scale
from walkwise.rules import divide
from walkwise.tracing.meaning.activations import SIGNED, pointwise
from walkwise.tracing.meaning.centring import centred
from walkwise.tracing.meaning.contractions import contraction
from walkwise.tracing.meaning.gating import gates_constant
from walkwise.tracing.meaning.interpreter import Interpreter, flat, gradient, selection
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.recording.words import handles
from walkwise.tracing.stretches.expressions import SAME, Coefficients, Term, nonnegative_map, scaled
from walkwise.tracing.stretches.stretch import Flow

_BROADCAST_GATE = "a factor that is broadcast over neurons is held constant, as a gate"


def _sides(op: Op) -> tuple[Any, Any]:
    return op.args[0], op.given("other")["other"]


@handles(torch.add)
def _add(run: Interpreter, op: Op) -> None:
    _sum(run, op, *_sides(op), float(op.kwargs.get("alpha", 1)))


@handles(torch.sub)
def _sub(run: Interpreter, op: Op) -> None:
    _sum(run, op, *_sides(op), -float(op.kwargs.get("alpha", 1)))


@handles(torch.rsub)
def _rsub(run: Interpreter, op: Op) -> None:
    left, right = _sides(op)
    _sum(run, op, right, left, -float(op.kwargs.get("alpha", 1)))


@handles(torch.neg)
def _neg(run: Interpreter, op: Op) -> None:
    scale(run, op, op.inputs[0], -1.0)


def _sum(run: Interpreter, op: Op, left: Any, right: Any, times: float) -> None:
    """left + times · right; a term that is not followed is a bias."""
    followed = [(side, factor) for side, factor in ((left, 1.0), (right, times)) if isinstance(side, Ref)]
    if not followed or op.outputs[0] is None:
        return gradient(run, op)
    if len(followed) == 2:
        if (multiple := _multiple(run, op, followed)) is not None:
            return scale(run, op, *multiple)
        within = op.call is not None or weighed_together(run, op, [side.slot for side, _ in followed])
        flows = [(_spread(run, op, side.slot, within=within), factor) for side, factor in followed]
        return run.combine(op, [(flow, _times(flow, factor)) for flow, factor in flows])
    ((side, factor),) = followed
    other, other_factor = (right, times) if side is left else (left, 1.0)
    flow = _spread(run, op, side.slot, within=True)
    constant = None
    if flow.term is not None or op.call is not None:  # a bias absorbs its share in the stretch's denominator
        constant = flat_constant(other, run.values[op.outputs[0]]) * other_factor
    run.combine(op, [(flow, _times(flow, factor))], constant)


def weighed_together(run: Interpreter, op: Op, slots: Sequence[int]) -> bool:
    """Whether the added linear maps belong together, as one map of their inputs side by side."""
    return alike(run, op, slots) and all(run.shape(slot) == run.shape(op.outputs[0]) for slot in slots)  # type: ignore[arg-type]


def alike(run: Interpreter, op: Op, slots: Sequence[int]) -> bool:
    """Whether tensors are results of weights, all under one rule and none of them settled."""
    flows = [run.flow(slot) for slot in slots]
    return all(flow.weighted and flow.call == op.call and flow.rule == flows[0].rule for flow in flows)


def _multiple(run: Interpreter, op: Op, followed: Sequence[tuple[Ref, float]]) -> tuple[int, Any] | None:
    """The tensor of which a sum is a multiple, and the factor: x + s · x is (1 + s) · x, not two paths of x."""
    (left, first), (right, second) = followed
    ways = itertools.product(_multiples(run, op, left.slot), _multiples(run, op, right.slot))
    found = ((slot, first * s + second * t) for (slot, s), (other, t) in ways if slot == other)
    return next(((slot, s) for slot, s in found if run.shape(slot) == run.shape(op.outputs[0])), None)  # type: ignore[arg-type]


def _multiples(run: Interpreter, op: Op, slot: int) -> list[tuple[int, Any]]:
    """A tensor, once; and what it was made of by a constant factor, that many times."""
    made = run.made.get(slot)
    names = ("mul", "div", "neg")
    if made is None or made.word.name not in names or made.call != op.call or len(made.inputs) != 1 or made.kwargs:
        return [(slot, 1.0)]
    if slot in run.standing:
        return [(slot, 1.0)]
    if made.word.name == "neg":
        return [(slot, 1.0), (made.inputs[0], -1.0)]
    (inner, factor) = made.args if isinstance(made.args[0], Ref) else reversed(made.args)
    divided = made.word.name == "div"
    over = divided and (inner is not made.args[0] or not torch.as_tensor(factor).all())  # constant / x, or x / 0
    if isinstance(factor, Ref) or over:
        return [(slot, 1.0)]
    return [(slot, 1.0), (inner.slot, 1 / factor if divided else factor)]


def _times(flow: Flow, number: float) -> Coefficients:
    return SAME if number == 1 else scaled(flow.value.new_full((1, 1), number))


def _spread(run: Interpreter, op: Op, slot: int, *, within: bool) -> Flow:
    """A flow that is broadcast to the shape of the operation's output, if it has another."""
    flow = run.read(op, slot, within=within)
    assert op.outputs[0] is not None
    shape = run.shape(op.outputs[0])
    if run.shape(slot) == shape:
        return flow
    value = flat(run.values[slot].expand(shape))
    spread = Differential(torch.broadcast_to, (MOVING, tuple(shape)), {}, run.values[slot].detach(), 0, shape)
    if flow.term is None:
        return Flow(value, run.builder.emit([spread], [flow.slot]), gate=flow.gate)
    return Flow(
        value,
        term=Term(value, maps=[(flow.term, nonnegative_map(spread))]),
        rule=flow.rule,
        weighted=flow.weighted,
        gate=flow.gate,
    )


def flat_constant(other: Any, like: Tensor) -> Tensor:
    """A constant that broadcasts against a tensor, flattened like it: (K or 1, N or 1)."""
    if isinstance(other, (int, float)):
        return like.new_full((1, 1), other)
    constant = torch.as_tensor(other, dtype=like.dtype, device=like.device).detach()
    if constant.numel() == 1:
        return constant.reshape(1, 1)
    constant = constant.reshape((1,) * (like.dim() - constant.dim()) + constant.shape)
    if like.dim() == 2 and constant.shape[1] == like.shape[1]:
        return constant
    if like.dim() == 1:
        return constant.view(-1, 1)
    return constant.expand(-1, *like.shape[1:]).reshape(constant.shape[0], like.shape[1:].numel())


@handles(torch.mul)
def _mul(run: Interpreter, op: Op) -> None:
    left, right = _sides(op)
    if isinstance(left, Ref) and isinstance(right, Ref):
        return product(run, op)
    if op.outputs[0] is None or not (isinstance(left, Ref) or isinstance(right, Ref)):
        return gradient(run, op)
    ref, factor = (left, right) if isinstance(left, Ref) else (right, left)
    if isinstance(factor, Tensor) and gates_constant(run, op, ref.slot, factor):
        return run.hold(op)
    if isinstance(factor, Tensor) and factor.dim() and run.learned(factor) and op.outputs[0] not in run.standing:
        run.factors[op.outputs[0]] = ref.slot, factor
    scale(run, op, centred(run, op, ref.slot, factor) if isinstance(factor, Tensor) else ref.slot, factor)


@handles(torch.div)
def _div(run: Interpreter, op: Op) -> None:
    """A divisor that is followed is held constant, as a statistic."""
    left, right = _sides(op)
    if not isinstance(left, Ref):  # constant / x
        return pointwise(run, op)
    divisor = run.values[right.slot] if isinstance(right, Ref) else right
    divisor = torch.as_tensor(divisor, dtype=run.values[left.slot].dtype)
    slot = centred(run, op, left.slot, right) if isinstance(right, (Ref, Tensor)) else left.slot
    scale(run, op, slot, divide(torch.ones_like(divisor), divisor))


def scale(run: Interpreter, op: Op, slot: int, factor: Any) -> None:
    """A constant factor, part of the stretch inside a layer; a number, by which weights are multiplied, anywhere."""
    number = not isinstance(factor, Tensor) or factor.numel() == 1
    flow = _spread(run, op, slot, within=op.call is not None or (number and run.flow(slot).weighted))
    if not isinstance(factor, Tensor) and factor == 1:
        return run.write(op, flow)
    assert op.outputs[0] is not None
    factor = without_nan(factor) if isinstance(factor, Tensor) else factor
    coefficients = flat_constant(factor, run.values[op.outputs[0]])
    if run.lasting and isinstance(factor, Tensor):
        coefficients = coefficients.clone()  # it may be a weight, which training may change
    run.combine(op, [(flow, scaled(coefficients))])


def product(run: Interpreter, op: Op) -> None:
    """A product of two followed tensors: a factor that is a gate, or is broadcast over the other, is held constant.

    If neither is, each gets half of the relevance; several factors get equal shares.
    """
    refs = [a for a in op.args if isinstance(a, Ref)]
    if len(refs) < 2 or op.outputs[0] is None:
        return gradient(run, op)
    if len(refs) > 2:
        return in_equal_shares(run, op, torch.tensor(len(refs)))
    entrywise = op.word.name == "mul"
    flows, factors = [run.flow(ref.slot) for ref in refs], [run.values[ref.slot] for ref in refs]
    broadcasts = entrywise or _broadcasts(op, *factors)
    whole = run.values[op.outputs[0]].numel()
    ranks = [
        (f.gate if f.gate > SIGNED else 0, broadcasts and _extent(factor) < whole)
        for f, factor in zip(flows, factors, strict=True)
    ]
    moving = [0, 1] if ranks[0] == ranks[1] else [0 if ranks[1] > ranks[0] else 1]
    if len(moving) == 1 and flows[1 - moving[0]].gate <= flows[moving[0]].gate:
        run.remarks[_BROADCAST_GATE] = None
    if entrywise and len(moving) == 1:
        (ref,) = (refs[i] for i in moving)
        return scale(run, op, centred(run, op, ref.slot, refs[1 - moving[0]]), factors[1 - moving[0]])
    terms = []
    for i in moving:
        factor = without_nan(factors[1 - i].detach())
        if entrywise:
            flow = _spread(run, op, refs[i].slot, within=False)
            terms.append((flow, scaled(flat_constant(factor, run.values[op.outputs[0]]) / len(moving))))
        else:
            flow = run.read(op, refs[i].slot, within=op.call is not None and len(moving) == 1)
            terms.append((flow, _bilinear(run, op, i, factor, 1 / len(moving))))
    run.combine(op, terms)


def without_nan(factor: Tensor) -> Tensor:
    """A copy of a factor, 0 where it is NaN: attention over nothing passes nothing on, whatever takes its place."""
    return factor.nan_to_num(0.0, math.inf, -math.inf) if factor.is_floating_point() else factor.clone()


@handles(torch.prod)
def _product_along(run: Interpreter, op: Op) -> None:
    """The product of all entries, or of those along a dimension."""
    factors, products = (run.values[slot].numel() for slot in (op.inputs[0], op.outputs[0]))  # type: ignore[index]
    in_equal_shares(run, op, torch.tensor(factors // max(products, 1)))


def in_equal_shares(run: Interpreter, op: Op, count: Tensor) -> None:
    """A product of so many factors: each would get all of it by its gradient, and gets an equal share instead."""
    selection(run, op)
    slot = op.outputs[0]
    assert slot is not None
    value = run.value(slot)
    share = divide(torch.ones((), dtype=value.dtype), count.to(value)).expand(value.shape)
    run.flows[slot] = Flow(value, run.builder.emit([Scale(share)], [run.flows[slot].slot]), call=op.call)


def _broadcasts(op: Op, left: Tensor, right: Tensor) -> bool:
    """Whether one factor multiplies every entry of the other by one number, in einsum or a product of matrices."""
    args = (*op.args, *op.kwargs.values())
    pairs = ((left, right, True), (right, left, False))
    ways = [contraction(op.word.name, args, own.shape, other.shape, first) for own, other, first in pairs]
    return any(way is not None and way.entrywise for way in ways)


def _extent(factor: Tensor) -> int:
    """The number of entries, those that are the same memory counted once: what was expanded has no more than before."""
    return math.prod(size for size, stride in zip(factor.shape, factor.stride(), strict=True) if stride or size == 0)


def _bilinear(run: Interpreter, op: Op, moving: int, factor: Tensor, share: float) -> Coefficients:
    """A product of matrices as a map of one of the two, the other one its coefficients."""
    places = [place for place, a in enumerate(op.args) if isinstance(a, Ref)]
    at = run.values[op.args[places[moving]].slot].detach()
    shape = run.shape(op.outputs[0])  # type: ignore[arg-type]

    def make(coefficients: Tensor) -> Differential:
        args = list(op.args)
        args[places[moving]], args[places[1 - moving]] = MOVING, coefficients
        return Differential(op.func, tuple(args), op.kwargs, at, 0, shape)

    return Coefficients(make=make, tensor=factor * share)
