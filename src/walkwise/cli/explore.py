"""``walkwise explore``: a page to explore a model's predictions with."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.beforehand import Request
from walkwise.cli.names import SourceError, check_model, check_port, is_import_path
from walkwise.cli.output import loading
from walkwise.cli.run import commanded, find_graphs
from walkwise.errors import MissingExtraError

_MANIFEST = "manifest.json"


def _model_or_run(given: str) -> str:
    return given if (Path(given) / _MANIFEST).is_file() else check_model(given)


def explore(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|DIR",
            help="The model to explore, named as in the other commands, or the folder of a run, whose graphs are then "
            "listed in a table.",
            callback=_model_or_run,
        ),
    ] = "ba2motif",
    graphs: options.DataName = None,
    weights: options.Weights = None,
    data: options.DataRoot = None,
    smiles: options.Smiles = None,
    index: options.Index = None,
    rule: options.RuleName = "auto",
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder of a run of this model over these graphs: list them in a table.",
            show_default=False,
            exists=True,
            file_okay=False,
        ),
    ] = None,
    featurise: options.Featurise = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to listen on; by default, only this computer can connect.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port to listen on; 0 for any that is free.")
    ] = 8050,
    browser: Annotated[bool, typer.Option(help="Open the page in your browser.")] = True,
    debug: options.Debug = False,
) -> None:
    """Open a page to explore predictions with: pick a graph, select nodes, and read their relevance."""
    check_port(host, port)
    folder = Path(model) if run is None and (Path(model) / _MANIFEST).is_file() else run
    request = folder or Request(model, graphs, weights, data, smiles, index=index, rule=rule, featurise=featurise)
    opening = f"the run in {request}" if isinstance(request, Path) else f"{request.model} and {request.source}"
    with loading(f"Opening {opening} …"):
        from walkwise.cli.predictions import ask, opened
    try:
        explorer = import_module("walkwise.explorer")
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f"The explorer cannot start ({error}).", remedy="Install it with: pip install 'walkwise[explore]'"
        ) from error
    if isinstance(request, Path):
        given = {"model": model, "graphs": graphs, "weights": weights, "data": data, "featurise": featurise}
        named = _named_by(request) if run is None else given
        explorer.serve(_run_session(explorer, request, named), host=host, port=port, open_browser=browser)
        return
    subject = opened(request)
    ask(subject, 0, target=None, index=index, rule=rule)  # what does not fit shows here, not in the page
    shown = explorer.Session(
        subject.model,
        subject.graphs,
        names=subject.names,
        rule=rule,
        class_names=subject.data.class_names or None,
        node_names=subject.data.node_names or None,
        index=index,
    )
    explorer.serve(shown, host=host, port=port, open_browser=browser)


def _run_session(explorer: Any, run: Path, named: dict[str, Any]) -> Any:
    """The session of a run, with the given model and graphs, or else those that the run names."""
    from walkwise.cli.sources import featuriser, load_model, reader_of

    featurise = named.pop("featurise")
    model, graphs = named["model"], named["graphs"]
    network = load_model(model, weights=named["weights"])
    made = featuriser(featurise) if featurise else reader_of(network)
    return explorer.Session.of_run(run, network, find_graphs(network, model, graphs, named["data"]), featurise=made)


def _named_by(run: Path) -> dict[str, Any]:
    """The model and the graphs of a run, as its command named them; code is not run."""
    from walkwise.files import read_json

    manifest = read_json(run / _MANIFEST)
    command = manifest.get("command") if isinstance(manifest, dict) else None
    words = commanded(str(command)) if command else {}
    code = [word for word in words.values() if is_import_path(word)]
    if not words or code:
        why = f"names code to run, {code[0]}," if code else "does not say where its model and its graphs are,"
        raise SourceError(
            f"{run / _MANIFEST} {why} so name them yourself: walkwise explore MODEL GRAPHS --run {run}.",
            argument="model",
            expected="a run of a model and of graphs in files, or of bundled ones",
            got=code[0] if code else None,
        )
    places = {name: Path(words[name]) if name in words else None for name in ("weights", "data")}
    return {"model": words["model"], "graphs": words.get("graphs"), "featurise": None} | places
