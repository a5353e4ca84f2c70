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
    "einsum with the weight last": lambda p, q, weight: torch.einsum("... i, ...j, ij", p, q, weight).view(-1, 1),
    "einsum with a gate": lambda p, q, weight: torch.einsum("ni,ij,nj,n->n", p, weight, q, torch.ones(4).to(p))[
        :, None
    ],
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


#: h times one number for every node.
GATED = {
    "mul": lambda h, gate: h * gate,
    "expanded": lambda h, gate: h * gate.expand_as(h),
    "einsum": lambda h, gate: torch.einsum("mn,m->mn", h, gate.squeeze(1)),
    "einsum, the other way round": lambda h, gate: torch.einsum("...L,...Ld->...Ld", gate.squeeze(-1), h),
    "einsum of three": lambda h, gate: torch.einsum("mn,m,m->mn", h, gate.squeeze(1).sqrt(), gate.squeeze(1).sqrt()),
    "matmul": lambda h, gate: (h.unsqueeze(2) @ gate.unsqueeze(2)).squeeze(2),
    "bmm": lambda h, gate: torch.bmm(gate.unsqueeze(2), h.unsqueeze(1)).squeeze(1),
    "addcmul": lambda h, gate: torch.addcmul(torch.zeros_like(h), h, gate),
    "divided": lambda h, gate: h / (1 / gate),
}


class Gated(nn.Module):
    """One layer's output times a number that another makes for every node."""

    def __init__(self, multiply, detached=False):
        super().__init__()
        torch.manual_seed(0)
        self.h, self.gate = GCNConv(3, 4), GCNConv(3, 1)
        self.multiply, self.detached = multiply, detached

    def forward(self, x, edge_index):
        gate = self.gate(x, edge_index)
        return self.multiply(self.h(x, edge_index), gate.detach() if self.detached else gate).sum(0, keepdim=True)


@pytest.mark.filterwarnings("ignore:layer 'gate':walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", GATED)
def test_a_factor_that_is_broadcast_is_a_gate(name):
    asked = {"target": 0, "rule": "zero"}
    chain = ww.trace(Gated(GATED[name]).double().eval(), X, EDGES, **asked)
    held = ww.trace(Gated(GATED["mul"], detached=True).double().eval(), X, EDGES, **asked)
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(held))
    assert any("held constant, as a gate" in note for note in chain.notes) is (name != "divided")


@pytest.mark.parametrize(
    "outer",
    [lambda p, q: p.unsqueeze(2) * q.unsqueeze(1), lambda p, q: torch.einsum("mn,mk->mnk", p, q)],
    ids=["mul", "einsum"],
)
def test_of_an_outer_product_each_factor_gets_half(outer):
    model = Product(lambda p, q, weight: outer(p, q[:, :3]).sum((1, 2)).view(-1, 1)).double().eval()
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x, EDGES)[0, 0], x)
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient / 2)
