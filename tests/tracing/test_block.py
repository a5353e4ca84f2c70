"""Layers recorded in one piece against the same layers recorded operation by operation."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch_geometric.nn import GIN, MLP, GINConv

import walkwise as ww
from walkwise.rules import AlphaBeta, Epsilon, Gamma, Zero
from walkwise.tracing import lowering, watch

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 0, 2, 2], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4, 4]])
SETS = [[0], [1, 2], [0, 1, 2, 3], [4], [0, 1, 2, 3, 4]]


class Model(nn.Module):
    def __init__(self, *perceptrons, eps=0.0, train_eps=False, after=lambda h: h, skip=False, aggr="add"):
        super().__init__()
        self.convs = nn.ModuleList(GINConv(p, eps=eps, train_eps=train_eps, aggr=aggr) for p in perceptrons)
        self.after, self.skip = after, skip

    def forward(self, x, edge_index):
        for conv in self.convs:
            h = self.after(conv(x, edge_index))
            x = h + x if self.skip and h.shape == x.shape else h
        return x.sum(dim=0, keepdim=True)


def perceptron(i, o, *, end=True, bias=True):
    layers = [nn.Linear(i, 6, bias=bias), nn.ReLU(), nn.Linear(6, o, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[: 4 if end else 3])


MODELS = {
    "paper": lambda: Model(perceptron(3, 5), perceptron(5, 5), nn.Linear(5, 2)),
    "relu outside": lambda: Model(perceptron(3, 5, end=False), perceptron(5, 2, end=False), after=torch.relu),
    "tanh outside": lambda: Model(perceptron(3, 5, end=False), perceptron(5, 2), after=torch.tanh),
    "no bias": lambda: Model(perceptron(3, 5, bias=False), nn.Linear(5, 2, bias=False)),
    "epsilon": lambda: Model(perceptron(3, 5), perceptron(5, 2), eps=0.4),
    "mean": lambda: Model(perceptron(3, 5), perceptron(5, 2), eps=0.4, aggr="mean"),
    "trained epsilon": lambda: Model(perceptron(3, 5), perceptron(5, 2), eps=-0.3, train_eps=True),
    "skip": lambda: Model(perceptron(3, 5), perceptron(5, 5), perceptron(5, 5), skip=True),
    "dropout": lambda: Model(
        nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2), nn.Identity())
    ),
    "pyg's perceptron": lambda: Model(MLP([3, 6, 5], norm=None), MLP([5, 4, 2], norm=None, plain_last=False)),
    "act first": lambda: Model(MLP([3, 6, 5], norm=None, act_first=True, dropout=0.3), MLP([5, 2], norm=None)),
    "no activation": lambda: Model(MLP([3, 6, 5], norm=None, act=None), nn.Linear(5, 2)),
    "functions": lambda: Model(MLP([3, 6, 5], norm=None, act=torch.relu), MLP([5, 4, 2], norm=None, act=torch.tanh)),
    "normalised inside": lambda: Model(MLP([3, 5, 5], norm="batch_norm"), nn.Linear(5, 2)),
    "normalised after": lambda: Model(perceptron(3, 5), perceptron(5, 5), after=nn.BatchNorm1d(5)),
}


@dataclass(frozen=True)
class Doubled(Gamma):
    """A rule of a user's own."""

    def lift(self, weight):
        return super().lift(weight) + weight.clamp(max=0)


RULES = {
    "a user's": Doubled(0.7),
    "gamma": "gamma",
    "zero": Zero(),
    "epsilon": Epsilon(0.1),
    "one gamma": Gamma(0.7),
    "alphabeta": AlphaBeta(2, 1),
    "zplus": "zplus",
}


def model_of(name):
    torch.manual_seed(3)
    model = MODELS[name]().double().eval()
    for parameter in model.parameters():
        if parameter.numel() > 1:
            nn.init.normal_(parameter, std=0.7)
    for buffer in model.buffers():
        if buffer.dtype == torch.float64 and buffer.numel() == 5:
            nn.init.uniform_(buffer, 0.5, 2)
    return model


def alive(model):
    """Node features and a column with something to explain: perceptrons that end in a ReLU may give nothing but 0."""
    for seed in range(100):
        x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        output = model(x, EDGES)[0].detach()
        if output.abs().max() > 0.1:
            return x, int(output.abs().argmax())
    raise AssertionError("the model gives 0 whatever it is handed")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", MODELS)
def test_one_piece_gives_what_its_operations_give(name, rule, monkeypatch):
    model = model_of(name)
    x, target = alive(model)
    whole = ww.trace(model, x, EDGES, target=target, rule=RULES[rule])
    monkeypatch.setattr(watch, "layers_of", lambda conv: None)
    pieces = ww.trace(model, x, EDGES, target=target, rule=RULES[rule])
    assert whole.output == pytest.approx(float(model(x, EDGES)[0, target].detach()), rel=1e-12)
    assert [(la.name, la.route, la.rule, la.position) for la in whole.layers] == [
        (la.name, la.route, la.rule, la.position) for la in pieces.layers
    ]
    for alpha in (0.0, 0.3, 1.0):
        ours = ww.subgraph_relevance(whole, SETS, alpha=alpha)
        torch.testing.assert_close(ours, ww.subgraph_relevance(pieces, SETS, alpha=alpha), rtol=1e-11, atol=1e-11)
    assert ours.abs().max() > 1e-6
    assert whole.report() == pieces.report()


@pytest.mark.parametrize("name", MODELS)
def test_a_block_can_be_taken_apart_again(name, monkeypatch):
    model = model_of(name)
    x, target = alive(model)
    whole = ww.subgraph_relevance(ww.trace(model, x, EDGES, target=target), SETS, alpha=0.3)
    monkeypatch.setattr(lowering, "_in_detail", lambda ops, schedule: True)
    apart = ww.subgraph_relevance(ww.trace(model, x, EDGES, target=target), SETS, alpha=0.3)
    torch.testing.assert_close(whole, apart, rtol=1e-11, atol=1e-11)


def test_the_papers_layers_are_blocks():
    """Otherwise the comparisons above would compare a thing with itself."""
    for conv in model_of("paper").convs:
        assert watch.layers_of(conv) is not None


class Mine(GINConv):
    pass


def hooked(conv):
    conv.nn[0].register_forward_hook(lambda module, args, result: 2 * result)
    return conv


def patched(conv):
    conv.nn[2].forward = lambda h: 3 * h
    return conv


@pytest.mark.parametrize(
    "conv",
    [
        GINConv(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU())),
        GINConv(nn.Sequential(nn.Linear(3, 4), nn.Tanh())),
        GINConv(nn.Identity()),
        GINConv(MLP([3, 4, 4], norm=None, act=torch.relu)),
        Mine(perceptron(3, 4)),
        hooked(GINConv(perceptron(3, 4))),
        patched(GINConv(perceptron(3, 4))),
        GINConv(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)))),
    ],
    ids=["norm", "tanh", "identity", "function", "subclass", "hooked", "patched", "parametrised"],
)
def test_what_is_not_quite_a_block_is_none(conv):
    assert watch.layers_of(conv) is None
    x = torch.randn(5, 3)
    chain = ww.trace(conv.eval(), x, EDGES, index=0, target=1)
    torch.testing.assert_close(chain.outputs, conv(x, EDGES)[0, 1:2].detach())


def added_in_place(h, x):
    h += x
    return h


@pytest.mark.parametrize("write", [added_in_place, lambda h, x: h.mul_(2), lambda h, x: h.tanh_()])
@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("rule", ["gamma", "zero", "alphabeta"])
def test_a_model_may_write_into_what_a_block_gave(rule, end, write, monkeypatch):
    class Writing(Model):
        def forward(self, x, edge_index):
            x = self.convs[0](x, edge_index)
            for conv in self.convs[1:]:
                x = write(conv(x, edge_index), x)
            return x.sum(dim=0, keepdim=True)

    torch.manual_seed(2)
    model = Writing(perceptron(3, 5), perceptron(5, 5, end=end), perceptron(5, 5, end=end)).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    whole = ww.trace(model, x, EDGES, target=1, rule=rule)
    monkeypatch.setattr(watch, "layers_of", lambda conv: None)
    pieces = ww.trace(model, x, EDGES, target=1, rule=rule)
    torch.testing.assert_close(
        ww.subgraph_relevance(whole, SETS, alpha=0.3), ww.subgraph_relevance(pieces, SETS, alpha=0.3)
    )
    assert whole.report() == pieces.report()


@pytest.mark.parametrize("rule", RULES)
def test_one_epsilon_per_neuron_is_no_block(rule):
    model, x = model_of("paper"), torch.randn(5, 3, dtype=torch.float64)
    model.convs[0].eps = nn.Parameter(torch.randn(3, dtype=torch.float64))
    chain = ww.trace(model, x, EDGES, target=1, rule=RULES[rule])
    torch.testing.assert_close(chain.outputs, model(x, EDGES)[0, 1:2].detach())


def test_a_block_under_no_grad_is_refused_like_any_layer():
    class Frozen(Model):
        def forward(self, x, edge_index):
            with torch.no_grad():
                x = self.convs[0](x, edge_index)
            return self.convs[1](x, edge_index).sum(dim=0, keepdim=True)

    with pytest.raises(ww.errors.TraceError, match=r"convs\.0.*no_grad"):
        ww.trace(Frozen(perceptron(3, 5), perceptron(5, 2)), torch.randn(5, 3), EDGES, target=1)


def test_edges_may_be_written_into_between_layers_and_afterwards():
    class Turning(Model):
        def forward(self, x, edge_index):
            x = self.convs[0](x, edge_index)
            edge_index[0] = edge_index[0].roll(1)
            return self.convs[1](x, edge_index).sum(dim=0, keepdim=True)

    class Plain(Model):
        def forward(self, x, edge_index):
            x = self.convs[0](x, edge_index)
            turned = torch.stack([edge_index[0].roll(1), edge_index[1]])
            return self.convs[1](x, turned).sum(dim=0, keepdim=True)

    torch.manual_seed(0)
    model = Turning(nn.Linear(3, 5), nn.Linear(5, 2)).double()
    plain = Plain(*(conv.nn for conv in model.convs)).double()
    x, edges = torch.randn(5, 3, dtype=torch.float64), EDGES.clone()
    chain = ww.trace(model, x, edges, target=1)
    edges.fill_(0)
    expected = ww.trace(plain, x, EDGES, target=1)
    torch.testing.assert_close(chain.outputs, plain(x, EDGES)[0, 1:2].detach())
    for alpha in (0.0, 0.3):
        torch.testing.assert_close(
            ww.subgraph_relevance(chain, SETS, alpha=alpha), ww.subgraph_relevance(expected, SETS, alpha=alpha)
        )


@pytest.mark.parametrize("name", ["paper", "dropout", "pyg's perceptron", "act first", "no activation"])
def test_is_one_piece(name):
    assert all(watch.layers_of(conv) for conv in MODELS[name]().convs)


def test_pygs_own_model_is_in_pieces_of_its_layers():
    model = GIN(3, 5, num_layers=2, out_channels=2)
    assert all(watch.layers_of(conv) for conv in model.convs)
    normed = GIN(3, 5, num_layers=2, out_channels=2, norm="layer_norm")
    assert watch.layers_of(normed.convs[0]) is None
