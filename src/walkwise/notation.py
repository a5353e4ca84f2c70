"""Chemists' notation, SMILES and SMARTS, read by RDKit or refused with a reason; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from walkwise.errors import InputError, MissingExtraError


def rdkit_chem() -> Any:
    """The module ``rdkit.Chem``, or an error that says what to install."""
    try:
        return import_module("rdkit.Chem")
    except ImportError:
        raise MissingExtraError(
            "Molecules need the package RDKit.", remedy="Install it with: pip install 'walkwise[chem]'"
        ) from None


def molecule_of(smiles: Any) -> Any:
    """The RDKit molecule of a SMILES string.

    Args:
        smiles: the string.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> molecule_of("c1ccccc1N").GetNumAtoms()
    7
    """
    chem = rdkit_chem()
    quiet = chem.rdBase.BlockLogs()  # the error below says it
    molecule = chem.MolFromSmiles(smiles) if isinstance(smiles, str) and smiles.strip() else None
    del quiet
    if molecule is None:
        raise InputError(
            f"Expected a molecule in SMILES, such as 'c1ccccc1N', got {smiles!r}, which RDKit cannot read.",
            argument="smiles",
            expected="a molecule in SMILES, such as 'c1ccccc1N'",
            got=smiles,
            remedy="Is every ring and every parenthesis closed?",
        )
    return molecule


def molecule_of_graph(
    smiles: str, edges: Iterable[Sequence[int]], num_nodes: int | None, symbols: Sequence[str] | None = None
) -> Any:
    """The molecule of a graph's own SMILES, if the graph's nodes are its atoms, hydrogens among them or not; else None.

    Args:
        smiles: the string.
        edges: pairs of nodes.
        num_nodes: M, the nodes of the graph.
        symbols: what the nodes are, where the graph says so.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> molecule_of_graph("CO", [(0, 1), (1, 0)], 2).GetNumAtoms(), molecule_of_graph("CO", [(0, 1)], 3)
    (2, None)
    """
    chem, molecule = rdkit_chem(), molecule_of(smiles)
    pairs = {(min(u, v), max(u, v)) for u, v in edges if u != v}
    for made in (molecule, chem.RemoveAllHs(molecule), chem.AddHs(molecule)):
        bonds = {tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in made.GetBonds()}
        same = symbols is None or list(symbols) == [atom.GetSymbol() for atom in made.GetAtoms()]
        if bonds == pairs and same and made.GetNumAtoms() == num_nodes:
            return made
    return None


@lru_cache(maxsize=1024)
def query_of(name: str, pattern: str) -> Any:
    """What RDKit makes of a SMARTS pattern, to look for it in many molecules.

    Args:
        name: what the pattern is called in an error.
        pattern: the SMARTS string.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> query_of("NO2", "[N+](=O)[O-]").GetNumAtoms()
    3
    """
    chem = rdkit_chem()
    quiet = chem.rdBase.BlockLogs()  # the error below says it
    query = chem.MolFromSmarts(pattern) if isinstance(pattern, str) and pattern else None
    del quiet
    if query is None:
        raise InputError(
            f"RDKit cannot read the SMARTS pattern of {name!r}, {pattern!r}.",
            argument=name,
            expected="a SMARTS pattern, such as '[N+](=O)[O-]'",
            got=pattern,
        )
    return query
