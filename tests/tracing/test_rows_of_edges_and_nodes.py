"""Rows of edges are none of nodes, and sums at nodes are, wherever the graph's form or size could mislead."""

import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import GCNConv, GraphConv, MessagePassing

import walkwise as ww
from idioms import meta_layer
from walkwise.errors import CoverageWarning

#: Ways to add up rows of neighbours, whose result is the nodes' also where each node has one neighbour.
ADDED = {
    "index_add": lambda h, e: torch.zeros_like(h).index_add(0, e[1], h[e[0]]),
    "index_put": lambda h, e: torch.zeros_like(h).index_put((e[1],), h[e[0]], accumulate=True),
    "index_put_": lambda h, e: torch.zeros_like(h).index_put_((e[1],), h[e[0]], True),
    "segment_reduce": lambda h, e: torch.segment_reduce(
        h[e[0][e[1].argsort()]], "sum", lengths=torch.bincount(e[1], minlength=len(h))
    ),
    "embedding_bag": lambda h, e: torch.nn.functional.embedding_bag(
        e[0][e[1].argsort()],
        h,
        (torch.bincount(e[1], minlength=len(h)).cumsum(0) - torch.bincount(e[1], minlength=len(h))),
        mode="sum",
    ),
    "a loop": lambda h, e: torch.stack([h[e[0][e[1] == i]].sum(0) for i in range(len(h))]),
    "a loop, joined": lambda h, e: torch.cat([h[e[0][e[1] == i]].sum(0, keepdim=True) for i in range(len(h))]),
}


class AddsUp(nn.Module):
    def __init__(self, add):
        super().__init__()
        torch.manual_seed(0)
        self.add, self.a, self.b = add, GCNConv(3, 3), GCNConv(3, 2)

    def forward(self, x, edge_index):
        return self.b(self.add(self.a(x, edge_index).relu(), edge_index), edge_index)


@pytest.mark.parametrize(
    "edges",
    [[[0, 1, 2, 3], [1, 2, 3, 0]], [[0, 1, 2], [1, 2, 3]], [[0, 0, 1], [1, 2, 3]], [[1, 0, 2, 2], [0, 1, 1, 3]]],
)
@pytest.mark.parametrize("name", ADDED)
def test_rows_of_neighbours_are_the_nodes_however_they_are_added_up(name, edges):
    x, edges = torch.rand(4, 3, generator=torch.Generator().manual_seed(2)), torch.tensor(edges)

    def positions(add):
        with pytest.warns(CoverageWarning, match="adds up rows of nodes outside"):
            chain = ww.trace(AddsUp(add), x, edges, target=lambda out: out[:, 0].sum(), rule="zero")
        return torch.stack([ww.node_relevance(chain, layer=layer) for layer in range(3)])

    adjacency = torch.zeros(4, 4).index_put((edges[1], edges[0]), torch.ones(edges.shape[1]))
    gradient = positions(lambda h, e: h + adjacency @ h - h)  # a sum of all nodes in order
    torch.testing.assert_close(positions(ADDED[name]), gradient)


class ReturnsEdges(MessagePassing):
    """Rows of edges are made of one end, or of both."""

    def __init__(self, ends):
        super().__init__(aggr="add")
        torch.manual_seed(0)
        self.ends, self.lin, self.out = ends, nn.Linear(3, 3), nn.Linear(6, 3)

    def forward(self, x, edge_index):
        rows = self.lin(sum(x[edge_index[end]] for end in self.ends))
        return self.out(torch.cat([x, self.propagate(edge_index, x=x, rows=rows)], 1)), rows

    def message(self, x_j, rows):
        return x_j + rows


class NodesOf(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return self.layer(x, edge_index)[0]


@pytest.mark.parametrize("edges", [[[0, 1, 2], [1, 2, 3]], [[0, 1, 2, 3], [1, 2, 3, 0]], [[0, 0, 1], [0, 1, 2]]])
@pytest.mark.parametrize("ends", [(0,), (1,), (0, 1)])
def test_walks_end_at_nodes_and_not_at_rows_of_edges_that_a_layer_returns_beside(ends, edges):
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(2))
    chain = ww.trace(NodesOf(ReturnsEdges(ends)), x, torch.tensor(edges), index=1, target=0, rule="zero")
    assert chain.num_layers == 1
    last = ww.node_relevance(chain, layer=1)
    assert last[1] != 0
    assert last[[0, 2, 3]].tolist() == [0, 0, 0]
    assert float(last.sum()) == pytest.approx(chain.input_relevance, rel=1e-5)


class EdgesFirst(ReturnsEdges):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index)[::-1]


class NodesLast(nn.Module):
    """Rows of edges go from layer to layer first, and are as wide as there are nodes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = EdgesFirst((0, 1)), EdgesFirst((0, 1))

    def forward(self, x, edge_index):
        for layer in (self.a, self.b):
            _, x = layer(x, edge_index)
        return x


def test_the_row_of_one_edge_is_no_vector_of_nodes():
    x = torch.rand(3, 3, generator=torch.Generator().manual_seed(2))
    chains = [
        ww.trace(NodesLast(), torch.cat([x, more]), torch.tensor([[2], [1]]), index=1, target=0, rule="zero")
        for more in (x[:0], x[:2])
    ]
    alone, beside = (ww.node_relevance(chain, layer=2)[:3] for chain in chains)
    torch.testing.assert_close(alone, beside)
    alone, beside = (ww.subgraph_relevance(chain, [[1], [1, 2], [0]]) for chain in chains)
    torch.testing.assert_close(alone, beside)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = meta_layer(3), meta_layer(3)

    def forward(self, x, edge_index, edge_attr):
        x, edge_attr, _ = self.a(x, edge_index, edge_attr)
        return self.b(x, edge_index, edge_attr)[0]


def test_a_loop_is_no_row_of_its_node():
    generator = torch.Generator().manual_seed(2)
    x, edge_attr = torch.rand(3, 3, generator=generator), torch.rand(3, 3, generator=generator)
    edges = torch.tensor([[0, 0, 1], [0, 1, 2]])
    chain = ww.trace(Blocks(), x, edges, edge_attr=edge_attr, target=lambda out: out.sum(), rule="zero")
    assert (ww.enumerate_walks(chain)[:, 2] >= 0).all()  # all walks end at a node
    last = ww.node_relevance(chain, layer=2)
    assert float(last.sum()) == pytest.approx(chain.input_relevance, rel=1e-5)


class Named(MessagePassing):
    """A layer that returns nodes and something of edges by name."""

    def __init__(self):
        super().__init__(aggr="add")

    def forward(self, x, edge_index):
        scores = (x[edge_index[0]] * x[edge_index[1]]).sum(1, keepdim=True)
        return {"x": self.propagate(edge_index, x=x), "scores": scores}

    def message(self, x_j):
        return x_j


class Plain(Named):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


class Two(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.a, self.b = kind(), kind()

    def forward(self, x, edge_index):
        for layer in (self.a, self.b):
            x = layer(x, edge_index)
            x = x["x"] if isinstance(x, dict) else x
        return x


@pytest.mark.parametrize("edges", [[[0, 1, 2, 3], [1, 2, 3, 1]], [[0, 2], [2, 3]]])
def test_names_in_what_a_layer_of_one_tensor_returns_are_no_types(edges):
    x, edges = torch.rand(4, 3), torch.tensor(edges)
    named, plain = (ww.trace(Two(kind), x, edges, index=3, target=0) for kind in (Named, Plain))
    for layer in range(3):
        torch.testing.assert_close(ww.node_relevance(named, layer=layer), ww.node_relevance(plain, layer=layer))


def test_hyperedges_of_one_node_alone():
    torch.manual_seed(0)
    model = pyg.HypergraphConv(3, 2)
    x, edges = torch.rand(4, 3), torch.tensor([[2, 2, 2], [0, 1, 2]])
    chain = ww.trace(model, x, edges, index=2, target=0)
    assert ww.node_relevance(chain)[[0, 1, 3]].tolist() == [0, 0, 0]


class ThereAndBack(nn.Module):
    """From nodes to hyperedges, which have nothing of their own, and back."""

    def __init__(self, zeros=False):
        super().__init__()
        torch.manual_seed(0)
        self.zeros, kinds = zeros, {"root_weight": False, "aggr": "add"}
        self.a, self.out = GCNConv(3, 3), pyg.SAGEConv((3, 3), 2, **kinds)
        self.into = pyg.SAGEConv((3, 3), 3, **kinds)

    def forward(self, x, edge_index):
        M, E = len(x), edge_index.shape[1]
        members = torch.stack([edge_index.t().flatten(), torch.arange(E).repeat_interleave(2)])
        begun = torch.zeros(E, 3) if self.zeros else None
        h = self.into((self.a(x, edge_index).relu(), begun), members, size=(M, E)).relu()
        return self.out((h, None), members.flip(0), size=(E, M))


def test_hyperedges_are_no_nodes_though_there_may_be_as_many():
    """Every edge is a hyperedge of its ends; another edge has its own number, and is otherwise of no account."""
    edges, more = torch.tensor([[3, 0, 2, 0], [1, 1, 3, 3]]), torch.tensor([[4], [4]])
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(2))
    few, many = (
        ww.trace(ThereAndBack(), x[:M], e, target=lambda out: out[:4, 0].sum(), rule="zero")
        for M, e in ((4, edges), (5, torch.cat([edges, more, more], 1)))
    )
    assert few.notes == many.notes
    assert "not nodes" in few.notes[0]
    for layer in range(few.num_layers + 1):
        torch.testing.assert_close(ww.node_relevance(few, layer=layer), ww.node_relevance(many, layer=layer)[:4])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("edges", [[[3, 0, 2, 0], [1, 1, 3, 3]], [[3, 0, 2], [1, 1, 3]]])
def test_a_constant_second_side_is_no_lost_sight_of_the_first(edges):
    x, edges = torch.rand(4, 3, generator=torch.Generator().manual_seed(2)), torch.tensor(edges)
    ours, theirs = (ww.trace(ThereAndBack(zeros), x, edges, index=1, target=0) for zeros in (True, False))
    torch.testing.assert_close(ww.node_relevance(ours, layer="start"), ww.node_relevance(theirs, layer="start"))


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.both, self.b = GCNConv(1, 1), nn.Bilinear(1, 1, 1), pyg.SAGEConv(1, 1)

    def forward(self, x, edge_index):
        h = self.a(x, edge_index)
        return self.b(self.both(h, x), edge_index)


def test_several_walks_where_one_node_has_one_feature():
    none = torch.empty(2, 0, dtype=torch.long)
    chain = ww.trace(Products(), torch.ones(1, 1), none, index=0, target=0, rule="zero")
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance)
    assert ww.walk_relevance(chain, walks.repeat(2, 1)).tolist() == pytest.approx(relevance.repeat(2).tolist())
    stays = ww.edge_relevance(chain, edge_index=torch.zeros(2, 1, dtype=torch.long))
    assert len(stays) == 1


@pytest.mark.parametrize("kind", [pyg.GCNConv, pyg.SAGEConv])
def test_as_many_times_as_two_nodes_that_send_to_themselves_alone(kind):
    class Times(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = kind(3, 3), kind(3, 2)

        def forward(self, x, edge_index):
            h = torch.stack([x, 2 * x])  # (T, M, F)
            return self.b(self.a(h, edge_index).tanh(), edge_index).sum(0)

    x, loops = torch.rand(2, 3, generator=torch.Generator().manual_seed(2)), torch.tensor([[0, 1], [0, 1]])
    for seed in range(8):
        torch.manual_seed(seed)
        chain = ww.trace(Times(), x, loops, index=seed % 2, target=0, rule="zero")
        stays = ww.edge_relevance(chain, edge_index=torch.tensor([[0, 1], [0, 1]]), layer=0)
        assert stays.tolist() == pytest.approx(ww.node_relevance(chain).tolist(), abs=1e-6)


# -- back from edges and hyperedges to nodes --------------------------------------------------


class Half(MessagePassing):
    """From nodes to hyperedges, or back."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.lin = nn.Linear(4, 4)

    def forward(self, x, edge_index, size):
        return self.propagate(edge_index, x=(self.lin(x), None), size=(len(x), size)).relu()

    def message(self, x_j):
        return x_j


class AllSet(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.into, self.back = nn.ModuleList([Half(), Half()]), nn.ModuleList([Half(), Half()])
        self.head = nn.Linear(4, 3)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, 0, 0.5)
        self.double().eval()

    def forward(self, x, incidence):
        for into, back in zip(self.into, self.back, strict=True):
            x = back(into(x, incidence, 3), incidence.flip(0), len(x))
        return self.head(x)


INCIDENCE = torch.tensor([[0, 1, 2, 2, 3, 4, 4, 5, 0], [0, 0, 0, 1, 1, 1, 2, 2, 2]])


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_walks_stand_at_nodes_between_two_visits_to_hyperedges(rule):
    model, x = AllSet(), torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chain = ww.trace(model, x, INCIDENCE, target=0, index=2, rule=rule)
    assert chain.num_layers == 2
    assert not any("end before" in note for note in chain.notes)
    sharing = INCIDENCE[1] == INCIDENCE[1].view(-1, 1)
    near = {(int(INCIDENCE[0, i]), int(INCIDENCE[0, j])) for i, j in sharing.nonzero().tolist()}
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    passed = {tuple(step) for walk in walks[relevance.abs() > 1e-12].tolist() for step in itertools.pairwise(walk)}
    assert passed <= near
    assert {walk[-1] for walk in walks.tolist()} == {2}
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance, rel=1e-9)
    if rule == "zero":
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(leaf, INCIDENCE)[2, 0], leaf)
        torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)


class OverBonds(nn.Module):
    """A layer on nodes, one on the edges between, and another on nodes, which the edges were added up at."""

    def __init__(self, added):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.last = GraphConv(4, 4), GraphConv(4, 4), GraphConv(4, 3)
        self.both, self.added = nn.Linear(8, 4), added
        self.double().eval()

    def forward(self, x, edge_index):
        source, target = edge_index
        h = self.first(x, edge_index).relu()
        pairs = ((target[:, None] == source) & (source[:, None] != target)).nonzero().t()
        bonds = h[source] + h[target] if self.added == "added" else self.both(torch.cat([h[source], h[target]], 1))
        bonds = self.between(bonds, pairs).relu()
        return self.last(h.new_zeros(len(x), 4).index_add(0, target, bonds), edge_index)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("added", ["added", "joined"])
def test_rows_of_edges_that_are_added_up_at_their_ends_are_nodes_again(added):
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 0, 5]])
    model, x = OverBonds(added), torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chain = ww.trace(model, x, edges, target=0, index=2, rule="zero")
    assert chain.num_layers == 3 - 1  # the one between two layers is none of nodes
    assert [note.split("'")[1] for note in chain.notes if "not nodes" in note] == ["between"]
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert {abs(a - b) % 6 in (0, 1, 5) for _, a, b in walks[relevance.abs() > 1e-12].tolist()} == {True}
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, edges)[2, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
