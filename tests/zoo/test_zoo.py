"""Real architectures: exact against the reference, or refused for a true reason."""

import pytest
import torch

from zoo.checks import checked
from zoo.inventory import ALL
from zoo.models import M
from zoo.molecules import dimenet, dimenet_pp, same_as_ready_made
from zoo.table import PAGE, page

FOUND = {}


def test_there_are_many():
    assert len(ALL) >= 80
    assert len({entry.name for entry in ALL}) == len(ALL)


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_exact_or_refused(entry):
    FOUND[entry.name] = checked(entry)


@pytest.mark.parametrize("make", [dimenet, dimenet_pp])
def test_blocks_in_one_layer_give_what_the_model_does(make):
    torch.manual_seed(6)
    before, after = same_as_ready_made(make(), torch.arange(1, M + 1).view(M, 1))
    torch.testing.assert_close(before, after)


def test_the_page_is_current():
    results = [FOUND.get(entry.name) or checked(entry) for entry in ALL]
    assert PAGE.read_text(encoding="utf-8") == page(results), "run python tests/zoo/table.py"
