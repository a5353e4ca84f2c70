"""AUAC and AUPC of many graphs and many orders at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from walkwise.evaluation.parts import induced
from walkwise.paper.bunches import Bunch

#: How many nodes one pass of the model may hold.
_MOST_NODES = 20_000


def areas(
    model: nn.Module, data: Bunch, target: Tensor, orders: Sequence[Tensor], mode: str, *, on: str = "logit"
) -> Tensor:
    """AUAC (activation) or AUPC (pruning) of every graph, for every one of its orders: (G, A).

    AUAC averages f over the first 1 … M nodes of an order; AUPC averages |f(G) − f(rest)| with the first
    0 … M − 1 nodes removed. Node sets that several orders share are predicted once.

    Args:
        model: called as ``model(x, edge_index, batch)``.
        data: the graphs, as one batch.
        target: the output column of every graph, (G,).
        orders: for every graph the orders of its nodes, (A, M_g), in the batch's node ids.
        mode: "activation" or "pruning".
        on: "logit", or "probability" for the softmax.
    """
    found = []
    for graph, order in enumerate(orders):
        found.append(_node_sets(order - int(data.nodes_before[graph]), mode))
    values = _values(model, data, target, [sets for sets, _ in found], on)
    return torch.stack([_area(v, which, mode) for v, (_, which) in zip(values, found, strict=True)])


def _node_sets(order: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """The different node sets along some orders, (K, M) bool, and which of them each step has: (A, M)."""
    A, M = order.shape
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(M).expand(A, M))
    step = torch.arange(M)[:, None]
    masks = rank[:, None, :] <= step if mode == "activation" else rank[:, None, :] >= step  # (A, M, M)
    sets, which = torch.unique(masks.reshape(A * M, M), dim=0, return_inverse=True)
    return sets, which.view(A, M)


def _area(values: Tensor, which: Tensor, mode: str) -> Tensor:
    """The mean along every order: (A,). A pruning order begins with the whole graph."""
    along = values[which]  # (A, M)
    return (along if mode == "activation" else (along - along[:, :1]).abs()).mean(dim=1)


def _values(model: nn.Module, data: Bunch, target: Tensor, sets: Sequence[Tensor], on: str) -> list[Tensor]:
    """f of every node set of every graph.  # [(K_g,)]"""
    values = [torch.zeros(len(s), dtype=torch.float64) for s in sets]
    for parts in _passes(sets):
        pieces = [_induced(data, graph, sets[graph][first:last]) for graph, first, last in parts]
        rows = _predict(model, pieces)  # (ΣK, C)
        rows = rows.softmax(dim=1) if on == "probability" else rows
        start = 0
        for graph, first, last in parts:
            chosen = rows[start : start + last - first, int(target[graph])]
            values[graph][first:last], start = chosen.double(), start + last - first
    return values


def _passes(sets: Sequence[Tensor]) -> list[list[tuple[int, int, int]]]:
    """Which sets go through the model together: lists of (graph, first, last)."""
    passes: list[list[tuple[int, int, int]]] = [[]]
    room = _MOST_NODES
    for graph, masks in enumerate(sets):
        step = max(1, _MOST_NODES // masks.shape[1])
        for first in range(0, len(masks), step):
            part = masks[first : first + step]
            nodes = int(part.sum())
            if nodes > room and passes[-1]:
                passes.append([])
                room = _MOST_NODES
            passes[-1].append((graph, first, first + len(part)))
            room -= nodes
    return passes


def _induced(data: Bunch, graph: int, masks: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Features, edges and owners of the subgraphs that the masks induce, and how many they are."""
    begin, end = data.nodes_before[graph : graph + 2].tolist()
    edges = data.edge_index[:, slice(*data.edges_before[graph : graph + 2].tolist())] - begin
    found = induced(edges, masks)
    return data.x[begin:end][found.node], found.edge_index, found.owner, len(masks)


@torch.no_grad()
def _predict(model: nn.Module, pieces: Sequence[tuple[Tensor, Tensor, Tensor, int]]) -> Tensor:
    """The model's output for all pieces in one pass."""
    edges, owners, nodes, graphs = [], [], 0, 0
    for x, edge_index, owner, count in pieces:
        edges.append(edge_index + nodes)
        owners.append(owner + graphs)
        nodes, graphs = nodes + len(x), graphs + count
    output: Tensor = model(torch.cat([x for x, *_ in pieces]), torch.cat(edges, dim=1), torch.cat(owners))
    return output
