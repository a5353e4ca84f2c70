"""Ways in which a part of a model could be lost without a word, each met once."""

import contextlib
import inspect
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional as F

import walkwise as ww
from walkwise import reference
from walkwise.errors import CoverageWarning, TraceError
from walkwise.rules import AlphaBeta, Gamma, ZPlus

M = 6
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 1], [1, 2, 3, 4, 5, 0, 3, 5, 0]])
SUBGRAPHS = [[0, 1, 2], [3], [1, 4, 5]]


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def x():
    return torch.randn(M, 4)


class Model(nn.Module):
    def __init__(self, run, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.run = run
        self.eval()

    def forward(self, x, edge_index, **kwargs):
        return self.run(self, x, edge_index, **kwargs)


def pooled(h):
    return h.sum(0, keepdim=True)


def same(a, b, alphas=(0.0, 0.4)):
    ours, theirs = (ww.subgraph_relevance(c, SUBGRAPHS, alpha=list(alphas)) for c in (a, b))
    return torch.allclose(ours, theirs, atol=1e-11)


def check_hooks(model, x):
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    for alpha in (0.0, 0.5, 1.0):
        ours = ww.subgraph_relevance(chain, SUBGRAPHS, alpha=alpha).tolist()
        for nodes, relevance in zip(SUBGRAPHS, ours, strict=True):
            expected = reference.hooked_subgraph_relevance(
                model, lambda: model(x, EDGES)[0, 0], nodes, alpha, M, chain.num_layers + 1
            )
            assert relevance == pytest.approx(expected, abs=1e-11)
    return chain


def test_layers_of_both_directions_share_an_edge_index(x):
    there = pyg.SAGEConv(4, 3, bias=False)
    back = pyg.SAGEConv(4, 3, bias=False, flow="target_to_source")
    check_hooks(Model(lambda m, x, e: pooled(m.c((m.a(x, e) + m.b(x, e)).relu(), e)), a=there, b=back,
                      c=pyg.GraphConv(3, 2, bias=False)), x)  # fmt: skip


def test_dropout_that_is_left_on_is_a_constant_mask(x):
    model = Model(lambda m, x, e: pooled(m.b(F.dropout(m.a(x, e).relu(), 0.5), e)),
                  a=pyg.GCNConv(4, 8, bias=False), b=pyg.GCNConv(8, 2, bias=False))  # fmt: skip
    before = torch.get_rng_state()
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    assert chain.input_relevance == pytest.approx(chain.output)
    assert torch.equal(before, torch.get_rng_state())
    assert any("draws random numbers" in note for note in chain.notes)


@pytest.mark.parametrize("random", [True, False])
def test_random_numbers_are_noted_wherever_they_are_drawn(x, random):
    noise = (lambda h: h + torch.rand(h.shape[-1], dtype=h.dtype)) if random else (lambda h: h)
    model = Model(lambda m, x, e: pooled(m.a(noise(x), e)), a=pyg.GCNConv(4, 2))
    notes = ww.trace(model, x, EDGES, target=0).notes
    assert any("draws random numbers" in note for note in notes) == random


def test_messages_in_a_product_of_two_matrices_keep_their_share(x):
    model = Model(lambda m, x, e: pooled(m.a(x, e)), a=pyg.EGConv(4, 8, num_heads=2, num_bases=2))
    walks = ww.enumerate_walks(ww.trace(model, x, EDGES, target=0, rule="zero"))
    assert (walks[:, 0] != walks[:, 1]).any()


def test_edge_features_that_depend_on_nodes_are_followed(x):
    def run(m, x, e):
        h = m.a(x, e).relu()
        return pooled(m.b(h, e, m.edge(h[e[0]])))

    check_hooks(Model(run, a=pyg.GCNConv(4, 8), b=pyg.GINEConv(nn.Linear(8, 2)), edge=nn.Linear(8, 8)), x)


def test_group_normalisation_is_not_all_statistics(x):
    norm = pyg.DiffGroupNorm(8, groups=2, lamda=1.0)
    model = Model(lambda m, x, e: pooled(m.b(m.norm(m.a(x, e)), e)), a=pyg.GCNConv(4, 8, bias=False), norm=norm,
                  b=pyg.GCNConv(8, 2, bias=False))  # fmt: skip
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    assert chain.input_relevance == pytest.approx(chain.output)


class MyLE(pyg.LEConv):
    def message(self, a_j, b_i, edge_weight):
        return (a_j - b_i) * edge_weight.view(-1, 1)


@pytest.mark.parametrize("rule", [AlphaBeta(2.0, 1.0), ZPlus(), "gamma"], ids=repr)
def test_edge_weights_of_both_signs(rule, x):
    weight = torch.linspace(-1, 1, EDGES.shape[1])

    def run(m, x, e, edge_weight):
        return pooled(m.b(m.a(x, e, edge_weight).relu(), e, edge_weight))

    closed = Model(run, a=pyg.LEConv(4, 8), b=pyg.LEConv(8, 2))
    asked = Model(run, a=MyLE(4, 8), b=MyLE(8, 2))
    asked.load_state_dict(closed.state_dict())
    assert same(*(ww.trace(m, x, EDGES, target=0, rule=rule, edge_weight=weight) for m in (closed, asked)))


class FromTheLeft(pyg.MessagePassing):
    """x W written as (Wᵀ xᵀ)ᵀ."""

    def __init__(self, weight):
        super().__init__(aggr="add")
        self.weight = nn.Parameter(weight)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=(self.weight @ x.t()).t())

    def message(self, x_j):
        return x_j


class FromTheRight(FromTheLeft):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x @ self.weight.t())


@pytest.mark.parametrize("rule", [Gamma(2.0), ZPlus()], ids=repr)
def test_a_weight_is_a_weight_on_either_side(rule, x):
    weight = torch.randn(3, 4)
    models = [Model(lambda m, x, e: pooled(m.a(x, e).relu()), a=kind(weight)) for kind in (FromTheLeft, FromTheRight)]
    assert same(*(ww.trace(m, x, EDGES, target=0, rule=rule) for m in models))


def test_layers_must_run_on_nodes(x):
    model = Model(lambda m, x, e: pooled(m.a(x[e[0]], e[:, :2])), a=pyg.GCNConv(4, 2))
    with pytest.raises(TraceError, match=r"6 nodes of the graph.*which are not nodes"):
        ww.trace(model, x, EDGES, target=0)


class WithEdgeOutput(pyg.MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 3)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x)), x[edge_index[0]]

    def message(self, x_j):
        return x_j


def test_a_layer_may_return_edge_features_too(x):
    model = Model(lambda m, x, e: pooled(m.a(x, e)[0]), a=WithEdgeOutput())
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    expected = (x @ model.a.lin.weight[0])[EDGES[0]].sum()
    assert chain.input_relevance == pytest.approx(float(expected.detach()))


def test_small_numbers_do_not_pass_for_equal_ones(x):
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    model = Model(lambda m, x, e: pooled(m.b(m.a(x, e)[order], e)) * 1e6, a=pyg.GCNConv(4, M, bias=False),
                  b=pyg.GCNConv(M, 2, bias=False))  # fmt: skip
    chain = ww.trace(model, x * 1e-6, EDGES, target=0, rule="zero")
    assert chain.input_relevance == pytest.approx(chain.output)


KINDS = {
    "gcn": pyg.GCNConv,
    "gin": lambda i, o: pyg.GINConv(nn.Linear(i, o)),
    "attention": pyg.TransformerConv,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_layer_may_be_called_by_its_forward(x, kind):
    layers = {"a": kind(4, 4), "b": kind(4, 2)}
    called = Model(lambda m, x, e: pooled(m.b(m.a(x, e).relu(), e)), **layers)
    forward = Model(lambda m, x, e: pooled(m.b.forward(m.a.forward(x, edge_index=e).relu(), e)), **layers)
    chains = [ww.trace(model, x, EDGES, target=0) for model in (called, forward)]
    assert chains[1].num_layers == 2
    torch.testing.assert_close(*(ww.subgraph_relevance(chain, [[0, 1], [2, 3, 4]]) for chain in chains))


def test_propagate_past_its_layer_is_refused(x):
    model = Model(lambda m, x, e: pooled(m.b.propagate(e, x=m.a(x, e).relu())), a=pyg.GCNConv(4, 4), b=pyg.SimpleConv())
    with pytest.raises(TraceError, match=r"'b' \(SimpleConv\) was called directly"):
        ww.trace(model, x, EDGES, target=0)


class Refuses(pyg.GCNConv):
    def forward(self, x, edge_index):
        super().forward(x, edge_index)
        raise ValueError("not today")


def test_a_layer_that_failed_does_not_hide_later_ones(x):
    def run(m, x, e):
        try:
            h = m.a(x, e)
        except ValueError:
            h = x
        return pooled(m.c(m.b(h, e).relu(), e))

    layers = {"b": pyg.GCNConv(4, 4), "c": pyg.GINConv(nn.Linear(4, 2))}
    chain = ww.trace(Model(run, a=Refuses(4, 4), **layers), x, EDGES, target=0)
    plain = ww.trace(Model(lambda m, x, e: pooled(m.c(m.b(x, e).relu(), e)), **layers), x, EDGES, target=0)
    assert [layer.name for layer in chain.layers] == ["b", "c"]
    torch.testing.assert_close(*(ww.subgraph_relevance(c, [[0, 1], [2, 3]]) for c in (chain, plain)))


def test_a_normalisation_that_failed_does_not_hide_later_sums(x):
    def run(m, x, e):
        h = m.a(x, e)
        with contextlib.suppress(RuntimeError):
            m.norm(h[:, :3])
        return pooled(m.b(h, e))

    layers = {"a": pyg.GCNConv(4, 4), "b": pyg.GCNConv(4, 2)}
    chain = ww.trace(Model(run, norm=pyg.LayerNorm(4), **layers), x, EDGES, target=0)
    plain = ww.trace(Model(lambda m, x, e: pooled(m.b(m.a(x, e), e)), **layers), x, EDGES, target=0)
    torch.testing.assert_close(*(ww.subgraph_relevance(c, [[0, 1], [2, 3]]) for c in (chain, plain)))


def test_a_model_may_look_at_the_signature_of_a_layer(x):
    def run(m, x, e):
        assert "edge_weight" in inspect.signature(m.a.forward).parameters
        return pooled(m.a(x, e))

    assert ww.trace(Model(run, a=pyg.GCNConv(4, 2)), x, EDGES, target=0).num_layers == 1


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("detour", [Twice.apply, lambda h: torch.from_numpy(h.numpy() * 2)], ids=["function", "numpy"])
def test_a_branch_out_of_sight_is_named(detour, x):
    def run(m, x, e):
        h = m.a(x, e).relu()
        return pooled(h) + pooled(detour(h))

    with pytest.warns(CoverageWarning, match="counts as constant"):
        chain = ww.trace(Model(run, a=pyg.GCNConv(4, 2)), x, EDGES, target=0)
    assert "counts as constant" in chain.report()


def test_arguments_may_be_given_by_name(x):
    def run(m, x, e):
        h = torch.mul(F.linear(input=x, weight=m.lin.weight, bias=m.lin.bias), other=torch.tensor(2.0))
        return pooled(torch.matmul(input=m.a(h, e).relu(), other=m.head.weight.t()))

    check_hooks(Model(run, lin=nn.Linear(4, 4), a=pyg.GCNConv(4, 4), head=nn.Linear(4, 2)), x)


def test_bilinear_layers_are_covered(x):
    model = Model(lambda m, x, e: pooled(m.bi(m.a(x, e).relu(), torch.ones(M, 4))), a=pyg.GCNConv(4, 4),
                  bi=nn.Bilinear(4, 4, 2))  # fmt: skip
    check_hooks(model, x)


def test_attention_between_layers_answers_every_query(x):
    def run(m, x, e):
        h = m.a(x, e).relu()[None]
        return pooled(m.b(m.attention(h, h, h)[0][0], e))

    model = Model(run, a=pyg.GCNConv(4, 4), attention=nn.MultiheadAttention(4, 2, batch_first=True),
                  b=pyg.GCNConv(4, 2))  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    assert float(ww.node_relevance(chain, layer=1).sum()) == pytest.approx(chain.input_relevance)
    assert len(ww.edge_relevance(chain)) == EDGES.shape[1]


def test_sparse_products_between_layers_answer_many_subgraphs(x):
    adjacency = torch.zeros(M, M).index_put((EDGES[1], EDGES[0]), torch.tensor(0.5)).to_sparse()
    model = Model(lambda m, x, e: pooled(m.b(torch.sparse.mm(adjacency, m.a(x, e).relu()), e)), a=pyg.GCNConv(4, 4),
                  b=pyg.GCNConv(4, 2))  # fmt: skip
    check_hooks(model, x)


def test_what_the_model_writes_is_taken_back(x):
    def run(m, x, e, edge_weight):
        m.count += 1
        edge_weight.mul_(2)
        return pooled(m.a(x, e, edge_weight))

    model = Model(run, a=pyg.GCNConv(4, 2))
    model.register_buffer("count", torch.zeros(()))
    weight = torch.ones(EDGES.shape[1])
    ww.trace(model, x, EDGES, target=0, edge_weight=weight)
    assert float(model.count) == 0
    assert torch.equal(weight, torch.ones(EDGES.shape[1]))


def test_a_second_run_starts_from_the_same_input(x):
    """A linear module that is never called makes the model run again; it must not see what the first run wrote."""

    def run(m, x, e, edge_weight):
        edge_weight.mul_(2)
        return pooled(m.a(x.mul_(3), e, edge_weight))

    weight = torch.rand(EDGES.shape[1])
    conv = pyg.GraphConv(4, 2)
    plain, idle = Model(run, a=conv), Model(run, a=conv, idle=nn.Linear(2, 2))
    ours, theirs = (ww.trace(m, x, EDGES, target=0, edge_weight=weight) for m in (idle, plain))
    assert ours.output == pytest.approx(theirs.output)
    assert same(ours, theirs)


class Nested(pyg.MessagePassing):
    """A layer with a layer inside."""

    def __init__(self):
        super().__init__()
        self.inner = pyg.GCNConv(4, 4)

    def forward(self, x, edge_index):
        return self.inner(x, edge_index) + self.propagate(edge_index, x=x)


@pytest.mark.parametrize("target", [0, lambda output: output[0, 0]], ids=["column", "callable"])
def test_layers_inside_layers_do_not_confuse_who_was_handed_what(x, target):
    model = Model(lambda m, x, e: pooled(m.b(torch.tensor(m.a(x, e).tolist()), e)), a=Nested(), b=Nested())
    with pytest.raises(TraceError, match=r"'b' \(Nested\) received node features that depend on an earlier layer"):
        ww.trace(model, x, EDGES, target=target)


@pytest.mark.parametrize("layer", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
@pytest.mark.parametrize("where", ["a", "b"])
def test_attention_is_no_detaching_of_the_model(x, layer, where):
    """PyG's softmax detaches the maximum that it subtracts."""
    convs = {"a": pyg.GCNConv(4, 4), "b": pyg.GCNConv(4, 4)} | {where: layer(4, 4)}
    model = Model(lambda m, x, e: pooled(m.b(torch.tensor(m.a(x, e).tolist()), e)), **convs)
    with pytest.raises(TraceError, match=r"'b' \(\w+\) received node features that depend on an earlier layer"):
        ww.trace(model, x, EDGES, target=0)


def test_a_layer_behind_a_detached_tensor_is_named(x):
    def run(m, x, e):
        return pooled(m.b(torch.from_numpy(m.a(x, e).relu().detach().numpy()), e))

    model = Model(run, a=pyg.GCNConv(4, 4), b=pyg.GCNConv(4, 2))
    with pytest.warns(CoverageWarning, match=r"layer 'a' \(GCNConv\) ran, but the explained output does not depend"):
        chain = ww.trace(model, x, EDGES, target=0)
    assert [layer.name for layer in chain.layers] == ["b"]
    assert any("layer 'a'" in note for note in chain.notes)


@pytest.mark.parametrize("layer", [pyg.GCNConv, pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_a_layer_that_another_output_is_made_of_is_noted_without_warning(x, layer):
    def run(m, x, e):
        h = m.a(x, e).relu()
        return pooled(m.b(h, e)), pooled(m.c(h, e))

    model = Model(run, a=layer(4, 4), b=layer(4, 1), c=layer(4, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain = ww.trace(model, x, EDGES, target=lambda outputs: outputs[0].sum())
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    assert [note for note in chain.notes if f"'c' ({layer.__name__})" in note]
