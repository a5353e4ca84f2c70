"""Which of several equal numbers come first."""

import pytest
import torch

from walkwise.questions.ties import by_size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_by_size_are_listed_by_place_where_they_tie(dtype):
    """Atoms that a symmetry makes equal come out a little apart; which is larger says nothing."""
    step = 2e-7 if dtype == torch.float32 else 1e-10
    values = torch.tensor([0.5, -2.0, 1.0, 1.0 + step, 0.0, 2.0 + step, -1.0 - step], dtype=dtype)
    assert by_size(values) == [1, 5, 2, 3, 6, 0, 4]
    assert by_size(values[:0]) == []


def test_numbers_further_apart_do_not_tie():
    assert by_size(torch.tensor([1.0, 1.0 + 1e-8, 1.0 + 2e-8], dtype=torch.float64)) == [2, 1, 0]
