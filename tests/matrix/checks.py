"""What every cell is held to: exact, conserved, the same under other numbers and in a batch; or refused by name."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import Batch, Data

import walkwise as ww
from matrix import brute
from matrix.cells import BY_AUTOGRAD
from matrix.models import ASKED, PAIRS, RULES, graph_of, model_of
from matrix.network import Explained, rules_of
from walkwise.errors import WalkwiseError

ALPHAS = (0.0, 0.3, 1.0)
#: Rounding of the types in which relevance is computed; what is forgiven in any case, and at most.
_ROUNDING = {"float64": 2.2e-16, "mixed": 1.2e-7, "float32": 1.2e-7, "float16": 1.2e-7, "bfloat16": 1.2e-7}
_FORGIVEN = {2.2e-16: (1e-9, 1e-6), 1.2e-7: (1e-4, 0.2)}
#: So many times what rounding the parameters makes of the answers is forgiven.
_TIMES = 100


@dataclass(frozen=True)
class Outcome:
    """How a cell came out."""

    error: float = 0.0  # the largest of all differences, over Σ |relevance|
    refused: str | None = None  # with which error


@dataclass(frozen=True)
class Truth:
    """What the brute force says of a cell."""

    output: float
    walks: dict
    features: np.ndarray  # (M, F)
    constants: float  # the relevance of biases and other constants
    conserves: bool
    scale: float  # Σ |relevance| where it is largest
    shaken: Callable[[], float]  # how far walks move by rounding, over the scale


def truth_of(cell, model, given):
    """The brute force's answers."""
    made = Explained(cell, model, given, PAIRS)
    net, features = made.net, made.features
    walks, relevance = _answers(made)
    constants = sum(
        float(relevance[id(v)].sum())
        for v in net.values
        if not v.sources and v is not features and id(v) in relevance and _after_first(net, v)
    )
    scale = max(float(np.abs(r).sum()) for r in relevance.values()) or 1.0

    def shaken():
        """How far walks move if parameters are rounded."""
        moved, _ = _answers(Explained(cell, model, given, PAIRS, _ROUNDING[cell.dtype]))
        return max(abs(moved.get(walk, 0.0) - walks.get(walk, 0.0)) for walk in walks.keys() | moved.keys()) / scale

    of_layers, readout = rules_of(cell)
    return Truth(
        output=float(made.end.value[0, 0]),
        walks=walks,
        features=relevance.get(id(features), np.zeros(features.shape)),
        constants=constants,
        conserves=all(rule.conserves for rule in (*of_layers, readout)),
        scale=scale,
        shaken=functools.cache(shaken),
    )


def _answers(made):
    """Every walk's relevance, and that of every entry of every value."""
    messages = made.net.arrivals(made.end)
    relevance = {id(v): messages[id(v)] * v.value for v in made.net.values if id(v) in messages}
    return made.net.walks(made.end), relevance


def _after_first(net, value):
    """Whether a constant comes in after the first position: before it, it is no part of what walks sum to."""
    first = next(i for i, v in enumerate(net.values) if v.position == 0)
    return net.values.index(value) > first


def checked(cell):
    """How the cell came out, after everything that is claimed of it was checked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _checked(cell)


def _checked(cell):
    model, (x, edge_index, read) = model_of(cell), graph_of(cell, cell.seed)
    if cell.refusal is not None:
        return Outcome(refused=_refused(cell, model, x, edge_index, read))
    truth = truth_of(cell, model, (x, edge_index, read))
    asked = _Asked(cell, truth)
    asked.of(_traced(cell, model, x, edge_index, read), 0, torch.arange(len(x)), "alone")
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(cell.seed))
    asked.of(*_renumbered(cell, model, x, edge_index, read, order), 0, order, "renumbered")
    chain, start = _batched(cell, model, x, edge_index, read)
    asked.of(chain, start, torch.arange(len(x)), "in a batch")
    return Outcome(error=asked.largest)


def _refused(cell, model, x, edge_index, read):
    """The name of the error with which a cell is refused, which must be the one that it states."""
    names, words = cell.refusal
    caught = None
    try:
        _traced(cell, model, x, edge_index, read)
    except WalkwiseError as error:
        caught = error
    assert caught is not None, f"{cell}: is not refused"
    got = type(caught).__name__
    assert got in names, f"{cell}: refused as {got}: {caught}"
    assert words in str(caught), f"{cell}: refused as {got}: {caught}"
    return got


def _traced(cell, model, x, edge_index, read, **changed):
    arguments = {**ASKED[cell.task], **read, **changed}
    if cell.task == "link":
        arguments.setdefault("pair", PAIRS)
    return ww.trace(model, x, edge_index, rule=RULES[cell.rule](cell.depth), fallback=cell.fallback, **arguments)


def _renumbered(cell, model, x, edge_index, read, order):
    """The chain of the same graph, node i now called order[i], its edges in another order."""
    there = torch.empty_like(x)
    there[order] = x
    shuffled = torch.randperm(edge_index.shape[1], generator=torch.Generator().manual_seed(cell.seed + 1))
    read = {name: value[shuffled] for name, value in read.items()}
    changed = {"pair": order[PAIRS]} if cell.task == "link" else {}
    if cell.task == "node":
        changed["index"] = int(order[ASKED["node"]["index"]])
    return (_traced(cell, model, there, order[edge_index][:, shuffled], read, **changed),)


def _batched(cell, model, x, edge_index, read):
    """The chain of a batch with the graph in the middle, and its first node's number."""
    others = [graph_of(cell, 90_000 + cell.seed, "one way"), graph_of(cell, 95_000 + cell.seed, "both ways")]
    graphs = [others[0], (x, edge_index, read), others[1]]
    many = Batch.from_data_list([Data(x=a, edge_index=b, **c) for a, b, c in graphs])
    start = len(others[0][0])
    changed = {name: many[name] for name in read} | {"batch": many.batch}
    target = ASKED[cell.task].get("target")
    if cell.task == "link":
        changed["pair"] = PAIRS + start
    elif cell.task == "node":
        changed["index"] = ASKED["node"]["index"] + start
    elif target is not None:
        changed["target"] = [0, target, 1] if cell.task != "contrast" else [target] * 3
    return _traced(cell, model, many.x, many.edge_index, {}, **changed), start


class _Asked:
    """Asks a chain everything, and compares."""

    def __init__(self, cell, truth):
        self.cell, self.truth, self.largest = cell, truth, 0.0

    def close(self, ours, theirs, what):
        ours, theirs = (np.asarray(t, dtype=np.float64) for t in (ours, theirs))
        assert ours.shape == theirs.shape, f"{self.cell}: {what}: {ours.shape} and {theirs.shape}"
        assert np.isfinite(ours).all(), f"{self.cell}: {what} is not finite"
        error = float(np.abs(ours - theirs).max(initial=0.0)) / self.truth.scale
        self.largest = max(self.largest, error)
        least, most = _FORGIVEN[_ROUNDING[self.cell.dtype]]
        if error > least:
            forgiven = _TIMES * self.truth.shaken()
            assert error <= forgiven, f"{self.cell}: {what} is off by {error:.2g} of Σ |R|, {forgiven:.2g} is forgiven"
            assert forgiven <= most, f"{self.cell}: its answers are rounding, and say nothing"

    def of(self, chain, start, order, how):
        """``order`` says what the nodes are called, from ``start`` on."""
        truth = self.truth
        walks = {tuple(int(order[m]) + start if m >= 0 else -1 for m in w): r for w, r in truth.walks.items()}
        assert chain.num_layers == self.cell.depth
        if how == "alone":
            self._alone(chain, walks)
        listed = list(walks)
        self.close(ww.walk_relevance(chain, listed), list(walks.values()), f"walks {how}")
        names = [int(node) + start for node in order]
        for alpha in ALPHAS if how == "alone" else ALPHAS[1:2]:
            sets = [names[:2], names[2:3], [*names[1:2], *names[3:]], names]
            theirs = [brute.subgraph_relevance(walks, nodes, alpha) for nodes in sets]
            self.close(ww.subgraph_relevance(chain, sets, alpha=alpha), theirs, f"subgraphs {how}, α = {alpha}")
        self.close(ww.feature_relevance(chain)[names], truth.features, f"features {how}")

    def _alone(self, chain, walks):
        truth, cell = self.truth, self.cell
        self.close(chain.output, truth.output, "output")
        total = sum(walks.values())
        self.close(chain.input_relevance, total, "all walks")
        self.close(chain.bias_leak, truth.output - total, "bias leak")
        if truth.conserves:
            self.close(chain.bias_leak, truth.constants, "relevance of biases")
        listed = set(map(tuple, ww.enumerate_walks(chain).tolist()))
        unlisted = [r for walk, r in walks.items() if walk not in listed]
        self.close(unlisted, np.zeros(len(unlisted)), "walks that are not listed")
        for position in range(cell.depth + 1):
            theirs = brute.node_relevance(truth.walks, position, chain.num_nodes)
            self.close(ww.node_relevance(chain, layer=position), theirs, f"nodes, position {position}")
        routes = {layer.route for layer in chain.layers}
        expected = "autograd" if cell.layer in BY_AUTOGRAD else "closed form"
        assert routes == {expected} or cell.dtype == "mixed", f"{cell}: {routes}"
