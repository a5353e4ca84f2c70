"""Several graphs in one batch: every quantity is that of the graphs by themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import BatchNorm, GCNConv, global_max_pool, global_mean_pool

import walkwise as ww

ALPHAS = [0.0, 0.3, 1.0]


@pytest.fixture(scope="module")
def graphs(graph):
    """A usual graph, one without edges, a single node, one with an isolated node, one in two pieces."""
    usual = graph(5, seed=1)
    edgeless = graph(2, seed=2)[0], torch.empty(2, 0, dtype=torch.long)
    single = graph(1, seed=3)[0], torch.empty(2, 0, dtype=torch.long)
    isolated = graph(4, seed=4)[0], torch.tensor([[0, 1, 1, 3], [1, 0, 3, 1]])  # node 2
    pieces = graph(4, seed=5)[0], torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    return [Data(x=x, edge_index=e) for x, e in (usual, edgeless, single, isolated, pieces)]


@pytest.fixture(scope="module")
def batch(graphs):
    return Batch.from_data_list(graphs)


@pytest.fixture(scope="module", params=["GCN", "GIN", "SAGE", "GAT", "SG", "Transformer", "jumping"])
def model(request, net):
    return net("GCN", jump=True) if request.param == "jumping" else net(request.param)


@pytest.fixture(scope="module")
def chains(model, graphs, batch):
    """The chain of the batch, and those of its graphs."""
    together = ww.trace(model, batch.x, batch.edge_index, batch=batch.batch)
    return together, [ww.trace(model, g.x, g.edge_index) for g in graphs]


def subgraphs(graph):
    M = graph.num_nodes
    return [[0], list(range(M)), list(range(0, M, 2)), [M - 1, 0][: M if M < 2 else 2]]


def shifted(graphs, batch):
    return [[n + first for n in s] for g, first in zip(graphs, batch.ptr.tolist(), strict=False) for s in subgraphs(g)]


def test_outputs_are_the_graphs_own(chains, model, batch):
    together, alone = chains
    predicted = model(batch.x, batch.edge_index, batch=batch.batch).max(dim=1).values
    assert torch.allclose(together.outputs, predicted)
    assert together.output == pytest.approx(sum(chain.output for chain in alone))
    assert together.input_relevance == pytest.approx(sum(chain.input_relevance for chain in alone))


@pytest.mark.parametrize("alpha", [0.0, 0.3, ALPHAS])
def test_subgraphs(chains, graphs, batch, alpha):
    together, alone = chains
    expected = [ww.subgraph_relevance(c, subgraphs(g), alpha=alpha) for c, g in zip(alone, graphs, strict=True)]
    assert torch.allclose(
        ww.subgraph_relevance(together, shifted(graphs, batch), alpha=alpha), torch.cat(expected), atol=1e-10
    )


def test_polynomials(chains, graphs, batch):
    together, alone = chains
    expected = [ww.subgraph_polynomial(c, subgraphs(g)) for c, g in zip(alone, graphs, strict=True)]
    assert torch.allclose(ww.subgraph_polynomial(together, shifted(graphs, batch)), torch.cat(expected), atol=1e-10)


def test_a_subgraph_across_graphs_is_the_sum_of_its_parts(chains):
    together, _ = chains
    parts = [[0, 1], [5], [7], [8, 10], [14]]  # one in every graph
    joined = ww.subgraph_relevance(together, [[node for part in parts for node in part]], alpha=ALPHAS)
    assert torch.allclose(joined[0], ww.subgraph_relevance(together, parts, alpha=ALPHAS).sum(0))


def test_walks(chains, batch):
    together, alone = chains
    listed = [ww.enumerate_walks(chain) for chain in alone]
    moved = torch.cat([torch.where(w < 0, w, w + f) for w, f in zip(listed, batch.ptr.tolist(), strict=False)])
    assert torch.equal(ww.enumerate_walks(together), moved)
    expected = torch.cat([ww.walk_relevance(c, w) for c, w in zip(alone, listed, strict=True)])
    assert torch.allclose(ww.walk_relevance(together, moved), expected, atol=1e-10)
    assert float(expected.sum()) == pytest.approx(together.input_relevance)


def test_no_walk_leaves_its_graph(chains):
    together, _ = chains
    assert ww.walk_relevance(together, [[0, 0, 5], [7, 8, 8], [12, 14, 14]]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("layer", [0, 2])
def test_nodes(chains, layer):
    together, alone = chains
    expected = torch.cat([ww.node_relevance(chain, layer=layer) for chain in alone])
    assert torch.allclose(ww.node_relevance(together, layer=layer), expected, atol=1e-10)


@pytest.mark.parametrize("layer", [None, 1])
def test_edges(chains, graphs, layer):
    together, alone = chains
    parts = [ww.edge_relevance(chain, layer=layer) for chain in alone]
    assert [len(part) for part in parts] == [g.num_edges for g in graphs]
    assert torch.allclose(ww.edge_relevance(together, layer=layer), torch.cat(parts), atol=1e-10)


def test_features(chains):
    together, alone = chains
    expected = torch.cat([ww.feature_relevance(chain) for chain in alone])
    assert torch.allclose(ww.feature_relevance(together), expected, atol=1e-10)


def test_one_target_per_graph(net, graphs, batch):
    model, targets = net(), [2, 0, 1, 1, 0]
    arguments = {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch}
    expected = torch.cat(
        [ww.node_relevance(ww.trace(model, g.x, g.edge_index, target=t)) for g, t in zip(graphs, targets, strict=True)]
    )
    for given in (targets, tuple(targets), torch.tensor(targets)):
        chain = ww.trace(model, **arguments, target=given)
        assert torch.allclose(chain.outputs, model(**arguments)[range(5), targets])
        assert torch.allclose(ww.node_relevance(chain), expected)
    same = ww.trace(model, **arguments, target=1)
    assert torch.allclose(same.outputs, model(**arguments)[:, 1])


@pytest.mark.parametrize("pool", [global_mean_pool, global_max_pool])
def test_other_poolings_and_normalisation(graphs, batch, pool):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.norm, self.second = GCNConv(3, 4), BatchNorm(4), GCNConv(4, 3)
            self.norm.module.running_mean.normal_()

        def forward(self, x, edge_index, batch=None):
            return pool(self.second(self.norm(self.first(x, edge_index)).relu(), edge_index), batch)

    model = Model().double().eval()
    together = ww.trace(model, batch.x, batch.edge_index, batch=batch.batch)
    expected = torch.cat([ww.node_relevance(ww.trace(model, g.x, g.edge_index)) for g in graphs])
    assert torch.allclose(ww.node_relevance(together), expected)
    assert together.output == pytest.approx(float(together.outputs.sum()))
