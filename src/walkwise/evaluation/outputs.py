"""Select the number of a model's output: a row, a column, or the result of a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from torch import Tensor

from walkwise.errors import LEFT_OUT, Described, InputError, TargetError, as_whole, described, noted
from walkwise.tracing.given.target import CLASSES


def table(output: Any, rows: int) -> Tensor:
    """The output as (rows, columns)."""
    if not isinstance(output, Tensor) or output.dim() > 2:
        given = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"Expected an output of shape (rows, columns), got {given}.",
            argument="output",
            expected="of shape (rows, columns)",
            got=given,
            remedy="Give a callable target.",
        )
    if output.dim() == 2:
        return output
    return output.reshape(1 if output.numel() % rows else rows, -1)


def explained_row(rows: Tensor, index: Any) -> Tensor:
    """The row of the output that is explained.  # (C,)"""
    expected = f"a row of the output, {_range(rows)}"
    if index is None and len(rows) != 1:
        raise InputError(
            f"The output has {len(rows)} rows.",
            argument="index",
            expected=expected,
            remedy="For a node-level model give index=<the row>.",
        )
    if index is not None and len(rows) == 1 and _whole(index, "index", expected):
        raise InputError(
            "The model has one output for the whole graph, not one per node.",
            argument="index",
            expected=LEFT_OUT,
            got=index,
            remedy="Leave index out.",
        )
    if index is not None and not 0 <= _whole(index, "index", expected) < len(rows):
        raise InputError(
            f"index={index} is out of range: the output has {len(rows)} rows, 0 to {len(rows) - 1}.",
            argument="index",
            expected=expected,
            got=index,
        )
    return rows[index or 0]


def named_column(target: Any, row: Tensor, name: str, class_names: Sequence[str] | None) -> tuple[int, bool]:
    """The column that a target names, and whether its sign is flipped."""
    if target is None:
        return int(row.argmax()), False
    classes = list(CLASSES) if len(row) == 1 else []
    expected = f"a column of the output, {_range(row)}"
    if len(class_names or ()) == (2 if len(row) == 1 else len(row)):
        classes = [*map(str, class_names or ()), *classes]
    if classes:
        expected += f", or one of {', '.join(map(repr, classes))}"
    if isinstance(target, str) and target in CLASSES and len(row) == 1:
        return 0, target == "negative"
    if isinstance(target, str) and target in classes:
        place = classes.index(target)
        return (place, False) if len(row) > 1 else (0, place == 0)
    if isinstance(target, str):
        remedy = None if class_names else "To give classes by name, pass class_names=[...]."
        raise InputError(argument=name, expected=expected, got=target, remedy=remedy)
    column = _whole(target, name, expected)
    if column == 1 == len(row):  # the positive class of two
        return 0, False
    if not 0 <= column < len(row):
        raise InputError(
            f"{name}={column} is out of range: the output has {len(row)} column(s), 0 to {len(row) - 1}.",
            argument=name,
            expected=expected,
            got=column,
        )
    return column, False


def as_names(given: Any) -> list[str] | None:
    """Check the names of the output's columns; a dictionary from columns is put into their order.

    >>> as_names({1: "toxic", 0: "safe"})
    ['safe', 'toxic']
    """
    if given is None:
        return None
    if isinstance(given, Mapping) and set(given) == set(range(len(given))):
        given = [given[column] for column in range(len(given))]
    if (
        isinstance(given, (str, bytes, Mapping, Set))
        or not hasattr(given, "__iter__")
        or getattr(given, "ndim", 1) != 1
    ):
        expected = "a list of names, one for each column of the output"
        raise InputError(argument="class_names", expected=expected, got=described(given))
    return [str(name) for name in given]


def check_names(names: Sequence[str] | None, row: Tensor) -> None:
    """Refuse names that are not one for each column; a single column may be the logit of two classes.

    >>> import torch
    >>> check_names(["low", "mid", "high"], torch.zeros(2))
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: class_names must be 2 names, one for each column of the output, got 3: low, mid, high.
    """
    count = len(row)
    if not names or len(names) == count or (count == 1 and len(names) == 2):
        return
    expected = f"{count} names, one for each column of the output"
    if count == 1:
        expected = "one name, for the one column of the output, or two, if it is the logit of two classes"
    got = Described(f"{len(names)}: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}")
    raise InputError(argument="class_names", expected=expected, got=got)


def made_by(target: Callable[[Any], Tensor], output: Any) -> Tensor:
    """Apply a callable target to the output; its own exceptions are passed on, with a note."""
    try:
        made = target(output)
    except Exception as error:
        noted(error, "Raised by the callable target, which got the model's output.")
        raise
    if not isinstance(made, Tensor | int | float) or (isinstance(made, Tensor) and made.numel() != 1):
        got = f"a tensor of shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise TargetError(
            f"A callable target must turn the model's output into one number; it returned {got}.",
            argument="target",
            expected="a function that turns the model's output into one number",
            got=Described(got),
            remedy="Select one entry, as in lambda output: output[0, 1].",
        )
    return made


def check_on(on: str) -> None:
    """Refuse anything but the two names of f."""
    if on not in ("logit", "probability"):
        raise InputError(argument="on", expected='"logit" or "probability"', got=on)


def _whole(given: Any, name: str, expected: str) -> int:
    try:
        return as_whole(given)
    except TypeError:
        raise InputError(argument=name, expected=expected, got=given) from None


def _range(rows: Tensor) -> str:
    return f"0 to {len(rows) - 1}" if len(rows) > 1 else "0 alone"
