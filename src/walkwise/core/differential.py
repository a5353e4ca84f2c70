"""The linear map of any other function: its own derivative, of all rows or of some, as a vector-Jacobian product."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from walkwise.core.cast import Cast, mapped
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Operator
from walkwise.core.rows import FIRST, Dimension, Rows
from walkwise.errors import TraceError


class Place(Enum):
    """A placeholder for the moving one among a function's arguments."""

    MOVING = "moving"


MOVING = Place.MOVING


@dataclass(frozen=True, eq=False)
class Differential(Operator):
    """One torch function as a linear map of one of its arguments, pulled by its own vector-Jacobian product.

    The other arguments stand at their values. ``push`` is the function itself, for functions that are linear.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]  # with MOVING in the place of the argument
    kwargs: dict[str, Any]
    at: Tensor  # the argument's value
    output: int  # which of the function's results, where there are several
    shape: torch.Size  # of the result

    closed = False

    @property
    def shapes(self) -> tuple[torch.Size, torch.Size]:
        """Of the argument and of the result."""
        return self.at.shape, self.shape

    @property
    def recorded(self) -> Hashable:
        """The function, and where its arguments lie."""
        given = [item if isinstance(item, (int, float, str)) else id(item) for item in leaves((self.args, self.kwargs))]
        return id(self.func), self.at.data_ptr(), self.at.shape, self.at.stride(), self.output, tuple(given)

    @property
    def has_matrices(self) -> bool:
        """Whether one of the other arguments has a matrix for every row."""
        constants = [a for a in (*self.args, *self.kwargs.values()) if isinstance(a, Tensor)]
        return any(constant.dim() > 2 and constant.shape[:1] == self.at.shape[:1] for constant in constants)

    @property
    def widest(self) -> int:
        """The entries in a row, at the input or the output."""
        return max(shape[1:].numel() for shape in (self.at.shape, self.shape))

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The vector-Jacobian product, for all queries and lanes at once."""
        point, result = self._graph
        _, B, D, _ = message.shape
        arriving = _as_gradient(message, result, B, D)
        try:
            gradient = self._gradient(point, result, arriving, batched=B * D > 1)
        except RuntimeError:
            if B * D == 1:
                raise
            one_by_one = [self._gradient(point, result, one) for one in arriving]  # not every function can batch them
            gradient = torch.stack(one_by_one)
        return _as_message(gradient, point, B, D)

    def push(self, values: Tensor) -> Tensor:
        """The function applied to node values, minus its value at zero (a number it fills in, say)."""
        result = self.applied(values.reshape(self.at.shape))
        result = result if self._constant is None else result - self._constant
        return result.reshape(result.shape[0] if result.dim() else 1, result.shape[1:].numel())

    def along(self, values: Tensor) -> Tensor:
        """The function at its argument's own value."""
        h = values.reshape(self.at.shape)
        result = self.applied(self.at.detach() + (h - h.detach()))
        return result.reshape(result.shape[0] if result.dim() else 1, result.shape[1:].numel())

    def by_rows(self, start: Dimension, end: Dimension, constants: bool) -> RowFunction:
        """The same, as if the function mixed no rows."""
        return RowFunction(self, constants, start, end)

    def applied(self, value: Tensor) -> Tensor:
        """The function's result for a value of its argument."""
        args, kwargs = mapped((self.args, self.kwargs), lambda item: value if item is MOVING else item)
        result = self.func(*args, **kwargs)
        made: Tensor = result[self.output] if isinstance(result, (tuple, list)) else result
        return made

    def to(self, cast: Cast) -> Differential:
        """The same function, its arguments cast."""
        return replace(self, args=cast.nested(self.args), kwargs=cast.nested(self.kwargs), at=cast(self.at))

    @cached_property
    def _constant(self) -> Tensor | None:
        """The function's value at zero, if that is not zero."""
        given = self.applied(torch.zeros_like(self.at))
        return given if bool((given != 0).any()) else None

    @cached_property
    def _graph(self) -> tuple[Tensor, Tensor]:
        """The argument as a leaf, and the function's result."""
        attends = self.func is torch.nn.functional.scaled_dot_product_attention  # fused, it cannot be batched
        plainly = sdpa_kernel(SDPBackend.MATH) if attends else nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), plainly:
            point = self.at.detach().clone() if self.at.is_inference() else self.at.detach()
            point.requires_grad_(True)
            return point, self.applied(point)

    def _gradient(self, point: Tensor, result: Tensor, arriving: Tensor, batched: bool = False) -> Tensor:
        """A vector-Jacobian product; zero where the result does not depend on the argument."""
        if not result.requires_grad:
            return point.new_zeros(arriving.shape[:1] + point.shape if batched else point.shape)
        (gradient,) = torch.autograd.grad(
            result,
            point,
            arriving,
            retain_graph=True,
            create_graph=torch.is_grad_enabled(),
            is_grads_batched=batched,
            allow_unused=True,
        )
        if gradient is None:  # torch says that it can, and does nothing
            raise TraceError(
                f"torch cannot differentiate {getattr(self.func, '__name__', self.func)}, which the model computes.",
                remedy="Write it with functions that have a derivative; trace a quantised model as it was before "
                "quantisation.",
            )
        return gradient

    def __getstate__(self) -> dict[str, Any]:
        """Copies are made without the graph, which is built again when it is needed."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_constant")}


@dataclass(frozen=True, eq=False)
class RowFunction(Operator):
    """The derivative of a function that mixes no rows, computed only for the rows in question."""

    derivative: Differential
    by_row: bool  # whether constants that are as long as the argument where it has its rows have one for each of them
    start: Dimension = FIRST  # where the argument's rows are
    end: Dimension = FIRST  # and the result's

    reach = 0

    @property
    def widest(self) -> int:
        """The entries in a row, at the input or the output."""
        return self.derivative.widest

    def pull(self, message: Tensor, rows: Rows) -> Tensor:
        """The vector-Jacobian product of the function on the rows at hand."""
        derivative = self.derivative if rows.whole else self._of_rows(message, rows)
        _, B, D, _ = message.shape
        arriving = self.end.back(message.permute(0, 3, 1, 2), derivative.shape)
        first = derivative.shape[0]
        arriving = arriving.reshape(first, derivative.shape[1:].numel(), B, D).permute(0, 2, 3, 1)
        pulled = derivative.pull(arriving, rows).permute(0, 3, 1, 2).reshape(*derivative.at.shape, B, D)
        return self.start.by_row(pulled, more=2).permute(0, 2, 3, 1)

    def push(self, values: Tensor) -> Tensor:
        """The function's own."""
        pushed = self.derivative.push(self.start.back(values, self.derivative.at.shape))
        return self.end.by_row(pushed.reshape(self.derivative.shape))

    def to(self, cast: Cast) -> RowFunction:
        """The same function, cast."""
        return replace(self, derivative=self.derivative.to(cast))

    def _of_rows(self, message: Tensor, rows: Rows) -> Differential:
        """The derivative for the rows at hand."""

        def taken(each: Any) -> Any:
            if not isinstance(each, _ByRow):
                return each
            some = rows.take(each.rows, message).reshape(len(message), each.rows.shape[1])
            return self.start.back(some, each.shape)

        at, args, kwargs = mapped(self._told_by_row, taken)
        shape = self.end.resized(self.derivative.shape, len(message))
        return replace(self.derivative, args=args, kwargs=kwargs, at=at, shape=shape)

    @cached_property
    def _told_by_row(self) -> tuple[Any, ...]:
        """The argument's value, and the other arguments, with those told row by row that have one for each."""
        at, number = self.derivative.at, self.start.number

        def told(each: Any) -> Any:
            alike = isinstance(each, Tensor) and self.by_row and each.shape[number:][:1] == at.shape[number:][:1]
            return _ByRow(self.start.by_row(each), each.shape) if alike else each

        value = _ByRow(self.start.by_row(at), at.shape)
        return value, mapped(self.derivative.args, told), mapped(self.derivative.kwargs, told)


@dataclass(frozen=True, eq=False)
class _ByRow:
    """A tensor, row by row."""

    rows: Tensor  # (K, N)
    shape: torch.Size


def leaves(nested: Any) -> list[Any]:
    """The leaves of nested arguments."""
    if isinstance(nested, dict):
        return leaves(list(nested.values()))
    if isinstance(nested, (list, tuple)):
        return [leaf for item in nested for leaf in leaves(item)]
    return [nested]


def _as_gradient(message: Tensor, like: Tensor, B: int, D: int) -> Tensor:
    """(K, B, D, N) -> (B·D, *shape), or just the shape where there is one query and lane."""
    K, _, lanes, N = message.shape
    message = torch.nn.functional.pad(message, (0, 0, 0, D - lanes)).expand(K, B, D, N)
    batched = message.permute(1, 2, 0, 3).reshape(B * D, *like.shape)
    return batched if B * D > 1 else batched[0]


def _as_message(gradient: Tensor, like: Tensor, B: int, D: int) -> Tensor:
    """(B·D, *shape) -> (K, B, D, N)."""
    K = like.shape[0] if like.dim() else 1
    return gradient.reshape(B, D, K, like.shape[1:].numel()).permute(2, 0, 1, 3)
