"""Messages that a layer records edge by edge, assembled into sums over edges.

A layer without a closed form of its own is recorded as it runs: node rows are gathered along the edges, multiplied
there by what is held constant (attention, gates, means), and added up at their targets. Those steps carry a row for
every edge of the graph, whatever the question. If they are linear in the neighbour, they form one sum over edges, the
same as a closed form would give, and are written as that here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from walkwise.core.edges import Edges
from walkwise.core.operators import Aggregate, Columns, Identity, Operator, RowMap, Scale, Step
from walkwise.core.row_maps import Gather, Scatter, Send

#: A row of an edge that is made of more parts than that is left as it is written.
_MOST_PARTS = 8


@dataclass(frozen=True, eq=False)
class _EdgePart:
    """The part of every edge's row from one node tensor: after(weight ⊙ maps(row ``index`` of it))."""

    slot: int
    index: Tensor  # (E,)
    num_rows: int  # of the node tensor
    maps: tuple[Operator, ...] = ()  # of every row by itself
    weight: Tensor | None = None  # (E, 1) or (E, N)
    after: tuple[Operator, ...] = ()  # maps of every row by itself that come after the weight

    @property
    def uniform(self) -> bool:
        """Whether all neurons of a row have the same weight, so that maps of the row may come first."""
        return self.weight is None or self.weight.shape[1] == 1

    def then(self, operator: Operator) -> _EdgePart | None:
        """The part after one more map; None if the result is no longer such a part."""
        if type(operator) is Identity:
            return self
        if type(operator) is Gather:
            weight = None if self.weight is None else self.weight.index_select(0, operator.index)
            return replace(self, index=self.index.index_select(0, operator.index), weight=weight)
        if type(operator) is Scale and operator.shape[0] != 1:
            if self.after and operator.shape[1] > 1:
                return None
            return replace(self, weight=operator.factor if self.weight is None else self.weight * operator.factor)
        if type(operator) not in (Scale, RowMap, Columns):
            return None
        if self.uniform:
            return replace(self, maps=(*self.maps, operator))
        return replace(self, after=(*self.after, operator))


def summed(
    steps: Sequence[Step],
    named: Iterable[int],
    new_slot: Callable[[], int],
    dtype: torch.dtype,
    num_nodes: int | None = None,
) -> list[Step]:
    """The steps, with those along edges assembled into sums over edges; the ``named`` slots stay.

    Args:
        steps: in the model's order.
        named: slots at which messages are read.
        new_slot: gives a slot that no step uses yet.
        dtype: of the messages.
        num_nodes: if given, only sums between as many rows are assembled.
    """
    if Scatter not in {type(operator) for step in steps for operator in step.operators}:
        return list(steps)
    known = [o.edges for step in steps for o in step.operators if type(o) is Aggregate]
    sums = _Sums(frozenset(named), new_slot, dtype, known, num_nodes)
    for step in steps:
        sums.take(step)
    return sums.made


@dataclass(eq=False)
class _Sums:
    """Steps while they are being rewritten."""

    named: frozenset[int]
    new_slot: Callable[[], int]
    dtype: torch.dtype
    known: list[Edges]
    num_nodes: int | None
    made: list[Step] = field(default_factory=list)
    parts: dict[int, list[_EdgePart]] = field(default_factory=dict)  # of the slots that hold a row for every edge
    waiting: dict[int, Step] = field(default_factory=dict)  # the steps that make those, in case they are needed
    mapped: dict[tuple[int, int], int] = field(default_factory=dict)  # what maps have made of node tensors

    def take(self, step: Step) -> None:
        """Write a step, or hold it back if it makes rows of edges."""
        parts = None if step.target in self.named else self._parts(step)
        if parts is not None:
            self.parts[step.target], self.waiting[step.target] = parts, step
            return
        terms: list[tuple[Operator, int]] = []
        for operator, source in zip(step.operators, step.sources, strict=True):
            if type(operator) is Scatter and self._between_nodes(operator, self.parts.get(source)):
                terms += self._sum(operator, self.parts[source])
            else:
                self._write(source)
                terms.append((operator, source))
        self.made.append(Step(tuple(o for o, _ in terms), tuple(s for _, s in terms), step.target))

    def _between_nodes(self, scatter: Scatter, parts: Sequence[_EdgePart] | None) -> bool:
        """Whether a sum is between as many rows as there are nodes, if only such sums are to be assembled."""
        if parts is None or self.num_nodes is None:
            return parts is not None
        return {scatter.num_rows, *(part.num_rows for part in parts)} == {self.num_nodes}

    def _parts(self, step: Step) -> list[_EdgePart] | None:
        """The parts of a step's rows, if it makes rows of edges."""
        found: list[_EdgePart | None] = []
        for operator, source in zip(step.operators, step.sources, strict=True):
            if source in self.parts:
                found += [part.then(operator) for part in self.parts[source]]
            else:
                begins = type(operator) is Gather
                found.append(_EdgePart(source, operator.index, operator.num_rows) if begins else None)  # type: ignore[attr-defined]
        parts = [part for part in found if part is not None]
        return parts if len(parts) == len(found) <= _MOST_PARTS else None

    def _write(self, slot: int) -> None:
        """Write the steps that make a slot after all."""
        step = self.waiting.pop(slot, None)
        if step is not None:
            for source in step.sources:
                self._write(source)
            self.made.append(step)

    def _sum(self, scatter: Scatter, parts: Sequence[_EdgePart]) -> list[tuple[Operator, int]]:
        """Rows of edges added up at their targets."""
        terms = []
        for part in parts:
            operator, slot = self._along(part, scatter), self._mapped(part.slot, part.maps)
            if part.after:
                slot, operator = self._mapped(slot, (operator, *part.after[:-1])), part.after[-1]
            terms.append((operator, slot))
        return terms

    def _along(self, part: _EdgePart, scatter: Scatter) -> Operator:
        target, weight = scatter.index, part.weight
        if part.num_rows == scatter.num_rows and torch.equal(part.index, target):  # a node's part in its own messages
            each = torch.ones_like(target, dtype=self.dtype).view(-1, 1) if weight is None else weight
            total = each.new_zeros(scatter.num_rows, each.shape[1]).index_add_(0, target, each)
            return Scale(total)
        edges = Edges(part.index, target, max(part.num_rows, scatter.num_rows)).shared(self.known)
        weight = None if weight is None else by_head(weight)
        if part.num_rows == scatter.num_rows:
            return Aggregate(edges, weight)
        return Send(edges, weight, part.num_rows, scatter.num_rows)

    def _mapped(self, slot: int, maps: Sequence[Operator]) -> int:
        """The slot of a tensor after some maps."""
        for operator in maps:
            key = slot, id(operator)
            if key not in self.mapped:
                self.mapped[key] = self.new_slot()
                self.made.append(Step((operator,), (slot,), self.mapped[key]))
            slot = self.mapped[key]
        return slot


def by_head(weight: Tensor) -> Tensor:
    """Weights without repeated columns.  # (E, N) -> (E, N), (E, H) or (E,)

    >>> by_head(torch.tensor([[1, 1, 2, 2], [3, 3, 3, 3]]))
    tensor([[1, 2],
            [3, 3]])
    """
    changes = (weight[:, 1:] != weight[:, :-1]).any(0).nonzero().view(-1) + 1  # where a column differs from the last
    if not len(changes):
        return weight[:, 0].contiguous()
    return weight[:, :: math.gcd(weight.shape[1], *changes.tolist())].contiguous()
