"""The same input with more nodes beside the graph, for a look at what a model does with nodes and with edges."""

from __future__ import annotations

from dataclasses import replace
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
    E = edges.shape[1] if is_edges(edges) else -1
    larger = _Larger(M, E, more, added, square)
    x = larger.part("x", given.x)
    named = {name: x if value is given.x else larger.part(name, value) for name, value in given.arguments.items()}
    return replace(given, x=x, edge_index=larger.part("edge_index", edges), arguments=named, cut=True)


class _Larger:
    """Makes the parts of an input larger."""

    def __init__(self, num_nodes: int, num_edges: int, more: int, joined: Tensor, square: bool) -> None:
        self.num_nodes, self.num_edges, self.more, self.joined = num_nodes, num_edges, more, joined
        self.square = square

    def part(self, name: str, value: Any) -> Any:
        """An argument of the model, by its name; as it is, if it has no row for every node or every edge."""
        M, E, more = self.num_nodes, self.num_edges, self.more
        if name in ("num_nodes", "num_edges"):
            return value + (more if name == "num_nodes" else self.joined.shape[1])
        if not isinstance(value, Tensor) or value.layout != torch.strided or not value.dim():
            return value
        if is_edges(value) and value.shape[1] == E:
            return torch.cat([value, self.joined], 1)
        if self.square and value.shape[-2:] == (M, M) and value.shape[:-2] in ((), (1,)) and name != "x":
            grown = F.pad(value, (0, more, 0, more))
            every = torch.arange(M, M + more, device=value.device)
            grown[..., every, every] = 1  # so that they may be divided by
            grown[..., self.joined[1], self.joined[0]] = 1
            return grown
        if name == "ptr":
            return torch.cat([value[:-1], value[-1:] + more])
        of_edges = len(value) == E and (E != M or name.startswith("edge"))
        if not of_edges and len(value) != M:
            across = value.dim() > 2 and value.shape[1] == M
            return self.part(name, value.transpose(0, 1)).transpose(0, 1) if across else value
        rows = torch.arange(self.joined.shape[1] if of_edges else more, device=value.device)
        if name == "batch":  # all in the last graph
            return torch.cat([value, value[-1:].expand(more)])
        added = value[rows % len(value)] if len(value) else value.new_zeros(len(rows), *value.shape[1:])
        if added.is_floating_point():  # at other places than the others, if these are places
            added = added + 0.1 * (rows + 1).view(-1, *[1] * (value.dim() - 1)).to(added)
        return torch.cat([value, added])
