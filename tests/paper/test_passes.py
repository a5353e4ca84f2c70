"""Naive GNN-LRP and the forward-hook trick against the chain and against listing walks."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import walkwise as ww
from paper.cases import gin, small_set
from walkwise.errors import InputError
from walkwise.paper.bunches import bunch
from walkwise.paper.passes import (
    hooked_relevance,
    naive_relevance,
    passes,
    walk_by_walk_relevance,
    walks_inside,
)

SETS = [[20, 21, 22], [3], [0, 1, 2, 24]]


@pytest.fixture(scope="module")
def graph():
    return bunch(small_set().graphs, [7])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_four_ways_to_one_number(graph, layers, unchanged):
    model = gin(layers)
    chain = ww.trace(model, graph.x, graph.edge_index, target=1, rule="gamma")
    for nodes, relevance in zip(SETS, ww.subgraph_relevance(chain, SETS).tolist(), strict=True):
        with unchanged(model, graph.x, graph.edge_index):
            hooked = hooked_relevance(model, graph, 1, nodes)
            naive = naive_relevance(model, graph, 1, nodes)
            along = walk_by_walk_relevance(model, graph, 1, nodes)
        assert hooked == pytest.approx(relevance, rel=1e-10, abs=1e-12)
        assert naive.finished
        assert along.finished
        assert naive.relevance == pytest.approx(relevance, rel=1e-10, abs=1e-12)
        assert along.relevance == pytest.approx(relevance, rel=1e-10, abs=1e-12)
        assert naive.passes == len(nodes) ** layers  # the start nodes are read together
        assert along.passes == len(list(walks_inside(graph.edge_index, nodes, layers)))


def test_a_pass_is_one_walk(graph):
    model = gin(2)
    chain = ww.trace(model, graph.x, graph.edge_index, target=0, rule="gamma")
    walks = ww.enumerate_walks(chain)[::17]
    with passes(model, graph, 0) as run:
        found = [run(torch.nn.functional.one_hot(walk, len(graph.x))) for walk in walks]
    assert found == pytest.approx(ww.walk_relevance(chain, walks).tolist(), rel=1e-10, abs=1e-14)


def test_the_walks_inside_a_set_are_those_of_the_chain(graph):
    nodes = [20, 21, 22, 23, 24]
    chain = ww.trace(gin(3), graph.x, graph.edge_index, target=0, rule="gamma")
    listed = [tuple(walk) for walk in ww.enumerate_walks(chain).tolist() if set(walk) <= set(nodes)]
    assert list(walks_inside(graph.edge_index, nodes, 3)) == sorted(listed)


def test_the_naive_method_gives_up_at_its_limit(graph):
    for method in (naive_relevance, walk_by_walk_relevance):
        found = method(gin(3), graph, 1, list(range(25)), limit=0.01)
        assert not found.finished
        assert found.passes < 500


def test_hooks_are_gone_after_an_error(graph, unchanged):
    model = gin(2)
    with unchanged(model), pytest.raises(RuntimeError, match="stop"), passes(model, graph, 0):
        raise RuntimeError("stop")


def test_other_layers_are_refused(graph):
    with pytest.raises(InputError, match="only GINConv layers can be explained, got GCNConv"):
        hooked_relevance(GCN(1, 4, 2, 2).double(), graph, 0, [0])


def test_a_step_may_stay_and_an_edge_counts_once():
    doubled = Data(edge_index=torch.tensor([[0, 0, 1], [1, 1, 0]]))
    assert list(walks_inside(doubled.edge_index, [0, 1], 1)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
