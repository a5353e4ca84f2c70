"""How much larger a message can become: a bound that holds, and that saves a pass through the chain."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import walkwise as ww
from chains import pooled
from walkwise.core.chain import RelevanceChain
from walkwise.core.operators import Identity, Scale, Step
from walkwise.core.row_maps import Send
from walkwise.tracing import precision


@pytest.mark.parametrize("kind", [GIN, GCN, GraphSAGE, GAT])
def test_common_chains_are_known_to_be_finite_without_a_pass_through_them(kind, monkeypatch):
    asked = []
    monkeypatch.setattr(RelevanceChain, "input_relevance", property(asked.append))
    model = pooled(kind, 0, 3)
    ww.trace(model, torch.randn(4, 2, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 3]]), target=0)
    assert not asked


def test_the_bound_holds_for_the_whole_chain_and_counts_every_way():
    model = pooled(GIN, 1, 3, jk="cat")
    chain = ww.trace(model, torch.randn(4, 2, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 3]]), target=0)
    features, bound = precision._bounds(chain)
    assert features == float(chain.roots[0][1].abs().max())
    assert abs(chain.input_relevance) < bound < 1e12


def test_the_bound_by_hand():
    """Two ways to slot 0: 5 · 1 straight down, and (5 · 3 + 1) · 2 by slot 1, where the read-out reads, too."""
    H, seed = torch.tensor([[1.0, -4.0, 2.0], [0.5, 0.0, 3.0]]), torch.tensor([[-5.0, 1.0, 2.0]])
    double, triple = Scale(torch.tensor([[2.0]])), Scale(torch.tensor([[1.0, -3.0, 0.5]]))
    steps = [Step((double,), (0,), 1), Step((triple, Identity()), (1, 0), 2)]
    chain = SimpleNamespace(roots=[(0, H)], seeds=[(2, seed), (1, torch.ones(2, 3))], steps=steps)
    assert precision._bounds(chain) == (4.0, (5 + 16 * 2) * 4 * 6)
    chain.roots = [(0, 0.001 * H)]
    assert precision._bounds(chain) == (pytest.approx(0.004), 37)  # a message on the way is larger
    chain.steps = [Step((Send(None, None, 2, 2),), (0,), 2)]  # whose growth is not known
    assert precision._bounds(chain)[1] == math.inf
