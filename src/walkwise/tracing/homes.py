"""Steps between rows that are no nodes, written so that a question about some nodes carries the rows at home there.

A layer reads rows of nodes along its edges, works out a message edge by edge, lets edges send to edges, and adds up at
nodes. An edge is at home at the node that it comes to, and a pair of edges where its message goes: walks that stay near
some nodes stay in rows that have their homes there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from walkwise.core.homed_rows import AddedUp, AtHome, Between, Homes, Read
from walkwise.core.operators import Aggregate, Embed, Identity, Operator, RowMap, Scale, Step
from walkwise.core.row_function import RowFunction
from walkwise.core.row_maps import Gather, Reshape, Scatter, Send
from walkwise.tracing.layouts import each_once, rewritten

_BY_ROW = frozenset({Identity, Scale, RowMap, Embed, RowFunction})
#: Maps between rows that can be told by their homes, whatever the rows are.
_MOVING = frozenset({Gather, Scatter, Send, Reshape})
#: The node that every row of a slot has its home at, by slot; all nodes in their order where rows are nodes.
_Found = dict[int, Tensor]


def at_home(
    steps: Sequence[Step], named: Collection[int], num_nodes: int, new_slot: Callable[[], int], like: Tensor
) -> list[Step] | None:
    """The steps, rows that are no nodes told by their homes; None where some are not just read and added up.

    Args:
        steps: in the model's order.
        named: slots at which messages are read; their rows are nodes.
        num_nodes: M.
        new_slot: gives a slot that no step uses yet.
        like: a message.
    """
    every = torch.arange(num_nodes, device=like.device)
    if not all(
        operator.reach is not None or type(operator) in _MOVING for step in steps for operator in step.operators
    ):
        return None
    written: list[Step] = []
    for step in steps:
        terms = [
            term
            for operator, source in zip(step.operators, step.sources, strict=True)
            for term in _written_out(operator, source, num_nodes, new_slot, like, written)
        ]
        written.append(Step(tuple(o for o, _ in terms), tuple(s for _, s in terms), step.target))
    maps = [
        _Map.of(o, slot, step.target) for step in written for o, slot in zip(step.operators, step.sources, strict=True)
    ]
    visited = [slot for step in written if step.visit is not None for slot in (step.target, *step.sources)]
    found = _found(maps, dict.fromkeys([*named, *visited], every), every)
    if found is None:
        return None
    return rewritten(written, _Homed(found, every, _gone(written, maps, found)).told, new_slot)


def _written_out(
    operator: Operator, source: int, num_nodes: int, new_slot: Callable[[], int], like: Tensor, written: list[Step]
) -> Iterator[tuple[Operator, int]]:
    """A sum over edges between rows that are no nodes as it is done: read, weighed and added up."""
    if isinstance(operator, Reshape) and (parts := _parts(operator, like.device)) is not None:
        operator = parts
    ends = _ends(operator)
    if ends is None or (type(operator) is Aggregate and ends[0] == num_nodes):
        yield operator, source
        return
    assert isinstance(operator, (Aggregate, Send))
    read = new_slot()
    written.append(Step((Gather(operator.edges.source, ends[0]),), (source,), read))
    if operator.weight is not None:
        weighed = new_slot()
        written.append(Step((Scale(operator.weight.view(-1, 1)),), (read,), weighed))
        read = weighed
    yield Scatter(operator.edges.target, ends[1]), read
    if isinstance(operator, Aggregate) and operator.root:
        yield Scale(like.new_full((1, 1), operator.root)), source


@dataclass(frozen=True, eq=False)
class _Split(Gather):
    """Rows that become several, each a part of it."""

    parts: int = 1


@dataclass(frozen=True, eq=False)
class _Join(Scatter):
    """Rows that become parts of one."""

    parts: int = 1


def _parts(operator: Reshape, device: torch.device) -> _Split | _Join | None:
    """Rows that are put together, or taken apart, all the same way; None where they are something else."""
    before, after = operator.before[0], operator.after[0]
    few, many = sorted((before, after))
    if not few or many % few:
        return None
    index = torch.arange(many, device=device) // (many // few)
    return (_Split if before < after else _Join)(index, few, many // few)


def _ends(operator: Operator) -> tuple[int, int] | None:
    """How many rows a sum over edges has before and after, if it is one that can be written out."""
    if not isinstance(operator, (Aggregate, Send)) or (operator.weight is not None and operator.weight.dim() > 1):
        return None
    if isinstance(operator, Send):
        return operator.senders, operator.receivers
    return operator.edges.num_nodes, operator.edges.num_nodes


@dataclass(frozen=True, eq=False, slots=True)
class _Map:
    """A map from slot to slot, and which rows it moves where."""

    operator: Operator
    source: int
    target: int
    index: Tensor | None  # where rows are moved: what the rows of one side are on the other
    reads: bool  # whether the index names rows of the source
    rank: int  # how surely both sides have the same homes: 0 single rows, 1 rows that are added up, 2 that are read

    @staticmethod
    def of(operator: Operator, source: int, target: int) -> _Map:
        """What a step does to one of its sources."""
        kind = type(operator)
        if kind in (Gather, Scatter, _Split, _Join):
            assert isinstance(operator, (Gather, Scatter))
            sure = kind in (_Split, _Join) or each_once(operator.index)
            reads = kind in (Gather, _Split)
            return _Map(operator, source, target, operator.index, reads, 0 if sure else 2 if reads else 1)
        return _Map(operator, source, target, None, False, 0 if kind in _BY_ROW or kind is Aggregate else 3)

    def counts(self, before: Tensor | None, after: Tensor | None) -> tuple[int | None, int | None]:
        """How many rows there are on both sides, as far as that is known."""
        if self.index is None:
            return (None if after is None else len(after)), (None if before is None else len(before))
        counts = self.operator.num_rows, len(self.index)  # type: ignore[attr-defined]
        return counts if self.reads else counts[::-1]

    def other_side(self, homes: Tensor, forward: bool) -> Tensor:
        """What the homes on one side say of the other."""
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
        rows = self.operator.factor.shape[0] if isinstance(self.operator, Scale) else 1
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


def _found(maps: Sequence[_Map], nodes: _Found, every: Tensor) -> _Found | None:
    """The homes of all rows, -1 for those that lead from no node or to none; None where numbers of rows do not fit.

    Rows are at home where they are added up, and otherwise where they were read: an edge at its target, a node's
    heads at the node. Sums that are as many as nodes, and of which nothing else is known, are nodes. Otherwise, a
    sum is at home where one of its parts is, and what is read, where one of those is that read it.
    """
    found = _unknown(maps, nodes)
    if found is None:
        return None
    missing = _read(maps, found, nodes)
    fill = _Filling(found, missing).fill

    def told(rank: int, forward: bool) -> bool:
        """Tell the homes on one side of maps of one rank, and of single rows; whether any were missing."""
        filled = False
        for each in maps if forward else maps[::-1]:
            here, there = (each.source, each.target) if forward else (each.target, each.source)
            if there in missing and each.rank in (0, rank):
                filled |= fill(there, each.other_side(found[here], forward))
        return filled

    def are_nodes() -> bool:
        for each in maps:
            sums = each.target in missing and type(each.operator) is Scatter and each.operator.num_rows == len(every)
            if sums and bool((found[each.target] < 0).all()):
                found[each.target] = every
                del missing[each.target]
                return True
        return False

    while told(1, False) or told(2, True) or are_nodes() or told(1, True) or told(2, False):
        pass
    return found


def _unknown(maps: Sequence[_Map], nodes: _Found) -> _Found | None:
    """The homes of nodes, and none yet for other rows; None where numbers of rows do not fit."""
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


def _read(maps: Sequence[_Map], found: _Found, nodes: _Found) -> dict[int, Tensor]:
    """Which rows lead to nodes, in slots where rows are none: of what is never read, nothing needs to be known."""
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


class _Look(NamedTuple):
    """What homes on one side of a map tell of rows on the other whose own are missing."""

    missing: Tensor
    others: Tensor
    told: Tensor  # which of the missing ones they tell
    left: Tensor  # and which not
    some: bool  # whether they tell any
    whole: bool  # or every row's
    more: bool  # whether any are left

    @staticmethod
    def at(missing: Tensor, others: Tensor) -> _Look:
        """A look at both."""
        told = missing & (others >= 0)
        left = missing & ~told
        return _Look(missing, others, told, left, *torch.stack([told.any(), told.all(), left.any()]).tolist())


@dataclass(eq=False)
class _Filling:
    """Homes on their way to being told; slots share most of them, which are looked at once."""

    found: _Found
    missing: dict[int, Tensor]
    looks: dict[tuple[int, int], _Look] = field(default_factory=dict)

    def fill(self, slot: int, others: Tensor) -> bool:
        """Tell homes that are missing; whether there were any to tell."""
        missing = self.missing[slot]
        key = id(missing), id(others)  # which a look keeps, so that no identity is used again
        if key not in self.looks:
            self.looks[key] = _Look.at(missing, others)
        look = self.looks[key]
        if look.some:
            self.found[slot] = others if look.whole else torch.where(look.told, others, self.found[slot])
            if look.more:
                self.missing[slot] = look.left
            else:
                del self.missing[slot]
        return look.some


def _gone(steps: Sequence[Step], maps: Sequence[_Map], found: _Found) -> set[int]:
    """The slots that a message comes to after it has left the node where it stood."""
    visits = {step.target for step in steps if step.visit is not None}
    gone: set[int] = set()
    for each in reversed(maps):
        if each.source in gone or each.target in visits:
            continue
        if each.target in gone or each.leaves(found[each.source], found[each.target]):
            gone.add(each.source)
    return gone


@dataclass(eq=False)
class _Homed:
    """Steps whose rows are at home at nodes."""

    found: _Found
    every: Tensor
    gone: set[int]
    known: list[Homes] = field(default_factory=list)
    by_slot: dict[int, Homes] = field(default_factory=dict)
    between: list[Between] = field(default_factory=list)  # what is the same in several steps is looked up once

    def homes(self, slot: int) -> Homes | None:
        """The homes of a slot's rows, the same for all slots where they are; None where rows are nodes."""
        node = self.found[slot]
        if node is self.every:
            return None
        if slot not in self.by_slot:
            gone = slot in self.gone
            same = (h for h in self.known if h.gone == gone and (h.node is node or torch.equal(h.node, node)))
            homes = next(same, None)
            if homes is None:
                homes = Homes(node, len(self.every), gone)
                self.known.append(homes)
            self.by_slot[slot] = homes
        return self.by_slot[slot]

    def told(self, operator: Operator, source: int, target: int) -> list[Operator] | None:
        """A map between rows at home at nodes, as one map after the other."""
        before, after = self.homes(source), self.homes(target)
        if before is None and after is None:
            return [operator]
        if isinstance(operator, (Gather, Scatter)):
            kind: type[Between] = Read if isinstance(operator, Gather) else AddedUp
            parts = operator.parts if isinstance(operator, (_Split, _Join)) else 1
            return [self._once(kind(operator.index, operator.num_rows, before, after, parts))]
        if type(operator) not in _BY_ROW:
            return None
        own: Operator = operator if before is None else AtHome(operator, before)
        if before is after:
            return [own]
        rows = torch.arange(len(self.found[source]), device=self.every.device)
        return [own, self._once(Read(rows, len(rows), before, after))]

    def _once(self, made: Between) -> Between:
        """A map, or the one that was made before if it is the same."""
        same = (each for each in self.between if _alike(each, made))
        found = next(same, made)
        if found is made:
            self.between.append(made)
        return found


def _alike(one: Between, other: Between) -> bool:
    if type(one) is not type(other) or one.before is not other.before or one.after is not other.after:
        return False
    if (one.num_rows, one.parts) != (other.num_rows, other.parts):
        return False
    return one.index is other.index or torch.equal(one.index, other.index)
