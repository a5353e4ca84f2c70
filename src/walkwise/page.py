"""A report as one self-contained HTML page: it includes its pictures and fetches nothing."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from walkwise import display


@dataclass(frozen=True)
class Grid:
    """A table; columns whose name starts with ">" hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    wide: bool = False  # whether it takes the whole width of a wide screen


@dataclass(frozen=True)
class Image:
    """A picture as SVG, with its caption, and the words that stand for it where it cannot be seen."""

    svg: bytes
    alt: str
    caption: str
    width: str = "half"  # of a wide screen: "half" or "third"


@dataclass(frozen=True)
class Section:
    """A part of the report."""

    title: str
    words: str
    grids: Sequence[Grid] = ()
    images: Sequence[Image] = field(default=())


_STYLE = """
:root { --ink: #1c2530; --soft: #5b6672; --line: #dfe4ea; --paper: #ffffff; --page: #f3f5f8; --accent: #c2410c; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, Helvetica,
  Arial, sans-serif; }
header, main, footer { max-width: 1120px; margin: 0 auto; padding: 0 clamp(14px, 3vw, 32px); }
header { padding-top: 36px; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0 0 .4em; }
h2 { font-size: 1.25rem; margin: 0 0 .5em; }
p { max-width: 78ch; margin: .4em 0 1em; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; margin: 22px 0;
  padding: clamp(14px, 2.5vw, 28px); }
.figures, .tables { display: grid; gap: 24px 32px; grid-template-columns: repeat(6, minmax(0, 1fr)); margin-top: 18px; }
.half { grid-column: span 3; }
.third { grid-column: span 2; }
.wide { grid-column: 1 / -1; }
figure { margin: 0; }
figure img { display: block; width: 100%; height: auto; background: #fff; }
figcaption, .note { color: var(--soft); font-size: .9rem; margin: .4em 0 0; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
h3 { font-size: 1rem; margin: 0 0 .3em; }
th, td { text-align: left; padding: .34em .7em .34em 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
.right { text-align: right; padding-left: .7em; white-space: nowrap; }
.right + :not(.right) { padding-left: 1.2em; }
th.right { white-space: normal; }
.half :is(th, td) { padding-right: .4em; }
.half .right { padding-left: .5em; }
td { overflow-wrap: break-word; }
@media (min-width: 1100px) { td:first-child { white-space: nowrap; } }
pre { background: var(--page); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; overflow-x: auto;
  font: .88rem/1.6 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
footer { color: var(--soft); font-size: .88rem; padding-bottom: 36px; }
@media (max-width: 760px) { .half, .third { grid-column: 1 / -1; } }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #a3abb5; --line: #363b42; --paper: #1f2328; --page: #15181c; --accent: #ff9a5c;
    color-scheme: dark; }
  figure img { filter: invert(0.87) hue-rotate(180deg); }
}
@media print { body { background: #fff; } section { break-inside: avoid; border: 0; padding: 0; } }
"""


def number(value: Any) -> str:
    """A cell: four digits of a number, anything else as it is.

    >>> number(0.123456), number(-1234.5), number("C"), number(None), number(7)
    ('0.1235', '−1234', 'C', '', '7')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return display.number(value) if isinstance(value, float) else str(value)


def render(title: str, lead: str, sections: Sequence[Section], *, commands: Sequence[str], foot: str) -> str:
    """The page: a lead, the sections, commands to try next, and a last line.

    Args:
        title: of the page.
        lead: a paragraph.
        sections: its parts.
        commands: one per line.
        foot: the last line.

    >>> html = render("T", "a < b", [], commands=["walkwise demo"], foot="")
    >>> "a &lt; b" in html, "http" in html
    (True, False)
    """
    parts = [_section(section) for section in sections]
    listed = "\n".join(escape(command) for command in commands)
    parts.append(f"<section><h2>Try next</h2><pre>{listed}</pre></section>")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1><p>{escape(lead)}</p></header>\n<main>\n"
        + "\n".join(parts)
        + f"\n</main>\n<footer><p>{escape(foot)}</p></footer>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    figures = "".join(_figure(image) for image in section.images)
    tables = "".join(_table(grid) for grid in section.grids)
    return (
        f"<section><h2>{escape(section.title)}</h2><p>{escape(section.words)}</p>"
        + (f'<div class="figures">{figures}</div>' if figures else "")
        + (f'<div class="tables">{tables}</div>' if tables else "")
        + "</section>"
    )


def _figure(image: Image) -> str:
    data, alt = b64encode(image.svg).decode("ascii"), escape(image.alt, quote=True)
    picture = f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}">'
    return f'<figure class="{image.width}">{picture}<figcaption>{escape(image.caption)}</figcaption></figure>'


def _table(grid: Grid) -> str:
    sides = [' class="right"' if column.startswith(">") else "" for column in grid.columns]
    names = [escape(column.lstrip(">")) for column in grid.columns]
    head = "".join(f'<th scope="col"{side}>{name}</th>' for name, side in zip(names, sides, strict=True))
    lines = [zip(row, sides, strict=True) for row in grid.rows]
    rows = "".join(f"<tr>{''.join(f'<td{s}>{escape(number(cell))}</td>' for cell, s in line)}</tr>" for line in lines)
    note = f'<p class="note">{escape(grid.note)}</p>' if grid.note else ""
    title = escape(grid.title, quote=True)
    table = f'<table aria-label="{title}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    width = "wide" if grid.wide else "half"
    return f'<div class="{width}"><h3>{title}</h3><div class="table">{table}</div>{note}</div>'
