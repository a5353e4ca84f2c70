"""Normalisations with whatever is left out or given: their statistics are held constant, as when they are detached."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.aggr import GraphMultisetTransformer, SetTransformerAggregation

import walkwise as ww
from everywhere import check_same, detached, same, traced

torch.manual_seed(5)
MEAN, WEIGHT, BIAS = (torch.randn(4, dtype=torch.float64) for _ in range(3))
VAR = torch.rand(4, dtype=torch.float64) + 0.5
ON_TWO, OFF_TWO = WEIGHT[:2].clone(), BIAS[:2].clone()  # for two channels of two entries each


def standard(h, held, dims, eps, biased=True):
    """Less the mean, over the root of the variance, both held constant."""
    mean, var = held(h.mean(dims, keepdim=True)), held(h.var(dims, unbiased=not biased, keepdim=True))
    return (h - mean) / (var + eps).sqrt()


def rms(h, held, dims, eps):
    return h / held((h.square().mean(dims, keepdim=True) + eps).sqrt())


def unit(h, held, p, dim, least=1e-12):
    return h / held(h.norm(p, dim, keepdim=True).clamp(min=least))


def channels(h):
    return h.view(5, 2, 2)


#: The library's function, and the same written out.
NORMALISATIONS = {
    "layer norm": (lambda h: F.layer_norm(h, (4,)), lambda h, held: standard(h, held, -1, 1e-5)),
    "torch's own": (
        lambda h: torch.layer_norm(h, (4,)) + torch.rms_norm(h, (4,)) + torch.group_norm(h, 1),
        lambda h, held: 2 * standard(h, held, -1, 1e-5) + rms(h, held, -1, torch.finfo(torch.float64).eps),
    ),
    "layer norm with a weight": (
        lambda h: F.layer_norm(h, (4,), weight=WEIGHT),
        lambda h, held: standard(h, held, -1, 1e-5) * WEIGHT,
    ),
    "layer norm with all of it": (
        lambda h: F.layer_norm(h, [4], WEIGHT, BIAS, 0.1),
        lambda h, held: standard(h, held, -1, 0.1) * WEIGHT + BIAS,
    ),
    "layer norm over two dimensions": (
        lambda h: F.layer_norm(channels(h), (2, 2), eps=0.1).flatten(1),
        lambda h, held: standard(h, held, -1, 0.1),
    ),
    "layer norm over the last of two": (
        lambda h: F.layer_norm(channels(h), (2,), eps=0.1).flatten(1),
        lambda h, held: standard(channels(h), held, -1, 0.1).flatten(1),
    ),
    "rms norm": (
        lambda h: F.rms_norm(h, (4,)),
        lambda h, held: rms(h, held, -1, torch.finfo(torch.float64).eps),
    ),
    "rms norm with a weight": (
        lambda h: F.rms_norm(h, (4,), WEIGHT, 0.1),
        lambda h, held: rms(h, held, -1, 0.1) * WEIGHT,
    ),
    "rms norm over two dimensions": (
        lambda h: F.rms_norm(channels(h), (2, 2), eps=0.1).flatten(1),
        lambda h, held: rms(h, held, -1, 0.1),
    ),
    "group norm": (
        lambda h: F.group_norm(h, 2),
        lambda h, held: standard(channels(h), held, -1, 1e-5).flatten(1),
    ),
    "group norm of channels": (
        lambda h: F.group_norm(channels(h), 1, ON_TWO, OFF_TWO, 0.1).flatten(1),
        lambda h, held: (channels(standard(h, held, -1, 0.1)) * ON_TWO.view(2, 1) + OFF_TWO.view(2, 1)).flatten(1),
    ),
    "instance norm": (
        lambda h: F.instance_norm(channels(h)).flatten(1),
        lambda h, held: standard(channels(h), held, -1, 1e-5).flatten(1),
    ),
    "instance norm with a weight": (
        lambda h: F.instance_norm(channels(h), weight=ON_TWO, bias=OFF_TWO, eps=0.1).flatten(1),
        lambda h, held: (standard(channels(h), held, -1, 0.1) * ON_TWO.view(2, 1) + OFF_TWO.view(2, 1)).flatten(1),
    ),
    "unit length": (lambda h: F.normalize(h), lambda h, held: unit(h, held, 2.0, 1)),
    "unit sum of sizes": (lambda h: F.normalize(h, p=1, dim=-1), lambda h, held: unit(h, held, 1, -1)),
    "unit columns": (lambda h: F.normalize(h, 3.0, 0), lambda h, held: unit(h, held, 3.0, 0)),
    "unit length at most": (lambda h: F.normalize(h, eps=2.5), lambda h, held: unit(h, held, 2.0, 1, 2.5)),
    "batch norm over the nodes": (
        lambda h: F.batch_norm(h, None, None, training=True),
        lambda h, held: standard(h, held, 0, 1e-5),
    ),
    "batch norm over the nodes, with all of it": (
        lambda h: F.batch_norm(h, MEAN.clone(), VAR.clone(), WEIGHT, BIAS, True, 0.1, 0.2),
        lambda h, held: standard(h, held, 0, 0.2) * WEIGHT + BIAS,
    ),
    "batch norm over nodes and entries": (
        lambda h: F.batch_norm(channels(h), None, None, ON_TWO, training=True).flatten(1),
        lambda h, held: (standard(channels(h), held, (0, 2), 1e-5) * ON_TWO.view(2, 1)).flatten(1),
    ),
    "minus the softmax": (
        lambda h: h * F.softmin(h, dim=-1),
        lambda h, held: h * held((-h).softmax(-1)),
    ),
}

#: Those of constants alone are one map with the weights before them.
FOLDED = {
    "batch norm": (
        lambda h: F.batch_norm(h, MEAN, VAR),
        lambda h: (h - MEAN) / (VAR + 1e-5).sqrt(),
    ),
    "batch norm with a weight": (
        lambda h: F.batch_norm(h, MEAN, VAR, WEIGHT, eps=0.1),
        lambda h: (h - MEAN) / (VAR + 0.1).sqrt() * WEIGHT,
    ),
    "batch norm with a bias": (
        lambda h: F.batch_norm(h, MEAN, VAR, None, BIAS),
        lambda h: (h - MEAN) / (VAR + 1e-5).sqrt() + BIAS,
    ),
    "batch norm of channels": (
        lambda h: F.batch_norm(channels(h), MEAN[:2], VAR[:2], ON_TWO, OFF_TWO).flatten(1),
        lambda h: (
            (channels(h) - MEAN[:2].view(2, 1)) / (VAR[:2] + 1e-5).sqrt().view(2, 1) * ON_TWO.view(2, 1)
            + OFF_TWO.view(2, 1)
        ).flatten(1),
    ),
}


@pytest.mark.parametrize("place", ["inside", "after"])
@pytest.mark.parametrize("name", NORMALISATIONS)
def test_statistics_are_held_constant(name, place):
    library, written = NORMALISATIONS[name]
    ours = traced(lambda w, h, held: library(w.a(h)), place, same, "zero")
    theirs = traced(lambda w, h, held: written(w.a(h), held), place, detached, "zero")
    assert not any("no rule" in note for note in ours.notes)
    check_same(ours, theirs)


@pytest.mark.parametrize("place", ["inside", "after"])
@pytest.mark.parametrize("name", FOLDED)
def test_running_statistics_make_an_affine_map(name, place):
    library, written = FOLDED[name]
    ours, theirs = (
        traced(lambda w, h, held, norm=norm: norm(w.a(h)), place, same, "zero") for norm in (library, written)
    )
    check_same(ours, theirs)


@pytest.mark.parametrize("place", ["between", "after"])
def test_the_normaliser_of_log_softmax_is_held_constant_and_it_is_said(place):
    ours = traced(lambda w, h, held: F.log_softmax(w.a(h), dim=-1), place, same, "zero")
    theirs = traced(lambda w, h, held: w.a(h) - held(w.a(h).logsumexp(-1, keepdim=True)), place, detached, "zero")
    assert any("normaliser is held constant" in note for note in ours.notes)
    check_same(ours, theirs)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize(
    "aggregation", [lambda: SetTransformerAggregation(4, heads=2), lambda: GraphMultisetTransformer(4, k=2, heads=2)]
)
def test_attention_over_nothing_passes_nothing_on(aggregation, rule):
    """PyG's layers put zeros where a node has no neighbours, and the softmax of nothing is NaN."""
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = SAGEConv(4, 4, aggr=aggregation()), SAGEConv(4, 2)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    model, x, edges = Model().double(), torch.rand(5, 4).double(), torch.tensor([[2, 0, 1, 0], [0, 1, 2, 3]])
    for index in (3, 4):  # a node beside one without neighbours, and that one
        chain = ww.trace(model, x, edges, index=index, target=0, rule=rule)
        everywhere = ww.node_relevance(chain)
        for position in range(chain.num_layers + 1):
            found = ww.node_relevance(chain, layer=position)
            torch.testing.assert_close(found.sum(), everywhere.sum())
        torch.testing.assert_close(ww.subgraph_relevance(chain, [[4]])[0], everywhere[4] * (index == 4))
        assert bool(ww.edge_relevance(chain).isfinite().all())
