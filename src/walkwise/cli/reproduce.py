"""``walkwise reproduce``: the paper's tables and figures."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from walkwise.cli import options
from walkwise.cli.names import EXHIBITS, choice
from walkwise.cli.output import console, loading, print_json, progress, say

if TYPE_CHECKING:
    from walkwise.paper.run import Result

_WHAT = f"What to make: {', '.join(EXHIBITS)}, or all."


def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=_WHAT)],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run, about five minutes on two cores.")] = False,
    data: options.DataRoot = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A folder of trained models: NAME.torch as the authors publish them, or NAME.safetensors.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for results.")] = Path("paper"),
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Reproduce the paper's tables and figures, with a report that sets our numbers beside the paper's.

    Models without weights are trained first. Finished work is kept in the output folder, and an interrupted run picks
    up where it stopped. With "all", whatever lacks its data set is skipped, and the report says so; a table or figure
    asked for by name fails without its data.
    """
    choice(what, (*EXHIBITS, "all"), "table or figure")
    made = "the paper's tables and figures" if what == "all" else f"the paper's {what}"
    with loading(f"Reproducing {made} in {out}.", quiet=as_json):
        from walkwise.paper import report, run
        from walkwise.paper.bench import FULL, QUICK, Bench
        from walkwise.paper.omissions import reasons
    try:
        if weights is not None and not weights.is_dir():
            raise typer.BadParameter(f"{weights} is not a folder.", param_hint="--weights")
        bench = Bench(QUICK if quick else FULL, data, weights, out)
        results = run.reproduce(run.chosen(what), bench, skip_missing=what == "all", progress=progress())
        path = report.write_report(results, bench, _command())
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted. The same command resumes where it stopped.")
        raise typer.Exit(130) from None
    if as_json:
        print_json({"command": "reproduce", "results": [_summary(result) for result in results], "report": str(path)})
        return
    console().print(_table(results))
    say("\n".join(reasons(omission for result in results for omission in result.skipped)), wrap=True)
    console().print(Text(f"Report: {path}"), soft_wrap=True)


def _command() -> str:
    """The command line, as one would type it."""
    return shlex.join(["walkwise", *sys.argv[1:]])


def _summary(result: Result) -> dict[str, Any]:
    finding = result.finding
    return {
        "name": result.exhibit.name,
        "holds": None if finding is None else finding.holds,
        "verdict": None if finding is None else finding.verdict,
        "skipped": [str(omission) for omission in result.skipped],
        "seconds": result.seconds,
    }


def _table(results: list[Result]) -> Table:
    from walkwise.paper.omissions import left_out

    table = Table("", "holds", "", show_lines=True)
    for result in results:
        finding = result.finding
        holds = "skipped" if finding is None else finding.word
        words = f"without {left_out(result.skipped)}" if finding is None else finding.verdict
        table.add_row(result.exhibit.name, holds, Text(words))  # brackets in it are no markup
    return table
