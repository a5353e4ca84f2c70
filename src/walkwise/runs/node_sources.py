"""Single nodes of one large graph as the items of a run, each with the graph around it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from walkwise.core.lazy import cached_property
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.errors import InputError
from walkwise.evaluation.types import node_types
from walkwise.files import read_integers, read_lines
from walkwise.questions.neighbours import Ints, Neighbours, running_totals
from walkwise.runs.fingerprints import hashed
from walkwise.runs.sources import Items, Source

_NODES = "Name nodes of the graph by their numbers, from 0; in a file, one per line."
_TYPED = (
    "Name a type, or nodes as 'paper 2' or by their numbers, which run on from type to type; in a file, one per line."
)


@dataclass(frozen=True, eq=False)
class NodesOf:
    """Single nodes of one large graph, each with the nodes that this many steps reach."""

    data: Any  # a Data or a HeteroData
    nodes: Ints
    hops: int
    called: str = "graph 0"
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def typed(self) -> bool:
        """Whether the graph is heterogeneous."""
        return self.types is not None

    @cached_property
    def types(self) -> NodeTypes | None:
        """The node types of a heterogeneous graph."""
        return node_types(self.data)

    @cached_property
    def _near(self) -> Neighbours:
        here, there = self.data.edge_index.numpy() if self.types is None else _edges_of_types(self.data, self.types)
        return Neighbours.from_pairs(there, here, int(self.data.num_nodes or 0)).both_ways()

    @cached_property
    def _into(self) -> tuple[Ints, Ints]:
        """The edges by the node they lead to, and where each node's begin."""
        target = self.data.edge_index[1].numpy()
        counts = np.bincount(target, minlength=int(self.data.num_nodes or 0))
        return np.argsort(target, kind="stable"), running_totals(counts)

    def keys(self, first: int, last: int) -> dict[str, Ints]:
        """Number 0, the one graph, and the nodes."""
        return {"graph": np.zeros(last - first, dtype=np.int64), "index": self.nodes[first:last]}

    def items(self, first: int, last: int) -> Items:
        """The surroundings of some nodes."""
        around = self._around if self.types is None else self._typed_around
        found = [around(int(node)) for node in self.nodes[first:last]]
        graphs, roots, ids = ([one[i] for one in found] for i in range(3))
        return Items(graphs, [self.name(item) for item in range(first, last)], roots, ids, self.types)  # type: ignore[arg-type]

    def _typed_around(self, node: int) -> tuple[HeteroData, TypedNode, Ints]:
        """The heterogeneous graph around a node, the node in it, and what its nodes are called."""
        assert self.types is not None
        ids = self._near.within(node, self.hops)
        name, number = self.types.named(node)  # type: ignore[misc]
        parts = {
            kind: torch.tensor(self.types.grouped(ids).get(kind, []), dtype=torch.long) for kind in self.types.counts
        }
        made = self.data.subgraph(parts)
        label = self.data[name].get("y")
        if isinstance(label, Tensor) and len(label) == self.types.counts[name]:
            made.y = label[number]
        return made, (name, int(torch.searchsorted(parts[name], number))), ids

    def _around(self, node: int) -> tuple[Data, int, Ints]:
        """The graph around a node, the node's row in it, and what its nodes are called."""
        ids = self._near.within(node, self.hops)
        by_target, before = self._into
        edges = np.concatenate([by_target[before[v] : before[v + 1]] for v in ids.tolist()])
        inside = np.isin(self.data.edge_index[0].numpy()[edges], ids)
        kept = torch.from_numpy(np.sort(edges[inside]))
        rows = torch.from_numpy(ids)
        made: Any = Data()
        for key, value in self.data.to_dict().items():
            if key in ("edge_index", "num_nodes"):
                continue
            if self.data.is_edge_attr(key):
                made[key] = value[kept]
            elif self.data.is_node_attr(key):
                made[key] = value[rows] if isinstance(value, Tensor) else [value[i] for i in ids.tolist()]
        pairs = self.data.edge_index.numpy()[:, kept.numpy()]
        made.edge_index = torch.from_numpy(np.searchsorted(ids, pairs))
        made.num_nodes = len(ids)
        root = int(np.searchsorted(ids, node))
        if "y" in made and len(made.y) == len(ids):
            made.y = made.y[root]
        return made, root, ids

    def name(self, item: int) -> str:
        """The node."""
        node = int(self.nodes[item])
        return f"{self.called}, {f'node {node}' if self.types is None else self.types.written([node])[0]}"

    def fingerprint(self) -> str:
        """A hash of the graph and of the nodes."""
        return hashed([self.data.to_dict(), {"nodes": torch.from_numpy(self.nodes)}])


def nodes_of(source: Source, index: Any, hops: int) -> NodesOf:
    """Single nodes of a source's one graph.

    Args:
        source: of one graph.
        index: "all", node ids, or a file with an id per line; of a heterogeneous graph a type, too, and ids as
            (type, i) or, in words, as "paper 2".
        hops: how far a node's output reaches.
    """
    if len(source) != 1:
        raise InputError(
            f"index names nodes of one graph, and there are {len(source)} graphs.",
            argument="index",
            expected=f"left out if there are several graphs ({len(source)} here)",
            got=index,
            remedy="Give one graph, or leave index out.",
        )
    data = source.items(0, 1).graphs[0]
    count, types = int(data.num_nodes or 0), node_types(data)
    every = isinstance(index, str) and index == "all"
    nodes = np.arange(count) if every else np.unique(_listed_nodes(index) if types is None else _typed(index, types))
    if not len(nodes) or nodes[0] < 0 or nodes[-1] >= count:
        remedy = _NODES if types is None else _TYPED
        raise InputError(argument="index", expected=f'"all", or nodes 0 to {count - 1}', got=index, remedy=remedy)
    return NodesOf(data, nodes, hops, source.name(0), source.class_names, source.node_names)


def _written(index: Any) -> list[str]:
    """The nodes in a text such as "3, 7" or "paper 2"; none in the name of a file."""
    parts = index.split(",") if isinstance(index, str) and not Path(index).exists() else [""]
    return parts if all(re.search(r"(^|\s)\d+\s*$", part) for part in parts) else []


def _listed_nodes(index: Any) -> Ints:
    if numbers := [part for part in _written(index) if part.strip().isdecimal()]:
        return np.array(numbers, dtype=np.int64)
    if isinstance(index, str | Path):
        return read_integers(Path(index), columns=1).flatten().numpy()
    try:
        return np.asarray(index, dtype=np.int64).reshape(-1)
    except (TypeError, ValueError):
        raise InputError(argument="index", expected='"all", node ids, or a file', got=index, remedy=_NODES) from None


def _typed(index: Any, types: NodeTypes) -> Ints:
    """The numbers of nodes of a heterogeneous graph: of a type, in a file, or (type, i) and numbers one by one."""
    if isinstance(index, str) and index in types.counts:
        return types.offsets[index] + np.arange(types.counts[index])
    if isinstance(index, str | Path):
        lines = _written(index) or read_lines(Path(index))
        return np.array([types.read(line) for line in lines], dtype=np.int64)
    single = isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], str)
    listed = [index] if single or not np.iterable(index) else list(index)
    return np.array([types.number(node) for node in listed], dtype=np.int64)


def _edges_of_types(data: HeteroData, types: NodeTypes) -> Ints:
    """All edges, between nodes by their numbers.  # (2, E)"""
    first = types.offsets
    found = [np.zeros((2, 0), dtype=np.int64)]
    for (source, _, target), edges in data.edge_index_dict.items():
        found.append(edges.numpy() + np.array([[first[source]], [first[target]]]))
    return np.concatenate(found, axis=1)


def wider(source: Source) -> Source | None:
    """The same nodes with more around each, or None where there is no more."""
    if not isinstance(source, NodesOf) or source.hops > 2 + int(source.data.num_nodes or 0):
        return None
    return replace(source, hops=2 * source.hops)
