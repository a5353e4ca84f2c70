"""The command ``walkwise``: one module per sub-command, put together here.

Needs the extra ``cli``.
"""

try:
    import rich  # noqa: F401
    import typer
except ImportError as error:
    raise SystemExit("The command walkwise needs typer and rich: pip install 'walkwise[cli]'.") from error

from typing import Annotated

from walkwise import __version__
from walkwise.cli import (
    compare,
    demo,
    explain,
    explore,
    interactions,
    options,
    order,
    report,
    reproduce,
    run,
    train,
    walks,
)
from walkwise.cli.output import Commands
from walkwise.cli.wording import paragraphs

__all__ = ["app"]

app = typer.Typer(
    name="walkwise",
    cls=Commands,
    help="Which part of a graph made the model say that?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"walkwise {__version__}")
        raise typer.Exit


@app.callback()
def walkwise(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Which part of a graph made the model say that?"""


for command in (
    demo.demo,
    explain.explain,
    order.order,
    walks.walks,
    interactions.interactions,
    compare.compare,
    run.run,
    report.report,
    train.train,
    explore.explore,
    reproduce.reproduce,
):
    app.command(command.__name__, help=paragraphs(command.__doc__ or ""))(command)
