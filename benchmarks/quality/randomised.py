"""How much of an explanation is left when a model's weights are random: what comes of the graph, not of the training.

PYTHONPATH=benchmarks python -m quality.randomised [--out out/quality]

Test tasks, every design, seed 0, the first graphs of each; models are taken from the folder, or trained. Two tables go
to standard output.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from quality import report, sanity
from quality.__main__ import scores_of
from quality.measures import auroc
from quality.methods import Method, all_methods
from quality.networks import DESIGNS
from quality.running import Explained, Plan, explainable, trained
from quality.store import Store
from quality.tasks import TASKS, frozen_split

METHODS = ("lrp, auto", "order, auto, α = 0.5", "lrp, zero", "grad-cam", "gradient")
PLAN = Plan(tuple(frozen_split()["test"]), tuple(DESIGNS), (0,), 5)
DRAWS = 3  # of random weights
COLUMNS = ("AUROC", "with random weights", "likeness", "its size")

Found = dict[str, list[float]]


def compared(method: Method, one: Explained) -> Mapping[str, list[float]]:
    """Every column for one prediction. The sign of a random output is chance, and taken out of its relevance."""
    prediction = sanity.in_double(one.prediction)
    place = one.seen.nonzero().flatten()
    truths = one.truths[:, place]
    truths = truths[truths.any(1)]

    before = scores_of(method, prediction)[place]
    found: Found = {name: [] for name in COLUMNS}
    found["AUROC"].append(auroc(before, truths))
    for seed in range(DRAWS):
        *_, other = sanity.randomised(prediction, seed)
        sign = np.sign(other.value("logit")) if method.name.startswith("lrp") else 1.0
        after = sign * scores_of(method, other)[place]
        found["with random weights"].append(auroc(after, truths))
        found["likeness"].append(sanity.likeness(before, after))
        found["its size"].append(abs(found["likeness"][-1]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/quality"), help="the folder of models")
    store = Store(parser.parse_args().out)
    torch.set_num_threads(1)
    methods = [method for method in all_methods()[0] if method.name in METHODS]
    levels: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))  # a mean per task
    for task in tqdm(PLAN.tasks, unit="task", file=sys.stderr):
        split = TASKS[task].load(0, PLAN.short)
        found: dict[str, Found] = defaultdict(lambda: {name: [] for name in COLUMNS})
        for run in (run for run in PLAN.runs() if run.task == task):
            network = trained(PLAN, run, split, store)
            for one in () if network is None else explainable(network, TASKS[task], split, PLAN.graphs):
                for method in methods:
                    for name, values in compared(method, one).items():
                        found[method.name][name] += values
        for method in methods:
            for name, values in found[method.name].items():
                levels[method.name][name].append(float(np.mean(values)))
    rows = [[report.told(m), *(f"{np.mean(levels[m][name]):.3f}" for name in COLUMNS)] for m in METHODS]
    sizes = [[report.told(m), *(f"{size:.3f}" for size in levels[m]["its size"])] for m in METHODS]
    tables = [report.table(["method", *COLUMNS], rows), report.table(["its size on", *PLAN.tasks], sizes)]
    sys.stdout.write("\n\n".join(tables) + "\n")


if __name__ == "__main__":
    main()
