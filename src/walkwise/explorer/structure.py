"""The structure on the page: nodes, edges and bonds, their colours, and what the colours mean."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from walkwise.explorer.cases import Case
from walkwise.explorer.figures import ORDER
from walkwise.plotting import _style as style
from walkwise.plotting._style import Floats
from walkwise.plotting.structures import usual_gap
from walkwise.plotting.typed import kinds_of

#: The distance of neighbours, in pixels at zoom 1.
_UNIT = 56.0
#: How far apart the lines of a double bond lie, in pixels.
_APART = 7.0
#: The shapes of node types, in order, each with a sign that looks like it.
_SHAPES = (
    ("ellipse", "○"),
    ("rectangle", "□"),
    ("diamond", "◇"),
    ("triangle", "△"),
    ("hexagon", "⬡"),
    ("star", "☆"),
    ("pentagon", "⬠"),
    ("octagon", "⯃"),
)
#: The colour of the walk that is pointed at.
WALK = "#b0578d"


def elements(case: Case) -> list[dict[str, Any]]:
    """The nodes with their places, colours and labels, and the edges; a line for each line of a bond."""
    drawing, colours = case.drawing, node_colours(case)
    long = any(len(label) > 4 for label in drawing.labels)
    side = _side(drawing.places)
    kinds = [0] * case.num_nodes if drawing.types is None else kinds_of(drawing.types).tolist()
    nodes = [
        {
            "data": {
                "id": f"{case.graph}-{i}",
                "node": i,
                "graph": case.graph,
                "label": drawing.labels[i],
                "full": case.node_title(i),
                "side": side,
                "font": 0.42 * side,
                "size": (0.44 if len(case.node_title(i)) <= 2 else 0.35) * side,
                "colour": colours[i],
                "ink": style.ink_on(colours[i]),
                "shape": _SHAPES[kinds[i] % len(_SHAPES)][0],
            },
            "position": {"x": _UNIT * float(x), "y": _UNIT * float(y)},
            "classes": ("typed" if long and drawing.types else "word" if long else "short")
            + (" explained" if i == case.prediction.index else ""),
            "grabbable": False,
        }
        for i, (x, y) in zip(drawing.nodes, drawing.places, strict=True)
    ]
    return nodes + [line for at in range(len(drawing.edges)) for line in _lines(case, at, side / 17)]


def _side(places: Floats) -> float:
    """How large nodes are, in pixels at zoom 1: as large as the usual gap between them allows."""
    return float(np.clip(0.62 * usual_gap(places) * _UNIT, 5.0, 34.0))


def node_colours(case: Case) -> list[str]:
    """The colour of every node's relevance, zero in the middle of the scale."""
    values = case.heat.numpy()
    return [to_hex(colour) for colour in style.COLOURS(style.symmetric(values)(values))]


def legend(case: Case) -> dict[str, str]:
    """What the ends of the colours mean."""
    most = float(case.heat.abs().max()) or 1.0
    total = style.short(float(case.chain.input_relevance))
    types = [] if case.drawing.types is None else list(case.drawing.types.counts)
    shapes = ", ".join(f"{_SHAPES[i % len(_SHAPES)][1]}\N{NO-BREAK SPACE}{name}" for i, name in enumerate(types))
    return {
        "low": f"{style.short(-most)} against",
        "high": f"for +{style.short(most)}",
        "words": f"relevance of each node for {case.target_title}; all nodes sum to {total}"
        + (f"; {shapes}" if shapes else ""),
    }


def _lines(case: Case, at: int, thin: float) -> list[dict[str, Any]]:
    """The lines of one edge, as thin as that where edges are not coloured."""
    u, v = case.drawing.edges[at]
    heat, most = case.edge_heat[u, v], max(map(abs, case.edge_heat.values())) or 1.0
    share = heat / most
    return [
        {
            "data": {
                "id": f"{case.graph}-{u}-{v}-{number}",
                "source": f"{case.graph}-{u}",
                "target": f"{case.graph}-{v}",
                "pair": f"{u}-{v}",
                "heat": to_hex(style.COLOURS(0.5 + 0.5 * share)) if abs(share) > 0.02 else style.FAINT,
                "thin": thin,
                "wide": thin * (1 + 2.5 * abs(share)),
                "end": f"{_APART * line.x:.2f}px {_APART * line.y:.2f}px",
            },
            "classes": "dashed" if line.dashed else "line",
            "selectable": False,
        }
        for number, line in enumerate(case.drawing.lines[at])
    ]


#: How the structure looks; what changes are the classes of its elements.
STYLESHEET: list[dict[str, Any]] = [
    {
        "selector": "node",
        "style": {
            "width": "data(side)",
            "height": "data(side)",
            "shape": "data(shape)",
            "background-color": "data(colour)",
            "border-width": 1.5,
            "border-color": style.GREY,
            "label": "data(label)",
            "color": "data(ink)",
            "font-size": "data(font)",
            "font-family": "system-ui, sans-serif",
            "min-zoomed-font-size": 6,  # what nobody can read is not written before one looks closer
            "text-valign": "center",
            "text-halign": "center",
            "overlay-opacity": 0,
        },
    },
    {"selector": "node.numbered", "style": {"label": "data(full)", "font-size": "data(size)"}},
    {
        "selector": "node.word",
        "style": {"text-valign": "bottom", "text-margin-y": 3, "color": style.INK, "font-size": 14},
    },
    {
        "selector": "node.typed",
        "style": {
            "text-valign": "bottom",
            "text-margin-y": 2,
            "color": style.INK,
            "font-size": 10,
            "text-outline-color": "#ffffff",
            "text-outline-width": 1.5,
        },
    },
    {
        "selector": "edge",
        "style": {
            "width": "data(thin)",
            "line-color": "#8a8a8a",
            "curve-style": "straight",
            "source-endpoint": "data(end)",
            "target-endpoint": "data(end)",
            "overlay-opacity": 0,
        },
    },
    {"selector": "edge.heated", "style": {"line-color": "data(heat)", "width": "data(wide)"}},
    {"selector": "node.explained", "style": {"border-width": 5, "border-style": "double", "border-color": style.INK}},
    {"selector": "edge.dashed", "style": {"line-style": "dashed", "line-dash-pattern": [5, 4]}},
    {
        "selector": "node.placed",
        "style": {
            "underlay-color": ORDER,
            "underlay-opacity": 0.45,
            "underlay-padding": 7,
            "underlay-shape": "ellipse",
        },
    },
    {"selector": "node.newest", "style": {"underlay-opacity": 0.95, "underlay-padding": 9}},
    {"selector": "node:selected", "style": {"border-width": 5, "border-color": style.INK}},
    {
        "selector": "node.walked",
        "style": {"underlay-color": WALK, "underlay-opacity": 0.8, "underlay-padding": 8, "underlay-shape": "ellipse"},
    },
    {"selector": "edge.walked", "style": {"line-color": WALK, "width": 6, "z-index": 5}},
]
