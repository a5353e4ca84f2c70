"""Controls of the page: native ones, each with a label."""

from __future__ import annotations

from typing import Any

from dash import html


def choice(store: str, choices: list[tuple[str, Any]], *, field: str = "", name: str = "") -> html.Select:
    """A drop-down whose value is kept in a store, or in a field of what a store holds."""
    more = attributes(data_store=store, **({"data_field": field} if field else {}))
    return html.Select(options(choices), id=f"{name or store}-choice", **more)


def options(choices: list[tuple[str, Any]]) -> list[html.Option]:
    """The entries of a drop-down: what is shown, and what it stands for."""
    return [html.Option(words, value=str(value)) for words, value in choices]


def button(name: str, text: str, *, label: str | None = None) -> html.Button:
    """A button; a label where its text does not say what it does."""
    named = {} if label is None else attributes(aria_label=label, title=label)
    return html.Button(text, id=name, type="button", **named)


def field(*parts: Any, name: str | None = None, look: str = "field") -> html.Div:
    """Controls and their labels in a row."""
    named: dict[str, Any] = {} if name is None else {"id": name}
    return html.Div(list(parts), className=look, **named)


def problem(name: str) -> html.P:
    """A line that says what is wrong, and is read out."""
    return html.P("", id=name, className="problem", role="alert")


def attributes(**given: str) -> dict[str, Any]:
    """Attributes whose names have a hyphen, written with an underscore."""
    return {name.replace("_", "-"): value for name, value in given.items()}
