"""Real architectures: exact against the reference, or refused for a true reason."""

import pytest

from zoo.checks import checked
from zoo.inventory import ALL
from zoo.table import PAGE, page

FOUND = {}


def test_there_are_many():
    assert len(ALL) >= 80
    assert len({entry.name for entry in ALL}) == len(ALL)


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_exact_or_refused(entry):
    FOUND[entry.name] = checked(entry)


def test_the_page_is_current():
    results = [FOUND.get(entry.name) or checked(entry) for entry in ALL]
    assert PAGE.read_text(encoding="utf-8") == page(results), "run python tests/zoo/table.py"
