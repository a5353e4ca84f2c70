"""The linear maps a chain is made of, each able to pull a message from its output to its input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from walkwise.core.edges import Edges
from walkwise.core.rows import Rows

#: From so many rows on, products with fewer columns than that are turned over: what processors' libraries do slowly.
_MANY_ROWS, _FEW_COLUMNS = 64, 16


@dataclass(frozen=True)
class Cast:
    """Moves tensors to a device and floating-point ones to a dtype (None: leave as it is)."""

    device: torch.device | None = None
    dtype: torch.dtype | None = None
    _edges: dict[int, tuple[Edges, Edges]] = field(default_factory=dict, repr=False)

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor, cast."""
        return tensor.to(device=self.device, dtype=self.dtype if tensor.is_floating_point() else None)

    def edges(self, edges: Edges) -> Edges:
        """The edges, moved; edges that operators share stay shared."""
        if id(edges) not in self._edges:
            self._edges[id(edges)] = edges, Edges(self(edges.source), self(edges.target), edges.num_nodes)
        return self._edges[id(edges)][1]


class Operator(ABC):
    """A linear map between node tensors, held at the values of one input.

    ``pull`` is the transposed map on messages of shape (K, B, D, N), see :class:`Rows`;
    ``push`` the map itself on a whole node tensor (M, N).
    """

    #: How far one application reaches: 0 stays at the node, 1 goes along edges.
    reach: int = 0

    @property
    def widest(self) -> int:
        """The most neurons a message has on its way through; 0 where it keeps those it has."""
        return 0

    @abstractmethod
    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The message at the input, given the message at the output."""

    @abstractmethod
    def push(self, values: Tensor) -> Tensor:
        """The map applied to node values."""

    def to(self, cast: Cast) -> Operator:
        """The same map with every tensor cast."""
        return self


@dataclass(frozen=True)
class Identity(Operator):
    """Passes a message on as it is."""

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The message."""
        return message

    def push(self, values: Tensor) -> Tensor:
        """The values."""
        return values


@dataclass(frozen=True)
class Visit(Operator):
    """Marks where a walk stands at a node; the contraction puts the node weights in here."""

    position: int
    slot: int  # of its input

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The message, unweighted."""
        return message

    def push(self, values: Tensor) -> Tensor:
        """The values."""
        return values


@dataclass(frozen=True, eq=False)
class Scale(Operator):
    """Multiplies entry by entry: activations, ratios, normalisations, gates."""

    factor: Tensor  # (M, N), (1, N), (M, 1) or (1, 1)

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """factor ⊙ message."""
        if self.factor.shape[0] == 1:
            return message * self.factor[0]
        return message * rows.take(self.factor, message)

    def push(self, values: Tensor) -> Tensor:
        """factor ⊙ values."""
        return values * self.factor

    def to(self, cast: Cast) -> Scale:
        """The same scale, cast."""
        return Scale(cast(self.factor))


@dataclass(frozen=True, eq=False)
class RowMap(Operator):
    """The same matrix applied to every node: linear layers."""

    matrix: Tensor  # (N_out, N_in)

    @property
    def widest(self) -> int:
        """The longer side of the matrix."""
        return max(self.matrix.shape)

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """message · matrix."""
        flat = _product(message.reshape(-1, message.shape[-1]), self.matrix)
        return flat.view(*message.shape[:-1], self.matrix.shape[1])

    def push(self, values: Tensor) -> Tensor:
        """values · matrixᵀ."""
        return values @ self.matrix.t()

    def to(self, cast: Cast) -> RowMap:
        """The same matrix, cast."""
        return RowMap(cast(self.matrix))


@dataclass(frozen=True, eq=False)
class Perceptron(Operator):
    """Matrices and scales in turn, at every node: x ↦ factor ⊙ (matrix · x), again and again."""

    maps: tuple[tuple[Tensor, Tensor | None], ...]  # (N_out, N_in) and (M, N_out), in the model's order

    @property
    def widest(self) -> int:
        """The longest side of a matrix."""
        return max([max(matrix.shape) for matrix, _ in self.maps])

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """(factor ⊙ message) · matrix, from the last map to the first."""
        K, B, D, _ = message.shape
        pulled = message
        for matrix, factor in reversed(self.maps):
            if factor is not None:
                scale = rows.take(factor, message)
                pulled = pulled * scale if pulled is message else pulled.mul_(scale)  # its own after the first product
            pulled = _product(pulled.reshape(-1, pulled.shape[-1]), matrix).view(K, B, D, -1)
        return pulled

    def push(self, values: Tensor) -> Tensor:
        """The maps applied one after the other."""
        for matrix, factor in self.maps:
            values = values @ matrix.t() if factor is None else (values @ matrix.t()) * factor
        return values

    def to(self, cast: Cast) -> Perceptron:
        """The same maps, cast."""
        return Perceptron(tuple((cast(m), None if f is None else cast(f)) for m, f in self.maps))


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows · matrix; many rows and few columns are multiplied several times quicker lying than standing."""
    if len(rows) >= _MANY_ROWS and 1 < matrix.shape[1] < _FEW_COLUMNS and rows.device.type == "cpu":
        return (matrix.t() @ rows.t()).t().contiguous()
    return rows @ matrix


@dataclass(frozen=True)
class Embed(Operator):
    """Places the input's columns among the output's: one argument of a concatenation."""

    start: int
    length: int
    width: int

    @property
    def widest(self) -> int:
        """All columns."""
        return self.width

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The message's columns that came from this input."""
        return message.narrow(-1, self.start, self.length)

    def push(self, values: Tensor) -> Tensor:
        """The values with zero columns on both sides."""
        after = self.width - self.start - self.length
        return torch.nn.functional.pad(values, (self.start, after))


@dataclass(frozen=True, eq=False)
class Aggregate(Operator):
    """Sums over edges and the node itself, Λ + root: each edge with one weight, one per head, or one per neuron."""

    edges: Edges
    weight: Tensor | None = None  # (E,) or (E, H), H dividing N; None for ones
    root: float = 0.0

    reach = 1

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """(Λᵀ + root) · message over the rows at hand."""
        return rows.sum(message, self.edges, self.weight, self.root)

    def push(self, values: Tensor) -> Tensor:
        """(Λ + root) · values."""
        dense = self.edges.dense(self.weight, self.root, values.dtype)
        if dense is not None:
            return dense @ values
        sent = values.index_select(0, self.edges.source)  # (E, N)
        if self.weight is not None:
            heads = 1 if self.weight.dim() == 1 else self.weight.shape[1]
            shape = (len(sent), heads, sent.shape[1] // heads)
            sent = (sent.view(shape) * self.weight.view(len(sent), heads, 1)).flatten(1)
        kept = values * self.root if self.root else torch.zeros_like(values)
        return kept.index_add_(0, self.edges.target, sent)

    def to(self, cast: Cast) -> Aggregate:
        """The same sums, cast."""
        weight = None if self.weight is None else cast(self.weight)
        return Aggregate(cast.edges(self.edges), weight, self.root)


@dataclass(frozen=True, eq=False)
class Jacobian:
    """A differentiable piece of the model whose messages are pulled by autograd.

    It may have several inputs and outputs, of any shape; a message is the gradient that arrives at
    an output, for all queries at once. ``build`` runs the piece again, for another dtype or device.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    build: Callable[[Cast], Jacobian]

    def pull_all(self, messages: list[Tensor | None]) -> list[Tensor | None]:
        """The messages at the inputs, given those at the outputs (None where nothing arrives)."""
        given = [(out, m) for out, m in zip(self.outputs, messages, strict=True) if m is not None]
        B = max(m.shape[1] for _, m in given)
        D = max(m.shape[2] for _, m in given)
        outputs = [out for out, _ in given]
        arriving = [_as_gradient(m, out, B, D) for out, m in given]
        try:
            gradients = self._gradients(outputs, arriving, batched=B * D > 1)
        except RuntimeError:
            if B * D == 1:
                raise
            one_by_one = [self._gradients(outputs, [m[i] for m in arriving]) for i in range(B * D)]
            gradients = [None if g[0] is None else torch.stack(g) for g in zip(*one_by_one, strict=True)]
        return [None if g is None else _as_message(g, x, B, D) for g, x in zip(gradients, self.inputs, strict=True)]

    def _gradients(
        self, outputs: list[Tensor], arriving: list[Tensor], batched: bool = False
    ) -> Sequence[Tensor | None]:
        """Vector-Jacobian products; not every torch operation can batch them."""
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            outputs,
            self.inputs,
            arriving,
            retain_graph=True,
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
            is_grads_batched=batched,
        )
        return gradients

    def to(self, cast: Cast) -> Jacobian:
        """The same piece, run again on cast tensors."""
        return self.build(cast)


def _as_gradient(message: Tensor, like: Tensor, B: int, D: int) -> Tensor:
    """(K, B, D, N) -> (B·D, *shape), or just the shape where there is one query and lane."""
    K, _, lanes, N = message.shape
    message = torch.nn.functional.pad(message, (0, 0, 0, D - lanes)).expand(K, B, D, N)
    batched = message.permute(1, 2, 0, 3).reshape(B * D, *like.shape)
    return batched if B * D > 1 else batched[0]


def _as_message(gradient: Tensor, like: Tensor, B: int, D: int) -> Tensor:
    """(B·D, *shape) -> (K, B, D, N)."""
    K = like.shape[0] if like.dim() else 1
    return gradient.reshape(B, D, K, -1).permute(2, 0, 1, 3)


@dataclass(frozen=True, eq=False)
class Step:
    """One map of a chain, from the node tensors in slots ``sources`` to those in slots ``targets``.

    Either the target is the sum of one operator per source, or a Jacobian takes all to all.
    """

    operators: tuple[Operator, ...] | Jacobian
    sources: tuple[int, ...]
    targets: tuple[int, ...]

    @property
    def visit(self) -> Visit | None:
        """The visit, if this step is one."""
        first = self.operators[0] if type(self.operators) is tuple else None
        return first if type(first) is Visit else None

    def to(self, cast: Cast) -> Step:
        """The same step, cast."""
        if isinstance(self.operators, Jacobian):
            return replace(self, operators=self.operators.to(cast))
        return replace(self, operators=tuple(operator.to(cast) for operator in self.operators))
