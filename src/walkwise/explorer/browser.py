"""What happens in the browser alone; the functions are in assets/."""

from __future__ import annotations

from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State


def connect_browser(app: Dash, *, table: bool = False) -> None:
    """Registers the callbacks that never reach the server.

    Args:
        app: the application, its layout set.
        table: whether the page has the table of a run.
    """

    def in_browser(name: str, *wires: Any, **options: Any) -> None:
        app.clientside_callback(ClientsideFunction("walkwise", name), *wires, **options)  # type: ignore[no-untyped-call]

    in_browser(
        "pick",
        Output("selection", "data", allow_duplicate=True),
        Input("structure", "selectedNodeData"),
        State("selection", "data"),
        State("graph", "data"),
        prevent_initial_call=True,
    )
    in_browser("nodes", Output("nodes", "value"), Input("selection", "data"), State("types", "data"))
    in_browser(
        "dress",
        Output("dressed", "data"),
        Input("structure", "elements"),
        Input("selection", "data"),
        Input("step", "data"),
        Input("order", "data"),
        Input("ids", "n_clicks"),
        Input("edges", "n_clicks"),
        State("graph", "data"),
    )
    in_browser(
        "play",
        Output("step", "data"),
        Output("clock", "disabled"),
        Output("play", "children"),
        *(Input(name, "n_clicks") for name in ("play", "forward", "back", "rewind")),
        Input("clock", "n_intervals"),
        Input("order", "data"),
        State("step", "data"),
        State("clock", "disabled"),
    )
    in_browser(
        "curve",
        Output("order-curve", "figure"),
        Output("step-words", "children"),
        Input("step", "data"),
        Input("order", "data"),
    )
    in_browser("said", Output("page-problem", "children"), Input("problem", "data"), Input("graph", "data"))
    in_browser("same", Output("clock", "interval"), Input("speed", "data"))
    stores = ("graph", "target", "speed", "by")
    children = Input("target-choice", "children")
    in_browser("choices", Output("dressed", "clear_data"), *(Input(name, "data") for name in stores), children)
    in_browser(
        "ask",
        Output("asked", "data"),
        Input("ask", "n_clicks"),
        Input("formula", "n_submit"),
        State("formula", "value"),
        prevent_initial_call=True,
    )
    in_browser(
        "picture",
        Output("dressed", "data", allow_duplicate=True),
        Input("export-png", "n_clicks"),
        Input("export-svg", "n_clicks"),
        Input("pin", "n_clicks"),
        State("file", "data"),
        prevent_initial_call=True,
    )
    kept = ("graph", "target", "selection", "alpha", "by", "asked", "own")
    in_browser(
        "remember",
        Output("dressed", "data", allow_duplicate=True),
        *(Input(name, "data") for name in kept),
        Input("order-alpha", "value"),
        prevent_initial_call="initial_duplicate",
    )
    if table:
        in_browser(
            "list",
            Output("listed", "data"),
            Output("pattern-listed", "data", allow_duplicate=True),
            Output("list-smarts", "value"),
            Input({"kind": "sort", "column": ALL}, "n_clicks"),
            Input({"kind": "show", "which": ALL}, "n_clicks"),
            Input("list-text", "value"),
            Input("list-smarts", "value"),
            Input("list-back", "n_clicks"),
            Input("list-forward", "n_clicks"),
            Input("pattern-listed", "data"),
            State("listed", "data"),
            prevent_initial_call=True,
        )
        seen = Input("rows", "children"), Input("place", "data"), Input("pattern-listed", "data")
        in_browser("opened", Output("rows", "lang"), *seen)
