"""Steps that carry rows of edges, written so that a question about some nodes carries the edges that come to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from walkwise.core.edge_rows import AddedUp, EndOf, Incoming, OnEdges
from walkwise.core.operators import Embed, Identity, Operator, RowMap, Scale, Step
from walkwise.core.row_function import RowFunction
from walkwise.core.row_maps import Gather, Scatter

_BY_ROW = (Identity, Scale, RowMap, Embed, RowFunction)


def edge_by_edge(steps: Sequence[Step], named: Collection[int], num_nodes: int) -> list[Step] | None:
    """The steps, rows of edges told as such; None where some are not just read from nodes and added up at nodes."""
    found = _Found(num_nodes)
    for step in reversed(steps):
        incoming = found.rows.get(step.target)
        for operator, source in zip(step.operators, step.sources, strict=True):
            if incoming is None and type(operator) is Scatter and operator.num_rows == num_nodes:
                found.mark(source, found.incoming(operator.index))
            elif incoming is not None and isinstance(operator, _BY_ROW):
                found.mark(source, incoming)
    if found.mixed or not found.rows.keys().isdisjoint(named):
        return None
    written = [_written(step, found) for step in steps]
    return None if None in written else [step for step in written if step is not None]


@dataclass(eq=False)
class _Found:
    """The slots that hold rows of edges, and which."""

    num_nodes: int
    rows: dict[int, Incoming] = field(default_factory=dict)
    known: list[Incoming] = field(default_factory=list)
    mixed: bool = False  # whether a slot's rows are added up in two ways

    def incoming(self, target: Tensor) -> Incoming:
        """The edges to these nodes, the same as before if they are the same."""
        given = Incoming(target, self.num_nodes)
        same = next((other for other in self.known if other.same_as(given)), None)
        if same is None:
            self.known.append(given)
        return same or given

    def mark(self, slot: int, incoming: Incoming) -> None:
        """A slot holds rows of these edges."""
        self.mixed |= self.rows.setdefault(slot, incoming) is not incoming


def _written(step: Step, found: _Found) -> Step | None:
    after, operators = found.rows.get(step.target), []
    for operator, source in zip(step.operators, step.sources, strict=True):
        operators.append(_along(operator, found.rows.get(source), after, found.num_nodes))
    if None in operators:
        return None
    return Step(tuple(o for o in operators if o is not None), step.sources, step.target)


def _along(operator: Operator, before: Incoming | None, after: Incoming | None, num_nodes: int) -> Operator | None:
    """A map from rows of nodes or edges to rows of nodes or edges."""
    if before is None and after is None:
        return operator
    if before is None:
        assert after is not None
        whole = type(operator) is Gather and operator.num_rows == num_nodes
        return EndOf(operator.index, after) if whole else None  # type: ignore[attr-defined]
    if after is None:
        return AddedUp(before) if type(operator) is Scatter else None
    return OnEdges(operator, before) if before is after and isinstance(operator, _BY_ROW) else None
