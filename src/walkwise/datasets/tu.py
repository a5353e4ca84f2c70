"""MUTAG, Mutagenicity and REDDIT-BINARY, from the TU collection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from walkwise.datasets.graphset import Graphs, GraphSet, offsets
from walkwise.datasets.registry import register
from walkwise.datasets.splits import balanced_split
from walkwise.datasets.tufiles import read_tu
from walkwise.errors import InputError
from walkwise.files import read_integers

#: MUTAG's atoms in the order of its one-hot features.
MUTAG_ATOMS = ("C", "N", "O", "F", "I", "Cl", "Br")

#: Mutagenicity's atoms in the order of the files, hydrogen included.
_ALL_ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
_HYDROGEN = _ALL_ATOMS.index("H")

#: Mutagenicity's atoms in the order of its one-hot features once hydrogens are removed.
MUTAGENICITY_ATOMS = tuple(atom for atom in _ALL_ATOMS if atom != "H")

#: What the labels 0 and 1 mean.
CLASSES = {
    "mutag": ("non-mutagenic", "mutagenic"),
    "mutagenicity": ("mutagenic", "non-mutagenic"),
    "mutagenicity-hydrogens": ("non-mutagenic", "mutagenic"),
    "reddit-binary": ("label -1", "label 1"),
}

#: The columns that count hydrogens, where a data set has them.
HYDROGENS = ("H0", "H1", "H2", "H3")


@register("mutag")
def load_mutag(root: Path) -> GraphSet:
    """MUTAG: 188 molecules without hydrogens; 54 of each class to train on, the other 80 to test on.

    Of the 80, 71 are mutagenic: a model that always says so is right in 88.75 % of them.

    Args:
        root: the data root; the files are ROOT/tu/MUTAG/raw/MUTAG_*.txt.
    """
    graphs = _read(root, "MUTAG", len(MUTAG_ATOMS))
    split = balanced_split(graphs.y, 108)
    return GraphSet("mutag", graphs, *split, CLASSES["mutag"], MUTAG_ATOMS)


@register("mutagenicity")
def load_mutagenicity(root: Path) -> GraphSet:
    """Mutagenicity without hydrogens: 1548 molecules of each class to train on, the other 1241 to test on.

    As in the paper, hydrogens and their bonds are removed, and their column of the features, which leaves 13. Where
    the file Mutagenicity_edge_gt.txt is there, `ground_truth` marks the atoms of NO2 and NH2 groups it names.

    Args:
        root: the data root; the files are ROOT/tu/Mutagenicity/raw/Mutagenicity_*.txt.
    """
    graphs = _read(root, "Mutagenicity", len(_ALL_ATOMS))
    truth = _marked_atoms(root / "tu/Mutagenicity/raw", len(graphs.x))
    heavy = _without(graphs, graphs.x[:, _HYDROGEN] == 1, truth)
    split = balanced_split(heavy.y, 3096)
    return GraphSet("mutagenicity", heavy, *split, CLASSES["mutagenicity"], MUTAGENICITY_ATOMS)


@register("mutagenicity-hydrogens")
def load_mutagenicity_hydrogens(root: Path) -> GraphSet:
    """Mutagenicity with hydrogens counted: no nodes of their own, but features of the atoms that they belong to.

    The graphs and the split are those of "mutagenicity"; four more columns say whether an atom has 0, 1, 2 or at least
    3 hydrogens. Class 1 is mutagenic here, as in MUTAG.

    Args:
        root: the data root; the files are ROOT/tu/Mutagenicity/raw/Mutagenicity_*.txt.
    """
    graphs = _read(root, "Mutagenicity", len(_ALL_ATOMS))
    hydrogen = graphs.x[:, _HYDROGEN] == 1
    source, target = graphs.edge_index
    count = torch.zeros(len(graphs.x)).index_add(0, target, hydrogen[source].float())
    heavy = load_mutagenicity(root)
    x = torch.cat([heavy.graphs.x, hydrogen_columns(count[~hydrogen])], dim=1)
    made = replace(heavy.graphs, x=x, y=1 - heavy.graphs.y)
    split = heavy.train, heavy.val, heavy.test
    names = (*MUTAGENICITY_ATOMS, *HYDROGENS)
    return GraphSet("mutagenicity-hydrogens", made, *split, CLASSES["mutagenicity-hydrogens"], names)


def hydrogen_columns(count: Tensor) -> Tensor:
    """How many hydrogens atoms have, one-hot: 0, 1, 2, or 3 and more: (M, 4).

    >>> hydrogen_columns(torch.tensor([0.0, 4.0])).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    """
    return torch.eye(len(HYDROGENS))[count.long().clamp(max=len(HYDROGENS) - 1)]


@register("reddit-binary")
def load_reddit(root: Path) -> GraphSet:
    """REDDIT-BINARY: 2000 threads, every feature 1; 800 of each class to train on, the other 400 to test on.

    The files number the two kinds of communities and do not name them.

    Args:
        root: the data root; the files are ROOT/tu/REDDIT-BINARY/raw/REDDIT-BINARY_*.txt.
    """
    graphs = _read(root, "REDDIT-BINARY", 1)
    split = balanced_split(graphs.y, 1600)
    return GraphSet("reddit-binary", graphs, *split, CLASSES["reddit-binary"])


def _read(root: Path, name: str, width: int) -> Graphs:
    """The set, with as many features and classes as the published one."""
    folder = root / "tu" / name / "raw"
    graphs = read_tu(folder, name)
    found = graphs.x.shape[1], int(graphs.y.max()) + 1
    if found != (width, 2):
        raise InputError(
            f"Expected {width} kinds of nodes and 2 classes of graphs in {folder}, got {found[0]} and {found[1]}.",
            expected=f"{width} kinds of nodes and 2 classes of graphs",
            got=found,
            remedy=f"This is not the published {name}: fetch it again.",
        )
    return graphs


def _without(graphs: Graphs, removed: Tensor, truth: Tensor | None) -> Graphs:
    """The graphs without hydrogens: their nodes, their edges and their column."""
    kept = ~removed
    row = kept.cumsum(0) - 1  # a node's number among those that stay
    edges = kept[graphs.edge_index].all(dim=0)
    columns = [c for c in range(graphs.x.shape[1]) if c != _HYDROGEN]
    owner = torch.arange(len(graphs)).repeat_interleave(graphs.nodes_before.diff())
    edge_owner = torch.arange(len(graphs)).repeat_interleave(graphs.edges_before.diff())
    return Graphs(
        graphs.x[kept][:, columns],
        row[graphs.edge_index[:, edges]],
        graphs.y,
        offsets(owner[kept].bincount(minlength=len(graphs))),
        offsets(edge_owner[edges].bincount(minlength=len(graphs))),
        {} if truth is None else {"ground_truth": truth[kept]},
        {name: rows[edges] for name, rows in graphs.edge_data.items()},
    )


def _marked_atoms(raw: Path, count: int) -> Tensor | None:
    """The atoms at either end of a marked bond: (ΣM,)."""
    path = raw / "Mutagenicity_edge_gt.txt"
    if not path.exists():
        return None
    bonds, marks = read_integers(raw / "Mutagenicity_A.txt", columns=2), read_integers(path, columns=1).flatten()
    if len(marks) != len(bonds):
        raise InputError(
            f"Expected a mark for each of {len(bonds)} bonds in {path}, got {len(marks)}.",
            expected=f"a mark for each of {len(bonds)} bonds",
            got=len(marks),
            remedy="Fetch the file again, or remove it: it is not needed.",
        )
    truth = torch.zeros(count, dtype=torch.bool)
    truth[bonds[marks == 1].flatten() - 1] = True
    return truth
