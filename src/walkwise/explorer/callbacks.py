"""Callbacks from the page's events to answers and back; they are thin, and all state belongs to the tab."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, no_update, set_props

from walkwise.display import count
from walkwise.errors import WalkwiseError
from walkwise.explorer import answers, items, layout, parts, structure
from walkwise.explorer.browser import connect_browser
from walkwise.explorer.card_callbacks import PLACE, SHOWN, connect_cards, file_name
from walkwise.explorer.cases import Case, Desk, View


def connect(app: Dash, desk: Desk) -> None:
    """Registers every callback of the page.

    Args:
        app: the application, its layout set.
        desk: the cases that answers come from.
    """
    _connect_graph(app, desk)
    if desk.session.listing is None:
        _connect_choice(app, desk)
    else:
        from walkwise.explorer.table import connect_table  # needs the extra runs

        connect_table(app, desk, desk.session.listing)
    connect_cards(app, desk)
    connect_browser(app, table=desk.session.listing is not None)


def report_error(error: Exception) -> None:
    """Tells the page what went wrong, and with which graph; what is not the library's own goes to the log as well.

    The page shows it while that graph is the one chosen: answers may come late, when another has been chosen since.

    Args:
        error: what a callback raised.
    """
    if not isinstance(error, WalkwiseError):
        logging.getLogger("walkwise.explorer").exception("A callback failed.", exc_info=error)
    _tell(f"{type(error).__name__}: {error}")


def _tell(words: str) -> None:
    """Sends words for the top of the page, with the graph that the callback was asked about, None if with none.

    They go beside the answer, not as an output: such words arrive whatever was asked since, and nothing waits for them.
    """
    given = {**ctx.inputs, **ctx.states}
    set_props("problem", {"data": {"graph": given.get("graph.data"), "words": words}})


def _connect_graph(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("target-choice", "children"),
        Output("against-choice", "children"),
        Output("target", "data"),
        Output("groups", "data"),
        Output("seen", "data"),
        Output("selection", "data"),
        Output("hint", "children"),
        Output("structure", "userPanningEnabled"),
        Output("structure", "userZoomingEnabled"),
        Output("row", "max"),
        Output("pattern-field", "className"),
        Output("file", "data"),
        Output("types", "data"),
        Output("nodes", "placeholder"),
        Input("graph", "data"),
        State("target", "data"),
        State("own", "data"),
        State("seen", "data"),
        State("wish", "data"),
    )
    def open_graph(graph: int, target: Any, own: dict[str, Any], seen: list[str], wish: Any) -> tuple[Any, ...]:
        wished = wish if wish and wish.get("graph") == graph else {}
        view, case = _opened(desk, graph, wished.get("target") or target, wished=bool(wished))
        options = parts.options([(name, i) for i, name in enumerate(case.classes)])
        others = parts.options([("nothing", ""), *((name, i) for i, name in enumerate(case.classes))])
        large = case.num_nodes > layout.LARGE
        hold = "Hold shift and drag" if large else "Drag"
        named = None if case.drawing.types is None else next(iter(case.drawing.types.counts))
        ids = "node ids" if named is None else f"nodes by type, such as {named} 0-2,"
        hint = f"Click a node, shift-click for more. {hold} to select a box; or type {ids} and press Enter."
        drawn = len(case.drawing.nodes)
        if drawn < case.num_nodes:
            hint = f"Of {case.num_nodes} nodes, the {drawn} that matter and what joins them are drawn. {hint}"
        groups = answers.groups_here(case, own)
        names = sorted({*seen, *groups, *own})
        nodes = [node for node in wished.get("selection", []) if node < case.num_nodes]
        field = "field" if case.molecule is not None else "gone"
        place = case.num_nodes - 1
        types = case.drawing.types
        known = [] if types is None else [[name, types.offsets[name], count] for name, count in types.counts.items()]
        opened = options, others, view, groups, names, nodes, hint, large, large, place, field
        return *opened, file_name(case.title), known, f"none: try {'' if named is None else f'{named} '}0-4, 7"

    @app.callback(
        Output("structure", "elements"),
        Output("legend-low", "children"),
        Output("legend-high", "children"),
        Output("legend-words", "children"),
        Output("prediction", "children"),
        Output("report", "children"),
        *SHOWN,
    )
    def show(graph: int, target: Any) -> tuple[Any, ...]:
        case = desk.case(graph, target)
        words = structure.legend(case)
        ends = words["low"], words["high"], words["words"]
        _tell("")
        return structure.elements(case), *ends, items.prediction_words(case), str(case.chain)

    @app.callback(
        Output("target", "data", allow_duplicate=True),
        Output("row", "value"),
        Input("row", "value"),
        Input("explain-node", "n_clicks"),
        State("selection", "data"),
        *PLACE,
        prevent_initial_call=True,
    )
    def pick_node(row: int | None, _clicks: Any, nodes: list[int], graph: int, target: Any) -> tuple[Any, Any]:
        picked = nodes[0] if ctx.triggered_id == "explain-node" and nodes else row
        known = desk.case(graph, target)
        if picked is None or not 0 <= picked < known.num_nodes or picked == known.prediction.index:
            return no_update, no_update
        return {**_fields(target), "index": picked}, picked


def _connect_choice(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("graph", "data"),
        Input("previous-graph", "n_clicks"),
        Input("next-graph", "n_clicks"),
        Input({"kind": "open-graph", "graph": ALL}, "n_clicks"),
        State("graph", "data"),
        prevent_initial_call=True,
    )
    def turn(_previous: Any, _next: Any, _open: Any, graph: int) -> Any:
        if not ctx.triggered or not ctx.triggered[0]["value"]:  # a button that has just appeared
            return no_update
        if isinstance(ctx.triggered_id, dict):
            return ctx.triggered_id["graph"]
        return (graph + (1 if ctx.triggered_id == "next-graph" else -1)) % len(desk.session.graphs)

    @app.callback(
        Output("found", "children"),
        Output("found-words", "children"),
        Input("find", "value"),
        Input("find-all", "n_clicks"),
        Input("find-wrong", "n_clicks"),
        prevent_initial_call=True,
    )
    def find(text: str | None, _all: Any, _wrong: Any) -> tuple[Any, str]:
        wrong = ctx.triggered_id == "find-wrong"
        found = answers.found_graphs(desk.summaries, text or "", wrong=wrong, most=len(desk.summaries))
        shown, kind = found[: layout.MOST_FOUND], "that the model gets wrong" if wrong else "found"
        more = f", the first {len(shown)} are listed" if len(shown) < len(found) else ""
        return items.found_items(desk.summaries, shown), f"{count(len(found), 'graph')} {kind}{more}."


def _opened(desk: Desk, graph: int, target: Any, *, wished: bool) -> tuple[dict[str, Any], Case]:
    """What is asked of a graph that has just been chosen, and its case: what fits is kept, and the class is its own."""
    fields = _fields(target)
    tries = [fields] if wished else []
    tries += [{**fields, "column": None}, {**fields, "column": None, "against": None}, {"rule": fields["rule"]}]
    for at, fields in enumerate(tries):
        try:
            case = desk.case(graph, fields)
            return {**_fields(fields), "column": case.target}, case
        except WalkwiseError:
            if at == len(tries) - 1:
                raise
    raise AssertionError


def _fields(target: Any) -> dict[str, Any]:
    """What a tab keeps of what is asked, as a dictionary."""
    return asdict(View.of(target))
