"""How answers look on the page: lists of graphs, walks and groups, and lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from walkwise.display import arrows
from walkwise.explorer.answers import SelectionAnswer, WalkAnswer
from walkwise.explorer.cases import Case
from walkwise.explorer.parts import attributes
from walkwise.plotting._style import short
from walkwise.questions.ties import rounding, tie_runs


def found_items(summaries: Sequence[tuple[str, str | None, str | None]], numbers: Sequence[int]) -> list[html.Li]:
    """Graphs as buttons that open them, each with what the model and the data say."""
    items = []
    for number in numbers:
        name, said, label = summaries[number]
        differs = said is not None and label is not None and said != label
        words = [f"predicted {said}"] if said else []
        words += [f"labelled {label}"] if label else []
        content = [html.Strong(name), html.Span(", ".join(words), className="wrong" if differs else "")]
        items.append(html.Li(html.Button(content, id={"kind": "open-graph", "graph": number}, type="button")))
    return items


def walk_items(case: Case, walks: list[WalkAnswer]) -> list[html.Li]:
    """The walks as buttons: pointing at one, or moving the focus to it, shows it on the structure.

    Walks that tie stand under one line that says how many there are, and what each carries.
    """
    most = max((abs(walk.relevance) for walk in walks), default=0.0) or 1.0
    runs = tie_runs([walk.relevance for walk in walks], rounding(case.chain.dtype))
    items = []
    for i, walk in enumerate(walks):
        names = [case.node_title(node).replace(" ", "\N{NO-BREAK SPACE}") for node in walk.nodes if node >= 0]
        tied = runs.count(runs[i])
        if tied > 1 and runs[i] == i:
            words = f"{tied} walks, {short(walk.relevance, signed=True)} each"
            items.append(html.Li(words, className="tied"))
        width = {"width": f"{100 * abs(walk.relevance) / most:.1f}%"}
        content = [
            html.Span(arrows(names), className="path"),
            html.Span(className="amount " + ("for" if walk.relevance >= 0 else "against"), style=width),
            html.Span("" if tied > 1 else short(walk.relevance, signed=True), className="value"),
        ]
        nodes = ",".join(str(node) for node in walk.nodes if node >= 0)
        items.append(html.Li(html.Button(content, className="walk", type="button", **attributes(data_nodes=nodes))))
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
                    **attributes(aria_label=f"Remove the group {name}"),
                ),
            ]
        )
        for name in groups
    ]


def prediction_words(case: Case) -> list[Any]:
    """What the model says of the graph, in a line."""
    index = case.prediction.index
    node = "" if index is None else f"node {index}: " if case.drawing.types is None else f"{case.node_title(index)}: "
    words: list[Any] = [node] if node else []
    if case.said is not None:
        words += ["predicts ", html.Strong(case.classes[case.said]), ", "]
    words += [f"f = {short(float(case.chain.output))}"]
    words += [f" for {case.target_title}"] if case.said is None or case.target_title != case.classes[case.said] else []
    return words + ([] if case.label is None else [f"; labelled {case.label}"])


def relevance_words(found: SelectionAnswer) -> str:
    """What the number of the selection is."""
    if not found.nodes:
        return f"Nothing is selected. The walks of the whole graph sum to {short(found.total)}."
    count = f"{len(found.nodes)} node{'' if len(found.nodes) == 1 else 's'}"
    return f"R of {count} at α = {found.alpha:g}; the walks of the whole graph sum to {short(found.total)}"
