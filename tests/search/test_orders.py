"""Greedy orders against a loop over single queries."""

from __future__ import annotations

import functools
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    GINConv,
    GraphConv,
    GraphSAGE,
    JumpingKnowledge,
    global_add_pool,
    global_mean_pool,
)
from torch_geometric.utils import erdos_renyi_graph

import walkwise as ww
from chains import chain_of, walks_of
from walkwise import reference
from walkwise.errors import InputError
from walkwise.questions import walk_listing
from walkwise.questions import walk_tables as tables
from walkwise.questions.graphs import PaddedGraphs
from walkwise.questions.neighbours import step_neighbours
from walkwise.questions.walk_tables import ListedWalks, walk_table
from walkwise.search import contributions, orders
from walkwise.search.contributions import QueryContributions
from walkwise.search.greedy import Criterion
from walkwise.search.orders import order_nodes

ALPHAS = [0.0, 0.25, 0.7, 1.0]
MODES = ["activation", "pruning"]


class GraphGIN(nn.Module):
    """GIN layers and a sum over nodes."""

    def __init__(self, width: int = 6, layers: int = 3) -> None:
        super().__init__()
        self.gin = GIN(3, width, layers, out_channels=2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.gin(x, edge_index), batch)


class Jumping(nn.Module):
    """Two layers, a skip, and a read-out that reads both."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GINConv(nn.Sequential(nn.Linear(3, 5), nn.ReLU()))
        self.second = GINConv(nn.Sequential(nn.Linear(5, 5), nn.ReLU()))
        self.jump = JumpingKnowledge("cat")
        self.last = nn.Linear(10, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        first = self.first(x, edge_index)
        second = self.second(first, edge_index) + first
        return self.last(global_mean_pool(self.jump([first, second]), batch))


class GraphGCN(nn.Module):
    """GCN layers, a mean over nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.gcn = GCN(3, 6, 2, out_channels=2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_mean_pool(self.gcn(x, edge_index), batch)


class GraphGAT(nn.Module):
    """Attention: every edge has a weight for each of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.gat = GAT(3, 4, 2, out_channels=2, heads=2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.gat(x, edge_index), batch)


class GraphSage(nn.Module):
    """Means over neighbours: every edge has a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.sage = GraphSAGE(3, 5, 2, out_channels=2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.sage(x, edge_index), batch)


class RootedGIN(nn.Module):
    """Sums or means over neighbours, and 1 + eps of the node itself."""

    def __init__(self, aggr: str, eps: float) -> None:
        super().__init__()
        self.first = GINConv(nn.Sequential(nn.Linear(3, 5), nn.ReLU()), eps=eps, aggr=aggr)
        self.second = GINConv(nn.Linear(5, 2), eps=eps, aggr=aggr)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.second(self.first(x, edge_index), edge_index), batch)


class Rooted(nn.Module):
    """Sums over neighbours; the node itself has a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphConv(3, 5), GraphConv(5, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.second(self.first(x, edge_index).relu(), edge_index), batch)


class Residual(nn.Module):
    """Skips past every layer; the read-out may read the input as well."""

    def __init__(self, reads_input: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GINConv(nn.Sequential(nn.Linear(3, 3), nn.ReLU())) for _ in range(2))
        self.reads_input = reads_input

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        h = x
        for conv in self.convs:
            h = h + conv(h, edge_index)
        return global_add_pool(h + 2 * x if self.reads_input else h, batch)


class OwnEdges(nn.Module):
    """The second layer goes along other edges than the first; all together as many pairs as the first has edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GINConv(nn.Sequential(nn.Linear(3, 5), nn.ReLU()))
        self.second = GINConv(nn.Linear(5, 2))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        twice = torch.tensor([[0, 0, 1], [1, 1, 2]]) % len(x)
        once = torch.tensor([[0, 1, 2], [1, 2, 3]]) % len(x)
        return global_add_pool(self.second(self.first(x, twice), once), batch)


class Global(nn.Module):
    """A layer that looks at all nodes between two others: walks may step anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GINConv(nn.Sequential(nn.Linear(3, 5), nn.ReLU()))
        self.second = GINConv(nn.Sequential(nn.Linear(5, 2), nn.ReLU()))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        h = self.first(x, edge_index)
        h = h + h.mean(0, keepdim=True)
        return global_add_pool(self.second(h, edge_index), batch)


MODELS = {
    "gin": GraphGIN,
    "jumping": Jumping,
    "gcn": GraphGCN,
    "gat": GraphGAT,
    "sage": GraphSage,
    "mean gin": functools.partial(RootedGIN, "mean", 0.4),
    "mean gin, eps = 0": functools.partial(RootedGIN, "mean", 0.0),
    "gin, eps = 0.4": functools.partial(RootedGIN, "sum", 0.4),
    "rooted": Rooted,
    "residual": functools.partial(Residual, False),
    "reads its input": functools.partial(Residual, True),
    "own edges": OwnEdges,
    "global": Global,
}


def make_chain(name: str, seed: int, nodes: int = 8, directed: bool = False) -> ww.RelevanceChain:
    torch.manual_seed(seed)
    model = MODELS[name]().double()
    with torch.no_grad():  # so that not all neurons are off
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("bias"):
                parameter.uniform_(0, 0.5)
    edge_index = erdos_renyi_graph(nodes, 0.3, directed=directed)
    return ww.trace(model, torch.randn(nodes, 3, dtype=torch.double), edge_index, target=0)


def assert_greedy(order, chain, mode, alpha, nodes=None, tolerance=1e-12) -> None:
    """Every node is the best given those before it; rounding may decide between equal ones."""
    nodes, walks = list(range(chain.num_nodes)) if nodes is None else nodes, walks_of(chain)
    assert sorted(order.tolist()) == nodes
    scale = max([abs(reference.subgraph_relevance(walks, [m], 1.0)) for m in nodes] or [0.0])
    for i, chosen in enumerate(order.tolist()):
        scores = reference.order_scores(walks, nodes, order[:i].tolist(), mode, alpha)
        assert scores[chosen] >= max(scores.values()) - tolerance * scale, (i, chosen, scores)


@pytest.fixture(params=["long table", "short table", "surroundings", "queries"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways to an order: walks listed, changes kept or added up anew, and every step asked of the chain."""
    if "table" in request.param:
        monkeypatch.setattr(orders, "_worth", lambda chain, criterion: 10**6)
        monkeypatch.setattr(contributions, "_SHORT", 10**9 if request.param == "short table" else 0)
    else:
        monkeypatch.setattr(orders, "_table", lambda *_: None)
    if request.param == "queries":
        monkeypatch.setattr(orders, "LocalContributions", QueryContributions)
    return request.param


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", MODES)
def test_equals_the_loop_over_single_queries(mode, name, directed, seed, route):
    chain = make_chain(name, seed, directed=directed)
    orders = order_nodes(chain, mode=mode, alpha=ALPHAS)
    if route == "short table":  # which is for a single discount
        orders = torch.stack([order_nodes(chain, mode=mode, alpha=alpha) for alpha in ALPHAS])
    assert orders.shape == (len(ALPHAS), chain.num_nodes)
    for alpha, order in zip(ALPHAS, orders, strict=True):
        assert_greedy(order, chain, mode, alpha)


@pytest.mark.parametrize("mode", MODES)
def test_equals_the_slow_twin_node_for_node(mode, route):
    for seed in range(3):
        chain = make_chain("gin", seed)
        for alpha in (0.0, 0.3):
            want = reference.order_nodes(walks_of(chain), range(8), mode, alpha)
            assert order_nodes(chain, mode=mode, alpha=alpha).tolist() == want


@pytest.mark.parametrize("mode", MODES)
def test_both_routes_agree_node_for_node(mode, monkeypatch):
    chains = [make_chain("gin", seed, nodes=12) for seed in range(4)]
    alphas = [0.0, 0.3, 0.8, 1.0]  # at 1, nodes that have no walks of their own are all equal
    listed = [order_nodes(chain, mode=mode, alpha=alphas).tolist() for chain in chains]
    monkeypatch.setattr(orders, "_table", lambda *_: None)
    assert listed == [order_nodes(chain, mode=mode, alpha=alphas).tolist() for chain in chains]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_equal_leaves_come_by_index_where_every_step_is_asked(dtype, alpha, monkeypatch):
    """At α = 1 taking a leaf away changes R_α by its own walks alone, which are small beside the rounding of R_α."""
    monkeypatch.setattr(orders, "_table", lambda *_: None)
    monkeypatch.setattr(orders, "LocalContributions", QueryContributions)
    leaves = torch.arange(1, 41)
    star = torch.stack([torch.zeros_like(leaves), leaves])
    by_rounding = []
    for seed in range(5):
        torch.manual_seed(seed)
        model = GraphGIN(width=16, layers=6).to(dtype)
        chain = ww.trace(model, torch.ones(41, 3, dtype=dtype), torch.cat([star, star.flip(0)], dim=1), target=0)
        order = order_nodes(chain, mode="pruning", alpha=alpha).tolist()
        assert [node for node in order if node] == leaves.tolist()
        order = order_nodes(chain, mode="pruning", alpha=alpha, tolerance=0).tolist()
        by_rounding.append([node for node in order if node] != leaves.tolist())
    assert any(by_rounding) or alpha < 1 or dtype == torch.float64


def test_what_is_asked_is_as_exact_as_its_largest_number():
    """Single nodes may have more relevance than all together, with signs that cancel."""
    chains = [make_chain("sage", seed) for seed in range(20)]
    largest = [float(ww.subgraph_relevance(chain, [[m] for m in range(8)]).abs().max()) for chain in chains]
    whole = [abs(chain.input_relevance) for chain in chains]
    assert any(one > 1.5 * all_of > 0 for one, all_of in zip(largest, whole, strict=True))
    for chain, one, all_of in zip(chains, largest, whole, strict=True):
        asked = QueryContributions(
            chain, Criterion("activation", (0.0,), PaddedGraphs.alone(8)), step_neighbours(chain)
        )
        assert asked.rounding == pytest.approx(16 * torch.finfo(torch.float64).eps * max(one, all_of), rel=1e-6, abs=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_one_discount_gives_one_order(mode, alpha, route):
    chain = make_chain("gin", 5)
    order = order_nodes(chain, mode=mode, alpha=alpha)
    assert order.dtype == torch.long
    assert order.tolist() == order_nodes(chain, mode=mode, alpha=[alpha])[0].tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shuffled", [False, True])
def test_graphs_of_a_batch_are_ordered_apart(mode, shuffled, route):
    torch.manual_seed(3)
    model = GraphGIN().double()
    sizes, parts, shift = [5, 1, 7, 4], [], 0
    for size in sizes:
        parts.append(erdos_renyi_graph(size, 0.5) + shift)
        shift += size
    batch = torch.repeat_interleave(torch.arange(4), torch.tensor(sizes))
    edge_index, x = torch.cat(parts, dim=1), torch.randn(shift, 3, dtype=torch.double)
    if shuffled:
        mixed = torch.randperm(shift)
        batch, x, edge_index = batch[mixed], x[mixed], mixed.argsort()[edge_index]
        chain = ww.trace(model, x, edge_index, target=lambda out: out[:, 0].sum())
    else:
        chain = ww.trace(model, x, edge_index, batch=batch, target=[0, 1, 0, 1])
    orders = order_nodes(chain, mode=mode, alpha=[0.0, 0.5], graphs=batch)
    for g, order in enumerate(orders):
        nodes = (batch == g).nonzero().flatten().tolist()
        assert_greedy(order[0], chain, mode, 0.0, nodes)
        assert_greedy(order[1], chain, mode, 0.5, nodes)
    first = order_nodes(chain, mode=mode, alpha=0.0, graphs=batch)
    assert [o.tolist() for o in first] == [o[0].tolist() for o in orders]
    assert all(o.is_contiguous() and o.untyped_storage().nbytes() == 8 * o.numel() for o in (*orders, *first))


@pytest.mark.parametrize("mode", MODES)
def test_graphs_with_many_walks_are_taken_a_few_at_a_time(mode, route, monkeypatch):
    torch.manual_seed(4)
    sizes = torch.tensor([6, 3, 0, 7, 2])
    starts = sizes.cumsum(0) - sizes
    edges = [erdos_renyi_graph(int(n), 0.6) + s for n, s in zip(sizes, starts, strict=True) if n]
    batch = torch.repeat_interleave(sizes)
    x = torch.randn(len(batch), 3, dtype=torch.double)
    chain = ww.trace(GraphGIN().double(), x, torch.cat(edges, dim=1), target=lambda out: out[:, 0].sum())
    together = order_nodes(chain, mode=mode, alpha=[0.0, 0.6], graphs=batch)
    monkeypatch.setattr(orders, "_MOST_TOGETHER", 50)
    few = order_nodes(chain, mode=mode, alpha=[0.0, 0.6], graphs=batch)
    assert [o.tolist() for o in few] == [o.tolist() for o in together]
    assert [o.shape for o in few] == [(2, int(n)) for n in sizes]


@pytest.mark.parametrize("mode", MODES)
def test_equal_candidates_come_by_index(mode, route):
    torch.manual_seed(0)
    model = GraphGIN().double()
    alone = torch.empty(2, 0, dtype=torch.long)
    chain = ww.trace(model, torch.zeros(4, 3, dtype=torch.double), alone, target=0)
    assert order_nodes(chain, mode=mode).tolist() == [0, 1, 2, 3]  # no walk has any relevance


@pytest.mark.parametrize("mode", MODES)
def test_nodes_by_index_where_biases_absorb_everything(mode, route):
    torch.manual_seed(0)
    model = GIN(2, 4, num_layers=3, out_channels=1).double()
    model.convs[-1].nn.lins[-1].weight.data.zero_()
    ring = torch.tensor(
        [[m, (m + 1) % 50] for m in range(50)]
    ).t()  # from some size on, only walks with relevance are listed
    chain = ww.trace(model, torch.rand(50, 2, dtype=torch.double), ring, target=lambda output: output.sum())
    assert chain.input_relevance == 0
    assert order_nodes(chain, mode=mode, alpha=0.5).tolist() == list(range(50))


@pytest.mark.parametrize("mode", MODES)
def test_a_tolerance_takes_symmetric_nodes_by_index(mode, route):
    torch.manual_seed(0)
    ring = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    ring = torch.cat([ring, ring.flip(0)], dim=1)[:, torch.randperm(12)]
    chain = ww.trace(GraphGIN(), torch.ones(6, 3), ring, target=0)
    order = order_nodes(chain, mode=mode, alpha=0.3, tolerance=1e-5).tolist()
    assert order[0] == 0
    assert order.index(1) < order.index(5)  # the first of each pair of mirror images
    assert order == order_nodes(chain.to(dtype=torch.float64), mode=mode, alpha=0.3, tolerance=1e-5).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_float32_orders_are_greedy_up_to_rounding(mode, route):
    chain = make_chain("gin", 1, nodes=10).to(dtype=torch.float32)
    order = order_nodes(chain, mode=mode, alpha=0.5)
    assert_greedy(order, chain.to(dtype=torch.float64), mode, 0.5, tolerance=1e-5)


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_float32_takes_no_real_difference_for_rounding(alpha):
    """Towards α = 1 changes are small beside the largest one; float32 tells them apart all the same."""
    for data in ww.datasets.ba2motif.generate(60, seed=0):
        orders = []
        for dtype in (torch.float64, torch.float32):
            model = ww.models.bundled("ba2motif").to(dtype)
            chain = ww.trace(model, data.x.to(dtype), data.edge_index, target=int(data.y), rule="gamma")
            orders.append(order_nodes(chain, alpha=alpha).tolist())
        assert orders[0] == orders[1]


def test_progress_is_shown_where_every_step_is_asked(capsys, monkeypatch):
    chain = make_chain("gin", 0)
    quiet = order_nodes(chain, progress=True)
    assert capsys.readouterr().err == ""  # listed: there is nothing to wait for
    monkeypatch.setattr(orders, "_table", lambda *_: None)
    assert torch.equal(order_nodes(chain, progress=True), quiet)
    assert "0/8" in capsys.readouterr().err


@pytest.mark.parametrize("name", MODELS)
def test_a_table_holds_all_walks(name):
    """Entry by entry, whatever tells entries apart; walks of chains that step anywhere as well."""
    chain = make_chain(name, 2, nodes=5)
    walks = walks_of(chain)
    sets = {"walks": tuple, "visits": lambda walk: tuple(sorted(walk)), "nodes": lambda walk: frozenset(walk) - {-1}}
    for detail, kind in sets.items():
        table, want = walk_table(chain, detail), {}
        for walk, relevance in walks.items():
            want[kind(walk)] = want.get(kind(walk), 0.0) + relevance
        found = dict(zip((kind(row) for row in table.visits.tolist()), table.relevance.tolist(), strict=True))
        assert len(found) == len(table.relevance)  # no two entries are alike
        assert not any(found[key] for key in found.keys() - want.keys())  # steps that carry nothing
        assert all(found.get(key, 0.0) == pytest.approx(value, abs=1e-12) for key, value in want.items())
        if detail == "walks":
            assert found.keys() == want.keys()


def test_a_table_is_given_up_where_it_would_be_too_long():
    assert tables.listed_walks(make_chain("jumping", 2), "nodes", max_rows=10) is None
    assert step_neighbours(make_chain("global", 0)) is None


@pytest.mark.parametrize("detail", ["nodes", "visits", "walks"])
@pytest.mark.parametrize("name", ["gin", "jumping", "reads its input"])
def test_a_table_is_the_same_however_little_room_there_is(name, detail, monkeypatch):
    chain = make_chain(name, 1)
    whole = walk_table(chain, detail)
    for room, loose in ((1, 3), (400, 50), (1 << 25, 7)):
        monkeypatch.setattr(walk_listing, "_ROOM", room)
        monkeypatch.setattr(walk_listing, "_MOST_LOOSE", loose)
        monkeypatch.setattr(walk_listing, "_BATCHES", 0)  # one partial walk at a time
        few = walk_table(replace(chain), detail)
        rank, other = (np.lexsort(table.visits.T) for table in (whole, few))
        if detail != "nodes":  # of which an entry has the visits of any of its walks
            assert np.array_equal(whole.visits[rank], few.visits[other])
            assert np.allclose(whole.relevance[rank], few.relevance[other], rtol=0, atol=1e-12)
        assert few.relevance.sum() == pytest.approx(chain.input_relevance)
        assert len(few.relevance) == len(whole.relevance)


@pytest.mark.parametrize("detail", ["nodes", "visits"])
@pytest.mark.parametrize("nodes", [20, 56, 61, 64, 70, 140])  # sets of 56 and the node fit into a number, not of 61
def test_a_table_tells_walks_apart_however_many_nodes_there_are(nodes, detail):
    """The walks inside a set are those of its entries that lie inside."""
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    chain = chain_of(1, nodes, layers=5, edges=torch.cat([path, path.flip(0)], dim=1))
    table = walk_table(chain, detail)
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(40, nodes, generator=generator) < 0.8
    masks[:nodes, -6:] = True
    inside = masks[:, np.maximum(table.visits, 0)] | torch.from_numpy(table.visits < 0)  # (B, T, L + 1)
    found = inside.all(2).double() @ torch.from_numpy(table.relevance)
    want = ww.subgraph_relevance(chain, masks)
    assert want.abs().min() > 1e-3 * want.abs().max()
    assert torch.allclose(found, want, rtol=1e-9, atol=1e-12)


def test_a_node_level_chain_lists_only_walks_to_its_node():
    torch.manual_seed(0)
    path = torch.stack([torch.arange(99), torch.arange(1, 100)])
    path = torch.cat([path, path.flip(0)], dim=1)
    chain = ww.trace(GCN(3, 4, 3, 2).double(), torch.rand(100, 3, dtype=torch.double), path, index=50, target=0)
    table = walk_table(chain, "walks")
    assert 0 < len(table.visits) <= 27
    assert set(table.visits[:, -1].tolist()) == {50}
    assert sorted(order_nodes(chain).tolist()) == list(range(100))


@given(st.integers(0, 10**6), st.sampled_from(sorted(MODELS)), st.sampled_from(MODES), st.floats(0, 1))
def test_every_order_is_a_permutation(seed, name, mode, alpha):
    chain = make_chain(name, seed, nodes=1 + seed % 7, directed=seed % 2 == 0)
    orders = order_nodes(chain, mode=mode, alpha=[alpha, 0.0])
    assert all(sorted(order) == list(range(chain.num_nodes)) for order in orders.tolist())
    narrow = order_nodes(chain.to(dtype=torch.float32), mode=mode, alpha=alpha, tolerance=0.0)
    assert sorted(narrow.tolist()) == list(range(chain.num_nodes))


def test_walks_listed_before_serve_again_and_go_with_no_other_chain():
    chain = make_chain("gin", 3)
    orders = {mode: order_nodes(chain, mode=mode, alpha=ALPHAS).tolist() for mode in MODES}
    kept = dict(chain.memo)
    assert any(isinstance(value, ListedWalks) for value in kept.values())
    assert {mode: order_nodes(chain, mode=mode, alpha=ALPHAS).tolist() for mode in MODES} == orders
    assert chain.memo.keys() == kept.keys()
    assert all(chain.memo[key] is value for key, value in kept.items())
    moved, loaded = chain.to(dtype=torch.float32), pickle.loads(pickle.dumps(chain))
    assert moved.memo == {}
    for other in (replace(chain), loaded, moved.to(dtype=torch.float64)):
        assert order_nodes(other, alpha=0.7).tolist() == orders["activation"][2]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mode", MODES)
def test_graphs_without_edges_and_with_edges_twice(mode, name):
    torch.manual_seed(1)
    model, x = MODELS[name]().double(), torch.randn(4, 3, dtype=torch.double)
    twice = torch.tensor([[0, 1, 0, 1, 2, 2], [1, 0, 1, 0, 2, 1]])
    for edge_index in (torch.empty(2, 0, dtype=torch.long), twice):
        chain = ww.trace(model, x, edge_index, target=lambda out: out[0, 1] - out[0, 0])
        for alpha, order in zip(ALPHAS, order_nodes(chain, mode=mode, alpha=ALPHAS), strict=True):
            assert_greedy(order, chain, mode, alpha, tolerance=1e-9)


@pytest.mark.parametrize("kind", [list, tuple, np.asarray])
def test_graphs_may_be_numbered_in_a_list(kind):
    chain = make_chain("gin", 0)
    (order,) = order_nodes(chain, graphs=kind([0] * 8))
    assert torch.equal(order, order_nodes(chain))


def test_empty_requests():
    chain = make_chain("gin", 0)
    assert order_nodes(chain, alpha=[]).shape == (0, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "random"}, "activation"),
        ({"alpha": 1.5}, "between 0 and 1"),
        ({"alpha": [0.0, float("nan")]}, "between 0 and 1"),
        ({"tolerance": -1.0}, "a fraction from 0"),
        ({"graphs": torch.zeros(3, dtype=torch.long)}, "of shape .8,., got torch"),
        ({"graphs": torch.zeros(8)}, "float32"),
        ({"graphs": [0, 0]}, "of shape .8,., got torch"),
        ({"graphs": [0.0] * 8}, "float32"),
        ({"graphs": "abc"}, "number of each node's graph.* .8,., got 'abc'"),
        ({"graphs": [None] * 8}, "number of each node's graph"),
        ({"graphs": torch.arange(8)}, "an edge joins them"),
    ],
)
def test_errors_say_what_is_wrong(arguments, message):
    with pytest.raises(InputError, match=message):
        order_nodes(make_chain("gin", 0), **arguments)


def star(M):
    leaves = torch.arange(1, M)
    spokes = torch.stack([leaves, torch.zeros_like(leaves)])
    return torch.cat([spokes, spokes.flip(0)], dim=1)


def test_walks_that_are_too_many_are_not_followed_in_vain(monkeypatch):
    chain = chain_of(1, 40, layers=5, edges=star(40))
    monkeypatch.setattr("walkwise.search.orders._MOST_ROWS", 2_000)
    monkeypatch.setattr("walkwise.questions.walk_listing.WalkListing._follow", lambda *_: pytest.fail("it was tried"))
    assert "surroundings" in ww.order_nodes(chain, alpha=0.0).route


def test_a_list_of_walks_that_takes_too_much_memory_is_given_up(monkeypatch):
    chain = chain_of(1, 12, edges=star(12))
    listed = ww.order_nodes(chain, alpha=0.0)
    assert "listed" in listed.route
    monkeypatch.setattr("walkwise.search.orders._MOST_NUMBERS", 100)
    asked = ww.order_nodes(chain_of(1, 12, edges=star(12)), alpha=0.0)
    assert "surroundings" in asked.route
    assert asked.tolist() == listed.tolist()


@pytest.mark.parametrize(("mode", "default"), [("activation", 0.5), ("pruning", 0.0)])
def test_each_mode_has_its_own_default(mode, default):
    chain = chain_of(3, 12)
    assert order_nodes(chain, mode=mode).tolist() == order_nodes(chain, mode=mode, alpha=default).tolist()
    others = [order_nodes(chain, mode=mode, alpha=a).tolist() for a in (0.0, 0.5) if a != default]
    assert order_nodes(chain, mode=mode).tolist() not in others
