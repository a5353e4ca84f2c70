"""The steps of a chain, written to show that walks keep to neighbours, wherever they do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from walkwise.core.chain import Hops, hops_of
from walkwise.core.operators import Aggregate, Step
from walkwise.core.row_maps import Send
from walkwise.tracing.steps.axes import Axis
from walkwise.tracing.steps.homes import at_home
from walkwise.tracing.steps.layouts import Layouts, by_node, layouts
from walkwise.tracing.steps.messages import summed
from walkwise.tracing.steps.row_by_row import row_by_row

#: Slots of a chain and the values there.
Places = tuple[tuple[int, Tensor], ...]


@dataclass(frozen=True, eq=False)
class Way:
    """Steps, and how far they lead."""

    steps: list[Step]
    hops: Hops | None
    turned: Mapping[int, Axis] = field(default_factory=dict)  # where slots have other rows than before
    layouts: Layouts | None = None  # where slots have a row for every node

    @property
    def moves(self) -> bool:
        """Whether slots have other rows than before."""
        return bool(self.turned) or self.layouts is not None

    def places(self, given: Places) -> Places:
        """Slots and values, with the rows that the slots have here."""
        if not self.moves:
            return given
        by_row = tuple((slot, self.turned[slot].by_row(v) if slot in self.turned else v) for slot, v in given)
        return by_row if self.layouts is None else self.layouts.places(by_row)


def nearest(
    steps: Sequence[Step],
    named: Collection[int],
    seeds: Places,
    num_nodes: int,
    new_slot: Callable[[], int],
) -> Way:
    """Write the steps as sums over edges, in the first way by which no step leads further than to neighbours.

    If there is none, use the first way by which no step may lead anywhere; failing that, plain sums over edges.

    Args:
        steps: in the model's order.
        named: slots at which messages are read.
        seeds: the slots that the read-out reads, and its messages there.
        num_nodes: M.
        new_slot: gives a slot that no step uses yet.
    """
    best: Way | None = None
    for way in _ways(steps, named, seeds, num_nodes, new_slot):
        if way.hops is not None and way.hops.are_steps:
            return way
        if best is None or (best.hops is None and way.hops is not None):
            best = way
    assert best is not None
    return best


def _ways(
    steps: Sequence[Step],
    named: Collection[int],
    seeds: Places,
    num_nodes: int,
    new_slot: Callable[[], int],
) -> Iterator[Way]:
    """All ways of writing the steps, from the cheapest to the most expensive.

    As they are, and with maps of rows instead of rearrangements; each also with a row for every node wherever rows are
    nodes; and each of these with its sums over edges assembled, first as they are, then with rows at their homes.
    """
    like, read = seeds[0][1], [slot for slot, _ in seeds]

    def with_sums(given: Sequence[Step], *rows: Any) -> Iterator[Way]:
        plain = summed(given, named, new_slot, like.dtype)
        yield Way(plain, hops_of(plain, read), *rows)
        between_nodes = plain if are_nodes(plain) else summed(given, named, new_slot, like.dtype, num_nodes)
        known = {id(o) for step in given for o in step.operators}
        sums = any(type(o) is Aggregate and id(o) not in known for step in between_nodes for o in step.operators)
        # What looks like a sum between nodes may be one between as many other rows.
        for written in (between_nodes, given) if sums else (between_nodes,):
            if (homed := at_home(written, named, num_nodes, new_slot, like)) is not None:
                yield Way(homed, hops_of(homed, read), *rows)

    def laid_out(given: Sequence[Step], turned: Mapping[int, Axis]) -> Iterator[Way]:
        yield from with_sums(given, turned)
        found = layouts(given, num_nodes, like)
        if (with_all := by_node(given, found, like)) is not None:
            yield from with_sums(with_all, turned, found)

    def are_nodes(given: Sequence[Step]) -> bool:
        """Whether sums over edges are between nodes alone."""
        sums = [o for step in given for o in step.operators if isinstance(o, (Aggregate, Send))]
        return all(isinstance(o, Aggregate) and o.edges.num_nodes == num_nodes for o in sums)

    yield from laid_out(steps, {})
    rearranges = any(o.shapes is not None for step in steps for o in step.operators)
    if rearranges and (by_row := row_by_row(steps, new_slot, like)) is not None:
        yield from laid_out(*by_row)
