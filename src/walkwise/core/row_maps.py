"""Linear maps that pick, add up and rearrange rows, which need not be nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.cast import Cast
from walkwise.core.edges import Edges
from walkwise.core.operators import Largest, Operator
from walkwise.core.rows import Rows


@dataclass(frozen=True, eq=False)
class Send(Operator):
    """Messages along edges from one set of nodes to another: bipartite layers."""

    edges: Edges  # from rows of the input to rows of the output
    weight: Tensor | None  # (E,), (E, H) for as many equal parts of the neurons, or None for 1 each
    senders: int  # rows of the input
    receivers: int  # rows of the output

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every sender gets what its edges carried."""
        carried = self._weighed(message.index_select(0, self.edges.target))
        return message.new_zeros(self.senders, *message.shape[1:]).index_add_(0, self.edges.source, carried)

    def push(self, values: Tensor) -> Tensor:
        """The sums along the edges."""
        carried = self._weighed(values.index_select(0, self.edges.source))
        return values.new_zeros(self.receivers, values.shape[1]).index_add_(0, self.edges.target, carried)

    def _weighed(self, carried: Tensor) -> Tensor:
        """Each edge's part times its weight.  # (E, …, N)"""
        if self.weight is None:
            return carried
        heads = 1 if self.weight.dim() == 1 else self.weight.shape[1]
        factor = self.weight.view(len(self.weight), *[1] * (carried.dim() - 2), heads, 1)
        by_head = carried.reshape(*carried.shape[:-1], heads, carried.shape[-1] // heads)
        return (by_head * factor).flatten(-2)

    def to(self, cast: Cast) -> Send:
        """The same edges and weights, cast."""
        weight = None if self.weight is None else cast(self.weight)
        return Send(cast.edges(self.edges), weight, self.senders, self.receivers)


@dataclass(frozen=True, eq=False)
class Gather(Operator):
    """Rows picked by number: an edge's row from its node, an entry of a list."""

    index: Tensor  # (K',) the row that each row of the output is
    num_rows: int  # of the input

    def growth(self, largest: Largest) -> float:
        """All rows could be picked from one."""
        return float(len(self.index))

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every row gets the messages of the rows that were picked from it."""
        return message.new_zeros(self.num_rows, *message.shape[1:]).index_add_(0, self.index, message)

    def push(self, values: Tensor) -> Tensor:
        """The rows picked."""
        return values.index_select(0, self.index)

    def to(self, cast: Cast) -> Gather:
        """The same rows, moved."""
        return Gather(cast(self.index), self.num_rows)


@dataclass(frozen=True, eq=False)
class Scatter(Operator):
    """Rows added up by number: messages at their targets, nodes in their graphs."""

    index: Tensor  # (K,) the row of the output that each row goes to
    num_rows: int  # of the output

    def growth(self, largest: Largest) -> float:
        """Nothing grows."""
        return 1.0

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every row gets the message of the row it went to."""
        return message.index_select(0, self.index)

    def push(self, values: Tensor) -> Tensor:
        """The sums."""
        return values.new_zeros(self.num_rows, values.shape[1]).index_add_(0, self.index, values)

    def to(self, cast: Cast) -> Scatter:
        """The same sums, moved."""
        return Scatter(cast(self.index), self.num_rows)


@dataclass(frozen=True, eq=False)
class SumRows(Operator):
    """The sum of all rows, each times the same share."""

    num_rows: int
    share: float
    as_rows: bool  # whether the columns of the sum are the rows of what comes out

    def growth(self, largest: Largest) -> float:
        """The share."""
        return abs(self.share)

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """Every row gets the message, times the share."""
        message = message.permute(3, 1, 2, 0) if self.as_rows else message  # (1, B, D, N)
        return (message * self.share if self.share != 1 else message).expand(self.num_rows, *message.shape[1:])

    def push(self, values: Tensor) -> Tensor:
        """The sum."""
        total = values.sum(0, keepdim=True) * self.share
        return total.t() if self.as_rows else total


@dataclass(frozen=True)
class Reshape(Operator):
    """The same entries in other rows."""

    before: torch.Size  # (K, N)
    after: torch.Size

    @property
    def shapes(self) -> tuple[torch.Size, torch.Size]:
        """The rows before and after."""
        return self.before, self.after

    def growth(self, largest: Largest) -> float:
        """Nothing grows."""
        return 1.0

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The message in the rows from before."""
        _, B, D, _ = message.shape
        by_query = message.permute(1, 2, 0, 3).reshape(B, D, *self.before)
        return by_query.permute(2, 0, 1, 3)

    def push(self, values: Tensor) -> Tensor:
        """The values in their new rows."""
        return values.reshape(self.after)
