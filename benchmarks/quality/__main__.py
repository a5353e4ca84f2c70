"""Explainers compared on many tasks with known truth: the evidence for the default rule.

PYTHONPATH=benchmarks python -m quality [--short] [--part validation|test] [--tasks …] [--methods …] [--report]

Everything that is done is kept in the folder --out, and a run that is cut short goes on where it stopped. Two runs
may work at once on different tasks. Tables, a figure and results.json are written at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from quality import aggregate, candidates, figure, report, sanity
from quality.methods import SLOW, Case, Method, PassedByError, Together, all_methods
from quality.networks import DESIGNS
from quality.running import Plan, carry_out, dropped, explainable, meaning, trained
from quality.store import Run, Store, write
from quality.tasks import TASKS, frozen_split
from walkwise.errors import WalkwiseError

SHORT_DESIGNS = ("gin-relu", "gcn-gelu", "sage-gelu-norm", "gat-relu")
#: The methods whose distance from the first is told task by task, where they exist.
FOLLOWED = ("lrp, auto", "order, auto, α = 0.5", "shapley, auto", "lrp, gamma")
#: The rules among which the validation tasks choose, with today's default and LRP-0 beside them.
CHOICES = [f"lrp, {name}" for name in (*candidates.CANDIDATES, "gamma", "γ = 3", "zero", "z+")]
DRAWN = ("α = 0", "α = 0.5", "αβ")  # of the discounts, those in the figure


def collected(plan: Plan, methods: Sequence[Method], store: Store) -> aggregate.Results:
    """All measurements of the plan that are in the files."""
    found: dict[str, dict[str, dict[aggregate.Key, dict[str, float | None]]]] = {}
    for run in plan.runs():
        told = store.fit(run)
        for method in methods if told is not None and "explainable" in told else ():
            record = store.record(run, method.name, meaning(method, told["digest"]))
            rows = found.setdefault(run.task, {}).setdefault(method.name, {})
            rows |= {(run.design, run.seed, int(n)): row for n, row in record.graphs.items() if int(n) < plan.graphs}
    return found


def part_of_report(
    name: str, results: aggregate.Results, tasks: Sequence[str], out: Path
) -> tuple[str, dict[str, Any]]:
    """The tables of one part, and the same for programs."""
    standings = {task: aggregate.standings(results, task) for task in tasks if results.get(task)}
    if not standings:
        return f"## {name.capitalize()} tasks\n\nNothing has been run.", {}
    rows = aggregate.overall(standings)
    drawn = [row for row in rows if "α" not in row.method or row.method.endswith(DRAWN)]
    figure.draw(results, standings, drawn, f"{name.capitalize()} tasks", out / f"quality-{name}.png")
    known = {s.method for found in standings.values() for s in found}
    texts = [
        f"## {name.capitalize()} tasks",
        report.summary(results, list(standings), rows),
        "AUROC by task; bold is first or not significantly behind the first (95 %, bootstrap over models and graphs).",
        report.by_task(standings, rows),
        "How far behind the first, on the same graphs, with 95 % intervals:",
        report.leads(standings, [method for method in FOLLOWED if method in known]),
    ]
    texts += [
        "Each against other people's explainers, and against all methods; `least share` is of the first's AUROC:",
        report.races(results, list(standings), FOLLOWED, [row.method for row in rows]),
    ]
    if rest := report.partial(standings, rows):
        texts += ["Methods that answer for some tasks or models only:", rest]
    told = {task: [asdict(s) | {"tied": s.tied} for s in found] for task, found in standings.items()}
    return "\n\n".join(texts), {"standings": told, "overall": [asdict(row) for row in rows]}


def checks(plan: Plan, methods: Sequence[Method], store: Store) -> dict[str, dict[str, float] | str]:
    """The sanity checks of every quick method, on one network."""
    run = Run("house-on-tree", "gin-relu-norm", 0)
    task = TASKS[run.task]
    split = task.load(run.seed, plan.short)
    network = trained(plan, run, split, store)
    if network is None:
        return {}
    predictions = [one.prediction for one in explainable(network, task, split, 3)]
    found: dict[str, dict[str, float] | str] = {}
    for method in methods:
        if method.group not in ("explainer", "rule", "candidate") or method.name in SLOW:
            continue
        try:
            found[method.name] = sanity.examine(lambda p, m=method: scores_of(m, p), predictions)
        except (PassedByError, WalkwiseError) as error:
            found[method.name] = str(error)
    return found


def scores_of(method: Method, prediction: Any) -> torch.Tensor:
    torch.manual_seed(0)
    return method.answer(Case(prediction, Together(prediction.model, [prediction]), 0, 5)).scores


def check_table(found: dict[str, dict[str, float] | str]) -> str:
    rows = [
        [report.told(name), *(f"{v:.2g}" for v in row.values())]
        for name, row in found.items()
        if row and not isinstance(row, str)
    ]
    return report.table(["method", "cascade", "its size", "relabelling", "noise", "folded norm", "split linear"], rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a rough look: four models, one seed, eight graphs each")
    parser.add_argument("--part", choices=("validation", "test"), help="only these tasks (default: all)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, help="only these")
    parser.add_argument("--designs", nargs="+", choices=DESIGNS)
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--graphs", type=int, help="explained per model")
    parser.add_argument("--methods", nargs="+", help="only methods whose name begins like this")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--report", action="store_true", help="run nothing; tables and figures of what is there")
    return parser.parse_args()


def plan_of(given: argparse.Namespace) -> Plan:
    parts = frozen_split()
    names = parts[given.part] if given.part else [name for part in ("validation", "test") for name in parts[part]]
    return Plan(
        tuple(name for name in names if not given.tasks or name in given.tasks),
        tuple(given.designs or (SHORT_DESIGNS if given.short else DESIGNS)),
        tuple(given.seeds or ((0,) if given.short else (0, 1, 2))),
        given.graphs or (8 if given.short else 50),
        given.short,
    )


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    out = given.out or Path("out/quality/short" if given.short else "out/quality")
    plan, store = plan_of(given), Store(out)
    methods, left = all_methods(given.short)
    if given.methods:
        methods = [m for m in methods if any(m.name.startswith(start) for start in given.methods)]
    left |= dropped(plan, store) if given.report else carry_out(plan, methods, store)
    results = collected(plan, methods, store)
    parts = {name: [t for t in tasks if t in plan.tasks] for name, tasks in frozen_split().items()}
    texts, told = ["# Quality of explanations"], {}
    chosen = aggregate.choose(results, [t for t in parts["validation"] if results.get(t)], CHOICES)
    if chosen:
        texts += ["## Rules, by the validation tasks alone", report.choices(chosen)]
    for name, tasks in parts.items():
        text, told[name] = part_of_report(name, results, tasks, out)
        texts.append(text)
    sane = checks(plan, methods, store)
    texts += ["## Sanity", sanity.LEGEND, check_table(sane), "## Left out", report.reasons(left)]
    fits = {run.name: store.fit(run) for run in plan.runs() if store.fit(run)}
    (out / "report.md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    choice = [asdict(c) for c in chosen]
    write(out / "results.json", {"parts": told, "choice": choice, "sanity": sane, "models": fits, "left": left})
    print(f"{out}/report.md, {out}/results.json, {out}/quality-*.png", file=sys.stderr)


if __name__ == "__main__":
    main()
