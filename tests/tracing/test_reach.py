"""How far a model looks from a node, and which nodes are asked about."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import APPNP, GAT, GCN, GIN, GraphSAGE, SAGEConv, SGConv

import walkwise as ww
from walkwise.errors import TargetError
from walkwise.tracing import reach
from walkwise.tracing.neighbourhoods import Reach
from walkwise.tracing.reach import _centres, _reaches, is_several

M = 40
PATH = torch.stack([torch.arange(M - 1), torch.arange(1, M)])
BOTH = torch.cat([PATH, PATH.flip(0)], dim=1)


class Stack(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index)
        return x


class Beside(nn.Module):
    """Two ways to the output, one of two layers and one of one."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = SAGEConv(3, 3), SAGEConv(3, 3), SAGEConv(3, 3)

    def forward(self, x, edge_index):
        return self.b(self.a(x, edge_index), edge_index) + self.c(x, edge_index)


@pytest.mark.parametrize(
    ("model", "steps", "nodes"),
    [
        (GraphSAGE(3, 4, 1, 2), 1, 3),
        (GraphSAGE(3, 4, 3, 2), 3, 7),
        (GIN(3, 4, 2, 2), 2, 5),
        (GAT(3, 4, 2, 2), 2, 5),
        (Beside(), 2, 5),
        # Where degrees count, one node stands for all those that are one step further away.
        (GCN(3, 4, 2, 2), 3, 6),
        (Stack(SGConv(3, 3, K=2)), 3, 6),
        (Stack(APPNP(3, 0.2)), 4, 8),
    ],
)
def test_a_model_looks_as_far_as_its_messages_go(model, steps, nodes, monkeypatch):
    monkeypatch.setattr(reach, "_MANY_NODES", 10)
    torch.manual_seed(0)
    chain = ww.trace(model.double().eval(), torch.rand(M, 3).double(), BOTH, index=20, target=0)
    (note,) = [note for note in chain.notes if note.startswith("traced on")]
    assert [int(number) for number in re.findall(r"\d+", note)] == [nodes, M, steps]


def test_the_nearest_reach_is_tried_first():
    def reaches(*modules):
        return _reaches(2, SimpleNamespace(modules=SimpleNamespace(convs=[("", module) for module in modules])))

    rim, further, both = Reach(3, rim=True), Reach(3), Reach(3, both_ways=True)
    assert reaches(SAGEConv(2, 2)) == [Reach(2), rim, further, both]
    assert reaches(SAGEConv(2, 2, flow="target_to_source")) == [both]


@pytest.mark.parametrize(
    ("index", "several"),
    [
        ([1], True), ((1, 2), True), (range(3), True), (torch.tensor([1]), True), (np.array([1]), True), (3, False),
        (torch.tensor(3), False), (np.int64(3), False), (None, False), ("user", False),
    ],
)  # fmt: skip
def test_lists_of_nodes(index, several):
    assert is_several(index) == several


def test_nodes_of_a_list_are_nodes():
    assert _centres([0, 4, 4], 5) == [0, 4, 4]
    assert _centres(torch.tensor([4, 0]), 5) == [4, 0]
    assert _centres(np.array([3]), 5) == [3]
    for wrong in ([], [5], [-1], [1.5], ["a"], [0, 5]):
        with pytest.raises(TargetError, match="a node, or a list of nodes, from 0 to 4"):
            _centres(wrong, 5)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_mask_is_no_list_of_nodes_0_and_1(kind):
    with pytest.raises(TargetError, match=r"from 0 to 4, got .*mask\.nonzero\(\)\.view\(-1\)"):
        _centres(kind([False, False, True, False, False]), 5)


@pytest.mark.parametrize("index", [-1, M, True, torch.tensor(True), "20"])
def test_what_is_no_node_is_left_to_the_target_to_refuse(index, monkeypatch):
    monkeypatch.setattr(reach, "_MANY_NODES", 10)
    with pytest.raises(TargetError):
        ww.trace(GraphSAGE(3, 4, 1, 2).double(), torch.rand(M, 3).double(), BOTH, index=index, target=0)


def test_graphs_of_few_nodes_and_wide_neighbourhoods_are_traced_whole(monkeypatch):
    def traced_on_part(many):
        monkeypatch.setattr(reach, "_MANY_NODES", many)
        chain = ww.trace(GraphSAGE(3, 4, 4, 2).double().eval(), torch.rand(M, 3).double(), BOTH, index=20, target=0)
        return any(note.startswith("traced on") for note in chain.notes)

    assert traced_on_part(M)
    assert not traced_on_part(M + 1)
    monkeypatch.setattr(reach, "_MOST_PART", 5)  # 9 nodes of 40 are more than a fifth
    assert not traced_on_part(M)
