"""Normalisations: their statistics are held constant."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.rules import divide
from walkwise.tracing import composites, recurrent, selections  # noqa: F401  (they fill the table of functions, too)
from walkwise.tracing.activations import SQUASHED, rescaled
from walkwise.tracing.arithmetic import scale as multiplied
from walkwise.tracing.expressions import scaled
from walkwise.tracing.interpreter import Interpreter, gradient
from walkwise.tracing.recorded import Op, Ref
from walkwise.tracing.words import handles


def _alone(op: Op) -> bool:
    """Whether just the first argument is followed."""
    return len(op.inputs) == 1 and op.outputs[0] is not None and bool(op.args) and isinstance(op.args[0], Ref)


def _given(op: Op, *names: str) -> dict[str, Any]:
    """The arguments after the first, by name."""
    return dict(zip(names, op.args[1:], strict=False)) | op.kwargs


@handles(torch.softmax, F.softmin, F.gumbel_softmax)
def _softmax(run: Interpreter, op: Op) -> None:
    """As an output, the logit scaled; in a product, a gate."""
    if not _alone(op):
        return gradient(run, op)
    assert op.outputs[0] is not None
    rescaled(run, op, divide(run.value(op.outputs[0]), run.value(op.inputs[0])), gate=2)
    if op.call is None:
        run.squashes.append((SQUASHED.format("softmax"), run.flows[op.outputs[0]].slot))


@handles(torch.log_softmax)
def _log_softmax(run: Interpreter, op: Op) -> None:
    """The logit; the normaliser is a statistic and held constant."""
    if not _alone(op):
        return gradient(run, op)
    run.remarks["log_softmax's normaliser is held constant, so that the logit is explained"] = None
    rescaled(run, op, torch.ones_like(run.value(op.inputs[0])))


@handles(F.layer_norm)
def _layer_norm(run: Interpreter, op: Op) -> None:
    """Mean and variance are held constant."""
    given = _given(op, "normalized_shape", "weight", "bias", "eps")
    if not _alone(op):
        return gradient(run, op)
    z, weight = run.values[op.inputs[0]], given.get("weight")
    dims = tuple(range(-len(given["normalized_shape"]), 0))
    scale = (z.var(dims, unbiased=False, keepdim=True) + given.get("eps", 1e-5)).rsqrt().expand(z.shape)
    rescaled(run, op, scale if weight is None else scale * weight.detach())


@handles(F.rms_norm)
def _rms_norm(run: Interpreter, op: Op) -> None:
    """The mean square is held constant."""
    given = _given(op, "normalized_shape", "weight", "eps")
    if not _alone(op):
        return gradient(run, op)
    z, weight, eps = run.values[op.inputs[0]], given.get("weight"), given.get("eps")
    dims = tuple(range(-len(given["normalized_shape"]), 0))
    eps = torch.finfo(z.dtype).eps if eps is None else eps
    scale = (z.square().mean(dims, keepdim=True) + eps).rsqrt().expand(z.shape)
    rescaled(run, op, scale if weight is None else scale * weight.detach())


@handles(F.group_norm)
def _group_norm(run: Interpreter, op: Op) -> None:
    """Mean and variance of every group of channels are held constant."""
    given = _given(op, "num_groups", "weight", "bias", "eps")
    if not _alone(op):
        return gradient(run, op)
    z, groups = run.values[op.inputs[0]], given["num_groups"]
    grouped = z.reshape(z.shape[0], groups, -1)
    scale = (grouped.var(-1, unbiased=False, keepdim=True) + given.get("eps", 1e-5)).rsqrt().expand_as(grouped)
    rescaled(run, op, _per_channel(scale.reshape(z.shape), given.get("weight")))


@handles(F.instance_norm)
def _instance_norm(run: Interpreter, op: Op) -> None:
    """Mean and variance of every instance (or the running ones) are held constant."""
    given = _given(op, "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps")
    if not _alone(op):
        return gradient(run, op)
    z, eps = run.values[op.inputs[0]], given["eps"]
    if given["use_input_stats"]:
        dims = tuple(range(2, z.dim()))
        scale = (z.var(dims, unbiased=False, keepdim=True) + eps).rsqrt().expand(z.shape)
    else:
        scale = _per_channel(torch.ones_like(z), (given["running_var"] + eps).rsqrt())
    rescaled(run, op, _per_channel(scale, given.get("weight")))


def _per_channel(scale: Tensor, weight: Tensor | None) -> Tensor:
    """The scale times one weight per channel, the second dimension."""
    return scale if weight is None else scale * weight.detach().view(1, -1, *[1] * (scale.dim() - 2))


@handles(F.normalize)
def _normalize(run: Interpreter, op: Op) -> None:
    """The norm is held constant, as where one divides by it."""
    given = _given(op, "p", "dim", "eps")
    if not _alone(op):
        return gradient(run, op)
    norm = run.values[op.inputs[0]].norm(given["p"], given["dim"], keepdim=True)
    multiplied(run, op, op.inputs[0], norm.clamp(min=given["eps"]).reciprocal())


@handles(F.batch_norm)
def _batch_norm(run: Interpreter, op: Op) -> None:
    """In evaluation an affine map per neuron, folded into the linear map before it."""
    given = _given(op, "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    mean, var, weight, bias = (given.get(name) for name in ("running_mean", "running_var", "weight", "bias"))
    eps, z = given["eps"], run.values[op.inputs[0]]
    if not _alone(op):
        return gradient(run, op)
    if mean is None or given["training"]:  # batch statistics: held constant
        dims = (0, *range(2, z.dim()))
        scale = (z.var(dims, unbiased=False, keepdim=True) + eps).rsqrt().expand(z.shape)
        return rescaled(run, op, _per_channel(scale, weight))
    scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
    shift = -mean * scale if bias is None else bias - mean * scale
    flow = run.read(op, op.inputs[0], within=True)
    columns = flow.value.shape[1] // scale.numel()  # entries per channel
    factor, constant = (t.detach().repeat_interleave(columns).view(1, -1) for t in (scale, shift))
    run.combine(op, [(flow, scaled(factor, folds=True))], constant)
