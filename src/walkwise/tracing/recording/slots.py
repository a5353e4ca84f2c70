"""The followed tensors of a run, with a slot for every value that each has had."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from walkwise.core.cast import mapped
from walkwise.errors import TraceError
from walkwise.tracing.recording.aliases import memory_of
from walkwise.tracing.recording.recorded import Ref

#: Arguments with followed tensors replaced by references, those given by name, and the slots that are referred to.
Referred = tuple[tuple[Any, ...], dict[str, Any], tuple[int, ...]]

#: Stands for the slot of a tensor that was changed in a way that could not be followed.
_SPOILED = -1


class Slots:
    """Which slot holds which tensor, by identity; all tensors are kept alive so that no identity is reused."""

    def __init__(self) -> None:
        """Nothing is followed yet."""
        self.values: list[Tensor] = []  # by slot
        self.tensors: list[Tensor] = []  # all that were ever followed
        self.held: set[int] = set()  # where the constants beside them lie in memory
        self._of: dict[int, int] = {}  # by identity

    def of(self, tensor: Any) -> int | None:
        """The tensor's slot, or None if it is not followed."""
        slot = self._of.get(id(tensor))
        if slot == _SPOILED:
            raise TraceError(
                "A node tensor was changed in place through another that shares its memory (a view) and then read "
                "again, which cannot be followed.",
                remedy="Use the out-of-place operation (y = x + 1 instead of x += 1).",
            )
        return slot

    def last(self, tensor: Tensor) -> int | None:
        """The same for a tensor that is written, not read: a spoiled tensor is not followed."""
        slot = self._of.get(id(tensor))
        return None if slot == _SPOILED else slot

    def spoiled(self, tensor: Tensor) -> bool:
        """Whether a tensor was changed in a way that could not be followed."""
        return self._of.get(id(tensor)) == _SPOILED

    def any_of(self, items: Iterable[Any]) -> bool:
        """Whether any of some arguments is followed."""
        known = self._of
        for item in items:  # noqa: SIM110  (a generator would cost as much as the rest)
            if id(item) in known or (type(item) in (list, tuple) and self.any_of(item)):
                return True
        return False

    def new(self, tensor: Tensor) -> int:
        """A new slot, which holds the tensor from now on."""
        slot = len(self.values)
        self.values.append(tensor.detach() if tensor.requires_grad else tensor)
        self._hold(tensor, slot)
        return slot

    def share(self, before: Tensor, after: Tensor) -> Tensor:
        """Put the tensor ``after`` into the slot of another from now on."""
        slot = self.of(before)
        if after is not before and slot is not None:
            self._hold(after, slot)
        return after

    def forget(self, tensor: Tensor) -> None:
        """Treat a tensor as a constant from now on."""
        self._of.pop(id(tensor), None)

    def spoil(self, tensor: Tensor) -> None:
        """Forbid reading a tensor from now on."""
        self._hold(tensor, _SPOILED)

    def _hold(self, tensor: Tensor, slot: int) -> None:
        self._of[id(tensor)] = slot
        self.tensors.append(tensor)

    def flat(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Arguments without lists, with references instead of followed tensors, and their slots."""
        slots: list[int] = []
        refs: list[Any] = []
        for item in args:
            slot = self.of(item) if isinstance(item, Tensor) else None
            if slot is not None:
                slots.append(slot)
                refs.append(Ref(slot))
                continue
            if isinstance(item, Tensor):
                self.held.add(memory_of(item))
            refs.append(item)
        return tuple(refs), tuple(slots) if len(slots) < 2 else tuple(dict.fromkeys(slots))

    def nested(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Referred:
        """The same of any arguments."""
        slots: list[int] = []

        def referred(item: Any) -> Any:
            slot = item.slot if type(item) is Ref else self.of(item)
            if slot is not None:
                slots.append(slot)
                return Ref(slot)
            if isinstance(item, Tensor):
                self.held.add(memory_of(item))
            return item

        refs, named = mapped((args, kwargs), referred)
        return refs, named, tuple(slots) if len(slots) < 2 else tuple(dict.fromkeys(slots))
