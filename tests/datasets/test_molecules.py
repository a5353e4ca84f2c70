"""Molecules from SMILES: MUTAG's atoms and bonds, and what is refused."""

import sys

import pytest

from walkwise.datasets.molecules import from_smiles
from walkwise.errors import InputError, MissingExtraError


@pytest.fixture
def rdkit():
    return pytest.importorskip("rdkit")


def test_atoms_and_bonds(rdkit):
    data = from_smiles("ClC(F)=C(Br)C#CI")
    assert data.symbols == ["Cl", "C", "F", "C", "Br", "C", "C", "I"]
    assert data.x.argmax(dim=1).tolist() == [5, 0, 3, 0, 6, 0, 0, 4]
    assert data.smiles == "ClC(F)=C(Br)C#CI"
    orders = {tuple(ends): order for ends, order in zip(data.edge_index.t().tolist(), data.bond_orders, strict=True)}
    assert orders[1, 3] == orders[3, 1] == 2
    assert orders[5, 6] == 3
    assert data.num_edges == 14
    assert data.is_undirected()


def test_hydrogens_and_single_atoms(rdkit):
    assert from_smiles("[H]N([H])c1ccccc1").symbols == ["N", *["C"] * 6]
    assert from_smiles("c1ccccc1").bond_orders.tolist() == [1.5] * 12
    alone = from_smiles("C")
    assert alone.edge_index.shape == (2, 0)
    assert alone.bond_orders.shape == (0,)


@pytest.mark.parametrize(
    ("smiles", "words"), [("c1ccccc", "cannot read"), ("", "cannot read"), ("CS", "got S in 'CS'")]
)
def test_refusals(rdkit, smiles, words):
    with pytest.raises(InputError, match=words):
        from_smiles(smiles)


def test_without_rdkit(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(MissingExtraError, match=r"walkwise\[chem\]"):
        from_smiles("C")
