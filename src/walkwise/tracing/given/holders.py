"""Containers of tensors in the caller's arguments: copy them for every run, and find the graphs among them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData

from walkwise.tracing.precision import HALVES
from walkwise.tracing.running.places import parts_of, renewed

#: What a graph calls its edges.
EDGES = ("edge_index", "adj_t")


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


def all_tensors_in(nested: Any) -> list[Tensor]:
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
