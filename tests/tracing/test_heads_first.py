"""Attention between layers that is written by hand, its heads in the first dimension and nodes in the second."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv

import walkwise as ww

M, D = 5, 2
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
X = torch.randn(M, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def scores_first(q, k, v, held):
    return held((q @ k.transpose(1, 2)).softmax(-1)) @ v


def by_bmm(q, k, v, held):
    return torch.bmm(held(torch.bmm(q, k.mT).softmax(-1)), v)


def by_einsum(q, k, v, held):
    return torch.einsum("hij,hjd->hid", held(torch.einsum("hid,hjd->hij", q, k).softmax(-1)), v)


class Attending(nn.Module):
    """Nothing but attention between two layers: without a skip connection, no other rows tell whose these are."""

    def __init__(self, heads, attend, held=lambda scores: scores):
        super().__init__()
        torch.manual_seed(1)
        self.heads, self.attend, self.held = heads, attend, held
        self.first, self.second, self.head = GraphConv(4, 4), GraphConv(heads * D, 4), nn.Linear(4, 1)
        self.asked, self.asking, self.sent = (nn.Linear(4, heads * D) for _ in range(3))

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        parts = (lin(h).view(M, self.heads, D).transpose(0, 1) for lin in (self.asked, self.asking, self.sent))
        seen = self.attend(*parts, self.held).transpose(0, 1).reshape(M, -1)
        return self.head(self.second(seen, edge_index).relu()).sum(0, keepdim=True)


@pytest.mark.parametrize("nodes", [[0], [1, 2], [0, 3, 4], list(range(M))])
@pytest.mark.parametrize("attend", [scores_first, by_bmm, by_einsum])
@pytest.mark.parametrize("heads", [1, 2, M])
def test_walks_stand_at_the_nodes_that_attend(heads, attend, nodes):
    chain = ww.trace(Attending(heads, attend).double().eval(), X, EDGES, target=0, rule="zero")
    assert chain.num_layers == 2
    inside = torch.zeros(M, 1, dtype=torch.float64)
    inside[nodes] = 1
    model = Attending(heads, attend, torch.Tensor.detach).double().eval()

    def at_nodes(tensor):
        tensor.register_hook(lambda gradient: gradient * inside)

    model.second.register_forward_pre_hook(lambda module, given: at_nodes(given[0]))
    model.second.register_forward_hook(lambda module, given, made: at_nodes(made))
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x, EDGES).squeeze(), x)
    expected = float((gradient * X * inside).sum())
    assert float(ww.subgraph_relevance(chain, [nodes])[0]) == pytest.approx(expected, rel=1e-12, abs=1e-15)
