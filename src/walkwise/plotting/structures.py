"""The common parts of graph drawings: links between nodes, a band around some nodes, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Ellipse, FancyArrowPatch
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from walkwise.plotting import _style as style
from walkwise.plotting._style import Bools, Floats, Ints

#: How wide the band around a node is, in diameters of the node.
_BAND = 1.75

#: Above this many nodes there is no room for a text in each.
_MOST_LABELS = 90


@dataclass(frozen=True, eq=False)
class Links:
    """Pairs of nodes that are joined, each once; what is drawn of edge_index."""

    pairs: Ints  # (P, 2)
    one_way: Bools  # (P,) an edge there in the direction of the pair only
    which: Ints  # (E,) the pair of every edge


def links_of(edges: Ints) -> Links:
    """The edges with both directions joined.

    >>> import numpy as np
    >>> found = links_of(np.array([[0, 1, 2], [1, 0, 1]]))
    >>> found.pairs.tolist(), found.one_way.tolist()
    ([[0, 1], [2, 1]], [False, True])
    """
    low_high, which = np.unique(np.sort(edges, axis=0).T, axis=0, return_inverse=True)  # (P, 2)
    which = which.reshape(-1)
    up = np.bincount(which, edges[0] <= edges[1], len(low_high)) > 0
    down = np.bincount(which, edges[0] >= edges[1], len(low_high)) > 0
    pairs = np.where((down & ~up)[:, None], low_high[:, ::-1], low_high)
    return Links(pairs, up != down, which)


def draw_frame(ax: Axes, places: Floats) -> float:
    """Makes room for the nodes on bare axes; the diameter of a node in points comes back."""
    near = usual_gap(places)
    across = float(np.ptp(places, axis=0).max()) if len(places) else 0.0
    style.bare(ax, places, margin=max(0.6 * near, 0.02 * across))
    share = min(style.size_in_points(ax)) / max(len(places), 1) ** 0.5
    return float(np.clip(0.64 * near * style.points_per_unit(ax), np.clip(0.35 * share, 2.2, 6), min(share, 20)))


def usual_gap(places: Floats) -> float:
    """How near most nodes have their nearest: large graphs crowd here and there."""
    if len(places) < 2:
        return 1.0
    some = np.linspace(0, len(places) - 1, min(len(places), 400)).astype(int)
    apart = np.hypot(*(places[some, None] - places[None, :]).transpose(2, 0, 1))
    apart[np.arange(len(some)), some] = np.inf
    return float(np.quantile(apart.min(1), 0.25)) or 1.0


def draw_links(ax: Axes, places: Floats, links: Links, diameter: float, heat: Floats | None = None) -> None:
    """Lines for edges, arrows for those in one direction, loops for those from a node to itself."""
    thin = float(np.clip(0.1 * diameter, 0.35, 1.4))
    most = 1.0 if heat is None else float(np.abs(heat).max(initial=0)) or 1.0
    share = np.zeros(len(links.pairs)) if heat is None else heat / most
    width = thin + np.abs(share) * min(0.28 * diameter, 4.5)
    paint = [style.FAINT if heat is None else _edge_colour(s) for s in share]
    loop = links.pairs[:, 0] == links.pairs[:, 1]
    plain = ~loop & ~links.one_way
    picked = [paint[i] for i in np.flatnonzero(plain)]
    ax.add_collection(
        LineCollection(list(places[links.pairs[plain]]), colors=picked, linewidths=width[plain], zorder=2)
    )
    for i in np.flatnonzero(~plain & ~loop):
        start, end = places[links.pairs[i]]
        arrow = FancyArrowPatch(start, end, arrowstyle="-|>", shrinkA=0, shrinkB=diameter / 2, zorder=2)
        arrow.set(color=paint[i], linewidth=width[i], mutation_scale=4 + 0.35 * diameter)
        ax.add_patch(arrow)
    for i in np.flatnonzero(loop):
        _loop(ax, places, int(links.pairs[i, 0]), diameter, color=paint[i], lw=width[i])


def _edge_colour(share: float) -> Any:
    """The colour of an edge: that of its score, but grey near zero, where white would not be seen."""
    return style.FAINT if abs(share) < 0.02 else style.COLOURS(0.5 + 0.2 * np.sign(share) + 0.3 * share)


def _loop(ax: Axes, places: Floats, node: int, diameter: float, **look: Any) -> None:
    """A ring that starts and ends at a node, on the side where the rest of the graph is not."""
    outward = places[node] - places.mean(0)
    length = float(np.hypot(*outward))
    direction = outward / length if length > 1e-9 else np.array([0.0, 1.0])
    radius = 0.5 * diameter / style.points_per_unit(ax)
    ring = Ellipse(tuple(places[node] + 1.5 * radius * direction), 1.9 * radius, 1.9 * radius, fill=False, zorder=2)
    ring.set(**look)
    ax.add_patch(ring)


def draw_band(ax: Axes, places: Floats, links: Links, chosen: Bools, diameter: float) -> None:
    """A light band with a dark edge around a node set and the edges within it.

    Discs and thick lines, first dark, then a little smaller and light: together they have one outline,
    however the set is shaped, and stay vectors.
    """
    if not chosen.any():
        return
    inside = links.pairs[chosen[links.pairs].all(1)]
    edge = float(np.clip(0.12 * diameter, 0.8, 1.6))
    wide = _BAND * diameter
    style.make_room(ax, places[chosen], (0.5 * wide + edge + 1) / style.points_per_unit(ax))
    for ring in small_rings(inside):  # no light between the sides of a small ring
        ax.fill(*places[ring].T, facecolor=style.BAND, linewidth=0, zorder=1.1)
    for colour, width, zorder in ((style.BAND_EDGE, wide + 2 * edge, 1.0), (style.BAND, wide, 1.1)):
        x, y = places[chosen].T
        ax.scatter(x, y, s=width**2, color=colour, linewidths=0, zorder=zorder)
        lines = LineCollection(list(places[inside]), colors=colour, linewidths=0.62 * wide + width - wide)
        lines.set(capstyle="round", zorder=zorder)
        ax.add_collection(lines)


def small_rings(pairs: Ints) -> list[list[int]]:
    """The rings of three and of four nodes among some edges, each once, nodes in order.

    >>> small_rings(np.array([[0, 1], [1, 2], [2, 0], [2, 3]]))
    [[0, 1, 2]]
    """
    near: dict[int, set[int]] = {}
    for u, v in pairs.tolist():
        if u != v:
            near.setdefault(u, set()).add(v)
            near.setdefault(v, set()).add(u)
    threes = [[u, v, w] for u in near for v in near[u] if u < v for w in near[u] & near[v] if v < w]
    fours = []
    for u in near:
        for w in near:
            if u < w and w not in near[u]:
                between = sorted(near[u] & near[w])
                fours += [[u, v, w, x] for i, v in enumerate(between) for x in between[i + 1 :] if x not in near[v]]
    return threes + [ring for ring in fours if ring[0] == min(ring)]


def draw_labels(
    ax: Axes,
    places: Floats,
    labels: Sequence[Any] | None,
    diameter: float,
    inks: Sequence[str],
    *,
    halo: bool = False,
    below: bool = False,
    banded: Bools | None = None,
) -> None:
    """A text in every node, or below it and its band, or above, where that is freer; with a halo, over all else."""
    if labels is not None and not len(labels):
        return
    texts = style.names_of(labels, len(places), "labels")
    longest = max(map(len, texts), default=1)
    size = style.SMALL if below else min(diameter * 0.85 / max(1.15, 0.62 * longest), 10.0)
    if len(places) > _MOST_LABELS or (labels is None and size < 4.2):
        return
    look: dict[str, Any] = {"size": max(size, 5.0), "ha": "center", "zorder": 7 if halo else 4}
    far = np.full(len(places), 0.62 * diameter)
    if banded is not None:
        far[banded] = 0.5 * _BAND * diameter + 3
    away = (far + size) / style.points_per_unit(ax)
    above = _room(places, away) > 1.3 * _room(places, -away)
    for (x, y), text, ink, up, points in zip(places, texts, inks, above, far.tolist(), strict=True):
        if below:
            side: dict[str, Any] = {"xytext": (0, points if up else -points), "va": "bottom" if up else "top"}
            written: Text = ax.annotate(text, (x, y), textcoords="offset points", color=style.INK, **look, **side)
        else:
            written = ax.text(x, y, text, color=ink, va="center_baseline", **look)
        if halo or below:
            written.set_path_effects([withStroke(linewidth=2, foreground="white")])


def _room(places: Floats, up: Floats) -> Floats:
    """How far the place above each node, by so much, is from the next node.  # (M,)"""
    there = places + np.stack([np.zeros_like(up), up], axis=1)
    apart = np.hypot(*(there[:, None] - places[None, :]).transpose(2, 0, 1))
    np.fill_diagonal(apart, np.inf)
    return np.asarray(apart.min(1, initial=np.inf), dtype=np.float64)
