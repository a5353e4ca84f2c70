"""The picture of figure 1: bars over atom types, and the molecule with its heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data

from walkwise.paper.units import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
    figure = Figure(figsize=(10.5, 7.4), layout="constrained")
    grid = figure.add_gridspec(3, 2 * len(terms), height_ratios=(1.5, 1.1, 0.55))
    lower, higher = figure.add_subplot(grid[0, : len(terms)]), figure.add_subplot(grid[0, len(terms) :])
    molecule_heatmap(molecule, [row["lower"] for row in atoms], ax=lower, meaning="relevance of atoms")
    heat = [row["heat_all"] / 2 for row in bonds for _ in range(2)]  # the two directions add up
    molecule_heatmap(
        molecule, [row["heat_all"] for row in atoms], heat, ax=higher, meaning="relevance of walks", subgraph=group
    )
    lower.set_title("lower order", color=_COLOURS["lower"], weight="bold")
    higher.set_title("higher order; band: nitro group and ring", color=_COLOURS["higher"], weight="bold")
    _bars(figure.add_subplot(grid[1, :]), terms)
    limit = max(abs(row[f"heat_{term['term']}"]) for row in atoms for term in terms)
    for i, term in enumerate(terms):
        ax = figure.add_subplot(grid[2, 2 * i : 2 * i + 2])
        scores = [row[f"heat_{term['term']}"] for row in atoms]
        molecule_heatmap(molecule, scores, ax=ax, limit=limit, bar=False)
        ax.set_anchor("N")
    return figure


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
    ax.set_xticks(range(len(terms)), [_spaced(row["term"]) for row in terms], size=11)
    ax.set_xlim(-0.5, len(terms) - 0.5)
    ax.margins(y=0.15)
    ax.axhline(0, color="#222222", lw=0.8)
    ax.set_ylabel("relevance")
    ax.set_xlabel("atom types; below, the walks that visit exactly these")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)


def _spaced(term: str) -> str:
    """Atom types as they are read: C, C + N, C + N + O."""
    return " + ".join(term)
