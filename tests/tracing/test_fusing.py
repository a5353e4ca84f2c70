"""A chain with its steps put together says what it said with each by itself."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import walkwise as ww
from walkwise.core.operators import Columns, Identity, Perceptron, RowMap, Scale, Step
from walkwise.tracing import lowering
from walkwise.tracing.steps.fusing import fused

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 4], [1, 0, 2, 1, 3, 2, 4]])
KINDS = {"GCN": GCN, "GIN": GIN, "SAGE": GraphSAGE, "GAT": GAT}


class Skipping(nn.Module):
    """Layers whose inputs are added to their outputs, and a read-out that reads all of them."""

    def __init__(self, kind):
        super().__init__()
        self.parts = nn.ModuleList([kind(4, 6, num_layers=1, out_channels=4) for _ in range(3)])
        self.end = nn.Linear(12, 2)

    def forward(self, x, edge_index):
        seen = []
        for part in self.parts:
            x = x + part(x, edge_index).relu()
            seen.append(x)
        return self.end(torch.cat(seen, dim=1)).sum(0, keepdim=True)


def asked(chain):
    subgraphs = [[0], [0, 1], [1, 2, 3], [4], [0, 1, 2, 3, 4]]
    tables = (
        ww.subgraph_relevance(chain, subgraphs, alpha=[0.0, 0.4, 1.0]),
        ww.subgraph_polynomial(chain, subgraphs),
        ww.node_relevance(chain),
        torch.tensor([chain.input_relevance, chain.amplification]),
    )
    return torch.cat([table.flatten().double() for table in tables])


@pytest.mark.parametrize("rule", ["zero", "gamma", "auto", "alphabeta"])
@pytest.mark.parametrize("skipping", [False, True], ids=["straight", "skips"])
@pytest.mark.parametrize("kind", KINDS)
def test_fewer_steps_say_the_same(kind, skipping, rule, monkeypatch):
    torch.manual_seed(1)
    build = KINDS[kind]
    model = Skipping(build) if skipping else build(4, 6, num_layers=3, out_channels=2)
    model, x = model.double().eval(), torch.randn(5, 4, dtype=torch.double)
    given = {"target": 1, "rule": rule} | ({} if skipping else {"index": 2})
    short = ww.trace(model, x, EDGES, **given)
    monkeypatch.setattr(lowering, "fused", lambda steps, named, num_nodes: steps)
    long = ww.trace(model, x, EDGES, **given)
    torch.testing.assert_close(asked(short), asked(long), rtol=1e-11, atol=1e-12)
    assert len(short.steps) <= len(long.steps)
    assert {layer.ends[0][0] for layer in short.layers} == {layer.ends[0][0] for layer in long.layers}


def maps():
    torch.manual_seed(0)
    return RowMap(torch.randn(3, 2)), Scale(torch.randn(4, 3)), RowMap(torch.randn(2, 3)), Scale(torch.randn(4, 2))


def in_a_row(operators):
    return [Step((operator,), (slot,), slot + 1) for slot, operator in enumerate(operators)]


def test_maps_in_a_row_become_one():
    (step,) = fused(in_a_row(maps()), {0, 4}, 4)
    assert isinstance(step.operators[0], Perceptron)
    assert (step.sources, step.target) == ((0,), 4)
    values = torch.randn(4, 2)
    expected = values
    for operator in maps():
        expected = operator.push(expected)
    torch.testing.assert_close(step.operators[0].push(values), expected)


@pytest.mark.parametrize("index", [(1, 2), (2, 0), (-1, 0, 2)], ids=str)
def test_a_piece_of_what_a_matrix_makes_is_made_by_a_piece_of_the_matrix(index):
    matrix, piece, last = RowMap(torch.randn(3, 2)), Columns(index, 3), RowMap(torch.randn(2, len(index)))
    (step,) = fused(in_a_row((matrix, piece, last)), {0, 3}, 4)
    assert step.operators[0].maps[0].matrix.shape == (len(index), 2)
    values = torch.randn(4, 2)
    torch.testing.assert_close(step.operators[0].push(values), last.push(piece.push(matrix.push(values))))


def test_a_part_of_a_wider_row_is_no_matrix():
    matrix, placed = maps()[0], Columns.placed(1, 3, 5)
    assert [type(step.operators[0]) for step in fused(in_a_row((matrix, placed)), {0, 2}, 4)] == [RowMap, Columns]


def side_by_side(second=0):
    """Two maps of slots 0 and ``second``, scaled and added; and a map after that."""
    matrices = RowMap(torch.randn(3, 2)), RowMap(torch.randn(3, 2))
    scales = Scale(torch.randn(4, 3)), Scale(torch.randn(4, 3))
    last = RowMap(torch.randn(2, 3))
    first = [Step((matrices[0],), (0,), 2), Step((matrices[1],), (second,), 3)]
    return [*first, Step(scales, (2, 3), 4), Step((last,), (4,), 5)]


def test_maps_side_by_side_become_one():
    steps = side_by_side()
    (step,) = fused(steps, {0, 5}, 4)
    assert (step.sources, step.target) == ((0,), 5)
    values = torch.randn(4, 2)
    (first,), (other,), (one, two), (last,) = (given.operators for given in steps)
    expected = last.push(one.push(first.push(values)) + two.push(other.push(values)))
    torch.testing.assert_close(step.operators[0].push(values), expected)


def test_maps_side_by_side_go_on_a_run():
    steps = [Step((RowMap(torch.randn(2, 5)),), (9,), 0), *side_by_side()]
    (step,) = fused(steps, {9, 5}, 4)
    assert len(step.operators[0].maps) == 3


@pytest.mark.parametrize(("second", "named"), [(1, {0, 1, 5}), (0, {0, 3, 5})], ids=["two inputs", "a named output"])
def test_maps_that_are_not_of_one_input_alone_stay_apart(second, named):
    assert [step.target for step in fused(side_by_side(second), named, 4)] == [2, 3, 4, 5]


def test_a_named_slot_stays():
    first, second = fused(in_a_row(maps()), {0, 2, 4}, 4)
    assert (first.target, second.sources) == (2, (2,))


def test_a_slot_that_two_read_stays():
    steps = [*in_a_row(maps()[:2]), Step((maps()[2],), (2,), 3), Step((maps()[2],), (2,), 4)]
    assert [step.target for step in fused(steps, {3, 4}, 4)] == [2, 3, 4]


def test_a_factor_that_all_nodes_share_stays_a_step():
    steps = in_a_row((maps()[0], Scale(torch.randn(1, 3))))
    assert [type(step.operators[0]) for step in fused(steps, {2}, 4)] == [RowMap, Scale]


def test_a_sum_takes_over_the_maps_that_it_adds():
    matrix, other = maps()[0], maps()[0]
    steps = [Step((matrix,), (0,), 2), Step((other,), (1,), 3), Step((Identity(), Identity()), (2, 3), 4)]
    (step,) = fused(steps, {0, 1, 4}, 4)
    assert step.operators == (matrix, other)
    assert (step.sources, step.target) == ((0, 1), 4)
    assert len(fused(steps, {2, 4}, 4)) == 2
