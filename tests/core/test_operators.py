"""Every linear map a chain is made of, against its definition written out: forward, transposed, cast; its growth."""

import pytest
import torch

from walkwise.core import operators as ops
from walkwise.core import row_maps
from walkwise.core.cast import Cast
from walkwise.core.differential import MOVING, Differential
from walkwise.core.edges import Edges
from walkwise.core.postponed import Postponed
from walkwise.core.rows import AllNodes, OwnRows

M, N, K = 5, 4, 3
SOURCE, TARGET = [0, 0, 0, 1, 4], [1, 2, 2, 3, 4]
EDGES = Edges(torch.tensor(SOURCE), torch.tensor(TARGET), M)
ACROSS = Edges(torch.tensor(SOURCE), torch.tensor([1, 2, 2, 0, 0]), M)  # from five rows to three
WEIGHT = torch.tensor([3.0, -2.0, 5.0, 1.0, 2.0], dtype=torch.float64)
HEADS = torch.stack([WEIGHT, -2 * WEIGHT], dim=1)
MATRIX = torch.tensor([[1.0, -2, 3, 0], [4, 0, -9, 2], [-3, 1, 2, 2]], dtype=torch.float64)
FACTOR = torch.linspace(-3, 2, M * N, dtype=torch.float64).view(M, N)
PICKED, ADDED = [3, 3, 0, 4, 3, 1], [0, 0, 2, 2, 1]


def loops(like, shape, entries):
    """A tensor of that shape with products added up: (row, column, number)."""
    made = like.new_zeros(shape)
    for row, column, value in entries:
        made[row, column] += value
    return made


def along(x, targets, receivers, weight):
    """Every edge carries its source's row; ``weight(e, n)`` is what it weighs for neuron n."""
    pairs = [(e, n) for e in range(len(SOURCE)) for n in range(N)]
    return loops(x, (receivers, N), [(targets[e], n, weight(e, n) * x[SOURCE[e], n]) for e, n in pairs])


#: The operator, its definition, and the growth that it states.
CASES = {
    "identity": (ops.Identity(), lambda x: x, 1),
    "visit": (ops.Visit(0, 0), lambda x: x, 1),
    "scale": (ops.Scale(FACTOR), lambda x: x * FACTOR, 3),
    "one scale": (ops.Scale(FACTOR[-1:]), lambda x: x * FACTOR[-1], 2),
    "a scale of every node": (
        ops.Scale(FACTOR[:, :1]),
        lambda x: torch.stack([x[i] * FACTOR[i, 0] for i in range(M)]),
        3,
    ),
    "matrix": (ops.RowMap(MATRIX), lambda x: torch.stack([MATRIX @ row for row in x]), 3 * 9),
    "columns": (
        ops.Columns.placed(1, N, 7),
        lambda x: torch.cat([x.new_zeros(M, 1), x, x.new_zeros(M, 2)], dim=1),
        1,
    ),
    "a piece of every row": (ops.Columns((1, 2), N), lambda x: torch.stack([x[:, 1], x[:, 2]], dim=1), 1),
    "a piece in another place": (
        ops.Columns((-1, 2, 3, -1), N),
        lambda x: torch.stack([0 * x[:, 0], x[:, 2], x[:, 3], 0 * x[:, 0]], dim=1),
        1,
    ),
    "columns copied": (
        ops.Columns((3, -1, 0, 3, 3), N),
        lambda x: torch.stack([x[:, 3], 0 * x[:, 0], x[:, 0], x[:, 3], x[:, 3]], dim=1),
        3,
    ),
    "no column": (ops.Columns((-1, -1), N), lambda x: x.new_zeros(M, 2), 1),
    "edges": (ops.Aggregate(EDGES), lambda x: along(x, TARGET, M, lambda e, n: 1), 5),
    "weighted edges": (
        ops.Aggregate(EDGES, WEIGHT, -1.5),
        lambda x: along(x, TARGET, M, lambda e, n: WEIGHT[e]) - 1.5 * x,
        5 * 5 + 1.5,
    ),
    "heads": (
        ops.Aggregate(EDGES, HEADS, 2.0),
        lambda x: along(x, TARGET, M, lambda e, n: HEADS[e, n // 2]) + 2 * x,
        5 * 10 + 2,
    ),
    "sent": (row_maps.Send(ACROSS, None, M, K), lambda x: along(x, ACROSS.target, K, lambda e, n: 1), None),
    "sent with weights": (
        row_maps.Send(ACROSS, WEIGHT, M, K),
        lambda x: along(x, ACROSS.target, K, lambda e, n: WEIGHT[e]),
        None,
    ),
    "sent by head": (
        row_maps.Send(ACROSS, HEADS, M, K),
        lambda x: along(x, ACROSS.target, K, lambda e, n: HEADS[e, n // 2]),
        None,
    ),
    "picked": (row_maps.Gather(torch.tensor(PICKED), M), lambda x: torch.stack([x[i] for i in PICKED]), 6),
    "added": (
        row_maps.Scatter(torch.tensor(ADDED), K),
        lambda x: loops(x, (K, N), [(ADDED[i], n, x[i, n]) for i in range(M) for n in range(N)]),
        1,
    ),
    "all": (row_maps.SumRows(M, -0.5, False), lambda x: -0.5 * (x[0] + x[1] + x[2] + x[3] + x[4])[None], 0.5),
    "all as they are": (row_maps.SumRows(M, 1, False), lambda x: (x[0] + x[1] + x[2] + x[3] + x[4])[None], 1),
    "all, as rows": (
        row_maps.SumRows(M, 3.0, True),
        lambda x: 3 * (x[0] + x[1] + x[2] + x[3] + x[4]).view(N, 1),
        3,
    ),
    "reshaped": (
        row_maps.Reshape(torch.Size((M, N)), torch.Size((2, 10))),
        lambda x: torch.stack([torch.cat([x[0], x[1], x[2, :2]]), torch.cat([x[2, 2:], x[3], x[4]])]),
        1,
    ),
    "any function": (
        Differential(torch.roll, (MOVING, 1), {"dims": 0}, torch.ones(M, N).double(), 0, torch.Size((M, N))),
        lambda x: torch.stack([x[4], x[0], x[1], x[2], x[3]]),
        None,
    ),
    "one of a function's results": (
        Differential(torch.split, (MOVING, [1, 3]), {"dim": 1}, torch.ones(M, N).double(), 1, torch.Size((M, 3))),
        lambda x: torch.stack([x[:, 1], x[:, 2], x[:, 3]], dim=1),
        None,
    ),
    "a function that fills in a number": (
        Differential(
            torch.where,
            (torch.arange(N) < 2, MOVING, torch.full((), 7.0).double()),
            {},
            torch.ones(M, N).double(),
            0,
            torch.Size((M, N)),
        ),
        lambda x: torch.stack([x[:, 0], x[:, 1], 0 * x[:, 2], 0 * x[:, 3]], dim=1),
        None,
    ),
    "a function that gives one number": (
        Differential(torch.sum, (MOVING,), {}, torch.ones(M, N).double(), 0, torch.Size(())),
        lambda x: sum(x[i, n] for i in range(M) for n in range(N)).view(1, 1),
        None,
    ),
    "a function that forgets what it is given": (
        Differential(torch.zeros_like, (MOVING,), {}, torch.ones(M, N).double(), 0, torch.Size((M, N))),
        lambda x: torch.zeros(M, N).double(),
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_map_is_what_its_definition_says(name):
    operator, definition, _ = CASES[name]
    values = torch.randn(M, N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(operator.push(values), definition(values), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nodes", [[3, 1, 3, 2], [4], []], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_some_rows_of_a_map_are_rows_of_all(name, nodes):
    operator, definition, _ = CASES[name]
    if not operator.pushes_some:
        assert not isinstance(operator, (ops.Passage, ops.Scale, ops.RowMap, ops.Columns, ops.Aggregate))
        return
    values = torch.randn(M, N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chosen = torch.tensor(nodes, dtype=torch.long)
    for given in (values, Postponed((M, N), lambda rows: values if rows is None else values[rows])):
        found = operator.push_some(given, chosen)
        torch.testing.assert_close(found, definition(values)[chosen], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lanes", [(1, 1), (2, 3)], ids=["one", "many"])
@pytest.mark.parametrize("name", CASES)
def test_messages_are_pulled_by_the_transposed_map(name, lanes):
    operator, definition, _ = CASES[name]
    columns = [definition(unit.view(M, N)) for unit in torch.eye(M * N, dtype=torch.float64)]
    transposed = torch.stack([column.reshape(-1) for column in columns])  # one row for every entry of the input
    rows, width = columns[0].shape
    message = torch.randn(rows, *lanes, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pulled = operator.pull(message, AllNodes(M, lanes[0]))
    expected = torch.einsum("io,obd->ibd", transposed, message.permute(0, 3, 1, 2).reshape(-1, *lanes))
    expected = expected.view(M, N, *lanes).permute(0, 2, 3, 1)
    torch.testing.assert_close(pulled.expand_as(expected), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_a_map_in_another_type_is_the_same_map(name):
    operator, definition, _ = CASES[name]
    values = torch.randn(M, N, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    single = operator.to(Cast(None, torch.float32))
    found = single.push(values.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), definition(values), rtol=1e-5, atol=1e-5)
    message = torch.ones(*found.shape[:1], 1, 1, *found.shape[1:])
    assert single.pull(message, AllNodes(M, 1)).dtype == torch.float32


def size(tensor):
    """The largest entry."""
    return float(tensor.abs().max())


@pytest.mark.parametrize("name", CASES)
def test_the_growth_of_a_map_is_a_bound(name):
    operator, definition, growth = CASES[name]
    if growth is None:
        assert operator.growth(size) is None
        return
    assert operator.growth(size) == growth
    generator = torch.Generator().manual_seed(0)
    rows, columns = definition(torch.ones(M, N, dtype=torch.float64)).shape
    for _ in range(20):
        drawn = torch.rand(rows, 1, 1, columns, generator=generator, dtype=torch.float64)
        message = drawn.sub_(0.5).sign()  # the worst there is
        assert float(operator.pull(message, AllNodes(M, 1)).abs().max()) <= growth * (1 + 1e-12)


@pytest.mark.parametrize("name", ["matrix", "scale"])
def test_no_rows_keep_their_width(name):
    operator, expected, _ = CASES[name]
    rows = OwnRows(M, 0, torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    width = expected(torch.ones(M, N, dtype=torch.float64)).shape[1]
    pulled = operator.pull(torch.zeros(0, 1, 1, width, dtype=torch.float64), rows)
    assert pulled.shape == (0, 1, 1, N)
