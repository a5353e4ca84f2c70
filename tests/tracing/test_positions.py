"""The edges that a chain knows of: those of its first layer, between nodes of the graph."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GraphConv, LEConv, MessagePassing

import walkwise as ww
from walkwise import hooks
from walkwise.errors import CoverageWarning, TraceError

EDGES = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 2, 3]])


class One(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv.double()

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).sum(0, keepdim=True)


def adjacency():
    ones = torch.ones(EDGES.shape[1], dtype=torch.float64)
    return torch.sparse_coo_tensor(EDGES.flip(0), ones, (4, 4)).coalesce().to_sparse_csr()


def test_a_layer_with_a_sparse_adjacency_names_no_edges():
    x = torch.rand(4, 3, dtype=torch.float64)
    torch.manual_seed(0)
    conv = GraphConv(3, 2)
    ours, theirs = (ww.trace(One(conv), x, edges, target=0, rule="zero") for edges in (adjacency(), EDGES))
    assert ours.edge_index.shape == (2, 0)
    assert torch.equal(theirs.edge_index, EDGES)
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(theirs))


class Written(LEConv):
    """The same layer, of somebody else's: it has no closed form."""

    def message(self, a_j, b_i, edge_weight):
        return a_j - b_i if edge_weight is None else (a_j - b_i) * edge_weight.view(-1, 1)


def test_differences_along_edges_in_whatever_form_they_come():
    x = torch.rand(4, 3, dtype=torch.float64)
    for aggr in ("sum", "mean", "max"):
        chains = []
        for kind in (LEConv, Written):
            torch.manual_seed(0)
            chains.append(ww.trace(One(kind(3, 2, aggr=aggr)), x, EDGES, target=0, rule="zero"))
        torch.testing.assert_close(*map(ww.feature_relevance, chains), rtol=1e-9, atol=1e-12)


class Virtual(nn.Module):
    """A row for all nodes together, beside theirs, that sends to each of them and hears of each."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = (GraphConv(3, 3).double() for _ in range(3))

    def forward(self, x, edge_index):
        h = self.a(x, edge_index).relu()
        h = torch.cat([h[:2], h.mean(0, keepdim=True), h[2:]])
        nodes = torch.tensor([0, 1, 3, 4])
        joined = torch.stack([torch.cat([nodes, torch.full((4,), 2)]), torch.cat([torch.full((4,), 2), nodes])])
        h = self.b(h, torch.cat([nodes[edge_index], joined], dim=1)).relu()
        return self.c(h[nodes], edge_index).sum(0, keepdim=True)


def test_walks_stand_at_nodes_and_pass_the_rows_of_nobody_by():
    model, x = Virtual(), torch.rand(4, 3, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(leaf, EDGES)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x, rtol=1e-9, atol=1e-12)
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance)
    passing = (walks < 0).any(1)  # through the row of nobody
    assert float(relevance[passing].abs().max()) > 1e-3
    for node in range(4):
        there = (walks == node).any(1)
        alone = float(relevance[there & ((walks == node) | (walks < 0)).all(1)].sum())
        assert float(ww.subgraph_relevance(chain, [[node]])) == pytest.approx(alone, abs=1e-12)


class Carrying(MessagePassing):
    """Nodes have features and something that is carried along, both of which neighbours send."""

    def __init__(self, static):
        super().__init__(node_dim=-2 if static else 0)
        self.of_x, self.of_carried = nn.Linear(3, 3, bias=False), nn.Linear(2, 2, bias=False)
        self.mixed = nn.Linear(7, 7, bias=False)

    def forward(self, x, carried, edge_index):  # (M, 3), (M, 2, 2)
        sent = torch.cat([self.of_x(x), self.of_carried(carried).flatten(1)], dim=1)
        x, carried = self.mixed(self.propagate(edge_index, sent=sent)).split([3, 4], dim=1)
        return x, carried.view(-1, 2, 2)

    def message(self, sent_j):
        return sent_j


class InPairs(Carrying):
    """The same layer, handed both at once."""

    def forward(self, x, edge_index):
        return super().forward(*x, edge_index)


class Carried(nn.Module):
    def __init__(self, in_pairs, static):
        super().__init__()
        torch.manual_seed(1)
        self.in_pairs = in_pairs
        self.layers = nn.ModuleList((InPairs if in_pairs else Carrying)(static).double() for _ in range(3))

    def forward(self, x, edge_index, weigh=lambda position, *tensors: None):
        carried = torch.stack([x[:, :2], x[:, 1:]], dim=1)
        for position, layer in enumerate(self.layers, 1):
            x, carried = layer((x, carried), edge_index) if self.in_pairs else layer(x, carried, edge_index)
            weigh(position, x, carried)
        return (x.sum(1) + carried.sum((1, 2))).sum().view(1, 1)


@pytest.mark.parametrize("in_pairs", [False, True], ids=["one by one", "in pairs"])
@pytest.mark.parametrize("static", [False, True])
def test_walks_stand_at_all_that_a_layer_is_handed_of_its_nodes(in_pairs, static):
    """A way through what is carried along is no way around the nodes: relevance has the weights of both."""
    model, x = Carried(in_pairs, static), torch.rand(4, 3, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    assert chain.num_layers == 3
    walks = ww.enumerate_walks(chain)
    assert bool((walks >= 0).all())
    relevance = ww.walk_relevance(chain, walks)
    for nodes in ([0, 2], [1, 2, 3], [0, 1, 2, 3], [3]):
        inside = torch.zeros(4, dtype=torch.float64).index_fill(0, torch.tensor(nodes), 1.0)

        def weigh(position, *tensors, inside=inside):
            for tensor in tensors:
                tensor.register_hook(lambda g: g * inside.view(-1, *[1] * (g.dim() - 1)))

        leaf = x.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(leaf, EDGES, weigh), leaf)
        expected = float((gradient * x * inside.view(-1, 1)).sum())
        assert float(ww.subgraph_relevance(chain, [nodes])) == pytest.approx(expected, abs=1e-12)
        within = torch.isin(walks, torch.tensor(nodes)).all(1)
        assert float(relevance[within].sum()) == pytest.approx(expected, abs=1e-12)


class Vectors(MessagePassing):
    """Numbers and vectors of nodes, returned side by side or in one tensor."""

    def __init__(self, apart):
        super().__init__(aggr="add")
        torch.manual_seed(4)
        self.apart, self.lin = apart, nn.Linear(8, 8)

    def forward(self, x, edge_index):
        made = self.propagate(edge_index, x=self.lin(x)).relu()
        return (made[:, :2], made[:, 2:].reshape(-1, 2, 3)) if self.apart else made

    def message(self, x_i, x_j):
        return x_j - 0.3 * x_i


class WithVectors(nn.Module):
    def __init__(self, apart):
        super().__init__()
        self.layers, self.apart = nn.ModuleList([Vectors(apart), Vectors(apart)]).double(), apart

    def forward(self, x, edge_index):
        for layer in self.layers:
            made = layer(x, edge_index)
            numbers, vectors = made if self.apart else (made[:, :2], made[:, 2:].reshape(-1, 2, 3))
            x = torch.cat([numbers, vectors.flatten(1)], dim=1)
        return (numbers.sum(1) + (vectors * vectors).sum((1, 2))).view(-1, 1)


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_walks_end_at_all_that_a_layer_returns_of_its_nodes(rule):
    x = torch.rand(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours, theirs = (ww.trace(WithVectors(apart), x, EDGES, target=0, index=1, rule=rule) for apart in (True, False))
    sets = [[1], [0, 1], [0, 1, 2], [0, 2, 3], [0, 1, 2, 3]]
    asked = [ww.subgraph_relevance(chain, sets).tolist() for chain in (ours, theirs)]
    assert asked[0] == pytest.approx(asked[1], rel=1e-9)
    assert abs(asked[0][0] - asked[0][-1]) > 1e-3


class Super(nn.Module):
    """A node joined to all others, which begins as something made of all of them before the first layer."""

    def __init__(self, made, encoded):
        super().__init__()
        torch.manual_seed(0)
        self.made = made
        self.encoder = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU()) if encoded else nn.Identity()
        self.a, self.b = (GCNConv(3, 3, bias=False) for _ in range(2))
        self.double()

    def forward(self, x, edge_index):
        h, M = self.encoder(x), len(x)
        every, last = torch.arange(M), torch.full((M,), M)
        edges = torch.cat([edge_index, torch.stack([every, last]), torch.stack([last, every])], 1)
        h = torch.cat([h, self.made(h)])
        return self.b(self.a(h, edges).relu(), edges)[:M].sum(0, keepdim=True)


MADE = {
    "mean": lambda h: h.mean(0, keepdim=True),
    "sum": lambda h: h.sum(0, keepdim=True),
    "max": lambda h: h.max(0, keepdim=True).values,
    "two": lambda h: torch.stack([h[:2].sum(0), h[2:].sum(0)])[:1] * 2,
}


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("made", MADE)
def test_relevance_of_a_row_made_of_nodes_goes_back_to_them(made, encoded):
    torch.manual_seed(1)
    x = torch.randn(4, 3, dtype=torch.float64)
    model = Super(MADE[made], encoded)
    with pytest.warns(CoverageWarning, match="outside any message-passing layer, in the code before the first"):
        chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(at, EDGES)[0, 0], at)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ww.node_relevance(chain), (gradient * x).sum(1), rtol=1e-9, atol=1e-12)
    assert (chain.num_layers, chain.layers[0].position) == (2, 0)
    for rule in ("zero", "auto", "gamma"):
        with pytest.warns(CoverageWarning):
            chain = ww.trace(model, x, EDGES, target=0, rule=rule)
        for alpha in (0.0, 0.4):
            with pytest.warns(CoverageWarning):
                expected = hooks.subgraph_relevance(model, x, EDGES, [0, 2, 3], target=0, rule=rule, alpha=alpha)
            assert float(ww.subgraph_relevance(chain, [[0, 2, 3]], alpha=alpha)[0]) == pytest.approx(
                expected, abs=1e-12
            )


def test_a_row_of_nobody_that_is_made_of_no_node_stays_one():
    x = torch.rand(4, 3, dtype=torch.float64)
    learned = torch.rand(1, 3, dtype=torch.float64)
    chain = ww.trace(Super(lambda h: learned, True), x, EDGES, target=0, rule="zero")
    (note,) = chain.notes  # said once, though both layers run on it
    assert "layer 'a' (GCNConv) also runs on rows that are not nodes of the graph" in note
    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(Super(lambda h: learned, True)(at, EDGES)[0, 0], at)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x, rtol=1e-9, atol=1e-12)


def test_rows_in_another_order_do_not_go_past_where_walks_stand():
    order = torch.tensor([2, 0, 3, 1])

    class Sorted(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = GCNConv(3, 3), GCNConv(3, 2)

        def forward(self, x, edge_index):
            edges = torch.argsort(order)[edge_index]
            return self.b(self.a(x[order], edges).relu(), edges).sum(0, keepdim=True)

    chain = ww.trace(Sorted().double(), torch.rand(4, 3, dtype=torch.float64), EDGES, target=0)
    assert not [note for note in chain.notes if "bypasses" in note]


class Row(MessagePassing):
    """What comes to every node, row by row."""

    def forward(self, x, edge_index):
        return torch.stack([x[edge_index[0][edge_index[1] == node]].sum(0) for node in range(len(x))])


class AsWritten(nn.Module):
    """A model as a function of a layer, a scale of its own, x and the edges."""

    def __init__(self, layer, forward):
        super().__init__()
        self.layer, self.scale = layer, nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 3.0]))
        self.forward = lambda x, edge_index: forward(self, x, edge_index)


def stacked(how):
    """A sum over the rows that a layer has stacked."""
    return lambda m, x, edges: how(m.layer(x, edges))[:1].view(1, 1)


def scaled(how):
    """A sum over the columns of a product that a layer is handed, too."""

    def forward(m, x, edges):
        h = x.relu() * m.scale
        return (m.layer(h, edges).sum(1) + how(h)).sum().view(1, 1)

    return forward


@pytest.mark.parametrize(
    ("layer", "model", "hows"),
    [
        (Row, stacked, [lambda h: h.t() @ torch.ones(5), lambda h: h.sum(0), lambda h: torch.einsum("mf->f", h)]),
        (lambda: GraphConv(4, 4), scaled, [lambda h: h @ torch.ones(4), lambda h: h.sum(1)]),
    ],
    ids=["a stack", "a product with a weight"],
)
def test_a_sum_is_not_read_past_where_walks_stand(layer, model, hows):
    torch.manual_seed(0)
    conv, x, sets = layer(), torch.randn(5, 4), [[0], [1, 2], [0, 1, 2, 3, 4]]
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 3, 4, 0]])
    chains = [ww.trace(AsWritten(conv, model(how)).eval(), x, edges, target=0, rule="zero") for how in hows]
    expected, *found = (ww.subgraph_relevance(chain, sets) for chain in chains)
    for other in found:
        torch.testing.assert_close(other, expected)


def test_rows_of_no_node_are_named_only_where_a_layer_is_handed_them():
    """Rows that the read-out alone adds pass no layer."""

    class AtTheEnd(Super):
        def forward(self, x, edge_index):
            h = self.b(self.a(x, edge_index).relu(), edge_index)
            return torch.cat([h, self.made(h)]).sum(0, keepdim=True)

    x = torch.rand(4, 3, dtype=torch.float64)
    learned = torch.rand(1, 3, dtype=torch.float64)
    assert ww.trace(AtTheEnd(lambda h: learned, False), x, EDGES, target=0, rule="zero").notes == ()


class Both(MessagePassing):
    """Sums over edges, and a row for each edge that is made of both of its ends."""

    def __init__(self):
        super().__init__()
        self.own, self.ends = (nn.Linear(3, 3, bias=False, dtype=torch.float64) for _ in range(2))

    def forward(self, x, edge_index, edges):
        source, target = edge_index
        return self.propagate(edge_index, x=self.own(x), edges=edges), (x[source] + self.ends(x)[target]).relu()

    def message(self, x_j, edges):
        return x_j + edges


class OnBonds(nn.Module):
    """Layers on nodes and, between them, one on the edges, each of which takes from the one before it."""

    def __init__(self, edge_index):
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = Both(), Both()
        self.on_edges = GCNConv(3, 3, bias=False).double()
        self.pairs = (edge_index[1][:, None] == edge_index[0]).nonzero().t()

    def forward(self, x, edge_index):
        h, edges = self.a(x, edge_index, x.new_zeros(edge_index.shape[1], 3))
        return self.b(h.relu(), edge_index, self.on_edges(edges, self.pairs).relu())[0]


def test_a_layer_on_more_rows_than_there_are_nodes_is_passed_by():
    """Rows of edges that are sums of both ends cannot be followed, and cannot be nodes once each either."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    x, model = torch.rand(4, 3, dtype=torch.float64), OnBonds(edge_index)
    chain = ww.trace(model, x, edge_index, index=1, target=0, rule="zero")
    assert [layer.name for layer in chain.layers] == ["a", "on_edges", "b"]
    assert any("layer 'on_edges' (GCNConv) runs on rows that are" in note for note in chain.notes)
    at = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(at, edge_index)[1, 0], at)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x, rtol=1e-9, atol=1e-12)
    for rule in ("zero", "auto"):
        chain = ww.trace(model, x, edge_index, index=1, target=0, rule=rule)
        expected = hooks.subgraph_relevance(model, x, edge_index, [0, 1, 2], index=1, target=0, rule=rule)
        assert float(ww.subgraph_relevance(chain, [[0, 1, 2]])[0]) == pytest.approx(expected, abs=1e-12)


def test_as_many_rows_as_nodes_that_cannot_be_followed_are_still_refused():
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # as many as nodes
    x = torch.rand(4, 3, dtype=torch.float64)
    with pytest.raises(TraceError, match="cannot be followed back to nodes"):
        ww.trace(OnBonds(edge_index), x, edge_index, index=1, target=0)


class Scores(MessagePassing):
    """A number for each node, as a vector."""

    def __init__(self, ending):
        super().__init__(aggr="add")
        self.lin, self.ending = nn.Linear(4, 1 if ending in ("squeeze", "column", "sigmoid") else 3), ending

    def forward(self, x, edge_index):
        h = self.propagate(edge_index, x=self.lin(x).relu())
        return self.ended(h) if self.ending else h

    def ended(self, h):
        if self.ending == "sum":
            return h.sum(dim=-1)
        if self.ending == "column":
            return h[:, 0]
        h = h.squeeze(-1)
        return h.sigmoid() if self.ending == "sigmoid" else h

    def message(self, x_j):
        return x_j


class Scored(nn.Module):
    """The layer that makes a vector comes last, or its ending is outside of it."""

    def __init__(self, ending, outside):
        super().__init__()
        self.first, self.scores, self.outside = GCNConv(3, 4), Scores(ending), outside

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        if not self.outside:
            return self.scores(h, edge_index)
        ending, self.scores.ending = self.scores.ending, ""
        h = self.scores(h, edge_index)
        self.scores.ending = ending
        return self.scores.ended(h)


@pytest.mark.parametrize("ending", ["squeeze", "column", "sum", "sigmoid"])
@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_a_layer_may_end_with_a_vector(ending, rule):
    """It was refused, as if it had received one."""
    torch.manual_seed(0)
    model, outside = Scored(ending, False).double(), Scored(ending, True).double()
    outside.load_state_dict(model.state_dict())
    x = torch.randn(5, 3, dtype=torch.float64)
    edges = torch.tensor([[0, 1, 1, 2, 3, 4, 2], [1, 0, 2, 1, 2, 3, 4]])
    chain, expected = (ww.trace(m, x, edges, target=lambda out: out[2], rule=rule) for m in (model, outside))
    assert chain.num_layers == expected.num_layers == 2
    assert [layer.name for layer in chain.layers] == ["first", "scores"]
    walks = ww.enumerate_walks(expected)
    assert ww.enumerate_walks(chain).tolist() == walks.tolist()
    assert ww.walk_relevance(chain, walks).tolist() == pytest.approx(ww.walk_relevance(expected, walks).tolist())


class Returning(MessagePassing):
    """A layer with a gate and a state, which it may return beside its result."""

    def __init__(self, more):
        super().__init__("mean")
        self.gate, self.lin, self.more = nn.Linear(4, 4), nn.Linear(4, 4), more

    def forward(self, x, edge_index, given=0):
        received = self.propagate(edge_index, x=x)
        gate = torch.sigmoid(self.gate(x) + given)
        state = self.lin(received) * gate
        beside = {"gate": (gate,), "state": (state,), "both": (gate, state), "": ()}[self.more]
        return (x + state.tanh(), *beside)

    def message(self, x_j):
        return x_j


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize(("more", "handed_on"), [("gate", False), ("gate", True), ("state", False), ("both", False)])
def test_what_a_layer_returns_besides_changes_nothing(more, rule, handed_on):
    """Walks end at its result, not at the gate or the state that this is computed from."""

    class Net(nn.Module):
        def __init__(self, more):
            super().__init__()
            torch.manual_seed(6)
            self.a, self.b, self.head = Returning(more), Returning(more), nn.Linear(4, 2)

        def forward(self, x, edge_index):
            h, *beside = self.a(x, edge_index)
            gate = beside[0] if handed_on and beside else torch.sigmoid(self.a.gate(x)) if handed_on else 0
            return self.head(self.b(h, edge_index, gate)[0])

    x = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain, chain = (
        ww.trace(Net(which).double().eval(), x, EDGES, target=0, index=1, rule=rule) for which in ("", more)
    )
    assert [layer.name for layer in chain.layers] == ["a", "b"]
    sets = [[1], [0, 1], [1, 3], [0, 1, 2], list(range(6))]
    torch.testing.assert_close(ww.subgraph_relevance(chain, sets), ww.subgraph_relevance(plain, sets))
