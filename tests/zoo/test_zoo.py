"""Real architectures: exact against the reference, or refused for a true reason."""

import pytest

from zoo.checks import checked
from zoo.models import ZOO
from zoo.table import PAGE, page

FOUND = {}


def test_there_are_many():
    assert len(ZOO) >= 80
    assert len({entry.name for entry in ZOO}) == len(ZOO)


@pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry.name)
def test_exact_or_refused(entry):
    FOUND[entry.name] = checked(entry)


def test_the_page_is_current():
    results = [FOUND.get(entry.name) or checked(entry) for entry in ZOO]
    assert PAGE.read_text(encoding="utf-8") == page(results), "run python tests/zoo/table.py"
