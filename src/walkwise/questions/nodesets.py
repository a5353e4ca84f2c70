"""Subgraphs as the caller gives them, checked and laid out for a contraction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain as flatten
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.rows import OwnRows
from walkwise.errors import InputError

#: Lists of node ids, or one boolean mask (B, M).
Subgraphs = Sequence[Sequence[int]] | Sequence[Tensor] | Tensor

#: How many numbers the working set of one batch of queries may hold: about what a cache holds on a
#: processor, and enough to fill an accelerator.
_BUDGET = {"cpu": 1 << 17}
_ACCELERATOR_BUDGET = 1 << 26


@dataclass(frozen=True, eq=False)
class NodeSets:
    """B sets of nodes, one after the other, each ascending."""

    num_nodes: int
    count: int  # B
    keys: Tensor  # (K,) set · M + node, ascending

    @cached_property
    def owner(self) -> Tensor:
        """Whose every entry is.  # (K,) ascending"""
        return self.keys.new_zeros(len(self.keys)) if self.count == 1 else self.keys // self.num_nodes

    @cached_property
    def nodes(self) -> Tensor:
        """The nodes, ascending within a set.  # (K,)"""
        return self.keys if self.count == 1 else self.keys % self.num_nodes

    def mask(self, dtype: torch.dtype = torch.bool) -> Tensor:
        """Who is in which set.  # (M, B)"""
        mask = torch.zeros(self.count * self.num_nodes, dtype=dtype, device=self.keys.device)
        mask = mask.index_fill_(0, self.keys, 1)
        return mask.view(-1, 1) if self.count == 1 else mask.view(self.count, self.num_nodes).t().contiguous()

    def rows(self) -> OwnRows:
        """The sets' own nodes as the rows of a contraction."""
        return OwnRows(self.num_nodes, self.count, self.nodes, self.owner)

    def batches(self, most_sets: int, most_rows: int) -> Iterator[NodeSets]:
        """The sets a few at a time: at most so many sets, and about so many rows."""
        if self.count == 1:
            yield self
            return
        ends = torch.bincount(self.owner, minlength=self.count).cumsum(0).tolist()
        first, row = 0, 0
        while first < self.count:
            last = first + 1
            while last < min(self.count, first + most_sets) and ends[last] - row <= most_rows:
                last += 1
            upto = ends[last - 1]
            yield NodeSets(self.num_nodes, last - first, self.keys[row:upto] - first * self.num_nodes)
            first, row = last, upto


def as_node_sets(chain: RelevanceChain, given: Any) -> NodeSets:
    """The subgraphs checked: ids in range, none twice in a subgraph."""
    M = chain.num_nodes
    if isinstance(given, np.ndarray):
        given = torch.as_tensor(given) if given.dtype == bool else list(given)
    subgraphs = given
    if isinstance(subgraphs, Tensor) and subgraphs.dtype == torch.bool:
        if subgraphs.dim() != 2 or subgraphs.shape[1] != M:
            raise InputError(
                f"A boolean mask of subgraphs has shape (B, {M}), one column per node; got {tuple(subgraphs.shape)}."
            )
        return NodeSets(M, len(subgraphs), subgraphs.to(chain.device).reshape(-1).nonzero().view(-1))
    lists = [_ids(subgraph, i) for i, subgraph in enumerate(_sequence(subgraphs))]
    if len(lists) <= 4 and all(type(i) is int and 0 <= i < M for ids in lists for i in ids):
        few = sorted(number * M + i for number, ids in enumerate(lists) for i in ids)
        if len(set(few)) == len(few):  # few and sound: no need for tensors to see it
            return NodeSets(M, len(lists), torch.tensor(few, dtype=torch.long, device=chain.device))
    nodes = _node_tensor(list(flatten.from_iterable(lists)))
    owner = torch.repeat_interleave(torch.tensor([len(ids) for ids in lists], dtype=torch.long))
    if nodes.numel():
        _check_range(nodes, owner, M)
    keys, _ = (owner * M + nodes).sort()
    twice = keys[1:] == keys[:-1]
    if bool(twice.any()):
        key = int(keys[1:][twice][0])
        raise InputError(f"Subgraph {key // M} names node {key % M} more than once.")
    return NodeSets(M, len(lists), keys.to(chain.device))


def budget(chain: RelevanceChain) -> int:
    """How many numbers one batch of queries may hold on the chain's device."""
    return _BUDGET.get(chain.device.type, _ACCELERATOR_BUDGET)


def _sequence(subgraphs: Any) -> Sequence[Any]:
    if isinstance(subgraphs, Tensor) and subgraphs.dim() == 2 and not subgraphs.is_floating_point():
        return subgraphs.tolist()
    if isinstance(subgraphs, (str, bytes, Tensor)) or not hasattr(subgraphs, "__iter__"):
        given = f"{subgraphs.dtype} {tuple(subgraphs.shape)}" if isinstance(subgraphs, Tensor) else ""
        raise InputError(
            "subgraphs is a list of lists of node ids, or a boolean mask (B, M); got a "
            f"{type(subgraphs).__name__} {given}".rstrip()
            + "."
        )
    return list(subgraphs)


def _ids(subgraph: Any, number: int) -> list[Any]:
    if hasattr(subgraph, "tolist"):
        subgraph = subgraph.tolist()
    if isinstance(subgraph, (str, bytes)) or not hasattr(subgraph, "__iter__"):
        raise InputError(
            f"Subgraph {number} is {subgraph!r}, not a list of node ids. For one subgraph write [[0, 1, 2]]."
        )
    return list(subgraph)


def _node_tensor(ids: list[Any]) -> Tensor:
    if not ids:
        return torch.empty(0, dtype=torch.long)
    try:
        nodes = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Node ids must be integers: {error}.") from None
    if nodes.dtype == torch.bool or nodes.is_floating_point() or nodes.dim() != 1:
        raise InputError(f"Node ids must be integers, got {nodes.dtype} of shape {tuple(nodes.shape)}.")
    return nodes.long()


def _check_range(nodes: Tensor, owner: Tensor, num_nodes: int) -> None:
    if int(nodes.min()) >= 0 and int(nodes.max()) < num_nodes:
        return
    wrong = int(((nodes < 0) | (nodes >= num_nodes)).nonzero()[0])
    raise InputError(
        f"Subgraph {int(owner[wrong])} names node {int(nodes[wrong])}, but the graph has nodes 0 to {num_nodes - 1}."
    )
