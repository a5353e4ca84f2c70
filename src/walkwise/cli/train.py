"""``walkwise train``: a model trained on a data set, its weights in a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walkwise.cli import options
from walkwise.cli.names import DATA_SETS, RECIPES, SourceError, choice, which_graphs
from walkwise.cli.output import loading, print_json, progress, say
from walkwise.display import count
from walkwise.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from walkwise.cli.sources import NamedGraphs
    from walkwise.datasets.graphset import GraphSet
    from walkwise.training import Training

#: How many graphs of a class there must be: one to train on, one to stop by, and one to test on.
_FEWEST = 3


def train(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"A model to train: one of the paper's ({', '.join(RECIPES)}), or an import path, which is run.",
        ),
    ],
    graphs: options.DataName = None,
    data: options.DataRoot = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write; default: NAME.safetensors.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The largest number of passes over the training graphs.")
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The seed of the initial weights and of the order of the graphs.")
    ] = 0,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Train a model and save its weights, for use as MODEL or with --weights.

    A model of the paper is trained by its recipe, on its own data set unless you name another. A model of your own
    (mypkg.models:build) takes (x, edge_index, batch) and returns logits; its graphs need labels y. If the graphs come
    without a split, a tenth is kept for testing and another tenth decides when to stop.
    """
    path = out or Path(f"{model.rpartition(':')[2]}.safetensors")
    if path.is_dir() or not path.parent.is_dir():
        wrong = f"{path} is a folder" if path.is_dir() else f"There is no folder {path.parent} to write {path.name} to"
        raise SourceError(
            f"{wrong}.",
            argument="out",
            expected="a file in an existing folder",
            got=str(path),
            remedy="Name the file of weights with --out.",
        )
    if ":" not in model:
        choice(model, RECIPES, "model")
        choice(graphs or DATA_SETS[0], DATA_SETS, "data set")
    with loading(f"Training {model}{f' on {graphs}' if graphs else ''}.", quiet=as_json):
        from walkwise import models, recipes
    if ":" in model:
        trained, result, source = _own(model, graphs, data, epochs, seed)
    else:
        source = graphs or recipes.RECIPES[model].data
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
        epochs_run = count(len(result.history), "epoch")
        words = f"{model} on {source}, {epochs_run}, best {result.best_epoch}. Accuracy: {shares}."
        say(words, wrap=True)
        say(f"Weights: {path}")


def _own(
    spec: str, graphs: str | None, root: Path | None, epochs: int | None, seed: int
) -> tuple[nn.Module, Training, str]:
    """The user's model, trained; how it went, and on what."""
    import torch

    from walkwise.cli.sources import load_model
    from walkwise.training import train as fit

    if graphs is None:
        raise which_graphs("a data set, a file, or an import path")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = load_model(spec)
    made = _graph_set(graphs, root, seed)
    _check_fit(model, spec, made)
    result = fit(model, made, seed=seed, epochs=epochs or 100, progress=progress())
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
    _check_labels(found)
    try:
        graphs = pack(found.graphs)
    except (RuntimeError, KeyError, TypeError, InputError) as error:
        raise SourceError(
            f"The graphs of {spec} do not go into one batch: {str(error).rstrip('.')}.",
            argument="graphs",
            expected="graphs that go into one batch",
            got=spec,
        ) from error
    fewest, label = min((number, label) for label, number in Counter(graphs.y.tolist()).items())
    if fewest < _FEWEST:
        raise SourceError(
            f"Training needs at least {_FEWEST} graphs of every class: for training, for early stopping and for "
            f"testing. {spec} has {fewest} of class {label}.",
            argument="graphs",
            expected=f"graphs with at least {_FEWEST} of every class",
            got=fewest,
        )
    rest, test = set_aside(torch.arange(len(graphs)), graphs.y, seed=seed)
    train, val = set_aside(rest, graphs.y, seed=seed + 1)
    names = tuple(f"class {label}" for label in range(int(graphs.y.max()) + 1))
    return GraphSet(found.source, graphs, train, val, test, names)


def _check_labels(found: NamedGraphs) -> None:
    """Refuse graphs that do not have one class each."""
    import torch

    for name, graph in zip(found.names, found.graphs, strict=True):
        y = None if graph.y is None else torch.as_tensor(graph.y)
        if y is None or y.numel() != 1 or y.is_floating_point() or int(y) < 0:
            given = "none" if y is None else f"{y.dtype} of shape {tuple(y.shape)}" if y.numel() != 1 else f"{y.item()}"
            raise SourceError(
                f"Training needs one label y on every graph, a class from 0; {name} has {given}.",
                argument="graphs",
                expected="graphs with one label y each, a class from 0",
                got=given,
            )


def _check_fit(model: nn.Module, spec: str, graphs: GraphSet) -> None:
    """Refuse a model that does not take the graphs, or has not one output per graph and class."""
    import torch

    some = graphs.train[:3]
    data, rows = graphs.graphs.batch(some), len(some)
    wanted = (
        "A model to train takes (x, edge_index, batch) and returns a row of logits for every graph, here of shape "
        f"({rows}, {len(graphs.class_names)})"
    )
    try:
        with torch.no_grad():
            output = model.eval()(data.x, data.edge_index, data.batch)
    except Exception as error:
        raise InputError(
            f"{spec} does not run on {graphs.name}: {type(error).__name__}: {error}.",
            argument="model",
            expected="a model that runs on the graphs",
            remedy=f"{wanted}.",
        ) from error
    given = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    if not isinstance(given, tuple) or len(given) != 2 or given[0] != rows or given[1] < len(graphs.class_names):
        raise InputError(
            f"{spec} returns {given} for {rows} graphs of {graphs.name}.",
            argument="model",
            expected="a model with a row of outputs per graph and a column per class",
            got=given,
            remedy=f"{wanted}.",
        )
