"""Walks whose books are kept in tensors, as on an accelerator, are those whose books are NumPy arrays."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch

import walkwise as ww
from chains import chain_of
from small_runs import Pooled, some_graphs
from walkwise.questions import bookkeeping as books
from walkwise.questions.partial_walks import Stages
from walkwise.questions.steps import walk_steps
from walkwise.questions.walk_listing import distinct, named_once
from walkwise.questions.walk_tables import listed_walks
from walkwise.search.best_first import best_first_search

SIZES = np.random.default_rng(0).integers(0, 5, 40)


def both(function, *arrays, **named):
    """What a function makes of arrays, and of tensors of the same numbers."""
    here = function(*arrays, **named)
    there = function(*(torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arrays), **named)
    return here if isinstance(here, tuple) else (here,), there if isinstance(there, tuple) else (there,)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (books.repeated, (SIZES, SIZES[::-1].copy())),
        (books.rows, (SIZES, SIZES.astype(np.int8))),
        (books.places, (SIZES > 2,)),
        (books.places_ascending, (SIZES,)),
        (books.largest, (SIZES * 1.0, 7)),
        (books.largest, (SIZES * 1.0, 70)),
        (books.row_maximum, (SIZES.reshape(8, 5),)),
        (books.counted, (SIZES, 9)),
        (books.ascending, (SIZES.reshape(8, 5),)),
        (books.add_up, (SIZES, SIZES * 0.5, 6)),
        (books.turned, (SIZES.reshape(8, 5),)),
        (books.spans, (SIZES * 10, SIZES)),
        (books.grouped, (SIZES,)),
        (books.grouped, (SIZES[:0],)),
        (distinct, (SIZES.reshape(8, 5) - 1, 4)),
        (distinct, (np.tile(SIZES, 4).reshape(2, 80) - 1, 4)),
        (named_once, (np.sort(SIZES.reshape(8, 5).astype(np.int8) - 1, axis=1),)),
    ],
)
def test_tensors_give_what_arrays_give(function, given):
    for here, there in zip(*both(function, *given), strict=True):
        assert isinstance(here, np.ndarray)
        assert isinstance(there, torch.Tensor)
        np.testing.assert_array_equal(here, np.asarray(there))


def test_spans_and_groups_by_hand():
    pairs, owner = books.spans(np.array([5, 0, 9]), np.array([2, 0, 3]))
    assert pairs.tolist() == [5, 6, 9, 10, 11]
    assert owner.tolist() == [0, 0, 2, 2, 2]
    first, same = books.grouped(np.array([7, 3, 7, 5, 3]))
    assert first.tolist() == [1, 3, 0]
    assert same.tolist() == [2, 0, 2, 1, 0]


@pytest.fixture
def elsewhere(monkeypatch):
    """A switch that has books kept in tensors."""
    return lambda: monkeypatch.setattr(Stages, "elsewhere", True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("nodes", [5, 40])
@pytest.mark.parametrize("detail", ["walks", "visits", "nodes"])
def test_the_table_of_walks(elsewhere, detail, nodes, seed):
    make = lambda: chain_of(seed, M=nodes, layers=3)  # noqa: E731
    whole = {}
    for ends in (None, np.array([0, 2, 3])):
        whole[ends is None] = listed_walks(make(), detail, ends=ends).here
    elsewhere()
    for ends in (None, np.array([0, 2, 3])):
        listed, here = listed_walks(make(), detail, ends=ends), whole[ends is None]
        assert isinstance(listed.visits, torch.Tensor)
        there = listed.here
        assert len(there.visits) == len(here.visits) > 0
        order, other = (np.lexsort(table.visits.T) for table in (here, there))
        if detail != "nodes":  # entries that differ in their nodes alone have the visits of any of their walks
            np.testing.assert_array_equal(here.visits[order], there.visits[other])
        np.testing.assert_allclose(np.sort(there.relevance), np.sort(here.relevance), rtol=1e-9, atol=1e-14)
    assert listed_walks(make(), detail, max_rows=1) is None


@pytest.mark.parametrize("by", ["relevance", "magnitude"])
def test_best_walks_of_every_graph(elsewhere, by):
    data = Batch.from_data_list(some_graphs(9))
    trace = lambda: ww.trace(Pooled().double().eval(), data, target=1)  # noqa: E731
    torch.manual_seed(0)
    expected = ww.top_walks(trace(), 12, by=by, graphs=data.batch)
    elsewhere()
    torch.manual_seed(0)
    found = ww.top_walks(trace(), 12, by=by, graphs=data.batch)
    assert len(found) == len(expected) == 9
    for one, other in zip(found, expected, strict=True):
        assert one.num_walks == other.num_walks
        assert torch.equal(one.walks, other.walks)
        torch.testing.assert_close(one.relevance, other.relevance, rtol=1e-9, atol=1e-12)


def test_a_search_among_walks(elsewhere):
    expected, _ = best_first_search(walk_steps(chain_of(1, M=7, layers=3)), 5, "relevance", 10_000)
    elsewhere()
    chain = chain_of(1, M=7, layers=3)
    found, _ = best_first_search(walk_steps(chain), 5, "relevance", 10_000)
    assert torch.equal(ww.walk_relevance(chain, found), ww.walk_relevance(chain, expected))


def test_orders_from_books_in_tensors(elsewhere):
    data = Batch.from_data_list(some_graphs(6))
    torch.manual_seed(0)
    model = Pooled().double().eval()
    expected = ww.order_nodes(ww.trace(model, data, target=1), graphs=data.batch)
    elsewhere()
    chain = ww.trace(model, data, target=1)
    assert all(map(torch.equal, ww.order_nodes(chain, graphs=data.batch), expected))
    assert isinstance(listed_walks(chain, "visits").visits, torch.Tensor)
