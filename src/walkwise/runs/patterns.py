"""The patterns in the graphs of a run: groups, subgraphs that look alike, and typed SMARTS."""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
from walkwise.runs.batches import is_typed
from walkwise.runs.folder import Run, rows_of
from walkwise.runs.kinds import as_molecule, node_kinds

#: A pattern that somebody typed stands after this, in place of a question's name.
SMARTS = "smarts"

#: The questions that find patterns, and the column that names them.
_COLUMN = {"groups": "group", "subgraph": "pattern"}

#: This many of the subgraphs that a run found are offered.
_MOST_OFFERED = 40


@final
class RunPatterns:
    """Where patterns are in the graphs of a run, and their relevance there.

    Args:
        run: the run.
        table: its rows, a graph or an explained node each.
        graphs: the graphs that it is of, for molecules that it has no SMILES of.
    """

    def __init__(self, run: Run, table: pd.DataFrame, graphs: Sequence[Any]) -> None:
        self._run, self._table, self._data = run, table, graphs
        self._graphs, self._smiles = table.graph.to_numpy(), table.smiles.to_numpy()
        self._molecules: dict[int, bytes] = {}
        self._keys = findings.keys_of(table)
        self.relevance_of = functools.lru_cache(maxsize=32)(self._relevance_of)

    @functools.cached_property
    def molecular(self) -> bool:
        """Whether SMARTS patterns can be looked for: nodes have a relevance, and the first graph is a molecule."""
        per_node = "nodes" in self._run.questions and "index" not in self._keys
        if not per_node or find_spec("rdkit") is None:
            return False
        whole = np.flatnonzero(self._table.error.isna())
        return len(whole) > 0 and self._molecule(int(whole[0])) is not None

    @functools.cached_property
    def offered(self) -> list[tuple[str, str, int]]:
        """What the run found: the question, the pattern and in how many graphs; of subgraphs the most relevant ones."""
        offered = []
        for question in self._run.questions:
            column = _COLUMN.get(question.partition(":")[0])
            if column is None:
                continue
            found = rows_of(self._run, question, [column, "relevance"]).groupby(column).relevance.agg(["sum", "size"])
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

    def _relevance_of(self, pattern: tuple[str, str]) -> Floats:
        """The relevance of a pattern in every graph that has it, not a number in the others.  # (rows,)"""
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
        column = _COLUMN.get(question.partition(":")[0])
        if column is None or question not in self._run.questions:
            raise InputError(
                f"The run has no patterns of {question}.",
                argument="pattern",
                expected="a pattern that the run found",
                got=question,
            )
        found = rows_of(self._run, question, [*self._keys, column, "nodes", "relevance"])
        return found.rename(columns={column: "called"})

    @functools.cached_property
    def _node_relevance(self) -> tuple[Floats, Ints]:
        """The relevance of all nodes, graph after graph, and where every graph's begin."""
        if "nodes" not in self._run.questions:
            raise InputError(
                "The run did not ask for the relevance of nodes, which SMARTS patterns need.",
                argument="pattern",
                expected="left out for a run that did not ask nodes",
                got=", ".join(self._run.questions),
                remedy="Run it with --ask nodes, too.",
            )
        nodes = rows_of(self._run, "nodes", ["graph", "relevance"])
        starts = np.searchsorted(nodes.graph.to_numpy(), np.arange(int(self._graphs.max()) + 2))
        return nodes.relevance.to_numpy(), starts

    def _relevance_of_smarts(self, pattern: str) -> Floats:
        query_of("pattern", pattern)
        relevance, starts = self._node_relevance
        values: Floats = np.full(len(self._table), np.nan)
        for at in shown(range(len(self._table)), progress=False):
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
        if pd.notna(self._table.error.iat[at]):
            return None
        smiles, graph = self._smiles[at], int(self._graphs[at])
        if isinstance(smiles, str):
            molecule = chem.MolFromSmiles(smiles)
            if molecule is not None and molecule.GetNumAtoms() == self._table.num_nodes.iat[at]:
                return molecule
        if graph >= len(self._data):
            return None
        data = self._data[graph]
        if is_typed([data]):
            return None
        return as_molecule(data, node_kinds(data, self._run.manifest.get("node_names", ())))
