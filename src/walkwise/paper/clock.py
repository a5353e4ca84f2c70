"""The time of each method for one subgraph: the measurements behind table 3 and figure 4."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from walkwise.datasets import Graphs
from walkwise.errors import InputError
from walkwise.paper.bunches import Bunch, bunch
from walkwise.paper.orderings import cam_scores, edge_masks, gradient_scores
from walkwise.paper.passes import Enumerated, hooked_relevance, naive_relevance, walk_by_walk_relevance
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.tracing import trace

T = TypeVar("T")

NAIVE, ALONG = "naive GNN-LRP", "naive GNN-LRP, along edges"
HOOK, CHAIN, AMORTIZED = "sGNN-LRP, hooks", "sGNN-LRP, chain", "sGNN-LRP, chain, one of 1000"
OTHERS = ("GNNExplainer", "Gradient", "CAM")
MANY = 1000


@dataclass(frozen=True, eq=False)
class SubgraphQuestion:
    """A subgraph of one graph, and the output column it is asked about."""

    graph: Bunch  # of one
    target: int
    subgraph: list[int]
    others: list[list[int]]  # more subgraphs of the same size, for what can answer many at once


def draw_questions(graphs: Graphs, count: int, size: int, *, seed: int) -> list[SubgraphQuestion]:
    """As many questions as asked, on graphs drawn at random and subgraphs grown along random edges.

    Graphs without a connected part of that many nodes are passed over.
    """
    generator = random.Random(seed)
    found: list[SubgraphQuestion] = []
    for index in generator.sample(range(len(graphs)), len(graphs)):
        graph = bunch(graphs, [index])
        sets = connected_sets(graph.edge_index, len(graph.x), size, MANY, generator)
        if sets:
            others = (sets * (MANY // len(sets) + 1))[:MANY]
            found.append(SubgraphQuestion(graph, int(graph.y), sets[0], others))
        if len(found) == count:
            return found
    raise InputError(
        f"Only {len(found)} of {len(graphs)} graphs have {size} connected nodes; {count} were asked for.",
        argument="count",
        expected=f"at most {len(found)}",
        got=count,
    )


def connected_sets(
    edge_index: Tensor, num_nodes: int, size: int, count: int, generator: random.Random
) -> list[list[int]]:
    """Node sets grown along random edges, as many as asked; fewer where a part of the graph is too small.

    >>> connected_sets(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3, 3, 2, random.Random(0))
    [[0, 1, 2], [0, 1, 2]]
    """
    neighbours: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in edge_index.t().tolist():
        neighbours[source].append(target)
    sets = (_grown(neighbours, size, generator) for _ in range(count))
    return [nodes for nodes in sets if nodes]


def _grown(neighbours: list[list[int]], size: int, generator: random.Random) -> list[int]:
    """Connected nodes: from a random one, along edges that lead outside; none if there are too few."""
    nodes = [generator.randrange(len(neighbours))]
    rim = list(neighbours[nodes[0]])
    while len(nodes) < size:
        rim = [node for node in rim if node not in nodes]
        if not rim:
            return []
        nodes.append(generator.choice(rim))
        rim += neighbours[nodes[-1]]
    return sorted(nodes)


def relevance_rows(
    model: nn.Module, questions: Sequence[SubgraphQuestion], *, trials: int, limit: float
) -> list[dict[str, Any]]:
    """The time of naive GNN-LRP, sGNN-LRP by hooks, on a chain and amortized, and how far they are apart.

    A naive method fails, and is not tried any further, where one subgraph takes it longer than the limit. Once
    it has taken that long for several together, the others are left out; its row says how many there were.
    """
    with single_thread():
        rows = [
            _naive_row(NAIVE, naive_relevance, model, questions, trials, limit),
            _naive_row(ALONG, walk_by_walk_relevance, model, questions, trials, limit),
        ]
        for name, method, share in ((HOOK, _hooked, 1), (CHAIN, _chained, 1), (AMORTIZED, _amortized, MANY)):
            spent = [timed(partial(method, model, question), trials)[0] / share for question in questions]
            rows.append(_row(name, spent))
        gap = max(_difference(model, question, _hooked(model, question)) for question in questions)
    rows[2] = {**rows[2], "difference": gap}
    return rows


def other_rows(model: nn.Module, questions: Sequence[SubgraphQuestion], *, trials: int) -> list[dict[str, Any]]:
    """The time of GNNExplainer (200 epochs), the gradient heat map and CAM for the same graphs."""
    methods = dict(zip(OTHERS, (edge_masks, gradient_scores, cam_scores), strict=True))
    rows = []
    with single_thread():
        for name, method in methods.items():
            spent = []
            for question in questions:
                target = torch.tensor([question.target])
                spent.append(timed(partial(method, model, question.graph, target), trials)[0])
            rows.append(_row(name, spent))
    return rows


def timed(call: Callable[[], T], trials: int) -> tuple[float, T]:
    """Seconds of processor time of a call, and what it returned.

    The median of the trials, of as many more as fit into a twentieth of a second, after a first call that warms up.
    What takes more than half a second is not warmed up, and is timed once.
    """
    first, value = _once(call)
    if first > 0.5:
        return first, value
    spent = [_once(call)[0] for _ in range(max(trials, min(15, int(0.05 / max(first, 1e-6)))))]
    return statistics.median(spent), value


def _once(call: Callable[[], T]) -> tuple[float, T]:
    begun = time.process_time()
    value = call()
    return time.process_time() - begun, value


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread, so that processor time is the time one would wait on an idle machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _naive_row(
    name: str,
    method: Callable[..., Enumerated],
    model: nn.Module,
    questions: Sequence[SubgraphQuestion],
    trials: int,
    limit: float,
) -> dict[str, Any]:
    spent: list[float] = []
    passes: list[int] = []
    worst = 0.0
    for q in questions:
        seconds, found = timed(partial(method, model, q.graph, q.target, q.subgraph, limit=limit), trials)
        if not found.finished:
            failed = {"ms": None, "failed": True, "passes": found.passes, "difference": worst or None}
            return {**_row(name, spent), **failed}
        spent.append(seconds)
        passes.append(found.passes)
        worst = max(worst, _difference(model, q, found.relevance))
        if sum(spent) > limit:
            break
    return {**_row(name, spent), "passes": statistics.mean(passes), "difference": worst}


def _row(method: str, seconds: Sequence[float]) -> dict[str, Any]:
    """Mean milliseconds and their standard deviation."""
    ms = [1000 * s for s in seconds]
    spread = statistics.stdev(ms) if len(ms) > 1 else None
    mean = statistics.mean(ms) if ms else None
    return {"method": method, "ms": mean, "spread": spread, "samples": len(ms), "failed": False}


def _hooked(model: nn.Module, q: SubgraphQuestion) -> float:
    return hooked_relevance(model, q.graph, q.target, q.subgraph)


def _chained(model: nn.Module, q: SubgraphQuestion) -> float:
    return float(_relevance_of(model, q, [q.subgraph])[0])


def _amortized(model: nn.Module, q: SubgraphQuestion) -> Tensor:
    return _relevance_of(model, q, q.others)


def _relevance_of(model: nn.Module, q: SubgraphQuestion, subgraphs: list[list[int]]) -> Tensor:
    chain = trace(model, q.graph.x, q.graph.edge_index, target=q.target, rule="gamma")
    return subgraph_relevance(chain, subgraphs)


def _difference(model: nn.Module, q: SubgraphQuestion, relevance: float) -> float:
    """How far a relevance of the subgraph is from the chain's, as a share of the whole graph's."""
    chain = trace(model, q.graph.x, q.graph.edge_index, target=q.target, rule="gamma")
    return abs(relevance - float(subgraph_relevance(chain, [q.subgraph])[0])) / (abs(chain.input_relevance) or 1.0)
