"""Models that do odd things: each is exact, refused for what it does, or noted."""

import copy
import re
import threading
import types
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Data

import walkwise as ww
from walkwise.errors import CoverageWarning, TraceError

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0, 1], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 0, 5, 4]])
PERM = torch.tensor([3, 0, 5, 1, 4, 2])
PLACE = PERM.argsort()
EVEN = (torch.arange(M) % 2 == 0)[:, None]
MATRIX = torch.zeros(M, M, dtype=torch.float64).index_put((EDGES[1], EDGES[0]), torch.ones(13, dtype=torch.float64))


class Net(nn.Module):
    """Two layers; what happens between, or instead of, is given."""

    def __init__(self, run=None, **held):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = pyg.GCNConv(4, 4), pyg.GraphConv(4, 4)
        self.lin, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.gru = nn.GRU(4, 4, batch_first=True)
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.uniform_(parameter, 0.05, 0.3)
        self.run = run
        for name, value in held.items():
            setattr(self, name, value)
        self.double().eval()

    def first(self, x, e):
        return self.a(x, e).relu()

    def last(self, h, e):
        return self.head(self.b(h, e).relu()).sum(0, keepdim=True)

    def forward(self, x, e):
        return self.last(self.first(x, e), e) if self.run is None else self.run(self, x, e)


def between(change):
    """A model with something between its layers."""
    return lambda: Net(lambda m, x, e: m.last(change(m, m.first(x, e)), e))


def before(change):
    """A model with something before its layers."""
    return lambda: Net(lambda m, x, e: m.last(m.first(change(m, x), e), e))


def features():
    return torch.randn(M, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def traced(model):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chain = ww.trace(model, features(), EDGES, target=0, rule="zero")
    return chain, [str(w.message) for w in caught if issubclass(w.category, CoverageWarning)]


def gradient_times_input(model):
    leaf = features().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(leaf * 1.0, EDGES)[0, 0], leaf)
    return gradient * features()


def check_exact(make):
    chain, _ = traced(make())
    expected = gradient_times_input(make())
    torch.testing.assert_close(ww.feature_relevance(chain), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ww.node_relevance(chain, layer="start"), expected.sum(1), rtol=1e-9, atol=1e-12)
    walks = ww.walk_relevance(chain, ww.enumerate_walks(chain)).sum()
    torch.testing.assert_close(walks, expected.sum(), rtol=1e-9, atol=1e-12)
    return chain


def cached(m, x, e):
    if "rows" not in m.cache:
        m.cache["rows"] = m.first(x, e)
    return m.last(m.cache["rows"], e)


def buffered(m, h):
    m.rows[:M] = h
    return m.rows[:M]


def written(h, rows, value):
    h[rows] = value
    return h


def hooked(register, hook):
    def make():
        model = Net()
        register(model)(hook)
        return model

    return make


def patched():
    model = Net()
    model.forward = lambda x, e: model.last(model.first(2 * x, e), e)
    return model


def patched_layer():
    model = Net()
    model.a.forward = types.MethodType(lambda self, x, e: 2 * pyg.GCNConv.forward(self, x, e), model.a)
    return model


def compiled_layer():
    model = Net()
    model.a = torch.compile(model.a, backend="eager")
    return model


EXACT = {
    "reordered and back": lambda: Net(
        lambda m, x, e: m.head(m.b(m.first(x, e)[PERM], PLACE[e]).relu()[PLACE]).sum(0)[None]
    ),
    "rows taken apart": between(lambda m, h: torch.stack([list(h.unbind(0))[i] for i in range(M)])),
    "columns sorted in each row": between(lambda m, h: h.sort(1).values),
    "x exchanged in place": before(lambda m, x: written(x, [0, 1], x[[1, 0]])),
    "rows dropped and put back": between(lambda m, h: torch.zeros_like(h).index_put((PERM[:4],), h[PERM[:4]])),
    "kept in a dictionary": lambda: Net(cached, cache={}),
    "kept in a list": lambda: Net(lambda m, x, e: m.kept.append(m.first(x, e)) or m.last(m.kept[-1], e), kept=[]),
    "written into a buffer": lambda: Net(
        lambda m, x, e: m.last(buffered(m, m.first(x, e)), e), rows=nn.Buffer(torch.zeros(8, 4))
    ),
    "one layer twice": lambda: Net(lambda m, x, e: m.head(m.first(m.first(x, e), e)).sum(0, keepdim=True)),
    "functional call": lambda: Net(
        lambda m, x, e: m.last(torch.func.functional_call(m.a, dict(m.a.named_parameters()), (x, e)).relu(), e)
    ),
    "checkpoint": lambda: Net(lambda m, x, e: m.last(checkpoint(lambda v: m.first(v, e), x, use_reentrant=False), e)),
    "hook that doubles": hooked(lambda m: m.a.register_forward_hook, lambda m, given, made: 2 * made),
    "hook that reorders": hooked(lambda m: m.b.register_forward_pre_hook, lambda m, i: (i[0][PERM], PLACE[i[1]])),
    "hook on messages": hooked(lambda m: m.a.register_message_forward_hook, lambda m, given, made: 2 * made),
    "hook that turns edges round": hooked(
        lambda m: m.b.register_propagate_forward_pre_hook, lambda m, i: (i[0].flip(0), *i[1:])
    ),
    "forward exchanged": patched,
    "forward of a layer exchanged": patched_layer,
    "compiled layer": compiled_layer,
    "DataParallel": lambda: nn.DataParallel(Net()),
    "average of models": lambda: torch.optim.swa_utils.AveragedModel(Net()),
    "frozen": lambda: Net().requires_grad_(False),
    "gate that is detached": between(lambda m, h: h * m.lin(h).sigmoid().detach()),
    "random numbers": between(lambda m, h: F.dropout(h, 0.0, training=True)),
    "matrix of the features' own": between(lambda m, h: h @ (h.t() @ h).detach()),
    "a virtual node, first": lambda: Net(virtual),
}


def virtual(m, x, e):
    hub = torch.stack([torch.zeros(M, dtype=torch.long), torch.arange(M) + 1])
    e = torch.cat([e + 1, hub, hub.flip(0)], 1)
    return m.head(m.b(m.first(torch.cat([torch.ones(1, 4), x]), e), e)[1:].relu()).sum(0, keepdim=True)


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    check_exact(EXACT[name])


#: What adds up nodes between two layers, where walks do not stand; the answers are exact all the same.
OUTSIDE = {
    "matmul": lambda m, h: MATRIX @ h,
    "bmm": lambda m, h: torch.bmm(MATRIX[None], h[None])[0],
    "einsum": lambda m, h: torch.einsum("ij,jf->if", MATRIX, h),
    "tensordot": lambda m, h: torch.tensordot(MATRIX, h, 1),
    "sum": lambda m, h: h + h.sum(0),
    "sum of products": lambda m, h: (MATRIX[:, :, None] * h[None]).sum(1),
    "sparse_mm": lambda m, h: torch.sparse.mm(MATRIX.to_sparse(), h),
    "index_add": lambda m, h: torch.zeros_like(h).index_add(0, EDGES[1], h[EDGES[0]]),
    "index_put": lambda m, h: torch.zeros_like(h).index_put((EDGES[1],), h[EDGES[0]], accumulate=True),
    "cumsum": lambda m, h: h.cumsum(0),
    "max": lambda m, h: h + h.max(0).values,
    "add": lambda m, h: h + h[PERM],
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_rows_added_up_between_layers_are_noted(name):
    chain = check_exact(between(OUTSIDE[name]))
    (note,) = [note for note in chain.notes if "outside any message-passing layer" in note]
    assert note.split()[0] == name.split()[0]
    assert "need not follow edges" in note


def _after_the_first(m, x, e):
    total = x.sum(0)
    return m.last(m.first(x, e) + total, e)


def _before_the_first(m, x, e):
    return m.last(m.first(x + x.sum(0), e), e)


def _unique_before_the_first(m, x, e):
    found, place = torch.unique(x[:, 0], return_inverse=True)
    return m.last(m.first(x + found[place][:, None], e), e)


@pytest.mark.parametrize(
    ("forward", "outside", "before"),
    [(_after_the_first, 1, 0), (_before_the_first, 0, 1), (_unique_before_the_first, 0, 1)],
)
def test_where_a_sum_of_nodes_is_read_decides_how_it_is_noted(forward, outside, before):
    """Not where it is written: walks begin after what comes before the first layer."""
    chain, _ = traced(Net(forward))
    assert len([note for note in chain.notes if "outside any message-passing layer" in note]) == outside
    assert len([note for note in chain.notes if "adds up rows of nodes before the first layer" in note]) == before


def _added(h):
    return torch.zeros_like(h).index_add(0, EDGES[1], h[EDGES[0]])


def _looped(h):
    rows = torch.zeros_like(h)
    for u, v in EDGES.t().tolist():
        rows[v] = rows[v] + h[u]
    return rows


@pytest.mark.parametrize(("name", "change"), [("index_add", _added), ("setitem", _looped), ("matmul", MATRIX.mm)])
def test_sums_by_hand_are_noted_wherever_they_stand(name, change):
    """Before the first layer, walks begin at the sums; after the last, they end at all nodes that are read."""

    def noted(forward, index):
        return [note for note in ww.trace(Net(forward), features(), EDGES, target=0, index=index).notes if name in note]

    (first,) = noted(lambda m, x, e: m.head(m.b(m.first(change(x), e), e)), 2)
    assert f"{name} adds up rows of nodes before the first layer" in first
    (between,) = noted(lambda m, x, e: m.head(m.b(change(m.first(x, e)), e)), 2)
    assert "in the code between layers" in between
    assert not noted(lambda m, x, e: m.head(m.b(m.first(x, e), e)), 2)


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda h: h + h.mean(0, keepdim=True), True),
        (_looped, True),
        (lambda h: h - h[[1, 2, 3, 4, 5, 0]], True),
        (lambda h: F.layer_norm(h, (4,)), False),
        (lambda h: h * h.mean(0).sigmoid().detach(), False),
    ],
)
def test_a_note_says_where_walks_end_at_nodes_beside_the_explained_one(read, said):
    model = Net(lambda m, x, e: m.head(read(m.b(m.first(x, e), e))))
    chain = ww.trace(model, features(), EDGES, target=0, index=2, rule="zero")
    ends = ww.node_relevance(chain, layer=2)
    assert (ends.nonzero()[:, 0].tolist() != [2]) == said
    assert [note for note in chain.notes if "walks end at these, too" in note] != [] or not said
    whole = ww.trace(model, features(), EDGES, target=lambda out: out[:, 0].sum(), rule="zero")
    assert not [note for note in whole.notes if "walks end at these, too" in note]


@pytest.mark.parametrize(
    "change",
    [
        lambda m, h: m.lin(h).relu(),
        lambda m, h: (m.lin.weight @ h.t()).t(),
        lambda m, h: torch.einsum("mf,of->mo", h, m.lin.weight),
        lambda m, h: m.gru(h[:, None])[0][:, 0],
        lambda m, h: h.view(M, 2, 2).sum(1).repeat(1, 2),
        lambda m, h: h * h.sum(0).sigmoid(),
        lambda m, h: h[PERM][PLACE],
    ],
)
def test_rows_that_stay_apart_are_not(change):
    chain, said = traced(between(change)())
    assert not [note for note in (*chain.notes, *said) if "outside any" in note]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return 2 * value

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def double(h: torch.Tensor):
    return 2 * h


def in_a_thread(function):
    made = []
    thread = threading.Thread(target=lambda: made.append(function()))
    thread.start()
    thread.join()
    return made[0]


def without_gradient(m, h):
    with torch.no_grad():
        return h + 2 * h


def nested(h):
    parts = torch.nested.as_nested_tensor([h[:2], h[2:]], layout=torch.jagged).unbind()
    return torch.cat(list(parts))


#: Each with a word of what is said of it.
NOTED = {
    "part without gradients": (between(lambda m, h: h + without_gradient(m, h)), "no_grad"),
    "function of one's own": (between(lambda m, h: h + Doubled.apply(h)), "autograd.Function"),
    "sparse matrix of features": (between(lambda m, h: h + h.to_sparse().to_dense()), "sparse matrix"),
    "nested tensor of features": (between(lambda m, h: h + nested(h)), "nested tensor"),
    "Python": (between(lambda m, h: h + torch.tensor(h.tolist())), "NumPy or Python"),
    "scripted function": (
        lambda: Net(
            lambda m, x, e: m.last(m.first(x, e) + m.made[0](m.first(x, e)), e), made=[torch.jit.script(double)]
        ),
        "TorchScript function double",
    ),
    "layer detached": (between(lambda m, h: h.detach()), "layer 'a' .* ran"),
    "layer detached, and around": (
        lambda: Net(lambda m, x, e: m.last(m.first(x, e).detach() + x, e)),
        "layer 'a' .* ran",
    ),
    "nodes two by two": (between(lambda m, h: h.view(3, 2, 4).sum(1).repeat_interleave(2, 0)), "not nodes of the"),
    "nodes twice": (
        lambda: Net(lambda m, x, e: m.last(m.first(x, e).repeat(2, 1), torch.cat([e, e + M], 1))),
        "not nodes",
    ),
    "rows of one's own, in another order": (
        lambda: Net(
            lambda m, x, e: m.last(m.first(m.rows[PERM], PLACE[e])[PLACE] + x, e), rows=nn.Parameter(torch.ones(M, 4))
        ),
        "row i is taken to be node i",
    ),
}


@pytest.mark.parametrize("name", NOTED)
def test_noted(name):
    make, words = NOTED[name]
    chain, said = traced(make())
    assert [note for note in chain.notes if re.search(words, note)]
    assert said or "not nodes" in words


#: Each with a word of why it is refused.
REFUSED = {
    "columns sorted over nodes": (between(lambda m, h: h.sort(0).values), "sort has combined"),
    "rows written over": (before(lambda m, x: written(x, 0, x[1])), "nodes several times over"),
    "written through a view": (between(lambda m, h: (h.t()[:2].add_(1), h)[1]), "changed in place"),
    "written past the tape": (between(lambda m, h: (h.data.zero_(), h)[1]), "detached from it"),
    "layer without gradients": (
        lambda: Net(lambda m, x, e: m.last(torch.no_grad()(m.first)(x, e) + x, e)),
        "cannot be traced back",
    ),
    "vmap": (between(lambda m, h: torch.func.vmap(lambda row: m.lin.weight @ row)(h)), "torch.func"),
    "vmap, and around": (between(lambda m, h: h + torch.func.vmap(lambda row: 2 * row)(h)), "torch.func"),
    "vmap over something else": (
        between(lambda m, h: torch.func.vmap(lambda k: k * h)(torch.ones(3)).sum(0)),
        "torch.func",
    ),
    "vmap before": (before(lambda m, x: torch.func.vmap(lambda row: 2 * row)(x)), "torch.func"),
    "derivative": (before(lambda m, x: torch.func.grad(lambda v: (m.lin(v) ** 2).sum())(x)), "torch.func"),
    "derivative by autograd": (
        before(lambda m, x: torch.autograd.grad((m.lin(x.requires_grad_()) ** 2).sum(), x)[0]),
        "differentiates",
    ),
    "no derivative": (between(lambda m, h: torch.unique(h, dim=0)[:1] + h), "cannot differentiate"),
    "another thread": (between(lambda m, h: in_a_thread(lambda: 2 * h)), "earlier layer"),
    "another thread before": (before(lambda m, x: in_a_thread(lambda: 2 * x)), "input features"),
    "function of one's own before": (before(lambda m, x: Doubled.apply(x)), "input features"),
    "a copy made out of sight": (
        before(lambda m, x: torch.tensor(copy.deepcopy(x.tolist()), dtype=x.dtype)),
        "input features",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, words = REFUSED[name]
    with pytest.raises(TraceError, match=words):
        traced(make())


def test_whole_numbers_made_of_features_are_no_leak():
    """A bin of a feature, looked up in a table, leaps: it does not follow from the feature as a number does."""
    table = nn.Embedding(40, 4)
    chain, _ = traced(Net(lambda m, x, e: m.last(m.first(m.table((4 * x[:, 0]).long() + 20), e), e), table=table))
    assert chain.num_nodes == M


@pytest.mark.parametrize("kind", [list, dict])
def test_what_a_model_keeps_is_not_kept_by_tracing(kind):
    inner = kind() if kind is dict else [kind()]
    model = Net(None, kept=inner, deep={"inner": inner})
    model.run = lambda m, x, e: (
        m.kept.update(h=x) if kind is dict else m.kept[0].append(x),
        m.last(m.first(x, e), e),
    )[1]
    ww.trace(model, features(), EDGES, target=0)
    assert model.kept is inner
    assert inner == ({} if kind is dict else [[]])


def attending(h):
    weights = (h @ h.t()).softmax(-1).detach()
    return h + weights @ h


#: What a read-out may do between nodes, and the name of it.
IN_THE_READ_OUT = {
    "matmul": lambda m, h: attending(h),
    "multi_head_attention_forward": lambda m, h: h + m.heads(h[None], h[None], h[None])[0][0],
    "scaled_dot_product_attention": lambda m, h: h + F.scaled_dot_product_attention(h[None], h[None], h[None])[0],
    "einsum": lambda m, h: torch.einsum("ij,jk->ik", MATRIX, h),
    "sparse_mm": lambda m, h: torch.sparse.mm(MATRIX.to_sparse(), h),
    "addmm": lambda m, h: torch.addmm(m.lin.weight[0], MATRIX, h),
    "tensordot": lambda m, h: torch.tensordot(MATRIX, h, 1),
    "inner": lambda m, h: torch.inner(MATRIX, h.t()),
    "mv": lambda m, h: h + torch.mv(MATRIX, h[:, 0])[:, None],
    "addmv": lambda m, h: h + torch.addmv(MATRIX[0], MATRIX, h[:, 0])[:, None],
    "addbmm": lambda m, h: torch.addbmm(m.lin.weight[0], MATRIX[None], h[None]),
    "chain_matmul": lambda m, h: torch.chain_matmul(MATRIX, h, m.lin.weight),
    "linalg_multi_dot": lambda m, h: torch.linalg.multi_dot([MATRIX, h, m.lin.weight]),
    "index_add": lambda m, h: torch.zeros_like(h).index_add(0, EDGES[1], h[EDGES[0]]),
    "scatter": lambda m, h: torch.scatter(h, 0, torch.tensor([[1, 2, 3, 0]]), h[:1], reduce="add"),
    "segment_reduce": lambda m, h: torch.segment_reduce(h.repeat(2, 1), "sum", lengths=torch.full((M,), 2)),
    "conv1d": lambda m, h: F.conv1d(h.t()[None], torch.ones(4, 4, 3).double(), padding=1)[0].t(),
}
#: And what carries nothing from node to node.
NOT_BETWEEN_NODES = {
    "a weight": lambda m, h: h @ m.lin.weight,
    "weights of several ways": lambda m, h: torch.linalg.multi_dot(
        [torch.tensordot(h, m.lin.weight, 1), MATRIX[:4, :4]]
    ),
    "a weight and a bias": lambda m, h: torch.addmm(m.lin.weight[0], h, m.lin.weight),
    "a square weight": lambda m, h: (torch.cat([h, h[:, :2]], 1) @ MATRIX)[:, :4],
    "attention of neurons": lambda m, h: torch.einsum("ij,ik->ij", h, h.softmax(-1)),
    "a sum of all": lambda m, h: torch.zeros(1, 4).double().index_add(0, torch.zeros(M).long(), h),
    "an outer product": lambda m, h: torch.einsum("ij,kj->ik", h, h).diagonal().view(-1, 1).expand(M, 4),
}


def with_read_out(change):
    heads = nn.MultiheadAttention(4, 2, batch_first=True)
    return Net(lambda m, x, e: m.head(change(m, m.b(m.first(x, e), e).relu())).sum(0, keepdim=True), heads=heads)


@pytest.mark.parametrize("name", IN_THE_READ_OUT)
def test_rows_added_up_in_the_read_out_are_noted(name):
    chain, _ = traced(with_read_out(IN_THE_READ_OUT[name]))
    (note,) = [note for note in chain.notes if "outside any message-passing layer" in note]
    assert note.startswith(f"{name} adds up rows of nodes outside any message-passing layer, in the read-out;")


@pytest.mark.parametrize("name", NOT_BETWEEN_NODES)
def test_a_read_out_that_carries_nothing_between_nodes_is_not_noted(name):
    chain, _ = traced(with_read_out(NOT_BETWEEN_NODES[name]))
    assert not [note for note in chain.notes if "outside any message-passing layer" in note]


def test_all_places_of_what_is_noted_are_named():
    chain, _ = traced(
        Net(lambda m, x, e: m.head(attending(m.b(attending(m.first(x, e)), e).relu())).sum(0, keepdim=True))
    )
    (note,) = [note for note in chain.notes if "outside any message-passing layer" in note]
    assert "in the code between layers and in the read-out;" in note


def test_what_has_no_rule_before_the_first_layer_is_said_to_stand_there():
    chain, _ = traced(Net(lambda m, x, e: m.last(m.first(torch.logaddexp(x, m.lin(x)), e), e)))
    assert "logaddexp in the code before the first layer has no rule; its plain gradient was used" in chain.notes


class Relational(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = pyg.RGCNConv(M, 4, num_relations=2), pyg.RGCNConv(4, 2, num_relations=2)

    def forward(self, x, edge_index, edge_type):
        return self.b(self.a(x, edge_index, edge_type).relu(), edge_index, edge_type)


class Featureless(Relational):
    def forward(self, edge_index, edge_type):
        return super().forward(None, edge_index, edge_type)


def test_no_features_that_stand_for_one_hot_ones():
    """The identity gives what None gives, and so does its relevance."""
    model, kinds = Relational().double().eval(), torch.arange(13) % 2
    asked = Featureless().double().eval()
    found = ww.trace(asked, Data(edge_index=EDGES, edge_type=kinds, num_nodes=M), index=0, target=0, rule="zero")
    with pytest.raises(ww.errors.InputError, match=re.escape("as RGCNConv does, use torch.eye(data.num_nodes)")):
        ww.trace(model, Data(edge_index=EDGES, edge_type=kinds, num_nodes=M), index=0, target=0)
    chain = ww.trace(model, torch.eye(M).double(), EDGES, edge_type=kinds, index=0, target=0, rule="zero")
    torch.testing.assert_close(ww.node_relevance(found), ww.node_relevance(chain))
    torch.testing.assert_close(chain.outputs[0], model(None, EDGES, kinds)[0, 0].detach())


@pytest.mark.parametrize("conv", [pyg.RGCNConv, pyg.FastRGCNConv])
@pytest.mark.parametrize("bases", [None, 2])
def test_numbers_of_nodes_stand_for_one_hot_features(conv, bases):
    torch.manual_seed(0)
    kinds, numbers = torch.arange(13) % 2, torch.arange(M).flip(0)

    class Numbered(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = conv(M, 4, 2, num_bases=bases), conv(4, 2, 2, num_bases=bases)

        def forward(self, x, edge_index):
            return self.b(self.a(x, edge_index, kinds).relu(), edge_index, kinds)

    model = Numbered().double().eval()
    found = ww.trace(model, numbers, EDGES, index=0, target=0)
    expected = ww.trace(model, torch.eye(M).double()[numbers], EDGES, index=0, target=0)
    torch.testing.assert_close(found.outputs, expected.outputs)
    torch.testing.assert_close(ww.node_relevance(found), ww.node_relevance(expected))


class TwoGraphs(nn.Module):
    """Compares the graph that is given with another one, of its own, by the same layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleList([pyg.GCNConv(3, 4), pyg.GCNConv(4, 4)])
        self.other = torch.rand(3, 3, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 0]])

    def embedded(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return x.sum(0)

    def forward(self, x, edge_index):
        return (self.embedded(x, edge_index) * self.embedded(*self.other)).sum().view(1, 1)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_a_graph_of_the_model_s_own_is_on_no_walk():
    """Its rows are none of the nodes that walks are asked for."""
    model, edges = TwoGraphs().double().eval(), torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    chain = ww.trace(model, torch.rand(6, 3, dtype=torch.float64), edges, target=0, rule="zero")
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance)
    assert int(walks.max()) == 5
    assert float(relevance.abs().max()) > 1e-6


def _by_a_local_name(function, *given):
    from torch.utils.checkpoint import checkpoint as saving

    return saving(function, *given, use_reentrant=True)


#: A checkpoint that runs its layer in an autograd.Function, to save memory, as models call it.
CHECKPOINTS = {
    "imported": lambda function, *given: checkpoint(function, *given, use_reentrant=True, preserve_rng_state=False),
    "in its module": lambda function, *given: torch.utils.checkpoint.checkpoint(function, *given, use_reentrant=True),
    "in a helper": _by_a_local_name,
}


@pytest.mark.parametrize("saved", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_layers_in_a_checkpoint_run_in_sight(saved):
    class Checkpointed(Net):
        def forward(self, x, e):
            return self.last(saved(self.first, x, e), e)

    ours, said = traced(Checkpointed())
    theirs, _ = traced(Net())
    assert said == []
    walks = ww.enumerate_walks(theirs)
    torch.testing.assert_close(ww.walk_relevance(ours, walks), ww.walk_relevance(theirs, walks))
