"""Operations that pick values: what is picked gets all the relevance, and equal values share it.

Which of several equal values torch picks depends on their order, and so on the numbers of the nodes. Here each gets
the same share, so that other numbers for the nodes give the same relevance under other numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.core.operators import MOVING, Differential, Scale, Scatter
from walkwise.tracing.composites import Written
from walkwise.tracing.interpreter import Interpreter, gradient, selection, structural
from walkwise.tracing.moves import row_scatter
from walkwise.tracing.stretch import Flow
from walkwise.tracing.tape import Op, Ref
from walkwise.tracing.words import handles, named

_EXTREMES = {"max": torch.amax, "min": torch.amin}


@handles(torch.max, torch.min)
def _extreme(run: Interpreter, op: Op) -> None:
    """The largest along a dimension, the larger of two, or the largest of all; torch shares out the last two."""
    given = dict(zip(("dim", "keepdim"), op.args[1:], strict=False)) | op.kwargs
    dim = given.get("dim", given.get("axis"))
    if len(op.inputs) > 1 or not isinstance(dim, int):
        return selection(run, op)
    func, keepdim = _EXTREMES[op.word.name], bool(given.get("keepdim", False))
    selection(run, replace(op, func=func, args=(op.args[0], dim, keepdim), kwargs={}, outputs=op.outputs[:1]))


@handles(torch.fmax, torch.fmin)
def _extreme_of_two(run: Interpreter, op: Op) -> None:
    """As maximum and minimum, which share out what is equal, where all are numbers."""
    numbers = not any(bool(run.values[slot].isnan().any()) for slot in op.inputs)
    selection(run, replace(op, func=torch.maximum if op.word.name == "fmax" else torch.minimum) if numbers else op)


@handles(torch.scatter_reduce, torch.index_reduce, torch.segment_reduce)
def _scatter_reduce(run: Interpreter, op: Op) -> None:
    """Sums and means move entries; maxima and minima select; products are not told apart."""
    reduce = op.kwargs.get("reduce", next((a for a in op.args if isinstance(a, str)), None))
    if reduce in ("sum", "mean"):
        return structural(run, op)
    if reduce == "prod":
        return gradient(run, op)
    found = row_scatter(run, op) if op.kwargs.get("include_self") is False else None
    if found is not None:
        return _winners(run, op, *found)
    selection(run, _without_itself(op, -torch.inf if reduce in ("amax", "max") else torch.inf))


def _winners(run: Interpreter, op: Op, slot: int, scatter: Scatter) -> None:
    """The largest or smallest of the rows that come to each place, neuron by neuron; those that tie share."""
    assert op.outputs[0] is not None
    value, given = run.value(op.outputs[0]), run.value(slot)
    won = (given == value.index_select(0, scatter.index)).to(value.dtype)  # (E, N)
    shares = won / scatter.push(won).index_select(0, scatter.index)
    flow = run.read(op, slot)
    picked = run.builder.emit([Scale(shares)], [flow.slot])
    run.flows[op.outputs[0]] = Flow(value, run.builder.emit([scatter], [picked]), call=op.call)


def _without_itself(op: Op, last: float) -> Op:
    """The operation with a first argument that loses against everything, where it does not count anyway."""
    if op.kwargs.get("include_self", True) or not isinstance(op.args[0], Tensor):
        return op
    return replace(op, args=(torch.full_like(op.args[0], last), *op.args[1:]))


@handles(torch.sort, torch.topk, torch.kthvalue, torch.median, torch.nanmedian, torch.cummax, torch.cummin)
def _ranked(run: Interpreter, op: Op) -> None:
    """Picked by rank along a dimension: equal values are evened out before."""
    names = ("k", "dim") if op.word.name in ("topk", "kthvalue") else ("dim",)
    given = dict(zip(names, op.args[1:], strict=False)) | op.kwargs
    whole = op.word.name in ("median", "nanmedian")
    _evened_before(run, op, given.get("dim", None if whole else -1))


@handles(torch.msort)
def _sorted_rows(run: Interpreter, op: Op) -> None:
    _evened_before(run, op, 0)


@handles(torch.quantile, torch.nanquantile)
def _quantile(run: Interpreter, op: Op) -> None:
    given = dict(zip(("q", "dim"), op.args[1:], strict=False)) | op.kwargs
    _evened_before(run, op, given.get("dim"))


def _evened_before(run: Interpreter, op: Op, dim: int | None) -> None:
    """Select from the values as they are, each the mean of those that are equal to it along a dimension."""
    (slot,) = op.inputs if len(op.inputs) == 1 else (None,)
    if slot is None or not isinstance(dim, (int, type(None))) or not isinstance(op.args[0], Ref):
        return selection(run, op)
    value, flow = run.values[slot].detach(), run.read(op, slot)
    if value.dim() == 0 or not _has_ties(value, dim):
        return selection(run, op)
    even = Differential(evened, (MOVING, value.clone(), dim), {}, value, 0, value.shape)
    kept = run.flows[slot]
    run.flows[slot] = replace(flow, slot=run.builder.emit([even], [flow.slot]))
    selection(run, op)
    run.flows[slot] = kept


def _has_ties(value: Tensor, dim: int | None) -> bool:
    value, dim = (value.flatten(), 0) if dim is None else (value, dim)
    ordered = value.sort(dim).values
    size = value.shape[dim]
    return size > 1 and bool((ordered.narrow(dim, 1, size - 1) == ordered.narrow(dim, 0, size - 1)).any())


def evened(values: Tensor, like: Tensor, dim: int | None) -> Tensor:
    """The values, each the mean of those in places where ``like`` is equal along a dimension.

    >>> evened(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([5.0, 5.0, 7.0]), 0)
    tensor([2., 2., 9.])
    """
    if dim is None:
        return evened(values.flatten(), like.flatten(), 0).view_as(values)
    ordered, order = like.sort(dim)
    new = torch.zeros_like(order)
    rest = like.shape[dim] - 1
    new.narrow(dim, 1, rest).copy_(ordered.narrow(dim, 1, rest) != ordered.narrow(dim, 0, rest))
    group = torch.zeros_like(order).scatter(dim, order, new.cumsum(dim))  # which of the different values it is
    total = torch.zeros_like(values).scatter_add(dim, group, values)
    count = torch.zeros_like(values).scatter_add(dim, group, torch.ones_like(values))
    return (total / count.clamp(min=1)).gather(dim, group)


@handles(torch.max_pool1d)
def _max_pool(run: Interpreter, op: Op) -> None:
    """The largest in every window; equal ones share where the windows are plain."""
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    given: dict[str, Any] = dict(zip(names, op.args[1:], strict=False)) | op.kwargs
    unusual = [
        given.get("padding", 0),
        given.get("dilation", 1) != 1,
        given.get("ceil_mode"),
        given.get("return_indices"),
    ]
    kernel, stride = given["kernel_size"], given.get("stride")
    if any(unusual) or not isinstance(kernel, int) or not isinstance(op.args[0], Ref):
        return selection(run, op)
    w = Written(run, op)
    w.end(w(torch.amax, w(Tensor.unfold, op.args[0], -1, kernel, stride or kernel), -1))


@handles(F.adaptive_max_pool1d)
def _adaptive_max_pool(run: Interpreter, op: Op) -> None:
    """The largest in every window; equal ones share where there is just one window."""
    size = op.args[1] if len(op.args) > 1 else op.kwargs.get("output_size")
    if size not in (1, (1,), [1]) or len(op.outputs) > 1 or not isinstance(op.args[0], Ref):
        return selection(run, op)
    selection(run, replace(op, func=torch.amax, args=(op.args[0], -1, True), kwargs={}))


for _func in named(
    "amax", "amin", "maximum", "minimum", "mode", "aminmax", "max_pool2d", "max_pool3d", "max_pool1d_with_indices",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "fractional_max_pool2d", "fractional_max_pool3d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices",
):  # fmt: skip
    handles(_func)(selection)
