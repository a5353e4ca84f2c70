"""Rows of edges: whatever rows a contraction carries, a message comes back as from the matrix of the whole map."""

import pytest
import torch
from torch.nn.functional import linear

from walkwise.core.blocks import Blocks
from walkwise.core.cast import Cast
from walkwise.core.contract import pull_back, unweighted
from walkwise.core.differential import MOVING, Differential, RowFunction
from walkwise.core.fan import Fan
from walkwise.core.homed_rows import AddedUp, AtHome, HomedRows, Homes, Read, edges_of, homed_rows
from walkwise.core.operators import RowMap, Scale, Step
from walkwise.core.rows import AllNodes, Dimension, OwnRows

M, N = 5, 3
#: With a loop, two edges between the same nodes, and node 4 that nothing comes to.
SOURCE, TARGET = torch.tensor([0, 1, 1, 2, 3, 0, 4, 2]), torch.tensor([1, 0, 2, 3, 3, 1, 2, 2])
E = len(SOURCE)
GENERATOR = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


HOMES = Homes(TARGET, M)
MATRICES = drawn(E, N, N)
PRODUCT = Differential(torch.matmul, (MOVING, MATRICES), {}, drawn(E, 1, N), 0, torch.Size((E, 1, N)))
#: What an edge reads at both ends, mixed by a perceptron of its own and a matrix of its own.
STEPS = [
    Step((Read(SOURCE, M, None, HOMES), Read(TARGET, M, None, HOMES)), (0, 1), 2),
    Step((AtHome(RowMap(drawn(N, N)), HOMES),), (2,), 3),
    Step((AtHome(Scale(drawn(E, N)), HOMES),), (3,), 4),
    Step((AtHome(RowFunction(PRODUCT, True), HOMES),), (4,), 5),
    Step((AddedUp(TARGET, M, HOMES, None), RowMap(drawn(N, N))), (5, 0), 6),
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
    assert homed_rows(rows, HOMES).homed.nodes.tolist() == [1, 3, 4]
    assert homed_rows(rows, HOMES) is homed_rows(rows, HOMES)
    assert not homed_rows(rows, HOMES).whole
    assert homed_rows(AllNodes(M, 1), HOMES).whole


#: Rows of three parts each, which are joined, mapped and taken apart; node 4 has its parts read by others.
PARTED, JOINED = Homes(torch.arange(M).repeat_interleave(3), M), torch.arange(3 * M) // 3
IN_PARTS = [
    Step((Read(JOINED.roll(3), M, None, PARTED), Read(JOINED, M, None, PARTED)), (0, 1), 2),
    Step((AtHome(Scale(drawn(3 * M, N)), PARTED),), (2,), 3),
    Step((AddedUp(JOINED, M, PARTED, None, parts=3),), (3,), 4),
    Step((RowMap(drawn(3 * N, 3 * N)),), (4,), 5),
    Step((Read(JOINED, M, None, PARTED, parts=3),), (5,), 7),
    Step((AtHome(Scale(drawn(3 * M, N)), PARTED),), (7,), 8),
    Step((AddedUp(JOINED, M, PARTED, None),), (8,), 6),
]


@pytest.mark.parametrize("sets", [[[0, 1]], [[0, 2, 3], [1], [1, 2, 4]], [[4], [0, 1, 2, 3, 4]]])
def test_rows_that_are_parts_of_rows(sets):
    units = torch.eye(M * N, dtype=torch.float64).view(M * N, M, N)
    whole = torch.stack([pushed(unit, IN_PARTS) for unit in units]).permute(1, 2, 0).view(M, N, M, N)
    message = drawn(M, 2, 2, N)
    everywhere = torch.einsum("mbdn,mnkl->kbdl", message, whole)
    torch.testing.assert_close(pulled(message, AllNodes(M, 2), IN_PARTS), everywhere)
    nodes = torch.tensor([node for nodes in sets for node in nodes])
    owner = torch.tensor([number for number, nodes in enumerate(sets) for _ in nodes])
    message = drawn(len(nodes), 1, 2, N)
    ours = pulled(message, OwnRows(M, len(sets), nodes, owner), IN_PARTS)
    for number, members in enumerate(sets):
        own = (owner == number).nonzero().view(-1)
        expected = torch.einsum("kdn,knml->mdl", message[own, 0], whole[members][:, :, members])
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(ours[own, 0], expected)


@pytest.mark.parametrize("nodes", [[3, 1], [0], [4, 4, 2], []])
def test_rows_in_another_dimension(nodes):
    at, matrices = drawn(2, 2 * M, 1, 3), drawn(2, 2 * M, 3, 3)
    turned = Differential(
        lambda a, b: (a @ b).squeeze(2).movedim(1, 0), (MOVING, matrices), {}, at, 0, torch.Size((2 * M, 2, 3))
    )
    function = RowFunction(turned, True, Dimension(1, outer=2), Dimension(0, outer=2))
    whole = drawn(M, 2, 2, 2 * 2 * 3)
    everywhere = function.pull(whole, AllNodes(M, 2))
    some = torch.tensor(nodes, dtype=torch.long)
    ours = function.pull(whole[some, :1], OwnRows(M, 1, some, torch.zeros_like(some)))
    torch.testing.assert_close(ours, everywhere[some, :1])
    values = drawn(M, 2 * 2 * 3)
    torch.testing.assert_close((function.push(values) * whole[:, 0, 0]).sum(), (values * everywhere[:, 0, 0]).sum())
    a = Dimension(1, outer=2).back(values.requires_grad_(), at.shape)
    result = Dimension(0, outer=2).by_row(turned.applied(a))
    (slope,) = torch.autograd.grad((result * whole[:, 0, 0]).sum(), values)
    torch.testing.assert_close(everywhere[:, 0, 0], slope)


def test_a_dimension():
    tensor = torch.arange(24).view(2, 6, 2)
    dimension = Dimension(1, outer=1, inner=2)
    assert dimension.by_row(tensor)[1].tolist() == [4, 5, 6, 7, 16, 17, 18, 19]
    assert torch.equal(dimension.back(dimension.by_row(tensor), tensor.shape), tensor)
    assert dimension.back(dimension.by_row(tensor)[:1], tensor.shape).tolist() == tensor[:, :2].tolist()
    assert Dimension(1, outer=2).by_row(tensor)[2].tolist() == [4, 5, 10, 11, 16, 17, 22, 23]


def test_what_a_map_of_edges_says_of_itself():
    assert (STEPS[0].operators[0].reach, STEPS[1].operators[0].reach, STEPS[-1].operators[0].reach) == (1, 0, 0)
    assert HOMES.per_node == 2
    assert AtHome(RowMap(drawn(N, 7)), HOMES).widest == 14
    assert AtHome(Scale(torch.tensor([[-3.0]])), HOMES).growth(lambda t: float(t.abs().max())) == 3
    assert [o.growth(lambda t: 0.0) for o in (Read(SOURCE, M, None, HOMES), AddedUp(TARGET, M, HOMES, None))] == [E, 1]
    edges = Read(SOURCE, M, None, HOMES).edges
    assert torch.equal(edges.source, SOURCE)
    assert torch.equal(edges.target, TARGET)
    assert edges.num_nodes == M


def test_cast():
    cast = Cast(None, torch.float32)
    steps = [step.to(cast) for step in STEPS]
    homes = [getattr(o, name, None) for step in steps for o in step.operators for name in ("homes", "before", "after")]
    moved = [each for each in homes if each is not None]
    assert len(set(map(id, moved))) == 1
    x = drawn(M, N)
    torch.testing.assert_close(pushed(x.float(), steps), pushed(x).float())
    rows = OwnRows(M, 1, torch.tensor([1, 2]), torch.tensor([0, 0]))
    message = drawn(2, 1, 1, N)
    torch.testing.assert_close(pulled(message.float(), rows, steps), pulled(message, rows).float())


def test_no_walk_stands_at_an_edge():
    rows = HomedRows(M, 1, None, TARGET)
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


BEFORE, AFTER = torch.tensor([0, 1, 5, 3, 2, 2, 7]), torch.tensor([2, 0, 2, 4, 7, 3, 6])  # edges that send to edges
PAIRS, GONE = Homes(TARGET[AFTER], M), Homes(SOURCE, M, gone=True)
EDGE_MAP, PAIR_FACTOR = RowMap(drawn(N, N)), Scale(drawn(len(BEFORE), N))
#: Nodes, edges, pairs of edges, edges, nodes; and past the pairs, edges that are at home where they come from.
ONWARD = [
    Step((Read(SOURCE, M, None, HOMES),), (0,), 2),
    Step((Read(SOURCE, M, None, GONE),), (1,), 3),
    Step((Read(BEFORE, E, HOMES, PAIRS),), (2,), 4),
    Step((AtHome(PAIR_FACTOR, PAIRS),), (4,), 5),
    Step((AddedUp(AFTER, E, PAIRS, HOMES), Read(torch.arange(E), E, GONE, HOMES)), (5, 3), 7),
    Step((AtHome(EDGE_MAP, HOMES),), (7,), 8),
    Step((AddedUp(TARGET, M, HOMES, None),), (8,), 6),
]
SLOT_HOMES = {2: TARGET, 3: SOURCE, 4: PAIRS.node, 5: PAIRS.node, 7: TARGET, 8: TARGET}


def inside(rows):
    """What comes through rows at home in a set and nowhere else, one unit vector at a time.  # (M, N, M, N)"""
    slots_of = []
    for unit in torch.eye(M * N, dtype=torch.float64).view(M * N, M, N):
        slots = {0: unit, 1: unit}
        for step in ONWARD:
            made = sum(o.push(slots[s]) for o, s in zip(step.operators, step.sources, strict=True))
            there = torch.isin(SLOT_HOMES.get(step.target, torch.arange(M)), rows)
            slots[step.target] = made * there.view(-1, 1)
        slots_of.append(slots[6])
    return torch.stack(slots_of).permute(1, 2, 0).view(M, N, M, N)


@pytest.mark.parametrize("sets", [[[0, 1, 2, 3, 4]], [[1, 2, 3]], [[0, 2, 3], [2, 3], [1, 2, 4]]])
def test_edges_that_send_to_edges(sets):
    nodes = torch.tensor([node for nodes in sets for node in nodes])
    owner = torch.tensor([number for number, nodes in enumerate(sets) for _ in nodes])
    message = drawn(len(nodes), 1, 2, N)
    ours = pulled(message, OwnRows(M, len(sets), nodes, owner), ONWARD)
    for number, members in enumerate(sets):
        own, rows = (owner == number).nonzero().view(-1), torch.tensor(members)
        whole = inside(rows)[rows][:, :, rows]
        expected = torch.einsum("kdn,knml->mdl", message[own, 0], whole)
        assert expected.abs().max() > 0.1
        torch.testing.assert_close(ours[own, 0], expected)
    if sets[0] == list(range(M)):
        everywhere = pulled(message, AllNodes(M, 1), ONWARD)
        torch.testing.assert_close(ours, everywhere)


def test_homes_decide_how_far_a_map_leads():
    assert [[o.reach for o in step.operators] for step in ONWARD] == [[1], [0], [1], [0], [0, 1], [0], [0]]
    pairs = Read(BEFORE, E, HOMES, PAIRS)
    assert edges_of(ONWARD)[1] is ONWARD[2].operators[0].edges
    assert torch.equal(pairs.edges.source, TARGET[BEFORE])
    assert torch.equal(pairs.edges.target, TARGET[AFTER])


def test_rows_without_a_home_are_left_out():
    homes = Homes(torch.tensor([2, -1, 0, -1, 2]), M)
    rows = OwnRows(M, 1, torch.tensor([0, 2]), torch.zeros(2, dtype=torch.long))
    assert homed_rows(rows, homes).homed.nodes.tolist() == [2, 0, 4]
    assert Read(torch.tensor([2, 4, 0, 1, 2]), M, None, homes).stays


def test_no_row_is_at_home_in_the_set():
    """Nothing comes through edges into node 4: there are none."""
    rows = OwnRows(M, 1, torch.tensor([4]), torch.tensor([0]))
    assert not len(homed_rows(rows, HOMES).homed.nodes)
    message = drawn(1, 1, 2, N)
    torch.testing.assert_close(pulled(message, rows), message @ STEPS[-1].operators[1].matrix)
    nobody = AddedUp(torch.arange(M), M, None, Homes(torch.tensor([0, 1, 2, 3, 0]), M))
    assert torch.equal(nobody.pull(drawn(0, 1, 2, N), rows), torch.zeros(1, 1, 2, N).double())
