"""Several graphs side by side, in float64: what models run on here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walkwise.datasets import Graphs
from walkwise.datasets.graphset import offsets


@dataclass(frozen=True, eq=False)
class Bunch:
    """Graphs as one graph without edges between them."""

    x: Tensor  # (M, F)
    edge_index: Tensor  # (2, E)
    batch: Tensor  # (M,) the graph of every node
    y: Tensor  # (G,) labels
    nodes_before: Tensor  # (G + 1,) where each graph's nodes begin
    edges_before: Tensor  # (G + 1,) where each graph's edges begin

    def __len__(self) -> int:
        return len(self.y)

    @property
    def sizes(self) -> Tensor:
        """The nodes of each graph.  # (G,)"""
        return self.nodes_before.diff()


def bunch(graphs: Graphs, index: Sequence[int] | Tensor | None = None) -> Bunch:
    """Some of the graphs of a data set, or all, side by side."""
    chosen = torch.arange(len(graphs)) if index is None else torch.as_tensor(index)
    data: Any = graphs.batch(chosen)
    nodes, edges = (before.diff()[chosen] for before in (graphs.nodes_before, graphs.edges_before))
    return Bunch(data.x.double(), data.edge_index, data.batch, data.y, offsets(nodes), offsets(edges))
