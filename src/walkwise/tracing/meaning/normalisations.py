"""Normalisations: their statistics are held constant."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.rules import divide
from walkwise.tracing.meaning import (
    recurrent,  # noqa: F401  (they fill the table of functions, too)
    selections,  # noqa: F401  (they fill the table of functions, too)
)
from walkwise.tracing.meaning.activations import GATES, SQUASHED, rescaled
from walkwise.tracing.meaning.arithmetic import scale as multiplied
from walkwise.tracing.meaning.composites import Written, written_out
from walkwise.tracing.meaning.interpreter import Interpreter, gradient
from walkwise.tracing.recording.recorded import Op, Ref, references
from walkwise.tracing.recording.words import Handler, handles
from walkwise.tracing.stretches.expressions import scaled

_LOGIT = "remove the softmax from forward, or write log_softmax instead"


def _of_one(handler: Handler) -> Handler:
    """The handler where just an operation's first argument is followed; for others, the plain gradient."""

    @functools.wraps(handler)
    def handled(run: Interpreter, op: Op) -> None:
        first = bool(op.args) and isinstance(op.args[0], Ref)
        alone = first and len([*references(op)]) == 1 and op.outputs[0] is not None
        handler(run, op) if alone else gradient(run, op)

    return handled


@handles(torch.softmax, F.softmin, F.gumbel_softmax)
@_of_one
def _softmax(run: Interpreter, op: Op) -> None:
    """As an output, the logit scaled; in a product, a gate."""
    assert op.outputs[0] is not None
    rescaled(run, op, divide(run.value(op.outputs[0]), run.value(op.inputs[0])), gate=GATES["softmax"])
    if op.call is None:
        run.squashes.append((SQUASHED.format("softmax", _LOGIT), run.flows[op.outputs[0]].slot))


@handles(torch.log_softmax)
@_of_one
def _log_softmax(run: Interpreter, op: Op) -> None:
    """The logit; the normaliser is a statistic and held constant."""
    run.remarks["log_softmax's normaliser is held constant, so the logit is explained"] = None
    rescaled(run, op, torch.ones_like(run.value(op.inputs[0])))


def _statistics(z: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """The mean over dimensions, and one over the spread."""
    return z.mean(dims, keepdim=True), (z.var(dims, unbiased=False, keepdim=True) + eps).rsqrt()


def _standard(w: Written, given: Any, mean: Any, scale: Tensor, weight: Any = None, bias: Any = None) -> Any:
    """(given − mean) · scale · weight + bias, as it would be written by hand with mean and scale held constant."""
    made = given if mean is None else w(torch.sub, given, mean)
    made = w(torch.mul, made, scale)
    made = made if weight is None else w(torch.mul, made, weight)
    return made if bias is None else w(torch.add, made, bias)


@handles(F.layer_norm)
@_of_one
@written_out
def _layer_norm(
    w: Written, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    """Mean and variance are held constant."""
    dims = tuple(range(-len(normalized_shape), 0))
    return _standard(w, input, *_statistics(w.value(input), dims, eps), weight, bias)


@handles(F.rms_norm)
@_of_one
@written_out
def _rms_norm(w: Written, input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """The mean square is held constant."""
    z, dims = w.value(input), tuple(range(-len(normalized_shape), 0))
    eps = torch.finfo(z.dtype).eps if eps is None else eps
    return _standard(w, input, None, (z.square().mean(dims, keepdim=True) + eps).rsqrt(), weight)


@handles(F.group_norm)
@_of_one
@written_out
def _group_norm(
    w: Written, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    """Mean and variance of every group of channels are held constant."""
    z = w.value(input)
    grouped = z.reshape(z.shape[0], num_groups, -1)
    mean, scale = (t.expand_as(grouped).reshape(z.shape) for t in _statistics(grouped, (-1,), eps))
    return _standard(w, input, mean, scale, _per_channel(z, weight), _per_channel(z, bias))


@handles(F.instance_norm)
@_of_one
@written_out
def _instance_norm(
    w: Written, input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    """Mean and variance of every instance (or the running ones) are held constant."""
    z = w.value(input)
    if use_input_stats:
        mean, scale = _statistics(z, tuple(range(2, z.dim())), eps)
    else:
        mean, scale = _per_channel(z, running_mean), _per_channel(z, (running_var + eps).rsqrt())
    return _standard(w, input, mean, scale, _per_channel(z, weight), _per_channel(z, bias))


def _per_channel(z: Tensor, numbers: Any) -> Any:
    """One number for every channel, the second dimension; nothing where there is none."""
    return None if numbers is None else numbers.view(1, -1, *[1] * (z.dim() - 2))


@handles(F.normalize)
@_of_one
def _normalize(run: Interpreter, op: Op) -> None:
    """The norm is held constant, as where one divides by it."""
    given = op.given("p", "dim", "eps")
    norm = run.values[op.inputs[0]].norm(given["p"], given["dim"], keepdim=True)
    multiplied(run, op, op.inputs[0], norm.clamp(min=given["eps"]).reciprocal())


@handles(F.batch_norm)
@_of_one
def _batch_norm(run: Interpreter, op: Op) -> None:
    """In evaluation an affine map per neuron, folded into the linear map before it."""
    given = op.given("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    mean, var, weight, bias = (given.get(name) for name in ("running_mean", "running_var", "weight", "bias"))
    eps, z = given["eps"], run.values[op.inputs[0]]
    if mean is None or given["training"]:  # batch statistics: held constant
        w = Written(run, op)
        statistics = _statistics(z, (0, *range(2, z.dim())), eps)
        return w.end(_standard(w, op.args[0], *statistics, _per_channel(z, weight), _per_channel(z, bias)))
    scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
    shift = -mean * scale if bias is None else bias - mean * scale
    flow = run.read(op, op.inputs[0], within=True)
    columns = flow.value.shape[1] // scale.numel()  # entries per channel
    factor, constant = (t.detach().repeat_interleave(columns).view(1, -1) for t in (scale, shift))
    run.combine(op, [(flow, scaled(factor, folds=True))], constant)
