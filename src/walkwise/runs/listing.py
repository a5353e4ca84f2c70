"""The graphs of a run as a table to look through: sorted, filtered and cut into pages, whatever its length."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, final

import numpy as np
import pandas as pd

from walkwise.errors import InputError
from walkwise.notation import query_of
from walkwise.questions.neighbours import Floats, Ints
from walkwise.questions.progress import shown
from walkwise.runs import findings
from walkwise.runs.folder import Run, rows_of
from walkwise.runs.kinds import as_molecule, node_kinds

#: What rows can be sorted by.
COLUMNS = ("graph", "name", "nodes", "label", "prediction", "output", "error", "relevance", "pattern")

#: Which rows can be asked for.
KINDS = ("all", "wrong", "failed")

#: A pattern that somebody typed stands after this, in place of a question's name.
SMARTS = "smarts"

#: This many of the subgraphs that a run found are offered.
_MOST_OFFERED = 40


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
                remedy=f"Go on with it: {run.manifest.get('command') or 'runs.run'}.",
            )
        self.run, self._data = run, graphs
        self._table = rows_of(run, "graphs")
        self._graphs, self._smiles = self._table.graph.to_numpy(), self._table.smiles.to_numpy()
        self._molecules: dict[int, bytes] = {}
        self._keys = findings.keys_of(self._table)
        self._order = functools.lru_cache(maxsize=32)(self._ordered)
        self._relevance = functools.lru_cache(maxsize=32)(self._relevance_of)

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

    @functools.cached_property
    def molecular(self) -> bool:
        """Whether SMARTS patterns can be looked for: nodes have a relevance, and the first graph is a molecule."""
        per_node = "nodes" in self.run.questions and not self.indexed
        if not per_node or find_spec("rdkit") is None:
            return False
        whole = np.flatnonzero(~self.failed)
        return len(whole) > 0 and self._molecule(int(whole[0])) is not None

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

    # -- patterns -----------------------------------------------------------------------------------------

    @functools.cached_property
    def patterns(self) -> list[tuple[str, str, int]]:
        """What the run found: the question, the pattern and in how many graphs; of subgraphs the most relevant ones."""
        offered = []
        for question in self.run.questions:
            column = {"groups": "group", "subgraph": "pattern"}.get(question.partition(":")[0])
            if column is None:
                continue
            found = rows_of(self.run, question, [column, "relevance"]).groupby(column).relevance.agg(["sum", "size"])
            best = found.sort_values("sum", ascending=False).head(_MOST_OFFERED)
            offered += [(question, str(name), int(row["size"])) for name, row in best.iterrows()]
        return offered

    def nodes_of(self, at: int, pattern: tuple[str, str]) -> list[int]:
        """The nodes of a pattern in a row's graph, ascending; none where it has none."""
        question, name = pattern
        if question == SMARTS:
            return self._matched(at, name)
        found, row = self._found(question), self._table.iloc[at]
        here = found[(found.called == name) & (found[self._keys] == row[self._keys].to_numpy()).all(axis=1)]
        return sorted({int(node) for nodes in here.nodes for node in nodes})

    def relevance_of(self, pattern: tuple[str, str]) -> Floats:
        """The relevance of a pattern in every graph that has it, not a number in the others.  # (rows,)

        Of groups and subgraphs it is that of the walks inside; of a SMARTS pattern, the sum over the atoms that match.

        Args:
            pattern: (question, name), or ("smarts", pattern).
        """
        return self._relevance(tuple(pattern))

    def _relevance_of(self, pattern: tuple[str, str]) -> Floats:
        question, name = pattern
        if question == SMARTS:
            return self._relevance_of_smarts(name)
        found = self._found(question)
        some = found[found.called == name].drop_duplicates(self._keys)
        values = self._table[self._keys].merge(some[[*self._keys, "relevance"]], on=self._keys, how="left").relevance
        relevance: Floats = values.to_numpy(dtype=float)
        return relevance

    @functools.lru_cache(maxsize=8)  # noqa: B019  a listing lives as long as its page
    def _found(self, question: str) -> pd.DataFrame:
        """The rows of a question about patterns; the pattern is ``called``."""
        column = {"groups": "group", "subgraph": "pattern"}.get(question.partition(":")[0])
        if column is None or question not in self.run.questions:
            raise InputError(
                f"The run has no patterns of {question}.",
                argument="pattern",
                expected="a pattern that the run found",
                got=question,
            )
        found = rows_of(self.run, question, [*self._keys, column, "nodes", "relevance"])
        return found.rename(columns={column: "called"})

    @functools.cached_property
    def _node_relevance(self) -> tuple[Floats, Ints]:
        """The relevance of all nodes, graph after graph, and where every graph's begin."""
        if "nodes" not in self.run.questions:
            raise InputError(
                "The run did not ask for the relevance of nodes, which SMARTS patterns need.",
                argument="pattern",
                expected="left out for a run that did not ask nodes",
                got=", ".join(self.run.questions),
                remedy="Run it with --ask nodes besides.",
            )
        nodes = rows_of(self.run, "nodes", ["graph", "relevance"])
        starts = np.searchsorted(nodes.graph.to_numpy(), np.arange(int(self._graphs.max()) + 2))
        return nodes.relevance.to_numpy(), starts

    def _relevance_of_smarts(self, pattern: str) -> Floats:
        query_of("pattern", pattern)
        relevance, starts = self._node_relevance
        values: Floats = np.full(len(self), np.nan)
        for at in shown(range(len(self)), progress=False):
            if atoms := self._matched(at, pattern):
                values[at] = relevance[starts[self._graphs[at]] :][atoms].sum()
        return values

    def _matched(self, at: int, pattern: str) -> list[int]:
        """The atoms that match a pattern, ascending."""
        molecule = self._molecule(at)
        if molecule is None:
            return []
        return sorted({atom for match in molecule.GetSubstructMatches(query_of("pattern", pattern)) for atom in match})

    def _molecule(self, at: int) -> Any:
        """The molecule of a row, or None; it is made once, and kept in RDKit's compact form."""
        chem = import_module("rdkit.Chem")
        if at not in self._molecules:
            made = self._made_molecule(chem, at)
            self._molecules[at] = b"" if made is None else made.ToBinary()
        kept = self._molecules[at]
        return chem.Mol(kept) if kept else None

    def _made_molecule(self, chem: Any, at: int) -> Any:
        """The molecule of a row: by its SMILES, whose atoms are the nodes, or else by its graph."""
        if self.failed[at]:
            return None
        smiles, graph = self._smiles[at], int(self._graphs[at])
        if isinstance(smiles, str):
            molecule = chem.MolFromSmiles(smiles)
            if molecule is not None and molecule.GetNumAtoms() == self._table.num_nodes.iat[at]:
                return molecule
        if graph >= len(self._data):
            return None
        data = self._data[graph]
        return as_molecule(data, node_kinds(data, self.run.manifest.get("node_names", ())))

    # -- rows ---------------------------------------------------------------------------------------------

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
