"""Curves: relevance against α, and model outputs along an order of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from walkwise.errors import InputError
from walkwise.evaluation import Curve
from walkwise.plotting import _style as style
from walkwise.plotting._style import Floats, Ints, Numbers

#: The height of a row of names, as a share of the axes.
_ROW = 0.075


def alpha_curve(
    polynomials: Numbers,
    *,
    alphas: Numbers | None = None,
    labels: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a line per subgraph, its relevance R_α for every α from 0 to 1, and return the axes.

    Args:
        polynomials: coefficients of α⁰ … αᴸ, (B, L + 1) or one row, as :func:`walkwise.subgraph_polynomial`
            returns; with ``alphas``, values at those: (B, number of α).
        alphas: the discounts of the values, if ``polynomials`` holds values.
        labels: a name per line, for the legend.
        ax: where to draw, by default a new figure.

    >>> ax = alpha_curve([[0.5, 0.1, -0.2]], labels=["ring"])
    >>> [round(float(y), 6) for y in ax.lines[0].get_ydata()[[0, -1]]]
    [0.5, 0.4]
    """
    given = style.rows(polynomials, "polynomials")  # (B, L + 1) or (B, A)
    if alphas is None:
        at = np.linspace(0, 1, 101)
        values = given @ at ** np.arange(given.shape[1])[:, None]
    else:
        at, values = style.numbers(alphas, "alphas", given.shape[1]), given
    ax = style.axes_for(ax)
    dots = {} if alphas is None else {"marker": "o", "ms": 3}
    _draw_lines(ax, [at] * len(values), list(values), labels, **dots)
    _zero_line(ax, values)
    ax.set_xlim(at.min(), at.max() if at.max() > at.min() else at.min() + 1)
    ax.set_xlabel("α: weight of a step outside the set", size=style.TEXT)
    ax.set_ylabel("relevance of the set", size=style.TEXT)
    return ax


def activation_curves(
    curves: Curve | Sequence[Curve | Numbers] | Numbers,
    *,
    labels: Sequence[Any] | None = None,
    order: Sequence[Any] | Numbers | None = None,
    names: Sequence[Any] | None = None,
    mode: Literal["activation", "pruning"] = "activation",
    marks: int = 3,
    ax: Axes | None = None,
) -> Axes:
    """Draw a line per curve (outputs as nodes are added, or changes as they are removed), and return the axes.

    The legend gives the area under each, AUAC or AUPC. If the order of the nodes is given, the deciding nodes are
    marked: those at which a curve jumps furthest.

    Args:
        curves: one or several results of :func:`walkwise.activation_curve` or :func:`walkwise.pruning_curve`, or their
            values, (M,) each.
        labels: a name per curve.
        order: the nodes in the order of the curve, (M,); with several curves, one order each, or one for all.
        names: names of the nodes, (M,), by default their ids, with their types if the order has them.
        mode: "activation" or "pruning": the two differ in where a node's effect is seen.
        marks: how many jumps to mark on each curve.
        ax: where to draw, by default a new figure.

    >>> ax = activation_curves([0.1, 0.2, 0.9, 1.0], order=[2, 0, 1, 3], names=["C", "N", "O", "H"], marks=1)
    >>> [text.get_text() for text in ax.texts]
    ['N']
    """
    if mode not in ("activation", "pruning"):
        raise InputError(argument="mode", expected='"activation" or "pruning"', got=mode)
    if marks < 0:
        raise InputError(argument="marks", expected="at least 0", got=marks)
    values = _values(curves)
    orders = _orders(order, values)
    adds = mode == "activation"
    ax = style.axes_for(ax)
    texts = [f"area {style.short(float(v.mean()))}" for v in values]
    if labels is not None:
        texts = [f"{a} ({b})" for a, b in zip(style.names_of(labels, len(values), "labels"), texts, strict=True)]
    steps: list[Floats] = [np.arange(len(v), dtype=np.float64) + adds for v in values]
    _draw_lines(ax, steps, values, texts)
    _zero_line(ax, np.concatenate(values))
    if order is not None and marks:
        low, high = ax.get_ylim()
        ax.set_ylim(low - (high - low) * _ROW * len(values), high)
    for i, (v, nodes) in enumerate(zip(values, orders, strict=True)):
        if nodes is not None:
            types = getattr(order, "types", None) if names is None else None
            called = (
                [style.names_of(names, len(v), "names")[node] for node in nodes]
                if types is None
                else types.written(nodes)
            )
            # The i-th value of an activation curve has the i-th node, that of a pruning curve lacks the one before.
            _mark_jumps(ax, steps[i], v, called[1:] if adds else called, marks, i)
    ax.set_xlabel(
        "nodes added, most relevant first" if adds else "nodes removed, least relevant first", size=style.TEXT
    )
    ax.set_ylabel("output f on the nodes so far" if adds else "change |f(G) − f(rest)|", size=style.TEXT)
    return ax


def _values(curves: Any) -> list[Floats]:
    """The values of every curve."""
    if isinstance(curves, Curve):
        return [style.numbers(curves.values, "curves")]
    several = len(curves) > 0 and (isinstance(curves[0], Curve) or np.ndim(curves[0]) > 0)
    found = [c.values if isinstance(c, Curve) else c for c in curves] if several else [curves]
    if not found or any(len(values) == 0 for values in found):
        raise InputError(
            "curves has no values.",
            argument="curves",
            expected="curves of at least one node",
            remedy="Give a curve of at least one node.",
        )
    return [style.numbers(values, f"curves[{i}]") for i, values in enumerate(found)]


def _orders(order: Any, values: list[Floats]) -> list[Ints | None]:
    """The order of the nodes for every curve."""
    if order is None:
        return [None] * len(values)
    several = not hasattr(order, "dim") and len(order) > 0 and np.ndim(order[0]) > 0
    given = list(order) if several else [order] * len(values)
    orders = [style.numbers(nodes, "order").astype(np.int64) for nodes in given]
    if len(orders) != len(values) or any(sorted(o) != list(range(len(v))) for o, v in zip(orders, values, strict=True)):
        sizes = ", ".join(str(len(v)) for v in values)
        raise InputError(
            f"order must name every node of its curve once; the curves have {sizes} nodes.",
            argument="order",
            expected="a list that names every node of its curve once",
            got=[nodes.tolist() for nodes in orders],
        )
    return list(orders)


def _mark_jumps(ax: Axes, steps: Floats, values: Floats, nodes: Sequence[str], marks: int, line: int) -> None:
    """Dots at the largest jumps, and names in a row at the bottom; the i-th node is that of the i-th jump."""
    jumps = np.diff(values)
    largest = np.sort(np.argsort(-np.abs(jumps), kind="stable")[:marks])
    largest = largest[jumps[largest] != 0]
    colour = style.LINES[line % len(style.LINES)][0]
    row = 0.02 + _ROW * line
    frame = ax.get_xaxis_transform()
    for jump, x in zip(largest, _apart(ax, steps[largest + 1], [nodes[jump] for jump in largest]), strict=True):
        at = (steps[jump + 1], values[jump + 1])
        ax.plot(*at, "o", color=colour, ms=4, zorder=4)
        leader: dict[str, Any] = {"arrowstyle": "-", "lw": 0.6, "ls": ":", "color": colour, "shrinkA": 0, "shrinkB": 3}
        look: dict[str, Any] = {
            "size": style.TEXT,
            "color": colour,
            "ha": "center",
            "va": "bottom",
            "arrowprops": leader,
        }
        halo = [withStroke(linewidth=2, foreground="white")]
        ax.annotate(nodes[jump], at, xytext=(x, row), textcoords=frame, path_effects=halo, **look)


def _apart(ax: Axes, x: Floats, texts: Sequence[str]) -> Floats:
    """Where texts stand that want to be at x, ascending, and must not touch."""
    low, high = ax.get_xlim()
    width = (high - low) / style.size_in_points(ax)[0] * (0.62 * style.TEXT * np.array([len(t) for t in texts]) + 4)
    placed = x.copy()
    for i in range(1, len(x)):
        placed[i] = max(placed[i], placed[i - 1] + (width[i] + width[i - 1]) / 2)
    for i in reversed(range(len(x))):
        room = high - width[i] / 2 if i == len(x) - 1 else placed[i + 1] - (width[i] + width[i + 1]) / 2
        placed[i] = min(placed[i], room)
    return placed


def _draw_lines(ax: Axes, x: list[Floats], y: list[Floats], labels: Sequence[Any] | None, **look: Any) -> None:
    texts = None if labels is None else style.names_of(labels, len(y), "labels")
    for i, (across, up) in enumerate(zip(x, y, strict=True)):
        colour, dashes = style.LINES[i % len(style.LINES)]
        marker = look if len(across) > 1 else {"marker": "o", "ms": 4}
        ax.plot(across, up, color=colour, ls=dashes, lw=1.6, label=None if texts is None else texts[i], **marker)
    ax.margins(y=0.14)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=style.SMALL)
    if texts is not None:
        ax.legend(fontsize=style.SMALL, frameon=False, loc="best", handlelength=2.4)


def _zero_line(ax: Axes, values: Floats) -> None:
    """A thin line at zero, where values lie on both sides of it."""
    if values.min() < 0 < values.max():
        ax.axhline(0, color=style.FAINT, lw=0.7, zorder=0)
