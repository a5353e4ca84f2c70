"""The factors of a rule are worked out for the nodes that are asked about."""

import pickle

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import walkwise as ww
from walkwise.core.operators import Scale
from walkwise.core.postponed import Postponed
from walkwise.tracing.stretches import expressions

M = 400
MODELS = {
    "GIN": (GIN, {}),
    "GIN with norms": (GIN, {"norm": "batch_norm"}),
    "GCN": (GCN, {}),
    "GCN, concatenated": (GCN, {"jk": "cat"}),
    "GraphSAGE": (GraphSAGE, {}),
    "GraphSAGE, leaky": (GraphSAGE, {"act": "leaky_relu"}),
    "GAT": (GAT, {"heads": 2}),
    "GAT v2": (GAT, {"v2": True}),
}


def graph(signed):
    """A ring with chords."""
    generator = torch.Generator().manual_seed(0)
    ring, chords = torch.arange(M), torch.randint(M, (2, 150), generator=generator)
    edges = torch.cat([torch.stack([ring, (ring + 1) % M]), chords], dim=1)
    x = torch.randn(M, 5, dtype=torch.float64, generator=generator)
    return x if signed else x.abs(), torch.cat([edges, edges.flip(0)], dim=1)


def traced(name, x, edge_index, monkeypatch, many, **options):
    torch.manual_seed(1)
    kind, given = MODELS[name]
    model = kind(5, 8, num_layers=3, out_channels=4, **given).double().eval()
    monkeypatch.setattr(expressions, "_MANY", many)
    return ww.trace(model, x, edge_index, index=7, target=1, **options)


def postponed(chain):
    """The factors of a chain that are postponed."""
    operators = [operator for step in chain.steps for operator in step.operators]
    given = [operator.given for operator in operators if isinstance(operator, Scale)]
    return [factor for factor in given if isinstance(factor, Postponed)]


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "nowhere negative"])
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_factors_made_at_once(name, signed, monkeypatch):
    x, edge_index = graph(signed)
    now, later = (traced(name, x, edge_index, monkeypatch, many) for many in (1 << 60, 1))
    assert not postponed(now)
    if "leaky" not in name:
        assert postponed(later)
    subgraphs = [[7], [6, 7, 8], [0, 7, 30], list(range(5, 12))]
    for subgraph in (*([s] for s in subgraphs), subgraphs):
        for alpha in (0.0, 0.3):
            expected = ww.subgraph_relevance(now, subgraph, alpha=alpha)
            fresh = traced(name, x, edge_index, monkeypatch, 1)
            for chain in (later, fresh):
                found = ww.subgraph_relevance(chain, subgraph, alpha=alpha)
                torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    fresh = traced(name, x, edge_index, monkeypatch, 1)
    walks = ww.top_walks(now, 5), ww.top_walks(fresh, 5)
    assert torch.equal(walks[0].walks, walks[1].walks)
    for chain in (later, pickle.loads(pickle.dumps(traced(name, x, edge_index, monkeypatch, 1)))):
        torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(now), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["GIN", "GCN", "GraphSAGE", "GAT"])
def test_a_question_about_some_nodes_leaves_the_others(name, monkeypatch):
    chain = traced(name, *graph(True), monkeypatch, 1)
    ww.subgraph_relevance(chain, [[6, 7, 8]])
    assert all(factor.known is None for factor in postponed(chain))
    assert any(factor.asked for factor in postponed(chain))
    ww.node_relevance(chain)
    assert all(factor.make is None for factor in postponed(chain))


@pytest.mark.parametrize("rule", ["zero", "gamma", "epsilon", "alphabeta"])
def test_what_may_grow_is_made_at_once_and_checked(rule, monkeypatch):
    assert not postponed(traced("GIN", *graph(True), monkeypatch, 1, rule=rule))


def test_no_postponed_factor_is_larger_than_one(monkeypatch):
    for name in MODELS:
        for signed in (True, False):
            for factor in postponed(traced(name, *graph(signed), monkeypatch, 1)):
                assert float(factor.whole().abs().max()) <= 1 + 1e-12


def test_small_graphs_are_not_worth_it():
    torch.manual_seed(0)
    chain = ww.trace(GIN(5, 8, num_layers=2, out_channels=4).double().eval(), *graph(True), target=1, index=0)
    assert not postponed(chain)
