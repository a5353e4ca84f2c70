"""Places where a changed sign, bound or index would pass unnoticed elsewhere."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import walkwise as ww
from walkwise.rules import AlphaBeta, Epsilon, Gamma, GeneralisedGamma, PositivePart, Zero, ZPlus, divide
from walkwise.tracing.linearize import EdgeShelf

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    yield
    torch.set_default_dtype(torch.float32)


def test_the_positive_part_holds_biases_by_size_on_either_side():
    bias = torch.tensor([2.0, -3.0, 0.0])
    plus, minus = PositivePart().hold(bias)
    assert plus.tolist() == [2, 3, 0]
    assert minus.tolist() == [-2, -3, 0]


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


# Rules, at the edges of their domains


def test_a_sum_of_exactly_zero_counts_as_positive():
    rule = GeneralisedGamma(1.0)
    one = torch.ones(1)
    first, second = rule.factors(one, 0 * one, 2 * one, -2 * one)
    assert (float(first), float(second)) == (1.0, 0.5)


def test_generalised_gamma_favours_what_agrees():
    rule, value = GeneralisedGamma(3.0), torch.tensor([1.0, 1.0])
    z, plus, minus = torch.tensor([1.0, -1.0]), torch.tensor([3.0, 2.0]), torch.tensor([-2.0, -3.0])
    first, second = rule.factors(value, z, plus, minus)
    assert first.tolist() == pytest.approx([0.4, -0.1])  # 4 / (1 + 9), 1 / (−1 − 9)
    assert second.tolist() == pytest.approx([0.1, -0.4])


def test_epsilon_is_added_away_from_zero():
    ratio = Epsilon(0.5).ratio(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([1.5, -1.5, 0.0]))
    assert ratio.tolist() == [0.5, -0.5, 2.0]


def test_what_rules_hold_of_biases():
    bias = torch.tensor([2.0, -3.0])
    assert [t.tolist() for t in Zero().hold(bias)] == [[2, -3]]
    assert [t.tolist() for t in Gamma(2.0).hold(bias)] == [[6, -3]]
    for rule in (AlphaBeta(2.0, 1.0), ZPlus(), GeneralisedGamma(3.0)):
        assert [t.tolist() for t in rule.hold(bias)] == [[2, 0], [0, -3]]


def test_shares_of_both_signs():
    value, plus, minus = torch.tensor([6.0]), torch.tensor([3.0]), torch.tensor([-2.0])
    first, second = AlphaBeta(2.0, 1.0).factors(value, plus + minus, plus, minus)
    assert (float(first), float(second)) == (4.0, 3.0)  # 2 · 6 / 3, −1 · 6 / −2
    first, second = ZPlus().factors(value, plus + minus, plus, minus)
    assert float(first) == 2.0
    assert second is None


def test_nothing_is_divided_by_nothing():
    assert divide(torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rule", [Zero(), Epsilon(0.0), Gamma(0.0), GeneralisedGamma(0.0)], ids=repr)
def test_lrp_0_is_gradient_times_input_even_where_contributions_cancel(rule):
    """Node 1 adds up 2 and −2, and passes both on all the same."""

    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.GraphConv(1, 1, bias=False)
            nn.init.constant_(self.conv.lin_rel.weight, 2.0)
            nn.init.zeros_(self.conv.lin_root.weight)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index).sum(0, keepdim=True)

    x, edges = torch.tensor([[1.0], [5.0], [-1.0]]), torch.tensor([[0, 2], [1, 1]])
    chain = ww.trace(Added(), x, edges, rule=rule)
    assert chain.output == 0
    assert ww.node_relevance(chain).tolist() == [2, 0, -2]
    assert rule.exact


def test_other_rules_are_not_the_map_itself():
    others = [Epsilon(1.0), Gamma(1.0), GeneralisedGamma(1.0), AlphaBeta(), ZPlus(), PositivePart()]
    assert not any(rule.exact for rule in others)
    assert [rule.splits for rule in others] == [False, False, True, True, True, True]
    assert not GeneralisedGamma(0.0).splits
