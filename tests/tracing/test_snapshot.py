"""A chain is a snapshot: training may go on, the model may be dropped, and what a chain held is freed with it."""

import gc
import weakref

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.utils import parametrizations

import walkwise as ww

#: What no rule covers is not the matter here.
pytestmark = pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4, 0], [1, 0, 2, 1, 3, 2, 0, 3, 0, 4]])
SETS = [[0, 1, 2], [3, 4], [0, 1, 2, 3, 4]]


class Model(nn.Module):
    def __init__(self, run, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = run

    def forward(self, x, edge_index):
        return self.run(self, x, edge_index).sum(0, keepdim=True)


def gin():
    return pyg.GINConv(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)), train_eps=True)


def stacked(layer):
    return lambda: Model(lambda m, x, e: m.b(m.a(x, e).relu(), e), a=layer(), b=layer())


def with_buffer():
    model = Model(lambda m, x, e: m.a(m.features, e), a=gin())
    model.register_buffer("features", torch.randn(5, 4))
    return model


def with_factor():
    parts = {"w": nn.Parameter(torch.randn(5, 4)), "a": gin(), "b": gin()}
    return Model(lambda m, x, e: m.b(m.a(x, e) * m.w, e), **parts)


def with_edge_weights():
    parts = {"w": nn.Parameter(torch.rand(EDGES.shape[1])), "a": pyg.GraphConv(4, 4), "b": pyg.GraphConv(4, 4)}
    return Model(lambda m, x, e: m.b(m.a(x, e, m.w).relu(), e), **parts)


MODELS = {
    "gin": stacked(gin),
    "gcn": stacked(lambda: pyg.GCNConv(4, 4)),
    "attention": stacked(lambda: pyg.TransformerConv(4, 4)),
    "gated": stacked(lambda: pyg.GatedGraphConv(4, 2)),
    "generalised": stacked(lambda: pyg.GENConv(4, 4)),
    "maximum": stacked(lambda: pyg.SAGEConv(4, 4, aggr="max")),
    "encoder": lambda: Model(lambda m, x, e: m.a(m.l(x).relu(), e), l=nn.Linear(4, 4), a=gin()),
    "factor": lambda: Model(lambda m, x, e: m.a(x * m.w, e), w=nn.Parameter(torch.randn(5, 4)), a=gin()),
    "gate": with_factor,
    "embedding": lambda: Model(lambda m, x, e: m.a(m.l.weight, e), l=nn.Embedding(5, 4), a=gin()),
    "buffer": with_buffer,
    "edge weights": with_edge_weights,
    "autograd between": lambda: Model(
        lambda m, x, e: m.b(m.n(m.a(x, e).t()).t().contiguous(), e), n=nn.Linear(5, 5), a=gin(), b=gin()
    ),
}  # fmt: skip


def made(name):
    torch.manual_seed(4)
    return MODELS[name]().double(), torch.randn(5, 4, dtype=torch.float64)


def answers(chain):
    feature = ww.feature_relevance(chain)
    return [ww.subgraph_relevance(chain, SETS), feature, ww.node_relevance(chain), chain.outputs.clone()]


@pytest.mark.parametrize("rule", ["gamma", "zero", "alphabeta"])
@pytest.mark.parametrize("name", MODELS)
def test_training_on_changes_nothing(name, rule):
    model, x = made(name)
    chain = ww.trace(model, x, EDGES, target=0, rule=rule)
    before, single = answers(chain), answers(chain.to(dtype=torch.float32))
    with torch.no_grad():
        for tensor in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point()), x):
            tensor.mul_(-1.5).add_(0.1)
    for now, then in zip(answers(chain), before, strict=True):
        assert torch.equal(now, then)
    for now, then in zip(answers(chain.to(dtype=torch.float32)), single, strict=True):
        torch.testing.assert_close(now, then)


@pytest.mark.parametrize("name", MODELS)
def test_what_a_chain_held_is_freed_with_it(name):
    model, x = made(name)
    gc.collect()
    gc.disable()
    try:
        chain = ww.trace(model, x, EDGES, target=0)
        answers(chain), str(chain)
        gone = weakref.ref(chain)
        gc.set_debug(gc.DEBUG_SAVEALL)
        del chain
        gc.collect()
        assert gone() is None
        assert not [found for found in gc.garbage if isinstance(found, torch.Tensor)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_walks_begin_at_features_that_are_read_after_the_first_layer_alone():
    parts = {"p": nn.Parameter(torch.randn(5, 4)), "a": gin(), "b": gin()}
    model = Model(lambda m, x, e: m.b(m.a(m.p, e) + m.l(x), e), l=nn.Linear(4, 4), **parts).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    given = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(given, EDGES)[:, 0].sum(), given)
    assert chain.notes == ()
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)


def test_a_perceptron_may_be_a_function():
    model = Model(lambda m, x, e: m.b(m.a(x, e), e), a=pyg.GINConv(torch.tanh), b=gin()).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    assert chain.output == pytest.approx(float(model(x, EDGES)[0, 0].detach()))


def test_power_iterations_are_not_run_behind_the_back_of_a_model():
    linear = parametrizations.spectral_norm(nn.Linear(4, 4).double())
    model = Model(lambda m, x, e: m.a(x, e), a=pyg.GINConv(linear)).double().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ww.trace(model, torch.randn(5, 4, dtype=torch.float64), EDGES, target=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_module_made_in_a_forward_is_gone_again():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = gin()

        def forward(self, x, edge_index):
            if not hasattr(self, "late"):
                self.late = nn.Linear(4, 2)
            return self.late(self.conv(x, edge_index)).sum(0, keepdim=True)

    model = Late()
    ww.trace(model, torch.randn(5, 4), EDGES, target=0)
    assert list(dict(model.named_children())) == ["conv"]


class TwoOutputs(pyg.GCNConv):
    """A layer that returns a linear map of its input beside what it aggregates."""

    def __init__(self):
        super().__init__(4, 4)
        self.beside = nn.Linear(4, 4)

    def forward(self, x, edge_index):
        return super().forward(x, edge_index), self.beside(x)


def test_a_second_output_of_a_layer_is_under_its_rule():
    def run(m, x, e):
        h, beside = m.a(x, e)
        return h + beside

    torch.manual_seed(1)
    model = Model(run, a=TwoOutputs()).double()
    x = torch.rand(5, 4, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule=[ww.rules.Gamma(1.0)])
    only = Model(lambda m, x, e: m.a(x, e)[0], a=model.a)
    rest = ww.node_relevance(chain) - ww.node_relevance(ww.trace(only, x, EDGES, target=0, rule=[ww.rules.Gamma(1.0)]))
    weight, bias = model.a.beside.weight[0].detach(), model.a.beside.bias[0].detach()
    lifted = weight + weight.relu()
    value, surrogate = x @ weight + bias, x @ lifted + bias + bias.relu()
    torch.testing.assert_close(rest, (x @ lifted) * value / surrogate)
