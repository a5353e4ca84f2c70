"""The folder of a run: a manifest, and shards that are complete or absent."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkwise.errors import InputError, WalkwiseError
from walkwise.files import UNFINISHED, as_path, read_json, write_whole

if TYPE_CHECKING:
    import pandas as pd

    from walkwise.runs.work import Shard

_MANIFEST = "manifest.json"
#: The fields of a manifest, and their types.
_FIELDS: Mapping[str, Any] = {
    "model": str, "data": str, "graphs": int, "class_names": list, "node_names": list, "questions": list,
    "target": int | str, "rule": str, "batch": int, "versions": dict,
}  # fmt: skip
#: Why nothing can be written where a folder was named: a file is there, say.
_MISPLACED = (errno.EEXIST, errno.ENOTDIR, errno.ENOENT)
_NAME = re.compile(r"(\d{12})-(\d{12})\.parquet")


class UnfinishedWriteError(WalkwiseError, OSError):
    """A shard could not be written, for example because the disk is full. Earlier shards are complete."""


@dataclass(frozen=True)
class Run:
    """A run in its folder: what it is, and its progress."""

    folder: Path
    manifest: Mapping[str, Any]
    done: int
    failed: int

    @property
    def total(self) -> int:
        """The number of graphs, or of explained nodes."""
        return int(self.manifest["graphs"])

    @property
    def complete(self) -> bool:
        """Whether every graph has its row."""
        return self.done == self.total

    @property
    def questions(self) -> list[str]:
        """The questions of the run."""
        return list(self.manifest["questions"])

    def __str__(self) -> str:
        failures = f", {self.failed} of them failed" if self.failed else ""
        return f"{self.folder}: {self.done:,} of {self.total:,} graphs{failures}"


def open_run(folder: str | Path) -> Run:
    """Open the run in a folder, finished or not.

    Args:
        folder: of the run.
    """
    path = as_path(folder, "folder")
    if not (path / _MANIFEST).is_file():
        raise InputError(
            f"There is no run in {path}: it has no {_MANIFEST}.",
            argument="folder",
            expected="the folder of a run",
            got=str(path),
            remedy="Make one with: walkwise run MODEL GRAPHS --ask nodes --out DIR.",
        )
    found = _checked_manifest(path, "folder")
    done = finished(path)
    return Run(path, found, sum(last - first for first, last in done), _failures(path, done))


def _checked_manifest(path: Path, argument: str) -> Mapping[str, Any]:
    """The manifest in a folder, if it belongs to a run; otherwise the argument that named the folder is refused."""
    found = read_json(path / _MANIFEST)
    if not isinstance(found, dict) or found.get("format") != "walkwise run":
        raise InputError(
            f"{path / _MANIFEST} is not that of a run.",
            argument=argument,
            expected="the folder of a run",
            got=str(path),
            remedy="Name the folder that walkwise run wrote.",
        )
    from walkwise.runs.answers import SCHEMA

    if found.get("schema") != SCHEMA:
        raise InputError(
            f"{path} holds tables of schema {found.get('schema')}; this version of Walkwise reads schema {SCHEMA}.",
            argument=argument,
            expected=f"a run of schema {SCHEMA}",
            got=found.get("schema"),
            remedy="Read it with the version that made it, or run it again.",
        )
    wrong = next((name for name, kind in _FIELDS.items() if not isinstance(found.get(name), kind)), None)
    if wrong is not None or not all(isinstance(name, str) for name in found["questions"]):
        raise InputError(
            f"{path / _MANIFEST} is damaged: {wrong or 'questions'} is {found.get(wrong or 'questions')!r}.",
            argument=argument,
            expected="the folder of a run",
            got=str(path),
            remedy="Run it again, in another folder.",
        )
    return found


def read(folder: str | Path | Run) -> dict[str, pd.DataFrame]:
    """Read the tables of a run: {question: DataFrame}, and "graphs" with a row for every graph; needs pandas.

    Every table has the column ``graph`` (and ``index``, where single nodes were explained) and is sorted by it.

    Args:
        folder: of the run, finished or not.
    """
    run = folder if isinstance(folder, Run) else open_run(folder)
    return {name: rows_of(run, name) for name in ("graphs", *run.questions)}


def rows_of(run: Run, question: str, columns: list[str] | None = None) -> pd.DataFrame:
    """One of the tables of a run.

    Args:
        run: the run.
        question: what was asked, or "graphs".
        columns: those that are wanted; by default all.
    """
    import pandas as pd
    import pyarrow as pa

    place = run.folder / question.replace(":", "-")
    paths = [place / shard_name(first, last) for first, last in finished(run.folder)]
    tables = [_table(path, columns) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if table.schema != tables[0].schema:
            raise InputError(
                f"{path} has other columns than {paths[0].name}.",
                expected=f"a shard with the columns {', '.join(tables[0].column_names)}",
                got=", ".join(table.column_names),
                remedy=f"Remove the damaged one of {path.name} and {paths[0].name} from every folder of the run, and "
                "run the same again: it is written again.",
            )
    return pa.concat_tables(tables).to_pandas() if tables else pd.DataFrame({"graph": []})


def _table(path: Path, columns: list[str] | None) -> Any:
    """A shard, or some columns of it."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(path, page_checksum_verification=True).read(columns=columns)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {' '.join(str(error).split()).rstrip('.')}.",
            expected="a shard of the run",
            got=str(path),
            remedy=f"Remove {path.name} from every folder of the run, and run the same again: it is written again.",
        ) from error
    missing = [name for name in columns or () if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]}.",
            expected=f"a shard with the column {missing[0]}",
            got=", ".join(table.column_names),
            remedy=f"Remove {path.name} from every folder of the run, and run the same again: it is written again.",
        )
    return table


def shard_name(first: int, last: int) -> str:
    """The file of the graphs ``first`` to before ``last``.

    >>> shard_name(0, 64)
    '000000000000-000000000064.parquet'
    """
    return f"{first:012d}-{last:012d}.parquet"


def finished(folder: Path) -> list[tuple[int, int]]:
    """The finished ranges of graphs, ascending. The table of graphs is written last, so it says what is complete."""
    found = [_NAME.fullmatch(path.name) for path in (folder / "graphs").glob("*.parquet")]
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def manifest_in(folder: Path) -> Mapping[str, Any] | None:
    """The manifest of the run in a folder; None where there is none."""
    return _checked_manifest(folder, "out") if (folder / _MANIFEST).is_file() else None


def prepare(folder: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Prepare the folder, remove the remains of interrupted writes, and return the manifest there, or this one."""
    for path in [*folder.glob(f"{UNFINISHED}*"), *folder.glob(f"*/{UNFINISHED}*")]:
        with _writing(path):
            path.unlink(missing_ok=True)
    there = manifest_in(folder)
    if there is not None:
        return there
    if any(path.name != ".lock" for path in folder.iterdir()):
        raise InputError(
            f"{folder} is not empty and holds no run.",
            argument="out",
            expected="an empty folder, or that of a run",
            got=str(folder),
            remedy="Name another folder.",
        )
    _write(folder / _MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False).encode())
    return manifest


def write(folder: Path, shard: Shard) -> None:
    """Write the tables of a shard, that of graphs last; each appears under its name once it is complete."""
    name = shard_name(shard.first, shard.last)
    for table in sorted(shard.tables, key=lambda table: table == "graphs"):
        _write(folder / table / name, shard.tables[table])


def _write(path: Path, content: bytes) -> None:
    """Writes a file of the run, in a folder that may not be there yet."""
    with _writing(path):
        path.parent.mkdir(exist_ok=True)
        write_whole(path, content)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Explain what a full or read-only disk means for the run."""
    try:
        yield
    except OSError as error:
        if error.errno in _MISPLACED:
            raise InputError(
                f"{path} cannot be made: {error.strerror}.",
                argument="out",
                expected="a separate folder for the run",
                got=str(path),
                remedy="Name another folder.",
            ) from error
        raise UnfinishedWriteError(
            f"{path} could not be written: {error.strerror or error}. All existing shards are complete.",
            got=error.strerror,
            remedy="Free some space, or make the folder writable, and run the same again: it resumes where it stopped.",
        ) from error


def _failures(folder: Path, done: list[tuple[int, int]]) -> int:
    """How many rows of graphs have an error."""
    paths = [folder / "graphs" / shard_name(first, last) for first, last in done]
    columns = [_table(path, ["error"])["error"] for path in paths]
    return sum(len(column) - column.null_count for column in columns)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Create a run's folder if necessary, and lock it.

    Two processes could otherwise write the same rows in different shards. The lock ends with the process that holds it,
    however that ends. Returns the file that children of this process must close, so that they do not keep the lock.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        for _ in range(100):
            if _locks(handle):
                break
            time.sleep(0.1)
        else:
            raise InputError(
                f"Another process is working on {folder}.",
                argument="out",
                expected="the folder of a run that no other process is working on",
                got=str(folder),
                remedy="Wait for it, or name another folder.",
            )
        yield handle
    finally:
        os.close(handle)


def _locks(handle: int) -> bool:
    """Whether we hold the lock; on systems without such locks we always do."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
