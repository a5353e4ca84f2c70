"""A product of two followed tensors is one thing, whichever way it is written: each factor gets half."""

from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv, GraphConv
from torch_geometric.utils import scatter

import walkwise as ww

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

#: p · W · q for every node.
WAYS = {
    "bilinear": lambda p, q, weight: F.bilinear(p, q, weight[None]),
    "mul": lambda p, q, weight: ((p @ weight) * q).sum(-1, keepdim=True),
    "einsum": lambda p, q, weight: torch.einsum("ni,ni->n", p @ weight, q).view(-1, 1),
    "einsum with the weight": lambda p, q, weight: torch.einsum("ni,ij,nj->n", p, weight, q).view(-1, 1),
    "einsum with the weight last": lambda p, q, weight: torch.einsum("... i, ...j, ij", p, q, weight).view(-1, 1),
    "einsum with a gate": lambda p, q, weight: torch.einsum("ni,ij,nj,n->n", p, weight, q, torch.ones(4).to(p))[
        :, None
    ],
    "matmul": lambda p, q, weight: ((p @ weight).unsqueeze(1) @ q.unsqueeze(2)).view(-1, 1),
    "bmm": lambda p, q, weight: torch.bmm((p @ weight).unsqueeze(1), q.unsqueeze(2)).view(-1, 1),
}


class Product(nn.Module):
    """Two layers side by side, multiplied."""

    def __init__(self, multiply):
        super().__init__()
        torch.manual_seed(0)
        self.p, self.q = GCNConv(3, 4, bias=False), GCNConv(3, 4, bias=False)
        self.weight, self.multiply = nn.Parameter(torch.randn(4, 4)), multiply

    def forward(self, x, edge_index):
        return self.multiply(self.p(x, edge_index), self.q(x, edge_index), self.weight).sum(0, keepdim=True)


@pytest.mark.parametrize("name", WAYS)
def test_each_factor_gets_half(name):
    """Gradient times input counts a product twice, once for each factor; relevance counts it once."""
    model, x = Product(WAYS[name]).double().eval(), X.clone().requires_grad_()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    output = model(x, EDGES)[0, 0]
    (gradient,) = torch.autograd.grad(output, x)
    assert float((X * gradient).abs().max()) > 0.1
    assert chain.input_relevance == pytest.approx(float(output.detach()))
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient / 2)


#: The product of three tensors.
SEVERAL = {
    "prod": lambda *factors: torch.stack(factors).prod(0),
    "prod along the last": lambda *factors: torch.stack(factors, -1).prod(-1, keepdim=True).squeeze(-1),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_each_of_several_factors_gets_the_same(name):
    model = Product(lambda p, q, weight: SEVERAL[name](p, q, p @ weight)).double().eval()
    x = X.clone().requires_grad_()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    (gradient,) = torch.autograd.grad(model(x, EDGES)[0, 0], x)
    assert chain.input_relevance == pytest.approx(float(chain.output))
    assert chain.notes == ()
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient / 3)


@pytest.mark.parametrize("squared", [lambda p: torch.einsum("nf,nf->nf", p, p), lambda p: torch.stack([p, p]).prod(0)])
def test_a_tensor_times_itself_is_its_square(squared):
    models = [Product(lambda p, q, weight, f=f: f(p)).double().eval() for f in (squared, torch.square)]
    chains = [ww.trace(model, X, EDGES, target=0) for model in models]
    torch.testing.assert_close(*map(ww.feature_relevance, chains))


def test_einsum_of_one_tensor_moves_its_entries():
    models = [
        Product(lambda p, q, weight, f=f: f(p * q)).double().eval()
        for f in (lambda h: torch.einsum("nf->fn", h).t(), lambda h: h)
    ]
    chains = [ww.trace(model, X, EDGES, target=0) for model in models]
    assert chains[0].notes == ()
    torch.testing.assert_close(*map(ww.feature_relevance, chains))


@pytest.mark.parametrize("squash", [torch.tanh, torch.sigmoid, torch.exp])
def test_what_weights_have_mixed_is_no_gate(squash):
    """The inner activation of a perceptron does not make a gate of what comes out of it."""
    model = Product(lambda p, q, weight: (squash(p) @ weight) * q).double().eval()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    x = X.clone().requires_grad_()
    p, q = model.p(x, EDGES), model.q(x, EDGES)
    p = p * (squash(p) / p).detach()
    half = ((p @ model.weight) * q.detach() + (p @ model.weight).detach() * q) / 2
    (gradient,) = torch.autograd.grad(half.sum(0)[0], x)
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient)


#: h times one number for every node.
GATED = {
    "mul": lambda h, gate: h * gate,
    "expanded": lambda h, gate: h * gate.expand_as(h),
    "einsum": lambda h, gate: torch.einsum("mn,m->mn", h, gate.squeeze(1)),
    "einsum, the other way round": lambda h, gate: torch.einsum("...L,...Ld->...Ld", gate.squeeze(-1), h),
    "einsum of three": lambda h, gate: torch.einsum("mn,m,m->mn", h, gate.squeeze(1).sqrt(), gate.squeeze(1).sqrt()),
    "matmul": lambda h, gate: (h.unsqueeze(2) @ gate.unsqueeze(2)).squeeze(2),
    "bmm": lambda h, gate: torch.bmm(gate.unsqueeze(2), h.unsqueeze(1)).squeeze(1),
    "addcmul": lambda h, gate: torch.addcmul(torch.zeros_like(h), h, gate),
    "divided": lambda h, gate: h / (1 / gate),
}


class Gated(nn.Module):
    """One layer's output times a number that another makes for every node."""

    def __init__(self, multiply, detached=False):
        super().__init__()
        torch.manual_seed(0)
        self.h, self.gate = GCNConv(3, 4), GCNConv(3, 1)
        self.multiply, self.detached = multiply, detached

    def forward(self, x, edge_index):
        gate = self.gate(x, edge_index)
        return self.multiply(self.h(x, edge_index), gate.detach() if self.detached else gate).sum(0, keepdim=True)


@pytest.mark.filterwarnings("ignore:layer 'gate':walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", GATED)
def test_a_factor_that_is_broadcast_is_a_gate(name):
    asked = {"target": 0, "rule": "zero"}
    chain = ww.trace(Gated(GATED[name]).double().eval(), X, EDGES, **asked)
    held = ww.trace(Gated(GATED["mul"], detached=True).double().eval(), X, EDGES, **asked)
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(held))
    assert any("held constant, as a gate" in note for note in chain.notes) is (name != "divided")


@pytest.mark.parametrize(
    "outer",
    [lambda p, q: p.unsqueeze(2) * q.unsqueeze(1), lambda p, q: torch.einsum("mn,mk->mnk", p, q)],
    ids=["mul", "einsum"],
)
def test_of_an_outer_product_each_factor_gets_half(outer):
    model = Product(lambda p, q, weight: outer(p, q[:, :3]).sum((1, 2)).view(-1, 1)).double().eval()
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x, EDGES)[0, 0], x)
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient / 2)


#: What is done to a gate on its way to a product: it stays one. ``h`` is what it is multiplied with, for its shape.
ON_THE_WAY = {
    "as another's type": lambda gate, h: gate.type_as(h),
    "to another": lambda gate, h: gate.to(h),
    "expanded as another, by name": lambda gate, h: gate.expand_as(other=h),
    "expanded as another": lambda gate, h: gate.expand_as(h),
    "in another's shape": lambda gate, h: gate.flatten().view_as(h),
    "reshaped as another": lambda gate, h: gate.flatten().reshape_as(h),
    "moved": lambda gate, h: gate.t().contiguous().t().flip(1).roll(1, 1)[:, [1, 0, 3, 2]],
    "einsum of one": lambda gate, h: torch.einsum("ij->ji", torch.einsum("ij->ji", gate)),
    "rectified": lambda gate, h: (gate - 0.4).relu(),
    "bounded": lambda gate, h: F.hardtanh(gate, 0.4, 0.6),
    "nothing below": lambda gate, h: F.threshold(gate, 0.4, 0.0),
    "the larger": lambda gate, h: torch.maximum(gate, gate.flip(1)),
    "in order": lambda gate, h: gate.sort(1).values,
    "the best": lambda gate, h: torch.zeros_like(gate).scatter(1, *gate.topk(2, 1)[::-1]),
    "the largest of some": lambda gate, h: scatter(gate, torch.tensor([0, 0, 1, 1]), reduce="max")[[0, 0, 1, 1]],
    "normalised": lambda gate, h: F.normalize(gate, p=1, dim=-1),
    "divided by their sum": lambda gate, h: gate / (gate.sum(-1, keepdim=True) + 1e-9),
    "what is left": lambda gate, h: 1 - gate,
}


class OnTheWay(nn.Module):
    def __init__(self, change, gate, detached=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.scores, self.second = GCNConv(3, 4), nn.Linear(4, 4), GCNConv(4, 2)
        self.change, self.gate, self.detached = change, gate, detached

    def forward(self, x, edge_index):
        h = self.first(x, edge_index)
        gate = self.change(self.gate(self.scores(h)), h)
        return self.second((gate.detach() if self.detached else gate) * h, edge_index).sum(0, keepdim=True)


@pytest.mark.parametrize("gate", [torch.sigmoid, lambda z: z.softmax(-1), torch.exp], ids=["sigmoid", "softmax", "exp"])
@pytest.mark.parametrize("name", ON_THE_WAY)
def test_a_gate_stays_one_on_its_way(name, gate):
    models = [OnTheWay(ON_THE_WAY[name], gate, detached).double().eval() for detached in (False, True)]
    ours, held = (ww.trace(model, X, EDGES, target=0, rule="zero") for model in models)
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(held))


def plainly(function, a, b):
    return function(a, b)


def in_halves(function, a, b):
    """A product whose plain gradient gives each factor half."""
    return function(a, b.detach()) / 2 + function(a.detach(), b) / 2


class Contracted(nn.Module):
    """MACE: what a node has received, to the powers one to three, with weights that its own features choose."""

    def __init__(self, multiply=plainly):
        super().__init__()
        torch.manual_seed(2)
        self.embed, self.multiply = nn.Linear(3, 4, bias=False), multiply
        self.convs = nn.ModuleList(GraphConv(4, 4, bias=False) for _ in range(2))
        self.chosen = nn.ParameterList(torch.randn(3, 2, 2) for _ in range(6))  # features, paths, channels
        self.register_buffer("paths", torch.randn(2, 2, 2))  # components, components, paths
        self.mix = nn.ModuleList(nn.Linear(2, 4, bias=False) for _ in range(2))
        self.head = nn.Linear(4, 1, bias=False)

    def forward(self, x, edge_index):
        h = self.embed(x)
        for layer, (conv, mix) in enumerate(zip(self.convs, self.mix, strict=True)):
            a = conv(h, edge_index).view(-1, 2, 2)  # nodes, channels, components
            h = mix(self._contracted(a, x, self.chosen[3 * layer : 3 * layer + 3])) + h
        return self.head(nn.functional.silu(h)).sum(0, keepdim=True)

    def _contracted(self, a, x, chosen):
        """(… (w₃ a + w₂) a + w₁) a, each w of the node's features."""
        power = 0
        for weight in chosen[:2]:
            picked = torch.tensordot(x, weight, dims=([1], [0]))  # nodes, paths, channels
            outer = self.multiply(lambda p, q: torch.einsum("adb,abc->adbc", p, q), picked, a)
            power = power + torch.tensordot(outer, self.paths, dims=([1, 3], [2, 1]))
            power = self.multiply(lambda p, q: torch.einsum("abc,abc->abc", p, q), a, power)
        last = torch.tensordot(x, chosen[2], dims=([1], [0]))
        return self.multiply(lambda p, q: torch.einsum("abc,abc->ab", p, q), a, power + last.transpose(1, 2))


@pytest.mark.parametrize("nodes", [[0], [1, 2], [0, 1, 2], [0, 1, 2, 3]])
def test_powers_with_weights_of_the_nodes_own(nodes):
    """The features are read around the layers, and so are where walks begin as often as they are read."""
    model, held = Contracted().double().eval(), Contracted(in_halves).double().eval()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    inside = torch.zeros(4, 1, dtype=torch.float64)
    inside[nodes] = 1

    def at_nodes(tensor):
        tensor.register_hook(lambda gradient: gradient * inside)

    held.convs[1].register_forward_pre_hook(lambda module, given: at_nodes(given[0]))
    held.convs[1].register_forward_hook(lambda module, given, made: at_nodes(made))
    silu, x = nn.functional.silu, X.clone().requires_grad_()
    with patch.object(nn.functional, "silu", lambda z: z * (silu(z) / z).detach()):
        (gradient,) = torch.autograd.grad(held(x, EDGES).squeeze(), x)
    expected = float((gradient * X * inside).sum())
    assert abs(expected) > 1e-3
    assert float(ww.subgraph_relevance(chain, [nodes])[0]) == pytest.approx(expected, rel=1e-12)
    assert chain.input_relevance == pytest.approx(chain.output, rel=1e-12)


@pytest.mark.parametrize("bend", [torch.tanh, F.elu], ids=["tanh", "elu"])
def test_what_may_be_negative_is_no_gate_beside_as_many_numbers(bend):
    """Embeddings that went through tanh get half of a score, as those do that went through anything else."""
    model = Product(lambda p, q, weight: (bend(p) * q).sum(-1, keepdim=True)).double().eval()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    x = X.clone().requires_grad_()
    p, q = model.p(x, EDGES), model.q(x, EDGES)
    bent = p * (bend(p) / p).detach()
    (gradient,) = torch.autograd.grad((bent * q).sum(), x)
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient / 2)


def test_tanh_of_one_number_for_a_node_is_a_gate():
    model = Product(lambda p, q, weight: p.sum(-1, keepdim=True).tanh() * q).double().eval()
    chain = ww.trace(model, X, EDGES, target=0, rule="zero")
    x = X.clone().requires_grad_()
    gate = model.p(x, EDGES).sum(-1, keepdim=True).tanh().detach()
    (gradient,) = torch.autograd.grad((gate * model.q(x, EDGES)).sum(0)[0], x)
    torch.testing.assert_close(ww.feature_relevance(chain), X * gradient)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_what_a_recurrent_cell_returns_is_no_gate(kind):
    torch.manual_seed(2)
    cell = kind(4, 4).double()
    model = Product(lambda p, q, weight: (cell(torch.stack([p, 2 * p]))[0][-1] * q).sum(-1, keepdim=True))
    chain = ww.trace(model.double().eval(), X, EDGES, target=0, rule="zero")
    assert {layer.name for layer in chain.layers} == {"p", "q"}
    assert not any("held constant" in note for note in chain.notes)


@pytest.mark.parametrize("bend", [torch.tanh, torch.relu], ids=["tanh", "relu"])
def test_what_is_held_because_it_is_broadcast_is_said(bend):
    model = Product(lambda p, q, weight: bend(p) * q.sum(-1, keepdim=True)).double().eval()
    assert any("broadcast" in note for note in ww.trace(model, X, EDGES, target=0).notes)
