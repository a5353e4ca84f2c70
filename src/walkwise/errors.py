"""The errors and warnings that walkwise raises at its public boundary."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from typing import Any

__all__ = [  # noqa: RUF022  (in the order of the page: the base of all first)
    "WalkwiseError",
    "TraceError",
    "UnsupportedLayerError",
    "TargetError",
    "InputError",
    "TooManyWalksError",
    "MissingDataError",
    "MissingExtraError",
    "AbandonedError",
    "CoverageWarning",
    "LongSearchWarning",
    "SamplingWarning",
    "SeveralGraphsWarning",
]

#: The last advice about a missing data set.
OTHER_ROOT = (
    "name another folder of data sets: root= in Python, --data on the command line, or the environment variable "
    "WALKWISE_ROOT."
)

#: Messages show text of fewer characters as it is.
_SHORT = 40

#: What is expected of an argument that should not be given.
LEFT_OUT = "left out"


class Described(str):
    """A description of what came, in our own words: messages show it without quotes.

    >>> print(InputError(argument="x", expected="a tensor", got=Described("a list of 3")))
    x must be a tensor, got a list of 3.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def described(given: object) -> Described:
    """Describe an argument: type and shape of a tensor or an array, a number itself, the class of anything else.

    >>> import torch
    >>> described(torch.zeros(2, 3)), described([1, 2]), described("graph"), described(None), described(dict)
    (torch.float32 of shape (2, 3), list, 'graph', None, the class dict itself)
    """
    if given is None or isinstance(given, int | float) or (isinstance(given, str) and len(given) < _SHORT):
        return Described(repr(given))
    if isinstance(given, type):
        return Described(f"the class {given.__name__} itself")
    shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
    if shape is None or dtype is None:
        return Described(type(given).__name__)
    return Described(f"{dtype} of shape {tuple(shape)}")


class WalkwiseError(Exception):
    """Base class of every error that walkwise raises on purpose.

    `str(error)` is the whole message. Programs need not parse it: the details are in the fields, which are None if an
    error does not set them.

    Args:
        problem: what is wrong, as a sentence; by default it is built from ``argument``, ``expected`` and ``got``.
        argument: the name of the wrong argument.
        expected: what was expected, as the end of the sentence "the argument must be …".
        got: what came instead, as the message shows it; a `Described` if our own words stand for it.
        remedy: what to do next, as a sentence.

    >>> error = InputError(argument="alpha", expected="between 0 and 1", got=2, remedy="Choose 1 for every walk.")
    >>> print(error)
    alpha must be between 0 and 1, got 2. Choose 1 for every walk.
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
            problem = f"{argument} must be {expected}, got {got!r}."
        super().__init__(problem if remedy is None else f"{problem} {remedy}")
        self.problem, self.argument, self.expected, self.got, self.remedy = problem, argument, expected, got, remedy

    def advised(self, more: str) -> WalkwiseError:
        """The same error with one more sentence of advice.

        >>> print(InputError("a.pt is empty.", remedy="Save it again.").advised("Or leave it out."))
        a.pt is empty. Save it again. Or leave it out.
        """
        remedy = more if self.remedy is None else f"{self.remedy} {more}"
        return type(self)(self.problem, argument=self.argument, expected=self.expected, got=self.got, remedy=remedy)


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
    """A long computation was abandoned because its answer is no longer wanted."""


class CoverageWarning(UserWarning):
    """A part of the model was explained by its plain gradient because no rule covers it."""


class LongSearchWarning(UserWarning):
    """A search may take minutes until it succeeds or gives up."""


class SamplingWarning(UserWarning):
    """An exact answer would take too long, so an estimate with a standard error is returned."""


class SeveralGraphsWarning(UserWarning):
    """A chain of several graphs was asked a question about one graph, and they were treated as a single graph."""


def as_whole(given: Any) -> int:
    """Return a whole number; raise a TypeError for anything else, also for a truth value: a mask is not a node id.

    >>> as_whole(3)
    3
    >>> as_whole(True)
    Traceback (most recent call last):
        ...
    TypeError: a truth value is not a number
    """
    if isinstance(given, bool) or str(getattr(given, "dtype", "")).endswith("bool"):
        raise TypeError("a truth value is not a number")
    return operator.index(given)


def as_count(given: object, argument: str, meaning: str = "", *, least: int = 1) -> int:
    """Return a whole number, or raise an InputError that says what the argument means.

    >>> as_count(3, "k", "the number of walks")
    3
    >>> as_count(1.5, "k", "the number of walks")
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: k, the number of walks, must be a whole number of at least 1, got 1.5.
    """
    try:
        count = as_whole(given)
    except TypeError:
        count = least - 1
    if count < least:
        named, expected = f"{argument}, {meaning}," if meaning else argument, f"a whole number of at least {least}"
        raise InputError(f"{named} must be {expected}, got {given!r}.", argument=argument, expected=expected, got=given)
    return count


def as_limit(given: Any, argument: str) -> int:
    """Return a limit as a whole number; 1e6 counts as one, and infinity means no limit.

    >>> as_limit(1e6, "max_walks"), as_limit(float("inf"), "max_walks") > 10**18
    (1000000, True)
    """
    if isinstance(given, float) and given > 0 and (given.is_integer() or given == float("inf")):
        given = sys.maxsize if given > sys.maxsize else int(given)
    return min(as_count(given, argument, least=0), sys.maxsize - 1)


def unknown(what: str, name: object, known: Iterable[str], *, argument: str = "name") -> InputError:
    """The error for an unknown name.

    >>> print(unknown("rule", "gama", ["gamma", "zero"], argument="rule"))
    Unknown rule 'gama': expected one of gamma, zero.
    """
    listed = f"one of {', '.join(known)}"
    return InputError(f"Unknown {what} {name!r}: expected {listed}.", argument=argument, expected=listed, got=name)


def taken(what: str, name: str) -> InputError:
    """The error for a name that is already taken.

    >>> print(taken("data set", "mutag"))
    There is a data set named 'mutag' already. Choose another name.
    """
    problem = f"There is a {what} named {name!r} already."
    return InputError(problem, argument="name", expected="a new name", got=name, remedy="Choose another name.")


def noted(error: BaseException, where: str) -> BaseException:
    """The same exception, with a line in its traceback that says where it was raised (from Python 3.11 on).

    It is for exceptions of the user's own code, which are passed on as they are.

    >>> str(noted(KeyError("mine"), "In the callable target."))
    "'mine'"
    """
    if sys.version_info >= (3, 11):
        error.add_note(where)
    return error
