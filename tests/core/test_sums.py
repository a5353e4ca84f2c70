"""Sums over edges on graphs too large for a dense matrix, against that matrix."""

import pytest
import torch

from walkwise.core.edges import DENSE, Edges, every_edge, weighted_sum
from walkwise.core.operators import Aggregate
from walkwise.core.rows import OwnRows

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


@pytest.mark.parametrize("seed", range(5))
def test_edges_looked_up_from_their_lighter_ends_are_the_same_in_the_same_order(seed, monkeypatch):
    """A graph with hubs, edges one way and both, doubled edges and self-loops; rows of several queries."""
    torch.manual_seed(seed)
    M = 40  # nodes
    source = torch.cat([torch.zeros(30, dtype=torch.long), torch.randint(0, M, (60,)), torch.randint(0, 2, (20,))])
    target = torch.cat([torch.arange(1, 31), torch.randint(0, M, (60,)), torch.randint(0, M, (20,))])
    sets = [torch.randperm(M)[: 1 + seed * 4].sort().values for _ in range(6)]
    rows = [OwnRows(M, 6, torch.cat(sets), torch.repeat_interleave(torch.tensor([len(s) for s in sets]))) for _ in "ab"]
    plain, light = Edges(source, target, M), Edges(source, target, M)
    monkeypatch.setattr("walkwise.core.edges._HUBS", 10**9)
    assert plain.light_ends is None
    monkeypatch.setattr("walkwise.core.edges._HUBS", 0)
    assert light.light_ends is not None
    want, got = rows[0]._between(plain), rows[1]._between(light)
    assert torch.equal(want.offsets, got.offsets)
    assert torch.equal(want.target_row, got.target_row)
    assert torch.equal(want.edge, got.edge)
    inside = set(zip(rows[0].owner.tolist(), rows[0].nodes.tolist(), strict=True))
    ends = list(zip(source.tolist(), target.tolist(), strict=True))
    assert len(want.edge) == sum({(q, s), (q, t)} <= inside for q in range(6) for s, t in ends)


def test_hubs_are_looked_at_from_their_leaves():
    leaves = torch.arange(1, 200)
    hub = torch.zeros_like(leaves)
    assert Edges(torch.cat([hub, leaves]), torch.cat([leaves, hub]), 200).light_ends is not None
    ring = torch.arange(200)
    assert Edges(ring, (ring + 1) % 200, 200).light_ends is None
