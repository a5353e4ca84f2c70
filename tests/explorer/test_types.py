"""Heterogeneous graphs on the page: nodes by type, in shapes, typed and picked by their names."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

import walkwise as ww
from typed_graphs import Reader, papers
from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError
from walkwise.explorer import Session
from walkwise.explorer.answers import (
    format_nodes,
    groups_answer,
    order_answer,
    overlap_words,
    parse_nodes,
    walks_answer,
)
from walkwise.explorer.cases import Desk, open_case
from walkwise.explorer.figures import order_figure
from walkwise.explorer.items import prediction_words, walk_items
from walkwise.explorer.serving import bind
from walkwise.explorer.structure import elements, legend

TYPES = NodeTypes({"user": 3, "power user": 2, "item": 4})


@pytest.fixture(scope="module")
def session():
    """One graph of papers, of which the second is explained."""
    return Session(Reader(), [papers()], names=["papers"], class_names=["theory", "experiment"], index=("paper", 1))


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("user 0-2", [0, 1, 2]),
        ("item 0, 3 user 1", [1, 5, 8]),
        ("power user 1; item 0", [4, 5]),
        ("item", [5, 6, 7, 8]),
        ("user, item 3", [0, 1, 2, 8]),
        ("all", list(range(9))),
        ("", []),
    ],
)
def test_nodes_are_typed_by_type(text, nodes):
    assert parse_nodes(text, 9, TYPES) == nodes
    assert parse_nodes(format_nodes(nodes, TYPES), 9, TYPES) == nodes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-2", r"by type \(user, power user, item\), such as user 0-2, got '0-2'"),
        ("users 1", "got 'users 1'"),
        ("item 4", "Expected item nodes 0 to 3, got '4'"),
        ("item x", "node ids such as 0, 3, 5-8, got 'x'"),
    ],
)
def test_other_texts_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        parse_nodes(text, 9, TYPES)


def test_a_case_has_shapes_names_and_groups_by_type(session):
    case = open_case(session, 0)
    assert case.prediction.index == 6
    assert "".join(str(word) for word in prediction_words(case)[:1]) == "paper 1: "
    nodes = [element["data"] for element in elements(case) if "node" in element["data"]]
    assert [node["shape"] for node in nodes] == ["ellipse"] * 5 + ["rectangle"] * 6 + ["diamond"] * 2
    assert [node["full"] for node in nodes][4:6] == ["author 4", "paper 0"]
    assert legend(case)["words"].endswith("○\xa0author, □\xa0paper, ◇\xa0venue")
    assert case.drawing.groups == {"author": list(range(5)), "paper": list(range(5, 11)), "venue": [11, 12]}
    assert set(case.drawing.edges) >= {(0, 5), (6, 11)}
    direct = ww.trace(session.model, session.graphs[0], index=("paper", 1), target=case.target)
    started = ww.node_relevance(direct, layer="start")
    torch.testing.assert_close(case.heat, torch.cat([started[name] for name in ("author", "paper", "venue")]))
    found = ww.interactions(direct, {"paper": {"paper": range(6)}, "venue": {"venue": [0, 1]}})
    assert groups_answer(case, {"paper": range(5, 11), "venue": [11, 12]}).terms == pytest.approx(found.terms)
    assert "paper\\xa01 →" in str(walk_items(case, walks_answer(case)))  # a name is not broken
    assert "share venue 1." in overlap_words({"a": [12], "b": [0, 12]}, case.drawing.types)


def test_another_node_is_explained_by_its_number_among_all(session):
    desk = Desk(session)
    case = desk.case(0, {"column": 0, "index": 3})
    assert case.prediction.index == 3
    assert case.chain.output == pytest.approx(float(session.model(*_given(session))["author"][3, 0].detach()))
    assert desk.summaries == [("papers", case.classes[open_case(session, 0).said], None)]
    assert Desk(replace(session, index=6)).summaries == desk.summaries  # paper 1, by its number among all


def test_the_label_of_a_node_is_that_of_its_type(session):
    graph = papers()
    graph["paper"].y = torch.tensor([0, 1, 0, 0, 0, 0])
    labelled = replace(session, graphs=[graph])
    assert open_case(labelled, 0).label == "experiment"
    assert open_case(labelled, 0, {"index": 5}).label == "theory"
    assert open_case(labelled, 0, {"index": 0}).label is None


def _given(session):
    return session.graphs[0].x_dict, session.graphs[0].edge_index_dict


def test_the_page_takes_and_shows_nodes_by_type(chromium, session):
    expect = pytest.importorskip("playwright.sync_api").expect
    server = bind(session, port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    page, problems = chromium.new_page(), []
    page.set_default_timeout(30_000)
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    try:
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_selector("button.walk")
        expect(page.locator("#nodes")).to_have_attribute("placeholder", "none: try author 0-4, 7")
        page.fill("#nodes", "venue 0 author 1, 2")
        page.press("#nodes", "Enter")
        expect(page.locator("#nodes")).to_have_value("author 1, 2, venue 0")
        expect(page.locator("#relevance-words")).to_contain_text("R of 3 nodes")
        page.wait_for_function(
            "!document.querySelector('[data-dash-is-loading=true]')"
        )  # or it may replace what is typed
        page.fill("#nodes", "author 1")
        page.press("#nodes", "Enter")
        expect(page.locator("#relevance-words")).to_contain_text("R of 1 node")
        page.click("#explain-node")
        expect(page.locator("#prediction")).to_contain_text("author 1: predicts")
        with page.expect_download() as download:
            page.click("#export-svg")
        drawn = download.value.path().read_text(encoding="utf-8")
        assert (drawn.count("<circle"), drawn.count("<polygon")) == (5, 8)
        assert ">venue 1</text>" in drawn
    finally:
        page.close()
        server.shutdown()
        server.server_close()
        thread.join()
    assert problems == []


def test_without_features_of_a_type_there_is_an_order_but_no_curve():
    class Own(torch.nn.Module):
        """The reader, with an embedding of venues."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.reader, self.venues = Reader(), torch.nn.Embedding(2, 3).double()

        def forward(self, x_dict, edge_index_dict):
            return self.reader({**x_dict, "venue": self.venues.weight}, edge_index_dict)

    data = papers()
    del data["venue"].x
    data["venue"].num_nodes = 2
    case = open_case(Session(Own(), [data], index=("paper", 1)), 0)
    found = order_answer(case)
    assert sorted(found.order) == list(range(13))
    assert (found.values, found.area) == ((), None)
    assert found.problem.startswith("Nodes of type 'venue' have no features")
    assert list(order_figure(case, found)["data"][0]["x"]) == []
