"""Models whose ``forward`` takes nothing and reads its graph from a variable outside, ``data.x``."""

from __future__ import annotations

import inspect
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn


def reads(model: nn.Module, graph: Any) -> bool:
    """Whether a model's ``forward`` takes nothing, and speaks of this very graph."""
    function = getattr(getattr(model, "forward", None), "__func__", None)
    if type(function) is not FunctionType or len(inspect.signature(function).parameters) > 1:
        return False
    return any(function.__globals__.get(name) is graph for name in function.__code__.co_names) or any(
        _held(cell) is graph for cell in function.__closure__ or ()
    )


def run_on(shadow: nn.Module, graph: Any, other: Any) -> Any:
    """What a shadow returns whose ``forward`` speaks of another graph in the place of the one it reads."""
    function: Any = shadow.forward.__func__  # type: ignore[attr-defined]
    names = {n: other for n in function.__code__.co_names if function.__globals__.get(n) is graph}
    cells = tuple(CellType(other) if _held(cell) is graph else cell for cell in function.__closure__ or ())
    space = function.__globals__ | names
    twin = FunctionType(function.__code__, space, function.__name__, function.__defaults__, cells or None)
    before = shadow.__dict__.get("forward")
    shadow.__dict__["forward"] = MethodType(twin, shadow)
    try:
        return shadow()
    finally:
        if before is None:
            del shadow.__dict__["forward"]
        else:
            shadow.__dict__["forward"] = before


def _held(cell: CellType) -> Any:
    """What a variable holds that a function closes over; None before it is set."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
