"""Colours, charts and controls: what is drawn stands for what was computed."""

from __future__ import annotations

import pytest
from dash.development.base_component import Component
from matplotlib.colors import to_rgb

import walkwise as ww
from walkwise.explorer import answers, figures, layout, structure
from walkwise.plotting._style import COLOURS


def test_orange_is_for_and_blue_against(motif):
    for colour, value in zip(structure.node_colours(motif), motif.heat.tolist(), strict=True):
        red, _, blue = to_rgb(colour)
        assert (red > blue) == (value > 0) or abs(value) < 0.02 * float(motif.heat.abs().max())
    strongest = int(motif.heat.abs().argmax())
    end = 1.0 if motif.heat[strongest] > 0 else 0.0
    assert to_rgb(structure.node_colours(motif)[strongest]) == pytest.approx(COLOURS(end)[:3], abs=0.005)


def test_the_page_shows_the_plots_colours():
    css = (layout.__file__).replace("layout.py", "assets/explorer.css")
    with open(css, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    assert "#1b5fa6, #6ba0d0, #bdd6ea, #f7f7f7, #fbcfa4, #f2985a, #d95300" in text
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text


def test_elements_are_the_graph(molecule, motif):
    for case in (molecule, motif):
        made = structure.elements(case)
        ids = [element["data"]["id"] for element in made]
        assert len(set(ids)) == len(ids)
        assert sum("position" in element for element in made) == case.num_nodes
    lines = [element["data"]["pair"] for element in structure.elements(molecule) if "pair" in element["data"]]
    assert (lines.count("7-8"), lines.count("7-9"), lines.count("1-2")) == (2, 1, 2)


def test_charts_show_the_answers(motif):
    found = answers.selection_answer(motif, [20, 21], 0.5)
    line, mark = figures.alpha_figure(found)["data"]
    assert (mark["x"], mark["y"]) == ([0.5], [found.relevance])
    assert line["y"][25] == pytest.approx(found.relevance)
    empty = figures.alpha_figure(answers.selection_answer(motif, [], 0.5))
    assert [len(trace["y"]) for trace in empty["data"]] == [0, 0]
    assert "Select nodes" in empty["layout"]["annotations"][0]["text"]
    order = answers.order_answer(motif, 0.0)
    line, mark = figures.order_figure(motif, order)["data"]
    assert line["y"] == order.values
    assert line["text"][0] == f"step 1: + {motif.node_title(order.order[0])}"
    terms = ww.interactions(motif.chain, {"<b>a": [0, 1], "b": [20, 21]})
    (bars,) = figures.interaction_figure(terms)["data"]
    assert dict(zip(bars["customdata"], bars["x"], strict=True)) == {
        "<b>a": terms["<b>a"],
        "b": terms["b"],
        "<b>a + b": terms["<b>a", "b"],
        "all together": terms.union,
    }
    assert any("&lt;b&gt;a" in text for text in figures.interaction_figure(terms)["layout"]["yaxis"]["ticktext"])
    assert not any("<b>a" in text for text in figures.interaction_figure(terms)["layout"]["yaxis"]["ticktext"])


def _components(root):
    yield root
    children = getattr(root, "children", None)
    for child in children if isinstance(children, (list, tuple)) else [children]:
        if isinstance(child, Component):
            yield from _components(child)


def test_every_control_has_a_label(motifs):
    made = list(_components(layout.page(motifs)))
    controls = {c.id for c in made if type(c).__name__ in ("Input", "Select")}
    labelled = {c.htmlFor for c in made if type(c).__name__ == "Label"}
    assert controls == labelled
    buttons = [c for c in made if type(c).__name__ == "Button"]
    assert all(getattr(b, "aria-label", None) or len(b.children) > 2 for b in buttons)
