"""Relevance by node and by feature, of models that begin with features and of those that have their own."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import walkwise as ww

EDGES = torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 2]])


class Own(nn.Module):
    """A vector of its own for every node, or one for each kind of nodes."""

    def __init__(self, kinds):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.conv, self.kinds = nn.Embedding(4, 3), GCNConv(3, 2), kinds
        self.double()

    def forward(self, x, edge_index):
        return self.conv(self.table(x) if self.kinds else self.table.weight, edge_index)


@pytest.mark.parametrize("kinds", [True, False])
def test_vectors_of_the_model_s_own_are_the_features(kinds):
    model, x = Own(kinds), torch.tensor([2, 0, 2, 1])
    chain = ww.trace(model, x, EDGES, index=1, target=0, rule="zero")
    rows = (model.table(x) if kinds else model.table.weight).detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model.conv(rows, EDGES)[1, 0], rows)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * rows.detach())
    torch.testing.assert_close(ww.feature_relevance(chain).sum(1), ww.node_relevance(chain))


class Late(nn.Module):
    """Reads other features than those it begins with at its second layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.enter, self.a, self.b = nn.Linear(3, 3), GCNConv(3, 3), GCNConv(3, 2)
        self.double()

    def forward(self, x, edge_index):
        h = self.a(self.enter(x), edge_index).relu()
        return self.b(h + x, edge_index)


def test_an_encoder_is_passed_to_the_features():
    model, x = Late(), torch.rand(4, 3, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, index=1, target=0, rule="zero")
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(leaf, EDGES)[1, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
    start = ww.node_relevance(chain, layer="start")
    assert float(start.sum()) == pytest.approx(chain.input_relevance)
    for layer in range(3):
        by_walks = torch.zeros(4, dtype=torch.float64)
        walks = ww.enumerate_walks(chain)
        for walk, number in zip(walks.tolist(), ww.walk_relevance(chain, walks).tolist(), strict=True):
            if walk[layer] >= 0:
                by_walks[walk[layer]] += number
        torch.testing.assert_close(ww.node_relevance(chain, layer=layer), by_walks)


def test_where_no_walk_arrives_nothing_is_relevant():
    """As where the explained output hears of no node that the model begins with."""
    chain = ww.trace(Late(), torch.rand(4, 3, dtype=torch.float64), EDGES, index=1, target=0, rule="zero")
    silent = replace(chain, steps=())
    assert ww.node_relevance(silent, layer=1).tolist() == [0.0] * 4
    assert ww.subgraph_relevance(silent, [[0, 1]], alpha=0.5).tolist() == [0.0]
