"""A progress bar, shown on request, or by itself after two seconds; and a way to abandon a computation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from walkwise.errors import AbandonedError

T = TypeVar("T")
#: After this many seconds a bar shows by itself.
_PATIENCE = 2.0

#: Says whether what is computed here is still wanted.
_WANTED: ContextVar[Callable[[], bool] | None] = ContextVar("wanted", default=None)


@contextmanager
def while_wanted(wanted: Callable[[], bool]) -> Iterator[None]:
    """Make long computations inside stop, with an AbandonedError, at the next step after this function returns False.

    >>> with while_wanted(lambda: False):
    ...     list(shown(range(3), progress=False))
    Traceback (most recent call last):
        ...
    walkwise.errors.AbandonedError: What was computed is no longer wanted.
    """
    before = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(before)


@functools.lru_cache(maxsize=1)
def _bar() -> Any:
    """A tqdm bar that checks, as it advances, whether it is still wanted; tqdm is imported when needed."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def update(self, n: float | None = 1) -> None:
            """Moves on."""
            _check_wanted()
            super().update(n)

    return Bar


class _Hidden:
    """A bar that is never shown: the methods of a tqdm bar that are used here, without the cost of one."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __enter__(self) -> _Hidden:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to close."""

    def update(self, _: float = 1) -> None:
        """Moves on."""
        _check_wanted()

    def set_postfix(self, **_: Any) -> None:
        """Says nothing."""


def bar(progress: bool | None, *, iterable: Iterable[Any] | None = None, **options: Any) -> Any:
    """A tqdm bar: shown (True), hidden (False), or shown after two seconds (None)."""
    if iterable is not None and _WANTED.get() is not None:
        options.setdefault("total", len(iterable) if isinstance(iterable, Sized) else None)
        iterable = _checked(iterable)
    if progress is False:
        return _Hidden(() if iterable is None else iterable)
    return _bar()(iterable, delay=_PATIENCE if progress is None else 0, leave=False, **options)


def shown(items: Iterable[T], progress: bool | None, **options: Any) -> Iterable[T]:
    """The items one after the other, with a bar."""
    some: Iterable[T] = bar(progress, iterable=items, **options)
    return some


def _checked(items: Iterable[T]) -> Iterator[T]:
    for item in items:
        _check_wanted()
        yield item


def _check_wanted() -> None:
    wanted = _WANTED.get()
    if wanted is not None and not wanted():
        raise AbandonedError("What was computed is no longer wanted.")
