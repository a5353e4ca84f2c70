"""Handwritten activations: expressions computed entry by entry from one tensor and numbers.

``x * (x > 0)``, ``torch.where(x > 0, x, 0)`` and ``(x + x.abs()) / 2`` are ReLU, ``x * sigmoid(x)`` is SiLU. Each is
h = z · [h / z], like the function of that name, and ends the linear maps before it as that does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from walkwise.rules import divide
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.recording.words import word

if TYPE_CHECKING:
    from walkwise.tracing.meaning.interpreter import Interpreter

_SUMS = frozenset({"add", "sub", "rsub"})
_PRODUCTS = frozenset({"mul", "div"})
_EXTREMES = frozenset({"max", "min", "maximum", "minimum", "fmax", "fmin"})
_MASKED = frozenset({"where", "masked_fill", "setitem"})
#: Where an expression of one tensor may come together.
MERGING = _SUMS | _PRODUCTS | _EXTREMES | _MASKED
#: How far an expression is looked at.
_LONGEST = 16


def held_ratio(value: Tensor, z: Tensor, image: Callable[[Tensor], Tensor]) -> Tensor:
    """[h / z] of a function of single entries; where z is 0, its limit from below, or 0 if it has none.

    Args:
        value: h.
        z: what h was made of.
        image: the function itself.
    """
    near = torch.where(z == 0, -1e-6, z)
    limit = torch.where(value == 0, image(near) / near, 0.0).nan_to_num(0.0, 0.0, 0.0)
    return torch.where(z == 0, limit, divide(value, z))


def as_activation(run: Interpreter, op: Op) -> None:
    """Write an operation's result as an activation, if it is a non-linear function of one tensor, entry by entry."""
    if (of_two := _extreme(run, op)) is not None:
        return run.run(of_two)
    output, root = op.outputs[0], _root(run, op)
    if output is None or root is None or root not in run.flows:
        return None
    z, value = run.value(root), run.value(output)

    def image(at: Tensor) -> Tensor:
        return run.replayed(output, root, at.view(run.shape(root))).reshape(at.shape)

    def slope(at: Tensor) -> Tensor:
        return held_ratio(value, at, image)

    gate = run.flows[output].gate
    flow = run.builder.activated(run.flows[root], value, slope, rectifies=torch.equal(value, z.clamp(min=0)))
    flow.call, flow.gate = op.call, gate
    run.flows[output] = flow
    return None


def _root(run: Interpreter, op: Op) -> int | None:
    """The tensor that an operation is an activation of, where that is not plain to see."""
    name, sources = op.word.name, _sources(run, op)
    if op.word.pointwise:
        return _before_a_number(run, op, sources[0]) if sources else None
    if not sources or (len(sources) == 1 and name in _SUMS | _PRODUCTS):
        return None
    root = _common(run, op, sources)
    if root is None or (name in _SUMS and not any(_bends(run, slot, root) for slot in sources)):
        return None
    return root


def _before_a_number(run: Interpreter, op: Op, slot: int) -> int | None:
    """For ``1 / (1 + exp(-x))``, the tensor inside ``exp``: what a power was made of to which a number was added.

    A number that is added to other functions, ``relu(x) + 1e-7``, is a constant, and gets its share.
    """
    added = False
    for _ in range(_LONGEST):
        made = run.made.get(slot)
        if made is None or made.call != op.call or slot in run.standing or not (sources := _sources(run, made)):
            return None
        if not _linear(made, sources):
            return _common(run, op, sources) if added and made.word.name in ("exp", "exp2") else None
        added, slot = added or made.word.name in _SUMS, sources[0]
    return None


def _linear(made: Op, sources: tuple[int, ...]) -> bool:
    """Whether an operation adds a number to one tensor, or multiplies it by what is not made of it."""
    return made.word.name == "neg" or (len(sources) == 1 and made.word.name in _SUMS | _PRODUCTS)


def _sources(run: Interpreter, op: Op) -> tuple[int, ...]:
    """The slots that an operation is made of entry by entry, with numbers and factors beside; none if it is not."""
    name, output = op.word.name, op.outputs[0]
    if output is None or len(op.outputs) != 1 or (op.kwargs and not op.word.pointwise):
        return ()
    args = op.args
    if name in _MASKED:
        found = _masked(run, name, args)
    elif name in _EXTREMES:
        two = len(args) == 2 and not isinstance(args[1], int)
        found = [_slot(run, item, numbers=True) for item in args] if two else [None]
    elif name in _SUMS:
        found = [_slot(run, item, numbers=not isinstance(item, Tensor)) for item in args]
    elif name == "mul" or (name == "div" and isinstance(args[0], Ref)):
        found = [_slot(run, item, cut=True) for item in args]
    elif name == "neg" or (op.word.pointwise and len(op.inputs) == 1):
        found = [op.inputs[0]]
    else:
        return ()
    slots = tuple(slot for slot in found if slot is not None and slot >= 0)
    if None in found or any(run.shape(slot) != run.shape(output) for slot in slots):
        return ()
    return slots


def _slot(run: Interpreter, item: Any, *, numbers: bool = True, cut: bool = False) -> int | None:
    """The slot of one argument, -1 for a number or (``cut``) a factor, None for what may not stand there."""
    if isinstance(item, Ref):
        return item.slot
    if not isinstance(item, Tensor):
        return -1 if isinstance(item, (int, float)) else None
    if cut:
        origin = run.origins.of(item)
        if origin is None or not origin.by_entry:
            return -1
        return next(iter(origin.slots)) if len(origin.slots) == 1 else None
    return -1 if numbers and item.numel() and bool((item == item.flatten()[0]).all()) else None


def _masked(run: Interpreter, name: str, args: tuple[Any, ...]) -> list[int | None]:
    """What is chosen from, and what the mask was made of."""
    if len(args) != 3:
        return [None]
    mask, *given = args if name == "where" and isinstance(args[0], Tensor) else (args[1], args[0], args[2])
    origin = run.origins.of(mask)
    if origin is None or not origin.by_entry or len(origin.slots) != 1 or mask.dtype != torch.bool:
        return [None]
    return [next(iter(origin.slots)), *(_slot(run, item) for item in given)]


def _extreme(run: Interpreter, op: Op) -> Op | None:
    """The larger or the smaller of two tensors, where one of them is chosen by comparing them."""
    if op.word.name != "where" or not isinstance(op.args[0], Tensor) or (origin := run.origins.of(op.args[0])) is None:
        return None
    two = [item.slot for item in op.args[1:] if isinstance(item, Ref)]
    if len(two) != 2 or not origin.by_entry or len(origin.slots) != 2:
        return None
    compared, chosen = ([run.values[slot] for slot in slots] for slots in (origin.slots, two))
    if not all(any(torch.equal(a, b) for b in chosen) for a in compared):
        return None
    made = run.values[op.outputs[0]]  # type: ignore[index]
    func = next((f for f in (torch.maximum, torch.minimum) if torch.equal(f(*chosen), made)), None)
    return None if func is None else replace(op, word=word(func), func=func, args=op.args[1:])


def _common(run: Interpreter, op: Op, sources: tuple[int, ...]) -> int | None:
    """The nearest tensor that all sources are made of, entry by entry, in the same layer and past no position."""
    first, *others = (_ancestry(run, op, slot) for slot in sources)
    shared = set(first).intersection(*others)
    return next((slot for slot in first if slot in shared), None)


def _ancestry(run: Interpreter, op: Op, slot: int) -> list[int]:
    """A slot, and those it is made of entry by entry, the nearest first."""
    found = [slot]
    while len(found) < _LONGEST and (made := run.made.get(slot)) is not None and made.call == op.call:
        sources = () if slot in run.standing else _sources(run, made)
        root = _common(run, op, sources) if len(sources) > 1 else next(iter(sources), None)
        numbered = op.word.name in _SUMS and made.word.name in _SUMS and len(sources) == 1
        if root is None or (numbered and not _is_bent(run, root)):
            break  # in a sum a number that was added to a tensor gets its share; to exp, it is part of a function
        found.append(slot := root)
    return found


def _is_bent(run: Interpreter, slot: int) -> bool:
    """Whether a tensor was made by a function that others are made of by adding a number: sigmoid, softplus, GELU."""
    made = run.made.get(slot)
    return made is not None and made.word.name in ("exp", "exp2", "erf", "tanh")


def _bends(run: Interpreter, slot: int, root: int) -> bool:
    """Whether what was made of a root on the way to a slot is no linear map of it."""
    if slot <= root:
        return False
    made = run.made[slot]
    sources = _sources(run, made)
    if made.word.name in _SUMS or _linear(made, sources):
        return any(_bends(run, source, root) for source in sources)
    return True
