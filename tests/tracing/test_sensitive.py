"""Places where a changed sign, bound or index would pass unnoticed elsewhere."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import walkwise as ww
from walkwise.rules import AlphaBeta, Gamma, GeneralisedGamma, PositivePart
from walkwise.tracing.linearize import EdgeShelf

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    yield
    torch.set_default_dtype(torch.float32)


def test_the_positive_part_holds_a_bias_that_a_negative_weight_turns_over():
    """Two weights in one stretch, the second a number: x → w x + b → −(w x + b)."""

    class Turned(pyg.MessagePassing):
        def __init__(self):
            super().__init__(aggr="add")
            self.lin = nn.Linear(2, 2)

        def forward(self, x, edge_index):
            return -1.5 * self.propagate(edge_index, x=self.lin(x))

        def message(self, x_j):
            return x_j

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = Turned()

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).sum().view(1, 1)

    model, x = Model(), torch.randn(4, 2)
    conv = model.conv
    nn.init.constant_(conv.lin.bias[0], 0.7)
    nn.init.constant_(conv.lin.bias[1], -0.4)
    with torch.no_grad():
        adjacency = torch.zeros(4, 4).index_put((EDGES[1], EDGES[0]), torch.tensor(1.0))
        c = -1.5 * torch.einsum("ba,an,kn->anbk", adjacency, x, conv.lin.weight).clamp(max=0)  # what contributes > 0
        held = 1.5 * adjacency.sum(1)[:, None] * conv.lin.bias.abs()  # (M, N)
        z = -1.5 * (adjacency @ conv.lin(x))
        expected = (c / (c.sum((0, 1)) + held) * z).sum((1, 2, 3))
    chain = ww.trace(model, x, EDGES, rule=PositivePart())
    torch.testing.assert_close(ww.node_relevance(chain), expected)


class Between(nn.Module):
    """Three layers, a linear map before them, between the last two and behind them."""

    def __init__(self):
        super().__init__()
        self.before, self.between, self.behind = (nn.Linear(3, 3, bias=False) for _ in range(3))
        self.zeroth, self.first, self.second = (pyg.GCNConv(3, 3, bias=False) for _ in range(3))

    def forward(self, x, edge_index):
        h = self.before(x).tanh()
        h = self.zeroth(h, edge_index).tanh()
        h = self.first(h, edge_index).tanh()
        h = self.between(h).tanh()
        return self.behind(self.second(h, edge_index).tanh()).sum(0, keepdim=True)


def shares(weight, x, rule):
    """One linear map under the γ rule: the share of every input entry in every output.  # (M, N, N')"""
    c = x[:, :, None] * (weight + rule.gamma * weight.clamp(min=0)).t()
    return c / c.sum(1, keepdim=True)


def test_a_map_between_layers_is_under_the_rule_of_the_layer_before_it():
    """And one before the first layer under the first one's, one behind the last under the read-out's."""
    model, x, rules = Between(), torch.rand(4, 3) + 0.1, [Gamma(9.0), Gamma(0.5), Gamma(4.0)]
    with torch.no_grad():
        for linear in (model.before, model.between, model.behind):
            linear.weight.uniform_(-0.3, 1)  # so that all sums are positive
        adjacency = pyg.GCNConv(1, 1, bias=False)
        nn.init.ones_(adjacency.lin.weight)
        A = torch.cat([adjacency(column[:, None], EDGES) for column in torch.eye(4)], dim=1)  # (M', M)
        h0 = model.before(x).tanh()
        early = model.zeroth(h0, EDGES).tanh()
        h1 = model.first(early, EDGES).tanh()
        h2 = model.between(h1).tanh()
        h3 = model.second(h2, EDGES).tanh()
        relevance = h3 * model.behind.weight[0]
        relevance = _through_layer(A, model.second, h2, relevance, rules[2])
        relevance = torch.einsum("mnk,mk->mn", shares(model.between.weight, h1, rules[1]), relevance)
        relevance = _through_layer(A, model.first, early, relevance, rules[1])
        relevance = _through_layer(A, model.zeroth, h0, relevance, rules[0])
        relevance = torch.einsum("mnk,mk->mn", shares(model.before.weight, x, rules[0]), relevance)
    chain = ww.trace(model, x, EDGES, target=0, rule=rules)
    torch.testing.assert_close(ww.feature_relevance(chain), relevance)


def _through_layer(A, conv, H, relevance, rule):
    weight = conv.lin.weight + rule.gamma * conv.lin.weight.clamp(min=0)
    c = torch.einsum("ba,an,kn->anbk", A, H, weight)
    return torch.einsum("anbk,bk->an", c / c.sum((0, 1)), relevance)


def test_edges_of_another_number_of_nodes_are_others():
    shelf = EdgeShelf()
    small, large = (shelf.get(EDGES, nodes, "source_to_target") for nodes in (4, 6))
    assert (small.num_nodes, large.num_nodes) == (4, 6)
    assert shelf.get(EDGES, 4, "source_to_target") is small
    assert shelf.get(EDGES.clone(), 6, "source_to_target") is large
    assert shelf.get(EDGES, 6, "target_to_source") is not large
    written = EDGES.clone()
    before = shelf.get(written, 4, "source_to_target")
    written[0, 0] = 3
    assert shelf.get(written, 4, "source_to_target") is not before


class Joined(nn.Module):
    """A layer of two weights side by side, or of one that is both, and a normalisation that turns neurons over."""

    def __init__(self, apart, scale):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b, self.norm, self.apart = nn.Linear(2, 2), nn.Linear(2, 3), nn.BatchNorm1d(5), apart
        self.norm.weight.data, self.norm.bias.data = torch.tensor(scale), torch.tensor([0.3, -0.2, 0.5, 0.1, -0.4])
        self.norm.running_mean.uniform_(-1, 1)
        self.conv = pyg.SimpleConv()

    def forward(self, x, edge_index):
        both = torch.cat([self.a.weight, self.b.weight]), torch.cat([self.a.bias, self.b.bias])
        h = torch.cat([self.a(x), self.b(x)], -1) if self.apart else nn.functional.linear(x, *both)
        return self.norm(self.conv(h, edge_index)).relu().sum().view(1, 1)


@pytest.mark.parametrize("rule", [Gamma(2.0), GeneralisedGamma(2.0), AlphaBeta()], ids=repr)
@pytest.mark.parametrize("scale", [[-1.0, -2.0, -0.5, -1.5, -3.0], [1.0, -2.0, 0.5, -1.5, 3.0]], ids=["all", "some"])
def test_weights_side_by_side_are_turned_over_as_one_would_be(scale, rule):
    x = torch.randn(4, 2)
    ours, theirs = (ww.trace(Joined(apart, scale).eval(), x, EDGES, rule=rule) for apart in (True, False))
    assert abs(ours.output) > 0.1
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(theirs))
    torch.testing.assert_close(ww.subgraph_relevance(ours, [[0, 1]]), ww.subgraph_relevance(theirs, [[0, 1]]))


def test_modules_in_lists_in_lists_are_followed():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.GCNConv(2, 1)
            self.kept = {"all": [[self.conv]]}

        def forward(self, x, edge_index):
            return self.kept["all"][0][0](x, edge_index).sum().view(1, 1)

    model, x = Nested(), torch.randn(4, 2)
    chain = ww.trace(model, x, EDGES)
    assert chain.num_layers == 1
    assert chain.output == pytest.approx(float(model(x, EDGES).detach()))
