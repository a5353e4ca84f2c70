"""Models that take steps in time or depth, choose among layers, or add up rows of neighbours between their layers."""

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.utils import scatter, softmax

from zoo.models import IDIOMS, Entry, M, gcn, lin, pooled, ran


def gated_cell(m, x, e):
    """Graph layers as the gates of a recurrent cell, and attention over its states."""
    memory, told = torch.zeros(M, 4).to(x), 0
    for step, share in enumerate(m.shares.softmax(0)):
        now = x * (1 + step)
        update = m.to_update(torch.cat([m.update(now, e), memory], 1)).sigmoid()
        reset = m.to_reset(torch.cat([m.reset(now, e), memory], 1)).sigmoid()
        new = m.to_new(torch.cat([m.new(now, e), memory * reset], 1)).tanh()
        memory = update * memory + (1 - update) * new
        told = told + share * memory
    return pooled(m.head(told.relu()))


class GivenWeights(pyg.MessagePassing):
    """Neighbours' means, times weights from outside."""

    def __init__(self):
        super().__init__(aggr="mean")

    def forward(self, weights, x, edge_index):
        return self.propagate(edge_index, x=x @ weights)

    def message(self, x_j):
        return x_j


def evolving(m, x, e):
    """Weights that a recurrent network changes from one step to the next."""
    weights, h = m.weights, x
    for _ in range(2):
        weights, _ = m.gru(weights, weights)
        h = m.conv(weights[0], h, e)
    return pooled(m.head(h.relu()))


def experts(m, x, e):
    """The two best of three layers for each node."""
    best, which = m.gate(x).topk(2, 1)
    gates = torch.zeros(M, 3).to(x).scatter(1, which, best.softmax(1))
    made = torch.stack([m.a(x, e), m.b(x, e), m.c(x, e)], 1)
    return pooled(m.head(m.last((gates.unsqueeze(-1) * made).sum(1).relu(), e)))


def halting(m, x, e):
    """Every node stops after as many steps as it wants."""
    left, told = torch.ones(M, 1).to(x), 0
    for _ in range(3):
        x = m.conv(x, e).tanh()
        stops = m.stop(x).sigmoid() * left
        told, left = told + stops * x, left - stops
    return pooled(m.head(told))


class Attending(pyg.MessagePassing):
    def __init__(self):
        super().__init__(aggr="add")
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x, query=self.query(x), key=self.key(x))

    def message(self, x_j, query_i, key_j, index, size_i):
        return softmax((query_i * key_j).sum(-1) / 2, index, num_nodes=size_i).unsqueeze(-1) * x_j


def diffusing(m, x, e):
    """Steps of an equation of diffusion, with a source."""
    source = h = m.into(x)
    for _ in range(3):
        h = h + 0.5 * (m.attend(h, e) - h + 0.1 * source)
    return pooled(m.head(h.relu()))


def reversible(m, x, e):
    for _ in range(2):
        a, b = x.chunk(2, -1)
        a = a + m.a(b, e)
        b = b + m.b(a, e)
        x = torch.cat([a, b], -1)
    return pooled(m.head(x))


def between(m, x, e):
    """Means of neighbours in the model's own code, between two layers."""
    h = m.a(x, e).relu()
    h = scatter(h[e[0]], e[1], 0, M, "mean")
    return pooled(m.head(m.b(h, e)))


def mixing(m, x, e):
    """Features mixed by a Fourier transform between two layers, as FNet mixes tokens."""
    h = m.a(x, e).relu()
    h = h + torch.fft.fft(h, dim=-1).real
    return pooled(m.head(m.b(h, e)))


class Energies(pyg.MessagePassing):
    """A number for every node."""

    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 1)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x)).squeeze(-1)

    def message(self, x_j):
        return x_j


def energies(m, x, e):
    return m.last(m.a(x, e).relu(), e).sum().view(1, 1)


CELL = {"update": gcn, "reset": gcn, "new": gcn, "to_update": lin(8), "to_reset": lin(8), "to_new": lin(8)}
STEPS = [
    Entry(
        "A cell of graph layers (TGCN, A3TGCN)",
        IDIOMS,
        ran(gated_cell, **CELL, shares=lambda: nn.Parameter(torch.rand(2))),
    ),
    Entry(
        "Weights that evolve (EvolveGCN)",
        IDIOMS,
        ran(evolving, weights=lambda: nn.Parameter(torch.randn(1, 4, 4)), gru=lambda: nn.GRU(4, 4), conv=GivenWeights),
    ),
    Entry("Mixture of experts", IDIOMS, ran(experts, a=gcn, b=gcn, c=gcn, last=gcn, gate=lin(4, 3))),
    Entry("Adaptive depth", IDIOMS, ran(halting, conv=gcn, stop=lin(4, 1))),
    Entry("Diffusion in steps (GRAND)", IDIOMS, ran(diffusing, into=lin(), attend=Attending)),
    Entry("Reversible halves", IDIOMS, ran(reversible, a=lambda: pyg.SAGEConv(2, 2), b=lambda: pyg.SAGEConv(2, 2))),
    Entry("Sums between layers, by hand", IDIOMS, ran(between, a=gcn, b=gcn)),
    Entry("Fourier mixing of features (FNet)", IDIOMS, ran(mixing, a=gcn, b=gcn)),
    Entry("A layer that ends with a vector", IDIOMS, ran(energies, a=gcn, last=Energies)),
]
