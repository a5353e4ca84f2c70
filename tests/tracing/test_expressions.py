"""Expressions by hand: how a rule writes them, with every contribution told apart in plain loops."""

import pytest
import torch
from torch_geometric.nn import GAT, GCN, GIN, PNA, GraphSAGE

import walkwise as ww
from walkwise.core.operators import Columns, Identity, RowMap
from walkwise.rules import AlphaBeta, Gamma, PositivePart
from walkwise.tracing.lowering import Lowering
from walkwise.tracing.stretches import expressions
from walkwise.tracing.stretches.expressions import SAME, Coefficients, Plain, Term, nonnegative_map, one_sided, scaled
from walkwise.tracing.stretches.lifted import Lifted
from walkwise.tracing.stretches.signs import Signs
from walkwise.tracing.stretches.sizes import Sizes

X = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, 0.5]], dtype=torch.float64)
W = torch.tensor([[2.0, -1.0, 0.5], [-3.0, 1.0, -2.0]], dtype=torch.float64)  # (2, 3)
V = torch.tensor([[1.0, -2.0], [-1.0, 3.0]], dtype=torch.float64)  # (2, 2)
B = torch.tensor([[0.7, -0.4]], dtype=torch.float64)
FACTOR = torch.tensor([[-2.0, 3.0]], dtype=torch.float64)
MODELS = [
    (GIN, {}), (GIN, {"norm": "batch_norm", "act": "gelu"}), (GCN, {"jk": "cat"}), (GCN, {"act": "elu"}),
    (GraphSAGE, {"act": "leaky_relu"}), (GraphSAGE, {"jk": "max"}), (GAT, {"heads": 2}), (GAT, {"v2": True}),
    (PNA, {"aggregators": ["sum", "max"], "scalers": ["identity"], "deg": torch.tensor([0, 2])}),
]  # fmt: skip


class Chain:
    """Slots and their values, as steps fill them: slot 0 holds X, slot 1 its sizes."""

    def __init__(self):
        self.values = [X, X.abs()]

    def emit(self, operators, sources):
        pushed = [operator.push(self.values[source]) for operator, source in zip(operators, sources, strict=True)]
        self.values.append(sum(pushed[1:], pushed[0]))
        return len(self.values) - 1


def leaf(value=X, slot=0):
    return Term(value, slot=slot)


def learned(weight, **kwargs):
    return Coefficients(make=RowMap, tensor=weight, learned=True, by_neuron=True, **kwargs)


def contributions(x, *weights):
    """What every path adds to every neuron that comes out, one number each.  # [(row, neuron, number)]"""
    paths = [(row, n, float(x[row, n])) for row in range(len(x)) for n in range(x.shape[1])]
    for weight in weights:
        paths = [(row, k, c * float(weight[k, n])) for row, n, c in paths for k in range(len(weight))]
    return paths


def collected(paths, kept=float):
    made = torch.zeros(2, 2, dtype=torch.float64)
    for row, neuron, c in paths:
        made[row, neuron] += kept(c)
    return made


def positive(c):
    return max(0.0, c)


def negative(c):
    return min(0.0, c)


# -- coefficients -----------------------------------------------------------------------------


def test_coefficients_as_they_are():
    own = learned(W)
    assert own.whole().matrix is W
    borrowed = learned(W, borrowed=True).whole().matrix
    assert borrowed is not W
    assert torch.equal(borrowed, W)
    assert SAME.whole() is expressions.UNCHANGED
    assert (own.nonnegative, learned(W.abs()).nonnegative, SAME.nonnegative) == (False, True, True)
    assert learned(W[:0]).nonnegative
    whole, sizes = own.sized()
    assert (whole.matrix is W, torch.equal(sizes.matrix, W.abs())) == (True, True)
    same, again = learned(W.abs()).sized()
    assert same is again


def test_coefficients_lifted():
    rule = Gamma(2.0)
    up, down = W + 2 * W.clamp(min=0), W + 2 * W.clamp(max=0)
    turn = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    assert torch.equal(learned(W).lifted(rule, None).matrix, up)
    assert torch.equal(learned(W).lifted(rule, expressions.EVERY).matrix, down)
    assert torch.equal(learned(W).lifted(rule, turn).matrix, torch.stack([down[0], up[1]]))
    unknown = Coefficients(make=RowMap, tensor=W, learned=True)
    assert torch.equal(unknown.lifted(rule, turn).matrix, up)  # nobody knows which neuron is which
    assert scaled(FACTOR).lifted(rule, turn).factor is FACTOR  # no rule lifts what is not learned


def test_coefficients_by_sign():
    plus, minus = learned(W).signed()
    assert torch.equal(plus.matrix, W.clamp(min=0))
    assert torch.equal(minus.matrix, W.clamp(max=0))
    whole, nothing = learned(W.abs()).signed()
    assert (torch.equal(whole.matrix, W.abs()), nothing) == (True, None)
    nothing, whole = learned(-W.abs() - 0.25).signed()
    assert (nothing, torch.equal(whole.matrix, -W.abs() - 0.25)) == (None, True)
    for nonnegative in (W[:0], 0 * W):
        assert learned(nonnegative).signed()[1] is None
    assert learned(torch.tensor([[0.0, -1.0]])).signed()[0] is None
    assert nonnegative_map(Identity()).signed() == (Identity(), None)


@pytest.mark.parametrize(
    ("x", "weight", "z", "value", "expected"),
    [
        (X.abs(), learned(W), X.abs(), "z", True),
        (X.abs(), learned(W), X, "z", False),  # what comes out is negative
        (X.abs(), learned(W), X, None, True),  # and is cut off
        (X.abs(), learned(W), X, X.relu(), True),
        (X.abs(), learned(W), X, X.exp(), False),
        (X.abs(), learned(W), X.abs(), -X.abs(), True),
        (X.abs(), learned(W), 0 * X, X.exp(), True),  # nothing there is negative
        (X, learned(W), X.abs(), "z", False),  # what goes in is
        (X.abs(), scaled(FACTOR), X.abs(), "z", False),  # signs that no rule knows
        (X.abs(), scaled(FACTOR.abs()), X.abs(), "z", True),
        (X.abs(), scaled(FACTOR, folds=True), X.abs(), "z", True),  # one map with the weights before it
    ],
)
def test_where_contributions_have_the_signs_of_their_weights(x, weight, z, value, expected):
    inner = leaf(x) if weight.learned else Term(x @ W.t(), maps=[(leaf(x), learned(W))])
    term = Term(z, maps=[(inner, weight)])
    given = z if isinstance(value, str) else value
    assert one_sided(term, z, given) is expected
    twice = Term(z, maps=[(term, SAME), (term, SAME)])
    assert one_sided(twice, z, given) is expected


def test_what_comes_past_the_weights_has_none_to_be_lifted():
    x, z = X.abs(), X.abs()
    past = Term(z, maps=[(leaf(x), learned(W)), (leaf(x), SAME)])
    assert not one_sided(past, z, z)
    behind, before = (Term(z, maps=[(leaf(x), way)], constant=B) for way in (learned(W), SAME))
    assert one_sided(behind, z, z)  # a bias
    assert not one_sided(Term(z, maps=[(before, learned(W))]), z, z)  # it would be lifted twice


# -- expressions ------------------------------------------------------------------------------


def test_an_expression_as_it_is_is_written_once():
    chain = Chain()
    plain = Plain(chain.emit)
    inner = Term(X @ W.t(), maps=[(leaf(), learned(W))])
    term = Term(X @ W.t() @ V.t(), maps=[(inner, learned(V))])
    assert torch.equal(chain.values[plain.slot(term)], term.value)
    assert plain.slot(term) == len(chain.values) - 1 == 3
    assert plain.slot(leaf()) == 0


@pytest.mark.parametrize("rule", [AlphaBeta(), PositivePart()], ids=repr)
def test_contributions_by_their_signs(rule):
    chain = Chain()
    signs = Signs(chain.emit, rule)
    inner = Term(X @ W.t() + B, maps=[(leaf(), learned(W))], constant=B)
    term = Term(inner.value @ V.t() + 2 * B, maps=[(inner, Coefficients(make=RowMap, tensor=V))], constant=2 * B)
    split = signs.parts(term)
    assert signs.parts(term) is split
    paths = contributions(X, W, V)
    for side, kept in zip(split.sides, (positive, negative), strict=True):
        torch.testing.assert_close(side[1], collected(paths, kept))
        torch.testing.assert_close(chain.values[side[0]], collected(paths, kept))
    torch.testing.assert_close(split.constant, B @ V.t() + 2 * B)  # one row, since all nodes are alike
    plus, minus = rule.hold(B)
    first, second = rule.hold(2 * B)
    up, down = V.clamp(min=0).t(), V.clamp(max=0).t()
    torch.testing.assert_close(split.held[0], (plus @ up + minus @ down + first).expand_as(split.held[0]))
    torch.testing.assert_close(split.held[1], (minus @ up + plus @ down + second).expand_as(split.held[1]))


def test_constants_before_a_normalisation_are_one_with_its_shift():
    inner = Term(X @ W.t() + B, maps=[(leaf(), learned(W))], constant=B)
    term = Term(
        inner.value * FACTOR + 1, maps=[(inner, scaled(FACTOR, folds=True))], constant=torch.ones(1, 2).double()
    )
    constant = B * FACTOR + 1
    signs = Signs(Chain().emit, AlphaBeta()).parts(term)
    torch.testing.assert_close(signs.held[0].expand(2, 2), constant.clamp(min=0).expand(2, 2))
    torch.testing.assert_close(signs.held[1].expand(2, 2), constant.clamp(max=0).expand(2, 2))
    sized = Sizes(Chain().emit).part(term)
    torch.testing.assert_close(sized.held.expand(2, 2), constant.abs().expand(2, 2))
    torch.testing.assert_close(sized.constant.expand(2, 2), constant.expand(2, 2))
    chain = Chain()
    part = Lifted(chain.emit, Gamma(2.0)).part(term, None)
    torch.testing.assert_close(part.held, (constant + 2 * constant.clamp(min=0)).expand_as(part.held))
    torch.testing.assert_close(part.constant, constant.expand_as(part.constant))
    effective = W * FACTOR.t()  # weights after the normalisation: these are lifted
    lifted = effective + 2 * effective.clamp(min=0)
    torch.testing.assert_close(part.total(), X @ lifted.t())
    torch.testing.assert_close(chain.values[part.slot], X @ lifted.t())


def test_biases_with_no_normalisation_between_are_lifted_each_by_itself():
    other = torch.tensor([[-1.0, 0.6]], dtype=torch.float64)  # of the other sign than B
    inner = Term(X @ W.t() + B, maps=[(leaf(), learned(W))], constant=B)
    term = Term(inner.value + other, maps=[(inner, SAME)], constant=other)
    part = Lifted(Chain().emit, Gamma(2.0)).part(term, None)
    each = [bias + 2 * bias.clamp(min=0) for bias in (B, other)]
    torch.testing.assert_close(part.held.expand(2, 2), (each[0] + each[1]).expand(2, 2))
    torch.testing.assert_close(part.constant.expand(2, 2), (B + other).expand(2, 2))
    torch.testing.assert_close(part.total(), X @ (W + 2 * W.clamp(min=0)).t())


@pytest.mark.parametrize("value", [X.abs(), -X.abs(), X, 0 * X], ids=["positive", "negative", "both", "none"])
def test_leaves_by_their_signs(value):
    chain = Chain()
    chain.values[0] = value
    plus, minus = Signs(chain.emit, AlphaBeta()).parts(leaf(value)).sides
    for side, kept in ((plus, value.clamp(min=0)), (minus, value.clamp(max=0))):
        assert side is None or torch.equal(side[1], chain.values[side[0]])
        assert torch.equal(torch.zeros_like(value) if side is None else side[1], kept)
    sized = Sizes(chain.emit).part(leaf(value))
    assert torch.equal(chain.values[sized.slot], value)
    assert torch.equal(chain.values[sized.sizes], value.abs())
    assert torch.equal(sized.total, value.abs())


@pytest.mark.parametrize("x", [X, X.abs()], ids=["signed", "positive"])
@pytest.mark.parametrize("second", [V, V.abs()], ids=["signed", "positive"])
def test_contributions_and_their_sizes(x, second):
    chain = Chain()
    chain.values[0] = x
    inner = Term(x @ W.abs().t() + B, maps=[(leaf(x), learned(W.abs()))], constant=B)
    term = Term(inner.value @ second.t(), maps=[(inner, Coefficients(make=RowMap, tensor=second))])
    sized = Sizes(chain.emit).part(term)
    paths = contributions(x, W.abs(), second)
    torch.testing.assert_close(chain.values[sized.slot], collected(paths))
    torch.testing.assert_close(chain.values[sized.sizes], collected(paths, abs))
    torch.testing.assert_close(sized.total, collected(paths, abs))
    torch.testing.assert_close(sized.held.expand(2, 2), (B.abs() @ second.abs().t()).expand(2, 2))
    torch.testing.assert_close(sized.constant.expand(2, 2), (B @ second.t()).expand(2, 2))
    assert (sized.slot == sized.sizes) is bool((x >= 0).all() and (second >= 0).all())


def test_sizes_of_several_maps():
    chain = Chain()
    term = Term(X @ W.t() + (X @ -W.t()) + B, maps=[(leaf(), learned(W)), (leaf(), learned(-W))], constant=B)
    sized = Sizes(chain.emit).part(term)
    torch.testing.assert_close(sized.total, 2 * collected(contributions(X, W), abs))
    torch.testing.assert_close(chain.values[sized.slot], torch.zeros(2, 2).double())
    assert torch.equal(sized.held, B.abs())
    assert torch.equal(sized.constant, B)


def test_lifted_expressions():
    chain = Chain()
    rule = Gamma(2.0)
    term = Term(X @ W.t() + B, maps=[(leaf(), learned(W))], constant=B)
    part = Lifted(chain.emit, rule).part(term, None)
    lifted = X @ (W + 2 * W.clamp(min=0)).t()
    torch.testing.assert_close(part.total(), lifted)
    torch.testing.assert_close(chain.values[part.slot], lifted)
    assert torch.equal(part.held, B + 2 * B.clamp(min=0))
    assert torch.equal(part.constant, B)
    part = Lifted(chain.emit, rule).part(term)
    torch.testing.assert_close(part.whole(), lifted + B + 2 * B.clamp(min=0))
    torch.testing.assert_close(chain.values[part.slot], lifted)
    chain = Chain()
    joined = Term(
        torch.zeros(2, 4).double(),
        maps=[(term, nonnegative_map(Columns.placed(0, 2, 4))), (term, nonnegative_map(Columns.placed(2, 2, 4)))],
    )
    turn = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    part = Lifted(chain.emit, rule).part(joined, turn)
    down = X @ (W + 2 * W.clamp(max=0)).t()
    expected = torch.stack([lifted[:, 0], down[:, 1], down[:, 0], lifted[:, 1]], dim=1)
    torch.testing.assert_close(part.total(), expected)
    torch.testing.assert_close(chain.values[part.slot], expected)
    part = Lifted(chain.emit, rule).part(joined, expressions.EVERY)
    torch.testing.assert_close(part.total(), torch.cat([down, down], dim=1))


def test_what_stands_in_a_denominator():
    total = torch.ones(2, 2).double()
    assert expressions.with_held(total, None) is total
    assert torch.equal(expressions.with_held(total, B), 1 + B.expand(2, 2))
    assert torch.equal(total, torch.ones(2, 2))
    assert expressions.with_held(total, B, own=True) is total
    assert torch.equal(total, 1 + B.expand(2, 2))
    row = B.clone()  # too small for what is added
    assert torch.equal(expressions.with_held(row, total, own=True), B + total)
    assert torch.equal(row, B)


def test_a_surrogate_is_never_a_tensor_that_others_read():
    chain = Chain()
    kept = Term(X, maps=[(leaf(), SAME)])  # passes X itself on
    for term in (leaf(), kept, Term(X + X, maps=[(leaf(), SAME), (leaf(), SAME)])):
        surrogate = Lifted(chain.emit, Gamma(2.0)).part(term).whole()
        torch.testing.assert_close(surrogate, term.value)
        assert surrogate.data_ptr() not in (X.data_ptr(), term.value.data_ptr())


@pytest.mark.parametrize("rule", ["auto", "gamma", "epsilon", "alphabeta", "zero"])
@pytest.mark.parametrize(("kind", "options"), MODELS, ids=lambda given: getattr(given, "__name__", str(given)))
def test_what_a_model_computed_is_never_written_into(kind, options, rule, monkeypatch):
    lowered, compared = Lowering.chain, []

    def chain(lowering, *args):
        before = [value.clone() for value in lowering.tape.values]
        made = lowered(lowering, *args)
        compared.append(all(map(torch.equal, before, lowering.tape.values)))
        return made

    monkeypatch.setattr(Lowering, "chain", chain)
    torch.manual_seed(0)
    model = kind(3, 8, num_layers=3, out_channels=2, **options).double().eval()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    ww.trace(model, X.clone(), torch.tensor([[0, 1], [1, 0]]), target=1, index=0, rule=rule)
    assert compared == [True]
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())


def test_a_map_that_turns_some_neurons_over_is_written_twice_where_weights_are_not_told_by_neuron():
    unknown = Term(X @ W.t(), maps=[(leaf(), Coefficients(make=RowMap, tensor=W, learned=True))])
    term = Term(unknown.value * FACTOR, maps=[(unknown, scaled(FACTOR, folds=True))])
    chain = Chain()
    part = Lifted(chain.emit, Gamma(2.0)).part(term, None)
    effective = W * FACTOR.t()
    expected = X @ (effective + 2 * effective.clamp(min=0)).t()
    torch.testing.assert_close(part.total(), expected)
    torch.testing.assert_close(chain.values[part.slot], expected)
