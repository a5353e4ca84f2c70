"""Names of node kinds, molecules of graphs, and one name for all subgraphs that look alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from torch import Tensor
from torch_geometric.data import Data

from walkwise.errors import WalkwiseError
from walkwise.evaluation.naming import node_labels
from walkwise.notation import molecule_of_graph
from walkwise.questions.neighbours import Ints

#: Attributes that say what every node is called.
_CALLED = ("symbols", "tokens")


def node_kinds(data: Data, names: Sequence[str] = ()) -> list[str | None]:
    """What every node is: its symbol or word, or the column of a one-hot feature; None where nobody says.

    Args:
        data: a graph; where it has no ``symbols``, those of the atoms of its ``smiles`` count.
        names: what the columns of one-hot features mean.

    >>> import torch
    >>> node_kinds(Data(torch.eye(3)[[2, 0]]), ["C", "N", "O"])
    ['O', 'C']
    >>> node_kinds(Data(torch.tensor([[0.5, 0.5], [0.0, 1.0]])))
    [None, '1']
    >>> node_kinds(Data(torch.tensor([[0.0, 1.0, 1.0]])), ["C", "N", "H2"])  # the first that holds
    ['N']
    """
    for key in _CALLED:
        if key in data and len(data[key]) == data.num_nodes:
            return [str(name) for name in data[key]]
    if atoms := node_labels(data, data.num_nodes or 0):
        return list(atoms)
    x = data.x
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] < 2:
        return [None] * (data.num_nodes or 0)
    named = list(names) if len(names) == x.shape[1] else [str(column) for column in range(x.shape[1])]
    one_hot = ((x == 0) | (x == 1)).all(dim=1) & ((x.sum(dim=1) == 1) | (len(names) == x.shape[1]))
    return [named[c] if hot else None for c, hot in zip(x.argmax(dim=1).tolist(), one_hot.tolist(), strict=True)]


def as_molecule(data: Data, kinds: Sequence[str | None]) -> Any:
    """The RDKit molecule that a graph stands for, atoms in the order of its nodes; None where it is none.

    Args:
        data: a graph, with ``smiles``, or with ``edge_attr`` or ``bond_orders`` where its bonds are known.
        kinds: the symbols of its atoms.
    """
    if find_spec("rdkit") is None or not kinds or not all(kind in _symbols() for kind in set(kinds)):
        return None
    from walkwise.plotting.chemistry import molecule_from_data

    symbols, smiles = [str(kind) for kind in kinds], getattr(data, "smiles", None)
    try:
        if isinstance(smiles, str):
            edges: Any = data.edge_index
            found = molecule_of_graph(smiles, edges.t().tolist(), data.num_nodes, symbols)
            if found is not None:
                return found
        molecule = molecule_from_data(data, symbols)
    except WalkwiseError:  # nobody says what the bonds are
        return None
    molecule.UpdatePropertyCache(strict=False)
    import_module("rdkit.Chem").FastFindRings(molecule)
    return molecule


@lru_cache(maxsize=1)
def _symbols() -> frozenset[str]:
    """The symbols of all elements."""
    table = import_module("rdkit.Chem").GetPeriodicTable()
    return frozenset(table.GetElementSymbol(number) for number in range(1, 119))


def pattern_of(nodes: Sequence[int], links: Sequence[tuple[int, int]], kinds: Sequence[Any], molecule: Any) -> str:
    """One name for all subgraphs that look alike: canonical SMILES of a molecule's part, otherwise a hash.

    Args:
        nodes: the subgraph's nodes.
        links: its edges, as pairs of positions in ``nodes``.
        kinds: what each of its nodes is.
        molecule: the RDKit molecule that the whole graph stands for, or None.
    """
    if molecule is not None:
        chem = import_module("rdkit.Chem")
        smiles: str = chem.MolFragmentToSmiles(molecule, atomsToUse=list(nodes))
        return smiles
    return wl_hash(len(nodes), links, kinds)


def wl_hash(num_nodes: int, links: Iterable[tuple[int, int]], kinds: Sequence[Any]) -> str:
    """The Weisfeiler-Lehman hash of a small graph whose nodes have kinds, the same for isomorphic graphs.

    Args:
        num_nodes: how many nodes.
        links: its edges, (u, v), from u to v.
        kinds: what each node is: (num_nodes,).

    >>> path = wl_hash(3, [(0, 1), (1, 2)], ["C", "N", "C"])
    >>> path == wl_hash(3, [(2, 0), (0, 1)], ["N", "C", "C"])
    True
    >>> path == wl_hash(3, [(0, 1), (1, 2)], ["C", "C", "N"])
    False
    """
    out: list[list[int]] = [[] for _ in range(num_nodes)]
    into: list[list[int]] = [[] for _ in range(num_nodes)]
    for u, v in set(links):
        out[u].append(v)
        into[v].append(u)
    colours = [_digest(str(kind)) for kind in kinds]
    for _ in range(max(1, num_nodes - 1)):
        colours = [
            _digest(f"{colours[n]}>{sorted(colours[v] for v in out[n])}<{sorted(colours[u] for u in into[n])}")
            for n in range(num_nodes)
        ]
    return _digest(str(sorted(colours)))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def links_within(nodes: Sequence[int], edges: Ints) -> list[tuple[int, int]]:
    """The edges between some nodes, as pairs of positions among them; self-loops do not count.

    >>> links_within([4, 2], np.array([[2, 4, 4, 1], [4, 2, 4, 2]]))
    [(1, 0), (0, 1)]
    """
    inside = np.isin(edges, nodes).all(axis=0) & (edges[0] != edges[1])
    place = {node: i for i, node in enumerate(nodes)}
    return [(place[u], place[v]) for u, v in edges[:, inside].T.tolist()]
