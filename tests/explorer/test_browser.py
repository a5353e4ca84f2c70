"""The page in a real browser. Every test ends with no error in the console and no request to another server."""

from __future__ import annotations

import csv
import json
import re

import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

import walkwise as ww
from waiting import eventually
from walkwise.evaluation import activation_along
from walkwise.explorer.answers import walks_answer
from walkwise.explorer.cases import open_case
from walkwise.plotting._style import short

playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
expect = playwright.expect
expect.set_options(timeout=15_000)  # machines differ

NITRO = [7, 8, 9]  # nitrotoluene's N and its two O


def relevance(case, nodes, alpha=0.0):
    """R_α of a node set as the page writes it."""
    return short(float(ww.subgraph_relevance(case.chain, [nodes], alpha=alpha)), signed=True)


def choose(page, text):
    page.fill("#nodes", text)
    page.press("#nodes", "Enter")


def of_structure(page, expression):
    """What an expression in cy, the structure, comes to."""
    return page.evaluate(
        f"(() => {{ const cy = document.getElementById('structure')._cyreg.cy; return {expression} }})()"
    )


def with_class(page, name):
    """The nodes that carry a class on the structure."""
    return sorted(of_structure(page, f"cy.nodes('{name}').map(n => n.data('node'))"))


def marked(page, chart):
    """Where the mark of a chart is."""
    return page.evaluate(f"document.querySelector('#{chart} .js-plotly-plot').data[1].x[0]")


def place_of(page, node):
    """Where a node is on the screen."""
    box = page.locator("#structure").bounding_box()
    at = of_structure(page, f"cy.getElementById('0-{node}').renderedPosition()")
    return box["x"] + at["x"], box["y"] + at["y"]


def wait_for_class(page, name, nodes):
    eventually(lambda: with_class(page, name), sorted(nodes))


def test_the_page_shows_the_first_graph(page, molecule):
    assert page.title() == "Walkwise explorer"
    expect(page.locator("#prediction")).to_contain_text(f"f = {short(molecule.chain.output)}")
    expect(page.locator("#legend-words")).to_contain_text("relevance of each node for")
    assert page.locator("button.walk").count() == 8
    expect(page.locator("#group-list")).to_contain_text("NO2")
    labels = "cy.nodes().map(n => n.style('label')).join(' ')"
    eventually(lambda: of_structure(page, labels), "C0 C1 C2 C3 C4 C5 C6 N7 O8 O9")
    page.click("#ids")
    eventually(lambda: of_structure(page, labels), "C C C C C C C N⁺ O O⁻")
    expect(page.locator("#ids")).to_have_attribute("aria-pressed", "false")
    page.click("#ids")


def test_nodes_are_clicked_and_boxed(page, molecule):
    page.mouse.click(*place_of(page, 7))
    expect(page.locator("#nodes")).to_have_value("7")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, [7]))
    page.keyboard.down("Shift")
    page.mouse.click(*place_of(page, 8))
    page.keyboard.up("Shift")
    expect(page.locator("#nodes")).to_have_value("7, 8")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, [7, 8]))
    box = page.locator("#structure").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 6, box["y"] + box["height"] - 6, steps=4)
    page.mouse.up()
    expect(page.locator("#nodes")).to_have_value("0-9")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, range(10)))


def test_typed_nodes_and_alpha(tab, molecule):
    page = tab()
    choose(page, "7-9")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, NITRO))
    wait_for_class(page, ":selected", NITRO)
    page.fill("#alpha-typed", "0.35")
    page.press("#alpha-typed", "Enter")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, NITRO, 0.35))
    expect(page.locator("#alpha-range")).to_have_value("0.35")
    page.locator("#alpha-range").fill("0.8")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, NITRO, 0.8))
    expect(page.locator("#alpha-typed")).to_have_value("0.8")
    eventually(lambda: marked(page, "alpha-curve"), 0.8)
    page.fill("#alpha-typed", "2")
    page.press("#alpha-typed", "Enter")
    expect(page.locator("#alpha-problem")).to_have_text("alpha must be a discount between 0 and 1, got 2.")
    choose(page, "7-12")
    expect(page.locator("#nodes-problem")).to_contain_text("Expected nodes 0 to 9")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, NITRO, 0.8))


def test_the_order_is_played(page, molecule):
    order = ww.order_nodes(molecule.chain).tolist()
    for step in (1, 2):
        page.click("#forward")
        expect(page.locator("#step-words")).to_contain_text(f"Step {step} of 10")
    wait_for_class(page, ".placed", order[:2])
    assert with_class(page, ".newest") == [order[1]]
    eventually(lambda: marked(page, "order-curve"), 2)
    page.click("#back")
    expect(page.locator("#step-words")).to_contain_text("Step 1 of 10")
    page.select_option("#speed-choice", label="fast")
    page.click("#play")
    expect(page.locator("#play")).to_have_text("Pause")
    expect(page.locator("#step-words")).to_contain_text(re.compile("Step [3-9] of"))
    page.click("#play")
    expect(page.locator("#play")).to_have_text("Play")
    stopped = page.locator("#step-words").text_content()
    page.wait_for_timeout(700)
    assert page.locator("#step-words").text_content() == stopped
    page.click("#play")
    expect(page.locator("#step-words")).to_contain_text("Step 10 of 10")
    expect(page.locator("#play")).to_have_text("Play")
    page.click("#rewind")
    expect(page.locator("#step-words")).to_contain_text("10 nodes to place")


def test_walks_are_pointed_at(page, molecule):
    walks = [walk.nodes for walk in walks_answer(molecule)]
    page.locator("button.walk").nth(1).hover()
    wait_for_class(page, ".walked", set(walks[1]))
    expect(page.locator("#pointed")).to_contain_text("Walk ")
    page.mouse.move(2, 2)
    wait_for_class(page, ".walked", [])
    page.locator("button.walk").nth(2).focus()
    wait_for_class(page, ".walked", set(walks[2]))
    steps = {tuple(sorted(pair)) for pair in zip(walks[2], walks[2][1:], strict=False) if pair[0] != pair[1]}
    pairs = of_structure(page, "cy.edges('.walked').map(e => e.data('pair'))")
    assert {tuple(map(int, pair.split("-"))) for pair in pairs} == steps
    page.keyboard.press("Enter")
    expect(page.locator("#nodes")).to_have_value(re.compile(str(min(walks[2]))))
    wait_for_class(page, ":selected", set(walks[2]))
    by_size = ww.top_walks(molecule.chain, 8, by="magnitude").relevance.tolist()
    page.select_option("#by-choice", label="largest magnitude")
    ties = page.locator(".tied, button.walk .value:not(:empty)")  # a line for walks that tie, or the walk's own number
    expect(ties.first).to_contain_text(short(by_size[0], signed=True))


def test_groups_and_queries(tab, molecule):
    page = tab()
    choose(page, "0")
    page.fill("#group-name", "methyl")
    page.click("#save-group")
    expect(page.locator("#group-list")).to_contain_text("methyl")
    page.fill("#formula", "ring & NO2")
    page.press("#formula", "Enter")
    groups = {"ring": [1, 2, 3, 4, 5, 6], "NO2": NITRO, "methyl": [0]}
    both = ww.query(molecule.chain, "ring & NO2", groups)
    expect(page.locator("#query-answer")).to_have_text(f"ring & NO2: {short(both, signed=True)}")
    bars = "document.querySelector('#interactions .js-plotly-plot').data[0]"
    eventually(lambda: page.evaluate(f"{bars}.customdata.includes('NO2 + ring + methyl')"), True)
    term = page.evaluate(f"{bars}.x[{bars}.customdata.indexOf('NO2 + ring')]")
    assert term == pytest.approx(ww.interactions(molecule.chain, groups)["ring", "NO2"], abs=1e-5)
    page.fill("#formula", "ring & wing")
    page.click("#ask")
    expect(page.locator("#query-problem")).to_contain_text("no group is called 'wing'")
    expect(page.locator("#query-answer")).to_have_text("")
    choose(page, "0, 7")
    page.fill("#group-name", "both")
    page.press("#group-name", "Enter")
    expect(page.locator("#interactions-problem")).to_contain_text("share node")
    expect(page.locator("#interactions-problem")).to_contain_text("ask with a formula above")
    page.get_by_label("Remove the group both").click()
    expect(page.locator("#interactions-problem")).to_have_text("")
    page.locator("#group-list button", has_text="NO2").click()
    expect(page.locator("#nodes")).to_have_value("7-9")
    page.fill("#group-name", " ")
    page.click("#save-group")
    expect(page.locator("#group-problem")).to_contain_text("needs a name")


def test_another_graph_starts_anew(tab):
    page = tab()
    choose(page, "0-2")
    page.click("#forward")
    page.click("#next-graph")
    expect(page.locator("#graph-choice")).to_have_value("1")
    expect(page.locator("#step-words")).to_contain_text("4 nodes to place")
    expect(page.locator("#nodes")).to_have_value("")
    eventually(lambda: of_structure(page, "cy.nodes().length"), 4)
    assert with_class(page, ":selected") == []
    other = page.locator("#target-choice option:not(:checked)").first.text_content()
    page.select_option("#target-choice", label=other)
    expect(page.locator("#legend-words")).to_contain_text(f"for {other}")
    page.select_option("#graph-choice", label="nitrofluorene")
    eventually(lambda: of_structure(page, "cy.nodes().length"), 16)


def test_the_order_of_a_large_graph_waits(tab):
    page = tab()
    page.select_option("#graph-choice", label="paraffin")
    expect(page.locator("#step-words")).to_contain_text("A large graph")
    expect(page.locator("#hint")).to_contain_text("Hold shift and drag")
    page.click("#play")
    expect(page.locator("#step-words")).to_contain_text("of 90")
    expect(page.locator("#play")).to_have_text("Pause")


def test_a_graph_that_does_not_fit_is_said_to(tab):
    page = tab()
    page.select_option("#graph-choice", label="misfit")
    expect(page.locator("#page-problem")).to_contain_text("Error")
    page.select_option("#graph-choice", label="vinylacetylene")
    expect(page.locator("#page-problem")).to_have_text("")
    expect(page.locator("#step-words")).to_contain_text("4 nodes to place")


def hold_back(page, graph):
    """Keeps questions about an opened graph from the server until the function that comes back is called."""
    held = []

    def keep(route):
        asked = {one["id"]: one.get("value") for one in route.request.post_data_json["inputs"] if isinstance(one, dict)}
        held.append(route) if asked.get("graph") == graph and "target" in asked else route.continue_()

    page.route("**/_dash-update-component**", keep)

    def release():
        eventually(lambda: bool(page.evaluate("1") and held), True)
        for route in held:
            with page.expect_response(lambda response, asked=route.request: response.request == asked):
                route.continue_()
        page.unroute("**/_dash-update-component**", keep)
        page.wait_for_timeout(300)  # for what the page makes of the answers

    return release


def test_a_late_problem_of_another_graph_is_dropped(tab):
    page = tab()
    release = hold_back(page, 4)
    page.select_option("#graph-choice", label="misfit")
    expect(page.locator("#page-problem")).to_contain_text("Error")
    page.select_option("#graph-choice", label="vinylacetylene")
    expect(page.locator("#step-words")).to_contain_text("4 nodes to place")
    expect(page.locator("#page-problem")).to_have_text("")
    release()
    expect(page.locator("#page-problem")).to_have_text("")
    page.select_option("#graph-choice", label="misfit")  # the same words once more
    expect(page.locator("#page-problem")).to_contain_text("Error")


def test_late_answers_of_another_graph_are_dropped(tab, molecules):
    page = tab()
    release = hold_back(page, 2)
    page.select_option("#graph-choice", label="nitrofluorene")
    expect(page.locator("#group-list")).to_contain_text("ring")
    page.wait_for_timeout(300)
    page.select_option("#graph-choice", label="vinylacetylene")
    expect(page.locator("#step-words")).to_contain_text("4 nodes to place")
    release()
    expect(page.locator("#prediction")).to_contain_text(f"f = {short(open_case(molecules, 1).chain.output)}")
    expect(page.locator("#step-words")).to_contain_text("4 nodes to place")
    eventually(lambda: of_structure(page, "cy.nodes().length"), 4)
    assert page.input_value("#graph-choice") == "1"


@pytest.mark.parametrize("width", [1920, 1280, 800, 420])
def test_nothing_overlaps_at_any_width(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inside = """selector => [...document.querySelectorAll(selector)].map(e => e.getBoundingClientRect())
        .filter(r => r.width > 1).map(r => [r.left, r.top, r.right, r.bottom])"""
    for group in (".panel", "header > *", ".card button, .card input, .card select, .card p", ".structure > *"):
        boxes = page.evaluate(inside, group)
        for i, (left, top, right, bottom) in enumerate(boxes):
            for other in boxes[:i]:
                apart = left >= other[2] - 1 or other[0] >= right - 1 or top >= other[3] - 1 or other[1] >= bottom - 1
                assert apart, f"{group} overlap: {boxes[i]} and {other}"
    page.set_viewport_size({"width": 1280, "height": 800})


def test_exports(page, molecule):
    choose(page, "7-9")
    expect(page.locator("#relevance")).to_have_text(relevance(molecule, NITRO))

    def save(button):
        with page.expect_download() as download:
            page.click(button)
        return download.value

    document = json.loads(save("#export-json").path().read_text())
    assert document["selection"]["nodes"] == NITRO
    file = save("#export-csv")
    assert file.suggested_filename == "walkwise-nitrotoluene.csv"
    rows = list(csv.DictReader(file.path().open()))
    (row,) = [row for row in rows if row["kind"] == "selection"]
    assert float(row["value"]) == pytest.approx(float(ww.subgraph_relevance(molecule.chain, [NITRO])), abs=1e-5)
    file = save("#export-png")
    assert file.suggested_filename == "walkwise-nitrotoluene.png"
    picture = imread(file.path(), format="png")[..., :3]  # (rows, columns, 3)
    height, width = (3 * round(of_structure(page, f"cy.{side}()")) for side in ("height", "width"))
    assert picture.shape[1] == width
    legend = picture[height:]
    assert len(legend) > 3 * 60
    for end in ("#1b5fa6", "#d95300"):  # the ends of the scale of colours
        assert (abs(legend - to_rgb(end)).max(axis=2) < 0.03).any()
    assert (legend.max(axis=2) < 0.3).any()  # and words


def within(box, chart):
    """Whether a box is there and inside a chart."""
    if box is None or chart is None:
        return False
    across = chart["x"] <= box["x"] and box["x"] + box["width"] <= chart["x"] + chart["width"]
    return across and box["y"] + box["height"] <= chart["y"] + chart["height"]


def test_words_under_the_interactions_are_not_cut(tab):
    page = tab()
    page.get_by_label("Remove the group ring").click()
    choose(page, "1-6")
    page.fill("#group-name", "the aromatic ring of the molecule")
    page.click("#save-group")
    words = page.locator("#interactions .annotation-text")
    expect(page.locator("#interactions .ytick", has_text="the aromatic ring").first).to_be_visible()
    drawing = page.locator("#interactions .main-svg").first
    for width in (1280, 1000):
        page.set_viewport_size({"width": width, "height": 800})
        expect(words).to_contain_text("that visit exactly these groups")
        eventually(lambda: within(words.bounding_box(), drawing.bounding_box()), True)  # once it is drawn anew


def test_the_order_has_an_alpha_of_its_own(tab, molecule):
    page = tab()
    expect(page.locator("#order-alpha")).to_have_value("0.5")
    page.locator("#alpha-range").fill("0.8")  # of the selection, which the order does not heed
    for alpha in (0.5, 0.0):
        page.fill("#order-alpha", str(alpha))
        page.press("#order-alpha", "Enter")
        order = ww.order_nodes(molecule.chain, alpha=alpha).tolist()
        area = short(activation_along(molecule.prediction, order).area)
        expect(page.locator("#step-words")).to_contain_text(f"10 nodes to place, area (AUAC) {area}")
    eventually(lambda: "order=0" in page.evaluate("location.hash").split("&"))
    page.reload()
    expect(page.locator("#order-alpha")).to_have_value("0")
    page.click("#forward")
    wait_for_class(page, ".placed", order[:1])


def test_two_tabs_do_not_disturb_each_other(tab, molecule):
    first, second = tab(), tab()
    choose(first, "7-9")
    second.click("#next-graph")
    expect(second.locator("#step-words")).to_contain_text("4 nodes to place")
    choose(second, "1")
    second.fill("#alpha-typed", "0.5")
    second.press("#alpha-typed", "Enter")
    expect(second.locator("#relevance-words")).to_contain_text("at α = 0.5")
    expect(first.locator("#relevance")).to_have_text(relevance(molecule, NITRO))
    first.click("#forward")
    expect(first.locator("#step-words")).to_contain_text("Step 1 of 10")
    expect(second.locator("#step-words")).to_contain_text("4 nodes to place")
    expect(first.locator("#relevance-words")).to_contain_text("at α = 0;")
    assert with_class(first, ":selected") == NITRO
    assert with_class(second, ":selected") == [1]


def test_the_keyboard_reaches_everything(tab, molecule):
    page = tab()
    focused = """() => {
        const e = document.activeElement, style = getComputedStyle(e);
        return [e.id || e.className || e.tagName, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0];
    }"""
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name, outlined = page.evaluate(focused)
        if name == "BODY" or (seen and name == seen[0]):
            break
        assert outlined, f"the focus is not seen on {name}"
        seen.append(name)
        if name == "nodes":
            page.keyboard.type("7-9")
            page.keyboard.press("Enter")
            expect(page.locator("#relevance")).to_have_text(relevance(molecule, NITRO))
        if name == "alpha-range":
            for _ in range(10):
                page.keyboard.press("ArrowRight")
            expect(page.locator("#relevance")).to_have_text(relevance(molecule, NITRO, 0.1))
        if name == "forward":
            page.keyboard.press("Space")
            expect(page.locator("#step-words")).to_contain_text("Step 1 of 10")
    order = [
        "skip",
        "previous-graph",
        "graph-choice",
        "next-graph",
        "target-choice",
        "against-choice",
        "rule-choice",
        "export-png",
        "export-svg",
        "export-csv",
    ]
    order += ["export-json", "nodes", "apply-nodes", "all-nodes", "no-nodes", "ids", "alpha-range", "alpha-typed"]
    order += ["back", "play", "forward", "rewind", "speed-choice", "order-alpha"]
    order += ["by-choice", "walk", "group-name", "save-group"]
    order += ["formula", "ask"]
    assert [name for name in dict.fromkeys(seen) if name in order] == order
    assert seen.count("walk") == 8


def test_contrast_rule_and_edges(tab, molecules, molecule):
    page = tab()
    other = 1 - molecule.target
    page.select_option("#against-choice", label=molecule.classes[other])
    against = open_case(molecules, 0, {"column": molecule.target, "against": other})
    expect(page.locator("#prediction")).to_contain_text(f"f = {short(against.chain.output)} for {against.target_title}")
    page.select_option("#rule-choice", label="zero")
    plain = open_case(molecules, 0, {"column": molecule.target, "against": other, "rule": "zero"})
    choose(page, "7-9")
    expect(page.locator("#relevance")).to_have_text(relevance(plain, NITRO))
    page.click("#edges")
    eventually(lambda: of_structure(page, "cy.edges('.heated').length === cy.edges().length"), True)
    heat = of_structure(page, "Object.fromEntries(cy.edges().map(e => [e.data('pair'), e.data('wide')]))")
    most = max(plain.edge_heat, key=lambda pair: abs(plain.edge_heat[pair]))
    assert heat["{}-{}".format(*most)] == pytest.approx(7.0, rel=0.2)


def test_groups_formula_and_address_go_from_graph_to_graph(tab, molecules):
    page = tab()
    page.fill("#group-name", "nitro")
    page.fill("#pattern", "[N+](=O)[O-]")
    page.click("#save-pattern")
    expect(page.locator("#group-list")).to_contain_text("nitro")
    page.fill("#formula", "nitro & ring")
    page.press("#formula", "Enter")
    expect(page.locator("#query-answer")).to_contain_text("nitro & ring")
    page.select_option("#graph-choice", label="vinylacetylene")  # has neither
    expect(page.locator("#prediction")).to_contain_text(f"f = {short(open_case(molecules, 1).chain.output)}")
    expect(page.locator("#query-answer")).to_have_text("nitro & ring: 0")
    expect(page.locator("#query-problem")).to_have_text("")
    page.select_option("#graph-choice", label="nitrofluorene")  # found again, elsewhere
    third = open_case(molecules, 2)
    walks = ww.query(third.chain, "nitro & ring", {"nitro": [0, 1, 2], "ring": third.drawing.groups["ring"]})
    expect(page.locator("#query-answer")).to_have_text(f"nitro & ring: {short(walks, signed=True)}")
    choose(page, "0-2")
    expect(page.locator("#relevance")).to_have_text(relevance(third, [0, 1, 2]))
    eventually(lambda: "nodes=0%2C1%2C2" in page.url, True)
    again = tab()
    again.goto("about:blank")
    again.goto(page.url)
    expect(again.locator("#nodes")).to_have_value("0-2")
    expect(again.locator("#graph-choice")).to_have_value("2")
    expect(again.locator("#query-answer")).to_have_text(f"nitro & ring: {short(walks, signed=True)}")
    page.fill("#pattern", "[N")
    page.fill("#group-name", "bad")
    page.click("#save-pattern")
    expect(page.locator("#group-problem")).to_contain_text("is not a SMARTS pattern")


def test_graphs_are_found_and_pictures_kept(tab):
    page = tab()
    page.click(".finder summary")
    page.fill("#find", "nitro")
    page.click("#find-all")
    expect(page.locator("#found-words")).to_have_text("2 graphs found.")
    expect(page.locator("#found button")).to_have_count(2)
    page.click("#find-wrong")
    expect(page.locator("#found-words")).to_have_text("0 graphs that the model gets wrong.")
    page.click("#find-all")
    page.click("#pin")
    expect(page.locator("#pinned figure")).to_have_count(1)
    page.locator("#found button", has_text="nitrofluorene").click()
    expect(page.locator("#graph-choice")).to_have_value("2")
    expect(page.locator("#pinned figcaption")).to_contain_text("nitrotoluene")
    with page.expect_download() as waiting:
        page.click("#export-svg")
    assert waiting.value.suggested_filename == "walkwise-nitrofluorene.svg"
    drawn = waiting.value.path().read_text(encoding="utf-8")
    assert drawn.count("<circle") == 16
    assert drawn.count("<line") >= 18
    page.get_by_label("Remove the pinned picture of nitrotoluene").click()
    expect(page.locator("#pinned figure")).to_have_count(0)
