"""Explainers side by side: any of them, on any model and data set, by any of the measures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData

from walkwise.baselines.attribution import takes_alpha
from walkwise.baselines.measures import METRICS, Explained, Metric
from walkwise.baselines.registry import Explain, available_baselines, baseline, is_trained
from walkwise.baselines.tables import Row
from walkwise.core.node_types import TypedNode
from walkwise.display import count
from walkwise.errors import InputError, WalkwiseError, unknown
from walkwise.evaluation import Motif, mean_and_error
from walkwise.evaluation.inputs import graph_list
from walkwise.evaluation.outputs import check_on
from walkwise.evaluation.predictions import Prediction, predict
from walkwise.questions.subgraphs import as_discounts
from walkwise.search.orders import DISCOUNTS

AnyGraph = Data | HeteroData


def compare(
    methods: str | Sequence[str] | Mapping[str, str | Explain],
    model: nn.Module,
    graphs: Iterable[AnyGraph],
    *,
    metrics: str | Sequence[str] | Mapping[str, Metric] = ("auac", "aupc"),
    alphas: float | Iterable[float] = (DISCOUNTS["activation"],),
    target: int | str | Callable[[AnyGraph], int | str] | None = None,
    index: int | TypedNode | Callable[[AnyGraph], int | TypedNode | None] | None = None,
    motif: Callable[[AnyGraph], Motif] | None = None,
    on: str = "logit",
    sparsity: float = 0.8,
    train_graphs: Iterable[AnyGraph] | None = None,
    seed: int = 0,
    progress: bool = False,
) -> tuple[Row, ...]:
    """Compare explainers: return the mean, standard error and time of every method under every measure.

    A graph that a method cannot explain (too many walks to list, no attention in the model) is left out of
    its mean, and the row's note says so. A method that is trained first needs its training time only once, whatever the
    number of graphs; it is reported separately in ``training_seconds``, and in the note. Every graph has its own seed,
    the same for all methods; the caller's random state does not change.

    Args:
        methods: one name or several of :func:`available_baselines`, or labels with names or functions of a
            Prediction.
        model: the model to explain.
        graphs: the data set, at least one graph; heterogeneous graphs, too, which explainers that mask edges skip.
        metrics: one or several of "auac", "aupc", "fidelity+", "fidelity-", "accuracy", "auroc", or labels with
            functions of an Explained.
        alphas: the discount or discounts for node orders, if a method scores walks or edges.
        target: the output column, or a function of the graph (``lambda data: int(data.y)``); default: the largest.
        index: the output row of a node-level model, (type, i) for a heterogeneous graph, or a function of the graph.
        motif: the known motif of a graph, one or several, for accuracy and AUROC.
        on: whether curves and fidelities follow the "logit" or the "probability".
        sparsity: how much of the graph the fidelities' explanation leaves out, between 0 and 1.
        train_graphs: the graphs that trained methods learn from (default: the graphs themselves).
        seed: the seed of the first graph.
        progress: show a bar.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> graph = Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> rows = compare(["random", "sgnn-lrp"], model, [graph], index=1, metrics=["auac"])
    >>> [(row.method, row.metric, row.graphs) for row in rows]
    [('random', 'auac', 1), ('sgnn-lrp', 'auac', 1)]
    """
    from tqdm.auto import tqdm

    check_on(on)
    labels, measures, discounts = _labelled(methods), _measures(metrics), _discounts(alphas)
    _check_sparsity(sparsity)

    def predictions(data_set: Iterable[AnyGraph], name: str) -> list[tuple[AnyGraph, Prediction]]:
        listed = graph_list(data_set, name)
        return [(data, predict(model, data, target=_of(target, data), index=_of(index, data))) for data in listed]

    explained = predictions(graphs, "graphs")
    taught = [p for _, p in (explained if train_graphs is None else predictions(train_graphs, "train_graphs"))]
    bar = tqdm(total=len(labels) * len(explained), disable=not progress, leave=False)
    rows: list[Row] = []
    for label, method in labels.items():
        with _seeded(seed):
            explain, training = _ready(method, taught)
        tally = _Tally(label, training)
        for number, (data, prediction) in enumerate(explained):
            known = None if motif is None else motif(data)
            with _seeded(seed + number):
                tally.add(explain, prediction, discounts, measures, known, on, sparsity)
            bar.update()
        rows.extend(tally.rows(measures))
    bar.close()
    return tuple(rows)


@dataclass(frozen=True)
class _Training:
    """The cost of training a method."""

    seconds: float
    graphs: int


def _ready(method: str | Explain, taught: Sequence[Prediction]) -> tuple[Explain, _Training | None]:
    """The explainer, trained if it learns at all."""
    if not isinstance(method, str):
        return method, None
    start = time.perf_counter()
    explain = baseline(method, taught)
    spent = time.perf_counter() - start
    return explain, _Training(spent, len(taught)) if is_trained(method) else None


class _Tally:
    """The scores of one method so far."""

    def __init__(self, method: str, training: _Training | None) -> None:
        self.method = method
        self.training = training
        self.scores: dict[tuple[float | None, str], list[float]] = {}
        self.seconds: dict[float | None, list[float]] = {}
        self.failed: list[str] = []

    def add(
        self,
        explain: Explain,
        prediction: Prediction,
        alphas: Sequence[float],
        measures: Mapping[str, Metric],
        motif: Motif | None,
        on: str,
        sparsity: float,
    ) -> None:
        """Explain one prediction, and measure it with every α."""
        start = time.perf_counter()
        try:
            explanation = explain(prediction)
        except WalkwiseError as error:
            self.failed.append(str(error))
            return
        spent = time.perf_counter() - start
        for alpha in alphas if takes_alpha(explanation) else [None]:
            explained = Explained(prediction, explanation, alpha or 0.0, motif, on, sparsity)
            start = time.perf_counter()
            _ = explained.activation_order
            self.seconds.setdefault(alpha, []).append(spent + time.perf_counter() - start)
            for name, measure in measures.items():
                self.scores.setdefault((alpha, name), []).append(measure(explained))

    def rows(self, measures: Mapping[str, Metric]) -> Iterator[Row]:
        """The means over all graphs."""
        note, training = self._note(), self.training.seconds if self.training else 0.0
        for (alpha, name), scores in self.scores.items():
            mean, error = mean_and_error(torch.tensor(scores, dtype=torch.float64))
            seconds = sum(self.seconds[alpha]) / len(self.seconds[alpha])
            yield Row(self.method, alpha, name, float(mean), float(error), len(scores), seconds, note, training)
        if not self.scores:
            for name in measures:
                yield Row(self.method, None, name, math.nan, math.nan, 0, math.nan, note, training)

    def _note(self) -> str:
        """A note for the reader of the row."""
        trained, failed = self.training, self.failed
        notes = [f"trained first, {trained.seconds:.3g} s on {count(trained.graphs, 'graph')}"] if trained else []
        notes += [f"{len(failed)} left out: {failed[0]}"] if failed else []
        return "; ".join(notes)


def _labelled(methods: str | Sequence[str] | Mapping[str, str | Explain]) -> Mapping[str, str | Explain]:
    if isinstance(methods, Mapping):
        _check_known([method for method in methods.values() if not callable(method)], "baseline", available_baselines())
        return methods
    names = _listed(methods, "methods")
    _check_known(names, "baseline", available_baselines())
    return {name: name for name in names}


def _measures(metrics: str | Sequence[str] | Mapping[str, Metric]) -> Mapping[str, Metric]:
    if isinstance(metrics, Mapping):
        return metrics
    names = _listed(metrics, "metrics")
    _check_known(names, "metric", METRICS)
    return {name: METRICS[name] for name in names}


def _listed(given: Any, what: str) -> list[Any]:
    """One name or several."""
    single = isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0
    names = [given] if single else list(given)
    if not names:
        raise InputError(
            f"{what} is empty.", argument=what, expected="at least one name", remedy="Give at least one name."
        )
    if callable(names[0]):
        raise InputError(
            f"A function must be given under a label, got {names[0]!r}.",
            argument=what,
            expected="names, or a dictionary of functions",
            got=names[0],
            remedy=f"Write {what}={{'mine': it}}.",
        )
    return names


def _check_known(names: Sequence[Any], what: str, valid: Iterable[str]) -> None:
    wrong = [name for name in names if not isinstance(name, str) or name not in valid]
    if wrong:
        raise unknown(what, wrong[0], valid, argument=f"{what}s")


def _discounts(alphas: float | Iterable[float]) -> tuple[float, ...]:
    discounts = as_discounts(alphas)
    if not discounts:
        raise InputError(
            "alphas is empty; give at least one discount between 0 and 1, as in [0.0].",
            argument="alphas",
            expected="at least one discount between 0 and 1",
        )
    return discounts


def _check_sparsity(sparsity: Any) -> None:
    if not isinstance(sparsity, Real) or not 0 <= float(sparsity) <= 1:
        raise InputError(
            argument="sparsity", expected="the share of the graph that is left out, between 0 and 1", got=sparsity
        )


def _of(choice: Any, data: AnyGraph) -> Any:
    """An option's value for a graph: the same for every graph, or a function of it."""
    return choice(data) if callable(choice) else choice


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw random numbers from a seed inside; afterwards restore the random state."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
