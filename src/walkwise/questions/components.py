"""The connected parts of a graph."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from walkwise.questions.neighbours import Ints, as_array


def component_sizes(edge_index: Tensor, num_nodes: int) -> Ints:
    """The size of every node's connected component, with edges counted in either direction: (M,).

    Args:
        edge_index: the edges, (2, E).
        num_nodes: M, the number of nodes.

    >>> import torch
    >>> component_sizes(torch.tensor([[0, 3], [1, 1]]), 4).tolist()
    [3, 3, 1, 3]
    """
    label = np.arange(num_nodes)
    source, target = as_array(edge_index)
    while True:  # every node takes the lowest label around it, and that node's own label
        lowest = label.copy()
        np.minimum.at(lowest, target, label[source])
        np.minimum.at(lowest, source, label[target])
        lowest = lowest[lowest]
        if (lowest == label).all():
            sizes: Ints = np.bincount(label, minlength=1)[label]
            return sizes
        label = lowest


def largest_component(edge_index: Tensor, num_nodes: int) -> int:
    """The size of the largest connected component, 0 without nodes."""
    return int(component_sizes(edge_index, num_nodes).max(initial=0))
