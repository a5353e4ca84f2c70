"""Models that write into tensors sharing memory with node features: followed rightly, or refused."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import walkwise as ww
from walkwise.errors import TraceError

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4, 0], [1, 0, 2, 1, 3, 2, 0, 3, 0, 4]])
LAYERS = {
    "gcn": lambda: pyg.GCNConv(4, 4),
    "gin": lambda: pyg.GINConv(nn.Linear(4, 4)),
}


class Model(nn.Module):
    def __init__(self, between, layer):
        super().__init__()
        self.a, self.b, self.between = layer(), layer(), between

    def forward(self, x, edge_index):
        return self.b(self.between(self.a(x, edge_index)), edge_index).sum(0, keepdim=True)


def traced(between, layer="gcn", rule="gamma"):
    torch.manual_seed(2)
    model = Model(between, LAYERS[layer]).double()
    return ww.trace(model, torch.randn(5, 4, dtype=torch.float64), EDGES, target=1, rule=rule)


def doing(*statements):
    """A function of h that runs statements and returns h."""
    names = {"torch": torch}
    exec("\n    ".join(["def run(h):", *statements, "return h"]), names)
    return names["run"]


def twice_on_the_left(h):
    return h * torch.tensor([2, 2, 1, 1])


UNSEEN = {
    "detached": doing("h.detach().mul_(2)"),
    "detached view": doing("h.detach()[0].mul_(2)"),
    "view detached": doing("h[0].detach().mul_(2)"),
    "detached entry": doing("h.detach().view(-1)[0] = 5"),
    "before another write": doing("d = h.detach()", "d += 1", "h.relu_()"),
    "data": doing("h.data.mul_(2)"),
    "data exchanged": doing("h.data = 2 * h.data"),
    "numpy": doing("h.detach().numpy()[:] *= 2"),
    "no gradients": doing("with torch.no_grad(): h.mul_(2)"),
    "view without gradients": doing("with torch.no_grad(): h[0].mul_(2)"),
    "out": doing("torch.add(h, 1, out=h)"),
    "dropout in place": doing("torch.nn.functional.dropout(h, 0.5, True, True)"),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("between", UNSEEN.values(), ids=UNSEEN)
def test_writing_out_of_sight_is_refused(between, layer):
    with pytest.raises(TraceError, match="wrote into a node tensor through"):
        traced(between, layer)


STALE = {
    "base of a view that is turned over": doing("h.t()[:2].mul_(2)"),
    "view that is turned over": doing("v = h.t()", "h.mul_(2)", "h = v.t()"),
    "copy of a view that is turned over": doing("c = h.clone()", "c.t()[:2].mul_(2)", "h = c"),
    "constant detached in another shape": doing(
        "b = torch.zeros(20).to(h)", "b.view(5, 4).detach()[:, :2].add_(h[:, :2])", "h = h + b.view(5, 4)"
    ),
    "constant behind such a view": doing("b = torch.zeros_like(h)", "b.t()[:2].add_(h.t()[:2])", "h = b"),
}


@pytest.mark.parametrize("between", STALE.values(), ids=STALE)
def test_reading_what_was_changed_through_another_tensor_is_refused(between):
    with pytest.raises(TraceError, match="shares its memory"):
        traced(between)


SOUND = {
    "view of what was written": (
        doing("v = h[:, :2]", "h.mul_(2)", "h = torch.cat([v, v], 1)"),
        lambda h: 2 * torch.cat([h[:, :2], h[:, :2]], 1),
    ),
    "base of what was written": (doing("h[:, :2].mul_(2)"), twice_on_the_left),
    "part of a copy": (doing("c = h.clone()", "c[:, :2].mul_(2)", "h = c"), twice_on_the_left),
    "part of a copy, and the original": (
        doing("c = h.clone()", "c[:, :2].mul_(2)", "h = c - 3 * h"),
        lambda h: twice_on_the_left(h) - 3 * h,
    ),
    "part of itself": (doing("c = h.to(h.dtype)", "c[:, :2].mul_(2)"), twice_on_the_left),
    "part added to": (
        doing("h[:, :2] += 3 * h[:, 2:]"),
        lambda h: torch.cat([h[:, :2] + 3 * h[:, 2:], h[:, 2:]], 1),
    ),
    "columns of a copy": (doing("c = h.clone()", "for i in range(2): c[:, i].mul_(2)", "h = c"), twice_on_the_left),
    "every other column": (doing("h[:, ::2].mul_(2)"), lambda h: h * torch.tensor([2, 1, 2, 1])),
    "rows of what lies by columns": (
        doing("c = h.t().contiguous().t().clone()", "c[1:3].mul_(2)", "c[0] += h[0]", "h = c"),
        lambda h: torch.cat([2 * h[:3], h[3:]]),
    ),
    "view of another shape": (doing("h.view(5, 2, 2)[:, 0].mul_(2)"), twice_on_the_left),
    "view of another shape, added to": (doing("h.view(5, 2, 2)[:, 0] += h[:, :2]"), twice_on_the_left),
    "all in another shape": (doing("h.view(-1).mul_(2)", "h.view(5, 2, 2)[:, 1].div_(2)"), twice_on_the_left),
    "rows of a copy": (
        doing("c = h.clone()", "c[1:3] += h[1:3]", "h = c"),
        lambda h: torch.cat([h[:1], 2 * h[1:3], h[3:]]),
    ),
    "overlapping views": (
        doing("v, u = h[:, :2], h[:, 1:]", "v.mul_(2)", "h = torch.cat([u, u[:, :1]], 1)"),
        lambda h: torch.cat([2 * h[:, 1:2], h[:, 2:], 2 * h[:, 1:2]], 1),
    ),
    "base that was constant": (
        doing("b = torch.zeros_like(h)", "b[0].add_(h[0])", "h = h + b"),
        lambda h: torch.cat([2 * h[:1], h[1:]]),
    ),
    "constant that is added to": (
        doing("b = torch.ones_like(h)", "b[:, :2] += h[:, :2]", "h = b"),
        lambda h: torch.cat([h[:, :2] + 1, torch.ones_like(h[:, 2:])], 1),
    ),
    "view of what became constant": (
        doing("v = h[:, :2]", "r = h.tanh()", "h.zero_()", "h = r + torch.cat([v, v], 1)"),
        torch.tanh,
    ),
    "constant written after it was used": (
        doing("w = torch.ones(5, 1).to(h)", "y = h * w", "w.zero_()", "h = y + h * w"),
        lambda h: h + 0,
    ),
    "constant written in a loop": (
        doing("w, o = torch.ones(5, 1).to(h), 0", "for i in range(3): w.fill_(i + 1); o = o + h * w", "h = o"),
        lambda h: 6 * h,
    ),
    "index written after it was used": (
        doing("i = torch.tensor([0, 0, 1, 1])", "y = h[:, i]", "i.zero_()", "h = y"),
        lambda h: h[:, [0, 0, 1, 1]],
    ),
    "view of a constant that features come into": (
        doing(
            "b = torch.zeros_like(h)", "v, u = b[:, :2], b[:, 1:3]", "v.add_(h[:, :2])", "h = h + torch.cat([u, u], 1)"
        ),
        lambda h: h + torch.cat([h[:, 1:2], 0 * h[:, :1], h[:, 1:2], 0 * h[:, :1]], 1),
    ),
    "constant that was detached": (
        doing("b = torch.zeros_like(h)", "v = b[:, :2].detach()", "b += h", "h = h + torch.cat([v, v], 1)"),
        lambda h: h + torch.cat([h[:, :2], h[:, :2]], 1),
    ),
    "what a constant was detached from": (
        doing("b = torch.zeros_like(h)", "b[:, :2].detach().add_(h[:, :2])", "h = h + b"),
        twice_on_the_left,
    ),
    "data of a constant": (
        doing("b = torch.zeros_like(h)", "b.data[:, :2] = h[:, :2]", "h = h + b"),
        twice_on_the_left,
    ),
    "copy of what is detached": (
        doing("c = h.clone()", "c[:, :2].copy_(h.detach()[:, :2])", "h = c"),
        lambda h: torch.cat([h.detach()[:, :2], h[:, 2:]], 1),
    ),
    "constant, and back": (
        doing("v, k = h[:, :2], h.clone()", "h.zero_()", "h.add_(k)", "h = torch.cat([v, v], 1)"),
        lambda h: torch.cat([h[:, :2], h[:, :2]], 1),
    ),
    "written twice, then constant": (
        doing("v, r = h[:, :2], h.tanh()", "v.mul_(2)", "h.zero_()", "h = r + torch.cat([v, v], 1)"),
        torch.tanh,
    ),
    "a single row": (
        doing("g = h[:, :1].clone().t().clone()", "g[:, 2:].mul_(3)", "h = h * g.detach().t() + 0 * g.t()"),
        lambda h: h * torch.cat([h[:2, :1], 3 * h[2:, :1]]).detach(),
    ),
    "memory that was not written before": (
        doing(
            "b = torch.full_like(h, torch.nan)",
            "del b",
            "b = torch.empty_like(h)",
            "b[:, :2].copy_(2 * h[:, :2])",
            "b[:, 2:].copy_(h[:, 2:])",
            "h = b",
        ),
        twice_on_the_left,
    ),
    "new memory": (
        doing("b = h.new(5, 4)", "b[:, :2] = 2 * h[:, :2]", "b[:, 2:] = h[:, 2:]", "h = b"),
        twice_on_the_left,
    ),
    "new memory with numbers in it": (
        doing("b = h.new([2.0, 2.0, 1.0, 1.0])", "h = h * b"),
        twice_on_the_left,
    ),
    "part that became constant": (
        doing("h[:, :2].zero_()"),
        lambda h: h * torch.tensor([0, 0, 1, 1]),
    ),
    "written after detaching": (doing("d = h.detach()", "h.relu_()"), torch.relu),
    "copy of the detached": (doing("d = h.detach().clone()", "d.mul_(2)", "h = 3 * h"), lambda h: 3 * h),
    "views apart": (
        doing("u, v = h.chunk(2, 1)", "u.relu_()", "h = torch.cat([u, v], 1)"),
        lambda h: torch.cat([h[:, :2].relu(), h[:, 2:]], 1),
    ),
    "read before": (
        doing("r = h.tanh()", "h[:, :2].mul_(-5)", "h = r"),
        torch.tanh,
    ),
    "view read before": (
        doing("v = h[:, :2]", "r = torch.cat([v, v], 1).tanh()", "h.mul_(-5)", "h = r"),
        lambda h: torch.cat([h[:, :2], h[:, :2]], 1).tanh(),
    ),
}


@pytest.mark.parametrize("rule", ["gamma", "zero", "alphabeta"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("case", SOUND.values(), ids=SOUND)
def test_writes_are_followed(case, layer, rule):
    written, plain = (traced(between, layer, rule) for between in case)
    sets = [[0, 1], [2, 3, 4], [0, 1, 2, 3, 4]]
    torch.testing.assert_close(ww.subgraph_relevance(written, sets), ww.subgraph_relevance(plain, sets))


@pytest.mark.parametrize("layer", LAYERS)
def test_what_is_detached_in_place_is_constant(layer):
    inside, outside = traced(doing("h.detach_()"), layer), traced(torch.Tensor.detach, layer)
    torch.testing.assert_close(*(ww.node_relevance(chain) for chain in (inside, outside)))


@pytest.mark.parametrize("between", [doing("h.round_()"), torch.round], ids=["in place", "out of place"])
def test_what_is_rounded_cannot_be_traced_back(between):
    with pytest.raises(TraceError, match="cannot be traced back"):
        traced(between)
