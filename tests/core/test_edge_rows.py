"""Rows of edges: whatever rows a contraction carries, a message comes back as from the matrix of the whole map."""

import pytest
import torch
from torch.nn.functional import linear

from walkwise.core.contract import pull_back, unweighted
from walkwise.core.differential import MOVING, Differential
from walkwise.core.edge_rows import AddedUp, EdgeRows, EndOf, Incoming, OnEdges, edge_rows
from walkwise.core.operators import Cast, RowMap, Scale, Step
from walkwise.core.row_function import RowFunction
from walkwise.core.rows import AllNodes, Blocks, Fan, OwnRows

M, N = 5, 3
#: With a loop, two edges between the same nodes, and node 4 that nothing comes to.
SOURCE, TARGET = torch.tensor([0, 1, 1, 2, 3, 0, 4, 2]), torch.tensor([1, 0, 2, 3, 3, 1, 2, 2])
E = len(SOURCE)
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


INCOMING = Incoming(TARGET, M)
MATRICES = drawn(E, N, N)
PRODUCT = Differential(torch.matmul, (MOVING, MATRICES), {}, drawn(E, 1, N), 0, torch.Size((E, 1, N)))
#: What an edge reads at both ends, mixed by a perceptron of its own and a matrix of its own.
STEPS = [
    Step((EndOf(SOURCE, INCOMING), EndOf(TARGET, INCOMING)), (0, 1), 2),
    Step((OnEdges(RowMap(drawn(N, N)), INCOMING),), (2,), 3),
    Step((OnEdges(Scale(drawn(E, N)), INCOMING),), (3,), 4),
    Step((OnEdges(RowFunction(PRODUCT, True), INCOMING),), (4,), 5),
    Step((AddedUp(INCOMING), RowMap(drawn(N, N))), (5, 0), 6),
]


def pushed(values, steps=STEPS):
    """What the steps make of values at slots 0 and 1, which are the same nodes."""
    slots = {0: values, 1: values}
    for step in steps:
        slots[step.target] = sum(o.push(slots[s]) for o, s in zip(step.operators, step.sources, strict=True))
    return slots[6]


def matrix():
    """The whole map, one unit vector at a time.  # (M, N, M, N): output by input"""
    units = torch.eye(M * N, dtype=torch.float64).view(M * N, M, N)
    return torch.stack([pushed(unit) for unit in units]).permute(1, 2, 0).view(M, N, M, N)


def pulled(message, rows, steps=STEPS):
    found = pull_back(steps, [(6, message)], rows, unweighted)
    return rows.add(found[0], found[1])


def test_all_nodes():
    message = drawn(M, 2, 2, N)
    expected = torch.einsum("mbdn,mnkl->kbdl", message, matrix())
    torch.testing.assert_close(pulled(message, AllNodes(M, 2)), expected)


def owned(nodes, owner):
    """What comes back to some nodes when nothing else carries a message."""
    message, whole = drawn(len(nodes), 1, 2, N), matrix()
    expected = torch.zeros_like(message)
    for i, j in torch.cartesian_prod(torch.arange(len(nodes)), torch.arange(len(nodes))).tolist():
        if owner[i] == owner[j]:
            expected[j, 0] += torch.einsum("dn,nl->dl", message[i, 0], whole[nodes[i], :, nodes[j]])
    return message, expected


@pytest.mark.parametrize("sets", [[[0, 1]], [[0, 2, 3], [1], [1, 2, 4]], [[4], [0, 1, 2, 3, 4]]])
def test_own_rows(sets):
    nodes = torch.tensor([node for nodes in sets for node in nodes])
    owner = torch.tensor([number for number, nodes in enumerate(sets) for _ in nodes])
    message, expected = owned(nodes, owner)
    torch.testing.assert_close(pulled(message, OwnRows(M, len(sets), nodes, owner)), expected)


def test_blocks():
    rows = Blocks.of(M, torch.tensor([[0, 2, 3], [1, 1, 2], [4, -1, 0]]))
    there = rows.present.flatten()
    message, expected = owned(rows.nodes[there], (torch.arange(9) // 3)[there])
    message, expected = (torch.zeros(9, 1, 2, N).double().index_put((there,), part) for part in (message, expected))
    torch.testing.assert_close(pulled(message, rows), expected)


def test_blocks_without_empty_rows():
    rows = Blocks(M, torch.tensor([[0, 2], [1, 3]]))
    message, expected = owned(rows.nodes, torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(pulled(message, rows), expected)


def test_a_fan():
    """Queries at nodes 2 and 3 and 2 again, the last of which may not go to node 4."""
    standing = torch.tensor([2, 3, 2])
    nodes, owner = torch.tensor([1, 2, 4, 2, 3, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 2, 2])
    fan = Fan(M, standing, nodes, owner, lambda edges, weight, root: None)
    message, whole = drawn(3, 1, 2, N), matrix()
    expected = torch.stack(
        [message[b, 0] @ whole[standing[b], :, node] for b, node in zip(owner.tolist(), nodes.tolist(), strict=True)]
    )
    torch.testing.assert_close(fan.spread(pulled(message, fan))[:, 0], expected)


def test_no_more_edges_are_carried_than_come_to_the_rows():
    rows = OwnRows(M, 1, torch.tensor([0, 3]), torch.zeros(2, dtype=torch.long))
    assert edge_rows(rows, INCOMING).edge.tolist() == [1, 3, 4]
    assert edge_rows(rows, INCOMING) is edge_rows(rows, INCOMING)
    assert not edge_rows(rows, INCOMING).whole
    assert edge_rows(AllNodes(M, 1), INCOMING).whole


def test_what_a_map_of_edges_says_of_itself():
    assert (STEPS[0].operators[0].reach, STEPS[1].operators[0].reach, STEPS[-1].operators[0].reach) == (1, 0, 0)
    assert INCOMING.per_node == 2
    assert OnEdges(RowMap(drawn(N, 7)), INCOMING).widest == 14
    assert OnEdges(Scale(torch.tensor([[-3.0]])), INCOMING).growth(lambda t: float(t.abs().max())) == 3
    assert [o.growth(lambda t: 0.0) for o in (EndOf(SOURCE, INCOMING), AddedUp(INCOMING))] == [E, 1]
    edges = EndOf(SOURCE, INCOMING).edges
    assert torch.equal(edges.source, SOURCE)
    assert torch.equal(edges.target, TARGET)
    assert edges.num_nodes == M


def test_cast():
    cast = Cast(None, torch.float32)
    steps = [step.to(cast) for step in STEPS]
    moved = [o.incoming for step in steps for o in step.operators if not isinstance(o, RowMap)]
    assert len(set(map(id, moved))) == 1
    x = drawn(M, N)
    torch.testing.assert_close(pushed(x.float(), steps), pushed(x).float())
    rows = OwnRows(M, 1, torch.tensor([1, 2]), torch.tensor([0, 0]))
    message = drawn(2, 1, 1, N)
    torch.testing.assert_close(pulled(message.float(), rows, steps), pulled(message, rows).float())


def test_no_walk_stands_at_an_edge():
    rows = EdgeRows(M, 1, None, TARGET, None, None)
    with pytest.raises(NotImplementedError):
        rows.total(drawn(E, 1, 1, N), drawn(E, N))
    with pytest.raises(NotImplementedError):
        rows.sum(drawn(E, 1, 1, N), None, None, 0.0)


def test_a_function_with_the_same_weights_for_all_rows():
    weights = drawn(M, N)  # as many rows as there are nodes, but one for each output
    function = Differential(linear, (MOVING, weights), {}, drawn(M, N), 0, torch.Size((M, M)))
    nodes, message = torch.tensor([3, 1]), drawn(2, 1, 2, M)
    rows = OwnRows(M, 1, nodes, torch.tensor([0, 0]))
    torch.testing.assert_close(RowFunction(function, False).pull(message, rows), message @ weights)
