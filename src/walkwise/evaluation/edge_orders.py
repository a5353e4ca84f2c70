"""Orders of edges whose nodes have got other numbers, for layers that take edges sorted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def edge_orders(edge_index: Tensor, moved: Tensor) -> Iterator[Tensor]:
    """Orders of edges whose nodes have got other numbers: sorted as they were, first with neighbours as they were.

    Where they were not sorted, they stay as they are.

    >>> edge_index, moved = torch.tensor([[1, 2, 0], [0, 0, 1]]), torch.tensor([[2, 1, 0], [0, 0, 2]])
    >>> [order.tolist() for order in edge_orders(edge_index, moved)]
    [[0, 1, 2], [1, 0, 2], [0, 1, 2]]
    """
    plain = torch.arange(moved.shape[1], device=moved.device)
    for row in (1, 0):
        if bool((edge_index[row].diff() >= 0).all()):
            yield moved[row].argsort(stable=True)
            others = moved[1 - row].argsort(stable=True)
            yield others[moved[row][others].argsort(stable=True)]
    yield plain
