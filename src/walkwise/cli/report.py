"""``walkwise report``: what a model looks for over a whole data set, as one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from walkwise.cli import options
from walkwise.cli.names import check_run
from walkwise.cli.output import loading, print_json, say


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, finished or not.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder for the report; default: DIR/report.", show_default=False),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Report on a run: what the model looks for, on one self-contained page.

    Its content depends on the questions of the run: nodes, groups, subgraph, curves.
    """
    check_run(folder)
    with loading(f"Reporting on the run in {folder}.", quiet=as_json):
        from walkwise import runs

    page = runs.report(folder, out=out)
    if as_json:
        print_json({"command": "report", "folder": str(folder), "page": str(page)})
    else:
        say(f"Open {page}\nGraph by graph: walkwise explore {shlex.quote(str(folder))}")
