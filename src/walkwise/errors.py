"""The errors and warnings that walkwise raises at its public boundary, and the check of counts that many share."""

from __future__ import annotations

import operator


class WalkwiseError(Exception):
    """Base class of every error that walkwise raises on purpose."""


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
    """A data set is neither under the data root nor could it be downloaded."""


class MissingExtraError(WalkwiseError, ImportError):
    """A function needs a package that is not installed."""


class CoverageWarning(UserWarning):
    """A part of the model was explained by its plain gradient because no rule covers it."""


class SamplingWarning(UserWarning):
    """An exact answer would take too long; the one that comes back is estimated, with a standard error."""


class SeveralGraphsWarning(UserWarning):
    """A chain of several graphs was asked a question about one graph, and they were taken for one."""


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
        raise InputError(f"{what} is a whole number, at least {least}; got {given!r}.")
    return count
