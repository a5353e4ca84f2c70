"""The command ``walkwise``: one module per sub-command, put together here.

Needs the extra ``cli``.
"""

try:
    import rich  # noqa: F401
    import typer
except ImportError as error:
    raise SystemExit("The command walkwise needs typer and rich: pip install 'walkwise[cli]'.") from error

from walkwise.cli import reproduce

__all__ = ["app"]

app = typer.Typer(
    name="walkwise",
    help="Which part of a graph made the model say that?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def walkwise() -> None:
    """Which part of a graph made the model say that?"""


app.command("reproduce")(reproduce.reproduce)
