"""Molecules put together from fragments and labelled by SMARTS patterns: the atoms that match are the truth."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data

from quality.planted import Random, renamed

#: Fragments that stand in a row: each begins and ends with an atom that has room for one more bond.
MIDDLES = ("C", "CC", "O", "N", "S", "C(=O)", "C(C)", "C(O)", "C(F)", "c1ccc(cc1)", "c1cc(O)c(cc1)", "c1cc(F)c(cc1)")
ENDS = ("C", "O", "N", "F", "C#N", "C(=O)O", "C(=O)C", "C(=O)OC", "c1ccccc1", "c1ccc(O)cc1")
ELEMENTS = ("C", "N", "O", "F", "S")
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")

AMIDE = ("[CX3](=O)[NX3]",)
ACID_AND_PHENOL = ("[CX3](=O)[OX2H1]", "c[OX2H1]")


class Rule:
    """A maker of graphs: label 1 has every pattern exactly once, label 0 lacks at least one."""

    def __init__(self, *patterns: str) -> None:
        from rdkit import Chem

        self.patterns = [Chem.MolFromSmarts(pattern) for pattern in patterns]

    def __call__(self, random: Random, number: int) -> Data:
        while True:
            molecule = assembled(random)
            matches = [molecule.GetSubstructMatches(pattern) for pattern in self.patterns]
            wanted = all(len(m) == 1 for m in matches) if number % 2 else not all(matches)
            if wanted:
                truth = torch.zeros(1, molecule.GetNumAtoms(), dtype=torch.bool)
                truth[0, [atom for match in matches for atoms in match for atom in atoms]] = True
                return renamed(*as_graph(molecule), number % 2, truth, random)


def assembled(random: Random) -> Any:
    """A molecule of an end, three to six fragments and another end."""
    from rdkit import Chem

    middle = random.choice(MIDDLES, int(random.integers(3, 7))).tolist()
    return Chem.MolFromSmiles("C" + "".join([*middle, str(random.choice(ENDS))]))


def as_graph(molecule: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Atoms by element and by how many bonds of each kind they have; bonds as plain edges."""
    count = molecule.GetNumAtoms()
    x = torch.zeros(count, len(ELEMENTS) + len(BONDS))
    for atom in molecule.GetAtoms():
        x[atom.GetIdx(), ELEMENTS.index(atom.GetSymbol())] = 1
    ends = []
    for bond in molecule.GetBonds():
        a, b = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        ends += [(a, b), (b, a)]
        x[[a, b], len(ELEMENTS) + BONDS.index(str(bond.GetBondType()))] += 1
    return x, torch.tensor(ends).t()
