"""Walks one below the other, a line each: the way to read them where many share nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.patheffects import withStroke
from torch import Tensor

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.plotting._style import Ints, Numbers
from walkwise.plotting.typed import types_of_structure
from walkwise.plotting.walks import paler, table_of

#: How large a node is, in points, at least and at most, and how far a bar reaches, in positions.
_NODE, _WIDEST, _BAR = 15.0, 24.0, 1.3


def walk_lines(
    walks: Tensor | Sequence[Sequence[Any]],
    relevances: Numbers,
    *,
    labels: Sequence[Any] | None = None,
    k: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw the k walks of largest |relevance| one below the other, input on the left, and return the axes.

    If a walk stays at a node, that node is drawn long. Bars on the right are relevance, orange above zero and blue
    below. Beside a picture of the graph, this shows walks that would cover each other in :func:`top_walks`.

    Args:
        walks: node ids (K, L + 1), -1 where a walk bypasses a position; for a heterogeneous graph (type, i) and None,
            as in ``TopWalks.named``, which then label the nodes.
        relevances: the relevance of every walk, (K,).
        labels: a text per node, by default its id.
        k: how many walks to draw at most.
        ax: where to draw, by default a new figure.

    >>> ax = walk_lines([[0, 1, 1], [2, 1, 0]], [0.5, -0.1])
    >>> [text.get_text() for text in ax.texts][:6]
    ['input', 'layer 1', 'output', '0', '1', '0.5']
    """
    values = style.numbers(relevances, "relevances")
    types = types_of_structure(None, walks)
    given = table_of(walks, len(values), types)
    if k < 1:
        raise InputError(argument="k", expected="the number of walks to draw, at least 1", got=k)
    positions = given.shape[1]
    most = int(given.max(initial=-1)) + 1
    if types is not None and labels is None:
        labels = types.written(range(types.num_nodes))
    names = style.names_of(labels, most if labels is None else max(most, len(labels)), "labels")
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    longest = max((len(names[node]) for node in given[order].flat if node >= 0), default=0)
    wide = max(_NODE, 4.0 + 5.2 * longest)
    step = max(0.55, (wide + 26) / 72) if wide > _WIDEST else 0.55
    ax = style.axes_for(ax, width=0.9 + step * (positions + _BAR), height=0.7 + 0.34 * len(order))
    ax.set_xlim(-0.5, max(1, positions) + _BAR + 0.9)
    ax.set_ylim(len(order) - 0.4, -1.1)
    ax.axis("off")
    for position in range(positions):
        ax.text(
            position, -0.75, _column(position, positions), size=style.SMALL, color=style.GREY, ha="center", va="center"
        )
    room = style.size_in_points(ax)[0] / float(np.ptp(ax.get_xlim()))
    node = _Node(wide, 0.0) if wide <= _WIDEST else _Node(_NODE, 0.42 * (wide - _NODE) / room)
    largest = float(np.abs(values[order]).max(initial=0)) or 1.0
    for row, i in enumerate(order):
        _draw_line(ax, row, given[i], names, node, float(values[i]), abs(float(values[i])) / largest)
    left = len(values) - len(order)
    if left:
        walk = "walk" if left == 1 else "walks"
        least = style.short(float(np.abs(values[order]).min()))
        style.caption(ax, f"{left} {walk} of at most ±{least} not drawn", above=False)
    return ax


def _column(position: int, positions: int) -> str:
    """What a position is called.

    >>> [_column(position, 3) for position in range(3)]
    ['input', 'layer 1', 'output']
    """
    return "input" if position == 0 else "output" if position == positions - 1 else f"layer {position}"


@dataclass(frozen=True)
class _Node:
    """How a node is drawn: its height in points, and how far it reaches to both sides of a disc, in positions."""

    size: float
    aside: float


def _draw_line(ax: Axes, row: int, walk: Ints, names: list[str], node: _Node, value: float, share: float) -> None:
    """One walk: its nodes, arrows between them, a bar and a number."""
    colour = paler(style.POSITIVE if value >= 0 else style.NEGATIVE, share)
    visited = [(position, int(node)) for position, node in enumerate(walk) if node >= 0]
    stays = [[position for position, _ in run] for _, run in groupby(visited, key=lambda visit: visit[1])]
    nodes = [name for name, _ in groupby(name for _, name in visited)]
    for before, after in pairwise(stays):
        ends: dict[str, Any] = {
            "posA": (before[-1] + node.aside, row),
            "posB": (after[0] - node.aside, row),
            "shrinkA": 0,
            "shrinkB": node.size / 2 + 1,
        }
        look: dict[str, Any] = {"color": colour, "linewidth": 0.8 + 1.2 * share, "mutation_scale": 8, "zorder": 2}
        ax.add_patch(FancyArrowPatch(**ends, **look, arrowstyle="-|>"))
    for name, run in zip(nodes, stays, strict=True):
        ends_at = [run[0] - node.aside, run[-1] + node.aside]
        for width, ink in ((node.size + 1.6, style.GREY), (node.size, "white")):
            if ends_at[0] == ends_at[1]:  # a line of no length has no round ends
                ax.scatter(run, [row], s=width**2, color=ink, linewidths=0, zorder=3, clip_on=False)
            else:
                ax.plot(ends_at, [row, row], color=ink, lw=width, solid_capstyle="round", zorder=3, clip_on=False)
        words: dict[str, Any] = {"size": style.TEXT, "color": style.INK, "ha": "center", "va": "center", "zorder": 4}
        halo = [withStroke(linewidth=2.5, foreground="white")]  # long names stand over their node
        ax.text((run[0] + run[-1]) / 2, row, names[name], **words, path_effects=halo)
    begin = len(walk) - 0.2 + node.aside / 2
    ax.barh(row, _BAR * share, height=0.36, left=begin, color=colour, zorder=2)
    ax.text(begin + _BAR * share + 0.1, row, style.short(value), size=style.TEXT, color=style.INK, va="center")
