"""Walks drawn over the structure they go through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from torch import Tensor

from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError, described
from walkwise.plotting import _style as style
from walkwise.plotting import typed
from walkwise.plotting._style import Floats, Ints, Numbers
from walkwise.plotting.chemistry import skeleton_of
from walkwise.plotting.lanes import lines_of, narrowest, usual_step
from walkwise.plotting.layouts import places_of
from walkwise.plotting.molecules import MARGIN, draw_skeleton
from walkwise.plotting.structures import draw_frame, draw_labels, draw_links, links_of

#: Above this many walks a new figure is larger.
_CROWDED = 10

#: Walks that stay within such a share of the structure are looked at more closely.
_CLOSE = 0.75


def top_walks(
    walks: Tensor | Sequence[Sequence[Any]],
    relevances: Numbers,
    structure: Any = None,
    *,
    positions: Numbers | None = None,
    labels: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    k: int = 10,
    meaning: str = "relevance",
    ax: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw the k walks of largest |relevance| as arrows over their structure, and return the axes.

    A walk begins with a dot, at the input, and ends with an arrowhead, at the output. The more it matters, the wider
    and darker it is; orange speaks for the class, blue against. Steps along the same edge run in lanes side by side,
    each on the right in its direction; a walk that stays where it is makes a small loop outside. If the walks keep to a
    small part of the structure, only that part is shown. A line below says how many were left out.

    Args:
        walks: node ids (K, L + 1), -1 where a walk bypasses a position; of a heterogeneous graph also (type, i), and
            None, as in ``TopWalks.named``.
        relevances: the relevance of every walk, (K,).
        structure: the edges (2, E), a molecule as :func:`molecule_heatmap` takes it, or a HeteroData. With None, walks
            are drawn over what the axes show already, a heat map for instance: give its positions.
        positions: where the nodes are, (M, 2); by default :func:`graph_layout` or :func:`molecule_layout`.
        labels: a text per node of a graph, or {type: texts}, by default its id; ``[]`` for none.
        k: how many walks to draw at most.
        meaning: what the relevance of a walk means, for the caption.
        ax: where to draw, by default a new figure.
        seed: another layout of symmetric parts of a graph.

    >>> import torch
    >>> ax = top_walks([[0, 1, 2], [1, 1, -1]], [0.5, -0.1], torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> widths = [patch.get_linewidth() for patch in ax.patches]
    >>> len(widths), widths[0] > widths[1]
    (2, True)
    """
    values = style.numbers(relevances, "relevances")
    types = typed.types_of_structure(structure, walks)
    visits = visits_of(walks, len(values), types)
    if k < 1:
        raise InputError(argument="k", expected="the number of walks to draw, at least 1", got=k)
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    crowded = len(order) > _CROWDED
    ax = style.axes_for(ax, width=6.3, height=5.1) if crowded else style.axes_for(ax)
    if types is not None and structure is not None:
        places = _draw_types(ax, structure, types, positions, labels, seed)
    else:
        places = _draw_structure(ax, structure, positions, labels, visits, seed)
    if any(node >= len(places) for walk in visits for node in walk):
        last = max(map(max, filter(None, visits)))
        raise InputError(
            f"walks names nodes up to {last}, but positions has {len(places)}.",
            argument="walks",
            expected=f"node ids from 0 to {len(places) - 1}",
            got=last,
        )
    shown = [visits[i] for i in order]
    if structure is not None:
        _look_closer(ax, shown, places)
    draw_walks(ax, shown, values[order], places)
    style.caption(ax, _words(meaning, np.abs(values[order]), len(values)), above=structure is None)
    return ax


def _look_closer(ax: Axes, walks: Sequence[Sequence[int]], places: Floats) -> None:
    """Shows the part of the structure that the walks go through, where that is a small part of it."""
    visited = places[sorted({node for walk in walks for node in walk})]
    if not len(visited):
        return
    unit = usual_step(walks, places)
    low, high = visited.min(0) - 1.15 * unit, visited.max(0) + 1.15 * unit
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    if (high - low).max() < _CLOSE * max(right - left, top - bottom):
        ax.set_xlim(max(left, low[0]), min(right, high[0]))
        ax.set_ylim(max(bottom, low[1]), min(top, high[1]))
        for text in ax.texts:
            text.set_clip_on(True)
        _fade(ax, low[0] > left, high[0] < right, low[1] > bottom, high[1] < top)


def _fade(ax: Axes, left: bool, right: bool, bottom: bool, top: bool) -> None:
    """The structure grows pale towards the sides of the picture beyond which it goes on."""
    near = np.clip(1 - np.arange(64) / 10, 0, 1)  # 1 at a side, 0 a sixth of the way in
    across, along = (np.maximum(low * near, high * near[::-1]) for low, high in ((left, right), (bottom, top)))
    veil = np.ones((64, 64, 4))
    veil[..., 3] = np.maximum(across, along[:, None])
    x, y = ax.get_xlim(), ax.get_ylim()
    ax.imshow(veil, extent=(*x, *y), origin="lower", aspect=ax.get_aspect(), interpolation="bilinear", zorder=4)
    ax.set(xlim=x, ylim=y)
    for text in ax.texts:  # they stand above the veil
        at = np.array(getattr(text, "xy", text.get_position()))
        column, row = np.clip(64 * (at - (x[0], y[0])) / (x[1] - x[0], y[1] - y[0]), 0, 63).astype(int)
        text.set_alpha(1 - veil[row, column, 3])


def _words(meaning: str, drawn: Floats, count: int) -> str:
    """What is to be seen, and how many walks are not."""
    most = style.short(float(drawn.max(initial=0)))
    words = f"{meaning} of walks: orange for, blue against, widest ±{most}; dot: input, arrow: output"
    left = count - len(drawn)
    if not left:
        return words
    return f"{words}; {left} {'walk' if left == 1 else 'walks'} of at most ±{style.short(float(drawn.min()))} not drawn"


def draw_walks(ax: Axes, walks: Sequence[Sequence[int]], values: Floats, places: Floats) -> None:
    """One arrow per walk, the most relevant first and so undermost."""
    unit = usual_step(walks, places)
    most = float(np.abs(values).max(initial=0)) or 1.0
    lines = lines_of(walks, places)
    style.make_room(ax, np.concatenate([places[:0], *lines]), 0.1 * unit)
    widest = float(np.clip(0.6 * narrowest(walks, places) * unit * style.points_per_unit(ax), 0.6, 3.2))
    for i, (line, value) in enumerate(zip(lines, values, strict=True)):
        share = abs(float(value)) / most
        colour = paler(style.POSITIVE if value >= 0 else style.NEGATIVE, share)
        width, zorder = widest * (0.3 + 0.7 * share), 5 + i / (len(lines) + 1)
        ax.scatter(line[:1, 0], line[:1, 1], s=(2 * width + 1.2) ** 2, color=colour, linewidths=0, zorder=6.5)
        if len(line) > 1:
            path = Path(line, [Path.MOVETO, *[Path.CURVE4] * (len(line) - 1)])
            arrow = FancyArrowPatch(path=path, arrowstyle="-|>", zorder=zorder)
            arrow.set(linewidth=width, color=colour, mutation_scale=3.6 + 1.9 * width, capstyle="round")
            arrow.set_path_effects([withStroke(linewidth=1.5 * width, foreground="white")])
            ax.add_patch(arrow)


def paler(colour: str, share: float) -> tuple[float, float, float]:
    """A colour, the nearer to white the smaller the share."""
    full, keep = np.array(to_rgb(colour)), 0.4 + 0.6 * share
    red, green, blue = keep * full + (1 - keep)
    return float(red), float(green), float(blue)


def visits_of(walks: Any, count: int, types: NodeTypes | None = None) -> list[list[int]]:
    """The nodes that each walk visits, in order, checked."""
    return [[int(node) for node in walk if node >= 0] for walk in table_of(walks, count, types)]


def table_of(walks: Any, count: int, types: NodeTypes | None = None) -> Ints:
    """The walks as node ids, -1 where they pass a position by, checked.  # (K, L + 1)"""
    if types is not None and not isinstance(walks, Tensor):
        walks = [types.numbers(walk) for walk in walks]
    given: Ints = walks.cpu().numpy() if isinstance(walks, Tensor) else np.asarray(walks)
    if given.size == 0 and count == 0:
        return np.zeros((0, 1), dtype=np.int64)
    if given.ndim != 2 or given.dtype.kind not in "iu" or len(given) != count or given.min() < -1:
        expected = f"a row of node ids (-1 for none) for each of the {count} relevances"
        raise InputError(argument="walks", expected=expected, got=described(given))
    return given


def _draw_structure(
    ax: Axes,
    structure: Any,
    positions: Numbers | None,
    labels: Any,
    visits: list[list[int]],
    seed: int,
) -> Floats:
    """Draws what the walks go through, in grey; the places of its nodes come back.  # (M, 2)"""
    if structure is None:
        if positions is None:
            raise InputError(
                "Walks need something to be drawn on.",
                argument="structure",
                expected="a graph or a molecule, if positions are left out",
                remedy="Give the structure, or the positions of its nodes.",
            )
        return places_of(positions, np.zeros((2, 0), dtype=np.int64), len(np.asarray(positions)), seed)
    if not isinstance(structure, Tensor | np.ndarray | list | tuple):
        drawn = skeleton_of(structure)
        style.bare(ax, drawn.places, margin=MARGIN)
        draw_skeleton(ax, drawn, colour=style.GREY, top=7)
        return drawn.places
    ids = np.asarray(structure)
    M = max([0, *map(int, ids.reshape(-1) + 1), *(node + 1 for walk in visits for node in walk)])
    M = M if positions is None else len(np.asarray(positions))
    return _draw_graph(ax, style.edges_of(ids, M), M, positions, labels, seed)


def _draw_types(
    ax: Axes, structure: Any, types: NodeTypes, positions: Numbers | None, labels: Any, seed: int
) -> Floats:
    """Draws a heterogeneous graph, in grey; the places of its nodes come back.  # (M, 2)"""
    edges = typed.edges_of_types(structure if isinstance(structure, Mapping) else structure.edge_index_dict, types)
    texts = typed.typed_labels(types, labels)
    typed.shape_legend(ax, types)
    return _draw_graph(ax, edges, types.num_nodes, positions, texts, seed, typed.kinds_of(types))


def _draw_graph(
    ax: Axes,
    edges: Ints,
    num_nodes: int,
    positions: Numbers | None,
    labels: Sequence[Any] | None,
    seed: int,
    kinds: Ints | None = None,
) -> Floats:
    places = places_of(positions, edges, num_nodes, seed)
    diameter = draw_frame(ax, places)
    draw_links(ax, places, links_of(edges), diameter)
    typed.draw_nodes(ax, places, diameter, kinds, c="white", edgecolors=style.FAINT, linewidths=0.8, zorder=3)
    below = kinds is not None and max((len(str(text)) for text in labels or ()), default=0) > 3
    draw_labels(ax, places, labels, diameter, [style.INK] * num_nodes, halo=True, below=below)
    return places
