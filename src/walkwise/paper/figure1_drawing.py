"""The picture of figure 1: bars over atom types, and the molecule with its heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Data

from walkwise.paper.units import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

#: Lower order orange, higher order green, as in the paper.
_COLOURS = {"lower": "#e69f00", "higher": "#009e73"}


def draw(rows: Sequence[Row]) -> Figure:
    """The whole molecule by both orders above; below, bars over atom types and each set's own walks on the molecule."""
    from matplotlib.figure import Figure

    from walkwise.plotting import molecule_heatmap

    terms = [row for row in rows if row["kind"] == "term"]
    atoms = [row for row in rows if row["kind"] == "atom"]
    bonds = [row for row in rows if row["kind"] == "bond"]
    molecule, group = _molecule(atoms, bonds), [row["atom"] for row in atoms if row["group"]]
    figure = Figure(figsize=(10.5, 9.6), layout="constrained")
    columns = len(terms) // 2 + 1  # in two lines, with room for the colours' meaning
    grid = figure.add_gridspec(4, 2 * columns, height_ratios=(1.5, 1.1, 0.85, 0.85))
    lower, higher = figure.add_subplot(grid[0, :columns]), figure.add_subplot(grid[0, columns:])
    molecule_heatmap(molecule, [row["lower"] for row in atoms], ax=lower, meaning="relevance of atoms")
    heat = [row["heat_all"] / 2 for row in bonds for _ in range(2)]  # the two directions add up
    molecule_heatmap(
        molecule, [row["heat_all"] for row in atoms], heat, ax=higher, meaning="relevance of walks", subgraph=group
    )
    lower.set_title("lower order", color=_COLOURS["lower"], weight="bold")
    higher.set_title("higher order; band: nitro group and ring", color=_COLOURS["higher"], weight="bold")
    _bars(figure.add_subplot(grid[1, :]), terms)
    cells = [grid[2 + i // columns, 2 * (i % columns) : 2 * (i % columns) + 2] for i in range(len(terms) + 1)]
    _small(molecule, atoms, terms, [figure.add_subplot(cell) for cell in cells])
    return figure


def _small(molecule: Data, atoms: Sequence[Row], terms: Sequence[Row], axes: Sequence[Axes]) -> None:
    """A small molecule for each set of atom types, coloured by its walks alone, on one scale; then what it is."""
    from walkwise.plotting import molecule_heatmap
    from walkwise.plotting._style import symmetric

    heats = [[row[f"heat_{term['term']}"] for row in atoms] for term in terms]
    norm = symmetric(np.array(heats))
    for term, heat, ax in zip(terms, heats, axes, strict=False):
        molecule_heatmap(molecule, heat, ax=ax, limit=norm.vmax, bar=False)
        ax.set_title(_spaced(term["term"]), size=11, color=_COLOURS["higher"], weight="bold", pad=1)
    _scale(axes[-1], norm)


def _scale(ax: Axes, norm: Normalize) -> None:
    """What the colours of the small molecules mean, in the middle of a cell of its own."""
    from matplotlib.cm import ScalarMappable

    from walkwise.plotting._style import COLOURS, short

    ax.axis("off")
    bar = ax.figure.colorbar(ScalarMappable(norm, COLOURS), cax=ax.inset_axes((0.1, 0.55, 0.8, 0.08)), location="top")
    ends = [float(norm.vmin or 0), 0.0, float(norm.vmax or 0)]
    bar.set_ticks(ends, labels=[short(end, signed=True) for end in ends])
    bar.ax.tick_params(labelsize=9, length=2)
    bar.outline.set_linewidth(0.4)
    words = "relevance of the walks that\nvisit exactly these types;\nthe same scale for all"
    ax.text(0.5, 0.48, words, size=9, ha="center", va="top", transform=ax.transAxes)


def _molecule(atoms: Sequence[Row], bonds: Sequence[Row]) -> Data:
    """The molecule as the plots take it: every bond both ways, orders counted from 0."""
    pairs = [pair for row in bonds for pair in ((row["source"], row["target"]), (row["target"], row["source"]))]
    orders = torch.tensor([int(row["order"]) - 1 for row in bonds]).repeat_interleave(2)
    symbols: Any = [row["symbol"] for row in atoms]
    edge_attr = torch.nn.functional.one_hot(orders, 3).float()
    return Data(x=torch.ones(len(atoms), 1), edge_index=torch.tensor(pairs).t(), edge_attr=edge_attr, symbols=symbols)


def _bars(ax: Axes, terms: Sequence[Row]) -> None:
    for shift, name, title in (
        (-0.2, "lower", "lower order: single atoms"),
        (0.2, "higher", "higher order: walks that visit exactly these types"),
    ):
        heights = [row[name] for row in terms]
        bars = ax.bar([i + shift for i in range(len(terms))], heights, 0.38, color=_COLOURS[name], label=title)
        ax.bar_label(bars, [f"{height:.2f}" for height in heights], padding=2, size=9)
    ax.set_xticks(range(len(terms)), [_spaced(row["term"]) for row in terms], size=12)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.5, len(terms) - 0.5)
    ax.margins(y=0.15)
    ax.axhline(0, color="#222222", lw=0.8)
    ax.set_ylabel("relevance")
    ax.set_xlabel("atom types")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)


def _spaced(term: str) -> str:
    """Atom types as they are read: C, C + N, C + N + O."""
    return " + ".join(term)
