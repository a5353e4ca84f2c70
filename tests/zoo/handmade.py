"""Message-passing layers as people write them for their own models, 4 features to 4."""

import math

import torch
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import scatter, softmax

N, NODES, EDGES = 4, 6, 12
PLACES = torch.linspace(0, 3, 3 * NODES, dtype=torch.float64).view(NODES, 3).sin()
ATTRIBUTES = torch.linspace(-1, 1, 3 * EDGES, dtype=torch.float64).view(EDGES, 3).sin()


class ContinuousFilter(MessagePassing):
    """SchNet's interaction: messages times a filter made of distances."""

    def __init__(self):
        super().__init__(aggr="add")
        self.filter = nn.Sequential(nn.Linear(5, N), nn.Softplus(), nn.Linear(N, N))
        self.into, self.out = nn.Linear(N, N, bias=False), nn.Linear(N, N)

    def forward(self, x, edge_index):
        far = (PLACES[edge_index[0]] - PLACES[edge_index[1]]).norm(dim=-1).to(x)
        rising = torch.exp(-((far.view(-1, 1) - torch.linspace(0, 2, 5).to(x)) ** 2))
        cutoff = 0.5 * (torch.cos(far * math.pi / 5) + 1)
        return x + self.out(
            self.propagate(edge_index, x=self.into(x), filters=self.filter(rising) * cutoff.view(-1, 1))
        )

    def message(self, x_j, filters):
        return x_j * filters


class GeneralisedPageRank(MessagePassing):
    """GPRGNN: a learned sum of powers of the propagation."""

    def __init__(self):
        super().__init__()
        self.shares = nn.Parameter(torch.rand(4))

    def forward(self, x, edge_index):
        edge_index, weight = gcn_norm(edge_index, None, NODES, dtype=x.dtype)
        total = x * self.shares[0]
        for share in self.shares[1:]:
            x = self.propagate(edge_index, x=x, weight=weight)
            total = total + share * x
        return total

    def message(self, x_j, weight):
        return weight.view(-1, 1) * x_j


class EdgeScores(MessagePassing):
    """Attention whose scores an edge_updater makes."""

    def __init__(self):
        super().__init__(aggr="add")
        self.into, self.score = nn.Linear(N, N), nn.Linear(2 * N, 1)

    def forward(self, x, edge_index):
        h = self.into(x)
        return self.propagate(edge_index, x=h, scores=self.edge_updater(edge_index, x=h))

    def edge_update(self, x_i, x_j, index):
        return softmax(self.score(torch.cat([x_i, x_j], -1)), index, num_nodes=NODES)

    def message(self, x_j, scores):
        return scores * x_j


class OwnAggregate(MessagePassing):
    """A perceptron for every edge, and an aggregation and an update of its own."""

    def __init__(self):
        super().__init__(aggr=None)
        self.edge, self.node = nn.Linear(2 * N, N), nn.Linear(2 * N, N)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.edge(torch.cat([x_i, x_j - x_i], -1)).relu()

    def aggregate(self, inputs, index, dim_size=None):
        return scatter(inputs, index, 0, dim_size, "sum") - scatter(inputs, index, 0, dim_size, "mean")

    def update(self, aggr_out, x):
        return self.node(torch.cat([x, aggr_out], -1))


class BilinearMessages(MessagePassing):
    """A matrix for every edge, a learned sum of three by its features."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.weight = nn.Parameter(torch.randn(3, N, N))

    def forward(self, x, edge_index):
        matrices = torch.einsum("ek,kij->eij", ATTRIBUTES.to(x), self.weight)
        return x + self.propagate(edge_index, x=x, matrices=matrices)

    def message(self, x_j, matrices):
        return torch.bmm(matrices, x_j.unsqueeze(-1)).squeeze(-1)


class HeadsFirst(MessagePassing):
    """Heads in the first dimension, nodes in the second."""

    def __init__(self):
        super().__init__(aggr="add", node_dim=1)
        self.weight, self.out = nn.Parameter(torch.randn(2, N, N)), nn.Linear(2 * N, N)

    def forward(self, x, edge_index):
        h = self.propagate(edge_index, h=torch.matmul(x.unsqueeze(0), self.weight))
        return self.out(h.transpose(0, 1).reshape(NODES, 2 * N))

    def message(self, h_j):
        return h_j


class AgainstTheEdges(MessagePassing):
    """A perceptron of both ends, messages from target to source."""

    def __init__(self):
        super().__init__(aggr="add", flow="target_to_source")
        self.edge = nn.Sequential(nn.Linear(2 * N, N), nn.ReLU(), nn.Linear(N, N))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.edge(torch.cat([x_i, x_j], -1))


class Triplets(MessagePassing):
    """Messages of edges take in those of the edges before them, as in DimeNet."""

    def __init__(self):
        super().__init__()
        self.edge, self.onward, self.out = nn.Linear(2 * N, N), nn.Linear(N, N), nn.Linear(N, N)

    def forward(self, x, edge_index):
        source, target = edge_index
        message = self.edge(torch.cat([x[source], x[target]], -1)).relu()
        before, after = (target[:, None] == source[None]).nonzero(as_tuple=True)
        onward = source[before] != target[after]
        passed = self.onward(message[before[onward]])
        message = message + torch.zeros_like(message).index_add(0, after[onward], passed)
        return self.out(torch.zeros_like(x).index_add(0, target, message))


class GatedEdges(MessagePassing):
    """GatedGCN: gates made of both ends and the edge's own state."""

    def __init__(self):
        super().__init__(aggr="add")
        self.a, self.b, self.u, self.v = (nn.Linear(N, N) for _ in range(4))
        self.state = nn.Linear(3, N)

    def forward(self, x, edge_index):
        state = self.state(ATTRIBUTES.to(x))
        return x + (self.u(x) + self.propagate(edge_index, a=self.a(x), b=self.b(x), v=self.v(x), state=state)).relu()

    def message(self, a_i, b_j, v_j, state):
        return torch.sigmoid(state + (a_i + b_j + state).relu()) * v_j


class MovingPlaces(MessagePassing):
    """EGNN's layer with places that move: squared distances, and steps along the edges, scaled by a learned number."""

    def __init__(self):
        super().__init__(aggr="add")
        self.edge = nn.Sequential(nn.Linear(2 * N + 1, N), nn.SiLU(), nn.Linear(N, N), nn.SiLU())
        self.step, self.node = nn.Sequential(nn.Linear(N, N), nn.SiLU(), nn.Linear(N, 1)), nn.Linear(2 * N, N)

    def forward(self, x, places, edge_index):
        into, moved = self.propagate(edge_index, x=x, places=places).split([N, 3], dim=-1)
        return x + self.node(torch.cat([x, into], -1)), places + moved

    def message(self, x_i, x_j, places_i, places_j):
        apart = places_i - places_j
        message = self.edge(torch.cat([x_i, x_j, (apart**2).sum(-1, keepdim=True)], -1))
        return torch.cat([message, apart * self.step(message)], -1)


class VectorFeatures(MessagePassing):
    """PaiNN's layer: numbers and vectors of a node, norms of the vectors, and products of the two."""

    def __init__(self):
        super().__init__(aggr="add", node_dim=0)
        self.scalars = nn.Sequential(nn.Linear(N, N), nn.SiLU(), nn.Linear(N, 3 * N))
        self.filter, self.u, self.v = nn.Linear(1, 3 * N), nn.Linear(N, N, bias=False), nn.Linear(N, N, bias=False)
        self.update_by = nn.Sequential(nn.Linear(2 * N, N), nn.SiLU(), nn.Linear(N, 3 * N))

    def forward(self, x, vectors, edge_index):
        apart = (PLACES[edge_index[0]] - PLACES[edge_index[1]]).to(x)
        far = apart.norm(dim=-1, keepdim=True)
        filters, towards = self.filter(far.cos()), (apart / far).unsqueeze(-1)
        into = self.propagate(edge_index, s=self.scalars(x), vectors=vectors, filters=filters, towards=towards)
        x, vectors = x + into[:, 0], vectors + into[:, 1:]
        u, v = self.u(vectors), self.v(vectors)
        norm = ((v**2).sum(1) + 1e-8).sqrt()
        a, b, c = self.update_by(torch.cat([x, norm], -1)).chunk(3, dim=-1)
        return x + a + b * (u * v).sum(1), vectors + c.unsqueeze(1) * u

    def message(self, s_j, vectors_j, filters, towards):
        a, b, c = (s_j * filters).chunk(3, dim=-1)
        return torch.cat([a.unsqueeze(1), b.unsqueeze(1) * towards + c.unsqueeze(1) * vectors_j], 1)


class Compositions(MessagePassing):
    """CompGCN: neighbours in circular correlation with relations, and weights by direction."""

    def __init__(self):
        super().__init__(aggr="add")
        self.relations, self.own = nn.Parameter(torch.randn(2, N)), nn.Parameter(torch.randn(1, N))
        self.along, self.against, self.loop = (nn.Linear(N, N, bias=False) for _ in range(3))

    def forward(self, x, edge_index):
        kinds, total = torch.arange(edge_index.shape[1]) % 2, self.loop(correlated(x, self.own))
        for weight, edges in ((self.along, edge_index), (self.against, edge_index.flip(0))):
            edges, norm = gcn_norm(edges, None, NODES, add_self_loops=False, dtype=x.dtype)
            total = total + self.propagate(edges, x=x, relation=self.relations[kinds], weight=weight, norm=norm)
        return total / 3

    def message(self, x_j, relation, weight, norm):
        return norm.view(-1, 1) * weight(correlated(x_j, relation))


def correlated(a, b):
    return torch.fft.irfft(torch.conj(torch.fft.rfft(a)) * torch.fft.rfft(b), n=a.shape[-1])


class Rotations(MessagePassing):
    """Messages as RotatE has relations: complex numbers, each turned by an angle of its own."""

    def __init__(self):
        super().__init__(aggr="add")
        self.angles, self.into, self.out = nn.Parameter(torch.randn(N)), nn.Linear(N, 2 * N), nn.Linear(2 * N, N)

    def forward(self, x, edge_index):
        z = torch.view_as_complex(self.into(x).view(-1, N, 2))
        return self.out(torch.view_as_real(self.propagate(edge_index, z=z)).flatten(1))

    def message(self, z_j):
        return z_j * torch.polar(torch.ones_like(self.angles), self.angles)


class Geometric(nn.Module):
    """Two layers that carry something geometric along, and a read-out of the features."""

    def __init__(self, layer, begin):
        super().__init__()
        self.layers, self.begin, self.head = nn.ModuleList([layer(), layer()]), begin, nn.Linear(N, 2)

    def forward(self, x, edge_index):
        carried = self.begin(x)
        for layer in self.layers:
            x, carried = layer(x, carried, edge_index)
        return self.head(x).sum(0, keepdim=True)
