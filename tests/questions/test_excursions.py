"""Relevance from the surroundings of subgraphs: the same as over all nodes, and as from every walk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv

import walkwise as ww
from chains import walks_of
from walkwise import reference
from walkwise.questions import nodesets, subgraphs
from walkwise.questions.balls import surroundings
from walkwise.questions.degrees import polynomial_nearby
from walkwise.questions.excursions import discounted_nearby
from walkwise.questions.given_subgraphs import as_node_sets
from walkwise.questions.standings import graded_standings, standings_of

KINDS = ["GIN", "GCN", "SAGE", "GAT"]
ALPHAS = [1e-3, 0.1, 0.5, 1.0]


@st.composite
def graphs(draw, most=12):
    """Features and edges: some nodes at random, a hub, self-loops, one-way edges, and nodes that have none."""
    M, seed = draw(st.integers(1, most)), draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    edges = [torch.randint(M, (2, draw(st.integers(0, 2 * M))), generator=generator)]
    if draw(st.booleans()):  # node 0 to and from the first half
        others = torch.arange(M // 2)
        edges += [torch.stack([others, others * 0]), torch.stack([others * 0, others])]
    if draw(st.booleans()):
        edges.append(torch.randint(M, (1, 2), generator=generator).expand(2, 2))
    both = torch.cat(edges, dim=1)
    if draw(st.booleans()):
        both = torch.cat([both, both.flip(0)], dim=1)
    return torch.randn(M, 3, generator=generator, dtype=torch.float64), torch.unique(both, dim=1)


def some_sets(draw, M):
    sets = draw(st.lists(st.sets(st.integers(0, M - 1)), max_size=4))
    return [sorted(nodes) for nodes in [*sets, (), range(M), {0}]]


def agree(chain, sets):
    """Both routes by name, so that no estimate decides."""
    scale = max(
        1.0, abs(chain.input_relevance), *(float((s.backward * s.forward).abs().sum()) for s in standings_of(chain))
    )
    with torch.no_grad():
        given_sets = as_node_sets(chain, sets)
        for alpha in ALPHAS:
            near = discounted_nearby(chain, given_sets, alpha)
            torch.testing.assert_close(
                near, subgraphs._discounted_everywhere(chain, given_sets, alpha), rtol=1e-10, atol=1e-13 * scale
            )
        near = polynomial_nearby(chain, given_sets)
        torch.testing.assert_close(
            near, subgraphs._polynomial_everywhere(chain, given_sets), rtol=1e-10, atol=1e-13 * scale
        )


@pytest.mark.parametrize("jump", [False, True], ids=["straight", "jumping"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(data=st.data(), layers=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_balls_give_what_all_nodes_give(net, kind, jump, data, layers, seed):
    x, edge_index = data.draw(graphs())
    chain = ww.trace(net(kind, layers=layers, seed=seed, jump=jump), x, edge_index, target=0, rule="zero")
    assert chain.local
    agree(chain, some_sets(data.draw, len(x)))


@pytest.mark.parametrize("jump", [False, True], ids=["straight", "jumping"])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_balls_give_what_all_walks_give(net, graph, layers, jump):
    """Against the definition, walk by walk."""
    chain = ww.trace(net("GIN", layers=layers, jump=jump), *graph(7, chords=0), target=0)
    walks, sets = walks_of(chain), [[2], [0, 6], [1, 2, 4], [], list(range(7))]
    near = as_node_sets(chain, sets)
    scale = max(map(abs, walks.values()))
    with torch.no_grad():
        polynomial = polynomial_nearby(chain, near)
        for alpha in (0.3, 1.0):
            wanted = [reference.subgraph_relevance(walks, nodes, alpha) for nodes in sets]
            powers = torch.tensor([alpha**d for d in range(layers + 1)], dtype=torch.float64)
            assert discounted_nearby(chain, near, alpha).tolist() == pytest.approx(wanted, abs=1e-11 * scale)
            assert (polynomial @ powers).tolist() == pytest.approx(wanted, abs=1e-11 * scale)
    assert (polynomial[:3, :2].abs() > 1e-4 * scale).all()


class Skipping(nn.Module):
    """Residual layers: a walk may stay where it is and pass a position by, at any of them."""

    def __init__(self, layers):
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(GCNConv(3, 3) for _ in range(layers))
        self.double()

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = x + conv(x, edge_index).relu()
        return x.sum(0, keepdim=True)


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_walks_that_pass_positions_by(graph, layers):
    chain = ww.trace(Skipping(layers), *graph(12, chords=4), target=1)
    assert chain.local
    assert not chain.straight
    agree(chain, [[0], [3, 4, 9], [], list(range(12)), [11, 1]])


def test_walks_that_begin_later(graph):
    chain = ww.trace(Recurrent(), *graph(12, chords=4), target=1)
    assert chain.local
    assert len(chain.roots) == 2
    agree(chain, [[0], [3, 4, 9], [], list(range(12)), [11, 1]])


def test_the_graded_messages_are_the_messages(graph):
    """Summed over the numbers of visits they are those of all walks."""
    chain = ww.trace(Skipping(3), *graph(8), target=1)
    with torch.no_grad():
        for plain, graded in zip(standings_of(chain), graded_standings(chain), strict=True):
            assert plain.visit is graded.visit
            torch.testing.assert_close(graded.backward.sum(1), plain.backward)
            torch.testing.assert_close(graded.forward.sum(1), plain.forward)


# -- what is carried --------------------------------------------------------------------------------------------


def path_chain(net, M=400, layers=4, jump=False):
    """A long path both ways: balls are small, and how many nodes they have is plain to see."""
    path = torch.stack([torch.arange(M - 1), torch.arange(1, M)])
    x = torch.randn(M, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return ww.trace(net("GIN", layers=layers, jump=jump), x, torch.cat([path, path.flip(0)], dim=1), target=0)


@pytest.mark.parametrize(("layers", "radius"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_balls_reach_half_the_layers(net, layers, radius):
    chain = path_chain(net, 60, layers)
    balls = surroundings(chain).balls(as_node_sets(chain, [[20], [], [40, 0]]))
    wanted = [range(20 - radius, 21 + radius), [], [*range(radius + 1), *range(40 - radius, 41 + radius)]]
    got = [balls.nodes[balls.owner == owner].tolist() for owner in range(3)]
    assert got == [list(nodes) for nodes in wanted]


def test_sizes_bound_the_balls(net, graph):
    chain = ww.trace(net("GCN", layers=4), *graph(30, chords=12), target=0)
    sets = as_node_sets(chain, [[0], [3, 4, 5], [], list(range(30)), [29]])
    around = surroundings(chain)
    rows = torch.bincount(around.balls(sets).owner, minlength=5)
    assert (around.sizes(sets) >= torch.clamp(rows * chain.width, max=around.whole)).all()
    assert around.sizes(sets)[2] == 0


@pytest.mark.parametrize("jump", [False, True])
def test_small_subgraphs_of_large_graphs_carry_their_balls_alone(net, monkeypatch, jump):
    chain = path_chain(net, jump=jump)
    sets = [[i, i + 1] for i in range(0, 40, 4)]
    ww.subgraph_relevance(chain, [[5]], alpha=0.3)  # the whole chain's messages are kept from here on
    whole = ww.subgraph_relevance(chain, sets, alpha=0.3), ww.subgraph_polynomial(chain, sets)

    def refuse(*args):
        raise AssertionError("all nodes are carried")

    monkeypatch.setattr(subgraphs, "all_rows", refuse)
    monkeypatch.setattr("walkwise.questions.standings.all_rows", refuse)
    assert torch.equal(ww.subgraph_relevance(chain, sets, alpha=0.3), whole[0])
    assert torch.equal(ww.subgraph_polynomial(chain, sets), whole[1])
    with pytest.raises(AssertionError, match="all nodes"):  # a set that is nearly the graph is not worth a ball
        ww.subgraph_relevance(chain, [list(range(399))], alpha=0.7)


class Centred(nn.Module):
    """Every node is told the mean of all between two layers."""

    def __init__(self, width):
        super().__init__()
        self.first, self.second = SAGEConv(width, 4), SAGEConv(4, 2)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        return self.second(h - h.mean(0), edge_index)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_small_graphs_and_far_reaching_layers_carry_all_nodes(net, graph):
    small = ww.trace(net("GCN"), *graph(6))
    x, edge_index = graph(300)
    far = ww.trace(Centred(x.shape[1]).to(x.dtype), x, edge_index, index=0)
    for chain in (small, far):
        assert not subgraphs._nearby(chain, as_node_sets(chain, [[0]]))
    near = path_chain(net)
    assert subgraphs._nearby(near, as_node_sets(near, [[0]]))


@given(budget=st.integers(1, 20_000))
def test_balls_do_not_depend_on_the_batches(net, budget):
    chain = path_chain(net, 80)
    sets = as_node_sets(chain, [[i] for i in range(20)] + [[], list(range(30)), [70]])
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        whole = discounted_nearby(chain, sets, 0.4), polynomial_nearby(chain, sets)
        patch.setitem(nodesets._BUDGET, "cpu", budget)
        split = discounted_nearby(chain, sets, 0.4), polynomial_nearby(chain, sets)
    for a, b in zip(whole, split, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


# -- where walks begin ------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Two looks at the features, the second by a later layer: walks begin at either."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.look, self.again = nn.Linear(3, 4), nn.Linear(3, 4)
        self.a, self.b, self.c = GCNConv(4, 4), GCNConv(4, 4), GCNConv(4, 2)
        self.double()

    def forward(self, x, edge_index):
        early, late = self.a(self.look(x), edge_index), self.b(self.again(x), edge_index)
        return self.c((early + late).relu(), edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize("kind", ["GCN", "GAT", "SG", "Transformer", "two roots", "skips"])
def test_walks_by_where_they_begin(net, graph, kind):
    model = {"two roots": Recurrent, "skips": lambda: Skipping(2)}.get(kind, lambda: net(kind))()
    chain = ww.trace(model, *graph(5), target=0)
    walks = walks_of(chain)
    scale = max(map(abs, walks.values()))
    assert any(walk[0] < 0 for walk in walks) is (kind == "two roots")
    assert any("walks also begin at later" in note for note in chain.notes) is (kind == "two roots")
    begun = ww.node_relevance(chain, layer="start")
    assert begun.tolist() == pytest.approx(reference.starts(walks, 5), abs=1e-11 * scale)
    assert float(begun.sum()) == pytest.approx(chain.input_relevance)
    for layer in range(chain.num_layers + 1):
        through = [sum(r for walk, r in walks.items() if walk[layer] == node) for node in range(5)]
        assert ww.node_relevance(chain, layer=layer).tolist() == pytest.approx(through, abs=1e-11 * scale)
