"""Where an operation moves the entries of tensors, found by running it on numbers that stand for nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from walkwise.core.cast import mapped
from walkwise.tracing.meaning.moves import row_index
from walkwise.tracing.recording.recorded import Op, filled

#: Ids of rows that belong to no node of the graph, and of rows that belong to several.
NOBODY, SEVERAL = -1, -2


def moved(
    op: Op, output: int, value: Tensor, values: Sequence[Tensor], known: Mapping[int, Tensor], num_nodes: int
) -> Tensor | None:
    """The node of every entry, if an operation moves entries; None if it combines several into one.

    Args:
        op: the operation.
        output: which of its outputs.
        value: that output.
        values: all tensors, by slot.
        known: the nodes of its inputs' entries, by slot.
        num_nodes: M.
    """
    index = row_index(op, values[op.inputs[0]].dim())
    if index is not None:
        ids = known[op.inputs[0]]
        return ids if len(ids) == 1 else ids[index]
    try:
        found = _placed(op, output, values, known, num_nodes)
        return _row_by_row(op, output, values, known) if found is None and value.dim() == 1 else found
    except Exception:  # it does not run on other numbers
        return None


def _placed(
    op: Op, output: int, values: Sequence[Tensor], known: Mapping[int, Tensor], num_nodes: int
) -> Tensor | None:
    """The node of every entry, read from numbers; None if these are no longer numbers of nodes."""
    before = _result(op, output, torch.zeros_like, values, known)

    def numbered(number: Callable[[Tensor], Tensor]) -> Tensor:
        return _result(op, output, number, values, known) - before

    one, own = numbered(torch.ones_like), numbered(_same)
    nothing = (one == 0) & (own == 0)
    ids = torch.where(nothing, 1, own / one).round()
    sound = (ids >= SEVERAL + 1) & (ids <= num_nodes) & _equal(own, ids * one)
    if not bool((nothing | sound).all()):
        return None
    code, less_one, less_own = (numbered(number) for number in (_code, _ones_less, torch.neg))
    nothing &= code == 0
    sound &= _equal(code, _code(ids) * one)
    sound &= _equal(less_own, ids * less_one) & (less_one != 0)  # of several, the largest is another below zero
    if not bool((nothing | sound).all()):
        return None
    found = torch.where(nothing, NOBODY, ids.long() - 1)
    rows = found.reshape(len(found), -1) if found.dim() > 1 and found.numel() else found.flatten()[:0]
    alike = bool(rows.numel()) and bool((rows == rows[:, :1]).all())
    return upright(rows[:, 0], found.dim()) if alike else found


@torch.enable_grad()
def _row_by_row(op: Op, output: int, values: Sequence[Tensor], known: Mapping[int, Tensor]) -> Tensor | None:
    """The nodes of a one-dimensional result's entries, if each comes from a single row; otherwise None.

    The gradients of such entries scale row by row as the entries do.  # (K,)
    """
    rows = _rows_of_all(op, values, known)
    if rows is None:
        return None
    given = {slot: values[slot].detach().double().requires_grad_() for slot in op.inputs}
    args, kwargs = filled(_doubled((op.args, op.kwargs)), given.__getitem__, {})
    made = op.func(*args, **kwargs)
    result: Tensor = made[output] if isinstance(made, (tuple, list)) else made
    if len(result) != len(rows) or not result.requires_grad:
        return None
    more = 1 + torch.arange(len(rows), device=result.device) / len(rows)
    once, grown = (
        torch.autograd.grad((result * times).sum(), list(given.values()), retain_graph=True, materialize_grads=True)
        for times in (torch.ones_like(more), more)
    )
    pairs = zip(once, grown, strict=True)
    return rows if all(_equal(a.movedim(0, -1) * more, b.movedim(0, -1)).all() for a, b in pairs) else None


def _rows_of_all(op: Op, values: Sequence[Tensor], known: Mapping[int, Tensor]) -> Tensor | None:
    """The nodes of the rows of all inputs, if they agree; rows of nobody agree with any."""
    if any(values[slot].shape[:1] != (known[slot].numel(),) for slot in op.inputs):
        return None
    rows, *others = (known[slot].flatten() for slot in op.inputs)
    for ids in others:
        if ids.shape != rows.shape or bool(((ids != rows) & (ids != NOBODY) & (rows != NOBODY)).any()):
            return None
        rows = torch.where(rows == NOBODY, ids, rows)
    return rows


def _result(
    op: Op, output: int, number: Callable[[Tensor], Tensor], values: Sequence[Tensor], known: Mapping[int, Tensor]
) -> Tensor:
    """The result of an operation on numbers that stand for nodes."""

    def numbers(slot: int) -> Tensor:
        value = values[slot].detach().double()
        ids = known[slot].expand(value.shape)
        own = value.where(value.isfinite(), 0.0)  # of no node, but it may be a factor
        return torch.where(ids == NOBODY, own, number((ids + 1).double()) * _uneven(ids, slot))

    args, kwargs = _doubled(filled((op.args, op.kwargs), numbers, {}))
    made = op.func(*args, **kwargs)
    result: Tensor = made[output] if isinstance(made, (tuple, list)) else made
    return result.double()


def upright(ids: Tensor, dims: int) -> Tensor:
    """The ids of rows with as many dimensions as their tensor.  # (K,) -> (K, 1, …)"""
    return ids.view(-1, *[1] * (dims - 1))


def along(ids: Tensor, dim: int, dims: int) -> Tensor:
    """The ids of what lies along a dimension of a tensor, with as many dimensions.  # (K,) -> (1, …, K, 1, …)"""
    return ids.view([-1 if d == dim else 1 for d in range(dims)])


def _same(numbers: Tensor) -> Tensor:
    return numbers


def _ones_less(numbers: Tensor) -> Tensor:
    return -torch.ones_like(numbers)


def _code(numbers: Tensor) -> Tensor:
    """Other numbers for the same nodes, so that a mean of two is not taken for a third."""
    return (numbers * numbers * 31 + numbers * 17) % 65521 + 1


def _uneven(like: Tensor, slot: int) -> Tensor:
    """Factors from 1 to 2, no two the same, so that differences within a row, or between two tensors, do not vanish."""
    places = torch.arange(like.numel(), dtype=torch.double, device=like.device).view(like.shape)
    return 1 + (places * 0.6180339887498949 + slot * 0.4142135623730951) % 1


def _equal(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).abs() <= 1e-6 * a.abs()


def _doubled(nested: Any) -> Any:
    """Arguments with their floating-point constants in double precision."""

    def doubled(leaf: Any) -> Any:
        constant = isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.layout == torch.strided
        return leaf.detach().double() if constant else leaf

    return mapped(nested, doubled)
