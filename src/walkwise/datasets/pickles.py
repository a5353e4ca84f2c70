"""Read arrays from published pickle files, without running any code in them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from walkwise.errors import InputError


def read_arrays(path: Path) -> Any:
    """What a pickle of NumPy arrays holds: one array of numbers, or a tuple of them; anything else in it is refused.

    Unpickling can run any code. This reader looks nothing up: the few names that a pickle of arrays contains stand for
    small recorders in this file, and the arrays are made afterwards from the numbers that these recorded.

    Args:
        path: the file.
    """
    try:
        with path.open("rb") as file:
            found = _ArrayUnpickler(file).load()
        return tuple(map(_made, found)) if isinstance(found, tuple | list) else _made(found)
    except Exception as error:  # a damaged pickle fails in more ways than can be listed
        raise InputError(
            f"Expected {path} to be a pickle of NumPy arrays and nothing else: {error}.",
            expected="a pickle of NumPy arrays",
            got=str(error),
            remedy="Fetch the file again from where it is published.",
        ) from error


def _made(found: Any) -> np.ndarray:
    if not isinstance(found, _Array):
        raise pickle.UnpicklingError(f"it holds a {type(found).__name__}")
    kind = np.dtype(found.dtype.order + found.dtype.code if isinstance(found.dtype, _Dtype) else "")
    if kind.kind not in "biuf" or not isinstance(found.raw, bytes | bytearray):
        raise pickle.UnpicklingError("it holds an array of something other than numbers")
    flat = np.frombuffer(bytes(found.raw), dtype=kind)
    return flat.reshape(found.shape, order=found.order).astype(kind.newbyteorder("="))


@dataclass
class _Dtype:
    """Records what a pickle says of a kind of numbers."""

    code: str
    order: str = "="

    def __setstate__(self, state: Any) -> None:
        self.order = "=" if state[1] == "|" else str(state[1])


@dataclass
class _Array:
    """Records what a pickle says of an array."""

    raw: Any = None
    dtype: Any = None
    shape: tuple[int, ...] = ()
    order: Any = "C"

    def __setstate__(self, state: Any) -> None:
        *_, self.shape, self.dtype, fortran, self.raw = state
        self.order = "F" if fortran else "C"


def _dtype(code: Any, *_flags: Any) -> _Dtype:
    return _Dtype(str(code))


def _reconstruct(*_given: Any) -> _Array:
    return _Array()


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    return _Array(raw, dtype, shape, order)


def _encode(text: Any, _encoding: Any) -> bytes:
    """Old pickles write bytes as text in Latin-1."""
    return str(text).encode("latin-1")


#: What a pickle of NumPy arrays names, and what stands for it here. NumPy 2 moved `core` to `_core`.
_STANDS_FOR: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): _reconstruct,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


@dataclass(frozen=True)
class _Name:
    """What a pickle gets for a name: it can be called, and not be changed."""

    stands_for: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        return self.stands_for(*given)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it tries to change a name")


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STANDS_FOR:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Name(_STANDS_FOR[module, name])
