"""Normalisations written by hand hold their statistics constant, as those of the library do."""

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn import MessagePassing

import walkwise as ww
from everywhere import check_same, detached, same, traced
from walkwise.rules import AlphaBeta, Epsilon, Gamma, GeneralisedGamma

RULES = ["zero", Gamma(2.0), GeneralisedGamma(3.0), AlphaBeta(), Epsilon(0.1)]
GRAPH = torch.tensor([0, 0, 0, 1, 1])
SIZES = torch.tensor([[3.0], [2.0]], dtype=torch.float64)


def mean(h):
    return h.mean(-1, keepdim=True)


def spread(h, dim=-1):
    return (h.var(dim, unbiased=False, keepdim=True) + 1e-5).sqrt()


def by_var_mean(h):
    var, centre = torch.var_mean(h, -1, keepdim=True, correction=0)
    return (h - centre) * torch.rsqrt(var + 1e-5)


def by_squares(h):
    centred = h - h.sum(-1, keepdim=True) / 4
    return centred * ((centred * centred).sum(-1, keepdim=True) / 4 + 1e-5).pow(-0.5)


def by_rows(h):
    centred = h - h.mean(-1)[:, None]
    return centred / (centred.pow(2).mean(-1) + 1e-5).sqrt().unsqueeze(-1)


def in_place(h):
    made = h.clone()
    made -= mean(h)
    made /= spread(h)
    return made


def of_graphs(h, held=same, over=torch.div):
    """Every graph's own mean and spread."""
    none = torch.zeros(2, 4, dtype=h.dtype)
    centre = held(none.index_add(0, GRAPH, h) / SIZES)
    centred = h - centre[GRAPH]
    var = held(none.index_add(0, GRAPH, centred * centred) / SIZES)
    return centred / (var + 1e-5).sqrt()[GRAPH] if over is torch.div else centred * (var + 1e-5).rsqrt()[GRAPH]


NORMALISATIONS = {
    "layer norm": [
        lambda w, h: F.layer_norm(h, (4,)),
        lambda w, h: (h - detached(mean(h))) / detached(spread(h)),
        lambda w, h: (h - mean(h)) / detached(spread(h)),
        lambda w, h: (h - mean(h)) / spread(h),
        lambda w, h: (h - mean(h)) * (1 / spread(h)),
        lambda w, h: (h - mean(h).expand_as(h)) / spread(h).expand_as(h),
        lambda w, h: (
            (h - mean(h).ravel().unflatten(0, (-1, 1))) / spread(h).permute(1, 0).movedim(0, 1).view_as(h[:, :1])
        ),
        lambda w, h: by_var_mean(h),
        lambda w, h: by_squares(h),
        lambda w, h: by_rows(h),
        lambda w, h: in_place(h),
        lambda w, h: F.group_norm(h, 1),
    ],
    "layer norm with weights": [
        lambda w, h: w.norm(h),
        lambda w, h: (h - mean(h)) / spread(h) * w.norm.weight + w.norm.bias,
        lambda w, h: w.norm.weight * (h - mean(h)) / spread(h) + w.norm.bias,
        lambda w, h: torch.addcmul(w.norm.bias, w.norm.weight, by_var_mean(h)),
    ],
    "batch norm": [
        lambda w, h: F.batch_norm(h, None, None, training=True),
        lambda w, h: (h - h.mean(0)) / spread(h, 0),
        lambda w, h: (h - h.mean(0, keepdim=True)) * (h.var(0, unbiased=False) + 1e-5).rsqrt(),
    ],
    "graph norm": [
        lambda w, h: of_graphs(h, detached),
        lambda w, h: of_graphs(h),
        lambda w, h: of_graphs(h, over=torch.mul),
    ],
    "rms norm": [
        lambda w, h: F.rms_norm(h, (4,), eps=1e-5),
        lambda w, h: h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5),
        lambda w, h: h / (h.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt(),
    ],
    "unit": [
        lambda w, h: F.normalize(h, dim=-1),
        lambda w, h: h / h.norm(dim=-1, keepdim=True),
        lambda w, h: h * (1 / h.norm(dim=-1, keepdim=True).expand_as(h)),
        lambda w, h: h * h.norm(dim=-1, keepdim=True).repeat(1, 4) ** -1,
        lambda w, h: torch.diag(h.norm(dim=-1).reciprocal()) @ h,
    ],
}


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("place", ["before", "between", "inside", "after"])
def test_a_normalisation_written_by_hand_is_that_normalisation(place, rule):
    for ways in NORMALISATIONS.values():
        first, *others = (traced(lambda w, h, held, f=f: f(w, w.a(h)) + h, place, same, rule) for f in ways)
        for other in others:
            check_same(other, first)


@pytest.mark.parametrize("place", ["between", "inside"])
def test_a_mean_that_is_of_no_normalisation_is_followed(place):
    """Nothing divides, or something else than the spread of what is centred: a number, or what weights have made."""
    ways = [
        lambda w, h, centre: h - centre,
        lambda w, h, centre: (h - centre) / 2,
        lambda w, h, centre: (h - centre) / (w.scores(h).exp() + 1),
        lambda w, h, centre: (h - centre) / spread(w.a(h)),
    ]
    for way in ways:
        ours, followed, held = (
            traced(lambda w, h, held, f=way, centre=centre: f(w, h, centre(h)), place, same, "zero")
            for centre in (mean, lambda h: h @ torch.full((4, 1), 0.25).to(h), lambda h: detached(mean(h)))
        )
        check_same(ours, followed)
        with pytest.raises(AssertionError):
            check_same(ours, held)


def test_what_is_subtracted_must_be_a_mean():
    """The first of the entries comes out 0 when it is subtracted twice, too, but it is no statistic."""
    ours, held = (
        traced(lambda w, h, _, held=held: (h - held(h[:, :1])) / spread(h), "between", same, "zero")
        for held in (same, detached)
    )
    with pytest.raises(AssertionError):
        check_same(ours, held)


@pytest.mark.parametrize("place", ["before", "between", "inside"])
def test_a_mean_is_no_statistic_where_nothing_divides(place):
    ours = traced(lambda w, h, held: (h - h.mean(-1, True)) * held(h.norm(dim=-1, keepdim=True)), place, same, "zero")
    theirs = traced(
        lambda w, h, held: (h - h.mean(-1, True)) * held(h.norm(dim=-1, keepdim=True)), place, detached, "zero"
    )
    check_same(ours, theirs)


def test_messages_of_no_edges_can_be_normalised():
    class Normalised(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x) + x

        def message(self, x_j):
            return (x_j - x_j.mean(-1, keepdim=True)) / (x_j.std(-1, keepdim=True) + 1e-5)

    chain = ww.trace(Normalised(), torch.rand(3, 4), torch.empty(2, 0, dtype=torch.long), index=0, target=0)
    assert chain.input_relevance == pytest.approx(chain.output)
