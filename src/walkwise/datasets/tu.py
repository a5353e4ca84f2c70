"""MUTAG, Mutagenicity and REDDIT-BINARY, from the TU collection by way of PyTorch Geometric's loader."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset

from walkwise.datasets.graphset import Graphs, GraphSet, offsets, pack
from walkwise.datasets.missing import fetching
from walkwise.datasets.registry import register
from walkwise.datasets.splits import balanced_split

#: MUTAG's atoms in the order of its one-hot features.
MUTAG_ATOMS = ("C", "N", "O", "F", "I", "Cl", "Br")

#: Mutagenicity's atoms in the order of the files, hydrogen included.
_ALL_ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")
_HYDROGEN = _ALL_ATOMS.index("H")

#: Mutagenicity's atoms in the order of its one-hot features once hydrogens are removed.
MUTAGENICITY_ATOMS = tuple(atom for atom in _ALL_ATOMS if atom != "H")


@register("mutag")
def load_mutag(root: Path) -> GraphSet:
    """MUTAG: 188 molecules without hydrogens; 54 of each class to train on, the other 80 to test on.

    Of the 80, 71 are mutagenic: a model that always says so is right in 88.75 % of them.

    Args:
        root: the data root; the files are ROOT/tu/MUTAG/raw/MUTAG_*.txt.
    """
    graphs = _read(root, "MUTAG")
    split = balanced_split(graphs.y, 108)
    return GraphSet("mutag", graphs, *split, ("non-mutagenic", "mutagenic"), MUTAG_ATOMS)


@register("mutagenicity")
def load_mutagenicity(root: Path) -> GraphSet:
    """Mutagenicity without hydrogens: 1548 molecules of each class to train on, the other 1241 to test on.

    As in the paper, hydrogens and their bonds are removed, and their column of the features, which leaves 13. Where
    the file Mutagenicity_edge_gt.txt is there, `ground_truth` marks the atoms of NO2 and NH2 groups it names.

    Args:
        root: the data root; the files are ROOT/tu/Mutagenicity/raw/Mutagenicity_*.txt.
    """
    graphs = _read(root, "Mutagenicity")
    truth = _marked_atoms(root / "tu/Mutagenicity/raw", len(graphs.x))
    heavy = _without(graphs, graphs.x[:, _HYDROGEN] == 1, truth)
    split = balanced_split(heavy.y, 3096)
    return GraphSet("mutagenicity", heavy, *split, ("mutagenic", "non-mutagenic"), MUTAGENICITY_ATOMS)


@register("reddit-binary")
def load_reddit(root: Path) -> GraphSet:
    """REDDIT-BINARY: 2000 threads, every feature 1; 800 of each class to train on, the other 400 to test on.

    The files number the two kinds of communities and do not name them.

    Args:
        root: the data root; the files are ROOT/tu/REDDIT-BINARY/raw/REDDIT-BINARY_*.txt.
    """
    graphs = _read(root, "REDDIT-BINARY")
    split = balanced_split(graphs.y, 1600)
    return GraphSet("reddit-binary", graphs, *split, ("label -1", "label 1"))


def _read(root: Path, name: str) -> Graphs:
    """The set as PyG's loader reads it; every feature 1 where there are none."""
    with fetching(name, f"{TUDataset.url}/{name}.zip", root / "tu" / name / "raw"):
        dataset = TUDataset(str(root / "tu"), name)
    graphs = [cast(Data, dataset[g]) for g in range(len(dataset))]
    for data in graphs:
        if data.x is None:
            data.x = torch.ones(cast(int, data.num_nodes), 1)
    return pack(graphs)


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
    bonds = np.fromstring((raw / "Mutagenicity_A.txt").read_text().replace(",", " "), dtype=np.int64, sep=" ")
    marked = np.fromstring(path.read_text(), dtype=np.int64, sep=" ") == 1
    truth = torch.zeros(count, dtype=torch.bool)
    truth[torch.from_numpy(bonds.reshape(-1, 2)[marked].ravel() - 1)] = True
    return truth
