"""Rows as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from walkwise.files import harmless, write_whole
from walkwise.paper.units import Row


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Writes rows as a CSV file; the columns are all names that occur, in the order they are met."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writerow({name: harmless(name) for name in columns})
    writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)
    write_whole(path, file.getvalue())


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(markdown(["α", "accuracy"], [["0", "0.98"]]))
    | α | accuracy |
    |---|---|
    | 0 | 0.98 |
    """
    rule = "|" + "---|" * len(header)
    return "\n".join([_line(header), rule, *map(_line, lines)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def number(value: float | None) -> str:
    """A number in three digits, a dash for none.

    >>> number(0.01234), number(4.2), number(142000.0), number(None)
    ('0.0123', '4.20', '1.42 × 10⁵', '—')
    """
    if value is None:
        return "—"
    if abs(value) >= 10_000:
        mantissa, power = f"{value:.2e}".split("e")
        return f"{mantissa} × 10{str(int(power)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"
