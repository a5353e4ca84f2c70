"""Which scalar of the model's output is explained."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walkwise.errors import TargetError
from walkwise.tracing.private import unwatched

Target = int | Sequence[int] | Tensor | Callable[[Any], Tensor] | None


@dataclass(frozen=True, eq=False)
class Explained:
    """The explained scalar as ⟨tensor, direction⟩."""

    tensor: Tensor
    direction: Tensor
    outputs: Tensor  # (G,) what it is the sum of


def explained(output: Any, target: Target, index: int | None, num_graphs: int, num_nodes: int) -> Explained:
    """The explained scalar: the sum of one output per graph, or one row's output.

    Of every row its column ``target``, or the largest. A callable is called, and followed if a tape is on.
    """
    if callable(target):
        scalar = _by_callable(output, target, index)
        with unwatched():  # this detaching is not the model's
            return Explained(scalar, torch.ones_like(scalar), scalar.detach().reshape(1))
    with unwatched():
        return _selected(output, target, index, num_graphs, num_nodes)


def _selected(output: Any, target: Any, index: int | None, num_graphs: int, num_nodes: int) -> Explained:
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise TargetError(
            f"The model returned {_describe(output)}; expected one floating-point tensor. Select from it with "
            "target=lambda output: ... (a differentiable scalar)."
        )
    if output.dim() > 2:
        raise TargetError(
            f"The output has shape {tuple(output.shape)}; expected (rows, columns), (rows,) or a scalar. "
            "Select from it with target=lambda output: ..."
        )
    scores = _as_table(output.detach(), num_graphs, num_nodes)
    rows = _rows(scores, index, num_graphs)
    columns = _columns(scores, target, rows)
    places = [row * scores.shape[1] + column for row, column in zip(rows, columns, strict=True)]
    flat = scores.reshape(-1)
    direction = torch.zeros_like(flat)
    if len(places) == 1:  # by far the most common: no need for a tensor of places
        direction.narrow(0, places[0], 1).fill_(1)
        return Explained(output, direction.view(output.shape), flat.narrow(0, places[0], 1).clone())
    chosen = torch.tensor(places, device=scores.device)
    return Explained(output, direction.index_fill_(0, chosen, 1).view(output.shape), flat[chosen])


def _by_callable(output: Any, target: Callable[[Any], Any], index: int | None) -> Tensor:
    if index is not None:
        raise TargetError("index does not go with a callable target: select the row inside the callable.")
    scalar = target(output)
    if not isinstance(scalar, Tensor) or scalar.numel() != 1 or not scalar.is_floating_point():
        raise TargetError(
            f"The callable target returned {_describe(scalar)}; expected a floating-point tensor with one "
            "element that depends differentiably on the output."
        )
    return scalar


def _as_table(output: Tensor, num_graphs: int, num_nodes: int) -> Tensor:
    """The output as (rows, columns)."""
    if output.dim() == 2:
        return output
    if output.dim() == 0:
        return output.reshape(1, 1)
    per_row = output.shape[0] in (num_graphs, num_nodes)
    return output.unsqueeze(1) if per_row else output.unsqueeze(0)


def _rows(scores: Tensor, index: int | None, num_graphs: int) -> list[int]:
    """The rows whose outputs are explained."""
    count = scores.shape[0]
    if index is not None:
        row = _integer(index, "index")
        if not 0 <= row < count:
            raise TargetError(f"index={row} is out of range: the output has {count} rows, 0 to {count - 1}.")
        return [row]
    if count != num_graphs:
        raise TargetError(
            f"The output has {count} rows but the input has {num_graphs} graph(s). For a node-level model pass "
            "index=<the row to explain>; for several graphs pass batch=<the graph of each node>."
        )
    return list(range(count))


def _columns(scores: Tensor, target: Any, rows: list[int]) -> list[int]:
    """The column of every explained row."""
    count = scores.shape[1]
    if target is None:
        best: list[int] = scores[rows].argmax(dim=1).tolist()
        return best
    if isinstance(target, Tensor):
        target = target.tolist()
    given = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target] * len(rows)
    if len(given) != len(rows):
        raise TargetError(f"target names {len(given)} columns for {len(rows)} explained row(s).")
    columns = [_integer(t, "target") for t in given]
    wrong = [c for c in columns if not 0 <= c < count]
    if wrong:
        raise TargetError(f"target={wrong[0]} is out of range: the output has {count} column(s), 0 to {count - 1}.")
    return columns


def _integer(value: Any, name: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TargetError(f"{name} must be an integer, got {value!r} ({type(value).__name__}).") from None


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and type {value.dtype}"
    return f"a {type(value).__name__}"
