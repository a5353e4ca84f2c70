"""Tables of walks, bars and graphs apart: what is kept, what is left out, and what is told apart."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCN, GINConv

import walkwise as ww
from chains import chain_of
from walkwise.errors import AbandonedError, InputError, SamplingWarning, SeveralGraphsWarning
from walkwise.questions import walk_listing, walk_tables
from walkwise.questions.components import largest_component
from walkwise.questions.graphs import as_graphs
from walkwise.questions.progress import bar, shown, while_wanted


def summed(table):
    return float(table.relevance.sum())


def test_a_table_of_some_walks_is_not_kept_for_all(monkeypatch):
    chain = chain_of(0, M=5, layers=2)
    assert walk_tables.listed_walks(chain, "visits", max_rows=1) is None
    some = walk_tables.walk_table(chain, "visits", ends=np.array([0]))
    every = walk_tables.walk_table(chain, "visits")
    assert summed(every) == pytest.approx(chain.input_relevance)
    assert abs(summed(some) - summed(every)) > 1e-3
    assert walk_tables.walk_table(chain, "visits") is every
    assert summed(walk_tables.walk_table(chain, "visits", ends=np.array([0]))) == pytest.approx(summed(some))
    monkeypatch.setattr(walk_tables, "_MOST_KEPT", 3)
    chain = chain_of(0, M=5, layers=2)
    assert walk_tables.walk_table(chain, "visits") is not walk_tables.walk_table(chain, "visits")


@pytest.mark.parametrize("detail", ["walks", "visits", "nodes"])
def test_walks_that_have_to_wait_are_not_lost(monkeypatch, detail):
    """With room for a single message walks are followed to their ends one after the other."""
    chain = chain_of(1, M=6, layers=3)
    whole = walk_tables.walk_table(chain, detail)
    for name in ("_ROOM", "_BATCHES", "_MOST_LOOSE"):
        monkeypatch.setattr(walk_listing, name, 1)
    again = walk_tables.walk_table(chain_of(1, M=6, layers=3), detail)
    assert len(again.visits) == len(whole.visits)
    order, other = (np.lexsort(table.visits.T) for table in (whole, again))
    assert np.array_equal(whole.visits[order], again.visits[other])
    assert again.relevance[other] == pytest.approx(whole.relevance[order])
    assert walk_tables.listed_walks(chain_of(1, M=6, layers=3), detail, max_rows=40) is None


@pytest.mark.parametrize(("nodes", "columns"), [(1, 3), (2, 5), (3, 70), (40, 3), (1000, 9)])
def test_rows_are_told_apart(nodes, columns):
    table = np.random.default_rng(0).integers(-1, nodes, (200, columns))
    table[50:] = table[np.random.default_rng(1).integers(0, 50, 150)]
    table[0], table[1] = -1, 0  # next to each other as digits
    if columns > 1:
        table[2], table[3] = -1, -1
        table[2, -2:], table[3, -2:] = (0, -1), (-1, nodes - 1)
    first, same = walk_listing.distinct(table, nodes)
    assert np.array_equal(table[first][same], table)
    assert len(first) == len(np.unique(table, axis=0))


class Stacked(torch.nn.ModuleList):
    """Layers one after the other, and the sum over nodes."""

    def forward(self, x, edge_index):
        for layer in self:
            x = layer(x, edge_index)
        return x.sum(0, keepdim=True)


@pytest.mark.parametrize("M", [5, 40])
@pytest.mark.parametrize(("eps", "aggr"), [(-0.5, "sum"), (0.0, "sum"), (1.0, "sum"), (0.0, "mean"), (-0.3, "mean")])
def test_a_table_adds_up_the_walks_that_are_alike(M, eps, aggr):
    """Whatever a node's own features weigh in its sum (1 + eps), and however many nodes there are."""
    torch.manual_seed(M)
    model = Stacked([GINConv(torch.nn.Linear(2, 2), eps=eps, aggr=aggr) for _ in range(3)]).double()
    path = torch.stack([torch.arange(M - 1), torch.arange(1, M)])
    edges = torch.cat([path, path.flip(0)], dim=1)
    chain = ww.trace(model, torch.rand(M, 2, dtype=torch.float64), edges, target=0, rule="zero")
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    listed = walk_tables.walk_table(chain, "walks")
    assert {tuple(w): r for w, r in zip(listed.visits.tolist(), listed.relevance, strict=True)} == pytest.approx(
        dict(zip(map(tuple, walks.tolist()), relevance.tolist(), strict=True))
    )
    for detail, alike in (("visits", sorted), ("nodes", set)):
        expected = Counter()
        for walk, number in zip(walks.tolist(), relevance.tolist(), strict=True):
            expected[tuple(sorted(alike(walk)))] += number
        table = walk_tables.walk_table(chain, detail)
        found = {tuple(sorted(alike(walk))): r for walk, r in zip(table.visits.tolist(), table.relevance, strict=True)}
        assert len(found) == len(table.visits)
        assert found == pytest.approx(dict(expected), rel=1e-9)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 100])
def test_chunks_are_as_long_as_there_is_room_for(most):
    """Consecutive, with as many rows as there is room for, or with a single entry that has more."""
    for seed in range(5):
        counts = np.random.default_rng(seed).integers(0, 6, 12)
        pieces = walk_listing._chunks(counts, most)
        assert [entry for piece in pieces for entry in range(12)[piece]] == list(range(12))
        rows = [counts[piece].sum() for piece in pieces]
        for piece, total in zip(pieces, rows, strict=True):
            assert total <= most or piece.stop - piece.start == 1
            assert piece.stop == 12 or total + counts[piece.stop] > most
    assert walk_listing._chunks(counts[:0], most) == []


def test_nodes_are_named_once():
    visited = np.array([[0, 0, 2], [-1, 1, 1], [3, 3, 3], [0, 1, 2]])
    assert walk_listing.named_once(visited).tolist() == [[-1, 0, 2], [-1, -1, 1], [-1, -1, 3], [0, 1, 2]]


def test_bars_are_shown_hidden_or_late():
    from tqdm import tqdm

    assert [isinstance(bar(progress), tqdm) for progress in (True, None, False)] == [True, True, False]
    assert (bar(True).delay, bar(None).delay) == (0, 2.0)
    assert not any(bar(progress).leave for progress in (True, None))  # nothing is left of it in the end
    for progress in (True, False, None):
        assert list(shown([1, 2], progress)) == [1, 2]
        with while_wanted(lambda: False), pytest.raises(AbandonedError):
            list(shown([1, 2], progress))
        with while_wanted(lambda: True):
            assert list(shown([1, 2], progress)) == [1, 2]


def test_two_graphs_are_not_taken_for_one_in_silence():
    chain = chain_of(0, M=5, layers=2)
    as_graphs(chain, None)
    with pytest.warns(SeveralGraphsWarning, match="sum over 2 graphs"):
        as_graphs(replace(chain, outputs=torch.ones(2, dtype=torch.float64)), None)


def test_the_largest_part_of_no_graph():
    nobody = torch.zeros(2, 0, dtype=torch.long)
    assert (largest_component(nobody, 0), largest_component(nobody, 3)) == (0, 1)


def test_values_that_are_exact_have_no_column_of_errors():
    chain = chain_of(0, M=5, layers=2)
    assert "standard error" not in ww.shapley_values(chain)._repr_html_()
    with pytest.warns(SamplingWarning):
        assert "standard error" in ww.shapley_values(chain, max_walks=1, permutations=7)._repr_html_()


def test_what_is_no_table_of_walks():
    chain = chain_of(0, M=5, layers=2)
    with pytest.raises(InputError, match=r"of shape \(K, 3\)"):
        ww.walk_relevance(chain, ["ab"])


@pytest.mark.parametrize(
    ("walks", "got"),
    [
        ("a", "'a'"),
        (None, "None"),
        ([["a", "b", "c"]], "list"),
        ([[0, None, 1]], "list"),
        ([[0, 1, 1], [0, 1]], "rows of different lengths"),
        ([[0, 1]], "torch.int64 of shape (1, 2)"),
        (torch.tensor([[True, False, True]]), "torch.bool of shape (1, 3)"),
    ],
)
def test_what_are_no_walks_is_refused_by_what_it_is(walks, got):
    torch.manual_seed(0)
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    chain = ww.trace(GCN(2, 4, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    with pytest.raises(InputError, match=r"node ids, of shape \(K, 3\), got") as caught:
        ww.walk_relevance(chain, walks)
    assert str(caught.value.got) == got


def test_walks_may_come_one_by_one():
    chain = chain_of(0, M=5, layers=2)
    walks = ww.enumerate_walks(chain)
    assert torch.equal(ww.walk_relevance(chain, list(walks)), ww.walk_relevance(chain, walks))
