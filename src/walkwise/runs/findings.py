"""The findings of a run over a whole data set: means per class with confidence intervals, patterns, and oddities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

#: How many standard errors the ends of a 95 % confidence interval are from the mean.
_ENDS = 1.96

Tables = Mapping[str, pd.DataFrame]


def of_kind(tables: Tables, kind: str) -> pd.DataFrame | None:
    """The table of the first question of a kind, or None."""
    return next((table for name, table in tables.items() if name.partition(":")[0] == kind), None)


def keys_of(table: pd.DataFrame) -> list[str]:
    """The key columns of rows: the graph, and perhaps the explained node."""
    return [key for key in ("graph", "index") if key in table]


def explained_graphs(tables: Tables) -> pd.DataFrame:
    """The graphs that did not fail."""
    graphs = tables["graphs"]
    return graphs[graphs.error.isna()]


def mean_with_interval(values: pd.Series) -> tuple[float, float]:
    """A mean, and half the width of its 95 % confidence interval, which is NaN for a single value.

    >>> mean, half = mean_with_interval(pd.Series([1.0, 2.0, 6.0]))
    >>> mean, round(half, 3)
    (3.0, 2.994)
    """
    count = len(values)
    half = _ENDS * float(values.std(ddof=1)) / np.sqrt(count) if count > 1 else np.nan
    return float(values.mean()), float(half)


def by_kind(tables: Tables) -> pd.DataFrame:
    """Mean node relevance by kind and explained class, over the graphs that have the kind.

    The columns are ``target``, ``kind``, ``graphs``, ``nodes``, ``mean`` and ``half``. An interval over graphs is
    honest, while one over nodes is not, because the nodes of a graph are not independent.

    Args:
        tables: the result of :func:`walkwise.runs.read`.
    """
    nodes = tables.get("nodes")
    if nodes is None or nodes.kind.isna().all():
        return pd.DataFrame(columns=["target", "kind", "graphs", "nodes", "mean", "half"])
    keys, graphs = keys_of(nodes), explained_graphs(tables)
    merged = nodes.dropna(subset=["kind"]).merge(graphs[[*keys, "target"]], on=keys)
    per_graph = merged.groupby([*keys, "target", "kind"]).relevance.agg(["mean", "size"]).reset_index()
    rows = []
    for (target, kind), some in per_graph.groupby(["target", "kind"]):
        mean, half = mean_with_interval(some["mean"])
        rows.append((target, kind, len(some), int(some["size"].sum()), mean, half))
    return pd.DataFrame(rows, columns=["target", "kind", "graphs", "nodes", "mean", "half"])


def by_pattern(tables: Tables, kind: str) -> pd.DataFrame:
    """Groups, or found subgraphs up to isomorphism, by explained class.

    The columns are ``target``, ``pattern``, ``graphs`` (that have it), ``frequency`` (their share of the class),
    ``mean`` and ``half`` (its relevance in them), ``effect`` and ``effect_half`` (how far the output falls when it is
    removed), ``weight`` (relevance × frequency, by which they are ranked), of subgraphs ``alone`` (how often the model
    predicts the class for the subgraph by itself), and of graphs with labels ``right`` (the share of those that have it
    whose label is the class), ``base`` (that share among all graphs of the class), ``doubt`` (by how many standard
    errors the first falls short of the second).

    Args:
        tables: the result of :func:`walkwise.runs.read`.
        kind: "subgraph" or "groups".
    """
    columns = ["target", "pattern", "graphs", "frequency", "mean", "half", "effect", "effect_half", "weight"]
    columns += ["alone", "right", "base", "doubt", "example"]
    found = of_kind(tables, kind)
    if found is None or not len(found):
        return pd.DataFrame(columns=columns)
    name = "pattern" if kind == "subgraph" else "group"
    keys, graphs = keys_of(found), explained_graphs(tables)
    merged = found.merge(graphs[[*keys, "target", "label"]], on=keys)
    rows = []
    for target, ours in merged.groupby("target"):
        of_class = graphs[graphs.target == target]
        base = float((of_class.label == target).mean()) if of_class.label.notna().all() else np.nan
        for pattern, some in ours.groupby(name):
            mean, half = mean_with_interval(some.relevance)
            effect, effect_half = mean_with_interval(some.effect)
            share = len(some) / len(of_class)
            alone = float((some.alone == target).mean()) if "alone" in some else np.nan
            right = float((some.label == target).mean()) if not np.isnan(base) else np.nan
            best = int(some.relevance.to_numpy().argmax())
            numbers = (len(some), share, mean, half, effect, effect_half, mean * share)
            doubt, example = _doubt(right, base, len(some)), tuple(some.iloc[best][keys])
            rows.append((target, pattern, *numbers, alone, right, base, doubt, example))
    return pd.DataFrame(rows, columns=columns).sort_values(["target", "weight"], ascending=[True, False])


def _doubt(right: float, base: float, count: int) -> float:
    """By how many standard errors a share falls short of the overall share."""
    if np.isnan(right) or base in (0, 1):
        return 0.0
    return float((base - right) / np.sqrt(base * (1 - base) / count))


def cues_in_doubt(patterns: pd.DataFrame, *, least: int = 5) -> pd.DataFrame:
    """Patterns that speak for a class although their graphs have its label less often than others: perhaps spurious.

    Args:
        patterns: the result of :func:`by_pattern`.
        least: ignore patterns in fewer graphs than this.
    """
    chosen = patterns[(patterns["mean"] > 0) & (patterns.doubt > _ENDS) & (patterns.graphs >= least)]
    return chosen.sort_values("doubt", ascending=False)


def first_to_look_at(tables: Tables, *, most: int = 20) -> pd.DataFrame:
    """The graphs that stand out, with the reason: ``graph`` (and ``index``), ``name``, ``why``, ``value``.

    These are the most confident wrong predictions; outputs mostly absorbed by biases; relevance that mostly cancels;
    and relevance that sits almost entirely on one node.

    Args:
        tables: the result of :func:`walkwise.runs.read`.
        most: how many graphs.
    """
    graphs = explained_graphs(tables)
    keys = keys_of(graphs)
    reasons = [
        ("wrong, and confident: the margin of the prediction", _surely_wrong(graphs)),
        ("most of the output is absorbed by biases: the share", _absorbed(graphs)),
    ]
    nodes = tables.get("nodes")
    if nodes is not None and len(nodes):
        by_graph = nodes.groupby(keys).relevance
        total = by_graph.apply(lambda values: values.abs().sum())
        whole = pd.Series(_sizes(graphs).to_numpy(), index=_index(graphs))
        reasons.append(("relevance mostly cancels: Σ |relevance| over |output|", _outside(total / whole)))
        alone = by_graph.apply(lambda values: values.abs().max()) / total.clip(lower=1e-12)
        reasons.append(("one node has nearly all relevance: its share", _outside(alone[by_graph.size() > 3])))
    rows: list[tuple[Any, ...]] = []
    for why, values in reasons:
        for key, value in values.head(-(-most // len(reasons))).items():
            ids = key if isinstance(key, tuple) else (key,)
            rows.append((*ids, why, float(value)))
    found = pd.DataFrame(rows, columns=[*keys, "why", "value"])
    return found.merge(graphs[[*keys, "name"]], on=keys, how="left")


def _surely_wrong(graphs: pd.DataFrame) -> pd.Series:
    """The lead of the prediction, for graphs whose label is another class; the largest first."""
    wrong = graphs[graphs.label.notna() & (graphs.label != graphs.prediction)]
    several = wrong[wrong.outputs.map(len) > 1]
    margins = [float(np.diff(np.sort(row)[-2:])[0]) for row in several.outputs]
    return pd.Series(margins, index=_index(several), dtype=float).sort_values(ascending=False)


def _absorbed(graphs: pd.DataFrame) -> pd.Series:
    share = ((graphs.output - graphs.relevance) / _sizes(graphs)).abs()
    share.index = _index(graphs)
    return share[share > 0.9].sort_values(ascending=False)


def _sizes(graphs: pd.DataFrame) -> pd.Series:
    """The size of every output, but at least half the median, since tiny outputs are no measure."""
    sizes = graphs.output.abs()
    return sizes.clip(lower=max(0.5 * float(sizes.median()), 1e-12))


def _index(graphs: pd.DataFrame) -> pd.Index:
    keys = keys_of(graphs)
    return pd.Index(graphs[keys[0]]) if len(keys) == 1 else pd.MultiIndex.from_frame(graphs[keys])


def _outside(values: pd.Series) -> pd.Series:
    """Values far above the rest: beyond the upper quartile by three times the interquartile range."""
    low, high = values.quantile(0.25), values.quantile(0.75)
    return values[values > high + 3 * (high - low)].sort_values(ascending=False)


def failures(tables: Tables) -> list[tuple[str, int, str]]:
    """The errors, how often each occurred, and an example graph; the most frequent first."""
    graphs = tables["graphs"]
    bad = graphs[graphs.error.notna()]
    counted = bad.groupby("error").name.agg(["size", "first"]).sort_values("size", ascending=False)
    return [(str(error), int(row["size"]), str(row["first"])) for error, row in counted.iterrows()]


def class_title(target: float, class_names: Sequence[str]) -> str:
    """The name of a class.

    >>> class_title(1, ["cycle", "house"]), class_title(2, [])
    ('house', 'output 2')
    """
    column = int(target)
    return class_names[column] if 0 <= column < len(class_names) else f"output {column}"
