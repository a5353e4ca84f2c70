"""Molecules with real bond orders, atoms and bonds coloured by relevance. Needs RDKit."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke

from walkwise.plotting import _style as style
from walkwise.plotting._style import Bools, Floats, Nodes, Numbers
from walkwise.plotting.chemistry import Skeleton, as_molecule, bond_numbers, skeleton_of
from walkwise.plotting.structures import small_rings

# Lengths in ångström, as bonds are: about 1.5 long.
_DISC, _GLOW, _BOND_HEAT, _GAP = 0.46, 0.66, 0.42, 0.2
_BAND = 0.86
MARGIN = 1.0


def molecule_heatmap(
    molecule: Any,
    atom_scores: Numbers,
    bond_scores: Numbers | None = None,
    *,
    edge_index: Numbers | None = None,
    subgraph: Nodes | None = None,
    truth: Nodes | None = None,
    meaning: str = "relevance",
    limit: float | None = None,
    bar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw a molecule with heat on its atoms and bonds, and return the axes.

    Double and triple bonds are two and three lines, aromatic ones have a dashed second line. Carbons have no letter;
    other atoms are written with their hydrogens, OH and NH₂. Needs RDKit (extra ``chem``).

    Args:
        molecule: an RDKit molecule, a SMILES string, or a PyG ``Data`` with ``smiles`` (as PyG's ``from_smiles``
            makes them), or with ``symbols``, ``edge_index`` and perhaps ``edge_attr``: see :func:`molecule_from_data`.
        atom_scores: a score per atom, (M,), in the molecule's order.
        bond_scores: a score per bond in the molecule's order, or per edge of ``edge_index``, (E,), where two
            directions add up and self-loops are not drawn. Bonds have a colour scale of their own.
        edge_index: the edges to which the entries of ``bond_scores`` belong, (2, E); by default those of a ``Data``.
        subgraph: atoms to enclose, ids or a boolean mask.
        truth: atoms to ring.
        meaning: what a score is, for the colour bar.
        limit: the score at the ends of the colours; by default the largest.
        bar: whether to draw the colour bar.
        ax: where to draw, by default a new figure.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> ax = molecule_heatmap("CC(=O)O", [0.1, 0.3, -0.2, 0.5], subgraph=[1, 2, 3])
    >>> [text.get_text() for text in ax.texts]
    ['O', 'OH']
    """
    drawn = skeleton_of(molecule)
    M = len(drawn.symbols)
    scores = style.numbers(atom_scores, "atom_scores", M)
    chosen, known = style.node_mask(subgraph, M, "subgraph"), style.node_mask(truth, M, "truth")
    edges = getattr(molecule, "edge_index", None) if edge_index is None else edge_index
    heat = None if bond_scores is None else bond_numbers(drawn, bond_scores, edges)
    ax = style.axes_for(ax)
    norm = style.symmetric(scores, limit)
    if bar:
        words = style.meaning_of(meaning, float(scores.sum()), _remarks(heat, chosen, known))
        style.colour_bar(ax, norm, words, blank=limit is None and not scores.any())
    style.bare(ax, drawn.places, margin=MARGIN)
    _draw_band(ax, drawn, chosen)
    if heat is not None:
        _draw_bond_heat(ax, drawn, heat)
    _draw_atom_heat(ax, drawn.places[scores != 0], scores[scores != 0], norm)
    _draw_rings(ax, drawn.places[known])
    draw_skeleton(ax, drawn)
    return ax


def molecule_svg(
    molecule: Any,
    atom_scores: Numbers,
    bond_scores: Numbers | None = None,
    *,
    edge_index: Numbers | None = None,
    limit: float | None = None,
    size: tuple[int, int] = (420, 300),
) -> str:
    """Draw a molecule with RDKit, its atoms and bonds coloured by their scores, and return SVG text.

    Args:
        molecule: as for :func:`molecule_heatmap`.
        atom_scores: a score per atom, (M,), in the molecule's order.
        bond_scores: a score per bond, or per edge of ``edge_index``, (E,), with a colour scale of their own.
        edge_index: the edges to which the entries of ``bond_scores`` belong, (2, E); by default those of a ``Data``.
        limit: the score at the ends of the colours; by default the largest.
        size: the width and the height of the picture, in pixels.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> molecule_svg("CC(=O)O", [0.1, 0.3, -0.2, 0.5]).strip().endswith("</svg>")
    True
    """
    drawer = import_module("rdkit.Chem.Draw.rdMolDraw2D")
    drawn, mol = skeleton_of(molecule), as_molecule(molecule)
    scores = style.numbers(atom_scores, "atom_scores", len(drawn.symbols))
    edges = getattr(molecule, "edge_index", None) if edge_index is None else edge_index
    heat = np.zeros(len(drawn.bonds)) if bond_scores is None else bond_numbers(drawn, bond_scores, edges)
    atoms = [tuple(map(float, colour[:3])) for colour in style.COLOURS(style.symmetric(scores, limit)(scores))]
    bonds = [tuple(map(float, colour[:3])) for colour in style.COLOURS(style.symmetric(heat)(heat))]
    canvas = drawer.MolDraw2DSVG(*size)
    canvas.drawOptions().useBWAtomPalette()
    drawer.PrepareAndDrawMolecule(
        canvas,
        mol,
        highlightAtoms=list(range(len(atoms))),
        highlightAtomColors=dict(enumerate(atoms)),
        highlightBonds=list(range(len(bonds))) if bond_scores is not None else [],
        highlightBondColors=dict(enumerate(bonds)),
    )
    canvas.FinishDrawing()
    text: str = canvas.GetDrawingText()
    return text


def draw_skeleton(ax: Axes, drawn: Skeleton, *, colour: str = style.INK, top: float = 4) -> None:
    """Bonds and letters, on axes that show the molecule already."""
    scale = style.points_per_unit(ax)
    width = float(np.clip(0.055 * scale, 0.7, 1.8))
    solid, dashed = _bond_lines(drawn)
    ax.add_collection(LineCollection(solid, colors=colour, linewidths=width, capstyle="round", zorder=3))
    dashes = LineCollection(dashed, colors=colour, linewidths=width, linestyles=(0, (2.2, 1.6)), zorder=3)
    ax.add_collection(dashes)
    size = float(np.clip(0.5 * scale, 5.5, 13))
    halo = [withStroke(linewidth=0.28 * size, foreground="white")]
    look: dict[str, Any] = {"size": size, "color": colour, "va": "center_baseline", "zorder": top}
    for place, text, symbol in zip(drawn.places, drawn.letters, drawn.symbols, strict=True):
        if text:
            side, shift = _aside(text, symbol)
            move: dict[str, Any] = {"xytext": (shift * size, 0), "textcoords": "offset points", "ha": side}
            ax.annotate(text, (float(place[0]), float(place[1])), path_effects=halo, **move, **look)


def _aside(text: str, symbol: str) -> tuple[str, float]:
    """How to set a text so that its symbol stands at the atom: to which side, and how far, as a share of the size."""
    if text == symbol:
        return "center", 0.0
    half = 0.39 if len(symbol) == 1 else 0.55
    return ("right", half) if text.startswith("H") and symbol != "H" else ("left", -half)


def _bond_lines(drawn: Skeleton) -> tuple[list[Floats], list[Floats]]:
    """The solid and the dashed lines that stand for the bonds, each (2, 2)."""
    solid: list[Floats] = []
    dashed: list[Floats] = []
    for i, (pair, order) in enumerate(zip(drawn.bonds, drawn.orders, strict=True)):
        ends, normal = _shortened(drawn, pair), drawn.side(i)
        if order == 2 and not drawn.in_ring[i]:
            solid += [ends + _GAP / 2 * normal, ends - _GAP / 2 * normal]
            continue
        solid.append(ends)
        inner = _inset(ends + _GAP * normal)
        if order == 1.5:
            dashed.append(inner)
        elif order == 2:
            solid.append(inner)
        elif order == 3:
            solid += [inner, _inset(ends - _GAP * normal)]
    return solid, dashed


def _shortened(drawn: Skeleton, pair: Sequence[int]) -> Floats:
    """The ends of a bond, drawn back where a letter stands.  # (2, 2)"""
    ends = drawn.places[list(pair)].copy()
    along = ends[1] - ends[0]
    along /= max(float(np.hypot(*along)), 1e-9)
    for end, sign in ((0, 1), (1, -1)):
        if drawn.letters[pair[end]]:
            ends[end] += sign * 0.36 * along
    return ends


def _inset(ends: Floats) -> Floats:
    """The same line a little shorter, as second lines in rings are."""
    middle = ends.mean(0)
    result: Floats = middle + 0.76 * (ends - middle)
    return result


def _draw_band(ax: Axes, drawn: Skeleton, chosen: Bools) -> None:
    """A light band with a dark edge around some atoms and the bonds between them, in the molecule's own lengths."""
    inside = [pair for pair in drawn.bonds if chosen[list(pair)].all()]
    edge = 1.1 / style.points_per_unit(ax)
    style.make_room(ax, drawn.places[chosen], _BAND + 2 * edge)
    for ring in small_rings(np.array(inside, dtype=np.int64).reshape(-1, 2)):  # no light between its sides
        ax.fill(*drawn.places[ring].T, facecolor=style.BAND, linewidth=0, zorder=0.6)
    for colour, more, zorder in ((style.BAND_EDGE, edge, 0.5), (style.BAND, 0.0, 0.6)):
        shapes = [Circle(tuple(place), _BAND + more) for place in drawn.places[chosen]]
        ax.add_collection(PatchCollection(shapes, facecolor=colour, linewidths=0, zorder=zorder))
        _draw_strips(ax, drawn.places, inside, 2 * (0.8 * _BAND + more), [colour] * len(inside), zorder)


def _draw_strips(
    ax: Axes, places: Floats, pairs: Sequence[Sequence[int]], width: float, colours: Sequence[Any], zorder: float
) -> None:
    """A rectangle of some width along every pair."""
    corners = []
    for pair in pairs:
        a, b = places[list(pair)]
        across = np.array([a[1] - b[1], b[0] - a[0]])
        across *= width / 2 / max(float(np.hypot(*across)), 1e-9)
        corners.append(np.array([a + across, b + across, b - across, a - across]))
    for corner, colour in zip(corners, colours, strict=True):
        ax.fill(*corner.T, facecolor=colour, linewidth=0, zorder=zorder)


def _draw_bond_heat(ax: Axes, drawn: Skeleton, heat: Floats) -> None:
    colours = style.COLOURS(style.symmetric(heat)(heat))
    _draw_strips(ax, drawn.places, drawn.bonds, _BOND_HEAT, list(colours), 1)


def _draw_atom_heat(ax: Axes, places: Floats, scores: Floats, norm: Any) -> None:
    """A disc per atom with a fainter one around it."""
    colours = style.COLOURS(norm(scores))  # (M, 4)
    faint = colours.copy()
    faint[:, 3] = 0.45 * np.minimum(1, 4 * np.abs(norm(scores) - 0.5))  # zero does not glow
    for radius, paint, zorder in ((_GLOW, faint, 0.9), (_DISC, colours, 2)):
        discs = PatchCollection([Circle(tuple(place), radius) for place in places], linewidths=0, zorder=zorder)
        discs.set_facecolor(list(paint))
        ax.add_collection(discs)


def _draw_rings(ax: Axes, places: Floats) -> None:
    rings = PatchCollection([Circle(tuple(place), _GLOW) for place in places], zorder=2.5)
    rings.set(facecolor="none", edgecolor="black", linewidths=1.4)
    ax.add_collection(rings)


def _remarks(heat: Floats | None, chosen: Bools, known: Bools) -> str:
    bonds = "" if heat is None else f"bonds: ±{style.short(float(np.abs(heat).max(initial=0)))}"
    shapes = ["band: the subgraph" if chosen.any() else "", "ring: the truth" if known.any() else ""]
    return ", ".join(filter(None, [bonds, *shapes]))
