"""Gates, attention, products and normalisations mean the same before, between, inside and after the layers."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv, MessagePassing, TransformerConv

import walkwise as ww
from everywhere import EDGES, SETS, STATE, Model, check_same, detached, same, traced
from walkwise import hooks
from walkwise.rules import AlphaBeta, Epsilon, Gamma, GeneralisedGamma


def gate_of_a_state(w, h, held):
    z = held(torch.sigmoid(w.a(h)))
    return z * w.state + (1 - z) * w.b(h)


def gate_of_a_state_alone(w, h, held):
    return w.b(h) + w.c(held(torch.sigmoid(w.a(h))) * w.state)


def scores_of_a_sum(w, h, held):
    scores = held(w.scores(h).softmax(0))
    return scores * h + scores * w.state


def attention_over_others(w, h, held):
    """Another graph's nodes, which are constant."""
    return h + held((w.a(h) @ w.state.t()).softmax(-1)) @ w.state


def attention_over_others_by_einsum(w, h, held):
    scores = held(torch.einsum("md,nd->mn", w.a(h), w.state).softmax(-1))
    return h + torch.einsum("mn,nd->md", scores, w.state)


def pooled_attention_over_others(w, h, held):
    """One row of another graph's nodes for every node to read; the scores stand on the right."""
    return w.b(h) + (w.state.t() @ held(w.scores(h).softmax(0))).t()


def weighted_scores(w, h, held):
    """A gate that is weighted, and weighs then."""
    return held(w.scores(h).softmax(0)) * w.state[:, :1] * h


def attention(w, h, held):
    """Every node looks at every other, as in a transformer."""
    scores = held((w.a(h) @ w.b(h).t() / 2).softmax(-1))
    return scores @ w.c(h)


def attention_by_entry(w, h, held):
    return h * held(w.scores(h).softmax(0))


def gate(w, h, held):
    return held(torch.sigmoid(w.a(h))) * w.b(h)


def gate_of_itself(w, h, held):
    """What the gate is made of is sent, too: the gate must not end its stretch."""
    h = w.a(h)
    return held(torch.sigmoid(w.b(h))) * h


def scores_of_itself(w, h, held):
    h = w.a(h)
    return h * held(w.scores(h).softmax(0))


def gated_linear_unit(w, h, held):
    value, gates = torch.cat([w.a(h), w.b(h)], dim=-1).chunk(2, dim=-1)
    return value * held(torch.sigmoid(gates))


def broadcast(w, h, held):
    return h * held(w.scores(h))


def divided(w, h, held):
    return h / held(h.norm(dim=-1, keepdim=True) + 0.1)


def normalised(w, h, held):
    return (h - held(h.mean(-1, keepdim=True))) / held(h.std(-1, keepdim=True) + 1e-5)


def layer_norm(w, h, held):
    mean, var = held(h.mean(-1, keepdim=True)), held(h.var(-1, unbiased=False, keepdim=True))
    own = (h - mean) / (var + 1e-5).sqrt() * w.norm.weight + w.norm.bias
    return w.norm(h) if held is same else own


def group_norm(w, h, held):
    grouped = h.view(5, 2, 2)
    mean, var = held(grouped.mean(-1, keepdim=True)), held(grouped.var(-1, unbiased=False, keepdim=True))
    own = ((grouped - mean) / (var + 1e-3).sqrt()).view(5, 4) * w.a.weight[0] + w.a.bias
    return F.group_norm(h, 2, w.a.weight[0], w.a.bias, 1e-3) if held is same else own


def instance_norm(w, h, held):
    """With the mean and the variance that training left, two numbers to a channel."""
    mean, var, weight, bias = w.a.weight.detach()[:, :2]
    own = (h.view(5, 2, 2) - mean.view(2, 1)) / (var.exp() + 1e-3).sqrt().view(2, 1) * weight.view(2, 1)
    if held is same:
        return F.instance_norm(h.view(5, 2, 2), mean, var.exp(), weight, bias, False, eps=1e-3).view(5, 4)
    return (own + bias.view(2, 1)).view(5, 4)


def unit(w, h, held):
    return F.normalize(h, dim=-1) if held is same else h / held(h.norm(dim=-1, keepdim=True).clamp(min=1e-12))


WRITTEN = [
    attention, attention_by_entry, gate, gate_of_itself, scores_of_itself, gated_linear_unit, broadcast, divided,
    normalised, unit, gate_of_a_state, gate_of_a_state_alone, scores_of_a_sum, weighted_scores,
    attention_over_others, attention_over_others_by_einsum, pooled_attention_over_others,
]  # fmt: skip
LIBRARY = [layer_norm, group_norm, instance_norm]


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", Gamma(2.0), GeneralisedGamma(3.0)], ids=repr)
@pytest.mark.parametrize("place", ["before", "between", "inside", "after"])
@pytest.mark.parametrize("written", WRITTEN, ids=lambda f: f.__name__)
def test_detaching_what_is_held_constant_changes_nothing(written, place, rule):
    check_same(*(traced(written, place, held, rule) for held in (same, detached)))


@pytest.mark.parametrize("place", ["before", "between", "inside", "after"])
@pytest.mark.parametrize("written", WRITTEN + LIBRARY, ids=lambda f: f.__name__)
def test_what_is_held_constant_is_the_gradient_of_the_model_that_detaches_it(written, place):
    """Under LRP-0 the relevance of the features is gradient × input, up to activations, which are ReLU here."""
    torch.manual_seed(4)
    model = Model(written, place, detached).double().eval()
    model.step = lambda h, at: written(model.w, h, detached) if at == place else h
    x = torch.randn(5, 4, dtype=torch.float64)

    def run(m, x, edges, state):
        m.w.state = state
        h = m.first(m.step(x, "before"), edges).relu()
        h = (m.inner if place == "inside" else m.second)(m.step(h, "between"), edges)
        return m.head(m.step(h, "after").sum(0, keepdim=True))

    model.forward = lambda x, edges, state: run(model, x, edges, state)
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(run(model, leaf, EDGES, STATE)[0, 0], leaf)
    torch.manual_seed(4)
    ours = Model(written, place, same).double().eval()
    ours.forward = lambda x, edges, state: run(ours, x, edges, state)
    ours.step = lambda h, at: written(ours.w, h, same) if at == place else h
    chain = ww.trace(ours, x, EDGES, target=0, rule="zero", state=STATE)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x, rtol=1e-9, atol=1e-11)


MASK = torch.tensor([[0.0], [1], [1], [0], [1]], dtype=torch.float64)
FEATURES = {"sigmoid": torch.sigmoid, "softmax": lambda z: z.softmax(-1), "exp": lambda z: (-z.square()).exp()}


@pytest.mark.parametrize("gating", [False, True], ids=["", "gating something else"])
@pytest.mark.parametrize("rule", ["zero", GeneralisedGamma(3.0)], ids=repr)
@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda w, h: h * MASK, lambda w, h: h * MASK.expand_as(h)),
        (lambda w, h: h * MASK, lambda w, h: h * MASK.repeat(1, 4)),
        (lambda w, h: h @ w.a.weight, lambda w, h: h @ (w.a.weight * 1)),
        (lambda w, h: h, lambda w, h: h * torch.ones_like(h)),
    ],
    ids=["an expanded mask", "a repeated mask", "a weight times 1", "ones"],
)
def test_features_that_look_like_a_gate_are_followed_through_constants(one, other, name, rule, gating):
    """A sigmoid may be a feature like any other: only a factor that weighs given features is held."""

    def features(step, w, h):
        h = FEATURES[name](w.b(h))
        return (h * w.c(h).relu() if gating else h) + step(w, h)

    chains = [
        traced(lambda w, h, held, step=step: features(step, w, h), "between", same, rule) for step in (one, other)
    ]
    check_same(*chains)


@pytest.mark.parametrize(
    "state", [torch.randn(5, 4), torch.full((5, 4), 0.3), torch.zeros(5, 4)], ids=["", "flat", "zeros"]
)
@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell], ids=["GRU", "LSTM"])
def test_cells_by_hand_with_a_given_state_are_those_of_torch(kind, state):
    class ByHand(kind):
        def forward(self, x, state):
            on_x, size = x @ self.weight_ih.t() + self.bias_ih, self.hidden_size
            if kind is nn.GRUCell:
                a, b = on_x.split(size, 1), (state @ self.weight_hh.t() + self.bias_hh).split(size, 1)
                r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
                return (1 - z) * torch.tanh(a[2] + r * b[2]) + z * state
            i, f, g, o = (on_x + state[0] @ self.weight_hh.t() + self.bias_hh).split(size, 1)
            return o.sigmoid() * torch.tanh(f.sigmoid() * state[1] + i.sigmoid() * g.tanh())

    class Recurrent(nn.Module):
        def __init__(self, cell):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.cell, self.head = GCNConv(4, 4), cell(4, 4), nn.Linear(4, 2)

        def forward(self, x, edges, state, other=None):
            h = self.cell(self.conv(x, edges).relu(), state if other is None else (state, other))
            return self.head(h[0] if isinstance(h, tuple) else h)

    given = {"state": state.double()} | ({} if kind is nn.GRUCell else {"other": state.double() + 0})
    x = torch.randn(5, 4, dtype=torch.float64)
    chains = [
        ww.trace(Recurrent(cell).double().eval(), x, EDGES, index=2, target=0, rule="zero", **given)
        for cell in (kind, ByHand)
    ]
    check_same(*chains)


def test_a_library_layer_and_the_same_written_out_agree():
    """TransformerConv's own attention is held constant, whichever way it is computed."""
    torch.manual_seed(0)
    conv, head = TransformerConv(4, 4, root_weight=False, bias=False).double(), nn.Linear(4, 2).double()

    class Written(MessagePassing):
        def __init__(self):
            super().__init__(aggr="add")
            self.conv = conv

        def forward(self, x, edge_index):
            q, k, v = conv.lin_query(x), conv.lin_key(x), conv.lin_value(x)
            score = (q[edge_index[1]] * k[edge_index[0]]).sum(-1) / 2
            total = torch.zeros(len(x), dtype=x.dtype).index_add(0, edge_index[1], score.exp())
            weight = score.exp() / total[edge_index[1]]
            return torch.zeros_like(v).index_add(0, edge_index[1], weight[:, None] * v[edge_index[0]])

    class Stack(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.head = layer, head

        def forward(self, x, edge_index):
            return self.head(self.layer(x, edge_index).relu().sum(0, keepdim=True))

    x = torch.randn(5, 4, dtype=torch.float64)
    chains = [ww.trace(Stack(layer), x, EDGES, target=0, rule="zero") for layer in (conv, Written())]
    a, b = (ww.subgraph_relevance(chain, SETS) for chain in chains)
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "taken",
    [
        lambda held, h: held.to(h),
        lambda held, h: held.type_as(h),
        lambda held, h: held.expand_as(h),
        lambda held, h: held.view_as(h[:1]),
        lambda held, h: held.reshape_as(h[:1]),
    ],
    ids=["to", "type_as", "expand_as", "view_as", "reshape_as"],
)
def test_a_constant_in_the_shape_or_type_of_node_features_is_constant(taken):
    """Just the type or the shape is taken of them: a product with it is a scale, and no rule shares it out."""
    scale = torch.tensor([[0.5, -1.0, 2.0, 3.0]], dtype=torch.float64)
    ours, theirs = (
        traced(lambda w, h, held, how=how: w.a(h) * how(scale, h), "between", same, "zero")
        for how in (taken, lambda constant, h: constant)
    )
    check_same(ours, theirs)


@pytest.mark.parametrize("head", [lambda p: p @ torch.arange(4.0).double(), lambda p: (p * torch.arange(4.0)).sum(-1)])
def test_probabilities_times_numbers_are_followed(head):
    """An expected value is what is explained, and no gate of the numbers that it is made of."""

    class Expecting(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = GCNConv(4, 4)

        def forward(self, x, edges):
            return head(self.conv(x, edges).sum(0, keepdim=True).softmax(-1)).view(1, 1)

    x = torch.randn(5, 4, dtype=torch.float64)
    chain = ww.trace(Expecting().double().eval(), x, EDGES, target=0, rule="zero")
    assert abs(chain.input_relevance) > 0.01


def test_a_factor_that_is_broadcast_is_said_to_be_held_constant():
    """Of two factors of the same shape each gets half, and there is nothing to say."""
    notes = {
        name: [note for note in traced(written, "between", same, "zero").notes if "broadcast" in note]
        for name, written in {
            "row": lambda w, h, held: h * w.scores(h),
            "gate": lambda w, h, held: h * torch.sigmoid(w.scores(h)),
            "both": lambda w, h, held: w.a(h) * w.b(h),
            "matrices": lambda w, h, held: w.a(h) @ w.b(h).t() @ h,
        }.items()
    }
    assert notes.pop("row") == ["a factor that is broadcast over neurons is held constant, as a gate"]
    assert not any(notes.values())


@pytest.mark.parametrize("place", ["inside", "after"])
def test_of_two_factors_that_are_no_gates_each_gets_half(place):
    """Entry by entry or as matrices: as if each had been held constant in one of two copies."""
    for product in (torch.mul, lambda a, b: a @ b.t() @ torch.ones(5, 4, dtype=torch.float64)):
        ours = traced(lambda w, h, held, product=product: product(w.a(h), w.b(h)), place, same, "zero")
        theirs = traced(
            lambda w, h, held, product=product: (
                (product(w.a(h), w.b(h).detach()) + product(w.a(h).detach(), w.b(h))) / 2
            ),
            place,
            same,
            "zero",
        )
        check_same(ours, theirs)


RULES = ["zero", Gamma(2.0), GeneralisedGamma(3.0), AlphaBeta(), Epsilon(0.1)]


#: a + b, put together first.
STACKED = [
    lambda a, b: torch.cat([a[None], b[None]]).sum(0),
    lambda a, b: torch.cat([a[:, None], b.unsqueeze(1)], dim=1).sum(1),
    lambda a, b: torch.cat([a.view(1, *a.shape), b[None, ...]]).mean(0) * 2,
    lambda a, b: torch.cat([a[..., None], b.reshape(*b.shape, 1)], -1).sum(-1),
    lambda a, b: torch.einsum("tnf->nf", torch.stack([a, b])),
    lambda a, b: torch.einsum("ntf -> nf", torch.cat([a[:, None], b[:, None]], 1)),
    lambda a, b: torch.einsum("tnf,t->nf", torch.stack([a, b]), torch.ones(2).to(a)),
    lambda a, b: torch.einsum("t,nft->nf", torch.tensor([1.0, 0.5]).to(a), torch.stack([a, 2 * b], -1)),
]


def halves(w):
    """Two linear maps of two tensors side by side that give the first neurons and the last."""
    weight = torch.cat([w.a.weight, w.b.weight], 1)
    return lambda both: F.linear(both, weight[:2]), lambda both: F.linear(both, weight[2:])


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("place", ["before", "between", "inside", "after"])
def test_a_weight_on_one_vector_is_that_on_a_row(place, rule):
    """As models write what they add to every node."""
    vector = traced(lambda w, h, held: h + w.a(h.mean(0)), place, same, rule)
    check_same(vector, traced(lambda w, h, held: h + w.a(h.mean(0, keepdim=True)), place, same, rule))


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("place", ["before", "between", "inside", "after"])
def test_a_sum_of_linear_maps_is_one_map_of_their_inputs_side_by_side(place, rule):
    def side_by_side(w, h, held):
        both = torch.cat([h, h.tanh()], 1)
        return F.linear(both, torch.cat([w.a.weight, w.b.weight], 1), w.a.bias)

    ways = [
        lambda w, h, held: w.a(h) + F.linear(h.tanh(), w.b.weight),
        lambda w, h, held: torch.stack([w.a(h), F.linear(h.tanh(), w.b.weight)]).sum(0),
        lambda w, h, held: torch.stack([w.a(h), F.linear(h.tanh(), w.b.weight)], dim=-1).mean(-1) * 2,
        lambda w, h, held: 2 * (w.a(h) / 2 + F.linear(h.tanh(), w.b.weight) * 0.5),
        lambda w, h, held: torch.cat([part(torch.cat([h, h.tanh()], 1)) for part in halves(w)], 1) + w.a.bias,
        *(lambda w, h, held, way=way: way(w.a(h), F.linear(h.tanh(), w.b.weight)) for way in STACKED),
    ]
    theirs = traced(side_by_side, place, same, rule)
    for way in ways:
        check_same(traced(way, place, same, rule), theirs)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("place", ["before", "between", "inside", "after"])
def test_a_sum_of_multiples_is_a_multiple(place, rule):
    """What speaks for and against in the same entry cancels before a rule tells signs apart."""
    half = torch.tensor(0.5, dtype=torch.float64)
    ways = [
        lambda w, h, held: 0.5 * w.a(h),
        lambda w, h, held: (lambda z: z - 0.5 * z)(w.a(h)),
        lambda w, h, held: (lambda z: z - z / 2)(w.a(h)),
        lambda w, h, held: (lambda z: torch.div(z, half) - z * 1.5)(w.a(h)),
        lambda w, h, held: (lambda z: 0.75 * z - z / 4)(w.a(h)),
        lambda w, h, held: (lambda z: 2 * z - z * 1.5)(w.a(h)),
        lambda w, h, held: (lambda z: torch.sub(z, half * z))(w.a(h)),
        lambda w, h, held: (lambda z: 1.5 * z + (-z))(w.a(h)),
    ]
    first, *others = (traced(way, place, same, rule) for way in ways)
    for other in others:
        check_same(other, first)


def test_layers_that_only_make_gates_are_named_also_if_there_are_no_others():
    """Relevance passes them by; that it does is said of each."""

    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second, self.head = GCNConv(4, 4), GCNConv(4, 4), nn.Linear(4, 2)

        def forward(self, x, edge_index):
            h = self.second(self.first(x, edge_index).relu(), edge_index)
            return self.head(torch.softmax((h @ x.t()).sum(0, keepdim=True), 1) @ x)

    model, x = Scores().double(), torch.randn(5, 4, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=0, rule="zero")
    for name in ("first", "second"):
        assert any(f"'{name}' (GCNConv) computes only factors that are held constant" in note for note in chain.notes)
    hooked = hooks.subgraph_relevance(model, x, EDGES, [0, 1], target=0, rule="zero", alpha=0.3)
    assert hooked == pytest.approx(float(ww.subgraph_relevance(chain, [[0, 1]], alpha=0.3)))
