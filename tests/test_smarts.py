"""Groups of atoms: of one molecule, given by itself or as a loader gives it."""

import pytest
from torch_geometric.data import Batch

from walkwise import smarts
from walkwise.datasets.molecules import from_smiles
from walkwise.errors import InputError

pytest.importorskip("rdkit")

NITRO = "O=[N+]([O-])c1ccccc1"


def test_a_batch_of_one_molecule_is_that_molecule():
    batch = Batch.from_data_list([from_smiles(NITRO)])
    assert smarts.groups(batch, NO2="[N+](=O)[O-]") == {"NO2": [0, 1, 2]}
    assert smarts.functional_groups(batch) == smarts.functional_groups(NITRO)


def test_a_batch_of_several_molecules_is_refused():
    batch = Batch.from_data_list([from_smiles(NITRO), from_smiles("CO")])
    for ask in (lambda: smarts.groups(batch, ring="c"), lambda: smarts.functional_groups(batch)):
        with pytest.raises(InputError, match=r"must be one molecule, got a batch of 2.*batch\[0\]") as caught:
            ask()
        assert caught.value.argument == "molecule"
