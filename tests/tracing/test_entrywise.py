"""Activations written by hand mean what the functions of their names mean, also inside a layer."""

import math

import pytest
import torch
from torch.nn import functional as F

from everywhere import check_same, same, traced
from walkwise.rules import AlphaBeta, Epsilon, Gamma, GeneralisedGamma
from walkwise.tracing.meaning.entrywise import held_ratio


def zeros(x):
    return torch.zeros_like(x)


def filled(x):
    c = x.clone()
    c[x < 0] = 0.0
    return c


HAND_WRITTEN = {
    F.relu: [
        lambda x: x.clamp(min=0),
        lambda x: x * (x > 0),
        lambda x: (x >= 0).to(x.dtype) * x,
        lambda x: x * (x.detach() > 0),
        lambda x: x.clone().mul_(x > 0),
        lambda x: x * (x.sign() + 1) / 2,
        lambda x: torch.where(x > 0, x, 0),
        lambda x: torch.where(x <= 0, zeros(x), x),
        lambda x: x.where(~(x <= 0), torch.zeros((), dtype=x.dtype)),
        lambda x: (x + x.abs()) / 2,
        lambda x: torch.maximum(x, zeros(x)),
        lambda x: torch.max(zeros(x), x),
        lambda x: x.masked_fill(x < 0, 0),
        filled,
        lambda x: x - x.clamp(max=0),
        lambda x: x + F.relu(-x),
    ],
    F.leaky_relu: [
        lambda x: torch.where(x > 0, x, 0.01 * x),
        lambda x: torch.max(x, 0.01 * x),
        lambda x: F.relu(x) - 0.01 * F.relu(-x),
        lambda x: 0.505 * x + 0.495 * x.abs(),
    ],
    F.silu: [
        lambda x: x * torch.sigmoid(x),
        lambda x: x * torch.sigmoid(x).detach(),
        lambda x: x / (1 + torch.exp(-x)),
    ],
    F.gelu: [lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))],
    F.elu: [lambda x: torch.where(x > 0, x, torch.exp(x) - 1)],
    F.mish: [lambda x: x * torch.tanh(F.softplus(x))],
    F.softplus: [lambda x: torch.log(1 + torch.exp(x))],
    F.softsign: [lambda x: x / (1 + x.abs())],
    torch.square: [lambda x: x * x],
    torch.abs: [lambda x: torch.where(x > 0, x, -x), lambda x: x * x.sign(), lambda x: F.relu(x) + F.relu(-x)],
}


@pytest.mark.parametrize("rule", ["zero", Gamma(2.0), GeneralisedGamma(3.0), AlphaBeta(), Epsilon(0.1)], ids=repr)
@pytest.mark.parametrize("place", ["before", "inside", "after"])
def test_an_activation_written_by_hand_is_that_activation(place, rule):
    for func, ways in HAND_WRITTEN.items():
        first, *others = (traced(lambda w, h, held, f=f: f(w.a(h)) + h, place, same, rule) for f in (func, *ways))
        for other in others:
            check_same(other, first)


@pytest.mark.parametrize("place", ["between", "inside"])
def test_a_sum_that_cancels_passes_on_what_its_activation_does(place):
    """At 0 ReLU passes nothing on, and GELU half."""
    for func, by_hand in ((F.relu, HAND_WRITTEN[F.relu][1]), (F.gelu, HAND_WRITTEN[F.gelu][0])):
        ours, theirs = (
            traced(lambda w, h, held, f=f: w.b(f(h[:, :2].repeat(1, 2) - h[:, [0, 0, 1, 1]])), place, same, "zero")
            for f in (by_hand, func)
        )
        check_same(ours, theirs)


@pytest.mark.parametrize("rule", [Gamma(2.0), GeneralisedGamma(3.0), AlphaBeta(), Epsilon(0.1)], ids=repr)
def test_masks_that_are_made_of_something_else_end_nothing(rule):
    """They are factors of the linear maps before, and so is what is added: no activation is meant."""
    mask = torch.tensor([[1.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    ways = [
        (lambda w, h: w.a(h) * mask, lambda w, h: w.a(h).masked_fill(mask == 0, 0.0)),
        (lambda w, h: w.a(h) * (h > 0), lambda w, h: w.a(h) * (h > 0).double().detach().clone()),
        (lambda w, h: w.a(h) + 2 * w.a(h), lambda w, h: 3 * w.a(h)),
        (lambda w, h: w.a(h) * torch.ones_like(w.a(h)), lambda w, h: w.a(h)),
    ]
    for ours, theirs in ways:
        check_same(*(traced(lambda w, h, held, f=f: f(w, h), "inside", same, rule) for f in (ours, theirs)))


@pytest.mark.parametrize("rule", ["zero", GeneralisedGamma(3.0), AlphaBeta()], ids=repr)
def test_the_larger_of_two_may_be_chosen_by_comparing_them(rule):
    ways = [
        lambda w, h: torch.maximum(w.a(h), w.b(h)),
        lambda w, h: torch.where(w.a(h) > w.b(h), w.a(h), w.b(h)),
        lambda w, h: torch.where(w.a(h) <= w.b(h), w.b(h), w.a(h)),
    ]
    first, *others = (traced(lambda w, h, held, f=f: f(w, h), "inside", same, rule) for f in ways)
    for other in others:
        check_same(other, first)


@pytest.mark.parametrize("rule", ["zero", GeneralisedGamma(3.0)], ids=repr)
def test_a_number_that_is_added_to_an_activation_gets_its_share(rule):
    """As a bias does; what ReLU has silenced stays silent."""
    each = torch.full((5, 4), 0.1, dtype=torch.float64)
    ours, theirs = (
        traced(lambda w, h, held, b=b: (F.relu(w.a(h)) + b).clamp(min=0.2).pow(2), "inside", same, rule)
        for b in (0.1, each)
    )
    check_same(ours, theirs)


def test_a_number_before_an_activation_gets_its_share():
    """h + relu(h - 0.3) is no function of h by itself: its pieces are linear, with a bias."""
    each = torch.full((5, 4), 0.3, dtype=torch.float64)
    for rule in ("zero", GeneralisedGamma(3.0)):
        ours, theirs = (traced(lambda w, h, held, b=b: h + F.relu(h - b), "inside", same, rule) for b in (0.3, each))
        check_same(ours, theirs)


AT_ZERO = {
    "tanh": (torch.tanh, 1),
    "silu": (F.silu, 0.5),
    "leaky_relu": (F.leaky_relu, 0.01),  # a kink: the limit from below
    "hardtanh": (F.hardtanh, 1),
    "a bound above": (lambda h: h.clamp(max=1), 1),
    "relu by a bound": (lambda h: h.clamp(min=0), 0),
    "square": (torch.square, 0),
    "sqrt": (torch.sqrt, 0),  # the limit is infinite
    "exp": (torch.exp, 0),  # there is none: exp(0) is 1
    "cos": (torch.cos, 0),
    "reciprocal": (torch.reciprocal, 0),
    "log": (torch.log, 0),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_a_zero_passes_on_the_limit_from_below_or_nothing(name):
    func, limit = AT_ZERO[name]
    z = torch.tensor([0.0, 0.5], dtype=torch.double)
    expected = torch.tensor([limit, func(z)[1] / 0.5], dtype=torch.double)
    torch.testing.assert_close(held_ratio(func(z), z, func), expected, rtol=1e-5, atol=2e-6)
