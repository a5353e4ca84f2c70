"""Sums over edges on graphs too large for a dense matrix, against that matrix."""

import pytest
import torch

from walkwise.core.blocks import Blocks
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


def test_sums_along_the_same_edges_with_other_weights_or_in_another_type_are_their_own():
    torch.manual_seed(0)
    source, target = torch.randint(M, (2, E))
    edges, values = Edges(source, target, M), torch.randn(M, 5, dtype=torch.double)
    one, other = torch.rand(2, E, dtype=torch.double)
    for weight in (one, other, None, one.float(), other.float(), None, one):
        dtype = torch.double if weight is None else weight.dtype
        found = Aggregate(edges, weight).push(values.to(dtype))
        expected = Aggregate(Edges(source, target, M), weight).push(values.to(dtype))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    found = Aggregate(edges).push(values.float())
    torch.testing.assert_close(found, Aggregate(Edges(source, target, M)).push(values.float()), rtol=0, atol=0)


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


SETS = [[0, 3, 7], [5], [9, 2, 4, 1], [6, 8]]


@pytest.mark.parametrize("heads", [None, 1, 2])
@pytest.mark.parametrize("root", [0.0, 1.5])
def test_blocks_of_rows_sum_as_rows_one_after_the_other(root, heads):
    torch.manual_seed(0)
    source, target = torch.randint(10, (2, 60))  # some edges double, some from a node to itself
    weight = None if heads is None else torch.randn(60, *([] if heads == 1 else [heads]), dtype=torch.double)
    edges = Edges(source, target, 10)
    width = max(map(len, SETS))
    filled = torch.tensor([nodes + [-1] * (width - len(nodes)) for nodes in SETS])
    blocks = Blocks.of(10, filled)
    nodes = torch.tensor([node for nodes in SETS for node in sorted(nodes)])
    owner = torch.tensor([i for i, nodes in enumerate(SETS) for _ in nodes])
    rows = OwnRows(10, len(SETS), nodes, owner)
    values, others = torch.randn(2, 10, 4, dtype=torch.double)
    present = blocks.present.flatten()
    message = blocks.take(values).expand(-1, 1, 3, 4).contiguous()
    found = blocks.sum(message, edges, weight, root)
    expected = rows.sum(rows.take(values).expand(-1, 1, 3, 4).contiguous(), edges, weight, root)
    torch.testing.assert_close(found[present], expected)
    assert not found[~present].any()
    torch.testing.assert_close(blocks.total(found, others), rows.total(expected, others))


def test_a_node_that_a_block_names_twice_has_one_row():
    blocks = Blocks.of(10, torch.tensor([[7, 2, 7], [-1, 4, 4], [1, 2, 3]]))
    assert blocks.block[blocks.present].tolist() == [2, 7, 4, 1, 2, 3]
    at = blocks.standing(torch.tensor([7, 4, 9]), torch.double)
    assert blocks.nodes[at.flatten() > 0].tolist() == [7, 4]


def test_where_edges_begin_and_which_pairs_they_join():
    source, target = torch.tensor([3, 0, 3, 3, 1]), torch.tensor([0, 3, 0, 2, 1])
    edges = Edges(source, target, 5)
    assert edges.offsets.tolist() == [0, 1, 2, 2, 5, 5]
    assert edges.arriving.offsets.tolist() == [0, 2, 3, 4, 5, 5]
    keys, place = edges.pairs
    assert keys[place].tolist() == (target * 5 + source).tolist()
    assert keys[:4].tolist() == [3, 6, 13, 15]
    weight = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    assert edges.between(torch.tensor([0, 2, 4]), torch.tensor([3, 3, 4]), weight, torch.float32).tolist() == [5, 8, 0]
    nobody = Edges(source[:0], target[:0], 5)
    assert nobody.between(torch.tensor([0]), torch.tensor([3]), None, torch.float32).tolist() == [0]
