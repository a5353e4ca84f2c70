"""The answers are the library's, and odd input is refused in words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import GIN

import walkwise as ww
from chains import ring
from walkwise.errors import InputError
from walkwise.explorer.answers import (
    format_nodes,
    groups_answer,
    name_group,
    order_answer,
    parse_nodes,
    query_answer,
    selection_answer,
    walks_answer,
)

GROUPS = {"tree": [0, 1, 2], "motif": [20, 21, 22, 23, 24]}


@given(st.sets(st.integers(0, 30)))
def test_nodes_are_read_as_they_are_written(nodes):
    assert parse_nodes(format_nodes(sorted(nodes)), 31) == sorted(nodes)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (None, []),
        ("", []),
        ("  3 ", [3]),
        ("3 1,1;2", [1, 2, 3]),
        ("2 - 4, 0", [0, 2, 3, 4]),
        ("2\N{EN DASH}3", [2, 3]),
        ("All", [0, 1, 2, 3, 4]),
        (",,", []),
    ],
)
def test_ways_to_write_nodes(text, nodes):
    assert parse_nodes(text, 5) == nodes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "nodes 0 to 4, got '5'"),
        ("3-9", "nodes 0 to 4, got '3-9'"),
        ("3-1", "got '3-1'"),
        ("1.5", "node ids such as 0, 3, 5-8, got '1.5'"),
        ("C3", "got 'C3'"),
        ("-1", "got '-1'"),
    ],
)
def test_what_is_no_node_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_nodes(text, 5)


@pytest.mark.parametrize("nodes", [[], [0], [20, 21, 22, 23, 24], list(range(25))])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, "0.3"])
def test_a_selection_has_its_subgraph_relevance(motif, nodes, alpha):
    found = selection_answer(motif, nodes, alpha)
    of = ww.subgraph_relevance(motif.chain, [nodes], alpha=list(found.alphas))[0]
    assert torch.allclose(torch.tensor(found.values, dtype=torch.float64), of, atol=1e-12)
    at, inside, touching = ww.subgraph_relevance(motif.chain, [nodes], alpha=[float(alpha), 0.0, 1.0])[0].tolist()
    assert (found.relevance, found.inside, found.touching) == pytest.approx((at, inside, touching), abs=1e-12)
    assert found.total == pytest.approx(float(ww.node_relevance(motif.chain).sum()))
    assert (found.alphas[0], found.alphas[-1]) == (0.0, 1.0)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, "a third", "", float("nan")])
def test_an_alpha_that_is_none_is_refused(motif, alpha):
    with pytest.raises(InputError, match="alpha must be a discount between 0 and 1"):
        selection_answer(motif, [0], alpha)
    with pytest.raises(InputError, match="alpha must be a discount between 0 and 1"):
        order_answer(motif, alpha)


@pytest.mark.parametrize("alpha", [0.0, 0.2, None])
def test_the_order_is_the_greedy_one(motif, motifs, alpha):
    found = order_answer(motif, alpha)
    order = ww.order_nodes(motif.chain, alpha=alpha)
    assert found.order == tuple(order.tolist())
    curve = ww.activation_curve(motifs.model, motifs.graphs[0], order, target=motif.target)
    assert found.values == pytest.approx(curve.values.tolist())
    assert found.area == pytest.approx(curve.area)
    assert found.values[-1] == pytest.approx(float(motif.chain.output))


@pytest.mark.parametrize("few", [0, 10_000], ids=["searched", "listed"])
@pytest.mark.parametrize("by", ["relevance", "magnitude"])
def test_the_walks_are_the_top_ones(motif, by, few, monkeypatch):
    monkeypatch.setattr("walkwise.explorer.answers._FEW_WALKS", few)
    best = ww.top_walks(motif.chain, 5, by=by)
    found = walks_answer(motif, count=5, by=by)
    relevance = torch.tensor([walk.relevance for walk in found], dtype=torch.float64)
    assert torch.allclose(relevance, best.relevance)
    assert torch.allclose(ww.walk_relevance(motif.chain, [walk.nodes for walk in found]), relevance)
    assert len({walk.nodes for walk in found}) == 5
    with pytest.raises(InputError, match="'length'"):
        walks_answer(motif, by="length")


def test_walks_that_tie_are_listed_as_in_the_library():
    case = SimpleNamespace(chain=ring(1, kind=GIN))
    every = ww.top_walks(case.chain, 10**4)
    assert [list(walk.nodes) for walk in walks_answer(case, count=10**4)] == every.walks.tolist()


def test_groups_interact_as_in_the_library(motif):
    assert groups_answer(motif, GROUPS) == ww.interactions(motif.chain, GROUPS)
    with pytest.raises(InputError):
        groups_answer(motif, {"a": [0, 1], "b": [1, 2]})


def test_queries_are_the_librarys(motif):
    assert query_answer(motif, "motif & ~tree", GROUPS) == ww.query(motif.chain, "motif & ~tree", GROUPS)
    with pytest.raises(InputError, match="at character 9: no group is called 'roof'"):
        query_answer(motif, "motif & roof", GROUPS)


def test_groups_are_named():
    first = name_group({}, " ring ", [3, 4])
    assert first == {"ring": [3, 4]}
    assert name_group(first, "ring", [5]) == {"ring": [5]}
    assert first == {"ring": [3, 4]}
    with pytest.raises(InputError, match="needs a name"):
        name_group(first, None, [1])
    with pytest.raises(InputError, match="'x' needs nodes: select some"):
        name_group(first, "x", [])
    with pytest.raises(InputError, match="'rest' stands for the nodes in no group"):
        name_group(first, " rest", [1])
