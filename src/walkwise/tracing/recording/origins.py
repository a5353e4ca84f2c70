"""Constants computed from followed tensors: masks of their signs, and detached copies.

Nothing flows through them, but they show what is meant: ``x * (x > 0)`` is ReLU, and not x times a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from walkwise.tracing.recording.kinds import CASTING
from walkwise.tracing.recording.words import Word

#: What makes a constant of a tensor's values; zeros_like and its kin take just the shape.
_CUTTING = frozenset({
    "gt", "ge", "lt", "le", "eq", "ne", "sign", "sgn", "signbit", "heaviside", "detach", "data", "isclose",
})  # fmt: skip
#: Functions of single entries, of constants.
_BY_ENTRY = frozenset({
    *_CUTTING, *CASTING, "bool", "int", "long", "invert", "logical_not", "bitwise_not", "logical_and", "logical_or",
    "bitwise_and", "bitwise_or", "and", "or", "add", "sub", "rsub", "mul", "div", "neg", "clone", "abs", "exp",
    "sigmoid", "tanh", "erf", "relu", "where", "pow", "clamp", "sqrt", "rsqrt", "reciprocal", "rdiv", "contiguous",
    "softplus", "requires_grad",
})  # fmt: skip


@dataclass(frozen=True, eq=False, slots=True)
class Provenance:
    """The origin of a constant."""

    tensor: Tensor  # the constant; keeps its identity from being used again
    slots: frozenset[int]  # of the followed tensors
    by_entry: bool  # whether every entry is made of the same entry of these, and of numbers


class Origins:
    """The constants of a run that are computed from followed tensors, by identity."""

    def __init__(self) -> None:
        """None yet."""
        self._known: dict[int, Provenance] = {}

    def of(self, item: Any) -> Provenance | None:
        """What a constant was made of, if that is known."""
        return self._known.get(id(item)) if self._known else None

    def cut(self, known: Word, args: Iterable[Any], result: Any, slot_of: Callable[[Any], int | None]) -> None:
        """Remember a function's result from followed tensors and constants, if nothing flows through it."""
        if known.name in _CUTTING:
            self._note(known, [item for item in args if isinstance(item, Tensor)], result, slot_of)

    def passed_on(self, known: Word, args: tuple[Any, ...], result: Any) -> None:
        """Remember a function's result from constants."""
        if not self._known or not args:
            return
        tensors = [item for item in args if isinstance(item, Tensor)]
        found = any(id(item) in self._known for item in tensors)
        if known.writes:
            self._known.pop(id(args[0]), None)
        elif found and (not known.constant or known.name in _CUTTING):
            self._note(known, tensors, result, lambda item: None)

    def _note(self, known: Word, tensors: list[Tensor], result: Any, slot_of: Callable[[Any], int | None]) -> None:
        if not isinstance(result, Tensor):
            return
        slots: set[int] = set()
        by_entry = known.name in _BY_ENTRY
        for item in tensors:
            slot, origin = slot_of(item), self._known.get(id(item))
            if slot is not None:
                slots.add(slot)
            elif origin is not None:
                slots |= origin.slots
            whole = slot is not None or (origin is not None and origin.by_entry)
            by_entry &= item.shape == result.shape if whole else item.numel() == 1
        self._known[id(result)] = Provenance(result, frozenset(slots), by_entry)
