"""Steps between rows that are not nodes, written so that a question about some nodes carries only rows at home there.

A layer reads rows of nodes along its edges, computes a message edge by edge, lets edges send to edges, and adds up at
nodes. An edge is at home at its target node, and a pair of edges where its message goes: walks that stay near some
nodes stay in rows that have their homes there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.homed_rows import AddedUp, AtHome, Between, Homes, Read
from walkwise.core.operators import Aggregate, Operator, Scale, Step
from walkwise.core.row_maps import Gather, Reshape, Scatter, Send
from walkwise.tracing.steps.found_homes import BY_ROW, Found, Join, SlotMap, Split, found_homes
from walkwise.tracing.steps.layouts import rewritten

#: Maps that work on homes, whatever the rows are.
_MOVING = frozenset({Gather, Scatter, Send, Reshape})


def at_home(
    steps: Sequence[Step], named: Collection[int], num_nodes: int, new_slot: Callable[[], int], like: Tensor
) -> list[Step] | None:
    """The steps, with rows that are not nodes identified by their homes; None if some are not just read and added up.

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
        SlotMap.of(o, slot, step.target)
        for step in written
        for o, slot in zip(step.operators, step.sources, strict=True)
    ]
    visited = [slot for step in written if step.visit is not None for slot in (step.target, *step.sources)]
    found = found_homes(maps, dict.fromkeys([*named, *visited], every), every)
    if found is None:
        return None
    return rewritten(written, _Homed(found, every, _gone(written, maps, found)).rewrite, new_slot)


def _written_out(
    operator: Operator, source: int, num_nodes: int, new_slot: Callable[[], int], like: Tensor, written: list[Step]
) -> Iterator[tuple[Operator, int]]:
    """A sum over edges between rows that are not nodes, in its parts: read, weight and add up."""
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


def _parts(operator: Reshape, device: torch.device) -> Split | Join | None:
    """Rows that are joined, or split, all in the same way; None for anything else."""
    before, after = operator.before[0], operator.after[0]
    few, many = sorted((before, after))
    if not few or many % few:
        return None
    index = torch.arange(many, device=device) // (many // few)
    return (Split if before < after else Join)(index, few, many // few)


def _ends(operator: Operator) -> tuple[int, int] | None:
    """How many rows a sum over edges has before and after, if it is one that can be written out."""
    if not isinstance(operator, (Aggregate, Send)) or (operator.weight is not None and operator.weight.dim() > 1):
        return None
    if isinstance(operator, Send):
        return operator.senders, operator.receivers
    return operator.edges.num_nodes, operator.edges.num_nodes


def _gone(steps: Sequence[Step], maps: Sequence[SlotMap], found: Found) -> set[int]:
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

    found: Found
    every: Tensor
    gone: set[int]
    known: list[Homes] = field(default_factory=list)
    by_slot: dict[int, Homes] = field(default_factory=dict)
    between: list[Between] = field(default_factory=list)  # what is the same in several steps is looked up once

    def homes(self, slot: int) -> Homes | None:
        """The homes of a slot's rows, shared by slots with equal homes; None if rows are nodes."""
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

    def rewrite(self, operator: Operator, source: int, target: int) -> list[Operator] | None:
        """A map between rows at home at nodes, as a sequence of maps."""
        before, after = self.homes(source), self.homes(target)
        if before is None and after is None:
            return [operator]
        if isinstance(operator, (Gather, Scatter)):
            kind: type[Between] = Read if isinstance(operator, Gather) else AddedUp
            parts = operator.parts if isinstance(operator, (Split, Join)) else 1
            return [self._once(kind(operator.index, operator.num_rows, before, after, parts))]
        if type(operator) not in BY_ROW:
            return None
        own: Operator = operator if before is None else AtHome(operator, before)
        if before is after:
            return [own]
        rows = torch.arange(len(self.found[source]), device=self.every.device)
        return [own, self._once(Read(rows, len(rows), before, after))]

    def _once(self, made: Between) -> Between:
        """A map, or an equal one that was made before."""
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
