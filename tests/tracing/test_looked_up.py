"""Rows that are looked up by the nodes' numbers, one by one and in order, are told from the recording alone."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv

import walkwise as ww
from walkwise.tracing.runs import ModelRuns

M, K = 6, 3
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 5, 0], [1, 0, 2, 3, 4, 5, 0, 5]])
PERM = torch.tensor([2, 0, 1, 5, 3, 4])


class Model(nn.Module):
    """A layer on what is made of whole numbers."""

    def __init__(self, encode, width):
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList(nn.Embedding(9, 4) for _ in range(width))
        self.norm, self.lin, self.places = nn.LayerNorm(4), nn.Linear(4, 4), nn.Parameter(torch.randn(M, 4))
        self.one = nn.Parameter(torch.randn(1, 4))
        self.encode, self.conv = encode, GraphConv(4, 2, bias=False)
        self.double().eval()

    def forward(self, x, edge_index):
        return self.conv(self.encode(self, x), edge_index).sum(0)


def _sum(m, x):
    return sum(table(x[:, i]) for i, table in enumerate(m.tables))


def _written(m, x):
    h = _sum(m, x)
    h[torch.arange(M)] = h[PERM].clone()
    return h


def _swapped(m, x):
    x = x.clone()
    x[[0, 1]] = x[[1, 0]]
    return _sum(m, x)


def _swapped_in_place(m, x):
    x[[0, 1]] = x[[1, 0]]
    return _sum(m, x)


SWAP, HALVES = torch.tensor([1, 0, 2, 3, 4, 5]), torch.tensor([3, 4, 5, 0, 1, 2])
KINDS = torch.tensor([3, 1, 4, 1, 5, 2, 6, 8, 7])
EVERY = torch.arange(M)
#: What is made of numbers, the node of every row, and whether the recording shows that.
SEEN = {
    "a sum of columns": _sum,
    "all columns at once": lambda m, x: m.tables[0](x).sum(1),
    "side by side": lambda m, x: torch.cat([m.tables[0](x[:, 0])[..., :2], m.tables[1](x[:, 1])[..., 2:]], -1),
    "in a stack": lambda m, x: torch.stack([t(x[:, i]) for i, t in enumerate(m.tables)], 1).mean(1),
    "flattened": lambda m, x: m.tables[0](x[:, :1]).flatten(1),
    "squeezed": lambda m, x: m.tables[0](x[:, :1]).squeeze(1),
    "with a norm and an activation": lambda m, x: torch.relu(m.norm(m.lin(_sum(m, x)))),
    "scaled and shifted": lambda m, x: _sum(m, x) * 2 + m.one + m.places,
    "numbers shifted": lambda m, x: m.tables[0]((x[:, 0] - 1).clamp(min=0)),
    "numbers joined": lambda m, x: m.tables[0](torch.cat([x[:, :1], x[:, 1:]], 1)).sum(1),
    "numbers of numbers": lambda m, x: m.tables[0](KINDS[x[:, 0]]),
    "numbers in a column": lambda m, x: m.tables[0](x[:, 0].clone().view(-1, 1).long()).flatten(1),
    "cast": lambda m, x: _sum(m, x).float().double(),
}
UNSEEN = {
    "reordered": (lambda m, x: _sum(m, x)[PERM], PERM),
    "numbers reordered": (lambda m, x: _sum(m, x[PERM]), PERM),
    "written in another order": (_written, PERM),
    "numbers written in another order": (_swapped, SWAP),
    "numbers written in place": (_swapped_in_place, SWAP),
    "a column picked by number": (lambda m, x: m.tables[0](x.index_select(0, PERM)[:, 0]), PERM),
    "a reversed column": (lambda m, x: m.tables[0](x[:, 0].flip(0)), EVERY.flip(0)),
    "numbers of others' numbers": (lambda m, x: m.tables[0](KINDS[x[PERM][:, 0]]), PERM),
    "numbers joined in another order": (lambda m, x: _sum(m, torch.cat([x[3:], x[:3]])), HALVES),
    "half and half": (lambda m, x: torch.cat([_sum(m, x)[3:], _sum(m, x)[:3]]), HALVES),
}
SQUARE = {
    "transposed numbers": lambda m, x: m.tables[0](x.t()).sum(1),
    "a sum over nodes": lambda m, x: m.tables[0](x).sum(0),
    "a stack of sums": lambda m, x: torch.stack([m.tables[0](x[:, i]) for i in range(M)]).sum(1),
}


def numbers(width):
    return torch.randint(0, 9, (M, width), generator=torch.Generator().manual_seed(1))


def explained(encode, width, monkeypatch, x=None):
    """The relevance of nodes, that of the layer's rows by plain autograd, and how often layers were looked at."""
    looks, handed = [], ModelRuns.handed
    monkeypatch.setattr(ModelRuns, "handed", lambda runs, *given: looks.append(given) or handed(runs, *given))
    model, x = Model(encode, width), numbers(width) if x is None else x
    chain = ww.trace(model, Data(x=x.clone(), edge_index=EDGES), target=0, rule="zero")
    h = encode(model, x.clone()).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model.conv(h, EDGES).sum(0)[0], h)
    return ww.node_relevance(chain), (gradient * h).sum(1).detach(), len(looks)


@pytest.mark.parametrize("encode", SEEN.values(), ids=SEEN)
def test_rows_in_order_need_no_further_run(encode, monkeypatch):
    found, rows, looks = explained(encode, K, monkeypatch)
    torch.testing.assert_close(found, rows)
    assert looks == 0


@pytest.mark.parametrize(("encode", "nodes"), UNSEEN.values(), ids=UNSEEN)
def test_rows_in_another_order_are_looked_at(encode, nodes, monkeypatch):
    found, rows, looks = explained(encode, K, monkeypatch)
    torch.testing.assert_close(found, torch.zeros_like(rows).index_add(0, nodes, rows))
    assert looks > 0


@pytest.mark.parametrize("encode", SQUARE.values(), ids=SQUARE)
def test_columns_as_many_as_nodes_are_not_taken_for_them(encode, monkeypatch):
    assert explained(encode, M, monkeypatch)[-1] > 0
