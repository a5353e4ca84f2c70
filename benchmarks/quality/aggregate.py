"""From single measurements to means, paired differences, ranks and choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000

Key = tuple[str, int, int]  # design, seed, graph
#: task → method → graph → measure → value
Results = Mapping[str, Mapping[str, Mapping[Key, Mapping[str, float | None]]]]
Values = Mapping[Key, float]


def values_of(results: Results, task: str, method: str, measure: str) -> dict[Key, float]:
    """A measure of a method on a task, where it has one."""
    found = results.get(task, {}).get(method, {})
    return {key: float(v) for key, row in found.items() if (v := row.get(measure)) is not None}


def by_run(values: Values) -> dict[tuple[str, int], np.ndarray]:
    """The values of every trained model, apart: graphs of one model have much in common."""
    runs: dict[tuple[str, int], list[float]] = {}
    for design, seed, graph in sorted(values):
        runs.setdefault((design, seed), []).append(values[design, seed, graph])
    return {run: np.array(found) for run, found in runs.items()}


def mean(values: Values) -> float:
    """The mean over models of the mean over graphs: every model counts alike."""
    return float(np.mean([run.mean() for run in by_run(values).values()]))


def differences(first: Values, second: Values) -> dict[Key, float]:
    """first − second, on graphs that both have."""
    return {key: first[key] - second[key] for key in first.keys() & second.keys()}


def bootstrap(values: Values, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Means of samples drawn again: models with replacement, then graphs of each with replacement.  # (B,)"""
    runs = list(by_run(values).values())
    random = np.random.default_rng(seed)
    sizes = np.array([len(run) for run in runs])
    padded = np.zeros((len(runs), sizes.max()))
    for i, run in enumerate(runs):
        padded[i, : len(run)] = run
    means = np.empty(resamples)
    for b in range(resamples):
        chosen = random.integers(len(runs), size=len(runs))
        places = (random.random((len(runs), sizes.max())) * sizes[chosen, None]).astype(int)
        inside = np.arange(sizes.max()) < sizes[chosen, None]
        means[b] = ((padded[chosen[:, None], places] * inside).sum(1) / sizes[chosen]).mean()
    return means


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap confidence interval of 95 %."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, mean: float, draws: np.ndarray) -> Interval:
        low, high = np.quantile(draws, [0.025, 0.975])
        return cls(mean, float(low), float(high))


def interval(values: Values) -> Interval:
    """The mean of some values, and where it could lie."""
    return Interval.of(mean(values), bootstrap(values))


@dataclass(frozen=True)
class Standing:
    """Where a method stands on one task."""

    method: str
    mean: float  # brought to all graphs, where the method has seen fewer
    rank: float | None  # 1 is best; none where the method answered for less than half of the models
    behind: Interval | None  # the first's lead over it, on common graphs; none for the first and where none are common
    runs: int
    graphs: int

    @property
    def tied(self) -> bool:
        """First, or not significantly behind the first."""
        return self.rank is not None and (self.behind is None or self.behind.low <= 0)


def standings(results: Results, task: str, measure: str = "auroc", methods: Iterable[str] = ()) -> list[Standing]:
    """Every method on one task, best first."""
    names = list(methods) or list(results[task])
    values = {name: found for name in names if (found := values_of(results, task, name, measure))}
    if not values:
        return []
    means = comparable_means(values)
    runs = {name: len(by_run(found)) for name, found in values.items()}
    ranked = [name for name in values if 2 * runs[name] >= max(runs.values())]
    first = max(ranked, key=lambda name: means[name])
    ranks = dict(zip(ranked, ranks_of([means[name] for name in ranked]), strict=True))
    found = []
    for name in sorted(values, key=lambda name: -means[name]):
        apart = differences(values[first], values[name])
        behind = None if name == first or not apart else interval(apart)
        found.append(Standing(name, means[name], ranks.get(name), behind, runs[name], len(values[name])))
    return found


def comparable_means(values: Mapping[str, Values]) -> dict[str, float]:
    """The mean of every method as if all had seen the graphs of the one that has seen most.

    A slow method sees few graphs, which may be easy ones: it gets the mean of a method that has seen all, plus
    what it is ahead of that one where both have answers.
    """
    most = max(values, key=lambda name: (len(values[name]), mean(values[name])))
    level = mean(values[most])
    means = {}
    for name, found in values.items():
        apart = differences(found, values[most])
        fewer = apart and found.keys() != values[most].keys()
        means[name] = level + mean(apart) if fewer else mean(found)
    return means


def ranks_of(values: Sequence[float]) -> list[float]:
    """Ranks from 1 for the largest; equal ones share the mean of their places.

    >>> ranks_of([0.5, 0.9, 0.5])
    [2.5, 1.0, 2.5]
    """
    array = np.asarray(values)
    return [float((array > v).sum() + ((array == v).sum() + 1) / 2) for v in array]


@dataclass(frozen=True)
class Overall:
    """A method over all tasks of a part."""

    method: str
    mean: float  # over tasks, every task alike
    worst: float
    rank: float
    first_or_tied: int
    tasks: int


def overall(table: Mapping[str, Sequence[Standing]]) -> list[Overall]:
    """Every method that is ranked on all tasks, best mean rank first."""
    rows: dict[str, list[Standing]] = {}
    for found in table.values():
        for standing in found:
            if standing.rank is not None:
                rows.setdefault(standing.method, []).append(standing)
    complete = {name: found for name, found in rows.items() if len(found) == len(table)}
    summary = [
        Overall(
            name,
            float(np.mean([s.mean for s in found])),
            min(s.mean for s in found),
            float(np.mean([s.rank for s in found])),
            sum(s.tied for s in found),
            len(found),
        )
        for name, found in complete.items()
    ]
    return sorted(summary, key=lambda row: (row.rank, -row.mean))


@dataclass(frozen=True)
class Race:
    """How one method fares against some others, over tasks."""

    method: str
    tied: tuple[str, ...]  # the tasks on which it is first or not significantly behind the first
    firsts: Mapping[str, str]  # task → who is first
    rank: float  # mean over tasks
    next: tuple[str, float]  # of the others, the one with the best mean rank
    least: float  # the lowest share of the first's mean that it reaches on a task


def race(
    results: Results, tasks: Sequence[str], method: str, others: Sequence[str], measure: str = "auroc"
) -> Race | None:
    """A method among others; None where it has no values on one of the tasks. Others without values do not run."""
    tied, firsts, shares = [], {}, []
    ranks: dict[str, list[float]] = {}
    for task in tasks:
        names = [method, *(name for name in others if name != method)]
        values = {name: found for name in names if (found := values_of(results, task, name, measure))}
        if method not in values:
            return None
        most = max(len(by_run(found)) for found in values.values())
        values = {name: found for name, found in values.items() if 2 * len(by_run(found)) >= most}
        means = comparable_means(values)
        first = max(means, key=lambda name: means[name])
        firsts[task] = first
        shares.append(means[method] / means[first])
        if first == method or interval(differences(values[first], values[method])).low <= 0:
            tied.append(task)
        for name, rank in zip(means, ranks_of(list(means.values())), strict=True):
            ranks.setdefault(name, []).append(rank)
    mean_ranks = {name: float(np.mean(found)) for name, found in ranks.items() if len(found) == len(tasks)}
    own = mean_ranks.pop(method)
    best = min(mean_ranks, key=lambda name: mean_ranks[name])
    return Race(method, tuple(tied), firsts, own, (best, mean_ranks[best]), min(shares))


@dataclass(frozen=True)
class Choice:
    """A candidate for the default, over the validation tasks."""

    method: str
    mean: float
    behind: Interval | None  # none for the first
    worst: float
    magnitude: float  # the 95th percentile of Σ|R| / |output|


def choose(results: Results, tasks: Sequence[str], methods: Sequence[str], measure: str = "auroc") -> list[Choice]:
    """The candidates by their mean over tasks, best first; only those with values on every task."""
    values = {name: [values_of(results, task, name, measure) for task in tasks] for name in methods}
    complete = {name: found for name, found in values.items() if found and all(found)}
    if not complete:
        return []
    means = {name: [mean(v) for v in found] for name, found in complete.items()}
    first = max(complete, key=lambda name: np.mean(means[name]))
    choices = []
    for name, found in complete.items():
        behind = None
        if name != first:
            apart = [differences(a, b) for a, b in zip(complete[first], found, strict=True)]
            draws = np.mean([bootstrap(d, seed=i) for i, d in enumerate(apart)], axis=0)
            behind = Interval.of(float(np.mean([mean(d) for d in apart])), draws)
        sizes = [v for task in tasks for v in values_of(results, task, name, "magnitude").values()]
        large = float(np.quantile(sizes, 0.95)) if sizes else float("nan")
        choices.append(Choice(name, float(np.mean(means[name])), behind, min(means[name]), large))
    return sorted(choices, key=lambda choice: -choice.mean)
