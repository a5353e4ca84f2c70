"""Nodes of several types: in one numbering, drawn with a shape per type, named, and explained by a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch_geometric.data import HeteroData

from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError, described
from walkwise.plotting import _style as style
from walkwise.plotting._style import Floats, Ints

#: The shapes of types, in order, each with how wide it is drawn to look as large as a disc.
SHAPES = (("o", 1.0), ("s", 0.88), ("D", 0.78), ("^", 1.12), ("h", 1.05), ("v", 1.12), ("p", 1.08), ("8", 1.0))

#: Up to this many nodes there is room for a type and a number below each.
_MOST_NAMES = 40


def types_of_scores(node_scores: Any, edge_index: Any) -> NodeTypes | None:
    """The types that scores by type name, (M_t,) each; None where nodes are of one type.

    Args:
        node_scores: scores, or {type: scores}.
        edge_index: edges, or {(source type, relation, target type): edges}.
    """
    if not isinstance(node_scores, Mapping):
        if isinstance(edge_index, Mapping):
            raise InputError(
                argument="node_scores", expected="by type, as edge_index is: {type: scores}", got=described(node_scores)
            )
        return None
    counts = {name: len(style.numbers(scores, f"node_scores[{name!r}]")) for name, scores in node_scores.items()}
    return NodeTypes(counts, _edge_counts(edge_index, counts))


def types_of_structure(structure: Any, walks: Any) -> NodeTypes | None:
    """The types of a HeteroData, of edges by type, or of walks whose nodes are (type, i); None where there are none.

    Args:
        structure: what the walks go through.
        walks: the walks.
    """
    if isinstance(structure, HeteroData):
        counts = {name: int(structure[name].num_nodes or 0) for name in structure.node_types}
        return NodeTypes(counts, _edge_counts(structure.edge_index_dict, counts))
    named = [node for walk in walks for node in walk if isinstance(node, tuple)] if _is_named(walks) else []
    if not named and not isinstance(structure, Mapping):
        return None
    most: dict[str, int] = {}
    for (source, _, target), edges in structure.items() if isinstance(structure, Mapping) else ():
        for name, ends in zip((source, target), np.asarray(edges), strict=True):
            most[name] = max(most.get(name, 0), int(ends.max(initial=-1)) + 1)
    for name, i in named:
        most[name] = max(most.get(name, 0), int(i) + 1)
    return NodeTypes(most, _edge_counts(structure, most) if isinstance(structure, Mapping) else None)


def _is_named(walks: Any) -> bool:
    return isinstance(walks, list | tuple) and any(
        isinstance(node, tuple) for walk in walks if isinstance(walk, list | tuple) for node in walk
    )


def _edge_counts(edge_index: Any, counts: Mapping[str, int]) -> dict[tuple[str, str, str], int]:
    if not isinstance(edge_index, Mapping):
        raise InputError(
            argument="edge_index",
            expected="by type, as the nodes are: {(source type, relation, target type): edges}",
            got=described(edge_index),
        )
    for kind in edge_index:
        strange = [kind] if not isinstance(kind, tuple) or len(kind) != 3 else [k for k in kind[::2] if k not in counts]
        if strange:
            raise InputError(
                argument="edge_index", expected=f"between nodes of types {', '.join(map(repr, counts))}", got=kind
            )
    return {kind: np.asarray(edges).shape[-1] for kind, edges in edge_index.items()}


def edges_of_types(edge_index: Mapping[Any, Any], types: NodeTypes) -> Ints:
    """All edges, between nodes in one row.  # (2, E)"""
    parts = []
    for kind, edges in edge_index.items():
        first = np.array([[types.offsets[kind[0]]], [types.offsets[kind[2]]]])
        last = [types.counts[kind[0]], types.counts[kind[2]]]
        given = style.edges_of(edges, max(last))
        if (given >= np.array(last)[:, None]).any():
            raise InputError(
                argument=f"edge_index[{kind!r}]",
                expected=f"ids from 0 to {last[0] - 1} above ids from 0 to {last[1] - 1}",
                got=given.max(axis=1).tolist(),
            )
        parts.append(given + first)
    return np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), dtype=np.int64)


def in_one_row(values: Any, keys: Sequence[Any], name: str) -> Any:
    """Values by type one after the other, in the order of the keys; what is not by type stays as it is.

    >>> in_one_row({"item": [3.0], "user": [1.0, 2.0]}, ["user", "item"], "scores").tolist()
    [1.0, 2.0, 3.0]
    """
    if not isinstance(values, Mapping):
        return values
    if set(values) != set(keys):
        raise InputError(argument=name, expected=f"by the types {', '.join(map(repr, keys))}", got=list(values))
    parts = [values[key] for key in keys]
    if parts and all(isinstance(text, str) for part in parts for text in part):
        return [text for part in parts for text in part]
    return np.concatenate([style.numbers(part, f"{name}[{key!r}]") for key, part in zip(keys, parts, strict=True)])


def kinds_of(types: NodeTypes) -> Ints:
    """Which type every node is, by its place among them.  # (M,)"""
    return np.repeat(np.arange(len(types.counts)), list(types.counts.values()))


def draw_nodes(ax: Axes, places: Floats, diameter: float, kinds: Ints | None, **look: Any) -> None:
    """A mark for every node, in the shape of its type.

    Args:
        ax: where to draw.
        places: where the nodes are, (M, 2).
        diameter: how wide a disc is, in points.
        kinds: which type each is, (M,); None for discs.
        **look: what ``Axes.scatter`` takes; lists have an entry per node.
    """
    for kind in [0] if kinds is None else np.unique(kinds).tolist():
        at = np.arange(len(places)) if kinds is None else np.flatnonzero(kinds == kind)
        shape, width = SHAPES[kind % len(SHAPES)]
        mine: dict[str, Any] = {
            k: [v[i] for i in at] if isinstance(v, list | np.ndarray) else v for k, v in look.items()
        }
        x, y = places[at].T
        ax.scatter(x, y, s=(width * diameter) ** 2, marker=shape, **mine)


def shape_legend(ax: Axes, types: NodeTypes) -> None:
    """Above the axes, which shape is which type."""
    look: dict[str, Any] = {"ls": "", "mfc": "white", "mec": style.GREY, "mew": 0.8}
    marks = [(name, *SHAPES[i % len(SHAPES)]) for i, name in enumerate(types.counts)]
    handles = [Line2D([], [], marker=shape, ms=7 * width, label=name, **look) for name, shape, width in marks]
    room: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": min(len(types.counts), 4)}
    tight: dict[str, Any] = {"handletextpad": 0.2, "columnspacing": 1.2, "borderpad": 0.2, "frameon": False}
    ax.legend(handles=handles, fontsize=style.SMALL, **room, **tight)


def typed_labels(types: NodeTypes, given: Any = None) -> Any:
    """What nodes are called: as given by type, or else "user 0", and where they are many, their number alone.

    >>> typed_labels(NodeTypes({"user": 1, "item": 2}))
    ['user 0', 'item 0', 'item 1']
    """
    if given is not None:
        return in_one_row(given, list(types.counts), "labels")
    names = types.written(range(types.num_nodes))
    return names if len(names) <= _MOST_NAMES else [name.rpartition(" ")[2] for name in names]
