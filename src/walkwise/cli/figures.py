"""The demo's figures, each with its alternative text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from walkwise import plotting
from walkwise.cli.showcase import Molecule, Motif
from walkwise.files import write_whole
from walkwise.questions.groups import Interactions
from walkwise.questions.marginals import edge_relevance, node_relevance


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, its name, and what it shows, in words."""

    name: str
    figure: Figure
    alt: str
    caption: str
    width: str = "half"  # of a wide page: "half" or "third"

    def save(self, folder: Path) -> tuple[bytes, list[Path]]:
        """Writes NAME.svg and NAME.png; the SVG comes back too."""
        paths = [folder / f"{self.name}.{ending}" for ending in ("svg", "png")]
        buffer = BytesIO()
        self.figure.savefig(buffer, format="svg", metadata={"Date": None})
        self.figure.set_layout_engine("none")  # everything has found its place
        write_whole(paths[0], buffer.getvalue())
        pixels = BytesIO()
        self.figure.savefig(pixels, format="png", dpi=200)
        write_whole(paths[1], pixels.getvalue())
        return buffer.getvalue(), paths


def overview(molecule: Molecule) -> Picture:
    """One group in two places, and what walks show that a heat map cannot; as in the README."""
    figure = Figure(figsize=(8.4, 3.5), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[1.35, 1])  # apart, so that the colour bar does not squeeze both
    left, right = parts
    axes = left.subplots()
    _draw_molecule(axes, molecule)
    places = plotting.molecule_layout(molecule.traced.data)
    for name, atoms in list(molecule.groups.items())[:2]:
        share = sum(value for names, value in molecule.terms.terms.items() if name in names)
        words = f"{_written(name)}\n{share:+.2f}"
        away = np.sign(places[atoms].mean(0)[0] - places.mean(0)[0])
        axes.annotate(
            words,
            (float(places[atoms, 0].mean()), float(places[atoms, 1].min() - 0.75)),
            ha="center",
            va="top",
            size=9,
            weight="bold" if share > 1 else "normal",
            xytext=(6 * away, 0),
            textcoords="offset points",
        )
    axes.set_ylim(axes.get_ylim()[0] - 1.2, axes.get_ylim()[1])
    left.suptitle("The same group in two places: hot on the ring, pale on the chain", size=9.5)
    plotting.interaction_bars(_renamed(molecule.terms), max_bars=5, ax=right.subplots())
    right.suptitle("What counts alone, and what counts only together", size=9.5)
    return Picture("overview", figure, "", "")


def _renamed(terms: Interactions) -> Interactions:
    """The same terms, groups called as people write them."""
    renamed = {tuple(map(_written, names)): value for names, value in terms.terms.items()}
    return Interactions(tuple(map(_written, terms.groups)), renamed, terms.union)


def _written(group: str) -> str:
    """The name of a group as people write it.

    >>> _written("NO2_on_ring")
    'NO₂ on ring'
    """
    return group.replace("_", " ").replace("2", "₂")


def of_motifs(motifs: Sequence[Motif], shown: Motif) -> list[Picture]:
    """The figures of the graphs; one graph in detail, three of each class in small."""
    name = _class(shown)
    hits = f"{shown.hits} of its {len(shown.truth)} nodes"
    return [
        Picture(
            "graph",
            _single(_draw_heat, shown, height=3.7),
            f"A graph, its nodes coloured by relevance; the {name} is ringed, and the most relevant connected set is "
            f"in a band, with {hits}.",
            f"Nodes by relevance. Rings: the {name}. Band: the most relevant connected set of that size.",
        ),
        Picture(
            "alpha",
            _single(_draw_discounts, shown, height=3.7),
            f"Curves of relevance against α, from 0 to 1: the {name}, and a set that does not touch it; a grey area "
            "for random sets.",
            f"The relevance of the {name}, and of other sets, for every α.",
        ),
        Picture(
            "walks",
            _single(_draw_walks, shown, height=4.6),
            f"The same graph in grey with its {len(shown.walks.walks)} most relevant walks as arrows.",
            "The most relevant walks. Each begins with a dot, at the input, and ends with an arrowhead, at the output.",
        ),
        Picture(
            "motifs",
            _grid(motifs),
            "Six small graphs, three with a cycle and three with a house: the motif ringed, what was found in a band.",
            "What was found (band) and the truth (rings), in the first three graphs of each class.",
        ),
    ]


def of_molecules(molecules: Sequence[Molecule]) -> list[Picture]:
    """The figures of the molecules."""
    drawn = [(one, Figure(figsize=(3.3, 3.1), layout="constrained")) for one in molecules[:3]]
    _same_scale([_draw_molecule(figure.subplots(), one) for one, figure in drawn])
    for one, figure in drawn:
        figure.suptitle(f"{one.name}: {one.check.whole.says}", size=9)
    heat = [
        Picture(
            one.name,
            figure,
            f"The structural formula of {one.name}, its atoms and bonds coloured by relevance for “mutagenic”.",
            f"{one.name}: the model says {one.check.whole.says}. Orange speaks for “mutagenic”, blue against.",
            width="third",
        )
        for one, figure in drawn
    ]
    two = next(one for one in molecules if len(one.groups) > 2)
    moved = ", ".join(f"{m.name} {m.check.whole.output:.2g} to {m.check.without.output:.2g}" for m in molecules)
    return [
        *heat,
        Picture(
            "removal",
            _single(_draw_removals, molecules, height=3.0),
            f"For every molecule two points, the output with a group and without it: {moved}.",
            "The output before and after the group is removed. Across the line, the prediction flips.",
        ),
        Picture(
            "groups",
            _single(_draw_groups, two, height=3.0),
            f"Bars of what the groups of {two.name} carry alone and together.",
            f"{two.name}: walks by the groups they visit.",
        ),
    ]


def _draw_removals(axes: Axes, molecules: Sequence[Molecule]) -> None:
    """The output with the group and without it, a line per molecule."""
    for at, one in enumerate(molecules):
        before, after = one.check.whole.output, one.check.without.output
        axes.annotate("", (after, at), (before, at), arrowprops={"arrowstyle": "->", "color": "0.45", "lw": 1.1})
        axes.plot(before, at, "o", color="#222222", ms=5, label="the molecule" if not at else None)
        colour = "#d95300" if after > 0 else "#1b5fa6"
        axes.plot(after, at, "o", mfc="white", mec=colour, mew=1.5, ms=5.5)
    names = [f"{one.name} − {_written(one.group)}" for one in molecules]
    axes.set_yticks(range(len(molecules)), names, size=7.5)
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", lw=0.9)
    axes.set_xlabel("non-mutagenic ← output → mutagenic", size=8)
    axes.tick_params(axis="x", labelsize=7.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _single(draw: Any, shown: Motif | Molecule | Sequence[Molecule], *, height: float) -> Figure:
    figure = Figure(figsize=(4.6, height), layout="constrained")
    draw(figure.subplots(), shown)
    return figure


def _draw_heat(axes: Axes, motif: Motif) -> None:
    name = _class(motif)
    plotting.graph_heatmap(
        node_relevance(motif.traced.chain),
        motif.traced.data["edge_index"],
        subgraph=list(motif.found.numbers),
        truth=motif.truth,
        meaning=f"relevance for “{name}”",
        ax=axes,
    )
    _title(axes, f"Which nodes made the model say “{name}”?")


def _draw_discounts(axes: Axes, motif: Motif) -> None:
    at = torch.linspace(0, 1, 101)
    low, high = motif.relevance(at.tolist())[3:].quantile(torch.tensor([0.05, 0.95]), dim=0)
    apart = [i for i, nodes in enumerate(motif.others, start=3) if not set(nodes) & set(motif.truth)][:1]
    labels = [f"the {_class(motif)}", "a set that does not touch it"][: 1 + len(apart)]
    axes.fill_between(at, low, high, color="0.88", label="random connected sets, 90 %")
    plotting.alpha_curve(motif.polynomials[[0, *apart]], labels=labels, ax=axes)
    _title(axes, "Every α from one polynomial")


def _draw_walks(axes: Axes, motif: Motif) -> None:
    plotting.top_walks(motif.walks.walks, motif.walks.relevance, motif.traced.data["edge_index"], ax=axes)
    _title(axes, f"The {len(motif.walks.walks)} most relevant of {motif.walks.num_walks} walks")


def _grid(motifs: Sequence[Motif]) -> Figure:
    """The first three graphs of each class, a column for each."""
    figure = Figure(figsize=(4.6, 4.6), layout="constrained")
    panels = figure.subfigures(3, 2, squeeze=False)
    for label in (0, 1):
        own = [motif for motif in motifs if motif.traced.target == label]
        for panel, motif in zip(panels[:, label], own, strict=False):
            plotting.graph_heatmap(
                node_relevance(motif.traced.chain),
                motif.traced.data["edge_index"],
                subgraph=list(motif.found.numbers),
                truth=motif.truth,
                labels=[],
                bar=False,
                ax=panel.subplots(),
            )
            panel.suptitle(f"{_class(motif)}: {motif.hits} of {len(motif.truth)} nodes found", size=8)
    return figure


def _draw_molecule(axes: Axes, molecule: Molecule) -> Axes:
    traced = molecule.traced
    meaning = "relevance for mutagenic, not non-mutagenic"
    scores = node_relevance(traced.chain), edge_relevance(traced.chain)
    plotting.molecule_heatmap(traced.data, *scores, meaning=meaning, ax=axes)
    return axes


def _same_scale(panels: Sequence[Axes]) -> None:
    """Bonds of the same length in all panels: the widest molecule sets the scale."""
    reach = max(max(high - low for low, high in (axes.get_xlim(), axes.get_ylim())) for axes in panels) / 2
    for axes in panels:
        x, y = sum(axes.get_xlim()) / 2, sum(axes.get_ylim()) / 2
        axes.set(xlim=(x - reach, x + reach), ylim=(y - 0.75 * reach, y + 0.75 * reach))


def _draw_groups(axes: Axes, molecule: Molecule) -> None:
    plotting.interaction_bars(_renamed(molecule.terms), max_bars=6, ax=axes)
    _title(axes, f"{molecule.name}: alone and together")


def _title(axes: Axes, words: str) -> None:
    axes.set_title(words, size=9, loc="left")


def _class(motif: Motif) -> str:
    return motif.traced.class_name
