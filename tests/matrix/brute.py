"""Brute force: dense transition matrices from the definition, and every walk listed. NumPy alone, nothing of Walkwise.

A network is a list of values, (K, N) arrays with K rows and N neurons. Each knows what it was made of, and for every
source the dense array by which relevance goes back: in gradient form, ∂(value) / ∂(source) with everything held
constant that a rule holds constant. The axes of a dense array are always

    i, n, p, j, k:  row and neuron of the source, sign of the path, row and neuron of the value.

Paths from (i, n) to (j, k) are told apart by the sign of what they are multiplied with on the way (p = 0: positive,
p = 1: negative), since rules sort contributions by their sign.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np


def quotient(numerator, denominator):
    """The quotient, and 0 where the denominator is exactly 0."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    return np.divide(numerator, denominator, out=np.zeros(numerator.shape), where=denominator != 0)


def equal(values, others, tied):
    """Where values are equal, up to the rounding of what they were computed from."""
    return np.abs(values - others) <= tied * np.abs(others)


# -- rules: what a contribution is multiplied by ------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """An LRP rule by its published definition; ``kind`` names it, ``amount`` is its ε, γ or α."""

    kind: str
    amount: float = 0.0

    @property
    def conserves(self):
        """Whether inputs and biases together get all that comes, whatever the signs of contributions are."""
        return self.kind in ("zero", "gamma", "generalised")


def lifted(weight, gamma=0.0):
    """A weight with its positive part γ times more; where a path has none (None), there is nothing to lift."""
    return np.ones((1, 1, 1, 1, 1)) if weight is None else weight + gamma * np.maximum(weight, 0)


def shares(rule, z, inputs, biases):
    """∂z / ∂(input) as a rule holds it, for inputs and biases; each is (value, path, weight)."""
    gamma = rule.amount if rule.kind == "gamma" else 0.0
    gradients = [path * lifted(w, gamma) for _, path, w in (*inputs, *biases)]
    values = [value for value, _, _ in (*inputs, *biases)]
    contributions = [value * g for value, g in zip(values, gradients, strict=True)]
    whole = sum(c.sum((0, 1, 2)) for c in contributions)  # (j, k)
    if rule.kind == "zero":
        return gradients
    if rule.kind == "epsilon":
        denominator = whole + np.where(whole < 0, -rule.amount, rule.amount)
        return [g * quotient(z, denominator) for g in gradients]
    if rule.kind == "gamma":
        return [g * quotient(z, whole) for g in gradients]
    signs = [(c > 0, c < 0) for c in contributions]
    plus, minus = (
        sum((c * s[side]).sum((0, 1, 2)) for c, s in zip(contributions, signs, strict=True)) for side in (0, 1)
    )
    if rule.kind == "generalised":
        denominator = np.where(z >= 0, z + rule.amount * plus, z + rule.amount * minus)
        ratio, favour = quotient(z, denominator), 1 + rule.amount
        factors = np.where(z >= 0, favour, 1) * ratio, np.where(z >= 0, 1, favour) * ratio
    elif rule.kind == "alphabeta":
        factors = rule.amount * quotient(z, plus), (1 - rule.amount) * quotient(z, minus)
    elif rule.kind == "zplus":
        factors = quotient(z, plus), 0 * z
    elif rule.kind == "positive":
        held = sum((np.abs(c).sum((0, 1, 2)) for c in contributions[len(inputs) :]), np.zeros_like(z))
        positive = sum(
            (c * s[0]).sum((0, 1, 2)) for c, s in zip(contributions[: len(inputs)], signs[: len(inputs)], strict=True)
        )
        factors = quotient(z, positive + held), 0 * z
    else:
        raise ValueError(rule.kind)
    return [g * (s[0] * factors[0] + s[1] * factors[1]) for g, s in zip(gradients, signs, strict=True)]


# -- values --------------------------------------------------------------------------------------


@dataclass(eq=False)
class Value:
    """A tensor of the network, (K, N), and the dense arrays back to its sources, (i, n, j, k)."""

    value: np.ndarray
    sources: list = field(default_factory=list)
    position: int | None = None

    @property
    def shape(self):
        """Rows and neurons."""
        return self.value.shape


@dataclass(eq=False)
class Stretch:
    """Linear maps side by side under one denominator: Σ input · path · weight + biases."""

    rule: Rule
    inputs: list = field(default_factory=list)  # (Value, path, weight or None), arrays as wide as (i, n, p, j, k)
    biases: list = field(default_factory=list)  # (path, weight): of an input that is 1


class Network:
    """Values in the order in which they were made."""

    def __init__(self, tied=1e-12):
        """Nothing yet; values that are apart by this share of them tie."""
        self.values, self.tied = [], tied

    def _made(self, value, sources=()):
        made = Value(value, list(sources))
        self.values.append(made)
        return made

    def given(self, array):
        """A value that comes from outside: features, or a constant."""
        return self._made(np.asarray(array, dtype=np.float64))

    # -- linear maps under a rule ----------------------------------------------------------------

    def ended(self, stretch):
        """The value of a stretch, its relevance shared out by its rule. Biases are sources like all others."""
        K, N = _extent(stretch)
        inputs = [(v.value[:, :, None, None, None], p, w) for v, p, w in stretch.inputs]
        biases = [(np.ones((1, 1, 1, 1, 1)), p, w) for p, w in stretch.biases]
        z = sum((v * p * lifted(w)).sum((0, 1, 2)) for v, p, w in (*inputs, *biases)) + np.zeros((K, N))
        gradients = shares(stretch.rule, z, inputs, biases)
        sources = [v for v, _, _ in stretch.inputs] + [self.given([[1.0]]) for _ in stretch.biases]
        dense = [
            np.broadcast_to(g.sum(2), (*s.shape, K, N)) for g, s in zip(gradients, sources, strict=True)
        ]  # (i, n, j, k)
        return self._made(z, zip(sources, dense, strict=True))

    def linear(self, value, weight, bias, rule):
        """value · weight + bias, a stretch of its own.  # weight (N, N')"""
        return self.ended(weighted(Stretch(rule), value, same(len(value.value)), weight, bias))

    # -- what needs no rule ----------------------------------------------------------------------

    def mapped(self, value, dense, constant=None):
        """Σ value · dense (+ constant), as it is.  # dense (i, n, j, k)"""
        out = np.einsum("in,injk->jk", value.value, dense)
        return self._with(out, [(value, dense)], constant)

    def total(self, values, factors=None):
        """Σ factor · value, entry by entry."""
        factors = factors or [1.0] * len(values)
        out = sum(v.value * f for v, f in zip(values, factors, strict=True))
        return self._made(out, [(v, diagonal(f, v.shape)) for v, f in zip(values, factors, strict=True)])

    def scaled(self, value, factor, constant=None):
        """factor ⊙ value (+ constant), the factor held constant."""
        return self._with(value.value * factor, [(value, diagonal(factor, value.shape))], constant)

    def _with(self, out, sources, constant):
        if constant is not None:
            held = self.given(np.broadcast_to(constant, out.shape))
            out, sources = out + constant, [*sources, (held, diagonal(1.0, out.shape))]
        return self._made(out, sources)

    def activated(self, value, function):
        """h = z · [h / z], the bracket held constant."""
        z, h = value.value, function(value.value)
        held = self.given(np.where(z == 0, h, 0.0))  # what comes of nothing is no one's
        return self._made(h, [(value, diagonal(quotient(h, z), z.shape)), (held, diagonal(1.0, z.shape))])

    def joined(self, values):
        """Values side by side."""
        out, start = np.concatenate([v.value for v in values], 1), 0
        sources = []
        for v in values:
            eye = np.eye(v.shape[1], out.shape[1], start)
            sources.append((v, np.einsum("ij,nk->injk", np.eye(len(out)), eye)))
            start += v.shape[1]
        return self._made(out, sources)

    def rows(self, value, index):
        """Some rows of a value."""
        pick = np.zeros((value.shape[0], len(index)))
        pick[index, np.arange(len(index))] = 1
        return self.mapped(value, np.einsum("ij,nk->injk", pick, np.eye(value.shape[1])))

    def largest(self, value, groups, count):
        """The largest of every group of rows, neuron by neuron: what is equal shares; 0 where there is none."""
        dense = np.zeros((*value.shape, count, value.shape[1]))
        for j, k in itertools.product(range(count), range(value.shape[1])):
            rows = np.flatnonzero(groups == j)
            if len(rows):
                best = rows[equal(value.value[rows, k], value.value[rows, k].max(), self.tied)]
                dense[best, k, j, k] = 1 / len(best)
        return self.mapped(value, dense)

    def largest_of(self, values):
        """The largest of several values, entry by entry: what is equal shares."""
        stack = np.stack([v.value for v in values])
        best = equal(stack, stack.max(0), self.tied)
        return self.total(values, list(best / best.sum(0)))

    def product(self, a, b):
        """a ⊙ b, neither of them a gate: each gets half."""
        return self._made(a.value * b.value, [(a, diagonal(b.value / 2, a.shape)), (b, diagonal(a.value / 2, b.shape))])

    # -- walks -----------------------------------------------------------------------------------

    def walks(self, end):
        """The relevance of every walk to ``end``, a value of one entry: {(m_0, …, m_L): R}; -1 passes a position by."""
        positions = {v.position: v for v in self.values if v.position is not None}
        before = {b: self._between(v) for b, v in [*positions.items(), (None, end)]}
        found = {}

        def go(position, row, message, walk):
            """Step back from a row of a position with what has come there.  # message (N,)"""
            value = end if position is None else positions[position]
            for earlier, dense in before[position].items():
                arrived = dense[:, :, row] @ message  # (K, N)
                assert arrived.shape == positions[earlier].shape, value.shape
                for m in range(len(arrived)):
                    stepped = {**walk, earlier: m}
                    if earlier == 0:
                        key = tuple(stepped.get(p, -1) for p in range(len(positions)))
                        found[key] = found.get(key, 0.0) + float(arrived[m] @ positions[0].value[m])
                    elif arrived[m].any():
                        go(earlier, m, arrived[m], stepped)

        go(None, 0, np.ones(1), {})
        return found

    def _between(self, end):
        """The dense arrays from earlier positions to a value, of all ways that pass no other position."""
        size = end.value.size
        messages, found = {id(end): np.eye(size)}, {}
        for value in reversed(self.values):
            message = messages.get(id(value))  # (entries of the value, entries of the end)
            if message is None:
                continue
            if value.position is not None and value is not end:
                found[value.position] = message.reshape(*value.shape, *end.shape)
                continue
            for source, dense in value.sources:
                step = dense.reshape(source.value.size, value.value.size) @ message
                messages[id(source)] = messages.get(id(source), 0) + step
        return found

    def arrivals(self, end):
        """∂(end) / ∂(value) as the rules hold it, for every value that end depends on: {id: (K, N)}."""
        messages = {id(end): np.ones(end.shape)}
        for value in reversed(self.values):
            message = messages.get(id(value))
            for source, dense in value.sources if message is not None else ():
                messages[id(source)] = messages.get(id(source), 0) + np.einsum("injk,jk->in", dense, message)
        return messages


def diagonal(factor, shape):
    """The dense array of an entry-by-entry product.  # (i, n, j, k)"""
    return np.diag(np.broadcast_to(factor, shape).reshape(-1)).reshape(*shape, *shape)


# -- paths: what is multiplied between two rows, by sign --------------------------------------------


def signed(matrix):
    """A matrix from rows to rows as paths: its positive and its negative entries.  # (M, M') -> (i, 1, p, j, 1)"""
    return np.stack([np.maximum(matrix, 0), np.minimum(matrix, 0)], 1)[:, None, :, :, None]


def along(edges, each, M):
    """Σ over edges of what each is multiplied by, positive and negative apart.

    ``each`` is (E,), or (E, N) with a number for every neuron that comes out.  # -> (i, 1, p, j, N or 1)
    """
    each = each.reshape(len(each), -1)
    path = np.zeros((M, 1, 2, M, each.shape[1]))
    for (source, target), factor in zip(edges.T, each, strict=True):
        path[source, 0, 0, target] += np.maximum(factor, 0)
        path[source, 0, 1, target] += np.minimum(factor, 0)
    return path


def after(first, second):
    """Paths of two steps, one after the other: signs multiply.  # each (i, 1, p, j, 1)"""
    a, b = first[:, 0, :, :, 0], second[:, 0, :, :, 0]  # (i, p, j)
    plus = a[:, 0] @ b[:, 0] + a[:, 1] @ b[:, 1]
    minus = a[:, 0] @ b[:, 1] + a[:, 1] @ b[:, 0]
    return np.stack([plus, minus], 1)[:, None, :, :, None]


def same(M, factor=1.0):
    """Every row to itself."""
    return signed(np.eye(M) * factor)


def weighted(stretch, value, path, weight, bias=None):
    """The stretch with another weight matrix side by side.  # weight (N, N')"""
    stretch.inputs.append((value, path, weight[None, :, None, None, :]))
    return biased(stretch, bias)


def passed(stretch, value, path):
    """The stretch with a way past its weights: the neurons of a value as they are."""
    N = value.shape[1]
    stretch.inputs.append((value, path * np.eye(N)[None, :, None, None, :], None))
    return stretch


def _extent(stretch):
    """Rows and neurons of a stretch."""
    return next(np.broadcast_shapes(p.shape, lifted(w).shape)[3:] for _, p, w in stretch.inputs)


def biased(stretch, bias, path=None):
    """The stretch with a bias, added at the end, or (``path``) at the source rows and carried along."""
    if bias is not None:
        once = np.ones((1, 1, 1, 1, 1)) if path is None else path.sum(0, keepdims=True)
        stretch.biases.append((once, bias.reshape(1, 1, 1, 1, -1)))
    return stretch


def folded(stretch, scale, shift):
    """A batch normalisation folded into the stretch before it: weights and the one bias are those of both.  # (N,)"""
    inputs = [(v, p * scale, None) if w is None else (v, p, w * scale) for v, p, w in stretch.inputs]
    bias = sum(((p * w).sum((0, 1, 2)) for p, w in stretch.biases), np.zeros(_extent(stretch))) * scale + shift
    return Stretch(stretch.rule, inputs, [(np.ones((1, 1, 1, 1, 1)), bias[None, None, None])])


# -- questions, from the walks one by one ------------------------------------------------------------


def subgraph_relevance(walks, nodes, alpha):
    """R_α(S): the walks that visit S, each step outside discounted by α."""
    total = 0.0
    for walk, relevance in walks.items():
        inside = [m in nodes for m in walk if m >= 0]
        total += any(inside) * alpha ** inside.count(False) * relevance
    return total


def node_relevance(walks, position, M):
    """The relevance that passes every node at a position."""
    at = np.zeros(M)
    for walk, relevance in walks.items():
        if walk[position] >= 0:
            at[walk[position]] += relevance
    return at
