"""Layers that are run natively give what they give when they run themselves, and unusual ones do run themselves."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import MLP
from torch_geometric.nn import conv as pyg

import walkwise as ww
from walkwise.tracing.linearize import EdgeShelf
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running import watch
from walkwise.tracing.running.native import Native

#: A self-loop at 1, a node without edges (5), a doubled edge (0-1), one way only (3 to 4).
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 1, 3, 0], [1, 0, 2, 1, 3, 2, 1, 4, 1]])
RULES = ["zero", "gamma", "auto", "epsilon", "alphabeta", "zplus", ww.rules.GeneralisedGamma(0.5)]


def perceptron(*between):
    return nn.Sequential(nn.Linear(6, 8), *between, nn.Linear(8, 6), nn.ReLU(inplace=True))


def normalised():
    norm = nn.BatchNorm1d(8)
    with torch.no_grad():
        for tensor in (norm.running_mean, norm.weight, norm.bias):
            tensor.normal_()
        norm.running_var.uniform_(0.5, 2)
    return norm


def gin(inner, **options):
    return pyg.GINConv(inner, **options)


def weights():
    return {"edge_weight": torch.rand(EDGES.shape[1], dtype=torch.double) + 0.1}


#: How a layer of width 6 is made, and what it is given besides.
NATIVE = {
    "GIN": (lambda: gin(perceptron(nn.ReLU())), dict),
    "GIN-norm": (lambda: gin(perceptron(normalised(), nn.ReLU(), nn.Dropout(0.5))), dict),
    "GIN-eps": (lambda: gin(perceptron(nn.ReLU(), nn.Identity()), eps=0.3, train_eps=True), dict),
    "GIN-mean": (lambda: gin(nn.Linear(6, 6, bias=False), aggr="mean"), dict),
    "GIN-identity": (lambda: gin(nn.Identity()), dict),
    "GIN-MLP": (lambda: gin(MLP([6, 8, 6], norm=None)), dict),
    "GIN-MLP-act-first": (lambda: gin(MLP([6, 8, 6], norm=None, act_first=True, plain_last=False)), dict),
    "GIN-back": (lambda: gin(perceptron(nn.ReLU()), flow="target_to_source"), dict),
    "GCN": (lambda: pyg.GCNConv(6, 6), dict),
    "GCN-no-bias": (lambda: pyg.GCNConv(6, 6, bias=False), dict),
    "GCN-improved": (lambda: pyg.GCNConv(6, 6, improved=True), dict),
    "GCN-no-loops": (lambda: pyg.GCNConv(6, 6, add_self_loops=False), dict),
    "GCN-weights": (lambda: pyg.GCNConv(6, 6), weights),
    "GCN-back": (lambda: pyg.GCNConv(6, 6, flow="target_to_source"), dict),
    "SAGE": (lambda: pyg.SAGEConv(6, 6), dict),
    "SAGE-sum": (lambda: pyg.SAGEConv(6, 6, aggr="sum", bias=False), dict),
    "SAGE-no-root": (lambda: pyg.SAGEConv(6, 6, root_weight=False), dict),
    "SAGE-none": (lambda: pyg.SAGEConv(6, 6), lambda: {"size": None}),
    "Graph": (lambda: pyg.GraphConv(6, 6), dict),
    "Graph-weights": (lambda: pyg.GraphConv(6, 6), weights),
    "Graph-mean-weights": (lambda: pyg.GraphConv(6, 6, aggr="mean"), weights),
    "GAT": (lambda: pyg.GATConv(6, 6), dict),
    "GAT-heads": (lambda: pyg.GATConv(6, 2, heads=3, dropout=0.4), dict),
    "GAT-no-loops": (lambda: pyg.GATConv(6, 3, heads=2, add_self_loops=False, bias=False), dict),
    "GAT-back": (lambda: pyg.GATConv(6, 6, flow="target_to_source"), dict),
    "GAT-one-head": (lambda: pyg.GATConv(6, 6, concat=False), dict),
}


def hooked(layer, part=None):
    (layer if part is None else getattr(layer, part)).register_forward_hook(lambda *given: None)
    return layer


def with_message_hook(layer):
    layer.register_message_forward_hook(lambda module, given, out: out)
    return layer


def with_own_forward(layer):
    layer.forward = layer.forward
    return layer


class OwnGCN(pyg.GCNConv):
    """A layer of somebody else's."""


UNUSUAL = {
    "GIN-negative-root": (lambda: gin(nn.Identity(), eps=-1.5), dict),
    "GIN-tanh": (lambda: gin(perceptron(nn.Tanh())), dict),
    "GIN-pyg-norm": (lambda: gin(MLP([6, 8, 6])), dict),
    "GIN-max": (lambda: gin(perceptron(nn.ReLU()), aggr="max"), dict),
    "GIN-hooked-linear": (lambda: gin(hooked(nn.Linear(6, 6))), dict),
    "GIN-no-statistics": (lambda: gin(perceptron(nn.BatchNorm1d(8, track_running_stats=False))), dict),
    "GCN-cached": (lambda: pyg.GCNConv(6, 6, cached=True), dict),
    "GCN-plain": (lambda: pyg.GCNConv(6, 6, normalize=False, add_self_loops=False), weights),
    "GCN-hooked": (lambda: hooked(pyg.GCNConv(6, 6), "lin"), dict),
    "GCN-message-hook": (lambda: with_message_hook(pyg.GCNConv(6, 6)), dict),
    "GCN-own-forward": (lambda: with_own_forward(pyg.GCNConv(6, 6)), dict),
    "GCN-subclass": (lambda: OwnGCN(6, 6), dict),
    "GCN-decomposed": (lambda: pyg.GCNConv(6, 6, decomposed_layers=2), dict),
    "SAGE-project": (lambda: pyg.SAGEConv(6, 6, project=True), dict),
    "SAGE-normalize": (lambda: pyg.SAGEConv(6, 6, normalize=True), dict),
    "SAGE-size": (lambda: pyg.SAGEConv(6, 6), lambda: {"size": (6, 6)}),
    "GAT-mean-of-heads": (lambda: pyg.GATConv(6, 6, heads=2, concat=False), dict),
    "GAT-residual": (lambda: pyg.GATConv(6, 6, residual=True), dict),
    "GAT-edges": (lambda: pyg.GATConv(6, 6, edge_dim=1), lambda: {"edge_attr": weights()["edge_weight"].view(-1, 1)}),
    "GAT-bipartite": (lambda: pyg.GATConv((6, 6), 6), dict),
}


class Two(nn.Module):
    """The same kind of layer twice, with a ReLU between and a sum at the end."""

    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(), make()

    def forward(self, x, edge_index, **given):
        return self.second(self.first(x, edge_index, **given).relu(), edge_index, **given).sum(0, keepdim=True)


def made(make):
    torch.manual_seed(3)
    model = Two(make).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1 and parameter.numel() > 1:
                parameter.normal_(std=0.5)
    return model


def answers(chain):
    subgraphs = [[0], [0, 1], [1, 2, 3], [5], [0, 1, 2, 3, 4, 5]]
    inside = ww.subgraph_relevance(chain, subgraphs, alpha=[0.0, 0.4, 1.0])
    return torch.cat([inside.flatten(), ww.node_relevance(chain).flatten(), chain.outputs])


@pytest.fixture
def counted(monkeypatch):
    """How many layers were run natively."""
    runs, layer = [], Native.layer

    def counting(self, *given):
        result = layer(self, *given)
        runs.append(result is not None)
        return result

    monkeypatch.setattr(Native, "layer", counting)
    return runs


def compared(name, table, rule, monkeypatch):
    make, given = table[name]
    model, x = made(make), torch.randn(6, 6, dtype=torch.double)
    arguments = given()
    found = ww.trace(model, x, EDGES, target=2, rule=rule, **arguments)
    with monkeypatch.context() as off:
        off.setattr(watch, "is_native", lambda conv: False)
        expected = ww.trace(model, x, EDGES, target=2, rule=rule, **arguments)
    torch.testing.assert_close(answers(found), answers(expected), rtol=1e-11, atol=1e-12)
    assert [(layer.name, layer.route) for layer in found.layers] == [(o.name, o.route) for o in expected.layers]
    assert found.notes == expected.notes


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("name", NATIVE)
def test_a_native_layer_gives_what_it_gives_by_itself(name, rule, monkeypatch, counted):
    compared(name, NATIVE, rule, monkeypatch)
    assert counted == [True, True]


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_layer_runs_itself(name, monkeypatch, counted):
    compared(name, UNUSUAL, "gamma", monkeypatch)
    assert not any(counted)


def test_a_hook_on_all_modules_hears_every_one(counted):
    heard = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *given: heard.append(type(module).__name__))
    try:
        ww.trace(made(NATIVE["GCN"][0]), torch.randn(6, 6, dtype=torch.double), EDGES, target=0)
    finally:
        handle.remove()
    assert heard.count("Linear") == 2
    assert not any(counted)


def test_edges_that_a_model_writes_into_are_read_anew(monkeypatch):
    class Rewired(Two):
        def forward(self, x, edge_index, **given):
            x = self.first(x, edge_index).relu()
            edge_index[1, 0] = 4
            return self.second(x, edge_index).sum(0, keepdim=True)

    for make in (NATIVE["GCN"][0], NATIVE["GAT"][0], NATIVE["SAGE"][0]):
        torch.manual_seed(0)
        model, x = Rewired(make).double().eval(), torch.randn(6, 6, dtype=torch.double)
        found = answers(ww.trace(model, x, EDGES.clone(), target=1))
        with monkeypatch.context() as off:
            off.setattr(watch, "is_native", lambda conv: False)
            expected = answers(ww.trace(model, x, EDGES.clone(), target=1))
        torch.testing.assert_close(found, expected)


def test_a_chain_outlives_training(counted):
    for name in ("GIN", "GCN-weights", "Graph-weights", "GAT"):
        make, given = NATIVE[name]
        model, arguments, x = made(make), given(), torch.randn(6, 6, dtype=torch.double)
        chain = ww.trace(model, x, EDGES, target=2, **arguments)
        before = answers(ww.trace(model, x, EDGES, target=2, **arguments))
        with torch.no_grad():
            for tensor in (*model.parameters(), *arguments.values()):
                tensor.add_(1)
        torch.testing.assert_close(answers(chain), before)
    assert all(counted)


def test_what_is_out_of_the_ordinary_is_left_to_the_layer():
    """Features and edges of other shapes or types than usual, and arguments that the recipe does not know."""
    x, edges, each = torch.rand(4, 6), torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.rand(3)
    conv, native = pyg.GraphConv(6, 6).eval(), Native(Tape(), EdgeShelf())
    assert native._given(conv, (x, edges), {"edge_weight": each, "size": None}) == (x, edges, each)
    assert native._given(conv, (x, edges), {}) == (x, edges, None)
    for args in [
        (x[None], edges), (x.long(), edges), (x, edges.int()), (x, edges[0]), (x, edges[[0, 1, 1]]),
        ((x, x), edges), (x, edges.t()), (x,), (x, edges, each),
    ]:  # fmt: skip
        assert native._given(conv, args, {}) is None
    for kwargs in [
        {"size": (4, 4)}, {"edge_attr": each}, {"edge_weight": each.double()}, {"edge_weight": each[:2]},
        {"edge_weight": each[:, None]},
    ]:  # fmt: skip
        assert native._given(conv, (x, edges), kwargs) is None
