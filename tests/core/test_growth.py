"""How much larger a message can become: a bound that holds, and that saves a pass through the chain."""

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import walkwise as ww
from chains import pooled
from walkwise.core import operators as ops
from walkwise.core import row_maps
from walkwise.core.chain import RelevanceChain
from walkwise.core.edges import Edges
from walkwise.core.rows import AllNodes
from walkwise.tracing import precision

M, N = 5, 4
EDGES = Edges(torch.tensor([0, 0, 0, 1, 4]), torch.tensor([1, 2, 2, 3, 4]), M)
WEIGHT = torch.tensor([3.0, -2.0, 5.0, 1.0, 2.0], dtype=torch.float64)
MATRIX = torch.tensor([[1.0, -2, 3, 0], [4, 0, -9, 2], [-3, 1, 2, 2]], dtype=torch.float64)
FACTOR = torch.linspace(-3, 2, M * N, dtype=torch.float64).view(M, N)

OPERATORS = {
    "identity": ops.Identity(),
    "scale": ops.Scale(FACTOR),
    "one scale": ops.Scale(FACTOR[:1]),
    "matrix": ops.RowMap(MATRIX),
    "perceptron": ops.Perceptron(((MATRIX, None), (MATRIX.new_full((4, 3), 2.0), FACTOR))),
    "columns": ops.Embed(1, 2, N),
    "edges": ops.Aggregate(EDGES),
    "weighted edges": ops.Aggregate(EDGES, WEIGHT, -1.5),
    "heads": ops.Aggregate(EDGES, torch.stack([WEIGHT, 2 * WEIGHT], dim=1)),
    "picked": row_maps.Gather(torch.tensor([3, 3, 3, 0, 1]), 6),
    "added": row_maps.Scatter(torch.tensor([0, 0, 1, 1, 1]), M),
    "all": row_maps.SumRows(7, -0.5, False),
    "reshaped": row_maps.Reshape(torch.Size((M, N)), torch.Size((M, N))),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_no_message_grows_by_more(name):
    operator, rows = OPERATORS[name], AllNodes(M, 1)
    columns = {"matrix": 3}.get(name, N)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        drawn = torch.rand(1 if name == "all" else M, 1, 1, columns, generator=generator, dtype=torch.float64)
        message = drawn.sub_(0.5).sign()  # the worst there is
        assert float(operator.pull(message, rows).abs().max()) <= float(operator.growth) * (1 + 1e-12)


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
