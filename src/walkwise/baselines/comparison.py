"""Explainers side by side: any of them, on any model and data set, by any of the measures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from walkwise.baselines.attribution import Explanation, node_order, node_scores, takes_alpha
from walkwise.baselines.registry import Explain, available_baselines, baseline, is_trained
from walkwise.core.lazy import cached_property
from walkwise.errors import InputError, WalkwiseError, unknown
from walkwise.evaluation import (
    Motif,
    activation_along,
    fidelities,
    mean_and_error,
    motif_accuracy,
    motif_auroc,
    pruning_along,
    scores_of_order,
)
from walkwise.evaluation.inputs import graph_list
from walkwise.evaluation.outputs import check_on
from walkwise.evaluation.predictions import Prediction, predict
from walkwise.questions.subgraphs import as_discounts
from walkwise.search.orders import DISCOUNTS


@dataclass(frozen=True)
class Row:
    """One method under one measure."""

    method: str
    alpha: float | None  # None where the method knows no steps to discount
    metric: str
    mean: float
    standard_error: float
    graphs: int  # how many could be explained
    seconds: float  # per graph, to explain it and to order its nodes
    note: str = ""  # how long the method was trained, why graphs were left out
    training_seconds: float = 0.0  # spent once, before the first graph; not part of ``seconds``


@dataclass(frozen=True, eq=False)
class Explained:
    """One explanation of one prediction, as the measures see it."""

    prediction: Prediction
    explanation: Explanation
    alpha: float
    motif: Motif | None
    on: str
    sparsity: float

    @cached_property
    def activation_order(self) -> Tensor:
        """The nodes, most important first.  # (M,)"""
        return node_order(self.explanation, "activation", alpha=self.alpha)

    @cached_property
    def pruning_order(self) -> Tensor:
        """The nodes, least important first.  # (M,)"""
        return node_order(self.explanation, "pruning", alpha=self.alpha)

    @property
    def scores(self) -> Tensor:
        """A score per node: the method's own, or by the place in the activation order.  # (M,)"""
        own = not takes_alpha(self.explanation)
        return node_scores(self.explanation) if own else scores_of_order(self.activation_order)

    @property
    def top(self) -> list[int]:
        """The most important nodes that the sparsity leaves room for, one at least."""
        keep = max(1, math.floor((1 - self.sparsity) * self.prediction.num_nodes + 1e-9))
        nodes: list[int] = self.activation_order[:keep].tolist()
        return nodes

    @property
    def truth(self) -> Motif:
        """The known motif."""
        if self.motif is None:
            raise InputError(
                "Accuracy and AUROC need the motif of every graph.",
                argument="motif",
                expected="a function of the graph",
                remedy="Give motif=<a function of the graph>.",
            )
        return self.motif


#: A measure of one explanation.
Metric = Callable[[Explained], float]

METRICS: Mapping[str, Metric] = {
    "auac": lambda e: activation_along(e.prediction, e.activation_order, on=e.on).area,
    "aupc": lambda e: pruning_along(e.prediction, e.pruning_order, on=e.on).area,
    "fidelity+": lambda e: fidelities(e.prediction, e.top, on=e.on)[0],
    "fidelity-": lambda e: fidelities(e.prediction, e.top, on=e.on)[1],
    "accuracy": lambda e: motif_accuracy(e.activation_order, e.truth),
    "auroc": lambda e: motif_auroc(e.scores, e.truth),
}


def compare(
    methods: str | Sequence[str] | Mapping[str, str | Explain],
    model: nn.Module,
    graphs: Iterable[Data],
    *,
    metrics: str | Sequence[str] | Mapping[str, Metric] = ("auac", "aupc"),
    alphas: float | Iterable[float] = (DISCOUNTS["activation"],),
    target: int | str | Callable[[Data], int | str] | None = None,
    index: int | Callable[[Data], int] | None = None,
    motif: Callable[[Data], Motif] | None = None,
    on: str = "logit",
    sparsity: float = 0.8,
    train_graphs: Iterable[Data] | None = None,
    seed: int = 0,
    progress: bool = False,
) -> tuple[Row, ...]:
    """The mean, standard error and time of every method under every measure.

    A graph that a method cannot explain (too many walks to list, no attention in the model) is left out of
    its mean, and the row's note says so. A method that is trained first takes its time for that once, whatever the
    number of graphs: it stands apart in ``training_seconds``, and in the note. Every graph has a seed of its own, the
    same for all methods; the caller's random numbers are left alone.

    Args:
        methods: one name or several of :func:`available_baselines`, or labels with names or functions of a
            Prediction.
        model: the model to explain.
        graphs: the data set, one graph at least.
        metrics: one or several of "auac", "aupc", "fidelity+", "fidelity-", "accuracy", "auroc", or labels with
            functions of an Explained.
        alphas: the discount or discounts to order nodes with, where a method attributes walks or edges.
        target: the output column, or a function of the graph (``lambda data: int(data.y)``); default: the largest.
        index: the output row of a node-level model, or a function of the graph.
        motif: the known motif of a graph, one or several, for accuracy and AUROC.
        on: "logit" or "probability", what the curves and fidelities follow.
        sparsity: how much of the graph the fidelities' explanation leaves out, between 0 and 1.
        train_graphs: what learning methods learn from (default: the graphs themselves).
        seed: where the random numbers of the first graph start.
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

    def predictions(data_set: Iterable[Data], name: str) -> list[tuple[Data, Prediction]]:
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
    """What it took to train a method."""

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
    """What one method has scored so far."""

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
        """What a reader of the row should know besides its numbers."""
        trained, failed = self.training, self.failed
        notes = [f"trained first, {trained.seconds:.3g} s on {_graphs(trained.graphs)}"] if trained else []
        notes += [f"{len(failed)} left out: {failed[0]}"] if failed else []
        return "; ".join(notes)


def to_markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table: a line per method and α, a column per measure.

    Where a method was trained, a last column says how long that took, in all and not per graph.

    >>> print(to_markdown([Row("lrp", None, "auac", 1.25, 0.1, 8, 0.002)]))
    | method | α | auac | graphs | s / graph |
    | --- | --- | --- | --- | --- |
    | lrp | | 1.25 ± 0.1 | 8 | 0.002 |
    >>> print(to_markdown([Row("pgexplainer", 0.0, "auac", 1.25, 0.1, 8, 0.002, training_seconds=31.0)]))
    | method | α | auac | graphs | s / graph | s to train |
    | --- | --- | --- | --- | --- | --- |
    | pgexplainer | 0 | 1.25 ± 0.1 | 8 | 0.002 | 31 |
    """
    names = list(dict.fromkeys(row.metric for row in rows))
    lines: dict[tuple[str, float | None], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault((row.method, row.alpha), {})[row.metric] = row
    train = ["s to train"] if any(row.training_seconds for row in rows) else []
    head = ["method", "α", *names, "graphs", "s / graph", *train]
    table = [head, ["---"] * len(head)]
    for (method, alpha), found in lines.items():
        cells = [f"{found[n].mean:.4g} ± {found[n].standard_error:.2g}" if n in found else "" for n in names]
        one = next(iter(found.values()))
        cells += [str(one.graphs), f"{one.seconds:.3g}"]
        cells += [f"{one.training_seconds:.3g}" if one.training_seconds else ""] if train else []
        table.append([method, "" if alpha is None else f"{alpha:g}", *cells])
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in table)


def to_pandas(rows: Sequence[Row]) -> Any:
    """The rows as a pandas data frame, one line per row; pandas is yours to install.

    >>> import pytest
    >>> pandas = pytest.importorskip("pandas")
    >>> frame = to_pandas([Row("lrp", None, "auac", 1.25, 0.1, 8, 0.002)])
    >>> frame[["method", "metric", "mean"]].values.tolist()
    [['lrp', 'auac', 1.25]]
    """
    return import_module("pandas").DataFrame([vars(row) for row in rows])


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
            argument="sparsity", expected="the part of the graph that is left out, between 0 and 1", got=sparsity
        )


def _graphs(count: int) -> str:
    return f"{count} graph" if count == 1 else f"{count} graphs"


def _of(choice: Any, data: Data) -> Any:
    """What was asked for, the same for every graph or a function of it."""
    return choice(data) if callable(choice) else choice


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers from a seed inside; afterwards they go on as if nothing had happened."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
