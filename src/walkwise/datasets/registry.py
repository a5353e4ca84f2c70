"""The data sets by name, and the folder they are found in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from walkwise.datasets.graphset import GraphSet
from walkwise.errors import taken, unknown
from walkwise.files import as_path

#: Reads a data set from a data root.
Loader = Callable[[Path], GraphSet]

_LOADERS: dict[str, Loader] = {}


def register(name: str) -> Callable[[Loader], Loader]:
    """A decorator that makes a loader known under a name; a name is given once.

    >>> @register("empty")
    ... def empty(root):
    ...     raise NotImplementedError
    >>> "empty" in names()
    True
    >>> _ = _LOADERS.pop("empty")
    """

    def add(loader: Loader) -> Loader:
        if name in _LOADERS:
            raise taken("data set", name)
        _LOADERS[name] = loader
        return loader

    return add


def names() -> list[str]:
    """The names of all data sets."""
    return list(_LOADERS)


def data_root(root: str | Path | None = None) -> Path:
    """The folder of data sets: the one given, or that of the environment variable WALKWISE_ROOT, or ~/.cache/walkwise.

    Args:
        root: a folder, or None.
    """
    if root is not None and root != "":
        return as_path(root, "root").expanduser()
    return Path(os.environ.get("WALKWISE_ROOT") or Path.home() / ".cache" / "walkwise").expanduser()


def load(name: str, *, root: str | Path | None = None) -> GraphSet:
    """The data set of that name, with the paper's split.

    What is not under the root is downloaded where that can be done; where it cannot, the error says where to get the
    set and where to put it. Nothing in the files is run.

    Args:
        name: one of `names()`.
        root: the folder of data sets; see `data_root`.

    >>> load("ba2motif-generated")  # needs no files
    GraphSet(ba2motif-generated: 1000 graphs, 720 train, 80 val, 200 test)
    """
    if name not in names():
        raise unknown("data set", name, names())
    return _LOADERS[name](data_root(root))
