"""Training from the command line."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from walkwise import models
from walkwise.cli.sources import load_subject


def test_train_and_explain_what_was_trained(run, tmp_path):
    file = tmp_path / "trained.safetensors"
    report = run("train", "ba2motif-gin2", "ba2motif-generated", "--epochs", 1, "--out", file, "--json").json
    assert (report["epochs"], report["weights"]) == (1, str(file))
    assert 0 <= report["test_accuracy"] <= 1
    explained = run("explain", file, "ba2motif-generated", "--json").json
    model = models.open_weights(file)
    graph = load_subject("ba2motif").graph(0)
    assert explained["outputs"] == pytest.approx(model(graph.x, graph.edge_index)[0].tolist())


TRAINABLE = """
import torch
from typer.testing import CliRunner
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = GCNConv(1, 4), nn.Linear(4, 2)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))

def graphs():
    edges = torch.tensor([[0, 1], [1, 0]])
    return [Data(torch.full((2, 1), float(i % 2)), edges, y=torch.tensor([i % 2])) for i in range(40)]

def graph(y, width=1):
    return Data(torch.ones(2, width), torch.tensor([[0, 1], [1, 0]]), y=y)

def unlabelled():
    return [graph(None)]

def by_node():
    return [graph(torch.tensor([0, 1]))]

def by_number():
    return [graph(torch.tensor([0.5]))]

def few():
    return graphs()[:3]

def many_classes():
    return [graph(torch.tensor([i % 3])) for i in range(12)]

def mixed():
    return [graph(torch.tensor([i % 2]), 1 + i % 2) for i in range(12)]

class Tied(Small):
    def __init__(self):
        super().__init__()
        self.same = self.head

class Nodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(1, 2)

    def forward(self, x, edge_index, batch):
        return self.conv(x, edge_index)
"""


def test_train_a_model_of_ones_own(run, own):
    Path(f"{own}.py").write_text(TRAINABLE)
    found = run("train", f"{own}:Small", f"{own}:graphs", "--epochs", 3)
    assert (found.code, Path("Small.safetensors").exists()) == (0, True)
    assert "3 epochs" in found.out
    arguments = [f"{own}:Small", f"{own}:graphs", "--weights", "Small.safetensors"]
    explained = run("explain", *arguments, "--target", 1, "--graph", 1, "--json").json
    model = models.load_weights(importlib.import_module(own).Small(), "Small.safetensors").eval()
    graph = importlib.import_module(own).graphs()[1]
    outputs = model(graph.x, graph.edge_index, torch.zeros(2, dtype=torch.long))[0]
    assert explained["outputs"] == pytest.approx(outputs.tolist())
    assert explained["target"] == 1
    assert run("train", f"{own}:Small").code == 2


@pytest.mark.parametrize(
    ("model", "graphs", "words"),
    [
        ("Small", "unlabelled", "one label y on every graph, a class from 0; {own}:unlabelled 0 has none"),
        ("Small", "by_node", "has torch.int64 of shape (2,)"),
        ("Small", "by_number", "has 0.5"),
        ("Small", "few", "{own}:few has 1 of class 1"),
        ("Small", "mixed", "The graphs of {own}:mixed do not go into one batch"),
        ("Small", "many_classes", "{own}:Small returns (3, 2) for 3 graphs"),
        ("Nodes", "graphs", "{own}:Nodes returns (6, 2) for 3 graphs"),
        ("GCNConv", "graphs", "GCNConv() failed"),
    ],
)
def test_what_does_not_fit_is_said_before_training(run, own, model, graphs, words):
    Path(f"{own}.py").write_text(TRAINABLE)
    found = run("train", f"{own}:{model}", f"{own}:{graphs}")
    assert found.code in (1, 2)
    assert words.format(own=own) in found.err
    assert "--debug" not in found.err
    assert not list(Path.cwd().glob("*.safetensors"))


def test_layers_that_share_weights_are_saved(run, own):
    Path(f"{own}.py").write_text(TRAINABLE)
    found = run("train", f"{own}:Tied", f"{own}:graphs", "--epochs", 1)
    assert (found.code, found.err) == (0, "")
    assert "1 epoch, best 1" in found.out
    assert run("explain", f"{own}:Tied", f"{own}:graphs", "--weights", "Tied.safetensors").code == 0
