"""Layers that work edge by edge, or put tensors into other shapes: a question about S carries S, and says the same."""

import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import aggr

import walkwise as ww
from walkwise import reference
from walkwise.core.contract import all_rows, contract
from walkwise.core.operators import Aggregate
from walkwise.questions.neighbours import step_neighbours
from walkwise.tracing import lowering
from walkwise.tracing.steps.locality import Way
from zoo.handmade import Triplets

M, N = 40, 4
META = (["user", "item"], [("user", "to", "item"), ("item", "back", "user")])
MORE = (META[0], [*META[1], ("user", "follows", "user")])  # a type sends by two relations


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graph():
    """A ring with chords, each in both directions, and one edge twice."""
    nodes = torch.arange(M)
    there = torch.cat([(nodes + 1) % M, (nodes[::5] + 7) % M])
    pairs = torch.stack([torch.cat([nodes, nodes[::5]]), there])
    return torch.cat([pairs, pairs.flip(0), pairs[:, :1]], dim=1)


EDGES = graph()
E = EDGES.shape[1]
X, ATTR, KINDS = drawn(0, M, N), drawn(1, E, 3).sin(), (drawn(2, E) > 0).long()


class Two(nn.Module):
    """Two layers of a kind, and a sum over nodes."""

    def __init__(self, make, *more):
        super().__init__()
        self.a, self.b, self.head, self.more = make(), make(), nn.Linear(N, 2), more

    def forward(self, x, edge_index):
        h = self.a(x, edge_index, *self.more).relu()
        return self.head(self.b(h, edge_index, *self.more).relu()).sum(0, keepdim=True)


class Dynamic(nn.Module):
    """DNA: every layer attends to what a node was in all layers before."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = (
            pyg.DNAConv(N, heads=2, groups=2),
            pyg.DNAConv(N, heads=2, groups=2),
            nn.Linear(N, 2),
        )

    def forward(self, x, edge_index):
        seen = x.view(-1, 1, N)
        for conv in (self.a, self.b):
            seen = torch.cat([seen, conv(seen, edge_index).relu().view(-1, 1, N)], 1)
        return self.head(seen[:, -1]).sum(0, keepdim=True)


class Typed(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.a, self.b, self.head = make(), make(), nn.Linear(N, 2)

    def forward(self, x, edges):
        h = {kind: rows.relu() for kind, rows in self.a(x, edges).items()}
        return self.head(self.b(h, edges)["user"].relu()).sum(0, keepdim=True)


def perceptron(wide):
    return nn.Sequential(nn.Linear(wide, N), nn.ReLU(), nn.Linear(N, N), nn.ReLU())


def at_edges():
    return pyg.NNConv(N, N, nn.Linear(3, N * N), aggr="mean")


class Bonds(pyg.MessagePassing):
    """Directed bonds send to those that follow, but not back (D-MPNN)."""

    def __init__(self):
        super().__init__()
        self.begin, self.update, self.end = nn.Linear(N, N), nn.Linear(N, N), nn.Linear(2 * N, N)

    def forward(self, x, edge_index):
        source, target = edge_index
        back = ((source[:, None] == target) & (target[:, None] == source)).long().argmax(1)
        first = bonds = self.begin(x[source]).relu()
        for _ in range(2):
            atoms = torch.zeros_like(x).index_add(0, target, bonds)
            bonds = (first + self.update(atoms[source] - bonds[back])).relu()
        atoms = torch.zeros_like(x).index_add(0, target, bonds)
        return self.end(torch.cat([x, atoms], 1))


class BothEnds(pyg.MessagePassing):
    """Rows of edges that are added up in two ways: at their targets and at their sources."""

    def __init__(self):
        super().__init__()
        self.edge, self.out = nn.Linear(N, N), nn.Linear(N, N)

    def forward(self, x, edge_index):
        source, target = edge_index
        edges = self.edge(x[target]).relu()
        return self.out(torch.zeros_like(x).index_add(0, target, edges).index_add(0, source, edges))


class Quantiles(pyg.MessagePassing):
    """The quarters of what comes to a node, interpolated."""

    def __init__(self, between):
        super().__init__(aggr=pyg.aggr.QuantileAggregation([0.25, 0.75], between))
        self.out = nn.Linear(2 * N, N)

    def forward(self, x, edge_index):
        return self.out(self.propagate(edge_index, x=x))


class Aggregated(pyg.MessagePassing):
    """Messages, sorted by where they come to as some aggregations want them, and a linear layer."""

    def __init__(self, how, factor=1):
        super().__init__(aggr=how)
        self.out = nn.Linear(factor * N, N)

    def forward(self, x, edge_index):
        return self.out(self.propagate(edge_index[:, edge_index[1].argsort(stable=True)], x=x))


class Kinds(nn.Module):
    """Matrices by kind of node: rows are sorted by it, and put back."""

    def __init__(self):
        super().__init__()
        self.conv = pyg.HEATConv(N, N // 2, 2, 2, 2, 3, 2, heads=2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index, torch.arange(len(x)) * 7 % 5 // 3, KINDS, ATTR)


#: What LRP-0 is the gradient of: nothing is held constant but ReLUs and what features of edges make.
PLAIN = {
    "EdgeConv": lambda: Two(lambda: pyg.EdgeConv(perceptron(2 * N), aggr="mean")),
    "NNConv": lambda: Two(at_edges, ATTR),
    "GMMConv": lambda: Two(lambda: pyg.GMMConv(N, N, dim=3, kernel_size=2), ATTR),
    "ARMAConv": lambda: Two(lambda: pyg.ARMAConv(N, N, num_stacks=2)),
    "MFConv": lambda: Two(lambda: pyg.MFConv(N, N)),
    "RGCNConv, blocks": lambda: Two(lambda: pyg.RGCNConv(N, N, num_relations=2, num_blocks=2), KINDS),
    "both ends": lambda: Two(BothEnds),
    "median": lambda: Two(lambda: pyg.SAGEConv(N, N, aggr="median")),
    "quantiles": lambda: Two(lambda: Quantiles("linear")),
    "quantiles, midpoint": lambda: Two(lambda: Quantiles("midpoint")),
    "quantiles, higher": lambda: Two(lambda: Quantiles("higher")),
    "sorted messages": lambda: Two(lambda: Aggregated(aggr.SortAggregation(3), 3)),
    "messages in a row": lambda: Two(lambda: Aggregated(aggr.MLPAggregation(N, N, 9, num_layers=1))),
}
#: Aggregations that work on padded tensors, which hold attention or gates constant.
PADDED = {
    "set transformer": lambda: Two(lambda: Aggregated(aggr.SetTransformerAggregation(N, heads=2))),
    "multiset transformer": lambda: Two(lambda: Aggregated(aggr.GraphMultisetTransformer(N, 2, heads=2))),
    "patches": lambda: Two(lambda: Aggregated(aggr.PatchTransformerAggregation(N, N, 4, N, 1, 1))),
    "commutative monoid": lambda: Two(lambda: Aggregated(aggr.LCMAggregation(N, N))),
    "LSTM": lambda: Two(lambda: Aggregated(aggr.LSTMAggregation(N, N))),
}
HELD = {
    "EdgeConv, max": lambda: Two(lambda: pyg.EdgeConv(perceptron(2 * N), aggr="max")),
    "product": lambda: Two(lambda: Aggregated("mul")),
    "EGConv": lambda: Two(lambda: pyg.EGConv(N, N, num_heads=2, num_bases=2)),
    "RGATConv": lambda: Two(lambda: pyg.RGATConv(N, N, num_relations=2), KINDS),
    "FiLMConv": lambda: Two(lambda: pyg.FiLMConv(N, N)),
    "DNAConv": Dynamic,
    "HANConv": lambda: Typed(lambda: pyg.HANConv(N, N, META, heads=2)),
    "HGTConv": lambda: Typed(lambda: pyg.HGTConv(N, N, META, heads=2)),
    **PADDED,
    "Kinds": lambda: Two(Kinds),
    "HGTConv, three relations": lambda: Typed(lambda: pyg.HGTConv(N, N, MORE, heads=2)),
}
#: The same where edges send to edges: messages are passed several times between two positions.
FURTHER = {
    "Triplets": lambda: Two(Triplets),
    "Bonds": lambda: Two(Bonds),
}
SETS = [[0, 1, 2], [7], [3, 10, 17, 24], list(range(5, 25)), [39, 0], [12, 13], [20, 30], []]


def model_of(make):
    torch.manual_seed(3)
    model = make().double().eval()
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.uniform_(parameter, 0.05, 0.3)
    return model


def chain_of(name, rule):
    model = model_of({**PLAIN, **HELD, **FURTHER}[name])
    if name[0] != "H":
        return ww.trace(model, X, EDGES, target=0, rule=rule)
    half = M // 2
    between = EDGES[:, (EDGES[0] < half) & (EDGES[1] >= half)] - torch.tensor([[0], [half]])
    x, edges = {"user": X[:half], "item": X[half:]}, {META[1][0]: between, META[1][1]: between.flip(0)}
    if "three" in name:
        edges[MORE[1][2]] = EDGES[:, (half > EDGES).all(0)]
    return ww.trace(model, x, edges, target=0, rule=rule)


def masked(chain, positions):
    """The relevance of walks with these weights at all positions, carried by all nodes.  # (L + 1, M)"""
    return float(contract(chain, all_rows(chain), lambda visit, m: m * positions[visit.position].view(-1, 1, 1, 1)))


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", [*PLAIN, *HELD, *FURTHER])
def test_a_question_about_s_carries_s_and_says_the_same(name, rule):
    chain = chain_of(name, rule)
    assert chain.local or (name in FURTHER and chain.hops is not None)
    scale = abs(chain.input_relevance) + 1
    inside = [torch.zeros(M).double().index_fill(0, torch.tensor(nodes, dtype=torch.long), 1) for nodes in SETS]
    ours = ww.subgraph_relevance(chain, SETS)
    assert ours.abs().max() > 1e-6
    expected = [masked(chain, mask.expand(chain.num_layers + 1, M)) for mask in inside]
    assert ours.tolist() == pytest.approx(expected, abs=1e-10 * scale)
    discounted = ww.subgraph_relevance(chain, SETS, alpha=0.4)
    outside = [masked(chain, (0.4 * (1 - mask)).expand(chain.num_layers + 1, M)) for mask in inside]
    walks = [masked(chain, (mask + 0.4 * (1 - mask)).expand(chain.num_layers + 1, M)) for mask in inside]
    assert discounted.tolist() == pytest.approx([a - b for a, b in zip(walks, outside, strict=True)], abs=1e-10 * scale)


@pytest.mark.parametrize("name", [*PLAIN, *HELD, *FURTHER])
def test_walks_step_to_neighbours(name):
    """Walks one by one, found by fans and measured in blocks, are those of all nodes; together they are the whole."""
    chain = chain_of(name, "zero")
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance)
    for walk, ours in list(zip(walks.tolist(), relevance.tolist(), strict=True))[::97]:
        alone = torch.zeros(len(walk), M).double()
        alone[torch.arange(len(walk)), walk] = 1
        assert ours == pytest.approx(masked(chain, alone), abs=1e-12)
    pairs = {(b, a) for walk in walks.tolist() for a, b in itertools.pairwise(walk)}
    near = step_neighbours(chain)
    assert near is not None
    assert pairs <= set(zip(near.here.tolist(), near.nodes.tolist(), strict=True))


@pytest.mark.parametrize("name", [*PLAIN, *FURTHER])
def test_the_models_own_gradients_say_the_same(name):
    """The slow twin: the model as it is, with the weights of S on every gradient that comes to a position."""
    model, chain = model_of({**PLAIN, **FURTHER}[name]), chain_of(name, "zero")
    ours = ww.subgraph_relevance(chain, SETS, alpha=0.5)
    for nodes, relevance in zip(SETS, ours.tolist(), strict=True):
        expected = reference.hooked_subgraph_relevance(model, lambda: model(X, EDGES)[0, 0], nodes, 0.5, M, 3)
        assert relevance == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", HELD)
def test_steps_as_they_were_recorded_say_the_same(name, monkeypatch):
    """The slow twin where something is held constant: every step a pass over the whole graph."""
    ours = ww.subgraph_relevance(chain_of(name, "auto"), SETS, alpha=0.5)
    monkeypatch.setattr(lowering, "nearest", lambda steps, *_: Way(list(steps), None))
    recorded = chain_of(name, "auto")
    assert not recorded.local
    torch.testing.assert_close(ours, ww.subgraph_relevance(recorded, SETS, alpha=0.5), rtol=1e-9, atol=1e-10)


def test_maps_of_edges_are_sums_over_edges_where_they_can_be():
    """A weight for every edge needs no rows of edges."""
    chain = ww.trace(model_of(lambda: Two(lambda: pyg.GATConv(N, N))), X, EDGES, target=0)
    kinds = {type(operator).__name__ for step in chain.steps for operator in step.operators}
    assert Aggregate.__name__ in kinds
    assert not kinds & {"Read", "AddedUp", "AtHome", "RowFunction"}


def test_a_chain_moves_with_its_edges():
    chain = chain_of("NNConv", "zero")
    halves = chain.to(torch.float32)
    expected = ww.subgraph_relevance(chain, SETS)
    assert ww.subgraph_relevance(halves, SETS).tolist() == pytest.approx(expected.tolist(), rel=1e-3, abs=1e-5)
    assert halves.local
    assert [layer.route for layer in chain.layers] == ["autograd"] * 2


@pytest.mark.parametrize("name", [name for name in PLAIN if not name.startswith(("median", "quantiles", "sorted"))])
def test_a_graph_without_edges(name):
    model, x = model_of(PLAIN[name]), X[:3].clone().requires_grad_()
    model.more = tuple(of_edges[:0] for of_edges in model.more)
    chain = ww.trace(model, X[:3], EDGES[:, :0], target=0, rule="zero")
    (slope,) = torch.autograd.grad(model(x, EDGES[:, :0])[0, 0], x)
    torch.testing.assert_close(ww.feature_relevance(chain), X[:3] * slope)
    by_default = ww.trace(model, X[:3], EDGES[:, :0], target=0)
    alone = ww.subgraph_relevance(by_default, [[0], [1], [2]])  # no walk leaves its node
    torch.testing.assert_close(ww.node_relevance(by_default), alone)
