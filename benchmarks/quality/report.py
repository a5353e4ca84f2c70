"""The results as Markdown tables: losses as plainly as wins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from quality.aggregate import Choice, Interval, Overall, Race, Results, Standing, mean, race, values_of

OURS = ("order", "pruning", "visits", "alone", "shapley", "best subgraph", "lrp", "sgnn-lrp", "gnn-lrp")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def is_ours(method: str) -> bool:
    return method.split(",")[0] in OURS


def told(method: str) -> str:
    """A method's name, bold where the library's own questions are asked."""
    return f"**{method}**" if is_ours(method) else method


def number(value: float, digits: int = 3) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.2g}"


def lead(behind: Interval | None) -> str:
    return "first" if behind is None else f"{behind.mean:.3f} [{behind.low:.3f}, {behind.high:.3f}]"


def over_tasks(results: Results, tasks: Sequence[str], method: str, measure: str) -> float:
    """The mean over tasks of a measure, over those tasks where the method has it."""
    found = [v for task in tasks if (v := values_of(results, task, method, measure))]
    return float(np.mean([mean(v) for v in found])) if found else math.nan


def magnitude(results: Results, tasks: Sequence[str], method: str) -> str:
    """Median and 95th percentile of Σ|R| / |output|."""
    found = [v for task in tasks for v in values_of(results, task, method, "magnitude").values()]
    return f"{number(float(np.median(found)), 1)} / {number(float(np.quantile(found, 0.95)), 1)}" if found else ""


def summary(results: Results, tasks: Sequence[str], rows: Sequence[Overall]) -> str:
    """One line per method over all tasks of a part."""
    header = ["method", "mean rank", "first or tied", "AUROC", "worst task", "Jaccard"]
    header += ["fidelity+", "fidelity−", "characterisation", "Σ abs R / abs y, median / 95 %", "ms"]
    lines = []
    for row in rows:
        others = ("jaccard", "fidelity_plus", "fidelity_minus", "characterisation")
        cells = [number(over_tasks(results, tasks, row.method, measure)) for measure in others]
        seconds = over_tasks(results, tasks, row.method, "seconds")
        place = [f"{row.rank:.1f}", f"{row.first_or_tied} / {row.tasks}", number(row.mean), number(row.worst)]
        cost = [magnitude(results, tasks, row.method), f"{1e3 * seconds:.3g}"]
        lines.append([told(row.method), *place, *cells, *cost])
    return table(header, lines)


def by_task(standings: Mapping[str, Sequence[Standing]], rows: Sequence[Overall]) -> str:
    """AUROC of every method on every task; bold is first or not significantly behind the first."""
    cells = {(task, s.method): s for task, found in standings.items() for s in found}
    lines = [["models explained", *(str(max(s.runs for s in found)) for found in standings.values())]]
    for row in rows:
        found = [cells[task, row.method] for task in standings]
        lines.append([row.method, *(f"**{s.mean:.3f}**" if s.tied else f"{s.mean:.3f}" for s in found)])
    return table(["method", *standings], lines)


def leads(standings: Mapping[str, Sequence[Standing]], methods: Sequence[str]) -> str:
    """For every task who is first, and how far some methods are behind, with their intervals."""
    lines = []
    for task, found in standings.items():
        first = next(s for s in found if s.rank is not None and s.behind is None)
        cells = {s.method: lead(s.behind) for s in found}
        line = [task, f"{first.method} ({first.mean:.3f})", *(cells.get(method, "") for method in methods)]
        lines.append(line)
    return table(["task", "first", *methods], lines)


def races(results: Results, tasks: Sequence[str], methods: Sequence[str], known: Iterable[str]) -> str:
    """Some of our methods, each against explainers that are not ours, and against everything."""
    rivals = {"other people's": [name for name in known if not is_ours(name)], "all": list(known)}
    found = [(who, race(results, tasks, method, names)) for method in methods for who, names in rivals.items()]
    header = ["method", "against", "first or tied", "not on", "mean rank", "the best of the others", "least share"]
    return table(header, [[told(one.method), who, *_raced(one)] for who, one in found if one is not None])


def _raced(found: Race) -> list[str]:
    lost = [f"{task} ({first})" for task, first in found.firsts.items() if task not in found.tied]
    place = f"{len(found.tied)} / {len(found.firsts)}"
    following = f"{found.next[0]} {found.next[1]:.1f}"
    return [place, ", ".join(lost) or "none", f"{found.rank:.1f}", following, number(found.least)]


def choices(found: Sequence[Choice]) -> str:
    """The candidates for the default on validation tasks."""
    lines = [[c.method, number(c.mean), lead(c.behind), number(c.worst), number(c.magnitude, 1)] for c in found]
    return table(["candidate", "AUROC", "behind the first [95 %]", "worst task", "Σ abs R / abs y, 95 %"], lines)


def partial(standings: Mapping[str, Sequence[Standing]], rows: Sequence[Overall]) -> str:
    """Methods that are not ranked on all tasks: where they have answers, and their lead or loss there."""
    complete = {row.method for row in rows}
    lines = []
    for task, found in standings.items():
        for s in found:
            if s.method not in complete:
                lines.append([told(s.method), task, number(s.mean), lead(s.behind), str(s.runs), str(s.graphs)])
    lines.sort()
    return table(["method", "task", "AUROC", "behind the first", "models", "graphs"], lines) if lines else ""


def reasons(left: Mapping[str, str]) -> str:
    """What is left out and why, reasons that repeat told once."""
    gathered: dict[str, list[str]] = {}
    for name, why in left.items():
        gathered.setdefault(why, []).append(name)
    return "\n".join(f"- {', '.join(names)}: {why}" for why, names in gathered.items())
