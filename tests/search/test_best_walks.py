"""The exact search against full enumeration, with bounds that really rule walks out."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as few
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GIN, EdgeConv, GATConv, GCNConv, GINConv, GraphConv, SAGEConv

import walkwise as ww
from chains import chain_of, ring, walks_of
from walkwise import reference
from walkwise.errors import InputError, LongSearchWarning
from walkwise.questions.steps import descend, openings, walk_steps
from walkwise.questions.ties import ties_in_order
from walkwise.questions.walk_tables import walk_table
from walkwise.search.best_first import best_first_search
from walkwise.search.best_walks import SearchLimitError, _searched, top_walks
from walkwise.search.envelopes import ROOM, bounds

torch.set_num_threads(1)  # on tensors this small threads only wait for each other


def search(steps, k, by, limit, room=ROOM, batch=128, progress=False):
    """By search, however few walks there are."""
    return _searched(
        steps, k, by, limit, ends=np.arange(steps.stages.chain.num_nodes), progress=progress, room=room, batch=batch
    )


KINDS = [
    lambda i, o: GCNConv(i, o),
    lambda i, o: GraphConv(i, o),
    lambda i, o: GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, o))),
    lambda i, o: GATConv(i, o),
    lambda i, o: SAGEConv(i, o, aggr="max"),  # carried by autograd
]


class Net(nn.Module):
    def __init__(self, convs, width, skip, jump):
        super().__init__()
        self.convs, self.skip, self.jump = nn.ModuleList(convs), skip, jump
        self.head = nn.Linear(width * (len(convs) if jump else 1), 2)

    def forward(self, x, edge_index):
        seen = []
        for i, conv in enumerate(self.convs):
            y = conv(x, edge_index).relu()
            x = y + x if self.skip and i else y
            seen.append(x)
        return self.head((torch.cat(seen, -1) if self.jump else x).sum(0, keepdim=True))


def random_chain(seed, *, skip=False, jump=False, kind=None, nodes=6, layers=4, width=5):
    torch.manual_seed(seed)
    M, L, N = (int(torch.randint(low, high + 1, (1,))) for low, high in ((3, nodes), (2, layers), (3, width)))
    edges = torch.randint(M, (2, int(torch.randint(M, 3 * M, (1,)))))
    make = KINDS[seed % 4 if kind is None else kind]
    model = Net([make(3 if i == 0 else N, N) for i in range(L)], N, skip, jump).double()
    with torch.no_grad():  # so that not all neurons are off and there are walks to speak of
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(0, 0.5)
    x = torch.randn(M, 3, dtype=torch.float64)
    return ww.trace(model, x, edges, target=0, rule=["zero", "gamma"][seed % 2])


def check(chain, *, settings=((0, 2), (100, 2), (0, 128), (ROOM, 128))):
    """A few k, both orders, by bounds alone, with some completions kept and with all."""
    walks = walks_of(chain)
    scale = max([1e-12, *map(abs, walks.values())])
    graph = walk_steps(chain)
    assert graph.num_walks == len(walks)
    for by in ("relevance", "magnitude"):
        for k in (1, 5):
            want = [r if by == "relevance" else abs(r) for _, r in reference.top_walks(walks, k, by)]
            for room, batch in settings:
                found = search(graph, k, by, 10**6, room, batch)
                got = found.relevance if by == "relevance" else found.relevance.abs()
                assert got.tolist() == pytest.approx(want, rel=0, abs=1e-12 * scale)
                assert len({tuple(walk) for walk in found.walks.tolist()}) == len(found.walks)


@given(st.integers(0, 10**6))
@few(deadline=None, max_examples=60)
def test_agrees_with_enumeration(seed):
    check(random_chain(seed))


@given(st.integers(0, 10**6), st.booleans())
@few(deadline=None, max_examples=40)
def test_agrees_with_enumeration_with_skips(seed, jump):
    check(random_chain(seed, skip=True, jump=jump), settings=((0, 2), (100, 2)))


def _odd_chain(seed):
    return random_chain(seed, skip=seed % 3 == 0, jump=seed % 5 == 0, kind=4 if seed % 10 == 7 else None, layers=3)


@pytest.mark.parametrize("seed", range(40))
def test_walks_are_listed_alike_whether_steps_are_known_or_seen_on_the_way(seed):
    """Dead neurons, skips and joined positions: the steps along which messages arrive are those known."""
    chain = _odd_chain(seed)
    seen = walk_table(chain, "walks")
    fresh = chain.to(chain.dtype)
    assert len(seen.visits) == walk_steps(fresh).num_walks <= fresh.memo["stages"].most_ending.sum()
    known = walk_table(fresh, "walks")
    order, other = (np.lexsort(table.visits.T) for table in (seen, known))
    assert np.array_equal(seen.visits[order], known.visits[other])
    np.testing.assert_allclose(seen.relevance[order], known.relevance[other], rtol=1e-12, atol=1e-15)
    assert (walk_steps(fresh).ending <= fresh.memo["stages"].most_ending).all()


def test_steps_are_looked_for_only_where_no_message_arrives():
    """With both among them, the test above compares the two ways of listing."""
    looked_for = []
    for seed in range(40):
        chain = _odd_chain(seed)
        walk_table(chain, "walks")
        looked_for.append("walk steps" in chain.memo)
    assert 10 <= sum(looked_for) <= 30


@pytest.mark.parametrize("seed", range(4))
def test_layers_with_rows_of_edges(seed):
    check(random_chain(seed, kind=4, layers=2), settings=((0, 8), (ROOM, 8)))


@pytest.mark.parametrize("by", ["relevance", "magnitude"])
@pytest.mark.parametrize("seed", range(3))
def test_ties_are_listed_in_lexicographic_order(seed, by):
    """The walks of a ring tie in threes and more; arithmetic leaves them a little apart."""
    chain = ring(2 * seed + 1, kind=GIN)
    every = walks_of(chain)
    rounded = {walk: float(f"{relevance:.9g}") for walk, relevance in every.items()}
    assert 4 <= len(set(rounded.values())) < len(set(every.values()))  # rounding tells equal walks apart
    listed = [list(walk) for walk, _ in reference.top_walks(rounded, len(rounded), by)]
    for room, batch in ((0, 2), (100, 2), (ROOM, 128)):
        found = search(walk_steps(chain), len(every), by, 10**6, room, batch)
        assert found.walks.tolist() == listed
        torch.testing.assert_close(found.relevance, ww.walk_relevance(chain, found.walks), rtol=1e-12, atol=0)
        few = search(walk_steps(chain), 13, by, 10**6, room, batch)  # cuts through a tie
        assert few.walks.tolist() == sorted(few.walks.tolist(), key=listed.index)
    assert top_walks(chain.to(dtype=torch.float32), len(every), by=by).walks.tolist() == listed


def test_what_is_further_apart_than_rounding_does_not_tie():
    walks = torch.tensor([[3], [2], [1], [0]])
    for dtype, near in ((torch.float64, 1e-10), (torch.float32, 1e-7)):
        score = torch.tensor([2 + 6 * near, 2 + 3 * near, 2.0, 1.0], dtype=dtype)
        assert ties_in_order(walks, score).tolist() == [2, 1, 0, 3]
        assert ties_in_order(walks, -score.flip(0)).tolist() == [0, 3, 2, 1]
        assert ties_in_order(walks, 2 + 10 * (score - 2) * 1e3).tolist() == [0, 1, 2, 3]
    drift = 1 - torch.arange(4, dtype=torch.float64) * 0.9e-9  # neighbours are near, the last is far from the first
    assert ties_in_order(walks, drift).tolist() == [1, 0, 3, 2]
    assert ties_in_order(walks[:0], drift[:0]).tolist() == []


def test_walks_are_ruled_out():
    """Guards the tests above: searches that look at every walk would agree with any bounds."""
    graphs = [walk_steps(random_chain(seed)) for seed in range(12)]
    assert sum(graph.num_walks > 20 for graph in graphs) >= 6
    every = sum(search(graph, 10**6, "relevance", 10**6, 0, 128).expansions for graph in graphs)
    assert sum(search(graph, 1, "relevance", 10**6, 0, 1).expansions for graph in graphs) < every / 3


def test_a_chain_without_walks():
    chain = random_chain(next(seed for seed in range(300) if walk_steps(random_chain(seed)).num_walks == 0))
    found = top_walks(chain, 3)
    assert found.walks.shape == (0, chain.num_layers + 1)
    assert found.relevance.shape == (0,)


def test_a_layer_with_rows_of_edges_without_walks():
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    model = Net([EdgeConv(mlp)], 4, skip=False, jump=False).double()
    x, nowhere = torch.randn(3, 3, dtype=torch.float64), torch.empty(2, 0, dtype=torch.long)
    chain = ww.trace(model, x, nowhere, target=0)
    assert len(top_walks(chain, 3).walks) == 0


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0, 200]))
@few(deadline=None, max_examples=40)
def test_every_walk_lies_within_the_bounds_of_its_parts(seed, skip, room):
    chain = random_chain(seed, skip=skip)
    graph = walk_steps(chain)
    made = bounds(graph, room)
    slack = 1e-12 * (1 + abs(chain.output))

    def visit(at):
        """The least and most relevance below each partial walk, checked against the bounds."""
        relevance, below = descend(graph, at)
        least = torch.full((len(at),), torch.inf, dtype=torch.float64)
        most = -least
        if graph.stages.begins(at.position):
            least, most = relevance[:, 0].clone(), relevance[:, 0].clone()
        for under in below:
            if len(under):
                low, high = visit(under)
                least = least.scatter_reduce(0, under.parent, low, "amin")
                most = most.scatter_reduce(0, under.parent, high, "amax")
        low, high = made.range(at)
        assert bool((low[:, 0] <= least + slack).all())
        assert bool((most <= high[:, 0] + slack).all())
        if at.position in made.completions:  # the range of each neuron is attained there
            for node, kept in made.completions[at.position].items():
                assert torch.equal(kept.functionals.amax(0), made.upper[at.position][node])
        return least, most

    for at in openings(graph):
        if len(at):
            visit(at)


def test_greedy_choices_would_miss_the_best_walk():
    """The reason for the search: some chain's best walk is not the one of the best continuations."""
    from walkwise.search.walksearch import top_walks_amp_ave

    missed = 0
    for seed in range(30):
        chain = random_chain(seed)
        if walk_steps(chain).num_walks:
            exact, greedy = (float(f(chain, 1).relevance[0]) for f in (top_walks, top_walks_amp_ave))
            assert greedy <= exact + 1e-12
            missed += greedy < exact - 1e-9
    assert missed > 0


def test_a_limit_says_how_far_it_came():
    chain = max((random_chain(seed) for seed in range(8)), key=lambda chain: walk_steps(chain).num_walks)
    with pytest.raises(SearchLimitError, match="max_expansions=3 partial walks"):
        search(walk_steps(chain), 2, "relevance", 3, 0, 1)


def test_progress_counts_partial_walks(capsys):
    chain = max((random_chain(seed) for seed in range(8)), key=lambda chain: walk_steps(chain).num_walks)
    quiet = search(walk_steps(chain), 2, "relevance", 10**6, 0, 1)
    assert capsys.readouterr().err == ""
    shown = search(walk_steps(chain), 2, "relevance", 10**6, 0, 1, progress=True)
    assert "partial walks" in capsys.readouterr().err
    assert torch.equal(shown.walks, quiet.walks)
    assert torch.equal(top_walks(chain, 2, progress=True).relevance, top_walks(chain, 2).relevance)


def test_refuses_what_makes_no_sense():
    chain = random_chain(0)
    alone = SAGEConv(2, 1, root_weight=False)
    unreached = ww.trace(alone, torch.ones(3, 2), torch.empty(2, 0, dtype=torch.long), index=0)
    assert top_walks(unreached, 1).num_walks == 0
    for k in (0, 1.5, "x", None):
        for asked in (chain, unreached):
            with pytest.raises(
                InputError, match=f"the number of walks, must be a whole number of at least 1, got {k!r}"
            ):
                top_walks(asked, k)
    assert len(top_walks(chain, torch.tensor(2)).walks) == 2
    with pytest.raises(InputError, match="magnitude"):
        top_walks(chain, 1, by="size")


def test_keeps_the_type():
    chain = max((random_chain(seed) for seed in range(8)), key=lambda chain: walk_steps(chain).num_walks)
    narrow = chain.to(dtype=torch.float32)
    assert top_walks(narrow, 3).relevance.dtype == torch.float32
    assert top_walks(narrow, 3).relevance.tolist() == pytest.approx(top_walks(chain, 3).relevance.tolist(), rel=1e-4)


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(["relevance", "magnitude"]))
@few(deadline=None, max_examples=30)
def test_the_table_and_the_slow_twin_agree(seed, skip, by):
    chain = random_chain(seed, skip=skip)
    walks = walks_of(chain)
    for k in (1, 4, 10**6):
        found = top_walks(chain, k, by=by)
        want = [relevance for _, relevance in reference.top_walks(walks, k, by)]
        sign = abs if by == "magnitude" else float
        scale = max([1e-12, *map(abs, walks.values())])
        assert [*map(sign, found.relevance.tolist())] == pytest.approx([*map(sign, want)], rel=0, abs=1e-12 * scale)
        assert {tuple(walk) for walk in found.walks.tolist()} <= walks.keys()
        assert (found.expansions, found.num_walks) == (0, len(walks))


def test_large_graphs_with_few_walks_are_listed():
    torch.manual_seed(0)
    path = torch.stack([torch.arange(2999), torch.arange(1, 3000)])
    model = Net([KINDS[0](3, 8), KINDS[0](8, 8)], 8, skip=False, jump=False).double()
    chain = ww.trace(model, torch.rand(3000, 3, dtype=torch.float64), torch.cat([path, path.flip(0)], 1), target=0)
    found = top_walks(chain, 5)
    assert found.num_walks > 10_000
    assert found.route == f"all {found.num_walks:,} walks listed"
    assert torch.allclose(found.relevance, ww.walk_relevance(chain, ww.enumerate_walks(chain)).topk(5).values)
    assert float(ww.shapley_values(chain).values.sum()) == pytest.approx(chain.input_relevance)


def complete(M):
    nodes = torch.arange(M)
    pairs = torch.cartesian_prod(nodes, nodes).t()
    return pairs[:, pairs[0] != pairs[1]]


def test_a_search_whose_bounds_take_too_long_is_refused_before_it_begins(monkeypatch):
    chain = chain_of(1, 12, edges=complete(12))
    monkeypatch.setattr("walkwise.search.best_walks.FEW_WALKS", 10)
    found = ww.top_walks(chain, 2)
    monkeypatch.setattr("walkwise.search.best_first.bounds", lambda *_: pytest.fail("it has begun"))
    monkeypatch.setattr("walkwise.search.best_first._NUMBERS_EACH", 1)
    with pytest.raises(SearchLimitError, match=r"Pass max_expansions=[\d,]+ or more") as refused:
        ww.top_walks(chain, 2)
    monkeypatch.undo()
    monkeypatch.setattr("walkwise.search.best_walks.FEW_WALKS", 10)
    monkeypatch.setattr("walkwise.search.best_first._NUMBERS_EACH", 1)
    enough = int("".join(filter(str.isdigit, refused.value.remedy.split(" or more")[0])))
    assert torch.equal(ww.top_walks(chain, 2, max_expansions=enough).walks, found.walks)


def test_a_search_that_may_take_minutes_says_so(monkeypatch):
    chain = chain_of(1, 12, edges=complete(12))
    monkeypatch.setattr("walkwise.search.best_walks.FEW_WALKS", 10)
    monkeypatch.setattr("walkwise.search.best_first._LOOK_AFTER", 0.0)
    monkeypatch.setattr("walkwise.search.best_first._LONG", 0.0)
    monkeypatch.setattr("walkwise.search.best_walks.best_first_search", partial(best_first_search, room=0, batch=1))
    with pytest.warns(LongSearchWarning, match="may go on for") as heard:
        ww.top_walks(chain, 2)
    assert len(heard) == 1
    assert heard[0].filename == __file__
