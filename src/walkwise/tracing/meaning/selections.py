"""Operations that select values: the selected value gets all the relevance, and equal values share it.

Which of several equal values torch picks depends on their order, and so on node numbers. Here each gets the same share,
so that renumbering the nodes only renumbers their relevance. Values count as equal up to rounding, since equal nodes
may sum the same numbers in another order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from walkwise.core.differential import MOVING, Differential
from walkwise.core.operators import Scale
from walkwise.core.row_maps import Scatter
from walkwise.core.rows import AllNodes
from walkwise.rules import divide
from walkwise.tracing.meaning.interpreter import Interpreter, gradient, selection, structural
from walkwise.tracing.meaning.moves import reduction, row_scatter, segments
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.recording.words import handles, named
from walkwise.tracing.stretches.stretch import Flow

_EXTREMES = {"max": torch.amax, "min": torch.amin}
#: Values are equal if they differ by so many units of rounding; those of float64 are so small that sums which nearly
#: cancel are forgiven more of them.
_UNITS = {torch.float32: 32, torch.float64: 1024}


def _equal(values: Tensor, others: Tensor) -> Tensor:
    """Where values are equal up to rounding."""
    units = _UNITS.get(values.dtype, _UNITS[torch.float32])
    return (values - others).abs() <= units * torch.finfo(values.dtype).eps * others.abs()


def _picked(run: Interpreter, op: Op, slot: int, best: Tensor) -> None:
    """Select, with all values that equal the best up to rounding in its place."""
    kept = run.values
    value = kept[slot].detach()
    run.values = [*kept[:slot], torch.where(_equal(value, best), best, value), *kept[slot + 1 :]]
    selection(run, op)
    run.values = kept


@handles(torch.max, torch.min, torch.amax, torch.amin)
def _extreme(run: Interpreter, op: Op) -> None:
    """The largest along some dimensions, the larger of two, or the largest of all, which torch shares out."""
    given = op.given("dim", "keepdim")
    dim, func = given.get("dim", given.get("axis", ())), _EXTREMES[op.word.name[-3:]]
    if isinstance(dim, (Tensor, Ref)):
        return _extreme_of_two(run, op)
    if op.word.name in _EXTREMES:  # max and min return the places, too
        if not isinstance(dim, int):
            return selection(run, op)
        args = op.args[0], dim, bool(given.get("keepdim", False))
        op = replace(op, func=func, args=args, kwargs={}, outputs=op.outputs[:1])
    _picked(run, op, op.inputs[0], func(run.values[op.inputs[0]].detach(), dim, True))


@handles(torch.maximum, torch.minimum, torch.fmax, torch.fmin)
def _extreme_of_two(run: Interpreter, op: Op) -> None:
    """The larger of two; maximum and minimum share out what is equal, where all are numbers."""
    numbers = not any(bool(run.values[slot].isnan().any()) for slot in op.inputs)
    if not numbers:
        return selection(run, op)
    op = replace(op, func=torch.maximum if op.word.name in ("max", "maximum", "fmax") else torch.minimum)
    first, second = (run.shape(slot) for slot in (op.inputs[0], op.inputs[-1]))
    if len(op.inputs) == 1 or first != second:
        return selection(run, op)
    _picked(run, op, op.inputs[1], run.values[op.inputs[0]].detach())


@handles(torch.scatter_reduce, torch.index_reduce, torch.segment_reduce)
def _scatter_reduce(run: Interpreter, op: Op) -> None:
    """Sums and means move entries; maxima and minima select; the factors of a product get equal shares."""
    reduce = reduction(op)
    if reduce in ("sum", "mean"):
        return segments(run, op, reduce) if op.word.name == "segment_reduce" else structural(run, op)
    if reduce == "prod":
        by_row = row_scatter(run, op)
        return gradient(run, op) if by_row is None else _multiplied(run, op, *by_row)
    found = row_scatter(run, op) if op.kwargs.get("include_self") is False else None
    if found is not None:
        return _winners(run, op, *found)
    op = _without_itself(op, -torch.inf if reduce in ("amax", "max") else torch.inf)
    if op.word.name == "segment_reduce" or len(op.inputs) > 1 or len(op.args) < 4 or not isinstance(op.args[3], Ref):
        return selection(run, op)
    dim, index = op.args[1:3]
    best: Tensor = op.run(lambda slot: run.values[slot])[0].detach()
    best = best.gather(dim, index) if op.word.name == "scatter_reduce" else best.index_select(dim, index)
    _picked(run, op, op.args[3].slot, best)


def _winners(run: Interpreter, op: Op, slot: int, scatter: Scatter) -> None:
    """The largest or smallest of the rows that come to each place, neuron by neuron; those that tie share."""
    assert op.outputs[0] is not None
    value, flow = run.value(op.outputs[0]), run.read(op, slot)
    picked = run.builder.emit([Scale(shares(run.value(slot), value, scatter))], [flow.slot])
    run.flows[op.outputs[0]] = Flow(value, run.builder.emit([scatter], [picked]), call=op.call, gate=flow.gate)


def _multiplied(run: Interpreter, op: Op, slot: int, scatter: Scatter) -> None:
    """The product of the rows that come to each place, in equal shares; each row's gradient is that of the others."""
    assert op.outputs[0] is not None
    value, flow = run.value(op.outputs[0]), run.read(op, slot)
    others = run.derivative(op, slot).pull(torch.ones_like(value)[:, None, None], AllNodes(len(value), 1))[:, 0, 0]
    count = scatter.push(torch.ones_like(others[:, :1])).index_select(0, scatter.index)
    shared = run.builder.emit([Scale(others / count)], [flow.slot])
    run.flows[op.outputs[0]] = Flow(value, run.builder.emit([scatter], [shared]), call=op.call)


def shares(given: Tensor, picked: Tensor, scatter: Scatter) -> Tensor:
    """Every row's share of the value selected at its place: all of it, or as much as other equal rows."""
    won = _equal(given, picked.index_select(0, scatter.index)).to(picked.dtype)  # (E, N)
    return divide(won, scatter.push(won).index_select(0, scatter.index))


def _without_itself(op: Op, last: float) -> Op:
    """The operation with a first argument that loses against everything, if it does not count anyway."""
    if op.kwargs.get("include_self", True) or not isinstance(op.args[0], Tensor):
        return op
    return replace(op, args=(torch.full_like(op.args[0], last), *op.args[1:]))


@handles(torch.sort, torch.topk, torch.kthvalue, torch.median, torch.nanmedian, torch.cummax, torch.cummin)
def _ranked(run: Interpreter, op: Op) -> None:
    """Selected by rank along a dimension, after evening out equal values."""
    given = op.given("k", "dim") if op.word.name in ("topk", "kthvalue") else op.given("dim")
    whole = op.word.name in ("median", "nanmedian")
    _evened_before(run, op, given.get("dim", None if whole else -1))


@handles(torch.msort)
def _sorted_rows(run: Interpreter, op: Op) -> None:
    _evened_before(run, op, 0)


@handles(torch.quantile, torch.nanquantile)
def _quantile(run: Interpreter, op: Op) -> None:
    _evened_before(run, op, op.given("q", "dim").get("dim"))


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
    return size > 1 and bool(_equal(ordered.narrow(dim, 1, size - 1), ordered.narrow(dim, 0, size - 1)).any())


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
    new.narrow(dim, 1, rest).copy_(~_equal(ordered.narrow(dim, 1, rest), ordered.narrow(dim, 0, rest)))
    group = torch.zeros_like(order).scatter(dim, order, new.cumsum(dim))  # which of the different values it is
    each = torch.ones_like(like)
    share = divide(each, torch.zeros_like(like).scatter_add(dim, group, each).gather(dim, group))
    return torch.zeros_like(values).scatter_add(dim, group, values * share).gather(dim, group)


_POOLS = ("max_pool1d", "max_pool2d", "max_pool3d")
_WINDOWS = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


@handles(torch.max_pool1d, torch.max_pool2d, torch.max_pool3d, *named(*(f"{name}_with_indices" for name in _POOLS)))
def _max_pool(run: Interpreter, op: Op) -> None:
    """The largest in every window, without padding."""
    given = op.given(*_WINDOWS)
    lengths = _lengths(op.word.name, run.shape(op.inputs[0]))
    kernel = _each(given["kernel_size"], lengths)
    stride, padding = _each(given.get("stride") or kernel, lengths), _each(given.get("padding", 0), lengths)
    dilation, beyond = _each(given.get("dilation", 1), lengths), bool(given.get("ceil_mode"))
    sizes = zip(lengths, kernel, stride, padding, dilation, strict=True)
    _pooled(run, op, [_windows(*each, beyond) for each in sizes])


_ADAPTIVE = tuple(f"adaptive_{name}" for name in _POOLS)


@handles(*named(*_ADAPTIVE, *(f"{name}_with_indices" for name in _ADAPTIVE)))
def _adaptive_max_pool(run: Interpreter, op: Op) -> None:
    """The largest in every one of so many windows."""
    lengths = _lengths(op.word.name, run.shape(op.inputs[0]))
    sizes = _each(op.given("output_size")["output_size"], lengths)
    _pooled(run, op, [_parts(length, size or length) for length, size in zip(lengths, sizes, strict=True)])


def _lengths(name: str, shape: torch.Size) -> tuple[int, ...]:
    """The sizes of the dimensions that are pooled."""
    return tuple(shape[-int(name.partition("max_pool")[2][0]) :])


def _each(given: Any, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """A number for every dimension that is pooled."""
    numbers = (given,) if isinstance(given, int) or given is None else tuple(given)
    return numbers * len(lengths) if len(numbers) == 1 else numbers


def _windows(length: int, kernel: int, stride: int, padding: int, dilation: int, beyond: bool) -> Tensor:
    """Which entries are in every window, -1 for what is padded.  # (windows, kernel)"""
    span = dilation * (kernel - 1) + 1
    room = length + 2 * padding - span
    count = -(-room // stride) + 1 if beyond else room // stride + 1
    count -= beyond and (count - 1) * stride >= length + padding  # a window does not begin in the padding at the end
    table = torch.arange(count)[:, None] * stride + torch.arange(kernel) * dilation - padding
    return table.where((table >= 0) & (table < length), -1)


def _parts(length: int, count: int) -> Tensor:
    """Which entries are in every one of so many windows of about the same size, -1 where there are no more."""
    starts = torch.arange(count) * length // count
    ends = -(-(torch.arange(1, count + 1) * length) // count)
    table = starts[:, None] + torch.arange(int((ends - starts).max()))
    return table.where(table < ends[:, None], -1)


def _pooled(run: Interpreter, op: Op, tables: list[Tensor]) -> None:
    """The mean of what is largest in every window."""
    if not isinstance(op.args[0], Ref) or op.outputs[0] is None:
        return selection(run, op)
    value = run.values[op.args[0].slot].detach()
    op = replace(op, func=shared, args=(op.args[0], value.clone(), tables), kwargs={}, outputs=op.outputs[:1])
    selection(run, op)


def shared(values: Tensor, like: Tensor, tables: list[Tensor]) -> Tensor:
    """The mean, in every window, of the values in places where ``like`` is largest; 0 where all is padded.

    Args:
        values: the values to pool, along their last dimensions.
        like: the values that decide.
        tables: for each of these dimensions, which entries are in every window; -1 is none.

    >>> shared(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([5.0, 5.0, 4.0]), [torch.tensor([[-1, 0, 1], [0, 1, 2]])])
    tensor([2., 2.])
    """
    first, count = values.dim() - len(tables), len(tables)
    for place, table in enumerate(tables):
        dim, flat = first + 2 * place, table.clamp(min=0).flatten().to(values.device)
        shape = (*values.shape[:dim], *table.shape, *values.shape[dim + 1 :])
        values, like = (t.index_select(dim, flat).reshape(shape) for t in (values, like))
        outside = (table < 0).view(*table.shape, *[1] * (like.dim() - dim - 2)).to(values.device)
        like = like.masked_fill(outside, -torch.inf)
    inside = tuple(first + 2 * place + 1 for place in range(count))
    picked = _equal(like, like.amax(inside, keepdim=True)).to(values.dtype)
    return (values * divide(picked, picked.sum(inside, keepdim=True))).sum(inside)


for _func in named(
    "mode", "aminmax", "fractional_max_pool2d", "fractional_max_pool3d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices",
):  # fmt: skip
    handles(_func)(selection)
