"""What a model reads around its first layer: walks begin there as well, at the same position."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing

import walkwise as ww
from walkwise import reference
from walkwise.errors import CoverageWarning

M = 5
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 4], [1, 0, 2, 1, 3, 2, 4]])
SUBGRAPHS = [[0, 1], [2, 3, 4], [4], []]


class Net(nn.Module):
    """An encoder, two layers and a head, none of them with a bias, put together in some way."""

    def __init__(self, run):
        super().__init__()
        self.encoder, self.head = nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)
        self.a, self.b = GCNConv(4, 4, bias=False), GCNConv(4, 4, bias=False)
        self.run = run

    def forward(self, x, edge_index):
        return self.head(self.run(self, x, edge_index)).sum(0, keepdim=True)


def pre_activated(m, x, e):
    """Residual blocks that begin with their activation, as res+ does."""
    h = m.encoder(x)
    h = h + m.a(h.relu(), e)
    return h + m.b(h.relu(), e)


def jumping(m, x, e):
    return m.b(m.a(m.encoder(x).relu(), e).relu(), e) + m.encoder(x)


def initial(m, x, e):
    """The first representation is read before every layer, and the first layer reads what is made of it."""
    first = m.encoder(x)
    return m.b(m.a(first.relu(), e) + first, e) + first.view(-1, 4).clone()


def reordered(m, x, e):
    order = torch.tensor([3, 1, 4, 0, 2])
    shuffled = x[order]
    back = torch.argsort(order)
    return m.b(m.a(m.encoder(shuffled)[back].relu(), e).relu(), e) + m.encoder(shuffled)[back]


@pytest.fixture(params=[pre_activated, jumping, initial, reordered], ids=lambda run: run.__name__)
def model(request):
    torch.manual_seed(2)
    return Net(request.param).double().eval()


@pytest.fixture
def x():
    torch.manual_seed(5)
    return torch.randn(M, 3, dtype=torch.float64)


@pytest.mark.parametrize("rule", ["zero", "auto", "gamma", "epsilon"])
def test_nothing_is_lost_and_walks_say_what_subgraphs_say(model, x, rule):
    chain = ww.trace(model, x, EDGES, target=1, rule=rule)
    assert all("bypasses all later positions" in note for note in chain.notes)  # of blocks that begin with a norm
    walks = ww.enumerate_walks(chain)
    table = dict(zip(map(tuple, walks.tolist()), ww.walk_relevance(chain, walks).tolist(), strict=True))
    whole = sum(table.values())
    if rule in ("zero", "auto"):
        assert whole == pytest.approx(chain.output, abs=1e-12)
    if rule != "epsilon":  # of which the encoder absorbs a little
        assert float(ww.feature_relevance(chain).sum()) == pytest.approx(whole, abs=1e-12)
    assert float(ww.node_relevance(chain).sum()) == pytest.approx(whole, abs=1e-12)
    for alpha in (0.0, 0.3, 1.0):
        expected = [reference.subgraph_relevance(table, nodes, alpha) for nodes in SUBGRAPHS]
        assert ww.subgraph_relevance(chain, SUBGRAPHS, alpha=alpha).tolist() == pytest.approx(expected, abs=1e-12)


def test_features_get_their_gradient(model, x):
    given = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(given, EDGES)[0, 1], given)
    chain = ww.trace(model, x, EDGES, target=1, rule="zero")
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)


def test_a_walk_around_all_layers_has_its_own_relevance(x):
    torch.manual_seed(2)
    model = Net(jumping).double().eval()
    chain = ww.trace(model, x, EDGES, target=1)
    around = (model.encoder(x) * model.head.weight[1]).sum(1)
    walks = [[node, -1, -1] for node in range(M)]
    torch.testing.assert_close(ww.walk_relevance(chain, walks), around.detach())


class Attended(MessagePassing):
    """Messages and attention, which comes in a batch of one and is laid out in the layer."""

    def forward(self, x, edge_index, attention):
        return (attention.mT @ x[None])[0] + self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j


def test_attention_that_no_walk_passes_is_held_constant_and_takes_no_share(x):
    def run(m, x, e):
        scores = (x.reshape(1, -1) @ mixing).view(1, M, M)  # of no single nodes
        return m.b(m.c(m.encoder(x), e, torch.softmax(scores, -1)).relu(), e)

    torch.manual_seed(2)
    mixing = torch.randn(3 * M, M * M, dtype=torch.float64)
    model = Net(run).double().eval()
    model.c = Attended()
    chain = ww.trace(model, x, EDGES, target=1, rule="zero")
    assert chain.input_relevance == pytest.approx(chain.output, abs=1e-12)
    assert chain.notes == ()


class WithState(MessagePassing):
    """Messages, and a row that every node gets."""

    def forward(self, x, edge_index, state):
        return self.propagate(edge_index, x=x) + state[torch.zeros(len(x), dtype=torch.long)]

    def message(self, x_j):
        return x_j


def added_between(m, x, e, state):
    return m.b(m.a(m.encoder(x).relu(), e).relu() + state, e)


def handed_to_a_layer(m, x, e, state):
    return m.b(m.with_state(m.encoder(x).relu(), e, state).relu(), e)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("bend", ["relu", "tanh", "sigmoid", "silu"])
@pytest.mark.parametrize("way", [added_between, handed_to_a_layer])
def test_a_state_of_the_whole_graph_that_is_made_of_raw_features(x, way, bend, rule):
    """It has no row for each node: walks begin at the nodes that it is made of."""
    bent = getattr(torch, bend, nn.functional.silu)
    torch.manual_seed(2)
    model = Net(lambda m, x, e: way(m, x, e, bent(m.state(x.mean(0, keepdim=True)))))
    model.state, model.with_state = nn.Linear(3, 4, bias=False), WithState()
    model.double().eval()
    with pytest.warns(CoverageWarning, match="mean adds up rows of nodes"):
        chain = ww.trace(model, x, EDGES, target=1, rule=rule)
    assert chain.input_relevance == pytest.approx(chain.output, abs=1e-12)
    assert not any("no walk carries" in note for note in chain.notes)
    walks = ww.enumerate_walks(chain)
    table = dict(zip(map(tuple, walks.tolist()), ww.walk_relevance(chain, walks).tolist(), strict=True))
    expected = [reference.subgraph_relevance(table, nodes, 0.3) for nodes in SUBGRAPHS]
    assert ww.subgraph_relevance(chain, SUBGRAPHS, alpha=0.3).tolist() == pytest.approx(expected, abs=1e-12)
    with pytest.warns(CoverageWarning):
        hooked = ww.hooks.subgraph_relevance(model, x, EDGES, SUBGRAPHS[0], alpha=0.3, target=1, rule=rule)
    assert hooked == pytest.approx(expected[0], abs=1e-12)


class FromZero(nn.Module):
    """A recurrent cell of graph layers that begins with zeros."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.parts = nn.ModuleList(GCNConv(3, 3, bias=False) for _ in range(4))
        self.double()

    def forward(self, x, edge_index):
        update_x, update_h, new_x, new_h = self.parts
        h = torch.zeros_like(x)
        update = (update_x(x, edge_index) + update_h(h, edge_index)).sigmoid()
        new = (new_x(x, edge_index) + new_h(h, edge_index)).tanh()
        return update * h + (1 - update) * new


def test_a_first_state_of_zeros_is_not_said_to_be_lost():
    x = torch.randn(M, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    chain = ww.trace(FromZero(), x, EDGES, index=1, target=0, rule="zero")
    assert chain.bias_leak == pytest.approx(0.0, abs=1e-12)
    assert not any("around" in note for note in chain.notes)


class Stream(nn.Module):
    """Layers read what is normalised of a stream that they add to, or the stream itself."""

    def __init__(self, normalised):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList(GCNConv(3, 3) for _ in range(3))
        self.normalised = normalised

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = x + layer(nn.functional.layer_norm(x, (3,)) if self.normalised else x, edge_index)
        return x


@pytest.mark.parametrize("normalised", [True, False])
def test_messages_that_arrive_where_no_walk_stands_are_said(normalised):
    chain = ww.trace(Stream(normalised), torch.rand(M, 3), EDGES, index=1, target=0)
    said = [note for note in chain.notes if "bypasses all later positions" in note]
    assert [note.split("'")[1] for note in said] == (["layers.0", "layers.1"] if normalised else [])
