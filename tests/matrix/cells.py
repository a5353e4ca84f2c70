"""The matrix: its factors, what goes with what, and 5,000 cells in which every pair of values stands."""

import functools
import itertools
import random
from dataclasses import astuple, dataclass

COUNT = 5000
#: So many, the first of them, are in every run of the tests.
SAMPLED = 170

#: Layers that read edge weights, and which they may be given.
WEIGHTED = {
    "GCN": "all", "SG": "all", "TAG": "all", "APPNP": "all", "LG": "all", "Cheb": "positive", "GraphConv": "signed",
    "GraphConv mean": "signed", "GraphConv max": "signed", "LE": "signed",
}  # fmt: skip
_ALLOWED = {"all": ("positive", "signed", "negative"), "signed": ("positive", "signed"), "positive": ("positive",)}
#: Layers without a closed form.
BY_AUTOGRAD = frozenset({"NNConv"})

FACTORS = {
    "layer": (
        "GCN", "SG", "TAG", "Cheb", "GraphConv", "GraphConv mean", "GraphConv max", "SAGE", "SAGE sum", "SAGE max",
        "SAGE mean and max", "GIN", "GINE", "GAT", "GATv2", "Transformer", "ResGated", "NNConv", "LE", "General",
        "RGCN", "APPNP", "LG", "EdgeConv", "CGConv",
    ),
    "rule": (
        "auto", "zero", "epsilon", "gamma", "Gamma(1.5)", "GeneralisedGamma(1)", "alphabeta", "zplus", "positive",
        "one per layer", "ε in the read-out", "generalised γ in the read-out",
    ),
    "norm": ("none", "batch", "layer", "rms", "instance", "graph", "pair"),
    "activation": ("relu", "leaky", "elu", "gelu", "silu", "tanh", "none"),
    "skip": ("none", "residual", "initial", "concatenated", "gated", "jumping cat", "jumping max", "jumping lstm"),
    "maps": ("none", "before", "between"),
    "pooling": ("sum", "mean", "max", "attention", "softmax", "none"),
    "task": ("class", "regression", "log-softmax", "contrast", "node", "link"),
    "features": ("any", "positive", "equal", "ones"),
    "edges": ("both ways", "one way", "self-loops", "duplicates", "isolated nodes", "all of these"),
    "weights": ("none", "positive", "signed", "negative"),
    "biases": ("yes", "no"),
    "depth": (1, 2, 3),
    "dtype": ("float64", "float32", "float16", "bfloat16", "mixed"),
    "fallback": ("autograd", "error"),
}  # fmt: skip

_WITH_WEIGHTS = frozenset({"gated", "jumping lstm"})

#: Of some values more cells are drawn than of others.
_OFTEN = {
    "weights": (3, 3, 3, 0.5),
    "dtype": (12, 4, 1, 1, 0.5),
    "fallback": (9, 1),
    "depth": (1, 3, 2),
    "features": (4, 2, 2, 1),
}

MEANING = {
    "layer": "the message-passing layer, in the notation of PyTorch Geometric; *General* has a path past its weights",
    "rule": "the LRP rule; *one per layer* is γ = 2, αβ and ε in turn",
    "norm": "the normalisation after every layer; *batch* is folded into the layer",
    "activation": "after the normalisation",
    "skip": "how a layer's output meets its input (or, *initial*, the first layer's), or how all outputs are joined",
    "maps": "linear maps outside the layers",
    "pooling": "from nodes to the graph; none where the task is one of nodes",
    "task": "what is explained: an output of the graph, of a node, or the score of a pair of nodes",
    "features": "of the nodes: of either sign, positive, the same for two nodes and 0 for another, or all 1",
    "edges": "the kind of graph",
    "weights": "edge weights, of layers that read them; *negative* ones make degrees of which there is no root",
    "biases": "whether linear maps have biases",
    "depth": "how many layers",
    "dtype": "of model and features; *mixed* is a float64 model with float32 features",
    "fallback": "the argument of `trace`; *error* refuses layers without a closed form",
}


@dataclass(frozen=True)
class Cell:
    """One value of every factor; the seed of its weights and graph."""

    layer: str
    rule: str
    norm: str
    activation: str
    skip: str
    maps: str
    pooling: str
    task: str
    features: str
    edges: str
    weights: str
    biases: str
    depth: int
    dtype: str
    fallback: str
    seed: int = 0

    @property
    def name(self):
        """By which it can be run alone: ``pytest tests/matrix --full -k NAME``."""
        return f"c{self.seed:04d}"

    def __str__(self):
        """Its name and its values."""
        return " ".join([self.name, *map(str, astuple(self)[:-1])])

    @property
    def weightless(self):
        """Whether the model has no parameters, and so no type of its own."""
        plain = self.maps == "none" and self.norm in ("none", "instance", "pair")
        return self.layer in ("APPNP", "LG") and self.task == "link" and plain and self.skip not in _WITH_WEIGHTS

    @property
    def refusal(self):
        """With which error it is to be refused, by name and some of its words; None if it is not.

        Where numbers are not finite, it depends on where they show which of two errors it is.
        """
        if self.dtype == "mixed" and not self.weightless:
            return ("InputError",), "float32"
        if self.fallback == "error" and self.layer in BY_AUTOGRAD:
            return ("UnsupportedLayerError",), "has no linearization"
        if self.weights == "negative":
            return ("InputError", "TraceError"), "not finite"
        return None


_NAMES = tuple(FACTORS)
_SUMS_TO_NOTHING = frozenset(itertools.product(("instance", "pair"), ("none",), ("sum", "mean")))


def together(first, a, second, b):
    """Whether two values may stand in one cell."""
    pair = {first: a, second: b}
    if pair.keys() == {"layer", "weights"} and pair["weights"] != "none":
        return pair["weights"] in _ALLOWED.get(WEIGHTED.get(pair["layer"], ""), ())
    if pair.keys() == {"features", "norm"}:  # what is centred is 0 where nodes are alike
        return pair["features"] != "ones" or pair["norm"] not in ("instance", "pair")
    if pair.keys() == {"pooling", "task"}:
        return (pair["pooling"] == "none") == (pair["task"] in ("node", "link"))
    return True


def _possible(chosen):
    """Whether values may stand together, and the output is more than rounding."""
    if (chosen["norm"], chosen["activation"], chosen["pooling"]) in _SUMS_TO_NOTHING:
        return False  # what was centred sums to 0
    if chosen["features"] == "ones" and chosen["pooling"] == "max" and chosen["dtype"] != "float64":
        return False  # nodes come out nearly alike, and rounding decides which of them tie
    constrained = ("layer", "weights"), ("pooling", "task"), ("norm", "features")
    return all(together(a, chosen[a], b, chosen[b]) for a, b in constrained)


def pairs():
    """Every pair of values that may stand together."""
    return {
        ((first, a), (second, b))
        for first, second in itertools.combinations(_NAMES, 2)
        for a, b in itertools.product(FACTORS[first], FACTORS[second])
        if together(first, a, second, b)
    }


def pairs_of(values):
    """The pairs of one cell's values."""
    return set(itertools.combinations(zip(_NAMES, values, strict=True), 2))


def _drawn(source, fixed=()):
    """A random choice of values that may stand together, around some that are fixed."""
    fixed = dict(fixed)
    while True:
        chosen = {name: source.choices(FACTORS[name], _OFTEN.get(name))[0] for name in _NAMES} | fixed
        if _possible(chosen):
            return tuple(chosen.values())


@functools.cache
def cells():
    """The 5,000 cells: first a set in which every pair stands, then others at random; the same every time."""
    source = random.Random(16)
    wanted, found = sorted(pairs(), key=str), {}
    source.shuffle(wanted)
    left = set(wanted)
    for pair in wanted:
        if pair in left:
            best = max((_drawn(source, pair) for _ in range(8)), key=lambda values: len(left & pairs_of(values)))
            left -= pairs_of(best)
            found[best] = None
    while len(found) < COUNT:
        found[_drawn(source)] = None
    return tuple(Cell(*values, seed) for seed, values in enumerate(found))
