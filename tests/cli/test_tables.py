"""Tables fit the line: columns move closer first, and numbers are broken last, before what they are uncertain by."""

import pytest
from rich.console import Console

from walkwise.cli import output

COLUMNS = ["method", "α", ">auac", ">aupc", ">fidelity+", ">fidelity-", ">auroc", ">graphs", ">ms / graph"]
ROWS = [
    ["random", "", "1.468 ± 2.2", "6.228 ± 2.5", "4.551 ± 1.6", "5.715 ± 2.6", "0.44 ± 0.3", 2, 0.3019],
    ["integrated-gradients", "0.3", "4.821 ± 6.2", "5.825 ± 3.9", "6.383 ± 2.4", "9.763 ± 7.6", "0.795 ± 0.2", 2, 99.5],
]


def shown(monkeypatch, capsys, width):
    monkeypatch.setattr(output, "console", lambda: Console(width=width))
    output.show_table("measured", COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    return [line.split() for line in lines]


@pytest.mark.parametrize("width", [120, 110, 100])
def test_numbers_stay_in_one_line(monkeypatch, capsys, width):
    assert [word for cell in map(str, ROWS[1]) for word in cell.split()] in shown(monkeypatch, capsys, width)


def test_a_number_is_broken_before_its_uncertainty(monkeypatch, capsys):
    lines = shown(monkeypatch, capsys, 80)
    first = lines.index(["random", "1.468", "6.228", "4.551", "5.715", "0.44", "2", "0.3019"])
    assert lines[first + 1] == ["±", "2.2", "±", "2.5", "±", "1.6", "±", "2.6", "±", "0.3"]
