"""A graph, models and explainers that the tests of the PyG adapter share."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.explain import Explainer
from torch_geometric.nn import GCNConv, global_add_pool

import walkwise as ww

generator = torch.Generator().manual_seed(3)
x = torch.randn(8, 3, generator=generator, dtype=torch.float64)
edge_index = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 6, 5, 7, 6]])
further = {
    "edge_weight": torch.rand(14, generator=generator, dtype=torch.float64) + 0.5,
    "batch": torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]),
    "edge_label_index": torch.tensor([[0, 1, 2, 4], [3, 4, 5, 4]]),
}

BINARY, MULTICLASS, REGRESSION = "binary_classification", "multiclass_classification", "regression"
ENDINGS = {
    (BINARY, "probs"): torch.sigmoid,
    (MULTICLASS, "probs"): lambda z: z.softmax(dim=-1),
    (MULTICLASS, "log_probs"): lambda z: nn.functional.log_softmax(z, dim=-1),
}


class Model(nn.Module):
    """Two layers, then a prediction for graphs, nodes, or pairs of nodes."""

    def __init__(self, level, columns, ending=None, make=GCNConv):
        super().__init__()
        torch.manual_seed(1)
        self.level, self.ending = level, ending
        self.convs = nn.ModuleList([make(3, 6), make(6, 6)])
        self.head = nn.Linear(6, columns)
        self.double()

    def forward(self, x, edge_index, batch=None, edge_weight=None, edge_label_index=None):
        weight = {} if edge_weight is None else {"edge_weight": edge_weight}
        for conv in self.convs:
            x = conv(x, edge_index, **weight).relu()
        if self.level == "graph":
            x = global_add_pool(x, batch)
        elif self.level == "edge":
            x = x[edge_label_index[0]] * x[edge_label_index[1]]
        x = self.head(x)
        return x if self.ending is None else self.ending(x)


def columns(mode):
    return {BINARY: 1, MULTICLASS: 4, REGRESSION: 2}[mode]


def explainer_of(model, mode, level, return_type="raw", masks=("object", "object"), kind="model", **options):
    threshold = options.pop("threshold_config", None)
    return Explainer(
        model,
        algorithm=ww.SubgraphLRPExplainer(**options),
        explanation_type=kind,
        node_mask_type=masks[0],
        edge_mask_type=masks[1],
        model_config={"mode": mode, "task_level": level, "return_type": return_type},
        threshold_config=threshold,
    )
