"""The same input with more nodes: a path beside the graph, for a look at what a model does with nodes and edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.tracing.given.arguments import Given
from walkwise.tracing.running.found import is_edges


def enlarged(given: Given, more: int) -> Given | None:
    """An input with so many more nodes, joined to each other in a row; None if it is not known how it would look."""
    M, edges = given.num_nodes, given.edge_index
    if type(given.x) is not Tensor or type(edges) is not Tensor or edges.layout != torch.strided or not M:
        return None
    new = torch.arange(M, M + more, device=edges.device)
    joined = torch.stack([torch.cat([new[:-1], new[1:]]), torch.cat([new[1:], new[:-1]])])
    E = edges.shape[1] if is_edges(edges) else -1
    larger = _Larger(M, E, more, joined)
    x = larger.part("x", given.x)
    named = {name: x if value is given.x else larger.part(name, value) for name, value in given.arguments.items()}
    return replace(given, x=x, edge_index=larger.part("edge_index", edges), arguments=named, cut=True)


class _Larger:
    """Makes the parts of an input larger."""

    def __init__(self, num_nodes: int, num_edges: int, more: int, joined: Tensor) -> None:
        self.num_nodes, self.num_edges, self.more, self.joined = num_nodes, num_edges, more, joined

    def part(self, name: str, value: Any) -> Any:
        """An argument of the model, by its name; as it is, if it has no row for every node or every edge."""
        M, E, more = self.num_nodes, self.num_edges, self.more
        if name in ("num_nodes", "num_edges"):
            return value + (more if name == "num_nodes" else self.joined.shape[1])
        if not isinstance(value, Tensor) or value.layout != torch.strided or not value.dim():
            return value
        if is_edges(value) and value.shape[1] == E:
            return torch.cat([value, self.joined], 1)
        if value.shape[-2:] == (M, M) and value.shape[:-2] in ((), (1,)):
            grown = F.pad(value, (0, more, 0, more))
            grown[..., self.joined[1], self.joined[0]] = 1
            return grown
        if name == "ptr":
            return torch.cat([value[:-1], value[-1:] + more])
        of_edges = len(value) == E and (E != M or name.startswith("edge"))
        if not of_edges and len(value) != M:
            return value
        rows = torch.arange(self.joined.shape[1] if of_edges else more, device=value.device)
        if name == "batch":  # all in the last graph
            return torch.cat([value, value[-1:].expand(more)])
        added = value[rows % len(value)] if len(value) else value.new_zeros(len(rows), *value.shape[1:])
        return torch.cat([value, added])
