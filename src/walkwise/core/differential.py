"""The linear map of any other function: its own derivative, pulled by a vector-Jacobian product."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from walkwise.core.cast import Cast
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Operator
from walkwise.core.rows import Rows
from walkwise.errors import TraceError


class Place(Enum):
    """Stands among a function's arguments where the one that moves goes."""

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

    reach = None

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
        """The function applied to node values, less what it gives of nothing (a number it fills in, say)."""
        result = self.applied(values.reshape(self.at.shape))
        result = result if self._constant is None else result - self._constant
        return result.reshape(result.shape[0] if result.dim() else 1, result.shape[1:].numel())

    def applied(self, value: Tensor) -> Tensor:
        """What the function makes of a value of its argument."""
        args, kwargs = mapped((self.args, self.kwargs), lambda item: value if item is MOVING else item)
        result = self.func(*args, **kwargs)
        made: Tensor = result[self.output] if isinstance(result, (tuple, list)) else result
        return made

    def to(self, cast: Cast) -> Differential:
        """The same function, its arguments cast."""
        return replace(self, args=cast.nested(self.args), kwargs=cast.nested(self.kwargs), at=cast(self.at))

    @cached_property
    def _constant(self) -> Tensor | None:
        """What the function gives where the argument is zero, if that is not zero."""
        given = self.applied(torch.zeros_like(self.at))
        return given if bool((given != 0).any()) else None

    @cached_property
    def _graph(self) -> tuple[Tensor, Tensor]:
        """The argument as a leaf, and what the function makes of it."""
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
                remedy="Write it with functions that have a derivative; trace a quantised model as it was before.",
            )
        return gradient

    def __getstate__(self) -> dict[str, Any]:
        """Copies are made without the graph, which is built again when it is needed."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_constant")}


def mapped(nested: Any, change: Callable[[Any], Any]) -> Any:
    """Nested arguments, each of them changed."""
    if type(nested) in (list, tuple):
        return type(nested)([mapped(item, change) for item in nested])
    if type(nested) is dict:
        return {key: mapped(item, change) for key, item in nested.items()}
    return change(nested)


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
