"""The errors and warnings that walkwise raises at its public boundary, and the check of counts that many share."""

from __future__ import annotations

import operator
import sys

#: The last advice about a data set that is missing.
OTHER_ROOT = (
    "name another folder of data sets: root= in Python, --data on the command line, or the environment variable "
    "WALKWISE_ROOT."
)

#: What is expected of an argument that does not belong there.
LEFT_OUT = "left out"


class WalkwiseError(Exception):
    """Base class of every error that walkwise raises on purpose.

    `str(error)` is the whole message. Programs need not read it: what they may want to know is in the fields, each of
    them None where an error does not say.

    Args:
        problem: what is wrong, as a sentence; by default it is worded from the argument, what was expected and what
            was got.
        argument: the name of the argument that does not fit.
        expected: what was expected of it, as the end of the sentence "the argument is …".
        got: what came in its place, as it is shown in the message.
        remedy: what to do next, as a sentence.

    >>> error = InputError(argument="alpha", expected="between 0 and 1", got=2, remedy="Choose 1 for every walk.")
    >>> print(error)
    alpha is between 0 and 1; got 2. Choose 1 for every walk.
    >>> error.argument, error.expected, error.got, error.remedy
    ('alpha', 'between 0 and 1', 2, 'Choose 1 for every walk.')
    >>> print(InputError("There is no such file.", got="a.pt"), InputError("a.pt is empty.", remedy="Save it again."))
    There is no such file. a.pt is empty. Save it again.
    """

    def __init__(
        self,
        problem: str | None = None,
        *,
        argument: str | None = None,
        expected: str | None = None,
        got: object = None,
        remedy: str | None = None,
    ) -> None:
        if problem is None:
            problem = f"{argument} is {expected}; got {got!r}."
        super().__init__(problem if remedy is None else f"{problem} {remedy}")
        self.problem, self.argument, self.expected, self.got, self.remedy = problem, argument, expected, got, remedy


class TraceError(WalkwiseError):
    """The model cannot be written as a relevance chain."""


class UnsupportedLayerError(TraceError):
    """A message-passing layer has no closed form and falling back was not allowed."""


class TargetError(TraceError, ValueError):
    """The scalar to explain could not be selected from the model's output."""


class InputError(WalkwiseError, ValueError):
    """An argument does not fit: shapes, node ids, devices, dtypes, non-finite numbers."""


class TooManyWalksError(WalkwiseError):
    """Listing every walk would take more room than allowed."""


class MissingDataError(WalkwiseError, FileNotFoundError):
    """A data set is not under the data root and could not be downloaded."""


class MissingExtraError(WalkwiseError, ImportError):
    """A function needs a package that is not installed."""


class AbandonedError(WalkwiseError):
    """A long computation was given up because its answer is no longer wanted."""


class CoverageWarning(UserWarning):
    """A part of the model was explained by its plain gradient because no rule covers it."""


class LongSearchWarning(UserWarning):
    """A search may take minutes before it finds what was asked for, or gives up."""


class SamplingWarning(UserWarning):
    """An exact answer would take too long; the one that comes back is estimated, with a standard error."""


class SeveralGraphsWarning(UserWarning):
    """A chain of several graphs was asked a question about one graph, and they were treated as a single graph."""


def as_count(given: object, what: str, *, least: int = 1) -> int:
    """The whole number given, or an InputError that begins with what it stands for.

    >>> as_count(3, "k, the number of walks,")
    3
    >>> as_count(1.5, "k, the number of walks,")
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: k, the number of walks, is a whole number, at least 1; got 1.5.
    """
    try:
        count = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        count = least - 1
    if count < least:
        raise InputError(argument=what, expected=f"a whole number, at least {least}", got=given)
    return count


def noted(error: BaseException, where: str) -> BaseException:
    """The same exception, with a line in its traceback that says where it was raised (from Python 3.11 on).

    It is for exceptions of the user's own code, which come through as they are.

    >>> str(noted(KeyError("mine"), "In the callable target."))
    "'mine'"
    """
    if sys.version_info >= (3, 11):
        error.add_note(where)
    return error
