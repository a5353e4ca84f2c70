"""Numbers and tables for people to read, as text and as HTML, whatever they are about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Any

#: Below this share of the largest number beside it, a number is rounding, and is written as 0.
_ROUNDING = 1e-6

_BOX = "max-width:100%;overflow-x:auto;line-height:1.4"
_NOTE = "opacity:.75;font-size:90%;max-width:30em"
_CELL = "padding:.15em .8em .15em 0;border-bottom:1px solid rgba(128,128,128,.3);vertical-align:top"


def number(value: float, *, digits: int = 4, scale: float = 0.0, signed: bool = False) -> str:
    """A number in this many digits, with a true minus.

    Args:
        value: the number.
        digits: how many count.
        scale: the largest number it stands beside: what is 0 but for rounding is written as 0.
        signed: write a plus, too.

    >>> number(-0.123456), number(2.0, signed=True), number(-6.3e-08, scale=1.0), number(0.0, signed=True)
    ('−0.1235', '+2', '0', '0')
    """
    if abs(value) <= _ROUNDING * scale:
        return "0"
    text = f"{value:.{digits}g}"
    return (("+" if signed and value > 0 else "") + text).replace("-", "\N{MINUS SIGN}")


def count(amount: int, thing: str) -> str:
    """This many of a thing.

    >>> count(1, "node"), count(2, "node"), count(0, "graph")
    ('1 node', '2 nodes', '0 graphs')
    """
    return f"{amount} {thing}" if amount == 1 else f"{amount:,} {thing}s"


def arrows(names: Iterable[str]) -> str:
    """The nodes of a walk by name, from input to output; many positions in a row that it bypasses are counted.

    >>> arrows(["0 O", "–", "1 N"]), arrows([*["–"] * 10, "14", "4"])
    ('0 O → – → 1 N', '– ×10 → 14 → 4')
    """
    runs = [(name, len(list(same))) for name, same in groupby(names)]
    return " → ".join(f"– ×{k}" if name == "–" and k > 2 else " → ".join([name] * k) for name, k in runs)


def listed(items: Sequence[Any], *, most: int = 12) -> str:
    """The first of some things with commas between, and how many there are where that is not all.

    >>> listed([3, 1, 4], most=2)
    '3, 1, … (3)'
    """
    words = ", ".join(map(str, items[:most]))
    return words if len(items) <= most else f"{words}, … ({len(items)})"


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", note: str = "") -> str:
    """A table in HTML; columns whose name starts with ">" hold numbers and are set to the right.

    Args:
        columns: their names.
        rows: the cells; numbers are written in four digits.
        title: stands above.
        note: stands below.

    >>> html_table(["node", ">relevance"], [("<0>", 0.25)]).count("&lt;0&gt;")
    1
    """
    listed_rows = [list(row) for row in rows]
    sides = [f"text-align:{'right' if column.startswith('>') else 'left'};{_CELL}" for column in columns]
    scales = [max((abs(c) for c in cells if isinstance(c, float)), default=0.0) for cells in zip(*listed_rows)]  # noqa: B905
    head = "".join(f'<th style="{side}">{escape(c.lstrip(">"))}</th>' for c, side in zip(columns, sides, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{side}">{escape(number(cell, scale=scale) if isinstance(cell, float) else str(cell))}</td>'
            for cell, side, scale in zip(row, sides, scales, strict=True)
        )
        + "</tr>"
        for row in listed_rows
    )
    caption = f'<div style="font-weight:600;margin:.5em 0 .1em">{escape(title)}</div>' if title else ""
    below = f'<div style="{_NOTE}">{escape(note)}</div>' if note else ""
    return (
        f'{caption}<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        f"{below}"
    )


def html_box(*parts: str) -> str:
    """Pieces of HTML in one box that takes no more room than there is."""
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def html_line(words: str, *, strong: bool = False) -> str:
    """A line of text in HTML."""
    return f'<div style="margin:.2em 0{";font-weight:600" if strong else ""}">{escape(words)}</div>'
