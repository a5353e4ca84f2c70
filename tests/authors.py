"""The paper's authors' models as plain PyG modules, from the golden data."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_add_pool


def data_folder() -> Path:
    """The folder that holds golden values and data sets, or skip the test."""
    if "WALKWISE_DATA" not in os.environ:
        pytest.skip("golden values: set WALKWISE_DATA to the folder that holds golden/ and data/")
    return Path(os.environ["WALKWISE_DATA"])


def read(name: str) -> Any:
    """A golden file."""
    return json.loads((data_folder() / "golden" / name).read_text())


class AuthorsGIN(nn.Module):
    """GIN layers with their weights; the read-out is the sum over nodes / sqrt(20)."""

    def __init__(self, name: str) -> None:
        super().__init__()
        arrays = np.load(data_folder() / "golden/weights" / f"{name}.npz")
        blocks = read(f"weights/{name}.json")["blocks"][1:]
        self.convs = nn.ModuleList(_block(block["layers"], arrays) for block in blocks)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, size: int | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return global_add_pool(x, batch, size) / 20**0.5


def _block(layers: list[dict[str, Any]], arrays: Any) -> GINConv:
    modules: list[nn.Module] = []
    for layer in layers:
        modules.append(nn.Linear(layer["in_width"], layer["out_width"], dtype=torch.float64))
        modules.extend([nn.ReLU()] if layer["relu"] else [])
    conv = GINConv(nn.Sequential(*modules))
    linears = [module for module in conv.nn if isinstance(module, nn.Linear)]
    with torch.no_grad():
        for i, (layer, linear) in enumerate(zip(layers, linears, strict=True)):
            halved = 2 if i == 0 else 1  # they aggregate with (A + I) / 2
            linear.weight.copy_(torch.from_numpy(arrays[layer["W"]]).double().t() / halved)
            linear.bias.copy_(torch.from_numpy(arrays[layer["b"]]).double())
    return conv


def mutag() -> Batch:
    """The 188 molecules in their order, with their labels and features."""
    return Batch.from_data_list([_molecule(graph) for graph in read("graphs-mutag.json")])


def _molecule(graph: dict[str, Any]) -> Data:
    x = torch.eye(7, dtype=torch.float64)[graph["feature_index"]]
    once = torch.tensor(graph["edges"]).t()
    return Data(x=x, edge_index=torch.cat([once, once.flip(0)], dim=1), y=graph["label"])
