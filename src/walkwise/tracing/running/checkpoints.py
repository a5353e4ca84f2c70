"""Reentrant checkpoints, which run a function in an autograd.Function, out of sight, to save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from typing import Any

from torch.utils import checkpoint

from walkwise.tracing.private import CHECKPOINT

#: The thread of each trace, by a lock that is held while it runs; and what checkpoints run functions in otherwise.
_TRACING: dict[Any, int] = {}
_SAVING: Any = getattr(checkpoint, CHECKPOINT)


class _InSight:
    """Stands in for what saves memory: in threads that trace, the function runs as it is."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """What the function returns."""
        if get_ident() in _threads():
            return function(*args)
        _exchange()
        return _SAVING.apply(function, preserve, *args)


@contextmanager
def checkpoints_in_sight() -> Iterator[None]:
    """Inside, checkpoints of this thread run in sight, however a model or a library calls them."""
    with (this := Lock()):  # released even if an interrupt comes between any two lines
        try:
            _TRACING[this] = get_ident()
            _exchange()
            yield
        finally:
            _TRACING.pop(this, None)
            _exchange()


def _threads() -> list[int]:
    """The threads that trace."""
    return [thread for lock, thread in list(_TRACING.items()) if lock.locked()]


def _exchange() -> None:
    """Exchange the two while any thread traces; without a lock of all, which a forked process could wait for."""
    while (getattr(checkpoint, CHECKPOINT) is _InSight) != bool(_threads()):
        setattr(checkpoint, CHECKPOINT, _InSight if _threads() else _SAVING)
