"""Steps that rearrange tensors, as maps of rows: they give the same, and what mixes rows is no such map."""

import itertools

import pytest
import torch

from walkwise.core.cast import Cast
from walkwise.core.contract import pull_back, unweighted
from walkwise.core.differential import MOVING, Differential, RowFunction
from walkwise.core.operators import Columns, Identity, RowMap, Scale, Step, Visit
from walkwise.core.row_maps import Gather, Reshape, Scatter, Send, SumRows
from walkwise.core.rows import AllNodes
from walkwise.tracing.steps.axes import Axis
from walkwise.tracing.steps.row_by_row import row_by_row as told_by_row

K, N = 6, 4
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


X = drawn(K, N)


def of(func, *args, at=(K, N), **kwargs):
    """The derivative of a function, of its argument of this shape."""
    value = drawn(*at)
    shape = func(*(value if a is MOVING else a for a in args), **kwargs).shape
    return Differential(func, args, kwargs, value, 0, shape)


def row_by_row(steps, like):
    slots = itertools.count(100)
    return told_by_row(steps, lambda: next(slots), like)


def chain(*operators):
    return [Step((operator,), (slot,), slot + 1) for slot, operator in enumerate(operators)]


def copied(base, index, rows):
    return base.index_copy(0, index, rows)


PICKED, SOME = torch.tensor([5, 0, 0, 3]), torch.tensor([4, 1, 2])
HEADS, BY_ROW, BY_COLUMN = drawn(2, N, 3), drawn(K, N, 5), drawn(2, 2, 2)
FIRST = of(torch.transpose, MOVING, 0, 1)

ROW, ROWS = torch.Size((1, K * N)), torch.Size((K, N))
NOTHING = torch.zeros(K, N).double()
BACK = of(torch.transpose, MOVING, 0, 1, at=(N, K))


def first(rows):
    return torch.stack([rows, 0 * rows])


def second(rows):
    return torch.stack([0 * rows, rows])


def added(base, rows):
    return base.index_add(1, torch.tensor([4, 4, 1, 2]), rows)


CASES = {
    "in another shape": (
        chain(of(torch.unsqueeze, MOVING, 0), of(torch.squeeze, MOVING, 0, at=(1, K, N))),
        [Identity] * 2,
    ),
    "stacked alone and flattened": (
        chain(of(lambda rows: torch.stack([rows]), MOVING), Reshape(ROW, ROWS), Visit(0, 2)),
        [Identity, Identity, Visit],
    ),
    "there and back": (chain(FIRST, BACK), [Identity] * 2),
    "scaled on the way": (chain(FIRST, Scale(drawn(N, K)), BACK), [Identity, Scale, Identity]),
    "scaled as one row": (
        chain(Reshape(ROWS, ROW), Scale(drawn(1, K * N)), Reshape(ROW, ROWS)),
        [Identity, Scale, Identity],
    ),
    "heads first": (
        chain(of(torch.matmul, MOVING, HEADS), of(torch.mean, MOVING, 0, at=(2, K, 3))),
        [RowMap, RowMap],
    ),
    "gathered and added up beside the heads": (
        chain(
            of(torch.matmul, MOVING, HEADS),
            of(torch.index_select, MOVING, 1, PICKED, at=(2, K, 3)),
            Scale(drawn(2, 12)),
            of(added, torch.zeros(2, K, 3).double(), MOVING, at=(2, 4, 3)),
            of(torch.sum, MOVING, 0, at=(2, K, 3)),
        ),
        [RowMap, Gather, Scale, Scatter, RowMap],
    ),
    "blocks": (chain(of(torch.einsum, "abc,bcd->abd", MOVING, BY_COLUMN, at=(K, 2, 2))), [RowMap]),
    "a matrix for every row": (chain(of(torch.matmul, MOVING, BY_ROW, at=(K, 1, N))), [RowFunction]),
    "stacked and added up": (
        [
            Step((of(first, MOVING), of(second, MOVING)), (0, 0), 1),
            Step((Scale(drawn(2, K * N)),), (1,), 2),
            Step((of(torch.sum, MOVING, 0, at=(2, K, N)),), (2,), 3),
        ],
        [RowMap, RowMap, Scale, RowMap],
    ),
    "copied to its place": (
        [
            Step((Gather(SOME, K),), (0,), 1),
            Step((of(copied, NOTHING, SOME, MOVING, at=(3, N)), of(copied, MOVING, SOME, NOTHING[:3])), (1, 0), 2),
        ],
        [Gather, Scatter, Scale],
    ),
    "nothing copied": (
        chain(Gather(SOME[:0], K), of(copied, NOTHING, SOME[:0], MOVING, at=(0, N))),
        [Gather, Scatter],
    ),
    "some rows twice, and none in others": (
        chain(of(lambda rows: torch.cat([rows, NOTHING[:2], rows]), MOVING)),
        [Send],
    ),
    "rows of one head, mapped and put back": (
        chain(
            of(torch.transpose, MOVING, 0, 1, at=(K, 2, 2)),
            Reshape(torch.Size((2, K * 2)), torch.Size((2 * K, 2))),
            of(lambda rows: rows[K + 1 : K + 4], MOVING, at=(2 * K, 2)),
            RowMap(drawn(2, 2)),
            of(lambda rows: torch.cat([NOTHING[:2, :2], rows, *[NOTHING[:, :2]] * 2])[: 2 * K], MOVING, at=(3, 2)),
            Reshape(torch.Size((2 * K, 2)), torch.Size((2, K * 2))),
            of(torch.transpose, MOVING, 0, 1, at=(2, K, 2)),
        ),
        [Identity, Identity, Gather, RowMap, RowMap, RowMap, Scatter, Identity, Identity],
    ),
    "rows that share an axis": (
        chain(
            Reshape(ROWS, torch.Size((2 * K, 2))),
            of(torch.transpose, MOVING, 0, 1, at=(2 * K, 2)),
            of(torch.matmul, drawn(2, 2), MOVING, at=(2, 2 * K)),
            of(lambda t: t.transpose(0, 1).reshape(K, N), MOVING, at=(2, 2 * K)),
        ),
        [Identity, RowMap, RowMap, RowMap],
    ),
}


#: Rows that are padded (K groups of 3), put together and taken apart.
PLACES = torch.tensor([0, 1, 4, 7, 8, 9, 12, 17])
NONE = torch.zeros(3 * K, N, dtype=torch.float64)
INTO_PLACES = Gather(torch.tensor([5, 0, 1, 1, 2, 3, 4, 5]), K), of(copied, NONE, PLACES, MOVING, at=(8, N))
PADDED = torch.Size((3 * K, N)), torch.Size((K, 3 * N))
CASES |= {
    "groups in a row": (
        chain(*INTO_PLACES, Reshape(*PADDED), RowMap(drawn(N, 3 * N))),
        [Gather, Scatter, Identity, Reshape, RowMap],
    ),
    "attention in groups": (
        chain(
            *INTO_PLACES,
            Reshape(*PADDED),
            of(torch.transpose, MOVING, 0, 1, at=(K, 3, N)),
            of(torch.transpose, MOVING, 0, 1, at=(3, K * 2, N // 2)),
            of(torch.matmul, drawn(2 * K, 3, 3), MOVING, at=(2 * K, 3, N // 2)),
            of(lambda t: t.transpose(0, 1).reshape(3, K, N).transpose(0, 1), MOVING, at=(2 * K, 3, N // 2)),
        ),
        [Gather, Scatter, Identity, Reshape, Identity, RowMap, RowFunction, RowMap],
    ),
    "a mean of halves": (
        chain(
            *INTO_PLACES,
            Reshape(*PADDED),
            of(lambda t: t.transpose(0, 1)[:2], MOVING, at=(K, 3, N)),
            Reshape(torch.Size((2, K * N)), torch.Size((2 * K, N))),
            RowMap(drawn(2 * N, N)),
            of(lambda t: t.view(2, K, 2 * N).mean(0), MOVING, at=(2 * K, 2 * N)),
        ),
        [Gather, Scatter, Identity, Reshape, RowMap, Identity, Reshape, Gather, RowMap, Scale, Scatter],
    ),
    "sorted in groups": (
        chain(
            *INTO_PLACES,
            of(lambda t: t[torch.tensor([[3 * k + 1, 3 * k + 2, 3 * k] for k in range(K)])], MOVING, at=(3 * K, N)),
            RowMap(drawn(N, 3 * N)),
        ),
        [Gather, Scatter, Scatter, Reshape, RowMap],
    ),
    "one group after the other, and both": (
        [
            *chain(*INTO_PLACES, Reshape(*PADDED)),
            Step((Scale(drawn(K, 3 * N)),), (3,), 4),
            Step((of(torch.flip, MOVING, (1,), at=(K, 3, N)),), (3,), 5),
            Step((Identity(), Identity()), (5, 4), 6),
            Step((RowMap(drawn(N, 3 * N)),), (6,), 7),
        ],
        [Gather, Scatter, Identity, Scale, Reshape, RowMap, Reshape, Identity, Identity, RowMap],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_map_of_rows_gives_the_same(name):
    steps, kinds = CASES[name]
    told, turned = row_by_row(steps, X)
    assert [type(operator) for step in told for operator in step.operators] == kinds
    assert steps[-1].target not in turned
    slots = {0: X}
    for step in steps:
        slots[step.target] = sum(o.push(slots[s]) for o, s in zip(step.operators, step.sources, strict=True))
    message = drawn(*slots[steps[-1].target].shape)[:, None, None]
    before, after = (
        pull_back(given, [(steps[-1].target, message)], AllNodes(len(message), 1), unweighted)[0]
        for given in (steps, told)
    )
    torch.testing.assert_close(after, before)
    for slot, axis in turned.items():  # the values that a slot has now
        assert axis.by_row(slots[slot]).shape == (axis.rows, axis.width)
        torch.testing.assert_close(axis.back(axis.by_row(slots[slot])), slots[slot])


def swapped(rows):
    return rows.view(K // 2, 2, N).flip(1).reshape(K, N) + rows


@pytest.mark.parametrize(
    "operator",
    [
        of(torch.cumsum, MOVING, 0),
        of(torch.softmax, MOVING, 0),
        of(torch.matmul, drawn(K, K), MOVING),
        of(swapped, MOVING),
        of(lambda rows: rows + rows.mean(0), MOVING),
        of(lambda rows: rows.index_add(0, torch.tensor([5]), rows[3:4]), MOVING),
        of(lambda rows: rows.relu() + rows.sum() ** 2, MOVING),
    ],
    ids=["running sums", "softmax", "a matrix of nodes", "pairs", "mean", "one row more", "all entries"],
)
def test_what_mixes_rows_is_no_map_of_rows(operator):
    assert row_by_row(chain(operator), X) is None
    assert row_by_row(chain(RowMap(drawn(N, N)), operator), X) is None


def test_where_all_rows_are_added_up_nothing_is_looked_into():
    steps = chain(of(torch.matmul, MOVING, BY_ROW, at=(K, 1, N)), SumRows(K, 1.0, False))
    assert row_by_row(steps, X) is None
    assert row_by_row(steps[:1], X) is not None


def test_a_walk_stands_at_rows_alone():
    assert row_by_row(chain(FIRST, Visit(0, 1)), X) is None


def test_what_is_a_map_of_rows_already_is_left_alone():
    steps = chain(RowMap(drawn(N, N)), Scale(drawn(K, N)), Columns.placed(0, N, N + 1))
    told, turned = row_by_row(steps, X)
    assert not turned
    assert all(a.operators == b.operators for a, b in zip(told, steps, strict=True))


def test_an_axis():
    axis = Axis((2, 3, 4), 1, 6)
    assert (axis.rows, axis.rest, axis.width, axis.natural) == (3, (2, 4), 8, False)
    values = drawn(6, 4)
    assert torch.equal(axis.by_row(values)[2], torch.cat([values[2], values[5]]))
    assert torch.equal(axis.back(axis.by_row(values)), values)
    assert Axis((6, 4), 0, 6).natural
    assert Axis((1, 6, 4), 1, 6).natural
    assert not Axis((2, 6, 4), 1, 6).natural
    assert not Axis((6, 4), 0, 1).natural


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("little", [1e-3, 1e-6, 1e-9, 1e-11])
def test_a_map_that_is_nearly_another_is_not_taken_for_it(little, dtype):
    """Rows that are mixed ever so little are mixed, also where numbers are too short to tell."""
    cast = Cast(None, dtype)
    mixing = of(lambda rows: rows + little * rows.roll(1, 0), MOVING).to(cast)
    assert row_by_row(chain(mixing), X.to(dtype)) is None
    assert row_by_row(chain(of(lambda rows: rows + little * rows, MOVING).to(cast)), X.to(dtype)) is not None


@pytest.mark.parametrize("name", ["attention in groups", "a mean of halves", "copied to its place"])
def test_maps_have_the_type_of_messages(name):
    steps = [step.to(Cast(None, torch.float32)) for step in CASES[name][0]]
    told, _ = row_by_row(steps, X.float())
    assert [type(operator) for step in told for operator in step.operators] == CASES[name][1]
    width = N if name != "a mean of halves" else 2 * N
    message = drawn(K, 1, 1, width if name != "attention in groups" else 3 * N).float()
    before, after = (
        pull_back(given, [(steps[-1].target, message)], AllNodes(K, 1), unweighted)[0] for given in (steps, told)
    )
    assert after.dtype == torch.float32
    torch.testing.assert_close(after, before)


def test_a_function_that_runs_in_its_own_type_alone():
    """A matrix that nothing casts: it is tried as it is."""
    matrix = drawn(N, N).float()
    steps = [Step((Differential(lambda rows: rows @ matrix, (MOVING,), {}, X.float(), 0, X.shape),), (0,), 1)]
    told, _ = row_by_row(steps, X.float())
    assert [type(operator) for operator in told[0].operators] == [RowMap]
