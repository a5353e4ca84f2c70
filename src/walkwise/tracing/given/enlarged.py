"""The same input with more nodes beside the graph, for a look at what a model does with nodes and with edges."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.tracing.given.arguments import Given
from walkwise.tracing.running.found import is_edges


def enlarged(given: Given, more: int, joined: bool, square: bool) -> Given | None:
    """An input with more nodes; None if it is not known how it would look.

    Args:
        given: the input.
        more: how many.
        joined: whether edges join them to each other, in a row; otherwise there are as many edges as before.
        square: whether a matrix with as many columns as nodes joins nodes; otherwise it has more rows alone.
    """
    M, edges = given.num_nodes, given.edge_index
    if type(given.x) is not Tensor or type(edges) is not Tensor or edges.layout != torch.strided or not M:
        return None
    new = torch.arange(M, M + more, device=edges.device)
    added = torch.stack([torch.cat([new[:-1], new[1:]]), torch.cat([new[1:], new[:-1]])])[:, : None if joined else 0]
    larger = partial(_larger, given, new, added, square)
    x = larger("x", given.x)
    named = {name: x if value is given.x else larger(name, value) for name, value in given.arguments.items()}
    return replace(given, x=x, edge_index=larger("edge_index", edges), arguments=named, cut=True)


def _larger(given: Given, new: Tensor, joined: Tensor, square: bool, name: str, value: Any) -> Any:
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
        across = value.dim() > 2 and value.shape[1] == M
        return _larger(given, new, joined, square, name, value.transpose(0, 1)).transpose(0, 1) if across else value
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
