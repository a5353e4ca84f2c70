"""Graphs with their nodes, and edges, coloured by relevance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from walkwise.core.node_types import NodeTypes
from walkwise.plotting import _style as style
from walkwise.plotting import typed
from walkwise.plotting._style import Bools, Floats, Ints, Nodes, Numbers
from walkwise.plotting.layouts import part_that_matters, places_of
from walkwise.plotting.structures import Links, draw_band, draw_frame, draw_labels, draw_links, links_of

#: Above this many nodes, a graph without places of its own is drawn in part: nodes that matter, and what joins them.
_LARGE = 120


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
    """Draw a graph with its nodes coloured by their scores, and return the axes.

    Orange is above zero, blue below, white zero; the scale is the same on both sides. A band encloses the
    subgraph, a heavy ring each node of the truth. Edges in one direction only have arrowheads. If there are more than
    120 nodes and no positions are given, only the nodes that matter and the edges between them are drawn; a line says
    how many are left out. Give a heterogeneous graph by type, as :func:`walkwise.node_relevance` and
    ``data.edge_index_dict`` do: nodes of each type have a shape, which a legend names, and are labelled "user 0".

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
        meaning: what a score means, for the colour bar: ``'relevance for "house"'``.
        limit: the score at the ends of the colour scale, for panels to be compared; by default the largest.
        bar: whether to draw the colour bar.
        ax: where to draw, by default a new figure.
        seed: another seed lays out symmetric parts differently.

    >>> import torch
    >>> ax = graph_heatmap([0.5, -0.2, 0.1], torch.tensor([[0, 1], [1, 2]]), subgraph=[0, 1])
    >>> [text.get_text() for text in ax.texts]
    ['0', '1', '2']
    """
    types = typed.types_of_scores(node_scores, edge_index)
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
        typed.shape_legend(ax, types)
    _draw(ax, graph, places, meaning, limit, bar=bar)
    if left:
        style.caption(ax, left, above=True)
    return ax


def _graph(
    node_scores: Any, edge_index: Any, edge_scores: Any, subgraph: Any, truth: Any, labels: Any, types: NodeTypes | None
) -> _Drawn:
    """Check the arguments, and number the nodes of all types in one row."""
    kinds = None
    if types is not None:
        node_scores = typed.in_one_row(node_scores, list(types.counts), "node_scores")
        edge_index = typed.edges_of_types(edge_index, types)
        edge_scores = typed.in_one_row(edge_scores, list(types.edge_counts), "edge_scores")
        subgraph, truth = types.numbers(subgraph), types.numbers(truth)
        labels = typed.typed_labels(types, labels)
        kinds = typed.kinds_of(types)
    scores = style.numbers(node_scores, "node_scores")
    M = len(scores)
    edges = style.edges_of(edge_index, M, "node_scores")
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
    typed.draw_nodes(
        ax, places, diameter, graph.kinds, c=list(colours), edgecolors=list(outline), linewidths=list(ring), zorder=3
    )
    below = graph.kinds is not None and graph.labels is not None and max(map(len, graph.labels), default=0) > 3
    inks = [style.ink_on(colour) for colour in colours]
    draw_labels(ax, places, graph.labels, diameter, inks, below=below, banded=chosen)


def _per_link(edge_scores: Floats, links: Links) -> Floats:
    return np.bincount(links.which, edge_scores, len(links.pairs)).astype(np.float64)


def _remarks(heat: Floats | None, band: Any, ring: Any) -> list[str]:
    """What else is to be seen, in words."""
    ends = 0.0 if heat is None else float(np.abs(heat).max(initial=0))
    edges = f"edges: ±{style.short(ends)}" if heat is not None else ""
    return [", ".join(filter(None, [edges, "band: the subgraph" if band else "", "ring: the truth" if ring else ""]))]
