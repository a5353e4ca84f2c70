"""The answers to every question about a batch of graphs, as the columns of a table; the schema of each table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from walkwise.questions.components import component_sizes
from walkwise.questions.marginals import edge_relevance
from walkwise.questions.neighbours import Floats, Ints, running_totals
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.runs.batches import attribute
from walkwise.runs.explained import ExplainedBatch, label_of, predicted
from walkwise.runs.groups import find_groups
from walkwise.runs.kinds import links_within, pattern_of
from walkwise.runs.questions import Question
from walkwise.search.best_subgraph import find_subgraph
from walkwise.search.best_walks import top_walks
from walkwise.search.orders import order_nodes

#: The version of the schema below; tables of another version are refused.
SCHEMA = 1

#: What every table begins with: the graph's number, and of a model with an output per node the explained node.
KEYS = {"graph": pa.int64(), "index": pa.int64()}

_NODES = pa.list_(pa.int32())
_NUMBERS = pa.list_(pa.float64())

#: The columns of every table besides its keys.
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "graphs": {
        "name": pa.string(),
        "num_nodes": pa.int32(),
        "num_edges": pa.int32(),
        "label": pa.float64(),
        "prediction": pa.int32(),
        "target": pa.int32(),
        "output": pa.float64(),
        "relevance": pa.float64(),
        "outputs": _NUMBERS,
        "smiles": pa.string(),
        "error": pa.string(),
    },
    "nodes": {"node": pa.int32(), "kind": pa.string(), "relevance": pa.float64()},
    "edges": {"source": pa.int32(), "target": pa.int32(), "relevance": pa.float64()},
    "walks": {"rank": pa.int32(), "nodes": _NODES, "relevance": pa.float64()},
    "order": {"nodes": _NODES},
    "subgraph": {
        "nodes": _NODES,
        "kinds": pa.list_(pa.string()),
        "links": _NODES,
        "relevance": pa.float64(),
        "effect": pa.float64(),
        "alone": pa.int32(),
        "pattern": pa.string(),
    },
    "groups": {
        "group": pa.string(),
        "count": pa.int32(),
        "nodes": _NODES,
        "relevance": pa.float64(),
        "node_relevance": pa.float64(),
        "effect": pa.float64(),
    },
    "curves": {"activation": _NUMBERS, "pruning": _NUMBERS, "auac": pa.float64(), "aupc": pa.float64()},
}

#: More columns of tables about heterogeneous graphs: the same nodes by type, "author 3", and the relations of edges.
TYPED_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "nodes": {"named": pa.string()},
    "edges": {"named": pa.list_(pa.string()), "relation": pa.string()},
    **{kind: {"named": pa.list_(pa.string())} for kind in ("walks", "order", "subgraph", "groups")},
}


@dataclass(frozen=True)
class Layout:
    """Further columns of all tables of a run: the explained node, and nodes by type."""

    indexed: bool = False
    typed: bool = False


def schema_of(kind: str, layout: Layout) -> pa.Schema:
    """The columns of a table and their types.

    Args:
        kind: "graphs", or the kind of a question.
        layout: whether single nodes are explained, and whether graphs are heterogeneous.

    >>> schema_of("order", Layout()).names, schema_of("order", Layout(typed=True)).names
    (['graph', 'nodes'], ['graph', 'nodes', 'named'])
    """
    keys = KEYS if layout.indexed else {"graph": KEYS["graph"]}
    more = TYPED_COLUMNS.get(kind, {}) if layout.typed else {}
    return pa.schema([*keys.items(), *COLUMNS[kind].items(), *more.items()])


def answer(question: Question, batch: ExplainedBatch, keys: Mapping[str, Ints], layout: Layout) -> pa.Table:
    """The rows of one question for the graphs of a batch.

    Args:
        question: the question.
        batch: the graphs, explained.
        keys: the number of every graph, and perhaps its explained node: (G,) each.
        layout: the columns that all tables of the run have.
    """
    owner, columns = _ANSWERS[question.kind](question, batch)
    return table_of(question.kind, {name: key[owner] for name, key in keys.items()} | columns, layout)


def table_of(kind: str, columns: Mapping[str, Any], layout: Layout) -> pa.Table:
    """Columns in the order and the types of the schema; missing ones are null."""
    schema = schema_of(kind, layout)
    rows = len(columns["graph"])
    arrays = [
        pa.array(columns[field.name], type=field.type, from_pandas=False)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def graph_rows(batch: ExplainedBatch, keys: Mapping[str, Ints], names: Sequence[str], layout: Layout) -> pa.Table:
    """A row for every graph: what it is, the model's outputs, and what was explained."""
    walks = np.bincount(batch.batch, batch.nodes, len(batch.graphs))
    outputs = batch.outputs.double().cpu().numpy()
    one = outputs.shape[1] == 1
    columns = {
        "name": list(names),
        "num_nodes": batch.sizes,
        "num_edges": [graph.num_edges for graph in batch.graphs],
        "label": [label_of(graph) for graph in batch.graphs],
        "prediction": predicted(batch.outputs),
        "target": [(sign > 0) if one else column for column, sign in zip(batch.columns, batch.signs, strict=True)],
        "output": batch.explained,
        "relevance": walks,
        "outputs": list(outputs),
        "smiles": [None if (smiles := attribute(graph, "smiles")) is None else str(smiles) for graph in batch.graphs],
    }
    columns["target"] = np.asarray(columns["target"]).astype(np.int32)
    return table_of("graphs", dict(keys) | columns, layout)


def failed_row(keys: Mapping[str, Ints], name: str, error: str, layout: Layout) -> pa.Table:
    """The row of a graph that could not be explained."""
    return table_of("graphs", dict(keys) | {"name": [name], "error": [error]}, layout)


# -- one function per kind of question: the graph that every row belongs to, and the columns --------------------

Rows = tuple[Ints, dict[str, Any]]


def _nodes(question: Question, batch: ExplainedBatch) -> Rows:
    kinds, rows = [kind for some in batch.kinds for kind in some], batch.by_graph
    columns = {"node": batch.ids[rows], "kind": kinds, "relevance": batch.nodes[rows]}
    if batch.typed is not None:
        columns["named"] = [batch.typed.names[row] for row in rows]
    return batch.batch[rows], columns


def _edges(question: Question, batch: ExplainedBatch) -> Rows:
    pairs = torch.from_numpy(batch.edges).to(batch.chain.device)
    relevance, rows = edge_relevance(batch.chain, edge_index=pairs).double().cpu().numpy(), batch.edges_by_graph
    source, target = batch.edges[:, rows]
    columns = {"source": batch.ids[source], "target": batch.ids[target], "relevance": relevance[rows]}
    if batch.typed is not None:
        columns["relation"] = [batch.typed.relations[row] for row in rows]
        columns |= _named(batch, batch.edges[:, rows].T.reshape(-1), np.full(len(rows), 2))
    return batch.batch[source], columns


def _walks(question: Question, batch: ExplainedBatch) -> Rows:
    found = top_walks(batch.chain, int(question.number), graphs=torch.from_numpy(batch.batch), progress=False)
    counts = np.array([len(best.walks) for best in found])
    walks = torch.cat([best.walks for best in found]).cpu().numpy()
    relevance = torch.cat([best.relevance for best in found]).double().cpu().numpy()
    standing = walks >= 0  # a walk may pass a position by
    nodes = _node_lists(batch, walks[standing], standing.sum(axis=1))
    rank = np.arange(len(walks)) - running_totals(counts)[:-1].repeat(counts)
    return np.repeat(np.arange(len(found)), counts), {"rank": rank, "relevance": relevance} | nodes


def _order(question: Question, batch: ExplainedBatch) -> Rows:
    orders = order_nodes(batch.chain, alpha=question.number, graphs=torch.from_numpy(batch.batch), progress=False)
    flat = torch.cat(list(orders)).cpu().numpy()
    return np.arange(len(orders)), _node_lists(batch, flat, batch.sizes)


def _subgraph(question: Question, batch: ExplainedBatch) -> Rows:
    sizes = np.minimum(int(question.number), _largest_components(batch)).tolist()  # no connected one is larger
    found = find_subgraph(batch.chain, sizes, graphs=torch.from_numpy(batch.batch))
    removed = np.zeros(len(batch.batch), dtype=bool)
    removed[[node for one in found for node in one.numbers]] = True
    effect = batch.explained - batch.without(removed)
    alone = predicted(batch.outputs_without(~removed))
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS["subgraph"] if name != "nodes"}
    for g, one in enumerate(found):
        nodes = batch.numbers[list(one.numbers)].tolist()
        kinds = [batch.kinds[g][node] for node in nodes]
        links = links_within(nodes, batch.own_edges[g])
        row = {
            "kinds": kinds,
            "links": [end for pair in links for end in pair],
            "relevance": one.score,
            "effect": float(effect[g]),
            "alone": int(alone[g]),
            "pattern": pattern_of(nodes, links, kinds, batch.molecules[g]),
        }
        for name, value in row.items():
            columns[name].append(value)
    flat, counts = [node for one in found for node in one.numbers], [len(one.numbers) for one in found]
    return np.arange(len(found)), columns | _node_lists(batch, np.array(flat), np.array(counts))


def _groups(question: Question, batch: ExplainedBatch) -> Rows:
    smarts = any(isinstance(made, str) for made in question.groups.values())
    owner: list[int] = []
    rows: list[tuple[str, int, Ints]] = []
    for g, graph in enumerate(batch.graphs):
        molecule = batch.molecules[g] if smarts else None
        kinds = [str(kind) for kind in batch.kinds[g]]
        for name, count, nodes in find_groups(question.groups, graph, kinds, molecule):
            owner.append(g)
            rows.append((name, count, batch.rows_of(g)[nodes]))
    flat = np.concatenate([nodes for _, _, nodes in rows]) if rows else np.zeros(0, dtype=np.int64)
    sizes = np.array([len(nodes) for _, _, nodes in rows], dtype=np.int64)
    sets = torch.from_numpy(flat), torch.from_numpy(running_totals(sizes))
    within = np.repeat(np.arange(len(rows)), sizes)
    return np.array(owner, dtype=np.int64), {
        "group": [name for name, _, _ in rows],
        "count": [count for _, count, _ in rows],
        **_node_lists(batch, flat, sizes),
        "relevance": subgraph_relevance(batch.chain, sets).double().cpu().numpy(),
        "node_relevance": np.bincount(within, batch.nodes[flat], len(rows)),
        "effect": _effects(batch, owner, [nodes for _, _, nodes in rows]),
    }


def _effects(batch: ExplainedBatch, owner: Sequence[int], sets: Sequence[Ints]) -> Floats:
    """How far each graph's output falls when a set of its nodes is removed; one pass handles one set of every graph."""
    effect, before, seen = np.zeros(len(sets)), np.zeros(len(sets), dtype=np.int64), dict[int, int]()
    for row, g in enumerate(owner):
        before[row] = seen.get(g, 0)
        seen[g] = before[row] + 1
    for turn in range(int(before.max(initial=-1)) + 1):
        rows = np.flatnonzero(before == turn).tolist()
        removed = np.zeros(len(batch.batch), dtype=bool)
        removed[np.concatenate([sets[row] for row in rows])] = True
        fall = batch.explained - batch.without(removed)
        effect[rows] = fall[[owner[row] for row in rows]]
    return effect


def _curves(question: Question, batch: ExplainedBatch) -> Rows:
    along = {}
    for mode in ("activation", "pruning"):
        orders = order_nodes(
            batch.chain, mode=mode, alpha=question.number, graphs=torch.from_numpy(batch.batch), progress=False
        )
        place = np.empty(len(batch.batch), dtype=np.int64)  # of every node in its graph's order
        for order in orders:
            place[order.cpu().numpy()] = np.arange(len(order))
        values = np.zeros((int(batch.sizes.max()), len(orders)))
        for step in range(len(values)):
            if mode == "activation":
                values[step] = batch.without(place > step)
            elif step:
                values[step] = np.abs(batch.without(place < step) - batch.explained)
        along[mode] = [values[:size, g] for g, size in enumerate(batch.sizes)]
    areas = {"auac": along["activation"], "aupc": along["pruning"]}
    means = {name: [float(curve.mean()) for curve in curves] for name, curves in areas.items()}
    return np.arange(len(batch.graphs)), along | means


_ANSWERS: dict[str, Callable[[Question, ExplainedBatch], Rows]] = {
    "nodes": _nodes,
    "edges": _edges,
    "walks": _walks,
    "order": _order,
    "subgraph": _subgraph,
    "groups": _groups,
    "curves": _curves,
}


def _node_lists(batch: ExplainedBatch, flat: Ints, sizes: Ints) -> dict[str, pa.Array]:
    """Lists of nodes of these lengths, one after the other: by id, and for heterogeneous graphs also by type."""
    return {"nodes": _lists(pa.array(batch.ids[flat], type=pa.int32()), sizes)} | _named(batch, flat, sizes)


def _named(batch: ExplainedBatch, flat: Ints, sizes: Ints) -> dict[str, pa.Array]:
    if batch.typed is None:
        return {}
    return {"named": _lists(pa.array([batch.typed.names[node] for node in flat], type=pa.string()), sizes)}


def _lists(flat: pa.Array, sizes: Ints) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(running_totals(sizes), type=pa.int32()), flat)


def _largest_components(batch: ExplainedBatch) -> Ints:
    """How many nodes the largest connected part of each graph has.  # (G,)"""
    largest = np.zeros(len(batch.graphs), dtype=np.int64)
    np.maximum.at(largest, batch.batch, component_sizes(torch.from_numpy(batch.edges), len(batch.batch)))
    return largest
