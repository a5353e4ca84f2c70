"""The user's model is left exactly as it was found, whatever happens while it is traced."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GATConv, GCNConv, GraphConv, SGConv, SSGConv, SumAggregation, global_mean_pool

import walkwise as ww
from walkwise.errors import InputError, TargetError, UnsupportedLayerError

KINDS = ["GCN", "GIN", "GAT", "SG", "ARMA"]


class BrokenMessageConv(GCNConv):
    def message(self, x_j, edge_weight):
        raise RuntimeError("broken message")


class Broken(nn.Module):
    """Fails after its layer has run."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(3, 4).double()

    def forward(self, x, edge_index):
        self.conv(x, edge_index)
        raise RuntimeError("broken forward")


class Busy(nn.Module):
    """Writes down things on itself while it runs."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(3, 2).double()
        self.register_buffer("calls", torch.zeros(()))
        self.last = None

    def forward(self, x, edge_index):
        self.last = self.conv(x, edge_index)
        self.new = self.last
        self.calls = self.calls + 1
        self.weight = nn.Parameter(torch.ones(()))
        return self.last.sum(0, keepdim=True)


def broken_target(output):
    raise RuntimeError("broken target")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grad", [True, False])
def test_tracing_leaves_no_trace(net, graph, unchanged, kind, grad):
    model, (x, edge_index) = net(kind), graph()
    with torch.set_grad_enabled(grad), unchanged(model, x, edge_index):
        chain = ww.trace(model, x, edge_index)
        ww.subgraph_relevance(chain, [[0, 1]], alpha=[0.0, 0.5])
        ww.edge_relevance(chain)
        str(chain)


def test_no_grad_gives_the_same_chain(net, graph):
    model, (x, edge_index) = net("ARMA"), graph()
    with torch.no_grad():
        quiet = ww.trace(model, x, edge_index)
    usual = ww.trace(model, x, edge_index)
    assert torch.equal(ww.node_relevance(quiet), ww.node_relevance(usual))


def test_inference_mode_gives_the_same_chain(net, graph):
    model, (x, edge_index) = net("ARMA"), graph()
    with torch.inference_mode():
        quiet = ww.node_relevance(ww.trace(model, x, edge_index))
    assert torch.equal(quiet.clone(), ww.node_relevance(ww.trace(model, x, edge_index)))


@pytest.mark.parametrize("kind", KINDS)
def test_models_and_data_may_have_been_made_in_inference_mode(net, graph, kind):
    x, edge_index = graph()
    usual = ww.trace(net(kind), x, edge_index, target=0, batch=torch.zeros(6, dtype=torch.long))
    with torch.inference_mode():
        model, batch = copy.deepcopy(net(kind)), torch.zeros(6, dtype=torch.long)
        quiet = ww.trace(model, x.clone(), edge_index.clone(), target=0, batch=batch)
    assert torch.equal(ww.node_relevance(quiet), ww.node_relevance(usual))
    assert torch.equal(ww.edge_relevance(quiet), ww.edge_relevance(usual))


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = GCNConv(3, 2).double()

    def forward(self, x, edge_index, batch):
        return global_mean_pool(self.conv(x, edge_index), batch)


def test_a_batch_may_have_been_made_in_inference_mode(graph):
    """Means over graphs are left to autograd, which keeps the batch vector."""
    model, (x, edge_index) = Averaged(), graph()
    usual = ww.trace(model, x, edge_index, target=0, batch=torch.zeros(6, dtype=torch.long))
    with torch.inference_mode():
        quiet = ww.trace(model, x, edge_index, target=0, batch=torch.zeros(6, dtype=torch.long))
    assert torch.equal(ww.node_relevance(quiet), ww.node_relevance(usual))


def test_features_that_require_grad_stay_so(net, graph, unchanged):
    model, (x, edge_index) = net(), graph()
    plain = ww.node_relevance(ww.trace(model, x, edge_index))
    x.requires_grad_(True)
    with unchanged(model, x, edge_index):
        followed = ww.node_relevance(ww.trace(model, x, edge_index))
    assert torch.equal(followed, plain)
    assert not followed.requires_grad


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "words"),
    [
        (lambda i, o, bias: BrokenMessageConv(i, o), {}, RuntimeError, "broken message"),
        (
            lambda i, o, bias: GraphConv(i, o),
            {"edge_weight": torch.ones(3).double()},
            InputError,
            "edge_weight must have a row",
        ),
        ("GCN", {"target": 9}, TargetError, "target=9 is out of range"),
        ("ARMA", {"target": broken_target}, RuntimeError, "broken target"),
        ("ARMA", {"fallback": "error"}, UnsupportedLayerError, r"convs\.0"),
        ("GCN", {"rule": [ww.rules.Zero()]}, InputError, "1 rules"),
        ("GCN", {"unknown": 1}, TypeError, "unknown"),
    ],
)
def test_failing_leaves_no_trace(net, graph, unchanged, kind, arguments, error, words):
    model, (x, edge_index) = net(kind).train(), graph()
    with unchanged(model, x, edge_index), pytest.raises(error, match=words):
        ww.trace(model, x, edge_index, **arguments)


def test_failing_forward_leaves_no_trace(graph, unchanged):
    model, (x, edge_index) = Broken(), graph()
    with unchanged(model, x, edge_index), pytest.raises(RuntimeError, match="broken forward"):
        ww.trace(model, x, edge_index)


def test_attributes_the_model_writes_are_taken_back(graph, unchanged):
    model, (x, edge_index) = Busy(), graph()
    with unchanged(model, x, edge_index):
        ww.trace(model, x, edge_index, target=0)
    assert model.last is None
    assert not hasattr(model, "new")


def test_hooks_of_the_user_stay_and_run(net, graph, unchanged):
    model, (x, edge_index) = net(), graph()
    ran = []
    model.convs[0].register_forward_hook(lambda *_: ran.append("forward"))
    model.convs[1].register_propagate_forward_pre_hook(lambda *_: ran.append("propagate"))
    with unchanged(model, x, edge_index):
        ww.trace(model, x, edge_index)
    assert ran == ["forward", "propagate"]


def tripled_messages(conv):
    conv.message = lambda x_j, edge_weight: 3 * edge_weight.view(-1, 1) * x_j


def hooked_messages(conv):
    conv.register_message_forward_hook(lambda conv, inputs, messages: 3 * messages)


def hooked_before_messages(conv):
    conv.register_message_forward_pre_hook(lambda conv, inputs: (inputs[0] | {"x_j": 3 * inputs[0]["x_j"]},))


def hooked_after_propagate(conv):
    conv.register_propagate_forward_hook(lambda conv, inputs, result: 3 * result)


def hooked_aggregation(conv):
    conv.aggr_module.register_forward_hook(lambda aggr, inputs, result: 3 * result)


def masked_edges(conv):
    conv.explain = True  # as torch_geometric.explain leaves it
    conv._edge_mask, conv._apply_sigmoid, conv._loop_mask = torch.full((14,), 3.0), False, torch.ones(14) > 0


CHANGES = [
    tripled_messages, hooked_messages, hooked_before_messages, hooked_after_propagate, hooked_aggregation, masked_edges,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_the_user_did_to_a_layer_counts(net, graph, change):
    """A closed form is for the class as written; it must not pass for a layer that computes otherwise."""
    model, (x, edge_index) = net(bias=False), graph()
    plain = model(x, edge_index).detach()
    change(model.convs[0])
    chain = ww.trace(model, x, edge_index, target=0, rule="zero")
    assert chain.output == pytest.approx(float(model(x, edge_index)[0, 0].detach()))
    assert chain.output != pytest.approx(float(plain[0, 0]))
    assert chain.input_relevance == pytest.approx(chain.output)


def test_masks_that_an_explainer_has_left_are_noted(net, graph):
    model, (x, edge_index) = net(), graph()
    set_masks(model, torch.rand(edge_index.shape[1]).double(), edge_index)
    assert any("left edge masks" in note for note in ww.trace(model, x, edge_index).notes)
    clear_masks(model)
    assert ww.trace(model, x, edge_index).notes == ()


@pytest.mark.parametrize("kind", ["GCN", "GIN", "GAT"])
def test_what_listens_to_all_modules_counts(net, graph, kind):
    """A hook for every module that there is: on the aggregation, too, which a closed form would pass by."""
    model, (x, edge_index) = net(kind), graph()

    def triple(module, inputs, result):
        return 3 * result if isinstance(module, SumAggregation) else None

    hook = register_module_forward_hook(triple)
    try:
        expected = float(model(x, edge_index)[0, 0].detach())
        assert ww.trace(model, x, edge_index, target=0).output == pytest.approx(expected)
    finally:
        hook.remove()
    assert ww.trace(model, x, edge_index, target=0).output != pytest.approx(expected)


def test_features_survive_a_model_that_writes_into_them(graph, unchanged):
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(3, 2).double()

        def forward(self, x, edge_index):
            return self.conv(x.relu_(), edge_index).sum(0, keepdim=True)

    model, (x, edge_index) = Overwriting(), graph()
    with unchanged(model, x, edge_index):
        ww.trace(model, x, edge_index)


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("kind", [GCNConv, SGConv, lambda i, o, **named: SSGConv(i, o, 0.1, **named)])
def test_caches_are_restored(net, graph, unchanged, kind, filled):
    model, (x, edge_index) = net(lambda i, o, bias: kind(i, o, cached=True)), graph()
    plain = net(lambda i, o, bias: kind(i, o))
    plain.load_state_dict(model.state_dict())
    if filled:
        model(x, edge_index)
    with unchanged(model, x, edge_index):
        cached = ww.node_relevance(ww.trace(model, x, edge_index, target=0))
    assert torch.allclose(cached, ww.node_relevance(ww.trace(plain, x, edge_index, target=0)))


@pytest.mark.parametrize("training", ["none", "all", "first"])
def test_dropout_is_off_while_tracing(net, graph, unchanged, training):
    model, (x, edge_index) = net(lambda i, o, bias: GATConv(i, o, dropout=0.5)), graph()
    model.head = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4), model.head).double()
    expected = model.eval()(x, edge_index).detach().max()
    if training == "all":
        model.train()
    elif training == "first":
        model.convs[0].train()
        model.head[1].train()
    with unchanged(model, x, edge_index):
        chain = ww.trace(model, x, edge_index)
    assert chain.output == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_several_threads_may_trace_one_model(net, graph, unchanged, kind):
    model, (x, edge_index) = net(kind), graph()
    expected = ww.subgraph_relevance(ww.trace(model, x, edge_index), [[0, 1]])

    def ask(_):
        return ww.subgraph_relevance(ww.trace(model, x, edge_index), [[0, 1]])

    with unchanged(model, x, edge_index), ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(ask, range(24)))
    torch.testing.assert_close(torch.cat(answers), expected.repeat(24))


@pytest.mark.parametrize("rule", ["zero", "gamma"])
@pytest.mark.parametrize("kind", ["GCN", "GIN", "GAT", "SG"])
def test_a_chain_does_not_change_when_training_goes_on(net, graph, kind, rule):
    model, (x, edge_index) = net(kind), graph()
    chain = ww.trace(model, x, edge_index, rule=rule)
    before = ww.subgraph_relevance(chain, [[0, 1], [0, 1, 2]], alpha=0.5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-2)
    x.mul_(3)
    edge_index.zero_()
    torch.testing.assert_close(ww.subgraph_relevance(chain, [[0, 1], [0, 1, 2]], alpha=0.5), before)


class SpeaksOfItself(nn.Module):
    """Its forward calls a variable outside of it, which happens to be itself."""

    def __init__(self):
        super().__init__()
        self.a, self.b = GCNConv(4, 4), GCNConv(4, 2)

    def encode(self, x, edge_index):
        return self.b(self.a(x, edge_index).relu(), edge_index)

    def forward(self, x, edge_index):
        return model.encode(x, edge_index)  # noqa: F821  (set by the test)


def test_a_forward_may_speak_of_the_model_by_its_name_outside(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setitem(globals(), "model", SpeaksOfItself().eval())
    x, edges = torch.randn(3, 4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    chain = ww.trace(globals()["model"], x, edges, index=1, target=0)
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    assert "forward" not in globals()["model"].__dict__


def test_what_a_forward_closes_over_is_not_copied():
    kept = {"scale": 1.0, "function": len}

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = GCNConv(4, 2)

        def forward(self, x, edge_index):
            kept["x"] = x
            return self.a(kept["x"] * kept["scale"], edge_index)

    ww.trace(Keeps().eval(), torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]), index=1, target=0)
    assert "x" in kept
