"""Positions rise along every way that relevance takes, in whatever order the layers are called."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv

import walkwise as ww


class Branches(nn.Module):
    """Two layers side by side, the first of them on what ``made`` makes of what the second is handed."""

    def __init__(self, made, inner):
        super().__init__()
        torch.manual_seed(3)
        self.made, self.inner = made, inner
        self.start, self.a, self.b = GCNConv(3, 3), GCNConv(3, 4), GCNConv(3, 4)
        self.norm, self.lin, self.head = nn.BatchNorm1d(3), nn.Linear(3, 3), nn.Linear(4, 2)
        self.double()

    def forward(self, x, edge_index):
        h = self.start(x, edge_index).relu() if self.inner else x
        u = self.a(self.made(self, h), edge_index)
        return self.head(u.relu() + self.b(h, edge_index)).sum(0, keepdim=True)


class Cell(MessagePassing):
    """Sends features and a hidden state together."""

    def __init__(self):
        super().__init__(aggr="add")
        self.lin = nn.Linear(7, 4)

    def forward(self, x, h, edge_index):
        return self.propagate(edge_index, x=x, h=h)

    def message(self, x_j, h_j):
        return self.lin(torch.cat([x_j, h_j], -1))


class Recurrent(nn.Module):
    """Every call is handed the features first, and then what the last one has made of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.start, self.cell, self.head = GCNConv(3, 4), Cell(), nn.Linear(4, 2)
        self.double()

    def forward(self, x, edge_index):
        h = self.start(x, edge_index)
        for _ in range(2):
            h = self.cell(x, h, edge_index).relu()
        return self.head(h).sum(0, keepdim=True)


class Pair(nn.Module):
    """A layer that is handed a tensor of nodes and what was made of it."""

    def __init__(self, made):
        super().__init__()
        torch.manual_seed(3)
        self.made = made
        self.start, self.layer, self.head = GCNConv(3, 4), SAGEConv((4, 4), 4), nn.Linear(4, 2)
        self.double()

    def forward(self, x, edge_index):
        h = self.start(x, edge_index).relu()
        return self.head(self.layer((self.made(h), h), edge_index)).sum(0, keepdim=True)


MADE = {
    "relu": lambda m, h: h.relu(),
    "norm": lambda m, h: m.norm(h),
    "linear": lambda m, h: m.lin(h),
    "multiple": lambda m, h: 2 * h,
    "turned over": lambda m, h: h.flip(1),
}
IN_LINE = {
    **{f"{name}, first": (lambda made=made: Branches(made, inner=False), 2) for name, made in MADE.items()},
    **{f"{name}, later": (lambda made=made: Branches(made, inner=True), 3) for name, made in MADE.items()},
    "a recurrent cell": (Recurrent, 3),
    "a pair, squashed": (lambda: Pair(torch.tanh), 3),
    "a pair, normalised": (lambda: Pair(lambda h: torch.nn.functional.layer_norm(h, (4,))), 3),
}


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", IN_LINE)
def test_positions_rise_along_every_way(name, rule):
    """Also where an earlier layer is handed what was made of the input of a later one."""
    build, last = IN_LINE[name]
    model = build().eval()
    edges = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 3]])
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chain = ww.trace(model, x, edges, target=0, rule=rule)
    assert chain.num_layers == last
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance, abs=1e-12)
    for subgraph in ([0, 1, 2], [3], [0, 2]):
        inside = torch.tensor([all(node in (*subgraph, -1) for node in walk) for walk in walks.tolist()])
        ours = float(ww.subgraph_relevance(chain, [subgraph])[0])
        assert ours == pytest.approx(float(relevance[inside].sum()), abs=1e-12)
    features = ww.feature_relevance(chain).sum(1)
    torch.testing.assert_close(ww.node_relevance(chain, layer="start"), features, rtol=1e-9, atol=1e-12)
