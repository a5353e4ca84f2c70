"""Orders of edges after their nodes were renumbered, for layers that want edges sorted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def edge_orders(edge_index: Tensor, moved: Tensor) -> Iterator[Tensor]:
    """Orders of edges after their nodes were renumbered: sorted as before, first with neighbours in their old order.

    Edges that were not sorted stay as they are.

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
