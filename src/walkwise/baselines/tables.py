"""The results of a comparison: as rows, as Markdown and as a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


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


def to_markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table: a line per method and α, a column per measure.

    If a method was trained, a last column gives the total time for that, not the time per graph.

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
