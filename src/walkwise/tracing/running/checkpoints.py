"""Reentrant checkpoints, which run a function in an autograd.Function, out of sight, to save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from torch.utils import checkpoint

from walkwise.tracing.private import CHECKPOINT

#: The threads that trace, each as often as it has begun to; and what checkpoints run functions in otherwise.
_TRACING: list[int] = []
_SAVING: Any = getattr(checkpoint, CHECKPOINT)


class _InSight:
    """Stands in for what saves memory: in threads that trace, the function runs as it is."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """What the function returns."""
        return function(*args) if get_ident() in _TRACING else _SAVING.apply(function, preserve, *args)


@contextmanager
def checkpoints_in_sight() -> Iterator[None]:
    """Inside, checkpoints of this thread run in sight, however a model or a library calls them."""
    _TRACING.append(get_ident())
    try:
        _exchange()
        yield
    finally:
        _TRACING.remove(get_ident())
        _exchange()


def _exchange() -> None:
    """Exchange them while any thread traces; without a lock, for which a forked process could wait forever."""
    while (getattr(checkpoint, CHECKPOINT) is _InSight) != bool(_TRACING):
        setattr(checkpoint, CHECKPOINT, _InSight if _TRACING else _SAVING)
