"""Sampled subgraphs, with all that a NeighborLoader writes on them, give what the whole graph gives."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE, SAGEConv
from torch_geometric.utils import trim_to_layer

import walkwise as ww

NODES = 14
SEEDS = [5, 2, 9]
SETS = [[0], [0, 1, 2], [0, 3, 4], [2, 5, 6, 7]]


def whole_graph():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, 40), generator=generator)
    edges = torch.unique(edges[:, edges[0] != edges[1]], dim=1)
    return Data(x=torch.randn(NODES, 4, generator=generator, dtype=torch.float64), edge_index=edges)


def sampled(data, seeds, hops):
    """A batch as NeighborLoader makes it with all neighbours: seeds first, then hop by hop, edges in the same order."""
    nodes, edges, numbers = list(seeds), [], []
    node_counts, edge_counts, frontier = [len(seeds)], [], list(seeds)
    for _ in range(hops):
        found, before = [], len(edges)
        for target in frontier:
            for number in (data.edge_index[1] == target).nonzero()[:, 0].tolist():
                source = int(data.edge_index[0, number])
                if source not in nodes:
                    nodes.append(source)
                    found.append(source)
                edges.append((nodes.index(source), nodes.index(target)))
                numbers.append(number)
        node_counts.append(len(found))
        edge_counts.append(len(edges) - before)
        frontier = found
    n_id = torch.tensor(nodes)
    return Data(
        x=data.x[n_id], edge_index=torch.tensor(edges).t().contiguous(), n_id=n_id, e_id=torch.tensor(numbers),
        num_sampled_nodes=node_counts, num_sampled_edges=edge_counts, input_id=torch.tensor(seeds),
        batch_size=len(seeds),
    )  # fmt: skip


class Trimmed(nn.Module):
    """Later layers run on the nodes that still matter; what a batch brings is bound by name."""

    def __init__(self, embeds=False):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(4, 4), SAGEConv(4, 3)])
        self.table = nn.Embedding(NODES, 4) if embeds else nn.Identity()

    def forward(self, x, edge_index, num_sampled_nodes=None, num_sampled_edges=None):
        x = self.table(x)
        for i, conv in enumerate(self.convs):
            if num_sampled_nodes is not None:
                x, edge_index = self.cut(i, num_sampled_nodes, num_sampled_edges, x, edge_index)
            x = conv(x, edge_index)
            x = x.relu() if i == 0 else x
        return x

    def cut(self, i, nodes, edges, x, edge_index):
        x, edge_index, _ = trim_to_layer(i, nodes, edges, x, edge_index)
        return x, edge_index


class Bipartite(Trimmed):
    """All nodes send, those that still matter receive."""

    def cut(self, i, nodes, edges, x, edge_index):
        hops = len(edges) - i
        return (x, x[: sum(nodes[:hops])]), edge_index[:, : sum(edges[:hops])]


MODELS = {
    "plain": (lambda: GraphSAGE(4, 4, 2, 3), False),
    "trimmed": (Trimmed, False),
    "bipartite": (Bipartite, False),
    "trimmed embedding": (lambda: Trimmed(True), True),
    "bipartite embedding": (lambda: Bipartite(True), True),
}


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_sampled_batch_gives_what_the_graph_gives(name, rule, seed):
    torch.manual_seed(1)
    make, numbers = MODELS[name]
    model, data = make().double().eval(), whole_graph()
    batch = sampled(data, SEEDS, 2)
    if numbers:
        data.x, batch.x = torch.arange(NODES), batch.n_id
    part = ww.trace(model, batch, index=seed, target=1, rule=rule)
    whole = ww.trace(model, data, index=SEEDS[seed], target=1, rule=rule)
    named = [[int(batch.n_id[node]) for node in nodes] for nodes in SETS]
    for alpha in (0.0, 0.4):
        ours = ww.subgraph_relevance(part, SETS, alpha=alpha)
        theirs = ww.subgraph_relevance(whole, named, alpha=alpha)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    by_node = torch.zeros(NODES, dtype=torch.float64).index_add(0, batch.n_id, ww.node_relevance(part))
    torch.testing.assert_close(by_node, ww.node_relevance(whole), rtol=1e-9, atol=1e-11)


def test_pygs_own_models_trim_what_was_sampled():
    torch.manual_seed(1)
    model, batch = GraphSAGE(4, 4, 2, 3).double().eval(), sampled(whole_graph(), SEEDS, 2)
    counts = {
        "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
        "num_sampled_edges_per_hop": batch.num_sampled_edges,
    }
    ours, theirs = (ww.trace(model, batch, index=0, target=1, **given) for given in (counts, {}))
    torch.testing.assert_close(ww.subgraph_relevance(ours, SETS), ww.subgraph_relevance(theirs, SETS))
