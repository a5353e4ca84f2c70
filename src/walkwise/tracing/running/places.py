"""Places in what a module is handed or returns: of tensors in tuples, dictionaries, graphs and other objects."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

#: The keys that lead to something: of the tuple or the dictionary, then of what is there, and so on.
Place = tuple[Any, ...]
#: How far tensors are looked for: arguments, one of them, what it holds, and what that holds.
_DEPTH = 4


def tensors_in(item: Any, *, below: Place = ()) -> Iterator[tuple[Place, Tensor]]:
    """The tensors in something, and their places."""
    if isinstance(item, Tensor):
        yield below, item
    elif len(below) < _DEPTH:
        for key, part in _parts(item):
            yield from tensors_in(part, below=(*below, key))


def items_in(item: Any, *, below: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Everything in something, and its place."""
    yield below, item
    if len(below) < _DEPTH:
        for key, part in _parts(item):
            yield from items_in(part, below=(*below, key))


def at(place: Place, item: Any) -> Any:
    """What is at a place, or None."""
    for key in place:
        item = dict(_parts(item)).get(key)
    return item


def exchanged(item: Any, change: Callable[[Tensor], Tensor], depth: int = 0) -> Any:
    """The same thing with other tensors in it; what holds them is copied."""
    if isinstance(item, Tensor):
        return change(item)
    parts = _parts(item) if depth < _DEPTH else []
    made = {key: exchanged(part, change, depth + 1) for key, part in parts}
    if not parts or isinstance(item, dict):
        return made if parts else item
    if isinstance(item, (list, tuple)):
        values = made.values()
        return type(item)(*values) if hasattr(item, "_fields") else type(item)(values)
    twin = copy.copy(item)
    for key, part in made.items():
        if isinstance(item, Data):
            twin[key] = part
        else:
            object.__setattr__(twin, key, part)  # it may be frozen
    return twin


def _parts(item: Any) -> list[tuple[Any, Any]]:
    """What something holds, by key, index or name."""
    if isinstance(item, dict):
        return list(item.items())
    if isinstance(item, (list, tuple)):
        return list(enumerate(item))
    if isinstance(item, Data):
        return [(key, item[key]) for key in item.keys()]  # noqa: SIM118  (it is no dict)
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return [(each.name, getattr(item, each.name)) for each in dataclasses.fields(item)]
    return list(vars(item).items()) if isinstance(item, SimpleNamespace) else []
