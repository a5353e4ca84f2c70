"""Models without message-passing modules: modules that send from node to node are layers, and the chain says so."""

import itertools
import warnings
from types import SimpleNamespace

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.nn import DenseSAGEConv, dense_diff_pool

import walkwise as ww
from walkwise import hooks
from walkwise.errors import CoverageWarning, InputError, TraceError
from walkwise.tracing.runs import ModelRuns

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5], [1, 0, 2, 1, 3, 2, 4, 3, 1, 2]])  # some of them one way
X = torch.randn(M, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
ATTRIBUTES = torch.randn(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
ADJACENCY = torch.zeros(M, M, dtype=torch.float64).index_put((EDGES[1], EDGES[0]), torch.rand(10).double() + 0.5)
SETS = [[0, 1], [2, 3, 4], [5], list(range(M))]


def sums(rows, at, num_nodes=M):
    return rows.new_zeros(num_nodes, rows.shape[1]).index_add(0, at, rows)


class Moving(nn.Module):
    """Features and places, as EGNN has them."""

    def __init__(self):
        super().__init__()
        self.edge, self.node, self.place = nn.Linear(9, 4), nn.Linear(8, 4), nn.Linear(4, 1)

    def forward(self, h, edges, places):
        row, col = edges
        apart = places[row] - places[col]
        messages = self.edge(torch.cat([h[row], h[col], apart.square().sum(1, keepdim=True)], 1)).relu()
        h = self.node(torch.cat([h, sums(messages, row, len(h))], 1)).relu() + h
        return h, places + sums(apart * self.place(messages), row, len(h))


class Product(nn.Module):
    def __init__(self, product=lambda adj, h: adj @ h):
        super().__init__()
        self.lin, self.product = nn.Linear(4, 4), product

    def forward(self, h, adj):
        return self.product(adj, self.lin(h))


class Edges(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(12, 4)

    def forward(self, graph):
        source, target = graph.edge_index
        made = self.lin(torch.cat([graph.x[source], graph.x[target], graph.edge_attr], 1)).relu()
        return Data(x=graph.x, edge_index=graph.edge_index, edge_attr=made)


class Nodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 4)

    def forward(self, graph):
        received = sums(graph.edge_attr, graph.edge_index[1])
        return Data(
            x=self.lin(torch.cat([graph.x, received], 1)), edge_index=graph.edge_index, edge_attr=graph.edge_attr
        )


class Block(nn.Module):
    """Edges and then nodes of a graph, as in MeshGraphNets."""

    def __init__(self):
        super().__init__()
        self.edges, self.nodes = Edges(), Nodes()

    def forward(self, graph):
        return self.nodes(self.edges(graph))


class Writing(nn.Module):
    """Writes into the graph that it is handed, and returns it."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, batch):
        batch.x = sums(self.lin(batch.x)[batch.edge_index[0]], batch.edge_index[1]) + batch.x
        return batch


class Layer(pyg.MessagePassing):
    """A module put into a message-passing layer by hand."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **named):
        return self.module(*args, **named)


class Model(nn.Module):
    """Two layers, called in a way of their own."""

    def __init__(self, first, second, run, wrap=lambda module: module):
        super().__init__()
        self.run, self.a, self.b = run, wrap(first), wrap(second)
        self.into, self.out = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x, edge_index, **more):
        return self.out(self.run(self, self.into(x), edge_index, **more)).mean(0, keepdim=True)


def moving(m, h, edges):
    h, places = m.a(h, edges, h[:, :3].detach())
    return m.b(h, edges, places)[0]


def as_list(m, h, edges):
    return moving(m, h, [edges[0], edges[1]])


def in_order(m, h, adj):
    return m.b(m.a(h, adj).relu(), adj)


def graphs(m, h, edges):
    return m.b(m.a(Data(x=h, edge_index=edges, edge_attr=ATTRIBUTES))).x


KINDS = {
    "places": (Moving, moving, EDGES),
    "rows and columns": (Moving, as_list, EDGES),
    "matrix": (Product, in_order, ADJACENCY),
    "sparse": (lambda: Product(torch.sparse.mm), in_order, ADJACENCY.to_sparse()),
    "compressed": (lambda: Product(torch.sparse.mm), in_order, ADJACENCY.to_sparse_csr()),
    "graphs": (Block, graphs, EDGES),
    "graphs written into": (Writing, graphs, EDGES),
}


def pair(name):
    """A model, and the same with its layers wrapped by hand."""
    make, run, edges = KINDS[name]
    torch.manual_seed(0)
    first, second = make(), make()
    model = Model(first, second, run).double().eval()
    run = moving if run is as_list else run  # a layer by hand is to be told its edges in one tensor
    wrapped = Model(first, second, run, Layer).double().eval()
    wrapped.into, wrapped.out = model.into, model.out
    return model, wrapped, edges


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", KINDS)
def test_layers_that_are_found_are_those_wrapped_by_hand(name, rule):
    model, wrapped, edges = pair(name)
    ours, theirs = (ww.trace(one, X, edges, target=0, rule=rule) for one in (model, wrapped))
    assert [layer.name for layer in ours.layers] == [layer.name for layer in theirs.layers] == ["a", "b"]
    walks = ww.enumerate_walks(theirs)
    assert torch.equal(ww.enumerate_walks(ours), walks)
    same = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(ww.walk_relevance(ours, walks), ww.walk_relevance(theirs, walks), **same)
    for alpha in (0.0, 0.4):
        a, b = (ww.subgraph_relevance(chain, SETS, alpha=alpha) for chain in (ours, theirs))
        torch.testing.assert_close(a, b, **same)
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(theirs), **same)
    hooked = hooks.subgraph_relevance(model, X, edges, SETS[1], target=0, rule=rule)
    assert float(hooked) == pytest.approx(float(ww.subgraph_relevance(ours, SETS[1:2])), abs=1e-10)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("places", "rows and columns")])
def test_under_lrp_0_features_have_gradient_times_input(name):
    model, _, edges = pair(name)
    leaf = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, edges)[0, 0], leaf)
    chain = ww.trace(model, X, edges, target=0, rule="zero")
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * X, rtol=1e-12, atol=1e-12)


def test_the_chain_says_so_and_warns_once():
    model, _, edges = pair("places")
    with pytest.warns(CoverageWarning) as caught:
        chain = ww.trace(model, X, edges, target=0)
    words = "Model has no torch_geometric message-passing layer; counted as layers: a, b (Moving)"
    assert [str(warning.message) for warning in caught if "counted" in str(warning.message)] == [f"{words}."]
    assert chain.notes.count(words) == 1


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", KINDS)
def test_edges_are_those_that_were_given(name):
    model, _, edges = pair(name)
    chain = ww.trace(model, X, edges, target=0)
    assert set(map(tuple, chain.edge_index.t().tolist())) == set(map(tuple, EDGES.t().tolist()))


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("layout", [lambda adj: adj, torch.Tensor.to_sparse])
def test_columns_of_a_matrix_may_take(layout):
    model = Model(Product(lambda adj, h: adj.t() @ h), Product(lambda adj, h: adj.t() @ h), in_order).double()
    chain = ww.trace(model, X, layout(ADJACENCY.t()), target=0)
    assert set(map(tuple, chain.edge_index.t().tolist())) == set(map(tuple, EDGES.t().tolist()))


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_a_mask_of_pairs_that_do_not_send_is_no_edges():
    def attended(mask, h):
        return (h @ h.t()).masked_fill(mask, -torch.inf).softmax(1) @ h

    mask = (ADJACENCY + torch.eye(M).double()) == 0
    chain = ww.trace(Model(Product(attended), Product(attended), in_order).double(), X, mask, target=0)
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    assert chain.edge_index.shape == (2, 0)
    steps = {step for walk in ww.enumerate_walks(chain).tolist() for step in itertools.pairwise(walk)}
    assert all(not mask[target, source] for source, target in steps)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("edges", [EDGES[:, :M], EDGES[:, 4:], torch.stack([torch.arange(M).roll(1), torch.arange(M)])])
def test_rows_of_edges_are_none_of_nodes_where_there_are_as_many(edges):
    def run(m, h, edges):
        return m.b(m.a(Data(x=h, edge_index=edges, edge_attr=ATTRIBUTES[:M]))).x

    model = Model(Block(), Block(), run).double()
    chain = ww.trace(model, X, edges, target=0, rule="zero")
    if torch.equal(edges[1], torch.arange(M)):  # edge i leads to node i: no module tells them apart, but sums do
        assert [layer.name for layer in chain.layers] == ["sum_1", "sum_2"]
        allowed = {*zip(*edges.tolist(), strict=True), *((i, i) for i in range(M))}
        steps = {step for walk in ww.enumerate_walks(chain).tolist() for step in itertools.pairwise(walk)}
        assert {step for step in steps if -1 not in step} <= allowed  # features of edges pass the nodes by
    else:
        assert [(layer.name, layer.kind) for layer in chain.layers] == [("a", "Block"), ("b", "Block")]
    leaf = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, edges).sum(0)[0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * X, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_a_module_that_is_called_twice_is_two_layers():
    model = Model(Product(), nn.Identity(), lambda m, h, adj: m.a(m.a(h, adj).relu(), adj)).double()
    chain = ww.trace(model, X, ADJACENCY, target=0)
    assert [layer.name for layer in chain.layers] == ["a", "a"]
    assert chain.num_layers == 2


class Named(nn.Module):
    """Takes all by name; what it sends is not what comes first."""

    def __init__(self):
        super().__init__()
        self.kind, self.sent = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, *, kinds, features, edges):
        return {"kinds": kinds, "features": sums(self.sent(features)[edges[0]], edges[1]).relu() + self.kind(kinds)}


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_nodes_are_what_is_sent_wherever_it_stands():
    def run(m, h, edges):
        first = m.a(kinds=h, features=h.relu(), edges=edges)["features"]
        return m.b(kinds=h, features=first, edges=edges)["features"]

    model = Model(Named(), Named(), run).double()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    assert chain.num_layers == 2
    leaf = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, EDGES)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * X, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_objects_of_somebody_s_own_may_hold_nodes_and_edges():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, graph):
            return sums(self.lin(graph.atoms)[graph.bonds[0]], graph.bonds[1])

    def run(m, h, edges):
        h = m.a(SimpleNamespace(atoms=h, bonds=edges)).relu()
        return m.b(SimpleNamespace(atoms=h, bonds=edges))

    torch.manual_seed(0)
    model = Model(Own(), Own(), run).double()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    leaf = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, EDGES)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * X, rtol=1e-12, atol=1e-12)


class ByEnds(nn.Module):
    """Takes both ends of the edges one by one, as e3nn and SchNetPack hand them over."""

    def __init__(self, target_first):
        super().__init__()
        self.lin, self.order = nn.Linear(4, 4), -1 if target_first else 1

    def forward(self, h, *ends, far):
        source, target = ends[:: self.order]
        return h + sums(self.lin(h)[source] * far, target)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("target_first", [False, True])
@pytest.mark.parametrize("count", [10, M])
def test_ends_of_edges_may_be_given_one_by_one(count, target_first, rule):
    """Which of them sends is seen; of as many edges as nodes, too."""
    edges, far = EDGES[:, :count], ATTRIBUTES[:count]

    def run(m, h, e):
        ends = e.flip(0) if target_first else e
        return m.b(m.a(h, ends[0], ends[1], far=far).relu(), ends[0], ends[1], far=far)

    torch.manual_seed(0)
    model = Model(ByEnds(target_first), ByEnds(target_first), run).double().eval()
    chain = ww.trace(model, X, edges, target=0, rule=rule)
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    assert set(map(tuple, chain.edge_index.t().tolist())) == set(map(tuple, edges.t().tolist()))
    wrapped = Model(model.a, model.b, run, Layer).eval()
    wrapped.into, wrapped.out = model.into, model.out
    theirs = ww.trace(wrapped, X, edges, target=0, rule=rule)
    walks = ww.enumerate_walks(theirs)
    torch.testing.assert_close(ww.walk_relevance(chain, walks), ww.walk_relevance(theirs, walks))
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(theirs))


@pytest.mark.parametrize("numbers", ["kinds of nodes and graphs", "edges, and more is sent"])
def test_vectors_along_which_nothing_is_sent_are_no_edges(numbers):
    class OfAll(nn.Module):
        """All nodes take from all, whatever the vectors say."""

        def forward(self, h, first, second):
            return h.softmax(0) * h.sum(0) + first.sum() + second.sum()

    first, second = EDGES if numbers[0] == "e" else (torch.tensor([1, 2, 1, 0, 3, 2]), torch.zeros(M, dtype=torch.long))
    model = Model(OfAll(), OfAll(), lambda m, h, e: m.b(m.a(h, first, second), first, second)).double()
    with pytest.raises(TraceError, match="Model has no message-passing layer"):
        ww.trace(model, X, EDGES, target=0)


# -- what is none -----------------------------------------------------------------------------


class Beside(nn.Module):
    """Handed edges, and sends nothing."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, h, edge_index):
        return self.lin(h)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_modules_that_send_nothing_are_no_layers():
    model = Model(Beside(), Moving(), lambda m, h, e: m.b(m.a(h, e), e, X[:, :3])[0]).double()
    assert [layer.name for layer in ww.trace(model, X, EDGES, target=0).layers] == ["b"]
    with pytest.raises(TraceError, match="Model has no message-passing layer"):
        ww.trace(Model(Beside(), Beside(), in_order).double(), X, EDGES, target=0)


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_learned_or_made_of_nodes_is_no_adjacency(frozen):
    class Attention(nn.Module):
        """Of all nodes; as many neurons as nodes make it look like an adjacency."""

        def forward(self, query, key):
            return (query @ key.t()).softmax(1) @ query

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.attention = nn.Linear(4, M), nn.Linear(4, M), Attention()

        def forward(self, x, edge_index):
            return self.attention(self.query(x), self.key(x)).mean(0, keepdim=True)

    model = Wide().double().requires_grad_(not frozen)
    with pytest.warns(CoverageWarning, match="Wide has no message-passing module; sums at nodes in its own code"):
        chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    assert [layer.kind for layer in chain.layers] == ["Wide"]


@pytest.mark.parametrize("where", ["before the first layer", "between layers", "the read-out"])
def test_what_sends_outside_of_the_layers_is_named(where):
    def run(m, h, adj):
        h = m.a(adj @ h if "before" in where else h, adj).relu()
        h = m.b(adj @ h if "between" in where else h, adj)
        return adj @ h if "read-out" in where else h

    with pytest.warns(CoverageWarning, match=f"matmul adds up rows of nodes outside any .* layer, in .*{where}"):
        ww.trace(Model(Product(), Product(), run).double(), X, ADJACENCY, target=0)


# -- dense layers -----------------------------------------------------------------------------


#: What the weights of a layer for edges are called in the dense one, where that is another name.
RENAMED = {"lin_l.weight": "lin_rel.weight", "lin_r.weight": "lin_root.weight", "lin_l.bias": "lin_root.bias"}


class Two(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges).sum(-2).view(1, -1)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("kind", ["GCN", "SAGE", "Graph", "GIN"])
def test_dense_layers_give_what_layers_for_edges_give(kind, rule):
    def layers(name):
        widths = [(nn.Linear(i, o),) if kind == "GIN" else (i, o) for i, o in ((4, 4), (4, 2))]
        return [getattr(pyg, f"{name}Conv")(*width).double() for width in widths]

    torch.manual_seed(0)
    dense, plain = layers(f"Dense{kind}"), layers(kind)
    for ours, theirs in zip(dense, plain, strict=True):
        for parameter in theirs.parameters():
            nn.init.normal_(parameter)  # biases, too
        ours.load_state_dict({RENAMED.get(name, name): tensor for name, tensor in theirs.state_dict().items()})
    # The dense layer divides by how many edges lead to a node, the other by those that leave, too.
    edges = torch.cat([EDGES, EDGES.flip(0)], 1).unique(dim=1) if kind == "GCN" else EDGES
    adj = torch.zeros(M, M, dtype=torch.float64).index_put((edges[1], edges[0]), torch.tensor(1.0).double())
    expected = ww.trace(Two(*plain), X, edges, target=0, rule=rule)
    for x, matrix in ((X, adj), (X[None], adj[None])):
        chain = ww.trace(Two(*dense), x, matrix, target=0, rule=rule)
        a, b = (ww.subgraph_relevance(one, SETS, alpha=[0.0, 0.5]) for one in (chain, expected))
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        a, b = (ww.edge_relevance(one, edge_index=edges) for one in (chain, expected))
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        assert set(map(tuple, chain.edge_index.t().tolist())) == set(map(tuple, edges.t().tolist()))


def test_dense_batches_are_refused():
    model = Two(pyg.DenseGCNConv(4, 4), pyg.DenseGCNConv(4, 2)).double()
    for count in (2, M):
        with pytest.raises(InputError, match=r"dense batch of \d graphs\. .*trace one graph at a time"):
            ww.trace(model, torch.stack([X] * count), torch.stack([ADJACENCY] * count), target=0)
    ww.trace(model, X[None], ADJACENCY[None], target=lambda out: out[0, 0])


# -- what it costs, and leaves ----------------------------------------------------------------


def test_models_with_message_passing_layers_are_not_searched(monkeypatch):
    monkeypatch.setattr(ModelRuns, "found", None)
    ww.trace(pyg.GCN(4, 4, 2, 2).double(), X, EDGES, index=0, target=0)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", KINDS)
def test_model_and_input_are_left_as_they_were(name):
    model, _, edges = pair(name)
    model.act = nn.ReLU()
    before = {id(module): dict(module.__dict__) for module in model.modules()}
    x, version = X.clone(), edges._version
    ww.trace(model, x, edges, target=0)
    for module in model.modules():
        assert module.__dict__ == before[id(module)]
    assert torch.equal(x, X)
    assert edges._version == version


def test_a_node_of_a_large_graph_is_traced_on_its_neighbourhood():
    count = 5000
    ring = torch.arange(count)
    edges = torch.cat([torch.stack([ring, ring.roll(1)]), torch.stack([ring.roll(1), ring])], 1)
    x = torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = Moving(), Moving()

        def forward(self, x, edge_index):
            h, places = self.a(x, edge_index, x[:, :3].detach())
            return self.b(h, edge_index, places)[0]

    model = Net().double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        chain = ww.trace(model, x, edges, index=7, target=0, rule="zero")
    assert chain.part is not None
    assert chain.part.num_nodes < 20
    assert [layer.kind for layer in chain.layers] == ["Moving", "Moving"]
    assert any("counted as layers: a, b (Moving)" in note for note in chain.notes)


def test_masks_of_edges_are_refused_where_nothing_says_which_way_they_send():
    model, _, edges = pair("places")
    explainer = Explainer(
        model,
        algorithm=ww.SubgraphLRPExplainer(),
        explanation_type="model",
        node_mask_type="object",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )
    with pytest.raises(InputError, match="do not say in which"):
        explainer(X, edges)


class Square(nn.Module):
    """Dense layers on features in some shape."""

    def __init__(self, columns, shaped):
        super().__init__()
        self.a, self.b, self.shaped = pyg.DenseGCNConv(columns, 4), pyg.DenseGCNConv(4, 4), shaped

    def forward(self, x, adj):
        if self.shaped == "in a dense batch":
            x = x.clone()[None]
        if self.shaped == "normalised":
            x = (x / x.abs().sum(1, keepdim=True))[None]
        return self.b(self.a(x, adj).relu(), adj).mean(1)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("shaped", ["as they are", "in a dense batch", "normalised"])
def test_as_many_features_as_nodes_are_no_adjacency(shaped):
    """They are (M, M), or (1, M, M), as an adjacency is; a further one that is zero changes nothing."""
    torch.manual_seed(3)
    x = torch.randn(M, M, dtype=torch.float64)
    square, wider = Square(M, shaped).double(), Square(M + 1, shaped).double()
    weight = square.a.lin.weight.detach()
    wider.load_state_dict(square.state_dict() | {"a.lin.weight": torch.cat([weight, torch.ones(4, 1)], 1)})
    wide = torch.cat([x, torch.zeros(M, 1)], 1)
    chain, expected = (ww.trace(m, at, ADJACENCY, target=0) for m, at in ((square, x), (wider, wide)))
    assert [layer.name for layer in chain.layers] == [layer.name for layer in expected.layers] == ["a", "b"]
    assert chain.edge_index.tolist() == expected.edge_index.tolist()
    found = ww.subgraph_relevance(chain, SETS).tolist()
    assert found == pytest.approx(ww.subgraph_relevance(expected, SETS).tolist(), abs=1e-12)


class Token(nn.Module):
    """Layers run on the nodes and a row for all of them together, which edges join to each (Exphormer, say)."""

    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        self.enc, self.a, self.b, self.out = nn.Linear(4, 4), layer(), layer(), nn.Linear(4, 2)
        self.token = nn.Embedding(1, 4)
        self.double().eval()

    def forward(self, x, edge_index):
        every, last = torch.arange(len(x)), torch.full((len(x),), len(x))
        edges = torch.cat([edge_index, torch.stack([every, last]), torch.stack([last, every])], 1)
        h = self.b(self.a(torch.cat([self.enc(x), self.token.weight]), edges).relu(), edges)
        return self.out(h[: len(x)]).mean(0, keepdim=True)


class Sending(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, h, edge_index):
        return sums(self.lin(h)[edge_index[0]], edge_index[1], len(h))


class SendingOfPyG(pyg.MessagePassing):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, h, edge_index):
        return self.propagate(edge_index, h=self.lin(h))

    def message(self, h_j):
        return h_j


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_edges_may_lead_to_rows_that_are_no_nodes(rule):
    chain, theirs = (ww.trace(Token(layer), X, EDGES, target=0, rule=rule) for layer in (Sending, SendingOfPyG))
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    assert any("also runs on rows that are not nodes" in note for note in chain.notes)
    torch.testing.assert_close(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(theirs, SETS))
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(theirs))


class PlainSum(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x, edge_index):
        return torch.zeros_like(x).index_add(0, edge_index[1], self.lin(x)[edge_index[0]]).relu()


class PassedSum(pyg.MessagePassing):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x)).relu()


def pooled(h, edges):
    places = h.sum(1).topk(3).indices
    row = torch.full((len(h),), -1).index_put((places,), torch.arange(3))
    return h[places], row[edges][:, (row[edges] >= 0).all(0)]


@pytest.mark.parametrize(
    "change", [pooled, lambda h, e: (h[:3], e[:, (e < 3).all(0)]), lambda h, e: (nn.functional.pad(h, (0, 0, 0, 2)), e)]
)
def test_modules_of_a_layer_s_class_are_layers_on_other_rows_too(change):
    """After pooling, on the first nodes, or on padded ones; as they are if they are message-passing modules."""

    class Net(nn.Module):
        def __init__(self, kind):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.head = kind(), kind(), nn.Linear(3, 2)
            for weight in self.parameters():
                nn.init.uniform_(weight)  # so that nothing is switched off

        def forward(self, x, edge_index):
            return self.head(self.b(*change(self.a(x, edge_index), edge_index)).mean(0, keepdim=True))

    generator = torch.Generator().manual_seed(0)
    x, edges = torch.rand(6, 3, generator=generator).double(), torch.randint(0, 6, (2, 25), generator=generator)
    ours, theirs = (ww.trace(Net(kind).double().eval(), x, edges, target=0) for kind in (PlainSum, PassedSum))
    assert [layer.name for layer in ours.layers] == ["a", "b"]
    sets = [[0, 1, 2], [3], [1, 4, 5]]
    torch.testing.assert_close(*(ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.5]) for chain in (ours, theirs)))


def test_layers_are_layers_however_their_arguments_are_given():
    """In order or by name, and of a class that only adds something to a layer's."""

    class Derived(PlainSum):
        """Another name."""

    class Net(nn.Module):
        def __init__(self, named, other):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.head, self.named = PlainSum(), other(), nn.Linear(3, 2), named
            for weight in self.parameters():
                nn.init.uniform_(weight)

        def forward(self, x, edge_index):
            h, edges = self.a(x, edge_index)[:3], edge_index[:, (edge_index < 3).all(0)]
            return self.head((self.b(edge_index=edges, x=h) if self.named else self.b(h, edges)).mean(0, keepdim=True))

    generator = torch.Generator().manual_seed(0)
    x, edges = torch.rand(6, 3, generator=generator).double(), torch.randint(0, 6, (2, 25), generator=generator)
    chains = [
        ww.trace(Net(named, other).double(), x, edges, target=0)
        for named, other in ((False, PlainSum), (True, PlainSum), (False, Derived), (True, Derived))
    ]
    for chain in chains:
        assert [layer.name for layer in chain.layers] == ["a", "b"]
        torch.testing.assert_close(*(ww.subgraph_relevance(c, [[0, 1], [2]], alpha=0.5) for c in (chain, chains[0])))


def test_a_module_of_a_layer_s_class_that_sends_nothing_is_no_layer():
    class Block(nn.Module):
        def __init__(self, sends):
            super().__init__()
            self.lin, self.sends = nn.Linear(4, 4), sends

        def forward(self, x, edges):
            h = self.lin(x).relu()
            return sums(h[edges[0]], edges[1], len(x)) if self.sends else h

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.between, self.b, self.head = Block(True), Block(False), Block(True), nn.Linear(4, 2)

        def forward(self, x, edges):
            return self.head(self.b(self.between(self.a(x, edges), edges), edges).sum(0, keepdim=True))

    with pytest.warns(CoverageWarning, match=r"counted as layers: a, b \(Block\)"):
        ww.trace(Net().double(), X, EDGES, target=0)


def test_of_nested_modules_of_one_class_the_innermost_counts():
    class Block(nn.Module):
        def __init__(self, inner=None):
            super().__init__()
            self.lin, self.inner = nn.Linear(4, 4), inner

        def forward(self, x, edges):
            if self.inner is not None:
                return self.lin(self.inner(x, edges)).relu()
            return sums(self.lin(x)[edges[0]], edges[1], len(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = Block(Block()), nn.Linear(4, 2)

        def forward(self, x, edges):
            return self.head(self.block(x, edges).sum(0, keepdim=True))

    with pytest.warns(CoverageWarning, match=r"counted as layers: block\.inner \(Block\)"):
        chain = ww.trace(Net().double(), X, EDGES, target=0)
    assert [layer.name for layer in chain.layers] == ["block.inner"]


@pytest.mark.parametrize("width", [6, 9])
@pytest.mark.parametrize("lead", [False, True])
def test_dense_layers_run_on_clusters_too(lead, width):
    """DiffPool's clusters are no nodes, nor are their columns, of which there may be as many; walks end before them."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.score, self.embed = DenseSAGEConv(5, 3), DenseSAGEConv(5, width)
            self.last, self.head = DenseSAGEConv(width, width), nn.Linear(width, 2)

        def forward(self, x, adj):
            pooled, adj, _, _ = dense_diff_pool(self.embed(x, adj).relu(), adj, self.score(x, adj))
            return self.head(self.last(pooled, adj).mean(1))

    generator = torch.Generator().manual_seed(0)
    x, adj = torch.rand(9, 5, generator=generator).double(), (torch.rand(9, 9, generator=generator) > 0.6).double()
    given = (x[None], adj[None]) if lead else (x, adj)
    model = Net().double()
    chain = ww.trace(model, *given, target=0, rule="zero")
    assert chain.num_layers == 1
    assert any("'last' (DenseSAGEConv) runs on rows that are not nodes of the graph" in note for note in chain.notes)
    leaf = x.clone().requires_grad_()
    weights = model.score(leaf, adj).softmax(-1).detach()
    pooled = weights.transpose(1, 2) @ model.embed(leaf, adj).relu()
    output = model.head(model.last(pooled, weights.transpose(1, 2) @ adj @ weights).mean(1))[0, 0]
    (gradient,) = torch.autograd.grad(output, leaf)
    assert float(output) == pytest.approx(chain.output)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_one_matrix_of_nodes_in_another_order_is_followed(rule):
    """A corruption inside the model, as contrastive models have it; (1, M, F) is what (M, F) is."""

    class Net(nn.Module):
        def __init__(self, lead):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head, self.lead = Product(), nn.Linear(4, 2), lead

        def forward(self, x, adj):
            y = x[torch.tensor([3, 1, 0, 5, 2, 4])]
            both = [self.conv(h[None], adj[None])[0] if self.lead else self.conv(h, adj) for h in (x, y)]
            return self.head(torch.cat(both).relu())

    chains = [ww.trace(Net(lead).double(), X, ADJACENCY, target=lambda out: out[8, 1], rule=rule) for lead in (0, 1)]
    for ask in (lambda c: ww.node_relevance(c, layer="start"), lambda c: ww.subgraph_relevance(c, [[0, 1], [2, 4]])):
        torch.testing.assert_close(*map(ask, chains))
    assert float(ww.node_relevance(chains[0], layer="start").abs().sum()) > 0


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_hooks_pass_by_neighbours_that_are_absent(rule):
    """A maximum over neighbours has −∞ in the place of those that a node does not have; one node has none."""
    model = Two(pyg.DenseGraphConv(4, 4, aggr="max"), pyg.DenseGraphConv(4, 2, aggr="max")).double()
    adjacency = ADJACENCY.clone()
    adjacency[3] = adjacency[:, 3] = 0
    chain = ww.trace(model, X, adjacency, target=0, rule=rule)
    for alpha in (0.0, 0.3):
        hooked = hooks.subgraph_relevance(model, X, adjacency, [0, 1, 3], target=0, rule=rule, alpha=alpha)
        assert hooked == pytest.approx(float(ww.subgraph_relevance(chain, [[0, 1, 3]], alpha=alpha)))


def test_layers_may_take_nodes_by_place_alone():
    class Place(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x, /, edges):
            return sums(self.lin(x)[edges[0]], edges[1], len(x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = Place(), Place(), nn.Linear(4, 2)

        def forward(self, x, edges):
            return self.head(self.b(self.a(x, edges=edges).relu(), edges).sum(0, keepdim=True))

    with pytest.warns(CoverageWarning, match=r"counted as layers: a, b \(Place\)"):
        ww.trace(Net().double(), X, EDGES, target=0)
