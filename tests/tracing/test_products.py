"""A product of two followed tensors means the same whichever way it is written: each gets half."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

import walkwise as ww

N = 4
EDGES = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
CUBE = torch.diag_embed(torch.eye(N, dtype=torch.float64))  # (o, i, j): one where all three are equal

WAYS = {
    "einsum": lambda a, b: torch.einsum("nk,nk->nk", a, b),
    "einsum of three": lambda a, b: torch.einsum("ni,oij,nj->no", a, CUBE, b),
    "bilinear": lambda a, b: F.bilinear(a, b, CUBE),
    "matmul": lambda a, b: (torch.diag_embed(a) @ b.unsqueeze(2)).squeeze(2),
    "bmm": lambda a, b: torch.bmm(torch.diag_embed(a), b.unsqueeze(2)).squeeze(2),
    "addcmul": lambda a, b: torch.addcmul(torch.zeros_like(a), a, b),
    "in place": lambda a, b: a.clone().mul_(b),
}


class Product(nn.Module):
    """Two layers with a product of two maps between them."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = GCNConv(3, N, bias=False), GCNConv(N, 1, bias=False)
        self.u, self.v = nn.Linear(N, N, bias=False), nn.Linear(N, N, bias=False)
        self.way = way
        self.double()

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        return self.second(self.way(self.u(h), self.v(h)), edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("way", WAYS)
def test_products_are_alike(way, rule):
    x = torch.rand(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    written, product = (ww.trace(Product(f), x, EDGES, rule=rule) for f in (WAYS[way], torch.mul))
    assert written.input_relevance == pytest.approx(written.output)
    torch.testing.assert_close(
        ww.subgraph_relevance(written, [[0], [1, 2]]), ww.subgraph_relevance(product, [[0], [1, 2]])
    )
    torch.testing.assert_close(ww.node_relevance(written), ww.node_relevance(product))
