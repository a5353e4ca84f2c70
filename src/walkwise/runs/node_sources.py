"""Single nodes of one large graph as what a run explains, each with the graph around it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from walkwise.core.lazy import cached_property
from walkwise.errors import InputError
from walkwise.files import read_integers
from walkwise.questions.neighbours import Ints, Neighbours, running_totals
from walkwise.runs.fingerprints import hashed
from walkwise.runs.sources import Items, Source

_NODES = "Name nodes of the graph by their numbers, from 0; in a file, one in each line."


@dataclass(frozen=True, eq=False)
class NodesOf:
    """Single nodes of one large graph, each with the nodes that this many steps reach."""

    typed = False
    data: Any  # a Data
    nodes: Ints
    hops: int
    called: str = "graph 0"
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def _near(self) -> Neighbours:
        here, there = self.data.edge_index.numpy()
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
        found = [self._around(int(node)) for node in self.nodes[first:last]]
        graphs, roots, ids = ([one[i] for one in found] for i in range(3))
        return Items(graphs, [self.name(item) for item in range(first, last)], roots, ids)  # type: ignore[arg-type]

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
        return f"{self.called}, node {self.nodes[item]}"

    def fingerprint(self) -> str:
        """A hash of the graph and of the nodes."""
        return hashed([self.data.to_dict(), {"nodes": torch.from_numpy(self.nodes)}])


def nodes_of(source: Source, index: Any, hops: int) -> NodesOf:
    """Single nodes of a source's one graph.

    Args:
        source: of one graph.
        index: "all", node ids, or a file with an id per line.
        hops: how far a node's output reaches.
    """
    if len(source) != 1:
        raise InputError(
            f"index names nodes of one graph, and there are {len(source)} graphs.",
            argument="index",
            expected=f"left out where there are several graphs ({len(source)} here)",
            got=index,
            remedy="Give one graph, or leave index out.",
        )
    data = source.items(0, 1).graphs[0]
    if isinstance(data, HeteroData):
        raise InputError(
            "Single nodes of a heterogeneous graph are not explained in a run.",
            argument="index",
            expected="left out for heterogeneous graphs",
            got=index,
            remedy='Explain them one by one: ww.explain(model, data, index=("type", 0)).',
        )
    count = int(data.num_nodes or 0)
    every = isinstance(index, str) and index == "all"
    nodes = np.arange(count) if every else np.unique(_listed_nodes(index))
    if not len(nodes) or nodes[0] < 0 or nodes[-1] >= count:
        raise InputError(argument="index", expected=f'"all", or nodes 0 to {count - 1}', got=index, remedy=_NODES)
    return NodesOf(data, nodes, hops, source.name(0), source.class_names, source.node_names)


def _listed_nodes(index: Any) -> Ints:
    if isinstance(index, str | Path):
        return read_integers(Path(index), columns=1).flatten().numpy()
    try:
        return np.asarray(index, dtype=np.int64).reshape(-1)
    except (TypeError, ValueError):
        raise InputError(argument="index", expected='"all", node ids, or a file', got=index, remedy=_NODES) from None


def wider(source: Source) -> Source | None:
    """The same nodes with more around each, or None where there is no more."""
    if not isinstance(source, NodesOf) or source.hops > 2 + int(source.data.num_nodes or 0):
        return None
    return replace(source, hops=2 * source.hops)
