"""The table of a run on the page: sorted, filtered and cut into pages on the server; a row opens its graph."""

from __future__ import annotations

from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from walkwise.errors import AbandonedError, WalkwiseError
from walkwise.explorer.cases import Desk, View
from walkwise.explorer.parts import attributes, button, choice, field, problem
from walkwise.plotting._style import short
from walkwise.runs.listing import COLUMNS, Listing, ListingRow, Wanted
from walkwise.runs.patterns import SMARTS

#: This many rows are on a page.
ROWS = 25

_SHOWN = {"all": "All", "wrong": "Wrong only", "failed": "Failed"}
_TITLES = {
    "graph": "Graph",
    "name": "Name",
    "nodes": "Nodes",
    "label": "Label",
    "prediction": "Prediction",
    "output": "Output",
    "error": "Error",
    "relevance": "Relevance",
    "pattern": "Pattern",
}
_MEANINGS = {
    "output": "The explained output",
    "error": "The lead of another class over the label's class: above zero, the model is wrong",
    "relevance": "The sum over all walks; biases absorb the rest",
    "pattern": "The relevance of the chosen pattern",
}
_FIRST = {"sort": "graph", "falling": False, "kind": "all", "text": "", "page": 0}


def table_panel(listing: Listing) -> html.Details:
    """The table, before it has rows."""
    run = listing.run
    what = f"{run.manifest['model']} on {run.manifest['data']}"
    return html.Details(
        [
            html.Summary([html.Strong("The run"), f" {what}, {', '.join(run.questions)}"]),
            html.Div(
                [
                    html.Div(
                        [
                            html.Button(
                                words,
                                id={"kind": "show", "which": which},
                                type="button",
                                disabled=which == "wrong" and not listing.wrong.any(),
                                **attributes(aria_pressed="true" if which == "all" else "false"),
                            )
                            for which, words in _SHOWN.items()
                        ],
                        className="field",
                        role="group",
                        **attributes(aria_label="Which graphs"),
                    ),
                    field(
                        html.Label("Words", htmlFor="list-text"),
                        dcc.Input(id="list-text", type="text", placeholder="name or class", debounce=True),
                    ),
                    field(
                        html.Label("Pattern", htmlFor="pattern-listed-choice"),
                        _pattern_choice(listing),
                        look="field" if listing.patterns else "gone",
                    ),
                    field(
                        html.Label("SMARTS", htmlFor="list-smarts"),
                        dcc.Input(
                            id="list-smarts", type="text", placeholder="[N+](=O)[O-]", debounce=True, maxLength=400
                        ),
                        look="field" if listing.molecular else "gone",
                    ),
                ],
                className="tools",
            ),
            problem("list-problem"),
            html.Div(
                html.Table([html.Thead(html.Tr([_head(column) for column in COLUMNS])), html.Tbody(id="rows")]),
                className="rows",
                id="row-box",
                tabIndex="0",
            ),
            field(
                button("list-back", "‹", label="Previous page"),
                html.Span("", id="list-words", role="status"),
                button("list-forward", "›", label="Next page"),
                look="field pager",
            ),
            dcc.Store(id="listed", data=_FIRST),
            dcc.Store(id="pattern-listed", data=None),
            dcc.Store(id="place", data=0),
        ],
        className="panel finder listing",
        open=True,
    )


def _pattern_choice(listing: Listing) -> html.Select:
    choices = [("none", "")]
    for at, (question, name, graphs) in enumerate(listing.patterns):
        kind = "" if question.startswith("groups") else f"{question}: "
        choices.append((f"{kind}{name} ({graphs:,})", str(at)))
    return choice("pattern-listed", choices)


def _head(column: str) -> html.Th:
    return html.Th(
        html.Button(
            _TITLES[column],
            id={"kind": "sort", "column": column},
            type="button",
            title=_MEANINGS.get(column, ""),
        ),
        id={"kind": "head", "column": column},
        scope="col",
        className=f"column-{column}",
        **attributes(aria_sort="none"),
    )


def _cells(row: ListingRow) -> list[html.Td]:
    """What stands in a row; of a graph that failed, why."""
    number = row.graph if row.index is None else row.index
    opens = html.Button(str(number), id={"kind": "open-row", "at": row.at}, type="button")
    if row.failure is not None:
        last = html.Td(row.failure, colSpan=len(COLUMNS) - 2, className="failure")
        return [html.Td(opens), html.Td(row.name, className="column-name"), last]
    written = {name: _written(getattr(row, name)) for name in ("output", "error", "relevance", "pattern")}
    texts = {"name": row.name, "nodes": _written(row.nodes), "label": row.label, "prediction": row.prediction} | written
    named = ("name", "label", "prediction")
    cells = [html.Td(opens)]
    for column in COLUMNS[1:]:
        kind = "" if column in named else " figure"
        wrong = " wrong" if row.wrong and column == "prediction" else ""
        cells.append(html.Td(texts[column] or "", className=f"column-{column}{kind}{wrong}"))
    return cells


def _written(value: float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else short(value)


def title_field() -> html.Div:
    """Which graph is shown, and buttons that go along the table."""
    return field(
        html.Span("Graph", className="legend-word"),
        button("previous-graph", "‹", label="Previous row"),
        html.Strong("", id="graph-title", role="status"),
        button("next-graph", "›", label="Next row"),
    )


def wanted_of(listing: Listing, listed: dict[str, Any], pattern: Any) -> Wanted:
    """What a tab wants of the table.

    Args:
        listing: the table.
        listed: what the tab keeps of it.
        pattern: a number among the patterns on offer, a SMARTS pattern, or nothing.
    """
    chosen = None
    if isinstance(pattern, int) and 0 <= pattern < len(listing.patterns):
        chosen = listing.patterns[pattern][:2]
    elif isinstance(pattern, str) and pattern.strip():
        chosen = (SMARTS, pattern.strip())
    given = {name: listed.get(name, _FIRST[name]) for name in ("sort", "falling", "kind", "text")}
    return Wanted(**given, pattern=chosen)


def connect_table(app: Dash, desk: Desk, listing: Listing) -> None:
    """Registers the callbacks of the table.

    Args:
        app: the application, its layout set.
        desk: the cases that answers come from.
        listing: the table.
    """

    @app.callback(
        Output("rows", "children"),
        Output("list-words", "children"),
        Output("list-problem", "children"),
        Output("list-back", "disabled"),
        Output("list-forward", "disabled"),
        Output({"kind": "head", "column": ALL}, "aria-sort"),
        Output({"kind": "show", "which": ALL}, "aria-pressed"),
        Output("row-box", "className"),
        Input("listed", "data"),
        State("pattern-listed", "data"),
        State("tab", "data"),
    )
    def fill(listed: dict[str, Any], pattern: Any, tab: str | None) -> tuple[Any, ...]:
        try:
            wanted = wanted_of(listing, listed, pattern)
            with desk.turn(tab, "table"):
                places = listing.order(wanted)
                rows = listing.rows(wanted, ROWS * listed["page"], ROWS)
        except WalkwiseError as error:
            same = [no_update] * len(COLUMNS), [no_update] * len(_SHOWN)
            words = no_update if isinstance(error, AbandonedError) else str(error)  # other rows were asked for since
            return no_update, no_update, words, no_update, no_update, *same, no_update
        first, last = ROWS * listed["page"], ROWS * listed["page"] + len(rows)
        words = f"{first + 1:,} to {last:,} of {len(places):,}" if rows else "none"
        words += f" ({len(listing):,} in the run)" if len(places) < len(listing) else ""
        falling = "descending" if wanted.falling else "ascending"
        sorts = [falling if column == wanted.sort else "none" for column in COLUMNS]
        pressed = ["true" if which == wanted.kind else "false" for which in _SHOWN]
        items = [html.Tr(_cells(row), **attributes(data_row=str(row.at))) for row in rows]
        look = "rows with-pattern" if wanted.pattern else "rows"
        return items, words, "", first == 0, last >= len(places), sorts, pressed, look

    @app.callback(
        Output("wish", "data", allow_duplicate=True),
        Output("graph", "data", allow_duplicate=True),
        Output("place", "data"),
        Input({"kind": "open-row", "at": ALL}, "n_clicks"),
        Input("previous-graph", "n_clicks"),
        Input("next-graph", "n_clicks"),
        State("listed", "data"),
        State("pattern-listed", "data"),
        State("place", "data"),
        State("target", "data"),
        prevent_initial_call=True,
    )
    def open_row(*given: Any) -> tuple[Any, Any, Any]:
        *_, listed, pattern, place, target = given
        if not ctx.triggered or not ctx.triggered[0]["value"]:  # a button that has just appeared
            return no_update, no_update, no_update
        wanted = wanted_of(listing, listed, pattern)
        if isinstance(ctx.triggered_id, dict):
            at = ctx.triggered_id["at"]
        else:
            at = _beside(listing.order(wanted).tolist(), place, 1 if ctx.triggered_id == "next-graph" else -1)
        row = listing.row(at)
        view = {"column": row.target, "against": None, "rule": View.of(target).rule, "index": row.index}
        nodes = listing.nodes_of(at, wanted.pattern) if wanted.pattern else []
        return {"graph": row.graph, "target": view, "selection": nodes}, row.graph, at

    @app.callback(Output("graph-title", "children"), Input("graph", "data"))
    def entitle(graph: int) -> str:
        return desk.session.title(graph)


def _beside(order: list[int], place: int | None, step: int) -> int:
    """The row before or after another in the table's order; the first where that is not among them.

    >>> _beside([4, 2, 7], 2, 1), _beside([4, 2, 7], 4, -1), _beside([4, 2, 7], 9, 1)
    (7, 7, 4)
    """
    if place not in order:
        return order[0] if order else place or 0
    return order[(order.index(place) + step) % len(order)]
