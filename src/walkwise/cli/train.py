"""``walkwise train``: a model trained on a data set, its weights in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walkwise.cli import options
from walkwise.cli.names import DATA_SETS, RECIPES, SourceError, choice
from walkwise.cli.output import print_json, progress, say

if TYPE_CHECKING:
    from torch import nn

    from walkwise.datasets.graphset import GraphSet
    from walkwise.training import Training


def train(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help=f"A model of the paper ({', '.join(RECIPES)}), or an import path (it runs)."
        ),
    ],
    graphs: options.DataName = None,
    data: options.DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="The file of weights; default: NAME.safetensors.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training graphs at most.")] = None,
    seed: Annotated[int, typer.Option(help="Of the first weights and the order of the graphs.")] = 0,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Train a model and save its weights, to be named in place of a model, or with --weights.

    A model of the paper is trained by its recipe, on its own data set unless another is named. A model of your own
    (mypkg.models:build) takes (x, edge_index, batch) and returns logits; its graphs need labels y. Of graphs that come
    without a split, a tenth is kept for testing and a tenth decides when to stop.
    """
    from walkwise import models, recipes

    path = out or Path(f"{model.rpartition(':')[2]}.safetensors")
    if not path.parent.is_dir():
        raise SourceError(f"There is no folder {path.parent} to write {path.name} to.")
    if ":" in model:
        trained, result, source = _own(model, graphs, data, epochs, seed)
    else:
        choice(model, RECIPES, "model")
        source = choice(graphs or recipes.RECIPES[model].data, DATA_SETS, "data set")
        trained, result = recipes.train_model(
            model, data=source, root=data, seed=seed, epochs=epochs, progress=progress()
        )
    models.save_weights(trained, path)
    report = {
        "command": "train",
        "model": model,
        "data": source,
        "seed": seed,
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "train_accuracy": result.train_accuracy,
        "val_accuracy": result.val_accuracy,
        "test_accuracy": result.test_accuracy,
        "weights": str(path),
    }
    if as_json:
        print_json(report)
    else:
        shares = ", ".join(f"{part} {report[f'{part}_accuracy']:.1%}" for part in ("train", "val", "test"))
        words = f"{model} on {source}, {report['epochs']} epochs, best {result.best_epoch}. Accuracy: {shares}."
        say(f"{words}\nWeights: {path}")


def _own(
    spec: str, graphs: str | None, root: Path | None, epochs: int | None, seed: int
) -> tuple[nn.Module, Training, str]:
    """The user's model, trained; how it went, and on what."""
    import torch

    from walkwise.cli.sources import load_model
    from walkwise.training import train as fit

    if graphs is None:
        raise SourceError("Which graphs? Name a data set, a file or an import path after the model.")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = load_model(spec)
    result = fit(model, _graph_set(graphs, root, seed), seed=seed, epochs=epochs or 100, progress=progress())
    return model, result, graphs


def _graph_set(spec: str, root: Path | None, seed: int) -> GraphSet:
    """The data set, with a split made by seed where it has none."""
    import torch

    from walkwise import datasets
    from walkwise.cli.sources import load_graphs
    from walkwise.datasets.graphset import GraphSet, pack
    from walkwise.datasets.splits import set_aside

    if spec in datasets.names():
        return datasets.load(spec, root=root)
    found = load_graphs(spec, root=root)
    if any(graph.y is None for graph in found.graphs):
        raise SourceError(f"Training needs a label y on every graph; {spec} has graphs without.")
    graphs = pack(found.graphs)
    rest, test = set_aside(torch.arange(len(graphs)), graphs.y, seed=seed)
    train, val = set_aside(rest, graphs.y, seed=seed + 1)
    names = tuple(f"class {label}" for label in range(int(graphs.y.max()) + 1))
    return GraphSet(found.source, graphs, train, val, test, names)
