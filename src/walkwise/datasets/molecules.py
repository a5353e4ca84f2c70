"""Molecules from SMILES, in the form of MUTAG's graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data

from walkwise.datasets.tu import MUTAG_ATOMS, MUTAGENICITY_ATOMS, hydrogen_columns
from walkwise.errors import InputError
from walkwise.notation import molecule_of, rdkit_chem


def from_smiles(smiles: str, *, hydrogens: bool = False) -> Data:
    """The molecule as a graph with MUTAG's features: one-hot atoms C N O F I Cl Br, without hydrogens.

    With ``hydrogens``, the features are those of the data set "mutagenicity-hydrogens", which the bundled model
    "mutagenicity" takes: one-hot atoms, thirteen of them, and whether an atom has 0, 1, 2, or 3 and more hydrogens.

    Further attributes are for plotting: `symbols` (a list of the M atoms' names), `smiles`, and `bond_orders`: (E,),
    1, 2, 3, or 1.5 for an aromatic bond. Needs RDKit (extra `chem`).

    Args:
        smiles: the molecule. Explicit hydrogens are removed.
        hydrogens: whether the number of hydrogens is among the features of an atom.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> nitrobenzene = from_smiles("O=[N+]([O-])c1ccccc1")
    >>> nitrobenzene.symbols
    ['O', 'N', 'O', 'C', 'C', 'C', 'C', 'C', 'C']
    >>> nitrobenzene.x.shape, nitrobenzene.edge_index.shape, nitrobenzene.bond_orders[:2]
    (torch.Size([9, 7]), torch.Size([2, 18]), tensor([2., 2.]))
    """
    molecule = _parse(smiles)
    symbols = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    atoms = MUTAGENICITY_ATOMS if hydrogens else MUTAG_ATOMS
    unknown = sorted(set(symbols) - set(atoms))
    if unknown:
        raise InputError(
            f"Expected only the atoms {', '.join(atoms)} (and hydrogens), got {', '.join(unknown)} in {smiles!r}.",
            argument="smiles",
            expected=f"a molecule of the atoms {', '.join(atoms)}",
            got=smiles,
            remedy=f"The models trained on {'Mutagenicity' if hydrogens else 'MUTAG'} know no others: choose another "
            "molecule.",
        )
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), bond.GetBondTypeAsDouble()) for bond in molecule.GetBonds()]
    ends = torch.tensor([(i, j) for i, j, _ in bonds], dtype=torch.long).reshape(-1, 2)
    edge_index = torch.stack([ends, ends.flip(1)], dim=1).reshape(-1, 2).t().contiguous()  # each bond, both ways
    orders = torch.tensor([order for _, _, order in bonds]).repeat_interleave(2)
    x = torch.eye(len(atoms))[[atoms.index(symbol) for symbol in symbols]]
    if hydrogens:
        count = torch.tensor([float(atom.GetTotalNumHs()) for atom in molecule.GetAtoms()])
        x = torch.cat([x, hydrogen_columns(count)], dim=1)
    return Data(x, edge_index, bond_orders=orders, symbols=symbols, smiles=smiles)


def _parse(smiles: str) -> Any:
    """The molecule without its hydrogens."""
    heavy = rdkit_chem().RemoveAllHs(molecule_of(smiles))
    if not heavy.GetNumAtoms():
        raise InputError(
            f"{smiles!r} has no atoms but hydrogens.",
            argument="smiles",
            expected="a molecule with atoms other than hydrogen",
            got=smiles,
            remedy="Choose another molecule.",
        )
    return heavy
