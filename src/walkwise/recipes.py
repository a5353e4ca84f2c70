"""Our training recipes for the paper's models, by name; `python -m walkwise.recipes` trains them.

Architectures, data and splits are those of appendix H. The optimisation is not: the authors descend for up to 10000
epochs with rates of 1e-5 to 5e-4; here Adam takes larger steps on mini-batches and stops early.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from walkwise import datasets, models
from walkwise.datasets.graphset import GraphSet
from walkwise.errors import unknown
from walkwise.files import write_whole
from walkwise.training import Training, train


@dataclass(frozen=True)
class Recipe:
    """What to train on and how, and the test accuracy that the paper reports."""

    data: str
    epochs: int
    patience: int
    batch_size: int
    lr: float
    paper_accuracy: float
    negative_biases: bool = True

    def train(self, model: nn.Module, graphs: GraphSet, *, epochs: int, seed: int = 0, progress: bool) -> Training:
        """Trains a model by this recipe, for at most this many passes."""
        options = {name: getattr(self, name) for name in ("patience", "batch_size", "lr", "negative_biases")}
        return train(model, graphs, epochs=epochs, seed=seed, progress=progress, **options)


RECIPES: dict[str, Recipe] = {
    "ba2motif-gin2": Recipe("ba2motif", 600, 200, 32, 5e-3, 0.98),
    "ba2motif-gin3": Recipe("ba2motif", 150, 50, 32, 3e-3, 0.995),
    "ba2motif-gin4": Recipe("ba2motif", 300, 150, 16, 3e-3, 1.0),
    **{f"ba2motif-gin{depth}": Recipe("ba2motif", 80, 20, 32, 2e-3, 1.0) for depth in (5, 6, 7)},
    "mutag-gin3": Recipe("mutag", 800, 800, 98, 2e-4, 0.85),
    "mutagenicity-gin3": Recipe("mutagenicity", 80, 40, 32, 2e-3, 0.8316),
    "mutagenicity-hydrogens-gin3": Recipe("mutagenicity-hydrogens", 60, 60, 64, 2e-3, 0.8316),
    "reddit-binary-gin5": Recipe("reddit-binary", 80, 40, 16, 5e-4, 0.825, negative_biases=False),
    "graph-sst2-gcn3": Recipe("graph-sst2", 30, 15, 128, 1e-3, 0.894),
}


def train_model(
    name: str,
    *,
    data: str | None = None,
    root: str | Path | None = None,
    seed: int = 0,
    epochs: int | None = None,
    progress: bool = False,
) -> tuple[nn.Module, Training]:
    """The trained model of that name, and how its training went.

    Args:
        name: one of `walkwise.models.names()`.
        data: another data set than the recipe's, such as "ba2motif-generated".
        root: the folder of data sets; see `walkwise.datasets.data_root`.
        seed: of the first weights and of the order of graphs.
        epochs: another number of passes than the recipe's.
        progress: show a progress bar.
    """
    if name not in RECIPES:
        raise unknown("model", name, RECIPES)
    recipe = RECIPES[name]
    graphs = datasets.load(data or recipe.data, root=root)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = models.build(name, in_channels=graphs.graphs.x.shape[1])
    return model, recipe.train(model, graphs, seed=seed, epochs=epochs or recipe.epochs, progress=progress)


# -- the command ------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains models and writes NAME.safetensors, NAME.json and, of all that are there, the table models.md.

    Args:
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(prog="python -m walkwise.recipes", description="Train the paper's models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(RECIPES)}")
    parser.add_argument("--data", help="train on another data set, such as ba2motif-generated")
    parser.add_argument("--root", help="folder of data sets (default: $WALKWISE_ROOT, else ~/.cache/walkwise)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/models"), help="folder for what is written")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or RECIPES:
        start = time.perf_counter()
        model, result = train_model(name, data=options.data, root=options.root, seed=options.seed, progress=True)
        models.save_weights(model, options.out / f"{name}.safetensors")
        row = _row(name, options.data, options.seed, result, time.perf_counter() - start)
        write_whole(options.out / f"{name}.json", json.dumps(row, indent=1) + "\n")
        sys.stdout.write(f"{name}: {result}\n")
    write_whole(options.out / "models.md", _table(options.out))


def _row(name: str, data: str | None, seed: int, result: Training, seconds: float) -> dict[str, object]:
    return {
        "model": name,
        "data": data or RECIPES[name].data,
        "seed": seed,
        "epochs": len(result.history),
        "best epoch": result.best_epoch,
        "train": f"{result.train_accuracy:.2%}",
        "val": f"{result.val_accuracy:.2%}",
        "test": f"{result.test_accuracy:.2%}",
        "paper": f"{RECIPES[name].paper_accuracy:.2%}",
        "seconds": round(seconds),
    }


def _table(folder: Path) -> str:
    """A row per model that was trained into the folder, in the order of the recipes."""
    rows = [json.loads((folder / f"{n}.json").read_text()) for n in RECIPES if (folder / f"{n}.json").exists()]
    lines = [list(rows[0]), ["---"] * len(rows[0]), *[[str(value) for value in row.values()] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
