"""Read whole numbers, JSON, arrays and tensors from files; refuse anything else with a reason, and run nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from walkwise.errors import InputError

#: How a formula begins, in narrow or in wide signs.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

#: What a spreadsheet may skip before it looks for a formula.
_BLANK = " \t\r\n\v\f\0\N{NO-BREAK SPACE}\N{ZERO WIDTH NO-BREAK SPACE}"

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")

#: How the name of a file begins that is being written.
UNFINISHED = ".unfinished-"

_AGAIN = "Fetch the file again from where it is published."


def as_path(given: object, argument: str) -> Path:
    """The path that a text or a path stands for.

    Args:
        given: what the caller gave.
        argument: what it is called there.

    >>> as_path(3, "root")
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: root must be a path, as text or as a Path, got 3.
    """
    if not isinstance(given, str | Path):
        raise InputError(argument=argument, expected="a path, as text or as a Path", got=given)
    return Path(given)


def read_integers(path: Path, *, columns: int | None = None) -> Tensor:
    r"""The lines of a text file of whole numbers, with commas between those of a line: (rows, columns).

    Args:
        path: the file.
        columns: how many numbers every line has; None for as many as the first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "edges.txt"
    ...     _ = path.write_text("1, 2\n2, 1\n")
    ...     read_integers(path, columns=2)
    tensor([[1, 2],
            [2, 1]])
    """
    wanted = "whole numbers" if columns is None else f"{columns} whole number{'s' if columns > 1 else ''} per line"
    try:
        with path.open(encoding="ascii") as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # an empty file; numbers that are not whole
            rows = np.loadtxt(file, dtype=np.int64, delimiter=",", comments=None, ndmin=2)
    except (ValueError, OverflowError, UserWarning, DeprecationWarning, OSError) as error:
        raise _unreadable(path, wanted, _why(error)) from error
    if columns is not None and rows.shape[1] != columns:
        raise _unreadable(path, wanted, f"it has {rows.shape[1]}")
    return torch.from_numpy(rows)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, but for empty ones.

    Args:
        path: the file.
    """
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (ValueError, OSError) as error:
        raise _unreadable(path, "lines of text", _why(error)) from error


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Args:
        path: the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise _unreadable(path, "JSON", _why(error)) from error


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays of these names in an .npz file; an array of Python objects, which could run code, is refused.

    Args:
        path: the file.
        names: of the arrays wanted.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            missing = [name for name in names if name not in arrays]
            found = {} if missing else {name: np.asarray(arrays[name]) for name in names}
    except Exception as error:  # zip, zlib and NumPy each have their own way to say that a file is damaged
        raise _unreadable(path, f"arrays of numbers named {', '.join(names)}", _why(error)) from error
    if missing:
        raise _unreadable(path, f"arrays of numbers named {', '.join(names)}", f"it has no {missing[0]}")
    odd = next((name for name, array in found.items() if array.dtype.kind not in "biuf"), None)
    if odd is not None:
        raise _unreadable(path, "arrays of numbers", f"{odd} holds {found[odd].dtype}")
    return found


def read_tensors(path: Path, what: str = "a file of weights") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file of weights by name, and its metadata; nothing in it is run.

    Args:
        path: a safetensors file, or a state_dict saved by torch (``.pt`` or ``.pth``).
        what: what the file should be, for errors.
    """
    if not path.is_file():
        raise InputError(
            f"Expected {what}, got {path}, which does not exist.",
            argument="path",
            expected=what,
            got=str(path),
        )
    if path.suffix in (".pt", ".pth"):
        return _read_torch(path), {}
    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except Exception as error:  # a header may promise what torch has no type for
        raise InputError(
            f"Expected a safetensors file, got {path}: {error}.",
            argument="path",
            expected="a safetensors file",
            got=str(path),
            remedy="Write one with save_weights.",
        ) from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    wanted = "a state_dict, only tensors by name"
    remedy = "Save model.state_dict(), or use save_weights."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats; what is wrong with the file is said below
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file fails in more ways than can be listed
        raise InputError(
            f"Expected {path} to hold {wanted}: it holds something else, which was not run.",
            argument="path",
            expected=f"a file of {wanted}",
            got=str(path),
            remedy=remedy,
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(
            f"Expected {path} to hold {wanted}.",
            argument="path",
            expected=f"a file of {wanted}",
            got=type(state).__name__,
            remedy=remedy,
        )
    return state


def harmless(cell: Any) -> Any:
    """A cell of a table that no spreadsheet takes for a formula: text that looks like one gets an apostrophe in front.

    Numbers stay numbers, also where they are written as text.

    Args:
        cell: what is to be written.

    >>> harmless("=1+2"), harmless("@x"), harmless("ring"), harmless(-1.5), harmless("-1.5")
    ("'=1+2", "'@x", 'ring', -1.5, '-1.5')
    """
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    if "\r" in cell:  # it ends a row to some spreadsheets, and Python writes it without quotes
        cell = cell.replace("\r", " ")
    odd = cell.startswith(("\t", "\r", "\n")) or cell.lstrip(_BLANK).startswith(_FORMULA)
    return f"'{cell}" if odd else cell


def _why(error: BaseException) -> str:
    if "pickle" in str(error):  # NumPy's own words say how to open it all the same
        return "it holds Python objects, which could run code and are not opened"
    first = str(error).strip().split("\n")[0].rstrip(".")
    return first[:200] or type(error).__name__


def _unreadable(path: Path, expected: str, why: str) -> InputError:
    return InputError(f"Expected {path} to hold {expected}: {why}.", expected=expected, got=why, remedy=_AGAIN)


def make_folder(path: Path, argument: str) -> None:
    """Makes a folder, and those above it, unless it is there.

    Args:
        path: the folder.
        argument: what it is called where it was given.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path} is not a folder, and none can be created there: {error.strerror or error}.",
            argument=argument,
            expected="a writable folder",
            got=str(path),
            remedy="Name another folder.",
        ) from error


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes a file that is there whole or not at all, whenever the program or the power fails.

    Where it cannot be written, the OSError comes through, and a file that was there before stays as it was. A link
    stays one, a file keeps its mode, and into what is not a file (a pipe, a device) is written as it is.

    Args:
        path: the file, which is replaced if it is there.
        content: what goes into it; text as UTF-8.
    """
    data = content.encode() if isinstance(content, str) else content
    place = path.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    temporary = place.parent / f"{UNFINISHED}{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            temporary.chmod(place.stat().st_mode & 0o777)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # not every system opens folders
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors and texts as a safetensors file, which is replaced if it is there.

    Args:
        path: the file.
        tensors: names and tensors; each is copied, since such a file holds every tensor once.
        metadata: names and texts.
    """
    held = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    try:
        write_whole(as_path(path, "path"), save(held, metadata=dict(metadata)))
    except (SafetensorError, OSError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"Cannot write {path}: {why}.",
            argument="path",
            expected="a writable file",
            got=str(path),
            remedy="Create its folder first." if isinstance(error, FileNotFoundError) else "Name another file.",
        ) from error
