"""Layers that return rows of edges, on graphs with as many edges as nodes: no walk stands at an edge."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing

import walkwise as ww

RING = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
CHORD = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])


class Ends(MessagePassing):
    """What is at the two ends of every edge."""

    def __init__(self):
        super().__init__()
        self.both, self.one = nn.Linear(8, 4), nn.Linear(4, 4)

    def forward(self, x, edge_index, how):
        sender, receiver = edge_index
        if how == "both":
            return self.both(torch.cat([x[sender], x[receiver]], dim=-1)).relu()
        if how == "selected":
            return self.one(x.index_select(0, sender) * x.index_select(0, receiver))
        return self.one(x[sender]) - self.one(x[receiver]).relu()


class Net(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.first, self.ends, self.how, self.out = GCNConv(3, 4), Ends(), how, nn.Linear(4, 2)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        return self.out(self.ends(h, edge_index, self.how).sum(dim=0, keepdim=True))


@pytest.mark.parametrize("how", ["both", "selected", "difference"])
def test_edges_are_no_nodes_where_there_are_as_many(how):
    torch.manual_seed(0)
    model, x = Net(how).double().eval(), torch.randn(5, 3, dtype=torch.float64)
    ring, chord = (ww.trace(model, x, edges, target=0, rule="zero") for edges in (RING, CHORD))
    assert ring.num_layers == chord.num_layers == 1
    for chain in (ring, chord):
        assert any("'ends' (Ends) returns rows that are not nodes of the graph" in note for note in chain.notes)
    h = x.clone().requires_grad_(True)
    inside = torch.tensor([1.0, 1, 1, 0, 0], dtype=torch.float64).view(-1, 1)
    out = model.first(h, RING).relu()
    passed = out * inside + (out * (1 - inside)).detach()
    score = model.out(model.ends(passed, RING, how).sum(dim=0, keepdim=True))[0, 0]
    (gradient,) = torch.autograd.grad(score, h)
    if how != "selected":  # of a product each factor has half
        expected = float((gradient * x * inside).sum())
        assert float(ww.subgraph_relevance(ring, [[0, 1, 2]])) == pytest.approx(expected, abs=1e-12)


class Both(MessagePassing):
    """A layer for nodes that also looks rows up, and adds them up by number."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 4)

    def forward(self, x, edge_index):
        sent = self.lin(x[edge_index[0]]).relu()
        return torch.zeros(len(x), 4, dtype=x.dtype).index_add(0, edge_index[1], sent)


def test_sums_over_edges_are_nodes():
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = Both(), GCNConv(4, 4), nn.Linear(4, 2)

        def forward(self, x, edge_index):
            return self.out(self.b(self.a(x, edge_index), edge_index).sum(dim=0, keepdim=True))

    chain = ww.trace(Model().double().eval(), torch.randn(5, 3, dtype=torch.float64), RING, target=0)
    assert chain.num_layers == 2


class Vectors(nn.Module):
    """Features and vectors of nodes, as in PaiNN, and rows of edges, as in GatedGCN."""

    def __init__(self):
        super().__init__()
        self.send, self.to_vectors, self.edge = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, h, vectors, edges, edge_index, directions):
        sender, receiver = edge_index
        sent = self.send(h)[sender]
        added = vectors[sender] * 0.5 + directions[..., None] * self.to_vectors(h)[sender][:, None]
        vectors = vectors + torch.zeros_like(vectors).index_add(0, receiver, added)
        edges = edges + self.edge(h)[sender].relu() + h[receiver][:, :4]
        return h + torch.zeros_like(h).index_add(0, receiver, sent * edges.sigmoid()), vectors, edges


class Directed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.mix, self.out = Vectors(), Vectors(), nn.Linear(4, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x, edge_index, directions, batch):
        edges = torch.ones(edge_index.shape[1], 4, dtype=x.dtype)
        h, vectors, edges = self.first(x, torch.zeros(len(x), 2, 4, dtype=x.dtype), edges, edge_index, directions)
        vectors = self.mix(vectors)[:, :, :4]
        h, vectors, edges = self.second(h, vectors, edges, edge_index, directions)
        h = h + vectors.sum(1)
        return self.out(torch.zeros(int(batch.max()) + 1, 4, dtype=x.dtype).index_add(0, batch, h))


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_further_rows_of_nodes_are_nodes_and_of_edges_are_not_where_there_are_as_many(rule):
    """The same graph beside another, so that there are more edges than nodes, has the same relevance."""
    torch.manual_seed(0)
    model, x = Directed().double().eval(), torch.randn(8, 4, dtype=torch.float64)
    edges = torch.tensor([[4, 0, 2, 1, 3, 5, 6, 7, 5], [3, 1, 0, 2, 4, 6, 5, 6, 7]])
    directions = torch.randn(9, 2, dtype=torch.float64)
    batch = torch.tensor([0] * 5 + [1] * 3)
    alone = ww.trace(model, x[:5], edges[:, :5], directions=directions[:5], batch=batch[:5], target=0, rule=rule)
    beside = ww.trace(
        model, x, edges, directions=directions, batch=batch, target=lambda output: output[0, 0], rule=rule
    )  # fmt: skip
    assert alone.num_layers == beside.num_layers == 2
    for layer in range(3):
        expected = ww.node_relevance(beside, layer=layer)[:5]
        assert ww.node_relevance(alone, layer=layer).tolist() == pytest.approx(expected.tolist(), abs=1e-12)
    sets = [[0, 1], [2], [0, 1, 2, 3]]
    expected = ww.subgraph_relevance(beside, sets).tolist()
    assert ww.subgraph_relevance(alone, sets).tolist() == pytest.approx(expected, abs=1e-12)


class OfBonds(nn.Module):
    """A layer from edge to edge on features of edges, which then go to nodes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.between, self.first, self.second = GCNConv(3, 4), GCNConv(3, 4), GCNConv(4, 4)
        self.enc, self.out = nn.Linear(3, 3), nn.Linear(4, 2)
        self.double().eval()

    def forward(self, x, edge_index, edge_attr):
        source, target = edge_index
        pairs = ((target[:, None] == source) & (source[:, None] != target)).nonzero().t()
        bonds = self.between(self.enc(edge_attr).relu(), pairs).relu()
        h = self.first(x, edge_index).relu() + bonds.new_zeros(len(x), 4).index_add(0, target, bonds)
        return self.out(self.second(h, edge_index)).mean(0, keepdim=True)


def with_loop(edges):
    return torch.cat([edges, torch.tensor([[4], [4]])], 1)


TREE = torch.tensor([[1, 2, 3, 4, 0], [0, 0, 1, 1, 0]])  # all nodes to their parents, and the root to itself


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("edges", [RING, TREE, RING[:, [2, 0, 4, 1, 3]], with_loop(RING)])
def test_features_of_edges_are_none_of_nodes_where_there_are_as_many(edges, rule):
    """In whatever order nodes and edges are listed."""
    model, M, E = OfBonds(), 5, edges.shape[1]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(M, 3, generator=generator, dtype=torch.float64)
    attributes = torch.randn(E, 3, generator=generator, dtype=torch.float64)
    chain = ww.trace(model, x, edges, edge_attr=attributes, target=0, rule=rule)
    assert any("'between' (GCNConv) runs on rows that are not nodes" in note for note in chain.notes)
    nodes, listed = torch.randperm(M, generator=generator), torch.randperm(E, generator=generator)
    moved = nodes.argsort()[edges][:, listed]
    again = ww.trace(model, x[nodes], moved, edge_attr=attributes[listed], target=0, rule=rule)
    found, expected = ww.node_relevance(again, layer="start"), ww.node_relevance(chain, layer="start")[nodes]
    torch.testing.assert_close(found, expected)
    if rule == "zero":
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(leaf, edges, attributes)[0, 0], leaf)
        torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
