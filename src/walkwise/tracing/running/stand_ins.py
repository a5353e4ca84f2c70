"""Stand-ins for methods of a shadow's modules, by which something watches their calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any


def stand_in(module: Any, method: str, function: Callable[..., Any]) -> None:
    """Put a function in the place of a module's method, with its signature, which a model may look at."""
    module.__dict__[method] = functools.wraps(getattr(module, method))(function)


def dismiss(modules: Iterable[tuple[str, Any]]) -> None:
    """Break the reference cycles of named modules with their stand-ins."""
    for _, module in modules:
        for method in ("forward", "propagate"):
            module.__dict__.pop(method, None)
