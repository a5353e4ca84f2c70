"""Sums over edges on graphs too large for a dense matrix, against that matrix."""

import pytest
import torch

from walkwise.core.edges import DENSE, Edges, every_edge, weighted_sum
from walkwise.core.operators import Aggregate

M, E = DENSE + 50, 400


@pytest.mark.parametrize("num_edges", [0, E])
@pytest.mark.parametrize("root", [0.0, 1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sum_over_edges_is_a_product_with_their_matrix(num_edges, root, dtype, weighted):
    torch.manual_seed(0)
    source, target = torch.randint(M, (2, num_edges))  # some edges double, some nodes without any
    weight = torch.randn(num_edges, dtype=dtype) if weighted else None
    each = torch.ones(num_edges, dtype=torch.double) if weight is None else weight.double()
    matrix = torch.zeros(M, M, dtype=torch.double).index_put_((target, source), each, accumulate=True)
    values = torch.randn(M, 5, dtype=dtype)
    found = Aggregate(Edges(source, target, M), weight, root).push(values)
    expected = matrix @ values.double() + root * values.double()
    assert found.dtype == dtype
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lanes", [1, 40])
def test_messages_by_head_without_edges_or_rows(lanes):
    weight = torch.ones(0, 2, dtype=torch.float64)
    for rows in (0, 3):
        nobody = torch.zeros(0, dtype=torch.long)
        message = torch.ones(rows, lanes, 1, 4, dtype=torch.float64)
        found = weighted_sum(message, every_edge(Edges(nobody, nobody, rows)), weight)
        torch.testing.assert_close(found, torch.zeros_like(message))
