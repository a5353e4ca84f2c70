"""Groups of nodes that are defined in every graph: by SMARTS patterns, kinds of nodes, or marks in the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from walkwise.errors import InputError
from walkwise.files import read_json
from walkwise.notation import query_of
from walkwise.runs.batches import AnyGraph
from walkwise.smarts import FUNCTIONAL_GROUPS, RING, STRUCTURAL_ALERTS

#: Groups that are known by a name: functional groups, rings among them, and alerts for mutagenicity. As in
#: `walkwise.smarts.functional_groups`, the first functional group listed gets an atom: the OH of an acid is none.
KNOWN: dict[str, Mapping[str, Any]] = {
    "functional": FUNCTIONAL_GROUPS | {RING: "[R]"},
    "alerts": STRUCTURAL_ALERTS,
}


def as_groups(given: str) -> Mapping[str, Any]:
    """The groups that a file names, or those of chemistry.

    Args:
        given: "functional" or "alerts", or a JSON file of an object: name to a SMARTS string, to
            ``{"kinds": ["N", "O"]}``, to ``{"marked": "ground_truth"}`` (an attribute with a flag per node), or to
            ``{"nodes": [0, 1]}``.

    >>> "NO2" in as_groups("functional")
    True
    """
    if given in KNOWN:
        return KNOWN[given]
    if not given or not Path(given).is_file():
        raise InputError(
            f"There is no file of groups {given!r}.",
            argument="questions",
            expected="groups:functional, groups:alerts, or groups:FILE with a JSON file",
            got=given,
            remedy="Write groups:functional, or name a JSON file.",
        )
    found = read_json(Path(given))
    wrong = [name for name, made in found.items() if not _is_group(made)] if isinstance(found, dict) else [given]
    if wrong or not found:
        raise InputError(
            f"In {given}, {wrong[0] if wrong else 'the object'!r} is no group.",
            argument="questions",
            expected="a JSON object of groups",
            got=wrong[0] if wrong else found,
            remedy='Give a SMARTS string, or an object with one of "kinds", "marked" and "nodes".',
        )
    for name, made in found.items():
        if isinstance(made, str) and find_spec("rdkit") is not None:
            query_of(name, made)
    return dict(found)


def _is_group(made: Any) -> bool:
    if isinstance(made, str):
        return bool(made)
    if not isinstance(made, dict) or len(made) != 1:
        return False
    ((how, what),) = made.items()
    if how == "marked":
        return isinstance(what, str)
    kind = {"kinds": str, "nodes": int}.get(how)
    return kind is not None and isinstance(what, list) and all(type(item) is kind for item in what)


def find_groups(
    groups: Mapping[str, Any], data: AnyGraph, kinds: Sequence[str], molecule: Any
) -> Iterator[tuple[str, int, list[int]]]:
    """The groups that a graph has: the name, how often it is there, and all nodes of it, ascending.

    Args:
        groups: as `as_groups` gives them.
        data: the graph.
        kinds: what its nodes are; empty where nobody says.
        molecule: the RDKit molecule it stands for, or None.
    """
    apart = dict(groups) == KNOWN["functional"]
    taken: set[int] = set()
    for name, made in groups.items():
        matches = [match for match in _matches(name, made, data, kinds, molecule) if taken.isdisjoint(match)]
        if apart:
            taken.update(*matches)
        if nodes := sorted({node for match in matches for node in match}):
            yield name, len(matches), nodes


def _matches(name: str, made: Any, data: AnyGraph, kinds: Sequence[str], molecule: Any) -> list[Sequence[int]]:
    if isinstance(made, str):
        if molecule is None:
            raise InputError(
                f"The group {name!r} is a SMARTS pattern, and this graph is not a molecule.",
                argument="graphs",
                expected="molecules",
            )
        return list(molecule.GetSubstructMatches(query_of(name, made)))
    ((how, what),) = made.items()
    if how == "kinds":
        return [[node] for node, kind in enumerate(kinds) if kind in what]
    if how == "nodes":
        return [[node for node in what if node < (data.num_nodes or 0)]]
    marks = data.get(what, None) if not isinstance(data, HeteroData) else _marks_by_type(data, what, kinds)
    if not isinstance(marks, Tensor) or len(marks) != data.num_nodes:
        raise InputError(
            f"The group {name!r} needs the attribute {what}, with a flag for every node of the graph.",
            argument="graphs",
            expected=f"graphs with a flag {what} for every node",
        )
    return [marks.reshape(len(marks), -1).any(dim=1).nonzero().flatten().tolist()]


def _marks_by_type(data: HeteroData, name: str, kinds: Sequence[str]) -> Tensor | None:
    """The flags of the nodes of all types, in the order of these; types that have none are not marked."""
    held = {kind: data[kind].get(name) for kind in dict.fromkeys(kinds)}
    if not any(isinstance(marks, Tensor) for marks in held.values()):
        return None
    blank = {kind: torch.zeros(int(data[kind].num_nodes or 0), dtype=torch.bool) for kind in held}
    return torch.cat([blank[k] if m is None else m.reshape(len(m), -1).any(dim=1) for k, m in held.items()])
