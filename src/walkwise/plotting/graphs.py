"""Graphs with their nodes, and edges, coloured by relevance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Ellipse, FancyArrowPatch
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from walkwise.core.node_types import NodeTypes
from walkwise.plotting import _style as style
from walkwise.plotting._style import Bools, Floats, Ints, Nodes, Numbers
from walkwise.plotting.layouts import part_that_matters, places_of
from walkwise.plotting.typed import (
    draw_nodes,
    edges_of_types,
    in_one_row,
    kinds_of,
    shape_legend,
    typed_labels,
    types_of_scores,
)

#: How wide the band around a node is, in diameters of the node.
_BAND = 1.75

#: Above this many nodes there is no room for a text in each.
_MOST_LABELS = 90

#: Above this many nodes, a graph without places of its own is drawn in part: nodes that matter, and what joins them.
_LARGE = 120


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


@dataclass(frozen=True, eq=False)
class _Drawn:
    """What is drawn: a value per node, or per edge."""

    scores: Floats  # (M,)
    edges: Ints  # (2, E)
    edge_scores: Floats | None  # (E,)
    chosen: Bools  # (M,)
    known: Bools  # (M,)
    labels: list[str] | None  # (M,), empty for none
    kinds: Ints | None  # (M,) which type each is, where there are several

    def part(self, kept: Ints) -> _Drawn:
        """The graph of some nodes, ascending, and the edges between them."""
        within = np.isin(self.edges, kept).all(0)
        heavy = None if self.edge_scores is None else self.edge_scores[within]
        called = list(map(str, range(len(self.scores)))) if self.labels is None else self.labels
        names = [called[i] for i in kept] if called else []
        edges = np.searchsorted(kept, self.edges[:, within])
        kinds = None if self.kinds is None else self.kinds[kept]
        return _Drawn(self.scores[kept], edges, heavy, self.chosen[kept], self.known[kept], names, kinds)


def graph_heatmap(
    node_scores: Numbers | Mapping[str, Numbers],
    edge_index: Numbers | Mapping[Any, Numbers],
    *,
    edge_scores: Numbers | Mapping[Any, Numbers] | None = None,
    subgraph: Nodes | Mapping[str, Sequence[int]] | None = None,
    truth: Nodes | Mapping[str, Sequence[int]] | None = None,
    positions: Numbers | None = None,
    labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    meaning: str = "relevance",
    limit: float | None = None,
    bar: bool = True,
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """The axes with a graph drawn on them, its nodes coloured by their scores.

    Orange is above zero, blue below, white zero; the scale is the same on both sides. A band encloses the
    subgraph, a heavy ring each node of the truth. Edges in one direction only have arrowheads. Of more than 120 nodes,
    unless positions are given, those that matter are drawn, with what joins them; a line says how many are not.

    A heterogeneous graph is given by type, as :func:`walkwise.node_relevance` and ``data.edge_index_dict`` have it:
    nodes of each type have a shape, which a legend names, and are called "user 0".

    Args:
        node_scores: a score per node, (M,), or {type: scores}.
        edge_index: the edges (2, E), or {(source type, relation, target type): edges}.
        edge_scores: a score per edge, (E,), which colours it and sets its width; two directions add up. Edges
            have a colour scale of their own, from zero to their largest magnitude.
        subgraph: nodes to enclose: ids, a boolean mask, or {type: ids}.
        truth: nodes to ring, such as a known motif.
        positions: where the nodes are, (M, 2); by default :func:`graph_layout`.
        labels: a text per node, or {type: texts}; by default its id. ``[]`` for none; large graphs have none in any
            case.
        meaning: what a score is, for the colour bar: ``'relevance for "house"'``.
        limit: the score at the ends of the colours, for panels that are compared; by default the largest.
        bar: whether to draw the colour bar.
        ax: where to draw, by default a new figure.
        seed: another layout of symmetric parts.

    >>> import torch
    >>> ax = graph_heatmap([0.5, -0.2, 0.1], torch.tensor([[0, 1], [1, 2]]), subgraph=[0, 1])
    >>> [text.get_text() for text in ax.texts]
    ['0', '1', '2']
    """
    types = types_of_scores(node_scores, edge_index)
    graph = _graph(node_scores, edge_index, edge_scores, subgraph, truth, labels, types)
    M, left = len(graph.scores), ""
    if positions is None and M > _LARGE:
        marked = graph.chosen | graph.known
        weight = np.abs(graph.scores) + np.where(marked, np.abs(graph.scores).max(initial=0) or 1.0, 0.0)
        kept = part_that_matters(weight, graph.edges, _LARGE)
        most = float(np.abs(np.delete(graph.scores, kept)).max(initial=0))
        small = f"of at most ±{style.short(most)}" if most else "of no relevance"
        left = f"{M - len(kept)} of {M} nodes, {small}, are not drawn"
        graph = graph.part(kept)
    places = places_of(positions, graph.edges, len(graph.scores), seed)
    ax = style.axes_for(ax)
    if types is not None:
        shape_legend(ax, list(types.counts))
    _draw(ax, graph, places, meaning, limit, bar=bar)
    if left:
        style.caption(ax, left, above=True)
    return ax


def _graph(
    node_scores: Any, edge_index: Any, edge_scores: Any, subgraph: Any, truth: Any, labels: Any, types: NodeTypes | None
) -> _Drawn:
    """What was given, checked; nodes of all types in one row."""
    kinds = None
    if types is not None:
        node_scores = in_one_row(node_scores, list(types.counts), "node_scores")
        edge_index = edges_of_types(edge_index, types)
        edge_scores = in_one_row(edge_scores, list(types.edge_counts), "edge_scores")
        subgraph, truth = types.numbers(subgraph), types.numbers(truth)
        labels = typed_labels(types) if labels is None else in_one_row(labels, list(types.counts), "labels")
        kinds = kinds_of(types)
    scores = style.numbers(node_scores, "node_scores")
    M = len(scores)
    edges = style.edges_of(edge_index, M)
    heavy = None if edge_scores is None else style.numbers(edge_scores, "edge_scores", edges.shape[1])
    chosen, known = style.node_mask(subgraph, M, "subgraph"), style.node_mask(truth, M, "truth")
    names = None if labels is None else style.names_of(labels, M, "labels") if len(labels) else []
    return _Drawn(scores, edges, heavy, chosen, known, names, kinds)


def _draw(ax: Axes, graph: _Drawn, places: Floats, meaning: str, limit: float | None, *, bar: bool) -> None:
    """Band, edges, nodes and labels, one above the other."""
    scores, chosen, known = graph.scores, graph.chosen, graph.known
    links = links_of(graph.edges)
    heat = None if graph.edge_scores is None else _per_link(graph.edge_scores, links)
    norm = style.symmetric(scores, limit)
    if bar:
        remarks = _remarks(heat, chosen.any(), known.any())
        words = style.meaning_of(meaning, float(scores.sum()), *remarks)
        style.colour_bar(ax, norm, words, blank=limit is None and not scores.any())
    diameter = draw_frame(ax, places)
    draw_band(ax, places, links, chosen, diameter)
    draw_links(ax, places, links, diameter, heat)
    ring = np.where(known, max(1.1, 0.13 * diameter), max(0.3, 0.05 * diameter))
    colours = style.COLOURS(norm(scores))
    outline = np.where(known, "black", style.GREY)
    draw_nodes(
        ax, places, diameter, graph.kinds, c=list(colours), edgecolors=list(outline), linewidths=list(ring), zorder=3
    )
    below = graph.kinds is not None and graph.labels is not None and max(map(len, graph.labels), default=0) > 3
    inks = [style.ink_on(colour) for colour in colours]
    draw_labels(ax, places, graph.labels, diameter, inks, below=below, banded=chosen)


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


def _per_link(edge_scores: Floats, links: Links) -> Floats:
    return np.bincount(links.which, edge_scores, len(links.pairs)).astype(np.float64)


def _remarks(heat: Floats | None, band: Any, ring: Any) -> list[str]:
    """What else is to be seen, in words."""
    ends = 0.0 if heat is None else float(np.abs(heat).max(initial=0))
    edges = f"edges: ±{style.short(ends)}" if heat is not None else ""
    return [", ".join(filter(None, [edges, "band: the subgraph" if band else "", "ring: the truth" if ring else ""]))]
