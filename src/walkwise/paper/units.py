"""Units of work that are kept on disk, so that an interrupted run resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkwise.errors import InputError
from walkwise.files import write_whole

#: One line of a table: names and plain values.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Unit:
    """A piece of work whose rows depend on its settings alone."""

    name: str  # such as "figure6/mutag/activation"
    settings: Mapping[str, Any]  # whatever the rows depend on, as JSON
    compute: Callable[[], Sequence[Row]]

    @property
    def key(self) -> str:
        """The name and a digest of the settings: other settings are another unit.

        >>> Unit("a", {"alpha": 0}, list).key == Unit("a", {"alpha": 1}, list).key
        False
        """
        text = json.dumps([self.name, self.settings], sort_keys=True)
        return f"{self.name.replace('/', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Done:
    """What came of a unit."""

    rows: tuple[Row, ...]
    seconds: float  # of processor time
    resumed: bool  # read from disk rather than computed


@dataclass(frozen=True)
class Store:
    """A folder with the rows of finished units, one file each."""

    folder: Path

    def path(self, unit: Unit) -> Path:
        """Where a unit's rows are kept."""
        return self.folder / f"{unit.key}.json"

    def run(self, unit: Unit) -> Done:
        """The rows of a unit: from disk if it was finished before, else computed and kept."""
        kept = self.read(unit)
        if kept is not None:
            return kept
        begun = time.process_time()
        rows = tuple(unit.compute())
        done = Done(rows, time.process_time() - begun, resumed=False)
        self._write(unit, done)
        return done

    def read(self, unit: Unit) -> Done | None:
        """The rows of a finished unit, or None."""
        try:
            found = json.loads(self.path(unit).read_text())
            rows, seconds = tuple(dict(row) for row in found["rows"]), float(found["seconds"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{self.path(unit)} cannot be read ({error}).",
                expected="the rows of a finished unit",
                got=str(self.path(unit)),
                remedy="Remove it to have it computed again.",
            ) from None
        return Done(rows, seconds, resumed=True)

    def _write(self, unit: Unit, done: Done) -> None:
        """All or nothing: a file is there only when it is whole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(unit)
        table = {"unit": unit.name, "settings": unit.settings, "seconds": done.seconds, "rows": done.rows}
        write_whole(path, json.dumps(table, indent=1) + "\n")
