"""How much larger a message can become: a bound that holds, and that saves a pass through the chain."""

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import walkwise as ww
from chains import pooled
from walkwise.core.chain import RelevanceChain
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
