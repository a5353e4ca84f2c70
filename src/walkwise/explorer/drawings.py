"""Node positions and names on the page, and how edges are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from walkwise.core.node_types import NodeTypes
from walkwise.errors import MissingExtraError
from walkwise.evaluation.types import node_types
from walkwise.explorer.session import Session
from walkwise.plotting._style import Floats
from walkwise.plotting.chemistry import Skeleton, as_molecule, skeleton_of
from walkwise.plotting.layouts import graph_layout, part_that_matters
from walkwise.plotting.typed import edges_of_types, typed_labels
from walkwise.smarts import functional_groups

#: Above this many nodes, the part of a graph that matters is drawn.
MOST_DRAWN = 150

#: Up to this many node types are offered as groups.
_MOST_PARTS = 6

#: ... and of it, the nodes with at least this share of the largest relevance, and what joins them.
_LEAST = 0.02


@dataclass(frozen=True)
class Line:
    """One of the lines of an edge: how far beside the straight one it lies, as a multiple of the gap, and its kind."""

    x: float = 0.0
    y: float = 0.0
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Drawing:
    """Where things stand on the page: the screen's y grows downwards, neighbours are about 1 apart."""

    labels: tuple[str, ...]  # (M,) a name per node, perhaps empty
    places: Floats  # (number of drawn nodes, 2)
    edges: tuple[tuple[int, int], ...]  # every pair of neighbours that are drawn, once
    lines: tuple[tuple[Line, ...], ...]  # (E,) one line for an edge, or as many as a bond has
    molecule: bool = False
    names: tuple[str, ...] = ()  # (M,) what nodes are called beside their number, where that is not the label
    groups: Mapping[str, list[int]] = field(default_factory=dict)  # parts that are known beforehand
    rdkit: Any = None  # the molecule, for patterns
    shown: tuple[int, ...] | None = None  # the nodes that are drawn, ascending; None for all
    types: NodeTypes | None = None  # of a heterogeneous graph

    @property
    def nodes(self) -> Sequence[int]:
        """The nodes that are drawn, in the order of the places."""
        return range(len(self.labels)) if self.shown is None else self.shown


def draw(session: Session, data: Data | HeteroData, heat: Tensor | None = None) -> Drawing:
    """How a graph is drawn: as a molecule where its nodes are atoms and RDKit is there, else by a layout.

    Args:
        session: the model and the graphs.
        data: the graph.
        heat: the relevance of its nodes; of a large graph, those that matter are drawn.
    """
    if (types := node_types(data)) is not None:
        edges = edges_of_types(data.edge_index_dict, types)
        parts = {name: list(range(first, first + types.counts[name])) for name, first in types.offsets.items()}
        found = _graph(tuple(typed_labels(types)), torch.from_numpy(edges), heat)
        return replace(found, types=types, groups=parts if len(parts) <= _MOST_PARTS else {})
    assert isinstance(data, Data) and data.edge_index is not None
    labels, atoms = _labels(session, data)
    truth = getattr(data, "ground_truth", None)
    groups = {} if truth is None else {"motif": torch.as_tensor(truth).bool().nonzero().flatten().tolist()}
    if atoms or isinstance(getattr(data, "smiles", None), str):
        try:
            return _molecule(data, labels, groups)
        except (ValueError, MissingExtraError):  # bonds that cannot be read: still a graph
            pass
    return replace(_graph(labels, data.edge_index.cpu(), heat), groups={n: g for n, g in groups.items() if g})


def _graph(labels: tuple[str, ...], edge_index: Tensor, heat: Tensor | None) -> Drawing:
    """A graph by a layout; of a large one, the nodes that matter."""
    pairs = {(min(u, v), max(u, v)) for u, v in edge_index.t().tolist() if u != v}
    shown = None
    if heat is not None and len(labels) > MOST_DRAWN:
        weight = heat.abs().numpy()
        weight = np.where(weight >= _LEAST * weight.max(initial=0), weight, 0.0)
        kept = part_that_matters(weight, edge_index.numpy(), MOST_DRAWN)
        row = {int(node): i for i, node in enumerate(kept)}
        pairs = {pair for pair in pairs if pair[0] in row and pair[1] in row}
        shown = tuple(row)
        ends = torch.tensor([[row[u], row[v]] for u, v in pairs], dtype=torch.long).reshape(-1, 2).t()
        places = graph_layout(ends, len(row))
    else:
        places = graph_layout(edge_index, len(labels))
    edges = tuple(sorted(pairs))
    return Drawing(labels, places, edges, ((Line(),),) * len(edges), shown=shown)


def _labels(session: Session, data: Data) -> tuple[tuple[str, ...], bool]:
    """The nodes' names, empty where they have none, and whether they are atoms."""
    assert data.x is not None
    count = data.x.shape[0]
    for attribute in ("symbols", "tokens"):
        given = getattr(data, attribute, None)
        if given is not None and len(given) == count:
            return tuple(map(str, given)), attribute == "symbols"
    names = session.node_names
    if names is None or data.x.dim() != 2 or data.x.shape[1] != len(names):
        return ("",) * count, False
    return tuple(str(names[i]) for i in data.x.argmax(1).tolist()), all(len(name) <= 2 for name in names)


def _molecule(data: Data, symbols: tuple[str, ...], groups: dict[str, list[int]]) -> Drawing:
    molecule = as_molecule(data, symbols if any(symbols) else None)
    drawn = skeleton_of(molecule)
    places = drawn.places * [1, -1] / 1.5  # a bond is 1.5 ångström
    known = {**groups, **functional_groups(molecule)}
    lines = tuple(_bond(drawn, at) for at in range(len(drawn.bonds)))
    labels = tuple(letter or symbol for letter, symbol in zip(drawn.letters, drawn.symbols, strict=True))
    found = {n: g for n, g in known.items() if g}
    return Drawing(labels, places, drawn.bonds, lines, True, drawn.symbols, found, molecule)


def _bond(drawn: Skeleton, at: int) -> tuple[Line, ...]:
    """The lines of a bond: in a ring the second one lies inside, dashed where the bond is aromatic."""
    order, (x, y) = drawn.orders[at], drawn.side(at) * [1, -1]
    beside = [0.0, 1.0] if drawn.in_ring[at] else [-0.5, 0.5]
    shifts = {2.0: beside, 1.5: beside, 3.0: [-1.0, 0.0, 1.0]}.get(order, [0.0])
    return tuple(Line(float(s * x), float(s * y), order == 1.5 and i == 1) for i, s in enumerate(shifts))
