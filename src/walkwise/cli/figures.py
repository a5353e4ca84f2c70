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
from walkwise.marginals import edge_relevance, node_relevance

_TITLE: dict[str, Any] = {"size": 9, "loc": "left"}


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, its name, and what it shows, in words."""

    name: str
    figure: Figure
    alt: str
    caption: str
    wide: bool = True  # whether it wants the whole width of a page

    def svg(self) -> bytes:
        """The figure as SVG, the same for the same figure."""
        buffer = BytesIO()
        self.figure.savefig(buffer, format="svg", metadata={"Date": None})
        return buffer.getvalue()

    def save(self, folder: Path) -> list[Path]:
        """Writes NAME.png and NAME.pdf."""
        paths = [folder / f"{self.name}.{ending}" for ending in ("png", "pdf")]
        for path in paths:
            self.figure.savefig(path, dpi=200)
        return paths


def of_motifs(motifs: Sequence[Motif], shown: Motif) -> list[Picture]:
    """The figures of the graphs; one graph is shown at length, three of each class in small."""
    name = shown.asked.session.class_name(shown.asked.target)
    hits = f"{shown.hits} of {len(shown.truth)} nodes"
    return [
        Picture(
            "graph",
            _overview(shown),
            f"Left: a graph, its nodes coloured by relevance, the {name} ringed, the most relevant connected set in a "
            f"band, with {hits} of the {name}. Right: relevance of the {name} and of other sets against α.",
            f"Left: which nodes made the model say “{name}”. Right: the relevance of sets of nodes for every α.",
        ),
        Picture(
            "walks",
            _walks(shown),
            f"The same graph in grey with its {len(shown.walks.walks)} most relevant walks as arrows.",
            "The most relevant walks. Each begins with a dot, at the input, and ends with an arrowhead, at the output.",
            wide=False,
        ),
        Picture(
            "motifs",
            _grid(motifs),
            "Six small graphs, three with a cycle and three with a house: the motif ringed, what was found in a band.",
            "What was found (band) and the truth (rings), in the first three graphs of each class.",
            wide=False,
        ),
    ]


def of_molecules(molecules: Sequence[Molecule]) -> list[Picture]:
    """The figures of the molecules."""
    first = molecules[0]
    name = first.asked.session.names[first.asked.number]
    drawn = [*molecules[:2], molecules[3]]
    names = ", ".join(one.asked.session.names[one.asked.number] for one in drawn)
    return [
        Picture(
            "molecules",
            _heat(drawn),
            f"Structural formulas of {names}; atoms and bonds coloured by their relevance for “mutagenic”.",
            "Atoms and bonds by their relevance for “mutagenic”: orange speaks for it, blue against.",
        ),
        Picture(
            "groups",
            _groups(first),
            f"Left: bars of what the groups of {name} have alone and together. Right: the model's output as atoms are "
            "added, most relevant first.",
            f"{name}. Left: walks by the groups they visit. Right: the model's output on the most relevant atoms.",
        ),
    ]


def _overview(motif: Motif) -> Figure:
    figure = Figure(figsize=(7.2, 3.1), layout="constrained")
    left, right = _panels(figure, 1, 2, width_ratios=[1.2, 1])[0]  # apart, so that the colour bar does not squeeze both
    asked = motif.asked
    name = asked.session.class_name(asked.target)
    axes = left.subplots()
    plotting.graph_heatmap(
        node_relevance(asked.chain),
        asked.data["edge_index"],
        subgraph=list(motif.found.nodes),
        truth=motif.truth,
        meaning=f"relevance for “{name}”",
        ax=axes,
    )
    axes.set_title(f"Which nodes made the model say “{name}”?", **_TITLE)
    _discounts(right.subplots(), motif, name)
    return figure


def _discounts(axes: Axes, motif: Motif, name: str) -> None:
    at = torch.linspace(0, 1, 101)
    others = motif.relevance(at.tolist())[3:]
    low, high = others.quantile(torch.tensor([0.05, 0.95]), dim=0)
    apart = [i for i, nodes in enumerate(motif.others, start=3) if not set(nodes) & set(motif.truth)][:1]
    labels = [f"the {name}", "a set that does not touch it"][: 1 + len(apart)]
    axes.fill_between(at, low, high, color="0.88", label="random connected sets, 90 %")
    plotting.alpha_curve(motif.polynomials[[0, *apart]], labels=labels, ax=axes)
    axes.set_title("Every α from one polynomial", **_TITLE)


def _walks(motif: Motif) -> Figure:
    figure = Figure(figsize=(4.6, 3.9), layout="constrained")
    axes = figure.subplots()
    plotting.top_walks(motif.walks.walks, motif.walks.relevance, motif.asked.data["edge_index"], ax=axes)
    axes.set_title(f"The {len(motif.walks.walks)} most relevant of {motif.walks.num_walks} walks", **_TITLE)
    return figure


def _grid(motifs: Sequence[Motif]) -> Figure:
    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    for row, label in zip(_panels(figure, 2, 3), (0, 1), strict=True):
        own = [motif for motif in motifs if motif.asked.target == label]
        for panel, motif in zip(row, own, strict=False):
            plotting.graph_heatmap(
                node_relevance(motif.asked.chain),
                motif.asked.data["edge_index"],
                subgraph=list(motif.found.nodes),
                truth=motif.truth,
                labels=[],
                bar=False,
                ax=panel.subplots(),
            )
            name = motif.asked.session.class_name(label)
            panel.suptitle(f"{name}: {motif.hits} of {len(motif.truth)} nodes found", size=9)
    return figure


def _heat(molecules: Sequence[Molecule]) -> Figure:
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    drawn = []
    for panel, one in zip(_panels(figure, 1, len(molecules))[0], molecules, strict=True):
        asked = one.asked
        axes = panel.subplots()
        plotting.molecule_heatmap(asked.data, node_relevance(asked.chain), edge_relevance(asked.chain), ax=axes)
        said = asked.session.class_name(int(asked.prediction.logits.argmax()))
        panel.suptitle(f"{asked.session.names[asked.number]}: {said}", size=9)
        drawn.append(axes)
    _same_scale(drawn)
    return figure


def _panels(figure: Figure, rows: int, columns: int, **layout: Any) -> Any:
    """Parts of a figure, each with a title and a colour bar of its own."""
    return figure.subfigures(rows, columns, squeeze=False, **layout)


def _same_scale(panels: Sequence[Axes]) -> None:
    """Bonds of the same length in all panels: the widest molecule sets the scale."""
    reach = max(max(high - low for low, high in (axes.get_xlim(), axes.get_ylim())) for axes in panels) / 2
    for axes in panels:
        x, y = sum(axes.get_xlim()) / 2, sum(axes.get_ylim()) / 2
        axes.set(xlim=(x - reach, x + reach), ylim=(y - 0.75 * reach, y + 0.75 * reach))


def _groups(molecule: Molecule) -> Figure:
    asked = molecule.asked
    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.2])
    plotting.interaction_bars(molecule.terms, ax=left)
    names = [f"{label}{atom}" for atom, label in enumerate(asked.labels)]
    plotting.activation_curves(molecule.curve, order=molecule.order, names=names, ax=right)
    left.set_title("Alone and together", **_TITLE)
    right.set_title("Atoms added one by one", **_TITLE)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
