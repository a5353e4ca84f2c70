"""One call that answers for every graph of a batch, against a chain of each graph alone."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn import GIN, global_add_pool
from torch_geometric.utils import erdos_renyi_graph

import walkwise as ww
from walkwise.errors import InputError, SamplingWarning, SeveralGraphsWarning
from walkwise.search import best_walks

torch.set_num_threads(1)
SIZES = (5, 4, 6)


class Net(nn.Module):
    def __init__(self, jk: str | None) -> None:
        super().__init__()
        self.gin = GIN(3, 6, 3, out_channels=2, jk=jk)

    def forward(self, x, edge_index, batch=None):
        return global_add_pool(self.gin(x, edge_index), batch)


@pytest.fixture(params=[None, "cat"], ids=["straight", "jumping"])
def case(request):
    """A chain of three graphs, the graph of every node, and for each graph its nodes there and a chain of its own."""
    torch.manual_seed(2)
    model = Net(request.param).double()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.uniform_(0, 0.5)
    graphs = [(torch.rand(n, 3, dtype=torch.double), erdos_renyi_graph(n, 0.7)) for n in SIZES]
    batch = torch.repeat_interleave(torch.tensor(SIZES))
    starts = torch.tensor(SIZES).cumsum(0) - torch.tensor(SIZES)
    edges = torch.cat([e + s for (_, e), s in zip(graphs, starts, strict=True)], dim=1)
    chain = ww.trace(model, torch.cat([x for x, _ in graphs]), edges, batch=batch, target=[0, 1, 0])
    alone = [ww.trace(model, x, e, target=t) for (x, e), t in zip(graphs, [0, 1, 0], strict=True)]
    return chain, batch, list(zip(starts.tolist(), alone, strict=True))


@pytest.mark.parametrize("by", ["relevance", "magnitude"])
@pytest.mark.parametrize("few", [None, 0])
def test_top_walks(case, by, few, monkeypatch):
    if few is not None:
        monkeypatch.setattr(best_walks, "FEW_WALKS", few)
    chain, batch, parts = case
    found = ww.top_walks(chain, 7, by=by, graphs=batch)
    assert len(found) == len(parts)
    for answer, (start, alone) in zip(found, parts, strict=True):
        want = ww.top_walks(alone, 7, by=by)
        assert answer.num_walks == want.num_walks == len(ww.enumerate_walks(alone))
        assert answer.relevance.tolist() == pytest.approx(want.relevance.tolist(), abs=1e-12)
        shifted = torch.where(answer.walks < 0, answer.walks, answer.walks - start)
        assert torch.allclose(ww.walk_relevance(alone, shifted), answer.relevance, rtol=0, atol=1e-12)
        assert ("best-first search" if few == 0 else f"all {want.num_walks:,} walks listed") in repr(answer)


def test_shapley_values(case):
    chain, batch, parts = case
    found = ww.shapley_values(chain, graphs=batch)
    with pytest.warns(SamplingWarning):
        sampled = ww.shapley_values(chain, graphs=batch, max_walks=10, permutations=500)
    for exact, rough, (start, alone) in zip(found, sampled, parts, strict=True):
        want = ww.shapley_values(alone)
        assert exact.nodes.tolist() == [start + node for node in range(alone.num_nodes)] == rough.nodes.tolist()
        assert exact.values.tolist() == pytest.approx(want.values.tolist(), abs=1e-12)
        assert "walks listed" in repr(exact)
        assert "500 sampled orders" in repr(rough)
        assert bool(((rough.values - want.values).abs() <= 4.5 * rough.standard_error + 1e-10).all())


@pytest.mark.parametrize("method", ["exact", "beam", "greedy"])
@pytest.mark.parametrize("connected", [True, False])
def test_find_subgraph(case, method, connected):
    chain, batch, parts = case
    found = ww.find_subgraph(chain, 3, method=method, connected=connected, graphs=batch)
    for answer, (start, alone) in zip(found, parts, strict=True):
        want = ww.find_subgraph(alone, 3, method=method, connected=connected)
        assert answer.nodes == tuple(start + node for node in want.nodes)
        assert answer.score == pytest.approx(want.score, abs=1e-12)
        assert (answer.evaluated, answer.total) == (want.evaluated, want.total)
        assert answer.route == want.route != ""
    with pytest.raises(InputError, match="from 0 to 4, the number of nodes in graph 1"):
        ww.find_subgraph(chain, 5, graphs=batch)


@pytest.mark.parametrize("listed", [False, True])
def test_interactions(case, listed):
    chain, batch, parts = case
    if listed:
        ww.shapley_values(chain, graphs=torch.zeros_like(batch))  # leaves a table of all walks
    groups = {"first": [0, 5, 9], "second": [1, 2, 6], "third": [3, 10, 11]}
    for answer, (start, alone) in zip(ww.interactions(chain, groups, graphs=batch), parts, strict=True):
        here = {name: [n - start for n in ids if 0 <= n - start < alone.num_nodes] for name, ids in groups.items()}
        want = ww.interactions(alone, {name: ids for name, ids in here.items() if ids})
        assert answer.groups == want.groups
        assert answer.terms == pytest.approx(dict(want.terms), abs=1e-12)
        assert answer.union == pytest.approx(want.union, abs=1e-12)
        assert ("walks listed" in answer.route) == listed


@pytest.mark.parametrize("listed", [False, True])
def test_interactions_in_a_graph_without_groups(case, listed):
    chain, batch, parts = case
    if listed:  # the table of walks is at hand then
        ww.shapley_interactions(chain)
    found = ww.interactions(chain, {"a": [0, 1], "b": [2]}, graphs=batch)
    want = ww.interactions(parts[0][1], {"a": [0, 1], "b": [2]})
    assert dict(found[0].terms) == pytest.approx(dict(want.terms), abs=1e-12)
    for empty in found[1:]:
        assert (empty.groups, dict(empty.terms), empty.union) == ((), {}, 0.0)


QUESTIONS = {
    "order_nodes": lambda chain, **graphs: ww.order_nodes(chain, **graphs),
    "top_walks": lambda chain, **graphs: ww.top_walks(chain, 2, **graphs),
    "shapley_values": lambda chain, **graphs: ww.shapley_values(chain, **graphs),
    "find_subgraph": lambda chain, **graphs: ww.find_subgraph(chain, 2, **graphs),
    "interactions": lambda chain, **graphs: ww.interactions(chain, {"a": [0], "b": [1]}, **graphs),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_graphs_taken_for_one_are_mentioned(case, question):
    chain, batch, parts = case
    with pytest.warns(SeveralGraphsWarning, match="sum over 3 graphs.*graphs=batch") as heard:
        QUESTIONS[question](chain)
    assert heard[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        QUESTIONS[question](chain, graphs=batch)
        QUESTIONS[question](parts[0][1])
    with pytest.raises(InputError, match=r"of shape \(15,\)"):
        QUESTIONS[question](chain, graphs=batch[:3])


def test_an_order_is_a_tensor_that_knows_its_route(case):
    chain, batch, parts = case
    for order in (ww.order_nodes(parts[0][1]), *ww.order_nodes(chain, graphs=batch)):
        assert "all walks listed" in repr(order)
        assert type(order[1:]) is type(order + 1) is torch.Tensor
        assert torch.equal(pickle.loads(pickle.dumps(order)), order)
        assert torch.equal(copy.deepcopy(order), order)
