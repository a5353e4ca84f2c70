"""Rows are told by which numbers change them, whatever a model did to their order."""

import inspect
import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import EdgeConv, GCNConv, GraphConv, MetaLayer

import walkwise as ww
from walkwise.tracing.nodes.embedded import _decoded, _differ, _disturbed, _others, _own_change
from walkwise.tracing.nodes.moved import NOBODY, SEVERAL
from walkwise.tracing.running.modules import exchange, modules_of
from walkwise.tracing.running.shadow import shadow_of
from walkwise.tracing.runs import ModelRuns


def changes(make, x):
    """Which rows of ``make(x)`` change with the numbers of which nodes, and the codes of the nodes."""
    codes, bits = torch.arange(1, len(x) + 1), len(x).bit_length()
    given = _disturbed({"atom": x}, {"atom": _others(x)}, {"atom": codes}, bits)
    runs = [_differ(make(x), make(parts["atom"])) for parts in given]
    assert len(runs) == 2 * bits
    return torch.stack(runs), codes


def rows_of(make, x):
    """The node of every row of ``make(x)``, found by changing numbers."""
    return _decoded(*changes(make, x))


def numbers(M, *width):
    """Whole numbers of which every column has several where there are several rows."""
    generator = torch.Generator().manual_seed(M)
    x = torch.randint(1, 9, (M, *width), generator=generator)
    x[0] = 0
    return x


@pytest.mark.parametrize("M", [2, 3, 4, 5, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("width", [(), (1,), (3,), (2, 2)])
def test_rows_that_are_moved_are_followed(M, width):
    x = numbers(M, *width)
    order = torch.randperm(M, generator=torch.Generator().manual_seed(1))
    for index in (torch.arange(M), order, order[: M // 2 + 1], order.repeat(2)):
        assert torch.equal(rows_of(lambda given, index=index: given[index].view(len(index), -1), x), index)


def test_other_numbers_are_others_of_the_same_column():
    x = torch.tensor([[3, 7, 5], [3, 8, 5], [4, 7, 5], [3, 9, 5]])
    other = _others(x)
    assert bool((other != x)[:, :2].all())
    assert torch.equal(other[:, 2], x[:, 2])  # there is no other
    for column, given in zip(other.t(), x.t(), strict=True):
        assert set(column.tolist()) <= set(given.tolist())


def test_rows_that_no_number_changes_are_nobody_s():
    assert rows_of(lambda given: torch.ones(4, 2), numbers(5)).tolist() == []


def test_rows_with_something_of_the_others_change_with_their_own_numbers():
    x = numbers(6, 2)
    assert _own_change(*changes(lambda given: given + 0.5 * given.sum(0), x))
    # Of some rows nothing is seen: these, too, may be those of their nodes.
    hidden = torch.tensor([1, 1, 0, 1, 0, 1]).view(6, 1)
    assert _own_change(*changes(lambda given: (given + 0.5 * given.sum(0)) * hidden, x))
    assert not _own_change(*changes(lambda given: given.roll(1, 0) + 10 * given.roll(2, 0), x))
    assert not _own_change(*changes(lambda given: given.sum(0, keepdim=True), x))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.sum(0, keepdim=True),  # all nodes in one row
        lambda x: x.roll(1, 0) + 10 * x.roll(2, 0),  # others than its own
        lambda x: torch.cat([x[1:], x[:2] + 10 * x[1:3]]),  # some rows are nodes, and some are two
        lambda x: torch.cat([x[1:], torch.zeros(3, 2)]),  # a node is left out, or what there is is not its row
        lambda x: (x + 10 * x.sum(0))[:4],
    ],
)
def test_rows_of_several_nodes_are_told(make):
    assert rows_of(make, numbers(6, 2)) is None


def test_rows_beside_those_of_all_nodes_are_nobody_s_or_several_nodes():
    made = rows_of(lambda x: torch.cat([torch.zeros(1, 2), x, x[:1] + 10 * x[1:2]]), numbers(6, 2))
    assert made.tolist() == [NOBODY, 0, 1, 2, 3, 4, 5, SEVERAL]


def test_rows_that_come_and_go_have_all_changed():
    assert _differ(torch.zeros(3, 2), torch.zeros(4, 2)).tolist() == [True, True, True]
    assert _differ(torch.zeros(3, 2), torch.tensor([[0.0, 0], [0, 1], [0, 0]])).tolist() == [False, True, False]


class Summed(torch.nn.Module):
    """A model that embeds numbers made of several features, of which not all sums have a place."""

    def __init__(self):
        super().__init__()
        self.kinds, self.conv = torch.nn.Embedding(3, 4), GCNConv(4, 2)

    def forward(self, data):
        return self.conv(self.kinds((data.x * torch.arange(3)).sum(1).long()), data.edges)


def test_numbers_are_tried_in_main_memory(monkeypatch):
    """A number that an embedding does not have ends a CUDA device; in main memory it is an error like any other."""
    handed, given = ModelRuns.handed, []

    def noted(runs, disturbing, last=None):
        given.append(runs.given)
        return handed(runs, disturbing, last)

    monkeypatch.setattr(ModelRuns, "handed", noted)
    x, edges = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 1, 0]], torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    data = Data(x, edges, edges=edges)
    torch.manual_seed(0)
    chain = ww.trace(Summed().double(), data, index=1, target=0)
    assert len(given) > 1
    for one in given:
        assert one.here
        assert one.edge_index is one.manner.whole.edges is one.arguments["edges"]  # one thing before, one now
        assert one.manner.whole is not data
    assert float(ww.node_relevance(chain)[[3, 4]].abs().sum()) == 0


def test_weights_are_exchanged_once_however_often_they_are_held():
    shared = torch.nn.Linear(2, 2)
    shadow = shadow_of(torch.nn.ModuleList([shared, torch.nn.Sequential(shared), torch.nn.BatchNorm1d(2)]))
    modules = modules_of(shadow)
    exchange(modules, lambda tensor: torch.nn.Parameter(tensor.detach() + 1, requires_grad=False))
    first, (second,), norm = shadow.model
    assert first.weight is second.weight is not shared.weight
    torch.testing.assert_close(first.weight, shared.weight + 1)
    assert norm.running_mean.tolist() == [1, 1]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 0, 4, 1, 2]])
def test_atoms_that_are_given_by_another_name_are_followed_without_a_warning(order):
    """Edges that a model finds itself tell nothing of its rows; other numbers do."""

    class Atoms(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.table, self.conv = nn.Embedding(6, 4), GraphConv(4, 2)

        def forward(self, z, pos):
            edges = (torch.cdist(pos[order], pos[order]) < 2.5).nonzero().t()
            return self.conv(self.table(z)[order], edges)[[order.index(0)]]

    z, pos = torch.tensor([1, 2, 3, 4, 1]), torch.arange(5.0).view(-1, 1) * torch.ones(1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chain = ww.trace(Atoms().eval(), Data(z=z, pos=pos), target=0)
    found = ww.node_relevance(chain)
    assert found.nonzero().flatten().tolist() == [0, 1]  # the neighbour, and the node itself


def test_rows_that_a_meta_layer_is_handed_are_told_by_changing_numbers():
    class Edges(nn.Module):
        def forward(self, source, target, edge_attr, u, batch):
            return source

    class Nodes(nn.Module):
        def forward(self, x, edge_index, edge_attr, u, batch):
            return torch.zeros_like(x).index_add(0, edge_index[1], edge_attr)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.table, self.layer = nn.Embedding(5, 3), MetaLayer(Edges(), Nodes(), None)

        def forward(self, x, edge_index):
            order = torch.tensor([2, 0, 1])
            place = order.argsort()
            return self.layer(self.table(x)[order], place[edge_index])[0][place]

    chain = ww.trace(Model().eval(), torch.tensor([0, 1, 2]), torch.tensor([[0, 1], [1, 2]]), index=1, target=0)
    assert ww.node_relevance(chain).nonzero().flatten().tolist() == [0]


def test_a_model_that_looks_at_a_layers_signature_is_followed_like_any_other():
    class Permuted(nn.Module):
        def __init__(self, looks):
            super().__init__()
            torch.manual_seed(0)
            self.looks, self.table, self.conv = looks, nn.Embedding(5, 4), GCNConv(4, 2)

        def forward(self, z, edge_index):
            for method in (self.conv.forward, self.conv.propagate) if self.looks else ():
                assert "edge_index" in inspect.signature(method).parameters
            return self.conv(self.table(z[[2, 0, 3, 1]]), edge_index).sum(0)

    z, edges = torch.tensor([1, 2, 3, 4]), torch.tensor([[0, 1, 2], [1, 2, 3]])
    plain, looking = (ww.trace(Permuted(looks).eval(), z, edges, target=0) for looks in (False, True))
    torch.testing.assert_close(ww.node_relevance(looking), ww.node_relevance(plain))
    assert ww.node_relevance(looking).argsort().tolist() != [0, 1, 2, 3]


def test_positions_that_are_given_are_no_tensor_of_the_models_own():
    """A model without features may begin with them; row i is node i."""

    class Points(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = EdgeConv(nn.Linear(6, 4)), nn.Linear(4, 2)

        def forward(self, data):
            apart = torch.cdist(data.pos, data.pos).fill_diagonal_(torch.inf)
            near = apart.topk(2, largest=False).indices
            edges = torch.stack([near.flatten(), torch.arange(len(near)).repeat_interleave(2)])
            return self.head(self.conv(data.pos, edges).mean(0, keepdim=True))

    chain = ww.trace(Points().eval(), Data(pos=torch.randn(6, 3)), target=0)
    assert not any("of the model's own" in note for note in chain.notes)
    assert ww.node_relevance(chain).shape == (6,)
