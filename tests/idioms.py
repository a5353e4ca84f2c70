"""Models as people write them, whose tensors may by chance have as many rows or columns as there are nodes."""

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import add_self_loops, degree, scatter, segment, softmax, to_dense_adj


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))


def incidence(x, ends):
    B = torch.zeros(len(x), len(ends))
    B[ends, torch.arange(len(ends))] = 1.0
    return B


class Edges(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.lin = nn.Linear(3 * f, f)

    def forward(self, source, target, edge_attr, u, batch):
        return self.lin(torch.cat([source, target, edge_attr], 1)).relu()


class Nodes(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.lin = nn.Linear(2 * f, f)

    def forward(self, x, edge_index, edge_attr, u, batch):
        return self.lin(torch.cat([x, torch.zeros_like(x).index_add(0, edge_index[1], edge_attr)], 1)).relu()


def meta_layer(f):
    return pyg.MetaLayer(Edges(f), Nodes(f))


class Net(nn.Module):
    """f features, n of something else (time steps, heads, layers, prototypes)."""

    def __init__(self, run, f, n, **parts):
        super().__init__()
        self.f, self.n, self._run, self.of_edges = f, n, run, False
        self.a, self.b, self.out = pyg.GCNConv(f, f), pyg.SAGEConv(f, f), nn.Linear(f, 3)
        for k, make in parts.items():
            setattr(self, k, make(f, n))

    def forward(self, x, edge_index, edge_attr=None, edge_type=None):
        out = self._run(self, x, edge_index, edge_attr, edge_type)
        self.of_edges = isinstance(out, tuple)
        return out[1] if self.of_edges else out


IDIOMS = {}


def idiom(name, **parts):
    def put(run):
        IDIOMS[name] = (run, parts)
        return run

    return put


# --- rows of edges between layers
@idiom("edge rows between", m=lambda f, n: mlp(2 * f + 3, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    r = s.m(torch.cat([h[e[0]], h[e[1]], a], 1))
    h = h + torch.zeros_like(h).index_add(0, e[1], r)
    return s.out(s.b(h, e))


@idiom("edge rows of sources alone", m=lambda f, n: mlp(f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    r = s.m(h[e[0]])
    return s.out(s.b(h + scatter(r, e[1], 0, len(h), "mean"), e))


@idiom("edge rows, scatter_add")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    m = torch.zeros_like(h).scatter_add(0, e[1].view(-1, 1).expand(-1, s.f), h[e[0]])
    return s.out(s.b(m, e))


@idiom("edge rows, index_put")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(s.b(torch.zeros_like(h).index_put((e[1],), h[e[0]], accumulate=True), e))


@idiom("edge rows, in place")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    m = torch.zeros(len(h), s.f)
    m.index_add_(0, e[1], h.index_select(0, e[0]))
    return s.out(s.b(m + h, e))


@idiom("edge rows to sources")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(s.b(h + torch.zeros_like(h).index_add(0, e[0], h[e[1]]), e))


@idiom("edge rows, reduce max")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    m = scatter(h[e[0]], e[1], 0, len(h), "max")
    return s.out(s.b(m, e))


@idiom("edge rows, scatter_reduce")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    m = torch.zeros_like(h).scatter_reduce(0, e[1].view(-1, 1).expand(-1, s.f), h[e[0]], "mean", include_self=False)
    return s.out(s.b(m + h, e))


@idiom("no layer after edge rows", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(torch.zeros_like(h).index_add(0, e[1], s.m(h)[e[0]]))


@idiom("edge rows before layers", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h = torch.zeros_like(x).index_add(0, e[1], s.m(x)[e[0]]).relu()
    return s.out(s.b(s.a(h, e).relu(), e))


@idiom("gates at edges", m=lambda f, n: nn.Linear(2 * f, 1))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    g = s.m(torch.cat([h[e[0]], h[e[1]]], 1)).sigmoid()
    return s.out(s.b(torch.zeros_like(h).index_add(0, e[1], g * h[e[0]]), e))


@idiom("softmax at edges", m=lambda f, n: nn.Linear(2 * f, 1))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    g = softmax(s.m(torch.cat([h[e[0]], h[e[1]]], 1)).squeeze(-1), e[1], num_nodes=len(h))
    return s.out(s.b(h + scatter(g[:, None] * h[e[0]], e[1], 0, len(h), "sum"), e))


@idiom("learned edge weights", m=lambda f, n: nn.Linear(2 * f, 1))
def _(s, x, e, a, t):
    w = s.m(torch.cat([x[e[0]], x[e[1]]], 1)).sigmoid().squeeze(-1)
    return s.out(s.a(s.a(x, e, w).relu(), e, w))


@idiom("edge embeddings", m=lambda f, n: pyg.GINEConv(mlp(f, f)), k=lambda f, n: nn.Embedding(max(n, 2), f))
def _(s, x, e, a, t):
    return s.out(s.b(s.m(x, e, s.k(t)).relu(), e))


@idiom("embeddings of edges added up", k=lambda f, n: nn.Embedding(max(n, 2), f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(s.b(h + torch.zeros_like(h).index_add(0, e[1], s.k(t)), e))


@idiom(
    "edge states, two rounds",
    m=lambda f, n: nn.ModuleList([mlp(3 * f, f), mlp(3 * f, f)]),
    k=lambda f, n: nn.Linear(3, f),
)
def _(s, x, e, a, t):
    h, r = s.a(x, e).relu(), s.k(a)
    for m in s.m:
        r = r + m(torch.cat([h[e[0]], h[e[1]], r], 1))
        h = s.b(h + torch.zeros_like(h).index_add(0, e[1], r), e).relu()
    return s.out(h)


@idiom("degrees", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    d = degree(e[1], len(x), x.dtype).clamp(min=1)
    h = s.a(x, e).relu()
    w = (d[e[0]] * d[e[1]]).rsqrt()
    return s.out(s.b(h + torch.zeros_like(h).index_add(0, e[1], w[:, None] * s.m(h)[e[0]]), e) / d[:, None])


@idiom("differences at edges", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(s.b(scatter(s.m(h[e[0]] - h[e[1]]).relu(), e[1], 0, len(h), "sum") + h, e))


# --- outputs of edges
@idiom("scores of edges")
def _(s, x, e, a, t):
    h = s.b(s.a(x, e).relu(), e)
    return ("edges", (h[e[0]] * h[e[1]]).sum(-1))


@idiom("classes of edges", m=lambda f, n: nn.Linear(2 * f + 3, 3))
def _(s, x, e, a, t):
    h = s.b(s.a(x, e).relu(), e)
    return ("edges", s.m(torch.cat([h[e[0]], h[e[1]], a], 1)))


@idiom("classes of sources", m=lambda f, n: nn.Linear(f, 3))
def _(s, x, e, a, t):
    h = s.b(s.a(x, e).relu(), e)
    return ("edges", s.m(h[e[0]]))


@idiom("classes of edges, hidden", m=lambda f, n: nn.Sequential(nn.Linear(2 * f, f), nn.ReLU(), nn.Linear(f, 3)))
def _(s, x, e, a, t):
    h = s.b(s.a(x, e).relu(), e)
    return ("edges", s.m(torch.cat([h[e[0]], h[e[1]]], 1)))


# --- another dimension
@idiom("layers stacked first", w=lambda f, n: nn.Parameter(torch.randn(n)))
def _(s, x, e, a, t):
    hs = [s.a(x, e).relu()]
    for _ in range(s.n - 1):
        hs.append(s.b(hs[-1], e).tanh())
    return s.out((torch.stack(hs) * s.w.softmax(0).view(-1, 1, 1)).sum(0))


@idiom("layers stacked second", w=lambda f, n: nn.Linear(f, 1))
def _(s, x, e, a, t):
    hs = [s.a(x, e).relu()]
    for _ in range(s.n - 1):
        hs.append(s.b(hs[-1], e).tanh())
    h = torch.stack(hs, 1)
    return s.out((h * s.w(h).softmax(1)).sum(1))


@idiom("layers stacked last")
def _(s, x, e, a, t):
    hs = [s.a(x, e).relu()]
    for _ in range(s.n - 1):
        hs.append(s.b(hs[-1], e).tanh())
    return s.out(torch.stack(hs, -1).max(-1).values)


@idiom("layers, attention over the first", w=lambda f, n: nn.Linear(f, 1))
def _(s, x, e, a, t):
    hs = [s.a(x, e).relu()]
    for _ in range(s.n - 1):
        hs.append(s.b(hs[-1], e).tanh())
    h = torch.stack(hs)
    return s.out((s.w(h).softmax(0) * h).sum(0))


@idiom("time, GRU", m=lambda f, n: nn.GRU(f, f, batch_first=True))
def _(s, x, e, a, t):
    h = torch.stack([s.a(x * (1 + i), e).tanh() for i in range(s.n)], 1)
    return s.out(s.b(s.m(h)[0][:, -1], e))


@idiom("time first, GRU", m=lambda f, n: nn.GRU(f, f))
def _(s, x, e, a, t):
    h = torch.stack([s.a(x * (1 + i), e).tanh() for i in range(s.n)])
    return s.out(s.b(s.m(h)[0][-1], e))


@idiom("time first, GRU's last state", m=lambda f, n: nn.GRU(f, f))
def _(s, x, e, a, t):
    h = torch.stack([s.a(x * (1 + i), e).tanh() for i in range(s.n)])
    return s.out(s.b(s.m(h)[1][-1], e))


@idiom("time first, LSTM before", m=lambda f, n: nn.LSTM(f, f), k=lambda f, n: nn.Linear(f, n * f))
def _(s, x, e, a, t):
    h = s.k(x).view(len(x), s.n, s.f).transpose(0, 1)
    return s.out(s.b(s.a(s.m(h)[0][-1], e).relu(), e))


@idiom("time, convolution", m=lambda f, n: nn.Conv1d(f, f, 3, padding=1), k=lambda f, n: nn.Linear(f, n * f))
def _(s, x, e, a, t):
    h = s.k(s.a(x, e).relu()).view(-1, s.n, s.f)
    return s.out(s.b(s.m(h.transpose(1, 2)).mean(2), e))


@idiom("graphs of all times", k=lambda f, n: nn.Linear(f, n * f))
def _(s, x, e, a, t):
    h = s.k(x).view(len(x), s.n, s.f).transpose(0, 1)
    return s.out(s.b(s.b(h, e).relu(), e).mean(0))


@idiom("graphs of all times, GCN", k=lambda f, n: nn.Linear(f, n * f))
def _(s, x, e, a, t):
    h = s.k(x).view(len(x), s.n, s.f).transpose(0, 1)
    return s.out(s.a(s.a(h, e).relu(), e).sum(0))


@idiom("heads", m=lambda f, n: pyg.GATConv(f, f, heads=n))
def _(s, x, e, a, t):
    return s.out(s.b(s.m(x, e).view(len(x), s.n, s.f).mean(1).relu(), e))


@idiom("heads first", m=lambda f, n: pyg.GATConv(f, f, heads=n))
def _(s, x, e, a, t):
    return s.out(s.b(s.m(x, e).view(len(x), s.n, s.f).transpose(0, 1).sum(0).relu(), e))


@idiom("heads of one's own", w=lambda f, n: nn.Parameter(torch.randn(n, f, f)))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(s.b((h @ s.w).mean(0).relu(), e))


@idiom("heads of one's own, einsum", w=lambda f, n: nn.Parameter(torch.randn(n, f, f)))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(s.b(torch.einsum("mf,kfo->mko", h, s.w).amax(1), e))


@idiom("TransformerConv heads", m=lambda f, n: pyg.TransformerConv(f, f, heads=n, concat=False))
def _(s, x, e, a, t):
    return s.out(s.b(s.m(x, e).relu(), e))


@idiom("experts", m=lambda f, n: nn.ModuleList([pyg.GCNConv(f, f) for _ in range(n)]), g=lambda f, n: nn.Linear(f, n))
def _(s, x, e, a, t):
    h = torch.stack([m(x, e) for m in s.m])
    g = s.g(x).softmax(1).t()
    return s.out(s.b((g[..., None] * h).sum(0).relu(), e))


@idiom(
    "experts, second",
    m=lambda f, n: nn.ModuleList([pyg.GCNConv(f, f) for _ in range(n)]),
    g=lambda f, n: nn.Linear(f, n),
)
def _(s, x, e, a, t):
    h = torch.stack([m(x, e) for m in s.m], 1)
    g = s.g(x).softmax(1)
    return s.out(s.b(torch.einsum("mk,mkf->mf", g, h).relu(), e))


# --- weights and tables with as many rows as nodes
@idiom("prototypes", w=lambda f, n: nn.Parameter(torch.randn(n, f)))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    p = (h @ s.w.t()).softmax(1) @ s.w
    return s.out(s.b(h + p, e))


@idiom("prototypes, distances", w=lambda f, n: nn.Parameter(torch.randn(n, f)))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    d = (h[:, None] - s.w[None]).square().sum(-1)
    return s.out(s.b(h + (-d).softmax(1) @ s.w, e))


@idiom("prototypes first", w=lambda f, n: nn.Parameter(torch.randn(n, f)))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    p = (s.w @ h.t()).softmax(0)
    return s.out(s.b(h + p.t() @ s.w, e))


@idiom("weights by a product", w=lambda f, n: nn.Parameter(torch.randn(f, f)))
def _(s, x, e, a, t):
    return s.out(s.b((s.a(x, e).relu() @ s.w).relu(), e))


@idiom("weights before the rows", w=lambda f, n: nn.Parameter(torch.randn(f, f)))
def _(s, x, e, a, t):
    return s.out(s.b((s.w @ s.a(x, e).relu().t()).t().relu(), e))


@idiom("a gate of features", w=lambda f, n: nn.Parameter(torch.randn(f)))
def _(s, x, e, a, t):
    return s.out(s.b(s.a(x, e).relu() * s.w.sigmoid() + s.w, e))


@idiom("a bias of its own, square", w=lambda f, n: nn.Parameter(torch.randn(1, f)))
def _(s, x, e, a, t):
    return s.out(s.b(s.a(x, e).relu() + s.w, e))


@idiom("made weights", w=lambda f, n: nn.Parameter(torch.randn(n, f, f)), k=lambda f, n: nn.Parameter(torch.randn(n)))
def _(s, x, e, a, t):
    w = torch.einsum("k,kfo->fo", s.k.softmax(0), s.w)
    return s.out(s.b((s.a(x, e) @ w).relu(), e))


@idiom("turned twice")
def _(s, x, e, a, t):
    return s.out(s.b((s.a(x, e).t() * 2).t().relu(), e))


@idiom("norm of columns' weights", m=lambda f, n: nn.BatchNorm1d(f), k=lambda f, n: nn.LayerNorm(f))
def _(s, x, e, a, t):
    return s.out(s.k(s.b(s.m(s.a(x, e)).relu(), e)))


@idiom("outer products", m=lambda f, n: nn.Linear(f * f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).tanh()
    return s.out(s.b(s.m(torch.einsum("mf,mg->mfg", h, h).flatten(1)), e))


@idiom(
    "features as tokens", m=lambda f, n: nn.Linear(1, f), k=lambda f, n: nn.MultiheadAttention(f, 1, batch_first=True)
)
def _(s, x, e, a, t):
    h = s.m(s.a(x, e).relu().unsqueeze(-1))
    return s.out(s.b(s.k(h, h, h)[0].mean(1), e))


@idiom("tokens first", m=lambda f, n: nn.Linear(f, n * f), k=lambda f, n: nn.MultiheadAttention(f, 1))
def _(s, x, e, a, t):
    h = s.m(s.a(x, e).relu()).view(-1, s.n, s.f).transpose(0, 1)
    return s.out(s.b(s.k(h, h, h)[0].mean(0), e))


@idiom("tokens, scaled attention", m=lambda f, n: nn.Linear(f, n * f))
def _(s, x, e, a, t):
    h = s.m(s.a(x, e).relu()).view(-1, s.n, s.f)
    return s.out(s.b(F.scaled_dot_product_attention(h, h, h).mean(1), e))


@idiom(
    "tokens, transformer",
    m=lambda f, n: nn.Linear(f, n * f),
    k=lambda f, n: nn.TransformerEncoderLayer(f, 1, f, batch_first=True),
)
def _(s, x, e, a, t):
    h = s.m(s.a(x, e).relu()).view(-1, s.n, s.f)
    return s.out(s.b(s.k(h)[:, 0], e))


@idiom(
    "tokens first, transformer", m=lambda f, n: nn.Linear(f, n * f), k=lambda f, n: nn.TransformerEncoderLayer(f, 1, f)
)
def _(s, x, e, a, t):
    h = s.m(s.a(x, e).relu()).view(-1, s.n, s.f).transpose(0, 1)
    return s.out(s.b(s.k(h)[0], e))


@idiom("groups of features", m=lambda f, n: nn.Linear(f, n * f))
def _(s, x, e, a, t):
    h = s.m(s.a(x, e).relu()).view(-1, s.n, s.f)
    return s.out(s.b((h * h.softmax(1)).sum(1), e))


@idiom("bilinear", m=lambda f, n: nn.Bilinear(f, f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).tanh()
    return s.out(s.b(s.m(h, x), e))


@idiom("hops by a dense matrix")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    adj = to_dense_adj(e, max_num_nodes=len(x))[0].to(h)
    return s.out(s.b(adj.t() @ h, e))


@idiom("hops by a sparse matrix")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    adj = torch.sparse_coo_tensor(e.flip(0), torch.ones(e.shape[1]), (len(x), len(x)))
    return s.out(s.b(torch.sparse.mm(adj, h), e))


@idiom(
    "incidence",
)
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    B = incidence(x, e[1])
    return s.out(s.b(h + B @ h[e[0]], e))


@idiom("incidence both ways")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    B, C = incidence(x, e[1]), incidence(x, e[0]).t()
    return s.out(s.b(B @ (C @ h).relu() + h, e))


@idiom("incidence, Linear between", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    B, C = incidence(x, e[1]), incidence(x, e[0]).t()
    return s.out(B @ s.m(C @ h).relu())


# --- layers of one's own
class Own(MessagePassing):
    def __init__(self, f, n, **kw):
        super().__init__(aggr=kw.pop("aggr", "add"), **kw)
        self.m, self.u, self.k = nn.Linear(2 * f, f), nn.Linear(2 * f, f), nn.Linear(3, f)
        self.f, self.n = f, n


class OwnBoth(Own):
    """Returns edges, too."""

    def forward(self, x, e, a):
        r = self.m(torch.cat([x[e[0]], x[e[1]]], 1)) + a
        return self.u(torch.cat([x, self.propagate(e, x=x, r=r)], 1)), r

    def message(self, x_j, r):
        return x_j * r.sigmoid() + r


class OwnBothTurned(OwnBoth):
    def forward(self, x, e, a):
        return OwnBoth.forward(self, x, e, a)[::-1]


class OwnEdgesFirst(Own):
    def forward(self, e, x, a):
        return self.u(torch.cat([x, self.propagate(e, x=x, a=a)], 1))

    def message(self, x_j, a):
        return x_j + a


class OwnAttrFirst(Own):
    def forward(self, a, x, e):
        return self.u(torch.cat([x, self.propagate(e, x=x, a=a)], 1))

    def message(self, x_j, a):
        return x_j + a


class OwnAdded(Own):
    """Adds up by hand."""

    def forward(self, x, e):
        r = self.m(torch.cat([x[e[0]], x[e[1]]], 1)).relu()
        return x + torch.zeros_like(x).index_add(0, e[1], r)


class OwnNorm(Own):
    def forward(self, x, e):
        d = degree(e[1], len(x), x.dtype).clamp(min=1)
        return self.propagate(e, x=x, norm=(1 / d)[e[1]], d=d.view(-1, 1))

    def message(self, x_i, x_j, norm, d_j):
        return norm.view(-1, 1) * self.m(torch.cat([x_i, x_j], 1)) / d_j


class OwnUpdater(Own):
    def forward(self, x, e):
        return self.propagate(e, x=x, r=self.edge_updater(e, x=x))

    def edge_update(self, x_i, x_j):
        return self.m(torch.cat([x_i, x_j], 1)).tanh()

    def message(self, x_j, r):
        return x_j * r


class OwnHeads(Own):
    def __init__(self, f, n):
        super().__init__(f, n, node_dim=0)
        self.w = nn.Linear(f, n * f)

    def forward(self, x, e):
        return self.propagate(e, x=self.w(x).view(len(x), self.n, self.f)).mean(1)

    def message(self, x_i, x_j, index, size_i):
        return softmax((x_i * x_j).sum(-1), index, num_nodes=size_i).unsqueeze(-1) * x_j


class OwnHeadsFirst(Own):
    def __init__(self, f, n):
        super().__init__(f, n, node_dim=1)
        self.w = nn.Parameter(torch.randn(n, f, f))

    def forward(self, x, e):
        return self.propagate(e, x=x @ self.w).mean(0)

    def message(self, x_j):
        return x_j


class OwnTwo(Own):
    """Two propagations."""

    def forward(self, x, e):
        h = self.propagate(e, x=x).relu()
        return self.u(torch.cat([h, self.propagate(e.flip(0), x=h)], 1))

    def message(self, x_j):
        return x_j


class OwnEdgeNode(Own):
    """Nodes to edges to nodes."""

    def forward(self, x, e):
        r = (x[e[0]] + x[e[1]]).relu()
        z = torch.zeros_like(x).index_add(0, e[1], r)
        r = self.m(torch.cat([r, z[e[0]]], 1)).relu()
        return self.u(torch.cat([x, torch.zeros_like(x).index_add(0, e[1], r)], 1))


class OwnFirstGCN(Own):
    def __init__(self, f, n):
        super().__init__(f, n)
        self.g = pyg.GCNConv(f, f)

    def forward(self, x, e):
        h = self.g(x, e).relu()
        return self.u(torch.cat([h, torch.zeros_like(h).index_add(0, e[1], h[e[0]])], 1))


class OwnDict(Own):
    def forward(self, x, e):
        return {"x": self.propagate(e, x=x), "alpha": (x[e[0]] * x[e[1]]).sum(1, keepdim=True)}

    def message(self, x_j, x_i):
        return self.m(torch.cat([x_i, x_j], 1))


def layers_of(name, kind, call):
    idiom(name, p=kind, q=kind)(lambda s, x, e, a, t: call(s, x, e, a, t))


def twice(s, x, e, a, t):
    return s.out(s.q(s.p(x, e).relu(), e))


for kind in (OwnAdded, OwnNorm, OwnUpdater, OwnHeads, OwnHeadsFirst, OwnTwo, OwnEdgeNode, OwnFirstGCN):
    layers_of(kind.__name__, kind, twice)
for ag in ("mean", "max"):
    layers_of("OwnNorm " + ag, lambda f, n, ag=ag: OwnNorm(f, n, aggr=ag), twice)
layers_of("OwnNorm turned", lambda f, n: OwnNorm(f, n, flow="target_to_source"), twice)


def both(s, x, e, a, t):
    r = s.p.k(a)
    h, r = s.p(x, e, r)
    h, r = s.q(h.relu(), e, r)
    return s.out(h + torch.zeros_like(h).index_add(0, e[1], r))


layers_of("OwnBoth", OwnBoth, both)


def both1(s, x, e, a, t):
    r = s.p.k(a)
    h, r = s.p(x, e, r)
    h, _ = s.q(h.relu(), e, r.relu())
    return s.out(h)


layers_of("OwnBoth, nodes", OwnBoth, both1)


def both_edges(s, x, e, a, t):
    r = s.p.k(a)
    h, r = s.p(x, e, r)
    h, r = s.q(h.relu(), e, r)
    return ("edges", s.out(r))


layers_of("OwnBoth, edges", OwnBoth, both_edges)


def both2(s, x, e, a, t):
    r = s.p.k(a)
    r, h = s.p(x, e, r)
    r, h = s.q(h.relu(), e, r)
    return s.out(h)


layers_of("OwnBothTurned", OwnBothTurned, both2)
layers_of("OwnEdgesFirst", OwnEdgesFirst, lambda s, x, e, a, t: s.out(s.q(e, s.p(e, x, s.p.k(a)).relu(), s.q.k(a))))
layers_of("OwnAttrFirst", OwnAttrFirst, lambda s, x, e, a, t: s.out(s.q(s.q.k(a), s.p(s.p.k(a), x, e).relu(), e)))


def edges_of_nodes(s, x, e, a, t):
    h = s.a(x, e).relu()
    r = (h[e[0]] + h[e[1]]).relu()
    return s.out(s.q(r, s.p(r, h, e), e))


layers_of("OwnAttrFirst, of nodes", OwnAttrFirst, edges_of_nodes)


def edge_first(s, x, e, a, t):
    h = s.a(x, e).relu()
    r = (h[e[0]] + h[e[1]]).relu()
    return s.out(s.q(e, s.p(e, h, r), r))


layers_of("OwnEdgesFirst, of nodes", OwnEdgesFirst, edge_first)
layers_of("OwnDict", OwnDict, lambda s, x, e, a, t: s.out(s.q(s.p(x, e)["x"].relu(), e)["x"]))


# PyG with edge rows made of nodes
@idiom("GINE of made edges", m=lambda f, n: pyg.GINEConv(mlp(f, f)), k=lambda f, n: nn.Linear(2 * f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    return s.out(s.m(h, e, s.k(torch.cat([h[e[0]], h[e[1]]], 1))))


@idiom("GAT of edge attributes", m=lambda f, n: pyg.GATConv(f, f, edge_dim=3, add_self_loops=False))
def _(s, x, e, a, t):
    return s.out(s.m(s.m(x, e, a).relu(), e, a))


@idiom("GAT, self-loops, edge attributes", m=lambda f, n: pyg.GATConv(f, f, edge_dim=3))
def _(s, x, e, a, t):
    return s.out(s.m(s.m(x, e, a).relu(), e, a))


@idiom("GAT, its attention used", m=lambda f, n: pyg.GATConv(f, f, add_self_loops=False))
def _(s, x, e, a, t):
    h, (_, w) = s.m(x, e, return_attention_weights=True)
    return s.out(s.b(torch.zeros_like(h).index_add(0, e[1], w * h[e[0]]) + h, e))


@idiom("NNConv", m=lambda f, n: pyg.NNConv(f, f, nn.Linear(3, f * f)))
def _(s, x, e, a, t):
    return s.out(s.b(s.m(x, e, a).relu(), e))


@idiom("pairs given", m=lambda f, n: pyg.SAGEConv((f, f), f))
def _(s, x, e, a, t):
    return s.out(s.m((s.a(x, e).relu(), x), e))


@idiom("GraphConv weights", m=lambda f, n: pyg.GraphConv(f, f))
def _(s, x, e, a, t):
    return s.out(s.m(s.m(x, e, a[:, 0]).relu(), e, a[:, 1]))


@idiom("RGCN", m=lambda f, n: pyg.RGCNConv(f, f, max(2, n)))
def _(s, x, e, a, t):
    return s.out(s.m(s.m(x, e, t).relu(), e, t))


# --- plain torch layers
class P(nn.Module):
    def __init__(self, f, n):
        super().__init__()
        self.m, self.u, self.w, self.k = nn.Linear(2 * f, f), nn.Linear(2 * f, f), nn.Linear(f, f), nn.Linear(3, f)


class PAdd(P):
    def forward(self, h, e):
        return self.u(
            torch.cat([h, torch.zeros_like(h).index_add(0, e[1], self.m(torch.cat([h[e[0]], h[e[1]]], 1)).relu())], 1)
        )


class PGCN(P):
    def forward(self, h, e):
        return torch.zeros_like(h).index_add(0, e[1], self.w(h)[e[0]]) + h


class PEnds(P):
    def forward(self, h, src, dst):
        return self.w(h) + torch.zeros_like(h).index_add(0, dst, h[src])


class PEdges(P):
    def forward(self, h, e, r):
        r = self.m(torch.cat([h[e[0]] + h[e[1]], r], 1)).relu()
        return self.u(torch.cat([h, torch.zeros_like(h).index_add(0, e[1], r)], 1)), r


class PAdj(P):
    def forward(self, h, adj):
        return adj @ self.w(h)


class PAdjFirst(P):
    def forward(self, adj, h):
        return adj @ self.w(h)


class PAttn(P):
    def forward(self, h, e):
        sc = self.w(h)
        g = softmax((sc[e[0]] * h[e[1]]).sum(1), e[1], num_nodes=len(h))
        return h + torch.zeros_like(h).index_add(0, e[1], g[:, None] * h[e[0]])


def plain(kind, call=twice):
    IDIOMS["plain " + kind.__name__] = (
        lambda s, x, e, a, t: call(s, x, e, a, t),
        {"p": kind, "q": kind, "a": lambda f, n: None, "b": lambda f, n: None},
    )


plain(PAdd)
plain(PGCN)
plain(PAttn)
plain(PEnds, lambda s, x, e, a, t: s.out(s.q(s.p(x, e[0], e[1]).relu(), e[0], e[1])))


def pe(s, x, e, a, t):
    h, r = s.p(x, e, s.p.k(a))
    h, r = s.q(h.relu(), e, r)
    return s.out(h)


plain(PEdges, pe)


def dense(e, x):
    return to_dense_adj(e, max_num_nodes=len(x))[0].to(x).t() + torch.eye(len(x))


plain(PAdj, lambda s, x, e, a, t: (lambda A: s.out(s.q(s.p(x, A).relu(), A)))(dense(e, x)))
plain(PAdjFirst, lambda s, x, e, a, t: (lambda A: s.out(s.q(A, s.p(A, x).relu())))(dense(e, x)))


@idiom("MetaLayer", w=lambda f, n: nn.Linear(3, f), p=lambda f, n: meta_layer(f), q=lambda f, n: meta_layer(f))
def _(s, x, e, a, t):
    h, r, _ = s.p(x, e, s.w(a))
    h, r, _ = s.q(h, e, r)
    return s.out(h)


class OwnBothSources(Own):
    """Returns edges made of their sources alone."""

    def forward(self, x, e, a):
        r = self.m(torch.cat([x, x], 1))[e[0]]
        return self.u(torch.cat([x, self.propagate(e, x=x, r=r)], 1)), r

    def message(self, x_j, r):
        return x_j * r.sigmoid() + r


class OwnBothTargets(OwnBothSources):
    def forward(self, x, e, a):
        r = self.m(torch.cat([x, x], 1))[e[1]]
        return self.u(torch.cat([x, self.propagate(e, x=x, r=r)], 1)), r


for kind in (OwnBothSources, OwnBothTargets):
    layers_of(kind.__name__, kind, both)
    layers_of(kind.__name__ + ", nodes", kind, both1)
    layers_of(kind.__name__ + ", edges", kind, both_edges)


class OwnVectors(Own):
    """EGNN: features and places."""

    def forward(self, h, pos, e):
        d = pos[e[0]] - pos[e[1]]
        m = self.m(torch.cat([h[e[0]], h[e[1]]], 1)) * d.square().sum(1, keepdim=True)
        pos = pos + torch.zeros_like(pos).index_add(0, e[1], d * m.mean(1, keepdim=True).tanh())
        return h + torch.zeros_like(h).index_add(0, e[1], m).relu(), pos


layers_of(
    "OwnVectors",
    OwnVectors,
    lambda s, x, e, a, t: (lambda hp: s.out((lambda o: o[0] + o[1])(s.q(hp[0], hp[1], e))))(
        s.p(x, s.a(x, e).tanh(), e)
    ),
)


@idiom("segments")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    o = e[1].argsort(stable=True)
    m = torch.segment_reduce(h[e[0][o]], "sum", lengths=torch.bincount(e[1], minlength=len(h)), axis=0)
    return s.out(s.b(m, e))


@idiom("segments by pointers")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    o = e[1].argsort(stable=True)
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(e[1], minlength=len(h)).cumsum(0)])
    return s.out(s.b(segment(h[e[0][o]], ptr, "sum"), e))


@idiom("loops added by hand", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    loops, _ = add_self_loops(e, num_nodes=len(x))
    return s.out(s.b(torch.zeros_like(h).index_add(0, loops[1], s.m(h)[loops[0]]), e))


@idiom("loops added by hand, pairs", m=lambda f, n: mlp(2 * f, f))
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    loops, _ = add_self_loops(e, num_nodes=len(x))
    return s.out(s.b(torch.zeros_like(h).index_add(0, loops[1], s.m(torch.cat([h[loops[0]], h[loops[1]]], 1))), e))


class POne(P):
    def forward(self, h, e):
        r = self.m(torch.cat([h[e[0]], h[e[1]]], 1)).relu()
        return self.w(h) + scatter(r, e[1], 0, len(h), "mean")


plain(POne)


# --- loops over edges and nodes
@idiom("a loop that adds", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h, sums = s.m(s.a(x, e).relu()), torch.zeros(len(x), s.f)
    for u, v in e.t().tolist():
        sums[v] = sums[v] + h[u]
    return s.out(s.b(h + sums, e))


@idiom("a loop that adds in place", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h, sums = s.m(s.a(x, e).relu()), torch.zeros(len(x), s.f)
    for u, v in e.t():
        sums[v] += h[u]
    return s.out(s.b(sums, e))


@idiom("a loop that adds to the rows themselves")
def _(s, x, e, a, t):
    h = s.a(x, e).relu()
    sums = h.clone()
    for u, v in e.t().tolist():
        sums[v] = 0.5 * h[u] + sums[v]
    return s.out(s.b(sums, e))


@idiom("a loop that keeps the largest", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h, most = s.m(s.a(x, e).relu()), torch.zeros(len(x), s.f)
    for u, v in e.t().tolist():
        most[v] = torch.maximum(most[v], h[u])
    return s.out(s.b(h + most, e))


@idiom("a loop over edges' own rows", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h, sums = s.a(x, e).relu(), torch.zeros(len(x), s.f)
    sent = s.m(h[e[0]])
    for i, v in enumerate(e[1].tolist()):
        sums[v] = sums[v] + sent[i]
    return s.out(s.b(h + sums, e))


@idiom("a loop over neighbours", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h = s.m(s.a(x, e).relu())
    rows = torch.zeros(len(x), s.f)
    for v in range(len(x)):
        rows[v] = h[e[0, e[1] == v]].sum(0)
    return s.out(s.b(h + rows, e))


@idiom("sums by scatter", m=lambda f, n: nn.Linear(f, f))
def _(s, x, e, a, t):
    h, to = s.m(s.a(x, e).relu()), e[1][:, None].expand(-1, s.f)
    return s.out(s.b(torch.zeros_like(h).scatter(0, to, h[e[0]], reduce="add"), e))


# --- hyperedges
def members(x, e):
    """Every node's neighbours, and itself: a hyperedge."""
    return add_self_loops(e, num_nodes=len(x))[0]


@idiom(
    "hyperedges that begin with zeros", m=lambda f, n: pyg.SAGEConv((f, f), f), k=lambda f, n: pyg.SAGEConv((f, f), f)
)
def _(s, x, e, a, t):
    h, among = s.a(x, e).relu(), members(x, e)
    z = s.m((h, torch.zeros(len(x), s.f)), among).relu()
    return s.out(s.k((z, h), among.flip(0)))


@idiom(
    "hyperedges with nothing of their own",
    m=lambda f, n: pyg.SAGEConv((f, f), f, root_weight=False),
    k=lambda f, n: pyg.GATConv((f, f), f, add_self_loops=False),
)
def _(s, x, e, a, t):
    h, among, M = s.a(x, e).relu(), members(x, e), len(x)
    z = s.m((h, None), among, size=(M, M)).relu()
    return s.out(s.k((z, h), among.flip(0)))
