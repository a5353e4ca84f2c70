"""Output of commands: tables for people, one JSON object for machines, errors in one line."""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from walkwise.cli.names import SourceError
from walkwise.cli.wording import in_options
from walkwise.errors import WalkwiseError
from walkwise.page import number

#: The line width without a terminal, as in pipes and files.
_WIDTH = 110


#: The gap between two columns of a table, and the longest row name that is kept on one line.
_GAP, _NAME = 3, 40

#: Errors that other people's code may raise, without typer's own.
_UNFORESEEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Commands(TyperGroup):
    """The group of commands; turns any error into one line and an exit code.

    2: the command line names something that does not exist. 1: the library cannot do what was asked. 130: interrupted.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except WalkwiseError as error:
            _fail(ctx, in_options(error), 2 if isinstance(error, SourceError) else 1)
        except KeyboardInterrupt:
            _fail(ctx, "Interrupted.", 130)
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except _UNFORESEEN as error:
            _fail(ctx, f"{type(error).__name__}: {error} (--debug shows where.)", 1)


def _fail(ctx: Any, message: str, code: int) -> None:
    if ctx.meta.get("walkwise.debug"):
        traceback.print_exc()
    points = any(line.strip() == "^" for line in message.splitlines())  # a caret means a place in the line above
    words = visible(message if points else " ".join(message.split()))
    Console(stderr=True).print(Text(words, style="red"), soft_wrap=True)
    raise typer.Exit(code) from None


def visible(words: str) -> str:
    r"""Text with control characters escaped, because names in files cannot be trusted.

    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(sign if sign == "\n" or sign.isprintable() else ascii(sign)[1:-1] for sign in words)


def console() -> Console:
    """Standard output; plain and wide if it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH)


@contextmanager
def loading(words: str, *, quiet: bool = False) -> Iterator[None]:
    """Say at once what will be done, and on a terminal also that PyTorch is being loaded.

    Args:
        words: what will be done.
        quiet: a program reads standard output: leave them out.
    """
    if not quiet:
        say(visible(words), wrap=True)
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write("Loading PyTorch …")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


def progress() -> bool:
    """Whether to show progress bars: they go to standard error, and only to a terminal."""
    return sys.stderr.isatty()


def print_json(report: dict[str, Any]) -> None:
    """The report on standard output; numbers that are not finite become null."""
    sys.stdout.write(json.dumps(_plain(report), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, note: str = "") -> None:
    """Print a table under its title; columns whose name starts with ">" hold numbers and are right-aligned."""
    out = console()
    cells = [[number(cell) for cell in row] for row in rows]
    widths = _widths(columns, cells, out.width)
    crowded = sum(widths) + _GAP * (len(widths) - 1) > out.width
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0 if crowded else 1))
    for column, width in zip(columns, widths, strict=True):
        side: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        made.add_column(Text(column.lstrip(">")), justify=side, width=width, overflow="fold")
    for row in cells:
        made.add_row(*(Text(_broken(c) if cell_len(c) > w else c) for c, w in zip(row, widths, strict=True)))
    out.print(Text(f"\n{title}", style="bold"), soft_wrap=True)
    out.print(made)
    say(note, wrap=True)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The column widths of a table: natural, or narrower if a line has no room for that.

    Then titles and text are broken between words, and columns move closer; if that is not enough, the names of rows and
    numbers are broken, too.

    >>> _widths(["name", ">relevance of each", "nodes"], [["styrene oxide", "0.25", "0 C, 1 O"]], 38)
    [13, 11, 8]
    """
    titles = [column.lstrip(">") for column in columns]
    held = [[row[i] for row in rows] for i in range(len(columns))]
    widths = [max(map(cell_len, [title, *cells])) for title, cells in zip(titles, held, strict=True)]
    for names, gap in ((True, _GAP), (True, 1), (False, 1)):
        least = []
        for i, (title, cells) in enumerate(zip(titles, held, strict=True)):
            whole = names and (columns[i].startswith(">") or (i == 0 and widths[i] <= _NAME))
            words = [*title.split(), *(cells if whole else " ".join(map(_broken, cells)).replace("\n", " ").split(" "))]
            least.append(max(map(cell_len, words), default=1))
        while sum(widths) + gap * (len(widths) - 1) > room and widths != least:
            widths[max(range(len(widths)), key=lambda i: widths[i] - least[i])] -= 1
    return widths


def _broken(cell: str) -> str:
    """A number too long for its column, with its uncertainty on a line of its own."""
    return cell.replace(" ± ", "\n±\N{NO-BREAK SPACE}")


def say(words: str | Text, *, wrap: bool = False) -> None:
    """Print lines, if there are any; paragraphs are wrapped, paths and commands are not."""
    if words:
        console().print(words, soft_wrap=not wrap, markup=False, highlight=False)


def tell(words: str) -> None:
    """Print a line for people on standard error, which programs need not read."""
    Console(stderr=True).print(Text(words, style="yellow"), soft_wrap=True)


def listed(nodes: Sequence[int] | Sequence[str], labels: Sequence[str] = (), *, most: int = 12) -> str:
    """Nodes as text, with their names if they have any; or names that stand for them.

    >>> listed([0, 4], ["C", "", "", "", "N"])
    '0 C, 4 N'
    """
    texts = [f"{node} {labels[int(node)]}".strip() if labels else str(node) for node in nodes[:most]]
    return ", ".join(texts) + (f", … ({len(nodes)} nodes)" if len(nodes) > most else "")
