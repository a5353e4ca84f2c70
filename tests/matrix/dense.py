"""Layers, normalisations, activations and pooling from their definitions, as dense values. NumPy alone.

Each layer is a function of the network, what it is handed, its parameters by name, the graph and the rule. It returns
its last stretch, not ended yet, since a batch normalisation may be folded into it; or a value, where it ends with
something else than a linear map.
"""

import math
from dataclasses import dataclass

import numpy as np

from matrix.brute import Stretch, Value, after, along, biased, folded, passed, quotient, same, signed, weighted


@dataclass(frozen=True)
class Graph:
    """The edges of a graph, and what they carry."""

    edges: np.ndarray  # (2, E) source, target
    num_nodes: int
    weight: np.ndarray | None = None  # (E,)
    attributes: np.ndarray | None = None  # (E, 2)
    types: np.ndarray | None = None  # (E,)

    @property
    def weights(self):
        """A weight for every edge, 1 where there are none."""
        return np.ones(self.edges.shape[1]) if self.weight is None else self.weight


def softmax(scores, groups):
    """exp(score) over the sum of its group.  # (E, H), (E,)"""
    out = np.zeros_like(scores)
    for group in set(groups.tolist()):
        rows = groups == group
        grown = np.exp(scores[rows] - scores[rows].max(0))
        out[rows] = grown / grown.sum(0)
    return out


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


# -- edges as layers read them ---------------------------------------------------------------------


def with_loops(graph):
    """Every node has one loop: its own, with its weight, or a new one of weight 1."""
    M, (source, target), weights = graph.num_nodes, graph.edges, graph.weights
    loops, each = source == target, np.ones(M)
    each[source[loops]] = weights[loops]
    every = np.stack([np.arange(M)] * 2)
    return np.concatenate([graph.edges[:, ~loops], every], 1), np.concatenate([weights[~loops], each])


def symmetric(edges, weights, M):
    """D^-1/2 A D^-1/2 with the degrees of targets; nothing where a degree is 0."""
    root = quotient(1.0, np.sqrt(np.bincount(edges[1], weights, M)))
    return root[edges[0]] * weights * root[edges[1]]


def gcn_path(graph):
    edges, weights = with_loops(graph)
    return along(edges, symmetric(edges, weights, graph.num_nodes), graph.num_nodes)


def plain_path(graph):
    return along(graph.edges, graph.weights, graph.num_nodes)


def mean_path(graph):
    count = np.bincount(graph.edges[1], minlength=graph.num_nodes)
    return along(graph.edges, graph.weights / count[graph.edges[1]], graph.num_nodes)


# -- layers ------------------------------------------------------------------------------------------


def _gcn(net, h, p, graph, rule):
    return weighted(Stretch(rule), h, gcn_path(graph), p["lin.weight"].T, p.get("bias"))


def _sg(net, h, p, graph, rule):
    path = gcn_path(graph)
    return weighted(Stretch(rule), h, after(path, path), p["lin.weight"].T, p.get("lin.bias"))


def _tag(net, h, p, graph, rule):
    M, stretch = graph.num_nodes, Stretch(rule)
    step = along(graph.edges, symmetric(graph.edges, graph.weights, M), M)
    for k, path in enumerate([same(M), step, after(step, step)]):
        weighted(stretch, h, path, p[f"lins.{k}.weight"].T)
    return biased(stretch, p.get("bias"))


def _cheb(net, h, p, graph, rule):
    M, stretch = graph.num_nodes, Stretch(rule)
    off = graph.edges[0] != graph.edges[1]
    edges, weights = graph.edges[:, off], graph.weights[off]
    degree = np.bincount(edges[0], weights, M)
    root = quotient(1.0, np.sqrt(degree))
    each = -root[edges[0]] * weights * root[edges[1]]  # 2 L / λ - 1 with λ = 2, where L = 1 - D^-1/2 A D^-1/2
    step = along(edges, each, M)
    for k, path in enumerate([same(M), step, 2 * after(step, step) + same(M, -1.0)]):
        weighted(stretch, h, path, p[f"lins.{k}.weight"].T)
    return biased(stretch, p.get("bias"))


def _largest_of_neighbours(net, h, graph):
    """The largest of what comes along the edges, 0 where nothing comes."""
    sent = net.scaled(net.rows(h, graph.edges[0]), graph.weights[:, None])
    return net.largest(sent, graph.edges[1], graph.num_nodes)


def _two_weights(aggr, neighbours, root):
    """W₁ on what comes from neighbours, W₂ on the node itself."""

    def layer(net, h, p, graph, rule):
        M, stretch = graph.num_nodes, Stretch(rule)
        source, path = h, {"sum": plain_path, "mean": mean_path}.get(aggr, lambda graph: same(M))(graph)
        if aggr == "max":
            source = _largest_of_neighbours(net, h, graph)
        weighted(stretch, source, path, p[f"{neighbours}.weight"].T, p.get(f"{neighbours}.bias"))
        return weighted(stretch, h, same(M), p[f"{root}.weight"].T, p.get(f"{root}.bias"))

    return layer


def _sage_both(net, h, p, graph, rule):
    """Mean and maximum side by side."""
    stretch, M, N = Stretch(rule), graph.num_nodes, h.shape[1]
    weight = p["lin_l.weight"].T
    weighted(stretch, h, mean_path(graph), weight[:N], p.get("lin_l.bias"))
    weighted(stretch, _largest_of_neighbours(net, h, graph), same(M), weight[N:])
    return weighted(stretch, h, same(M), p["lin_r.weight"].T)


def _perceptron(net, stretch, p, rule):
    hidden = net.activated(net.ended(stretch), ACTIVATIONS["relu"])
    return weighted(Stretch(rule), hidden, same(len(hidden.value)), p["nn.2.weight"].T, p.get("nn.2.bias"))


def _gin(net, h, p, graph, rule):
    path = along(graph.edges, np.ones(graph.edges.shape[1]), graph.num_nodes) + same(graph.num_nodes, 1 + p["eps"])
    return _perceptron(net, weighted(Stretch(rule), h, path, p["nn.0.weight"].T, p.get("nn.0.bias")), p, rule)


def _gine(net, h, p, graph, rule):
    """Messages relu(x_j + e): e is a bias, and the sum of messages is what the first weight sees."""
    e = graph.attributes @ p["lin.weight"].T + p.get("lin.bias", 0)
    messages = net.activated(net.scaled(net.rows(h, graph.edges[0]), 1.0, e), ACTIVATIONS["relu"])
    N = h.shape[1]
    onto = np.zeros((len(e), graph.num_nodes))
    onto[np.arange(len(e)), graph.edges[1]] = 1
    received = net.mapped(messages, np.einsum("ej,nk->enjk", onto, np.eye(N)))
    stretch = weighted(Stretch(rule), received, same(graph.num_nodes), p["nn.0.weight"].T, p.get("nn.0.bias"))
    weighted(stretch, h, same(graph.num_nodes, 1 + p["eps"]), p["nn.0.weight"].T)
    return _perceptron(net, stretch, p, rule)


def _looped(graph):
    off = graph.edges[0] != graph.edges[1]
    return np.concatenate([graph.edges[:, off], np.stack([np.arange(graph.num_nodes)] * 2)], 1)


def _by_head(alpha, width):
    """A number for every neuron of every head.  # (E, H) -> (E, H · C)"""
    return np.repeat(alpha, width // alpha.shape[1], 1)


def _gat(net, h, p, graph, rule):
    edges, M = _looped(graph), graph.num_nodes
    sent = (h.value @ p["lin.weight"].T).reshape(M, 2, -1)
    ends = [(sent * p[f"att_{end}"]).sum(-1) for end in ("src", "dst")]
    score = ends[0][edges[0]] + ends[1][edges[1]]
    alpha = softmax(np.where(score > 0, score, 0.2 * score), edges[1])
    path = along(edges, _by_head(alpha, len(p["lin.weight"])), M)
    return weighted(Stretch(rule), h, path, p["lin.weight"].T, p.get("bias"))


def _gatv2(net, h, p, graph, rule):
    edges, M = _looped(graph), graph.num_nodes
    left, right = (h.value @ p[f"lin_{s}.weight"].T + p.get(f"lin_{s}.bias", 0) for s in "lr")
    score = (left[edges[0]] + right[edges[1]]).reshape(edges.shape[1], 2, -1)
    alpha = softmax((np.where(score > 0, score, 0.2 * score) * p["att"]).sum(-1), edges[1])
    path = along(edges, _by_head(alpha, left.shape[1]), M)
    stretch = weighted(Stretch(rule), h, path, p["lin_l.weight"].T)
    return biased(biased(stretch, p.get("lin_l.bias"), path), p.get("bias"))


def _transformer(net, h, p, graph, rule):
    edges, M = graph.edges, graph.num_nodes
    query, key = (h.value @ p[f"lin_{s}.weight"].T + p.get(f"lin_{s}.bias", 0) for s in ("query", "key"))
    query, key = (t.reshape(M, 2, -1) for t in (query, key))
    alpha = softmax((query[edges[1]] * key[edges[0]]).sum(-1) / math.sqrt(query.shape[-1]), edges[1])
    path = along(edges, _by_head(alpha, query[0].size), M)
    stretch = weighted(Stretch(rule), h, path, p["lin_value.weight"].T)
    biased(stretch, p.get("lin_value.bias"), path)
    return weighted(stretch, h, same(M), p["lin_skip.weight"].T, p.get("lin_skip.bias"))


def _gated(net, h, p, graph, rule):
    """Every message through a gate of its own for every neuron."""
    edges, M = graph.edges, graph.num_nodes
    key, query = (h.value @ p[f"lin_{s}.weight"].T + p.get(f"lin_{s}.bias", 0) for s in ("key", "query"))
    path = along(edges, sigmoid(key[edges[1]] + query[edges[0]]), M)
    stretch = weighted(Stretch(rule), h, path, p["lin_value.weight"].T)
    biased(stretch, p.get("lin_value.bias"), path)
    weighted(stretch, h, same(M), p["lin_skip.weight"].T)
    return biased(stretch, p.get("bias"))


def _nn(net, h, p, graph, rule):
    """A weight matrix of its own for every edge: each edge is a path."""
    M, N = h.shape
    each = graph.attributes @ p["nn.weight"].T + p.get("nn.bias", 0)
    each = each.reshape(len(each), N, -1)  # (E, N, N')
    stretch = Stretch(rule)
    path, weight = np.zeros((M, 1, len(each), M, 1)), each.transpose(1, 0, 2)[None, :, :, None, :]
    for e, (source, target) in enumerate(graph.edges.T):
        path[source, 0, e, target, 0] = 1
    stretch.inputs.append((h, path, weight))
    weighted(stretch, h, same(M), p["lin.weight"].T)
    return biased(stretch, p.get("bias"))


def _le(net, h, p, graph, rule):
    """Σ w (a_j - b_i) + c_i."""
    M, stretch, path = graph.num_nodes, Stretch(rule), plain_path(graph)
    weighted(stretch, h, path, p["lin1.weight"].T)
    biased(stretch, p.get("lin1.bias"), path)
    received = path.sum(0)[0, :, :, 0]  # (p, j): positive and negative weights
    turned = np.stack([np.diag(-received[1]), np.diag(-received[0])], 1)[:, None, :, :, None]
    weighted(stretch, h, turned, p["lin2.weight"].T)
    return weighted(stretch, h, same(M), p["lin3.weight"].T, p.get("lin3.bias"))


def _general(net, h, p, graph, rule):
    """Σ (W x_j + b) + x_i, the node itself past all weights, as long as it is as wide."""
    M, stretch = graph.num_nodes, Stretch(rule)
    path = along(graph.edges, np.ones(graph.edges.shape[1]), M)
    weighted(stretch, h, path, p["lin_msg.weight"].T)
    biased(stretch, p.get("lin_msg.bias"), path)
    if "lin_self.weight" in p:
        return weighted(stretch, h, same(M), p["lin_self.weight"].T, p.get("lin_self.bias"))
    return passed(stretch, h, same(M))


def _rgcn(net, h, p, graph, rule):
    """The mean over neighbours, relation by relation."""
    stretch, M = Stretch(rule), graph.num_nodes
    for relation, weight in enumerate(p["weight"]):
        edges = graph.edges[:, graph.types == relation]
        weighted(stretch, h, mean_path(Graph(edges, M)), weight)
    weighted(stretch, h, same(M), p["root"])
    return biased(stretch, p.get("bias"))


def _without_weights(steps, kept):
    """Steps along normalised edges, each with a part of the input put back: linear, and no weight for a rule."""

    def layer(net, h, p, graph, rule):
        M, N = h.shape
        if kept:
            step = gcn_path(graph).sum((1, 2, 4))
        else:
            step = along(graph.edges, symmetric(graph.edges, graph.weights, M), M).sum((1, 2, 4))
        whole = np.eye(M)
        for _ in range(steps):
            whole = (1 - kept) * whole @ step + kept * np.eye(M)
        return net.mapped(h, np.einsum("ij,nk->injk", whole, np.eye(N)))

    return layer


def _edge(net, h, p, graph, rule):
    """The largest of W [x_i, x_j - x_i]: a stretch with the edges for rows."""
    M, N = h.shape
    E, weight = graph.edges.shape[1], p["nn.weight"].T
    pick = np.zeros((2, M, E))
    pick[0, graph.edges[0], np.arange(E)] = pick[1, graph.edges[1], np.arange(E)] = 1
    stretch = weighted(Stretch(rule), h, signed(pick[1]), weight[:N], p.get("nn.bias"))
    weighted(stretch, h, signed(pick[0]), weight[N:])
    weighted(stretch, h, signed(-pick[1]), weight[N:])
    return net.largest(net.ended(stretch), graph.edges[1], M)


def _crystal(net, h, p, graph, rule):
    """x + Σ gate ⊙ softplus(W [x_i, x_j])."""
    M, N = h.shape
    E = graph.edges.shape[1]
    pick = np.zeros((2, M, E))
    pick[0, graph.edges[0], np.arange(E)] = pick[1, graph.edges[1], np.arange(E)] = 1
    both = np.concatenate([h.value[graph.edges[1]], h.value[graph.edges[0]]], 1)
    gate = sigmoid(both @ p["lin_f.weight"].T + p.get("lin_f.bias", 0))
    stretch = weighted(Stretch(rule), h, signed(pick[1]), p["lin_s.weight"].T[:N], p.get("lin_s.bias"))
    weighted(stretch, h, signed(pick[0]), p["lin_s.weight"].T[N:])
    sent = net.scaled(net.activated(net.ended(stretch), lambda z: np.log1p(np.exp(z))), gate)
    received = net.mapped(sent, np.einsum("je,nk->enjk", pick[1], np.eye(N)))
    return net.total([received, h])


LAYERS = {
    "GCN": _gcn,
    "SG": _sg,
    "TAG": _tag,
    "Cheb": _cheb,
    "GraphConv": _two_weights("sum", "lin_rel", "lin_root"),
    "GraphConv mean": _two_weights("mean", "lin_rel", "lin_root"),
    "GraphConv max": _two_weights("max", "lin_rel", "lin_root"),
    "SAGE": _two_weights("mean", "lin_l", "lin_r"),
    "SAGE sum": _two_weights("sum", "lin_l", "lin_r"),
    "SAGE max": _two_weights("max", "lin_l", "lin_r"),
    "SAGE mean and max": _sage_both,
    "GIN": _gin,
    "GINE": _gine,
    "GAT": _gat,
    "GATv2": _gatv2,
    "Transformer": _transformer,
    "ResGated": _gated,
    "NNConv": _nn,
    "LE": _le,
    "General": _general,
    "RGCN": _rgcn,
    "APPNP": _without_weights(2, 0.2),
    "LG": _without_weights(1, 0.0),
    "EdgeConv": _edge,
    "CGConv": _crystal,
}


# -- activations --------------------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[float])

ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky": lambda z: np.where(z > 0, z, 0.1 * z),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "gelu": lambda z: z * (1 + _erf(z / math.sqrt(2))) / 2,
    "silu": lambda z: z * sigmoid(z),
    "tanh": np.tanh,
    "none": lambda z: z,
}


# -- normalisations: statistics are held constant --------------------------------------------------------


def normalised(net, made, kind, p):
    """What a normalisation makes of a layer's last stretch, or of its value."""
    if kind == "batch":
        scale = p["weight"] / np.sqrt(p["running_var"] + 1e-5)
        shift = p["bias"] - p["running_mean"] * scale
        if isinstance(made, Stretch):
            return net.ended(folded(made, scale, shift))
        return net.scaled(made, scale, shift)
    value = made if isinstance(made, Value) else net.ended(made)
    z = value.value
    if kind == "layer":
        scale = p["weight"] / np.sqrt(z.var(1, keepdims=True) + 1e-5)
        return net.scaled(value, scale, p["bias"] - z.mean(1, keepdims=True) * scale)
    if kind == "rms":
        return net.scaled(value, p["weight"] / np.sqrt((z**2).mean(1, keepdims=True) + 1e-5))
    if kind == "instance":
        scale = 1 / np.sqrt(z.var(0) + 1e-5)
        return net.scaled(value, scale, -z.mean(0) * scale)
    if kind == "graph":
        mean = z.mean(0) * p["mean_scale"]
        scale = p["weight"] / np.sqrt(((z - mean) ** 2).mean(0) + 1e-5)
        return net.scaled(value, scale, p["bias"] - mean * scale)
    if kind == "pair":
        mean = z.mean(0)
        scale = 1 / np.sqrt(1e-5 + ((z - mean) ** 2).sum(1).mean())
        return net.scaled(value, scale, -mean * scale)
    return value


# -- skip and jumping connections ---------------------------------------------------------------------------


def lstm_states(p, sequence, reverse):
    """What an LSTM says at every step.  # (T, K, N) -> (T, K, hidden)"""
    end = "_reverse" if reverse else ""
    weights, recurrent = p[f"weight_ih_l0{end}"], p[f"weight_hh_l0{end}"]
    bias = p[f"bias_ih_l0{end}"] + p[f"bias_hh_l0{end}"]
    state = memory = np.zeros((sequence.shape[1], recurrent.shape[1]))
    out = np.zeros((len(sequence), *state.shape))
    for t in reversed(range(len(sequence))) if reverse else range(len(sequence)):
        i, f, g, o = np.split(sequence[t] @ weights.T + state @ recurrent.T + bias, 4, 1)
        memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
        state = out[t] = sigmoid(o) * np.tanh(memory)
    return out


def jumped(net, seen, kind, p):
    """What a jumping connection makes of all layers' outputs."""
    if kind == "cat":
        return net.joined(seen)
    if kind == "max":
        return net.largest_of(seen)
    sequence = np.stack([v.value for v in seen])
    lstm = {name.removeprefix("lstm."): value for name, value in p.items() if name.startswith("lstm.")}
    states = np.concatenate([lstm_states(lstm, sequence, reverse) for reverse in (False, True)], -1)
    score = (states @ p["att.weight"].T + p["att.bias"])[..., 0]  # (T, K)
    attention = np.exp(score) / np.exp(score).sum(0)
    return net.total(seen, [a[:, None] for a in attention])


# -- pooling ---------------------------------------------------------------------------------------------------


def pooled(net, value, kind, p):
    """One row of all."""
    z, (M, N) = value.value, value.shape
    if kind == "max":
        return net.largest(value, np.zeros(M, dtype=int), 1)
    share = {"sum": np.ones((M, N)), "mean": np.full((M, N), 1 / M)}.get(kind)
    if kind == "attention":
        score = z @ p["gate_nn.weight"].T + p.get("gate_nn.bias", 0)
        share = softmax(score, np.zeros(M, dtype=int)) * np.ones((M, N))
    if kind == "softmax":
        share = softmax(z, np.zeros(M, dtype=int))
    return net.mapped(value, share[:, :, None, None] * np.eye(N)[None, :, None, :])
