"""The paper's authors' models as plain PyG modules in float64, their graphs and their numbers."""

import functools
import json
import lzma
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import remove_self_loops

ROOT = Path(os.environ.get("WALKWISE_DATA") or Path(__file__).parents[2] / "shared")

needs_golden = pytest.mark.skipif(
    not (ROOT / "golden").is_dir(),
    reason=f"no golden values in {ROOT}: set WALKWISE_DATA to the folder that holds golden/ and data/",
)


def golden(name):
    """What golden/NAME.json says."""
    return json.loads((ROOT / "golden" / f"{name}.json").read_text())


class Gin(nn.Module):
    """GIN blocks (one linear map in GCN-3), and a sum over the nodes of each graph / √20."""

    def __init__(self, blocks):
        super().__init__()
        self.convs = nn.ModuleList(GINConv(nn.Sequential(*block)) for block in blocks)

    def forward(self, x, edge_index, batch=None, size=None):
        for conv in self.convs:
            x = conv(x, edge_index)
        return global_add_pool(x, batch, size) / 20**0.5


def load(name):
    """One of their models, with their weights."""
    arrays = np.load(ROOT / "golden/weights" / f"{name}.npz")
    blocks, weights = [], []
    for block in golden(f"weights/{name}")["blocks"][1:]:
        modules = []
        for layer in block["layers"]:
            linear = nn.Linear(layer["in_width"], layer["out_width"], dtype=torch.float64)
            share = 0.5 if layer["aggregates"] else 1.0  # they aggregate with (A + I) / 2
            weights.append((linear, torch.tensor(arrays[layer["W"]]).double().t() * share, arrays[layer["b"]]))
            modules += [linear, nn.ReLU()] if layer["relu"] else [linear]
        blocks.append(modules)
    model = Gin(blocks)
    with torch.no_grad():
        for linear, weight, bias in weights:  # GINConv resets its network when it is made
            linear.weight.copy_(weight)
            linear.bias.copy_(torch.tensor(bias))
    return model.eval()


@functools.cache
def mutag():
    """The 188 molecules in their order, with their labels and features."""
    return [_molecule(graph) for graph in golden("graphs-mutag")]


def _molecule(graph):
    x = torch.eye(7, dtype=torch.float64)[graph["feature_index"]]
    edges = torch.tensor(graph["edges"]).t()
    return Data(x, torch.cat([edges, edges.flip(0)], dim=1), y=graph["label"])


@functools.cache
def ba2motif():
    """The 1000 graphs of BA-2motif without self-loops, every feature one; nodes 20 to 24 are the motif."""
    packed = ROOT / "data/ba2motif/raw/BA-2motif.pkl.xz"
    adjacency, _, labels = pickle.loads(lzma.decompress(packed.read_bytes()))
    return [_motif(dense, label) for dense, label in zip(adjacency, labels, strict=True)]


def _motif(dense, label):
    edge_index, _ = remove_self_loops(torch.tensor(dense).nonzero().t())
    return Data(torch.ones(len(dense), 1, dtype=torch.float64), edge_index.contiguous(), y=int(label.argmax()))
