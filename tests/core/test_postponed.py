"""Tensors that are worked out when they are asked for."""

import copy
import pickle

import pytest
import torch

from walkwise.core.postponed import Postponed, some, whole

VALUES = torch.arange(30.0).view(10, 3)


def made(asked=None):
    """VALUES, postponed; notes in ``asked`` which rows were worked out."""

    def make(rows):
        if asked is not None:
            asked.append(None if rows is None else rows.tolist())
        return VALUES * 1 if rows is None else VALUES[rows]

    return Postponed((10, 3), make)


def test_rows_are_worked_out_by_themselves_until_it_is_cheaper_to_have_all():
    asked = []
    given = made(asked)
    for rows in ([1, 2], [9], [0, 0, 0]):
        assert torch.equal(given.index_select(0, torch.tensor(rows)), VALUES[rows])
    assert asked == [[1, 2], [9], [0, 0, 0]]
    assert torch.equal(given.index_select(0, torch.tensor([4, 5, 6, 7])), VALUES[[4, 5, 6, 7]])  # ten of ten
    assert torch.equal(given.index_select(0, torch.tensor([3])), VALUES[[3]])
    assert asked[3:] == [None]
    assert given.make is None  # and what it holds on to


def test_the_same_rows_are_worked_out_once():
    asked = []
    given, rows = made(asked), torch.tensor([1, 2])
    assert given.index_select(0, rows) is given.index_select(0, rows)
    assert len(asked) == 1


def test_all_rows_are_worked_out_once():
    asked = []
    given = made(asked)
    assert torch.equal(given.unsqueeze(1), VALUES.unsqueeze(1))
    assert given.whole() is whole(given)
    assert torch.equal(given.index_select(0, torch.tensor([2])), VALUES[2:3])
    assert asked == [None]


def test_columns_are_worked_out_together():
    asked = []
    given, rows = made(asked), torch.tensor([5, 1])
    parts = given.columns(3)
    found = [part.index_select(0, rows) for part in parts]
    assert torch.equal(torch.cat(found, dim=1), VALUES[rows])
    assert len(asked) == 1
    assert torch.equal(torch.cat([part.whole() for part in parts], dim=1), VALUES)
    assert asked == [[5, 1], None]
    assert [part.shape for part in parts] == [(10, 1)] * 3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_a_copy_is_the_tensor(copied):
    assert torch.equal(copied(made()), VALUES)
    assert type(copied(made())) is torch.Tensor


def test_what_is_switched_on_when_rows_are_asked_for_does_not_matter():
    weight = torch.ones(1, 3, requires_grad=True)
    rows = torch.tensor([1])
    for mode in (torch.enable_grad(), torch.inference_mode(), torch.no_grad()):
        given = Postponed((10, 3), lambda rows: some(VALUES, rows) * weight)
        with mode:
            found = [given.index_select(0, rows), given.whole()]
        assert not any(tensor.requires_grad or tensor.is_inference() for tensor in found)


def test_a_single_row_stands_for_all():
    row = VALUES[:1]
    assert some(row, torch.tensor([4, 5])) is row
    assert some(VALUES, None) is VALUES
    assert torch.equal(some(VALUES, torch.tensor([4])), VALUES[4:5])
