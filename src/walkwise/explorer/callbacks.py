"""From the page's events to the answers and back: thin, all state being the tab's own."""

from __future__ import annotations

import logging
import re
from dataclasses import asdict
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update, set_props

from walkwise.display import count
from walkwise.errors import AbandonedError, InputError, WalkwiseError
from walkwise.explorer import answers, exports, figures, layout, parts, structure
from walkwise.explorer.browser import connect_browser
from walkwise.explorer.cases import Case, Desk, View
from walkwise.plotting._style import short
from walkwise.questions.subgraphs import as_discount

_SHOWN = Input("graph", "data"), Input("target", "data")
_PLACE = State("graph", "data"), State("target", "data")


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
    _connect_selection(app, desk)
    _connect_order(app, desk)
    _connect_groups(app, desk)
    _connect_questions(app, desk)
    _connect_exports(app, desk)
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
            hint = f"Drawn are the {drawn} of {case.num_nodes} nodes that matter, and what joins them. {hint}"
        groups = answers.groups_here(case, own)
        names = sorted({*seen, *groups, *own})
        nodes = [node for node in wished.get("selection", []) if node < case.num_nodes]
        field = "field" if case.molecule is not None else "gone"
        place = case.num_nodes - 1
        types = case.drawing.types
        known = [] if types is None else [[name, types.offsets[name], count] for name, count in types.counts.items()]
        opened = options, others, view, groups, names, nodes, hint, large, large, place, field
        return *opened, _file_name(case.title), known, f"none: try {'' if named is None else f'{named} '}0-4, 7"

    @app.callback(
        Output("structure", "elements"),
        Output("legend-low", "children"),
        Output("legend-high", "children"),
        Output("legend-words", "children"),
        Output("prediction", "children"),
        Output("report", "children"),
        *_SHOWN,
    )
    def show(graph: int, target: Any) -> tuple[Any, ...]:
        case = desk.case(graph, target)
        words = structure.legend(case)
        ends = words["low"], words["high"], words["words"]
        _tell("")
        return structure.elements(case), *ends, layout.prediction_words(case), str(case.chain)

    @app.callback(
        Output("target", "data", allow_duplicate=True),
        Output("row", "value"),
        Input("row", "value"),
        Input("explain-node", "n_clicks"),
        State("selection", "data"),
        *_PLACE,
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
        return layout.found_items(desk.summaries, shown), f"{count(len(found), 'graph')} {kind}{more}."


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


def _connect_selection(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("selection", "data", allow_duplicate=True),
        Output("nodes-problem", "children"),
        Input("nodes", "n_submit"),
        Input("apply-nodes", "n_clicks"),
        Input("all-nodes", "n_clicks"),
        Input("no-nodes", "n_clicks"),
        State("nodes", "value"),
        *_PLACE,
        prevent_initial_call=True,
    )
    def choose(*given: Any) -> tuple[Any, str]:
        *_, text, graph, target = given
        typed = {"all-nodes": "all", "no-nodes": ""}.get(str(ctx.triggered_id), text)
        try:
            case = desk.case(graph, target)
            return answers.parse_nodes(typed, case.num_nodes, case.drawing.types), ""
        except WalkwiseError as error:
            return no_update, str(error)

    @app.callback(
        Output("alpha", "data"),
        Output("alpha-range", "value"),
        Output("alpha-typed", "value"),
        Output("alpha-problem", "children"),
        Input("alpha-range", "value"),
        Input("alpha-typed", "n_submit"),
        Input("alpha-typed", "n_blur"),
        State("alpha-typed", "value"),
        State("alpha", "data"),
        prevent_initial_call=True,
    )
    def set_alpha(moved: Any, _submit: Any, _blur: Any, typed: Any, current: float) -> tuple[Any, ...]:
        slid = "alpha-range.value" in ctx.triggered_prop_ids
        try:
            alpha = as_discount(moved if slid else typed)
        except WalkwiseError as error:
            return no_update, no_update, no_update, str(error)
        if alpha == current:  # the field was left as it was: the slider may be on its way elsewhere
            return no_update, no_update, no_update, ""
        return (alpha, no_update, f"{alpha:g}", "") if slid else (alpha, alpha, no_update, "")

    @app.callback(
        Output("relevance", "children"),
        Output("relevance", "className"),
        Output("relevance-words", "children"),
        Output("alpha-curve", "figure"),
        Input("selection", "data"),
        Input("alpha", "data"),
        *_SHOWN,
    )
    def answer(nodes: list[int], alpha: float, graph: int, target: Any) -> tuple[Any, ...]:
        case = desk.case(graph, target)
        known = [node for node in nodes if node < case.num_nodes]
        found = answers.selection_answer(case, known, alpha)
        kind = "number for" if found.relevance >= 0 else "number against"
        number, look = (short(found.relevance, signed=True, scale=abs(found.total)), kind) if known else ("", "number")
        return number, look, layout.relevance_words(found), figures.alpha_figure(found)


def _connect_order(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("order", "data"),
        Input("order-alpha", "value"),
        Input("play", "n_clicks"),
        Input("forward", "n_clicks"),
        *_SHOWN,
        State("order", "data"),
        State("tab", "data"),
    )
    def order(*given: Any) -> Any:
        alpha, _play, _forward, graph, target, known, tab = given
        played = ctx.triggered_id in ("play", "forward")
        if played and known and known["order"] and known["graph"] == graph:
            return no_update
        try:
            with desk.turn(tab, "order"):  # whatever order the tab has asked for before is not wanted any more
                case = desk.case(graph, target)
                if case.num_nodes > layout.LARGE and not played:
                    return {"graph": graph, "order": [], "values": [], "figure": figures.order_figure(case, None)}
                found = answers.order_answer(case, alpha)
        except AbandonedError:
            return no_update
        return {
            "graph": graph,
            "order": found.order,
            "titles": [case.node_title(node) for node in found.order],
            "values": found.values,
            "area": short(found.area),
            "figure": figures.order_figure(case, found),
        }

    @app.callback(Output("walks", "children"), Input("by", "data"), *_SHOWN)
    def walks(by: str, graph: int, target: Any) -> list[Any]:
        case = desk.case(graph, target)
        try:
            return list(layout.walk_items(case, answers.walks_answer(case, by=by)))
        except WalkwiseError as error:
            return [html.Li(str(error), className="problem")]


def _connect_groups(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("groups", "data", allow_duplicate=True),
        Output("own", "data"),
        Output("seen", "data", allow_duplicate=True),
        Output("group-name", "value"),
        Output("group-problem", "children"),
        Input("save-group", "n_clicks"),
        Input("group-name", "n_submit"),
        Input("save-pattern", "n_clicks"),
        Input("pattern", "n_submit"),
        State("group-name", "value"),
        State("pattern", "value"),
        State("selection", "data"),
        State("groups", "data"),
        State("own", "data"),
        State("seen", "data"),
        *_PLACE,
        prevent_initial_call=True,
    )
    def save(*given: Any) -> tuple[Any, ...]:
        *_, name, pattern, nodes, groups, own, seen, graph, target = given
        made: Any = nodes
        try:
            if ctx.triggered_id in ("save-pattern", "pattern"):
                nodes = answers.pattern_group(desk.case(graph, target), name or "", (pattern or "").strip())
                made = (pattern or "").strip()
                if not nodes:
                    problem, expected = f"Nothing in this molecule matches {made}.", "a pattern that matches"
                    raise InputError(problem, argument="pattern", expected=expected, got=made)
            groups = answers.name_group(groups, name, nodes)
        except WalkwiseError as error:
            return no_update, no_update, no_update, no_update, str(error)
        called = name.strip()
        return groups, {**own, called: made}, sorted({*seen, called}), "", ""

    @app.callback(
        Output("groups", "data", allow_duplicate=True),
        Output("own", "data", allow_duplicate=True),
        Output("selection", "data", allow_duplicate=True),
        Input({"kind": "select-group", "name": ALL}, "n_clicks"),
        Input({"kind": "remove-group", "name": ALL}, "n_clicks"),
        State("groups", "data"),
        State("own", "data"),
        prevent_initial_call=True,
    )
    def use(_select: Any, _remove: Any, groups: dict[str, list[int]], own: dict[str, Any]) -> tuple[Any, Any, Any]:
        if not ctx.triggered or not ctx.triggered[0]["value"]:  # a button that has just appeared
            return no_update, no_update, no_update
        name = ctx.triggered_id["name"]
        if ctx.triggered_id["kind"] == "select-group":
            return no_update, no_update, groups[name]
        return _without(groups, name), _without(own, name), no_update


def _without(named: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in named.items() if other != name}


def _connect_questions(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("group-list", "children"),
        Output("interactions", "figure"),
        Output("interactions", "style"),
        Output("interactions-problem", "children"),
        Input("groups", "data"),
        *_SHOWN,
    )
    def bars(groups: dict[str, list[int]], graph: int, target: Any) -> tuple[Any, ...]:
        types = desk.case(graph, target).drawing.types
        items = layout.group_items(groups, {name: answers.format_nodes(nodes, types) for name, nodes in groups.items()})
        if not groups:
            return items, no_update, {"display": "none"}, ""
        try:
            figure = figures.interaction_figure(answers.groups_answer(desk.case(graph, target), groups))
        except WalkwiseError as error:
            return items, no_update, {"display": "none"}, answers.overlap_words(groups, types) or str(error)
        return items, figure, {"height": f"{figure['layout']['height']}px"}, ""

    @app.callback(
        Output("query-answer", "children"),
        Output("query-problem", "children"),
        Input("asked", "data"),
        Input("groups", "data"),
        *_SHOWN,
        State("seen", "data"),
    )
    def ask(
        asked: list[Any], groups: dict[str, list[int]], graph: int, target: Any, seen: list[str]
    ) -> tuple[str, str]:
        formula = asked[0] if asked else ""
        if not formula.strip():
            return "", ""
        known: dict[str, list[int]] = {name: [] for name in seen}  # groups of other graphs: no walk here visits them
        try:
            case = desk.case(graph, target)
            found = answers.query_answer(case, formula, known | groups)
        except WalkwiseError as error:
            return "", str(error)
        return f"{formula}: {short(found, signed=True, scale=abs(case.chain.input_relevance))}", ""


def _connect_exports(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("download", "data"),
        Input("export-csv", "n_clicks"),
        Input("export-json", "n_clicks"),
        State("selection", "data"),
        State("alpha", "data"),
        State("order-alpha", "value"),
        State("tab", "data"),
        State("groups", "data"),
        State("asked", "data"),
        State("by", "data"),
        State("step", "data"),
        State("order", "data"),
        *_PLACE,
        prevent_initial_call=True,
    )
    def export(*given: Any) -> Any:
        _csv, _json, nodes, alpha, order_alpha, tab, groups, asked, by, step, order, graph, target = given
        case = desk.case(graph, target)
        formula = asked[0] if asked else ""
        step = step if order and order["order"] else None
        shown = {"nodes": nodes, "alpha": alpha, "order_alpha": order_alpha, "groups": groups, "formula": formula}
        with desk.turn(tab, "export"):
            document = exports.shown(case, **shown, by=by, step=step)
        kind, write = ("csv", exports.as_csv) if ctx.triggered_id == "export-csv" else ("json", exports.as_json)
        return {"content": write(document), "filename": f"{_file_name(case.title)}.{kind}", "type": f"text/{kind}"}


def _file_name(title: str) -> str:
    return re.sub(r"\W+", "-", f"walkwise {title}").strip("-")
