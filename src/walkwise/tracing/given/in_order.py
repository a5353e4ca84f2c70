"""Models that take edges before features, ``forward(adj, h)``, and calls in that order."""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch import Tensor
from torch_geometric.utils import is_sparse

from walkwise.tracing.given.signatures import ordered_names
from walkwise.tracing.running.found import is_edges

#: In names of what belongs to edges, or to graphs, and is neither edges nor features of nodes.
_OF_EDGES = ("attr", "weight", "type", "label", "batch")
#: What names of edges begin with, or a word in them: ``A_hat``, not ``Atoms``; ``full_edges``, not ``knowledge``.
_MATRIX, _WORDS = re.compile("A(?![a-z])"), re.compile("(?:^|_|hyper)(?:adj|edge)", re.IGNORECASE)


def edges_first(parameters: list[inspect.Parameter]) -> tuple[str, str] | None:
    """What a ``forward`` calls the features and the edges, in this order, if it takes the edges first.

    >>> edges_first(list(inspect.signature(lambda adj, h: 0).parameters.values()))
    ('h', 'adj')
    """
    names = ordered_names(parameters)[:2]
    first = [may_be_edges(name) for name in names] == [True, False]
    return (names[1], names[0]) if first and not any(part in names[1] for part in ("edge", *_OF_EDGES)) else None


def are_turned(x: Any, edge_index: Any) -> bool:
    """Whether edges were given first and features after them; of two square matrices it cannot be told."""
    return _are_features(edge_index) and _are_edges_of(x, edge_index)


def are_told(x: Any, edge_index: Any) -> bool:
    """Whether x is features and edge_index edges, and nothing else."""
    return _are_features(x) and _are_edges_of(edge_index, x)


def may_be_edges(name: str) -> bool:
    """Whether a parameter goes by a name of edges: ``adj``, ``edges``, ``A_hat``."""
    by_edge = any(part in name for part in ("feat", *_OF_EDGES))
    return bool(_MATRIX.match(name) or (_WORDS.search(name) and not by_edge))


def is_square(item: Any) -> bool:
    """Whether something is a square matrix, or one of a batch of one, as an adjacency is."""
    return isinstance(item, Tensor) and item.dim() in (2, 3) and item.shape[-1] == item.shape[-2]


def _are_features(item: Any) -> bool:
    return isinstance(item, Tensor) and not is_sparse(item) and item.is_floating_point()


def _are_edges_of(edges: Any, x: Tensor) -> bool:
    """Whether something is edges of nodes with these features, which are no square matrix themselves."""
    if is_edges(edges) or is_sparse(edges):
        return True
    square, rows = edges.shape[-2:] if isinstance(edges, Tensor) else (), x.shape[-2:]
    if len(square) != 2 or square[0] != square[1]:
        return False
    several = edges.dim() == 2 < x.dim()  # on one graph, whose nodes may lie along any dimension
    return square[0] in x.shape if several else len(rows) == 2 and square[0] == rows[0] != rows[1]
