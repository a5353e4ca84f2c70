"""Whose every row is after one operation: node 3, 0, 4, 1 and 2 come in, in this order, or all nodes in theirs."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from walkwise.core.node_types import NodeTypes
from walkwise.tracing.nodes import moved
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.recording.recorded import Call
from walkwise.tracing.recording.tape import Tape

M = 5
ORDER = torch.tensor([3, 0, 4, 1, 2])
torch.manual_seed(0)
X, ENTRIES, WEIGHT, MIXING = (torch.rand(*s, dtype=torch.float64) + 0.1 for s in ([5, 4], [5, 4], [4, 4], [5, 5]))
CLUSTERS = torch.tensor([0, 1, 0, 2, 2])


def looked_up(make, *, reordered=False):
    """What is known of the rows of ``make(x, x[ORDER])``, and the slot."""
    tape, x = Tape(), X.clone()
    tape.follow_features(x)
    with torch.enable_grad(), tape:
        made = make(x, x[ORDER])
    identities = Identities(tape, M)
    identities.reordered = reordered
    return identities, tape.slot_of(made)


def nodes(make, **options):
    identities, slot = looked_up(make, **options)
    return identities.nodes(slot).tolist()


def along(make):
    """Whether each dimension runs over nodes."""
    identities, slot = looked_up(make)
    return [identities.along_nodes(slot, dim) for dim in range(identities.tape.values[slot].dim())]


KEPT = {
    "a function of entries": lambda x, h: h.relu(),
    "a power": lambda x, h: h**2,
    "a sum with constants": lambda x, h: h + ENTRIES,
    "constants first": lambda x, h: ENTRIES - h,
    "a gate": lambda x, h: h * h.sigmoid(),
    "a factor for every row": lambda x, h: h * h[:, :1],
    "the larger of two": lambda x, h: torch.maximum(h, 2 * h),
    "a weight": lambda x, h: F.linear(h, WEIGHT[:3]),
    "a weight of as many neurons": lambda x, h: F.linear(h, WEIGHT),
    "a weight from the right": lambda x, h: h @ WEIGHT[:, :3],
    "a matrix that all nodes make": lambda x, h: h @ (x.t() @ x),
    "a matrix that all nodes make, at once": lambda x, h: torch.einsum("nf,fg->ng", h, (x.t() @ x).softmax(-1)[:, :3]),
    "a weight for one graph of a batch": lambda x, h: torch.bmm(h[None], WEIGHT[None])[0],
    "a bilinear form": lambda x, h: F.bilinear(h, h, WEIGHT.expand(3, 4, 4)),
    "a weight on joined neurons of others": lambda x, h: F.linear(F.pad(h, (0, 2)), ENTRIES[:, :1].expand(5, 6)),
    "a softmax over neurons": lambda x, h: h.softmax(-1),
    "a softmax over nodes": lambda x, h: h.softmax(0),
    "a layer norm": lambda x, h: F.layer_norm(h, (4,)),
    "a batch norm": lambda x, h: F.batch_norm(h, None, None, training=True),
    "attention": lambda x, h: F.scaled_dot_product_attention(h, h, h),
    "half a row let through": lambda x, h: F.glu(torch.cat([h, x], dim=-1)),
    "half the rows let through": lambda x, h: F.glu(torch.cat([h, x]), 0),
    "half the rows, by name": lambda x, h: F.glu(torch.cat([h, x]), dim=0),
    "columns beside columns": lambda x, h: torch.cat([h, h], dim=1),
    "constants beside": lambda x, h: torch.cat([h, ENTRIES[:, :2]], dim=1),
    "a sum over neurons": lambda x, h: h.sum(1, keepdim=True),
    "a mean over neurons": lambda x, h: h.mean(1),
    "a product over neurons": lambda x, h: h.prod(1, keepdim=True),
    "lengths": lambda x, h: h.norm(dim=1),
    "inner products": lambda x, h: torch.einsum("mf,mf->m", h, h * ENTRIES),
    "inner products, by batch": lambda x, h: torch.bmm(h[:, None], h[..., None]).view(-1),
    "distances": lambda x, h: F.pairwise_distance(h, 2 * h),
    "inner products, one of them with nothing": lambda x, h: torch.einsum(
        "mf,mf->m", h, h.masked_fill(CLUSTERS[:, None] == 1, 0)
    ),
    "row by row": lambda x, h: torch.stack([torch.dot(row, WEIGHT[0]) for row in h]),
    "the largest neuron": lambda x, h: h.max(1, keepdim=True).values,
    "neurons in order of size": lambda x, h: h.sort(1).values,
    "differences of neurons": lambda x, h: torch.diff(h, dim=1),
    "running sums over neurons": lambda x, h: h.cumsum(1),
    "heads": lambda x, h: h.view(5, 2, 2),
    "heads turned": lambda x, h: h.view(5, 2, 2).transpose(1, 2),
    "entries left out": lambda x, h: torch.where(ENTRIES > 0.6, h, 0.0),
    "a matrix that reorders": lambda x, h: torch.eye(5, dtype=torch.float64)[ORDER] @ x,
    "rows gathered": lambda x, h: x.gather(0, ORDER[:, None].expand(5, 4)),
    "rows selected": lambda x, h: torch.index_select(x, 0, ORDER),
    "rows selected, by name": lambda x, h: x.index_select(dim=0, index=ORDER),
    "rows selected from behind": lambda x, h: x[ORDER - 5],
    "rows scattered": lambda x, h: torch.zeros(5, 4, dtype=torch.float64).index_add(0, ORDER.argsort(), x),
    "turned and back": lambda x, h: (h.t() + 1).t(),
}


@pytest.mark.parametrize("name", KEPT)
def test_rows_that_keep_their_node(name):
    for reordered in (False, True):  # whether layers run on nodes in another order or not
        assert nodes(KEPT[name], reordered=reordered) == ORDER.tolist()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x, h: h[1:4], [0, 4, 1]),
        (lambda x, h: h[[0, 0, 1]], [3, 3, 0]),
        (lambda x, h: x.repeat(2, 1), [0, 1, 2, 3, 4] * 2),
        (lambda x, h: torch.cat([h, x[:2]]), [3, 0, 4, 1, 2, 0, 1]),
        (lambda x, h: F.pad(h, (0, 0, 1, 1)), [-1, 3, 0, 4, 1, 2, -1]),
        (lambda x, h: h.flatten()[::2], [3, 3, 0, 0, 4, 4, 1, 1, 2, 2]),
        (lambda x, h: x.new_zeros(7, 4).index_add(0, ORDER + 1, x), [-1, 1, 3, 4, 0, 2, -1]),
        (lambda x, h: h.select(0, 1), [0, 0, 0, 0]),
        (lambda x, h: torch.cat([x[:4], ENTRIES[:1]]), [0, 1, 2, 3, 4]),  # a constant stands for its row's node
        (lambda x, h: torch.cat([x[1:], ENTRIES[:1]]), [1, 2, 3, 4, -1]),
    ],
)  # fmt: skip
def test_rows_that_move_take_their_node_along(make, expected):
    assert nodes(make) == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda x, h: x.sum(0, keepdim=True),
        lambda x, h: x.mean(0).expand(5, 4),
        lambda x, h: x.new_zeros(3, 4).index_add(0, CLUSTERS, x),
        lambda x, h: MIXING[:3] @ x,
        lambda x, h: MIXING[:, :3] @ (MIXING[:3] @ x),
        lambda x, h: torch.diff(x, dim=0),
        lambda x, h: torch.cat([x, x[:, :1]], 1).norm(dim=0),
        lambda x, h: torch.einsum("mf,mf->m", x, h),
        lambda x, h: x.t(),
        lambda x, h: torch.cat([h, h.flip(0)], dim=1),  # of two nodes each
        lambda x, h: x.unsqueeze(0),  # all nodes in one
    ],
)
def test_rows_of_several_nodes_are_nobody_s(make):
    found = nodes(make)
    assert found == [-1] * len(found)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, h: x + h,
        lambda x, h: h + x,
        lambda x, h: x.masked_fill(CLUSTERS[:, None] == 1, 0) + h,  # a row is nobody's, as where ReLU leaves nothing
        lambda x, h: x.masked_fill(ENTRIES > 0.6, 0) + h,
        lambda x, h: MIXING @ x,
        lambda x, h: (MIXING @ x)[:, :2] @ WEIGHT[:2],
        lambda x, h: MIXING[:, :4] @ x[:4],
        lambda x, h: (MIXING @ x[:, :3].flatten(1)).view(5, 3, 1),
        lambda x, h: torch.einsum("mn,nf->mf", MIXING, x[:, :3]),
        lambda x, h: x.new_zeros(5, 4).index_add(0, CLUSTERS, x),
        lambda x, h: x.cumsum(0),
    ],
)
def test_sums_over_nodes_belong_to_the_row_they_are_written_to(make):
    assert nodes(make) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("make", "reordered", "name"),
    [
        (lambda x, h: h + h.flip(0), False, "add"),
        (lambda x, h: x + h, True, "add"),
        (lambda x, h: h - x[1], False, "sub"),
        (lambda x, h: x.sort(0).values, False, "sort"),
        (lambda x, h: x.topk(2, 0).values, False, "topk"),
        (lambda x, h: x.median(0, keepdim=True).values, False, "median"),
        (lambda x, h: MIXING[:, :4] @ x[:4], True, "matmul"),
    ],
)
def test_what_puts_rows_together_is_named(make, reordered, name):
    with pytest.raises(UnfollowedError, match=name):
        nodes(make, reordered=reordered)


def test_dimensions_that_run_over_nodes():
    assert along(lambda x, h: h) == [True, False]
    assert along(lambda x, h: h.t()) == [False, True]
    assert along(lambda x, h: h.unsqueeze(0)) == [False, True, False]
    assert along(lambda x, h: h.view(5, 2, 2).transpose(0, 1)) == [False, True, False]
    assert along(lambda x, h: h.flatten()) == [True]
    assert along(lambda x, h: h.select(0, 1)) == [False]  # one node's
    assert along(lambda x, h: h.sum(0)) == [None]  # nobody's
    assert along(lambda x, h: h.sort(0).values) == [None, None]
    assert along(lambda x, h: h[:0]) == [None, None]


def test_one_node_alone_is_along_no_dimension():
    tape, x = Tape(), X[:1].clone()
    tape.follow_features(x)
    identities = Identities(tape, 1)
    assert identities.nodes(0).tolist() == [0]
    assert identities.along_nodes(0, 0) is None
    assert identities.along_nodes(7, 0) is None  # a slot that the tape does not have


def test_the_model_s_own_tensors_are_nodes_where_there_are_as_many_rows():
    tape, x, own, other = Tape(), X.clone(), ENTRIES.clone(), ENTRIES[:4].clone()
    tape.follow_features(x)
    slots = [tape.follow(tensor) for tensor in (own, other)]
    identities = Identities(tape, M)
    assert [identities.nodes(slot).tolist() for slot in slots] == [[0, 1, 2, 3, 4], [-1] * 4]
    assert [identities.assumed(slot) for slot in (0, *slots)] == [False, True, False]
    told = Identities(tape, M, own={slots[0]: ORDER, slots[1]: torch.arange(4)})
    assert [told.nodes(slot).tolist() for slot in slots] == [ORDER.tolist(), [0, 1, 2, 3]]
    assert not told.assumed(slots[0])


def test_tensors_of_a_model_s_own_are_of_the_type_that_has_as_many_nodes():
    types = NodeTypes({"user": 3, "item": 2, "shop": 2}, featured=("user",))
    tape, x, own = Tape(), torch.rand(3, 4), {rows: torch.rand(rows, 4) for rows in (2, 3, 6)}
    tape.follow_features(x)
    slots = {rows: tape.follow(tensor) for rows, tensor in own.items()}
    assert Identities(tape, 7, types).nodes(0).tolist() == [0, 1, 2]
    assert Identities(tape, 7, types).nodes(slots[3]).tolist() == [0, 1, 2]
    assert Identities(tape, 7, types).nodes(slots[6]).tolist() == [-1] * 6
    with pytest.raises(UnfollowedError, match="a tensor of its own, which may belong to item or shop,"):
        Identities(tape, 7, types).nodes(slots[2])
    tape.calls = [Call("conv", torch.nn.Identity(), (slots[2],), type_of={slots[2]: "shop", slots[6]: "user"})]
    said = Identities(tape, 7, types)
    assert said.nodes(slots[2]).tolist() == [5, 6]
    assert said.nodes(slots[6]).tolist() == [-1] * 6  # there are not as many users
    assert not said.assumed(slots[2])


@pytest.mark.parametrize("turned", [False, True])
def test_rows_of_several_nodes_stay_so_beside_rows_of_nobody(turned):
    several, nobody = torch.tensor([-2, -2, 2]), torch.tensor([-1, -1, -1])
    values = [torch.rand(3, 2), torch.rand(3, 2)]
    known = dict(enumerate((nobody, several) if turned else (several, nobody)))
    op = SimpleNamespace(inputs=(0, 1))
    assert moved._rows_of_all(op, values, {s: ids.view(-1, 1) for s, ids in known.items()}).tolist() == [-2, -2, 2]
