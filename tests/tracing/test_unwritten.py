"""What no relevance passes is never written: the stretches that make attention, gates and divisors."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import walkwise as ww
from walkwise.core.operators import RowMap, Step
from walkwise.rules import AlphaBeta, Gamma
from walkwise.tracing.stretches.expressions import Coefficients, Term
from walkwise.tracing.stretches.stretch import ChainBuilder, Flow, Unwritten

M = 5
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 0], [1, 0, 2, 1, 3, 2, 4, 3, 4]])


def stretch(builder, slot, value, weight):
    """z = h W, with one weight, under the paper's γ."""
    learned = Coefficients(make=RowMap, tensor=weight, learned=True, by_neuron=True)
    z = value @ weight.t()
    return Flow(z, term=Term(z, maps=[(Term(value, slot), learned)]), rule=Gamma(0.5), weighted=True)


def test_a_stretch_is_written_where_it_leads_somewhere_alone():
    builder, (first, second) = ChainBuilder(), torch.rand(2, 3, 3)
    h, root = torch.rand(M, 3), 0
    builder.count = 1
    taken, left = (builder.settle(stretch(builder, root, h, weight)) for weight in (first, second))
    steps = builder.taken()
    assert [type(step) for step in steps] == [Unwritten, Unwritten]
    written = builder.leading(steps, {taken.slot})
    assert all(type(step) is Step for step in written)
    assert written[-1].target == taken.slot
    assert written[0].sources == (root,)
    assert left.slot not in builder.part_of.values()
    matrix = written[0].operators[0].matrix
    assert torch.equal(matrix, Gamma(0.5).lift(first))


def test_slots_within_a_stretch_belong_where_it_ends():
    builder, h = ChainBuilder(), torch.rand(M, 3)
    builder.count = 1
    ended = builder.settle(stretch(builder, 0, h, torch.rand(3, 3)))
    steps = builder.leading(builder.taken(), {ended.slot})
    inside = [step.target for step in steps if step.target != ended.slot]
    assert inside
    assert {builder.part_of[slot] for slot in inside} == {ended.slot}


class Net(nn.Module):
    """Two layers of a kind."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = kind(3, 4), kind(4, 2)
        self.double()

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize("kind", [pyg.TransformerConv, pyg.ResGatedGraphConv, pyg.SuperGATConv])
def test_what_makes_attention_costs_no_rule(kind, monkeypatch):
    """Of a layer's linear maps those of queries, keys and gates are under no rule."""
    written = []
    write = ChainBuilder._write
    monkeypatch.setattr(ChainBuilder, "_write", lambda self, *given: written.append(given) or write(self, *given))
    x = torch.rand(M, 3, dtype=torch.float64)
    chain = ww.trace(Net(kind).eval(), x, EDGES, target=0)
    assert len(written) == 2  # of the values, in each layer
    walks = ww.enumerate_walks(chain)
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)


@pytest.mark.parametrize("rule", ["zplus", AlphaBeta(1.0, 0.0)], ids=str)
def test_of_a_stretch_the_part_that_its_rule_takes_is_kept_alone(rule):
    """Every step is one that relevance comes to."""
    x = torch.randn(M, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chain = ww.trace(Net(pyg.GCNConv).eval(), x, EDGES, target=0, rule=rule)
    reached = {slot for slot, _ in chain.seeds}
    for step in reversed(chain.steps):
        assert step.target in reached
        reached.update(step.sources)
