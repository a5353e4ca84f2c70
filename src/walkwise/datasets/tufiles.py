"""Read the text files of the TU collection, without writing or opening any cache beside them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.utils import coalesce, remove_self_loops

from walkwise.datasets.graphset import Graphs, offsets
from walkwise.datasets.missing import fetching
from walkwise.errors import InputError
from walkwise.files import read_integers, write_whole

#: Where the collection is published.
ADDRESS = "https://www.chrsmrrs.com/graphkerneldatasets"

#: Labels are numbered from 0 or 1 through a few kinds; a file that names more than this many is damaged.
_MOST_KINDS = 1000

#: What a set consists of; the last two are not always there.
_PARTS = ("A", "graph_indicator", "graph_labels", "node_labels", "edge_labels")


def read_tu(folder: Path, name: str) -> Graphs:
    """The graphs of a set: kinds of nodes as one-hot features (1 where there are none), kinds of edges as `edge_attr`.

    As in PyTorch Geometric's loader, self-loops and repeated edges are left out, edges are sorted, and classes are
    numbered from 0.

    Args:
        folder: holds NAME_A.txt and its companions; what is missing is downloaded.
        name: the set, such as "MUTAG".
    """
    if not all((folder / f"{name}_{part}.txt").is_file() for part in _PARTS[:3]):
        _download(folder, name)
    owner, labels = (read_integers(folder / f"{name}_{part}.txt", columns=1).flatten() for part in _PARTS[1:3])
    _check_owners(folder, owner - 1, len(labels))
    owner = owner - 1
    kinds, edge_kinds = (_kinds(folder / f"{name}_{part}.txt") for part in _PARTS[3:])
    edges = read_integers(folder / f"{name}_A.txt", columns=2).t() - 1
    _check_edges(folder, edges, owner)
    for rows, count, what in ((kinds, len(owner), "node"), (edge_kinds, edges.shape[1], "edge")):
        if rows is not None and len(rows) != count:
            raise _apart(folder, f"a label for each of {count} {what}s", f"{len(rows)}")
    x = torch.ones(len(owner), 1) if kinds is None else kinds
    edge_index, edge_attr = coalesce(*remove_self_loops(edges, edge_kinds), num_nodes=len(owner))
    sizes, edge_sizes = owner.bincount(minlength=len(labels)), owner[edge_index[0]].bincount(minlength=len(labels))
    _, y = torch.unique(labels, sorted=True, return_inverse=True)
    further = {} if edge_attr is None else {"edge_attr": edge_attr}
    return Graphs(x, edge_index, y, offsets(sizes), offsets(edge_sizes), edge_data=further)


def _check_owners(folder: Path, owner: Tensor, count: int) -> None:
    """Nodes must stand graph by graph, at least one to a graph."""
    steps = owner.diff()
    if int(owner[0]) != 0 or int(owner[-1]) != count - 1 or bool(((steps < 0) | (steps > 1)).any()):
        got = f"numbers from {int(owner.min()) + 1} to {int(owner.max()) + 1}"
        raise _apart(folder, f"nodes of the graphs 1 to {count}, one graph after the other", got)


def _check_edges(folder: Path, edges: Tensor, owner: Tensor) -> None:
    if int(edges.min()) < 0 or int(edges.max()) >= len(owner):
        got = f"numbers from {int(edges.min()) + 1} to {int(edges.max()) + 1}"
        raise _apart(folder, f"edges between the nodes 1 to {len(owner)}", got)
    if not torch.equal(owner[edges[0]], owner[edges[1]]):
        raise _apart(folder, "edges inside a graph", "one between two graphs")


def _kinds(path: Path) -> Tensor | None:
    """One-hot rows of labels, several columns side by side; None where there is no such file: (rows, kinds)."""
    if not path.is_file():
        return None
    labels = read_integers(path)
    lowest, highest = labels.min(dim=0).values, labels.max(dim=0).values
    if bool((highest >= _MOST_KINDS).any()) or bool((lowest < -_MOST_KINDS).any()):
        raise _apart(path, "labels of a few kinds", f"numbers from {int(lowest.min())} to {int(highest.max())}")
    return torch.cat([one_hot(column).float() for column in (labels - lowest).unbind(dim=1)], dim=1)


def _download(folder: Path, name: str) -> None:
    """Fetches the set's archive and takes the text files out of it, and nothing else."""
    from torch_geometric.data import download_url

    address, wanted = f"{ADDRESS}/{name}.zip", {f"{name}_{part}.txt" for part in _PARTS}
    with fetching(name, address, folder), TemporaryDirectory() as fresh:
        archive = download_url(address, fresh, log=False)
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive) as files:
            found = {Path(member).name: member for member in files.namelist() if Path(member).name in wanted}
            if f"{name}_A.txt" not in found:
                raise FileNotFoundError(f"the archive has no {name}_A.txt")
            for part in sorted(found, key=lambda part: part == f"{name}_A.txt"):  # the last says that all are there
                write_whole(folder / part, files.read(found[part]))


def _apart(folder: Path, expected: str, got: str) -> InputError:
    return InputError(
        f"Expected {expected} in {folder}, got {got}.",
        expected=expected,
        got=got,
        remedy="The files are damaged or do not belong together: fetch them again.",
    )
