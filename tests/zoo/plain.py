"""Layers in plain torch, after the originals: modules that pass messages, and are no message-passing modules."""

import copy
from dataclasses import dataclass

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data
from torch_geometric.utils import to_dense_adj

from zoo.models import EDGE_ATTR, POSITIONS, Entry, M, Stack, mlp, pooled

PLAIN = "layers in plain torch, which are found"


def added_up(rows, at):
    """Rows of edges added up at nodes."""
    return rows.new_zeros(M, rows.shape[1]).index_add(0, at, rows)


class EquivariantLayer(nn.Module):
    """Features and places, both of which messages change, as E_GCL of the authors of EGNN."""

    def __init__(self):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(9, 4), nn.SiLU(), nn.Linear(4, 4), nn.SiLU())
        self.node = nn.Sequential(nn.Linear(8, 4), nn.SiLU(), nn.Linear(4, 4))
        self.place = nn.Sequential(nn.Linear(4, 4), nn.SiLU(), nn.Linear(4, 1, bias=False))

    def forward(self, h, edges, places):
        row, col = edges
        between = places[row] - places[col]
        messages = self.edge(torch.cat([h[row], h[col], between.square().sum(1, keepdim=True)], 1))
        places = places + added_up(between * self.place(messages), row) / 2
        return h + self.node(torch.cat([h, added_up(messages, row)], 1)), places


class Equivariant(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Linear(4, 4), nn.Linear(4, 2)
        self.first, self.second = EquivariantLayer(), EquivariantLayer()

    def forward(self, x, edge_index):
        h, places, edges = self.into(x), POSITIONS.to(x), [edge_index[0], edge_index[1]]
        for layer in (self.first, self.second):
            h, places = layer(h, edges, places)
        return pooled(self.out(h))


class GraphConvolution(nn.Module):
    """An adjacency times features times weights, as in pygcn."""

    def __init__(self, width=4):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, width)), nn.Parameter(torch.rand(width))

    def forward(self, h, adj):
        return torch.mm(adj, h @ self.weight) + self.bias


class GraphAttention(nn.Module):
    """Attention of all pairs, masked by an adjacency, as in pyGAT."""

    def __init__(self):
        super().__init__()
        self.weight, self.a = nn.Linear(4, 4), nn.Linear(8, 1)

    def forward(self, h, adj):
        h = self.weight(h)
        pairs = torch.cat([h.repeat_interleave(len(h), 0), h.repeat(len(h), 1)], 1).view(len(h), len(h), 8)
        scores = nn.functional.leaky_relu(self.a(pairs).squeeze(2))
        return torch.where(adj > 0, scores, -9e15).softmax(1) @ h


def by_adjacency(kind, sparse=False):
    """Two layers over a normalised adjacency with loops."""

    def run(m, x, e):
        adj = to_dense_adj(e, max_num_nodes=M)[0].to(x).mT + torch.eye(M).to(x)
        adj = adj / adj.sum(1, keepdim=True)
        adj = adj.to_sparse() if sparse else adj
        return pooled(m.head(m.b(m.a(x, adj).relu(), adj)))

    return lambda: Stack(run=run, a=kind(), b=kind())


class EdgeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, graph):
        sources, targets = graph.edge_index
        edge_attr = self.net(torch.cat([graph.x[sources], graph.x[targets], graph.edge_attr], 1))
        return Data(x=graph.x, edge_attr=edge_attr, edge_index=graph.edge_index)


class NodeBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, graph):
        received = added_up(graph.edge_attr, graph.edge_index[1])
        x = self.net(torch.cat([graph.x, received], 1))
        return Data(x=x, edge_attr=graph.edge_attr, edge_index=graph.edge_index)


class GraphBlock(nn.Module):
    """Edges, then nodes, both added to what they were, as in MeshGraphNets."""

    def __init__(self):
        super().__init__()
        self.edges, self.nodes = EdgeBlock(), NodeBlock()

    def forward(self, graph):
        before = copy.copy(graph)
        graph = self.nodes(self.edges(graph))
        return Data(x=before.x + graph.x, edge_attr=before.edge_attr + graph.edge_attr, edge_index=graph.edge_index)


def simulator(m, x, e):
    graph = Data(x=m.enc(x), edge_attr=m.edge(EDGE_ATTR.to(x)), edge_index=e)
    return pooled(m.head(m.b(m.a(graph)).x))


@dataclass
class MolecularGraph:
    """Atoms and bonds as an object of somebody's own."""

    atoms: torch.Tensor
    bonds: torch.Tensor
    ends: torch.Tensor


class BondMessagePassing(nn.Module):
    """Messages of directed bonds, in one module from atoms to atoms, as in chemprop."""

    def __init__(self):
        super().__init__()
        self.begin, self.update, self.end = nn.Linear(7, 4), nn.Linear(4, 4), nn.Linear(8, 4)

    def forward(self, graph):
        source, target = graph.ends
        back = ((source[:, None] == target) & (target[:, None] == source)).nonzero()[:, 1]
        first = bonds = self.begin(torch.cat([graph.atoms[source], graph.bonds], 1)).relu()
        for _ in range(2):
            bonds = (first + self.update(added_up(bonds, target)[source] - bonds[back])).relu()
        return self.end(torch.cat([graph.atoms, added_up(bonds, target)], 1)).relu()


def molecular(m, x, e):
    return pooled(m.head(m.a(MolecularGraph(x, EDGE_ATTR.to(x), e))))


def dense(make):
    """Two layers over a matrix, on one graph, (1, M, F)."""

    def run(m, x, e):
        adj = to_dense_adj(e, max_num_nodes=M).to(x)
        return m.head(m.b(m.a(x[None], adj).relu(), adj)).mean(1)

    return lambda: Stack(run=run, a=make(), b=make())


FOUND = [
    Entry("EGNN, features and places", PLAIN, Equivariant),
    Entry("GCN over a matrix (pygcn)", PLAIN, by_adjacency(GraphConvolution)),
    Entry("GCN over a sparse matrix (pygcn)", PLAIN, by_adjacency(GraphConvolution, sparse=True)),
    Entry("GAT over a matrix (pyGAT)", PLAIN, by_adjacency(GraphAttention)),
    Entry(
        "MeshGraphNets",
        PLAIN,
        lambda: Stack(run=simulator, a=GraphBlock(), b=GraphBlock(), enc=nn.Linear(4, 4), edge=nn.Linear(3, 4)),
    ),
    Entry("Directed bonds (chemprop)", PLAIN, lambda: Stack(run=molecular, a=BondMessagePassing())),
    Entry("DenseGCNConv", PLAIN, dense(lambda: pyg.DenseGCNConv(4, 4))),
    Entry("DenseSAGEConv", PLAIN, dense(lambda: pyg.DenseSAGEConv(4, 4))),
    Entry("DenseGraphConv", PLAIN, dense(lambda: pyg.DenseGraphConv(4, 4))),
    Entry("DenseGINConv", PLAIN, dense(lambda: pyg.DenseGINConv(mlp()))),
    Entry("DenseGATConv", PLAIN, dense(lambda: pyg.DenseGATConv(4, 4))),
]
