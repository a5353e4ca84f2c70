"""A layer gives the same relevance however its products, gathers and sums are written."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv, MessagePassing
from torch_geometric.utils import scatter, segment, spmm

import walkwise as ww
from walkwise.errors import TraceError
from walkwise.rules import Gamma

M = 5
EDGES = torch.tensor([[1, 4, 2, 0, 2, 1, 3, 0, 2, 4, 3, 0], [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]])
SOURCE, TARGET = EDGES
STARTS = torch.tensor([0, 3, 5, 8, 10, 12])  # where the edges to each node begin
EDGE_WEIGHT = torch.linspace(-1.3, 2.1, 12, dtype=torch.float64).sin()  # of both signs
RULES = ["zero", "auto", "alphabeta", Gamma(2.0)]
SETS = [[0], [1, 2], [0, 2, 3], [0, 1, 2, 3, 4]]


def picking(x):
    """The matrix that picks every edge's source.  # (E, M)"""
    return F.one_hot(SOURCE, M).to(x)


def adding(x):
    """The matrix that adds up messages at their targets, with signs.  # (M, E)"""
    return F.one_hot(TARGET, M).to(x).t()


def weighing(x):
    """The matrix of a whole signed aggregation.  # (M, M)"""
    return torch.zeros(M, M).to(x).index_put((TARGET, SOURCE), EDGE_WEIGHT.to(x), accumulate=True)


WEIGHTS = {
    "x @ W": lambda W, x: x @ W,
    "mm": lambda W, x: torch.mm(x, mat2=W),
    "matmul by name": lambda W, x: torch.matmul(x, other=W),
    "linear": lambda W, x: F.linear(x, W.t()),
    "linear by name": lambda W, x: F.linear(x, weight=W.t(), bias=None),
    "linear out of order": lambda W, x: F.linear(weight=W.t(), input=x),
    "einsum": lambda W, x: torch.einsum("nf,fg->ng", x, W),
    "einsum, weight first": lambda W, x: torch.einsum("fg,nf->ng", W, x),
    "einsum with dots": lambda W, x: torch.einsum("...f,fg->...g", x, W),
    "einsum of a list": lambda W, x: torch.einsum("af,fb", [x, W]),
    "addmm": lambda W, x: torch.addmm(x.new_zeros(4), x, W),
    "addmm by name": lambda W, x: torch.addmm(input=x.new_zeros(4), mat1=x, mat2=W),
    "bmm": lambda W, x: torch.bmm(x[None], W[None])[0],
    "bmm by row": lambda W, x: torch.bmm(x[:, None], W.expand(len(x), 4, 4))[:, 0],
    "matmul by row": lambda W, x: (x[:, None] @ W)[:, 0],
    "columns": lambda W, x: (W.t() @ x[:, :, None])[:, :, 0],
    "turned over": lambda W, x: (W.t() @ x.t()).t(),
    "tensordot": lambda W, x: torch.tensordot(x, W.t(), dims=([1], [1])),
    "inner": lambda W, x: torch.inner(x, W.t()),
    "convolution": lambda W, x: F.conv1d(x[:, :, None], W.t()[:, :, None])[:, :, 0],
    "baddbmm": lambda W, x: torch.baddbmm(x.new_zeros(1, 1, 4), x[None], W[None])[0],
    "mv": lambda W, x: torch.stack([torch.mv(x, W[:, k]) for k in range(4)], 1),
    "product and sum": lambda W, x: (x[:, :, None] * W).sum(1),
    "product and sum, turned over": lambda W, x: (W.t() * x[:, None]).sum(dim=-1),
    "vecdot": lambda W, x: torch.linalg.vecdot(x[:, None], W.t()[None]),
    "bilinear": lambda W, x: F.bilinear(x, x.new_ones(len(x), 1), W.t()[:, :, None]),
}
EDGE_WEIGHTS = {
    "w * x": lambda w, x: w.view(-1, 1) * x,
    "by name": lambda w, x: torch.mul(input=x, other=w[:, None]),
    "einsum": lambda w, x: torch.einsum("e,ef->ef", w, x),
    "einsum, weight last": lambda w, x: torch.einsum("ef,e->ef", x, w),
    "einsum with dots": lambda w, x: torch.einsum("e...,e->e...", x, w),
    "einsum by number": lambda w, x: torch.einsum(w, [0], x, [0, 1], [0, 1]),
    "einsum, turned over": lambda w, x: torch.einsum("e,ef->fe", w, x).t(),
    "einsum by head": lambda w, x: torch.einsum("eh,ehf->ehf", w[:, None].expand(-1, 2), x.view(-1, 2, 2)).flatten(1),
    "einsum by column": lambda w, x: torch.stack([torch.einsum("e,e->e", w, x[:, k]) for k in range(4)], 1),
    "turned over": lambda w, x: (w * x.t()).t(),
    "diagonal": lambda w, x: torch.diag(w) @ x,
    "einsum with a diagonal": lambda w, x: torch.einsum("ab,bf->af", torch.diag(w), x),
    "sparse diagonal": lambda w, x: torch.sparse.mm(torch.diag(w).to_sparse(), x),
    "bmm": lambda w, x: torch.bmm(w.view(-1, 1, 1), x[:, None])[:, 0],
    "bmm, weight last": lambda w, x: torch.bmm(x[:, :, None], w.view(-1, 1, 1))[:, :, 0],
    "matmul": lambda w, x: torch.matmul(w.view(-1, 1, 1), x[:, None])[:, 0],
    "matmul, weight last": lambda w, x: torch.matmul(x[:, :, None], w.view(-1, 1, 1))[:, :, 0],
    "addcmul": lambda w, x: torch.addcmul(torch.zeros_like(x), x, w[:, None]),
    "lerp": lambda w, x: torch.lerp(torch.zeros_like(x), x, w[:, None]),
    "kron": lambda w, x: torch.cat([torch.kron(x[i : i + 1], w[i : i + 1, None]) for i in range(len(x))]),
}
GATHERS = {
    "x[i]": lambda x: x[SOURCE],
    "x[i, :]": lambda x: x[SOURCE, :],
    "index_select": lambda x: torch.index_select(x, dim=0, index=SOURCE),
    "gather": lambda x: x.gather(0, SOURCE[:, None].expand(-1, 4)),
    "take_along_dim": lambda x: torch.take_along_dim(x, SOURCE[:, None], 0),
    "take": lambda x: torch.take(x, SOURCE[:, None] * 4 + torch.arange(4)),
    "embedding": lambda x: F.embedding(SOURCE, x),
    "torch.embedding": lambda x: torch.embedding(x, SOURCE),
    "matrix": lambda x: picking(x) @ x,
    "einsum": lambda x: torch.einsum("en,nf->ef", picking(x), x),
    "bmm": lambda x: torch.bmm(picking(x)[None], x[None])[0],
    "addmm": lambda x: torch.addmm(x.new_zeros(1), picking(x), x),
    "tensordot": lambda x: torch.tensordot(picking(x), x, 1),
    "linear, turned over": lambda x: F.linear(x.t(), picking(x)).t(),
    "sparse": lambda x: torch.sparse.mm(picking(x).to_sparse(), x),
    "compressed": lambda x: picking(x).to_sparse_csr() @ x,
    "one by one": lambda x: torch.stack([x[i] for i in SOURCE.tolist()]),
}
SUMS = {
    "index_add": lambda m: m.new_zeros(M, 4).index_add(0, TARGET, m),
    "index_add in place": lambda m: m.new_zeros(M, 4).index_add_(0, TARGET, m),
    "index_add by name": lambda m: torch.index_add(m.new_zeros(M, 4), dim=0, index=TARGET, source=m),
    "scatter_add": lambda m: m.new_zeros(M, 4).scatter_add(0, TARGET[:, None].expand_as(m), m),
    "scatter": lambda m: m.new_zeros(M, 4).scatter(0, TARGET[:, None].expand_as(m), m, reduce="add"),
    "scatter_reduce": lambda m: m.new_zeros(M, 4).scatter_reduce(0, TARGET[:, None].expand_as(m), m, "sum"),
    "index_put": lambda m: m.new_zeros(M, 4).index_put((TARGET,), m, accumulate=True),
    "PyG's scatter": lambda m: scatter(m, TARGET, 0, M),
    "PyG's segment": lambda m: segment(m, STARTS),
    "segment_reduce": lambda m: torch.segment_reduce(m, "sum", lengths=STARTS.diff()),
    "matrix": lambda m: adding(m) @ m,
    "einsum": lambda m: torch.einsum("ef,ne->nf", m, adding(m)),
    "bmm": lambda m: torch.bmm(adding(m)[None], m[None])[0],
    "addmm": lambda m: torch.addmm(m.new_zeros(1), adding(m), m),
    "linear, turned over": lambda m: F.linear(m.t(), adding(m)).t(),
    "matmul, turned over": lambda m: (m.t() @ adding(m).t()).t(),
    "sparse": lambda m: torch.sparse.mm(adding(m).to_sparse(), m),
    "sparse.addmm": lambda m: torch.sparse.addmm(m.new_zeros(M, 4), adding(m).to_sparse(), m),
    "PyG's spmm": lambda m: spmm(adding(m).to_sparse_csr(), m),
    "embedding_bag": lambda m: F.embedding_bag(torch.arange(12), m, STARTS[:-1], mode="sum"),
    "parts": lambda m: torch.stack([part.sum(0) for part in m.split(STARTS.diff().tolist())]),
}
WHOLE = {
    "edges": lambda x: SUMS["index_add"](EDGE_WEIGHTS["w * x"](EDGE_WEIGHT, GATHERS["x[i]"](x))),
    "matrix": lambda x: weighing(x) @ x,
    "einsum": lambda x: torch.einsum("nm,mf->nf", weighing(x), x),
    "sparse": lambda x: torch.sparse.mm(weighing(x).to_sparse(), x),
    "compressed": lambda x: weighing(x).to_sparse_csr() @ x,
    "turned over": lambda x: (x.t() @ weighing(x).t()).t(),
}


class Layer(MessagePassing):
    def __init__(self, weight, aggregate):
        super().__init__()
        self.W, self.b = nn.Parameter(torch.empty(4, 4)), nn.Parameter(torch.empty(4))
        self.weight, self.sums = weight, aggregate

    def forward(self, x, edge_index):
        return self.sums(self.weight(self.W, x)) + self.b


class Model(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.second, self.head = GCNConv(4, 4), layer, nn.Linear(4, 2)

    def forward(self, x, edge_index):
        return self.head(self.second(self.first(x, edge_index).relu(), edge_index).tanh()).sum(0, keepdim=True)


def answers(weight, aggregate, rule, frozen=False):
    """What a model of the layer says: of subgraphs, and of all features."""
    model = Model(Layer(weight, aggregate)).double().eval().requires_grad_(not frozen)
    numbers = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.7, generator=numbers)
    x = torch.randn(M, 4, generator=numbers, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule=rule)
    parts = [ww.subgraph_relevance(chain, SETS, alpha=alpha) for alpha in (0.0, 0.4)]
    return torch.cat([*parts, ww.feature_relevance(chain).flatten()])


def layers():
    """Every spelling, in a layer that is otherwise written in the plainest way."""
    weight, factor, gather, total = (next(iter(t.values())) for t in (WEIGHTS, EDGE_WEIGHTS, GATHERS, SUMS))
    for name, way in WEIGHTS.items():
        yield f"weight: {name}", way, WHOLE["edges"]
    for name, way in EDGE_WEIGHTS.items():
        yield f"edge weights: {name}", weight, lambda x, way=way: total(way(EDGE_WEIGHT, gather(x)))
    for name, way in GATHERS.items():
        yield f"gather: {name}", weight, lambda x, way=way: total(factor(EDGE_WEIGHT, way(x)))
    for name, way in SUMS.items():
        yield f"sum: {name}", weight, lambda x, way=way: way(factor(EDGE_WEIGHT, gather(x)))
    for name, way in WHOLE.items():
        yield f"all: {name}", weight, way


LAYERS = {name: parts for name, *parts in layers()}
PLAIN = LAYERS["weight: x @ W"]


@functools.cache
def plain(rule):
    return answers(*PLAIN, rule)


@pytest.mark.filterwarnings("error::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_every_spelling_of_a_layer_gives_the_same_relevance(name):
    for rule in RULES:
        torch.testing.assert_close(answers(*LAYERS[name], rule), plain(rule), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("weight")])
def test_a_weight_stays_a_weight_when_it_is_frozen(name):
    torch.testing.assert_close(answers(*LAYERS[name], "auto", frozen=True), plain("auto"), rtol=1e-8, atol=1e-10)


def test_rules_tell_the_layers_weights_from_its_edge_weights():
    """Otherwise the tests above would not see which of them is lifted."""
    zero, *others = map(plain, RULES)
    assert all(not torch.allclose(zero, other, rtol=1e-2) for other in others)


#: Ways in which a weight and its bias are not one map: what comes of it is put together, or multiplied, before.
APART = {"mv", "bilinear"}


class Between(nn.Module):
    """A linear map between two layers."""

    def __init__(self, write):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second, self.write = GCNConv(4, 4), GCNConv(4, 2), write
        self.weight, self.bias = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))

    def forward(self, x, edge_index):
        h = self.write(self.weight, self.first(x, edge_index).tanh()) + self.bias
        return self.second(h.relu(), edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name not in APART])
def test_a_weight_and_its_bias_between_layers_are_one_map(name):
    x = torch.randn(M, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    models = [Between(WEIGHTS[way]).double() for way in ("linear", name)]
    for rule in RULES:
        plain, written = (ww.trace(model, x, EDGES, target=1, rule=rule) for model in models)
        torch.testing.assert_close(*(ww.subgraph_relevance(chain, SETS) for chain in (plain, written)))


BEGUN = 0.3
COUNTS = STARTS.diff().double()[:, None]
MEANS = {
    "by hand": lambda m: (SUMS["index_add"](m) + BEGUN) / COUNTS,
    "lengths": lambda m: torch.segment_reduce(m, "mean", lengths=STARTS.diff(), initial=BEGUN),
    "offsets": lambda m: torch.segment_reduce(m, "mean", offsets=STARTS, initial=BEGUN),
    "summed": lambda m: torch.segment_reduce(m, "sum", offsets=STARTS, initial=BEGUN) / COUNTS,
}


@pytest.mark.parametrize("name", MEANS)
def test_means_of_segments_that_begin_with_a_number(name):
    for rule in RULES:
        found, expected = (
            answers(PLAIN[0], lambda x, way=way: MEANS[way](x[SOURCE]), rule) for way in (name, "by hand")
        )
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_products_in_scatter_are_refused():
    def multiplied(m):
        return torch.ones(M, 4).to(m).scatter(0, TARGET[:, None].expand_as(m), m, reduce="multiply")

    with pytest.raises(TraceError, match="no derivative"):
        answers(PLAIN[0], lambda x: multiplied(x[SOURCE]), "zero")


def test_running_sums_are_noted_where_signs_are_told_apart():
    def running(m):
        total = torch.cat([m.new_zeros(1, 4), m.cumsum(0)])
        return total[STARTS[1:]] - total[STARTS[:-1]]

    aggregate = lambda x: running(x[SOURCE])  # noqa: E731
    exact = answers(PLAIN[0], aggregate, "zero"), answers(PLAIN[0], lambda x: SUMS["index_add"](x[SOURCE]), "zero")
    torch.testing.assert_close(*exact, rtol=1e-8, atol=1e-10)
    model = Model(Layer(PLAIN[0], aggregate)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(M, 4, dtype=torch.float64)
    assert any("cumsum" in note for note in ww.trace(model, x, EDGES, rule="auto", target=0).notes)
    assert not any("cumsum" in note for note in ww.trace(model, x, EDGES, rule="zero", target=0).notes)


def test_a_number_that_is_scattered_is_refused_in_words():
    def aggregate(m):
        index = TARGET[:, None].expand_as(m)
        return m.new_zeros(M, 4).scatter_add(0, index, m).scatter(0, index, 1.0, reduce="add")

    with pytest.raises(TraceError, match=r"of a number has no derivative in torch.*scatter_add\(dim, index, tensor\)"):
        answers(PLAIN[0], lambda x: aggregate(x[SOURCE]), "zero")
