"""Where a model passes messages several times between two positions, a subgraph still costs what surrounds it."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import walkwise as ww
from walkwise import reference
from walkwise.core.chain import Hops
from walkwise.questions import excursions, subgraphs
from walkwise.questions.given_subgraphs import as_node_sets

N = 4


class Net(nn.Module):
    """Two layers, or three with residuals around them."""

    def __init__(self, *convs, residual=False):
        super().__init__()
        self.convs, self.head, self.residual = nn.ModuleList(convs), nn.Linear(N, 2), residual
        self.double().eval()

    def forward(self, x, edge_index):
        h = self.convs[0](x, edge_index)
        for conv in self.convs[1:]:
            h = conv(h.relu(), edge_index) + (h if self.residual else 0)
        return self.head(h.relu()).sum(0, keepdim=True)


#: Models, and how often they pass messages between two positions and after the last.
MODELS = {
    "SG": (lambda: Net(pyg.SGConv(N, N, K=2), pyg.SGConv(N, N, K=3)), Hops(3, 0)),
    "TAG": (lambda: Net(pyg.TAGConv(N, N, K=2), pyg.GCNConv(N, N)), Hops(2, 0)),
    "Cheb": (lambda: Net(pyg.ChebConv(N, N, K=3), pyg.ChebConv(N, N, K=2)), Hops(2, 0)),
    "APPNP": (lambda: Net(pyg.GCNConv(N, N), pyg.APPNP(4, 0.1)), Hops(4, 0)),
    "residual": (lambda: Net(*(pyg.GraphConv(N, N) for _ in range(3)), residual=True), Hops(1, 1)),
    "GCN": (lambda: Net(pyg.GCNConv(N, N), pyg.GCNConv(N, N)), Hops(1, 0)),
}


def chain_of(name, M, rule="auto"):
    torch.manual_seed(1)
    ring = torch.stack([torch.arange(M), (torch.arange(M) + 1) % M])
    one_way = torch.stack([torch.arange(0, M, 3), (torch.arange(0, M, 3) + 2) % M])
    edges = torch.cat([ring, ring.flip(0), one_way], 1)
    return ww.trace(MODELS[name][0](), torch.randn(M, N, dtype=torch.float64), edges, target=0, rule=rule)


@pytest.fixture
def _always_nearby(monkeypatch):
    monkeypatch.setattr(subgraphs, "_FEW_ROWS", 0)
    monkeypatch.setattr(subgraphs, "fewer_rows", lambda *_: True)


@pytest.mark.usefixtures("_always_nearby")
@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", MODELS)
def test_balls_give_what_all_walks_give(name, rule):
    chain = chain_of(name, 7, rule)
    assert chain.hops == MODELS[name][1]
    assert chain.local == (name == "GCN")
    walks = ww.enumerate_walks(chain)
    table = dict(zip(map(tuple, walks.tolist()), ww.walk_relevance(chain, walks).tolist(), strict=True))
    sets = [[0], [1, 2], [0, 3], [], [2, 4, 6], list(range(7))]
    for alpha in (0.0, 0.4):
        ours = ww.subgraph_relevance(chain, sets, alpha=alpha).tolist()
        assert ours == pytest.approx([reference.subgraph_relevance(table, nodes, alpha) for nodes in sets], abs=1e-10)


@pytest.mark.usefixtures("_always_nearby")
@pytest.mark.parametrize("name", MODELS)
def test_balls_give_what_all_nodes_give(name, monkeypatch):
    chain = chain_of(name, 60)
    sets = [[i, (i + 1) % 60, (i + 3) % 60] for i in range(0, 60, 4)]
    given = as_node_sets(chain, sets)
    torch.testing.assert_close(ww.subgraph_relevance(chain, sets), subgraphs._inside_everywhere(chain, given))
    everywhere = subgraphs._discounted_everywhere(chain, given, 0.3)
    torch.testing.assert_close(ww.subgraph_relevance(chain, sets, alpha=0.3), everywhere)
    torch.testing.assert_close(ww.subgraph_polynomial(chain, sets), subgraphs._polynomial_everywhere(chain, given))
    monkeypatch.setattr(excursions, "budget", lambda chain: 1)  # one by one
    torch.testing.assert_close(ww.subgraph_relevance(chain, sets), subgraphs._inside_everywhere(chain, given))


@pytest.mark.usefixtures("_always_nearby")
@pytest.mark.parametrize("name", ["SG", "TAG", "APPNP", "residual"])
def test_a_smaller_ball_is_too_small(name):
    chain = chain_of(name, 60)
    hops, sets = chain.hops, as_node_sets(chain, [[3, 4]])
    radius = max(hops.between // 2, hops.after)
    everywhere = subgraphs._inside_everywhere(chain, sets)
    torch.testing.assert_close(subgraphs._inside_nearby(chain, sets, radius), everywhere)
    assert float((subgraphs._inside_nearby(chain, sets, radius - 1) - everywhere).abs().max()) > 1e-9
