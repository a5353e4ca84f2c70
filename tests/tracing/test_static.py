"""Static graphs: T feature matrices on one graph, (T, M, F), are a graph whose nodes have T · F features."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data

import walkwise as ww
from walkwise.errors import TraceError

M, F = 5, 3
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 0], [1, 0, 2, 1, 3, 2, 4, 3, 3]])
CONVS = {
    "GCN": lambda: pyg.GCNConv(F, F),
    "SAGE": lambda: pyg.SAGEConv(F, F, aggr="max"),
    "GraphConv": lambda: pyg.GraphConv(F, F),
    "GIN": lambda: pyg.GINConv(nn.Sequential(nn.Linear(F, F), nn.ReLU(), nn.Linear(F, F))),
    "SG": lambda: pyg.SGConv(F, F, K=2),
    "Cheb": lambda: pyg.ChebConv(F, F, K=2),
}


class Net(nn.Module):
    def __init__(self, conv="GCN", between=None):
        super().__init__()
        torch.manual_seed(4)
        self.lin, self.first, self.second = nn.Linear(F, F), CONVS[conv](), CONVS[conv]()
        self.head, self.between = nn.Linear(F, 2), between
        self.double().eval()

    def forward(self, x, edge_index):
        h = self.first(self.lin(x).relu(), edge_index).relu()
        h = h + x if self.between is None else self.between(h)
        return self.head(self.second(h, edge_index).relu())


def matrices(count):
    return torch.randn(count, M, F, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def copies(count):
    """The edges of as many copies of the graph."""
    return torch.cat([EDGES + M * t for t in range(count)], 1)


@pytest.mark.parametrize(
    ("count", "conv", "rule"),
    [
        *((2, conv, rule) for conv in CONVS for rule in ("zero", "auto")),
        *((count, "GCN", rule) for count in (1, M, M + 2) for rule in ("zero", "alphabeta")),
    ],
)
def test_walks_are_those_of_as_many_copies_of_the_graph(count, conv, rule):
    """With as many matrices as nodes, or more, either of two dimensions could be the nodes."""
    model, x = Net(conv), matrices(count)
    ours = ww.trace(model, x, EDGES, target=lambda out: out[..., 0].sum(), rule=rule)
    theirs = ww.trace(model, x.flatten(0, 1), copies(count), target=lambda out: out[:, 0].sum(), rule=rule)
    assert ours.num_nodes == M
    assert ours.output == pytest.approx(theirs.output)
    walks = ww.enumerate_walks(ours)
    expected = sum(ww.walk_relevance(theirs, torch.where(walks < 0, walks, walks + M * t)) for t in range(count))
    torch.testing.assert_close(ww.walk_relevance(ours, walks), expected, rtol=1e-9, atol=1e-11)
    by_copy = ww.feature_relevance(theirs).view(count, M, F)
    torch.testing.assert_close(ww.feature_relevance(ours), by_copy.transpose(0, 1).flatten(1), rtol=1e-9, atol=1e-11)
    sets = [[0, 1], [2, 3, 4], [1]]
    expected = sum(ww.subgraph_relevance(theirs, [[i + M * t for i in nodes] for nodes in sets]) for t in range(count))
    torch.testing.assert_close(ww.subgraph_relevance(ours, sets), expected, rtol=1e-9, atol=1e-11)


def test_one_matrix_of_several():
    """An output of one matrix has the relevance that this matrix has by itself."""
    model, x = Net(), matrices(3)
    ours = ww.trace(model, Data(x=x, edge_index=EDGES), target=lambda out: out[1, 4, 0])
    theirs = ww.trace(model, x[1], EDGES, index=4, target=0)
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))
    by_matrix = ww.feature_relevance(ours).view(M, 3, F)
    torch.testing.assert_close(by_matrix[:, 1], ww.feature_relevance(theirs))
    assert float(by_matrix[:, [0, 2]].abs().max()) == 0
    assert torch.equal(ours.edge_index, EDGES)


class Turning(nn.Module):
    """Takes (M, T, F), and hands its layers (T, M, F)."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x, edge_index):
        return self.net(x.transpose(0, 1), edge_index)


@pytest.mark.parametrize("count", [2, M])
def test_models_that_turn_their_features_themselves(count):
    x = matrices(count)
    chains = (
        ww.trace(model, given, EDGES, target=lambda out: out[..., 0].sum())
        for model, given in ((Net(), x), (Turning(), x.transpose(0, 1)))
    )
    ours, theirs = (ww.node_relevance(chain) for chain in chains)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("count", [M - 1, M, M + 1])
def test_models_may_turn_features_by_node_into_steps_for_every_layer(conv, count):
    """Steps come last in what the model gets, (M, F, T); layers that send twice, and those by hand, know the nodes."""

    class Steps(Net):
        def forward(self, x, edge_index):
            return super().forward(x.permute(2, 0, 1), edge_index)

    model, plain, x = Steps(conv), Net(conv), matrices(count)
    ours = ww.trace(model, x.permute(1, 2, 0), EDGES, target=lambda out: out[..., 0].sum(), rule="zero")
    theirs = ww.trace(plain, x.flatten(0, 1), copies(count), target=lambda out: out[:, 0].sum(), rule="zero")
    assert ours.num_nodes == M
    walks = ww.enumerate_walks(ours)
    expected = sum(ww.walk_relevance(theirs, torch.where(walks < 0, walks, walks + M * t)) for t in range(count))
    torch.testing.assert_close(ww.walk_relevance(ours, walks), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("count", [1, 2, M])
def test_walks_stand_at_nodes_in_another_order(count, rule):
    def turned(h):
        return h.view(count, M, F).flip(1).view(h.shape)

    model, x = Net(between=turned), matrices(count)
    ours = ww.trace(model, x, EDGES, target=lambda out: out[..., 0].sum(), rule=rule)
    theirs = ww.trace(model, x.flatten(0, 1), copies(count), target=lambda out: out[:, 0].sum(), rule=rule)
    walks = ww.enumerate_walks(ours)
    expected = sum(ww.walk_relevance(theirs, torch.where(walks < 0, walks, walks + M * t)) for t in range(count))
    torch.testing.assert_close(ww.walk_relevance(ours, walks), expected, rtol=1e-9, atol=1e-11)


class Queries(nn.Module):
    """Makes (B, M, F) itself, of the numbers of nodes or of queries, as NBFNet does: a batch of queries comes first."""

    def __init__(self, net, make):
        super().__init__()
        self.net, self.make = net, make
        self.table = nn.Embedding(9, F, dtype=torch.float64)
        self.query = nn.Embedding(9, F, dtype=torch.float64)

    def forward(self, z, edge_index, queries):
        h = self.make(self, z, queries)
        return self.net(h, edge_index)


def boundary(model, z, queries):
    """Nothing but at the nodes that are asked about, and something small elsewhere."""
    h = torch.full((len(queries), len(z), F), 0.1, dtype=torch.float64)
    asked = model.query(queries[:, 1])
    h.scatter_add_(1, queries[:, :1].unsqueeze(-1).expand(-1, -1, F), asked.unsqueeze(1))
    return h


MAKE = {
    "of queries": boundary,
    "of nodes": lambda model, z, queries: model.table(z).unsqueeze(0).expand(len(queries), -1, -1),
    "of both": lambda model, z, queries: model.table(z)[None] * model.query(queries[:, 1])[:, None],
}


class Around(Net):
    """Reads its nodes around the first layer, as they are and after a normalisation."""

    def forward(self, x, edge_index):
        h = x + self.first(self.lin(x), edge_index).relu()
        return self.head(self.second(h * 0.5, edge_index).relu() + h)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("made", MAKE)
@pytest.mark.parametrize("kind", [Net, Around])
@pytest.mark.parametrize("count", [1, 2, M])
def test_matrices_that_the_model_makes_itself(count, kind, made, rule):
    model = Queries(kind("SAGE" if made == "of both" else "GraphConv"), MAKE[made]).eval()
    z = torch.tensor([1, 3, 1, 4, 7])
    queries = torch.stack([torch.arange(count) % M, torch.arange(count) % 3], 1)
    h = MAKE[made](model, z, queries).detach()
    ours = ww.trace(model, z, EDGES, queries=queries, target=lambda out: out[..., 0].sum(), rule=rule)
    theirs = ww.trace(model.net, h.flatten(0, 1), copies(count), target=lambda out: out[:, 0].sum(), rule=rule)
    assert ours.num_nodes == M
    assert ours.output == pytest.approx(theirs.output)
    walks = ww.enumerate_walks(ours)
    expected = sum(ww.walk_relevance(theirs, torch.where(walks < 0, walks, walks + M * t)) for t in range(count))
    torch.testing.assert_close(ww.walk_relevance(ours, walks), expected, rtol=1e-12, atol=1e-13)
    sets = [[0, 1], [2, 3, 4], [1]]
    expected = sum(ww.subgraph_relevance(theirs, [[i + M * t for i in nodes] for nodes in sets]) for t in range(count))
    torch.testing.assert_close(ww.subgraph_relevance(ours, sets), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("count", [1, M])
def test_matrices_of_nodes_in_another_order_are_refused(count):
    perm = torch.tensor([2, 0, 1, 4, 3])
    model = Queries(Net(), lambda model, z, queries: model.table(z[perm])[None].expand(count, -1, -1))
    z = torch.tensor([1, 3, 5, 4, 7])
    with pytest.raises(TraceError, match=r"which row is which node"):
        ww.trace(model, z, EDGES, queries=torch.zeros(1, 2), target=lambda out: out.sum())


class Sum(pyg.MessagePassing):
    """A layer that is told which dimension its nodes are."""

    def __init__(self, node_dim):
        super().__init__(aggr="add", node_dim=node_dim)
        self.lin = nn.Linear(F, F, dtype=torch.float64)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j):
        return x_j


@pytest.mark.parametrize("count", [1, 2, M])
def test_nodes_that_are_said_to_be_the_second_dimension(count):
    model, twin, x = Net(), Net(), matrices(count)
    model.first, model.second, twin.first, twin.second = Sum(1), Sum(1), Sum(0), Sum(0)
    twin.load_state_dict(model.state_dict())
    ours = ww.trace(model, x, EDGES, target=lambda out: out[..., 0].sum())
    theirs = ww.trace(twin, x.flatten(0, 1), copies(count), target=lambda out: out[:, 0].sum())
    sets = [[0, 1], [2, 3, 4], [1]]
    expected = sum(ww.subgraph_relevance(theirs, [[i + M * t for i in nodes] for nodes in sets]) for t in range(count))
    torch.testing.assert_close(ww.subgraph_relevance(ours, sets), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("first", [M, M + 3])
def test_messages_along_another_dimension_than_the_nodes_are_refused(first):
    """(B, T, M, F): the first dimension would be taken for the nodes, of which there may be as many."""
    x = torch.randn(first, 2, M, F, dtype=torch.float64)
    with pytest.raises(TraceError, match=r"'first' .* sends messages along dimension 2 .*into one, \(T, M, F\)"):
        ww.trace(Net(), x, EDGES, target=lambda out: out.sum())
    flat, by_copy = x.flatten(0, 1), x.reshape(-1, F)
    ours = ww.trace(Net(), flat, EDGES, target=lambda out: out[..., 0].sum())  # what the error says to do
    theirs = ww.trace(Net(), by_copy, copies(len(flat)), target=lambda out: out[..., 0].sum())
    expected = ww.node_relevance(theirs).view(-1, M).sum(0)
    torch.testing.assert_close(ww.node_relevance(ours), expected, rtol=1e-12, atol=1e-12)


class Unfolding(Sum):
    """Is handed (M, T, F), and sends along the nodes all the same."""

    def forward(self, x, edge_index):
        return super().forward(x.transpose(0, 1), edge_index).transpose(0, 1)


def test_layers_that_turn_what_they_are_handed():
    model, twin, x = Net(), Net(), matrices(2)
    model.first, model.second, twin.first, twin.second = Unfolding(-2), Unfolding(-2), Sum(-2), Sum(-2)
    twin.load_state_dict(model.state_dict())
    ours = ww.trace(model, x.transpose(0, 1), EDGES, target=lambda out: out[..., 0].sum())
    theirs = ww.trace(twin, x, EDGES, target=lambda out: out[..., 0].sum())
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs), rtol=1e-12, atol=1e-12)


class Steps(nn.Module):
    """A layer and a recurrent cell for every step of time, the first dimension of the features."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.cell, self.head = pyg.GCNConv(F, 4), nn.GRUCell(4, 4), nn.Linear(4, 1)
        self.double().eval()

    def forward(self, x, edge_index):
        h = x.new_zeros(x.shape[1], 4)
        for step in x:
            h = self.cell(self.conv(step, edge_index).relu(), h)
        return self.head(h)


@pytest.mark.parametrize("count", [M - 1, M, M + 3])
def test_steps_of_time_may_be_more_than_nodes(count):
    """Relevance of one node's output is gradient times input of the model with its gates and activations held."""
    model, x = Steps(), matrices(count)
    chain = ww.trace(model, x, EDGES, index=2, target=0, rule="zero")
    assert (chain.num_nodes, chain.num_layers) == (M, count)
    leaf = x.clone().requires_grad_()
    cell, h = model.cell, torch.zeros(M, 4, dtype=torch.float64)
    for step in leaf:
        on_x = nn.functional.linear(model.conv(step, EDGES).relu(), cell.weight_ih, cell.bias_ih).chunk(3, 1)
        on_h = nn.functional.linear(h, cell.weight_hh, cell.bias_hh).chunk(3, 1)
        reset, update = ((a + b).sigmoid().detach() for a, b in zip(on_x[:2], on_h[:2], strict=True))
        new = on_x[2] + reset * on_h[2]
        h = (1 - update) * new * (new.tanh() / new).detach() + update * h
    (gradient,) = torch.autograd.grad(model.head(h)[2, 0], leaf)
    by_node = (gradient * x).sum((0, 2))
    torch.testing.assert_close(ww.feature_relevance(chain).sum(1), by_node, rtol=1e-9, atol=1e-11)


class Flat(nn.Module):
    """A layer on a row for every node and step of time."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.GCNConv(F, 2)

    def forward(self, x, edge_index):
        return self.conv(x.flatten(0, 1), edge_index).sum(0, keepdim=True)


def test_features_that_are_no_nodes_either_way_are_refused_as_they_are():
    """The first guess is what the refusal speaks of."""
    with pytest.raises(TraceError, match=r"No message-passing layer runs on the 6 nodes of the graph") as caught:
        ww.trace(Flat(), torch.randn(6, 2, F), torch.tensor([[0, 1, 5], [1, 0, 4]]), target=0)
    assert type(caught.value) is TraceError


class Relations(pyg.MessagePassing):
    """NBFNet's layer: what a node sends is multiplied by what is asked, and added to what it was at the beginning."""

    def __init__(self, node_dim):
        super().__init__(aggr="add", node_dim=node_dim)
        self.asked, self.lin = nn.Linear(F, F), nn.Linear(F, F)

    def forward(self, h, query, begun, edge_index):
        asked = self.asked(query)  # (B, F)
        asked = asked[:, None] if self.node_dim == -2 else asked[None]
        return self.lin(self.propagate(edge_index, x=h * asked) + begun).relu() + h

    def message(self, x_j):
        return x_j


class BellmanFord(nn.Module):
    """Nodes have nothing of their own: the query stands at the node that it asks about, and goes from there."""

    def __init__(self, node_dim):
        super().__init__()
        torch.manual_seed(2)
        self.node_dim, self.query, self.head = node_dim, nn.Embedding(3, F), nn.Linear(F, 1)
        self.layers = nn.ModuleList([Relations(node_dim), Relations(node_dim)])
        self.double().eval()

    def forward(self, z, edge_index, queries):
        query = self.query(queries[:, 1])
        begun = torch.zeros(len(queries), len(z), F, dtype=query.dtype)
        begun[torch.arange(len(queries)), queries[:, 0]] = query
        begun = h = begun if self.node_dim == -2 else begun.transpose(0, 1).contiguous()
        for layer in self.layers:
            h = layer(h, query, begun, edge_index)
        return self.head(h if self.node_dim == -2 else h.transpose(0, 1))  # (B, M, 1)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("count", [1, 2, M + 2])
def test_queries_that_are_written_into_zeros_and_handed_to_layers(count, rule):
    """A batch of queries may come first or second."""
    z, queries = torch.arange(M), torch.stack([torch.arange(count) % M, torch.arange(count) % 3], 1)
    chains = [
        ww.trace(BellmanFord(dim), z, EDGES, queries=queries, target=lambda out: out[:, 3, 0].sum(), rule=rule)
        for dim in (-2, 0)
    ]
    ours, theirs = chains
    assert ours.num_nodes == theirs.num_nodes == M
    assert ours.output == pytest.approx(theirs.output)
    walks = ww.enumerate_walks(theirs)
    relevance = ww.walk_relevance(theirs, walks)
    torch.testing.assert_close(ww.walk_relevance(ours, walks), relevance, rtol=1e-9, atol=1e-12)
    assert float(relevance.abs().sum()) > 1e-3


@pytest.mark.parametrize("times", [2, 7])
def test_an_adjacency_tells_which_dimension_runs_over_nodes(times):
    """As models of traffic have it: (T, M, F) and (M, M)."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.out = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2)

        def forward(self, x, adjacency):
            h = (adjacency @ self.a(x)).relu()
            return self.out((adjacency @ self.b(h)).relu().mean((0, 1)))[None]

    x, adjacency = torch.randn(times, 6, 4), (torch.rand(6, 6) > 0.5).float()
    chain = ww.trace(Own().eval(), x, adjacency, target=0, rule="zero")
    assert (chain.num_nodes, chain.num_layers) == (6, 2)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(Own().eval()(leaf, adjacency)[0, 0], leaf)
    torch.testing.assert_close(ww.node_relevance(chain), (gradient * x).sum((0, 2)))


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (1, 1)])
def test_batches_of_steps_on_one_graph(shape, conv, rule):
    """(B, T, M, F) is what (B · T, M, F) is."""
    x = torch.randn(*shape, M, F, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    chains = [
        ww.trace(Net(conv), given, EDGES, target=lambda out: out[..., 0].sum(), rule=rule)
        for given in (x, x.flatten(0, 1))
    ]
    for ask in (ww.node_relevance, lambda c: ww.subgraph_relevance(c, [[0, 1], [2, 3, 4]], alpha=[0.0, 0.5])):
        torch.testing.assert_close(*map(ask, chains), rtol=1e-12, atol=1e-12)


JOINED = (
    torch.tensor([[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 1, 0, 1, 1], [1, 0, 0, 1, 0], [0, 0, 1, 1, 1]]).double() / 3
)


class Traffic(nn.Module):
    """Sums at nodes that lie along one of several dimensions, a convolution in time, and a map of channels."""

    def __init__(self, layout, edges_first=False):
        super().__init__()
        torch.manual_seed(3)
        self.begin, self.steps = nn.Linear(F, 4), nn.Conv1d(4, 4, 2)
        self.mix = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])
        self.head, self.layout = nn.Linear(4, 3), layout
        self.double().eval()

    def forward(self, x, adj):
        """In the layout "bntc"; "bcnt" has the channels second, "nbtc" the nodes first."""
        to, back = (torch.einsum, f"{self.layout}->bntc", f"bntc->{self.layout}"), "bntc->bcnt"
        h = torch.einsum(to[2], self.begin(torch.einsum(to[1], x)))
        for mix in self.mix:
            sent = torch.einsum(f"vn,{self.layout}->{self.layout.replace('n', 'v')}", adj, h)
            both = torch.cat([h, sent], self.layout.index("c"))
            h = torch.einsum(to[2], mix(torch.einsum(to[1], both))).relu()
        wide = torch.einsum(back, torch.einsum(to[1], h))
        late = self.steps(wide.permute(0, 2, 1, 3).flatten(0, 1)).sum(-1).view(len(wide), M, 4)
        return self.head(late)


class AdjacencyFirst(Traffic):
    def forward(self, adj, features):
        return super().forward(features, adj)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("layout", ["bntc", "bcnt", "btcn"])
def test_nodes_may_lie_along_any_dimension(layout, batch, rule):
    """As in models of traffic; the same model with its nodes first says what relevance is."""
    first = torch.randn(M, batch, 6, F, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x = torch.einsum(f"nbtc->{layout}", first)
    chains = [
        ww.trace(model, *given, target=lambda out: out[0, 2, 1], rule=rule)
        for model, given in (
            (Traffic(layout), (x, JOINED)),
            (AdjacencyFirst(layout), (JOINED, x)),
            (Traffic("nbtc"), (first, JOINED)),
        )
    ]
    assert [chain.num_layers for chain in chains] == [2, 2, 2]
    assert [chain.num_nodes for chain in chains] == [M, M, M]
    for ask in (
        lambda c: ww.node_relevance(c, layer="start"),
        lambda c: ww.subgraph_relevance(c, [[0, 1], [2, 3, 4], [2]], alpha=[0.0, 0.5]),
    ):
        *ours, theirs = map(ask, chains)
        for found in ours:
            torch.testing.assert_close(found, theirs, rtol=1e-10, atol=1e-12)


class Road(Traffic):
    """Knows its road network."""

    def forward(self, input):
        return super().forward(input, JOINED)


class RoadOfSteps(Traffic):
    def forward(self, input, steps=None):
        return super().forward(input, JOINED)


def test_models_that_know_their_edges_take_features_alone():
    x = torch.randn(1, F, M, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    edges, ask = JOINED.nonzero().t(), {"target": lambda out: out[0, 2, 1]}
    chains = [
        ww.trace(Traffic("bcnt"), x, JOINED, **ask),
        ww.trace(Road("bcnt"), x, JOINED, **ask),
        ww.trace(Road("bcnt"), Data(x=x, edge_index=edges, num_nodes=M), **ask),
        ww.trace(RoadOfSteps("bcnt"), Data(x=x, edge_index=edges, num_nodes=M), **ask),
    ]
    for chain in chains[1:]:
        assert chain.num_layers == 2
        torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(chains[0]))


class Wider(Traffic):
    """Makes as many times as there are nodes."""

    def forward(self, x, adj):
        return super().forward(x[..., :M, :], adj)


def test_times_may_be_as_many_as_nodes():
    """Sums in a model that runs on no other number of nodes, and whose rows have as many times."""
    x = torch.randn(M, 1, M + 2, F, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    ours, theirs = (
        ww.trace(model, given, JOINED, target=lambda out: out[0, 2, 1], rule="zero")
        for model, given in ((Wider("nbtc"), x), (Wider("bntc"), x.transpose(0, 1)))
    )
    assert ours.num_layers == theirs.num_layers == 2
    torch.testing.assert_close(*(ww.subgraph_relevance(c, [[0, 1], [2]], alpha=[0.0, 0.5]) for c in (ours, theirs)))


@pytest.mark.parametrize("shape", [(2, M + 2, 6), (2, 3, M + 2, 6)])
def test_the_last_nodes_may_have_no_edges(shape):
    """Layers take nodes as the last dimension but one, also where another has as many entries as edges name nodes."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    model = pyg.GCN(6, 4, 2, 2).double().eval()
    chain = ww.trace(model, x, edges, target=lambda out: out[..., 0].sum())
    assert chain.num_nodes == M + 2


class OnTheSecond(nn.Module):
    """Sums along the second dimension, and maps before or after them."""

    def __init__(self, count):
        super().__init__()
        torch.manual_seed(4)
        self.maps = nn.ModuleList(nn.Linear(F, F) for _ in range(count))
        self.double().eval()

    def forward(self, x, edge_index):
        h = x
        for lin in self.maps:
            z = lin(h)
            h = (torch.zeros_like(z).index_add(1, edge_index[1], z.index_select(1, edge_index[0])) + z).relu()
        return h


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("count", [2, M])
def test_sums_along_the_second_dimension(count, layers, rule):
    """Of as many steps as nodes, too; and of a last layer that is handed the features themselves."""
    model, x = OnTheSecond(layers), matrices(count)
    flat = OnTheSecond(layers)
    flat.forward = lambda x, edge_index: model(x[None], edge_index)[0]
    ours = ww.trace(model, x, EDGES, target=lambda out: out[0, 0, 0] + 2 * out[1, 1, 1], rule=rule)
    theirs = ww.trace(flat, x.flatten(0, 1), copies(count), target=lambda out: out[0, 0] + 2 * out[M + 1, 1], rule=rule)
    assert ours.num_layers == theirs.num_layers == layers
    walks = ww.enumerate_walks(ours)
    expected = sum(ww.walk_relevance(theirs, torch.where(walks < 0, walks, walks + M * t)) for t in range(count))
    torch.testing.assert_close(ww.walk_relevance(ours, walks), expected, rtol=1e-9, atol=1e-11)


class Everywhere(nn.Module):
    """Sums along another dimension in every layer, in a model of so many nodes."""

    def __init__(self, order):
        super().__init__()
        torch.manual_seed(5)
        self.table, self.order = nn.Parameter(torch.randn(M, 3)), order
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False)
        self.weights = None
        self.double().eval()

    def masked(self, h, dim):
        if self.weights is None:
            return h
        inside = self.weights.view([-1 if d == dim else 1 for d in range(4)])
        return h * inside + (h * (1 - inside)).detach()

    def forward(self, x, adj):
        adj = adj * torch.softmax(torch.relu(self.table @ self.table.t()), 1)
        h = self.masked(x.permute(self.order), 3)  # (B, T, C, M)
        h = torch.einsum("vn,btcn->btcv", adj, h)
        h = self.masked(self.first(h.permute(0, 3, 1, 2)).relu(), 1)  # (B, M, T, C)
        return self.second(self.masked(torch.einsum("vn,bntc->bvtc", adj, h), 1))


@pytest.mark.parametrize(("layout", "order"), [("bmtc", (0, 2, 3, 1)), ("mbtc", (1, 2, 3, 0)), ("bcmt", (0, 3, 1, 2))])
def test_every_sum_is_a_layer_wherever_nodes_lie_in_it(layout, order):
    x = torch.randn(2, M, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    model, x = Everywhere(order), torch.einsum(f"bmtc->{layout}", x)
    chain = ww.trace(model, x, JOINED, target=lambda out: out[0, 0, 0, 0], rule="zero")
    assert chain.num_layers == 2
    for nodes in ([0, 1], [2, 3, 4], [1]):
        model.weights = torch.zeros(M, dtype=torch.float64).index_fill(0, torch.tensor(nodes), 1.0)
        leaf = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(leaf, JOINED)[0, 0, 0, 0], leaf)
        assert float(ww.subgraph_relevance(chain, [nodes])) == pytest.approx(float((gradient * x).sum()))
        model.weights = None


class Permuting(Sum):
    """Turns what it gets, and sends messages along the first dimension."""

    def __init__(self):
        super().__init__(0)

    def forward(self, x, edge_index):
        return super().forward(x.movedim(-2, 0), edge_index).movedim(0, -2)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize(
    ("make", "dim"),
    [(lambda: Sum(1), 1), (lambda: Sum(-3), 1), (lambda: Sum(2), 2), (lambda: Sum(-2), 2), (Permuting, 2)],
    ids=["second", "third last", "third", "last but one", "turned"],
)
def test_layers_may_send_along_any_dimension(make, dim, rule):
    flat = torch.randn(6, M, F, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    x = flat.view(2, 3, M, F).movedim(2, dim)
    models = Net(), Net()
    models[0].first, models[0].second, models[1].first, models[1].second = make(), make(), Sum(-2), Sum(-2)
    models[1].load_state_dict(models[0].state_dict())
    chains = [
        ww.trace(model, given, EDGES, target=lambda out: out[..., 0].sum(), rule=rule)
        for model, given in zip(models, (x, flat), strict=True)
    ]
    assert [chain.num_layers for chain in chains] == [2, 2]
    for ask in (ww.node_relevance, lambda c: ww.subgraph_relevance(c, [[0, 1], [2, 3, 4]], alpha=[0.0, 0.5])):
        torch.testing.assert_close(*map(ask, chains), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [
    lambda: pyg.TransformerConv(F, F),
    lambda: pyg.PNAConv(F, F, ["mean", "max"], ["identity"], deg=torch.tensor([1, 2, 2])),
], ids=["Transformer", "PNA"])  # fmt: skip
def test_layers_may_unfold_a_single_matrix(kind):
    models = Net(), Net()
    torch.manual_seed(2)
    for model in models:
        model.first, model.second, model.between = kind().double(), kind().double(), torch.relu
    models[1].load_state_dict(models[0].state_dict())
    x = matrices(1)
    chains = [
        ww.trace(model, given, EDGES, target=lambda out: out[..., 0].sum())
        for model, given in zip(models, (x, x[0]), strict=True)
    ]
    assert [chain.num_layers for chain in chains] == [2, 2]
    torch.testing.assert_close(*(ww.subgraph_relevance(c, [[0, 1], [2, 3, 4]], alpha=[0.0, 0.5]) for c in chains))
