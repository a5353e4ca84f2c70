"""The graphs of a run as a table to browse: sorted, filtered and paged, however long it is."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from walkwise.errors import InputError
from walkwise.questions.neighbours import Floats, Ints
from walkwise.runs import findings
from walkwise.runs.folder import Run, rows_of
from walkwise.runs.patterns import RunPatterns

#: What rows can be sorted by.
COLUMNS = ("graph", "name", "nodes", "label", "prediction", "output", "error", "relevance", "pattern")

#: Which rows can be asked for.
KINDS = ("all", "wrong", "failed")


@dataclass(frozen=True)
class Wanted:
    """Which rows, and in which order.

    Args:
        sort: one of :data:`COLUMNS`.
        falling: whether the largest come first.
        kind: one of :data:`KINDS`: all, those that the model gets wrong, or those that failed.
        text: words that a row has: in its name, its classes, its SMILES or its error.
        pattern: whose relevance is listed, as (question, name) or ("smarts", pattern).
    """

    sort: str = "graph"
    falling: bool = False
    kind: str = "all"
    text: str = ""
    pattern: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        for name, valid in (("sort", COLUMNS), ("kind", KINDS)):
            if getattr(self, name) not in valid:
                listed = f"one of {', '.join(valid)}"
                raise InputError(argument=name, expected=listed, got=getattr(self, name))


@dataclass(frozen=True)
class ListingRow:
    """What the table says of a graph, or of an explained node; None where there is nothing to say."""

    at: int  # its place in the run
    graph: int
    index: int | None
    name: str
    nodes: int | None
    label: str | None
    prediction: str | None
    target: int | None
    output: float | None
    error: float | None
    relevance: float | None
    pattern: float | None
    wrong: bool
    failure: str | None


@final
class Listing:
    """The table of a run's graphs, as far as the run had come when it was opened.

    ``error`` is by how much another class leads the label's, above zero where the model is wrong; of a regression, how
    far the output is from the label.

    Args:
        run: the run.
        graphs: the graphs that it is of, for patterns in molecules that it has no SMILES of.
    """

    def __init__(self, run: Run, graphs: Sequence[Any] = ()) -> None:
        if not run.done:
            raise InputError(
                f"{run.folder} has no graphs yet.",
                argument="run",
                expected="a run with graphs",
                got=str(run.folder),
                remedy=f"Resume it: {run.manifest.get('command') or 'runs.run'}.",
            )
        self.run = run
        self._table = rows_of(run, "graphs")
        self._patterns = RunPatterns(run, self._table, graphs)
        self._keys = findings.keys_of(self._table)
        self._order = functools.lru_cache(maxsize=32)(self._ordered)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def indexed(self) -> bool:
        """Whether its rows are explained nodes of one graph."""
        return "index" in self._keys

    @property
    def explained_nodes(self) -> Ints | None:
        """The explained nodes of one graph; None where the rows are graphs."""
        return self._table["index"].to_numpy() if self.indexed else None

    @property
    def molecular(self) -> bool:
        """Whether SMARTS patterns can be looked for: nodes have a relevance, and the first graph is a molecule."""
        return self._patterns.molecular

    @property
    def patterns(self) -> list[tuple[str, str, int]]:
        """What the run found: the question, the pattern and in how many graphs; of subgraphs the most relevant ones."""
        return self._patterns.offered

    def nodes_of(self, at: int, pattern: tuple[str, str]) -> list[int]:
        """The nodes of a pattern in a row's graph, ascending; none where it has none."""
        return self._patterns.nodes_of(at, pattern)

    def relevance_of(self, pattern: tuple[str, str]) -> Floats:
        """The relevance of a pattern in every graph that has it, not a number in the others.  # (rows,)

        Of groups and subgraphs it is that of the walks inside; of a SMARTS pattern, the sum over the atoms that match.

        Args:
            pattern: (question, name), or ("smarts", pattern).
        """
        return self._patterns.relevance_of(tuple(pattern))

    @functools.cached_property
    def _names(self) -> Sequence[str]:
        return tuple(self.run.manifest.get("class_names", ()))

    @functools.cached_property
    def classified(self) -> bool:
        """Whether labels are classes, as they are unless one of them cannot be."""
        labels = self._table.label.dropna().to_numpy()
        most = int(self._widths.max(initial=0))
        return bool(np.isin(labels, np.arange(max(2, most))).all())

    @functools.cached_property
    def _widths(self) -> Ints:
        widths: Ints = self._table.outputs.map(len, na_action="ignore").fillna(0).to_numpy(dtype=np.int64)
        return widths

    @functools.cached_property
    def error(self) -> Floats:
        """By how much another class leads the label's, or how far the output is from the label.  # (rows,)"""
        label = self._table.label.to_numpy(dtype=float)
        known = ~np.isnan(label) & (self._widths > 0)
        error: Floats = np.full(len(label), np.nan)
        for width in np.unique(self._widths[known]).tolist():
            at = np.flatnonzero(known & (self._widths == width))
            outputs = np.stack(self._table.outputs.to_numpy()[at]).astype(float)
            if not self.classified:
                error[at] = np.abs(outputs[:, 0] - label[at])
            elif width == 1:
                error[at] = np.where(label[at] > 0, -outputs[:, 0], outputs[:, 0])
            else:
                rows, column = np.arange(len(at)), label[at].astype(int)
                own = outputs[rows, column]
                outputs[rows, column] = -np.inf
                error[at] = outputs.max(axis=1) - own
        return error

    @functools.cached_property
    def wrong(self) -> Any:
        """Which rows the model gets wrong.  # (rows,)"""
        table = self._table
        labelled = table.label.notna() & table.prediction.notna()
        return (labelled & (table.label != table.prediction)).to_numpy() & self.classified

    @functools.cached_property
    def failed(self) -> Any:
        """Which rows have an error.  # (rows,)"""
        return self._table.error.notna().to_numpy()

    def order(self, wanted: Wanted) -> Ints:
        """The wanted rows' places in the table, in the wanted order; of equals the first comes first."""
        return self._order(wanted)

    def _ordered(self, wanted: Wanted) -> Ints:
        kept = {"all": np.ones(len(self), dtype=bool), "wrong": self.wrong, "failed": self.failed}[wanted.kind]
        for word in wanted.text.lower().split():
            kept = kept & self._words.str.contains(word, regex=False).to_numpy()
        places = np.flatnonzero(kept)
        ranks = [_ranks(key[places], falling=wanted.falling) for key in self._sorting(wanted)]
        order: Ints = places[np.lexsort(ranks[::-1])] if ranks else places
        return order

    def _sorting(self, wanted: Wanted) -> list[Any]:
        """The columns to sort by; nothing is not a number, and comes last."""
        table = self._table
        if wanted.sort == "graph":
            return [table[key].to_numpy() for key in self._keys]
        if wanted.sort == "name":
            return [table.name.fillna("").to_numpy(dtype=str)]
        if wanted.sort == "prediction":
            return [table.prediction.to_numpy(dtype=float), table.output.to_numpy(dtype=float)]
        if wanted.sort == "error":
            return [self.error]
        if wanted.sort == "pattern":
            return [self.relevance_of(wanted.pattern)] if wanted.pattern else []
        column = {"nodes": "num_nodes"}.get(wanted.sort, wanted.sort)
        return [table[column].to_numpy(dtype=float)]

    @functools.cached_property
    def _words(self) -> pd.Series:
        """What the words of a search are looked for in, row by row, in small letters."""
        table = self._table
        parts = [table.name, table.smiles, table.error, *(table[c].map(self._title) for c in ("prediction", "label"))]
        return functools.reduce(lambda a, b: a + " " + b, (part.fillna("").astype(str) for part in parts)).str.lower()

    def rows(self, wanted: Wanted, first: int = 0, count: int = 25) -> list[ListingRow]:
        """Some consecutive rows of those that are wanted.

        Args:
            wanted: which, and in which order.
            first: the first of them.
            count: how many.
        """
        pattern = None if wanted.pattern is None else self.relevance_of(wanted.pattern)
        return [self.row(int(at), pattern) for at in self.order(wanted)[max(0, first) : max(0, first) + count]]

    def row(self, at: int, pattern: Floats | None = None) -> ListingRow:
        """What stands at a place of the run.

        Args:
            at: the place.
            pattern: the relevance of a pattern in every row.
        """
        row = self._table.iloc[at]
        return ListingRow(
            at=at,
            graph=int(row.graph),
            index=int(row["index"]) if self.indexed else None,
            name=str(row["name"]),
            nodes=None if pd.isna(row.num_nodes) else int(row.num_nodes),
            label=self._label(row.label),
            prediction=self._title(row.prediction) if self.classified else None,
            target=None if pd.isna(row.target) else int(row.target),
            output=_number(row.output),
            error=_number(self.error[at]),
            relevance=_number(row.relevance),
            pattern=None if pattern is None else _number(pattern[at]),
            wrong=bool(self.wrong[at]),
            failure=str(row.error) if self.failed[at] else None,
        )

    def _title(self, column: Any) -> str | None:
        if pd.isna(column):
            return None
        return self._names[int(column)] if 0 <= column < len(self._names) else f"class {int(column)}"

    def _label(self, label: Any) -> str | None:
        return self._title(label) if self.classified else None if pd.isna(label) else f"{label:.4g}"


def _ranks(key: Any, *, falling: bool) -> Ints:
    """Where every value stands among the others; what is not a number stands last either way.

    >>> _ranks(np.array([0.5, np.nan, -1.0, 0.5]), falling=True).tolist()
    [-1, 5, 0, -1]
    """
    ranks = np.unique(key, return_inverse=True)[1]
    missing = np.isnan(key) if key.dtype.kind == "f" else np.zeros(len(key), dtype=bool)
    return np.where(missing, len(key) + 1, -ranks if falling else ranks)


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
