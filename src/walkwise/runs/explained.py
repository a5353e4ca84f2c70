"""A batch of graphs run through the model: the outputs, the explained numbers, and the chain of all graphs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walkwise.core.chain import RelevanceChain
from walkwise.core.lazy import cached_property
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.errors import CoverageWarning, InputError
from walkwise.evaluation.predictions import at_rest
from walkwise.evaluation.types import AllTypes, node_types
from walkwise.questions.marginals import node_relevance
from walkwise.questions.neighbours import Bools, Floats, Ints, running_totals
from walkwise.rules import RuleLike
from walkwise.runs.batches import AnyGraph, TypedRows, attribute, part_of, side_by_side
from walkwise.runs.kinds import as_molecule, node_kinds
from walkwise.tracing import trace
from walkwise.tracing.given.binding import of_graph
from walkwise.tracing.given.target import column_of

#: Nodes of a batch, (G,); of heterogeneous graphs (type, i) of each graph.
Rows = Tensor | list[TypedNode]


@dataclass(frozen=True, eq=False)
class ExplainedBatch:
    """Graphs side by side, the model's outputs for each, and the chain of all of them together."""

    model: nn.Module
    graphs: Sequence[Any]
    data: Any  # a Batch
    typed: TypedRows | None  # which nodes are of which type, of heterogeneous graphs
    own_ids: Ints | None  # (M,) what nodes are called, graph after graph; by default their numbers there
    roots: Rows | None  # the nodes that are explained, of a model with an output per node
    outputs: Tensor  # (G, C) the model's output for each graph
    columns: list[int]  # (G,) the explained column
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
        return np.repeat(np.arange(len(self.graphs)), self.sizes) if self.typed is None else self.typed.batch

    @cached_property
    def by_graph(self) -> Ints:
        """All nodes, graph after graph, those of each ascending.  # (M,)"""
        return np.argsort(self.batch, kind="stable")

    @cached_property
    def numbers(self) -> Ints:
        """The number of every node in its own graph.  # (M,)"""
        numbers = np.empty(len(self.batch), dtype=np.int64)
        numbers[self.by_graph] = np.arange(len(self.batch)) - np.repeat(self.starts[:-1], self.sizes)
        return numbers

    @property
    def ids(self) -> Ints:
        """The id of each node in its own graph.  # (M,)"""
        if self.own_ids is None:
            return self.numbers
        ids = np.empty_like(self.own_ids)
        ids[self.by_graph] = self.own_ids
        return ids

    @cached_property
    def edges(self) -> Ints:
        """All edges, between nodes of the batch.  # (2, E)"""
        typed: Any = None if self.typed is None else of_graph(self.model, self.data, {})
        edges: Ints = (self.data.edge_index if typed is None else typed.edges).cpu().numpy()
        return edges

    @cached_property
    def edges_by_graph(self) -> Ints:
        """All edges by their number, graph after graph, those of each in their order.  # (E,)"""
        return np.argsort(self.batch[self.edges[0]], kind="stable")

    @cached_property
    def own_edges(self) -> list[Ints]:
        """The edges of every graph, between its nodes by their numbers there.  # (2, E_g) each"""
        counts = np.bincount(self.batch[self.edges[0]], minlength=len(self.graphs))
        return np.split(self.numbers[self.edges[:, self.edges_by_graph]], np.cumsum(counts)[:-1], axis=1)

    def rows_of(self, graph: int) -> Ints:
        """The nodes of a graph, ascending.  # (M_g,)"""
        return self.by_graph[self.starts[graph] : self.starts[graph + 1]]

    @cached_property
    def explained(self) -> Floats:
        """The explained output of every graph.  # (G,)"""
        return chosen(self.outputs, self.columns, self.signs)

    @cached_property
    def nodes(self) -> Floats:
        """The relevance of every node.  # (M,)"""
        types, relevance = self.chain.types, node_relevance(self.chain, layer="start")
        flat = relevance if types is None else types.joined(relevance)
        values: Floats = flat.double().cpu().numpy()
        return values

    @cached_property
    def kinds(self) -> list[list[str | None]]:
        """The kinds of the nodes of every graph; in heterogeneous graphs, their types."""
        if self.typed is None:
            return [node_kinds(data, self.node_names) for data in self.graphs]
        return [[self.typed.kinds[node] for node in self.rows_of(g)] for g in range(len(self.graphs))]

    @cached_property
    def molecules(self) -> list[Any]:
        """The molecule of every graph, or None."""
        if self.typed is not None:
            return [None] * len(self.graphs)
        return [as_molecule(data, kinds) for data, kinds in zip(self.graphs, self.kinds, strict=True)]

    def without(self, removed: Bools) -> Floats:
        """The explained output of every graph with some of its nodes removed; 0 where none is left.  # (M,) -> (G,)"""
        return chosen(self.outputs_without(removed), self.columns, self.signs)

    def outputs_without(self, removed: Bools) -> Tensor:
        """Every column of the outputs with some of the nodes removed.  # (M,) -> (G, C)"""
        if self.typed is not None:
            return self._typed_outputs(~removed)
        keep = ~torch.from_numpy(removed).to(self.outputs.device)
        rows = self.roots
        assert not isinstance(rows, list)
        if rows is not None:
            keep[rows] = True
        outputs = torch.zeros_like(self.outputs)
        if bool(keep.any()):
            part, left, places = part_of(self.data, keep)
            roots = None if rows is None else places[rows[left]]
            outputs[left] = model_outputs(self.model, part, roots)
        return outputs

    def _typed_outputs(self, keep: Bools) -> Tensor:
        """Every column of the outputs for some of the nodes; a graph that lacks a type is run alone."""
        outputs = torch.zeros_like(self.outputs)
        for g, graph in enumerate(self.graphs):
            nodes = self.numbers[(self.batch == g) & keep]
            root = self.roots[g] if isinstance(self.roots, list) else None
            own = None if root is None else (root[0], root[1] - int(self.data[root[0]].ptr[g]))
            with torch.no_grad(), at_rest(self.model) as resting:
                alone = AllTypes(resting, side_by_side([graph]).to(outputs.device), {}, own)
                at = alone.row
                nodes = nodes if at is None else np.union1d(nodes, [at])  # which is explained, and stays
                if len(nodes):
                    table = alone(torch.from_numpy(nodes).to(outputs.device), alone.edges)
                    rows = 1 if at is None else len(nodes)
                    row = 0 if at is None else int(np.searchsorted(nodes, at))
                    outputs[g] = _table(table, rows, per_node=at is not None)[row]
        return outputs


def explain(
    model: nn.Module,
    graphs: Sequence[AnyGraph],
    *,
    roots: Sequence[int] | Sequence[TypedNode] | None = None,
    ids: Sequence[Ints] | None = None,
    types: NodeTypes | None = None,
    target: int | str = "predicted",
    rule: RuleLike = "auto",
    node_names: tuple[str, ...] = (),
    device: str = "cpu",
) -> ExplainedBatch:
    """Trace graphs together; each gets the same result as it would alone.

    Args:
        model: the model.
        graphs: the graphs.
        roots: the explained node of each graph, for models with an output per node; by type (type, i).
        ids: the node ids of each graph; by default 0, 1, ….
        types: the types of a heterogeneous graph of which these are parts, and whose numbers are the ids.
        target: "predicted", "label", a column, or "positive" or "negative" of a model with one logit.
        rule: the LRP rule.
        node_names: the meaning of the columns of one-hot features.
        device: where to compute: where the model is.
    """
    data = side_by_side(graphs).to(device)
    rows = None if roots is None else _rows(data, roots)
    outputs = model_outputs(model, data, rows)
    picked = [_picked(target, graph, row) for graph, row in zip(graphs, outputs.cpu(), strict=True)]
    columns, signs = [column for column, _ in picked], [sign for _, sign in picked]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        chain = trace(model, data, target=_target(rows, columns, signs, outputs, node_types(data)), rule=rule)
    typed = None if chain.types is None else TypedRows.of(data, chain.types)
    own_ids = None if ids is None else np.concatenate(list(ids))
    made = ExplainedBatch(model, graphs, data, typed, own_ids, rows, outputs, columns, signs, chain, node_names)
    return (
        made if typed is None or types is None else replace(made, typed=replace(typed, names=types.written(made.ids)))
    )


def _rows(data: Any, roots: Sequence[int] | Sequence[TypedNode]) -> Rows:
    """The nodes of a batch that are explained, from those of every graph."""
    named = [(g, *root) for g, root in enumerate(roots) if isinstance(root, tuple)]
    if named:
        return [(name, int(data[name].ptr[g]) + i) for g, name, i in named]
    rows: Tensor = data.ptr[:-1] + torch.tensor(list(roots), device=data.ptr.device)
    return rows


def _target(rows: Rows | None, columns: list[int], signs: list[int], outputs: Tensor, types: NodeTypes | None) -> Any:
    """What trace explains: the sum of one output per graph."""
    if rows is None and types is None:
        if outputs.shape[1] > 1:
            return columns
        return ["positive" if sign > 0 else "negative" for sign in signs]
    if isinstance(rows, list):
        places = zip(rows, columns, signs, strict=True)
        each = [(name, row, column, sign) for (name, row), column, sign in places]
        return lambda output: sum(
            _of_type(output, name, types)[row].reshape(-1)[column] * s for name, row, column, s in each
        )
    picks = torch.arange(len(columns), device=outputs.device) if rows is None else rows
    factors = torch.tensor(signs, device=outputs.device)
    at = torch.tensor(columns, device=outputs.device)

    def picked(output: Any) -> Tensor:
        table = output if output.dim() == 2 else output.reshape(-1, outputs.shape[1])
        total: Tensor = (table[picks, at] * factors).sum()
        return total

    return picked


def _picked(target: int | str, graph: AnyGraph, row: Tensor) -> tuple[int, int]:
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
            expected="a column of the output, since the graphs have no label y",
        )
    one = len(row) == 1 and label in (0, 1)
    return column_of(("negative", "positive")[int(label)] if one else int(label), len(row))


def label_of(graph: AnyGraph) -> float | None:
    """The graph's label, where it has one."""
    label = attribute(graph, "y")
    if label is None:
        return None
    value = torch.as_tensor(label)
    return float(value) if value.numel() == 1 and bool(value.double().isfinite()) else None


def model_outputs(model: nn.Module, data: Any, rows: Rows | None) -> Tensor:
    """The model's output for every graph of a batch, or for every root: (G, C)."""
    with torch.no_grad(), at_rest(model) as resting:
        _, output = of_graph(model, data, {}).taken(lambda way: way.run(resting))
    if rows is None:
        return _table(output, int(data.num_graphs), per_node=False)
    if isinstance(rows, list):
        types = node_types(data)
        assert types is not None
        kinds = dict.fromkeys(name for name, _ in rows)
        tables = {n: _table(_of_type(output, n, types), types.counts[n], per_node=True) for n in kinds}
        return torch.stack([tables[name][row] for name, row in rows])
    return _table(output, int(data.num_nodes or 0), per_node=True)[rows]


def _of_type(output: Any, name: str, types: NodeTypes | None) -> Any:
    """The rows of a type in a model's output, which is a dictionary, or has rows of all types, or of that one."""
    if not isinstance(output, dict):
        return output if types is None else types.rows_of(name, output)
    if name not in output:
        raise InputError(
            f"The model has no output for nodes of type {name!r}.",
            argument="index",
            expected=f"nodes of a type that it has an output for: {', '.join(map(str, output))}",
            got=name,
        )
    return output[name]


def _table(output: Any, count: int, *, per_node: bool) -> Tensor:
    """An output with a row for each of so many graphs or nodes."""
    if not isinstance(output, Tensor) or output.dim() > 2 or not output.is_floating_point():
        got = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"The model returned {got}; a run explains an output of shape (graphs, columns).",
            argument="model",
            expected="a model with an output of shape (graphs, columns)",
            got=got,
            remedy="Wrap the model in one that returns it.",
        )
    table = output if output.dim() == 2 else output.reshape(count if output.numel() % count == 0 else 1, -1)
    if len(table) != count:
        raise InputError(
            f"The output has {len(table)} rows for {count} {'nodes' if per_node else 'graphs'}.",
            argument="model",
            expected="a model with a row of output for every graph, or with index= for every node",
            got=tuple(output.shape),
            remedy="For a model with an output per node, say which nodes to explain with index.",
        )
    return table


def predicted(outputs: Tensor) -> Ints:
    """The class that every row predicts: the largest column, or whether one logit is positive.  # (G, C) -> (G,)"""
    table = outputs.double().cpu().numpy()
    classes: Ints = (table[:, 0] > 0).astype(np.int64) if table.shape[1] == 1 else table.argmax(axis=1)
    return classes


def chosen(outputs: Tensor, columns: Sequence[int], signs: Sequence[int]) -> Floats:
    """The explained number of every row.  # (G, C) -> (G,)"""
    table = outputs.double().cpu().numpy()
    values: Floats = table[np.arange(len(table)), columns] * np.array(signs)
    return values
