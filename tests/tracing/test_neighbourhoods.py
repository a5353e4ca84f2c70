"""One node of a large graph is traced on its neighbourhood; its twin is the chain of the whole graph."""

import gc
import itertools

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GAT,
    GCN,
    GIN,
    DirGNNConv,
    GCNConv,
    GINConv,
    GraphNorm,
    GraphSAGE,
    PairNorm,
    RGCNConv,
    SAGEConv,
    SGConv,
    TAGConv,
)

import walkwise as ww
from walkwise.core.chain import RelevanceChain
from walkwise.errors import InputError, TargetError
from walkwise.questions.games import sampled_pair_interactions
from walkwise.search.walksearch import top_walks_amp_ave, top_walks_emp_neu, top_walks_emp_neu_star
from walkwise.tracing import neighbourhoods, reach
from walkwise.tracing.runs import ModelRuns

M, CENTRE = 120, 47


def graph(directed=False):
    """A long path with some short chords, its nodes numbered at random: neighbourhoods are small."""
    generator = torch.Generator().manual_seed(0)
    name = torch.randperm(M, generator=generator)
    path = torch.stack([torch.arange(M - 1), torch.arange(1, M)])
    start = torch.randint(M - 3, (1, 30), generator=generator)
    chords = torch.cat([start, start + 3])
    edges = name[torch.cat([path, chords], dim=1)]
    return edges if directed else torch.cat([edges, edges.flip(0)], dim=1)


def features(width=3):
    return torch.rand(M, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Layers(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x, edge_index):
        for part in self.parts:
            x = part(x) if isinstance(part, (nn.Linear, nn.ReLU, PairNorm, GraphNorm)) else part(x, edge_index)
        return x


class ByDegree(nn.Module):
    """Reads degrees where its layers do not."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(3, 2)

    def forward(self, x, edge_index):
        degree = torch.bincount(edge_index[1], minlength=len(x)).to(x.dtype)
        return self.conv(x * degree[:, None], edge_index)


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(3, 4), GCNConv(4, 2)

    def forward(self, x, edge_index, edge_weight, kind):
        return self.second(self.first(x + kind[:, None], edge_index, edge_weight).relu(), edge_index, edge_weight)


MODELS = {
    "GCN": lambda: GCN(3, 4, 2, 2),
    "GIN": lambda: GIN(3, 4, 2, 2),
    "SAGE": lambda: GraphSAGE(3, 4, 3, 2),
    "GAT": lambda: GAT(3, 4, 2, 2, heads=2),
    "jumping": lambda: GIN(3, 4, 2, 2, jk="cat"),
    "several steps in a layer": lambda: Layers(TAGConv(3, 2, K=2)),
    "steps without weights": lambda: Layers(nn.Linear(3, 2), APPNP(3, 0.2)),
    "both directions": lambda: Layers(DirGNNConv(SAGEConv(3, 2)), DirGNNConv(SAGEConv(2, 2))),
    "against the edges": lambda: Layers(GINConv(nn.Linear(3, 2), flow="target_to_source")),
    "degrees in the model": ByDegree,
}


def made(name):
    torch.manual_seed(3)
    model = MODELS[name]().double().eval()
    with torch.no_grad():  # so that not all neurons are off
        for key, parameter in model.named_parameters():
            if key.endswith("bias"):
                parameter.uniform_(0, 0.5)
    return model


@pytest.fixture
def many(monkeypatch):
    """Small graphs count as large ones."""
    monkeypatch.setattr(reach, "_MANY_NODES", 10)


def both(model, *args, monkeypatch, **kwargs):
    """The chain of a neighbourhood, and that of the whole graph."""
    part = ww.trace(model, *args, **kwargs)
    with monkeypatch.context() as context:
        context.setattr(reach, "_MANY_NODES", 10**9)
        return part, ww.trace(model, *args, **kwargs)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("directed", [False, True])
def test_a_neighbourhood_gives_the_relevance_of_the_whole_graph(name, directed, many, monkeypatch):
    part, whole = both(made(name), features(), graph(directed), index=CENTRE, target=0, monkeypatch=monkeypatch)
    assert part.part is not None, str(part)
    assert part.part.num_nodes < M // 4
    assert whole.part is None
    assert part.output == pytest.approx(whole.output, rel=1e-9)
    close(ww.node_relevance(part), ww.node_relevance(whole))
    close(ww.edge_relevance(part), ww.edge_relevance(whole))
    assert bool(ww.node_relevance(whole).any())


@pytest.mark.parametrize("name", ["GCN", "GIN", "jumping"])
def test_every_question_is_answered_in_the_ids_of_the_graph(name, many, monkeypatch):
    part, whole = both(made(name), features(), graph(), index=CENTRE, target=0, monkeypatch=monkeypatch)
    near = part.part.origin.nodes.tolist()
    far = next(node for node in range(M) if node not in near)
    sets = [[CENTRE], near[:3], [far], [far, *near[:5]], [], list(range(M))]
    for alpha in (0.0, 0.3, [0.1, 1.0]):
        close(ww.subgraph_relevance(part, sets, alpha=alpha), ww.subgraph_relevance(whole, sets, alpha=alpha))
    close(ww.subgraph_polynomial(part, sets), ww.subgraph_polynomial(whole, sets))
    masks = torch.rand(4, M) < 0.5
    close(ww.subgraph_relevance(part, masks), ww.subgraph_relevance(whole, masks))
    for layer in range(part.num_layers + 1):
        close(ww.node_relevance(part, layer=layer), ww.node_relevance(whole, layer=layer))
    close(ww.feature_relevance(part), ww.feature_relevance(whole))
    pairs = torch.tensor([[near[0], far, near[1], CENTRE], [near[1], near[0], near[1], CENTRE]])
    close(ww.edge_relevance(part, edge_index=pairs), ww.edge_relevance(whole, edge_index=pairs))
    walks = ww.enumerate_walks(whole)
    assert torch.equal(ww.enumerate_walks(part), walks)
    walks = torch.cat([walks, torch.full((1, part.num_layers + 1), far)])
    close(ww.walk_relevance(part, walks), ww.walk_relevance(whole, walks))
    assert torch.equal(ww.top_walks(part, 7).walks, ww.top_walks(whole, 7).walks)
    close(ww.shapley_values(part).values, ww.shapley_values(whole).values)
    assert ww.shapley_values(part).nodes.tolist() == list(range(M))
    ours, theirs = ww.shapley_interactions(part), ww.shapley_interactions(whole)
    assert torch.equal(ours.nodes, theirs.nodes)
    assert ours.num_nodes == M
    close(ours.values, theirs.values)
    groups = {"centre": [CENTRE], "some": near[:2] if CENTRE not in near[:2] else near[-2:], "far": [far]}
    expected = ww.interactions(whole, groups).terms
    for form in (list, iter, set, torch.tensor, lambda ids: torch.zeros(M).index_fill(0, torch.tensor(ids), 1) > 0):
        given = {name: form(nodes) for name, nodes in groups.items()}
        assert ww.interactions(part, given).terms == pytest.approx(expected, abs=1e-12)
    for formula in ("centre & ~some", "some | far", "rest & centre"):
        assert ww.query(part, formula, groups) == pytest.approx(ww.query(whole, formula, groups), abs=1e-12)
    for size in (2, 3):
        ours = ww.find_subgraph(part, size, method="exact")
        assert ours.score == pytest.approx(float(ww.subgraph_relevance(whole, [list(ours.nodes)])), abs=1e-12)
        assert set(ours.nodes) <= set(near)
    found = sampled_pair_interactions(part, [(CENTRE, far), (near[0], near[1])], permutations=5)
    assert found.nodes.tolist() == [sorted((CENTRE, far)), sorted(near[:2])]
    assert found.values[0] == 0


@pytest.mark.parametrize("search", [top_walks_amp_ave, top_walks_emp_neu, top_walks_emp_neu_star])
def test_other_searches_for_walks(search, many, monkeypatch):
    part, whole = both(made("GIN"), features(), graph(), index=CENTRE, target=0, monkeypatch=monkeypatch)
    assert torch.equal(search(part, 4).walks, search(whole, 4).walks)


@pytest.mark.parametrize("mode", ["activation", "pruning"])
@pytest.mark.parametrize("alpha", [0.0, 0.4, [0.0, 0.2]])
@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("name", ["GCN", "GIN", "SAGE"])
def test_orders_have_the_nodes_on_no_walk_where_they_belong(name, target, alpha, mode, many, monkeypatch):
    part, whole = both(made(name), features() - 0.5, graph(), index=CENTRE, target=target, monkeypatch=monkeypatch)
    ours, theirs = (ww.order_nodes(chain, mode=mode, alpha=alpha) for chain in (part, whole))
    assert ours.tolist() == theirs.tolist()


def test_orders_asked_step_by_step_have_them_too(many, monkeypatch):
    part, whole = both(made("GIN"), features() - 0.5, graph(), index=CENTRE, target=0, monkeypatch=monkeypatch)
    monkeypatch.setattr("walkwise.search.orders._MOST_ROWS", 0)
    for alpha in (0.0, 0.3):
        assert ww.order_nodes(part, alpha=alpha).tolist() == ww.order_nodes(whole, alpha=alpha).tolist()
    assert "surroundings" in ww.order_nodes(part, alpha=0.0).route


def test_arguments_of_nodes_and_edges_are_cut_out_too(many, monkeypatch):
    torch.manual_seed(0)
    edge_index = graph()
    weight = torch.rand(edge_index.shape[1], dtype=torch.float64)
    data = Data(features(), edge_index, edge_weight=weight, kind=torch.rand(M, dtype=torch.float64))
    part, whole = both(Weighted().double().eval(), data, index=CENTRE, monkeypatch=monkeypatch)
    assert part.part is not None
    close(ww.node_relevance(part), ww.node_relevance(whole))


def test_relations_are_cut_out_too(many, monkeypatch):
    class Relations(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = RGCNConv(3, 4, 3), RGCNConv(4, 2, 3)

        def forward(self, x, edge_index, edge_type):
            return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)

    torch.manual_seed(0)
    edge_index = graph()
    data = Data(features(), edge_index, edge_type=torch.randint(3, (edge_index.shape[1],)))
    part, whole = both(Relations().double().eval(), data, index=CENTRE, monkeypatch=monkeypatch)
    assert part.part is not None
    close(ww.node_relevance(part), ww.node_relevance(whole))


@pytest.mark.parametrize("norm", [GraphNorm, PairNorm])
def test_what_reads_all_nodes_is_traced_on_the_whole_graph_and_noted(norm, many, monkeypatch):
    torch.manual_seed(0)
    model = Layers(SAGEConv(3, 4), norm(4) if norm is GraphNorm else norm(), SAGEConv(4, 2)).double().eval()
    part, whole = both(model, features(), graph(), index=CENTRE, target=0, monkeypatch=monkeypatch)
    assert part.part is None
    assert any("the whole graph was traced" in note for note in part.notes)
    close(ww.node_relevance(part), ww.node_relevance(whole))
    with pytest.raises(InputError, match="neighbourhoods alone"):
        ww.trace(model, features(), graph(), index=[1, 2])


def test_a_model_that_begins_to_do_something_else_is_checked_again(many, monkeypatch):
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.centred = SAGEConv(3, 4), SAGEConv(4, 2), False

        def forward(self, x, edge_index):
            x = self.first(x, edge_index).relu()
            return self.second(x - x.mean(0) if self.centred else x, edge_index)

    torch.manual_seed(0)
    model, x, edge_index = Changing().double().eval(), features(), graph()
    assert ww.trace(model, x, edge_index, index=CENTRE).part is not None
    model.centred = True
    part, whole = both(model, x, edge_index, index=CENTRE, monkeypatch=monkeypatch)
    assert part.part is None
    close(ww.node_relevance(part), ww.node_relevance(whole))


class Ranked(nn.Module):
    """Adds to marked nodes the part of all nodes that have less: on a neighbourhood, another part."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = SAGEConv(3, 4), SAGEConv(4, 2)
        self.double().eval()

    def forward(self, x, edge_index):
        part = (x[:, :1] < x[:, 0]).double().mean(0).view(-1, 1)
        return self.second(self.first(x, edge_index).relu(), edge_index) + part * (x[:, 1:2] > 0.9)


def marked(*nodes):
    x = features() / 10
    x[list(nodes), 1] = 1.0
    return x


def test_every_output_is_compared_with_that_on_the_whole_graph(many, monkeypatch):
    """Not only those of the nodes with which the check began."""
    edge_index = graph()
    checked = {*neighbourhoods.graph_index(edge_index, M).examples(), CENTRE}
    other = next(node for node in range(M) if node not in checked)
    model, x = Ranked(), marked(other)
    assert ww.trace(model, x, edge_index, index=CENTRE, target=0).part is not None
    chain = ww.trace(model, x, edge_index, index=other, target=0)
    assert chain.part is None
    assert any("whole graph was traced" in note for note in chain.notes)
    assert chain.output == pytest.approx(float(model(x, edge_index)[other, 0].detach()))
    with pytest.raises(InputError, match="neighbourhoods alone"):
        ww.trace(model, x, edge_index, index=[CENTRE, other], target=0)
    several = Ranked()
    with pytest.raises(InputError, match="neighbourhoods alone"):
        ww.trace(several, x, edge_index, index=[CENTRE, other], target=0)


def test_the_model_runs_on_the_whole_graph_once_for_each_input_and_weights(many, monkeypatch):
    model, x, edge_index = Ranked(), marked(), graph()
    runs, original = [], ModelRuns.output
    monkeypatch.setattr(ModelRuns, "output", lambda one: runs.append(len(one.given.x)) or original(one))

    def whole_runs(x):
        runs.clear()
        for index in (CENTRE, CENTRE + 1):
            assert ww.trace(model, x, edge_index, index=index, target=0).part is not None
        return runs.count(M)

    assert whole_runs(x) == 1
    assert whole_runs(x) == 0
    assert whole_runs(x.clone()) == 1
    x = marked()
    assert whole_runs(x) == 1
    x[0, 0] = 0.5
    assert whole_runs(x) == 1
    with torch.no_grad():
        model.first.lin_l.weight += 0.1
    assert whole_runs(x) == 1
    model.first.lin_l.weight.data = model.first.lin_l.weight.data.clone()
    assert whole_runs(x) == 1
    assert whole_runs(x) == 0


@pytest.mark.parametrize("kind", [GCNConv, SGConv])
def test_what_layers_have_cached_of_the_graph_is_not_used_for_its_parts(kind, many, monkeypatch):
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = kind(3, 4, cached=True), GCNConv(4, 2, cached=True)
            self.double().eval()

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    model, x, edge_index = Cached(), features(), graph()
    model(x, edge_index)
    part, whole = both(model, x, edge_index, index=CENTRE, target=0, monkeypatch=monkeypatch)
    assert part.part is not None
    close(ww.node_relevance(part), ww.node_relevance(whole))
    several = ww.trace(model, x, edge_index, index=[CENTRE, 1], target=0)
    close(several.outputs, model(x, edge_index)[[CENTRE, 1], 0].detach())


def test_the_graph_is_sorted_once_and_forgotten_with_its_edges(many, monkeypatch):
    sorted_anew = []
    original = neighbourhoods.GraphIndex
    monkeypatch.setattr(neighbourhoods, "GraphIndex", lambda *a: sorted_anew.append(1) or original(*a))
    model, x, edge_index = made("SAGE"), features(), graph()
    kept = len(neighbourhoods._INDEXES)
    for index in (1, 2, 3):
        ww.trace(model, x, edge_index, index=index)
    assert len(sorted_anew) == 1
    edge_index[:, 0] = edge_index[:, 1]  # another graph
    part, whole = both(model, x, edge_index, index=int(edge_index[1, 0]), monkeypatch=monkeypatch)
    assert len(sorted_anew) == 2
    close(ww.node_relevance(part), ww.node_relevance(whole))
    del edge_index, part, whole
    gc.collect()
    assert len(neighbourhoods._INDEXES) <= kept


def test_a_small_graph_and_a_wide_neighbourhood_are_traced_whole(monkeypatch):
    assert ww.trace(made("GIN"), features(), graph(), index=CENTRE).part is None
    monkeypatch.setattr(reach, "_MANY_NODES", 10)
    hub = torch.stack([torch.arange(1, M), torch.zeros(M - 1, dtype=torch.long)])
    chain = ww.trace(made("GIN"), features(), hub, index=0)
    assert chain.part is None
    assert not any("whole graph" in note for note in chain.notes)


def test_moved_chains_answer_alike(many):
    chain = ww.trace(made("GIN"), features(), graph(), index=CENTRE)
    single = chain.to(torch.float32)
    assert isinstance(single.part, RelevanceChain)
    assert single.part.dtype == torch.float32
    torch.testing.assert_close(ww.node_relevance(single).double(), ww.node_relevance(chain), rtol=1e-4, atol=1e-5)


def test_graphs_has_no_meaning_for_one_node(many):
    chain = ww.trace(made("GIN"), features(), graph(), index=CENTRE)
    for question in (ww.order_nodes, lambda c, graphs: ww.top_walks(c, 2, graphs=graphs)):
        with pytest.raises(InputError, match="one node"):
            question(chain, graphs=torch.zeros(M, dtype=torch.long))


# -- several nodes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_several_nodes_are_a_batch_of_neighbourhoods(name, monkeypatch):
    model, x, edge_index, index = made(name), features(), graph(), [CENTRE, 3, 3, 99]
    chain = ww.trace(model, x, edge_index, index=index, target=[0, 1, 0, 1])
    nodes, graphs = chain.origin.nodes, chain.origin.graphs
    relevance = ww.node_relevance(chain)
    for place, (node, target) in enumerate(zip(index, [0, 1, 0, 1], strict=True)):
        alone = ww.trace(model, x, edge_index, index=node, target=target)
        assert float(chain.outputs[place]) == pytest.approx(alone.output, rel=1e-9)
        here = graphs == place
        spread = torch.zeros(M, dtype=torch.float64).index_copy_(0, nodes[here], relevance[here])
        close(spread, ww.node_relevance(alone))


def test_answers_for_each_of_several_nodes():
    model, x, edge_index, index = made("GIN"), features(), graph(), [CENTRE, 3, 99]
    chain = ww.trace(model, x, edge_index, index=index, target=0)
    nodes, graphs = chain.origin.nodes, chain.origin.graphs
    alone = [ww.trace(model, x, edge_index, index=node, target=0) for node in index]
    for found, one in zip(ww.top_walks(chain, 3, graphs=graphs), alone, strict=True):
        assert nodes[found.walks].tolist() == ww.top_walks(one, 3).walks.tolist()
    for found, one in zip(ww.shapley_values(chain, graphs=graphs), alone, strict=True):
        close(found.values, ww.shapley_values(one).values[nodes[found.nodes]])
    for found, one in zip(ww.order_nodes(chain, graphs=graphs, alpha=0.5), alone, strict=True):
        near = set(nodes[found].tolist())
        assert nodes[found].tolist() == [node for node in ww.order_nodes(one, alpha=0.5).tolist() if node in near]


def test_several_nodes_by_arrays_and_one_by_other_integers():
    model, x, edge_index = made("GIN"), features(), graph()
    for index in (torch.tensor([5, 6]), (5, 6), range(5, 7), torch.tensor([5, 6]).numpy()):
        assert len(ww.trace(model, x, edge_index, index=index).outputs) == 2
    assert ww.trace(model, x, edge_index, index=torch.tensor(5)).origin is None


@pytest.mark.parametrize("index", [[], [M], [-1], ["a"], [[1, 2]]])
def test_wrong_lists_of_nodes_are_refused(index):
    with pytest.raises(TargetError, match="index must be a node, or a list of nodes"):
        ww.trace(made("GIN"), features(), graph(), index=index)


def test_too_many_neighbourhoods_are_refused(monkeypatch):
    monkeypatch.setattr(reach, "_MOST_ROWS", 20)
    with pytest.raises(InputError, match="Give fewer nodes at a time"):
        ww.trace(made("GIN"), features(), graph(), index=list(range(M)))


def test_neighbourhoods_are_those_found_by_walking():
    edge_index = graph(directed=True)
    index = neighbourhoods.graph_index(edge_index, M)
    into = {node: {u for u, v in edge_index.t().tolist() if v == node} for node in range(M)}
    for hops, centre in itertools.product((0, 1, 3), (CENTRE, 3)):
        reached = {centre}
        for _ in range(hops):
            reached |= {u for v in reached for u in into[v]}
        found = index.cut([centre], neighbourhoods.Reach(hops))
        assert found.origin.nodes.tolist() == sorted(reached)
        assert torch.equal(found.origin.nodes[found.edge_index], edge_index[:, found.origin.edges])


def test_the_index_of_a_graph_is_kept_while_its_edges_are_the_same():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    assert neighbourhoods.kept_index(edges, 3) is None
    index = neighbourhoods.graph_index(edges, 3)
    assert neighbourhoods.kept_index(edges, 3) is neighbourhoods.graph_index(edges, 3) is index
    assert neighbourhoods.kept_index(edges, 4) is None
    assert neighbourhoods.kept_index(edges.clone(), 3) is None
    edges[0, 0] = 2
    assert neighbourhoods.kept_index(edges, 3) is None


def test_edges_of_which_torch_does_not_say_who_writes_into_them_are_looked_at_anew():
    with torch.inference_mode():
        edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    before = neighbourhoods.graph_index(edges, 3).cut([0], neighbourhoods.Reach(1)).origin.nodes.tolist()
    with torch.inference_mode():
        edges[0, 2] = 1
    assert before == [0, 2]
    assert neighbourhoods.graph_index(edges, 3).cut([0], neighbourhoods.Reach(1)).origin.nodes.tolist() == [0, 1]
