"""Find the homes of rows that are not nodes: the node to which the row of an edge, or of a pair of edges, belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.differential import RowFunction
from walkwise.core.operators import Aggregate, Columns, Identity, Operator, RowMap, Scale
from walkwise.core.row_maps import Gather, Scatter
from walkwise.tracing.steps.layouts import each_once

#: Maps of every row by itself.
BY_ROW = frozenset({Identity, Scale, RowMap, Columns, RowFunction})
#: The node that every row of a slot has its home at, by slot; all nodes in their order where rows are nodes.
Found = dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class Split(Gather):
    """Rows that become several, each a part of it."""

    parts: int = 1


@dataclass(frozen=True, eq=False)
class Join(Scatter):
    """Rows that become parts of one."""

    parts: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class SlotMap:
    """A map from slot to slot, and which rows it moves where."""

    operator: Operator
    source: int
    target: int
    index: Tensor | None  # where rows are moved: what the rows of one side are on the other
    reads: bool  # whether the index names rows of the source
    rank: int  # how surely both sides have the same homes: 0 single rows, 1 rows that are added up, 2 that are read

    @staticmethod
    def of(operator: Operator, source: int, target: int) -> SlotMap:
        """The map from one of a step's sources."""
        kind = type(operator)
        if kind in (Gather, Scatter, Split, Join):
            assert isinstance(operator, (Gather, Scatter))
            sure = kind in (Split, Join) or each_once(operator.index)
            reads = kind in (Gather, Split)
            return SlotMap(operator, source, target, operator.index, reads, 0 if sure else 2 if reads else 1)
        return SlotMap(operator, source, target, None, False, 0 if kind in BY_ROW or kind is Aggregate else 3)

    def counts(self, before: Tensor | None, after: Tensor | None) -> tuple[int | None, int | None]:
        """The numbers of rows on both sides, as far as known."""
        if self.index is None:
            return (None if after is None else len(after)), (None if before is None else len(before))
        counts = self.operator.num_rows, len(self.index)  # type: ignore[attr-defined]
        return counts if self.reads else counts[::-1]

    def other_side(self, homes: Tensor, forward: bool) -> Tensor:
        """The homes on one side that follow from the other."""
        if self.index is None:
            return homes
        if forward == self.reads:
            return homes[self.index]
        rows = self.operator.num_rows  # type: ignore[attr-defined]
        return torch.full((rows,), -1, device=homes.device).scatter_reduce(0, self.index, homes, "amax")

    def fits(self, before: Tensor, after: Tensor) -> bool:
        """Whether there are as many rows as the map has on both sides."""
        if self.index is not None:
            return self.counts(before, after) == (len(before), len(after))
        rows = self.operator.shape[0] if isinstance(self.operator, Scale) else 1
        return len(before) == len(after) and rows in (1, len(before))

    def leaves(self, before: Tensor, after: Tensor) -> bool:
        """Whether the map leads from home to home."""
        if self.index is not None:
            source, target = (before[self.index], after) if self.reads else (before, after[self.index])
        elif self.operator.reach == 0:
            source, target = before, after
        else:
            return True
        return source is not target and bool(((source != target) & (source >= 0) & (target >= 0)).any())


def found_homes(maps: Sequence[SlotMap], nodes: Found, every: Tensor) -> Found | None:
    """The homes of all rows, -1 for those that lead from no node or to none; None if numbers of rows do not fit.

    Rows are at home where they are added up, or else where they were read: an edge at its target, a node's heads at the
    node. Sums with as many rows as there are nodes are nodes, unless something else is known about them. Otherwise, a
    sum is at home where one of its parts is, and a row that is read is at home where one of its readers is.
    """
    found = _unknown(maps, nodes)
    if found is None:
        return None
    missing = _read(maps, found, nodes)

    def fill(rank: int, forward: bool) -> bool:
        """Fill in the homes on one side of maps of one rank, and of single rows; return whether any were missing."""
        filled = False
        for each in maps if forward else maps[::-1]:
            here, there = (each.source, each.target) if forward else (each.target, each.source)
            if there in missing and each.rank in (0, rank):
                filled |= _fill(found, missing, there, each.other_side(found[here], forward))
        return filled

    def are_nodes() -> bool:
        for each in maps:
            sums = each.target in missing and type(each.operator) is Scatter and each.operator.num_rows == len(every)
            if sums and bool((found[each.target] < 0).all()):
                found[each.target] = every
                del missing[each.target]
                return True
        return False

    while fill(1, False) or fill(2, True) or are_nodes() or fill(1, True) or fill(2, False):
        pass
    return found


def _unknown(maps: Sequence[SlotMap], nodes: Found) -> Found | None:
    """The homes of nodes, and none yet for other rows; None if numbers of rows do not fit."""
    found, before, device = dict(nodes), -1, next(iter(nodes.values())).device
    nowhere: dict[int, Tensor] = {}  # by the number of rows
    while before < len(found):
        before = len(found)
        for each in maps:
            if each.source in found and each.target in found:
                continue
            counts = each.counts(found.get(each.source), found.get(each.target))
            for slot, count in zip((each.source, each.target), counts, strict=True):
                if slot not in found and count is not None:
                    if count not in nowhere:
                        nowhere[count] = torch.full((count,), -1, device=device)
                    found[slot] = nowhere[count]
    known = all(each.source in found and each.target in found for each in maps)
    return found if known and all(each.fits(found[each.source], found[each.target]) for each in maps) else None


def _read(maps: Sequence[SlotMap], found: Found, nodes: Found) -> dict[int, Tensor]:
    """Which rows lead to nodes, in slots whose rows are not nodes; rows that are never read need no home."""
    read: dict[int, Tensor] = {}
    all_rows: dict[int, Tensor] = {}  # by their number
    for each in reversed(maps):
        if each.source in nodes:
            continue
        mask, count = read.get(each.target), len(found[each.target])
        if mask is None:
            if count not in all_rows:
                all_rows[count] = torch.ones(count, dtype=torch.bool, device=found[each.target].device)
            mask = all_rows[count]
        leads = mask if each.index is None else each.other_side(mask.long(), False) > 0
        before = read.get(each.source)
        read[each.source] = leads if before is None or before is leads else before | leads
    return read


def _fill(found: Found, missing: dict[int, Tensor], slot: int, others: Tensor) -> bool:
    """Fill in missing homes, and return whether any were filled in."""
    known = missing[slot] & (others >= 0)
    left = missing[slot] & ~known
    some, whole, more = torch.stack([known.any(), known.all(), left.any()]).tolist()
    if some:
        found[slot] = others if whole else torch.where(known, others, found[slot])
        missing[slot] = left
        if not more:
            del missing[slot]
    return bool(some)
