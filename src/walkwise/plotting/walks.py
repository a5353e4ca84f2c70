"""Walks drawn over the structure they go through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from torch import Tensor

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.plotting._style import Floats, Ints, Numbers
from walkwise.plotting.chemistry import skeleton_of
from walkwise.plotting.graphs import draw_frame, draw_labels, draw_links, links_of
from walkwise.plotting.layouts import places_of
from walkwise.plotting.molecules import MARGIN, draw_skeleton

# As shares of a usual step's length.
_OFF_NODE, _BOW, _LOOP = 0.09, 0.16, 0.3


def top_walks(
    walks: Tensor | Sequence[Sequence[int]],
    relevances: Numbers,
    structure: Any = None,
    *,
    positions: Numbers | None = None,
    labels: Sequence[Any] | None = None,
    k: int = 10,
    meaning: str = "relevance",
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """The axes with the k walks of largest |relevance| drawn as curved arrows over their structure.

    A walk begins with a dot, at the input, and ends with an arrowhead, at the output. The more it matters
    the wider it is; orange speaks for the class, blue against. Steps that are taken more than once bow
    to different sides, and a walk that stays where it is makes a loop.

    Args:
        walks: node ids (K, L + 1), -1 where a walk passes a position by.
        relevances: the relevance of every walk, (K,).
        structure: the edges (2, E), or a molecule as :func:`molecule_heatmap` takes it. With None, walks are drawn
            over what the axes show already, a heat map for instance: give its positions.
        positions: where the nodes are, (M, 2); by default :func:`graph_layout` or :func:`molecule_layout`.
        labels: a text per node of a graph, by default its id; ``[]`` for none.
        k: how many walks to draw.
        meaning: what the walks carry, for the caption.
        ax: where to draw, by default a new figure.
        seed: another layout of symmetric parts of a graph.

    >>> import torch
    >>> ax = top_walks([[0, 1, 2], [1, 1, -1]], [0.5, -0.1], torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> widths = [patch.get_linewidth() for patch in ax.patches]
    >>> len(widths), widths[0] > widths[1]
    (2, True)
    """
    values = style.numbers(relevances, "relevances")
    visits = visits_of(walks, len(values))
    if k < 1:
        raise InputError(f"k is the number of walks to draw, at least 1; got {k}.")
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    ax = style.axes_for(ax)
    places = _draw_structure(ax, structure, positions, labels, visits, seed)
    if any(node >= len(places) for walk in visits for node in walk):
        raise InputError(f"walks name nodes up to {max(map(max, filter(None, visits)))}; positions has {len(places)}.")
    draw_walks(ax, [visits[i] for i in order], values[order], places)
    most = style.short(float(np.abs(values).max(initial=0)))
    words = f"{meaning} of walks: orange for, blue against, widest ±{most}; dot: input, arrow: output"
    style.caption(ax, words, above=structure is None)
    return ax


def draw_walks(ax: Axes, walks: Sequence[Sequence[int]], values: Floats, places: Floats) -> None:
    """One arrow per walk, the most relevant first and so undermost."""
    unit = _usual_step(walks, places)
    most = float(np.abs(values).max(initial=0)) or 1.0
    paths = list(_paths(walks, places, unit))
    lanes = max(Counter(frozenset(step) for walk in walks for step in _steps(walk)).values(), default=1)
    widest = float(np.clip(0.5 * _lane(lanes) * unit * style.points_per_unit(ax), 0.9, 3.2))
    for i, (vertices, value) in enumerate(zip(paths, values, strict=True)):
        colour = style.POSITIVE if value >= 0 else style.NEGATIVE
        width, zorder = widest * (0.3 + 0.7 * abs(value) / most), 5 + i / (len(paths) + 1)
        ax.scatter(vertices[:1, 0], vertices[:1, 1], s=(2 * width + 1.5) ** 2, color=colour, linewidths=0, zorder=6.5)
        if len(vertices) > 1:
            path = Path(vertices, [Path.MOVETO, *[Path.CURVE4] * (len(vertices) - 1)])
            _make_room(ax, path, 0.1 * unit)
            arrow = FancyArrowPatch(path=path, arrowstyle="-|>", zorder=zorder, fill=False)
            arrow.set(linewidth=width, color=colour, mutation_scale=4.5 + 2.2 * width, capstyle="round")
            arrow.set_path_effects([withStroke(linewidth=width + 0.9, foreground="white")])
            ax.add_patch(arrow)


def _make_room(ax: Axes, path: Path, margin: float) -> None:
    """Widens the axes where a curve would leave them."""
    box, (left, right), (low, high) = path.get_extents(), ax.get_xlim(), ax.get_ylim()
    ax.set_xlim(min(left, box.x0 - margin), max(right, box.x1 + margin))
    ax.set_ylim(min(low, box.y0 - margin), max(high, box.y1 + margin))


def visits_of(walks: Any, count: int) -> list[list[int]]:
    """The nodes that each walk visits, in order, checked."""
    given: Ints = walks.cpu().numpy() if isinstance(walks, Tensor) else np.asarray(walks)
    if given.size == 0 and count == 0:
        return []
    if given.ndim != 2 or given.dtype.kind not in "iu" or len(given) != count or given.min() < -1:
        raise InputError(
            f"walks has a row of node ids (-1 for none) for each of the {count} relevances; got {given.dtype} "
            f"{given.shape}."
        )
    return [[int(node) for node in walk if node >= 0] for walk in given]


def _draw_structure(
    ax: Axes,
    structure: Any,
    positions: Numbers | None,
    labels: Sequence[Any] | None,
    visits: list[list[int]],
    seed: int,
) -> Floats:
    """Draws what the walks go through, in grey; the places of its nodes come back.  # (M, 2)"""
    if structure is None:
        if positions is None:
            raise InputError("Walks need a place to go: give the structure, or the positions of its nodes.")
        return places_of(positions, np.zeros((2, 0), dtype=np.int64), len(np.asarray(positions)), seed)
    if not isinstance(structure, Tensor | np.ndarray | list | tuple):
        drawn = skeleton_of(structure)
        style.bare(ax, drawn.places, margin=MARGIN)
        draw_skeleton(ax, drawn, colour=style.GREY, top=7)
        return drawn.places
    ids = np.asarray(structure)
    M = max([0, *map(int, ids.reshape(-1) + 1), *(node + 1 for walk in visits for node in walk)])
    M = M if positions is None else len(np.asarray(positions))
    edges = style.edges_of(ids, M)
    places = places_of(positions, edges, M, seed)
    diameter = draw_frame(ax, places)
    draw_links(ax, places, links_of(edges), diameter)
    ax.scatter(places[:, 0], places[:, 1], s=diameter**2, c="white", edgecolors=style.FAINT, linewidths=0.8, zorder=3)
    draw_labels(ax, places, labels, diameter, [style.INK] * M, halo=True)
    return places


def _usual_step(walks: Sequence[Sequence[int]], places: Floats) -> float:
    lengths = [float(np.hypot(*(places[b] - places[a]))) for walk in walks for a, b in _steps(walk) if a != b]
    return float(np.median(lengths)) if lengths else 1.0


def _steps(walk: Sequence[int]) -> Iterator[tuple[int, int]]:
    return pairwise(walk)


def _paths(walks: Sequence[Sequence[int]], places: Floats, unit: float) -> Iterator[Floats]:
    """The vertices of every walk: its first place, then three per step, as cubic curves have them."""
    uses = Counter(frozenset(step) for walk in walks for step in _steps(walk))
    used: Counter[frozenset[int]] = Counter()
    for i, walk in enumerate(walks):
        turn = 2 * np.pi * i / len(walks)
        off = _OFF_NODE * unit * (len(walks) > 1) * np.array([np.cos(turn), np.sin(turn)])
        vertices = [places[node] + off for node in walk[:1]]
        for a, b in _steps(walk):
            pair = frozenset((a, b))
            lane = used[pair] - (uses[pair] - 1) / 2 if a != b else float(used[pair])
            used[pair] += 1
            start, end = places[a] + off, places[b] + off
            vertices += _loop(a, start, lane, places, unit) if a == b else _bow(a < b, start, end, lane, uses[pair])
        yield np.array(vertices).reshape(-1, 2)


def _bow(forth: bool, start: Floats, end: Floats, lane: float, lanes: int) -> list[Floats]:
    """A step that bows aside by its lane; the sides are the same in both directions."""
    along = end - start
    across = np.array([-along[1], along[0]]) * (1 if forth else -1)
    aside = across * (lane * _lane(lanes) or 0.06) * 4 / 3
    return [start + 0.25 * along + aside, end - 0.25 * along + aside, end]


def _lane(lanes: int) -> float:
    """How far apart lanes are, as a share of a step's length."""
    return min(_BOW, 0.9 / lanes)


def _loop(node: int, start: Floats, lane: float, places: Floats, unit: float) -> list[Floats]:
    """A step from a node to itself: a loop away from the nodes around, larger each time."""
    apart = places - places[node]
    near = np.hypot(*apart.T)
    around = apart[(near > 0) & (near < 1.6 * unit)]
    outward = -around.mean(0) if len(around) else np.array([0.0, 1.0])
    length = float(np.hypot(*outward))
    direction = outward / length if length > 1e-3 * unit else np.array([0.0, 1.0])
    reach = unit * (_LOOP + 0.12 * lane) * 4 / 3
    side = np.array([-direction[1], direction[0]])
    return [start + reach * (direction + 0.75 * side), start + reach * (direction - 0.75 * side), start]
