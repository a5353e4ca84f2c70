"""Which rows a result depends on."""

import pytest
import torch

from walkwise.tracing.dependence import dependence, gradients, mixes, reached, rerun, uneven
from walkwise.tracing.recording.tape import Tape


def leaf(M, *width):
    return torch.rand(M, *width, requires_grad=True)


@pytest.mark.parametrize("M", [2, 3, 8, 33])
def test_a_single_row_of_another_is_seen(M):
    x = leaf(M, 2)
    assert not mixes(x * 2, [x])
    for one in range(M):
        for other in {0, M // 2, M - 1} - {one}:
            assert mixes(x.index_add(0, torch.tensor([one]), x[[other]]), [x])


def test_rows_show_what_they_depend_on():
    x, y = leaf(4, 2), leaf(4, 3)
    made = torch.cat([x.roll(1, 0), y.cumsum(0)], 1)
    rows, depends = dependence(made, [x])
    assert rows.tolist() == [0, 1, 2, 3]
    assert torch.equal(depends, torch.eye(4).bool().roll(-1, 1))
    assert torch.equal(dependence(made, [y])[1], torch.ones(4, 4).tril().bool())
    assert reached(made, [x], torch.tensor([0, 1])).tolist() == [True, False, False, True]
    assert reached(made, [x, y], torch.tensor([0, 1])).tolist() == [True, True, False, True]
    assert reached(made, [x]).all()
    assert not reached(torch.ones(4, 2), [x]).any()


def test_of_many_rows_some_are_looked_at():
    x = leaf(40, 1)
    rows, depends = dependence(x * 1, [x])
    assert rows.tolist() == [*range(0, 40, 3)]
    assert torch.equal(depends.nonzero()[:, 1], rows)


def test_what_columns_have_in_common_does_not_cancel():
    x = leaf(3, 1)
    (gradient,) = gradients(uneven(torch.cat([x, -x], 1)), [x])
    assert bool((gradient != 0).all())


def test_operations_run_again_on_other_values():
    x, other = torch.rand(3, 2), torch.rand(3, 2)
    with Tape() as tape:
        tape.follow_features(x)
        y = x.exp()
        z = y * x
    slots = [tape.slot_of(tensor) for tensor in (x, y, z)]
    whole = rerun(tape.ops, tape.values, {slots[0]: other})
    torch.testing.assert_close(whole[slots[2]], other.exp() * other)
    last = rerun(tape.ops[1:], tape.values, {slots[0]: other})  # the rest is as it was
    torch.testing.assert_close(last[slots[2]], x.exp() * other)
