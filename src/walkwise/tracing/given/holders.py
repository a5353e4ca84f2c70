"""What holds tensors: graphs, lists, dictionaries and objects of a caller's own, their parts by name, and copies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

from walkwise.tracing.precision import HALVES

#: What a graph calls its edges.
EDGES = ("edge_index", "adj_t")


def parts_of(holder: Any) -> dict[Any, Any] | None:
    """What a list, a dictionary or an object with tensors holds, by name or number; None of anything else."""
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, tuple) and hasattr(holder, "_fields"):
        return dict(zip(holder._fields, holder, strict=True))
    if isinstance(holder, (list, tuple)):
        return dict(enumerate(holder))
    if isinstance(holder, (Tensor, nn.Module, BaseData, type)) or is_sparse(holder):
        return None
    parts = _attributes(holder)
    return parts if any(isinstance(part, Tensor | BaseData) for part in parts.values()) else None


def with_parts(holder: Any, parts: dict[Any, Any]) -> Any:
    """A copy of a list, a dictionary or an object, with these parts in the place of its own."""
    if isinstance(holder, tuple):
        values = [parts.get(name, part) for name, part in (parts_of(holder) or {}).items()]
        return holder._make(values) if hasattr(holder, "_make") else tuple(values)
    twin = copy.copy(holder)
    if isinstance(holder, (dict, list)):
        for name, part in parts.items():
            twin[name] = part
        return twin
    for name, part in parts.items():
        object.__setattr__(twin, name, part)  # of a frozen dataclass, too
    return twin


def renewed(nested: Any, change: Callable[[Tensor], Any], made: dict[int, Any] | None = None) -> Any:
    """The same with other tensors, in other graphs, lists and objects; ``made`` keeps what each has become."""
    if isinstance(nested, (str, int, float)):
        return nested
    made = {} if made is None else made
    if id(nested) not in made:
        made[id(nested)] = nested  # where it holds itself
        made[id(nested)] = _renewed(nested, change, made)
    return made[id(nested)]


def again(value: Any, dtype: torch.dtype | None = None) -> Any:
    """A copy of floating-point numbers, those in half precision in another type, and of what holds any tensors."""
    if not isinstance(value, Tensor):
        return renewed(value, lambda tensor: _copied(tensor, dtype))
    return _copied(value, dtype) if value.is_floating_point() else value


def in_main_memory(nested: Any, made: dict[int, Any] | None = None) -> Any:
    """Tensors, and those in graphs, lists and objects, in main memory; ``made`` keeps what each has become."""
    return renewed(nested, lambda tensor: tensor.cpu(), made)


def is_graph(value: Any) -> bool:
    """Whether something is a graph, or a list of graphs: each a Data, or an object with x and edges."""
    if isinstance(value, BaseData):
        return True
    parts = parts_of(value)
    if not parts:
        return False
    own = isinstance(parts.get("x"), Tensor) and any(isinstance(parts.get(name), Tensor) for name in EDGES)
    return own or (isinstance(value, (dict, list, tuple)) and all(map(is_graph, parts.values())))


def tensors_in(nested: Any) -> list[Tensor]:
    """All tensors that a graph, a list or an object holds."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    renewed(nested, note)
    return found


def _copied(tensor: Any, dtype: torch.dtype | None) -> Any:
    if not isinstance(tensor, Tensor):  # a sparse matrix of another kind
        return tensor
    if dtype is not None and tensor.dtype in HALVES:
        return tensor.detach().to(dtype)
    return tensor.detach().clone() if tensor.layout == torch.strided else tensor


def _renewed(nested: Any, change: Callable[[Tensor], Any], made: dict[int, Any]) -> Any:
    if isinstance(nested, Tensor) or is_sparse(nested):
        return change(nested)
    if isinstance(nested, BaseData):
        twin = copy.copy(nested)
        for store, kept in zip(twin.stores, nested.stores, strict=True):
            store.update({name: renewed(value, change, made) for name, value in kept.items()})
        return twin
    parts = parts_of(nested)
    if parts is not None:
        with suppress(TypeError, AttributeError):  # what cannot be copied stays what it is
            return with_parts(nested, {name: renewed(part, change, made) for name, part in parts.items()})
    return nested


def _attributes(holder: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots, too."""
    slots = [name for kind in type(holder).__mro__ for name in _several(getattr(kind, "__slots__", ()))]
    held = {name: getattr(holder, name) for name in slots if hasattr(holder, name) and name[:2] != "__"}
    return held | (getattr(holder, "__dict__", None) or {})


def _several(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
