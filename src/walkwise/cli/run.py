"""``walkwise run``: a whole data set explained, into a folder of Parquet files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.beforehand import Request
from walkwise.cli.names import (
    BUNDLED,
    READ_LATER,
    RECIPES,
    RULES,
    SourceError,
    check_question,
    check_run_graphs,
    choice,
    which_graphs,
)
from walkwise.cli.output import loading, print_json, progress, say
from walkwise.display import count

if TYPE_CHECKING:
    from walkwise.runs import Run

#: How the graphs of a run are named.
_WAYS = "a data set, a file, a folder, or an import path"


#: What is explained of every graph, besides columns and classes.
_TARGETS = ("predicted", "label", "positive", "negative")


def _as_target(given: str, request: Request) -> str | int:
    """What is explained of every graph; a class that is known becomes its column.

    >>> _as_target("label", Request("mutag")), _as_target("mutagenic", Request("mutag"))
    ('label', 1)
    """
    if given in _TARGETS and given not in request.classes:
        return given
    target = options.as_target(given)
    column = request.column("--target", target)
    if column is None and isinstance(target, str):
        expected = f"a column of the output, or one of {', '.join(_TARGETS)}"
        raise SourceError(f"--target must be {expected}, got {given}.", argument="target", expected=expected, got=given)
    return target if column is None else column


def run(
    model: options.ModelName,
    graphs: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAPHS",
            help="A data set, a file of PyG graphs (.pt), a folder of such files, a table of molecules with a column "
            "smiles (.csv, .tsv, .parquet), or an import path. A bundled model comes with graphs of its own.",
            show_default=False,
            callback=lambda given: given if given is None else check_run_graphs(given),
        ),
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUESTION",
            help="A question about every graph; can be given several times: nodes, edges, walks:10, order:0.1, "
            "subgraph:5, groups:FILE (or groups:functional, groups:alerts), curves.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder of the run; the same command resumes it.")
    ] = Path("run"),
    weights: options.Weights = None,
    data: options.DataRoot = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="CLASS",
            help="What is explained: 'predicted', the class that the model predicts; 'label', the graph's label; or "
            "one class or output column (for a model with one logit, positive or negative).",
        ),
    ] = "predicted",
    rule: options.RuleName = "auto",
    index: Annotated[
        str | None,
        typer.Option(
            metavar="NODES",
            help="For a model with an output per node and one graph: the nodes to explain, such as 3,7 or 'paper 2', "
            "a file with one in each line, 'all' of them, or those of one type.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="local: processes on this machine. ray: a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The Ray cluster's address; default: one on this machine.", show_default=False
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="How many processes; default: one per core, at most 8 per GPU.", show_default=False
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many graphs are traced together; default: 128, on a GPU 1024.",
            show_default=False,
        ),
    ] = None,
    featurise: options.Featurise = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The seed for models that draw random numbers.")] = 0,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Where workers compute, such as cuda; default: the CPU.", show_default=False),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Explain every graph of a data set, into a folder of Parquet files.

    The same command resumes where it stopped, whatever stopped it. Ctrl-C finishes the batches under way. A graph that
    fails gets a row with its error. The report is made by: walkwise report DIR.
    """
    choice(rule, RULES, "rule")
    choice(engine, ("local", "ray"), "engine")
    questions = ask or ["nodes"]
    for question in questions:
        check_question(question)
    if graphs is None and model not in BUNDLED and model not in RECIPES:
        raise which_graphs(_WAYS)
    request = Request(model, graphs, weights, data)
    wanted = _as_target(target, request)
    with loading(f"Asking {request.who} about every graph of {request.source}: {', '.join(questions)}.", quiet=as_json):
        from walkwise import runs
        from walkwise.cli.sources import import_path, load_model, reader_of

    network = load_model(model, weights=weights)
    given: dict[str, Any] = {
        "weights": weights,
        "data": data,
        "target": None if target == "predicted" else target,
        "rule": None if rule == "auto" else rule,
        "index": index,
        "engine": None if engine == "local" else engine,
        "address": address,
        "workers": workers,
        "batch": batch,
        "featurise": featurise,
        "seed": seed or None,
        "device": device,
    }
    command = _command(model, graphs, questions, out, given)
    made = runs.run(
        network,
        find_graphs(network, model, graphs, data),
        questions,
        out,
        engine=engine,
        workers=workers,
        batch=batch,
        target=wanted,
        rule=rule,
        index=index,
        seed=seed,
        device=device,
        address=address,
        featurise=reader_of(network) if featurise is None else import_path(featurise),
        progress=progress(),
        model_name=model,
        data_name=graphs or BUNDLED[model],
        command=command,
    )
    if as_json:
        print_json(_report(made))
    else:
        _show(made, command)
    if not made.complete:
        raise typer.Exit(130)


def find_graphs(network: Any, model: str, graphs: str | None, root: Path | None) -> Any:
    """The graphs that are named, with the features that a model takes: those in memory, those in files as a path."""
    from walkwise.cli.sources import counts_hydrogens, load_graphs
    from walkwise.runs.sources import Listed

    if graphs is None and model not in BUNDLED:
        raise which_graphs(_WAYS)
    spec = graphs or BUNDLED[model]
    if Path(check_run_graphs(spec)).is_dir() or Path(spec).suffix in READ_LATER:
        return spec
    found = load_graphs(spec, root=root, hydrogens=counts_hydrogens(network))
    return Listed(found.graphs, found.names, found.class_names, found.node_names)


def _command(model: str, graphs: str | None, ask: list[str], out: Path, given: dict[str, Any]) -> str:
    """The command that goes on with the run.

    >>> _command("mutag", None, ["nodes", "walks:3"], Path("my run"), {"batch": 5, "rule": None})
    "walkwise run mutag --ask nodes --ask walks:3 --out 'my run' --batch 5"
    """
    words = ["walkwise", "run", model, *([graphs] if graphs else [])]
    for question in ask:
        words += ["--ask", question]
    words += ["--out", str(out)]
    for name, value in given.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def commanded(command: str) -> dict[str, str]:
    """What a run's command named: the model, the graphs, and the options that take one value.

    >>> commanded("walkwise run mutag --ask nodes --ask walks:3 --out 'my run' --batch 5")
    {'model': 'mutag', 'out': 'my run', 'batch': '5'}
    """
    words = shlex.split(command)
    first = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    named = dict(zip(("model", "graphs"), words[2:first], strict=False))
    pairs = zip(words[first::2], words[first + 1 :: 2], strict=False)
    return named | {name.removeprefix("--"): value for name, value in pairs if name != "--ask"}


def _report(made: Run) -> dict[str, Any]:
    return {
        "command": "run",
        "folder": str(made.folder),
        "graphs": made.total,
        "done": made.done,
        "failed": made.failed,
        "questions": made.questions,
    }


def _show(made: Run, command: str) -> None:
    say(f"{made.folder}: {count(made.done, 'graph')} of {made.total:,}; {', '.join(made.questions)}.")
    if made.failed:
        say(f"{count(made.failed, 'graph')} failed; the column error of the table graphs says why.")
    if not made.complete:
        say(f"Stopped early. To resume:\n{command}")
        return
    folder = shlex.quote(str(made.folder))
    say(f"What the model looks for: walkwise report {folder}\nGraph by graph:           walkwise explore {folder}")
