"""One figure to decide by: AUROC of every method on every task, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from quality.aggregate import Overall, Results, Standing
from quality.report import is_ours, over_tasks


def draw(
    results: Results,
    standings: Mapping[str, Sequence[Standing]],
    rows: Sequence[Overall],
    title: str,
    path: Path,
    names: Mapping[str, str] | None = None,
) -> None:
    """Methods as they are given, tasks as columns, times beside them; framed is first or not significantly behind."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    tasks = list(standings)
    cells = {(task, s.method): s for task, found in standings.items() for s in found}
    grid = np.array([[cells[task, row.method].mean for task in tasks] for row in rows])
    figure, (left, right) = plt.subplots(
        1,
        2,
        figsize=(4.8 + 0.85 * len(tasks), 2.2 + 0.27 * len(rows)),
        width_ratios=[len(tasks) + 1, 2.2],
        layout="constrained",
    )
    caption = "AUROC against the truth. Framed: first or not significantly behind the first.\n"
    caption += "In brackets: mean rank. Bold and blue: this library."
    figure.suptitle(f"{title}\n{caption}".strip(), fontsize=10, x=0.01, ha="left")
    shown = np.column_stack([grid, grid.mean(1)])
    left.imshow(shown, cmap="YlGnBu", vmin=0.4, vmax=1.0, aspect="auto")
    for i, row in enumerate(rows):
        for j, value in enumerate(shown[i]):
            ink = "white" if value > 0.8 else "black"
            tied = j < len(tasks) and cells[tasks[j], row.method].tied
            left.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
            if tied:
                left.add_patch(plt.Rectangle((j - 0.46, i - 0.43), 0.92, 0.86, fill=False, ec="#d7301f", lw=1.6))
    left.axvline(len(tasks) - 0.5, color="white", lw=4)
    left.set_xticks(
        range(len(tasks) + 1), [*tasks, "mean"], rotation=35, ha="right", rotation_mode="anchor", fontsize=9
    )
    left.set_yticks(
        range(len(rows)), [f"{(names or {}).get(row.method, row.method)}  ({row.rank:.1f})" for row in rows], fontsize=9
    )
    for label, row in zip(left.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if is_ours(row.method) else "normal")
    left.tick_params(length=0)
    left.spines[:].set_visible(False)
    seconds = [1e3 * over_tasks(results, tasks, row.method, "seconds") for row in rows]
    right.barh(range(len(rows)), seconds, color=["#225ea8" if is_ours(row.method) else "#a0a0a0" for row in rows])
    right.set_xscale("log")
    right.set_ylim(len(rows) - 0.5, -0.5)
    right.set_yticks([])
    right.set_xlabel("ms per graph", fontsize=9)
    right.grid(axis="x", alpha=0.3)
    right.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
