"""The model of a cell over again, in dense values: its parameters are read, nothing of it is run."""

import numpy as np

from matrix.brute import Network, Rule, Stretch
from matrix.dense import ACTIVATIONS, LAYERS, Graph, jumped, normalised, pooled, sigmoid

ZERO = Rule("zero")
#: By name: the rules of so many layers, and that of the read-out.
RULES = {
    "auto": (lambda L: [Rule("generalised", 3.0)] * L, ZERO),
    "zero": (lambda L: [ZERO] * L, ZERO),
    "epsilon": (lambda L: [Rule("epsilon", 0.05)] * L, ZERO),
    "gamma": (lambda L: [Rule("gamma", 3.0 - 3.0 * layer / max(1, L - 1)) for layer in range(L)], ZERO),
    "Gamma(1.5)": (lambda L: [Rule("gamma", 1.5)] * L, ZERO),
    "GeneralisedGamma(1)": (lambda L: [Rule("generalised", 1.0)] * L, ZERO),
    "alphabeta": (lambda L: [Rule("alphabeta", 2.0)] * L, ZERO),
    "zplus": (lambda L: [Rule("zplus")] * L, ZERO),
    "positive": (lambda L: [Rule("positive")] * L, ZERO),
    "one per layer": (lambda L: [Rule("gamma", 2.0), Rule("alphabeta", 3.0), Rule("epsilon", 0.1)][:L], ZERO),
    "ε in the read-out": (lambda L: [Rule("gamma", 1.0)] * L, Rule("epsilon", 0.1)),
    "generalised γ in the read-out": (lambda L: [ZERO] * L, Rule("generalised", 2.0)),
}

#: What is explained: the row of the output, and what every column counts for (None: each is added).
_EXPLAINED = {
    "class": (0, [0, 1, 0]),
    "regression": (0, [1]),
    "log-softmax": (0, [0, 0, 1]),
    "contrast": (0, [1, 0, -1]),
    "node": (3, [0, 1, 0]),
    "link": (1, None),
}


def rules_of(cell):
    """The rules of the layers, and that of the read-out."""
    of_layers, readout = RULES[cell.rule]
    return of_layers(cell.depth), readout


class Explained:
    """The network of a cell: its features, and ``end``, the one entry that is explained."""

    def __init__(self, cell, model, given, pairs, shaken=0.0):
        """Make all values.

        Args:
            cell: the cell.
            model: its model, whose parameters are read.
            given: features, edges, and what else layers read, by name.
            pairs: the pairs of nodes that are scored.
            shaken: a relative change of every parameter, of a random sign, to see what rounding does.
        """
        self.cell, self.model, self.shaken, self.signs = cell, model, shaken, np.random.default_rng(cell.seed)
        self.net, self.act = Network(1e-12 if cell.dtype == "float64" else 4e-6), ACTIVATIONS[cell.activation]
        of_layers, readout = rules_of(cell)
        x, edges, read = given
        kept = {name: value.numpy() if name == "edge_type" else value.double().numpy() for name, value in read.items()}
        self.graph = Graph(edges.numpy(), len(x), kept.get("edge_weight"), kept.get("edge_attr"), kept.get("edge_type"))
        self.features = self.net.given(x.double().numpy())
        self.end = self._read_out(self._layers(of_layers), readout, pairs.numpy())

    def _numbers(self, module):
        values = {name: value.double().numpy() for name, value in module.state_dict().items()}
        return {name: v * (1 + self.shaken * self.signs.choice([-1, 1], v.shape)) for name, v in values.items()}

    def _linear(self, value, module, rule):
        p = self._numbers(module)
        return self.net.linear(value, p["weight"].T, p.get("bias"), rule)

    def _layers(self, rules):
        """What the read-out reads of the nodes."""
        net, model, h, seen = self.net, self.model, self.features, []
        if model.encoder is not None:
            h = net.activated(self._linear(h, model.encoder, rules[0]), self.act)
        first = h
        for i, rule in enumerate(rules):
            h.position = i
            h = self._met(i, self._layer(i, h, rule), h, first)
            seen.append(h)
            if i < len(model.between):
                h = self._linear(h, model.between[i], rule)
        return seen[-1] if model.jump is None else jumped(net, seen, model.jump.mode, self._numbers(model.jump))

    def _layer(self, i, h, rule):
        """A layer, its normalisation and its activation."""
        net, kind, norm = self.net, self.cell.norm, self._numbers(self.model.norms[i])
        z = LAYERS[self.cell.layer](net, h, self._numbers(self.model.convs[i]), self.graph, rule)
        z = normalised(net, z, kind, norm) if kind == "batch" else z
        z = net.ended(z) if isinstance(z, Stretch) else z
        if i == self.cell.depth - 1:
            z.position = self.cell.depth  # what comes out of the last layer
        z = z if kind == "batch" else normalised(net, z, kind, norm)
        return z if self.cell.activation == "none" else net.activated(z, self.act)

    def _met(self, i, z, h, first):
        """What a layer made and what it was handed, joined."""
        net, skip = self.net, self.cell.skip
        if skip == "residual":
            return net.total([z, h])
        if skip == "initial":
            return net.total([z, first], [1.0, 0.5])
        if skip == "concatenated":
            return net.joined([h, z])
        if skip == "gated":
            p = self._numbers(self.model.gates[i])
            gate = sigmoid(h.value @ p["weight"].T + p.get("bias", 0))
            return net.total([z, h], [gate, 1 - gate])
        return z

    def _read_out(self, h, rule, pairs):
        """The one entry that is explained."""
        net, cell = self.net, self.cell
        row, columns = _EXPLAINED[cell.task]
        if cell.task == "link":
            out = net.product(net.rows(h, pairs[0]), net.rows(h, pairs[1]))
        else:
            h = h if cell.pooling == "none" else pooled(net, h, cell.pooling, self._numbers(self.model.pool))
            out = self._linear(h, self.model.head, rule)
        if cell.task == "log-softmax":
            out = net.scaled(out, 1.0, -np.log(np.exp(out.value).sum(1, keepdims=True)))
        dense = np.zeros((*out.shape, 1, 1))
        dense[row, :, 0, 0] = 1 if columns is None else columns
        return net.mapped(out, dense)
