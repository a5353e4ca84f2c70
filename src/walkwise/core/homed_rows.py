"""Maps of rows that are not nodes but have a home at one: rows of edges, of pairs of edges, of a node's heads.

A question about a subgraph carries only rows whose home is in it, however large the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from torch import Tensor

from walkwise.core.cast import Cast
from walkwise.core.edges import Edges, running_totals, whose
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Aggregate, Largest, Operator, Step
from walkwise.core.postponed import NodeTensor
from walkwise.core.row_maps import Gather, Scatter
from walkwise.core.rows import Places, Rows


@dataclass(frozen=True, eq=False)
class Homes:
    """The node that every row of a tensor belongs to; for an edge, its target."""

    node: Tensor  # (K,); -1 for rows that lead nowhere
    num_nodes: int
    gone: bool = False  # whether a message has left the node where it stood when it comes to these rows

    @cached_property
    def order(self) -> Tensor:
        """The rows that have a home, sorted by it.  # (K',)"""
        order = torch.argsort(self.node, stable=True)
        return order[int((self.node < 0).sum()) :]

    @cached_property
    def offsets(self) -> Tensor:
        """Where each node's rows begin in that order.  # (M + 1,)"""
        return running_totals(torch.bincount(self.node[self.node >= 0], minlength=self.num_nodes))

    @property
    def per_node(self) -> int:
        """How many rows a node has, on average and rounded up."""
        return -(-len(self.node) // max(1, self.num_nodes))

    def to(self, cast: Cast) -> Homes:
        """The same, moved; tensors that operators share stay shared."""
        return cast.shared(self, lambda homes, cast: Homes(cast(homes.node), homes.num_nodes, homes.gone))


@dataclass(frozen=True, eq=False)
class HomedRows(Rows):
    """All rows of every node where a message stands, for every query."""

    num_nodes: int  # of the graph
    num_queries: int
    homed: Places | None  # which row of the tensor each is, and whose; None for all rows in their order
    at: Tensor  # (P,) the row of the message at nodes that each has its home at

    @property
    def whole(self) -> bool:
        """Whether these are all rows of the tensor in their order."""
        return self.homed is None

    def take(self, per_node: NodeTensor, like: Tensor | None = None) -> Tensor:
        """Some rows of all.  # (K, N) -> (P, 1, 1, N)"""
        taken = per_node if self.homed is None else per_node.index_select(0, self.homed.nodes)
        return taken.unsqueeze(1).unsqueeze(1)

    def total(self, message: Tensor, values: Tensor) -> NoReturn:
        """No walk begins at these rows."""
        raise NotImplementedError

    def sum(self, message: Tensor, edges: Edges, weight: Tensor | None, root: float) -> NoReturn:
        """Messages between these rows are read and added up."""
        raise NotImplementedError


def homed_rows(rows: Rows, homes: Homes) -> HomedRows:
    """The rows that are at home where a message stands, found once."""
    found: HomedRows = rows.found(homes, 0, lambda: _homed_rows(rows, homes))
    return found


def _homed_rows(rows: Rows, homes: Homes) -> HomedRows:
    places = rows.places[homes.gone]
    if places is None:
        return HomedRows(rows.num_nodes, rows.num_queries, None, homes.node)
    first = homes.offsets[places.nodes]
    counts = homes.offsets[places.nodes + 1] - first
    counts = counts if places.present is None else counts * places.present
    at = whose(counts)
    position = torch.arange(len(at), device=at.device) + (first - running_totals(counts)[:-1])[at]
    return HomedRows(rows.num_nodes, rows.num_queries, Places(homes.order[position], places.owner[at]), at)


@dataclass(frozen=True, eq=False)
class Between(Operator):
    """A map from rows at home somewhere to rows at home somewhere; None stands for nodes themselves."""

    index: Tensor
    num_rows: int  # of the side that the index names
    before: Homes | None
    after: Homes | None
    parts: int = 1  # of which such a row is made: row k of the other side is its part k modulo so many

    @cached_property
    def edges(self) -> Edges:
        """From the homes of the rows before to those of the rows after."""
        source, target = self._homes
        both = (source >= 0) & (target >= 0)
        return Edges(source[both], target[both], self._num_nodes)

    @cached_property
    def stays(self) -> bool:
        """Whether every row comes to one with the same home."""
        return torch.equal(self.edges.source, self.edges.target)

    @property
    def reach(self) -> int:  # type: ignore[override]
        """Along edges, unless homes are the same."""
        return 0 if self.stays else 1

    @property
    def _homes(self) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @property
    def _num_nodes(self) -> int:
        homes = self.before or self.after
        assert homes is not None
        return homes.num_nodes

    def _places(self, rows: Rows, message: Tensor) -> tuple[Places, Places]:
        """The rows before and after that messages have; those at nodes are told by their number."""
        here, gone = rows.places
        assert here is not None and gone is not None
        if self.after is None:
            arrived = here if len(message) == len(here.nodes) else gone
        else:
            arrived = _of(homed_rows(rows, self.after))
        if self.before is None:
            left = here if self.stays and self.after is not None and not self.after.gone else gone
            return left, arrived
        return _of(homed_rows(rows, self.before)), arrived

    def _part(self, place: Tensor, row: Tensor) -> Tensor:
        """Where these rows are among the parts of those in these places."""
        return place if self.parts == 1 else place * self.parts + row % self.parts

    def to(self, cast: Cast) -> Between:
        """The same, moved."""
        before, after = (None if homes is None else homes.to(cast) for homes in (self.before, self.after))
        return replace(self, index=cast(self.index), before=before, after=after)


def _parted(message: Tensor, parts: int) -> Tensor:
    """A message with a row for every part of its rows.  # (K, B, D, P · N) -> (K · P, B, D, N)"""
    K, B, D, N = message.shape
    return message.reshape(K, B, D, parts, N // parts).movedim(3, 1).reshape(K * parts, B, D, N // parts)


def _joined(message: Tensor, parts: int) -> Tensor:
    """The message of rows, of one for every part of theirs.  # (K · P, B, D, N) -> (K, B, D, P · N)"""
    K, B, D, N = message.shape
    return message.reshape(K // parts, parts, B, D, N).movedim(1, 3).reshape(K // parts, B, D, parts * N)


def _of(rows: HomedRows) -> Places:
    assert rows.homed is not None
    return rows.homed


@dataclass(frozen=True, eq=False)
class Read(Between):
    """Rows that each read a row, or a part of it: row k reads ``index[k]``, as an edge reads a node."""

    def growth(self, largest: Largest) -> float:
        """All rows could read one."""
        return float(len(self.index))

    @property
    def _homes(self) -> tuple[Tensor, Tensor]:
        read = self.index if self.before is None else self.before.node[self.index]
        return read, torch.arange(len(self.index), device=read.device) if self.after is None else self.after.node

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every row gets the messages of those that read it; messages that lead to no row end."""
        if rows.whole:
            return (
                Gather(self.index, self.num_rows).pull(message, rows)
                if self.parts == 1
                else _joined(message, self.parts)
            )
        left, place, kept = rows.found(self, len(message), lambda: self._led(rows, message))
        arriving = message if kept is None else message.index_select(0, kept)
        led = message.new_zeros(left * self.parts, *message.shape[1:]).index_add_(0, place, arriving)
        return led if self.parts == 1 else _joined(led, self.parts)

    def _led(self, rows: Rows, message: Tensor) -> tuple[int, Tensor, Tensor]:
        """How many rows there are, which of them (or of their parts) messages lead to, and which messages those are."""
        left, arrived = self._places(rows, message)
        place, inside = left.rows_of(arrived.owner, self.index.index_select(0, arrived.nodes), self.num_rows)
        place = self._part(place, arrived.nodes)
        kept = (inside if arrived.present is None else inside & arrived.present).nonzero().view(-1)
        return len(left.nodes), place.index_select(0, kept), kept

    def push(self, values: Tensor) -> Tensor:
        """The rows that are read."""
        if self.parts > 1:
            return values.reshape(len(values) * self.parts, values.shape[1] // self.parts)
        return values.index_select(0, self.index)


@dataclass(frozen=True, eq=False)
class AddedUp(Between):
    """Rows that are added up, or become parts of a row: row k goes to row ``index[k]``, as an edge to its target."""

    def growth(self, largest: Largest) -> float:
        """Nothing grows."""
        return 1.0

    @property
    def _homes(self) -> tuple[Tensor, Tensor]:
        added = self.index if self.after is None else self.after.node[self.index]
        return torch.arange(len(self.index), device=added.device) if self.before is None else self.before.node, added

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every row gets the message of the one it went to, where there is one."""
        parts = message if self.parts == 1 else _parted(message, self.parts)
        if rows.whole:
            return parts if self.parts > 1 else Scatter(self.index, self.num_rows).pull(message, rows)
        place, inside = rows.found(self, len(message), lambda: self._led(rows, message))
        if not len(message):
            return parts.new_zeros(len(place), *parts.shape[1:])
        pulled = parts.index_select(0, place)
        return pulled if inside is None else pulled * inside.to(pulled.dtype).view(-1, 1, 1, 1)

    def _led(self, rows: Rows, message: Tensor) -> tuple[Tensor, Tensor | None]:
        """The message that every row gets, and which rows get one, if not all."""
        left, arrived = self._places(rows, message)
        if self.after is None and self.stays and self.before is not None and arrived is rows.places[self.before.gone]:
            return self._part(homed_rows(rows, self.before).at, left.nodes), None
        place, inside = arrived.rows_of(left.owner, self.index.index_select(0, left.nodes), self.num_rows)
        return self._part(place, left.nodes), inside if left.present is None else inside & left.present

    def push(self, values: Tensor) -> Tensor:
        """The sums."""
        if self.parts > 1:
            return values.reshape(self.num_rows, self.parts * values.shape[1])
        return values.new_zeros(self.num_rows, values.shape[1]).index_add_(0, self.index, values)


@dataclass(frozen=True, eq=False)
class AtHome(Operator):
    """A map of single rows, applied to rows that have their home at nodes."""

    operator: Operator
    homes: Homes

    reach = 0

    @property
    def widest(self) -> int:
        """As many neurons as a node's rows have together."""
        return self.operator.widest * self.homes.per_node

    def growth(self, largest: Largest) -> float | None:
        """That of the map."""
        return self.operator.growth(largest)

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The map's own."""
        return self.operator.pull(message, homed_rows(rows, self.homes))

    def push(self, values: Tensor) -> Tensor:
        """The map's own."""
        return self.operator.push(values)

    def to(self, cast: Cast) -> AtHome:
        """The same, cast."""
        return AtHome(self.operator.to(cast), self.homes.to(cast))


def edges_of(steps: Iterable[Step]) -> list[Edges]:
    """All edges that the steps lead along, each once."""
    operators = [operator for step in steps for operator in step.operators]
    leading = [o for o in operators if isinstance(o, (Aggregate, Between)) and o.reach]
    return list({id(o.edges): o.edges for o in leading}.values())
