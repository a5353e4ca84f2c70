"""Callbacks of the page's cards: the selection, the order, walks, groups, formulas; and file exports."""

from __future__ import annotations

import re
from typing import Any

from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from walkwise.errors import AbandonedError, InputError, WalkwiseError
from walkwise.explorer import answers, exports, figures, items, layout
from walkwise.explorer.cases import Desk
from walkwise.plotting._style import short
from walkwise.questions.subgraphs import as_discount

#: What is shown, for answers that change with it, and for those that only look.
SHOWN = Input("graph", "data"), Input("target", "data")
PLACE = State("graph", "data"), State("target", "data")


def connect_cards(app: Dash, desk: Desk) -> None:
    """Registers the callbacks of the cards.

    Args:
        app: the application, its layout set.
        desk: the cases that answers come from.
    """
    _connect_selection(app, desk)
    _connect_order(app, desk)
    _connect_groups(app, desk)
    _connect_questions(app, desk)
    _connect_exports(app, desk)


def _connect_selection(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("selection", "data", allow_duplicate=True),
        Output("nodes-problem", "children"),
        Input("nodes", "n_submit"),
        Input("apply-nodes", "n_clicks"),
        Input("all-nodes", "n_clicks"),
        Input("no-nodes", "n_clicks"),
        State("nodes", "value"),
        *PLACE,
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
        *SHOWN,
    )
    def answer(nodes: list[int], alpha: float, graph: int, target: Any) -> tuple[Any, ...]:
        case = desk.case(graph, target)
        known = [node for node in nodes if node < case.num_nodes]
        found = answers.selection_answer(case, known, alpha)
        kind = "number for" if found.relevance >= 0 else "number against"
        number, look = (short(found.relevance, signed=True, scale=abs(found.total)), kind) if known else ("", "number")
        return number, look, items.relevance_words(found), figures.alpha_figure(found)


def _connect_order(app: Dash, desk: Desk) -> None:
    @app.callback(
        Output("order", "data"),
        Input("order-alpha", "value"),
        Input("play", "n_clicks"),
        Input("forward", "n_clicks"),
        *SHOWN,
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
            "area": "" if found.area is None else short(found.area),
            "problem": found.problem,
            "figure": figures.order_figure(case, found),
        }

    @app.callback(Output("walks", "children"), Input("by", "data"), *SHOWN)
    def walks(by: str, graph: int, target: Any) -> list[Any]:
        case = desk.case(graph, target)
        try:
            return list(items.walk_items(case, answers.walks_answer(case, by=by)))
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
        *PLACE,
        prevent_initial_call=True,
    )
    def save(*given: Any) -> tuple[Any, ...]:
        *_, name, pattern, nodes, groups, own, seen, graph, target = given
        made: Any = nodes
        try:
            if ctx.triggered_id in ("save-pattern", "pattern"):
                made = (pattern or "").strip()
                nodes = answers.pattern_group(desk.case(graph, target), made)
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
        *SHOWN,
    )
    def bars(groups: dict[str, list[int]], graph: int, target: Any) -> tuple[Any, ...]:
        types = desk.case(graph, target).drawing.types
        listed = items.group_items(groups, {name: answers.format_nodes(nodes, types) for name, nodes in groups.items()})
        if not groups:
            return listed, no_update, {"display": "none"}, ""
        try:
            figure = figures.interaction_figure(answers.groups_answer(desk.case(graph, target), groups))
        except WalkwiseError as error:
            return listed, no_update, {"display": "none"}, answers.overlap_words(groups, types) or str(error)
        return listed, figure, {"height": f"{figure['layout']['height']}px"}, ""

    @app.callback(
        Output("query-answer", "children"),
        Output("query-problem", "children"),
        Input("asked", "data"),
        Input("groups", "data"),
        *SHOWN,
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
        *PLACE,
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
        return {"content": write(document), "filename": f"{file_name(case.title)}.{kind}", "type": f"text/{kind}"}


def file_name(title: str) -> str:
    """What a file about a graph is called."""
    return re.sub(r"\W+", "-", f"walkwise {title}").strip("-")
