"""Handwritten normalisations: if a tensor minus its own mean is divided by its own spread, both are held constant.

The spread is held constant anyway, since it divides. The mean is held constant if it is recognised for certain: the
subtracted tensor is a mean of the tensor (over rows, columns or graphs), and the divisor is computed from the same
tensor alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walkwise.core.differential import leaves
from walkwise.tracing.meaning.activations import divides
from walkwise.tracing.meaning.interpreter import Interpreter
from walkwise.tracing.recording.kinds import BY_NUMBER, READING, REPEATING, RESHAPING, TRANSPOSING
from walkwise.tracing.recording.recorded import Op, Ref

_MOVES = RESHAPING | TRANSPOSING | REPEATING | READING
_AVERAGES = BY_NUMBER | {"mean", "sum", "var_mean", "std_mean", "scatter", "segment_reduce", "matmul", "einsum"}
_MEASURES = _AVERAGES | {"var", "std", "norm", "linalg_vector_norm", "linalg_norm"}
#: What spreads are made with.
_SPREADS = _MOVES | _MEASURES | {
    "div", "mul", "pow", "square", "add", "sub", "sqrt", "rsqrt", "reciprocal", "rdiv", "abs", "clamp", "float_power",
    "maximum",
}  # fmt: skip
#: What means are made with.
_MEANS = _MOVES | _AVERAGES | {"div", "mul"}


def centred(run: Interpreter, op: Op, slot: int, scale: Any) -> int:
    """The slot of what an operation scales; where that is a tensor less its mean, over its spread, the mean is held."""
    made = run.made.get(slot)
    if made is None or made.kwargs or len(made.args) != 2 or made.call != op.call:
        return slot
    left, right = made.args
    if made.word.name in ("mul", "div") and isinstance(left, Ref) != isinstance(right, Ref):  # with a weight, say
        inner = left if isinstance(left, Ref) else right
        held = centred(run, op, inner.slot, scale)
        if held == inner.slot or (made.word.name == "div" and inner is right):
            return slot
        args = (Ref(held), right) if inner is left else (left, Ref(held))
        return _slot(run.written(op, made.func, *args))
    if made.word.name != "sub" or not isinstance(left, Ref) or not isinstance(right, Ref):
        return slot
    if op.word.name != "div" and not _is_divisor(run, scale):
        return slot
    root, mean = left.slot, run.values[right.slot].detach()
    averaged, measured = _made_of(run, right, root, _MEANS), _made_of(run, scale, root, _SPREADS)
    if averaged is None or measured is None or not averaged & _AVERAGES or not measured & _MEASURES:
        return slot
    again = run.replayed(right.slot, root, run.values[slot].detach())  # the mean of what is centred is 0
    if not again.numel() or bool(again.abs().max() > 1e3 * torch.finfo(mean.dtype).eps * run.values[root].abs().max()):
        return slot
    return _slot(run.written(op, torch.sub, left, mean))


def _is_divisor(run: Interpreter, item: Any) -> bool:
    """Whether a factor is one over something, as it is or moved."""
    origin = run.origins.of(item)
    slots = [item.slot] if isinstance(item, Ref) else [] if origin is None else list(origin.slots)
    for slot in slots:
        made = run.made.get(slot)
        while made is not None and made.word.name in _MOVES:
            made = run.made.get(made.inputs[0])
        if made is None or not divides(made):
            return False
    return bool(slots)


def _slot(made: Any) -> int:
    assert isinstance(made, Ref)
    return made.slot


def _made_of(run: Interpreter, item: Any, root: int, names: frozenset[str]) -> set[str] | None:
    """The functions that made a tensor, or a constant cut from one, of the root; None where others did, or weights."""
    if isinstance(item, Ref) and item.slot == root:
        return set()
    origin = run.origins.of(item)
    if origin is not None:
        found, parts = set[str](), [Ref(slot) for slot in origin.slots]
    else:
        made = run.made.get(item.slot) if isinstance(item, Ref) else None
        if made is None or made.word.name not in names:
            return None
        given = leaves((made.args, made.kwargs))
        if any(isinstance(part, Tensor) and part.is_floating_point() and run.learned(part) for part in given):
            return None
        found, parts = {made.word.name}, [p for p in given if isinstance(p, Ref) or run.origins.of(p) is not None]
    for part in parts:
        inner = _made_of(run, part, root, names)
        if inner is None:
            return None
        found |= inner
    return found
