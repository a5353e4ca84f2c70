"""``walkwise explore``: a page to explore a model's predictions with."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from walkwise.cli import options
from walkwise.cli.names import check_port
from walkwise.cli.output import loading
from walkwise.errors import MissingExtraError


def explore(
    model: options.ModelName = "ba2motif",
    graphs: options.DataName = None,
    weights: options.Weights = None,
    data: options.DataRoot = None,
    smiles: options.Smiles = None,
    index: options.Index = None,
    rule: options.RuleName = "auto",
    host: Annotated[str, typer.Option(help="The address to listen on; by default, only this computer can connect.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any that is free.")] = 8050,
    browser: Annotated[bool, typer.Option(help="Open the page in your browser.")] = True,
    debug: options.Debug = False,
) -> None:
    """Open a page to explore predictions with: pick a graph, select nodes, and read their relevance."""
    check_port(host, port)
    with loading():
        from walkwise.cli.asked import ask, opened
    try:
        explorer = import_module("walkwise.explorer")
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(f"The explorer cannot start ({error}): pip install 'walkwise[explore]'.") from error
    session = opened(model, graphs, weights=weights, smiles=smiles or (), root=data)
    ask(session, 0, target=None, index=index, rule=rule)  # what does not fit shows here, not in the page
    shown = explorer.Session(
        session.model,
        session.graphs,
        names=session.names,
        rule=rule,
        class_names=session.data.class_names or None,
        node_names=session.data.node_names or None,
        index=index,
    )
    explorer.serve(shown, host=host, port=port, open_browser=browser)
