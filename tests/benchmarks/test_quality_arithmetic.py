"""Measures, bootstrap, ranks and the choice among candidates."""

import math

import numpy as np
import pytest
import torch
from quality import aggregate, measures
from quality.aggregate import bootstrap, by_run, choose, differences, interval, mean, ranks_of, standings

from walkwise.evaluation import motif_auroc


def constant(levels):
    """Values of several models, each the same on all of its graphs."""
    return {("d", seed, graph): level for seed, level in enumerate(levels) for graph in range(3 + seed)}


def results(rows, task="t", measure="auroc"):
    return {task: {name: {key: {measure: v} for key, v in values.items()} for name, values in rows.items()}}


def test_every_model_counts_alike():
    values = {("a", 0, 0): 1.0, ("a", 0, 1): 0.0, ("a", 0, 2): 0.5, ("b", 0, 0): 0.0}
    assert mean(values) == 0.25
    assert {run: len(v) for run, v in by_run(values).items()} == {("a", 0): 3, ("b", 0): 1}


def test_models_are_drawn_again():
    draws = bootstrap(constant([0.0, 1.0]), resamples=4000)
    shares = [float((np.abs(draws - level) < 1e-12).mean()) for level in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
    assert sum(shares) == 1


def test_graphs_are_drawn_again_within_a_model():
    draws = bootstrap({("d", 0, 0): 0.0, ("d", 0, 1): 1.0}, resamples=4000)
    shares = [float((draws == level).mean()) for level in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_an_interval_is_as_wide_as_the_normal_one():
    random = np.random.default_rng(0)
    values = {("d", seed, 0): float(v) for seed, v in enumerate(random.normal(0.3, 1.0, 200))}
    found = interval(values)
    half = 1.96 * np.std(list(values.values())) / math.sqrt(200)
    assert found.mean == pytest.approx(np.mean(list(values.values())))
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)


def test_differences_are_paired():
    first, second = {("a", 0, 0): 0.9, ("a", 0, 1): 0.5}, {("a", 0, 1): 0.2, ("a", 0, 2): 0.1}
    assert differences(first, second) == {("a", 0, 1): pytest.approx(0.3)}


def test_ranks():
    assert ranks_of([0.1, 0.3, 0.2]) == [3, 1, 2]
    assert ranks_of([0.5, 0.9, 0.5, 0.1]) == [2.5, 1, 2.5, 4]


def test_a_method_that_saw_few_graphs_is_not_judged_by_how_easy_they_were():
    hard = {("d", 0, graph): level for graph, level in enumerate([1.0, 1.0, 0.2, 0.2])}
    few = {key: v - 0.1 for key, v in hard.items() if key[2] < 2}  # worse, on easy graphs
    found = aggregate.comparable_means({"all": hard, "few": few})
    assert found == {"all": pytest.approx(0.6), "few": pytest.approx(0.5)}
    first, second = standings(results({"all": hard, "few": few}), "t")
    assert (first.method, second.method) == ("all", "few")
    assert second.behind.mean == pytest.approx(0.1)


def test_who_is_first_and_who_is_tied():
    random = np.random.default_rng(0)
    keys = [("d", seed, graph) for seed in range(6) for graph in range(10)]
    level = {key: float(random.normal(0.8, 0.1)) for key in keys}
    rows = {
        "best": level,
        "as good": {key: v - 0.006 + float(random.normal(0, 0.05)) for key, v in level.items()},
        "behind": {key: v - 0.01 for key, v in level.items()},  # a little, but always
        "rare": dict.fromkeys(keys[:20], 1.0),  # two of six models
    }
    found = {s.method: s for s in standings(results(rows), "t")}
    assert found["best"].rank == 1
    assert found["best"].behind is None
    assert [found[m].tied for m in ("best", "as good", "behind")] == [True, True, False]
    assert found["behind"].behind.mean == pytest.approx(0.01)
    assert found["rare"].rank is None  # not first, though its mean is highest
    assert not found["rare"].tied
    summary = aggregate.overall({"t": list(found.values())})
    assert [row.method for row in summary] == ["best", "as good", "behind"]
    assert [row.first_or_tied for row in summary] == [1, 1, 0]


def test_a_race_is_among_those_who_run():
    keys = [("d", seed, graph) for seed in range(6) for graph in range(10)]
    level = {key: 0.5 + 0.01 * key[2] for key in keys}

    def shifted(by, some=keys):
        return {key: level[key] + by for key in some}

    one = results({"ours": level, "theirs": shifted(-0.1), "variant": shifted(0.05)}, "one")
    two = results(
        {"ours": level, "theirs": shifted(0.2), "variant": shifted(0.1), "rare": shifted(0.4, keys[:20])}, "two"
    )
    both = one | two
    found = aggregate.race(both, ["one", "two"], "ours", ["theirs", "rare"])
    assert (found.tied, found.firsts) == (("one",), {"one": "ours", "two": "theirs"})
    assert (found.rank, found.next) == (1.5, ("theirs", 1.5))
    assert found.least == pytest.approx(0.545 / 0.745)
    among_all = aggregate.race(both, ["one", "two"], "ours", ["ours", "theirs", "variant", "rare"])
    assert (among_all.tied, among_all.firsts["one"]) == ((), "variant")
    assert (among_all.rank, among_all.next) == (2.5, ("variant", 1.5))
    assert aggregate.race(both, ["one", "two"], "rare", ["ours"]) is None


def test_the_choice_is_over_tasks_alike():
    few, many = constant([0.5]), {("d", 0, g): 0.5 for g in range(50)}
    up = {key: v + 0.2 for key, v in few.items()}
    down = {key: v - 0.1 for key, v in many.items()}
    found = results({"a": few, "b": up}, "few") | results({"a": many, "b": down}, "many")
    first, second = choose(found, ["few", "many"], ["a", "b", "absent"])
    assert (first.method, second.method) == ("b", "a")
    assert first.mean == pytest.approx(0.55)
    assert second.behind.mean == pytest.approx(0.05)
    assert first.worst == pytest.approx(0.4)
    assert choose(found, ["many"], ["a", "b"])[0].method == "a"  # other tasks are not looked at


def test_auroc_is_that_of_the_library():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(5, (12,), generator=generator).float()  # with ties
    truths = torch.zeros(2, 12, dtype=torch.bool)
    truths[0, :4] = True
    truths[1, 3:5] = True
    assert measures.auroc(scores, truths) == pytest.approx(motif_auroc(scores, truths))
    assert measures.auroc(torch.tensor([float("inf"), 0.0, float("nan")]), truths[:1, 3:6]) == 1.0


def test_jaccard_takes_as_many_as_the_truth_has():
    scores = torch.tensor([5.0, 4.0, 3.0, 2.0, 1.0])
    truths = torch.tensor([[True, False, True, False, False], [True, True, True, False, False]])
    assert measures.jaccard(lambda n: measures.top(scores, n), truths[:1]) == pytest.approx(1 / 3)
    assert measures.jaccard(lambda n: measures.top(scores, n), truths) == 1.0


def test_characterisation():
    assert measures.characterisation(1.0, 0.0) == 1.0
    assert measures.characterisation(0.5, 0.25) == pytest.approx(2 / (1 / 0.5 + 1 / 0.75))
    assert measures.characterisation(-0.2, 0.0) == 0.0
    assert measures.characterisation(1.0, 1.5) == 0.0
    assert measures.characterisation(2.0, -1.0) == 1.0


def test_what_is_not_seen_does_not_count():
    asked = []

    def fidelity(nodes):
        asked.append(nodes)
        return 0.5, 0.5

    truths = torch.tensor([[False, True, True, False]])
    seen = torch.tensor([False, True, True, True])
    scores = torch.tensor([9.0, 3.0, 2.0, 1.0])
    found = measures.measured(measures.Answer(scores), truths, seen, fidelity)
    assert (found["auroc"], found["jaccard"]) == (1.0, 1.0)
    named = measures.measured(measures.Answer(scores, nodes=(1, 3)), truths, seen, fidelity)
    assert named["jaccard"] == pytest.approx(1 / 3)
    assert asked == [(1, 2), (1, 3)]
