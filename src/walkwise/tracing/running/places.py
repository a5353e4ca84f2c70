"""Containers of tensors (graphs, lists, dictionaries and other objects): their parts, places in them, and copies."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

#: The keys that lead to something: of the tuple or the dictionary, then of what is there, and so on.
Place = tuple[Any, ...]
#: What a module was given, by the names of its parameters; by number where they have none.
Arguments = dict[str | int, Any]
#: How deep to look for tensors: arguments, one of them, its contents, and their contents.
_DEPTH = 4


def by_name(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments of a module, which are the same whether they were given in order or by name."""
    names = _in_order(type(module).forward)
    return {names[i] if i < len(names) else i: item for i, item in enumerate(args)} | kwargs


@functools.lru_cache(maxsize=256)
def _in_order(method: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters that a method takes in order, after the object itself."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in ordered)


def parts_of(holder: Any) -> dict[Any, Any] | None:
    """The contents of a list, a dictionary, a graph or an object with tensors, by name or number; else None."""
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, tuple) and hasattr(holder, "_fields"):
        return dict(zip(holder._fields, holder, strict=True))
    if isinstance(holder, (list, tuple)):
        return dict(enumerate(holder))
    if isinstance(holder, Data):
        return {name: holder[name] for name in holder.keys()}  # noqa: SIM118  (it is no dict)
    if isinstance(holder, (Tensor, nn.Module, BaseData, type)) or is_sparse(holder):
        return None
    parts = _attributes(holder)
    told = dataclasses.is_dataclass(holder) or any(isinstance(part, Tensor | BaseData) for part in parts.values())
    return parts if told else None


def with_parts(holder: Any, parts: dict[Any, Any]) -> Any:
    """A copy of a list, a dictionary or an object, with these parts instead of its own."""
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
    """A copy with other tensors, graphs, lists and objects; ``made`` remembers the copy of each."""
    if isinstance(nested, (str, int, float)):
        return nested
    made = {} if made is None else made
    if id(nested) not in made:
        made[id(nested)] = nested  # where it holds itself
        made[id(nested)] = _renewed(nested, change, made)
    return made[id(nested)]


def items_in(item: Any, *, below: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Everything in something, and its place."""
    yield below, item
    for key, part in (parts_of(item) or {}).items() if len(below) < _DEPTH else ():
        yield from items_in(part, below=(*below, key))


def tensors_in(item: Any) -> Iterator[tuple[Place, Tensor]]:
    """The tensors in something, and their places."""
    return ((place, part) for place, part in items_in(item) if isinstance(part, Tensor))


def at(place: Place, item: Any) -> Any:
    """What is at a place, or None."""
    for key in place:
        item = (parts_of(item) or {}).get(key)
    return item


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
