"""A model that does something before, between, inside or after its layers; several test files share it."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing

import walkwise as ww

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 2], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4, 2, 0]])
#: What a model is given besides features and edges: the last state of a recurrent cell, say.
STATE = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
SETS = [[0], [1, 2], [0, 2, 3], [4], [0, 1, 2, 3, 4]]


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))
        self.norm, self.scores = nn.LayerNorm(4), nn.Linear(4, 1)
        self.heads = nn.MultiheadAttention(4, 2, batch_first=True)
        self.state = None  # as the model is given it


def same(tensor):
    return tensor


def detached(tensor):
    return tensor.detach()


class Inside(MessagePassing):
    """A layer that does it to every message's source before it is sent."""

    def __init__(self, written, w, held):
        super().__init__(aggr="add")
        self.lin, self.w = nn.Linear(4, 4), w
        self.written, self.held = written, held

    def forward(self, x, edge_index):
        return self.lin(self.propagate(edge_index, x=self.written(self.w, x, self.held)))

    def message(self, x_j):
        return x_j


class Model(nn.Module):
    def __init__(self, written, place, held):
        super().__init__()
        self.w, self.written, self.place, self.held = Weights(), written, place, held
        self.first, self.second = GCNConv(4, 4), GCNConv(4, 4)
        self.inner = Inside(written, self.w, held)
        self.head = nn.Linear(4, 2)

    def step(self, h, place):
        return self.written(self.w, h, self.held) if self.place == place else h

    def forward(self, x, edge_index, state=None):
        self.w.state = state
        h = self.step(x, "before")
        h = self.first(h, edge_index).relu()
        h = self.step(h, "between")
        h = (self.inner if self.place == "inside" else self.second)(h, edge_index)
        h = self.step(h, "after").tanh()
        return self.head(h.sum(0, keepdim=True))


def traced(written, place, held, rule):
    torch.manual_seed(4)
    model = Model(written, place, held).double().eval()
    x = torch.randn(5, 4, dtype=torch.float64)
    return ww.trace(model, x, EDGES, target=0, rule=rule, state=STATE)


def check_same(ours, theirs):
    """Two chains give the same answers."""
    assert ours.output == pytest.approx(theirs.output, rel=1e-9)
    for alpha in (0.0, 0.4):
        a, b = (ww.subgraph_relevance(chain, SETS, alpha=alpha) for chain in (ours, theirs))
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(theirs), rtol=1e-9, atol=1e-11)
