"""Graphs other than the explained one: given whole, or by name, ``x_t, edge_index_t``; or held by the model itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from walkwise.tracing.given.holders import all_tensors_in, is_graph
from walkwise.tracing.private import buffers_of
from walkwise.tracing.running.found import is_edges

#: In names of edges; and in names of pairs of nodes that edges are to be told of, of the explained graph.
_EDGES, _PAIRS = ("edge", "adj", "bond"), ("label", "neg", "pos", "pair")


def graphs_beside(arguments: Mapping[str, Any], x: Any, edge_index: Any, num_nodes: int) -> dict[str, list[Tensor]]:
    """The tensors of other graphs among what a model is given, by what these are called.

    Args:
        arguments: what the model gets besides x and edge_index.
        x: of the explained graph; the same tensor beside other edges is another view of it, and no other graph.
        edge_index: of the explained graph.
        num_nodes: of the explained graph.

    >>> x, edge_index = torch.rand(3, 2), torch.tensor([[0, 1], [1, 2]])
    >>> list(graphs_beside({"x_t": x * 2, "edge_index_t": edge_index}, x, edge_index.flip(1)[:, :1], 3))
    ['x_t with edge_index_t']
    """
    found = {name: all_tensors_in(value) for name, value in arguments.items() if is_graph(value)}
    for edges in _other_edges(arguments, edge_index):
        for name in _rows_of(edges, arguments, edge_index, num_nodes):
            if arguments[name] is not x:
                found[f"{name} with {edges}"] = [arguments[name]]
    return found


def graphs_held(modules: Iterable[tuple[str, Any]], x: Any, edge_index: Any) -> dict[str, list[Tensor]]:
    """The features of other graphs that a model holds, not learned, by what these are called: a query, a template.

    Args:
        modules: of the model, by name.
        x: the features of the explained graph; a graph with other columns is another kind of thing.
        edge_index: of the explained graph.
    """
    found: dict[str, list[Tensor]] = {}
    for name, module in modules:
        if type(module).__module__.startswith(("torch.", "torch_geometric.")) or not isinstance(x, Tensor):
            continue
        held = vars(module) | buffers_of(module)
        whole = {key: value for key, value in held.items() if isinstance(value, Data)}
        graphs = {key: all_tensors_in(value) for key, value in whole.items() if not _is_explained(value, x, edge_index)}
        tensors = {key: value for key, value in held.items() if isinstance(value, Tensor)}
        for edges in _other_edges(tensors, edge_index):
            count = int(tensors[edges].max()) + 1
            graphs |= {key: [t] for key, t in tensors.items() if _are_like(t, x) and len(t) >= count}
        found |= {f"{name}.{key}" if name else key: tensors for key, tensors in graphs.items()}
    return found


def _is_explained(graph: Data, x: Tensor, edge_index: Any) -> bool:
    """Whether a graph has the features or the edges of the explained one."""
    held = {name: graph[name] for name in graph.keys() if isinstance(graph[name], Tensor)}  # noqa: SIM118  (no dict)
    same_edges = any(map(is_edges, held.values())) and not any(_other_edges(held, edge_index))
    return same_edges or any(tensor.shape == x.shape and torch.equal(tensor, x) for tensor in held.values())


def _are_like(features: Tensor, x: Tensor) -> bool:
    """Whether features that are not learned have the columns of others."""
    fits = features.is_floating_point() and features.dim() == x.dim() == 2 and features.shape[1] == x.shape[1]
    same = features.shape == x.shape and torch.equal(features, x)
    return fits and not isinstance(features, nn.Parameter) and not same


def _other_edges(arguments: Mapping[str, Any], edge_index: Any) -> Iterator[str]:
    """The names of edges that are not those of the explained graph, nor these turned round."""
    edges = {name: value for name, value in arguments.items() if is_edges(value) and value.numel()}
    if edges and is_edges(edge_index):
        yield from (name for name, value in edges.items() if not _are_same(value, edge_index))


def _are_same(edges: Tensor, others: Tensor) -> bool:
    """Whether edges are others, perhaps turned round; without a copy, as there may be many."""
    return torch.equal(edges, others) or (torch.equal(edges[0], others[1]) and torch.equal(edges[1], others[0]))


def _rows_of(edges: str, arguments: Mapping[str, Any], edge_index: Tensor, num_nodes: int) -> list[str]:
    """The names of the features whose rows some edges join: told by name, or by how many they are."""
    ends = arguments[edges]
    named = arguments.get(edges.replace("edge_index", "x"))
    if isinstance(named, Tensor) and "edge_index" in edges and len(named) > int(ends.max()):
        return [edges.replace("edge_index", "x")]
    if not any(part in edges for part in _EDGES) or any(part in edges for part in _PAIRS):
        return []
    per_edge = {num_nodes, edge_index.shape[1], ends.shape[1]}  # rows of the explained graph, or of edges
    features = {n: t for n, t in arguments.items() if isinstance(t, Tensor) and t.is_floating_point() and t.dim() > 1}
    fitting = [name for name, t in features.items() if len(t) not in per_edge and len(t) > int(ends.max())]
    return fitting if len(fitting) == 1 else []
