"""Errors for missing data sets."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from walkwise.errors import OTHER_ROOT, MissingDataError


@contextmanager
def fetching(name: str, address: str, place: Path) -> Iterator[None]:
    """Turn a failed download into an error that says where to get the data set and where to put it.

    Args:
        name: the set.
        address: where it is published.
        place: the file or folder it is looked for in.
    """
    try:
        yield
    except (OSError, asyncio.TimeoutError, zipfile.BadZipFile) as error:
        raise missing_data(name, address, place, f"downloading it failed ({type(error).__name__}: {error})") from error


def missing_data(name: str, address: str, place: Path, reason: str) -> MissingDataError:
    """The error to raise."""
    return MissingDataError(
        f"{name} is not in {place}, and {reason}.",
        argument="root",
        expected=f"a folder of data sets with {name}",
        got=str(place),
        remedy=f"Get it from {address} and put it there, or {OTHER_ROOT}",
    )
