"""Sets of nodes, laid out for a contraction."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.core.blocks import Blocks
from walkwise.core.chain import RelevanceChain
from walkwise.core.lazy import cached_property
from walkwise.core.rows import OwnRows, Rows
from walkwise.core.sending import Verdict, sent
from walkwise.questions.neighbours import Ints

#: How many numbers the working set of one batch of queries may hold: about what a cache holds on a
#: processor, and enough to fill an accelerator.
_BUDGET = {"cpu": 1 << 17}
_ACCELERATOR_BUDGET = 1 << 26
#: On a CUDA device: the most numbers, and how many times over a message stands in memory, with its neighbours' rows.
_MOST_NUMBERS, _COPIES = 1 << 29, 16
#: The largest sets that are laid out in blocks, and how many times over blocks may have the rows of the sets.
_BLOCK, _FILLED = 32, 2


@dataclass(frozen=True, eq=False)
class NodeSets:
    """B sets of nodes, one after the other, each ascending; a few sets that came from main memory stay there."""

    num_nodes: int
    count: int  # B
    keys: Tensor  # (K,) set · M + node, ascending
    device: torch.device  # where the chain is
    sizes: tuple[int, int] | None = None  # of the smallest set and the largest, if that is known
    verdict: Verdict | None = None  # on what was given, if it is not read yet

    @property
    def there(self) -> NodeSets:
        """The same sets where the chain is."""
        return self if self.keys.device == self.device else self._sent

    @cached_property
    def _sent(self) -> NodeSets:
        return replace(self, keys=sent(self.keys, self.device))

    @cached_property
    def owner(self) -> Tensor:
        """The set of every entry.  # (K,) ascending"""
        return self.keys.new_zeros(len(self.keys)) if self.count == 1 else self.keys // self.num_nodes

    @cached_property
    def nodes(self) -> Tensor:
        """The nodes, ascending within a set.  # (K,)"""
        return self.keys if self.count == 1 else self.keys % self.num_nodes

    def mask(self, dtype: torch.dtype = torch.bool) -> Tensor:
        """Which nodes are in which set.  # (M, B)"""
        mask = torch.zeros(self.count * self.num_nodes, dtype=dtype, device=self.device)
        mask = mask.index_fill_(0, self.there.keys, 1)
        return mask.view(-1, 1) if self.count == 1 else mask.view(self.count, self.num_nodes).t().contiguous()

    def rows(self) -> Rows:
        """The sets' own nodes as the rows of a contraction; small sets on an accelerator are laid out in blocks."""
        least, most = self.sizes or (0, 0)
        there = self.there
        if not 0 < self.count * most <= _FILLED * len(self.keys) or most > _BLOCK:
            return OwnRows(self.num_nodes, self.count, there.nodes, there.owner, self.keys)
        if least == most:
            return Blocks(self.num_nodes, there.nodes.view(self.count, most))
        place = torch.arange(most, device=self.device)
        present = place < there.offsets.diff().unsqueeze(1)  # (B, S)
        at = (there.offsets[:-1].unsqueeze(1) + place).clamp_(max=len(self.keys) - 1)
        return Blocks(self.num_nodes, there.nodes[at], present)

    @cached_property
    def offsets(self) -> Tensor:
        """Where each set begins among the keys, and where the last one ends.  # (B + 1,)"""
        firsts = torch.arange(self.count + 1, device=self.keys.device) * self.num_nodes
        return torch.searchsorted(self.keys, firsts)

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """A cache for what has been computed about the sets."""
        return {}

    def heed(self) -> None:
        """Raise an error if the given ids turn out to be wrong."""
        if self.verdict is not None:
            self.verdict.read()

    def batches(self, most_sets: int, most_rows: int) -> Iterator[NodeSets]:
        """Yield the sets a few at a time: at most so many sets, and so many rows unless one set has more."""
        if self.count == 1 or (1 <= self.count <= most_sets and len(self.keys) <= most_rows):
            yield self
            return
        least, most = self.sizes or (0, -1)
        offsets = np.arange(self.count + 1) * most if least == most else self.offsets.cpu().numpy()
        yield from self.cut(offsets, offsets, most_sets, most_rows)

    def cut(self, offsets: Ints, sizes: Ints, most_sets: int, most: int) -> Iterator[NodeSets]:
        """Yield the sets a few at a time: at most this many, with a total size below a limit unless one set is larger.

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
            yield NodeSets(self.num_nodes, last - first, keys, self.device, self.sizes)
            first = last


def budget(chain: RelevanceChain) -> int:
    """How many numbers one batch of queries may hold on the chain's device; by its free memory on a CUDA device."""
    if chain.device.type != "cuda":
        return _BUDGET.get(chain.device.type, _ACCELERATOR_BUDGET)
    free, total = torch.cuda.mem_get_info(chain.device)
    ours = torch.cuda.memory_reserved(chain.device)
    allowed = int(total * torch.cuda.get_per_process_memory_fraction(chain.device))  # if processes share a card
    free = min(free, allowed - ours) + ours - torch.cuda.memory_allocated(chain.device)
    return max(1, min(_MOST_NUMBERS, free // (_COPIES * chain.dtype.itemsize)))
