"""The records of a run: operations, and calls of message-passing layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from walkwise.core.cast import mapped
from walkwise.core.differential import leaves
from walkwise.core.operators import Operator
from walkwise.rules import LRP_0, Rule
from walkwise.tracing.recording.words import Word

#: Rows of nodes: the slot of a tensor, or of several that one was put together of.
Rows = tuple[int, ...]


@dataclass(slots=True)
class Ref:
    """Stands in recorded arguments where a followed tensor was."""

    slot: int


@dataclass(eq=False, slots=True)
class Op:
    """One recorded operation."""

    word: Word
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]  # one per tensor of the result; None where it is not followed
    call: int | None  # the message-passing call it belongs to
    era: int  # how many calls had begun
    terms: tuple[tuple[int, Operator], ...] = ()  # of propagate: (slot, map)
    constant: Tensor | None = None
    activated: bool = False
    rule: Rule = LRP_0  # that its weights are under

    def given(self, *names: str, first: int = 1) -> dict[str, Any]:
        """The arguments by name; ``names`` are those of the arguments that go by position, from the second on."""
        return dict(zip(names, self.args[first:], strict=False)) | self.kwargs

    def run(self, fill: Callable[[int], Any]) -> tuple[Any, ...]:
        """The operation's tensors, computed again with other values for what was followed."""
        args, kwargs = filled((self.args, self.kwargs), fill, {})
        viewed = self.func is Tensor.view and not any(isinstance(item, torch.dtype) for item in args)
        result = (Tensor.reshape if viewed else self.func)(*args, **kwargs)  # they may lie otherwise in memory
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)


@dataclass(frozen=True, eq=False, slots=True)
class Made:
    """The result of a function of constants outside layers."""

    number: int  # of the function, among all outside of layers
    word: Word
    tensors: list[tuple[int, Tensor]]  # what it was given of numbers that are no whole ones, and in which place
    numbers: list[Tensor]  # and of whole ones
    results: list[Tensor]

    @property
    def name(self) -> str:
        """The function's."""
        return self.word.name


@dataclass(eq=False)
class Call:
    """One call of a message-passing module."""

    name: str
    module: torch.nn.Module
    handed: tuple[int, ...]  # the slots of the node tensors handed to it: several of different nodes, or one
    closed: bool = True  # whether every propagate had a closed form
    propagates: int = 0  # how often it was called, where it was
    outputs: list[int] = field(default_factory=list)
    rows_of: dict[int, int] = field(default_factory=dict)  # the slots of what it returned, and whose rows they have
    of_edges: set[int | None] = field(default_factory=set)  # those whose rows are edges, though there are as many nodes
    receivers_unknown: bool = False  # whether it was handed (x, None): nothing says what its edges end at
    edges_are_not_the_graphs: bool = False  # whether they are then others, which may lead to something else
    edge_index: Tensor | None = None  # (2, E) that it was given, if it is the first that was given any
    along: Any = None  # what it was given for edges, whether it is the first or not
    type_of: dict[int, str] = field(default_factory=dict)  # of slots handed to it: the node types they are said to be
    by_type: bool = False  # whether it returned a dictionary of node tensors
    beside: tuple[Any, ...] = ()  # all it was given, if a tensor of the model's own or None is among its nodes
    embeds: bool = False  # whether it has embedded its nodes itself
    sent: list[tuple[int, int]] = field(default_factory=list)  # of 3 dimensions or more, and which it sends along
    joined: tuple[Rows, Rows] | None = None  # what edges lead from and to, where those are tensors of their own
    handed_at_start: tuple[int, ...] = ()  # what was taken for its nodes when it began, where that has changed
    lying: dict[int, int] = field(default_factory=dict)  # of slots in own code: along which dimension nodes lie
    found: bool = False  # whether its module is no message-passing one, and counts as a layer

    @property
    def matrices(self) -> bool:
        """Whether some of these are several matrices on one static graph, (T, M, F), or one."""
        return any(self.lying.values())

    @property
    def num_edges(self) -> int | None:
        """How many edges it was given, if any."""
        return None if self.along is None else int(self.along.shape[1])

    @property
    def ends(self) -> list[int]:
        """The slots of the node tensors that it returned."""
        return self.outputs if self.by_type else self.outputs[:1]

    @property
    def both_ends(self) -> tuple[Rows, Rows]:
        """The slots of what edges lead from, and to."""
        return self.joined or (self.handed[:1], self.handed[-1:])

    def takes_matrices(self, shape: Sequence[int]) -> bool:
        """Whether it reads a tensor as several matrices on one static graph, (T, M, F)."""
        return len(shape) > 2 and (self.matrices or self._sent_along(shape) > 0)

    def _sent_along(self, shape: Sequence[int]) -> int:
        """Along which dimension of a tensor its module sends messages; 0 if it does not say."""
        if self.found:
            return int(len(shape) == 3 and shape[0] == 1)  # as dense layers take a graph
        dim = getattr(self.module, "node_dim", 0)
        return dim % len(shape) if -len(shape) <= dim < len(shape) else 0

    def dim_of_rows(self, shape: Sequence[int]) -> int:
        """The dimension of several matrices along which it sends, the last but one if it does not say."""
        return self._sent_along(shape) or len(shape) - 2

    def dim_of_nodes(self, shape: Sequence[int], num_nodes: int) -> int:
        """The dimension of its input that runs over nodes: the second of (T, M, F)."""
        if not self.takes_matrices(shape):
            return 0
        if self.matrices:
            return fitting_dim(shape, num_nodes) or 0
        dim = self._sent_along(shape)
        return dim if shape[dim] == num_nodes else 0


def fitting_dim(shape: Sequence[int], num_nodes: int) -> int | None:
    """The dimension of a tensor that may run over nodes: the first, or of three or more the first other that fits."""
    if shape[:1] == (num_nodes,):
        return 0
    return next((dim for dim in range(1, len(shape)) if shape[dim] == num_nodes), None) if len(shape) > 2 else None


def live(ops: Sequence[Op], wanted: set[int]) -> list[Op]:
    """The operations that the wanted slots depend on."""
    wanted, found = set(wanted), []
    for op in reversed(ops):
        if not wanted.isdisjoint(op.outputs):
            wanted.update(op.inputs)
            found.append(op)
    return found[::-1]


def makers(ops: Iterable[Op]) -> dict[int, Op]:
    """The operation that made each slot."""
    return {slot: op for op in ops for slot in op.outputs if slot is not None}


def filled(nested: Any, fill: Callable[[int], Any], swap: dict[int, Tensor]) -> Any:
    """Recorded arguments with every reference replaced; ``swap`` replaces tensors by identity."""
    return mapped(nested, lambda leaf: fill(leaf.slot) if type(leaf) is Ref else swap.get(id(leaf), leaf))


def floating(nested: Any) -> Iterator[tuple[int, Tensor]]:
    """The tensors of floating-point numbers in nested arguments, numbered."""
    return enumerate(t for t in leaves(nested) if isinstance(t, Tensor) and t.is_floating_point() and t.dim())


def not_runnable(*args: Any, **kwargs: Any) -> Any:
    """Stands where a recorded operation has no function to run again."""
    raise AssertionError("this operation is carried by its closed form")


def references(op: Op) -> Iterable[Ref]:
    """The followed tensors among an operation's arguments, as often as they occur."""
    return (item for item in leaves((op.args, op.kwargs)) if isinstance(item, Ref))
