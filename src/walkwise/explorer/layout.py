"""The layout of the page. Every control is a native one with a label.

A drop-down is a plain <select> whose value assets/explorer.js keeps in the store that ``data-store`` names.
"""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
from dash import dcc, html

from walkwise.explorer.parts import attributes, button, choice, field, problem
from walkwise.explorer.session import Session
from walkwise.explorer.structure import STYLESHEET
from walkwise.rules import NAMES as RULES
from walkwise.search.orders import DISCOUNTS

#: Above this many nodes the structure can be moved and zoomed, and boxes need the shift key.
LARGE = 80
#: This many graphs are listed where more are found.
MOST_FOUND = 60
_CHART: Any = {"displayModeBar": False, "responsive": True}
_SPEEDS = {"slow": 1600, "normal": 800, "fast": 300}


def page(session: Session) -> html.Div:
    """The whole page, before anything is answered."""
    if session.listing is None:
        choose, find = _graph_field(session), _finder()
    else:
        from walkwise.explorer.table import table_panel, title_field  # needs the extra runs

        choose, find = title_field(), table_panel(session.listing)
    return html.Div(
        [
            html.A("Skip to the structure", href="#structure-panel", className="skip"),
            _header(session, choose),
            problem("page-problem"),
            find,
            html.Main(
                [
                    _structure_panel(),
                    html.Div([_selection_card(), _order_card(), _walks_card(), _groups_card()], className="cards"),
                ]
            ),
            *_state(),
        ],
        className="page",
    )


def _state() -> list[Any]:
    """What a tab remembers; it is lost when the tab is closed or loaded anew."""
    first: dict[str, Any] = {
        "graph": 0,
        "target": None,
        "selection": [],
        "groups": {},
        "alpha": 0.0,
        "by": "relevance",
        "asked": [],
        "problem": None,
        "own": {},
        "seen": [],
        "wish": None,
        "file": "walkwise",
        "tab": None,
        "types": [],
    }
    playing = {"order": None, "step": 0, "speed": _SPEEDS["normal"], "dressed": 0}
    return [
        *(dcc.Store(id=name, data=value) for name, value in (first | playing).items()),
        dcc.Interval(id="clock", interval=_SPEEDS["normal"], disabled=True),
        dcc.Download(id="download"),
    ]


def _header(session: Session, choose: html.Div) -> html.Header:
    row = None if isinstance(session.index, tuple) else session.index  # a node of a type is picked by a click
    return html.Header(
        [
            html.H1([html.Span("Walkwise"), " explorer"]),
            choose,
            field(
                html.Label("Explain", htmlFor="target-choice"),
                choice("target", [], field="column"),
                html.Label("against", htmlFor="against-choice"),
                choice("target", [("nothing", "")], field="against", name="against"),
            ),
            field(
                html.Label("Rule", htmlFor="rule-choice"),
                choice("target", [("as given", ""), *((name, name) for name in RULES)], field="rule", name="rule"),
            ),
            field(
                html.Label("Node", htmlFor="row", className="gone" if row is None else ""),
                dcc.Input(
                    id="row", type="number", min=0, step=1, value=row, className="gone" if row is None else "short"
                ),
                button("explain-node", "Explain the selected node"),
                look="field" if session.index is not None else "gone",
            ),
            html.P(id="prediction", className="prediction", role="status"),
            field(
                html.Span("Export", className="legend-word"),
                button("export-png", "PNG", label="Export the structure as PNG"),
                button("export-svg", "SVG", label="Export the structure as SVG"),
                button("export-csv", "CSV", label="Export what is shown as CSV"),
                button("export-json", "JSON", label="Export what is shown as JSON"),
                look="field exports",
            ),
        ]
    )


def _graph_field(session: Session) -> html.Div:
    """The choice of a graph."""
    choices = [(session.title(i), i) for i in range(len(session.graphs))]
    return field(
        html.Label("Graph", htmlFor="graph-choice"),
        button("previous-graph", "‹", label="Previous graph"),
        choice("graph", choices),
        button("next-graph", "›", label="Next graph"),
    )


def _finder() -> html.Details:
    """Where graphs are looked for by name, prediction and label."""
    return html.Details(
        [
            html.Summary("Find a graph by name, prediction or label"),
            field(
                html.Label("Words", htmlFor="find"),
                dcc.Input(id="find", type="text", placeholder="house", debounce=True),
                button("find-all", "Find"),
                button("find-wrong", "Wrong only"),
            ),
            html.P("", id="found-words", className="hint", role="status"),
            html.Ul(id="found", className="found"),
        ],
        className="panel finder",
    )


def _structure_panel() -> html.Section:
    return html.Section(
        [
            html.H2("Structure", className="hidden"),
            html.Div(
                cyto.Cytoscape(
                    id="structure",
                    elements=[],
                    layout={"name": "preset", "fit": True, "padding": 26},
                    stylesheet=STYLESHEET,
                    boxSelectionEnabled=True,
                    autoungrabify=True,
                    userPanningEnabled=False,
                    userZoomingEnabled=False,
                    maxZoom=2.2,
                    minZoom=0.05,
                    responsive=True,
                    style={"width": "100%", "height": "100%"},
                ),
                className="canvas",
                role="img",
                **attributes(
                    aria_label="The graph, nodes coloured by relevance. Nodes are also selected by the field below."
                ),
            ),
            html.P("", id="pointed", className="pointed", role="status"),
            _legend(),
            field(
                html.Label("Selected nodes", htmlFor="nodes"),
                dcc.Input(id="nodes", type="text", placeholder="none: try 0-4, 7", debounce=False),
                button("apply-nodes", "Select"),
                button("all-nodes", "All"),
                button("no-nodes", "None"),
                html.Button("Node ids", id="ids", type="button", **attributes(aria_pressed="true")),
                html.Button("Edge relevance", id="edges", type="button", **attributes(aria_pressed="false")),
                button("pin", "Pin", label="Keep this picture to compare it with another graph or class"),
                look="field nodes",
            ),
            problem("nodes-problem"),
            html.P("", id="hint", className="hint"),
            html.Div(id="pinned", className="pinned"),
            html.Details([html.Summary("How it was traced"), html.Pre(id="report", tabIndex="0")], className="report"),
        ],
        className="panel structure",
        id="structure-panel",
        tabIndex="-1",
    )


def _legend() -> html.Div:
    keys = [("selected", "selected"), ("placed", "placed by the greedy order"), ("walked", "highlighted walk")]
    return html.Div(
        [
            html.Div(
                [
                    html.Span("", id="legend-low", className="end"),
                    html.Span("", className="scale"),
                    html.Span("", id="legend-high", className="end"),
                ],
                className="bar",
            ),
            html.P("", id="legend-words"),
            html.Ul([html.Li([html.Span(className=f"key {name}"), words]) for name, words in keys]),
        ],
        className="legend",
    )


def _selection_card() -> html.Section:
    return _card(
        "Relevance of the selection",
        html.P([html.Span("", id="relevance", className="number"), html.Span("", id="relevance-words")], role="status"),
        field(
            html.Label("α", htmlFor="alpha-range", title="weight of a step outside the selection"),
            dcc.Input(id="alpha-range", type="range", min=0, max=1, step=0.01, value=0, className="range"),
            html.Label("α as a number", htmlFor="alpha-typed", className="hidden"),
            dcc.Input(id="alpha-typed", type="text", value="0", inputMode="numeric", className="short"),
        ),
        problem("alpha-problem"),
        dcc.Graph(id="alpha-curve", config=_CHART, style={"height": "var(--chart)"}),
    )


def _order_alpha() -> list[Any]:
    return [
        html.Label("α", htmlFor="order-alpha", title="weight of a step outside the nodes chosen so far"),
        dcc.Input(
            id="order-alpha",
            type="number",
            min=0,
            max=1,
            step=0.05,
            value=DISCOUNTS["activation"],
            debounce=True,
            className="short",
        ),
    ]


def _order_card() -> html.Section:
    return _card(
        "Greedy order",
        field(
            button("back", "−1", label="One step back"),
            button("play", "Play"),
            button("forward", "+1", label="One step forward"),
            button("rewind", "Reset"),
            html.Label("Speed", htmlFor="speed-choice", className="hidden"),
            choice("speed", list(_SPEEDS.items())),
            html.Span(_order_alpha(), className="field"),
        ),
        html.P("", id="step-words", role="status", className="line"),
        dcc.Graph(id="order-curve", config=_CHART, style={"height": "var(--chart)"}),
    )


def _walks_card() -> html.Section:
    kinds = [("largest relevance", "relevance"), ("largest magnitude", "magnitude")]
    return _card(
        "Top walks",
        field(html.Label("Walks of", htmlFor="by-choice"), choice("by", kinds)),
        html.Ol(id="walks", className="walks"),
    )


def _groups_card() -> html.Section:
    return _card(
        "Groups and interactions",
        field(
            html.Label("Name", htmlFor="group-name"),
            dcc.Input(id="group-name", type="text", placeholder="ring", maxLength=40),
            button("save-group", "Name the selection"),
        ),
        field(
            html.Label("or by SMARTS", htmlFor="pattern"),
            dcc.Input(id="pattern", type="text", placeholder="[N+](=O)[O-]", className="formula", maxLength=400),
            button("save-pattern", "Name the matches"),
            name="pattern-field",
        ),
        problem("group-problem"),
        html.Ul(id="group-list", className="groups"),
        field(
            html.Label("Walks that visit", htmlFor="formula"),
            dcc.Input(id="formula", type="text", placeholder="ring & NO2", className="formula"),
            button("ask", "Ask"),
        ),
        html.P("", id="query-answer", className="line", role="status"),
        problem("query-problem"),
        problem("interactions-problem"),
        dcc.Graph(id="interactions", config=_CHART, style={"display": "none"}),
    )


def _card(title: str, *content: Any) -> html.Section:
    return html.Section([html.H2(title), *content], className="panel card")
