"""Layers that are handed the two sides of their edges as tensors of their own: they mean what a pair means."""

import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import MessagePassing

import walkwise as ww

LEFT, RIGHT = 4, 6
EDGES = torch.stack([torch.arange(12) % LEFT, (torch.arange(12) * 5 + 1) % RIGHT])


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(4)
    yield
    torch.set_default_dtype(torch.float32)


class Layer(MessagePassing):
    """What the layers have in common."""

    def __init__(self):
        super().__init__("add")
        self.left, self.edge, self.right = nn.Linear(4, 4), nn.Linear(1, 4), nn.Linear(4, 4)
        self.out = nn.Linear(8, 4)

    def finish(self, sent, right):
        return self.out(torch.cat([sent, right], -1)).relu()


class Gasse(Layer):
    """As branching policies have it: constraints and variables, and features of the edges between them."""

    def forward(self, left, edges, attr, right):
        sent = self.propagate(edges, size=(len(left), len(right)), node_features=(left, right), edge_features=attr)
        return self.finish(sent, right)

    def message(self, node_features_i, node_features_j, edge_features):
        return (self.left(node_features_i) + self.edge(edge_features) + self.right(node_features_j)).relu()


class Sized(Layer):
    """Reads but one side at the ends of edges, and says how many nodes there are."""

    def forward(self, left, edges, attr, right):
        sent = self.propagate(edges, x=self.left(left), size=(len(left), len(right)), attr=attr)
        return self.finish(sent, right)

    def message(self, x_j, attr):
        return (x_j + self.edge(attr)).relu()


class Attention(Layer):
    """Queries of one side, keys and values of the other, with heads."""

    def __init__(self):
        super().__init__()
        self.node_dim = 0

    def forward(self, left, edges, attr, right):
        query, key = self.right(right).view(-1, 2, 2), self.left(left).view(-1, 2, 2)
        sent = self.propagate(edges, query=query, key=key, attr=attr, size=(len(left), len(right)))
        return self.finish(sent.flatten(1), right)

    def message(self, query_i, key_j, attr):
        return (query_i * key_j).sum(-1, keepdim=True).sigmoid() * key_j * attr.unsqueeze(-1)


class Stacked(Layer):
    """Puts the rows of both sides under one another, and numbers them so."""

    def forward(self, left, edges, attr, right):
        shifted = torch.stack([edges[0] + len(right), edges[1]])
        sent = self.propagate(shifted, x=torch.cat([right, left]), attr=attr)
        return self.finish(sent[: len(right)], right)

    def message(self, x_i, x_j, attr):
        return (self.left(x_i) + self.edge(attr) + self.right(x_j)).relu()


class Normalised(Layer):
    """Changes both sides row by row before it sends."""

    def forward(self, left, edges, attr, right):
        sides = nn.functional.normalize(self.left(left)), torch.maximum(self.right(right), right).view_as(right)
        return self.finish(self.propagate(edges, x=sides, attr=attr), right)

    def message(self, x_i, x_j, attr):
        return (x_i + self.edge(attr) + x_j).relu()


def named(kind, manner, forward):
    """A layer that is called in another manner; PyG tells layers apart by their names."""
    return type(f"{kind.__name__}{manner}", (kind,), {"forward": forward})()


def as_pair(kind):
    """The same layer, handed a pair."""
    return named(kind, "OfPair", lambda self, pair, edges, attr: kind.forward(self, pair[0], edges, attr, pair[1]))


def turned(kind):
    """The same layer, handed the second side first."""
    return named(kind, "Turned", lambda self, right, left, edges, attr: kind.forward(self, left, edges, attr, right))


def alone(kind):
    return kind()


CALLS = {
    "one by one": (alone, lambda layer, left, edges, attr, right: layer(left, edges, attr, right)),
    "by name": (
        alone,
        lambda layer, left, edges, attr, right: layer(right=right, left=left, edges=edges, attr=attr),
    ),
    "features of edges first": (
        alone,
        lambda layer, left, edges, attr, right: layer(attr=attr, edges=edges, left=left, right=right),
    ),
    "the second side first": (turned, lambda layer, left, edges, attr, right: layer(right, left, edges, attr)),
}
PAIR = (as_pair, lambda layer, left, edges, attr, right: layer((left, right), edges, attr))
KINDS = [Gasse, Sized, Attention, Stacked, Normalised]


class Policy(nn.Module):
    """There and back between two sides, which are types of nodes or parts of one graph."""

    def __init__(self, kind, manner, count, made=False):
        super().__init__()
        torch.manual_seed(0)
        make, self.call = manner
        self.count, self.made = count, made  # on the left; whether features of edges are made of nodes
        self.con, self.var, self.there, self.back = nn.Linear(3, 4), nn.Linear(3, 4), make(kind), make(kind)
        self.out = nn.Linear(4, 1)

    def forward(self, x, edges):
        by_type = isinstance(x, dict)
        left, right = (x["con"], x["var"]) if by_type else (x[: self.count], x[self.count :])
        edges = edges["con", "in", "var"] if by_type else edges
        left, right = self.con(left).relu(), self.var(right).relu()
        right = self.sent(self.there, left, edges, right)
        left = self.sent(self.back, right, edges.flip(0), left)
        return self.out(left if by_type else torch.cat([left, right]))

    def sent(self, layer, left, edges, right):
        attr = torch.linspace(1, 2, edges.shape[1]).view(-1, 1)
        attr = attr + left[edges[0], :1] if self.made else attr
        return self.call(layer, left, edges, attr, right)


def typed(edges, left, right):
    data = HeteroData()
    generator = torch.Generator().manual_seed(1)
    data["con"].x, data["var"].x = (torch.randn(n, 3, generator=generator) for n in (left, right))
    data["con", "in", "var"].edge_index = edges
    return data


def answers(model, data, by_type):
    """What is asked of a chain, and the chain."""
    given = [data] if by_type else [torch.cat([data["con"].x, data["var"].x]), data["con", "in", "var"].edge_index]
    chain = ww.trace(model, *given, target=lambda out: out[2, 0], rule="zero")
    walks = ww.enumerate_walks(chain)
    relevance = ww.subgraph_relevance(chain, [[0, 1, 2, 5, 6], [1, 2, 3], [2, 4, 7]])
    return chain, {
        "layers": [layer.position for layer in chain.layers],
        "edges": chain.edge_index.tolist(),
        "walks": walks.tolist(),
        "relevance": relevance,
        "of walks": ww.walk_relevance(chain, walks),
        "sums": ww.node_relevance(chain, layer="start"),
        "notes": len(chain.notes),
    }


SIZES = {
    "more edges": (EDGES, LEFT, RIGHT),
    "as many edges as on a side": (torch.tensor([[0, 1, 2, 3, 1, 2], [1, 0, 2, 5, 3, 4]]), 4, 6),
    "as many edges as nodes": (EDGES[:, :10], 4, 6),
    "as many on both sides": (torch.tensor([[0, 1, 2, 3, 1], [1, 0, 2, 4, 3]]), 5, 5),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("by_type", [True, False], ids=["types", "one set"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("manner", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_two_sides_are_a_pair(kind, manner, size, by_type):
    """Layers, walks and relevance are those of the same layer that is handed a pair."""
    data, count = typed(*SIZES[size]), SIZES[size][1]
    (chain, ours), (_, theirs) = (
        answers(Policy(kind, called, count).eval(), data, by_type) for called in (CALLS[manner], PAIR)
    )
    assert ours["layers"] == [0, 1]
    torch.testing.assert_close(ours, theirs)
    assert float(ours["of walks"].sum()) == pytest.approx(chain.input_relevance, abs=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("manner", CALLS)
@pytest.mark.parametrize("kind", KINDS)
def test_features_of_edges_that_are_made_of_nodes_are_no_nodes(kind, manner, size):
    data, count = typed(*SIZES[size]), SIZES[size][1]
    (_, ours), (_, theirs) = (
        answers(Policy(kind, called, count, made=True).eval(), data, False) for called in (CALLS[manner], PAIR)
    )
    torch.testing.assert_close(ours, theirs)


class BothWays(MessagePassing):
    """Sends from the left to the right and back, and returns both sides."""

    def __init__(self):
        super().__init__("add")
        self.lin, self.left, self.right = nn.Linear(4, 4), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, left, edges, right):
        there = self.propagate(edges, x=(left, right), size=(len(left), len(right)))
        back = self.propagate(edges.flip(0), x=(right, left), size=(len(right), len(left)))
        return self.left(torch.cat([left, back], 1)).relu(), self.right(torch.cat([right, there], 1)).relu()

    def message(self, x_j):
        return self.lin(x_j)


class Returned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.out = nn.ModuleList([BothWays(), BothWays()]), nn.Linear(4, 1)

    def forward(self, x, edge_index, weigh=lambda left, right: None):
        left, right = x[: len(x) // 2], x[len(x) // 2 :]
        weigh(left, right)
        for layer in self.layers:
            left, right = layer(left, edge_index, right)
            weigh(left, right)
        return self.out(left + 2 * right).sum(0, keepdim=True)


def test_both_sides_may_be_returned():
    """Each has the rows of the side that it was made of, though there are as many on both."""
    model, x, edges = Returned(), torch.randn(10, 4), SIZES["as many on both sides"][0]
    chain = ww.trace(model, x, edges, target=0, rule="zero")
    assert [layer.position for layer in chain.layers] == [0, 1]
    for nodes in ([0, 1, 6, 7], [2, 3, 8], list(range(10))):
        inside = torch.zeros(10, 1).index_fill(0, torch.tensor(nodes), 1.0)

        def weigh(left, right, inside=inside):
            left.register_hook(lambda g: g * inside[:5])
            right.register_hook(lambda g: g * inside[5:])

        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(leaf, edges, weigh)[0, 0], leaf)
        expected = float((gradient * x).sum())
        assert float(ww.subgraph_relevance(chain, [nodes])[0]) == pytest.approx(expected, abs=1e-12)


class OfItsOwn(nn.Module):
    """One side is a table of the model's own."""

    def __init__(self, manner):
        super().__init__()
        torch.manual_seed(0)
        make, self.call = manner
        self.table, self.layer, self.out = nn.Embedding(6, 4), make(Gasse), nn.Linear(4, 1)

    def forward(self, x, edge_index):
        attr = torch.ones(edge_index.shape[1], 1)
        right = self.call(self.layer, self.table.weight, edge_index, attr, x)
        left = self.call(self.layer, right, edge_index.flip(0), attr, self.table.weight)
        return self.out(left).sum(0, keepdim=True)


@pytest.mark.filterwarnings("ignore")
def test_the_first_side_may_be_a_table_of_the_model():
    x, edges = torch.randn(6, 4), torch.tensor([[0, 1, 2, 3, 1], [1, 0, 2, 5, 4]])
    ours, theirs = (
        ww.trace(OfItsOwn(called), x, edges, target=0, rule="zero") for called in (CALLS["one by one"], PAIR)
    )
    assert ours.num_layers == theirs.num_layers
    sets = [[0, 1, 2], [3, 4], [1, 5]]
    torch.testing.assert_close(ww.subgraph_relevance(ours, sets), ww.subgraph_relevance(theirs, sets))


class Initial(MessagePassing):
    """Adds the features that its nodes began with, and reads their places at both ends of edges."""

    def __init__(self):
        super().__init__("add")
        self.lin = nn.Linear(4, 4)

    def forward(self, x, edge_index, start, pos):
        sent = self.propagate(edge_index, x=x, pos=pos, size=(len(x), len(x)))
        return (self.lin(sent) + 0.1 * start).relu()

    def message(self, x_j, pos_i, pos_j):
        return x_j * (pos_i - pos_j).pow(2).sum(1, keepdim=True).detach()


class Beginning(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Initial(), Initial()

    def forward(self, x, edge_index):
        start, pos = x[:, :4].tanh(), x[:, 4:]
        h = self.first(start, edge_index, start, pos)
        return self.second(h, edge_index, start, pos).sum().view(1, 1)


def test_other_tensors_of_the_same_nodes_are_no_side():
    chain = ww.trace(Beginning(), torch.randn(6, 6), EDGES[:, :6], target=0, rule="zero")
    assert [layer.position for layer in chain.layers] == [0, 1]
    relevance = ww.walk_relevance(chain, ww.enumerate_walks(chain))
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance, abs=1e-12)
