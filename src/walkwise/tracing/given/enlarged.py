"""The same input with more nodes beside the graph, or with an edge more: what does a model do with each of them?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.tracing.given.arguments import Given
from walkwise.tracing.recording.recorded import fitting_dim
from walkwise.tracing.running.found import is_edges


def enlarged(given: Given, more: int, joined: bool, square: bool, of_edges: bool) -> Given | None:
    """An input with more nodes; None if it is not known how it would look.

    Args:
        given: the input.
        more: how many.
        joined: whether edges join them to each other, in a row; otherwise there are as many edges as before.
        square: whether a matrix with as many columns as nodes joins nodes; otherwise it has more rows alone.
        of_edges: whether arguments that may have a row for each edge, or for each node, have one for each edge.
    """
    if not _is_known(given):
        return None
    new = torch.arange(given.num_nodes, given.num_nodes + more, device=given.x.device)
    added = torch.stack([torch.cat([new[:-1], new[1:]]), torch.cat([new[1:], new[:-1]])])[:, : None if joined else 0]
    return _made_larger(given, partial(_larger, given, new, added, square, of_edges))


def with_one_edge_more(given: Given, of_edges: bool) -> Given | None:
    """An input in which the first edge stands twice; None if there are none, or it is not known how it would look."""
    if not _is_known(given) or not is_edges(given.edge_index) or not given.edge_index.shape[1]:
        return None
    first, none = given.edge_index[:, :1], given.edge_index[0, :0]
    return _made_larger(given, partial(_larger, given, none, first, False, of_edges))


def _is_known(given: Given) -> bool:
    """Whether features and edges are tensors, and there are nodes; a model may find edges itself, of points say."""
    edges = given.edge_index
    plain = edges is None or (type(edges) is Tensor and edges.layout == torch.strided)
    return type(given.x) is Tensor and plain and given.num_nodes > 0


def _made_larger(given: Given, larger: Callable[[str, Any], Any]) -> Given:
    x, edges = larger("x", given.x), larger("edge_index", given.edge_index)
    named = {name: x if value is given.x else larger(name, value) for name, value in given.arguments.items()}
    return replace(given, x=x, edge_index=edges, arguments=named, cut=True)


def _larger(given: Given, new: Tensor, joined: Tensor, square: bool, of_edges: bool, name: str, value: Any) -> Any:
    """An argument of the model, by its name; as it is, if it has no row for every node or every edge."""
    M, more = given.num_nodes, len(new)
    if name in ("num_nodes", "num_edges"):
        return value + (more if name == "num_nodes" else joined.shape[1])
    if not isinstance(value, Tensor) or value.layout != torch.strided or not value.dim():
        return value
    if is_edges(value) and is_edges(given.edge_index) and value.shape == given.edge_index.shape:
        return torch.cat([value, joined], 1)
    if square and value.shape[-2:] == (M, M) and value.shape[:-2] in ((), (1,)) and name != "x":
        grown = F.pad(value, (0, more, 0, more))
        grown[..., new, new] = 1  # so that they may be divided by
        grown[..., joined[1], joined[0]] = 1
        return grown
    if name == "ptr":
        return torch.cat([value[:-1], value[-1:] + more])
    kind = given.rows_of(name, value)
    if kind is None:
        dim = fitting_dim(value.shape, M)
        turned = partial(_larger, given, new, joined, square, of_edges, name)
        return turned(value.movedim(dim, 0)).movedim(0, dim) if dim else value
    if of_edges and name not in ("x", "batch") and given.has_as_many_edges:
        kind = "edges"
    return _with_rows(name, value, more if kind == "nodes" or name == "batch" else joined.shape[1])


def _with_rows(name: str, value: Tensor, more: int) -> Tensor:
    """A tensor with more rows, made of its first ones; those of ``batch`` are all in the last graph."""
    if name == "batch":
        return torch.cat([value, value[-1:].expand(more)])
    rows = torch.arange(more, device=value.device)
    added = value[rows % len(value)] if len(value) else value.new_zeros(more, *value.shape[1:])
    if added.is_floating_point():  # at other places than the others, if these are places
        added = added + 0.1 * (rows + 1).view(-1, *[1] * (value.dim() - 1)).to(added)
    return torch.cat([value, added])
