"""What an operation does to each row by itself, found by applying it to a few: it moves columns, or is a matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from walkwise.core.differential import leaves
from walkwise.core.operators import Columns, Operator, RowMap
from walkwise.tracing.meaning.interpreter import Interpreter, flat
from walkwise.tracing.recording.recorded import Op, filled

#: Rows no wider than that are probed for the matrix that an operation is on each of them.
_PROBED = 2048
#: In so many rows it is checked.
_LOOKED_AT = 256
#: What an operation is to every row: by output, and by input.
_RowMaps = dict[int, dict[int, Operator]]


def maps_by_row(run: Interpreter, op: Op) -> _RowMaps | None:
    """The maps of rows that make up an operation; None if it mixes rows, or if they are too wide to probe."""
    shapes = [run.shape(slot) for slot in (*op.inputs, *op.outputs) if slot is not None]
    by_row = all(len(s) > 1 and s[0] == shapes[0][0] and 0 < s[1:].numel() <= _PROBED for s in shapes)
    return (_columns(run, op) or _row_matrices(run, op)) if by_row else None


def _columns(run: Interpreter, op: Op) -> _RowMaps | None:
    """Where an operation puts the columns of its inputs, if it only moves or copies them.

    A column of numbers k and k² is a column of the input; sums of several seldom have both, and then the rows do not
    agree.
    """
    found: _RowMaps = {o: {} for o, slot in enumerate(op.outputs) if slot is not None}
    for given in op.inputs:
        width = run.value(given).shape[1]
        numbers = torch.arange(1, width + 1, dtype=torch.double, device=run.value(given).device)
        images = _images(run, op, given, torch.stack([numbers, numbers * numbers]))
        for output, maps in found.items():
            width_after = run.value(op.outputs[output]).shape[1]  # type: ignore[arg-type]
            if images is None or images[output].numel() != 2 * width_after:
                return None
            first, second = images[output].reshape(2, width_after)
            if not bool(((second == first * first) & (first == first.round()) & (first >= 0) & (first <= width)).all()):
                return None
            maps[given] = Columns(tuple((first.long() - 1).tolist()), width)
    return found if _agree(run, op, found) else None


def _row_matrices(run: Interpreter, op: Op) -> _RowMaps | None:
    """The matrix of every output by every input, or None where rows are mixed."""
    found: _RowMaps = {o: {} for o, slot in enumerate(op.outputs) if slot is not None}
    for given in op.inputs:
        before = run.value(given)
        images = _images(run, op, given, torch.eye(before.shape[1], dtype=before.dtype, device=before.device))
        for output, maps in found.items():
            shape = before.shape[1], run.value(op.outputs[output]).shape[1]  # type: ignore[arg-type]
            if images is None or images[output].numel() != shape[0] * shape[1]:
                return None
            maps[given] = RowMap(images[output].reshape(shape).t().contiguous())
    return found if _agree(run, op, found) else None


def _images(run: Interpreter, op: Op, given: int, rows: Tensor) -> tuple[Tensor, ...] | None:
    """What an operation makes of other rows of one of its inputs, all else being zero."""

    def rows_like(tensor: Tensor, values: Tensor | None = None) -> Tensor:
        shape = len(rows), *tensor.shape[1:]
        kind = rows.dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.new_zeros(shape, dtype=kind) if values is None else values.view(shape)

    def fill(slot: int) -> Tensor:
        return rows_like(run.values[slot], rows if slot == given else None)

    before = run.value(given)
    constants = [a for a in leaves((op.args, op.kwargs)) if isinstance(a, Tensor) and a.shape[:1] == before.shape[:1]]
    args, kwargs = filled((op.args, op.kwargs), fill, {id(a): rows_like(a) for a in constants})
    try:
        result = op.func(*args, **kwargs)
    except Exception:  # it asks for as many rows as there are
        return None
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _agree(run: Interpreter, op: Op, found: _RowMaps) -> bool:
    """Whether maps of rows give what an operation has given, constants aside, in some rows all over."""
    constants = any(isinstance(a, Tensor) for a in leaves((op.args, op.kwargs)))
    base = op.run(lambda slot: torch.zeros_like(run.values[slot])) if constants else ()
    for output, maps in found.items():
        value = run.value(op.outputs[output])  # type: ignore[arg-type]
        some = torch.linspace(0, len(value) - 1, min(len(value), _LOOKED_AT), device=value.device).long()
        total = sum(operator.push(run.value(slot)[some]) for slot, operator in maps.items())
        total = total + flat(base[output])[some] if constants else total
        if not _alike(total, value[some]):  # type: ignore[arg-type]
            return False
    return True


def _alike(a: Tensor, b: Tensor) -> bool:
    """Equal within rounding, whatever their scale."""
    return not b.numel() or bool((a - b).abs().max() <= 1e-4 * b.abs().max())
