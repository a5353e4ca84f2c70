"""What is exported is what is shown."""

from __future__ import annotations

import csv
import io
import json

import pytest

import walkwise as ww
from walkwise.explorer.exports import COLUMNS, as_csv, as_json, shown

GROUPS = {"tree": [0, 1, 2], "motif": [20, 21, 22, 23, 24]}


@pytest.fixture(scope="module")
def document(motif):
    return shown(
        motif,
        nodes=[20, 21],
        alpha=0.25,
        order_alpha=0.1,
        groups=GROUPS,
        formula="tree | motif",
        by="magnitude",
        step=3,
    )


def test_the_document_has_the_answers(motif, document):
    assert document["selection"]["relevance"] == pytest.approx(
        float(ww.subgraph_relevance(motif.chain, [[20, 21]], alpha=0.25))
    )
    assert document["order"]["order"] == tuple(ww.order_nodes(motif.chain, alpha=0.1).tolist())
    assert shown(motif)["order"]["order"] == tuple(ww.order_nodes(motif.chain).tolist())
    assert document["order"]["step"] == 3
    best = float(ww.top_walks(motif.chain, 8, by="magnitude").relevance[0])
    assert document["walks"][0]["relevance"] == pytest.approx(best, rel=1e-9)
    assert document["interactions"]["union"] == ww.interactions(motif.chain, GROUPS).union
    assert document["query"]["relevance"] == ww.query(motif.chain, "tree | motif", GROUPS)
    assert sum(node["relevance"] for node in document["relevance"]["nodes"]) == pytest.approx(
        document["relevance"]["total"]
    )


def test_json_is_read_back(document):
    again = json.loads(as_json(document))
    assert again["groups"] == GROUPS
    assert again["selection"]["nodes"] == [20, 21]


def test_the_table_has_every_number(motif, document):
    rows = list(csv.DictReader(io.StringIO(as_csv(document))))
    assert tuple(rows[0]) == COLUMNS
    kinds = [row["kind"] for row in rows]
    assert kinds.count("node") == kinds.count("activation curve") == 25
    assert kinds.count("interaction") == 4
    (query,) = [row for row in rows if row["kind"] == "query"]
    assert (query["name"], float(query["value"])) == ("tree | motif", document["query"]["relevance"])
    (selection,) = [row for row in rows if row["kind"] == "selection"]
    assert (selection["nodes"], selection["alpha"]) == ("20 21", "0.25")
    step = next(row for row in rows if row["name"] == "step 2")
    assert step["nodes"] == " ".join(map(str, document["order"]["order"][:2]))


def test_nothing_chosen_and_questions_without_an_answer(motif):
    empty = shown(motif)
    assert empty["selection"]["relevance"] == 0
    assert (empty["interactions"], empty["query"]) == ({}, {})
    assert "query" not in as_csv(empty)
    unordered = shown(motif, step=None)
    assert unordered["order"] == {}
    assert "activation curve" not in as_csv(unordered)
    wrong = shown(motif, groups={"a": [0], "b": [0]}, formula="a &")
    assert "error" in wrong["interactions"]
    assert "error" in wrong["query"]
    assert as_csv(wrong)
