"""Rules at the edges of their domains, by hand."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import walkwise as ww
from walkwise.errors import InputError
from walkwise.rules import (
    AlphaBeta,
    Epsilon,
    Gamma,
    GeneralisedGamma,
    PositivePart,
    Rule,
    Schedule,
    Zero,
    ZPlus,
    as_schedule,
    divide,
)


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_a_spent_denominator_makes_room_where_the_quotient_fits():
    numerator, denominator = torch.tensor([3.0, 3.0, 0.0]), torch.tensor([2.0, 0.0, 0.0])
    assert divide(numerator, denominator, spent=True) is denominator
    assert denominator.tolist() == [1.5, 0, 0]
    whole = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    for kept in (whole[0], whole.float(), whole.t(), whole.expand(3, 2, 2), whole.clone().requires_grad_()):
        before = kept.detach().clone()
        quotient = divide(torch.ones(3, 2, 2) if kept.dim() == 3 else torch.ones(2, 2), kept, spent=True)
        torch.testing.assert_close(quotient, (1 / before).double().expand_as(quotient))
        assert torch.equal(kept, before)


def test_a_rule_with_a_ratio_of_its_own_is_asked_for_it():
    surrogate = torch.tensor([1.5, -1.5, 0.0])
    for rule in (Epsilon(0.5), Gamma(2.0)):
        assert torch.equal(rule.spent_ratio(torch.ones(3), surrogate.clone()), rule.ratio(torch.ones(3), surrogate))


def test_the_positive_part_holds_biases_by_size_on_either_side():
    bias = torch.tensor([2.0, -3.0, 0.0])
    plus, minus = PositivePart().hold(bias)
    assert plus.tolist() == [2, 3, 0]
    assert minus.tolist() == [-2, -3, 0]


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


def test_rules_and_schedules_cannot_be_written_into():
    for thing, field in ((Gamma(1.0), "gamma"), (Schedule.constant(Gamma(1.0)), "note")):
        with pytest.raises(FrozenInstanceError):
            setattr(thing, field, getattr(thing, field))


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


@pytest.mark.parametrize("kind", [Epsilon, Gamma, GeneralisedGamma])
def test_amounts_are_finite_and_not_negative(kind):
    for wrong in (-1e-9, float("inf"), float("nan")):
        with pytest.raises(InputError, match="finite"):
            kind(wrong)
    assert kind(0.0).exact


def test_shares_conserve_relevance():
    for alpha, beta in [(2.0, 0.5), (0.5, -0.5), (-1.0, -2.0), (1.0, 1e-8)]:
        with pytest.raises(InputError, match="alpha"):
            AlphaBeta(alpha, beta)
    assert AlphaBeta(1.0, 0.0).shares == (1, 0)
    assert (ZPlus().shares, PositivePart().shares, Zero().shares) == ((1, 0), (1, 0), None)


def test_a_rule_that_says_half_of_what_it_means_is_refused():
    """Without splits the factors would never be asked for, and the rule would be LRP-0."""

    class Factors(Rule):
        def factors(self, value, z, plus, minus):
            return 2 * self.ratio(value, plus), None

    class Splits(Rule):
        @property
        def splits(self):
            return True

    class Both(Factors, Splits):
        pass

    for half, words in ((Factors(), "splits return True"), (Splits(), "shares or factors")):
        for given in (half, [half], Schedule.constant(half)):
            with pytest.raises(InputError, match=words):
                as_schedule(given).rules(1)
        with pytest.raises(InputError, match=words):
            Schedule.constant(Zero(), readout=half)
    assert as_schedule(Both()).rules(2) == (Both(), Both())


def test_what_rules_are_by_default():
    assert (Epsilon().epsilon, Gamma().gamma, GeneralisedGamma().gamma) == (1e-6, 1, 3)
    assert AlphaBeta().shares == (2, -1)
    assert Schedule.linear_gamma().rules(4) == (Gamma(3.0), Gamma(2.0), Gamma(1.0), Gamma(0.0))
    assert Schedule.linear_gamma().rules(2) == (Gamma(3.0), Gamma(0.0))
    assert Schedule.linear_gamma(2.0, 1.0).rules(1) == (Gamma(2.0),)
    assert Schedule.auto(5.0).rules(2) == (GeneralisedGamma(5.0),) * 2
    assert "γ = 5:" in Schedule.auto(5.0).note
    assert Schedule.constant(ZPlus(), Gamma(2.0)).readout == Gamma(2.0)
    assert Schedule.constant(ZPlus()).readout == Schedule.auto().readout == Zero()
    with pytest.raises(InputError, match=r"got the class Gamma itself. Make a rule of it: Gamma\(...\)"):
        as_schedule(Gamma)
    with pytest.raises(InputError, match="one Rule per layer or a Schedule, got a list with 'zero' in it"):
        as_schedule([Gamma(1.0), "zero"])
    assert as_schedule([Gamma(1.0), Zero()]).rules(2) == (Gamma(1.0), Zero())


def test_the_rules_that_split_say_how():
    value, z, sizes = torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0]), torch.tensor([5.0, 5.0])
    either, size = GeneralisedGamma(3.0).size_factors(value, z, sizes)  # 2.5 z ± 1.5 · 5 below: 10 and −10
    assert either.tolist() == pytest.approx([0.25, -0.25])
    assert size.tolist() == pytest.approx([0.15, 0.15])
    assert GeneralisedGamma(3.0).by_size
    assert GeneralisedGamma(3.0).one_sided == Gamma(3.0)
    for rule in (Zero(), Gamma(1.0), AlphaBeta(), ZPlus()):
        assert (rule.by_size, rule.one_sided) == (False, None)


def test_lifted_weights_are_others():
    weight = torch.tensor([2.0, -3.0])
    assert Gamma(0.5).lift(weight).tolist() == [3, -3]
    kept = Zero().lift(weight)
    assert kept.tolist() == [2, -3]
    assert kept is not weight
