"""Steps between rows that are no nodes, written so that a question about some nodes carries the rows at home there.

A layer reads rows of nodes along its edges, works out a message edge by edge, lets edges send to edges, and adds up at
nodes. An edge is at home at the node that it comes to, and a pair of edges where its message goes: walks that stay near
some nodes stay in rows that have their homes there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.homed_rows import AddedUp, AtHome, Between, Homes, Read
from walkwise.core.operators import Aggregate, Embed, Identity, Operator, RowMap, Scale, Step
from walkwise.core.row_function import RowFunction
from walkwise.core.row_maps import Gather, Reshape, Scatter, Send
from walkwise.tracing.layouts import each_once, rewritten

_BY_ROW = (Identity, Scale, RowMap, Embed, RowFunction)
#: The node that every row of a slot has its home at, by slot; all nodes in their order where rows are nodes.
_Found = dict[int, Tensor]
#: A map from slot to slot.
_Map = tuple[Operator, int, int]


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
    written: list[Step] = []
    for step in steps:
        terms = [
            term
            for operator, source in zip(step.operators, step.sources, strict=True)
            for term in _written_out(operator, source, num_nodes, new_slot, like, written)
        ]
        written.append(Step(tuple(o for o, _ in terms), tuple(s for _, s in terms), step.target))
    found = _found(written, named, every)
    return None if found is None else rewritten(written, _Homed(found, every, _gone(written, found)).told, new_slot)


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


def _found(steps: Sequence[Step], named: Collection[int], every: Tensor) -> _Found | None:
    """The homes of all rows, -1 for those that lead from no node or to none; None where numbers of rows do not fit.

    Rows are at home where they are added up, and otherwise where they were read: an edge at its target, a node's
    heads at the node. Sums that are as many as nodes, and of which nothing else is known, are nodes. Otherwise, a
    sum is at home where one of its parts is, and what is read, where one of those is that read it.
    """
    maps = [(o, source, step.target) for step in steps for o, source in zip(step.operators, step.sources, strict=True)]
    visited = [slot for step in steps if step.visit is not None for slot in (step.target, *step.sources)]
    found = _unknown(maps, dict.fromkeys([*named, *visited], every))
    if found is None:
        return None
    missing = _read(maps, found)
    alone = {id(o) for o, _, _ in maps if isinstance(o, (Gather, Scatter)) and each_once(o.index)}

    def told(kind: type[Operator], forward: bool) -> bool:
        """Tell the homes on one side of maps of one kind, and of single rows; whether any were missing."""
        kinds, filled = (*_BY_ROW, Aggregate, _Split, _Join, kind), False
        for operator, source, target in maps if forward else maps[::-1]:
            here, there = (source, target) if forward else (target, source)
            if there in missing and (isinstance(operator, kinds) or id(operator) in alone):
                filled |= _fill(found, missing, there, _other_side(operator, found[here], forward))
        return filled

    def are_nodes() -> bool:
        for operator, _, target in maps:
            sums = target in missing and type(operator) is Scatter and operator.num_rows == len(every)
            if sums and bool((found[target] < 0).all()):
                found[target] = every
                del missing[target]
                return True
        return False

    while told(Scatter, False) or told(Gather, True) or are_nodes() or told(Scatter, True) or told(Gather, False):
        pass
    return found


def _unknown(maps: Sequence[_Map], nodes: _Found) -> _Found | None:
    """The homes of nodes, and none yet for other rows; None where numbers of rows do not fit."""
    found, before, device = dict(nodes), -1, next(iter(nodes.values())).device
    while before < len(found):
        before = len(found)
        for operator, source, target in maps:
            counts = _counts(operator, found.get(source), found.get(target))
            for slot, count in zip((source, target), counts, strict=True):
                if slot not in found and count is not None:
                    found[slot] = torch.full((count,), -1, device=device)
    if not all(
        {source, target} <= found.keys() and _fits(o, found[source], found[target]) for o, source, target in maps
    ):
        return None
    return found


def _counts(operator: Operator, before: Tensor | None, after: Tensor | None) -> tuple[int | None, int | None]:
    """How many rows a map has on both sides, as far as that is known."""
    if isinstance(operator, (Gather, Scatter)):
        counts = operator.num_rows, len(operator.index)
        return counts if isinstance(operator, Gather) else counts[::-1]
    return (None if after is None else len(after)), (None if before is None else len(before))


def _read(maps: Sequence[_Map], found: _Found) -> dict[int, Tensor]:
    """Which rows lead to nodes, in slots where rows are none: of what is never read, nothing needs to be known."""
    read: dict[int, Tensor] = {}
    for operator, source, target in reversed(maps):
        if source in read or bool((found[source] < 0).any()):
            mask = read.get(target)
            if mask is None:
                mask = torch.ones_like(found[target], dtype=torch.bool)
            moves = isinstance(operator, (Gather, Scatter))
            leads = _other_side(operator, mask.long(), False) > 0 if moves else mask
            read[source] = read[source] | leads if source in read else leads
    return read


def _other_side(operator: Operator, homes: Tensor, forward: bool) -> Tensor:
    """What the homes on one side of a map say of the other."""
    if not isinstance(operator, (Gather, Scatter)):
        return homes
    if forward == isinstance(operator, Gather):
        return homes[operator.index]
    return _placed(operator.index, homes, operator.num_rows)


def _fill(found: _Found, missing: dict[int, Tensor], slot: int, others: Tensor) -> bool:
    """Tell homes that are missing; whether there were any to tell."""
    told = missing[slot] & (others >= 0)
    if not bool(told.any()):
        return False
    found[slot] = others if bool(told.all()) else torch.where(told, others, found[slot])
    left = missing[slot] & ~told
    if bool(left.any()):
        missing[slot] = left
    else:
        del missing[slot]
    return True


def _placed(index: Tensor, homes: Tensor, num_rows: int) -> Tensor:
    return torch.full((num_rows,), -1, device=homes.device).scatter_reduce(0, index, homes, "amax")


def _gone(steps: Sequence[Step], found: _Found) -> set[int]:
    """The slots that a message comes to after it has left the node where it stood."""
    gone: set[int] = set()
    for step in reversed(steps):
        for operator, source in zip(step.operators, step.sources, strict=True):
            if step.visit is None and (step.target in gone or _leaves(operator, found[source], found[step.target])):
                gone.add(source)
    return gone


def _leaves(operator: Operator, before: Tensor, after: Tensor) -> bool:
    """Whether a map leads from home to home."""
    if isinstance(operator, (Gather, Scatter)):
        reads = isinstance(operator, Gather)
        source, target = (before[operator.index], after) if reads else (before, after[operator.index])
    elif operator.reach == 0:
        source, target = before, after
    else:
        return True
    return source is not target and bool(((source != target) & (source >= 0) & (target >= 0)).any())


def _fits(operator: Operator, before: Tensor, after: Tensor) -> bool:
    """Whether a map has as many rows as there are on both sides."""
    if isinstance(operator, (Gather, Scatter)):
        named, listed = (before, after) if isinstance(operator, Gather) else (after, before)
        return operator.num_rows == len(named) and len(operator.index) == len(listed)
    rows = operator.factor.shape[0] if isinstance(operator, Scale) else 1
    return len(before) == len(after) and rows in (1, len(before))


@dataclass(eq=False)
class _Homed:
    """Steps whose rows are at home at nodes."""

    found: _Found
    every: Tensor
    gone: set[int]
    known: list[Homes] = field(default_factory=list)
    by_slot: dict[int, Homes] = field(default_factory=dict)

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
        if not _fits(operator, self.found[source], self.found[target]):
            return None
        if isinstance(operator, (Gather, Scatter)):
            kind: type[Between] = Read if isinstance(operator, Gather) else AddedUp
            parts = operator.parts if isinstance(operator, (_Split, _Join)) else 1
            return [kind(operator.index, operator.num_rows, before, after, parts)]
        if not isinstance(operator, _BY_ROW):
            return None
        own: Operator = operator if before is None else AtHome(operator, before)
        if before is after:
            return [own]
        rows = torch.arange(len(self.found[source]), device=self.every.device)
        return [own, Read(rows, len(rows), before, after)]
