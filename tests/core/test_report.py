"""What print(chain) says: routes, rules, and numbers that balance."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.nn import BatchNorm, GCNConv, SAGEConv

import walkwise as ww
from walkwise.core.report import Balance, balances
from walkwise.errors import CoverageWarning
from walkwise.rules import Gamma, Schedule, Zero


class Softest(GCNConv):
    """A layer with a function in it that has no rule."""

    def forward(self, x, edge_index):
        found = super().forward(x, edge_index)
        return torch.logaddexp(found, 0.5 * found)


KINDS = ["GCN", "GIN", "SAGE", "GAT", "SG", "Transformer"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["zero", "gamma", "epsilon", "alphabeta"])
def test_relevance_balances(net, graph, kind, rule):
    chain = ww.trace(net(kind), *graph(), rule=rule)
    first, second, readout = balances(chain)
    assert first.relevance_in == pytest.approx(chain.input_relevance)
    assert second.relevance_in == pytest.approx(first.relevance_out)
    assert readout.relevance_in == pytest.approx(second.relevance_out)
    assert readout.relevance_out == pytest.approx(chain.output)
    for part in (first, second, readout):
        assert part.taken == pytest.approx(part.relevance_out - part.relevance_in)
        assert abs(part.taken) > 1e-6
    taken = sum(part.taken for part in balances(chain))
    assert taken == pytest.approx(chain.output - chain.input_relevance)
    assert taken == pytest.approx(chain.bias_leak)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_taken_without_biases(net, graph, kind):
    for part in balances(ww.trace(net(kind, bias=False), *graph(), rule="zero")):
        assert part.taken == pytest.approx(0, abs=1e-12)


class Sampled(nn.Module):
    """Layers that are handed all rows and the first of them, as of sampled subgraphs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = SAGEConv(3, 4, bias=False), SAGEConv(4, 2, bias=False)
        self.double()

    def forward(self, x, edge_index):
        h = self.first((x, x[:4]), edge_index[:, edge_index[1] < 4]).relu()
        return self.second((h, h[:2]), edge_index[:, (edge_index[0] < 4) & (edge_index[1] < 2)]).sum(0, keepdim=True)


def test_rows_that_are_handed_over_twice_count_once():
    edge_index = torch.tensor([[5, 4, 3, 3, 2, 1, 0], [3, 2, 1, 0, 0, 0, 1]])
    chain = ww.trace(Sampled(), torch.randn(6, 3, dtype=torch.float64), edge_index, target=0, rule="zero")
    first, second, readout = balances(chain)
    assert chain.output == pytest.approx(first.relevance_in)
    for part in (first, second, readout):
        assert part.relevance_in == pytest.approx(part.relevance_out)


class Dressed(nn.Module):
    """Layers with something between them that has a bias of its own."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.second = GCNConv(3, 4), between, GCNConv(4, 2)
        for parameter in self.parameters():
            nn.init.normal_(parameter)
        self.double().eval()

    def forward(self, x, edge_index):
        return self.second(self.between(self.first(x, edge_index)).relu(), edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize("between", [BatchNorm(4), nn.Linear(4, 4), nn.LayerNorm(4)], ids=lambda m: type(m).__name__)
def test_biases_between_layers_are_accounted_for(graph, between):
    chain = ww.trace(Dressed(between), *graph())
    assert sum(part.taken for part in balances(chain)) == pytest.approx(chain.output - chain.input_relevance)


def test_a_bias_takes_its_own_value(net, graph):
    """Under LRP-0 the read-out's bias keeps just itself."""
    model = net()
    chain = ww.trace(model, *graph(), target=1, rule="zero")
    assert balances(chain)[-1].taken == pytest.approx(float(model.head.bias[1].detach()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_has_a_line(net, graph, kind):
    rule = Schedule(lambda num_layers: (Gamma(2.0), Zero()), readout=Gamma(0.5))
    model = net(kind)
    chain = ww.trace(model, *graph(), rule=rule)
    headline, header, *lines = chain.report().splitlines()
    assert str(chain) == chain.report()
    assert headline.startswith(f"RelevanceChain(2 layers, 6 nodes, output={chain.output:.6g}")
    assert f"{chain.input_relevance:.6g}" in headline
    assert f"bias leak={chain.bias_leak:.3g}" in headline
    assert header.split()[:4] == ["layer", "kind", "route", "rule"]
    for words in ("relevance out", "relevance in", "absorbed"):
        assert words in header
    route = "autograd" if kind == "ARMA" else "closed form"
    layer = type(model.convs[0]).__name__
    facts = [("convs.0", layer, route, "Gamma(gamma=2.0)"), ("convs.1", layer, route, "Zero()")]
    lines = [line for line in lines if not line.startswith("caution:")]
    for line, part, words in zip(lines, balances(chain), [*facts, ("read-out", "Gamma(gamma=0.5)")], strict=True):
        assert all(word in line for word in words)
        assert line.split()[-3:] == [f"{v:.6g}" for v in (part.relevance_out, part.relevance_in, part.taken)]


def test_a_layer_called_twice_is_two_lines(graph):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(3, 3).double()

        def forward(self, x, edge_index):
            return self.conv(self.conv(x, edge_index).relu(), edge_index).sum(0, keepdim=True)

    chain = ww.trace(Twice(), *graph())
    assert [layer.name for layer in chain.layers] == ["conv", "conv"]
    assert chain.num_layers == 2


def test_what_is_absorbed_within_rounding_is_nothing():
    def taken(out, back):
        return Balance("conv", "GCNConv", "closed form", "Zero()", out, back, rounding=0.25).taken

    assert (taken(4.0, 3.0), taken(-3.0, -4.0)) == (0, 0)  # as much as rounding can make, and no more
    assert (taken(4.0, 2.5), taken(-2.5, -4.0), taken(2.0, -6.0)) == (1.5, 1.5, 8)


def test_remarks_of_a_notebook_begin_with_a_capital(net, graph):
    chain = replace(ww.trace(net(), *graph(), target=0), notes=("as it is: a < b",))
    assert "note: as it is: a < b" in chain.report()
    assert ">Note: as it is: a &lt; b<" in chain._repr_html_()


def test_the_normaliser_of_log_softmax_is_no_bias(net, graph):
    """All that did not reach the input is the normaliser: biases absorb nothing, and nobody is cautioned."""
    chain = ww.trace(net(bias=False), *graph(), rule="zero")
    reached = chain.input_relevance
    normalised = replace(chain, outputs=torch.tensor([2 * reached], dtype=torch.float64), normaliser=reached)
    assert normalised.bias_leak == pytest.approx(reached)
    assert not [caution for caution in normalised.cautions if "absorb" in caution]
    leaking = replace(normalised, normaliser=0.0, outputs=-10 * normalised.outputs)
    assert [caution for caution in leaking.cautions if "absorb 105% of the output, and walks sum to" in caution]


def test_what_has_no_rule_is_said(net, graph):
    model = net(lambda i, o, bias: Softest(i, o), layers=1)
    with pytest.warns(CoverageWarning, match=r"logaddexp in layer 'convs\.0' \(Softest\).*plain gradient"):
        chain = ww.trace(model, *graph())
    noted = [line for line in chain.report().splitlines() if line.startswith("note: ")]
    assert noted == ["note: logaddexp in layer 'convs.0' (Softest) has no rule; its plain gradient was used"]
    assert chain.notes
    assert chain.layers[0].route == "autograd"


def test_the_warning_points_at_the_caller(net, graph):
    model = net(lambda i, o, bias: Softest(i, o), layers=1)
    with pytest.warns(CoverageWarning) as caught:
        ww.trace(model, *graph())
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("kind", KINDS)
def test_covered_models_give_no_warning(net, graph, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain = ww.trace(net(kind), *graph())
    assert chain.notes == ()
    assert "note" not in chain.report()


def test_what_is_read_around_the_first_layer_is_noted_where_no_walk_can_begin(graph):
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.skip = GCNConv(3, 2).double(), nn.Linear(3, 2).double()
            self.pairs = GCNConv(3, 3).double()

        def forward(self, x, edge_index):
            pairs = self.pairs(x[[0, 0, 1]], edge_index[:, :1])  # a layer on nodes several times over
            h = self.conv(x.tanh() + pairs.mean(0), edge_index)
            return (h + self.skip(pairs).mean(0)).sum(0, keepdim=True)

    chain = ww.trace(Skipping(), *graph())
    assert "note: the model also reads its input features past the first message-passing layer" in chain.report()
