"""Node sets and orders of nodes, as callers give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from walkwise.errors import Described, InputError, described

#: Node ids, or a boolean mask (M,).
Nodes = Sequence[int] | Tensor


def scores_of_order(order: Nodes) -> Tensor:
    """Scores with which the nodes sort into an order: M for the first, 1 for the last.  # (M,)

    >>> scores_of_order([2, 0, 1]).tolist()
    [2.0, 1.0, 3.0]
    """
    places = _permutation(order, length_of(order))
    scores = torch.empty(len(places), dtype=torch.float64)
    scores[places] = torch.arange(len(places), 0, -1, dtype=torch.float64)
    return scores


def prefixes(order: Nodes, num_nodes: int) -> Tensor:
    """The first 1 … M nodes of an order as node sets.  # (M, M) bool

    >>> prefixes([2, 0, 1], 3).int().tolist()
    [[0, 0, 1], [1, 0, 1], [1, 1, 1]]
    """
    places = _permutation(order, num_nodes)
    rank = torch.empty_like(places)
    rank[places] = torch.arange(num_nodes)
    return rank[None, :] <= torch.arange(num_nodes)[:, None]


def as_mask(nodes: Nodes, num_nodes: int, argument: str = "nodes") -> Tensor:
    """A node set as a boolean mask.  # (M,)

    >>> as_mask([3, 0], 4).tolist()
    [True, False, False, True]
    """
    expected = f"node ids from 0 to {num_nodes - 1}, or a boolean mask of shape ({num_nodes},)"
    given = as_tensor(nodes, argument, expected)
    if given.dtype == torch.bool:
        if given.shape != (num_nodes,):
            raise InputError(argument=argument, expected=expected, got=described(given))
        return given
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    if given.numel() == 0:
        return mask
    if given.is_floating_point() or given.dim() != 1 or int(given.min()) < 0 or int(given.max()) >= num_nodes:
        raise InputError(argument=argument, expected=expected, got=given.tolist())
    mask[given] = True
    return mask


def parted(given: tuple[Any, ...], last: str) -> tuple[tuple[Any, ...], Any]:
    """The graph, and what comes after it."""
    if len(given) == 3 or (len(given) == 2 and isinstance(given[0], Data | HeteroData)):
        return given[:-1], given[-1]
    graph, kinds = "as one Data object or as x and edge_index", ", ".join(type(part).__name__ for part in given)
    raise InputError(
        f"After the model must come the graph, {graph}, and then {last}, got ({kinds}).",
        argument=last,
        expected=f"given after the graph, {graph}",
        got=Described(f"({kinds})"),
    )


def as_tensor(given: Any, argument: str, expected: str) -> Tensor:
    """What the caller gave as a tensor, on the processor."""
    try:
        return torch.as_tensor(given).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(argument=argument, expected=expected, got=given) from None


def length_of(order: Any) -> int:
    """How many nodes an order names, without a look at them."""
    return as_tensor(order, "order", "a list that names every node once, such as [2, 0, 1]").numel()


def _permutation(order: Nodes, num_nodes: int) -> Tensor:
    expected = f"a list that names each of the nodes 0 to {num_nodes - 1} once"
    places = as_tensor(order, "order", expected)
    if places.shape != (num_nodes,) or places.is_floating_point() or places.dtype == torch.bool:
        scores = places.shape == (num_nodes,) and places.is_floating_point()
        remedy = "For scores, one for each node, write scores.argsort(descending=True)." if scores else None
        raise InputError(argument="order", expected=expected, got=described(places), remedy=remedy)
    if not torch.equal(places.sort().values, torch.arange(num_nodes)):
        raise InputError(argument="order", expected=expected, got=places.tolist())
    return places.long()
