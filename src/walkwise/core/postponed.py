"""Tensors with a row for every node that are computed on request, as a whole or by rows.

Computing a rule's factors takes as much time as the model itself. A question about some nodes needs only their factors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(eq=False)
class Postponed:
    """Computes some of its rows, or all of them once; rows of messages can read it like a tensor."""

    shape: tuple[int, int]
    make: Callable[[Tensor | None], Tensor] | None  # rows by their numbers, None for all; let go once all are there
    asked: int = 0  # rows that were worked out by themselves
    known: Tensor | None = None  # all rows
    latest: tuple[Tensor, Tensor] | None = None  # the rows that were asked for last, and what they are

    def whole(self) -> Tensor:
        """All rows."""
        make = self.make
        if make is not None:
            self.known = _made(make, None)
            self.make = self.latest = None
        assert self.known is not None
        return self.known

    def index_select(self, axis: int, nodes: Tensor) -> Tensor:
        """Some rows; once as many rows were requested as there are, all are computed."""
        latest, make = self.latest, self.make
        if latest is not None and latest[0] is nodes:
            return latest[1]
        self.asked += len(nodes)
        if make is None or self.asked >= self.shape[0]:
            return self.whole().index_select(axis, nodes)
        self.latest = nodes, _made(make, nodes)
        return self.latest[1]

    def unsqueeze(self, axis: int) -> Tensor:
        """All rows, with one more axis."""
        return self.whole().unsqueeze(axis)

    def columns(self, count: int) -> list[Postponed]:
        """So many equal parts of the columns, which are computed together."""
        width = self.shape[1] // count

        def part(start: int) -> Postponed:
            def make(nodes: Tensor | None) -> Tensor:
                return some(self, nodes).narrow(1, start, width)

            return Postponed((self.shape[0], width), make)

        return [part(start) for start in range(0, self.shape[1], width)]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is the tensor itself."""
        return torch.clone, (self.whole(),)


def _made(make: Callable[[Tensor | None], Tensor], nodes: Tensor | None) -> Tensor:
    """Rows as a trace would have computed them, whatever modes are on or off now."""
    if not torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return make(nodes)
    with torch.inference_mode(False), torch.no_grad():
        return make(nodes)


#: A tensor with a row for every node.
NodeTensor = Tensor | Postponed


def whole(tensor: NodeTensor) -> Tensor:
    """All rows."""
    return tensor.whole() if isinstance(tensor, Postponed) else tensor


def some(tensor: NodeTensor, nodes: Tensor | None) -> Tensor:
    """Some rows, or all; a single row that stands for all stays one."""
    if nodes is None:
        return whole(tensor)
    return tensor if isinstance(tensor, Tensor) and tensor.shape[0] == 1 else tensor.index_select(0, nodes)
