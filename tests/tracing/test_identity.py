"""Whatever a model does to the order of its rows, walks visit the nodes of the graph that was given."""

import itertools
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import add_self_loops, degree, scatter, to_dense_batch, to_torch_csr_tensor, to_undirected

import walkwise as ww
from walkwise.errors import CoverageWarning, TraceError

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0, 1], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 0, 5, 4]])
PERM = torch.tensor([3, 0, 5, 1, 4, 2])
SETS = [[0], [1, 2], [0, 3, 4], [0, 1, 2, 3, 4, 5], [5]]


class Net(nn.Module):
    """Two layers; before and between them something happens to the rows, and the edges follow."""

    def __init__(self, reorder=None, before=False):
        super().__init__()
        torch.manual_seed(1)
        self.lin = nn.Linear(3, 4)
        self.first, self.second = pyg.GCNConv(4, 4), pyg.SAGEConv(4, 4)
        self.head = nn.Linear(4, 2)
        self.reorder, self.before = reorder, before
        self.double()

    def forward(self, x, edge_index):
        h = self.lin(x).tanh()
        if self.reorder is not None and self.before:
            h, edge_index = self._reordered(h, edge_index)
        h = self.first(h, edge_index).relu()
        if self.reorder is not None and not self.before:
            h, edge_index = self._reordered(h, edge_index)
        return self.head(self.second(h, edge_index)).sum(0, keepdim=True)

    def _reordered(self, h, edge_index):
        h, perm = self.reorder(h, edge_index)
        place = torch.empty_like(perm).scatter_(0, perm, torch.arange(M))
        return h, place[edge_index]


def by_degree(h, edge_index):
    perm = degree(edge_index[0], M).argsort(stable=True)
    return h[perm], perm


def dense_and_back(h, edge_index):
    batch = torch.tensor([0, 1, 0, 1, 1, 0])
    perm = batch.argsort(stable=True)
    dense, mask = to_dense_batch(h[perm], batch[perm])
    return dense[mask], perm


def joined_twice(h, edge_index):
    perm = torch.tensor([4, 5, 2, 3, 0, 1])
    first, second, third = h.split(2)
    return torch.cat([third, second, first]), perm


def by_gathering(h, edge_index):
    return h.gather(0, PERM[:, None].expand(-1, h.shape[1])), PERM


def by_a_matrix(h, edge_index):
    return torch.eye(M, dtype=h.dtype)[PERM] @ h, PERM


def by_writing(h, edge_index):
    out = torch.zeros_like(h)
    out[PERM.argsort()] = h
    return out, PERM


def by_score(h, edge_index):
    perm = h.sum(1).sort(descending=True).indices
    return h.index_select(0, perm), perm


REORDERED = {
    "indexing": lambda h, e: (h[PERM], PERM),
    "degree": by_degree,
    "flip": lambda h, e: (h.flip(0), torch.arange(M - 1, -1, -1)),
    "roll": lambda h, e: (h.roll(2, 0), torch.arange(M).roll(2)),
    "dense batch": dense_and_back,
    "split and cat": joined_twice,
    "gather": by_gathering,
    "permutation matrix": by_a_matrix,
    "writing": by_writing,
    "by score": by_score,
    "stack": lambda h, e: (torch.stack([h[i] for i in PERM.tolist()]), PERM),
    "transposed": lambda h, e: (h.t().contiguous()[:, PERM].t(), PERM),
    "mean of heads": lambda h, e: (torch.stack([h, h], 1)[PERM].mean(1), PERM),
}


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "between"])
@pytest.mark.parametrize("name", REORDERED)
def test_other_orders_of_rows_give_the_same_answers(name, before, rule):
    x = torch.randn(M, 3, dtype=torch.float64)
    plain, other = Net(), Net(REORDERED[name], before)
    ours, theirs = (ww.trace(model, x, EDGES, target=1, rule=rule) for model in (other, plain))
    assert ours.output == pytest.approx(theirs.output)
    for layer in range(3):
        a, b = (ww.node_relevance(chain, layer=layer) for chain in (ours, theirs))
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(theirs))
    for alpha in (0.0, 0.4):
        a, b = (ww.subgraph_relevance(chain, SETS, alpha=alpha) for chain in (ours, theirs))
        torch.testing.assert_close(a, b)
    best = [ww.top_walks(chain, 8) for chain in (ours, theirs)]
    assert best[0].walks.tolist() == best[1].walks.tolist()
    torch.testing.assert_close(best[0].relevance, best[1].relevance)
    a, b = (ww.edge_relevance(chain, edge_index=EDGES) for chain in (ours, theirs))
    torch.testing.assert_close(a, b)
    assert {tuple(e) for e in ours.edge_index.t().tolist()} == {tuple(e) for e in EDGES.t().tolist()}


def test_the_first_nodes_alone():
    """A model that runs on a part of the graph answers for those nodes, and no walk visits the others."""
    model = Net().double()
    x = torch.randn(M, 3, dtype=torch.float64)
    shifted = EDGES[:, ((EDGES >= 1) & (EDGES < 5)).all(0)] - 1

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model

        def forward(self, x, edge_index):
            return self.net(x[1:5], shifted)

    whole, part = ww.trace(Part(), x, EDGES, target=0), ww.trace(model, x[1:5], shifted, target=0)
    torch.testing.assert_close(ww.node_relevance(whole)[1:5], ww.node_relevance(part))
    assert ww.node_relevance(whole)[[0, 5]].tolist() == [0, 0]
    a, b = ww.subgraph_relevance(whole, [[1, 2], [0, 3, 4]]), ww.subgraph_relevance(part, [[0, 1], [2, 3]])
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["sorted columns", "two nodes in one"])
def test_what_cannot_be_followed_is_refused(name):
    reorder = {
        "sorted columns": lambda h, e: (h.sort(0).values, torch.arange(M)),
        "two nodes in one": lambda h, e: (h[PERM] + h.flip(0), torch.arange(M)),
    }[name]
    with pytest.raises(TraceError, match=r"Layer 'second' \(SAGEConv\).*cannot be followed.*(sort|add) has combined"):
        ww.trace(Net(reorder), torch.randn(M, 3, dtype=torch.float64), EDGES, target=0)


class Recommender(nn.Module):
    """As many users as items, in one tensor; messages go from users to items and back."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.there, self.back = pyg.SAGEConv((3, 3), 4), pyg.SAGEConv((4, 3), 4)
        self.head = nn.Linear(4, 2)
        self.double()

    def forward(self, x, edge_index):
        users, items = x[:3], x[3:]
        pairs = torch.stack([edge_index[0], edge_index[1] - 3])
        items_after = self.there((users, items), pairs).relu()
        users_after = self.back((items_after, users), pairs.flip(0))
        return self.head(users_after).sum(0, keepdim=True)


def test_users_and_items_of_equal_number_stay_apart():
    x = torch.randn(6, 3, dtype=torch.float64)
    model = Recommender()
    edges = torch.tensor([[0, 0, 1, 2, 2], [3, 4, 4, 3, 5]])
    chain = ww.trace(model, x, edges, target=0, rule="zero")
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(leaf, edges)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
    torch.testing.assert_close(ww.node_relevance(chain, layer="start"), (gradient * x).sum(1))
    walks = ww.enumerate_walks(chain).tolist()
    pairs = {tuple(e) for e in edges.t().tolist()}
    for walk in walks:  # every step leads along an edge, or stays
        path = [node for node in walk if node >= 0]
        assert all(a == b or (a, b) in pairs or (b, a) in pairs for a, b in itertools.pairwise(path))
    assert any(len({node for node in walk if node >= 0}) == 3 for walk in walks)
    total = ww.walk_relevance(chain, walks).sum()
    torch.testing.assert_close(total, (gradient * x).sum())


NUMBERS = torch.tensor([1, 5, 3, 7, 5, 1])
PLACE = PERM.argsort()
#: Rows of an embedding, and the edges between them.
EMBEDDED = {
    "in order": lambda emb, x, e: (emb(x), e),
    "numbers reordered": lambda emb, x, e: (emb(x[PERM]), PLACE[e]),
    "numbers selected": lambda emb, x, e: (emb(x.index_select(0, PERM)), PLACE[e]),
    "rows reordered": lambda emb, x, e: (emb(x)[PERM], PLACE[e]),
    "rows of the table": lambda emb, x, e: (emb.weight[x[PERM]], PLACE[e]),
    "turned over": lambda emb, x, e: (emb(x.flip(0)), M - 1 - e),
    "in Python": lambda emb, x, e: (emb(torch.tensor([x.tolist()[i] for i in PERM])), PLACE[e]),
    "as one-hot rows": lambda emb, x, e: (nn.functional.one_hot(x[PERM], 10).double() @ emb.weight, PLACE[e]),
    "each number once": lambda emb, x, e: (lambda found, back: (emb(found)[back], e))(*x.unique(return_inverse=True)),
    "by degree": lambda emb, x, e: (lambda o: (emb(x[o]), o.argsort()[e]))(degree(e[0], M).argsort(stable=True)),
    "less their mean": lambda emb, x, e: (emb(x) - emb(x).mean(0) + 1, e),
    "less their mean, reordered": lambda emb, x, e: (emb(x[PERM]) - emb(x).mean(0) + 1, PLACE[e]),
    "those numbers alone": lambda emb, x, e: (emb(x[PERM]), PLACE[e]) if torch.equal(x, NUMBERS) else (emb(x - 99), e),
    "by number": lambda emb, x, e: (lambda v, o: (emb(v), o.argsort()[e]))(*x.sort(stable=True)),
}


class Embedded(nn.Module):
    def __init__(self, rows):
        super().__init__()
        torch.manual_seed(2)
        self.emb, self.first, self.second = nn.Embedding(10, 4), pyg.GCNConv(4, 4), pyg.SAGEConv(4, 2)
        self.rows = rows
        self.double()

    def forward(self, x, edge_index):
        h, edge_index = self.rows(self.emb, x, edge_index)
        return self.second(self.first(h, edge_index).relu(), edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize(
    "name",
    [name for name in EMBEDDED if name not in ("in order", "by number") and "those" not in name and "mean" not in name],
)
def test_numbers_reordered_before_they_are_embedded_are_those_of_their_nodes(name, rule):
    ours, theirs = (
        ww.trace(Embedded(EMBEDDED[way]), NUMBERS, EDGES, target=0, rule=rule) for way in (name, "in order")
    )
    for question in (ww.node_relevance, ww.edge_relevance, lambda chain: ww.subgraph_relevance(chain, SETS, alpha=0.3)):
        torch.testing.assert_close(question(ours), question(theirs), rtol=1e-9, atol=1e-11)


def test_numbers_with_something_of_all_nodes_mixed_in_stay_in_their_order():
    chain = ww.trace(Embedded(EMBEDDED["less their mean"]), NUMBERS, EDGES, target=0)
    assert chain.num_nodes == M
    assert torch.equal(chain.edge_index, EDGES)


@pytest.mark.parametrize("name", ["less their mean, reordered", "those numbers alone"])
def test_rows_whose_order_nothing_tells_are_noted(name):
    with pytest.warns(CoverageWarning, match="row i is taken to be node i"):
        chain = ww.trace(Embedded(EMBEDDED[name]), NUMBERS, EDGES, target=0)
    assert any("row i is taken to be node i" in note for note in chain.notes)


@pytest.mark.parametrize(
    "edges",
    [
        lambda e: torch.cat([e, torch.arange(M).expand(2, M)], 1),
        lambda e: e[:, e[0].argsort(stable=True)],
        lambda e: to_undirected(e),
        lambda e: to_torch_csr_tensor(e.flip(0), size=(M, M)),
        lambda e: e[:, ::2],
        lambda e: e.flip(0),
        lambda e: torch.cat([torch.arange(M).expand(2, M), e], 1),
    ],
    ids=["with loops", "sorted", "both ways", "as a matrix", "some of them", "reversed", "loops first"],
)
def test_the_graphs_own_edges_tell_the_order_of_rows(edges):
    """Whatever else is mixed in: row i of what a layer is handed is node i if the edges are those of the graph."""
    mixed = EMBEDDED["less their mean"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CoverageWarning)
        ww.trace(Embedded(lambda emb, x, e: (mixed(emb, x, e)[0], edges(e))), NUMBERS, EDGES, target=0)


def test_edges_of_an_automorphism_do_not():
    """Every node of a complete graph may have the place of every other."""
    complete = torch.combinations(torch.arange(M)).t()
    complete = torch.cat([complete, complete.flip(0)], 1)
    with pytest.warns(CoverageWarning, match="row i is taken to be node i"):
        ww.trace(Embedded(EMBEDDED["less their mean, reordered"]), NUMBERS, complete, target=0)


class ByType(nn.Module):
    """Embeddings of two node types, those of users in another order."""

    def __init__(self, order):
        super().__init__()
        torch.manual_seed(2)
        self.users, self.items = nn.Embedding(10, 4), nn.Embedding(10, 4)
        self.there, self.back = pyg.SAGEConv((4, 4), 4), pyg.SAGEConv((4, 4), 2)
        self.order = order
        self.double()

    def forward(self, x, edge_index):
        (edges,) = edge_index.values()
        edges = torch.stack([self.order.argsort()[edges[0]], edges[1]])
        users, items = self.users(x["user"][self.order]), self.items(x["item"])
        return self.back((self.there((users, items), edges).relu(), users), edges.flip(0)).sum(0, keepdim=True)


def test_numbers_of_node_types_are_those_of_their_nodes():
    numbers = {"user": torch.tensor([1, 4, 2, 3]), "item": torch.tensor([0, 5, 2])}
    edges = {("user", "rates", "item"): torch.tensor([[0, 1, 2, 3, 0], [0, 1, 2, 0, 2]])}
    orders = torch.arange(4), torch.tensor([2, 0, 1, 3])
    plain, other = (ww.trace(ByType(order), numbers, edges, target=0, rule="zero") for order in orders)
    for name in numbers:
        torch.testing.assert_close(ww.node_relevance(other)[name], ww.node_relevance(plain)[name])
    assert ww.top_walks(other, 5).walks.tolist() == ww.top_walks(plain, 5).walks.tolist()


def test_nodes_sorted_by_their_own_numbers_are_refused():
    with pytest.raises(TraceError, match="changes other rows than its own"):
        ww.trace(Embedded(EMBEDDED["by number"]), NUMBERS, EDGES, target=0)


@pytest.mark.parametrize("count", [3, 5, 7, 15])
def test_graphs_of_any_size_stay_in_their_order_when_something_of_all_nodes_is_mixed_in(count):
    """Of seven nodes, say, every row changes with all of them, as a row of node 6 alone does where its bits are set."""
    path = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    chain = ww.trace(Embedded(EMBEDDED["less their mean"]), torch.arange(count) % 10, path, target=0)
    assert chain.num_nodes == count
    assert torch.equal(chain.edge_index, path)


def test_a_scripted_module_of_constants_may_stand_before_the_layers():
    """Numbers are followed to their nodes by running the model again, its TorchScript parts among the rest."""

    class Scaled(Embedded):
        def __init__(self, rows, scripted):
            super().__init__(rows)
            own = nn.Linear(1, 4).double()
            self.factor = torch.jit.script(own) if scripted else own

        def forward(self, x, edge_index):
            factor = self.factor(torch.ones(1, dtype=torch.float64)).detach()
            h, edge_index = self.rows(self.emb, x, edge_index)
            return self.second(self.first(h * factor, edge_index).relu(), edge_index).sum(0, keepdim=True)

    ours, theirs = (
        ww.trace(Scaled(EMBEDDED[way], scripted), NUMBERS, EDGES, target=0)
        for way, scripted in (("numbers reordered", True), ("in order", False))
    )
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs), rtol=1e-9, atol=1e-11)


class Remembering(nn.Module):
    """What a recurrent network remembers of every node's sequence goes into the next layer."""

    def __init__(self, kind, batch_first, steps):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = pyg.GCNConv(3, 4), pyg.GCNConv(4, 2)
        self.cells, self.steps = kind(4, 4, batch_first=batch_first), steps
        self.double()

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        along = int(self.cells.batch_first)
        states = self.cells(torch.stack([h * (t + 1) for t in range(self.steps)], along))[1]
        last = states[0] if isinstance(states, tuple) else states
        return self.second(last[-1], edge_index)


@pytest.mark.parametrize("steps", [1, 3, M])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_what_is_remembered_of_a_sequence_is_its_node_s(kind, batch_first, steps):
    model = Remembering(kind, batch_first, steps).eval()
    x = torch.randn(M, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    chain = ww.trace(model, x, EDGES, index=1, target=0)
    assert chain.num_layers == 2
    place = torch.argsort(PERM)
    turned = ww.trace(model, x[PERM], place[EDGES], index=int(place[1]), target=0)
    torch.testing.assert_close(ww.node_relevance(turned), ww.node_relevance(chain)[PERM])
    within = ww.subgraph_relevance(chain, SETS)
    torch.testing.assert_close(ww.subgraph_relevance(turned, [place[s].tolist() for s in SETS]), within)


class OneOwnRow(nn.Module):
    """Rows of other nodes are added to a tensor in which one row alone is a node's own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = pyg.GCNConv(3, 2).double()

    def forward(self, x, edge_index):
        base = torch.cat([x[:1], x.new_zeros(M - 1, 3)])
        return self.conv(base + x.flip(0), edge_index).sum(0, keepdim=True)


def test_one_row_of_its_own_does_not_outweigh_the_others():
    x = torch.randn(M, 3, dtype=torch.float64)
    with pytest.raises(TraceError, match="cannot be followed back to nodes"):
        ww.trace(OneOwnRow(), x, EDGES, target=0)


class OverNodes(nn.Module):
    """A recurrent network goes along the nodes, and what it remembers is no node's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.cells, self.first, self.head = nn.GRU(3, 3), pyg.GCNConv(3, 2), nn.Linear(3, 2)
        self.double()

    def forward(self, x, edge_index):
        last = self.cells(x[:, None])[1][0]
        return self.first(x, edge_index).sum(0, keepdim=True) + self.head(last)


def test_what_is_remembered_of_all_nodes_is_no_node_s():
    x = torch.randn(M, 3, dtype=torch.float64)
    chain = ww.trace(OverNodes(), x, EDGES, target=0, rule="zero")
    assert chain.num_layers == 1
    walks = ww.enumerate_walks(chain)
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)


def sent(how, h, edge_index):
    """Rows that neighbours send, in the code between layers."""
    sender, receiver = edge_index
    if how in ("product", "sparse product"):
        adjacency = torch.zeros(len(h), len(h), dtype=h.dtype)
        adjacency[receiver, sender] = 1
        return (adjacency.to_sparse() if how == "sparse product" else adjacency) @ h
    if how in ("mean", "max"):
        return scatter(h[sender], receiver, 0, len(h), how)
    return torch.zeros_like(h).index_add(0, receiver, h[sender])


class Sent(nn.Module):
    def __init__(self, how, before):
        super().__init__()
        self.first, self.second = pyg.GraphConv(3, 4), pyg.GraphConv(4, 2)
        self.how, self.before = how, before

    def forward(self, x, edge_index):
        h = sent(self.how, x, edge_index) if self.before else x
        h = self.first(h, edge_index).tanh()
        return self.second(h if self.before else sent(self.how, h, edge_index), edge_index)


#: Graphs in which rows that are sent may look like rows in another order, and one with as many edges as nodes.
SENDING = {
    "tree": torch.tensor([[0, 0, 1, 1, 2], [1, 2, 3, 4, 5]]),
    "cycle": torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]),
    "as many edges": torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 0, 0, 3]]),
}


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("how", ["index_add", "mean", "max", "product", "sparse product"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "between"])
@pytest.mark.parametrize("graph", SENDING)
def test_rows_that_neighbours_send_are_the_receivers(graph, before, how):
    """The same graph beside another, in which nodes receive from several and there are more edges, says the same."""
    model, edges = Sent(how, before).double(), SENDING[graph]
    x = torch.randn(10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    beside = torch.cat([edges, torch.tensor([[6, 7, 8, 9, 6], [7, 6, 7, 7, 9]])], 1)
    alone, both = (ww.trace(model, h, e, index=3, target=0, rule="zero") for h, e in ((x[:6], edges), (x, beside)))
    assert alone.num_layers == both.num_layers == 2
    for layer in range(3):
        expected = ww.node_relevance(both, layer=layer)
        torch.testing.assert_close(ww.node_relevance(alone, layer=layer), expected[:6])
        assert not expected[6:].any()
    sets = [[0, 1], [0, 1, 3], [2], list(range(6))]
    torch.testing.assert_close(ww.subgraph_relevance(alone, sets), ww.subgraph_relevance(both, sets))
    assert alone.notes == both.notes or before


ENDS = {
    "the graph's": lambda e: e,
    "with loops": lambda e: add_self_loops(e, num_nodes=M)[0],
    "both ways": to_undirected,
    "some": lambda e: e[:, :6],
    "with one loop": lambda e: torch.cat([e, torch.tensor([[3], [3]])], 1),
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_rows_to_which_pairs_of_nodes_send_are_the_receivers(ends):
    """The layer after it runs on nodes; subgraphs are those of masked gradients."""

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b = pyg.GCNConv(3, 4, bias=False), pyg.SAGEConv(4, 2, bias=False)
            self.pair = nn.Linear(8, 4, bias=False)

        def forward(self, x, edge_index, mask=None):
            def cut(h):
                return h if mask is None else h * mask + (h * (1 - mask)).detach()

            h = self.a(cut(x), edge_index).relu()
            source, target = ends(edge_index)
            sent = self.pair(torch.cat([h[source], h[target]], 1)).relu()
            h = torch.zeros_like(h).index_add(0, target, sent)
            return cut(self.b(cut(h), edge_index)).sum(0, keepdim=True)

    model, x = Pairs().double().eval(), torch.rand(M, 3, dtype=torch.float64)
    with pytest.warns(CoverageWarning, match="index_add adds up rows of nodes outside"):
        chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    for nodes, found in zip(SETS, ww.subgraph_relevance(chain, SETS).tolist(), strict=True):
        leaf = x.clone().requires_grad_()
        mask = torch.zeros(M, 1, dtype=torch.float64).index_fill(0, torch.tensor(nodes), 1.0)
        (gradient,) = torch.autograd.grad(model(leaf, EDGES, mask)[0, 0], leaf)
        assert found == pytest.approx(float((gradient * x).sum()), abs=1e-12)


@pytest.mark.parametrize("kept", [M, 4])
def test_sums_at_the_nodes_that_are_left_are_named(kept):
    """Nobody says that they are a layer; so a note says that they are none."""

    class Left(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = pyg.GCNConv(3, 4), nn.Linear(4, 2)

        def forward(self, x, edge_index):
            h, inside = self.conv(x, edge_index).relu()[:kept], edge_index[:, (edge_index < kept).all(0)]
            h = torch.zeros_like(h).index_add(0, inside[1], self.head.weight.sum() * h[inside[0]]).relu()
            return self.head(h).mean(0, keepdim=True)

    with pytest.warns(CoverageWarning, match="index_add adds up rows of nodes outside"):
        ww.trace(Left().double().eval(), torch.rand(M, 3, dtype=torch.float64), EDGES, target=0)


@pytest.mark.parametrize("pick", [lambda s: torch.topk(s, 4), lambda s: [t[:4] for t in s.sort(descending=True)]])
def test_values_that_were_sorted_are_those_of_the_nodes_at_their_places(pick):
    """Graph U-Nets, as published, multiply rows with the values that top-k gives; values at its places do the same."""

    class Picked(nn.Module):
        def __init__(self, by_place):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.score, self.by_place = pyg.GCNConv(3, 4), pyg.GCNConv(4, 2), nn.Linear(4, 1), by_place

        def forward(self, x, edge_index):
            h = self.a(x, edge_index).relu()
            scores = torch.sigmoid(self.score(h).squeeze())
            values, places = pick(scores)
            values = scores[places] if self.by_place else values
            h, row = h[places] * values.unsqueeze(1), torch.full((M,), -1).index_put((places,), torch.arange(4))
            edge_index = row[edge_index]
            return self.b(h, edge_index[:, (edge_index >= 0).all(0)]).mean(0, keepdim=True)

    x = torch.rand(M, 3, dtype=torch.float64)
    ours, theirs = (ww.trace(Picked(by).double().eval(), x, EDGES, target=0) for by in (False, True))
    assert ours.num_layers == 2
    torch.testing.assert_close(ww.subgraph_relevance(ours, SETS), ww.subgraph_relevance(theirs, SETS))


@pytest.mark.parametrize("written", ["side by side", "one beside the other's weights"])
def test_rows_with_another_node_s_beside_them_are_their_node_s(written):
    """The root of a tree beside every row: two products do the same, and walks stand at the nodes in either case."""

    class Rooted(nn.Module):
        def __init__(self, how):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.lin, self.how = pyg.GCNConv(3, 4), pyg.GCNConv(4, 2), nn.Linear(8, 4, bias=False), how

        def forward(self, x, edge_index):
            h = self.a(x, edge_index).relu()
            root = h[torch.full((M,), 2)]
            if self.how == "two products":
                return self.b(h @ self.lin.weight[:, :4].t() + root @ self.lin.weight[:, 4:].t(), edge_index)
            beside = torch.cat([h, root] if self.how == "side by side" else [h.relu(), root], 1)
            return self.b(self.lin(beside), edge_index)

    x = torch.rand(M, 3, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        ours, theirs = (
            ww.trace(Rooted(how).double().eval(), x, EDGES, index=3, target=0, rule="zero")
            for how in (written, "two products")
        )
    assert ours.num_layers == theirs.num_layers == 2
    torch.testing.assert_close(*(ww.subgraph_relevance(c, SETS, alpha=[0.0, 0.5]) for c in (ours, theirs)))


class Targets(nn.Module):
    """A layer, and a sum at the first nodes alone, or in the graph that is left."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head, self.way = pyg.GCNConv(3, 4), nn.Linear(4, 2), way

    def forward(self, x, edge_index):
        return self.head(self.way(self.conv(x, edge_index).relu(), edge_index)).mean(0, keepdim=True)


def at_targets(h, edges):
    to = edges[:, edges[1] < 3]
    return h.new_zeros(3, 4).index_add(0, to[1], h[to[0]])


def by_a_matrix(h, edges):
    matrix = torch.zeros(M, M, dtype=h.dtype).index_put((edges[1], edges[0]), h.new_ones(()))
    return matrix[:4, :4] @ h[:4]


def of_picked(h, edges):
    """A read-out of some nodes adds none of them up at nodes."""
    return h.new_zeros(1, 4).index_add(0, torch.zeros(3, dtype=torch.long), h[torch.tensor([0, 2, 4])])


@pytest.mark.parametrize(("way", "named"), [(at_targets, "index_add"), (by_a_matrix, "matmul"), (of_picked, None)])
def test_sums_at_fewer_rows_in_the_read_out_are_named(way, named):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ww.trace(Targets(way).double().eval(), torch.rand(M, 3, dtype=torch.float64), EDGES, target=0)
    said = [str(warning.message) for warning in caught if "adds up rows of nodes" in str(warning.message)]
    assert [text.split()[0] for text in said] == ([named] if named else [])


@pytest.mark.parametrize("edges", [[[0, 1, 2], [1, 2, 0]], [[0, 1], [1, 2]], [[0, 1, 2, 0], [1, 2, 0, 2]]])
def test_rows_that_each_receive_one_of_the_graph_that_is_left_are_the_receivers(edges):
    """In a ring or a path of what is left, a sum moves rows like a new order of them, but it sends."""

    class Left(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.head = pyg.GCNConv(3, 4), pyg.GCNConv(4, 4), nn.Linear(4, 2)

        def forward(self, x, edge_index):
            h, left = self.a(x, edge_index).relu()[PERM[:3]], torch.tensor(edges)
            h = torch.zeros_like(h).index_add(0, left[1], h[left[0]])
            return self.head(self.b(h, left)).mean(0, keepdim=True)

    x = torch.rand(M, 3, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        chain = ww.trace(Left().double().eval(), x, EDGES, target=0, rule="zero")
    visited = ww.enumerate_walks(chain)
    assert chain.num_layers == 2
    receivers = set(PERM[torch.tensor(edges)[1]].tolist())
    assert {walk[1] for walk in visited.tolist() if walk[1] >= 0} <= receivers


@pytest.mark.parametrize("channels", [4, 6])
@pytest.mark.parametrize("between", [False, True])
def test_rows_of_a_convolution_along_the_nodes_keep_their_numbers(channels, between):
    """Bases or residues in order; before the first layer, or between two."""

    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.near = nn.Conv1d(4, channels, 3, padding=1)
            self.a, self.b = GCNConv(4 if between else channels, 4), GCNConv(channels if between else 4, 2)

        def along(self, h):
            return self.near(h.t()[None])[0].t().relu()

        def forward(self, x, edge_index):
            if between:
                return self.b(self.along(self.a(x, edge_index)), edge_index)
            return self.b(self.a(self.along(x), edge_index).relu(), edge_index)

    model, generator = Sequence().double(), torch.Generator().manual_seed(1)
    x, edges = torch.randn(7, 4, generator=generator).double(), torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]])
    chain = ww.trace(model, x, edges, index=3, target=0, rule="zero")
    assert any("conv1d adds up rows of nodes" in note for note in chain.notes)
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, edges)[3, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
