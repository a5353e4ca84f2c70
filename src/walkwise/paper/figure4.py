"""Figure 4: time on BA-2motif against the depth of the model and the size of the subgraph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from walkwise.paper.bench import BenchCase, Effort
from walkwise.paper.clock import (
    ALONG,
    AMORTIZED,
    CHAIN,
    HOOK,
    NAIVE,
    OTHERS,
    draw_questions,
    other_rows,
    relevance_rows,
)
from walkwise.paper.drawing import LOOKS, panels
from walkwise.paper.exhibits import Exhibit, Finding, Workload, so_far
from walkwise.paper.tables import markdown, number
from walkwise.paper.units import Row, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE, DEPTH, DEPTHS = 5, 3, range(1, 8)
METHODS = (NAIVE, ALONG, HOOK, CHAIN, AMORTIZED, *OTHERS)


def depth_units(case: BenchCase, effort: Effort) -> list[Unit]:
    """One point of (a): a model."""
    depth = int(case.name[-1])
    return [Unit(f"figure4/depth/{depth}", _settings(case, effort, SIZE), partial(at, case, effort, "depth", SIZE))]


def size_units(case: BenchCase, effort: Effort) -> list[Unit]:
    """The points of (b): sizes of subgraphs."""
    return [
        Unit(f"figure4/size/{size}", _settings(case, effort, size), partial(at, case, effort, "size", size))
        for size in effort.sizes
    ]


def _settings(case: BenchCase, effort: Effort, size: int) -> dict[str, object]:
    return {
        "weights": case.digest,
        "samples": effort.depth_samples,
        "trials": effort.trials,
        "limit": effort.limit,
        "size": size,
        "methods": METHODS,
    }


def at(case: BenchCase, effort: Effort, part: str, size: int) -> list[Row]:
    """The times of one point: a row per method."""
    questions = draw_questions(case.graphs.graphs, effort.depth_samples, size, seed=size)
    rows = relevance_rows(case.model, questions, trials=effort.trials, limit=effort.limit)
    rows += other_rows(case.model, questions, trials=effort.trials)
    x = int(case.name[-1]) if part == "depth" else size
    return [{"part": part, "x": x, "limit": effort.limit, **row} for row in rows]


def draw(rows: Sequence[Row]) -> Figure:
    """Both panels on a logarithmic scale, where the paper breaks a linear one into three."""
    figure, (depth, size) = panels(1, 2, width=9.4, height=4.3)
    _panel(depth, rows, "depth", "depth L of the GIN (|S| = 5)")
    _panel(size, rows, "size", "size of the subgraph |S| (GIN-3)")
    depth.set_ylabel("processor time per subgraph in ms")
    depth.set_title("(a) Network depth", loc="left")
    size.set_title("(b) Subgraph size", loc="left")
    figure.legend(*depth.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _panel(ax: Axes, rows: Sequence[Row], part: str, label: str) -> None:
    for method in METHODS:
        points = sorted(
            (row["x"], row["ms"]) for row in rows if (row["part"], row["method"]) == (part, method) and row["ms"]
        )
        ax.plot(*zip(*points, strict=True), label=method, **LOOKS[method]) if points else None
    failed = _failed(rows, part)
    if failed:
        limit = 1000 * rows[0]["limit"]
        ax.plot(failed, [limit] * len(failed), "x", color=LOOKS[NAIVE]["color"], ms=9, mew=2)
        ax.annotate(
            f"failed (> {rows[0]['limit']:g} s)", (failed[0], limit), (0, 7), textcoords="offset points", ha="center"
        )
    ax.set_yscale("log")
    ax.margins(y=0.12)
    ax.set_xlabel(label)
    ax.set_xticks(sorted({row["x"] for row in rows if row["part"] == part})[:: 1 if part == "depth" else 2])
    ax.grid(alpha=0.25)


def judge(rows: Sequence[Row]) -> Finding:
    """How times grow with depth and size."""
    growth = _growth(rows)
    ours = _times(rows, "depth", HOOK)
    failed = _failed(rows, "depth")
    ends = f"and fails at L = {', '.join(map(str, failed))}" if failed else "and finishes at every depth"
    explainer, gradient, cam = (
        _ratio(rows, *pair) for pair in (("GNNExplainer", HOOK), (HOOK, "Gradient"), (HOOK, "CAM"))
    )
    size = _exponent(rows, NAIVE)
    verdict = (
        f"Naive GNN-LRP takes {growth:.1f} times as long with every further layer {ends}, and grows like "
        f"|S|^{size:.1f} with the subgraph; sGNN-LRP with hooks takes {number(ours[0][1])} ms for {ours[0][0]} layer "
        f"and {number(ours[-1][1])} ms for {ours[-1][0]}, is {number(explainer)} times as fast as GNNExplainer and "
        f"takes {number(gradient)} times as long as the gradient, {number(cam)} times as long as CAM."
    )
    notes = (
        "Naive GNN-LRP is run as the authors run it: a pass for every choice of nodes in layers 1 to L, |S|^L passes, "
        "each read at all start nodes.",
        f"Along edges: a pass for each walk inside S. Connected subgraphs of these graphs are almost trees, so these "
        f"are fewer, and grow like |S|^{_exponent(rows, ALONG):.1f}; the chain's time like "
        f"|S|^{_exponent(rows, CHAIN):.1f} (all three over the upper half of the sizes at which the method finished).",
        "Times do not depend on the values of the weights; the GIN-1, which the paper does not train, is untrained.",
        "CAM, the gradient and GNNExplainer (200 epochs) explain all nodes of the graph, not one subgraph.",
        "The scale is logarithmic; the paper breaks a linear one into three parts.",
    )
    linear = ours[-1][1] / ours[0][1] < 2 * ours[-1][0] / ours[0][0]
    claims = [growth > SIZE - 1, abs(size - DEPTH) <= 0.5, linear, explainer > 10, gradient < 5 and cam < 5]
    return Finding(so_far(claims), verdict, _table(rows), notes)


def _failed(rows: Sequence[Row], part: str) -> list[int]:
    """Where naive GNN-LRP did not finish."""
    return sorted(row["x"] for row in rows if (row["part"], row["method"]) == (part, NAIVE) and row["failed"])


def _table(rows: Sequence[Row]) -> str:
    lines = []
    for part, title in (("depth", "L"), ("size", "\\|S\\|")):
        for x in sorted({row["x"] for row in rows if row["part"] == part}):
            of = {row["method"]: row["ms"] for row in rows if (row["part"], row["x"]) == (part, x)}
            lines.append([f"{title} = {x}", *(number(of[method]) for method in METHODS)])
    return markdown(["time in ms", *METHODS], lines)


def _times(rows: Sequence[Row], part: str, method: str) -> list[tuple[int, float]]:
    return sorted((row["x"], row["ms"]) for row in rows if (row["part"], row["method"]) == (part, method) and row["ms"])


def _growth(rows: Sequence[Row]) -> float:
    """The naive method's mean factor per layer, from the second on."""
    points = _times(rows, "depth", NAIVE)[1:]
    if len(points) < 2:
        return math.nan
    (x0, y0), (x1, y1) = points[0], points[-1]
    return float((y1 / y0) ** (1 / (x1 - x0)))


def _exponent(rows: Sequence[Row], method: str) -> float:
    points = _times(rows, "size", method)
    if len(points) < 2:
        return math.nan
    (x0, y0), (x1, y1) = points[len(points) // 2 - 1], points[-1]
    return math.log(y1 / y0) / math.log(x1 / x0)


def _ratio(rows: Sequence[Row], top: str, bottom: str) -> float:
    """The geometric mean over depths."""
    below = dict(_times(rows, "depth", bottom))
    logs = [math.log(ms / below[x]) for x, ms in _times(rows, "depth", top)]
    return math.exp(sum(logs) / len(logs))


EXHIBIT = Exhibit(
    "figure4",
    "Figure 4: time against depth and subgraph size",
    "Naive GNN-LRP grows exponentially with depth and like |S|^L with the subgraph's size; sGNN-LRP grows linearly "
    "with depth, is much faster than GNNExplainer and comparable with the gradient and CAM.",
    (
        *(Workload(f"ba2motif-gin{depth}", depth_units) for depth in DEPTHS),
        Workload(f"ba2motif-gin{DEPTH}", size_units),
    ),
    draw,
    judge,
    f"“Yes” asks that naive GNN-LRP take more than {SIZE - 1} times as long with every further layer and grow like "
    f"|S|^{DEPTH - 0.5:g} to |S|^{DEPTH + 0.5:g}, and that sGNN-LRP with hooks grow less than twice as fast as the "
    "depth, be 10 times as fast as GNNExplainer and take less than 5 times as long as the gradient and as CAM; "
    "“in part”, one of these.",
)
