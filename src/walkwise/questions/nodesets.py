"""Subgraphs as the caller gives them, checked and laid out for a contraction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain as flatten
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.lazy import cached_property
from walkwise.core.rows import Blocks, OwnRows, Rows
from walkwise.core.sending import sent
from walkwise.errors import Described, InputError, described
from walkwise.questions.neighbours import running_totals

#: Lists of node ids, one boolean mask (B, M), or a pair of tensors: all ids, and the offsets where each set begins.
Subgraphs = Sequence[Sequence[int]] | Sequence[Tensor] | Tensor | tuple[Tensor, Tensor]
Ints = NDArray[np.int64]

#: How many numbers the working set of one batch of queries may hold: about what a cache holds on a
#: processor, and enough to fill an accelerator.
_BUDGET = {"cpu": 1 << 17}
_ACCELERATOR_BUDGET = 1 << 26
#: On a CUDA device: the most numbers, and how many times over a message stands in memory, with its neighbours' rows.
_MOST_NUMBERS, _COPIES = 1 << 29, 16


#: The largest sets that are laid out in blocks, and how many times over blocks may have the rows of the sets.
_BLOCK, _FILLED = 32, 2
#: Up to so many ids in main memory are checked there.
_FEW_IDS = 1 << 14


@dataclass(frozen=True, eq=False)
class NodeSets:
    """B sets of nodes, one after the other, each ascending."""

    num_nodes: int
    count: int  # B
    keys: Tensor  # (K,) set · M + node, ascending
    sizes: tuple[int, int] | None = None  # of the smallest set and the largest, where an accelerator has been asked

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

    def rows(self) -> Rows:
        """The sets' own nodes as the rows of a contraction, on an accelerator in blocks where sets are small."""
        least, most = self.sizes or (0, 0)
        if not 0 < self.count * most <= _FILLED * len(self.keys) or most > _BLOCK:
            return OwnRows(self.num_nodes, self.count, self.nodes, self.owner)
        if least == most:
            return Blocks(self.num_nodes, self.nodes.view(self.count, most))
        place = torch.arange(most, device=self.keys.device)
        present = place < self.offsets.diff().unsqueeze(1)  # (B, S)
        at = (self.offsets[:-1].unsqueeze(1) + place).clamp_(max=len(self.keys) - 1)
        return Blocks(self.num_nodes, self.nodes[at], present)

    @cached_property
    def offsets(self) -> Tensor:
        """Where each set begins among the keys, and where the last one ends.  # (B + 1,)"""
        firsts = torch.arange(self.count + 1, device=self.keys.device) * self.num_nodes
        return torch.searchsorted(self.keys, firsts)

    def batches(self, most_sets: int, most_rows: int) -> Iterator[NodeSets]:
        """The sets a few at a time: at most this many sets, and at most this many rows unless one set has more."""
        if self.count == 1 or (1 <= self.count <= most_sets and len(self.keys) <= most_rows):
            yield self
            return
        least, most = self.sizes or (0, -1)
        offsets = np.arange(self.count + 1) * most if least == most else self.offsets.cpu().numpy()
        yield from self.cut(offsets, offsets, most_sets, most_rows)

    def cut(self, offsets: Ints, sizes: Ints, most_sets: int, most: int) -> Iterator[NodeSets]:
        """The sets a few at a time: at most this many, of a size of at most so much unless one set is larger.

        Args:
            offsets: those of the sets.
            sizes: running totals of whatever counts as their size, with a leading zero.  # (B + 1,)
            most_sets: how many sets at a time.
            most: how large they may be together.
        """
        first = 0
        while first < self.count:
            fitting = int(np.searchsorted(sizes, sizes[first] + most, side="right")) - 1
            last = min(max(fitting, first + 1), first + most_sets, self.count)
            keys = self.keys[int(offsets[first]) : int(offsets[last])]
            keys = keys - first * self.num_nodes if first else keys
            yield NodeSets(self.num_nodes, last - first, keys, self.sizes)
            first = last


def as_node_sets(chain: RelevanceChain, given: Any) -> NodeSets:
    """The subgraphs checked: ids in range, none twice in a subgraph."""
    M = chain.num_nodes
    if chain.types is not None and isinstance(given, (list, tuple)):
        given = type(given)(chain.types.numbers(nodes) for nodes in given)
    if isinstance(given, np.ndarray):
        table = given.dtype == bool or (given.ndim == 2 and given.dtype.kind in "iu")
        given = torch.as_tensor(given) if table else list(given)
    if isinstance(given, Tensor) and given.dtype == torch.bool:
        if given.dim() != 2 or given.shape[1] != M:
            raise InputError(
                f"A boolean mask of subgraphs must have shape (B, {M}), one column per node, got {tuple(given.shape)}.",
                argument="subgraphs",
                expected=f"of shape (B, {M}) where it is a boolean mask",
                got=tuple(given.shape),
            )
        return NodeSets(M, len(given), sent(given, chain.device).reshape(-1).nonzero().view(-1))
    if isinstance(given, Tensor) and given.dim() == 2 and not given.is_floating_point():  # sets of one size
        count, size = given.shape
        return _checked(chain, given.flatten(), torch.arange(count + 1, device=given.device) * size)
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, Tensor) for part in given):
        return _from_offsets(chain, *given)
    lists = [s if type(s) in (list, tuple) else _ids(s, i) for i, s in enumerate(_sequence(given))]
    if len(lists) <= 4 and all(type(i) is int and 0 <= i < M for ids in lists for i in ids):
        few = sorted(number * M + i for number, ids in enumerate(lists) for i in ids)
        if len(set(few)) == len(few):  # few and sound: no need for tensors to see it
            return NodeSets(M, len(lists), sent(torch.tensor(few, dtype=torch.long), chain.device))
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return _checked(chain, _node_tensor(list(flatten.from_iterable(lists))), torch.from_numpy(running_totals(lengths)))


def budget(chain: RelevanceChain) -> int:
    """How many numbers one batch of queries may hold on the chain's device; by its free memory on a CUDA device."""
    if chain.device.type != "cuda":
        return _BUDGET.get(chain.device.type, _ACCELERATOR_BUDGET)
    free, total = torch.cuda.mem_get_info(chain.device)
    ours = torch.cuda.memory_reserved(chain.device)
    allowed = int(total * torch.cuda.get_per_process_memory_fraction(chain.device))  # of those who share a card
    free = min(free, allowed - ours) + ours - torch.cuda.memory_allocated(chain.device)
    return max(1, min(_MOST_NUMBERS, free // (_COPIES * chain.dtype.itemsize)))


def _from_offsets(chain: RelevanceChain, ids: Tensor, offsets: Tensor) -> NodeSets:
    """Set b has the ids from offsets[b] to before offsets[b + 1]."""
    for tensor in (ids, offsets):
        if tensor.dim() != 1 or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            expected, got = "two integer tensors, (K,) and (B + 1,)", f"{described(ids)} and {described(offsets)}"
            raise InputError(
                f"A pair (ids, offsets) must be {expected}, got {got}.",
                argument="subgraphs",
                expected=f"{expected}, where it is a pair (ids, offsets)",
                got=Described(got),
            )
    return _checked(chain, ids, offsets)


def _checked(chain: RelevanceChain, ids: Tensor, offsets: Tensor) -> NodeSets:
    """The sets, given all ids and where each set begins; errors name the first that is wrong.

    A few in main memory are looked at there. Others are looked at where the chain is; all that there is to know of them
    comes in one answer, and an accelerator is waited for just once.
    """
    where = ids.device if len(ids) + len(offsets) <= _FEW_IDS else chain.device
    ids, offsets = (sent(tensor, where, torch.long) for tensor in (ids, offsets))
    M, count, lengths = chain.num_nodes, len(offsets) - 1, offsets.diff()
    sound = (lengths >= 0).all() & (offsets[:1] == 0).all() & (offsets[-1:] == len(ids)).all()
    if count < 0 or (where.type == "cpu" and not bool(sound)):
        raise _wrong_offsets(ids, offsets)
    if where.type == "cpu":
        owner = torch.repeat_interleave(lengths, output_size=len(ids))
    else:  # there may be anything in it until that is known
        owner = torch.searchsorted(offsets, torch.arange(len(ids), device=where), right=True) - 1
    keys, _ = (owner * M + ids).sort()
    twice = keys[1:] == keys[:-1]
    looked = [~sound, ((ids < 0) | (ids >= M)).any(), twice.any()]
    looked += [lengths.min(), lengths.max()] if count else []
    unsound, beyond, again, *sizes = torch.stack([tensor.long() for tensor in looked]).tolist()
    if unsound:
        raise _wrong_offsets(ids, offsets)
    if beyond:
        first = int(((ids < 0) | (ids >= M)).nonzero()[0])
        raise InputError(
            f"Subgraph {int(owner[first])} names node {int(ids[first])}, but the graph has nodes 0 to {M - 1}.",
            argument="subgraphs",
            expected=f"sets of nodes from 0 to {M - 1}",
            got=int(ids[first]),
        )
    if again:
        key = int(keys[1:][twice][0])
        raise InputError(
            f"Subgraph {key // M} names node {key % M} more than once.",
            argument="subgraphs",
            expected="sets that name each node once",
            got=key % M,
        )
    known = (sizes[0], sizes[1]) if sizes and chain.device.type != "cpu" else None
    return NodeSets(M, count, sent(keys, chain.device), known)


def _wrong_offsets(ids: Tensor, offsets: Tensor) -> InputError:
    shown = f"{offsets[:8].tolist()}{'...' if len(offsets) > 8 else ''}"
    return InputError(
        f"In a pair (ids, offsets), offsets must ascend from 0 to the number of ids, {len(ids)}, got {shown}.",
        argument="subgraphs",
        expected=f"a pair (ids, offsets) whose offsets ascend from 0 to {len(ids)}",
        got=Described(shown),
        remedy="Two subgraphs as tensors go into a list, [a, b].",
    )


def _sequence(subgraphs: Any) -> Sequence[Any]:
    if isinstance(subgraphs, (str, bytes, Tensor)) or not hasattr(subgraphs, "__iter__"):
        expected = "a list of lists of node ids, a boolean mask (B, M), or a pair of tensors (ids, offsets)"
        raise InputError(argument="subgraphs", expected=expected, got=described(subgraphs))
    return list(subgraphs)


def _ids(subgraph: Any, number: int) -> list[Any]:
    if hasattr(subgraph, "tolist"):
        subgraph = subgraph.tolist()
    if isinstance(subgraph, (str, bytes)) or not hasattr(subgraph, "__iter__"):
        raise InputError(
            argument=f"subgraphs[{number}]",
            expected="a list of node ids",
            got=subgraph,
            remedy="For one subgraph write [[0, 1, 2]].",
        )
    return list(subgraph)


def _node_tensor(ids: list[Any]) -> Tensor:
    if not ids:
        return torch.empty(0, dtype=torch.long)
    try:
        nodes = np.array(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"Node ids must be integers: {error}.",
            argument="subgraphs",
            expected="lists of integers",
            got=Described(error),
        ) from None
    if nodes.dtype.kind not in "iu" or nodes.ndim != 1:
        got = described(nodes)
        raise InputError(
            f"Node ids must be integers, got {got}.", argument="subgraphs", expected="lists of integers", got=got
        )
    return torch.from_numpy(nodes.astype(np.int64, copy=False))
