"""Select the scalar of the model's output to explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from walkwise.core.chain import ExplainedNumber
from walkwise.core.node_types import NodeTypes
from walkwise.core.sending import sent
from walkwise.errors import Described, TargetError, as_whole, noted
from walkwise.tracing.private import unwatched

Target = int | str | Sequence[int | str] | Tensor | Callable[[Any], Tensor] | None

#: A row of the output, or several; of a heterogeneous graph, (type, number).
Index = int | Sequence[int] | tuple[str, int] | None

#: The classes of a binary model with one logit, and the logit's sign in each.
CLASSES = {"positive": 1, "negative": -1}

#: An output with one column, explained as target=0, is perhaps the logit of a binary model.
COLUMN_0 = (
    "the output has one column, and target=0 is that column itself; for a binary model with one logit, "
    'target="negative" explains the negative class and target="positive" (or 1) the positive one'
)


class OtherNodeError(TargetError):
    """The row that was taken from the model's output is that of another node."""


@dataclass(frozen=True, eq=False)
class ExplainedScalar:
    """The explained scalar as ⟨tensor, direction⟩."""

    tensor: Tensor
    direction: Tensor
    outputs: Tensor  # (G,) what it is the sum of
    notes: tuple[str, ...] = ()
    name: ExplainedNumber | None = None  # which number it is; None where it is the sum of several
    taken: tuple[int, int] | None = None  # a row, and the node that it is taken for


def explained(
    output: Any,
    target: Target,
    index: Index,
    num_graphs: int,
    num_nodes: int,
    against: Target = None,
    types: NodeTypes | None = None,
) -> ExplainedScalar:
    """Return the explained scalar: the sum of one output per graph, or one row's output.

    From every row it takes the column ``target``, or the largest. An integer is a column: 0 is the first, also for a
    regression with one column, whose sign is never flipped. For an output with one column, "positive" (or 1) is that
    column and "negative" the same with its sign flipped: the two classes of a binary model with one logit. A callable
    is called, and followed if a tape is active. With ``against``, a column minus another is explained.
    """
    if callable(target):
        if against is not None:
            raise TargetError(
                "against does not go with a callable target: subtract inside the callable.",
                argument="against",
                expected="left out where target is callable",
                got=against,
            )
        scalar = _by_callable(output, target, index)
        with unwatched():  # this detaching is not the model's
            return ExplainedScalar(
                scalar, torch.ones_like(scalar), scalar.detach().reshape(1), (), ExplainedNumber(None)
            )
    target, against = _plain(target), _plain(against)
    found, row = _of_type(output, index, types)
    with unwatched():
        selected = _selected(found, target, against, row, num_graphs, num_nodes)
    if types is None or found is not output or row is index:
        return selected
    return replace(selected, taken=(row, types.number(index)))


def _of_type(output: Any, index: Any, types: NodeTypes | None) -> tuple[Any, Any]:
    """The output of a node type, and the row in it; if not a dictionary, it has rows of all types, or of one."""
    name, row = index if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], str) else (None, index)
    row = row if name is None else _integer(row, "index")
    if isinstance(output, dict):
        kinds = ", ".join(map(repr, output))
        if name not in output:
            raise TargetError(
                f"The model returned a dict ({kinds}). If these are node types, say which row to explain with "
                f"index=(type, i); otherwise select with target=lambda output: ... Got index={index!r}.",
                argument="index",
                expected="(type, i)",
                got=index,
            )
        return output[name], row
    if name is None or not isinstance(output, Tensor) or not output.dim():
        return output, row
    if types is None:
        raise TargetError(argument="index", expected="a row of the output, of a graph without types", got=index)
    types.number((name, row))  # which refuses what is not there
    return output, (types.first_of(name, len(output)) or 0) + row


def _selected(output: Any, target: Any, against: Any, index: Index, num_graphs: int, num_nodes: int) -> ExplainedScalar:
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise TargetError(
            f"The model's output must be one floating-point tensor, got {_describe(output)}.",
            argument="output",
            expected="one floating-point tensor",
            got=Described(_describe(output)),
            remedy="Select from it with target=lambda output: ... (a differentiable scalar).",
        )
    if output.dim() > 2:
        raise TargetError(
            f"The model's output must be of shape (rows, columns), (rows,) or a scalar, got {tuple(output.shape)}.",
            argument="output",
            expected="of shape (rows, columns), (rows,) or a scalar",
            got=tuple(output.shape),
            remedy="Select from it with target=lambda output: ...",
        )
    scores = _as_table(output.detach(), index, num_graphs, num_nodes)
    rows = _rows(scores, index, num_graphs)
    chosen = _columns(scores, target, rows)
    notes = (COLUMN_0,) if _says_zero(target) and scores.shape[1] == 1 else ()
    places = [row * scores.shape[1] + column for row, (column, _) in zip(rows, chosen, strict=True)]
    flat = scores.reshape(-1)
    direction = torch.zeros_like(flat)
    if against is not None and scores.shape[1] > 1:
        others = [column for column, _ in _columns(scores, against, rows, "against")]
        for (column, _), other in zip(chosen, others, strict=True):
            check_contrast(column, other, scores.shape[1])
        less = [row * scores.shape[1] + other for row, other in zip(rows, others, strict=True)]
        direction[places], direction[less] = 1.0, -1.0
        name = ExplainedNumber(chosen[0][0], others[0]) if len(places) == 1 else None
        return ExplainedScalar(output, direction.view(output.shape), flat[places] - flat[less], notes, name)
    if len(places) == 1:  # by far the most common: no need for a tensor of places
        (column, sign), place = chosen[0], places[0]
        direction.narrow(0, place, 1).fill_(sign)
        name = ExplainedNumber(column if sign > 0 else "negative")
        return ExplainedScalar(output, direction.view(output.shape), flat.narrow(0, place, 1) * sign, notes, name)
    at = sent(torch.tensor(places), scores.device)
    signs = sent(torch.tensor([sign for _, sign in chosen]), scores.device, flat.dtype)
    return ExplainedScalar(output, direction.index_put_((at,), signs).view(output.shape), flat[at] * signs, notes)


def _by_callable(output: Any, target: Callable[[Any], Any], index: object) -> Tensor:
    if index is not None:
        raise TargetError(
            "index does not go with a callable target: select the row inside the callable.",
            argument="index",
            expected="left out where target is callable",
            got=index,
        )
    try:
        scalar = target(output)
    except Exception as error:
        noted(error, f"Raised by the callable target, which got {_describe(output)}, the model's output.")
        raise
    if not isinstance(scalar, Tensor) or scalar.numel() != 1 or not scalar.is_floating_point():
        expected = "a floating-point tensor with one element that depends differentiably on the output"
        raise TargetError(
            f"The callable target must return {expected}, got {_describe(scalar)}.",
            argument="target",
            expected=f"a function that returns {expected}",
            got=Described(_describe(scalar)),
        )
    return scalar


def _as_table(output: Tensor, index: object, num_graphs: int, num_nodes: int) -> Tensor:
    """The output as (rows, columns). With an index, a flat output has one score per row: per node, or per link."""
    if output.dim() == 2:
        return output
    if output.dim() == 0:
        return output.reshape(1, 1)
    if index is None and output.shape[0] == num_nodes != num_graphs:
        raise TargetError(
            f"The output has shape {tuple(output.shape)}, and the graph has as many nodes: this may be one score per "
            "node, or the classes of the graph.",
            remedy="For a node, pass index=<its number>; for a class, target=lambda output: output[<the class>].",
        )
    per_row = index is not None or output.shape[0] == num_graphs
    return output.unsqueeze(1) if per_row else output.unsqueeze(0)


def _plain(target: Any) -> Any:
    """A target as Python numbers, if it is a tensor or an array."""
    return target.tolist() if hasattr(target, "tolist") else target


def _rows(scores: Tensor, index: Index, num_graphs: int) -> list[int]:
    """The rows whose outputs are explained."""
    count = scores.shape[0]
    if isinstance(index, list):
        return index
    if index is not None:
        row = _integer(index, "index")
        if not 0 <= row < count:
            rows = f"{count} rows, 0 to {count - 1}" if count > 1 else "1 row"
            raise TargetError(
                f"index={row} is out of range: the output has {rows}.",
                argument="index",
                expected=f"a row of the output, {f'0 to {count - 1}' if count > 1 else '0 alone'}",
                got=row,
                remedy="If it is one output for the whole graph, leave index out." if count == 1 else None,
            )
        return [row]
    if count != num_graphs:
        raise TargetError(
            f"The output has {count} rows but the input has {num_graphs} graph(s).",
            argument="index",
            expected=f"a row of the output, 0 to {count - 1}",
            remedy="For a node-level model pass index=<the row to explain>; for several graphs pass batch=<the graph "
            "of each node>.",
        )
    return list(range(count))


def _columns(scores: Tensor, target: Any, rows: list[int], name: str = "target") -> list[tuple[int, int]]:
    """The column of every explained row, and its sign; ``name`` is the argument that names the columns."""
    if target is None:
        return [(int(best), 1) for best in scores[rows].argmax(dim=1).tolist()]
    if not isinstance(target, Sequence) or isinstance(target, str):
        return [column_of(target, scores.shape[1], name)] * len(rows)
    given = list(target)
    if len(given) != len(rows):
        raise TargetError(
            f"{name} names {len(given)} columns for {len(rows)} explained row(s).",
            argument=name,
            expected=f"one column, or one for each of {len(rows)} explained row(s)",
            got=given,
        )
    plain = all(type(one) is int for one in given)
    known = {one: column_of(one, scores.shape[1], name) for one in dict.fromkeys(given)} if plain else {}
    return [known[one] for one in given] if plain else [column_of(one, scores.shape[1], name) for one in given]


def column_of(target: Any, count: int, name: str = "target") -> tuple[int, int]:
    """The column that a target names of this many, and its sign; ``name`` is the argument's, for errors.

    >>> column_of(2, 3), column_of("positive", 1), column_of(1, 1), column_of("negative", 1)
    ((2, 1), (0, 1), (0, 1), (0, -1))
    """
    if isinstance(target, str) and target in CLASSES:
        if count == 1:
            return 0, CLASSES[target]
        raise TargetError(
            f"{name}={target!r} is for models with one logit; the output has {count} columns.",
            argument=name,
            expected=f"a column of the output, 0 to {count - 1}",
            got=target,
            remedy=f"Give the column of the class, 0 to {count - 1}.",
        )
    if isinstance(target, str):
        names = ' or, for a binary model with one logit, "positive" or "negative"' if count == 1 else ""
        raise TargetError(
            argument=name,
            expected=f"a column of the output, 0 to {count - 1}{names}",
            got=target,
            remedy="To give classes by name: ww.explain(model, data, target=..., class_names=[...]).",
        )
    column = _integer(target, name)
    if column == 1 == count:  # the positive class of two
        return 0, 1
    if not 0 <= column < count:
        words = ' The classes of a binary model with one logit are "positive" and "negative".' if count == 1 else ""
        words = " Columns are counted from 0, not from the end." if column < 0 else words
        raise TargetError(
            f"{name}={column} is out of range: the output has {count} column(s), 0 to {count - 1}.{words}",
            argument=name,
            expected=f"a column of the output, {f'0 to {count - 1}' if count > 1 else '0 alone'}",
            got=column,
        )
    return column, 1


def check_contrast(column: int, against: int, count: int) -> None:
    """Refuse a contrast of a column with itself."""
    if column == against:
        raise TargetError(
            f"against={against} is the explained column itself.",
            argument="against",
            expected=f"another column than {column}, of 0 to {count - 1}",
            got=against,
            remedy="Name another column.",
        )


def _says_zero(target: Any) -> bool:
    """Whether a target is the number 0, or a list with one."""
    if target is None or isinstance(target, str):
        return False
    if isinstance(target, Sequence):
        return any(_says_zero(item) for item in target)
    return bool(target == 0)


def _integer(value: Any, name: str) -> int:
    try:
        return as_whole(value)
    except TypeError:
        raise TargetError(
            f"{name} must be an integer, got {value!r} ({type(value).__name__}).",
            argument=name,
            expected="an integer",
            got=value,
        ) from None


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and type {value.dtype}"
    return f"a {type(value).__name__}"
