"""The table of a run in a real browser: sorted and filtered on the server, and a row opens its graph."""

from __future__ import annotations

import json
import threading

import pytest

from waiting import eventually
from walkwise import models
from walkwise.datasets import ba2motif
from walkwise.errors import InputError
from walkwise.explorer import Session
from walkwise.explorer.serving import bind

runs = pytest.importorskip("walkwise.runs", reason="runs need pandas and pyarrow", exc_type=ImportError)


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """A model, graphs, and the folder of a run over them; the last graph fails."""
    import torch

    torch.manual_seed(0)
    model, graphs = models.GIN(1, 8, 2, 3).double().eval(), ba2motif.generate(60, seed=1)
    for graph in graphs:
        graph.x = graph.x.double()
    graphs[59].x = torch.full_like(graphs[59].x, torch.nan)
    out = tmp_path_factory.mktemp("explored")
    (out / "motif.json").write_text(json.dumps({"motif": {"marked": "ground_truth"}}))
    made = runs.run(model, graphs, ["nodes", f"groups:{out / 'motif.json'}"], out / "run", workers=1)
    return model, graphs, made


@pytest.fixture(scope="module")
def listed_page(explored, chromium):
    model, graphs, made = explored
    server = bind(Session.of_run(made.folder, model, graphs), port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(30_000)
    problems: list[str] = []
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.wait_for_selector("tr[data-row]")
    page.wait_for_selector("button.walk")
    yield page
    page.close()
    server.shutdown()
    server.server_close()
    thread.join()
    assert problems == []


def numbers(page):
    """The graphs of the rows that are shown."""
    return [int(text) for text in page.locator("tr[data-row] td:first-child").all_text_contents()]


def test_rows_are_sorted_paged_and_opened(listed_page, explored):
    page, (_, _, made) = listed_page, explored
    graphs = runs.read(made)["graphs"]
    assert numbers(page) == list(range(25))
    page.click("#list-forward")
    eventually(lambda: numbers(page), list(range(25, 50)))
    page.click("th.column-output button")
    by_output = graphs.sort_values("output", kind="stable").graph.tolist()  # what failed comes last
    eventually(lambda: numbers(page), by_output[:25])
    page.locator("tr[data-row]").nth(2).locator("td").nth(3).click()
    eventually(lambda: page.locator("#graph-title").text_content(), f"graph {by_output[2]}")
    eventually(lambda: page.locator("tr.current").get_attribute("data-row"), str(by_output[2]))
    page.click("#next-graph")  # along the table
    eventually(lambda: page.locator("#graph-title").text_content(), f"graph {by_output[3]}")
    eventually(lambda: page.evaluate("location.hash").startswith(f"#graph={by_output[3]}&"))


def test_only_what_is_wrong_or_has_failed_and_a_pattern(listed_page, explored):
    page, (_, graphs, made) = listed_page, explored
    tables = runs.read(made)
    rows = tables["graphs"]
    page.click("th.column-graph button")
    page.get_by_role("button", name="Wrong only").click()
    wrong = rows[rows.error.isna() & (rows.label != rows.prediction)].graph.tolist()
    eventually(lambda: numbers(page), wrong[:25])
    page.get_by_role("button", name="Failed").click()
    eventually(lambda: numbers(page), [59])
    assert page.locator("td.failure").text_content() == rows.error[59]
    page.get_by_role("button", name="All", exact=True).first.click()
    page.select_option("#pattern-listed-choice", label="motif (59)")
    motif = tables["groups:motif"].sort_values("relevance", ascending=False, kind="stable").graph.tolist()
    eventually(lambda: numbers(page), motif[:25])
    page.locator("tr[data-row] button").first.click()
    eventually(lambda: page.locator("#graph-title").text_content(), f"graph {motif[0]}")
    nodes = graphs[motif[0]].ground_truth.nonzero().flatten().tolist()  # the pattern's nodes come selected
    eventually(lambda: page.input_value("#nodes"), f"{nodes[0]}-{nodes[-1]}")


def test_another_model_or_other_graphs_are_refused(explored):
    model, graphs, made = explored
    with pytest.raises(InputError, match="does not belong to these graphs:"):
        Session.of_run(made.folder, model, graphs[:-1])
    with pytest.raises(InputError, match="does not belong to this model:"):
        Session.of_run(made.folder, models.GIN(1, 8, 2, 3).double(), graphs)


def test_a_node_of_one_graph_is_opened_as_its_run_explained_it(tmp_path, chromium):
    import torch
    from torch_geometric.nn import GCN

    torch.manual_seed(0)
    model, (graph,) = GCN(1, 4, num_layers=2, out_channels=2).eval(), ba2motif.generate(1, seed=1)
    graph.y = torch.zeros(25, dtype=torch.long)
    made = runs.run(model, [graph], ["nodes"], tmp_path / "run", index="all", workers=1)
    session = Session.of_run(made.folder, model, [graph])
    server = bind(session, port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    page = chromium.new_page()
    page.set_default_timeout(30_000)
    try:
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.wait_for_selector("button.walk")
        page.locator("tr[data-row='17'] button").click()
        eventually(lambda: page.locator("#prediction").text_content().startswith("node 17: "))
    finally:
        page.close()
        server.shutdown()
        server.server_close()
        thread.join()
