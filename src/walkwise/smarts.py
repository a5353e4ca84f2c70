"""Parts of molecules as groups of nodes: by SMARTS patterns, or as functional groups. Needs RDKit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walkwise.notation import query_of, rdkit_chem
from walkwise.plotting.chemistry import as_molecule

#: The functional groups offered by default; if two overlap, the first one listed gets the atoms.
FUNCTIONAL_GROUPS = {
    "NO2": "[N;X3](~[O;X1])~[O;X1]",
    "N3": "[N;X2]=[N;X2]=[N;X1]",
    "epoxide": "[C;r3]1[O;r3][C;r3]1",
    "aziridine": "[C;r3]1[N;r3][C;r3]1",
    "nitroso": "[N;X2;!R]=[O;X1]",
    "azo": "[N;X2;!R;$(N[#6])]=[N;X2;!R;$(N[#6])]",
    "hydrazine": "[N;X3;!R][N;X3;!R]",
    "COOH": "C(=O)[O;H1]",
    "ester": "[C;!R](=O)[O;X2;!R]",
    "amide": "[C;!R](=[O;X1])[N;X3;!R]",
    "SO2": "S(=O)=O",
    "aldehyde": "[C;H1]=[O;X1]",
    "ketone": "[C;!R;X3;$(C([#6])[#6])]=[O;X1]",
    "nitrile": "C#[N;X1]",
    "NH2": "[N;X3;H2]",
    "OH": "[O;X2;H1]",
    "ether": "[O;X2;!R;$(O([#6])[#6])]",
    "halogen": "[F,Cl,Br,I]",
}

#: Textbook structural alerts for mutagenicity, after Kazius, McGuire and Bursi (2005), in patterns of our own: atoms
#: that are held to act; what stands beside them ("on a ring") is a condition.
STRUCTURAL_ALERTS = {
    "aromatic nitro": "[N;X3;$(Na)](~[O;X1])~[O;X1]",
    "aromatic amine": "[N;X3;H2;$(Na)]",
    "epoxide or aziridine": "[C;r3]1[O,N;r3][C;r3]1",
    "nitroso": "[N;X2;!R;$(N[#6,#7])]=[O;X1]",
    "azo": "[N;X2;!R;$(N[#6])]=[N;X2;!R;$(N[#6])]",
    "hydrazine": "[N;!R;X3;H1,H2][N;!R;X3;!$(N=O)]",
    "azide or diazo": "[N;X2]=[N;X2]=[N;X1]",
    "aliphatic bromide or iodide": "[C;X4][Br,I]",
    "mustard": "[N,S;X2,X3][C;H2][C;H2][Cl,Br,I]",
}

#: The name of the group of ring atoms.
RING = "ring"


def groups(molecule: Any, /, *, symbols: Sequence[str] | None = None, **patterns: str) -> dict[str, list[int]]:
    """The atoms that match each pattern, as groups for :func:`walkwise.interactions` and :func:`walkwise.query`.

    A name without a match is left out, so the same patterns can be used on many molecules.

    Args:
        molecule: an RDKit molecule, a SMILES string, or a PyG Data with ``smiles`` or ``symbols``, also in a batch of
            one, as loaders give it.
        symbols: for a Data without either, the chemical symbol of every atom.
        **patterns: names, and the SMARTS pattern of each.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> groups("O=[N+]([O-])c1ccccc1", NO2="[N+](=O)[O-]", ring="c", Cl="Cl")
    {'NO2': [0, 1, 2], 'ring': [3, 4, 5, 6, 7, 8]}
    """
    found = as_molecule(molecule, symbols)
    matched = {name: _matches(found, name, pattern) for name, pattern in patterns.items()}
    return {name: sorted({atom for match in matches for atom in match}) for name, matches in matched.items() if matches}


def functional_groups(molecule: Any, /, *, symbols: Sequence[str] | None = None) -> dict[str, list[int]]:
    """The functional groups of a molecule, and its rings: groups that do not overlap.

    Args:
        molecule: an RDKit molecule, a SMILES string, or a PyG Data with ``smiles`` or ``symbols``, also in a batch of
            one, as loaders give it.
        symbols: for a Data without either, the chemical symbol of every atom.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> functional_groups("OC(=O)c1ccc(N)cc1")
    {'COOH': [0, 1, 2], 'NH2': [7], 'ring': [3, 4, 5, 6, 8, 9]}
    """
    chem, mol = rdkit_chem(), as_molecule(molecule, symbols)
    taken: set[int] = set()
    found: dict[str, list[int]] = {}
    for name, pattern in FUNCTIONAL_GROUPS.items():
        free = [match for match in _matches(mol, name, pattern) if not taken & set(match)]
        atoms = {atom for match in free for atom in match}
        if atoms:
            found[name] = sorted(atoms)
            taken |= atoms
    rings = {atom for ring in chem.GetSymmSSSR(mol) for atom in ring} - taken
    return {**found, **({RING: sorted(rings)} if rings else {})}


def _matches(molecule: Any, name: str, pattern: str) -> list[tuple[int, ...]]:
    return list(molecule.GetSubstructMatches(query_of(name, pattern), maxMatches=10_000))
