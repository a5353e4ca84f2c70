"""Functions of single entries: h = z · [h / z], the bracket held constant."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.core.operators import Scale
from walkwise.tracing.meaning.entrywise import held_ratio
from walkwise.tracing.meaning.interpreter import Interpreter, gradient
from walkwise.tracing.recording.recorded import Op, Ref, references
from walkwise.tracing.recording.words import handles

SQUASHED = "{} as h = z · [h / z] flips the sign of relevance where z < 0; if it is the output, explain the logit: {}"
_LOGIT = "target=lambda output: output.logit()[i, c] for row i and column c, or remove the sigmoid from forward"

#: How much a factor looks like a gate: in a product the higher one is held constant.
GATES = {"softmax": 2, "exp": 2, "sigmoid": 2, "hardsigmoid": 2, "tanh": 1}
#: What may be negative is features as often as not (what a recurrent cell returns): a gate where it is broadcast alone.
SIGNED = 1
#: A factor that divides, 1 / y, is held constant before any gate, as in x / y.
_DIVISOR = 3

#: What stays a gate if it was one: what bounds it, and the roots and reciprocals that normalise an assignment.
_KEEPING_GATES = frozenset({
    "clamp", "hardtanh", "relu6", "threshold", "pow", "sqrt", "rsqrt", "reciprocal", "rdiv", "div", "square", "abs",
})  # fmt: skip


@handles(torch.relu)
def _relu(run: Interpreter, op: Op) -> None:
    """ReLU needs no rule: h / z is its derivative."""
    output = op.outputs[0]
    assert output is not None
    before = run.flow(op.inputs[0])
    flow = run.builder.activated(before, run.value(output), _is_positive, rectifies=True)
    flow.call, flow.gate = op.call, before.gate
    run.flows[output] = flow


@handles(
    F.leaky_relu, F.prelu, F.rrelu, F.elu, F.celu, F.selu, F.gelu, F.silu, F.mish, torch.tanh, F.relu6, F.hardtanh,
    F.hardswish, F.softsign, F.tanhshrink, F.hardshrink, F.softshrink, F.threshold, torch.clamp, torch.abs,
    torch.square, torch.sqrt, torch.pow, torch.sin, torch.expm1, torch.log1p, torch.erf, torch.atan, torch.sigmoid,
    F.hardsigmoid, F.logsigmoid, F.softplus, torch.exp, torch.log, torch.cos, torch.reciprocal, torch.rsqrt,
    Tensor.__rdiv__, Tensor.__rpow__, torch.exp2, torch.log2, torch.log10, torch.sinh, torch.asinh, torch.tan,
    torch.logit, torch.asin, torch.acos, torch.acosh, torch.atanh, torch.cosh, torch.erfc, torch.erfinv,
    torch.deg2rad, torch.rad2deg, torch.sinc, torch.lgamma, torch.digamma, torch.float_power, torch.special.ndtr,
    torch.special.log_ndtr,
)  # fmt: skip
def pointwise(run: Interpreter, op: Op) -> None:
    """Any other function of single entries."""
    refs = list(references(op))
    output = op.outputs[0]
    if len(refs) != 1 or output is None or run.shape(output) != run.shape(refs[0].slot):
        return gradient(run, op)
    flow, value, shape = run.flow(refs[0].slot), run.value(output), run.shape(refs[0].slot)

    def image(z: Tensor) -> Tensor:
        return op.run(lambda _: z.view(shape))[0].reshape(z.shape)  # type: ignore[no-any-return]

    made = run.builder.activated(flow, value, lambda z: held_ratio(value, z, image))
    kept = flow.gate if op.word.name in _KEEPING_GATES else 0
    made.call, made.gate = op.call, max(GATES.get(op.word.name, 0), kept) or _DIVISOR * divides(op)
    run.flows[output] = made
    if op.word.name == "sigmoid" and op.call is None:
        run.squashes.append((SQUASHED.format("sigmoid", _LOGIT), made.slot))
    if op.word.name == "logit":  # undoes a sigmoid: [h / z] and its inverse
        run.squashes = [(note, slot) for note, slot in run.squashes if slot != flow.slot]


def divides(op: Op) -> bool:
    """Whether a function is one over something: a reciprocal, or a negative power."""
    if op.word.name in ("pow", "float_power"):
        power = op.given("exponent").get("exponent")
        return isinstance(power, (int, float)) and power < 0
    over = op.word.name == "div" and not isinstance(op.args[0], Ref)
    return over or op.word.name in ("reciprocal", "rsqrt", "rdiv")


for _handler in (_relu, pointwise):
    _handler.pointwise = True  # type: ignore[attr-defined]


def _is_positive(z: Tensor) -> Tensor:
    return (z > 0).to(z.dtype)


def rescaled(run: Interpreter, op: Op, factor: Tensor, gate: int = 0) -> None:
    """h = factor ⊙ z + constant, entry by entry, the factor held constant."""
    flow = run.read(op, op.inputs[0])
    assert op.outputs[0] is not None
    run.settled(op, run.value(op.outputs[0]), [(flow, Scale(factor.detach().reshape(flow.value.shape)))], gate=gate)
