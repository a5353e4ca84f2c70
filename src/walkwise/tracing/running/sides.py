"""The two sides of a layer that takes each as a separate tensor: ``layer(left, edge_index, edge_attr, right)``.

Which of a layer's tensors are nodes shows when the layer sends messages: rows of nodes are read at the ends of edges.
These are followed back, row by row, to the layer's arguments. If the two ends lead to different tensors, these are
treated as a pair ``(left, right)``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from walkwise.tracing.recording.kinds import ENTRYWISE, NORMALISING, RESHAPING
from walkwise.tracing.recording.recorded import Op, Rows
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.handed import node_tensors

#: Functions that leave rows as they are, beside those of single entries; cat may put rows under one another, too.
BY_ROW = ENTRYWISE | NORMALISING | {"linear", "matmul", "neg", "cat"}
_SHAPING = RESHAPING | {"chunk", "split"}

#: All tensors whose rows a tensor may have, in order.
Candidates = dict[Rows, None]


class Sides:
    """The arguments of a call under way, and what it reads at the ends of edges."""

    def __init__(self, tape: Tape, handed: Iterable[int], node_dim: int) -> None:
        """Of the call that has just begun.

        Args:
            tape: what is recorded.
            handed: the slots of all followed tensors among its arguments.
            node_dim: the dimension that runs over nodes.
        """
        self.tape, self.node_dim = tape, node_dim
        self._origins: dict[int, Candidates] = {slot: {(slot,): None} for slot in handed}
        self._place = {slot: place for place, slot in enumerate(self._origins)}
        self._made: dict[int | None, Op] = {}
        self._read = len(tape.ops)  # how many operations were looked at

    def ends(self, conv: Any, arguments: Mapping[str, Any], size: Any) -> tuple[Rows, Rows] | None:
        """The tensors whose rows edges lead from and to; None if these are the same tensor.

        Args:
            conv: the layer that sends.
            arguments: the arguments of its ``propagate``.
            size: how many nodes there are at the two ends, if given.
        """
        if conv.flow != "source_to_target":  # where PyG takes pairs for edges the other way round
            return None
        names = read_at_ends(getattr(conv.message, "__func__", conv.message))
        left, right = self._read_at(names, arguments)
        if both := [rows for rows in left if rows in right]:
            return (both[0], both[0]) if len(both[0]) > 1 else None
        if left and not right and isinstance(size, (tuple, list)):
            along = [self._origins_of(item) for name, item in arguments.items() if name not in names]
            right = self._counted(size[1], {rows for origins in (left, *along) for rows in origins})
        return (self._first(left), self._first(right)) if left and right else None

    def _read_at(self, names: Mapping[str, str], arguments: Mapping[str, Any]) -> tuple[Candidates, Candidates]:
        """What is read where edges begin, and where they end."""
        found: tuple[Candidates, Candidates] = ({}, {})
        for name, letters in names.items():
            given = arguments.get(name)
            single = not isinstance(given, (tuple, list))
            pair = [given if letter in letters else None for letter in "ji"] if single else given
            for origins, tensor in zip(found, pair or (), strict=False):
                origins.update(self._origins_of(tensor))
        return found

    def _origins_of(self, item: Any) -> Candidates:
        """The same as ``origins``, of anything."""
        return self.origins(self.tape.slots.last(item))

    def origins(self, slot: int | None) -> Candidates:
        """The arguments whose rows may be the rows of a tensor."""
        if slot is None:
            return {}
        if slot not in self._origins:
            op = self._maker(slot)
            self._origins[slot] = {} if op is None else self._by_row(op, self._rows(slot))
        return self._origins[slot]

    def _by_row(self, op: Op, rows: int | None) -> Candidates:
        """The results of an operation that have so many rows."""
        if not (op.word.pointwise or op.word.same or op.word.name in BY_ROW | _SHAPING):
            return {}
        counts = {slot: self._rows(slot) for slot in op.inputs}
        if op.word.name != "cat" or all(count == rows for count in counts.values()):
            return {part: None for slot, count in counts.items() if count == rows for part in self.origins(slot)}
        parts = [self._first(origins) for slot in op.inputs if (origins := self.origins(slot))]
        whole = tuple(slot for part in parts for slot in part)
        return {whole: None} if sum(self._rows(slot) or 0 for slot in whole) == rows else {}

    def _counted(self, count: Any, others: set[Rows]) -> Candidates:
        """The one tensor with so many rows that is none of others."""
        dims = {self.tape.values[slot].dim() for rows in others for slot in rows}
        left = [slot for slot in self._place if (slot,) not in others and self.tape.values[slot].dim() in dims]
        fitting = [slot for slot in left if self._rows(slot) == count]
        return {(fitting[0],): None} if len(fitting) == 1 else {}

    def _first(self, origins: Candidates) -> Rows:
        """Of the possible sources of rows, the layer's first argument."""
        return min(origins, key=lambda rows: [self._place[slot] for slot in rows])

    def _rows(self, slot: int) -> int | None:
        """How many rows of nodes a tensor has, if it has any."""
        shape = self.tape.values[slot].shape
        return shape[self.node_dim] if -len(shape) <= self.node_dim < len(shape) else None

    def _maker(self, slot: int) -> Op | None:
        """The operation of the call that has made a tensor."""
        for op in self.tape.ops[self._read :]:
            self._made.update(dict.fromkeys(op.outputs, op))
        self._read = len(self.tape.ops)
        return self._made.get(slot)


def offered(tape: Tape, items: Iterable[Any]) -> list[int]:
    """The slots of all followed tensors among a layer's arguments."""
    slots = (tape.slots.last(tensor) for item in items for tensor in node_tensors(item))
    return list(dict.fromkeys(slot for slot in slots if slot is not None))


@functools.lru_cache(maxsize=256)
def read_at_ends(message: Any) -> dict[str, str]:
    """The names of the node tensors that a ``message`` reads at the ends of edges: ``x``, for ``x_i`` or ``x_j``.

    With each, the letters of those ends.
    """
    found: dict[str, str] = {}
    for name in inspect.signature(message).parameters:
        if name.endswith(("_i", "_j")):
            found[name[:-2]] = found.get(name[:-2], "") + name[-1]
    return found
