"""Which operations add rows up at other rows, and along which dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from walkwise.tracing.recording.kinds import BY_NUMBER, ENTRYWISE, IN_ORDER, PUTTING, READING
from walkwise.tracing.recording.recorded import Op, Ref


def added_along(op: Op, dims: int) -> int | None:
    """The dimension along which an operation adds rows up at others (scatter_add and its kin); None if it adds none.

    Args:
        op: the operation.
        dims: the number of dimensions of its result.
    """
    if op.word.name in IN_ORDER or (op.word.name in PUTTING and _accumulates(op)):
        return 0 if dims else None
    dim = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim")
    by_number = op.word.name in BY_NUMBER or (op.word.name == "scatter" and "reduce" in op.kwargs)
    if not by_number or not isinstance(dim, int) or not dims:
        return None
    dim %= dims
    return dim if dim == 0 or dim < dims - 1 else None


def reads_rows(op: Op) -> bool:
    """Whether an operation looks rows up by number, and not columns: ``h[rows]``, but not ``h[:, None]``."""
    if op.word.name != "getitem":
        return op.word.name in READING
    index = op.args[1] if len(op.args) > 1 else None
    return isinstance(index[0] if isinstance(index, tuple) and index else index, Tensor)


def one_by_one(op: Op, value: Tensor, maker: Mapping[int, Op]) -> bool:
    """Whether rows were made one by one: stacked, or added up in a loop, ``m[v] = m[v] + h[u]``.

    Args:
        op: the last operation.
        value: its result.
        maker: the operations that made other tensors, by slot.
    """
    return _stacked(op, value) or _adds_to_a_row(op, maker)


def _stacked(op: Op, value: Tensor) -> bool:
    """Whether rows were listed: ``torch.stack([h[neighbours(i)].sum(0) for i in range(M)])``."""
    if op.word.name not in ("stack", "cat") or [*op.args[1:2], *op.kwargs.values()][:1] not in ([], [0]):
        return False
    parts = op.args[0]
    return value.dim() > 0 and len(value) > 2 and isinstance(parts, (tuple, list)) and len(parts) == len(value)


def _adds_to_a_row(op: Op, maker: Mapping[int, Op]) -> bool:
    """Whether something is added to one row of a tensor: of a constant one, or of one that was written before."""
    if op.word.name != "setitem" or not _is_number(op.args[1]) or not isinstance(op.args[2], Ref):
        return False
    added = maker.get(op.args[2].slot)
    if added is None or added.word.name not in ENTRYWISE:
        return False
    before = _states(op, maker)
    for item in added.args[:2]:
        if isinstance(item, Tensor):
            return True
        read = maker.get(item.slot) if isinstance(item, Ref) else None
        if read is not None and read.word.name == "getitem" and read.inputs[0] in before:
            return True
    return False


def _is_number(index: Any) -> bool:
    """Whether an index is that of one row."""
    first = index[0] if isinstance(index, tuple) and index else index
    return isinstance(first, int) or (isinstance(first, Tensor) and first.dim() == 0)


def _states(op: Op, maker: Mapping[int, Op]) -> list[int]:
    """The slots of a tensor before the last writes into it: ``m[v] += h[u]`` writes twice."""
    states: list[int] = []
    while len(states) < 3 and op.word.name == "setitem" and isinstance(op.args[0], Ref):
        states.append(op.args[0].slot)
        op = maker.get(states[-1], op)
    return states


def _accumulates(op: Op) -> bool:
    """Whether rows are put where others are, and added to them."""
    return (op.args[3] if len(op.args) > 3 else op.kwargs.get("accumulate", False)) is True
