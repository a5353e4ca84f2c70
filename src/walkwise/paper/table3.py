"""Table 3: the time for one subgraph of five nodes, by data set and model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from walkwise.paper.bench import TITLES, BenchCase, Effort
from walkwise.paper.clock import ALONG, AMORTIZED, CHAIN, HOOK, NAIVE, draw_questions, relevance_rows
from walkwise.paper.exhibits import Exhibit, Finding, Workload, so_far
from walkwise.paper.published import TABLE_3
from walkwise.paper.tables import markdown, number
from walkwise.paper.units import Row, Unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 5
#: What the verdict asks for: this many times as fast, and failures in this many seconds, as the paper has them.
FASTER, LIMIT = 50, 360
METHODS = (NAIVE, ALONG, HOOK, CHAIN, AMORTIZED)


def units(case: BenchCase, effort: Effort) -> list[Unit]:
    """One column of the table."""
    settings = {
        "weights": case.digest,
        "samples": effort.samples,
        "trials": effort.trials,
        "limit": effort.limit,
        "size": SIZE,
        "methods": METHODS,
    }
    return [Unit(f"table3/{case.name}", settings, partial(compute, case, effort))]


def compute(case: BenchCase, effort: Effort) -> list[Row]:
    """The times of one model: a row per method."""
    questions = draw_questions(case.graphs.graphs, effort.samples, SIZE, seed=0)
    rows = relevance_rows(case.model, questions, trials=effort.trials, limit=effort.limit)
    return [{"model": case.name, "limit": effort.limit, **row} for row in rows]


def column_title(model: str) -> str:
    """A model's data set and kind in print.

    >>> column_title("reddit-binary-gin5")
    'REDDIT-B GIN-5'
    """
    data_set, kind = model.rsplit("-", 1)
    return f"{TITLES[data_set]} {kind[:3].upper()}-{kind[3:]}"


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The table in the paper's form: models across, methods down, ours and the paper's."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    of = {(row["model"], row["method"]): row for row in rows}
    lines = []
    for method in METHODS:
        lines.append([method, *(number(of[model, method]["ms"]) for model in models)])
    for place, name in enumerate(("paper: naive GNN-LRP", "paper: sGNN-LRP")):
        lines.append([name, *(number(TABLE_3[model][place]) for model in models)])
    return ["time in ms", *map(column_title, models)], lines


def draw(rows: Sequence[Row]) -> Figure:
    """The table as a picture."""
    from matplotlib.figure import Figure

    header, lines = cells(rows)
    figure = Figure(figsize=(2.4 + 1.25 * (len(header) - 1), 0.5 + 0.34 * (len(lines) + 1)), layout="constrained")
    ax = figure.add_subplot()
    ax.axis("off")
    split = [header[0], *(title.replace(" ", "\n") for title in header[1:])]
    widths = [0.26, *[0.74 / (len(header) - 1)] * (len(header) - 1)]
    table = ax.table([split, *lines], loc="center", cellLoc="center", colWidths=widths, edges="")
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (line, column), cell in table.get_celld().items():
        cell.set_height((2 if line == 0 else 1) / (len(lines) + 2))
        if column == 0:
            cell.set_text_props(ha="left")
        if line == 0 or line == len(METHODS):
            cell.visible_edges = "B"
        if line in (3, 4, 5):
            cell.set_text_props(weight="bold")
    return figure


def judge(rows: Sequence[Row]) -> Finding:
    """How much faster sGNN-LRP is than the naive method, and whether their numbers agree."""
    header, lines = cells(rows)
    of: dict[tuple[str, str], Any] = {(row["model"], row["method"]): row for row in rows}
    models = list(dict.fromkeys(row["model"] for row in rows))
    done = [model for model in models if not of[model, NAIVE]["failed"]]
    failed = [column_title(model) for model in models if model not in done]
    factors = {m: [of[model, NAIVE]["ms"] / of[model, m]["ms"] for model in done] for m in (HOOK, CHAIN, AMORTIZED)}
    verdict = "Naive GNN-LRP did not finish anywhere."
    if done:
        paper = [naive / ours for naive, ours in TABLE_3.values() if naive is not None]
        verdict = (
            f"Where naive GNN-LRP finishes, sGNN-LRP with hooks is {_span(factors[HOOK])} times as fast (paper: "
            f"{_span(paper)}), on a chain, tracing included, {_span(factors[CHAIN])} times, and "
            f"{_span(factors[AMORTIZED])} times if 1000 subgraphs share the chain."
        )
    limit = rows[0]["limit"]
    notes = [
        f"— : failed, which here means more than {limit:g} s for one subgraph"
        + (f" ({', '.join(failed)})." if failed else "; it did not happen."),
        _agreement(rows),
        f"Subgraphs are connected, {SIZE} nodes grown along random edges. Naive GNN-LRP is run as the authors run it, "
        "with |S|^L passes, each read at all start nodes; along edges, with a pass for each walk inside S. The paper's "
        f"times fit |S|^L passes: {_paper_pass('ba2motif-gin3')}, {_paper_pass('ba2motif-gin5')} and "
        f"{_paper_pass('ba2motif-gin7')} ms each on BA-2motif, {_paper_pass('mutag-gin3')} and "
        f"{_paper_pass('mutagenicity-gin3')} ms on MUTAG and Mutagenicity (one pass of sGNN-LRP: "
        f"{TABLE_3['mutag-gin3'][1]} and {TABLE_3['mutagenicity-gin3'][1]}). Graph-SST2's do not: "
        f"{_paper_pass('graph-sst2-gcn3')} ms.",
    ]
    holds = so_far([min(factors[HOOK]) > FASTER, bool(failed) and limit >= LIMIT]) if done else None
    return Finding(holds, verdict, markdown(header, lines), tuple(notes))


def _paper_pass(model: str) -> str:
    """The paper's naive time, in ms, by |S|^L.

    >>> _paper_pass("ba2motif-gin3")
    '1.79'
    """
    return number((TABLE_3[model][0] or 0.0) / SIZE ** int(model[-1]))


def _span(factors: Sequence[float]) -> str:
    return f"{number(min(factors))} to {number(max(factors))}"


def _agreement(rows: Sequence[Row]) -> str:
    """How far the naive sums and the hooks are from the chain."""
    found = {
        method: [row["difference"] for row in rows if row["method"] == method and row.get("difference") is not None]
        for method in (NAIVE, HOOK)
    }
    parts = [f"{method} {max(gaps):.1e}" for method, gaps in found.items() if gaps]
    return f"Largest difference from the chain, as a share of the graph's relevance: {', '.join(parts)} (float64)."


EXHIBIT = Exhibit(
    "table3",
    "Table 3: computation time",
    "sGNN-LRP is faster than naive GNN-LRP by orders of magnitude, and finishes where the naive method fails.",
    tuple(Workload(model, units) for model in TABLE_3),
    draw,
    judge,
    f"“Yes” asks that sGNN-LRP with hooks be {FASTER} times as fast wherever naive GNN-LRP finishes, and that the "
    f"latter fail somewhere when it is given {LIMIT} s; “in part”, one of these.",
)
