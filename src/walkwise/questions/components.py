"""The connected parts of a graph."""

from __future__ import annotations

from collections import Counter

from torch import Tensor


def largest_component(edge_index: Tensor, num_nodes: int) -> int:
    """How many nodes the largest connected part of a graph has, edges counting in either direction.

    Args:
        edge_index: the edges, (2, E).
        num_nodes: M, the number of nodes.

    >>> import torch
    >>> largest_component(torch.tensor([[0, 3], [1, 1]]), 4)
    3
    """
    above = list(range(num_nodes))

    def top(node: int) -> int:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for source, target in edge_index.t().tolist():
        above[top(source)] = top(target)
    return max(Counter(map(top, range(num_nodes))).values(), default=0)
