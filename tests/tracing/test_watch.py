"""What a layer is handed: its nodes, its edges, and what their types are said to be."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import EdgeConv, GCNConv, GraphConv, MessagePassing

import walkwise as ww
from walkwise.tracing.running.handed import (
    EnoughError,
    about_integers,
    edge_index_of,
    handed_nodes,
    node_tensors,
    nodes_of_layer,
    note_handed,
    types_said,
)
from walkwise.tracing.running.modules import Modules
from walkwise.tracing.running.watch import _on_one_node_set

X, Y, EDGES = torch.rand(3, 2), torch.rand(4, 2), torch.tensor([[0, 1], [1, 2]])
SPARSE = torch.eye(3).to_sparse()


def test_node_tensors_are_dense_and_of_floating_point_numbers():
    assert node_tensors(X) == [X]
    for other in (EDGES, SPARSE, None, "x", 3):
        assert node_tensors(other) == []
    assert node_tensors((X, Y)) == [X, Y]
    assert node_tensors([X, None]) == [X]
    assert node_tensors((EDGES, Y, X)) == [Y]  # a pair has two ends
    assert node_tensors({"a": X, "b": EDGES, "c": (X, Y)}) == [X, X, Y]


def test_nodes_are_the_first_argument_with_any():
    assert handed_nodes((X, Y), {}) is X
    assert handed_nodes((EDGES, Y), {}) is Y
    pair = (X, Y)
    assert handed_nodes((EDGES, pair), {"x": X}) is pair
    assert handed_nodes((EDGES,), {"edge_attr": Y, "x": X}) is X  # what is called x comes before the rest
    assert handed_nodes((EDGES,), {"edge_attr": Y}) is Y
    assert handed_nodes((), {}) is None


class Weighted(MessagePassing):
    """A layer that takes a weight before its nodes."""

    def forward(self, weight, x, edge_index, pos=None):
        return self.propagate(edge_index, x=x @ weight)

    def message(self, x_j):
        return x_j


class Table(MessagePassing):
    """A layer with a table of nodes of its own, which takes edges alone."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.rand(4, 2))

    def forward(self, edge_index):
        return self.propagate(edge_index, x=self.table)

    def message(self, x_j):
        return x_j


def test_nodes_are_what_is_followed_or_what_their_rows_tell():
    layer, plain, weight, pos = Weighted(), GCNConv(2, 2), torch.rand(2, 5), torch.rand(3, 1)

    def nodes(module, *args, follows=(), **kwargs):
        return nodes_of_layer(module, args, kwargs, lambda item: any(item is known for known in follows))

    assert nodes(layer, weight, X, EDGES) is X  # which has other rows than the weight
    assert nodes(layer, weight, EDGES, x=X) is X
    assert nodes(layer, pos, X, EDGES) is pos  # it may be either
    assert nodes(layer, pos, X, EDGES, follows=[X]) is X
    assert nodes(layer, pos, X, EDGES, follows=[pos]) is pos
    assert nodes(plain, weight, X, EDGES, follows=[X]) is X
    assert nodes(plain, EDGES, Y[:2], X, follows=[X]) is X  # after rows of edges
    assert nodes(plain, EDGES, Y, X, follows=[X]) is Y
    assert nodes(plain, EDGES) is None
    table = Table()
    assert nodes(table, EDGES) is table.table


def test_a_weight_may_come_before_embeddings():
    class Net(nn.Module):
        def __init__(self, first):
            super().__init__()
            torch.manual_seed(0)
            self.table, self.weight, self.conv = nn.Embedding(9, 3), nn.Parameter(torch.rand(3, 2)), Weighted()
            self.first = first

        def forward(self, z, edge_index):
            h = self.table(z)[[2, 0, 3, 1]]
            if self.first:
                return self.conv(self.weight, h, edge_index).sum(0)
            return self.conv(torch.eye(2), h @ self.weight, edge_index).sum(0)

    z, edges = torch.tensor([1, 2, 3, 4]), torch.tensor([[0, 1, 2], [1, 2, 3]])
    chains = [ww.trace(Net(first).eval(), z, edges, target=0, rule="zero") for first in (True, False)]
    expected, found = (ww.node_relevance(chain) for chain in chains)
    torch.testing.assert_close(found, expected)
    assert found.nonzero().flatten().tolist() == [0, 2, 3]  # node 1 is in the last row, which sends nothing


def test_a_layer_with_a_table_of_its_own_may_come_after_another():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.c = GraphConv(2, 2), Table(), GraphConv(2, 2)

        def forward(self, x, edge_index):
            return self.c(self.a(x, edge_index) + self.b(edge_index), edge_index).sum(0)

    chain = ww.trace(Net().eval(), Y, torch.tensor([[0, 1, 2], [1, 2, 3]]), target=0)
    assert [layer.name for layer in chain.layers] == ["a", "b", "c"]


def test_edges_are_two_rows_of_whole_numbers():
    assert torch.equal(edge_index_of((X, EDGES), {}), EDGES)
    assert torch.equal(edge_index_of((X,), {"edge_index": EDGES}), EDGES)
    for other in (EDGES.int(), EDGES[0], torch.cat([EDGES, EDGES]), EDGES[None], SPARSE):
        assert edge_index_of((X, other), {}) is None


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("convs.0.<user___rates___item>", (X, Y), {7: "user", 8: "item"}),
        ("conv.user__rates__item", (X, Y), {7: "user", 8: "item"}),
        ("user__to__item__again.conv", (X, Y), {}),
        ("conv.user__item", (X, Y), {}),
        ("conv", X, {}),
        ("conv", {"user": X, "item": Y}, {7: "user", 8: "item"}),
        ("conv", {"none": None, "user": X, 3: Y}, {7: "user"}),
    ],
)
def test_types_by_the_keys_of_a_dictionary_or_the_name_of_a_layer(name, given, expected):
    assert types_said(name, given, [7, 8]) == expected


@pytest.mark.parametrize(
    ("size", "arguments", "expected"),
    [
        (None, {"x": X}, True),
        (None, {"x": (X, X)}, True),
        (None, {"x": (X, X.clone())}, True),
        (None, {"x": (X, Y)}, False),
        (None, {"x": (X, None)}, True),
        (None, {"x": [None, Y]}, True),
        (None, {"x": (X, X), "h": (X, Y)}, False),
        (None, {"three": (X, Y, X)}, True),
        ((3, 3), {"x": X}, True),
        ((3, 4), {"x": X}, False),
        ((3, 3), {"x": (X, Y)}, False),
    ],
)
def test_messages_between_the_same_nodes(size, arguments, expected):
    assert _on_one_node_set(size, arguments) == expected


def test_features_that_are_integers_are_told():
    for whole in ((EDGES[:, :1].t(), X), (EDGES, EDGES), (EDGES[0],)):
        assert "x.float()" in about_integers(whole)
    for others in ((), (X, EDGES), ("x",), (EDGES,), (EDGES, X[:, 0])):  # edges alone, too
        assert about_integers(others) is None


class Twice(nn.Module):
    """A layer, and a layer that calls another one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = GCNConv(2, 2), EdgeConv(nn.Linear(4, 2))

    def forward(self, x, edge_index):
        return self.b(self.a(x, edge_index), edge_index)


@pytest.mark.parametrize("disturbing", [False, True])
@pytest.mark.parametrize("last", [None, 0, 1])
def test_what_layers_are_handed_is_noted(disturbing, last):
    plain, model = Twice(), Twice()
    modules = Modules(convs=[("a", model.a), ("b", model.b)])
    handed = note_handed(modules, disturbing, last)
    if last is None:
        result = model(X, EDGES)
        assert torch.equal(result, plain(X, EDGES)) == (not disturbing)
    else:
        with pytest.raises(EnoughError):
            model(X, EDGES)
    assert len(handed) == (2 if last is None else last + 1)
    assert torch.equal(handed[0][0], X)
    assert handed[0][0] is not X
    if len(handed) > 1:
        first = plain.a(X, EDGES)
        added = torch.linspace(1, 2, first.numel()).view_as(first) if disturbing else 0
        torch.testing.assert_close(handed[1][0], first + added)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_a_layer_may_give_back_what_it_was_handed(alpha):
    class Both(GraphConv):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index), x

    class Net(nn.Module):
        def __init__(self, kind, pick):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.last, self.pick = kind(2, 2), GraphConv(2, 2), pick

        def forward(self, x, edge_index):
            return self.last(self.pick(self.conv(x, edge_index), x), edge_index).mean(0, keepdim=True)

    models = Net(Both, lambda pair, _: pair[0] + pair[1]), Net(GraphConv, lambda out, x: out + x)
    ours, theirs = (ww.trace(model, X, EDGES, target=0) for model in models)
    a, b = (ww.subgraph_relevance(chain, [[0, 1], [2]], alpha=alpha) for chain in (ours, theirs))
    torch.testing.assert_close(a, b)
