"""Arrays out of pickle files that others publish, without running what such a file may hold."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from walkwise.errors import InputError

#: What a pickle of NumPy arrays names; nothing else is looked up. NumPy 2 moved `core` to `_core`.
_ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_arrays(path: Path) -> Any:
    """What a pickle of NumPy arrays (and tuples and lists of them) holds; anything else in it is refused.

    Unpickling can run any code. This reader looks up what arrays are made of and nothing else.

    Args:
        path: the file.
    """
    with path.open("rb") as file:
        try:
            return _ArrayUnpickler(file).load()
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
            raise InputError(
                f"Expected {path} to be a pickle of NumPy arrays and nothing else: {error}. "
                "Fetch the file again from where it is published."
            ) from error
