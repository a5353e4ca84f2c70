"""Moving the tensors of a chain to another device or type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from walkwise.core.edges import Edges

T = TypeVar("T")


@dataclass(frozen=True)
class Cast:
    """Moves tensors to a device and floating-point ones to a dtype (None: leave as it is)."""

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    _shared: dict[int, tuple[Any, Any]] = field(default_factory=dict, repr=False)

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor, cast."""
        return tensor.to(device=self.device, dtype=self.dtype if tensor.is_floating_point() else None)

    def nested(self, item: Any) -> Any:
        """Nested arguments with their tensors, and the types that they ask for, cast."""

        def cast(leaf: Any) -> Any:
            if isinstance(leaf, torch.dtype) and leaf.is_floating_point and self.dtype is not None:
                return self.dtype
            return self(leaf) if isinstance(leaf, Tensor) else leaf

        return mapped(item, cast)

    def edges(self, edges: Edges) -> Edges:
        """The edges, moved; edges that operators share stay shared."""
        return self.shared(edges, lambda edges, cast: Edges(cast(edges.source), cast(edges.target), edges.num_nodes))

    def shared(self, item: T, moved: Callable[[T, Cast], T]) -> T:
        """What operators share, moved once."""
        if id(item) not in self._shared:
            self._shared[id(item)] = item, moved(item, self)
        kept: T = self._shared[id(item)][1]
        return kept


def mapped(nested: Any, change: Callable[[Any], Any]) -> Any:
    """Nested arguments, each of them changed."""
    if type(nested) in (list, tuple):
        return type(nested)([mapped(item, change) for item in nested])
    if type(nested) is dict:
        return {key: mapped(item, change) for key, item in nested.items()}
    return change(nested)
