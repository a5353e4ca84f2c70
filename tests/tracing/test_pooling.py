"""Pooling between layers: rows that are nodes go on as nodes, clusters are carried, scores are held constant."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.pool import ASAPooling, EdgePooling, MemPooling, SAGPooling, TopKPooling
from torch_geometric.utils import scatter, to_dense_adj, to_dense_batch, trim_to_layer

import walkwise as ww
from walkwise import reference

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0, 1], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 0, 5, 4]])
SETS = [[0], [1, 2], [0, 3, 4], [0, 1, 2, 3, 4, 5], [5], [2, 3, 4, 5]]
BATCH = torch.zeros(M, dtype=torch.long)


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    yield
    torch.set_default_dtype(torch.float32)


class Pooled(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.first, self.pool, self.second = pyg.GCNConv(3, 4), pool, pyg.GraphConv(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x, edge_index):
        h, edge_index, *_ = self.pool(self.first(x, edge_index).relu(), edge_index, batch=BATCH)
        return self.head(self.second(h, edge_index).relu()).sum(0, keepdim=True)


class Held(nn.Module):
    """The same model written out: rows picked by number, times scores that are held constant."""

    def __init__(self, model, x):
        super().__init__()
        self.first, self.second, self.head = model.first, model.second, model.head
        _, self.edges, _, _, self.perm, score = model.pool(self.first(x, EDGES).relu(), EDGES)
        self.score = score.detach().view(-1, 1)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()[self.perm] * self.score
        return self.head(self.second(h, self.edges).relu()).sum(0, keepdim=True)


def hooked(model, perm, x, nodes, alpha):
    """R_α by hooks; at the pooled layer a row has the weight of its own node."""
    inside = torch.zeros(M).index_fill(0, torch.tensor(nodes, dtype=torch.long), 1.0)

    def total(weights):
        run, rows = lambda: model(x, EDGES)[0, 1], lambda position: weights[perm] if position else weights
        return reference.hooked_relevance(model, run, rows, 3)

    return total(inside + alpha * (1 - inside)) - total(alpha * (1 - inside))


@pytest.mark.parametrize("kind", [TopKPooling, SAGPooling], ids=["top-k", "SAG"])
@pytest.mark.parametrize("ratio", [0.5, 0.99], ids=["fewer nodes", "other order"])
def test_pooled_rows_are_nodes(kind, ratio):
    x = torch.randn(M, 3)
    model = Pooled(kind(4, ratio=ratio))
    twin = Held(model, x)
    chain = ww.trace(model, x, EDGES, target=1, rule="zero")
    assert [layer.name for layer in chain.layers] == ["first", "second"]
    for alpha in (0.0, 0.3):
        ours = ww.subgraph_relevance(chain, SETS, alpha=alpha).tolist()
        assert ours == pytest.approx([hooked(twin, twin.perm, x, nodes, alpha) for nodes in SETS])
    for rule in ("auto", "gamma"):  # detaching what is held constant changes nothing
        ours, theirs = (ww.trace(m, x, EDGES, target=1, rule=rule) for m in (model, twin))
        a, b = (ww.subgraph_relevance(c, SETS, alpha=[0.0, 0.5]) for c in (ours, theirs))
        torch.testing.assert_close(a, b)
    visited = {node for walk in ww.enumerate_walks(chain)[:, 1:].tolist() for node in walk}
    assert visited <= set(twin.perm.tolist())


def sums_up(chain):
    """Walks sum to the relevance of the whole graph."""
    walks = ww.enumerate_walks(chain)
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)
    table = dict(zip(map(tuple, walks.tolist()), ww.walk_relevance(chain, walks).tolist(), strict=True))
    for alpha in (0.0, 0.4):
        ours = ww.subgraph_relevance(chain, SETS, alpha=alpha).tolist()
        assert ours == pytest.approx([reference.subgraph_relevance(table, nodes, alpha) for nodes in SETS])


def is_gradient(chain, model, x, *column):
    """Without gates and biases, LRP-0 is gradient times input."""
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(leaf, EDGES)[column], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
    torch.testing.assert_close(ww.node_relevance(chain, layer="start"), (gradient * x).sum(1))


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_graph_u_net(rule):
    model = pyg.GraphUNet(3, 4, 2, depth=2, pool_ratios=[0.8, 0.5])
    x = torch.randn(M, 3)
    chain = ww.trace(model, x, EDGES, target=0, index=2, rule=rule)
    assert chain.num_layers == 5
    sums_up(chain)


class Clustered(nn.Module):
    """Nodes become clusters, on which another layer runs."""

    def __init__(self, pool):
        super().__init__()
        self.first, self.pool, self.second = pyg.GCNConv(3, 5), pool, pyg.GCNConv(5, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        cluster = torch.tensor([0, 0, 1, 1, 2, 2])
        return self.head(self.second(self.pool(h, cluster), cluster[edge_index])).sum(0, keepdim=True)


POOLS = {
    "index_add": lambda h, cluster: torch.zeros(3, 5).index_add(0, cluster, h),
    "scatter": lambda h, cluster: scatter(h, cluster, reduce="max"),
    "amax": lambda h, cluster: torch.zeros(3, 5).scatter_reduce(0, cluster.view(-1, 1).expand(-1, 5), h, "amax"),
    "amin": lambda h, cluster: torch.zeros(3, 5).index_reduce(0, cluster, h, "amin", include_self=False),
    "max": lambda h, cluster: h.view(3, 2, 5).max(1).values,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pool", POOLS)
def test_clusters_are_carried(pool):
    """A cluster is none of its nodes, not even where it takes all its values from them."""
    model, x = Clustered(POOLS[pool]), torch.randn(M, 3)
    chain = ww.trace(model, x, EDGES, target=1, rule="zero")
    assert chain.num_layers == 1
    assert "layer 'second' (GCNConv) runs on rows that are not nodes" in str(chain)
    is_gradient(chain, model, x, 0, 1)
    sums_up(chain)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [ASAPooling, EdgePooling])
@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_walks_sum_up_through_clusters(kind, rule):
    sums_up(ww.trace(Pooled(kind(4)), torch.randn(M, 3), EDGES, target=1, rule=rule))


class Dense(nn.Module):
    """A differentiable pooling in dense form: its assignment is a softmax, and held constant."""

    def __init__(self, pool):
        super().__init__()
        self.first, self.assign, self.dense = pyg.GCNConv(3, 4), pyg.GCNConv(3, 2), pyg.DenseGCNConv(4, 4)
        self.head, self.pool = nn.Linear(4, 2), pool

    def forward(self, x, edge_index):
        h, _ = to_dense_batch(self.first(x, edge_index).relu(), BATCH)
        s, _ = to_dense_batch(self.assign(x, edge_index), BATCH)
        h, adj, *_ = self.pool(h, to_dense_adj(edge_index), s)
        return self.head(self.dense(h, adj).mean(1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pool", [pyg.dense_diff_pool, pyg.dense_mincut_pool])
@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_walks_sum_up_through_dense_pooling(pool, rule):
    chain = ww.trace(Dense(pool), torch.randn(M, 3), EDGES, target=1, rule=rule)
    assert [layer.name for layer in chain.layers] == ["first"]
    sums_up(chain)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_walks_sum_up_through_memory(rule):
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.pool, self.head = (
                pyg.GCNConv(3, 4),
                MemPooling(4, 4, heads=2, num_clusters=2),
                nn.Linear(4, 2),
            )

        def forward(self, x, edge_index):
            return self.head(self.pool(self.first(x, edge_index).relu(), BATCH)[0].mean(1))

    sums_up(ww.trace(Memory(), torch.randn(M, 3), EDGES, target=1, rule=rule))


def test_layers_that_are_trimmed():
    """Later layers run on fewer nodes; with none of those cut off that matter, answers are those of the whole."""
    counts, edge_counts = [2, 2, 2], [4, 5]

    class Trimmed(nn.Module):
        def __init__(self, trims):
            super().__init__()
            torch.manual_seed(3)
            self.convs, self.trims = nn.ModuleList([pyg.SAGEConv(3, 4), pyg.SAGEConv(4, 2)]), trims

        def forward(self, x, edge_index):
            for i, conv in enumerate(self.convs):
                if self.trims:
                    x, edge_index, _ = trim_to_layer(i, counts, edge_counts, x, edge_index)
                x = conv(x, edge_index)
                x = x.relu() if i == 0 else x
            return x[:2]

    x, edges = torch.randn(M, 3), torch.tensor([[2, 3, 1, 0, 4, 5, 3, 4, 5], [0, 1, 0, 1, 2, 3, 2, 3, 2]])
    ours, theirs = (ww.trace(Trimmed(trims), x, edges, index=1, target=0) for trims in (True, False))
    for alpha in (0.0, 0.5):
        a, b = (ww.subgraph_relevance(chain, SETS, alpha=alpha) for chain in (ours, theirs))
        torch.testing.assert_close(a, b)


def test_a_bipartite_sample():
    """(x, x[:n]): the first nodes receive, all nodes send."""

    class Sampled(nn.Module):
        def __init__(self, pairs):
            super().__init__()
            torch.manual_seed(3)
            self.first, self.second, self.pairs = pyg.SAGEConv(3, 4), pyg.GraphConv(4, 2), pairs

        def forward(self, x, edge_index):
            first, second = edge_index, edge_index[:, :4]
            if not self.pairs:
                return self.second(self.first(x, first).relu(), second)[:2]
            h = self.first((x, x[:4]), first).relu()
            return self.second((h, h[:2]), second)

    x, edges = torch.randn(M, 3), torch.tensor([[2, 3, 1, 0, 4, 5, 3, 4, 5], [0, 1, 0, 1, 2, 3, 2, 3, 2]])
    ours, theirs = (ww.trace(Sampled(pairs), x, edges, index=1, target=0) for pairs in (True, False))
    assert {layer.route for layer in ours.layers} == {"closed form"}
    for alpha in (0.0, 0.5):
        a, b = (ww.subgraph_relevance(chain, SETS, alpha=alpha) for chain in (ours, theirs))
        torch.testing.assert_close(a, b)


class SumThere(nn.Module):
    """Nodes in the order of their scores, as many as are kept, between which the model itself sums."""

    def __init__(self, keeps, beside):
        super().__init__()
        self.first, self.second, self.lin = pyg.GraphConv(3, 4), pyg.GraphConv(4, 4), nn.Linear(4, 4)
        self.head, self.keeps, self.beside, self.weights = nn.Linear(4, 2), keeps, beside, None

    def masked(self, h, nodes):
        """Rows of nodes outside the subgraph, held constant."""
        weights = torch.ones(M) if self.weights is None else self.weights
        return h * weights[nodes, None] + (h * (1 - weights[nodes, None])).detach()

    def forward(self, x, edge_index):
        h = self.first(self.masked(x, torch.arange(M)), edge_index)
        kept = h.detach().sum(1).argsort()[: self.keeps]
        row = torch.full((M,), -1).index_put((kept,), torch.arange(self.keeps))
        edges = row[edge_index][:, (row[edge_index] >= 0).all(0)]
        h = h[kept]
        total = torch.zeros_like(h).index_add(0, edges[1], self.lin(h)[edges[0]])
        h = self.masked(h + total if self.beside else total, kept)
        return self.head(self.masked(self.second(h, edges), kept).mean(0, keepdim=True))


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("keeps", [M, 4])
@pytest.mark.parametrize("beside", [False, True], ids=["the sum alone", "beside the nodes"])
def test_sums_of_pooled_rows_are_theirs(keeps, beside):
    """Also where all nodes are kept, in another order."""
    model, x = SumThere(keeps, beside), torch.randn(M, 3)
    assert not torch.equal(model.first(x, EDGES).sum(1).argsort(), torch.arange(M))
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    for nodes in SETS:
        model.weights = torch.zeros(M).index_fill(0, torch.tensor(nodes), 1.0)
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(leaf, EDGES)[0, 0], leaf)
        assert float(ww.subgraph_relevance(chain, [nodes], alpha=0.0)) == pytest.approx(float((gradient * x).sum()))
        model.weights = None
