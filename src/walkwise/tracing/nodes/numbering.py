"""Numbers of positions, which rise along every path of relevance, so that no walk comes to a number twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from walkwise.tracing.recording.recorded import Op, live


def rising(ops: Sequence[Op], number: Mapping[int, int]) -> bool:
    """Whether every position, by slot, has a higher number than the positions it was computed from."""
    highest = dict(number)  # of the positions on the ways to a slot
    for op in ops:
        below = max([highest.get(slot, -1) for slot in op.inputs], default=-1)
        for slot in op.outputs:
            if slot is not None and number.get(slot, below + 1) <= below:
                return False
            if slot is not None:
                highest[slot] = number.get(slot, below)
    return True


def by_longest_way(ops: Sequence[Op], number: Mapping[int, int]) -> dict[int, int]:
    """Other numbers for the same positions: for each, how many there are on the longest path to it."""
    counts = dict.fromkeys(number, 1)
    for op in ops:
        before = max([counts.get(slot, 0) for slot in op.inputs], default=0)
        counts.update((slot, before + (slot in number)) for slot in op.outputs if slot is not None)
    return {slot: counts[slot] - 1 for slot in number}


def first_of(ops: Sequence[Op], slots: Sequence[int]) -> list[int]:
    """The slots that are not computed from any other of them."""
    made_of = _made_of(ops, slots)
    return [slot for slot in slots if made_of[slot].isdisjoint(slots)]


def apart_from(ops: Sequence[Op], slots: Sequence[int], others: Sequence[int]) -> list[int]:
    """The slots that no other slot is computed from (gates, say), nor they from those, nor from each other."""
    made_of = _made_of(ops, [*slots, *others])
    below = set[int]().union(*(made_of[slot] for slot in others))
    return [slot for slot in first_of(ops, slots) if slot not in below and made_of[slot].isdisjoint(others)]


def _made_of(ops: Sequence[Op], slots: Sequence[int]) -> dict[int, set[int]]:
    """The slots that every slot is computed from."""
    if len(slots) < 2:
        return {slot: set() for slot in slots}
    return {slot: {s for op in live(ops, {slot}) for s in op.inputs} for slot in slots}
