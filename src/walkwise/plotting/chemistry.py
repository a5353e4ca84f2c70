"""Molecules from graphs and strings: bond orders, charges, positions on paper. Needs RDKit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from walkwise.errors import Described, InputError, described
from walkwise.notation import molecule_of, molecule_of_graph, rdkit_chem
from walkwise.plotting import _style as style
from walkwise.plotting._style import Bools, Floats, Ints, Numbers

#: What the columns of edge_attr mean in MUTAG (four) and in Mutagenicity (three).
_KNOWN_BONDS = {4: ("aromatic", "single", "double", "triple"), 3: ("single", "double", "triple")}
#: Set on a molecule whose bonds are all taken to be single, so that nobody knows how many hydrogens it has.
_NO_ORDERS = "_walkwise_no_orders"
_ORDERS = {"single": 1.0, "aromatic": 1.5, "double": 2.0, "triple": 3.0}


@dataclass(frozen=True, eq=False)
class Skeleton:
    """What is drawn of a molecule; lengths in ångström."""

    places: Floats  # (M, 2)
    symbols: tuple[str, ...]
    letters: tuple[str, ...]  # what stands at each atom; nothing at most carbons
    bonds: tuple[tuple[int, int], ...]
    orders: tuple[float, ...]  # 1, 1.5 (aromatic), 2 or 3
    in_ring: Bools  # (number of bonds,)
    inward: Floats  # (number of bonds, 2) the middle of the smallest ring, or of the neighbours, that a bond bounds

    def side(self, bond: int) -> Floats:
        """The unit vector across a bond, to the side where its second line goes."""
        a, b = self.places[list(self.bonds[bond])]
        across = np.array([a[1] - b[1], b[0] - a[0]])
        across = across / max(float(np.hypot(*across)), 1e-9)
        return across if across @ (self.inward[bond] - (a + b) / 2) >= 0 else -across


def molecule_from_data(data: Any, symbols: Sequence[str], *, bonds: Sequence[str] | None = None) -> Any:
    """Build the RDKit molecule of a graph, with atoms in the order of its nodes.

    Bond orders come from ``edge_attr``, or from ``bond_orders`` if the graph has that, as graphs from SMILES do;
    without either, every bond is single. Nitrogens with four bonds get their charge, and so do the oxygens at the end
    of a single bond to one, as in nitro groups. An invalid molecule (with impossible valences, as in some data sets) is
    returned as it is, not sanitised.

    Args:
        data: has ``edge_index`` (2, E) and perhaps ``edge_attr``: one-hot (E, K), or numbers from 0, (E,); or
            ``bond_orders``: 1, 2, 3, or 1.5 for an aromatic bond, (E,), which take precedence.
        symbols: the chemical symbol of every atom, (M,): ``["CNO"[i] for i in data.x.argmax(1)]``.
        bonds: what each column of ``edge_attr`` means, of "single", "double", "triple" and "aromatic". By
            default, if they are one-hot, those of MUTAG if there are four and those of Mutagenicity if there are three.

    >>> import pytest, torch
    >>> Chem = pytest.importorskip("rdkit.Chem")
    >>> from torch_geometric.data import Data
    >>> edge_index, order = torch.tensor([[0, 1, 1], [1, 2, 3]]), torch.tensor([0, 1, 0])
    >>> graph = Data(edge_index=edge_index, edge_attr=order)
    >>> Chem.MolToSmiles(molecule_from_data(graph, ["C", "N", "O", "O"], bonds=["single", "double"]))
    'C[N+](=O)[O-]'
    """
    chem = rdkit_chem()
    pairs, kinds = _bonds_of(data, len(symbols), bonds)
    molecule = chem.RWMol()
    for symbol in symbols:
        molecule.AddAtom(_atom(chem, symbol))
    types = {name: getattr(chem.BondType, name.upper()) for name in _ORDERS}
    for (a, b), kind in zip(pairs.tolist(), kinds, strict=True):
        molecule.AddBond(a, b, types[kind])
        if kind == "aromatic":
            molecule.GetBondBetweenAtoms(a, b).SetIsAromatic(True)
            molecule.GetAtomWithIdx(a).SetIsAromatic(True)
            molecule.GetAtomWithIdx(b).SetIsAromatic(True)
    _set_charges(molecule)
    if getattr(data, "bond_orders", None) is None and getattr(data, "edge_attr", None) is None:
        molecule.SetBoolProp(_NO_ORDERS, True)
    return _sanitised(molecule.GetMol())


def molecule_layout(molecule: Any) -> Floats:
    """The positions at which :func:`molecule_heatmap` draws the atoms, in ångström: (M, 2).

    Args:
        molecule: an RDKit molecule, a SMILES string, or a ``Data`` with ``symbols`` or ``smiles``. Two-dimensional
            coordinates that a molecule has are kept.

    >>> import pytest
    >>> _ = pytest.importorskip("rdkit")
    >>> molecule_layout("CCO").shape
    (3, 2)
    """
    return skeleton_of(molecule).places


def skeleton_of(molecule: Any) -> Skeleton:
    """What is drawn of an RDKit molecule, a SMILES string, or a graph with symbols."""
    found = _placed(as_molecule(molecule))
    places = np.asarray(found.GetConformer().GetPositions(), dtype=np.float64)[:, :2]
    bonds = tuple((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in found.GetBonds())
    rings = sorted(found.GetRingInfo().AtomRings(), key=len)
    inward, in_ring = np.zeros((len(bonds), 2)), np.zeros(len(bonds), dtype=bool)
    for i, (a, b) in enumerate(bonds):
        around = [ring for ring in rings if a in ring and b in ring]
        near = [atom.GetIdx() for end in (a, b) for atom in found.GetAtomWithIdx(end).GetNeighbors()]
        in_ring[i], inward[i] = bool(around), places[list(around[0]) if around else near].mean(0)
    orders = tuple(float(bond.GetBondTypeAsDouble()) for bond in found.GetBonds())
    symbols = tuple(atom.GetSymbol() for atom in found.GetAtoms())
    letters = tuple(_letter(atom) for atom in found.GetAtoms())
    return Skeleton(places, symbols, letters, bonds, orders, in_ring, inward)


def bond_numbers(drawn: Skeleton, scores: Numbers, edge_index: Numbers | None) -> Floats:
    """A score per bond, from one per bond or one per edge.  # (number of bonds,)"""
    if edge_index is None:
        return style.numbers(scores, "bond_scores", len(drawn.bonds))
    edges = style.edges_of(edge_index, len(drawn.symbols))
    values = style.numbers(scores, "bond_scores", edges.shape[1])
    where = {frozenset(pair): i for i, pair in enumerate(drawn.bonds)}
    heat = np.zeros(len(drawn.bonds))
    for u, v, value in zip(*edges.tolist(), values, strict=True):
        if u != v and frozenset((u, v)) not in where:
            raise InputError(
                f"edge_index has an edge from {u} to {v}, but the molecule has no bond there.",
                argument="edge_index",
                expected="edges along bonds",
                got=(u, v),
            )
        if u != v:
            heat[where[frozenset((u, v))]] += value
    return heat


def as_molecule(given: Any, symbols: Sequence[str] | None = None) -> Any:
    """The RDKit molecule of a molecule, a SMILES string, or a graph, whose nodes are its atoms.

    Args:
        given: an RDKit molecule, a SMILES string, or a Data with ``smiles`` or ``symbols``, or with symbols given.
        symbols: the chemical symbol of every atom of a Data that does not name them.
    """
    chem = rdkit_chem()
    if isinstance(given, chem.Mol):
        return given
    if isinstance(given, str):
        return molecule_of(given)
    if hasattr(given, "edge_index"):
        given = _one_graph(given)
        symbols = symbols or getattr(given, "symbols", None)
        smiles = getattr(given, "smiles", None)
        if isinstance(smiles, str):
            edges = torch.as_tensor(given.edge_index).t().tolist()
            found = molecule_of_graph(smiles, edges, given.num_nodes, symbols)
            if found is not None:
                return found
        if symbols is not None:
            return molecule_from_data(given, symbols)
    raise InputError(
        argument="molecule",
        expected="an RDKit molecule, a SMILES string, or a Data with edge_index and either symbols or smiles",
        got=described(given),
        remedy="For a Data without them: molecule_from_data(data, symbols).",
    )


def _one_graph(given: Any) -> Any:
    """The graph itself, if a loader made a batch of it alone; a batch of several is refused."""
    from torch_geometric.data import Batch

    if not isinstance(given, Batch):
        return given
    if given.num_graphs != 1:
        raise InputError(
            argument="molecule",
            expected="one molecule",
            got=Described(f"a batch of {given.num_graphs}"),
            remedy="Draw each by itself: for data in batch.to_data_list(), or batch[0].",
        )
    return given[0]


def _placed(given: Any) -> Any:
    """A copy of a molecule with rings known and two-dimensional coordinates."""
    molecule = rdkit_chem().Mol(given)
    molecule.UpdatePropertyCache(strict=False)
    rdkit_chem().GetSymmSSSR(molecule)
    if not molecule.GetNumConformers() or molecule.GetConformer().Is3D():
        depict = import_module("rdkit.Chem.rdDepictor")
        depict.Compute2DCoords(molecule)
        if molecule.GetNumAtoms() > 1:
            depict.NormalizeDepiction(molecule, canonicalize=1)
            depict.StraightenDepiction(molecule)
    return molecule


def _letter(atom: Any) -> str:
    """The text at an atom: symbol, hydrogens and charge; for carbons only if nothing else would show them.

    Hydrogens stand as chemists write them: OH and NH₂, but HO and H₂N where the bond leaves to the right.
    """
    charge, known = atom.GetFormalCharge(), not atom.GetOwningMol().HasProp(_NO_ORDERS)
    hydrogens = atom.GetTotalNumHs() if known else 0
    if atom.GetSymbol() == "C" and not charge and atom.GetDegree():
        return ""
    sign = "" if not charge else ("⁺" if charge > 0 else "⁻")
    number = "₂₃₄"[hydrogens - 2] if hydrogens > 1 else ""
    written = f"H{number}" if hydrogens else ""
    end = f"{'²³⁴⁵'[abs(charge) - 2] if abs(charge) > 1 else ''}{sign}"
    symbol = atom.GetSymbol()
    return f"{written}{symbol}{end}" if written and _leaves_right(atom) else f"{symbol}{written}{end}"


def _leaves_right(atom: Any) -> bool:
    """Whether the bonds of an atom leave to the right, so that hydrogens stand to its left."""
    here = atom.GetOwningMol().GetConformer().GetAtomPosition(atom.GetIdx()).x
    places = (atom.GetOwningMol().GetConformer().GetAtomPosition(n.GetIdx()).x for n in atom.GetNeighbors())
    return bool(sum(place - here for place in places) > 1e-3)


def _atom(chem: Any, symbol: str) -> Any:
    try:
        return chem.Atom(symbol)
    except RuntimeError:
        raise InputError(
            argument="symbols", expected="chemical symbols such as 'C' and 'Cl', one per atom", got=symbol
        ) from None


def _bonds_of(data: Any, num_atoms: int, names: Sequence[str] | None) -> tuple[Ints, list[str]]:
    """The pairs of bonded atoms, each once, and the kind of every bond.  # (P, 2)"""
    edges = style.edges_of(data.edge_index, num_atoms)
    orders = getattr(data, "bond_orders", None)
    attributes = getattr(data, "edge_attr", None)
    kinds = _kinds(attributes, edges.shape[1], names) if orders is None else _named(orders, edges.shape[1])
    once: dict[tuple[int, int], str] = {}
    for u, v, kind in zip(*edges.tolist(), kinds, strict=True):
        if u != v:
            once.setdefault((min(u, v), max(u, v)), kind)
    return np.array(list(once), dtype=np.int64).reshape(-1, 2), list(once.values())


def _kinds(edge_attr: Any, num_edges: int, names: Sequence[str] | None) -> list[str]:
    if edge_attr is None:
        return ["single"] * num_edges
    given = torch.as_tensor(edge_attr).cpu()
    columns = given if given.dim() == 2 and given.shape[1] > 1 else None
    which = given.reshape(-1).long() if columns is None else columns.argmax(1)
    if names is None and (columns is None or _one_hot(columns)):
        names = _KNOWN_BONDS.get(0 if columns is None else columns.shape[1])
    if names is None or not set(names) <= set(_ORDERS):
        by_names = "" if names is None else f" from {names}"
        raise InputError(
            f"What the entries of edge_attr {tuple(given.shape)} mean is not known{by_names}.",
            argument="bonds",
            expected=f"a list of {', '.join(_ORDERS)}, in the order of edge_attr",
            got=names,
            remedy=f'Name the bonds in order, as in bonds=["single", "double"]; the names are {", ".join(_ORDERS)}. '
            "For other features of bonds, set data.bond_orders.",
        )
    if len(which) != num_edges or (num_edges and not 0 <= int(which.min()) <= int(which.max()) < len(names)):
        expected = f"one of {len(names)} bonds for each of {num_edges} edges"
        raise InputError(argument="edge_attr", expected=expected, got=described(given))
    return [names[i] for i in which.tolist()]


def _one_hot(rows: Any) -> bool:
    """Whether every row has a single 1, and zeros; features of bonds, as PyG's from_smiles gives them, do not."""
    return bool(((rows == 0) | (rows == 1)).all()) and bool((rows.sum(1) == 1).all())


def _named(orders: Any, num_edges: int) -> list[str]:
    """The kinds of bonds whose orders are known."""
    given = torch.as_tensor(orders).reshape(-1).tolist()
    names = {order: name for name, order in _ORDERS.items()}
    if len(given) != num_edges or not set(given) <= set(names):
        some = ", ".join(f"{order:g}" for order in sorted(set(given))[:6])
        raise InputError(
            argument="bond_orders",
            expected=f"1, 2, 3 or 1.5 (aromatic) for each of {num_edges} edges",
            got=Described(f"{len(given)} numbers, among them {some}"),
        )
    return [names[order] for order in given]


def _set_charges(molecule: Any) -> None:
    """Charges that graphs leave out: N with four bonds, and O at the end of a single bond to it."""
    for atom in molecule.GetAtoms():
        orders = sorted(bond.GetBondTypeAsDouble() for bond in atom.GetBonds())
        if atom.GetSymbol() != "N" or sum(orders) != 4:
            continue
        atom.SetFormalCharge(1)
        ends = [n for n in atom.GetNeighbors() if n.GetSymbol() == "O" and n.GetDegree() == 1]
        for end in ends:
            if molecule.GetBondBetweenAtoms(atom.GetIdx(), end.GetIdx()).GetBondTypeAsDouble() == 1:
                end.SetFormalCharge(-1)


def _sanitised(molecule: Any) -> Any:
    """The molecule with valences and rings worked out, or as it is where that cannot be."""
    chem = rdkit_chem()
    tried = chem.Mol(molecule)
    quiet = chem.rdBase.BlockLogs()
    failed = chem.SanitizeMol(tried, catchErrors=True)
    del quiet
    return molecule if failed else tried
