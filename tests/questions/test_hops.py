"""Where a model passes messages several times between two positions, a subgraph still costs what surrounds it."""

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import walkwise as ww
from walkwise import reference
from walkwise.core.chain import Hops
from walkwise.questions import excursions, neighbours, standing_rows, subgraphs
from walkwise.questions.given_subgraphs import as_node_sets
from walkwise.questions.neighbours import Neighbours, hop_neighbours, step_neighbours
from walkwise.questions.partial_walks import Stages
from walkwise.search import local_contributions, orders
from walkwise.search.local_contributions import node_contributions

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


def everywhere(name, M):
    """The same chain, of whose steps nothing is known: every node is tried from every other."""
    chain = chain_of(name, M)
    chain.memo["step neighbours"] = None
    chain.memo["stages"] = Stages(chain, Neighbours.everywhere(M), nearby=False)
    return chain


@pytest.mark.parametrize("name", MODELS)
def test_walks_that_hop_are_those_found_everywhere(name):
    ours, theirs = chain_of(name, 11), everywhere(name, 11)
    walks, relevance = (list(found) for found in zip(*[_listed(chain) for chain in (ours, theirs)], strict=True))
    assert walks[0] == walks[1]
    assert relevance[0] == pytest.approx(relevance[1], abs=1e-12)
    assert sum(relevance[0]) == pytest.approx(ours.input_relevance)
    best, expected = (ww.top_walks(chain, 5) for chain in (ours, theirs))
    assert best.relevance.tolist() == pytest.approx(expected.relevance.tolist(), abs=1e-12)


def _listed(chain):
    walks = ww.enumerate_walks(chain)
    return walks.tolist(), ww.walk_relevance(chain, walks).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_a_step_leads_as_far_as_messages_are_passed(name):
    chain, M = chain_of(name, 40), 40
    hop = np.zeros((M, M), dtype=int)
    one = hop_neighbours(chain)
    hop[one.here, one.nodes] = 1
    near = step_neighbours(chain)
    reached = np.zeros((M, M), dtype=bool)
    reached[near.here, near.nodes] = True
    assert (reached == (np.linalg.matrix_power(hop, chain.hops.between) > 0)).all()


def test_where_hops_lead_to_too_many_nodes_every_node_is_tried(monkeypatch):
    monkeypatch.setattr(neighbours, "_MOST_PAIRS", 10)
    chain = chain_of("SG", 7)
    assert step_neighbours(chain) is None
    assert _listed(chain)[0] == _listed(everywhere("SG", 7))[0]


@pytest.mark.parametrize("name", MODELS)
def test_single_walks_and_steps_need_what_surrounds_them_alone(name, monkeypatch):
    chain = chain_of(name, 60)
    walks = torch.randint(0, 60, (40, chain.num_layers + 1), generator=torch.Generator().manual_seed(0))
    walks = (walks[:, :1] + (walks % 4 - 2).cumsum(1)) % 60
    monkeypatch.setattr(standing_rows, "_DEARER", 0)
    nearby = [ww.walk_relevance(chain, walks), *(ww.edge_relevance(chain, layer=p) for p in range(chain.num_layers))]
    monkeypatch.setattr(standing_rows, "_around", lambda *_: None)
    monkeypatch.setattr(type(chain), "local", False)
    expected = [ww.walk_relevance(chain, walks), *(ww.edge_relevance(chain, layer=p) for p in range(chain.num_layers))]
    assert nearby[0].abs().max() > 1e-6
    for ours, theirs in zip(nearby, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
@pytest.mark.parametrize("name", MODELS)
def test_contributions_come_from_what_surrounds_a_node(name, alpha):
    chain, inside = chain_of(name, 40), np.arange(40) % 7 != 3
    candidates, S = np.array([0, 3, 10, 11, 20, 39]), np.flatnonzero(np.arange(40) % 7 != 3).tolist()
    near = hop_neighbours(chain).both_ways()
    with torch.no_grad():
        ours, _ = node_contributions(chain, near, inside, alpha, candidates)
    moved = ww.subgraph_relevance(chain, [sorted({*S} ^ {m}) for m in candidates.tolist()], alpha=alpha)
    want = moved - ww.subgraph_relevance(chain, [S], alpha=alpha)
    torch.testing.assert_close(ours, want, rtol=1e-8, atol=1e-11)


def test_a_smaller_ball_around_a_candidate_is_too_small(monkeypatch):
    chain, inside = chain_of("SG", 40), np.arange(40) % 7 != 3
    given = chain, hop_neighbours(chain).both_ways(), inside, 0.0, np.array([10])
    with torch.no_grad():
        whole, _ = node_contributions(*given)
        monkeypatch.setattr(local_contributions, "radius", lambda chain: chain.num_layers // 2)
        less, _ = node_contributions(*given)
    assert float((whole - less).abs()) > 1e-6


@pytest.mark.parametrize("mode", ["activation", "pruning"])
@pytest.mark.parametrize("name", ["SG", "residual"])
def test_orders_are_the_same_whichever_way(name, mode, monkeypatch):
    expected = ww.order_nodes(everywhere(name, 9), mode=mode)
    assert "batch" in expected.route
    listed = ww.order_nodes(chain_of(name, 9), mode=mode)
    assert "listed" in listed.route
    monkeypatch.setattr(orders, "_table", lambda *_: None)
    nearby = ww.order_nodes(chain_of(name, 9), mode=mode)
    assert "surroundings" in nearby.route
    assert listed.tolist() == nearby.tolist() == expected.tolist()
