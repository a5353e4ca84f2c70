"""The page: what stands where. Every control is a native one with a label.

A drop-down is a plain <select> whose value assets/explorer.js keeps in the store that ``data-store`` names.
"""

from __future__ import annotations

from typing import Any

import dash_cytoscape as cyto
from dash import dcc, html

from walkwise.explorer.answers import SelectionAnswer, WalkAnswer
from walkwise.explorer.cases import Case
from walkwise.explorer.session import Session
from walkwise.explorer.structure import STYLESHEET
from walkwise.plotting._style import short

#: Above so many nodes the structure can be moved and zoomed, and boxes need the shift key.
LARGE = 80
_CHART: Any = {"displayModeBar": False, "responsive": True}
_SPEEDS = {"slow": 1600, "normal": 800, "fast": 300}


def page(session: Session) -> html.Div:
    """The whole page, before anything is answered."""
    return html.Div(
        [
            html.A("Skip to the structure", href="#structure-panel", className="skip"),
            _header(session),
            html.P("", id="page-problem", className="problem", role="alert"),
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
    }
    playing = {"order": None, "step": 0, "speed": _SPEEDS["normal"], "dressed": 0}
    return [
        *(dcc.Store(id=name, data=value) for name, value in (first | playing).items()),
        dcc.Interval(id="clock", interval=_SPEEDS["normal"], disabled=True),
        dcc.Download(id="download"),
    ]


def _header(session: Session) -> html.Header:
    choices = [(session.title(i), i) for i in range(len(session.graphs))]
    return html.Header(
        [
            html.H1([html.Span("Walkwise"), " explorer"]),
            html.Div(
                [
                    html.Label("Graph", htmlFor="graph-choice"),
                    _button("previous-graph", "‹", label="Previous graph"),
                    choice("graph", choices),
                    _button("next-graph", "›", label="Next graph"),
                ],
                className="field",
            ),
            html.Div(
                [
                    html.Label("Explain", htmlFor="target-choice"),
                    choice("target", []),
                ],
                className="field",
            ),
            html.P(id="prediction", className="prediction", role="status"),
            html.Div(
                [
                    html.Span("Export", className="legend-word"),
                    _button("export-png", "PNG", label="Export the structure as PNG"),
                    _button("export-csv", "CSV", label="Export what is shown as CSV"),
                    _button("export-json", "JSON", label="Export what is shown as JSON"),
                ],
                className="field exports",
            ),
        ]
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
                **_more(
                    aria_label="The graph, nodes coloured by relevance. Nodes are also selected by the field below."
                ),
            ),
            html.P("", id="pointed", className="pointed", role="status"),
            _legend(),
            html.Div(
                [
                    html.Label("Selected nodes", htmlFor="nodes"),
                    dcc.Input(id="nodes", type="text", placeholder="none: try 0-4, 7", debounce=False),
                    _button("apply-nodes", "Select"),
                    _button("all-nodes", "All"),
                    _button("no-nodes", "None"),
                    html.Button("Node ids", id="ids", type="button", **_more(aria_pressed="true")),
                ],
                className="field nodes",
            ),
            html.P("", id="nodes-problem", className="problem", role="alert"),
            html.P("", id="hint", className="hint"),
            html.Details([html.Summary("How it was traced"), html.Pre(id="report", tabIndex="0")], className="report"),
        ],
        className="panel structure",
        id="structure-panel",
        tabIndex="-1",
    )


def _legend() -> html.Div:
    keys = [("selected", "selected"), ("placed", "placed by the greedy order"), ("walked", "walk pointed at")]
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
        html.P(
            [html.Span("–", id="relevance", className="number"), html.Span("", id="relevance-words")], role="status"
        ),
        html.Div(
            [
                html.Label("α", htmlFor="alpha-range", title="what a step outside the selection counts"),
                dcc.Input(id="alpha-range", type="range", min=0, max=1, step=0.01, value=0, className="range"),
                html.Label("α as a number", htmlFor="alpha-typed", className="hidden"),
                dcc.Input(id="alpha-typed", type="text", value="0", inputMode="numeric", className="short"),
            ],
            className="field",
        ),
        html.P("", id="alpha-problem", className="problem", role="alert"),
        dcc.Graph(id="alpha-curve", config=_CHART, style={"height": "var(--chart)"}),
    )


def _order_card() -> html.Section:
    return _card(
        "Greedy order",
        html.Div(
            [
                _button("back", "−1", label="One step back"),
                _button("play", "Play"),
                _button("forward", "+1", label="One step forward"),
                _button("rewind", "Reset"),
                html.Label("Speed", htmlFor="speed-choice", className="hidden"),
                choice("speed", list(_SPEEDS.items())),
            ],
            className="field",
        ),
        html.P("", id="step-words", role="status", className="line"),
        dcc.Graph(id="order-curve", config=_CHART, style={"height": "var(--chart)"}),
    )


def _walks_card() -> html.Section:
    kinds = [("largest relevance", "relevance"), ("largest magnitude", "magnitude")]
    return _card(
        "Top walks",
        html.Div([html.Label("Walks of", htmlFor="by-choice"), choice("by", kinds)], className="field"),
        html.Ol(id="walks", className="walks"),
    )


def _groups_card() -> html.Section:
    return _card(
        "Groups and interactions",
        html.Div(
            [
                html.Label("Name", htmlFor="group-name"),
                dcc.Input(id="group-name", type="text", placeholder="ring", maxLength=40),
                _button("save-group", "Name the selection"),
            ],
            className="field",
        ),
        html.P("", id="group-problem", className="problem", role="alert"),
        html.Ul(id="group-list", className="groups"),
        html.Div(
            [
                html.Label("Walks that visit", htmlFor="formula"),
                dcc.Input(id="formula", type="text", placeholder="ring & NO2", className="formula"),
                _button("ask", "Ask"),
            ],
            className="field",
        ),
        html.P("", id="query-answer", className="line", role="status"),
        html.P("", id="query-problem", className="problem", role="alert"),
        html.P("", id="interactions-problem", className="problem", role="alert"),
        dcc.Graph(id="interactions", config=_CHART, style={"display": "none"}),
    )


def choice(store: str, choices: list[tuple[str, Any]]) -> html.Select:
    """A drop-down whose value is kept in a store."""
    return html.Select(options(choices), id=f"{store}-choice", **_more(data_store=store))


def options(choices: list[tuple[str, Any]]) -> list[html.Option]:
    """The entries of a drop-down: what is shown, and what it stands for."""
    return [html.Option(words, value=str(value)) for words, value in choices]


def walk_items(case: Case, walks: list[WalkAnswer]) -> list[html.Li]:
    """The walks as buttons: pointing at one, or moving the focus to it, shows it on the structure."""
    most = max((abs(walk.relevance) for walk in walks), default=0.0) or 1.0
    items = []
    for walk in walks:
        names = [case.node_title(node) for node in walk.nodes if node >= 0]
        width = {"width": f"{100 * abs(walk.relevance) / most:.1f}%"}
        content = [
            html.Span(" → ".join(names), className="path"),
            html.Span(className="amount " + ("for" if walk.relevance >= 0 else "against"), style=width),
            html.Span(short(walk.relevance, signed=True), className="value"),
        ]
        nodes = ",".join(str(node) for node in walk.nodes if node >= 0)
        items.append(html.Li(html.Button(content, className="walk", type="button", **_more(data_nodes=nodes))))
    return items


def group_items(groups: dict[str, list[int]], formatted: dict[str, str]) -> list[html.Li]:
    """The groups, each with a button that selects it and one that removes it."""
    return [
        html.Li(
            [
                html.Button(
                    [html.Strong(name), html.Span(formatted[name])],
                    id={"kind": "select-group", "name": name},
                    title="Select these nodes",
                    type="button",
                ),
                html.Button(
                    "×",
                    id={"kind": "remove-group", "name": name},
                    type="button",
                    className="remove",
                    **_more(aria_label=f"Remove the group {name}"),
                ),
            ]
        )
        for name in groups
    ]


def prediction_words(case: Case) -> list[Any]:
    """What the model says of the graph, in a line."""
    logits = case.prediction.logits.double()
    said = int(logits.argmax())
    words: list[Any] = ["predicts ", html.Strong(case.classes[said]), ", "] if len(logits) > 1 else []
    words += [f"f = {short(float(case.chain.output))}"]
    words += [f" for {case.target_title}"] if said != case.target else []
    return words + ([] if case.label is None else [f"; labelled {case.label}"])


def relevance_words(found: SelectionAnswer) -> str:
    """What the number of the selection is."""
    if not found.nodes:
        return f"nothing selected; the whole graph has {short(found.total)}"
    count = f"{len(found.nodes)} node{'' if len(found.nodes) == 1 else 's'}"
    return f"R of {count} at α = {found.alpha:g}; the whole graph has {short(found.total)}"


def _card(title: str, *content: Any) -> html.Section:
    return html.Section([html.H2(title), *content], className="panel card")


def _button(name: str, text: str, *, label: str | None = None) -> html.Button:
    named = {} if label is None else _more(aria_label=label, title=label)
    return html.Button(text, id=name, type="button", **named)


def _more(**attributes: str) -> dict[str, Any]:
    """Attributes whose names have a hyphen, written with an underscore."""
    return {name.replace("_", "-"): value for name, value in attributes.items()}
