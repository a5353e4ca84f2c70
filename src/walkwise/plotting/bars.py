"""Interactions between groups of nodes as bars, and means with confidence intervals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.questions.groups import Interactions


@dataclass(frozen=True)
class _Bar:
    label: str
    value: float
    order: int  # the number of groups; 0 for what is not a term
    colour: str


def interaction_bars(interactions: Interactions, *, max_bars: int = 15, ax: Axes | None = None) -> Axes:
    """Draw one bar per interaction term (groups alone, then pairs, then larger sets), and return the axes.

    A term is the relevance of the walks that visit exactly these groups. Within an order the largest
    comes first; orange bars are above zero, blue below. The last bar, in grey, is the groups' union: all
    terms added up.

    Args:
        interactions: the result of :func:`walkwise.interactions`.
        max_bars: how many terms to show, those of largest magnitude; the others share one bar.
        ax: where to draw, by default a new figure.

    >>> from walkwise.questions.groups import Interactions
    >>> terms = {("ring",): 0.4, ("NO2",): 0.9, ("ring", "NO2"): -0.2}
    >>> ax = interaction_bars(Interactions(("ring", "NO2"), terms, 1.1))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['NO2', 'ring', 'ring + NO2', 'all together']
    """
    if max_bars < 1:
        raise InputError(argument="max_bars", expected="the number of terms to show, at least 1", got=max_bars)
    bars = _bars(interactions, max_bars)
    style.numbers([bar.value for bar in bars], "interactions")
    ax = style.axes_for(ax, height=0.9 + 0.24 * len(bars))
    _draw_bars(ax, [bar.label for bar in bars], [bar.value for bar in bars], [bar.colour for bar in bars], 0.72)
    for i in range(1, len(bars)):
        if bars[i].order != bars[i - 1].order:
            ax.axhline(i - 0.5, color=style.FAINT, lw=0.6, zorder=0)
    ax.set_xlabel("relevance of the walks\nthat visit exactly these groups", size=style.TEXT)
    return ax


def order_bars(lower: Mapping[str, float], higher: Mapping[str, float], *, ax: Axes | None = None) -> Axes:
    """Draw two bars per group, its lower- and its higher-order attribution (figure 1), and return the axes.

    Lower-order attribution scores nodes one by one: a group has the sum over its nodes. Higher-order attribution is the
    relevance of the walks within the group, which its nodes have together.

    Args:
        lower: group names and sums of node scores.
        higher: the same names and subgraph relevances.
        ax: where to draw, by default a new figure.

    >>> ax = order_bars({"C": 0.7, "NO2": 0.1}, {"C": 0.2, "NO2": 0.8})
    >>> len(ax.patches)
    4
    """
    if set(lower) != set(higher):
        raise InputError(
            argument="higher", expected=f"for the same groups as lower, {sorted(lower)}", got=sorted(higher)
        )
    style.numbers(list(lower.values()), "lower")
    style.numbers(list(higher.values()), "higher")
    ax = style.axes_for(ax, height=0.9 + 0.4 * len(lower))
    series = (("lower order: nodes", lower, "#e69f00", -0.2), ("higher order: walks", higher, "#009e73", 0.2))
    for name, values, colour, shift in series:
        heights = [float(values[group]) for group in lower]
        _draw_bars(ax, list(lower), heights, [colour] * len(lower), 0.38, shift=shift, name=name)
    ax.set_xlabel("relevance of the group", size=style.TEXT)
    tight = {"handlelength": 1.0, "columnspacing": 1.2, "handletextpad": 0.5}
    ax.legend(fontsize=style.SMALL, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, **tight)
    return ax


def mean_bars(
    means: Mapping[str, float],
    halves: Mapping[str, float],
    *,
    meaning: str = "mean relevance",
    ax: Axes | None = None,
) -> Axes:
    """Draw a bar per name, with the confidence interval of its mean, and return the axes.

    Args:
        means: names and means.
        halves: half the width of each interval; NaN where there is none.
        meaning: what the means are of.
        ax: where to draw, by default a new figure.

    >>> ax = mean_bars({"C": 0.2, "N": -0.1}, {"C": 0.05, "N": 0.02})
    >>> len(ax.patches), ax.get_xlabel()
    (2, 'mean relevance')
    """
    if set(means) != set(halves):
        raise InputError(
            argument="halves", expected=f"for the same names as means, {sorted(means)}", got=sorted(halves)
        )
    values = style.numbers(list(means.values()), "means")
    errors = np.nan_to_num(np.array([float(halves[name]) for name in means]))
    ax = style.axes_for(ax, height=0.9 + 0.24 * len(means))
    colours = [style.POSITIVE if value >= 0 else style.NEGATIVE for value in values]
    at = np.arange(len(values))
    ax.barh(at, values, height=0.7, color=colours)
    ax.errorbar(values, at, xerr=errors, fmt="none", ecolor=style.INK, elinewidth=1.1, capsize=2.5)
    _set_names(ax, list(means))
    ax.set_xlabel(meaning, size=style.TEXT)
    return ax


def _set_names(ax: Axes, labels: list[str]) -> None:
    """Names of lying bars on the left, the first on top, and a line at zero."""
    ax.set_yticks(np.arange(len(labels)), [textwrap.fill(label, 28) for label in labels], size=style.TEXT)
    ax.set_ylim(len(labels) - 0.45, -0.55)
    ax.axvline(0, color=style.INK, lw=0.8)
    ax.tick_params(axis="x", labelsize=style.SMALL)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)


def _bars(interactions: Interactions, max_bars: int) -> list[_Bar]:
    """The bars from top to bottom."""
    ranked = sorted(interactions.terms, key=lambda names: -abs(interactions.terms[names]))
    shown = sorted(ranked[:max_bars], key=len)  # a stable sort: by magnitude within an order
    bars = [_bar(" + ".join(names), interactions.terms[names], len(names)) for names in shown]
    hidden = ranked[max_bars:]
    if hidden:
        bars.append(_bar(f"{len(hidden)} smaller terms", sum(interactions.terms[names] for names in hidden), 0))
    if abs(interactions.remainder) > 1e-6 * (abs(interactions.union) or 1.0):
        bars.append(_bar("higher orders", interactions.remainder, 0))
    return [*bars, _Bar("all together", float(interactions.union), 0, style.GREY)]


def _bar(label: str, value: float, order: int) -> _Bar:
    return _Bar(label, float(value), order, style.POSITIVE if value >= 0 else style.NEGATIVE)


def _draw_bars(
    ax: Axes,
    labels: list[str],
    values: list[float],
    colours: list[str],
    height: float,
    *,
    shift: float = 0.0,
    name: str | None = None,
) -> None:
    """Lying bars from top to bottom, each with its number on the right: at its end, or at zero if it lies below."""
    at = np.arange(len(labels)) + shift
    ax.barh(at, values, height=height, color=colours, label=name)
    scale = max((abs(value) for value in values), default=0.0)
    look: dict[str, Any] = {"textcoords": "offset points", "size": style.SMALL, "color": style.INK, "va": "center"}
    for y, value in zip(at, values, strict=True):
        ax.annotate(style.short(value, signed=True, scale=scale), (max(value, 0.0), y), xytext=(3, 0), **look)
    _set_names(ax, labels)
    ax.set_xlim(*_reach(ax, values))


def _reach(ax: Axes, values: list[float]) -> tuple[float, float]:
    """From the lowest bar to a number's width beyond the highest, and what was shown before."""
    low, high = min(0.0, *values), max(0.0, *values)
    span = (high - low) or 1.0
    before = ax.get_xlim() if len(ax.containers) > 1 else (0.0, 0.0)
    return min(low - 0.04 * span, before[0]), max(high + 0.28 * span, before[1])
