"""Explainers of the registry for all graphs of a model at once: the same steps, taken on one graph made of all.

No graph has a say in another's scores, and tests compare them with the registry's, which takes graphs one by one.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain.algorithm import GNNExplainer
from torch_geometric.explain.algorithm.utils import set_masks

from quality.networks import Network
from walkwise.baselines import Attribution, node_scores
from walkwise.baselines.edge_mask import descended_mask
from walkwise.baselines.gradients import integrated_gradients
from walkwise.baselines.pgm import chi_square, pgm_explainer
from walkwise.baselines.pyg import gnn_explainer
from walkwise.evaluation.predictions import Prediction


@dataclass(frozen=True)
class Union:
    """Graphs side by side, and where the explained number of each stands in the network's output."""

    network: Network
    predictions: Sequence[Prediction]
    x: Tensor  # (M, F)
    edge_index: Tensor  # (2, E)
    graphs: Tensor  # (M,) the graph of every node
    rows: Tensor  # (G,)
    columns: Tensor  # (G,)

    @classmethod
    def of(cls, network: Network, predictions: Sequence[Prediction]) -> Union:
        batch = Batch.from_data_list([Data(p.x, p.edge_index) for p in predictions])
        rows = torch.arange(len(predictions))
        if network.level == "node":
            rows = batch.ptr[:-1] + torch.tensor([int(p.index) for p in predictions])
        columns = torch.tensor([int(p.target) for p in predictions])
        return cls(network, predictions, batch.x, batch.edge_index, batch.batch, rows, columns)

    @property
    def batch(self) -> Tensor | None:
        """What the network takes as ``batch``."""
        return None if self.network.level == "node" else self.graphs

    def numbers(self, network: nn.Module, x: Tensor) -> Tensor:
        """The explained number of every graph, at node features x, of the network or a masked copy.  # (G,)"""
        return network(x, self.edge_index, self.batch)[self.rows, self.columns]

    def misfit(self, network: nn.Module) -> Tensor:
        """How far a masked copy is from saying what is explained: cross-entropy, or the square, summed over graphs."""
        rows = network(self.x, self.edge_index, self.batch)[self.rows]
        if self.network.level == "number":
            return (rows - torch.stack([p.logits for p in self.predictions])).square().sum()
        return nn.functional.cross_entropy(rows, self.columns, reduction="sum")

    @property
    def owners(self) -> Tensor:
        """The graph of every edge.  # (E,)"""
        return self.graphs[self.edge_index[0]]

    def split(self, values: Tensor) -> list[Tensor]:
        """Columns of all nodes, graph by graph."""
        return list(values.split([p.num_nodes for p in self.predictions], dim=-1))


def integrated(union: Union) -> list[Tensor]:
    """Integrated gradients."""
    steps, total = default(integrated_gradients, "steps"), torch.zeros_like(union.x)
    for step in range(steps):
        x = (union.x * ((step + 0.5) / steps)).requires_grad_(True)
        total += torch.autograd.grad(union.numbers(union.network, x).sum(), x)[0]
    return union.split((union.x * total / steps).sum(1))


@torch.no_grad()
def pgm(union: Union) -> list[Tensor]:
    """PGM-Explainer."""
    samples, changed = default(pgm_explainer, "samples"), default(pgm_explainer, "changed")
    perturbed = torch.rand(samples, len(union.x)) < 0.5  # (B, M)
    values = torch.stack([union.numbers(union.network, union.x * ~row[:, None]) for row in perturbed])  # (B, G)
    most = values.argsort(dim=0)[: max(1, round(samples * changed))]
    fell = torch.zeros_like(values, dtype=torch.bool).scatter(0, most, True)
    return [chi_square(of, changed) for of, changed in zip(union.split(perturbed), fell.t(), strict=True)]


def paper_gnn_explainer(union: Union) -> list[Tensor]:
    """GNNExplainer as the paper's authors run it."""

    def loss(masked: nn.Module) -> Tensor:
        return -union.numbers(masked, union.x).sum()

    return by_edges(union, descended_mask(union.network, union.edge_index, loss, union.x.dtype))


def pyg_gnn_explainer(union: Union) -> list[Tensor]:
    """PyG's GNNExplainer: its first mask, losses and steps, every graph with the terms that it has by itself."""
    masked = copy.deepcopy(union.network).requires_grad_(False)
    sizes, owners = union.graphs.bincount(), union.owners
    spread = math.sqrt(2) / sizes.sqrt()  # of the first mask, for a graph of that size
    mask = nn.Parameter(torch.randn(len(owners)) * spread[owners])
    set_masks(masked, mask, union.edge_index, apply_sigmoid=True)
    optimizer = torch.optim.Adam([mask], lr=default(gnn_explainer, "lr"))
    hard = None
    for _ in range(default(gnn_explainer, "epochs")):
        optimizer.zero_grad()
        (union.misfit(masked) + (0.0 if hard is None else held_small(mask[hard].sigmoid(), owners[hard]))).backward()
        optimizer.step()
        if hard is None:  # edges without a say are left out from here on
            hard = mask.grad != 0
    return by_edges(union, (mask.sigmoid() * hard).detach())


def held_small(mask: Tensor, owners: Tensor) -> Tensor:
    """PyG's penalties on the size of a mask and on its entropy, a mean over the edges of each graph, summed."""
    weight = GNNExplainer().coeffs
    tiny = weight["EPS"]
    entropy = -mask * (mask + tiny).log() - (1 - mask) * (1 - mask + tiny).log()
    share = 1 / owners.bincount().clamp(min=1)[owners]
    return weight["edge_size"] * mask.sum() + weight["edge_ent"] * (entropy * share).sum()


def by_edges(union: Union, mask: Tensor) -> list[Tensor]:
    """The scores of nodes that a mask of all edges amounts to, graph by graph."""
    counts = [p.edge_index.shape[1] for p in union.predictions]
    return [
        node_scores(Attribution(part.new_zeros(p.num_nodes), part, p.edge_index))
        for part, p in zip(mask.split(counts), union.predictions, strict=True)
    ]


def default(explain: Callable[..., Any], name: str) -> Any:
    """What an explainer of the registry takes for an option by itself."""
    return inspect.signature(explain).parameters[name].default


EXPLAINERS: dict[str, Callable[[Union], list[Tensor]]] = {
    "integrated-gradients": integrated,
    "pgmexplainer": pgm,
    "gnnexplainer": pyg_gnn_explainer,
    "gnnexplainer-paper": paper_gnn_explainer,
}
