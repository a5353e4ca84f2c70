"""The report: what it counts, and that its page needs nothing else."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from small_runs import ATOMS, some_graphs
from walkwise import runs
from walkwise.runs import findings
from walkwise.runs.sources import Listed

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    (out / "some.json").write_text(json.dumps({"nitrogen": {"kinds": ["N"]}, "first": {"nodes": [0]}}))
    graphs = some_graphs(60, seed=5)
    graphs[7] = graphs[7].clone()
    graphs[7].x = torch.full_like(graphs[7].x, torch.nan)
    source = Listed(graphs, "some <graphs>", ("inert", "active"), ATOMS)
    asked = ["nodes", "subgraph:3", f"groups:{out / 'some.json'}", "curves"]
    runs.run(model, source, asked, out / "run", workers=1)
    return out / "run"


@pytest.fixture(scope="module")
def tables(folder):
    return runs.read(folder)


def test_kinds_are_averaged_graph_by_graph(tables):
    found = findings.by_kind(tables).set_index(["target", "kind"])
    targets = tables["graphs"].set_index("graph").target
    for (target, kind), row in found.iterrows():
        nodes = tables["nodes"]
        means = [
            nodes[(nodes.graph == g) & (nodes.kind == kind)].relevance.mean()
            for g in sorted(set(nodes[nodes.kind == kind].graph))
            if targets[g] == target
        ]
        assert row.graphs == len(means)
        assert row["mean"] == pytest.approx(np.mean(means))
        assert row.half == pytest.approx(1.96 * np.std(means, ddof=1) / np.sqrt(len(means)), nan_ok=True)


def test_subgraphs_that_look_alike_are_one_pattern_ranked_by_relevance_and_frequency(tables):
    found = findings.by_pattern(tables, "subgraph")
    graphs = tables["graphs"][tables["graphs"].error.isna()]
    assert found.groupby("target").graphs.sum().to_dict() == graphs.target.value_counts().to_dict()
    for target, ours in found.groupby("target"):
        assert ours.frequency.sum() == pytest.approx(1)
        assert ours.weight.is_monotonic_decreasing
        parts = tables["subgraph:3"].merge(graphs[graphs.target == target], on="graph")
        assert (ours.weight.sum()) == pytest.approx(parts.relevance_x.mean())
        row = ours.iloc[0]
        same = parts[parts.pattern == row.pattern]
        assert (row.graphs, row["mean"], row.effect) == pytest.approx(
            (len(same), same.relevance_x.mean(), same.effect.mean())
        )
        assert row.alone == pytest.approx((same.alone == target).mean())
        assert row.right == pytest.approx((same.label == target).mean())
        assert row.base == pytest.approx((graphs[graphs.target == target].label == target).mean())
        assert row.example[0] == same.loc[same.relevance_x.idxmax()].graph


def test_a_cue_that_labels_do_not_back_is_found_and_one_that_they_do_is_not():
    label = np.array([1] * 80 + [0] * 20, dtype=float)  # all explained as class 1
    graphs = pd.DataFrame({"graph": range(100), "target": 1, "label": label, "error": None})
    cases = [(g, "spurious") for g in range(70, 100)] + [(g, "backed") for g in range(40)]
    groups = pd.DataFrame(cases, columns=["graph", "group"]).assign(relevance=1.0, effect=0.5)
    found = findings.by_pattern({"graphs": graphs, "groups:x": groups}, "groups").set_index("pattern")
    assert found.doubt["spurious"] == pytest.approx((0.8 - 1 / 3) / np.sqrt(0.8 * 0.2 / 30))
    assert found.doubt["backed"] < 0
    assert findings.cues_in_doubt(found.reset_index()).pattern.tolist() == ["spurious"]
    against = groups.assign(relevance=-1.0)  # what speaks against the class is no cue for it
    found = findings.by_pattern({"graphs": graphs, "groups:x": against}, "groups")
    assert not len(findings.cues_in_doubt(found))


def test_graphs_that_stand_out_are_named_with_the_reason():
    outputs = [[0.0, 1.0]] * 20
    outputs[3] = [0.0, 9.0]  # wrong, and surest
    graphs = pd.DataFrame(
        {
            "graph": range(20),
            "name": [f"g{i}" for i in range(20)],
            "label": [1.0] * 3 + [0.0] * 2 + [1.0] * 15,
            "prediction": 1,
            "target": 1,
            "output": [row[1] for row in outputs],
            "relevance": [row[1] * (0.01 if i == 11 else 0.9) for i, row in enumerate(outputs)],
            "outputs": outputs,
            "error": None,
        }
    )
    shares = {g: [0.25, 0.25, 0.25, 0.25] for g in range(20)} | {5: [5.0, -5.0, 5.0, -4.0], 6: [0.99, 0.0, 0.0, 0.01]}
    nodes = pd.DataFrame([(g, n, r) for g, row in shares.items() for n, r in enumerate(row)])
    nodes.columns = ["graph", "node", "relevance"]
    found = findings.first_to_look_at({"graphs": graphs, "nodes": nodes})
    reasons = {why.partition(":")[0]: some.graph.tolist() for why, some in found.groupby("why", sort=False)}
    assert (
        reasons
        == {
            "wrong, and sure of it": [3, 4],
            "most of the output is absorbed by biases": [11],
            "relevance mostly cancels": [5],
            "one node has nearly all relevance": [6],
        }
        or reasons["one node has nearly all relevance"][0] == 6
    )


def test_the_page_needs_nothing_else_and_names_are_no_markup(folder):
    path = runs.report(folder)
    page = path.read_text(encoding="utf-8")
    assert path == folder / "report" / "report.html"
    assert not re.search(r"https?://(?!www\.w3\.org)", re.sub(r"base64,[^\"]*", "", page))
    assert "some &lt;graphs&gt;" in page
    assert "<graphs>" not in page
    for title in ("What the model looks for", "Groups and patterns", "Kinds of nodes", "Graphs that failed", "Classes"):
        assert f"<h2>{title}</h2>" in page
    assert "1 graph failed." in page
    assert "AUAC" in page
    assert len(list((folder / "report").glob("*.svg"))) == page.count("<img ")
    assert runs.read(folder).keys() == runs.read(folder).keys()  # the report is no table


def test_a_report_on_little_says_what_it_can(model, tmp_path):
    runs.run(model, some_graphs(3), ["order"], tmp_path / "run", workers=1)
    page = runs.report(tmp_path / "run", out=tmp_path / "page").read_text(encoding="utf-8")
    assert "Classes" in page
    assert "What the model looks for</h2>" not in page
