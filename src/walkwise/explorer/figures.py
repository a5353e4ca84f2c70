"""Answers as charts, in the format of the page's chart component."""

from __future__ import annotations

import html
from typing import Any

from walkwise.explorer.answers import OrderAnswer, SelectionAnswer
from walkwise.explorer.cases import Case
from walkwise.plotting import _style as style
from walkwise.questions.groups import Interactions

_GRID = "#e4e4e0"
#: The colour of the greedy order, here and on the structure.
ORDER = "#009e73"
_MOST_BARS = 12


def alpha_figure(answer: SelectionAnswer) -> dict[str, Any]:
    """R_α of the selection against α, the current α marked; a line of words where nothing is selected."""
    alphas, values = (answer.alphas, answer.values) if answer.nodes else ((), ())
    line = {"x": alphas, "y": values, "mode": "lines", "line": {"color": style.INK, "width": 2}}
    colour = style.POSITIVE if answer.relevance >= 0 else style.NEGATIVE
    place = {"x": [answer.alpha], "y": [answer.relevance]} if answer.nodes else {"x": [], "y": []}
    mark = place | {"mode": "markers", "marker": {"color": colour, "size": 11}}
    hover = {"hovertemplate": "α = %{x:.2f}<br>R = %{y:.4g}<extra></extra>"}
    layout = _layout("α: weight of a step outside the selection", "R of the selection")
    layout["xaxis"]["range"] = [-0.03, 1.03]
    if not answer.nodes:
        middle = {"xref": "paper", "x": 0.5, "yref": "paper", "y": 0.5, "showarrow": False}
        layout["annotations"] = [middle | {"text": "Select nodes to see<br>their relevance for every α"}]
        layout["yaxis"] |= {"range": [0, 1], "showticklabels": False}
    return {"data": [line | hover, mark | hover], "layout": layout}


def order_figure(case: Case, answer: OrderAnswer | None) -> dict[str, Any]:
    """The activation curve, empty before there is an answer; its second trace, which the page moves, marks the step."""
    order, values = (answer.order, answer.values) if answer and answer.values else ((), ())
    steps = list(range(1, len(order) + 1))
    texts = [f"step {i}: + {case.node_title(node)}" for i, node in zip(steps, order, strict=True)]
    hover = {"text": texts, "hovertemplate": "%{text}<br>f = %{y:.4g}<extra></extra>"}
    line = {"x": steps, "y": values, "mode": "lines+markers", "line": {"color": style.INK, "width": 2}}
    mark = {"x": [], "y": [], "mode": "markers", "marker": {"color": ORDER, "size": 12}, "hoverinfo": "skip"}
    short = len(case.target_title) <= 18  # what f is stands at the top of the page, too
    layout = _layout("nodes placed, most relevant first", f"f for {case.target_title}" if short else "f")
    layout["xaxis"]["range"] = [0.3, case.num_nodes + 0.7]
    return {"data": [line | {"marker": {"size": 5}} | hover, mark], "layout": layout}


def interaction_figure(found: Interactions) -> dict[str, Any]:
    """A bar per interaction term, the largest magnitudes; the last bar is all groups together."""
    terms = sorted(found.terms.items(), key=lambda term: -abs(term[1]))[:_MOST_BARS]
    terms.sort(key=lambda term: len(term[0]))
    names = [" + ".join(groups) for groups, _ in terms] + ["all together"]
    values = [value for _, value in terms] + [found.union]
    colours = [style.POSITIVE if value >= 0 else style.NEGATIVE for _, value in terms] + [style.GREY]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(names))),
        "x": values,
        "marker": {"color": colours},
        "customdata": names,
        "hovertemplate": "%{customdata}: %{x:.4g}<extra></extra>",
    }
    scale = max(map(abs, values))
    labels = [
        f"{html.escape(_cut(name))}  <b>{style.short(value, scale=scale)}</b> "
        for name, value in zip(names, values, strict=True)
    ]
    layout = _layout("", "")
    # Not the axis's own title, which is centred under it: beside long names the axis is shorter than the words.
    words = {"text": "relevance of the walks<br>that visit exactly these groups", "align": "right", "showarrow": False}
    right = {"xref": "paper", "x": 1, "xanchor": "right", "yref": "paper", "y": 0, "yanchor": "top", "yshift": -22}
    layout["annotations"] = [words | right]
    layout["yaxis"] |= {"autorange": "reversed", "tickvals": bars["y"], "ticktext": labels}
    layout["yaxis"] |= {"showgrid": False, "zeroline": False}
    layout["height"] = 74 + 24 * len(names)
    layout["margin"] |= {"l": 8, "b": 54}
    return {"data": [bars], "layout": layout}


def _cut(name: str, most: int = 22) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _layout(x: str, y: str) -> dict[str, Any]:
    axis = {"gridcolor": _GRID, "zerolinecolor": style.FAINT, "automargin": True, "fixedrange": True}
    font = {"family": "system-ui, sans-serif", "size": 12, "color": style.INK}
    title_font = {"size": 12, "color": style.INK}
    return {
        "xaxis": axis | {"title": {"text": x, "font": title_font, "standoff": 6}},
        "yaxis": axis | {"title": {"text": y, "font": title_font, "standoff": 6}},
        "margin": {"l": 44, "r": 12, "t": 10, "b": 40},
        "font": font,
        "showlegend": False,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"font": font},
    }
