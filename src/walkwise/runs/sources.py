"""The sources of a run's graphs: a list, a table of SMILES, a folder of files."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch_geometric.data import Data, HeteroData

from walkwise.core.lazy import cached_property
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.datasets.graph_files import read_graphs
from walkwise.datasets.graphset import Graphs, GraphSet
from walkwise.datasets.molecules import from_smiles
from walkwise.errors import InputError
from walkwise.questions.neighbours import Ints
from walkwise.runs.batches import AnyGraph, is_typed
from walkwise.runs.fingerprints import hashed

#: Files of SMILES, and the columns that are read of them.
_TABLES = (".csv", ".tsv", ".parquet")
_LABELS, _NAMES = ("label", "y", "activity"), ("name", "id", "title")


@dataclass(frozen=True, eq=False)
class Items:
    """Some of the things that a run explains: graphs, or nodes with the graph around each."""

    graphs: list[AnyGraph]
    names: list[str]
    roots: list[int] | list[TypedNode] | None = None  # the explained node of each graph
    ids: list[Ints] | None = None  # what each graph's nodes are called
    types: NodeTypes | None = None  # of a heterogeneous graph that these are parts of


class Source(Protocol):
    """Graphs by number, as workers read them."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """What the output columns mean; empty where nobody says."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """What the columns of one-hot features mean; empty where nobody says."""

    @property
    def typed(self) -> bool:
        """Whether some graphs are heterogeneous."""

    def __len__(self) -> int: ...

    def keys(self, first: int, last: int) -> dict[str, Ints]:
        """The numbers of some items, and of nodes that are explained their ids."""

    def items(self, first: int, last: int) -> Items:
        """Some items."""

    def name(self, item: int) -> str:
        """What an item is called, known without reading it."""

    def fingerprint(self) -> str:
        """A hash of everything in it."""


@dataclass(frozen=True, eq=False)
class _Numbered:
    """What sources of whole graphs share: their keys."""

    def keys(self, first: int, last: int) -> dict[str, Ints]:
        """The numbers of some graphs."""
        return {"graph": np.arange(first, last)}


@dataclass(frozen=True, eq=False)
class Listed(_Numbered):
    """Graphs in memory, with names of their own, or numbered after what all of them are called."""

    graphs: Sequence[AnyGraph]
    called: str | Sequence[str] = "graph"
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.graphs)

    @cached_property
    def typed(self) -> bool:
        """Whether some graphs are heterogeneous."""
        return not isinstance(self.graphs, Graphs) and is_typed(self.graphs)

    def items(self, first: int, last: int) -> Items:
        """Some graphs."""
        return Items([self.graphs[g] for g in range(first, last)], [self.name(g) for g in range(first, last)])

    def name(self, item: int) -> str:
        """The graph's own name, or the set's name and the graph's number."""
        return f"{self.called} {item}" if isinstance(self.called, str) else self.called[item]

    def fingerprint(self) -> str:
        """A hash of all tensors."""
        if isinstance(self.graphs, Graphs):
            return hashed([vars(self.graphs)])
        return hashed(graph.to_dict() if isinstance(graph, Data | HeteroData) else {} for graph in self.graphs)


@dataclass(frozen=True, eq=False)
class SmilesTable(_Numbered):
    """Molecules as SMILES, a row each."""

    typed = False
    smiles: pa.ChunkedArray
    labels: pa.ChunkedArray | None
    called: pa.ChunkedArray | None
    featurise: Callable[[str], Data] = from_smiles
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.smiles)

    def items(self, first: int, last: int) -> Items:
        """Some molecules."""
        graphs: list[AnyGraph] = []
        for item in range(first, last):
            text = self.smiles[item].as_py()
            data = self.featurise(text)
            if "smiles" not in data:
                data.smiles = text
            if self.labels is not None and (label := self.labels[item].as_py()) is not None:
                data.y = torch.tensor([label])
            graphs.append(data)
        return Items(graphs, [self.name(item) for item in range(first, last)])

    def name(self, item: int) -> str:
        """The name in the table, or the SMILES."""
        return str((self.smiles if self.called is None else self.called)[item].as_py())

    def fingerprint(self) -> str:
        """A hash of the columns."""
        columns = [self.smiles, self.labels, self.called]
        return hashed({"column": column.to_pylist() if column is not None else None} for column in columns)


@dataclass(frozen=True, eq=False)
class GraphFiles(_Numbered):
    """A folder of files of PyG graphs, each with one or several; they are read when they are needed."""

    folder: Path
    files: tuple[str, ...]
    before: tuple[int, ...]  # how many graphs stand in the files before each, and in all
    hashes: str
    typed: bool
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()

    @staticmethod
    def of(folder: Path) -> GraphFiles:
        """The folder's files; a file that cannot be read stands for one graph, which will fail."""
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".pt", ".pth"))
        if not files:
            raise InputError(
                f"There are no files of graphs (.pt) in {folder}.",
                argument="graphs",
                expected="a folder of files saved by torch",
                got=str(folder),
            )
        before, typed, digest = [0], False, hashlib.blake2b(digest_size=16)
        for name in files:
            digest.update(f"{name}\0".encode() + hashlib.blake2b((folder / name).read_bytes()).digest())
            try:
                held = read_graphs(folder / name)
                count, typed = len(held), typed or is_typed(held)
            except InputError:
                count = 1
            before.append(before[-1] + count)
        return GraphFiles(folder, tuple(files), tuple(before), digest.hexdigest(), typed)

    def __len__(self) -> int:
        return self.before[-1]

    def items(self, first: int, last: int) -> Items:
        """Some graphs, each file of them read once."""
        graphs: list[AnyGraph] = []
        file = bisect.bisect_right(self.before, first) - 1
        while len(graphs) < last - first:
            begin = self.before[file]
            held = read_graphs(self.folder / self.files[file])
            graphs += held[max(0, first - begin) : last - begin]
            file += 1
        return Items(graphs, [self.name(item) for item in range(first, last)])

    def name(self, item: int) -> str:
        """The file, and the place in it where there are several."""
        file = bisect.bisect_right(self.before, item) - 1
        several = self.before[file + 1] - self.before[file] > 1
        return f"{self.files[file]} {item - self.before[file]}" if several else self.files[file]

    def fingerprint(self) -> str:
        """A hash of the files."""
        return self.hashes


@dataclass(frozen=True, eq=False)
class GraphsOf(Sequence[AnyGraph]):
    """The graphs of a source, read when they are asked for."""

    source: Source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[at] for at in range(*item.indices(len(self)))]
        at = range(len(self))[item]
        return self.source.items(at, at + 1).graphs[0]


def as_source(graphs: Any, *, featurise: Callable[[str], Data] | None = None) -> Source:
    """Graphs as people have them, as a run reads them.

    Args:
        graphs: a list of Data or HeteroData, a data set, a file of SMILES (.csv, .tsv, .parquet), a file of graphs
            (.pt), or a folder of such files.
        featurise: makes a graph of a SMILES string, by default with MUTAG's features.

    >>> len(as_source([Data(num_nodes=3), Data(num_nodes=2)]))
    2
    """
    if isinstance(graphs, str | Path):
        return _from_path(Path(graphs), featurise)
    if isinstance(graphs, GraphSet):
        return Listed(graphs.graphs, graphs.name, graphs.class_names, graphs.node_names or ())
    if hasattr(graphs, "fingerprint") and hasattr(graphs, "items"):
        return graphs  # type: ignore[no-any-return]
    held: Any = [graphs] if isinstance(graphs, Data | HeteroData) else graphs
    held = list(held) if isinstance(held, Iterable) and not hasattr(held, "__getitem__") else held
    if not hasattr(held, "__len__") or not len(held):
        raise InputError(
            argument="graphs",
            expected="a list of graphs, a data set, or a file or folder of graphs, and hold at least one",
            got=graphs,
        )
    return Listed(held)


def _from_path(path: Path, featurise: Callable[[str], Data] | None) -> Source:
    if path.is_dir():
        return GraphFiles.of(path)
    if not path.is_file():
        raise InputError(
            f"There is no file or folder {path}.",
            argument="graphs",
            expected="an existing file or folder",
            got=str(path),
        )
    if path.suffix in _TABLES:
        return _smiles_table(path, featurise or from_smiles)
    return Listed(read_graphs(path), path.name)


def _smiles_table(path: Path, featurise: Callable[[str], Data]) -> SmilesTable:
    """The columns of a table that are called smiles, label and name."""
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            table = parquet.read_table(path)
        else:
            from pyarrow import csv

            options = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
            table = csv.read_csv(path, parse_options=options)
        columns = [name.lower() for name in table.column_names]
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise InputError(
            f"{path} is not a table: {' '.join(str(error).split()).rstrip('.')}.",
            argument="graphs",
            expected="a table of SMILES",
            got=str(path),
            remedy="Save it again, as CSV in UTF-8 or as Parquet.",
        ) from error
    named = dict(zip(columns, table.columns, strict=True))
    if "smiles" not in named or not table.num_rows:
        raise InputError(
            f"{path} has no column smiles, or no rows; its columns are {', '.join(table.column_names)}.",
            argument="graphs",
            expected="a table with a column smiles",
            got=", ".join(table.column_names),
            remedy="Name the column of SMILES strings smiles.",
        )
    labels, called = (next((named[n] for n in names if n in named), None) for names in (_LABELS, _NAMES))
    if labels is not None and not (pa.types.is_integer(labels.type) or pa.types.is_floating(labels.type)):
        labels = None
    return SmilesTable(named["smiles"].combine_chunks(), labels, called, featurise)
