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
