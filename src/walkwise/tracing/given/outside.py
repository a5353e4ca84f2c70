"""Models whose ``forward`` takes no arguments and reads its graph from an outside variable, ``data.x``."""

from __future__ import annotations

import inspect
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn

from walkwise.tracing.running.shadow import held_in


def reads(model: nn.Module, graph: Any) -> bool:
    """Whether a model's ``forward`` takes no arguments and reads this very graph, and no other method does."""
    function = getattr(getattr(model, "forward", None), "__func__", None)
    if type(function) is not FunctionType or len(inspect.signature(function).parameters) > 1:
        return False
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    running = (method for kind in kinds for name, method in vars(kind).items() if name not in ("__init__", "__repr__"))
    methods = (method for method in running if type(method) is FunctionType and method is not function)
    others = any(_speaks_of(method, graph) for method in methods)
    return _speaks_of(function, graph) and not others


def _speaks_of(function: FunctionType, graph: Any) -> bool:
    """Whether a function reads a variable outside that holds a graph."""
    named = (function.__globals__.get(name) for name in function.__code__.co_names)
    return any(item is graph for item in (*named, *map(held_in, function.__closure__ or ())))


def run_on(shadow: nn.Module, graph: Any, other: Any) -> Any:
    """Run a shadow whose ``forward`` reads another graph instead of its own."""
    function: Any = shadow.forward.__func__  # type: ignore[attr-defined]
    names = {n: other for n in function.__code__.co_names if function.__globals__.get(n) is graph}
    cells = tuple(CellType(other) if held_in(cell) is graph else cell for cell in function.__closure__ or ())
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
