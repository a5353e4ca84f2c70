"""Operations that move, copy, sum or average entries: linear, with coefficients that are 0 or positive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from walkwise.core.differential import MOVING, Differential
from walkwise.core.edges import Edges
from walkwise.core.operators import Columns, Scale
from walkwise.core.row_maps import Gather, Reshape, Scatter, Send, SumRows
from walkwise.errors import TraceError
from walkwise.tracing.meaning.arithmetic import alike
from walkwise.tracing.meaning.by_row import maps_by_row
from walkwise.tracing.meaning.interpreter import Interpreter, flat, gradient, result_at_zero, structural
from walkwise.tracing.meaning.stacks import note_joined, note_stack, reduce_stack
from walkwise.tracing.meaning.weights import of_product
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.recording.words import handles, named, word
from walkwise.tracing.stretches.expressions import nonnegative_map


@handles(
    Tensor.view, torch.reshape, torch.flatten, torch.unflatten, torch.squeeze, torch.unsqueeze, Tensor.view_as,
    Tensor.reshape_as, torch.ravel,
)  # fmt: skip
def _reshape(run: Interpreter, op: Op) -> None:
    """The same entries in another shape."""
    output = op.outputs[0]
    if output is None or len(op.inputs) != 1:
        return gradient(run, op)
    flow = run.read(op, op.inputs[0], within=True)
    value = run.value(output)
    if value.shape == flow.value.shape:
        return run.write(op, flow)
    run.combine(op, [(flow, nonnegative_map(Reshape(flow.value.shape, value.shape)))])


@handles(torch.cat)
def _cat(run: Interpreter, op: Op) -> None:
    """Columns side by side; other things that are put together are moved."""
    given = op.given("tensors", "dim", first=0)
    tensors, dim = given["tensors"], given.get("dim", given.get("axis", 0))
    natural = [run.values[t.slot] if isinstance(t, Ref) else t for t in tensors]
    output = op.outputs[0]
    note_joined(run, op, tensors, dim)
    if output is None or {t.dim() for t in natural} != {2} or dim not in (1, -1):
        return _within_rows(run, op) if dim else structural(run, op)
    within = op.call is not None or alike(run, op, [t.slot for t in tensors if isinstance(t, Ref)])
    width, start, terms = run.shape(output)[1], 0, []
    constant = torch.zeros_like(run.values[output]) if within else None
    for part, tensor in zip(tensors, natural, strict=True):
        length = tensor.shape[1]
        if isinstance(part, Ref):
            flow = run.read(op, part.slot, within=within)
            terms.append((flow, nonnegative_map(Columns.placed(start, length, width))))
        elif constant is not None:
            constant[:, start : start + length] = tensor.detach()
        start += length
    run.combine(op, terms, constant if len(terms) < len(tensors) else None)


@handles(Tensor.__getitem__, Tensor.index_select)
def _pick(run: Interpreter, op: Op) -> None:
    """Rows picked by number are gathered; parts of every row are a matrix."""
    index = row_index(op, run.values[op.inputs[0]].dim())
    if index is None or op.outputs[0] is None or run.values[op.inputs[0]].dim() == 0:
        return _within_rows(run, op)
    flow = run.read(op, op.inputs[0], within=run.moves_on(op))
    rows = flow.value.shape[0]
    index = torch.where(index < 0, index + rows, index)  # a copy, too
    run.combine(op, [(flow, nonnegative_map(Gather(index, rows)))])


def row_index(op: Op, dims: int) -> Tensor | None:
    """The rows an operation picks, if it does nothing but that.  # (K,)"""
    if len(op.inputs) != 1 or not op.args or not isinstance(op.args[0], Ref):
        return None
    index: Any = op.args[1] if len(op.args) == 2 and op.word.name == "getitem" else None
    if op.word.name == "index_select":
        dim, index = (*op.args[1:], *op.kwargs.values())[:2] if len(op.args) + len(op.kwargs) == 3 else (None, None)
        if dim not in (0, -dims):
            return None
    plain = isinstance(index, Tensor) and index.dtype in (torch.long, torch.int32) and index.dim() == 1
    return index if plain else None


@handles(torch.split, torch.chunk, torch.narrow, Tensor.select, torch.unbind, torch.tensor_split)
def _within_rows(run: Interpreter, op: Op) -> None:
    """A linear map of every row by itself, found by applying it to a few."""
    found = maps_by_row(run, op)
    within = run.moves_on(op)
    if found is None:
        return structural(run, op, within=within)
    flows = {slot: run.read(op, slot, within=within) for slot in op.inputs}
    for output, by_input in found.items():
        maps = [(flows[slot], nonnegative_map(operator)) for slot, operator in by_input.items()]
        run.combine(op, maps, result_at_zero(run, op, flows, output), output)


@handles(torch.sum, torch.mean)
def _reduce(run: Interpreter, op: Op) -> None:
    """A sum or mean over the rows, or over parts of every row."""
    if reduce_stack(run, op) or of_product(run, op):
        return None
    given = op.given("dim", "keepdim")
    value, output = run.values[op.inputs[0]], op.outputs[0]
    over_rows = given.get("dim") in (0, -2, (0,), [0], (-2,), [-2]) and value.dim() == 2
    if output is None or not over_rows or given.get("dtype") is not None or not value.shape[0]:
        return _within_rows(run, op)
    flow = run.read(op, op.inputs[0], within=op.call is not None)
    share = 1 / value.shape[0] if op.word.name == "mean" else 1.0
    as_rows = run.shape(output)[0] != 1 or not given.get("keepdim")
    run.combine(op, [(flow, nonnegative_map(SumRows(value.shape[0], share, as_rows)))])


@handles(torch.stack)
def _stack(run: Interpreter, op: Op) -> None:
    """Tensors on top of each other, or side by side, of which a sum or mean is perhaps to be made."""
    given = op.given("tensors", "dim", first=0)
    note_stack(run, op, given["tensors"], given.get("dim", 0))
    _within_rows(run, op)


@handles(torch.scatter_add, torch.index_add)
def _scatter(run: Interpreter, op: Op) -> None:
    """Rows added up by number."""
    found = None if op.kwargs else row_scatter(run, op)
    if found is None:
        return structural(run, op)
    slot, operator = found
    flow = run.read(op, slot, within=op.call is not None)
    constant = flat(op.args[0].detach()).clone() if op.call is not None else None
    run.combine(op, [(flow, nonnegative_map(operator))], constant)


def row_scatter(run: Interpreter, op: Op) -> tuple[int, Scatter] | None:
    """What is put together at its places in a constant, and how, if that is all an operation does."""
    if len(op.args) < 4 or op.outputs[0] is None:
        return None
    base, dim, index, source = op.args[:4]
    if isinstance(base, Ref) or not isinstance(source, Ref) or not isinstance(index, Tensor):
        return None
    value = run.values[source.slot]
    if (dim != 0 and dim != -value.dim()) or value.dim() == 0 or base.dim() != value.dim():
        return None
    if op.word.name.startswith("scatter") and value.dim() > 1:
        if index.shape != value.shape or not _same_in_every_column(index):
            return None
        index = index.reshape(index.shape[0], -1)[:, 0] if index.numel() else index.new_zeros(index.shape[0])
    if index.shape[0] != value.shape[0] or value.shape[1:] != base.shape[1:]:
        return None
    return source.slot, Scatter(index.clone(), base.shape[0])


def reduction(op: Op) -> str | None:
    """How an operation puts together what comes to one place ("sum", "amax"), if it says so."""
    found: str | None = op.kwargs.get("reduce", next((a for a in op.args if isinstance(a, str)), None))
    return found


def segments(run: Interpreter, op: Op, reduce: str) -> None:
    """Sums or means of rows that follow each other; torch has their derivative, but none of that."""
    given, limits = op.args[0], op.kwargs.get("lengths", op.kwargs.get("offsets"))
    if op.outputs[0] is None or len(op.inputs) > 1 or not isinstance(given, Ref) or limits is None or limits.dim() != 1:
        return structural(run, op)
    counts = limits.detach() if "lengths" in op.kwargs else limits.detach().diff()
    index = torch.repeat_interleave(counts)
    rows, value = len(index), run.value(given.slot)
    weight = 1 / counts[index].to(value.dtype) if reduce == "mean" else None
    edges = Edges(torch.arange(rows, device=index.device), index, max(len(value), len(counts)))
    flow = run.read(op, given.slot, within=op.call is not None)
    constant = result_at_zero(run, op, {given.slot: flow}, 0)
    run.combine(op, [(flow, nonnegative_map(Send(edges, weight, len(value), len(counts))))], constant)


def _same_in_every_column(index: Tensor) -> bool:
    if all(stride == 0 or size == 1 for stride, size in zip(index.stride()[1:], index.shape[1:], strict=True)):
        return True
    columns = index.reshape(index.shape[0], -1)
    return bool((columns == columns[:, :1]).all())


for _func in named(
    "transpose", "permute", "movedim", "t", "T", "mT", "H", "mH", "adjoint", "expand", "expand_as", "broadcast_to",
    "repeat", "tile",
):  # fmt: skip
    handles(_func)(_within_rows)

for _func in named(
    "hstack", "vstack", "dstack", "column_stack", "gather", "take_along_dim",
    "take", "index_copy", "repeat_interleave", "roll", "reversed", "flip", "fliplr", "flipud", "rot90",
    "masked_scatter",
    "masked_select", "tril", "triu", "nan_to_num", "trace", "diagonal", "diag", "hsplit", "vsplit", "dsplit", "unfold",
    "as_strided",
    "block_diag", "diag_embed", "diagflat", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "real", "slice_scatter", "select_scatter", "diagonal_scatter",
    "as_strided_scatter", "nansum", "nanmean", "broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d",
    "unsafe_split", "unsafe_chunk", "split_with_sizes", "sum_to_size", "to_dense", "as_strided_copy",
    "diagonal_copy", "expand_copy", "narrow_copy", "permute_copy", "select_copy", "slice_copy", "split_copy",
    "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unfold_copy",
    "unsqueeze_copy", "view_copy", "slice_inverse", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "native_channel_shuffle", "fold", "col2im", "im2col", "meshgrid", "cartesian_prod", "combinations", "copy",
    "put", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "pad_sequence", "unsafe_index", "max_unpool1d", "max_unpool2d", "max_unpool3d",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "index_put", "setitem", "pad", "where", "index_fill", "constant_pad_nd", "fill",
    "fill_diagonal", "unsafe_index_put", "fft_fftshift", "fft_ifftshift",
):  # fmt: skip
    handles(_func)(structural)


_RUNNING = (
    "running sums (cumsum) are followed path by path: terms that cancel in a difference of two of them do not cancel "
    "under a rule that separates signs. They do cancel in sums by index_add or scatter_add"
)


@handles(torch.cumsum)
def _running_sum(run: Interpreter, op: Op) -> None:
    if op.rule.splits:
        run.remarks[_RUNNING] = None
    structural(run, op)


@handles(*named("to", "type", "float", "double", "half", "bfloat16", "type_as"))
def _cast(run: Interpreter, op: Op) -> None:
    """The same numbers in another type, written so that a chain in one type has it there, too."""
    output, given = op.outputs[0], op.args[0]
    if output is None or not isinstance(given, Ref) or not run.values[output].is_floating_point():
        return structural(run, op)
    at, result = run.values[given.slot].detach(), run.values[output]
    flow = run.read(op, given.slot, within=run.moves_on(op))
    convert = Differential(Tensor.to, (MOVING, result.dtype), {}, at, 0, result.shape)
    run.combine(op, [(flow, nonnegative_map(convert))])


@handles(torch.masked_fill)
def _masked(run: Interpreter, op: Op) -> None:
    """A number in the place of some entries, by a mask of the same shape; the others stay."""
    given, mask, number = (*op.args, *op.kwargs.values())[:3]
    output = op.outputs[0]
    if output is None or not isinstance(given, Ref) or isinstance(number, (Tensor, Ref)) or op.kwargs:
        return structural(run, op)
    if mask.shape != run.shape(output):
        return structural(run, op)
    flow = run.read(op, given.slot, within=op.call is not None)
    hidden = flat(mask).to(flow.value.dtype)
    constant = hidden * number if op.call is not None and number else None
    run.combine(op, [(flow, nonnegative_map(Scale(1 - hidden)))], constant)


_NO_PRODUCTS = 'scatter(..., reduce="multiply") has no derivative in torch, so relevance cannot pass it.'


@handles(torch.scatter)
def _scattered(run: Interpreter, op: Op) -> None:
    """Entries put in the places of others, or added to them; torch has no derivative of the product of both."""
    reduce = reduction(op)
    if reduce == "multiply":
        raise TraceError(_NO_PRODUCTS, remedy='Use scatter_reduce(..., reduce="prod").')
    if reduce is None:
        return structural(run, op)
    if len(op.args) < 4 or not isinstance(op.args[3], (Tensor, Ref)):
        raise TraceError(
            'scatter(..., reduce="add") of a number has no derivative in torch, so relevance cannot pass it.',
            remedy="Add a tensor of that number with scatter_add(dim, index, tensor).",
        )
    _scatter(run, replace(op, word=word(torch.scatter_add), func=torch.scatter_add, kwargs={}))
