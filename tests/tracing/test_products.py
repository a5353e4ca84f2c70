"""A product of two followed tensors is one thing, whichever way it is written: each factor gets half."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

import walkwise as ww

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

#: p · W · q for every node.
WAYS = {
    "bilinear": lambda p, q, weight: F.bilinear(p, q, weight[None]),
    "mul": lambda p, q, weight: ((p @ weight) * q).sum(-1, keepdim=True),
    "einsum": lambda p, q, weight: torch.einsum("ni,ni->n", p @ weight, q).view(-1, 1),
    "einsum with the weight": lambda p, q, weight: torch.einsum("ni,ij,nj->n", p, weight, q).view(-1, 1),
    "matmul": lambda p, q, weight: ((p @ weight).unsqueeze(1) @ q.unsqueeze(2)).view(-1, 1),
    "bmm": lambda p, q, weight: torch.bmm((p @ weight).unsqueeze(1), q.unsqueeze(2)).view(-1, 1),
}


class Product(nn.Module):
    """Two layers side by side, multiplied."""

    def __init__(self, multiply):
        super().__init__()
        torch.manual_seed(0)
        self.p, self.q = GCNConv(3, 4, bias=False), GCNConv(3, 4, bias=False)
        self.weight, self.multiply = nn.Parameter(torch.randn(4, 4)), multiply

    def forward(self, x, edge_index):
        return self.multiply(self.p(x, edge_index), self.q(x, edge_index), self.weight).sum(0, keepdim=True)


@pytest.mark.parametrize("name", WAYS)
def test_each_factor_gets_half(name):
    """Gradient times input counts a product twice, once for each factor; relevance counts it once."""
    model, x = Product(WAYS[name]).double().eval(), X.clone().requires_grad_()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    output = model(x, EDGES)[0, 0]
    (gradient,) = torch.autograd.grad(output, x)
    assert float((X * gradient).abs().max()) > 0.1
    assert chain.input_relevance == pytest.approx(float(output.detach()))
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient / 2)
