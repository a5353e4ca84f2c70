"""The numbers that relevance is computed in: never half precision, and finite or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GAT, GCN, GIN, GINConv, GraphConv

import walkwise as ww
from walkwise.errors import InputError, TraceError
from walkwise.rules import Epsilon
from walkwise.tracing.precision import check_chain

KINDS = {"GCN": GCN, "GIN": GIN, "GAT": GAT}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rule", ["gamma", "zero", "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_computed_in_single(graph, unchanged, kind, rule, dtype):
    """The relevance is that of the same weights in float64; computed in half precision it is off by half of itself."""
    torch.manual_seed(1)
    model, (x, edge_index) = KINDS[kind](3, 64, 3, 3).eval().to(dtype), graph()
    x = x.to(dtype)
    with unchanged(model, x):
        chain = ww.trace(model, Data(x=x, edge_index=edge_index), index=0, target=1, rule=rule)
    assert chain.dtype == torch.float32
    assert any(str(dtype) in note and "float32" in note for note in chain.notes)
    exact = ww.trace(model.double(), x.double(), edge_index, index=0, target=1, rule=rule)
    got, expected = (ww.node_relevance(c).double() for c in (chain, exact))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


def test_half_precision_shared_weights_and_buffers(graph):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.norm = GraphConv(3, 3), GraphConv(3, 3), nn.BatchNorm1d(3)
            self.b.lin_rel.weight = self.a.lin_rel.weight

        def forward(self, x, edge_index, edge_weight):
            return self.b(self.norm(self.a(x, edge_index, edge_weight)).relu(), edge_index).sum(0, keepdim=True)

    model, (x, edge_index) = Tied().eval().half(), graph()
    weight = torch.rand(edge_index.shape[1])
    chain = ww.trace(model, x.half(), edge_index, edge_weight=weight.half(), target=0)
    exact = ww.trace(model.double(), x.half().double(), edge_index, edge_weight=weight.half().double(), target=0)
    assert chain.output == pytest.approx(exact.output, rel=1e-4)
    torch.testing.assert_close(ww.node_relevance(chain).double(), ww.node_relevance(exact), rtol=1e-3, atol=1e-4)


def test_half_precision_of_a_model_without_weights(graph):
    """Its features say what type it is in."""

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = APPNP(3, 0.3)

        def forward(self, x, edge_index):
            return self.steps(x, edge_index).tanh()

    x, edge_index = graph()
    x = x.bfloat16()
    chain = ww.trace(Steps(), x, edge_index, index=0, target=1)
    exact = ww.trace(Steps(), x.double(), edge_index, index=0, target=1)
    assert chain.output == pytest.approx(exact.output, rel=1e-5)
    assert any("bfloat16" in note and "float32" in note for note in chain.notes)


def test_a_model_that_casts_to_half_precision_itself(graph):
    class Casting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = GIN(3, 4, 2, 2)

        def forward(self, x, edge_index):
            return self.inner(x.bfloat16(), edge_index)

    model, (x, edge_index) = Casting().eval().bfloat16(), graph()
    chain = ww.trace(model, x.bfloat16(), edge_index, index=0, target=0)
    assert chain.dtype == torch.float32
    assert any("bfloat16" in note for note in chain.notes)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e10, 1e30])
@pytest.mark.parametrize("rule", ["gamma", "zero", "auto", "zplus"])
@pytest.mark.parametrize("act", ["relu", "tanh", "elu"])
def test_large_and_small_numbers(graph, act, rule, scale):
    """Without biases relevance is conserved, whatever the scale."""
    torch.manual_seed(0)
    model, (x, edge_index) = GCN(3, 8, 3, 2, act=act, bias=False).eval(), graph()
    chain = ww.trace(model, (x * scale).float(), edge_index, index=0, target=0, rule=rule)
    assert chain.output != 0
    assert chain.input_relevance == pytest.approx(chain.output, rel=1e-3)


def test_relevance_that_a_stabiliser_swallows_is_said_to_be(graph):
    model, (x, edge_index) = GCN(3, 8, 3, 2, bias=False).eval(), graph()
    chain = ww.trace(model, (x * 1e-12).float(), edge_index, index=0, rule=Epsilon())
    assert any("no relevance is left at the input" in note and "Scale them" in note for note in chain.notes)


@pytest.mark.parametrize("kind", [GCN, GIN])
def test_infinities_that_an_activation_hides_are_refused(graph, kind):
    """tanh(inf) = 1: the output is finite, and relevance would be zero, or no number."""
    torch.manual_seed(0)
    model, (x, edge_index) = kind(3, 8, 2, 2, act="tanh").eval(), graph()
    for parameter in model.convs[0].parameters():
        parameter.data.abs_().mul_(1e30)
    x = x.abs().float() * 1e10
    assert bool(model(x, edge_index).isfinite().all())
    with pytest.raises(InputError, match=r"layer 'convs\.0'.*too large for torch\.float32.*float64"):
        ww.trace(model, x, edge_index, index=0, target=0)
    assert ww.trace(model.double(), x.double(), edge_index, index=0, target=0).output


def test_roots_of_negative_degrees_are_refused_as_what_they_are(graph):
    """GCN's normalisation has no number for a node whose edge weights sum to less than 0."""
    model, (x, edge_index) = GCN(3, 8, 2, 2).eval().double(), graph()
    weight = -torch.ones(edge_index.shape[1], dtype=x.dtype)
    with pytest.raises(InputError, match=r"layer 'convs\.0' is not finite: NaN.*edge weights"):
        ww.trace(model, x, edge_index, edge_weight=weight, index=0, target=0)


def test_a_stabiliser_has_the_type_of_what_it_stabilises():
    """0.1 in single precision is off by 1.5e-9."""
    z = torch.tensor([0.3, -0.2, 0.0], dtype=torch.float64)
    expected = torch.tensor([0.3 / 0.4, -0.2 / -0.3, 0.0], dtype=torch.float64)
    torch.testing.assert_close(Epsilon(0.1).ratio(z, z), expected, rtol=1e-15, atol=0)


def test_relevance_that_is_no_number_is_refused(net, graph):
    chain = ww.trace(net(), *graph(), target=0)
    slot, seed = chain.seeds[0]
    _, H = chain.roots[0]
    for broken, words in (
        (replace(chain, seeds=((slot, seed * float("inf")),)), "gradient of the read-out is not finite"),
        (replace(chain, roots=((chain.roots[0][0], H * float("nan")),)), "input of the first layer is not finite"),
        (replace(chain, seeds=((slot, seed * 1e307),), roots=((chain.roots[0][0], H * 1e307),)), "too large"),
    ):
        with pytest.raises(TraceError, match=rf"relevance of the walks is .*{words}.*Take another rule"):
            check_chain(broken)
    single = replace(chain, seeds=((slot, seed * float("inf")),)).to(torch.float32)
    with pytest.raises(TraceError, match=r"not finite.*Trace the model and its input in float64, or with another rule"):
        check_chain(single)
    assert check_chain(chain) is chain


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("place", ["between", "inside", "after"])
def test_a_part_in_double_precision_makes_the_chain_one(place, rule):
    """As where a norm is taken in float64: all messages pass that part."""

    def part(h, kind):
        h = h.double() if kind == torch.float32 else h
        return (h / h.norm(dim=1, keepdim=True)).to(kind)

    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, h):
            return part(self.lin(h), h.dtype) if place == "inside" else self.lin(h)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.head = GINConv(Inside()), GINConv(nn.Linear(4, 4)), nn.Linear(4, 2)

        def forward(self, x, edge_index):
            h = self.a(x, edge_index).relu()
            h = part(h, x.dtype) if place == "between" else h
            h = self.b(h, edge_index)
            return self.head((part(h, x.dtype) if place == "after" else h).sum(0, keepdim=True))

    x, edges = torch.rand(5, 4) + 0.1, torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])
    mixed = ww.trace(Mixed().eval(), x, edges, target=0, rule=rule)
    double = ww.trace(Mixed().double().eval(), x.double(), edges, target=0, rule=rule)
    assert mixed.dtype == torch.float64
    sets = [[0, 1], [2], [0, 1, 2, 3, 4]]
    found, right = (ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.5]) for chain in (mixed, double))
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
