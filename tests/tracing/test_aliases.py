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
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("between", UNSEEN.values(), ids=UNSEEN)
def test_writing_out_of_sight_is_refused(between, layer):
    with pytest.raises(TraceError, match="written into through"):
        traced(between, layer)


STALE = {
    "view of what was written": doing("v = h[:, :2]", "h.mul_(2)", "h = torch.cat([v, v], 1)"),
    "base of what was written": doing("h[:, :2].mul_(2)"),
    "overlapping views": doing("v, u = h[:, :2], h[:, 1:]", "v.mul_(2)", "h = torch.cat([u, u[:, :1]], 1)"),
    "base that was constant": doing("b = torch.zeros_like(h)", "b[0].add_(h[0])", "h = h + b"),
}


@pytest.mark.parametrize("between", STALE.values(), ids=STALE)
def test_reading_what_was_changed_through_another_tensor_is_refused(between):
    with pytest.raises(TraceError, match="shares its memory"):
        traced(between)


SOUND = {
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
def test_writes_that_touch_nothing_else_are_followed(case, layer, rule):
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
