"""Tables and figures on tiny inputs, and their numbers with the authors' weights."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch_geometric.data import Data

import walkwise as ww
from authors import ROOT, data_root, golden, needs_golden
from paper.cases import TINY, case, small_set
from walkwise.datasets import GraphSet, pack
from walkwise.errors import InputError
from walkwise.paper import clock, figure1, figure4, figure5, figure6, published, table3
from walkwise.paper.bench import AUTHORS, QUICK, Bench
from walkwise.paper.clock import ALONG, AMORTIZED, CHAIN, HOOK, NAIVE, OTHERS, draw_questions, timed
from walkwise.paper.orderings import edge_masks
from walkwise.paper.tables import markdown, number, write_csv

# -- the paper's numbers ----------------------------------------------------------------------


@needs_golden
def test_published_numbers_are_the_authors():
    theirs = golden("published")
    for alpha, values in published.FIGURE_5.items():
        names = {"accuracy": "acc", "auroc": "auc", "auac": "auac"}
        assert values == {ours: theirs["ba2motif_gin3"][f"{alpha:.2f}"][name] for ours, name in names.items()}
    sets = {"mutag": "mutag", "graph-sst2": "sst2"}
    for (name, mode, sign), values in published.FIGURE_6.items():
        area = {"activation": "auac", "pruning": "aupc"}[mode]
        for alpha, value in values.items():
            assert value == theirs[f"{sets[name]}_{area}"][f"{alpha:.2f}"][f"{area}_{sign[:3]}"]
    for (name, mode, sign), values in published.FIGURE_6_OTHERS.items():
        area = {"activation": "auac", "pruning": "aupc"}[mode]
        for row in golden("published-baselines")[f"{sets[name]}_{area}"]:
            assert values[row["method"].partition("-")[0]] == pytest.approx(float(row[f"{area}_{sign[:3]}"]), abs=5e-5)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(QUICK, data_root(), ROOT / "golden/weights", tmp_path_factory.mktemp("out"))


@needs_golden
def test_figure_5_equals_the_published_numbers(bench):
    rows = figure5.compute(bench.case("ba2motif-gin3"), [0.0, 0.1, 0.5, 1.0])
    of = {row["alpha"]: row for row in rows}
    for alpha, values in published.FIGURE_5.items():
        for name, value in values.items():
            assert of[alpha][name] == pytest.approx(value, abs=0.5e-4 + 1e-9)  # four digits, halves either way
    found = figure5.judge(rows)
    assert found.holds
    assert "ours round to 9 of the 9 published numbers" in found.verdict


@needs_golden
def test_figure_6_is_near_the_published_numbers(bench):
    molecules = bench.case("mutag-gin3")
    rows = figure6.compute(molecules, range(188), "sGNN-LRP", [0.0, 0.5, 1.0])
    assert len(rows) == 2 * 2 * 3
    for row in rows:
        values = published.FIGURE_6[row["set"], row["mode"], row["graphs"]]
        assert row["mean"] == pytest.approx(values[row["alpha"]], abs=0.03)
        assert row["count"] == {"positive": 125, "negative": 63}[row["graphs"]]


@needs_golden
def test_the_authors_weights_are_in_our_columns(bench):
    molecules = bench.case("mutag-gin3")
    data = molecules.some(range(188))
    right = molecules.model(data.x, data.edge_index, data.batch).argmax(dim=1) == data.y
    assert float(right.double().mean()) > 0.85
    assert molecules.origin == AUTHORS


# -- table 3 and figure 4 ---------------------------------------------------------------------


def test_table_3_counts_and_compares():
    rows = table3.compute(case(), TINY)
    assert [row["method"] for row in rows] == [NAIVE, ALONG, HOOK, CHAIN, AMORTIZED]
    assert all(row["ms"] > 0 and row["samples"] == 2 for row in rows)
    assert rows[0]["passes"] == 5**3
    assert 5**2 < rows[1]["passes"] != 5**3
    assert max(row["difference"] for row in rows[:3]) < 1e-10
    found = table3.judge(rows)
    assert found.holds != True  # noqa: E712  (nothing failed)
    assert "| naive GNN-LRP |" in found.table
    assert "| paper: sGNN-LRP | 4.22 |" in found.table
    assert len(table3.draw(rows).axes) == 1


def test_a_failure_is_marked():
    rows = table3.compute(case(layers=4, name="ba2motif-gin5"), replace(TINY, limit=1e-3))
    assert rows[0]["failed"]
    assert rows[0]["ms"] is None
    found = table3.judge(rows)
    assert found.holds is None
    assert "| naive GNN-LRP | — |" in found.table
    assert "more than 0.001 s for one subgraph (BA-2motif GIN-5)" in found.notes[0]


def test_the_naive_method_gets_fewer_graphs_when_it_is_slow():
    questions = draw_questions(small_set().graphs, 4, 5, seed=0)
    row = clock.relevance_rows(case().model, questions, trials=1, limit=100.0)[0]
    assert row["samples"] == 4
    slow = clock.relevance_rows(case().model, questions, trials=1, limit=1.2e-3 * row["ms"])[0]
    assert slow["failed"] or slow["samples"] < 4


def test_questions_are_connected_and_of_one_size():
    questions = draw_questions(small_set().graphs, 3, 6, seed=1)
    for question in questions:
        assert len(question.others) == 1000
        for nodes in [question.subgraph, *question.others[:20]]:
            assert len(set(nodes)) == 6
            inside = torch.zeros(25, dtype=torch.bool)
            inside[nodes] = True
            reached = torch.zeros(25, dtype=torch.bool)
            reached[nodes[0]] = True
            for source, target in question.graph.edge_index.t().tolist() * 6:
                reached[target] |= reached[source] & inside[target]
            assert torch.equal(reached, inside)
    with pytest.raises(InputError, match="Only 0 of 12 graphs have 30 connected nodes"):
        draw_questions(small_set().graphs, 1, 30, seed=0)


def test_a_call_is_warmed_up_and_a_slow_one_made_once(monkeypatch):
    calls, seconds = [], [0.0]

    def call():
        calls.append(0)
        seconds[0] += step
        return len(calls)

    monkeypatch.setattr("walkwise.paper.clock.time.process_time", lambda: seconds[0])
    step = 0.25
    assert timed(call, 3)[0] == 0.25
    assert len(calls) == 4
    step = 2.0
    assert timed(call, 3) == (2.0, 5)


def test_figure_4_has_every_method_at_every_point(monkeypatch):
    monkeypatch.setattr(clock, "edge_masks", partial(edge_masks, epochs=2))
    rows = []
    for layers in (1, 2, 3):
        one = case(f"ba2motif-gin{layers}", layers)
        rows += [row for unit in figure4.depth_units(one, TINY) for row in unit.compute()]
    rows += [row for unit in figure4.size_units(case(), TINY) for row in unit.compute()]
    assert len(rows) == 6 * 8
    assert {row["method"] for row in rows} == {NAIVE, ALONG, HOOK, CHAIN, AMORTIZED, *OTHERS}
    assert {(row["part"], row["x"]) for row in rows} == {(p, x) for p in ("depth", "size") for x in (1, 2, 3)}
    found = figure4.judge(rows)
    assert "for 1 layer and" in found.verdict
    assert "finishes at every depth" in found.verdict
    figure = figure4.draw(rows)
    assert [ax.get_yscale() for ax in figure.axes] == ["log", "log"]
    assert len(figure.axes[0].lines) == 8


def _times(naive_exponent):
    """Rows of figure 4 by formula: what the paper claims, but for how the naive time grows with |S|."""
    of = {ALONG: 2.0, HOOK: 1.0, CHAIN: 1.0, AMORTIZED: 0.1, "GNNExplainer": 100.0, "Gradient": 0.6, "CAM": 0.6}
    rows = []
    for part, places in (("depth", range(1, 8)), ("size", range(1, 20))):
        for x in places:
            naive = 5.0**x if part == "depth" else float(x) ** naive_exponent
            times = {NAIVE: naive, **{name: ms * (x if part == "depth" else 1) for name, ms in of.items()}}
            rows += [{"part": part, "x": x, "method": m, "ms": ms, "failed": False} for m, ms in times.items()]
    return rows


def test_figure_4_holds_if_the_naive_time_is_cubic():
    found = figure4.judge(_times(3.2))
    assert found.holds is True
    assert "grows like |S|^3.2" in found.verdict
    assert figure4.judge(_times(1.6)).holds == "in part"


def test_figure_4_marks_failures():
    row = {"part": "depth", "x": 2, "method": NAIVE, "ms": None, "failed": True, "limit": 8.0}
    figure = figure4.draw([row, {**row, "part": "size", "ms": 3.0, "failed": False}])
    (text,) = figure.axes[0].texts
    assert text.get_text() == "failed (> 8 s)"
    assert figure.axes[0].lines[-1].get_ydata().tolist() == [8000.0]


# -- figures 1, 5 and 6 -----------------------------------------------------------------------

ATOMS = ("C", "O", "N")


def aniline():
    """Para-nitroaniline with a methyl group: a ring, a nitro group, one more nitrogen, one more carbon."""
    edges = [*((i, (i + 1) % 6) for i in range(6)), (0, 6), (6, 7), (6, 8), (3, 9), (2, 10)]
    symbols = [*"CCCCCC", "N", "O", "O", "N", "C"]
    edge_index = torch.tensor(edges).t()
    orders = torch.nn.functional.one_hot(torch.tensor([1, 0] * 3 + [0, 1, 0, 0, 0]), 3).float()
    x = torch.nn.functional.one_hot(torch.tensor([ATOMS.index(s) for s in symbols]), 3).float()
    both = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    return Data(x, both, edge_attr=orders.repeat(2, 1), y=torch.tensor([0])), symbols


def test_a_nitro_group_counts_with_its_ring():
    graph, symbols = aniline()
    assert figure1.nitro_aromatic(graph, symbols) == [{0, 1, 2, 3, 4, 5, 6, 7, 8}]
    assert figure1.nitro_aromatic(graph, ["C" if s == "O" else s for s in symbols]) == []
    broken = Data(graph.x, graph.edge_index[:, ~((graph.edge_index == 4).any(0))])
    assert figure1.nitro_aromatic(broken, symbols) == []


def test_terms_and_heat_add_up():
    graph, symbols = aniline()
    model = case(graphs=_molecules()).model
    chain = ww.trace(model, graph.x.double(), graph.edge_index, target=0, rule="gamma")
    terms = figure1.term_rows(chain, symbols, set(range(9)))
    total = chain.input_relevance
    assert sum(row["higher"] for row in terms) == pytest.approx(total)
    assert sum(row["lower"] for row in terms) == pytest.approx(total)
    assert [row["lower"] for row in terms[3:]] == [0.0] * 4
    assert 0 <= terms[0]["group_rank"] <= 1
    assert terms[0]["group_share"] * total == pytest.approx(float(ww.subgraph_relevance(chain, [range(9)])[0]))
    rows = list(figure1.picture_rows(chain, graph, symbols, set(range(9))))
    atoms = [row for row in rows if row["kind"] == "atom"]
    assert sum(row["heat_all"] for row in atoms) == pytest.approx(total)
    for term in terms:
        assert sum(row[f"heat_{term['term']}"] for row in atoms) == pytest.approx(term["higher"], abs=1e-12)
    bonds = [row for row in rows if row["kind"] == "bond"]
    assert len(bonds) == 11
    staying = sum(float(ww.edge_relevance(chain, layer=i).sum()) for i in range(3)) / 3
    assert sum(row["heat_all"] for row in bonds) == pytest.approx(staying)
    assert [row["order"] for row in bonds if {row["source"], row["target"]} == {6, 7}] == [2]


def _molecules():
    graph, _ = aniline()
    index = torch.arange(1)
    edge_attr = graph.edge_attr
    graphs = pack([graph])
    graphs = replace(graphs, edge_data={"edge_attr": edge_attr})
    return GraphSet("molecules", graphs, index, index, index, ("mutagenic", "non-mutagenic"), ATOMS)


def test_figure_1_from_rows_to_picture():
    pytest.importorskip("rdkit")
    molecules = _molecules()
    one = case("mutagenicity-gin3", graphs=molecules)
    data = one.some([0])
    if int(one.model(data.x, data.edge_index, data.batch).argmax()) != 0:  # make the model say mutagenic
        one = replace(one, graphs=replace(molecules, class_names=("non-mutagenic", "mutagenic")))
        one = replace(one, graphs=replace(one.graphs, graphs=replace(molecules.graphs, y=torch.tensor([1]))))
    rows = figure1.compute(one)
    assert {row["kind"] for row in rows} == {"all", "term", "atom", "bond"}
    found = figure1.judge(rows)
    assert "Over 1 such molecules" in found.verdict
    titles = [ax.get_title() for ax in figure1.draw(rows).axes]
    assert [title for title in titles if title][2:] == ["C", "N", "O", "C + N", "C + O", "N + O", "C + N + O"]
    empty = replace(one, graphs=replace(one.graphs, test=torch.arange(0)))
    with pytest.raises(InputError, match="No molecule of the test set"):
        figure1.compute(empty)


def test_figure_5_knows_a_perfect_order(monkeypatch):
    one = case()
    data = one.some(range(4))

    def perfect(model, data, target):
        order = torch.arange(24, -1, -1)
        return lambda mode, alphas: [
            torch.stack([order if a == 0 else order.flip(0) for a in alphas]) + 25 * g for g in range(4)
        ]

    monkeypatch.setattr(figure5, "sgnn_lrp", perfect)
    found = figure5.scores(one.model, data, [0.0, 1.0])
    assert found["accuracy"].tolist() == [1.0, 15 / 25]
    assert found["auroc"].tolist() == [1.0, 0.0]


def test_figure_5_is_drawn_beside_the_published_points():
    rows = figure5.compute(case(), [0.0, 0.5, 1.0])
    ax = figure5.draw(rows).axes[0]
    assert [line.get_label() for line in ax.lines][1] == "accuracy, published"
    assert "published numbers" not in figure5.judge(rows).verdict  # other weights


def test_figure_6_judges_by_the_best_discount():
    def row(method, mode, sign, alpha, mean):
        words = {"data": "mutag", "weights": AUTHORS, "count": 1, "standard_error": 0.1}
        return {"set": "mutag", "method": method, "mode": mode, "graphs": sign, "alpha": alpha, "mean": mean, **words}

    rows = []
    for sign in figure6.SIGNS:
        for mode, ours in (("activation", (1.0, 3.0)), ("pruning", (3.0, 1.0))):
            rows += [row("sGNN-LRP", mode, sign, alpha, mean) for alpha, mean in zip((0.0, 0.3), ours, strict=True)]
            for name in ("GNNExplainer", "GNNExplainer (PyG)"):
                rows += [row(name, mode, sign, alpha, 2.0) for alpha in (0.0, 0.3)]
            rows += [row("Gradient", mode, sign, None, 2.0), row("CAM", mode, sign, None, 2.5)]
    found = figure6.judge(rows)
    assert "ahead in 4 of 4 panels" in found.verdict
    assert "best α is not 0 in 4 of 4" in found.verdict
    assert found.holds == "in part"  # far from the published numbers, with the authors' weights
    figure = figure6.draw(rows)
    assert len(figure.axes) == 4
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [
        "sGNN-LRP",
        "GNNExplainer",
        "GNNExplainer (PyG)",
        "Gradient",
        "CAM",
        "published",
        "best α (AUAC, AUPC)",
    ]
    own = figure6.draw([{**r, "weights": "trained here"} for r in rows])  # another model: nothing published of it
    assert "published" not in [text.get_text() for text in own.legends[0].get_texts()]
    figure.canvas.draw()
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width  # in two lines where there are two columns only
    better = [{**r, "mean": 9.0 if r["mode"] == "activation" else 0.0} if r["method"] == "CAM" else r for r in rows]
    assert "ahead in 0 of 4" in figure6.judge(better).verdict


def test_figure_6_on_a_small_set():
    graphs = replace(small_set(), class_names=("non-mutagenic", "mutagenic"))
    units = figure6.units(case("mutag-gin3", graphs=graphs), TINY)
    assert [unit.name for unit in units] == [
        f"figure6/mutag/{name}" for name in ("sGNN-LRP", "GNNExplainer", "GNNExplainer (PyG)", "Gradient", "CAM")
    ]
    rows = [row for unit in units for row in unit.compute()]
    assert len(rows) == 4 * (3 + 3 + 3 + 1 + 1)
    assert {row["count"] for row in rows} == {6}
    assert figure6.judge(rows).table.count("MUTAG") == 4


# -- tables -----------------------------------------------------------------------------------


def test_rows_as_csv_and_markdown(tmp_path):
    write_csv([{"a": 1, "b": "x"}, {"a": 2, "c": None}], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open() as file:
        assert list(csv.reader(file)) == [["a", "b", "c"], ["1", "x", ""], ["2", "", ""]]
    assert markdown(["a"], [["1"], ["2"]]).splitlines() == ["| a |", "|---|", "| 1 |", "| 2 |"]
    assert [number(v) for v in (None, 0.5, 12.345, 316000.0)] == ["—", "0.5", "12.35", "3.16 × 10⁵"]
