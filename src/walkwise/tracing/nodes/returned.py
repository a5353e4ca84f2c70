"""What layers returned: the tensors of nodes or of edges among it, and whose rows these have."""

from __future__ import annotations

from collections.abc import Mapping

from walkwise.tracing.nodes.sums import reads_rows
from walkwise.tracing.recording.kinds import ADDING, READING, RESHAPING
from walkwise.tracing.recording.recorded import Call, Op, makers
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.calls import Returned
from walkwise.tracing.running.sides import BY_ROW

#: Functions that may make a vector of a matrix, row by row.
_FLATTENING, _SUMMING = RESHAPING | {"getitem", "select"}, frozenset({"sum", "mean"})


def take_returned(tape: Tape, returned: Mapping[int, Returned]) -> None:
    """Tell every call on a tape which of the tensors that it returned hold whose rows.

    Args:
        tape: what was recorded.
        returned: what calls returned, by their numbers.
    """
    results = _Results(tape)
    for number, call in enumerate(tape.calls):
        results.nodes.update(call.handed)
        if number in returned:
            results.take(number, returned[number])
        results.nodes.update(call.rows_of)


class _Results:
    """Looks at what the calls of a run returned, one after the other."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.values = tape, tape.values
        self.nodes = set(tape.features)  # the slots whose rows are known to be nodes, up to the call that is looked at
        self.maker = makers(tape.ops)

    def take(self, number: int, returned: Returned) -> None:
        """Tell a call what it returned."""
        call, slots, targets = self.tape.calls[number], returned.slots, returned.targets
        if not call.by_type:
            slots = [self._with_columns(number, slot, returned.before) for slot in slots]
            targets = self._targets(call, slots, returned)
            call.of_edges = {slot for slot in slots[:1] if self._are_edges(call, slot, targets[0])}
        known = [slot for slot in slots if slot is not None]
        call.outputs = [slot for slot in known if slot >= returned.before] or known  # not what it gives back
        made = [(s, rows) for s, rows in zip(slots, targets, strict=True) if s is not None and s >= returned.before]
        call.rows_of = {s: rows for s, rows in made if rows is not None and s not in call.of_edges}

    def _with_columns(self, number: int, slot: int | None, before: int) -> int | None:
        """The rows, (M, F), that a layer made a vector of at last, (M,); what made it is then outside of the layer.

        ``h.squeeze(1)``, ``h[:, 0]`` or ``h.sum(1)`` for ``h``: walks stand at rows.
        """
        values, at, passed = self.values, slot, list[Op]()
        while at is not None and values[at].dim() == 1 and (op := self.maker.get(at)) is not None and op.call == number:
            passed.append(op)
            at = op.inputs[0] if len(op.inputs) == 1 and _takes_columns_away(op) else None
            at = at if at is not None and values[at].shape[:1] == values[slot].shape else None  # type: ignore[index]
        if at is None or values[at].dim() < 2 or at < before:
            return slot
        for op in passed:
            op.call = None
        return at

    def _targets(self, call: Call, slots: list[int | None], returned: Returned) -> list[int | None]:
        """The slots of the tensors whose rows those have that a layer returned."""
        found: list[int | None] = []
        for place, (slot, target) in enumerate(zip(slots, returned.targets, strict=True)):
            if call.joined is not None:
                found.append(_side_of(call, slot, returned, None if place else target))
            else:
                found.append(target if not place or self._has_rows_of(call, target, slot) else None)
        return found

    def _has_rows_of(self, call: Call, target: int | None, slot: int | None) -> bool:
        """Whether a further tensor that a layer returned has a row for every node, and not for every edge."""
        if target is None or slot is None or call.num_edges is None:
            return False
        rows, values = len(self.values[target]), self.values[slot]
        fits = values.dim() > 1 and len(values) == rows
        return fits and (call.num_edges != rows or self._are_sums(slot, rows))

    def _are_sums(self, slot: int, rows: int) -> bool:
        """Whether rows belong to nodes, if there are as many edges: they lead, row by row, to nodes or to sums."""
        todo, seen = [slot], set[int]()
        while todo:
            at = todo.pop()
            op = self.maker.get(at)
            if at in self.nodes:
                return True
            if op is not None and op.word.name in ADDING:  # of edges, loops or not, and not of pairs of edges
                return op.word.name == "propagate" or any(len(self.values[s]) in (rows, 2 * rows) for s in op.inputs)
            seen.add(at)
            if op is not None and not reads_rows(op):
                todo += [s for s in op.inputs if s not in seen and self.values[s].shape[:1] == (rows,)]
        return False

    def _are_edges(self, call: Call, slot: int | None, target: int | None) -> bool:
        """Whether rows belong to edges, if there are as many as nodes: then they were looked up, and not added up."""
        if slot is None or target is None or call.num_edges != len(self.values[target]):
            return False
        todo, read = [slot], False
        while todo:
            at = todo.pop()
            op = self.maker.get(at)
            if at in self.nodes or op is None or not (op.word.pointwise or op.word.name in BY_ROW | READING):
                return False
            read = read or reads_rows(op)
            if not reads_rows(op):
                todo += [s for s in op.inputs if len(self.values[s]) == call.num_edges]
        return read


def _side_of(call: Call, slot: int | None, returned: Returned, otherwise: int | None) -> int | None:
    """The side from which a tensor was computed row by row, if it is one of the two."""
    assert returned.sides is not None
    found = [rows[0] for rows in returned.sides.origins(slot) if len(rows) == 1 and rows[0] in call.handed]
    return found[0] if len(found) == 1 else otherwise


def _takes_columns_away(op: Op) -> bool:
    """Whether an operation makes a vector of a matrix row by row."""
    if op.word.name in _SUMMING:
        return [*op.args[1:2], *op.kwargs.values()][:1] in ([-1], [1])
    return op.word.pointwise or (op.word.name in _FLATTENING and not reads_rows(op))
