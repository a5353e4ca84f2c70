"""The linear maps a chain is made of, each able to pull a message from its output to its input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from walkwise.core.cast import Cast
from walkwise.core.edges import Edges
from walkwise.core.lazy import cached_property
from walkwise.core.postponed import NodeTensor, Postponed, some, whole
from walkwise.core.rows import Dimension, Rows
from walkwise.core.sending import sent

#: From this many rows on, products with fewer columns than this are transposed: libraries are slow at them.
_MANY_ROWS, _FEW_COLUMNS = 64, 16
#: Types that torch multiplies sparse matrices in.
_COMPRESSED = (torch.float32, torch.float64)


#: Gives the size of a tensor's largest entry.
Largest = Callable[[Tensor], float]


class Operator(ABC):
    """A linear map between node tensors, held at the values of one input.

    ``pull`` is the transposed map on messages of shape (K, B, D, N), see :class:`Rows`;
    ``push`` the map itself on a whole node tensor (M, N).
    """

    #: How far one application reaches: 0 stays at the node, 1 goes along edges, None may go anywhere.
    reach: int | None = None
    #: Whether it is written out; the map of any other function is carried by autograd.
    closed: bool = True

    @property
    def shapes(self) -> tuple[torch.Size, torch.Size] | None:
        """The shapes it was recorded between, if any entry may lead to any other; None if rows stay rows."""
        return None

    @property
    def has_matrices(self) -> bool:
        """Whether it has something like a matrix for every row."""
        return False

    @property
    def recorded(self) -> Hashable:
        """Equal for operators that are the same function of the same tensor, with the same arguments."""
        return id(self)

    @property
    def widest(self) -> int:
        """The most neurons a message has on its way through; 0 if it keeps its own."""
        return 0

    def growth(self, largest: Largest) -> float | None:
        """By what factor the largest entry of a message can grow; None if unknown."""
        return None

    @abstractmethod
    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The message at the input, given the message at the output."""

    @abstractmethod
    def push(self, values: Tensor) -> Tensor:
        """The map applied to node values."""

    def along(self, values: Tensor) -> Tensor:
        """The map, run where the model was, so that it can be differentiated along node values."""
        return self.push(values)

    def by_rows(self, start: Dimension, end: Dimension, constants: bool) -> Operator | None:
        """The same as a function of every row by itself, if it is a function; whether it is right is to be tried.

        Args:
            start: the dimension of the argument that runs over its rows.
            end: and of the result.
            constants: whether constants that are as long as the argument there have a row for each of its rows.
        """
        return None

    def push_some(self, values: NodeTensor, nodes: Tensor) -> Tensor:
        """Some rows of what ``push`` makes, of values at those rows and where edges come from alone.  # (K, N)"""
        raise NotImplementedError

    @property
    def pushes_some(self) -> bool:
        """Whether it can do that."""
        return type(self).push_some is not Operator.push_some

    def to(self, cast: Cast) -> Operator:
        """The same map with every tensor cast."""
        return self


class Passage(Operator):
    """Passes messages on unchanged."""

    reach = 0

    def growth(self, largest: Largest) -> float:
        """Nothing grows."""
        return 1.0

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The message."""
        return message

    def push(self, values: Tensor) -> Tensor:
        """The values."""
        return values

    def push_some(self, values: NodeTensor, nodes: Tensor) -> Tensor:
        """Some rows of the values."""
        return some(values, nodes)


@dataclass(frozen=True)
class Identity(Passage):
    """A map that changes nothing."""


@dataclass(frozen=True)
class Visit(Passage):
    """Marks where a walk stands at a node; the contraction inserts node weights here."""

    position: int
    slot: int  # of its input


@dataclass(frozen=True, eq=False)
class Scale(Operator):
    """Multiplies entry by entry: activations, ratios, normalisations, gates."""

    given: NodeTensor  # (M, N), (1, N), (M, 1) or (1, 1)

    reach = 0

    @property
    def factor(self) -> Tensor:
        """The factor of every row."""
        return whole(self.given)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the factor."""
        return tuple(self.given.shape)

    def growth(self, largest: Largest) -> float:
        """The largest factor; what is postponed has none above 1."""
        return 1.0 if isinstance(self.given, Postponed) else largest(self.given)

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """factor ⊙ message."""
        if self.given.shape[0] == 1:
            return message * self.factor[0]
        return message * rows.take(self.given, message)

    def push(self, values: Tensor) -> Tensor:
        """factor ⊙ values."""
        return values * self.factor

    def push_some(self, values: NodeTensor, nodes: Tensor) -> Tensor:
        """Some rows of the product."""
        return some(values, nodes) * some(self.given, nodes)

    def to(self, cast: Cast) -> Scale:
        """The same scale, cast."""
        return Scale(cast(self.factor))


@dataclass(frozen=True, eq=False)
class RowMap(Operator):
    """The same matrix applied to every node: linear layers."""

    matrix: Tensor  # (N_out, N_in)

    reach = 0

    @property
    def widest(self) -> int:
        """The longer side of the matrix."""
        return max(self.matrix.shape)

    def growth(self, largest: Largest) -> float:
        """The largest entry, as often as it can be added up."""
        return largest(self.matrix) * self.matrix.shape[0]

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """message · matrix."""
        flat = _product(message.reshape(-1, message.shape[-1]), self.matrix)
        return flat.view(*message.shape[:-1], self.matrix.shape[1])

    def push(self, values: Tensor) -> Tensor:
        """values · matrixᵀ."""
        return values @ self.matrix.t()

    def push_some(self, values: NodeTensor, nodes: Tensor) -> Tensor:
        """Some rows of the product."""
        return some(values, nodes) @ self.matrix.t()

    def to(self, cast: Cast) -> RowMap:
        """The same matrix, cast."""
        return RowMap(cast(self.matrix))


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows · matrix; many rows and few columns are multiplied several times faster as the transposed product."""
    if rows.shape[0] >= _MANY_ROWS and 1 < matrix.shape[1] < _FEW_COLUMNS and rows.device.type == "cpu":
        return (matrix.t() @ rows.t()).t().contiguous()
    return rows @ matrix


@dataclass(frozen=True, eq=False)
class Columns(Operator):
    """Moves columns of the input to their places: an argument of a concatenation, a piece of every row, copies."""

    index: tuple[int, ...]  # (N',) the column of the input that each of the output's is, -1 where that is 0
    width: int  # N

    reach = 0

    @staticmethod
    def placed(start: int, length: int, width: int) -> Columns:
        """All columns of the input side by side among those of an output of this width."""
        return Columns((-1,) * start + tuple(range(length)) + (-1,) * (width - start - length), length)

    @property
    def widest(self) -> int:
        """The columns of the wider side."""
        return max(self.width, len(self.index))

    @cached_property
    def piece(self) -> tuple[int, int, int] | None:
        """Where one piece begins in the output and in the input, and its length; None if there are several."""
        there = [place for place, column in enumerate(self.index) if column >= 0]
        start, first = (there[0], self.index[there[0]]) if there else (0, 0)
        length = len(there)
        side_by_side = self.index[start : start + length] == tuple(range(first, first + length))
        return (start, first, length) if side_by_side else None

    def growth(self, largest: Largest) -> float:
        """As often as one column is copied."""
        if self.piece is not None:
            return 1.0
        return float(max(Counter(column for column in self.index if column >= 0).values()))

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """What came from every column of the input."""
        if self.piece is not None:
            start, first, length = self.piece
            return _padded(message.narrow(-1, start, length), first, self.width)
        there, columns = self._moved(message)
        if sorted(self.index) == list(range(self.width)):  # an order of all columns
            return message.index_select(-1, columns.argsort())
        return message.new_zeros(*message.shape[:-1], self.width).index_add_(-1, columns, message[..., there])

    def push(self, values: Tensor) -> Tensor:
        """The values in their places, 0 elsewhere."""
        if self.piece is not None:
            start, first, length = self.piece
            return _padded(values.narrow(-1, first, length), start, len(self.index))
        there, columns = self._moved(values)
        return values.new_zeros(*values.shape[:-1], len(self.index)).index_copy_(-1, there, values[..., columns])

    def push_some(self, values: NodeTensor, nodes: Tensor) -> Tensor:
        """The same of some rows."""
        return self.push(some(values, nodes))

    def _moved(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The columns of the output that are some of the input's, and which those are."""
        if like.device not in self._placed:
            index = torch.tensor(self.index)
            there = (index >= 0).nonzero().view(-1)
            self._placed[like.device] = sent(there, like.device), sent(index[there], like.device)
        return self._placed[like.device]

    @cached_property
    def _placed(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        """The same, by device, once they were asked for."""
        return {}


def _padded(part: Tensor, start: int, width: int) -> Tensor:
    """Columns with zeros on both sides."""
    after = width - start - part.shape[-1]
    return torch.nn.functional.pad(part, (start, after)) if start or after else part


@dataclass(frozen=True, eq=False)
class Aggregate(Operator):
    """Sums over edges and the node itself, Λ + root: each edge with one weight, one per head, or one per neuron."""

    edges: Edges
    weight: Tensor | None = None  # (E,) or (E, H), H dividing N; None for ones
    root: float = 0.0

    reach = 1

    def growth(self, largest: Largest) -> float:
        """All edges could leave one node."""
        each = 1.0 if self.weight is None else largest(self.weight)
        return each * self.edges.source.shape[0] + abs(self.root)

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """(Λᵀ + root) · message over the rows at hand."""
        return rows.sum(message, self.edges, self.weight, self.root)

    def push(self, values: Tensor) -> Tensor:
        """(Λ + root) · values."""
        dense = self.edges.dense(self.weight, self.root, values.dtype)
        if dense is not None:
            return dense @ values
        if values.dtype in _COMPRESSED and (self.weight is None or self._one_each(values)):
            total = self.edges.compressed(self.weight, values) @ values
            return total.add_(values, alpha=self.root) if self.root else total
        sent = values.index_select(0, self.edges.source)  # (E, N)
        if self.weight is not None:
            heads = 1 if self.weight.dim() == 1 else self.weight.shape[1]
            shape = (len(sent), heads, sent.shape[1] // heads)
            sent = (sent.view(shape) * self.weight.view(len(sent), heads, 1)).flatten(1)
        kept = values * self.root if self.root else torch.zeros_like(values)
        return kept.index_add_(0, self.edges.target, sent)

    def push_some(self, values: NodeTensor, nodes: Tensor) -> Tensor:
        """What comes along the edges to some nodes."""
        row, source, edge = self.edges.arriving.of_rows(nodes)
        sent = some(values, source)  # (P, N)
        if self.weight is not None:
            each = self.weight.index_select(0, edge)
            heads = 1 if each.dim() == 1 else each.shape[1]
            sent = (sent.view(len(sent), heads, sent.shape[1] // heads) * each.view(-1, heads, 1)).flatten(1)
        kept = some(values, nodes) * self.root if self.root else sent.new_zeros(len(nodes), sent.shape[1])
        return kept.index_add_(0, row, sent)

    def _one_each(self, values: Tensor) -> bool:
        """Whether every edge has one weight, of the values' type."""
        return self.weight is not None and self.weight.dim() == 1 and self.weight.dtype == values.dtype

    def to(self, cast: Cast) -> Aggregate:
        """The same sums, cast."""
        weight = None if self.weight is None else cast(self.weight)
        return Aggregate(cast.edges(self.edges), weight, self.root)


@dataclass(frozen=True, eq=False)
class Step:
    """One map of a chain: slot ``target`` holds the sum of one operator per source."""

    operators: tuple[Operator, ...]
    sources: tuple[int, ...]
    target: int

    @property
    def visit(self) -> Visit | None:
        """The visit, if this step is one."""
        first = self.operators[0]
        return first if type(first) is Visit else None

    def to(self, cast: Cast) -> Step:
        """The same step, cast."""
        return replace(self, operators=tuple(operator.to(cast) for operator in self.operators))
