"""The table and the figure of docs/ground-truth.md: the defaults beside other people's explainers, on the test tasks.

PYTHONPATH=benchmarks python -m quality.page [--out out/quality]

Nothing is run; results are taken from the folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from quality import aggregate, figure, report
from quality.__main__ import collected
from quality.aggregate import Overall, Results, Standing
from quality.methods import all_methods
from quality.networks import DESIGNS
from quality.running import Plan
from quality.store import Store
from quality.tasks import frozen_split

#: Who is on the page, and what people call it. The library's own are what a call gives that leaves all settings out.
NAMES = {
    "lrp, auto": "node_relevance",
    "order, auto, α = 0.5": "order_nodes",
    "shapley, auto": "shapley_values",
    "best subgraph, auto, α = 0": "find_subgraph",
    "grad-cam": "Grad-CAM",
    "cam": "CAM",
    "gradient": "gradient",
    "gradient-x-input": "gradient × input",
    "integrated-gradients": "integrated gradients",
    "gnnexplainer": "GNNExplainer (PyG)",
    "gnnexplainer-paper": "GNNExplainer (authors')",
    "pgexplainer": "PGExplainer",
    "pgmexplainer": "PGM-Explainer",
    "subgraphx": "SubgraphX",
    "random": "random",
}
PLAN = Plan(tuple(frozen_split()["test"]), tuple(DESIGNS), (0, 1, 2), 50)
DOCS = Path(__file__).resolve().parents[2] / "docs"


def written(results: Results, standings: Mapping[str, Sequence[Standing]], rows: Sequence[Overall]) -> str:
    """One line per method: its mean, its rank, its cost, and every task."""
    cells = {(task, s.method): s for task, found in standings.items() for s in found}
    lines = []
    for row in rows:
        name = f"`{NAMES[row.method]}`" if report.is_ours(row.method) else NAMES[row.method]
        means = [cells[task, row.method] for task in standings]
        character = report.over_tasks(results, list(standings), row.method, "characterisation")
        milliseconds = 1e3 * report.over_tasks(results, list(standings), row.method, "seconds")
        digits = 0 if milliseconds >= 10 else 1 if milliseconds >= 1 else 2
        cost = [f"{row.rank:.1f}", f"{milliseconds:,.{digits}f}", f"{character:.3f}"]
        found = [f"**{s.mean:.3f}**" if s.tied else f"{s.mean:.3f}" for s in means]
        lines.append([name, f"{row.mean:.3f}", *cost, *found])
    return report.table(["method", "mean", "rank", "ms", "char.", *standings], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="the folder of results")
    methods = [method for method in all_methods()[0] if method.name in NAMES]
    results = collected(PLAN, methods, Store(parser.parse_args().out))
    standings = {task: aggregate.standings(results, task) for task in PLAN.tasks}
    rows = sorted(aggregate.overall(standings), key=lambda row: -row.mean)
    figure.draw(results, standings, rows, "", DOCS / "quality" / "explainers.png", NAMES)
    page = DOCS / "ground-truth.md"
    text = page.read_text(encoding="utf-8")
    start = text.index("| method | mean |")
    end = text.index("\n\n", start)
    page.write_text(text[:start] + written(results, standings, rows) + text[end:], encoding="utf-8")
    for row in rows:
        sys.stdout.write(f"{NAMES[row.method]}: first or tied on {row.first_or_tied}, worst {row.worst:.3f}\n")


if __name__ == "__main__":
    main()
