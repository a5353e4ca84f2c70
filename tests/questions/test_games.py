"""Shapley values and interactions against their definitions over all orders and all subsets."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import walkwise as ww
from chains import chain_of, walks_of
from walkwise import reference
from walkwise.errors import InputError, SamplingWarning, TooManyWalksError
from walkwise.questions.games import (
    as_game,
    as_interaction_values,
    sampled,
    sampled_pair_interactions,
    sampled_shapley_values,
    shapley_interactions,
    shapley_values,
)

torch.set_num_threads(1)


CHAINS = [chain_of(0, M=5), chain_of(1, M=5), chain_of(2, M=5, jk="cat"), chain_of(3, M=5, layers=4), chain_of(5, M=6)]


@pytest.mark.parametrize("chain", CHAINS)
def test_shapley_values_by_all_permutations(chain):
    found = shapley_values(chain)
    assert found.method == "walks"
    assert found.values.tolist() == pytest.approx(reference.shapley_values(walks_of(chain), chain.num_nodes), abs=1e-10)
    assert not bool(found.standard_error.any())


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_interactions_by_all_subsets(chain, order):
    dense = shapley_interactions(chain, order=order).dense()
    want = reference.shapley_interactions(walks_of(chain), chain.num_nodes, order)
    assert any(abs(value) > 1e-6 for value in want.values())
    for S, value in want.items():
        for turned in itertools.permutations(S):
            assert float(dense[turned]) == pytest.approx(value, abs=1e-10)
    if order == 2:
        assert not bool(dense.diagonal().any())


def test_moebius_terms_beyond_the_walks_vanish():
    chain = chain_of(1, M=6, layers=1)
    for size in (3, 4):
        for T in itertools.combinations(range(6), size):
            subsets = [list(K) for k in range(size + 1) for K in itertools.combinations(T, k)]
            signs = torch.tensor([(-1.0) ** (size - len(K)) for K in subsets], dtype=torch.float64)
            assert float(ww.subgraph_relevance(chain, subsets) @ signs) == pytest.approx(0, abs=1e-12)
    assert len(shapley_interactions(chain, order=3).values) == 0


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_efficiency(seed):
    chain = chain_of(seed, M=5)
    assert float(shapley_values(chain).values.sum()) == pytest.approx(chain.input_relevance, abs=1e-9)
    assert float(sampled_shapley_values(chain, permutations=3).values.sum()) == pytest.approx(
        chain.input_relevance, abs=1e-9
    )


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_symmetry_and_dummies(seed):
    """The ends of a path that look alike get the same; a node that shares no walk has no interactions."""
    x = torch.tensor([[0.3, 1.0], [0.5, 0.2], [0.3, 1.0], [0.0, 0.0]], dtype=torch.float64)
    edges = torch.tensor([[0, 1, 2, 1], [1, 0, 1, 2]])
    chain = chain_of(seed, M=4, x=x, edges=edges)
    values = shapley_values(chain).values
    assert float(values[0]) == pytest.approx(float(values[2]), abs=1e-10)
    pairs = shapley_interactions(chain).dense()
    assert float(pairs[0, 1]) == pytest.approx(float(pairs[1, 2]), abs=1e-10)
    assert not bool(pairs[3].any())


def test_sampling_comes_within_its_error():
    chain = CHAINS[4]
    exact, found = shapley_values(chain).values, sampled_shapley_values(chain, permutations=800, seed=1)
    assert found.method == "permutations"
    assert bool((found.standard_error > 0).any())
    assert bool(((found.values - exact).abs() <= 4.5 * found.standard_error + 1e-10).all())
    rough = sampled_shapley_values(chain, permutations=50, seed=1)
    assert float(rough.standard_error.mean() / found.standard_error.mean()) == pytest.approx(4.0, rel=0.35)


def test_standard_error_is_that_of_the_mean():
    """Over many seeds the estimates scatter as the error says."""
    chain = CHAINS[0]
    runs = [sampled_shapley_values(chain, permutations=20, seed=seed) for seed in range(200)]
    scatter = torch.stack([run.values for run in runs]).std(0)
    said = torch.stack([run.standard_error for run in runs]).square().mean(0).sqrt()
    assert scatter.tolist() == pytest.approx(said.tolist(), rel=0.25, abs=1e-9)


def test_too_many_walks_are_sampled_and_it_is_said():
    with pytest.warns(SamplingWarning, match="more than max_walks=10.*estimated from 30 sampled orders") as heard:
        found = shapley_values(CHAINS[3], max_walks=10, permutations=30, seed=4)
    assert heard[0].filename == __file__
    again = sampled_shapley_values(CHAINS[3], permutations=30, seed=4)
    assert found.method == "permutations"
    assert torch.equal(found.values, again.values)
    assert torch.equal(found.standard_error, again.standard_error)


@pytest.mark.parametrize("chain", [CHAINS[4], CHAINS[2], chain_of(1, M=2, layers=2)])
def test_sampled_pairs_come_within_their_error(chain):
    pairs = list(itertools.combinations(range(chain.num_nodes), 2))
    exact = shapley_interactions(chain).dense()
    found = sampled_pair_interactions(chain, [(j, i) for i, j in pairs], permutations=800, seed=1)
    want = torch.stack([exact[pair] for pair in pairs])
    assert found.nodes.tolist() == [list(pair) for pair in pairs]
    assert found.method == "permutations"
    assert float(want.abs().max()) > 1e-3
    assert bool(((found.values - want).abs() <= 4.5 * found.standard_error + 1e-10).all())
    assert bool((found.standard_error < 0.1 * want.abs().max()).all())
    assert not bool(shapley_interactions(chain).standard_error.any())


def test_the_standard_error_of_pairs_is_that_of_the_mean():
    pairs = [(0, 1), (1, 2), (0, 3)]
    runs = [sampled_pair_interactions(CHAINS[4], pairs, permutations=20, seed=seed) for seed in range(200)]
    scatter = torch.stack([run.values for run in runs]).std(0)
    said = torch.stack([run.standard_error for run in runs]).square().mean(0).sqrt()
    assert float(said.max()) > 1e-4
    assert scatter.tolist() == pytest.approx(said.tolist(), rel=0.25, abs=1e-9)


def test_batches_of_samples_are_all_counted(monkeypatch):
    """However few go into one batch; nodes that share no walk have no interaction in any sample."""
    monkeypatch.setattr(sampled, "budget", lambda chain: 1)
    chain = chain_of(1, M=9, layers=1, edges=torch.tensor([[0, 1], [1, 0]]))
    found = sampled_pair_interactions(chain, [(0, 1), (0, 8)], permutations=40)
    assert found.values[0] == pytest.approx(float(shapley_interactions(chain).dense()[0, 1]), rel=1e-9)
    assert found.values.tolist()[1] == pytest.approx(0, abs=1e-12)


def test_refuse():
    with pytest.raises(TooManyWalksError, match="sampled_pair_interactions"):
        shapley_interactions(CHAINS[3], max_walks=10)
    for pairs, said in [([(0, 0)], r"\(0, 0\)"), ([(1, 5)], r"\(1, 5\)"), ([(-1, 2)], r"\(-1, 2\)")]:
        with pytest.raises(InputError, match=f"pairs of different nodes from 0 to 4, got {said}"):
            sampled_pair_interactions(CHAINS[3], pairs)
    with pytest.raises(InputError, match="pairs of node ids"):
        sampled_pair_interactions(CHAINS[3], [(0, 1, 2)])
    with pytest.raises(InputError, match="at least 2"):
        sampled_pair_interactions(CHAINS[3], [(0, 1)], permutations=1)
    for permutations in (1, 2.5, "x"):
        for ask in (sampled_shapley_values, shapley_values):  # the latter refuses where it need not sample, too
            with pytest.raises(
                InputError, match=f"orders to sample, must be a whole number of at least 2, got {permutations!r}"
            ):
                ask(CHAINS[0], permutations=permutations)
    for order in (0, 1.5, "x"):
        with pytest.raises(InputError, match=f"in a set, must be a whole number of at least 1, got {order!r}"):
            shapley_interactions(CHAINS[0], order=order)
        with pytest.raises(
            InputError, match=f"in the largest sets, must be a whole number of at least 1, got {order!r}"
        ):
            as_interaction_values(CHAINS[0], max_order=order)


def test_two_hundred_orders_are_sampled_by_default():
    assert sampled_shapley_values(CHAINS[0]).route == "200 sampled orders"
    assert sampled_pair_interactions(CHAINS[0], [(0, 1)]).method == "permutations"


def test_tables_of_values_say_how_many_are_left_out():
    values = shapley_values(chain_of(0, M=25))
    assert "5 of smaller magnitude are not shown." in values._repr_html_()
    assert "not shown" not in shapley_values(chain_of(0, M=20))._repr_html_()


# -- shapiq -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("M", [5, 9, 12])
def test_shapiq_computes_the_same(M):
    shapiq = pytest.importorskip("shapiq", reason="shapiq is not installed")
    chain = chain_of(M, M=M)
    computer = shapiq.ExactComputer(as_game(chain), n_players=M)
    theirs = computer("SV", 1)
    ours = shapley_values(chain).values
    assert float(ours.abs().max()) > 1e-3
    assert [theirs[(m,)] for m in range(M)] == pytest.approx(ours.tolist(), abs=1e-6)
    pairs, dense = computer("SII", 2), shapley_interactions(chain).dense()
    given = as_interaction_values(chain)
    for i, j in itertools.combinations(range(M), 2):
        assert pairs[(i, j)] == pytest.approx(float(dense[i, j]), abs=1e-6)
        assert given[(i, j)] == pytest.approx(float(dense[i, j]), abs=1e-12)
    assert [given[(m,)] for m in range(M)] == pytest.approx(ours.tolist(), abs=1e-12)
    assert {len(nodes) for nodes in given.interaction_lookup} == {0, 1, 2}


def test_shapiq_plots_the_values():
    pytest.importorskip("shapiq", reason="shapiq is not installed")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    values = as_interaction_values(CHAINS[0])
    assert values.plot_network(show=False) is not None
