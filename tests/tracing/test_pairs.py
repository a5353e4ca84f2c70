"""Complex numbers: they mean what the same arithmetic means, written out in real numbers."""

import math

import pytest
import torch
from torch import nn
from torch_geometric.nn import MessagePassing

import walkwise as ww
from tracing.test_odd_models import EDGES, M, Net, before, between, check_exact, features, gradient_times_input, traced
from walkwise.errors import TraceError
from walkwise.rules import AlphaBeta, GeneralisedGamma

PARTS = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
C = torch.complex(*PARTS)
MATRIX = torch.complex(*torch.randn(2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(6)))
ANGLES = 2 * math.pi / 4 * torch.outer(torch.arange(4.0), torch.arange(4.0)).double()
COSINES, SINES = ANGLES.cos().round(), ANGLES.sin().round()  # zeros are no small numbers, which have a sign
fft, ifft, rfft, irfft = torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.irfft


def written(h, into):
    """Into a part of a complex tensor."""
    z = torch.zeros(len(h), 4, dtype=torch.complex128)
    z[:, :2] = into(h)[:, :2]
    return z


def summed(name, h):
    z, source, target = torch.zeros(M, 4, dtype=torch.complex128), *EDGES
    index = target if name == "index_add_" else target[:, None].expand(-1, 4)
    return getattr(z, name)(-2, index, fft(h)[source])


#: Linear functions of complex numbers, real in the end.
LINEAR = {
    "real part": lambda h: fft(h).real,
    "imaginary part": lambda h: h + fft(h).imag,
    "there and back": lambda h: ifft(fft(h)).real,
    "of real numbers": lambda h: irfft(rfft(h), n=4),
    "of numbers that are real": lambda h: irfft(h, n=4),
    "cut off": lambda h: irfft(rfft(h, n=3), n=4, norm="ortho"),
    "Hermitian": lambda h: torch.fft.hfft(torch.fft.ihfft(h), n=4),
    "two dimensions": lambda h: torch.fft.irfft2(torch.fft.rfft2(h.view(-1, 2, 2)) * C[:2], s=(2, 2)).flatten(1),
    "the last but one": lambda h: fft(h.view(-1, 2, 2), dim=1).real.flatten(1),
    "shifted": lambda h: torch.fft.fftshift(fft(h), dim=-1).real,
    "conjugate": lambda h: (fft(h).conj() * C).imag,
    "factor": lambda h: (h * C).real + (C * h).imag,
    "number": lambda h: (h * (1 + 2j) * C).real,
    "sum": lambda h: (C * h + h - fft(h)).real,
    "multiple of a sum": lambda h: torch.add(h * C, fft(h), alpha=2).real,
    "divisors": lambda h: (fft(h) / C / (2 - 1j) / torch.arange(1, 5)).real,
    "matrix": lambda h: (fft(h) @ MATRIX).real,
    "einsum": lambda h: torch.einsum("nf,fg->ng", fft(h), MATRIX).real,
    "linear": lambda h: nn.functional.linear(fft(h), MATRIX).imag,
    "views": lambda h: torch.view_as_real(torch.view_as_complex(h.view(-1, 2, 2)) * C[:2]).flatten(1),
    "two parts": lambda h: (torch.complex(h[:, :2], h[:, 2:]) * C[:2]).imag.repeat(1, 2),
    "one part": lambda h: torch.complex(torch.zeros_like(h), h).mul(C).real,
    "another type": lambda h: (h.to(torch.complex128) * C).real + (h.cdouble() * C).imag,
    "columns": lambda h: torch.cat([fft(h)[..., 2:], ifft(h)[:, :2]], -1).real,
    "pieces": lambda h: torch.stack(fft(h).unbind(1), 1).roll(1, -1).chunk(2, -1)[0].imag.repeat(1, 2),
    "sums of columns": lambda h: h + (fft(h) * C).sum(-1, keepdim=True).real + (fft(h) * C).mean(1, keepdim=True).imag,
    "stacked": lambda h: torch.stack([fft(h), h * C], 1).sum(1).real,
    "turned": lambda h: fft(h).T.T.imag + fft(h).H.T.imag + fft(h).mH.mT.imag,
    "picked": lambda h: fft(h)[torch.arange(len(h))].imag,
    "padded": lambda h: nn.functional.pad(fft(h)[:, :2], (1, 1)).real,
    "where": lambda h: torch.where(torch.arange(4) > 1, fft(h), torch.zeros((), dtype=torch.complex128)).real,
    "in place": lambda h: fft(h).mul_(C).add_(fft(h)).real,
    "written into": lambda h: written(h, fft).real,
    "size": lambda h: fft(h).abs(),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("wrap", [between, before], ids=["between", "before"])
def test_exact(wrap, name):
    chain = check_exact(wrap(lambda m, h: LINEAR[name](h)))
    assert chain.notes == ()
    assert all(layer.route == "closed form" for layer in chain.layers)


@pytest.mark.parametrize("name", LINEAR)
def test_exact_in_the_read_out(name):
    assert check_exact(lambda: Net(lambda m, x, e: at_the_end(m, x, e, LINEAR[name]))).notes == ()


def at_the_end(m, x, e, function):
    return m.head(function(m.b(m.first(x, e), e).relu())).sum(0, keepdim=True)


def parts(h):
    """The real and the imaginary part of a Fourier transform."""
    columns = [h[..., j : j + 1] for j in range(4)]
    return sum(c * COSINES[j] for j, c in enumerate(columns)), sum(c * -SINES[j] for j, c in enumerate(columns))


def back(a, b):
    """The real part of what has this Fourier transform."""
    return sum(a[..., j : j + 1] * (COSINES[j] / 4) - b[..., j : j + 1] * (SINES[j] / 4) for j in range(4))


def correlated(a, b):
    (ar, ai), (br, bi) = parts(a), parts(b)
    return back(ar * br + ai * bi, ar * bi - ai * br)


def rooted(h):
    a, b = parts(h)
    return (a * a + b * b).sqrt()


def turned(h):
    return torch.cat([h[..., :2] * PARTS[0, :2].cos() - h[..., 2:] * PARTS[0, :2].sin(), h[..., 2:]], -1)


def turned_in_pairs(h):
    z = torch.complex(h[..., :2], h[..., 2:])
    turning = torch.polar(torch.ones(2, dtype=h.dtype), PARTS[0, :2])
    return torch.cat([(z * turning).real, z.imag], -1)


#: Each in complex numbers, and in real ones.
TWINS = {
    "transform": (lambda h: fft(h).real, lambda h: parts(h)[0]),
    "correlation": (lambda h: irfft(rfft(h).conj() * rfft(PARTS[0]), n=4), lambda h: correlated(h, PARTS[0])),
    "the other way": (lambda h: irfft(rfft(PARTS[0]).conj() * rfft(h), n=4), lambda h: correlated(PARTS[0], h)),
    "with its mirror": (lambda h: ifft(fft(h).conj() * fft(h.flip(-1))).real, lambda h: correlated(h, h.flip(-1))),
    "rotation": (turned_in_pairs, turned),
    "gate": (
        lambda h: (fft(h) * h.sum(-1, keepdim=True).sigmoid()).imag,
        lambda h: parts(h)[1] * h.sum(-1, keepdim=True).sigmoid(),
    ),
    "divisor": (
        lambda h: (fft(h) / (1 + h.abs().sum(-1, keepdim=True))).real,
        lambda h: parts(h)[0] / (1 + h.abs().sum(-1, keepdim=True)),
    ),
    "size": (lambda h: fft(h).abs(), rooted),
    "unit": (lambda h: fft(h).sgn().imag, lambda h: parts(h)[1] / rooted(h)),
    "unit, by a quotient": (lambda h: (fft(h) / fft(h).abs()).imag, lambda h: parts(h)[1] / rooted(h)),
    "polar": (lambda h: torch.polar(h.relu(), h).imag, lambda h: h.relu() * h.sin()),
    "a learned matrix": (
        lambda h: (fft(h) @ LEARNED[0]).real,
        lambda h: parts(h)[0] @ LEARNED[0].real - parts(h)[1] @ LEARNED[0].imag,
    ),
    "a matrix made of learned ones": (
        lambda h: (fft(h) @ (LEARNED[0] * C)).real,
        lambda h: parts(h)[0] @ (LEARNED[0] * C).real - parts(h)[1] @ (LEARNED[0] * C).imag,
    ),
    "constant part": (
        lambda h: (torch.complex(h, torch.ones_like(h)) * C).real,
        lambda h: h * C.real - C.imag,
    ),
}
LEARNED = nn.ParameterList([nn.Parameter(MATRIX)])


class Composed(MessagePassing):
    def __init__(self, compose):
        super().__init__()
        torch.manual_seed(1)
        self.compose, self.lin, self.root, self.learned = compose, nn.Linear(4, 4), nn.Linear(4, 4), LEARNED

    def forward(self, x, e):
        return self.root(x) + self.propagate(e, x=x)

    def message(self, x_j):
        return self.lin(self.compose(x_j))


class After(Composed):
    def message(self, x_j):
        return self.compose(self.lin(x_j))


PLACES = {
    "message": lambda f: Net(lambda m, x, e: m.last(m.conv(m.first(x, e), e).relu(), e), conv=Composed(f)),
    "message, after a weight": lambda f: Net(lambda m, x, e: m.last(m.conv(x, e).relu(), e), conv=After(f)),
    "between": lambda f: Net(lambda m, x, e: m.last(f(m.first(x, e)), e), learned=LEARNED),
    "after a weight": lambda f: Net(lambda m, x, e: m.last(f(m.lin(m.first(x, e))), e), learned=LEARNED),
    "read-out": lambda f: Net(lambda m, x, e: at_the_end(m, x, e, f), learned=LEARNED),
}


@pytest.mark.parametrize("rule", ["zero", "auto", AlphaBeta(2.0, 1.0), GeneralisedGamma(3.0)], ids=str)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TWINS)
def test_as_written_out(name, place, rule):
    found, wanted = (
        ww.trace(PLACES[place](function), features(), EDGES, target=0, rule=rule) for function in TWINS[name]
    )
    assert found.notes == wanted.notes
    torch.testing.assert_close(found.outputs, wanted.outputs)
    torch.testing.assert_close(ww.feature_relevance(found), ww.feature_relevance(wanted))
    walks = ww.enumerate_walks(wanted)
    torch.testing.assert_close(ww.walk_relevance(found, walks), ww.walk_relevance(wanted, walks))


OVER_NODES = {
    "one after the other": lambda h: fft(fft(h, dim=-1), dim=0).real,
    "both at once": lambda h: torch.fft.fft2(h).real,
}


@pytest.mark.parametrize("name", OVER_NODES)
def test_a_transform_over_nodes_is_exact_and_noted(name):
    words = "fft adds up rows of nodes outside any message-passing layer, in the "
    chain = check_exact(between(lambda m, h: h + OVER_NODES[name](h)))
    (note,) = chain.notes
    assert note.startswith(words + "code between layers;")
    chain = check_exact(lambda: Net(lambda m, x, e: at_the_end(m, x, e, OVER_NODES[name])))
    (note,) = chain.notes
    assert note.startswith(words + "read-out;")


def test_rows_stay_those_of_their_nodes():
    """Rows that a transform has kept are followed through another order, and through nodes as many as columns."""
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    chain = check_exact(between(lambda m, h: fft(fft(h)[order])[order.argsort()].real))
    assert chain.notes == ()
    wide = check_exact(between(lambda m, h: fft(h.repeat(1, 2)[:, :M]).conj().imag[:, :4]))
    assert wide.notes == ()


@pytest.mark.parametrize(
    "function",
    [
        lambda h: irfft(rfft(h), n=4),
        lambda h: ifft(fft(h)).real,
        lambda h: ifft(fft(h.to(C))).real,
        lambda h: irfft(rfft(h, n=5), n=5)[:, :4],
        lambda h: torch.fft.ifftn(torch.fft.fftn(h.view(M, 2, 2), dim=(1, 2)), dim=(1, 2)).real.flatten(1),
    ],
)
def test_layers_on_nodes_in_another_order(function):
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    edges = order.argsort()[EDGES]
    found, wanted = (
        traced(Net(lambda m, x, e, f=f: m.last(f(m.a(x[order], edges)), edges)))[0] for f in (function, lambda h: h)
    )
    walks = ww.enumerate_walks(wanted)
    torch.testing.assert_close(ww.walk_relevance(found, walks), ww.walk_relevance(wanted, walks))


def test_what_is_learned_stays_so_without_gradients():
    name = "a matrix made of learned ones"
    model, graph = PLACES["message"](TWINS[name][0]), (features(), EDGES)
    wanted = ww.feature_relevance(ww.trace(model, *graph, target=0))
    with torch.no_grad():
        found = ww.feature_relevance(ww.trace(model, *graph, target=0))
    torch.testing.assert_close(found, wanted)


def test_vectors_of_complex_numbers():
    """A pair has one dimension more than what it stands for: the last of these is not its last."""

    def ending(m, x, e):
        z = fft(m.b(m.first(x, e), e))
        return torch.cat([z[:, 1] * C[0], z[:, 2]], -1).roll(1, -1).sum(-1).imag.view(1, 1)

    check_exact(lambda: Net(ending))


class Doubling(MessagePassing):
    def forward(self, z, e):
        return self.propagate(e, z=z)

    def message(self, z_j):
        return (2 - 1j) * z_j


class ByNumber(MessagePassing):
    def forward(self, z, e):
        return torch.zeros_like(z).index_add(0, e[1], z[e[0]] * (2 - 1j))


@pytest.mark.parametrize("layer", [Doubling, ByNumber])
@pytest.mark.parametrize("width", [4, M])
def test_a_layer_of_complex_numbers(width, layer):
    """Walks stand at its nodes, whether these are as many as columns or not."""
    chain = check_exact(
        lambda: Net(
            lambda m, x, e: m.last(m.conv(fft(m.first(x, e), n=width), e).imag[:, :4], e),
            conv=layer(),
        )
    )
    assert [layer.kind for layer in chain.layers] == ["GCNConv", layer.__name__, "GraphConv"]
    assert all(layer.route == "closed form" for layer in chain.layers)


def test_sums_by_number():
    for name in ("index_add_", "scatter_add_"):
        chain = check_exact(between(lambda m, h, name=name: summed(name, h).imag))
        assert "adds up rows of nodes outside" in chain.notes[0]


@pytest.mark.parametrize("function", [torch.exp, torch.reciprocal, lambda z: 1j / z, torch.tanh])
def test_functions_of_single_entries_pass_on_what_they_give(function):
    """h = z · [h / z], as for real numbers."""
    chain, said = traced(between(lambda m, h: function(fft(h) + C).real)())
    model = Net(lambda m, x, e: m.last(held(function, m.first(x, e)), e))
    torch.testing.assert_close(ww.feature_relevance(chain), gradient_times_input(model))
    assert not said


def held(function, h):
    z = fft(h) + C
    return (z * (function(z) / z).detach()).real


def test_nothing_passes_where_nothing_goes_in():
    """exp(0) is 1, which is a constant there."""
    some = torch.tensor([0.0, 1.0, 1.0, 1.0])
    chain, _ = traced(between(lambda m, h: (fft(h).mul(C) * some).exp().imag)())
    model = Net(lambda m, x, e: m.last(kept(m.first(x, e), some), e))
    torch.testing.assert_close(ww.feature_relevance(chain), gradient_times_input(model))


def kept(h, some):
    z = fft(h) * C * some
    return (z * torch.where(z == 0, 0, z.exp() / z).detach() + torch.where(z == 0, z.exp(), 0).detach()).imag


def test_what_has_no_rule_is_said_and_takes_the_gradient():
    chain, said = traced(between(lambda m, h: h + fft(h + 1).angle())())
    model = Net(lambda m, x, e: m.last((h := m.first(x, e)) + fft(h + 1).angle(), e))
    torch.testing.assert_close(ww.feature_relevance(chain), gradient_times_input(model))
    assert said == ["angle of complex numbers in the code between layers has no rule; its plain gradient was used."]


def through_a_view(h):
    z = fft(h)
    z.real.mul_(2)
    return z.imag


def by_a_part(h):
    z = fft(h)
    z.real = h
    return z.imag


def of_constants(h):
    z = torch.zeros(len(h), 4, dtype=torch.complex128)
    z.real = h
    return h + z.abs()


def of_constant_rows(h):
    z = torch.zeros(len(h), 4, dtype=torch.complex128)
    z[:, 1:2].imag = h[0, 0]
    return h + (h * z).imag


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (through_a_view, "through another that shares its memory"),
        (by_a_part, "z.real = ..."),
        (of_constants, r"z.real = .*torch.complex\(real, imag\)"),
        (of_constant_rows, "z.real = ..."),
    ],
)
def test_writes_into_parts_are_refused(change, words):
    with pytest.raises(TraceError, match=words):
        ww.trace(between(lambda m, h: change(h))(), features(), EDGES, target=0)


def test_parts_of_constants_may_be_set_to_constants():
    def turned(h):
        z = torch.zeros(4, dtype=torch.complex128)
        z[0] = 3
        z.mul_(2)
        z.real, z.imag = PARTS
        return (fft(h) * z).real

    check_exact(between(lambda m, h: turned(h)))
    one, other = (traced(between(lambda m, h, f=f: f(h))())[0] for f in (turned, lambda h: (fft(h) * C).real))
    torch.testing.assert_close(ww.feature_relevance(one), ww.feature_relevance(other))


def test_links_scored_by_rotation():
    """A score as of RotatE: how far the head, turned by the relation, is from the tail."""
    turning = torch.polar(torch.ones(2, dtype=torch.float64), PARTS[0, :2])

    def scored(m, x, e):
        z = torch.view_as_complex(m.b(m.first(x, e), e).view(-1, 2, 2))
        return -(z[[0, 2]] * turning - z[[1, 4]]).abs().sum(-1).sum().view(1, 1)

    check_exact(lambda: Net(scored))
