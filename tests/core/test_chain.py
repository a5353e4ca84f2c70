"""The chain itself: casting, conservation, and what it knows of its own shape."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINEConv, LEConv, global_mean_pool

import walkwise as ww
from chains import chain_of
from walkwise.core.contract import all_rows, contract
from walkwise.core.operators import Aggregate, Identity, Step
from walkwise.errors import InputError

KINDS = ["GCN", "GIN", "SAGE", "GAT", "SG", "Transformer", "ARMA"]
SUBGRAPHS = [[0, 1], [2, 3, 5], list(range(6))]


def answers(chain):
    return {
        "inside": ww.subgraph_relevance(chain, SUBGRAPHS),
        "discounted": ww.subgraph_relevance(chain, SUBGRAPHS, alpha=0.3),
        "polynomial": ww.subgraph_polynomial(chain, SUBGRAPHS),
        "walks": ww.walk_relevance(chain, [[0, 1, 1], [2, 3, 2]]),
        "nodes": ww.node_relevance(chain, layer=1),
        "edges": ww.edge_relevance(chain),
        "features": ww.feature_relevance(chain),
    }


def with_encoder(net, kind):
    """The model after a linear map and an activation, so that its chain has an encoder."""

    class Encoded(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net(kind)
            self.encoder = nn.Sequential(nn.Linear(3, 3), nn.GELU()).double()

        def forward(self, x, edge_index):
            return self.inner(self.encoder(x), edge_index)

    return Encoded()


@pytest.mark.parametrize("rule", ["gamma", "alphabeta"])
@pytest.mark.parametrize("kind", KINDS)
def test_casting_keeps_the_numbers(net, graph, kind, rule):
    model, (x, edge_index) = with_encoder(net, kind), graph()
    double = ww.trace(model, x, edge_index, rule=rule)
    single = double.to(dtype=torch.float32)
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    exact = answers(double)
    for name, rough in answers(single).items():
        assert rough.dtype == torch.float32, name
        assert torch.allclose(rough.double(), exact[name], rtol=1e-3, atol=1e-4), name
    for name, again in answers(single.to(dtype=torch.float64)).items():
        assert again.dtype == torch.float64, name
        assert torch.allclose(again, exact[name], rtol=1e-3, atol=1e-4), name
    for name, same in answers(double.to("cpu", torch.float64)).items():
        assert torch.equal(same, exact[name]), name


@pytest.mark.parametrize("kind", ["GCN", "Transformer", "ARMA"])
def test_a_float32_model_computed_in_float64(net, graph, kind):
    model, (x, edge_index) = net(kind).float(), graph()
    chain = ww.trace(model, x.float(), edge_index, target=0)
    exact = ww.trace(model.double(), x.float().double(), edge_index, target=0)
    for name, value in answers(chain.to(dtype=torch.float64)).items():
        assert torch.allclose(value, answers(exact)[name], rtol=1e-3, atol=1e-4), name


def test_casting_leaves_the_chain_as_it_was(net, graph):
    chain = ww.trace(net("ARMA"), *graph())
    before = answers(chain)
    chain.to(dtype=torch.float32)
    assert all(torch.equal(value, before[name]) for name, value in answers(chain).items())
    assert chain.to(dtype=torch.float32).report().splitlines()[1] == chain.report().splitlines()[1]


def test_asking_changes_nothing(net, graph):
    chain = ww.trace(net("GAT"), *graph())
    before = answers(chain)
    with torch.no_grad():
        assert all(torch.equal(value, before[name]) for name, value in answers(chain).items())
    assert not any(value.requires_grad for value in before.values())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda chain: pickle.loads(pickle.dumps(chain))])
def test_copies_answer_as_the_chain_does(net, graph, copied):
    """Many times over: tensors of a copy may come to lie where those of the one before lay."""
    chain = ww.trace(net(lambda i, o, bias: GATConv(i, o, bias=bias)), *graph(), target=0)
    before = answers(chain)
    for _ in range(20):
        chain = copied(chain)
        assert all(torch.equal(value, before[name]) for name, value in answers(chain).items())


@pytest.mark.parametrize("features", [1, 2, 7, 15, 16])
@pytest.mark.parametrize("kind", ["GCN", "GIN"])
def test_many_rows_at_once_answer_as_few(net, graph, kind, features):
    """Products of many rows with matrices of few columns are computed the other way round."""
    chain = ww.trace(net(kind, features=features, width=20), *graph(9, features=features), target=0)
    sets = [list(some) for some in combinations(range(9), 4)]
    for alpha in (0.0, 0.3):
        together = ww.subgraph_relevance(chain, sets, alpha=alpha)
        one_by_one = torch.cat([ww.subgraph_relevance(chain, [some], alpha=alpha) for some in sets])
        assert one_by_one.abs().max() > 1e-3
        assert torch.allclose(together, one_by_one, rtol=1e-10, atol=1e-12)


# -- conservation -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 7), chords=st.integers(0, 12), layers=st.integers(1, 3))
def test_without_biases_all_relevance_reaches_the_input(net, graph, kind, seed, size, chords, layers):
    model = net(kind, bias=False, seed=seed, layers=layers)
    chain = ww.trace(model, *graph(size, seed=seed, chords=chords), target=0, rule="zero")
    whole = ww.subgraph_relevance(chain, [range(size)], alpha=[0.0, 0.5, 1.0])
    expected = torch.full((1, 3), chain.output, dtype=torch.float64)
    scale = max(1.0, abs(chain.output))
    assert torch.allclose(whole, expected, atol=1e-9 * scale)
    assert chain.bias_leak == pytest.approx(0, abs=1e-9 * scale)
    for layer in range(layers + 1):
        assert float(ww.node_relevance(chain, layer=layer).sum()) == pytest.approx(chain.output, abs=1e-9 * scale)


@pytest.mark.parametrize("kind", ["GCN", "GIN", "GAT"])
@given(seed=st.integers(0, 10**6), nodes=st.sets(st.integers(0, 5)))
def test_walks_add_up(net, graph, kind, seed, nodes):
    """R_1 of a set and R_0 of the rest are all walks together."""
    chain = ww.trace(net(kind, seed=seed), *graph(seed=seed))
    touching = ww.subgraph_relevance(chain, [nodes], alpha=1.0)
    avoiding = ww.subgraph_relevance(chain, [set(range(6)) - nodes])
    assert float(touching + avoiding) == pytest.approx(chain.input_relevance, rel=1e-8, abs=1e-8)
    assert float(ww.node_relevance(chain).sum()) == pytest.approx(chain.input_relevance, rel=1e-8, abs=1e-8)


# -- shape ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "jump", "local", "straight"),
    [
        ("GCN", False, True, True),
        ("GIN", False, True, True),
        ("GAT", False, True, True),
        ("SG", False, False, True),  # two hops between positions
        ("Transformer", False, True, True),
        ("ARMA", False, True, True),  # by autograd, row by row
        ("GCN", True, True, False),  # walks may end early
        ("SG", True, False, False),
    ],
)
def test_the_chain_knows_its_shape(net, graph, kind, jump, local, straight):
    chain = ww.trace(net(kind, jump=jump), *graph())
    assert (chain.local, chain.straight) == (local, straight)
    assert chain.num_layers == 2
    assert chain.num_nodes == 6
    walks = ww.enumerate_walks(chain)
    assert bool((walks < 0).any()) is not straight
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)
    assert len(torch.unique(walks, dim=0)) == len(walks)


def test_two_hops_between_positions_are_not_local_whichever_branch_makes_them(net, graph):
    """Each step is the sum of one hop and none, in either order."""
    chain = ww.trace(net("GIN"), *graph())
    first, last = [step for step in chain.steps if step.visit is not None][-2:]
    hop = next(o for step in chain.steps for o in step.operators if isinstance(o, Aggregate))
    begin, end = first.target, last.sources[0]
    for branches in [(hop, Identity()), (Identity(), hop)]:
        once = [Step(branches, (begin, begin), end)]
        twice = [Step(branches, (begin, begin), -1), Step(branches, (-1, -1), end)]
        assert replace(chain, steps=(first, *once, last)).local
        assert not replace(chain, steps=(first, *twice, last)).local


def test_a_hop_after_the_last_position_is_not_local(net, graph):
    chain = ww.trace(net("GIN"), *graph())
    hop = next(o for step in chain.steps for o in step.operators if isinstance(o, Aggregate))
    (slot, seed), *_ = chain.seeds
    assert chain.local
    moved = replace(chain, steps=(*chain.steps, Step((hop,), (slot,), -1)), seeds=((-1, seed),))
    assert not moved.local


def test_a_skip_past_a_layer_is_not_straight(graph):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.convs = nn.ModuleList(GCNConv(3, 3).double() for _ in range(3))

        def forward(self, x, edge_index):
            for conv in self.convs:
                x = x + conv(x, edge_index).relu()
            return global_mean_pool(x, None)

    chain = ww.trace(Residual(), *graph(), rule="zero")
    assert (chain.local, chain.straight) == (True, False)
    assert chain.num_layers == 3
    assert chain.input_relevance == pytest.approx(chain.output)
    walks = ww.enumerate_walks(chain)
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.output)


@pytest.mark.parametrize(
    "conv",
    [
        lambda i, o, bias: GATv2Conv(i, o // 2, heads=2),
        lambda i, o, bias: LEConv(i, o),
        lambda i, o, bias: GATConv(i, o, add_self_loops=False),
        lambda i, o, bias: GINEConv(nn.Linear(i, o)),
    ],
    ids=["GATv2", "LE", "GAT without loops", "GINE"],
)
def test_the_local_route_agrees_with_the_whole_graph(net, graph, conv):
    """The rows of S alone, against all rows with weights: the polynomial's lowest coefficient."""
    model, (x, edge_index) = net(conv, features=4), graph(features=4)
    edge_data = {"edge_attr": x[edge_index[0]]} if isinstance(model.convs[0], GINEConv) else {}
    chain = ww.trace(model, x, edge_index, **edge_data)
    assert chain.local
    assert torch.allclose(ww.subgraph_relevance(chain, SUBGRAPHS), ww.subgraph_polynomial(chain, SUBGRAPHS)[:, 0])


def test_nothing_arrives_where_every_message_is_dropped(net, graph):
    chain = ww.trace(net("GAT"), *graph())
    nothing = contract(chain, all_rows(chain, 3), lambda visit, message: None)
    assert torch.equal(nothing, torch.zeros(3, 1, dtype=torch.float64))


def test_the_chain_is_short_in_words(net, graph):
    chain = ww.trace(net(), *graph())
    assert repr(chain) == f"RelevanceChain(2 layers, 6 nodes, output={chain.output:.6g})"
    assert repr(chain.layers[1]) == f"Layer('convs.1', GCNConv, closed form, {chain.layers[1].rule!r}, position=1)"


@pytest.mark.parametrize("layer", [-1, 3, 0.5, "x"])
def test_marginals_are_of_a_layer_that_there_is(layer):
    chain = chain_of(0, M=5, layers=2)
    with pytest.raises(InputError, match=f"a position from 0 to 2, got {layer!r}"):
        ww.node_relevance(chain, layer=layer)
    with pytest.raises(InputError, match=f"a step from 0 to 1, got {layer!r}"):
        ww.edge_relevance(chain, layer=layer)


def test_edges_may_be_listed():
    chain = chain_of(0, M=5, layers=2)
    pairs = [[0, 1, 2], [1, 2, 2]]
    found = ww.edge_relevance(chain, edge_index=pairs)
    assert torch.equal(found, ww.edge_relevance(chain, edge_index=torch.tensor(pairs)))
    assert bool(found.any())
    for wrong in ("ab", [[0, 1], [1]], [0, 1], [[0.0], [1.0]], [[True], [False]]):
        with pytest.raises(InputError, match=r"pairs of node ids, of shape \(2, E\)"):
            ww.edge_relevance(chain, edge_index=wrong)
    with pytest.raises(InputError, match="node ids from 0 to 4"):
        ww.edge_relevance(chain, edge_index=[[0], [5]])
