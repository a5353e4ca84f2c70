"""Models that pass messages in their own code, and in no module: every sum at the nodes is a layer."""

import copy
import functools
import re

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import scatter, softmax

import walkwise as ww
from walkwise import hooks
from walkwise.errors import CoverageWarning, TraceError
from walkwise.tracing import reach

pytestmark = pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 0], [1, 0, 2, 1, 3, 2, 4, 3, 1, 2, 0]])  # some of them one way
X = torch.randn(M, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
ADJACENCY = torch.zeros(M, M, dtype=torch.float64).index_put((EDGES[1], EDGES[0]), torch.tensor(1.0).double())
SETS = [[0, 1], [2, 3, 4], [5], list(range(M))]


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def gradient_times_input(model, *args, **kwargs):
    leaf = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, *args, **kwargs)[0, 0], leaf)
    return gradient * X


class Model(nn.Module):
    """Two layers, a read-out, and how the layers are written."""

    def __init__(self, layer, bias=True):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.out = nn.Linear(4, 5, bias), nn.Linear(5, 4, bias), nn.Linear(4, 2)
        self.layer = [layer]
        self.double().eval()

    def forward(self, x, edge_index):
        (layer,) = self.layer
        h = layer(x, edge_index, self.a).relu()
        h = layer(h, edge_index, self.b).relu()
        return self.out(h.sum(0, keepdim=True))


class Passing(pyg.MessagePassing):
    """The same in a module."""

    def __init__(self, lin, aggr, lin_first, itself):
        super().__init__(aggr=aggr)
        self.lin, self.lin_first, self.itself = lin, lin_first, itself

    def forward(self, x, edge_index):
        x = self.lin(x) if self.lin_first else x
        out = self.propagate(edge_index, x=x) + (x if self.itself else 0)
        return out if self.lin_first else self.lin(out)


class Modules(nn.Module):
    """The twin of a model, with modules for layers."""

    def __init__(self, model, aggr, lin_first=True, itself=False):
        super().__init__()
        self.first, self.second = (Passing(lin, aggr, lin_first, itself) for lin in (model.a, model.b))
        self.out = model.out
        self.eval()

    def forward(self, x, edge_index):
        h = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        return self.out(h.sum(0, keepdim=True))


def matrix(h):
    return h.new_zeros(len(h), len(h)).index_put((EDGES[1], EDGES[0]), h.new_ones(()))


def loop(x, e, lin):
    h, rows = lin(x), []
    for node in range(len(x)):
        taken = [h[sender] for sender, receiver in e.t().tolist() if receiver == node]
        rows.append(torch.stack(taken).sum(0) if taken else torch.zeros_like(h[0]))
    return torch.stack(rows)


def written_in_turn(x, e, lin):
    h = lin(x)
    made = torch.zeros_like(h)
    for node in range(len(x)):
        made[node] = h[e[0][e[1] == node]].sum(0)
    return made


def in_place(x, e, lin):
    h = lin(x)
    made = torch.zeros_like(h)
    return made.index_add_(0, e[1], h[e[0]])


def neighbours(x, e, lin):
    """Padded lists of neighbours, (M, K)."""
    h = lin(x)
    lists = [e[0][e[1] == node] for node in range(len(x))]
    padded = nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=len(x))
    return torch.cat([h, torch.zeros_like(h[:1])])[padded].sum(1)


def lists_of(x, e):
    """Padded lists of neighbours, and which entries are some.  # (M, K), (M, K)"""
    into = [e[0][e[1] == node] for node in range(len(x))]
    lists = nn.utils.rnn.pad_sequence(into, batch_first=True, padding_value=-1)
    return lists.clamp(min=0), (lists >= 0).to(x)


def by_einsum(x, e, lin):
    lists, some = lists_of(x, e)
    return torch.einsum("nk,nkf->nf", some, lin(x)[lists])


def by_gather(x, e, lin):
    h, (lists, some) = lin(x), lists_of(x, e)
    rows = h[None].expand(len(x), -1, -1).gather(1, lists[..., None].expand(-1, -1, h.shape[1]))
    return (rows * some[..., None]).sum(1)


def column_by_column(x, e, lin):
    h, (lists, some) = lin(x), lists_of(x, e)
    return sum(h[lists[:, k]] * some[:, k : k + 1] for k in range(lists.shape[1]))


def pairs(x, e, lin):
    h = lin(x)
    return (matrix(x).unsqueeze(2) * h.unsqueeze(0)).sum(1)


def scattered(x, e, lin):
    rows = lin(x)[e[0]]
    return torch.zeros_like(rows[: len(x)]).scatter_add(0, e[1].view(-1, 1).expand_as(rows), rows)


#: How the same layer can be written.
WAYS = {
    "matmul": lambda x, e, lin: matrix(x) @ lin(x),
    "matmul first": (lambda x, e, lin: lin(matrix(x) @ x), {"lin_first": False}),
    "einsum": lambda x, e, lin: torch.einsum("ij,jk->ik", matrix(x), lin(x)),
    "sparse": lambda x, e, lin: torch.sparse.mm(matrix(x).to_sparse(), lin(x)),
    "bmm": lambda x, e, lin: torch.bmm(matrix(x).unsqueeze(0), lin(x).unsqueeze(0)).squeeze(0),
    "and itself": (lambda x, e, lin: lin(x + matrix(x) @ x), {"lin_first": False, "itself": True}),
    "index_add": lambda x, e, lin: torch.zeros_like(lin(x)).index_add(0, e[1], lin(x)[e[0]]),
    "index_add_": in_place,
    "scatter_add": scattered,
    "scatter of PyG": lambda x, e, lin: scatter(lin(x)[e[0]], e[1], 0, len(x), reduce="sum"),
    "mean": (lambda x, e, lin: scatter(lin(x)[e[0]], e[1], 0, len(x), reduce="mean"), {"aggr": "mean"}),
    "max": (lambda x, e, lin: scatter(lin(x)[e[0]], e[1], 0, len(x), reduce="max"), {"aggr": "max"}),
    "loop": loop,
    "written in turn": written_in_turn,
    "lists of neighbours": neighbours,
    "lists by einsum": by_einsum,
    "lists by gather": by_gather,
    "tensordot": lambda x, e, lin: torch.tensordot(matrix(x), lin(x), dims=1),
    "features first": lambda x, e, lin: (lin(x).t() @ matrix(x).t()).t(),
    "matrix as weights": lambda x, e, lin: nn.functional.linear(lin(x).t(), matrix(x)).t(),
    "pairs": pairs,
}


def twins(way):
    layer, twin = WAYS[way] if isinstance(WAYS[way], tuple) else (WAYS[way], {})
    model = Model(layer)
    return model, Modules(model, **{"aggr": "sum", **twin})


@pytest.mark.parametrize("rule", ["zero", "gamma", "auto"])
@pytest.mark.parametrize("way", WAYS)
def test_layers_are_those_of_the_same_model_with_modules(way, rule):
    model, modules = twins(way)
    chain, theirs = (ww.trace(each, X, EDGES, target=0, rule=rule) for each in (model, modules))
    assert (chain.num_layers, chain.num_nodes) == (2, M)
    assert set(map(tuple, chain.edge_index.t().tolist())) == set(map(tuple, EDGES.t().tolist()))
    same(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(theirs, SETS))
    same(ww.subgraph_relevance(chain, SETS, alpha=0.3), ww.subgraph_relevance(theirs, SETS, alpha=0.3))
    walks = ww.enumerate_walks(theirs)
    same(ww.walk_relevance(chain, walks), ww.walk_relevance(theirs, walks))
    same(ww.feature_relevance(chain), ww.feature_relevance(theirs))
    same(ww.node_relevance(chain), ww.node_relevance(theirs))
    if rule == "zero":
        same(ww.feature_relevance(chain), gradient_times_input(model, EDGES))


# -- layers of other kinds --------------------------------------------------------------------


class Own(nn.Module):
    """A model of these modules that runs a function."""

    def __init__(self, run, **modules):
        super().__init__()
        torch.manual_seed(1)
        for name, (width, out) in modules.items():
            setattr(self, name, nn.Linear(width, out))
        self.run = [run]
        self.double().eval()

    def forward(self, x, *rest, **named):
        return self.run[0](self, x, *rest, **named).sum(0, keepdim=True)


def received(rows, e, num_nodes=M):
    return rows.new_zeros(num_nodes, *rows.shape[1:]).index_add(0, e[1], rows)


def dense_attention(m, x, e, hold=lambda t: t):
    h = x
    for _ in range(2):
        scores = m.q(h) @ m.k(h).t() / 2
        h = h + m.out(hold(scores.masked_fill(ADJACENCY == 0, -9).softmax(1)) @ m.v(h)).relu()
    return h


def edge_attention(m, x, e, hold=lambda t: t):
    h = x
    for _ in range(2):
        scores = (m.q(h)[e[1]] * m.k(h)[e[0]]).sum(1, keepdim=True)
        h = m.out(received(hold(softmax(scores, e[1])) * m.v(h)[e[0]], e)).relu()
    return h


def softmax_by_hand(m, x, e, hold=lambda t: t):
    """With a sum at the nodes below the fraction line."""
    h = m.v(x)
    scores = (m.q(h)[e[1]] + m.k(h)[e[0]]).tanh().exp()
    below = received(scores, e)
    return m.out(received(hold(scores / below[e[1]]) * h[e[0]], e))


def gated(m, x, e, hold=lambda t: t):
    h = x
    for _ in range(2):
        h = h + received(hold((m.q(h)[e[1]] + m.k(h)[e[0]]).sigmoid()) * m.v(h)[e[0]], e).relu()
    return m.out(h)


def transformer(m, x, e, hold=lambda t: t):
    """All nodes attend to all, by torch's own function or by hand."""
    q, k, v = m.q(x), m.k(x), m.v(x)
    if hold(q) is q:
        return m.out(nn.functional.scaled_dot_product_attention(q, k, v)).relu()
    return m.out(hold((q @ k.t() / 2).softmax(1)) @ v).relu()


def heads(m, x, e, hold=lambda t: t):
    """Two heads, which come before the nodes."""
    h = x
    for _ in range(2):
        q, k, v = (lin(h).view(len(x), 2, 2).transpose(0, 1) for lin in (m.q, m.k, m.v))
        scores = (q @ k.transpose(1, 2)).masked_fill(ADJACENCY == 0, -9).softmax(-1)
        h = h + m.out((hold(scores) @ v).transpose(0, 1).reshape(len(x), 4)).relu()
    return h


def heads_last(m, x, e, hold=lambda t: t):
    h = x
    for _ in range(2):
        q, k, v = (lin(h).view(len(x), 2, 2) for lin in (m.q, m.k, m.v))
        scores = torch.einsum("ihd,jhd->ijh", q, k).masked_fill(ADJACENCY[..., None] == 0, -9).softmax(1)
        h = h + m.out(torch.einsum("ijh,jhd->ihd", hold(scores), v).reshape(len(x), 4)).relu()
    return h


def over_pairs(m, x, e, hold=lambda t: t):
    """Scores from pairs, and a sum over them."""
    scores = (m.q(x)[:, None] * m.k(x)[None]).sum(-1).masked_fill(ADJACENCY == 0, -9).softmax(1)
    return m.out((hold(scores)[..., None] * m.v(x)[None]).sum(1).relu())


def edge_conv(m, x, e, hold=None):
    """The largest over neighbours in lists, as in DGCNN and ParticleNet."""
    h = x
    for _ in range(2):
        lists, some = lists_of(h, torch.cat([torch.arange(len(x)).expand(2, -1), e], 1))
        lists = torch.where(some > 0, lists, torch.arange(len(x))[:, None])
        own = h[:, None].expand(*lists.shape, 4)
        h = m.wide(torch.cat([own, h[lists] - own], -1)).relu().amax(1)
    return h


def shifted_softmax(m, x, e, hold=lambda t: t):
    """The largest score at every node is subtracted first."""
    h = x
    for _ in range(2):
        h = m.v(h)
        scores = m.q(h)[e[0]] + m.k(h)[e[1]]
        top = scores.new_full(h.shape, -9.0).scatter_reduce(0, e[1].view(-1, 1).expand_as(scores), scores, "amax")
        scores = (scores - top[e[1]]).exp()
        h = received(hold(scores / received(scores, e, len(x))[e[1]]) * h[e[0]], e, len(x)).relu()
    return m.out(h)


def normalised(m, x, e, hold=lambda t: t):
    """What all nodes have in common is no message."""
    h = x
    for lin in (m.a, m.b):
        h = received(lin(h)[e[0]], e, len(x))
        centred = h - hold(h.mean(0))
        h = centred / hold(centred.square().mean(0).add(1e-5).sqrt())
        h = h.relu()
    return m.out(h) * hold(m.c(h).softmax(0))


def parallel(m, x, e, hold=None):
    """Sums side by side: along edges and against them."""
    h = x
    for _ in range(2):
        there, back = received(m.a(h)[e[0]], e, len(x)), received(m.b(h)[e[1]], e.flip(0), len(x))
        h = nn.functional.leaky_relu(m.c(torch.cat([there, back, h], 1)), 0.3)
    return h


def edge_states(m, x, e, hold=None):
    """Edges keep features, as in MeshGraphNets."""
    h, edge = x, m.q(x)[e[0]]
    for _ in range(2):
        edge = edge + m.k((h[e[0]] + h[e[1]]) + edge).relu()
        h = h + m.v(received(edge, e)).relu()
    return m.out(h)


def directed_bonds(m, x, e, hold=None):
    """Messages of bonds to bonds, and at last to atoms, as in chemprop."""
    back = (e.flip(0).t().unsqueeze(1) == e.t().unsqueeze(0)).all(2).double()  # (E, E)
    first = m.q(x[e[0]])
    message = first.relu()
    for _ in range(2):
        message = (first + m.k(received(message, e)[e[0]] - back @ message)).relu()
    return m.out(torch.relu(m.v(x) + received(message, e)))


def diffusion(m, x, e, hold=None):
    """Powers of a normalised adjacency, as in SGC, MixHop and DCRNN."""
    walk = ADJACENCY / ADJACENCY.sum(1, keepdim=True).clamp(min=1)
    return m.out((m.v(walk @ (walk @ x)) + m.k(walk.t() @ x) + m.q(x)).relu())


def chebyshev(m, x, e, hold=None):
    lap = torch.eye(M).double() - ADJACENCY / 3
    first, second = x, lap @ x
    third = 2 * lap @ second - first
    return m.out((m.q(first) + m.k(second) + m.v(third)).relu())


def joined(m, x, e, hold=None):
    """The sum beside the node itself, as in GraphSAGE."""
    h = x
    for lin in (m.wide, m.wide):
        h = lin(torch.cat([h, received(h[e[0]], e)], 1)).relu()
    return h


FOURS = {"q": (4, 4), "k": (4, 4), "v": (4, 4), "out": (4, 4)}
KINDS = {
    "dense attention": (dense_attention, FOURS, 2),
    "attention along edges": (edge_attention, FOURS, 2),
    "softmax by hand": (softmax_by_hand, FOURS, 1),
    "gates": (gated, FOURS, 2),
    "all to all": (transformer, FOURS, 1),
    "features of edges": (edge_states, FOURS, 2),
    "directed bonds": (directed_bonds, FOURS, 3),
    "powers of a matrix": (diffusion, FOURS, 2),
    "Chebyshev": (chebyshev, FOURS, 2),
    "joined": (joined, {"wide": (8, 4)}, 2),
    "heads first": (heads, FOURS, 2),
    "heads last": (heads_last, FOURS, 2),
    "over pairs": (over_pairs, FOURS, 1),
    "EdgeConv": (edge_conv, {"wide": (8, 4)}, 2),
    "softmax, shifted": (shifted_softmax, FOURS, 2),
    "normalised": (normalised, {"a": (4, 4), "b": (4, 4), "c": (4, 1), "out": (4, 4)}, 2),
    "side by side": (parallel, {"a": (4, 4), "b": (4, 4), "c": (12, 4)}, 2),
}


def kind_of(name):
    run, modules, count = KINDS[name]
    return Own(run, **modules), count


def check_walks(chain, sets=SETS):
    """Walks, one by one, sum to what is asked of subgraphs, and to the whole."""
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert float(relevance.abs().sum()) > 1e-6
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance, rel=1e-9)
    table = dict(zip(map(tuple, walks.tolist()), relevance.tolist(), strict=True))
    for alpha in (0.0, 0.4):
        expected = [ww.reference.subgraph_relevance(table, nodes, alpha) for nodes in sets]
        assert ww.subgraph_relevance(chain, sets, alpha=alpha).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", KINDS)
def test_features_are_gradient_times_input_with_what_is_held_detached(name):
    model, count = kind_of(name)
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    assert chain.num_layers == count
    held = gradient_times_input(lambda x, e: KINDS[name][0](model, x, e, hold=torch.detach).sum(0, keepdim=True), EDGES)
    same(ww.feature_relevance(chain), held)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", KINDS)
def test_walks_sum_up_and_hooks_agree(name, rule):
    model, _ = kind_of(name)
    chain = ww.trace(model, X, EDGES, target=0, rule=rule)
    assert chain.output == pytest.approx(float(model(X, EDGES)[0, 0].detach()), rel=1e-12)
    check_walks(chain)
    for nodes in SETS:
        ours = float(ww.subgraph_relevance(chain, [nodes], alpha=0.3)[0])
        hooked = hooks.subgraph_relevance(model, X, EDGES, nodes, alpha=0.3, target=0, rule=rule)
        assert ours == pytest.approx(hooked, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", [name for name in KINDS if "ADJACENCY" not in KINDS[name][0].__code__.co_names])
def test_nodes_in_another_order_have_the_same_relevance(name, rule):
    model, _ = kind_of(name)
    order = torch.tensor([3, 0, 5, 1, 4, 2])  # the new place of every node
    x = torch.empty_like(X).index_copy(0, order, X)
    chain = ww.trace(model, X, EDGES, target=0, rule=rule)
    moved = ww.trace(model, x, order[EDGES], target=0, rule=rule)
    same(ww.feature_relevance(moved)[order], ww.feature_relevance(chain))
    same(ww.subgraph_relevance(moved, [order[nodes].tolist() for nodes in SETS]), ww.subgraph_relevance(chain, SETS))


def test_the_chain_says_what_counts_as_a_layer():
    model, _ = kind_of("gates")
    said = "Own has no message-passing module; sums at nodes in its own code count as layers: sum_1 (index_add), sum_2"
    with pytest.warns(CoverageWarning, match=re.escape(said)):
        chain = ww.trace(model, X, EDGES, target=0)
    assert [(layer.name, layer.kind) for layer in chain.layers] == [("sum_1", "Own"), ("sum_2", "Own")]
    assert any(note.startswith(said) for note in chain.notes)
    assert said in str(chain)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("given", ["edges", "ends", "matrix", "sparse"])
def test_the_direction_of_edges_is_seen(given, flipped):
    """Whether messages go along the edges that the model takes, or against them."""
    here = {
        "edges": EDGES,
        "ends": tuple(EDGES),
        "matrix": ADJACENCY,
        "sparse": ADJACENCY.to_sparse(),
    }[given]

    def run(m, x, e):
        if given in ("matrix", "sparse"):
            dense = e if given == "matrix" else e.to_dense()
            return m.b((dense.t() if flipped else dense) @ m.a(x).relu())
        source, target = (e[1], e[0]) if flipped else (e[0], e[1])
        return m.b(received(m.a(x).relu()[source], [source, target]))

    chain = ww.trace(Own(run, a=(4, 4), b=(4, 4)), X, here, target=0)
    expected = EDGES.flip(0) if flipped else EDGES
    assert set(map(tuple, chain.edge_index.t().tolist())) == set(map(tuple, expected.t().tolist()))


def test_one_graph_of_a_dense_batch():
    """(1, M, F), and an adjacency (1, M, M)."""

    def run(m, x, adj):
        h = (adj @ m.a(x)).relu()
        return m.b(adj @ h).relu().sum(-2).view(1, -1)

    model = Own(run, a=(4, 4), b=(4, 4))
    dense, chain = ww.trace(model, X[None], ADJACENCY[None], target=0), ww.trace(model, X, ADJACENCY, target=0)
    same(ww.subgraph_relevance(dense, SETS), ww.subgraph_relevance(chain, SETS))
    same(ww.feature_relevance(dense).view(M, 4), ww.feature_relevance(chain))


class Classifier(nn.Module):
    """Of graphs in a batch, with layers in its own code."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.a, self.b, self.out = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.double().eval()

    def forward(self, x, edge_index, batch=None):
        batch = x.new_zeros(len(x), dtype=torch.long) if batch is None else batch
        h = received(self.a(x)[edge_index[0]], edge_index, len(x)).relu()
        h = h + received(self.b(h)[edge_index[0]], edge_index, len(x)).relu()
        return self.out(scatter(h, batch, 0, reduce="mean"))


def test_graphs_of_a_batch_have_the_relevance_that_they_have_alone():
    model = Classifier()
    one, other = Data(x=X, edge_index=EDGES), Data(x=X[1:5] - 1, edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))
    chain = ww.trace(model, Batch.from_data_list([one, other]), target=[0, 1])
    alone = [ww.trace(model, one, target=0), ww.trace(model, other, target=1)]
    assert chain.num_layers == 2
    same(ww.feature_relevance(chain), torch.cat([ww.feature_relevance(each) for each in alone]))
    same(ww.subgraph_relevance(chain, [[0, 2, 3], [6, 7]]), torch.cat([
        ww.subgraph_relevance(alone[0], [[0, 2, 3]]), ww.subgraph_relevance(alone[1], [[0, 1]]),
    ]))  # fmt: skip


def test_nodes_of_a_graph_are_explained_one_by_one():
    class Nodes(Classifier):
        def forward(self, x, edge_index):
            h = received(self.a(x)[edge_index[0]], edge_index, len(x)).relu()
            return self.out(received(self.b(h)[edge_index[0]], edge_index, len(x)))

    model = Nodes()
    chain = ww.trace(model, X, EDGES, index=2, target=1, rule="zero")
    leaf = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, EDGES)[2, 1], leaf)
    same(ww.feature_relevance(chain), gradient * X)
    check_walks(chain)


NUMBERS = torch.tensor([[3, 1], [0, 0], [3, 1], [2, 2], [1, 0], [0, 2]])


class Atoms(nn.Module):
    """Embeddings of atomic numbers, as SchNet-like models have them, or a sum of them, one for every column."""

    def __init__(self, columns):
        super().__init__()
        torch.manual_seed(3)
        self.tables = nn.ModuleList(nn.Embedding(5, 4) for _ in range(columns))
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.out = nn.Linear(4, 2)
        self.double().eval()

    def embedded(self, z):
        if z.dim() == 1:
            return self.tables[0](z)
        return sum(table(z[:, i]) for i, table in enumerate(self.tables))

    def after(self, h, edge_index):
        for lin in self.layers:
            h = h + received(lin(h)[edge_index[0]], edge_index).relu()
        return self.out(h.sum(0, keepdim=True))

    def forward(self, z, edge_index):
        return self.after(self.embedded(z), edge_index)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("z", [NUMBERS[:, 0], NUMBERS, NUMBERS[:, :1]], ids=["a vector", "columns", "one column"])
def test_walks_begin_at_embeddings_of_numbers(z, rule):
    model = Atoms(1 if z.dim() == 1 else z.shape[1])
    chain = ww.trace(model, z, EDGES, target=0, rule=rule)
    assert chain.num_layers == 2
    check_walks(chain)
    embedded = Own(lambda m, h, e: model.after(h, e))
    theirs = ww.trace(embedded, model.embedded(z).detach(), EDGES, target=0, rule=rule)
    same(ww.node_relevance(chain), ww.node_relevance(theirs))
    same(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(theirs, SETS))


@pytest.mark.parametrize("frozen", [False, True])
def test_walks_begin_at_tables_of_users_and_items(frozen):
    """LightGCN in plain torch: a row of one table or the other for every node."""

    class Light(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(4)
            self.users, self.items = nn.Embedding(2, 4), nn.Embedding(M - 2, 4)
            self.double().eval()

        def forward(self, adj, pairs):
            layers = [torch.cat([self.users.weight, self.items.weight])]
            for _ in range(2):
                layers.append(torch.sparse.mm(adj, layers[-1]))
            h = torch.stack(layers).mean(0)
            return (h[pairs[0]] * h[pairs[1]]).sum(1)

    model = Light().requires_grad_(not frozen)
    data = Data(adj=ADJACENCY.to_sparse(), pairs=torch.tensor([[0, 1], [2, 4]]), edge_index=EDGES, num_nodes=M)
    chain = ww.trace(model, data, index=1)
    assert (chain.num_layers, chain.num_nodes) == (2, M)
    assert chain.output == pytest.approx(float(model(data.adj, data.pairs)[1].detach()))
    check_walks(chain)


def test_rows_of_edges_are_none_of_nodes_though_there_are_as_many():
    edges = EDGES[:, 1 : M + 1]
    for name in ("attention along edges", "features of edges", "gates", "joined", "directed bonds"):
        model, count = kind_of(name)
        run = KINDS[name][0]
        chain = ww.trace(model, X, edges, target=0, rule="zero")
        assert chain.num_layers == count, name
        held = gradient_times_input(
            lambda x, e, m=model, run=run: run(m, x, e, hold=torch.detach).sum(0, keepdim=True), edges
        )
        same(ww.feature_relevance(chain), held)
        check_walks(chain)


@pytest.mark.parametrize("run", [
    lambda m, x, e: m.a(x).relu(),
    lambda m, x, e: m.b(m.a(x).relu()[torch.tensor([1, 0, 2, 3, 5, 4])]),
    lambda m, x, e: torch.stack([m.a(x[node]) for node in (1, 2, 3, 0, 4, 5)]),
    lambda m, x, e: m.a(x).mean(0, keepdim=True).expand(1, -1),
], ids=["a perceptron", "another order", "another order, one by one", "a mean"])  # fmt: skip
def test_models_without_sums_at_the_nodes_are_refused(run):
    model = Own(run, a=(4, 4), b=(4, 4))
    with pytest.raises(TraceError, match=r"no sum at the nodes in its own code|puts its nodes into another order"):
        ww.trace(model, X, EDGES, target=0)


@pytest.mark.parametrize("width", [3, 4, 5])
@pytest.mark.parametrize("nodes", [3, 4, 6])
@pytest.mark.parametrize("written", ["stacked", "put"])
def test_neighbours_on_a_cycle_are_added_up_in_a_loop(written, nodes, width):
    """Every node then receives one row, as if nodes were put into another order; the edges say that it is sent."""
    cycle = torch.stack([torch.arange(nodes), torch.arange(1, nodes + 1) % nodes])

    def run(m, x, e, by_number=False):
        h = x
        for lin in (m.a, m.b):
            z = lin(h)
            rows = [z[e[0][e[1] == node]].sum(0) for node in range(len(x))]
            total = torch.zeros_like(z)
            if written == "put":
                for node, row in enumerate(rows):
                    total[node] = row
            h = (received(z[e[0]], e, len(x)) if by_number else total if written == "put" else torch.stack(rows)).relu()
        return h

    x = torch.randn(nodes, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    chains = [
        ww.trace(Own(r, a=(width, width), b=(width, width)), x, cycle, target=0, rule="zero")
        for r in (run, lambda *given: run(*given, by_number=True))
    ]
    assert [chain.num_layers for chain in chains] == [2, 2]
    same(*(ww.subgraph_relevance(chain, [[0], [0, 1], [1, 2]], alpha=[0.0, 0.5]) for chain in chains))


@pytest.mark.parametrize("order", [[5, 4, 3, 2, 1, 0], [2, 0, 4, 1, 3, 5]])
def test_nodes_in_another_order_are_refused(order):
    """Rows of sums are then those of other nodes than their numbers say."""

    def run(m, x, e):
        p = torch.tensor(order)
        h, e = m.a(x[torch.cat([p, torch.arange(6, len(x))])]), torch.cat([p.argsort(), torch.arange(6, len(x))])[e]
        return m.b(h + received(h[e[0]], e, len(x))).relu()

    with pytest.raises(TraceError, match=r"Own puts its nodes into another order \(getitem\) before it adds rows up"):
        ww.trace(Own(run, a=(4, 4), b=(4, 4)), X, EDGES, target=0)


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_several_matrices_on_one_graph(rule):
    """Times on a road network, (T, M, F), as (M, T · F)."""

    def run(m, x, e):
        h = x
        for lin in (m.a, m.b):
            h = (ADJACENCY @ lin(h)).relu()
        return m.out(h.mean((0, 1)))[None]

    model = Own(run, a=(4, 4), b=(4, 4), out=(4, 2))
    x = torch.randn(3, M, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    chain = ww.trace(model, x, EDGES, target=0, rule=rule)
    assert (chain.num_layers, chain.num_nodes) == (2, M)
    check_walks(chain)
    if rule == "zero":
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(leaf, EDGES)[0, 0], leaf)
        same(ww.feature_relevance(chain), (gradient * x).transpose(0, 1).reshape(M, -1))


def test_models_are_left_as_they_were():
    model, _ = kind_of("edge_states" if "edge_states" in KINDS else "features of edges")
    before = copy.deepcopy(model.state_dict())
    x = X.clone()
    for _ in range(2):
        ww.trace(model, x, EDGES, target=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(x, X)
    assert all(not module._forward_hooks for module in model.modules())


def test_questions_are_answered_as_for_layers_in_modules():
    model, modules = twins("index_add")
    chain, theirs = (ww.trace(each, X, EDGES, target=0) for each in (model, modules))
    same(ww.edge_relevance(chain, edge_index=EDGES), ww.edge_relevance(theirs, edge_index=EDGES))
    assert ww.top_walks(chain, 5).walks.tolist() == ww.top_walks(theirs, 5).walks.tolist()
    assert ww.order_nodes(chain).tolist() == ww.order_nodes(theirs).tolist()


class AtOnce(Model):
    """The read-out's weights come right after the last layer's."""

    def forward(self, x, edge_index):
        (layer,) = self.layer
        h = layer(layer(x, edge_index, self.a).relu(), edge_index, self.b)
        return self.out(h).sum(0, keepdim=True)


class ModulesAtOnce(Modules):
    def forward(self, x, edge_index):
        return self.out(self.second(self.first(x, edge_index).relu(), edge_index)).sum(0, keepdim=True)


@pytest.mark.parametrize("rule", ["zero", "gamma", "auto"])
@pytest.mark.parametrize("way", ["matmul", "index_add", "lists of neighbours"])
def test_the_read_out_s_weights_are_none_of_the_last_layer_s(way, rule):
    model = AtOnce(WAYS[way])
    chain, theirs = (ww.trace(each, X, EDGES, target=0, rule=rule) for each in (model, ModulesAtOnce(model, "sum")))
    same(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(theirs, SETS))
    same(ww.feature_relevance(chain), ww.feature_relevance(theirs))


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("edges", [[[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]], [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 2]]])
def test_the_order_of_edges_makes_no_difference(edges, rule):
    """Though in this order edge i leaves node i, where a module's rows of edges and of nodes look the same."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, h, edge_index):
            return received(self.lin(h)[edge_index[0]], edge_index)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.out = Layer(), Layer(), nn.Linear(4, 2)
            self.double().eval()

        def forward(self, x, edge_index):
            return self.out(self.b(self.a(x, edge_index).relu(), edge_index)).mean(0, keepdim=True)

    model, edges = Net(), torch.tensor(edges)
    chain, shuffled = (
        ww.trace(model, X, listed, target=0, rule=rule) for listed in (edges, edges[:, [3, 1, 0, 5, 2, 4]])
    )
    same(ww.feature_relevance(chain), ww.feature_relevance(shuffled))
    same(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(shuffled, SETS))


class Large(nn.Module):
    """A classifier of nodes, for graphs of many."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.out = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.double().eval()

    def forward(self, x, edge_index):
        h = received(self.a(x)[edge_index[0]], edge_index, len(x)).relu()
        return self.out(h + received(self.b(h)[edge_index[0]], edge_index, len(x)).relu())


@pytest.fixture
def many():
    """A graph of many nodes, of which the last has no neighbours."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    ends = torch.randint(0, 59, (2, 80), generator=generator)
    return x, torch.cat([ends, ends.flip(0)], 1)


@pytest.mark.parametrize("index", [3, 17, 41, 59])
def test_one_node_of_a_large_graph_is_traced_on_its_neighbourhood(many, index, monkeypatch):
    whole = ww.trace(Large(), *many, index=index, target=0)
    monkeypatch.setattr(reach, "_MANY_NODES", 10)
    monkeypatch.setattr(reach, "_MOST_PART", 1)
    model = Large()
    for asked in (5, index):
        chain = ww.trace(model, *many, index=asked, target=0)
    assert chain.part is not None
    same(ww.node_relevance(chain), ww.node_relevance(whole))
    same(ww.subgraph_relevance(chain, [[index], [index, 1, 2], [*range(60)]]), ww.subgraph_relevance(
        whole, [[index], [index, 1, 2], [*range(60)]]
    ))  # fmt: skip


def test_several_nodes_are_traced_on_their_neighbourhoods(many):
    chain = ww.trace(Large(), *many, index=[3, 17, 59], target=0)
    same(chain.outputs, Large()(*many)[[3, 17, 59], 0].detach())
    alone = [ww.trace(Large(), *many, index=index, target=0) for index in (3, 17, 59)]
    relevance = ww.node_relevance(chain)
    for number, one in enumerate(alone):
        rows = chain.origin.graphs == number
        same(relevance[rows], ww.node_relevance(one)[chain.origin.nodes[rows]])


# -- as many edges as nodes -------------------------------------------------------------------


def matrices_of_edges(m, x, e):
    """A matrix for every edge, as in NNConv."""
    h, weights = x, m.wide(ATTRIBUTES[: e.shape[1]]).view(-1, 4, 4)
    for _ in range(2):
        h = (m.a(h) + received(torch.bmm(weights, h[e[0]].unsqueeze(2)).squeeze(2), e, len(x))).relu()
    return m.b(h)


def messages_between_edges(m, x, e):
    """Sums at edges, over pairs of them, as in DimeNet."""
    message = m.joined(torch.cat([x[e[1]], x[e[0]]], 1)).relu()
    first, second = ((e[1][:, None] == e[0]) & (e[0][:, None] != e[1])).nonzero().t()
    for _ in range(2):
        message = message + torch.zeros_like(message).index_add(0, second, m.a(message)[first]).relu()
    return m.b(received(message, e, len(x)))


def lists_of_bonds(m, x, e):
    """As chemprop has them: bonds are numbered from 1 on, and row 0 is none."""
    into = [[bond + 1 for bond in range(e.shape[1]) if int(e[1, bond]) == node] for node in range(len(x))]
    longest = max(map(len, into))
    bonds = torch.tensor([row + [0] * (longest - len(row)) for row in into])
    first = m.a(torch.cat([x.new_zeros(1, 4), x[e[0]]]))
    message = first.relu()
    for _ in range(2):
        atoms = message[bonds].sum(1)
        message = (first + m.b(torch.cat([x.new_zeros(1, 4), atoms[e[0]]]))).relu()
    return m.c(torch.cat([x, message[bonds].sum(1)], 1))


ATTRIBUTES = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
OF_EDGES = {
    "matrices of edges": (matrices_of_edges, {"wide": (3, 16), "a": (4, 4), "b": (4, 4)}, 2),
    "messages between edges": (messages_between_edges, {"joined": (8, 4), "a": (4, 4), "b": (4, 4)}, 1),
    "lists of bonds": (lists_of_bonds, {"a": (4, 4), "b": (4, 4), "c": (8, 4)}, 3),
}
RINGS = {
    "ring": [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]],
    "ring, from the ends": [[1, 2, 3, 4, 0], [0, 1, 2, 3, 4]],
    "tree": [[0, 1, 2, 3, 4], [0, 0, 0, 1, 1]],
    "two ways": [[0, 1, 2, 1, 2], [1, 2, 0, 0, 1]],
    "two nodes": [[0, 1], [1, 0]],
}


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("name", OF_EDGES)
def test_layers_are_the_same_with_as_many_edges_as_nodes(name, ring):
    """As they are with one node more, which nothing joins to the others."""
    run, modules, count = OF_EDGES[name]
    model, edges = Own(run, **modules), torch.tensor(RINGS[ring])
    M = edges.shape[1]
    x, sets = X[:M], [[0, 1], [1], [*range(M)]]
    chain = ww.trace(model, x, edges, target=0, rule="zero")
    assert chain.num_layers == count
    check_walks(chain, sets)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, edges)[0, 0], leaf)
    same(ww.feature_relevance(chain), gradient * x)
    beside = Own(lambda m, x, e: run(m, x, e)[:M], **modules)
    larger = ww.trace(beside, torch.cat([x, X[:1]]), edges, target=0, rule="zero")
    same(ww.subgraph_relevance(chain, sets), ww.subgraph_relevance(larger, sets))


@pytest.mark.parametrize("edges", [torch.empty(2, 0, dtype=torch.long), torch.tensor([[0], [0]])])
@pytest.mark.parametrize("name", ["index_add", "scatter of PyG", "mean"])
def test_graphs_of_one_node_have_the_layers_of_larger_ones(name, edges):
    model, modules = twins(name)
    chain, theirs = (ww.trace(each, X[:1], edges, target=0) for each in (model, modules))
    assert chain.num_layers == theirs.num_layers == 2
    same(ww.feature_relevance(chain), ww.feature_relevance(theirs))


@pytest.mark.parametrize("columns", [[0, 1, 2, 3, 4, 5], [3, 0, 4, 1, 5, 2], [0, 1, 2, 3, 4]])
def test_hyperedges_are_no_nodes_though_there_are_as_many(columns):
    """Nor are the coefficients of eigenvectors."""
    incidence = (ADJACENCY + torch.eye(M).double())[:, columns]

    def run(m, x, incidence):
        h = x
        for lin in (m.a, m.b):
            h = (incidence @ (incidence.t() @ lin(h)) / 9).relu()
        return m.out(h)

    def at_once(m, x, incidence):
        h = x
        for lin in (m.a, m.b):
            h = ((incidence @ incidence.t() / 9) @ lin(h)).relu()
        return m.out(h)

    modules = {"a": (4, 4), "b": (4, 4), "out": (4, 4)}
    chain, theirs = (ww.trace(Own(way, **modules), X, incidence, target=0) for way in (run, at_once))
    assert chain.num_layers == 2
    same(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(theirs, SETS))


@pytest.mark.parametrize("rule", ["zero", "gamma", "auto"])
def test_all_layers_take_their_weights_on_the_same_side(rule):
    """Though the first one follows an encoder without an activation."""

    class Net(nn.Module):
        def __init__(self, own):
            super().__init__()
            torch.manual_seed(0)
            self.enc, self.a, self.b, self.out = (nn.Linear(4, 4) for _ in range(4))
            self.double().eval()
            self.own, self.layers = own, [Passing(lin, "sum", False, False).eval() for lin in (self.a, self.b)]

        def forward(self, x, edge_index):
            h = self.enc(x)
            for lin, layer in zip((self.a, self.b), self.layers, strict=True):
                h = (lin(received(h[edge_index[0]], edge_index)) if self.own else layer(h, edge_index)).relu()
            return self.out(h.sum(0, keepdim=True))

    own, modules = Net(True), Net(False)
    own.layers = [None, None]
    chain, theirs = (ww.trace(each, X, EDGES, target=0, rule=rule) for each in (own, modules))
    same(ww.feature_relevance(chain), ww.feature_relevance(theirs))
    same(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(theirs, SETS))


@pytest.mark.parametrize("hub", [0, 1, 17, 39])
def test_a_single_node_that_receives_is_seen(hub):
    x = torch.randn(40, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    star = torch.zeros(40, 40, dtype=torch.float64).index_fill(0, torch.tensor([hub]), 1.0)
    model = Own(lambda m, x, adj: m.b((x + adj @ m.a(x)).relu()), a=(4, 4), b=(4, 4))
    assert ww.trace(model, x, star, target=0).num_layers == 1


def test_kinds_of_atoms_may_be_one_hot():
    def run(m, z, e):
        h = nn.functional.one_hot(z, 5).to(X)
        return m.b(received(m.a(h)[e[0]], e, len(z)).relu())

    z = NUMBERS[:, 0]
    modules = {"a": (5, 4), "b": (4, 4)}
    chain = ww.trace(Own(run, **modules), z, EDGES, target=0)
    hot = nn.functional.one_hot(z, 5).to(X)
    theirs = ww.trace(Own(lambda m, h, e: m.b(received(m.a(h)[e[0]], e).relu()), **modules), hot, EDGES, target=0)
    same(ww.node_relevance(chain), ww.node_relevance(theirs))
    same(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(theirs, SETS))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_adjacency_in_half_precision_is_read_as_the_features_are(dtype):
    model = Own(lambda m, x, adj: m.b((adj @ m.a(x)).relu()), a=(4, 4), b=(4, 4)).to(dtype)
    chain = ww.trace(model, X.to(dtype), ADJACENCY.to(dtype), target=0)
    assert chain.num_layers == 1
    assert chain.output == pytest.approx(float(model(X.to(dtype), ADJACENCY.to(dtype))[0, 0].detach()), rel=0.05)


def gated(z, e):
    return z + torch.zeros_like(z).index_add(0, e[1], torch.sigmoid(z[e[0]] + z[e[1]]) * z[e[0]])


def laplacian(z, e):
    return z + torch.zeros_like(z).index_add(0, e[1], z[e[1]] - z[e[0]])


def by_incidence(z, e):
    ends, every = torch.zeros(len(z), e.shape[1], dtype=z.dtype), torch.arange(e.shape[1])
    ends[e[0], every], ends[e[1], every] = 1, 1
    return ends @ (ends.t() @ z)


@pytest.mark.parametrize("way", [gated, laplacian, by_incidence])
def test_a_table_of_all_nodes_and_as_many_edges_as_nodes(way):
    """The model does not run on more nodes; a ring has the answers that it has beside another component."""

    class Net(nn.Module):
        def __init__(self, table):
            super().__init__()
            torch.manual_seed(0)
            self.table, self.way = nn.Parameter(table), [way]
            self.a, self.b, self.out = nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x, edges):
            h = x + self.table
            for weights in (self.a, self.b):
                h = self.way[0](weights(h), edges).relu()
            return self.out(h)

    x, table = torch.randn(8, 4, dtype=torch.float64), 0.1 * torch.randn(8, 4)
    ring = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    beside = torch.cat([ring, torch.tensor([[5, 6, 7, 7], [6, 5, 6, 5]])], 1)
    chains = [
        ww.trace(Net(table[:M]).double().eval(), x[:M], edges, index=2, target=0, rule="zero")
        for M, edges in ((5, ring), (8, beside))
    ]
    assert [chain.num_layers for chain in chains] == [2, 2]
    found, right = (ww.subgraph_relevance(c, [[0, 1], [1, 2], [2]], alpha=[0.0, 0.3]) for c in chains)
    torch.testing.assert_close(found, right)


def test_what_has_a_number_for_every_edge_may_have_any_name():
    """With as many edges as nodes, it could have one for every node."""

    class ByName(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, x, edge_index, edge_weight=None, dist=None):
            weight, h = edge_weight if dist is None else dist, x
            for weights in (self.a, self.b):
                z = weights(h)
                sent = (z[edge_index[0]] - z[edge_index[1]]).relu() * weight[:, None]
                h = torch.zeros_like(z).index_add(0, edge_index[1], sent)
            return h.mean(0, keepdim=True)

    x, weight = torch.randn(5, 4, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    ring, model = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]), ByName().double().eval()
    usual = ww.trace(model, x, ring, target=0, rule="zero", edge_weight=weight)
    other = ww.trace(model, x, ring, target=0, rule="zero", dist=weight)
    sets = [[0, 1, 2], [3], [1, 4]]
    torch.testing.assert_close(*(ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.5]) for chain in (usual, other)))
    assert other.notes == usual.notes


@pytest.mark.parametrize("by_number", [False, True])
def test_nodes_along_columns_that_are_added_up_twice_are_refused(by_number):
    """Once is one layer, as with rows; twice would be taken for one layer, too."""

    class Columns(nn.Module):
        def __init__(self, times):
            super().__init__()
            torch.manual_seed(0)
            self.weights = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(times))

        def forward(self, x, edges):
            h = x.t()
            for weights in self.weights:
                h = weights.weight @ h
                sent = h.index_select(1, edges[0])
                matrix = x.new_zeros(len(x), len(x)).index_put((edges[0], edges[1]), x.new_ones(()))
                h = (torch.zeros_like(h).index_add(1, edges[1], sent) if by_number else h @ matrix).relu()
            return h.t().mean(0, keepdim=True)

    x, edges = torch.rand(6, 4, dtype=torch.float64), torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
    assert ww.trace(Columns(1).double().eval(), x, edges, target=0).num_layers == 1
    with pytest.raises(TraceError, match=r"keeps its nodes along columns, \(F, M\).*Keep nodes first"):
        ww.trace(Columns(2).double().eval(), x, edges, target=0)


@pytest.mark.parametrize("graphs", [1, 2])
def test_a_state_of_each_graph_is_no_layer(graphs):
    """Made of all edges and nodes of a graph, and read by all of its nodes, as in MEGNet; whoever gives ``batch``."""
    batch = torch.tensor([0, 0, 0, 0, 0, 0]) if graphs == 1 else torch.tensor([0, 0, 0, 1, 1, 1])
    edges = EDGES[:, batch[EDGES[0]] == batch[EDGES[1]]]

    def run(m, x, e, batch=batch):
        h, state = x, x.new_zeros(int(batch.max()) + 1, 4)
        for lin, own in ((m.a, m.b), (m.c, m.d)):
            sent = lin(h)[e[0]].relu()
            h = h + received(sent, e, len(x)) + state[batch]
            of_edges = state.new_zeros(state.shape).index_add(0, batch[e[0]], sent)
            state = state + own(of_edges + state.new_zeros(state.shape).index_add(0, batch, h)).relu()
        return h + state[batch]

    maps = dict.fromkeys("abcd", (4, 4))
    ask = {"target": lambda out: out[0, 1], "rule": "zero"}
    ours, theirs = (ww.trace(Own(run, **maps), X, edges, **ask, **given) for given in ({}, {"batch": batch}))
    assert ours.num_layers == theirs.num_layers == 2
    same(ww.subgraph_relevance(ours, SETS), ww.subgraph_relevance(theirs, SETS))


@pytest.mark.parametrize("held", [False, True], ids=["found", "held"])
@pytest.mark.parametrize("mixed", ["linear", "convolved", "activated"])
def test_neighbours_that_a_model_finds_may_be_mixed_by_weights(mixed, held):
    """As PointCNN does: lists of the nearest points, one after the other, times a matrix."""

    class Points(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.lin, self.conv, self.head = nn.Linear(12, 4), nn.Conv1d(4, 4, 3), nn.Linear(4, 2)

        def forward(self, x, pos):
            near = x[self.near if held else torch.cdist(pos, pos).topk(3, largest=False).indices]
            near = near.relu() if mixed == "activated" else near
            h = self.conv(near.transpose(1, 2)).squeeze(-1) if mixed == "convolved" else self.lin(near.flatten(1))
            return self.head(h.relu())

    model, generator = Points().double().eval(), torch.Generator().manual_seed(1)
    x, pos = (torch.randn(8, width, generator=generator).double() for width in (4, 3))
    model.register_buffer("near", torch.cdist(pos, pos).topk(3, largest=False).indices)
    chain = ww.trace(model, Data(x=x, pos=pos), index=2, target=0, rule="zero")
    assert chain.num_layers == 1
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, pos)[2, 0], leaf)
    same(ww.feature_relevance(chain), gradient * x)
    inside = torch.zeros(8, 1, dtype=torch.float64).index_fill(0, model.near[2, :2], 1.0)
    (gradient,) = torch.autograd.grad(model(leaf * inside + (leaf * (1 - inside)).detach(), pos)[2, 0], leaf)
    asked = ww.subgraph_relevance(chain, [model.near[2, :2].tolist()], alpha=0.0)  # node 2, where walks end, among them
    same(asked, (gradient * x).sum().view(1))


@pytest.mark.parametrize("given", ["nodes first", "nodes last"])
def test_nodes_may_be_turned_last_inside(given):
    """As models of skeletons do, of a fixed number of joints, whatever the layout of the features."""

    class Joints(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.lin, self.head = nn.Conv2d(3, 5, 1), nn.Linear(5, 2)
            self.register_buffer("joined", ADJACENCY / 3)

        def forward(self, x):
            x = x.permute(1, 2, 0)[None] if x.dim() == 3 else x  # (M, C, T) -> (1, C, T, M)
            return self.head(torch.einsum("nctv,vw->nctw", self.lin(x), self.joined).relu().mean((2, 3)))

    first = torch.randn(M, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    model, x = Joints().double().eval(), first if given == "nodes first" else first.permute(1, 2, 0)[None]
    chain = ww.trace(model, x, ADJACENCY, target=0, rule="zero")
    assert chain.num_layers == 1
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf)[0, 0], leaf)
    by_node = (gradient * x).movedim(0 if given == "nodes first" else 3, 0).reshape(M, -1)
    same(ww.feature_relevance(chain).reshape(M, -1), by_node)


@pytest.mark.parametrize("how", ["in place", "anew"])
def test_sums_over_several_kinds_of_edges_are_one_layer(how):
    """Each adds its messages to what the ones before have made, as in RGCN by hand."""
    kinds = [EDGES[:, part::3] for part in range(3)]

    def layer(h, root, maps, how):
        out = root(h)
        for e, lin in zip(kinds, maps, strict=True):
            if how == "in place":
                out.index_add_(0, e[1], lin(h[e[0]]))
            elif how == "anew":
                out = out.index_add(0, e[1], lin(h[e[0]]))
            else:
                out = out + received(lin(h[e[0]]), e)
        return out.relu()

    def run(how, m, x, e):
        return layer(layer(x, m.a, (m.b, m.c, m.d), how), m.f, (m.g, m.h, m.i), how)

    maps = dict.fromkeys("abcdfghi", (4, 4))
    ours, theirs = (
        ww.trace(Own(functools.partial(run, written), **maps), X, EDGES, target=0, rule="zero")
        for written in (how, "added")
    )
    assert ours.num_layers == theirs.num_layers == 2
    same(*(ww.subgraph_relevance(chain, SETS, alpha=[0.0, 0.5]) for chain in (ours, theirs)))


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("given", ["nodes first", "nodes last"])
def test_every_block_on_found_neighbours_is_a_layer(given, count):
    """As in models of images and clouds, (1, C, M, 1) inside: the largest difference to the nearest, then a map."""

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.stem, self.head, self.weights = nn.Conv2d(3, 6, 1), nn.Linear(6, 2), None
            self.maps = nn.ModuleList(nn.Conv2d(12, 6, 1) for _ in range(count))

        def masked(self, h):
            if self.weights is None:
                return h
            inside = self.weights.view(1, 1, -1, 1)
            return h * inside + (h * (1 - inside)).detach()

        def forward(self, x):
            x = x.t()[None, ..., None] if x.dim() == 2 else x
            h = self.begun = self.stem(x)
            h = self.masked(h)
            for lin in self.maps:
                flat = h.detach().transpose(2, 1).squeeze(-1)
                near = torch.cdist(flat, flat).topk(3, largest=False).indices.view(-1)
                rows = h.transpose(2, 1).contiguous().view(len(x[0, 0]), -1)[near].view(1, len(x[0, 0]), 3, 6)
                most = (rows.permute(0, 3, 1, 2) - h).max(-1, keepdim=True).values
                h = self.masked(lin(torch.cat([h, most], 1)).relu() + h)
            return self.head(h.mean((2, 3)))

    model = Blocks().double().eval()
    first = torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = first if given == "nodes first" else first.t()[None, ..., None]
    chain = ww.trace(model, x, torch.eye(9, dtype=torch.float64), target=0, rule="zero")
    assert chain.num_layers == count
    for nodes in ([0, 1, 2], [3], list(range(9))):
        model.weights = torch.zeros(9, dtype=torch.float64).index_fill(0, torch.tensor(nodes), 1.0)
        output = model(x)[0, 0]
        (gradient,) = torch.autograd.grad(output, model.begun)
        asked = ww.subgraph_relevance(chain, [nodes], alpha=0.0)
        same(asked, (gradient * model.begun).sum().detach().view(1))
        model.weights = None
