"""Molecules: bond orders and charges from graphs, and what is drawn of them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_rgba
from torch_geometric.data import Data
from torch_geometric.utils import from_smiles as with_integers

from authors import ROOT
from walkwise.datasets.molecules import from_smiles
from walkwise.errors import InputError, MissingExtraError
from walkwise.plotting import _style as style
from walkwise.plotting import molecule_from_data, molecule_heatmap, molecule_layout

Chem = pytest.importorskip("rdkit.Chem")

KINDS = ("aromatic", "single", "double", "triple")


def graph(symbols, bonds):
    """A graph in the form of MUTAG: both directions, one-hot bond kinds."""
    pairs = torch.tensor([pair for *pair, _ in bonds]).reshape(-1, 2).t()
    kinds = torch.eye(4)[[KINDS.index(kind) for *_, kind in bonds]]
    return Data(edge_index=torch.cat([pairs, pairs.flip(0)], 1), edge_attr=kinds.repeat(2, 1), symbols=list(symbols))


def nitrobenzene():
    ring = [(i, (i + 1) % 6, "aromatic") for i in range(6)]
    return graph("CCCCCCNOO", [*ring, (0, 6, "single"), (6, 7, "double"), (6, 8, "single")])


def smiles(molecule):
    return Chem.MolToSmiles(molecule)


def lines(ax):
    """The solid and the dashed lines."""
    solid, dashed = [c for c in ax.collections if isinstance(c, LineCollection)]
    return solid.get_segments(), dashed.get_segments()


def discs(ax):
    return [c for c in ax.collections if isinstance(c, PatchCollection)]


def texts(ax):
    return [text.get_text() for text in ax.texts]


# -- from graphs ------------------------------------------------------------------------------


def test_bond_orders_and_charges_come_from_the_graph():
    data = nitrobenzene()
    molecule = molecule_from_data(data, data.symbols)
    assert smiles(molecule) == smiles(Chem.MolFromSmiles("O=[N+]([O-])c1ccccc1"))
    assert [atom.GetSymbol() for atom in molecule.GetAtoms()] == data.symbols


def test_bonds_as_numbers_need_names():
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.tensor([1, 0]))
    assert smiles(molecule_from_data(data, ["O", "C", "C"], bonds=["single", "double"])) == "CC=O"
    with pytest.raises(InputError, match="Name the bonds in order"):
        molecule_from_data(data, ["O", "C", "C"])


def test_three_columns_are_single_double_triple():
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.eye(3)[[2, 0]])
    assert smiles(molecule_from_data(data, ["N", "C", "C"])) == "CC#N"


def test_columns_that_are_not_one_hot_say_nothing_about_bonds():
    data = with_integers("C=CC#N")  # kind of bond, stereochemistry, conjugation: integers
    with pytest.raises(InputError, match=r"bond_orders"):
        molecule_from_data(data, ["C", "C", "C", "N"])


def test_without_edge_attributes_bonds_are_single():
    data = Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 1]]))  # a self-loop is no bond
    assert smiles(molecule_from_data(data, ["C", "O"])) == "CO"


@pytest.mark.parametrize("text", ["O=[N+]([O-])c1ccc2c(c1)Cc1ccccc1-2", "C#CC=C", "Cc1ccc(cc1)N", "C"])
def test_molecules_from_smiles_are_drawn_with_their_bonds(ax, text):
    data = from_smiles(text)
    assert smiles(molecule_from_data(data, data.symbols)) == smiles(Chem.MolFromSmiles(text))
    molecule_heatmap(data, np.ones(len(data.symbols)), torch.ones(data.num_edges), ax=ax)
    molecule = Chem.MolFromSmiles(text)
    orders = [bond.GetBondTypeAsDouble() for bond in molecule.GetBonds()]
    solid, dashed = lines(ax)
    assert (len(solid), len(dashed)) == (sum(int(order) for order in orders), orders.count(1.5))


@pytest.mark.parametrize("orders", [[1.0], [1.0, 0.25]])
def test_bond_orders_that_are_none_are_refused(orders):
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), bond_orders=torch.tensor(orders))
    with pytest.raises(InputError, match="bond_orders must be 1, 2, 3 or"):
        molecule_from_data(data, ["C", "O"])


def test_what_is_no_valid_molecule_is_drawn_all_the_same(ax):
    data = graph("COOOOO", [(0, i, "double") for i in range(1, 6)])
    molecule_heatmap(data, np.ones(6), ax=ax)
    assert len(lines(ax)[0]) == 10
    assert texts(ax) == ["O"] * 5


@pytest.mark.parametrize(
    ("data", "symbols", "message"),
    [
        (graph("CC", [(0, 1, "single")]), ["C", "Xx"], "chemical symbols"),
        (graph("CC", [(0, 1, "single")]), ["C"], "node ids from 0 to 0"),
        (Data(edge_index=torch.tensor([[0], [1]]), edge_attr=torch.eye(4)), ["C", "C"], "for each of 1 edges"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(data, symbols, message):
    with pytest.raises(InputError, match=message):
        molecule_from_data(data, symbols)


@pytest.mark.skipif(not (ROOT / "data/tu/MUTAG/raw").is_dir(), reason=f"no MUTAG in {ROOT}/data: set WALKWISE_DATA")
def test_nearly_all_of_mutag_becomes_valid_molecules():
    """Two of the 188 have a carbon with two double bonds and a third bond; they are drawn as the data say."""
    read = {
        name: np.loadtxt(ROOT / f"data/tu/MUTAG/raw/MUTAG_{name}.txt", dtype=int, delimiter=",")
        for name in ("A", "graph_indicator", "node_labels", "edge_labels")
    }
    of_node = read["graph_indicator"] - 1
    invalid = []
    for number in range(188):
        edges = of_node[read["A"][:, 0] - 1] == number
        nodes = np.flatnonzero(of_node == number)
        edge_index = torch.tensor((read["A"][edges] - 1 - nodes[0]).T)
        data = Data(edge_index=edge_index, edge_attr=torch.eye(4)[torch.tensor(read["edge_labels"][edges])])
        symbols = [("C", "N", "O", "F", "I", "Cl", "Br")[i] for i in read["node_labels"][nodes]]
        molecule = molecule_from_data(data, symbols)
        assert molecule.GetNumBonds() == edges.sum() / 2
        if Chem.SanitizeMol(Chem.Mol(molecule), catchErrors=True):
            invalid.append(number)
            assert len(molecule_layout(molecule)) == len(nodes)
    assert invalid == [82, 187]


# -- drawings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("molecule", "solid", "dashed"),
    [("CC", 1, 0), ("C=C", 2, 0), ("C#C", 3, 0), ("c1ccccc1", 6, 6), ("C1=CCCCC1", 7, 0), ("C", 0, 0)],
)
def test_bonds_are_as_many_lines_as_their_order(ax, molecule, solid, dashed):
    molecule_heatmap(molecule, np.ones(len(molecule_layout(molecule))), ax=ax)
    assert [len(found) for found in lines(ax)] == [solid, dashed]


def test_second_lines_lie_inside_the_ring(ax):
    molecule_heatmap("c1ccccc1", np.ones(6), ax=ax)
    middle = molecule_layout("c1ccccc1").mean(0)
    solid, dashed = ([np.hypot(*(np.mean(line, 0) - middle)) for line in kind] for kind in lines(ax))
    assert max(dashed) < min(solid)


def test_letters_stand_at_all_but_carbons(ax):
    molecule_heatmap("C[N+](=O)[O-]", np.ones(4), ax=ax)
    assert texts(ax) == ["N⁺", "O", "O⁻"]
    places = molecule_layout("C[N+](=O)[O-]")
    assert [text.xy for text in ax.texts] == [tuple(place) for place in places[1:]]


def test_a_lone_carbon_has_its_letter(ax):
    molecule_heatmap("C", [1.0], ax=ax)
    assert texts(ax) == ["CH₄"]


def test_heat_has_the_sign_of_the_scores(ax):
    molecule_heatmap("CCO", [1.0, -2.0, 0.0], [0.5, -1.0], ax=ax)
    _, fill = (disc.get_facecolors() for disc in discs(ax)[-3:-1])
    assert fill[1] == pytest.approx(to_rgba(style.NEGATIVE), abs=0.01)
    assert fill[0, 0] > fill[0, 2]
    assert len(fill) == 2  # no disc where there is no relevance
    first, second = (patch.get_facecolor() for patch in ax.patches)
    assert first[0] > first[2]
    assert second == pytest.approx(to_rgba(style.NEGATIVE), abs=0.01)


def test_edges_are_added_up_on_their_bond(ax):
    data = graph("CCO", [(0, 1, "single"), (1, 2, "single")])
    scores = torch.tensor([1.0, -3.0, 1.0, -3.0])  # (0, 1), (1, 2) and back
    molecule_heatmap(data, np.zeros(3), scores, ax=ax)
    first, second = (patch.get_facecolor() for patch in ax.patches)
    assert first == pytest.approx(style.COLOURS(0.5 + 2 / 12), abs=0.01)
    assert second == pytest.approx(to_rgba(style.NEGATIVE), abs=0.01)
    bar = next(other for other in ax.figure.axes if other is not ax)
    assert "bonds: ±6" in bar.get_xlabel()


def test_edge_scores_find_their_bonds_in_a_molecule(ax):
    edges = torch.tensor([[2, 1, 1], [1, 0, 1]])
    molecule_heatmap("CCO", np.zeros(3), [4.0, -1.0, 9.0], edge_index=edges, ax=ax)
    first, second = (patch.get_facecolor() for patch in ax.patches)
    assert first[2] > first[0]
    assert second == pytest.approx(to_rgba(style.POSITIVE), abs=0.01)
    with pytest.raises(InputError, match="from 0 to 2, but the molecule has no bond"):
        molecule_heatmap("CCO", np.zeros(3), [1.0], edge_index=[[0], [2]], ax=ax)


def test_the_band_encloses_atoms_and_bonds(ax):
    molecule_heatmap("CCO", np.ones(3), subgraph=[1, 2], ax=ax)
    dark, light = discs(ax)[:2]
    assert len(dark.get_paths()) == len(light.get_paths()) == 2
    assert len(ax.patches) == 2  # one bond, dark and light


def test_the_molecule_given_is_left_alone():
    molecule = Chem.MolFromSmiles("CCO")
    before = molecule.ToBinary()
    molecule_heatmap(molecule, np.ones(3))
    assert molecule.ToBinary() == before
    assert molecule.GetNumConformers() == 0


def test_coordinates_that_a_molecule_has_are_kept():
    molecule = Chem.MolFromSmiles("CCO")
    conformer = Chem.Conformer(3)
    conformer.Set3D(False)
    for i in range(3):
        conformer.SetAtomPosition(i, (2.0 * i, float(i), 0.0))
    molecule.AddConformer(conformer)
    assert molecule_layout(molecule).tolist() == [[0.0, 0.0], [2.0, 1.0], [4.0, 2.0]]


@pytest.mark.parametrize(
    ("molecule", "scores", "message"),
    [
        ("CC(", [1.0], "got 'CC\\(', which RDKit cannot read"),
        ("CCO", [1.0], "atom_scores must be a vector of 3"),
        (Data(edge_index=torch.tensor([[0], [1]])), [1.0, 1.0], "molecule_from_data"),
        (3, [1.0], "got 3"),
    ],
)
def test_what_does_not_fit_is_refused(ax, molecule, scores, message):
    with pytest.raises(InputError, match=message):
        molecule_heatmap(molecule, scores, ax=ax)


def test_without_rdkit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(MissingExtraError, match=r"walkwise\[chem\]"):
        molecule_layout("CCO")


def test_hydrogens_stand_as_chemists_write_them(ax):
    molecule_heatmap("NCCO", np.ones(4), ax=ax)
    letters = dict(zip([place[0] for place in molecule_layout("NCCO")[[0, 3]]], texts(ax), strict=True))
    left, right = (letters[x] for x in sorted(letters))
    assert (left, right) in (("H₂N", "OH"), ("HO", "NH₂"))
    ax.clear()
    graph = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), symbols=["C", "C", "O"])  # no bond orders, so no hydrogens
    molecule_heatmap(graph, np.ones(3), ax=ax)
    assert texts(ax) == ["O"]


@pytest.mark.parametrize("hydrogens", [False, True])
def test_graphs_of_pyg_are_drawn_as_molecules(ax, hydrogens):
    graph = with_integers("CC(=O)O", with_hydrogen=hydrogens)
    molecule_heatmap(graph, np.ones(graph.num_nodes), ax=ax)
    assert texts(ax) == (["O", "O", "H", "H", "H", "H"] if hydrogens else ["O", "OH"])


def test_a_graph_that_is_not_its_smiles_is_not_drawn_as_it(ax):
    graph = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3, smiles="CCCC")
    with pytest.raises(InputError, match="symbols or smiles"):
        molecule_heatmap(graph, np.ones(3), ax=ax)


def test_svg_has_every_atom_in_its_colour():
    from walkwise.plotting import molecule_svg

    drawn = molecule_svg("CCO", [1.0, 0.0, -1.0], [1.0, -1.0])
    assert drawn.count("<ellipse") + drawn.count("class='atom-") >= 3
    assert "#D95300" in drawn.upper()
    assert "#1B5FA6" in drawn.upper()
