"""A bar for what takes a while: shown when asked for, or by itself after two seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")
#: After so many seconds a bar shows by itself.
_PATIENCE = 2.0


def bar(progress: bool | None, **options: Any) -> Any:
    """A tqdm bar: shown (True), hidden (False), or shown after two seconds (None)."""
    from tqdm.auto import tqdm

    return tqdm(disable=progress is False, delay=_PATIENCE if progress is None else 0, leave=False, **options)


def shown(items: Iterable[T], progress: bool | None, **options: Any) -> Iterable[T]:
    """The items one after the other, with a bar."""
    some: Iterable[T] = bar(progress, iterable=items, **options)
    return some
