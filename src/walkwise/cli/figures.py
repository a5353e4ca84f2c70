"""The demo's figures, each with the words that stand for it where it cannot be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from walkwise import plotting
from walkwise.cli.showcase import Molecule, Motif
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
        paths[0].write_bytes(buffer.getvalue())
        self.figure.savefig(paths[1], dpi=200)
        return buffer.getvalue(), paths


def overview(shown: Motif) -> Picture:
    """One graph and its α curve side by side, as in the README."""
    figure = Figure(figsize=(7.2, 3.1), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=[1.2, 1])  # apart, so that the colour bar does not squeeze both
    left, right = parts
    _draw_heat(left.subplots(), shown)
    _draw_discounts(right.subplots(), shown)
    return Picture("overview", figure, "", "")


def of_motifs(motifs: Sequence[Motif], shown: Motif) -> list[Picture]:
    """The figures of the graphs; one graph is shown at length, three of each class in small."""
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
    first = molecules[0]
    name = _name(first)
    drawn = [(one, Figure(figsize=(3.3, 3.1), layout="constrained")) for one in (*molecules[:2], molecules[3])]
    _same_scale([_draw_molecule(figure.subplots(), one) for one, figure in drawn])
    for one, figure in drawn:
        figure.suptitle(f"{_name(one)}: {_said(one)}", size=9)
    heat = [
        Picture(
            _name(one),
            figure,
            f"The structural formula of {_name(one)}, its atoms and bonds coloured by relevance for “mutagenic”.",
            f"{_name(one)}: the model says {_said(one)}. Orange speaks for “mutagenic”, blue against.",
            width="third",
        )
        for one, figure in drawn
    ]
    terms = ", ".join(f"{' and '.join(names)} {value:.3g}" for names, value in first.terms.terms.items())
    return [
        *heat,
        Picture(
            "groups",
            _single(_draw_groups, first, height=2.8),
            f"Bars of what the groups of {name} have alone and together: {terms}.",
            f"{name}: walks by the groups they visit.",
        ),
        Picture(
            "atoms",
            _single(_draw_atoms, first, height=2.8),
            f"A curve of the model's output on the most relevant atoms of {name}, from one atom to all.",
            f"{name}: the model's output as atoms are added in greedy order, with the deciding ones marked.",
        ),
    ]


def _single(draw: Any, shown: Motif | Molecule, *, height: float) -> Figure:
    figure = Figure(figsize=(4.6, height), layout="constrained")
    draw(figure.subplots(), shown)
    return figure


def _draw_heat(axes: Axes, motif: Motif) -> None:
    name = _class(motif)
    plotting.graph_heatmap(
        node_relevance(motif.asked.chain),
        motif.asked.data["edge_index"],
        subgraph=list(motif.found.nodes),
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
    plotting.top_walks(motif.walks.walks, motif.walks.relevance, motif.asked.data["edge_index"], ax=axes)
    _title(axes, f"The {len(motif.walks.walks)} most relevant of {motif.walks.num_walks} walks")


def _grid(motifs: Sequence[Motif]) -> Figure:
    """The first three graphs of each class, a column for each."""
    figure = Figure(figsize=(4.6, 4.6), layout="constrained")
    panels = figure.subfigures(3, 2, squeeze=False)
    for label in (0, 1):
        own = [motif for motif in motifs if motif.asked.target == label]
        for panel, motif in zip(panels[:, label], own, strict=False):
            plotting.graph_heatmap(
                node_relevance(motif.asked.chain),
                motif.asked.data["edge_index"],
                subgraph=list(motif.found.nodes),
                truth=motif.truth,
                labels=[],
                bar=False,
                ax=panel.subplots(),
            )
            panel.suptitle(f"{_class(motif)}: {motif.hits} of {len(motif.truth)} nodes found", size=8)
    return figure


def _draw_molecule(axes: Axes, molecule: Molecule) -> Axes:
    asked = molecule.asked
    plotting.molecule_heatmap(asked.data, node_relevance(asked.chain), edge_relevance(asked.chain), ax=axes)
    return axes


def _same_scale(panels: Sequence[Axes]) -> None:
    """Bonds of the same length in all panels: the widest molecule sets the scale."""
    reach = max(max(high - low for low, high in (axes.get_xlim(), axes.get_ylim())) for axes in panels) / 2
    for axes in panels:
        x, y = sum(axes.get_xlim()) / 2, sum(axes.get_ylim()) / 2
        axes.set(xlim=(x - reach, x + reach), ylim=(y - 0.75 * reach, y + 0.75 * reach))


def _draw_groups(axes: Axes, molecule: Molecule) -> None:
    plotting.interaction_bars(molecule.terms, ax=axes)
    _title(axes, f"{_name(molecule)}: alone and together")


def _draw_atoms(axes: Axes, molecule: Molecule) -> None:
    names = [f"{label}{atom}" for atom, label in enumerate(molecule.asked.labels)]
    plotting.activation_curves(molecule.curve, order=molecule.order, names=names, ax=axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _title(axes, f"{_name(molecule)}: atoms added one by one")


def _title(axes: Axes, words: str) -> None:
    axes.set_title(words, size=9, loc="left")


def _class(motif: Motif) -> str:
    return motif.asked.class_name


def _name(molecule: Molecule) -> str:
    return molecule.asked.session.names[molecule.asked.number]


def _said(molecule: Molecule) -> str:
    return molecule.asked.session.class_name(int(molecule.asked.prediction.logits.argmax()))
