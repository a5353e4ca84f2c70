"""The explanation of one prediction: as text, in notebooks, as a picture, in tables and in files."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.node_types import EdgeType, NodeTypes
from walkwise.core.report import absorbed
from walkwise.display import count, html_box, html_line, html_table, listed, number
from walkwise.errors import InputError, MissingExtraError
from walkwise.explanation import saved
from walkwise.explanation.check import Check, Outcome
from walkwise.questions.ties import by_size
from walkwise.search.best_subgraph import FoundSubgraph
from walkwise.search.best_walks import TopWalks

#: How many nodes and lines of walks the text shows.
_SHOWN = 8
_LINES = 5


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """A prediction and its explanation, made by :func:`explain`.

    It prints as text, displays itself in notebooks, and can be saved: :meth:`save` and :meth:`load` keep everything but
    the chain. The nodes of a heterogeneous graph are numbered on from type to type, as in ``chain.types``, and are
    named by type; ``subgraph`` and features are given by type.
    """

    target: str  # the name of what is explained
    prediction: Outcome
    outputs: tuple[float, ...]  # the whole row of the model's output; empty for a callable target
    index: int | None  # the explained node, of a node-level model
    relevance: float  # of all walks together
    node_relevance: Tensor  # (M,)
    edge_index: Tensor  # (2, E)
    edge_relevance: Tensor  # (E,)
    feature_relevance: Tensor | dict[str, Tensor]  # (M, F), of a heterogeneous graph {type: (M_t, F_t)}
    subgraph: FoundSubgraph
    check: Check | None  # None, with a note, if the model cannot be run on parts
    walks: TopWalks
    notes: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = ()  # symbols, words; empty if nodes have no names
    smiles: str | None = None  # the molecule, if the graph is one
    types: NodeTypes | None = None  # of a heterogeneous graph
    normaliser: float = 0.0  # what log_softmax subtracts from the explained logit
    chain: RelevanceChain | None = None  # for further questions; None if loaded from a file

    @property
    def num_nodes(self) -> int:
        """M, the nodes of the graph."""
        return len(self.node_relevance)

    def node(self, i: int) -> str:
        """The label of a node: its number, and its name if it has one; in a heterogeneous graph "user 0"."""
        if self.types is not None:
            return self.node_labels[i]
        return f"{i} {self.node_labels[i]}".strip() if self.node_labels else str(i)

    # -- for people ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """One line."""
        return f"Explanation({self.target}: {self.prediction.words()}; {count(self.num_nodes, 'node')})"

    def __str__(self) -> str:
        """The explanation, in some lines."""
        scale = float(self.node_relevance.abs().max())
        nodes = [f"{self.node(i)} {number(r, digits=3, scale=scale, signed=True)}" for i, r in self._top_nodes()]
        lines = [
            self._headline(),
            f"Most relevant nodes: {', '.join(nodes) or 'none has relevance'}",
            f"Best {count(len(self.subgraph.numbers), 'connected node')}: {self._subgraph_words()}",
            *([] if self.check is None else [self.check.words()]),
            f"Top walks, of {self.walks.num_walks:,}:",
            *(f"  {words}: {value}" for words, value in self._walk_lines()[:_LINES]),
        ]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """The same with a picture, for notebooks."""
        rows = [(self.node(i), relevance) for i, relevance in self._top_nodes()]
        title = f"Best {count(len(self.subgraph.numbers), 'connected node')}"
        whole, check = self.prediction, self.check
        checked = [("the whole graph", whole.output, whole.says)]
        if check is not None:
            checked.append(("these nodes alone", check.alone.output, check.alone.says))
            checked.append(("all but these nodes", check.without.output, check.without.says))
        columns = ["model asked on", ">output", *(["answer"] if whole.says else [])]
        tables = [
            html_table(["node", ">relevance"], rows, title="Most relevant nodes"),
            html_table(
                columns, [row[: len(columns)] for row in checked], title=title, note=f"{self._subgraph_words()}."
            ),
            html_table(["walk", ">relevance"], self._walk_lines(), title=f"Top walks, of {self.walks.num_walks:,}"),
        ]
        beside = "display:flex;flex-wrap:wrap;gap:0 2.5em;align-items:flex-start"
        columns_html = "".join(f"<div>{table}</div>" for table in tables)
        parts = [html_line(self._headline(), strong=True), self._picture()]
        notes = [html_line(f"Note: {note}") for note in self.notes]
        return html_box(*parts, f'<div style="{beside}">{columns_html}</div>', *notes)

    def plot(self, ax: Any = None) -> Any:
        """Draw the graph, coloured by relevance, with the best subgraph in a band, and return the axes.

        Molecules are drawn as such. Needs matplotlib (extra ``viz``), and RDKit for molecules (extra ``chem``).

        Args:
            ax: where to draw, by default a new figure.
        """
        from walkwise import plotting

        meaning = f"relevance for {self.target}"
        if self.smiles is not None:
            try:
                return plotting.molecule_heatmap(
                    self.smiles,
                    self.node_relevance,
                    self.edge_relevance,
                    edge_index=self.edge_index,
                    subgraph=self.subgraph.nodes,
                    meaning=meaning,
                    ax=ax,
                )
            except (InputError, MissingExtraError):  # not these atoms, or no RDKit: still a graph
                pass
        if self.types is not None:
            return plotting.graph_heatmap(
                self.types.split(self.node_relevance),
                self._edges_by_type(self.types),
                subgraph=self.subgraph.nodes,
                meaning=meaning,
                ax=ax,
            )
        return plotting.graph_heatmap(
            self.node_relevance,
            self.edge_index,
            subgraph=self.subgraph.nodes,
            labels=self.node_labels or None,
            meaning=meaning,
            ax=ax,
        )

    def _edges_by_type(self, types: NodeTypes) -> dict[EdgeType, Tensor]:
        """The edges between each pair of types, by numbers within the types; relations are not distinguished."""
        kinds = torch.arange(len(types.counts)).repeat_interleave(torch.tensor(list(types.counts.values())))
        names, (source, target) = list(types.counts), kinds[self.edge_index]
        found: dict[EdgeType, Tensor] = {}
        for i, j in sorted({(int(i), int(j)) for i, j in zip(source, target, strict=True)}):
            first = torch.tensor([[types.offsets[names[i]]], [types.offsets[names[j]]]])
            found[names[i], "to", names[j]] = self.edge_index[:, (source == i) & (target == j)] - first
        return found

    def _headline(self) -> str:
        says, index = self.prediction.says, self.index
        node = "" if index is None else f" for node {index}" if self.types is None else f" for {self.node(index)}"
        explained = f"Explaining {'its output' if self.target == says else self.target}"
        said = f"Prediction{node}: {says}. {explained}" if says else f"Explaining {self.target}{node}"
        scale = max(abs(self.relevance), abs(self.prediction.output))
        return (
            f"{said}, {number(self.prediction.output)}: walks sum to {number(self.relevance, scale=scale)}, "
            f"{absorbed(self.prediction.output - self.relevance, self.normaliser, scale=scale)}."
        )

    def _top_nodes(self) -> list[tuple[int, float]]:
        """The most relevant nodes, without those that have no relevance."""
        return [(i, float(self.node_relevance[i])) for i in by_size(self.node_relevance, zeros=False)[:_SHOWN]]

    def _subgraph_words(self) -> str:
        nodes = listed([self.node(i) for i in self.subgraph.numbers])
        within, every = number(self.subgraph.score), number(self.relevance)
        return f"{nodes}; walks within them sum to {within}, those of the whole graph to {every}"

    def _walk_lines(self) -> list[tuple[str, str]]:
        """Walks, with ties on one line, and the relevance of each."""
        lines = []
        for tie in self.walks.tied[:_SHOWN]:
            each = number(tie.relevance, digits=3)
            lines.append((tie.words(self.node_labels), each if len(tie.walks) == 1 else f"{tie.amount}, {each} each"))
        return lines

    def _picture(self) -> str:
        """The plot as an image in HTML; empty if matplotlib is missing."""
        try:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(5.2, 3.9), layout="constrained")
            self.plot(figure.add_subplot())
        except (ImportError, MissingExtraError):
            return ""
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150, bbox_inches="tight", pad_inches=0.05)
        width = int.from_bytes(file.getvalue()[16:20], "big")  # in pixels, of which a screen shows fewer
        code = base64.b64encode(file.getvalue()).decode("ascii")
        alt = html.escape(f"The graph, coloured by relevance for {self.target}")
        look = f"width:{0.72 * width:.0f}px;max-width:100%;border-radius:4px"
        return html_box(f'<img alt="{alt}" style="{look}" src="data:image/png;base64,{code}">')

    # -- for programs ------------------------------------------------------------------------------

    def to_pandas(self, of: saved.Part = "nodes") -> Any:
        """A table of the nodes, edges, features or walks, as a pandas DataFrame.

        Args:
            of: "nodes" (node, label, relevance, whether it is in the best subgraph), "edges" (source, target,
                relevance), "features" (a row per node, a column per feature) or "walks" (positions and relevance).
        """
        return saved.table(self, of)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the chain as plain values, ready for JSON."""
        return saved.plain(self)

    def save(self, path: str | Path) -> None:
        """Write the explanation, without the chain, to a safetensors file: numbers and text, nothing that can run.

        Args:
            path: the file, NAME.safetensors or without an ending. An existing file is replaced. For other kinds of
                files there are :meth:`to_pandas`, :meth:`to_dict` and :meth:`plot`.
        """
        saved.write(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Load an explanation that :meth:`save` wrote, without its chain.

        Args:
            path: the file.
        """
        return cls(**saved.read(path))
