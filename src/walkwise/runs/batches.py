"""Graphs side by side, with one or several node types, and what is left of them without some nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from walkwise.core.node_types import NodeTypes
from walkwise.datasets.graphset import offsets
from walkwise.errors import InputError
from walkwise.questions.neighbours import Ints

AnyGraph = Data | HeteroData


@dataclass(frozen=True, eq=False)
class TypedRows:
    """The nodes and edges of heterogeneous graphs side by side: type after type, and graph after graph in each."""

    batch: Ints  # (M,) the graph of every node
    kinds: list[str]  # (M,) its type
    names: list[str]  # (M,) its name in its graph: "author 3"
    relations: list[str]  # (E,) the relation of every edge

    @staticmethod
    def of(data: Any, types: NodeTypes) -> TypedRows:
        """The rows of a batch, in the order of the types."""
        graphs, kinds, names = [np.zeros(0, dtype=np.int64)], list[str](), list[str]()
        for name, count in types.counts.items():
            batch, ptr = data[name].batch.cpu().numpy(), data[name].ptr.cpu().numpy()
            graphs.append(batch)
            kinds += [name] * count
            names += [f"{name} {i}" for i in (np.arange(count) - ptr[batch]).tolist()]
        relations = [relation for (_, relation, _), count in types.edge_counts.items() for _ in range(count)]
        return TypedRows(np.concatenate(graphs), kinds, names, relations)


def side_by_side(graphs: Sequence[AnyGraph]) -> Any:
    """Graphs as one batch, with tensors only: the model does not get text attributes."""
    kinds = [graph.metadata() if isinstance(graph, HeteroData) else None for graph in graphs]
    if any(kind != kinds[0] for kind in kinds):
        raise InputError(
            "Graphs of different types of nodes or edges cannot be explained together.",
            argument="graphs",
            expected="graphs with the same types of nodes and edges",
            remedy="Explain them one by one.",
        )
    return Batch.from_data_list([_plain(graph) for graph in graphs])


def _plain(graph: AnyGraph) -> AnyGraph:
    """A graph with its tensors only."""
    if isinstance(graph, HeteroData):
        typed: Any = HeteroData()
        for name, value in _numbers(graph.stores[0]).items():
            typed[name] = value
        for kind, store in graph.node_items():
            typed[kind].update(_numbers(store) | {"num_nodes": store.num_nodes})
        for relation, edges in graph.edge_items():
            typed[relation].update(_numbers(edges))
        return typed  # type: ignore[no-any-return]
    made = Data()
    for key, value in _numbers(graph).items():
        made[key] = value
    made.num_nodes = graph.num_nodes
    return made


def _numbers(store: Any) -> dict[str, Any]:
    held = store.to_dict().items()
    return {k: value for k, value in held if isinstance(value, Tensor | int | float) and k not in ("batch", "ptr")}


def attribute(graph: AnyGraph, name: str) -> Any:
    """What the whole graph has under a name, or None."""
    return getattr(graph, name, None)


def is_typed(graphs: Sequence[Any]) -> bool:
    """Whether some of the graphs are heterogeneous."""
    return any(isinstance(graph, HeteroData) for graph in graphs)


def part_of(data: Any, keep: Tensor) -> tuple[Any, Tensor, Tensor]:
    """What is left of a batch: the graphs that still have nodes, which graphs these are, and every node's new place.

    Args:
        data: graphs with one node type.
        keep: whether each node stays: (M,).
    """
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
