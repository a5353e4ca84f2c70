"""Sampled subgraphs, with all that a NeighborLoader writes on them, give what the whole graph gives."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv
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


KINDS = [("user", "rates", "item"), ("item", "rated_by", "user"), ("user", "knows", "user")]
COUNTS = {"user": 9, "item": 7}


def typed_graph():
    generator = torch.Generator().manual_seed(3)
    data = HeteroData()
    for name, count in COUNTS.items():
        data[name].x = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    for kind in KINDS:
        ends = [torch.randint(0, COUNTS[name], (14,), generator=generator) for name in (kind[0], kind[2])]
        data[kind].edge_index = torch.unique(torch.stack(ends), dim=1)
    return data


def sampled_by_type(data, seeds, hops):
    """The same of users in a heterogeneous graph: what was sampled is counted for every type, hop by hop."""
    nodes = {"user": list(seeds), "item": []}
    frontier = {"user": list(seeds), "item": []}
    counts = {"user": [len(seeds)], "item": [0]}
    edges, numbers, edge_counts = ({kind: [] for kind in KINDS} for _ in range(3))
    for _ in range(hops):
        found = {name: [] for name in COUNTS}
        for kind in KINDS:
            (source, _, target), before = kind, len(edges[kind])
            for node in frontier[target]:
                for number in (data[kind].edge_index[1] == node).nonzero()[:, 0].tolist():
                    other = int(data[kind].edge_index[0, number])
                    if other not in nodes[source]:
                        nodes[source].append(other)
                        found[source].append(other)
                    edges[kind].append((nodes[source].index(other), nodes[target].index(node)))
                    numbers[kind].append(number)
            edge_counts[kind].append(len(edges[kind]) - before)
        for name in COUNTS:
            counts[name].append(len(found[name]))
        frontier = found
    batch = HeteroData()
    for name, ids in nodes.items():
        batch[name].n_id = torch.tensor(ids)
        batch[name].x = data[name].x[batch[name].n_id]
        batch[name].num_sampled_nodes = counts[name]
    for kind in KINDS:
        batch[kind].edge_index = torch.tensor(edges[kind]).view(-1, 2).t().contiguous()
        batch[kind].e_id = torch.tensor(numbers[kind])
        batch[kind].num_sampled_edges = edge_counts[kind]
    batch["user"].input_id, batch["user"].batch_size = torch.tensor(seeds), len(seeds)
    return batch


class TrimmedByType(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.convs = nn.ModuleList([HeteroConv({kind: SAGEConv(4, 4) for kind in KINDS}) for _ in range(2)])
        self.head = nn.Linear(4, 2)

    def forward(self, x_dict, edge_index_dict, num_sampled_nodes_dict=None, num_sampled_edges_dict=None):
        for i, conv in enumerate(self.convs):
            if num_sampled_nodes_dict is not None:
                x_dict, edge_index_dict, _ = trim_to_layer(
                    i, num_sampled_nodes_dict, num_sampled_edges_dict, x_dict, edge_index_dict
                )
            x_dict = {name: h.relu() for name, h in conv(x_dict, edge_index_dict).items()}
        return self.head(x_dict["user"])


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("seed", [0, 2])
def test_a_sampled_batch_of_types_gives_what_the_graph_gives(trimmed, rule, seed):
    model, data = TrimmedByType().double().eval(), typed_graph()
    batch = sampled_by_type(data, [*SEEDS[:2], 0], 2)
    counts = {
        "num_sampled_nodes_dict": batch.collect("num_sampled_nodes"),
        "num_sampled_edges_dict": batch.collect("num_sampled_edges"),
    }
    part = ww.trace(model, batch, index=("user", seed), target=1, rule=rule, **(counts if trimmed else {}))
    whole = ww.trace(model, data, index=("user", int(batch["user"].n_id[seed])), target=1, rule=rule)
    torch.testing.assert_close(part.outputs, whole.outputs)
    assert abs(whole.input_relevance) > 1e-3
    sets = [{"user": [0, 1], "item": [0]}, {"user": [seed, 3], "item": [1, 2]}, {"user": [seed]}]
    named = [{name: batch[name].n_id[ids].tolist() for name, ids in nodes.items()} for nodes in sets]
    for alpha in (0.0, 0.4):
        ours = ww.subgraph_relevance(part, sets, alpha=alpha)
        theirs = ww.subgraph_relevance(whole, named, alpha=alpha)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    ours, theirs = ww.node_relevance(part), ww.node_relevance(whole)
    for name, count in COUNTS.items():
        by_node = torch.zeros(count, dtype=torch.float64).index_add(0, batch[name].n_id, ours[name])
        torch.testing.assert_close(by_node, theirs[name], rtol=1e-9, atol=1e-11)
