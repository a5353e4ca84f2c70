"""Models of crystals and molecules that carry more than rows of atoms: of bonds, of the whole, of directions."""

import torch
import torch_geometric.nn as pyg
from torch import nn

from zoo.models import EDGE_ATTR, EDGES, IDIOMS, Entry, pooled
from zoo.rest import PLACES

N = 4
#: Pairs of bonds k → j → i, and something for each.
ANGLES = ((EDGES[1][:, None] == EDGES[0]) & (EDGES[0][:, None] != EDGES[1])).nonzero().t()
ANGLE_ATTR = torch.linspace(0, 2, ANGLES.shape[1] * N).view(-1, N).cos()


def perceptron(width):
    return nn.Sequential(nn.Linear(width, N), nn.ReLU(), nn.Linear(N, N))


class WithState(nn.Module):
    """MEGNet's block: bonds, atoms and a state of the whole, each made of all three."""

    def __init__(self):
        super().__init__()
        self.bonds, self.atoms, self.whole = (perceptron(count * N) for count in (4, 3, 3))

    def forward(self, h, edge_index, bonds, state):
        source, target = edge_index
        ends = torch.cat([h[source], h[target], bonds, state.expand(len(bonds), -1)], 1)
        made = self.bonds(ends)
        mean = torch.zeros_like(h).index_add(0, target, made) / 2
        atoms = self.atoms(torch.cat([h, mean, state.expand(len(h), -1)], 1))
        whole = self.whole(torch.cat([state, atoms.mean(0, keepdim=True), made.mean(0, keepdim=True)], 1))
        return h + atoms, bonds + made, state + whole


class StateOfAll(nn.Module):
    """The state begins as a mean of raw features, beside the encoder of the atoms."""

    def __init__(self):
        super().__init__()
        self.atoms, self.bonds, self.whole = nn.Linear(N, N), nn.Linear(3, N), nn.Linear(N, N)
        self.blocks, self.head = nn.ModuleList([WithState(), WithState()]), nn.Linear(2 * N, 2)

    def forward(self, x, edge_index):
        h, bonds = self.atoms(x).relu(), self.bonds(EDGE_ATTR.to(x)).relu()
        state = self.whole(x.mean(0, keepdim=True)).tanh()
        for block in self.blocks:
            h, bonds, state = block(h, edge_index, bonds, state)
        return self.head(torch.cat([h.sum(0, keepdim=True), state], 1))


class EdgeGated(pyg.MessagePassing):
    """ALIGNN's layer: gates of the edges, whose own rows go on."""

    def __init__(self):
        super().__init__(aggr="add")
        self.from_source, self.from_target, self.own = nn.Linear(N, N), nn.Linear(N, N), nn.Linear(N, N)
        self.send, self.stay = nn.Linear(N, N), nn.Linear(N, N)

    def forward(self, h, edge_index, edges):
        source, target = edge_index
        made = self.from_source(h)[source] + self.from_target(h)[target] + self.own(edges)
        into = self.propagate(edge_index, h=self.send(h), gate=made.sigmoid())
        return h + nn.functional.silu(self.stay(h) + into), edges + nn.functional.silu(made)

    def message(self, h_j, gate):
        return gate * h_j


class LineGraph(nn.Module):
    """Layers on atoms, and between them on bonds, that are the nodes of the line graph."""

    def __init__(self):
        super().__init__()
        self.bonds, self.head = nn.Linear(3, N), nn.Linear(N, 2)
        self.on_atoms, self.on_bonds = (nn.ModuleList([EdgeGated(), EdgeGated()]) for _ in range(2))

    def forward(self, x, edge_index):
        bonds, angles = self.bonds(EDGE_ATTR.to(x)), ANGLE_ATTR.to(x)
        for on_atoms, on_bonds in zip(self.on_atoms, self.on_bonds, strict=True):
            x, bonds = on_atoms(x, edge_index, bonds)
            bonds, angles = on_bonds(bonds, ANGLES, angles)
        return pooled(self.head(x)) + pooled(self.head(bonds))


class Directions(nn.Module):
    """MACE's interaction: features times a radial part times harmonics of the direction, up to vectors."""

    def __init__(self):
        super().__init__()
        self.send, self.numbers, self.vectors = (nn.Linear(N, N, bias=False) for _ in range(3))
        self.radial = nn.Sequential(nn.Linear(1, N), nn.SiLU(), nn.Linear(N, 2 * N))

    def forward(self, h, edge_index):
        source, target = edge_index
        apart = (PLACES[target] - PLACES[source]).to(h)
        far = apart.norm(dim=1, keepdim=True)
        sent = self.send(h)[source]
        a, b = self.radial(far.cos()).chunk(2, 1)
        sent = torch.stack([a * sent, *(b * sent * side for side in (apart / far).split(1, 1))], 2)  # (E, N, 4)
        into = torch.zeros(len(h), N, 4, dtype=h.dtype).index_add(0, target, sent)
        mixed = [self.numbers(into[:, :, 0]), *(self.vectors(into[:, :, i]) for i in (1, 2, 3))]
        return torch.stack(mixed, 2)


class Products(nn.Module):
    """Products of up to three of what came to an atom, with weights of its element."""

    def __init__(self):
        super().__init__()
        self.weight, self.mix = nn.Parameter(torch.randn(N, 3, N)), nn.Linear(N, N, bias=False)

    def forward(self, into, element):
        w = torch.einsum("mk,kpn->mpn", element, self.weight)
        pairs = (into * into).sum(2)
        return self.mix(w[:, 0] * into[:, :, 0] + w[:, 1] * pairs + w[:, 2] * pairs * into[:, :, 0])


class HigherOrder(nn.Module):
    def __init__(self):
        super().__init__()
        self.elements, self.embed = nn.Linear(N, N, bias=False), nn.Linear(N, N, bias=False)
        self.interactions = nn.ModuleList([Directions(), Directions()])
        self.products = nn.ModuleList([Products(), Products()])
        self.heads = nn.ModuleList([nn.Linear(N, 2), nn.Linear(N, 2)])

    def forward(self, x, edge_index):
        element, h, out = self.elements(x), self.embed(x), 0
        for interaction, product, head in zip(self.interactions, self.products, self.heads, strict=True):
            h = product(interaction(h, edge_index), element)
            out = out + pooled(head(h))
        return out


MATERIALS = [
    Entry("MEGNet, its state of raw features", IDIOMS, StateOfAll),
    Entry("Bonds as nodes between the layers (ALIGNN)", IDIOMS, LineGraph),
    Entry("Products of features and harmonics (MACE)", IDIOMS, HigherOrder),
]
