"""Rows of edges put together as sums over edges: the steps give the same values, and are the sums expected."""

import pytest
import torch

from walkwise.core.edges import Edges
from walkwise.core.operators import Aggregate, Columns, Identity, RowMap, Scale, Step
from walkwise.core.row_maps import Gather, Reshape, Scatter, Send
from walkwise.tracing.steps.messages import by_head, summed

M, E, N = 4, 6, 4
SOURCE, TARGET = torch.tensor([0, 1, 1, 2, 3, 0]), torch.tensor([1, 0, 2, 3, 3, 2])
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


X, EACH, BY_NEURON, HEADS = drawn(M, N), drawn(E, 1), drawn(E, N), drawn(E, 2).repeat_interleave(2, dim=1)
MATRIX, WIDE = RowMap(drawn(N, N)), RowMap(drawn(3, N))
PICK, OWN, ADD = Gather(SOURCE, M), Gather(TARGET, M), Scatter(TARGET, M)
AGAIN = torch.tensor([5, 0, 3, 3, 1, 2])


def chain(*operators):
    """Operators one after the other, from slot 0."""
    return [Step((operator,), (slot,), slot + 1) for slot, operator in enumerate(operators)]


CASES = {
    "plain": (chain(PICK, ADD), [Aggregate]),
    "weighted": (chain(PICK, Scale(EACH), ADD), [Aggregate]),
    "weighted twice": (chain(PICK, Scale(EACH), Scale(BY_NEURON), ADD), [Aggregate]),
    "by head": (chain(PICK, Scale(HEADS), ADD), [Aggregate]),
    "by neuron": (chain(PICK, Scale(BY_NEURON), ADD), [Aggregate]),
    "left as it is": (chain(PICK, Identity(), ADD), [Aggregate]),
    "mapped": (chain(PICK, MATRIX, Scale(EACH), ADD), [RowMap, Aggregate]),
    "mapped after one weight": (chain(PICK, Scale(EACH), MATRIX, ADD), [RowMap, Aggregate]),
    "mapped after weights by neuron": (chain(PICK, Scale(BY_NEURON), MATRIX, WIDE, ADD), [Aggregate, RowMap, RowMap]),
    "weighted after that": (chain(PICK, Scale(BY_NEURON), MATRIX, Scale(EACH), ADD), [Aggregate, RowMap]),
    "weighted by neuron after that": (
        chain(PICK, Scale(BY_NEURON), MATRIX, Scale(BY_NEURON), ADD),
        [Gather, Scale, RowMap, Scale, Scatter],
    ),
    "scaled for all": (chain(PICK, Scale(BY_NEURON[:1]), ADD), [Scale, Aggregate]),
    "among others": (chain(PICK, Columns.placed(1, N, 7), ADD), [Columns, Aggregate]),
    "picked twice": (chain(PICK, Scale(EACH), Gather(AGAIN, E), ADD), [Aggregate]),
    "picked twice, unweighted": (chain(PICK, Gather(AGAIN, E), ADD), [Aggregate]),
    "a node's own": (chain(OWN, Scale(BY_NEURON), ADD), [Scale]),
    "a node's own, unweighted": (chain(OWN, ADD), [Scale]),
    "to other nodes": (chain(PICK, Scale(EACH), Scatter(TARGET, M + 1)), [Send]),
    "what is no map of rows": (
        chain(PICK, Reshape(torch.Size((E, N)), torch.Size((E, N))), ADD),
        [Gather, Reshape, Scatter],
    ),
    "the sum of both ends": (
        [Step((PICK, OWN), (0, 0), 1), Step((Scale(EACH),), (1,), 2), Step((ADD,), (2,), 3)],
        [Aggregate, Scale],
    ),
    "read by others, too": (
        [*chain(PICK, ADD), Step((Scatter(AGAIN % 2, 2),), (1,), 3), Step((Identity(),), (2,), 4)],
        [Aggregate, Send, Identity],
    ),
    "needed as rows": (
        chain(PICK, Scale(EACH), Reshape(torch.Size((E, N)), torch.Size((1, E * N)))),
        [Gather, Scale, Reshape],
    ),
    "beside another": (
        [Step((PICK,), (0,), 1), Step((ADD, MATRIX), (1, 0), 2)],
        [Aggregate, RowMap],
    ),
    "of too many parts": (
        [Step((PICK,) * 9, (0,) * 9, 1), Step((ADD,), (1,), 2)],
        [Gather] * 9 + [Scatter],
    ),
    "of many parts": ([Step((PICK,) * 8, (0,) * 8, 1), Step((ADD,), (1,), 2)], [Aggregate] * 8),
}  # fmt: skip


def evaluated(steps):
    values = {0: X}
    for step in steps:
        pushed = [o.push(values[s]) for o, s in zip(step.operators, step.sources, strict=True)]
        values[step.target] = sum(pushed[1:], pushed[0])
    return values


def written(steps, named=()):
    slots = iter(range(100, 200))
    return summed(steps, named, lambda: next(slots), torch.float64)


@pytest.mark.parametrize("name", CASES)
def test_sums_over_edges_give_the_same_values(name):
    steps, expected = CASES[name]
    last = steps[-1].target
    always = [Step((Scatter(torch.zeros(M, dtype=torch.long), 1),), (0,), 50)]  # so that there is one to look for
    made = written([*steps, *always], [last])
    torch.testing.assert_close(evaluated(made)[last], evaluated(steps)[last])
    kinds = [type(operator) for step in made if step.target != 50 for operator in step.operators]
    assert kinds == expected


def test_slots_with_a_name_stay():
    steps, _ = CASES["weighted"]
    made = written(steps, [2, 3])
    assert [step.target for step in made] == [1, 2, 3]
    torch.testing.assert_close(evaluated(made)[2], evaluated(steps)[2])


def test_maps_and_edges_are_shared():
    steps = [
        Step((PICK,), (0,), 1),
        Step((MATRIX,), (1,), 2),
        Step((Scale(EACH),), (2,), 3),
        Step((ADD,), (3,), 4),
        Step((Scale(BY_NEURON),), (2,), 5),
        Step((ADD,), (5,), 6),
        Step((Aggregate(Edges(SOURCE, TARGET, M)),), (0,), 7),
    ]
    made = written(steps, [4, 6, 7])
    assert sum(type(operator) is RowMap for step in made for operator in step.operators) == 1
    assert len({id(o.edges) for step in made for o in step.operators if type(o) is Aggregate}) == 1
    for slot in (4, 6, 7):
        torch.testing.assert_close(evaluated(made)[slot], evaluated(steps)[slot])


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ([[1, 1, 2, 2], [3, 3, 3, 3]], [[1, 2], [3, 3]]),
        ([[1, 1, 1, 1], [3, 3, 3, 3]], [1, 3]),
        ([[1, 2, 2, 2], [3, 3, 3, 3]], [[1, 2, 2, 2], [3, 3, 3, 3]]),
        ([[1, 1, 1, 2, 2, 2]], [[1, 2]]),
        ([[1, 1, 1, 1, 2, 2]], [[1, 1, 2]]),
    ],
)
def test_weights_of_heads(weight, expected):
    assert by_head(torch.tensor(weight)).tolist() == expected
