"""A batch of graphs put to the model: its outputs, what is explained of them, and the chain of all."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from walkwise.core.chain import RelevanceChain
from walkwise.core.lazy import cached_property
from walkwise.datasets.graphset import offsets
from walkwise.errors import CoverageWarning, InputError
from walkwise.evaluation.predictions import at_rest
from walkwise.questions.marginals import node_relevance
from walkwise.questions.neighbours import Bools, Floats, Ints, running_totals
from walkwise.rules import RuleLike
from walkwise.runs.kinds import as_molecule, node_kinds
from walkwise.tracing import trace
from walkwise.tracing.arguments import of_graph
from walkwise.tracing.target import column_of


@dataclass(frozen=True, eq=False)
class ExplainedBatch:
    """Graphs side by side, what the model says of each, and the chain of all of them together."""

    model: nn.Module
    graphs: Sequence[Data]
    data: Any  # a Batch
    ids: Ints  # (M,) what each node is called in its own graph
    roots: Tensor | None  # (G,) the rows of the nodes that are explained, of a model with an output per node
    outputs: Tensor  # (G, C) what the model says of each graph
    columns: list[int]  # (G,) what is explained of it
    signs: list[int]  # (G,) -1 for the negative class of a model with one logit
    chain: RelevanceChain
    node_names: tuple[str, ...]

    @property
    def sizes(self) -> Ints:
        """How many nodes each graph has.  # (G,)"""
        return np.diff(self.starts)

    @cached_property
    def starts(self) -> Ints:
        """Where each graph's nodes begin, and the end of all.  # (G + 1,)"""
        return running_totals(np.array([graph.num_nodes or 0 for graph in self.graphs]))

    @cached_property
    def batch(self) -> Ints:
        """The graph of every node.  # (M,)"""
        return np.repeat(np.arange(len(self.graphs)), self.sizes)

    @cached_property
    def explained(self) -> Floats:
        """The explained output of every graph.  # (G,)"""
        return chosen(self.outputs, self.columns, self.signs)

    @cached_property
    def nodes(self) -> Floats:
        """The relevance of every node.  # (M,)"""
        relevance: Floats = node_relevance(self.chain, layer="start").double().cpu().numpy()
        return relevance

    @cached_property
    def kinds(self) -> list[list[str | None]]:
        """What the nodes of every graph are."""
        return [node_kinds(data, self.node_names) for data in self.graphs]

    @cached_property
    def molecules(self) -> list[Any]:
        """The molecule that every graph stands for, or None."""
        return [as_molecule(data, kinds) for data, kinds in zip(self.graphs, self.kinds, strict=True)]

    def without(self, removed: Bools) -> Floats:
        """The explained output of every graph with some of its nodes removed; 0 where none is left.  # (M,) -> (G,)"""
        return chosen(self.outputs_without(removed), self.columns, self.signs)

    def outputs_without(self, removed: Bools) -> Tensor:
        """Every column of the outputs with some of the nodes removed.  # (M,) -> (G, C)"""
        keep = ~torch.from_numpy(removed).to(self.data.batch.device)
        if self.roots is not None:
            keep[self.roots] = True
        outputs = torch.zeros_like(self.outputs)
        if bool(keep.any()):
            part, left, places = _part(self.data, keep)
            roots = None if self.roots is None else places[self.roots[left]]
            outputs[left] = model_outputs(self.model, part, roots)
        return outputs


def explain(
    model: nn.Module,
    graphs: Sequence[Data],
    *,
    roots: Sequence[int] | None = None,
    ids: Sequence[Ints] | None = None,
    target: int | str = "predicted",
    rule: RuleLike = "auto",
    node_names: tuple[str, ...] = (),
    device: str = "cpu",
) -> ExplainedBatch:
    """Graphs traced together; each comes out as it would alone.

    Args:
        model: the model.
        graphs: the graphs.
        roots: the node of each that is explained, for models with an output per node.
        ids: what each graph's nodes are called; by default 0, 1, ….
        target: "predicted", "label", a column, or "positive" or "negative" of a model with one logit.
        rule: the LRP rule.
        node_names: what the columns of one-hot features mean.
        device: where to compute: where the model is.
    """
    together: Any = Batch.from_data_list([_plain(graph) for graph in graphs])
    data = together.to(device)
    rows = None if roots is None else data.ptr[:-1] + torch.tensor(list(roots), device=data.ptr.device)
    outputs = model_outputs(model, data, rows)
    picked = [_picked(target, graph, row) for graph, row in zip(graphs, outputs.cpu(), strict=True)]
    columns, signs = [column for column, _ in picked], [sign for _, sign in picked]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        chain = trace(model, data, target=_target(rows, columns, signs, outputs.shape[1]), rule=rule)
    if ids is None:
        ids = [np.arange(graph.num_nodes or 0) for graph in graphs]
    return ExplainedBatch(
        model, graphs, data, np.concatenate(list(ids)), rows, outputs, columns, signs, chain, node_names
    )


def _plain(graph: Data | HeteroData) -> Data:
    """The graph with its numbers alone: words that it has are not given to the model."""
    if isinstance(graph, HeteroData):
        raise InputError(
            "A run takes graphs with one kind of nodes, got a heterogeneous one (HeteroData).",
            argument="graphs",
            expected="graphs with one kind of nodes",
            got="HeteroData",
            remedy="Explain such graphs one by one: ww.explain(model, graph).",
        )
    made = Data()
    for key, value in graph.to_dict().items():
        if isinstance(value, Tensor | int | float) and key not in ("batch", "ptr"):
            made[key] = value
    made.num_nodes = graph.num_nodes
    return made


def _target(rows: Tensor | None, columns: list[int], signs: list[int], width: int) -> Any:
    """What trace explains: the sum of one output per graph."""
    if rows is None:
        if width > 1:
            return columns
        return ["positive" if sign > 0 else "negative" for sign in signs]
    factors = torch.tensor(signs, device=rows.device)
    at = torch.tensor(columns, device=rows.device)

    def picked(output: Any) -> Tensor:
        table = output if output.dim() == 2 else output.unsqueeze(1)
        total: Tensor = (table[rows, at] * factors).sum()
        return total

    return picked


def _picked(target: int | str, graph: Data, row: Tensor) -> tuple[int, int]:
    """The column that is explained of a graph's output, and its sign."""
    if target == "predicted":
        return int(row.argmax()), 1
    if target != "label":
        return column_of(target, len(row))
    label = label_of(graph)
    if label is None or label != int(label):
        raise InputError(
            "This graph has no label to explain.",
            argument="target",
            expected="a column of the output, where graphs have no label y",
        )
    one = len(row) == 1 and label in (0, 1)
    return column_of(("negative", "positive")[int(label)] if one else int(label), len(row))


def label_of(graph: Data) -> float | None:
    """The graph's label, where it has one."""
    label = graph.get("y", None)
    if label is None:
        return None
    value = torch.as_tensor(label)
    return float(value) if value.numel() == 1 and bool(value.double().isfinite()) else None


def model_outputs(model: nn.Module, data: Any, rows: Tensor | None) -> Tensor:
    """What the model says of every graph of a batch, or of every root: (G, C)."""
    with torch.no_grad(), at_rest(model) as resting:
        output = of_graph(model, data, {}).run(resting)
    if not isinstance(output, Tensor) or output.dim() > 2 or not output.is_floating_point():
        got = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"The model returned {got}; a run explains an output of shape (graphs, columns).",
            argument="model",
            expected="a model with an output of shape (graphs, columns)",
            got=got,
            remedy="Wrap the model in one that returns it.",
        )
    count = int(data.num_graphs) if rows is None else int(data.num_nodes or 0)
    table = output if output.dim() == 2 else output.reshape(count if output.numel() % count == 0 else 1, -1)
    if len(table) != count:
        raise InputError(
            f"The output has {len(table)} rows for {count} {'graphs' if rows is None else 'nodes'}.",
            argument="model",
            expected="a model with a row of output for every graph, or with index= for every node",
            got=tuple(output.shape),
            remedy="For a model with an output per node, say which nodes to explain with index.",
        )
    return table if rows is None else table[rows]


def predicted(outputs: Tensor) -> Ints:
    """The class that every row tells: its largest column, or of one logit whether it is positive.  # (G, C) -> (G,)"""
    table = outputs.double().cpu().numpy()
    classes: Ints = (table[:, 0] > 0).astype(np.int64) if table.shape[1] == 1 else table.argmax(axis=1)
    return classes


def chosen(outputs: Tensor, columns: Sequence[int], signs: Sequence[int]) -> Floats:
    """The explained number of every row.  # (G, C) -> (G,)"""
    table = outputs.double().cpu().numpy()
    values: Floats = table[np.arange(len(table)), columns] * np.array(signs)
    return values


def _part(data: Any, keep: Tensor) -> tuple[Any, Tensor, Tensor]:
    """What is left of a batch: the graphs that have nodes, which they are, and the new place of every node."""
    places = keep.cumsum(0) - 1
    left, batch = torch.unique(data.batch[keep], return_inverse=True)
    edges = keep[data.edge_index].all(dim=0)
    part: Any = Batch()
    for key, value in data.to_dict().items():
        if key in ("batch", "ptr", "num_nodes", "edge_index") or key.startswith("_"):
            continue
        if data.is_edge_attr(key):
            part[key] = value[edges]
        elif data.is_node_attr(key):
            part[key] = value[keep]
        else:
            part[key] = value[left] if isinstance(value, Tensor) and len(value) == data.num_graphs else value
    part.edge_index = places[data.edge_index[:, edges]]
    part.batch, part.num_nodes = batch, int(keep.sum())
    part.ptr = offsets(torch.bincount(batch))
    return part, left, places
