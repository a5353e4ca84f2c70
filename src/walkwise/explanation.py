"""One prediction explained in one call: what is relevant, the best subgraph, the top walks, and whether that holds."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from walkwise.core.chain import RelevanceChain
from walkwise.core.node_types import EdgeType, NodeTypes, TypedNode
from walkwise.display import count, html_box, html_line, html_table, listed, number
from walkwise.errors import CoverageWarning, InputError, MissingExtraError, TooManyWalksError
from walkwise.evaluation.naming import answer_title, explained_title
from walkwise.evaluation.parts import subgraph_logits, subgraph_values
from walkwise.evaluation.predictions import Prediction, predict, traced
from walkwise.files import as_path, read_tensors, write_tensors
from walkwise.notation import molecule_of_graph
from walkwise.questions.components import largest_component
from walkwise.questions.marginals import edge_relevance, feature_relevance, node_relevance
from walkwise.rules import RuleLike
from walkwise.search.best_subgraph import FoundSubgraph, find_subgraph
from walkwise.search.best_walks import SearchLimitError, TopWalks, top_walks

#: How many nodes the best subgraph has where nobody says.
SIZE = 5

#: How many nodes and lines of walks are written out.
_SHOWN = 8
_LINES = 5

_TENSORS = ("node_relevance", "edge_index", "edge_relevance", "feature_relevance")

Part = Literal["nodes", "edges", "features", "walks"]


@dataclass(frozen=True)
class Outcome:
    """What the model gives for a graph or a part of it."""

    output: float  # the explained number
    says: str = ""  # the class it decides for; empty where there are no classes

    def words(self, whole: Outcome | None = None) -> str:
        """The number, and the class: "still" or "now", beside the whole graph's.

        >>> Outcome(0.25, "safe").words(Outcome(4.0, "toxic"))
        '0.25, now safe'
        """
        scale = abs(self.output) if whole is None else max(abs(self.output), abs(whole.output))
        beside = "" if whole is None else "still " if whole.says == self.says else "now "
        return number(self.output, scale=scale) + (f", {beside}{self.says}" if self.says else "")


@dataclass(frozen=True)
class Check:
    """Whether an explanation holds: the model asked again, on the best subgraph alone and on all but it."""

    whole: Outcome
    alone: Outcome
    without: Outcome

    @property
    def sufficient(self) -> bool:
        """Whether the subgraph alone gives the same class, or, without classes, at least half of the output."""
        return self._same(self.alone)

    @property
    def necessary(self) -> bool:
        """Whether the graph without it gives another class, or, without classes, less than half of the output."""
        return not self._same(self.without)

    def _same(self, part: Outcome) -> bool:
        if self.whole.says:
            return part.says == self.whole.says
        return part.output * self.whole.output > 0 and abs(part.output) >= abs(self.whole.output) / 2

    def words(self) -> str:
        """What was found, in a sentence.

        >>> print(Check(Outcome(4.0, "toxic"), Outcome(3.5, "toxic"), Outcome(-1.0, "safe")).words())
        On these nodes alone the model gives 3.5, still toxic; without them −1, now safe.
        """
        alone, without = self.alone.words(self.whole), self.without.words(self.whole)
        return f"On these nodes alone the model gives {alone}; without them {without}."


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """A prediction and what made it; made by :func:`explain`.

    It prints as text, shows itself in notebooks, and can be saved: :meth:`save` and :meth:`load` keep all but the
    chain. Nodes of a heterogeneous graph stand in one row, as in ``chain.types``, and are called by type.
    """

    target: str  # what is explained, by name
    prediction: Outcome
    outputs: tuple[float, ...]  # the whole row of the model's output; empty of a callable target
    index: int | None  # the explained node, of a node-level model
    relevance: float  # of all walks together
    node_relevance: Tensor  # (M,)
    edge_index: Tensor  # (2, E)
    edge_relevance: Tensor  # (E,)
    feature_relevance: Tensor | dict[str, Tensor]  # (M, F), of a heterogeneous graph {type: (M_t, F_t)}
    subgraph: FoundSubgraph
    check: Check
    walks: TopWalks
    notes: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = ()  # symbols, words; empty where nodes have no names
    smiles: str | None = None  # the molecule that the graph is
    types: NodeTypes | None = None  # of a heterogeneous graph
    chain: RelevanceChain | None = None  # for further questions; None where it was loaded from a file

    @property
    def num_nodes(self) -> int:
        """M, the nodes of the graph."""
        return len(self.node_relevance)

    def node(self, i: int) -> str:
        """What a node is called: its number, and its name where it has one; in a heterogeneous graph "user 0"."""
        if self.types is not None:
            return self.node_labels[i]
        return f"{i} {self.node_labels[i]}".strip() if self.node_labels else str(i)

    # -- for people ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """One line."""
        return f"Explanation({self.target}: {self.prediction.words()}; {count(self.num_nodes, 'node')})"

    def __str__(self) -> str:
        """What was found, in some lines."""
        scale = float(self.node_relevance.abs().max())
        nodes = [f"{self.node(i)} {number(r, digits=3, scale=scale, signed=True)}" for i, r in self._top_nodes()]
        lines = [
            self._headline(),
            f"Most relevant nodes: {', '.join(nodes)}",
            f"Best {count(len(self.subgraph.nodes), 'connected node')}: {self._subgraph_words()}",
            self.check.words(),
            f"Top walks, of {self.walks.num_walks:,}:",
            *(f"  {words}: {value}" for words, value in self._walk_lines()[:_LINES]),
        ]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """The same with a picture, for notebooks."""
        rows = [(self.node(i), relevance) for i, relevance in self._top_nodes()]
        title = f"Best {count(len(self.subgraph.nodes), 'connected node')}"
        whole, check = self.check.whole, self.check
        checked = [
            ("the whole graph", whole.output, whole.says),
            ("these nodes alone", check.alone.output, check.alone.says),
            ("all but these nodes", check.without.output, check.without.says),
        ]
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
        """The axes with the graph drawn on them, coloured by relevance, the best subgraph in a band.

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
                subgraph=self.types.grouped(self.subgraph.nodes),
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
        """The edges between each two types, by numbers among those; kinds of edges are not told apart."""
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
        absorbed = self.prediction.output - self.relevance
        scale = max(abs(self.relevance), abs(self.prediction.output))
        return (
            f"{said}, {number(self.prediction.output)}: walks sum to {number(self.relevance, scale=scale)}, "
            f"biases absorb {number(absorbed, scale=scale)}."
        )

    def _top_nodes(self) -> list[tuple[int, float]]:
        best = self.node_relevance.abs().argsort(descending=True, stable=True)[:_SHOWN].tolist()
        return [(i, float(self.node_relevance[i])) for i in best]

    def _subgraph_words(self) -> str:
        nodes = listed([self.node(i) for i in self.subgraph.nodes])
        return f"{nodes}; the walks inside sum to {number(self.subgraph.score)} of {number(self.relevance)}"

    def _walk_lines(self) -> list[tuple[str, str]]:
        """Walks that tie in one line, with what each carries."""
        lines = []
        for tie in self.walks.tied[:_SHOWN]:
            each = number(tie.relevance, digits=3)
            lines.append((tie.words(self.node_labels), each if len(tie.walks) == 1 else f"{tie.amount}, {each} each"))
        return lines

    def _picture(self) -> str:
        """The plot as an image in HTML; nothing where matplotlib is missing."""
        try:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(5.2, 3.9), layout="constrained")
            self.plot(figure.add_subplot())
        except (ImportError, MissingExtraError):
            return ""
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150)
        code = base64.b64encode(file.getvalue()).decode("ascii")
        alt = html.escape(f"The graph, coloured by relevance for {self.target}")
        return html_box(f'<img alt="{alt}" style="width:560px;max-width:100%" src="data:image/png;base64,{code}">')

    # -- for programs ------------------------------------------------------------------------------

    def to_pandas(self, of: Part = "nodes") -> Any:
        """A table of the nodes, edges, features or walks, as a pandas DataFrame.

        Args:
            of: "nodes" (node, label, relevance, whether it is in the best subgraph), "edges" (source, target,
                relevance), "features" (a row per node, a column per feature) or "walks" (positions and relevance).
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError(
                "Tables need the package pandas.", remedy="Install it with: pip install 'walkwise[pandas]'"
            ) from None
        if of == "nodes":
            inside = [i in self.subgraph.nodes for i in range(self.num_nodes)]
            labels = list(self.node_labels) or [""] * self.num_nodes
            columns: dict[str, Any] = {"label": labels, "relevance": self.node_relevance.tolist(), "subgraph": inside}
            return pd.DataFrame(columns).rename_axis("node")
        if of == "edges":
            source, target = self.edge_index.tolist()
            return pd.DataFrame({"source": source, "target": target, "relevance": self.edge_relevance.tolist()})
        if of == "features":
            given = self.feature_relevance
            parts = [given] if isinstance(given, Tensor) else list(given.values())
            tables = [pd.DataFrame(part.numpy()) for part in parts]
            return pd.concat(tables, ignore_index=True).rename_axis("node")
        if of == "walks":
            walks = self.walks.walks.tolist()
            table = pd.DataFrame(walks if self.types is None else [self.types.written(walk) for walk in walks])
            return table.add_prefix("position ").assign(relevance=self.walks.relevance.tolist())
        raise InputError(argument="of", expected='"nodes", "edges", "features" or "walks"', got=of)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the chain as plain values, ready for JSON."""
        found = self._described()
        return {
            **found,
            **{name: _plain(getattr(self, name)) for name in _TENSORS},
            "walks": {
                **found["walks"],
                "walks": self.walks.walks.tolist(),
                "relevance": self.walks.relevance.tolist(),
            },
        }

    def _described(self) -> dict[str, Any]:
        """What is no tensor, as plain values."""
        walks = {name: getattr(self.walks, name) for name in ("expansions", "num_walks", "route")}
        plain = ("target", "index", "relevance", "smiles")
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: list(getattr(self, name)) for name in ("outputs", "notes", "node_labels")},
            "prediction": dataclasses.asdict(self.prediction),
            "subgraph": _described_subgraph(self.subgraph),
            "check": dataclasses.asdict(self.check),
            "walks": walks,
            "types": None if self.types is None else dict(self.types.counts),
        }

    def save(self, path: str | Path) -> None:
        """Writes the explanation, but for the chain, as a safetensors file: numbers and text, nothing that can run.

        Args:
            path: the file, usually NAME.safetensors. An existing file is replaced.
        """
        tensors: dict[str, Tensor] = {}
        for name in _TENSORS:
            held = getattr(self, name)
            tensors |= {name: held} if isinstance(held, Tensor) else {f"{name}/{kind}": v for kind, v in held.items()}
        tensors |= {"walks": self.walks.walks, "walk_relevance": self.walks.relevance}
        write_tensors(path, tensors, {"explanation": json.dumps(self._described())})

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """The explanation that :meth:`save` wrote, without its chain.

        Args:
            path: the file.
        """
        tensors, metadata = read_tensors(as_path(path, "path"))
        try:
            found = json.loads(metadata["explanation"])
            counts = found.pop("types", None)
            types = None if counts is None else NodeTypes(counts)
            walks = TopWalks(tensors["walks"], tensors["walk_relevance"], **found.pop("walks"), types=types)
            subgraph = found.pop("subgraph")
            subgraph["nodes"] = tuple(subgraph["nodes"])
            check = {name: Outcome(**outcome) for name, outcome in found.pop("check").items()}
            lists: dict[str, Any] = {name: tuple(found.pop(name)) for name in ("outputs", "notes", "node_labels")}
            prediction = Outcome(**found.pop("prediction"))
            parts: dict[str, Any] = {name: _loaded(tensors, name, types) for name in _TENSORS}
            return cls(
                **found,
                **lists,
                **parts,
                prediction=prediction,
                subgraph=FoundSubgraph(**subgraph, types=types),
                check=Check(**check),
                walks=walks,
                types=types,
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{path} does not hold an explanation.",
                argument="path",
                expected="a file that Explanation.save wrote",
                got=str(path),
                remedy="Save the explanation again.",
            ) from error


def _described_subgraph(found: FoundSubgraph) -> dict[str, Any]:
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found) if field.name != "types"}
    return {**fields, "nodes": list(found.nodes)}


def _plain(held: Tensor | dict[str, Tensor]) -> Any:
    return held.tolist() if isinstance(held, Tensor) else {name: part.tolist() for name, part in held.items()}


def _loaded(tensors: Mapping[str, Tensor], name: str, types: NodeTypes | None) -> Tensor | dict[str, Tensor]:
    """A tensor of a file, or those by type."""
    if name in tensors or types is None:
        return tensors[name]
    return {kind: tensors[f"{name}/{kind}"] for kind in types.counts if f"{name}/{kind}" in tensors}


def explain(
    model: nn.Module,
    *graph: Any,
    target: Any = None,
    against: Any = None,
    index: int | TypedNode | None = None,
    class_names: Sequence[str] | None = None,
    rule: RuleLike = "auto",
    size: int | None = None,
    walks: int = 20,
    **model_kwargs: Any,
) -> Explanation:
    """What made the model say that: ``explain(model, data)``, or ``explain(model, x, edge_index)``.

    The prediction is traced (:func:`walkwise.trace`), nodes, edges and features get their relevance, the most
    relevant connected subgraph and the top walks are looked for, and the model is asked again, on that subgraph
    alone and on the graph without it: if the explanation holds, the first changes little and the second much.

    Args:
        model: a model with torch_geometric message-passing layers; it is only read.
        *graph: one Data object with x and edge_index, a HeteroData with these by type, or the node features and the
            edges (2, E).
        target: the output column to explain (default: the largest), its name, or a callable that makes a scalar of the
            output. For a single logit, "positive" or "negative".
        against: another column or name: what speaks for the target and not for this one is explained.
        index: the output row to explain, for node-level models; of a heterogeneous graph, (type, i).
        class_names: what the output columns are called; two for a model with one logit, the negative class first.
        rule: the LRP rule, as for :func:`walkwise.trace`.
        size: how many nodes the best subgraph has; by default 5, or fewer where no connected part has this many.
        walks: how many of the top walks to find.
        **model_kwargs: passed to the model; they take precedence over the attributes of a Data object.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=2)
    >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> explanation = ww.explain(model, torch.ones(4, 2), edge_index, index=1, class_names=["safe", "toxic"], size=2)
    >>> explanation.node_relevance.shape, len(explanation.subgraph.nodes), explanation.check.whole.says
    (torch.Size([4]), 2, 'safe')
    >>> contrast = ww.explain(model, torch.ones(4, 2), edge_index, index=1, target=1, against=0)
    >>> contrast.target
    'output 1, not output 0'
    """
    graph = tuple(_alone(part) for part in graph)
    prediction = predict(
        model, *graph, target=target, against=against, index=index, class_names=class_names, **model_kwargs
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # the notes say it
        chain = traced(prediction, rule=rule)
    found = find_subgraph(chain, _size(size, prediction))
    check = check_subgraph(prediction, found.nodes, class_names)
    data = graph[0] if len(graph) == 1 else None
    edges = prediction.edge_index
    best, notes = _walks(chain, walks)
    row = () if callable(prediction.target) else prediction.logits.tolist()
    nodes, features = node_relevance(chain, layer="start"), feature_relevance(chain)
    types = chain.types
    if types is not None:
        nodes = torch.cat([nodes[name] for name in types.counts])
        features = {name: part.cpu() for name, part in features.items()}
    return Explanation(
        target=explained_title(prediction, class_names),
        prediction=check.whole,
        outputs=tuple(-value if prediction.negative else value for value in row),
        index=prediction.index,
        relevance=chain.input_relevance,
        node_relevance=nodes.cpu(),
        edge_index=edges.cpu(),
        edge_relevance=edge_relevance(chain, edge_index=edges).cpu(),
        feature_relevance=features if types is not None else features.cpu(),
        subgraph=found,
        check=check,
        walks=best,
        notes=(*chain.notes, *chain.cautions, *notes),
        node_labels=tuple(types.written(range(types.num_nodes))) if types else node_labels(data, chain.num_nodes),
        smiles=smiles if isinstance(smiles := getattr(data, "smiles", None), str) else None,
        types=types,
        chain=chain,
    )


def _alone(given: Any) -> Any:
    """The graph itself, where a loader made a batch of it alone: its names stand in lists there."""
    return given.get_example(0) if isinstance(given, Batch) and given.num_graphs == 1 else given


def node_labels(data: Any, num_nodes: int) -> tuple[str, ...]:
    """What a graph calls its nodes: its ``symbols`` or ``tokens``, or the atoms of its ``smiles``; empty without names.

    Args:
        data: a graph, or None.
        num_nodes: M, how many nodes it has.
    """
    for name in ("symbols", "tokens"):
        given = getattr(data, name, None)
        if isinstance(given, Sequence) and len(given) == num_nodes:
            return tuple(map(str, given))
    smiles, edges = getattr(data, "smiles", None), getattr(data, "edge_index", None)
    if isinstance(smiles, str) and isinstance(edges, Tensor) and find_spec("rdkit"):
        try:
            molecule = molecule_of_graph(smiles, edges.t().tolist(), num_nodes)
        except InputError:  # not a molecule after all
            return ()
        if molecule is None or not _same_elements(molecule, getattr(data, "z", None)):
            return ()
        return tuple(atom.GetSymbol() for atom in molecule.GetAtoms())
    return ()


def _same_elements(molecule: Any, numbers: Any) -> bool:
    """Whether a graph's atomic numbers, if it has any, are those of the molecule's atoms in their order."""
    return not isinstance(numbers, Tensor) or numbers.tolist() == [atom.GetAtomicNum() for atom in molecule.GetAtoms()]


def _size(size: int | None, prediction: Prediction) -> int:
    return min(SIZE, largest_component(prediction.edge_index, prediction.num_nodes)) if size is None else size


def check_subgraph(prediction: Prediction, nodes: Sequence[int], class_names: Sequence[str] | None = None) -> Check:
    """The model asked on the whole graph, on a subgraph alone, and on all but it.

    Nodes are removed with their edges. The explained node of a node-level model always stays.

    Args:
        prediction: the model, the graph, and what is explained.
        nodes: the subgraph.
        class_names: what the output columns are called.
    """
    inside = torch.zeros(1, prediction.num_nodes, dtype=torch.bool, device=prediction.x.device)
    inside[0, list(nodes)] = True
    masks = torch.cat([inside, ~inside])
    alone, without = subgraph_values(prediction, masks).values.tolist()
    says = ["", "", ""]
    if not callable(prediction.target):
        rows = [prediction.logits, *subgraph_logits(prediction, masks)]
        says = [answer_title(row, class_names, negative=prediction.negative) for row in rows]
    numbers = (prediction.value(), alone, without)
    return Check(*(Outcome(value, answer) for value, answer in zip(numbers, says, strict=True)))


def _walks(chain: RelevanceChain, number_of_walks: int) -> tuple[TopWalks, list[str]]:
    """The top walks; none, with a note, where they are too many to be searched."""
    try:
        return top_walks(chain, number_of_walks, progress=False), []
    except (SearchLimitError, TooManyWalksError) as error:
        none = torch.zeros(0, chain.num_layers + 1, dtype=torch.long)
        return TopWalks(none, torch.zeros(0), 0, 0, "not found"), [f"the top walks were not found: {error}"]
