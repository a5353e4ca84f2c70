"""How well an explanation agrees with a known motif."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from walkwise.errors import InputError, described
from walkwise.evaluation.selections import Nodes, as_mask, as_tensor, length_of, prefixes

#: A node set, or several alternatives: a list of node sets, or a boolean mask (K, M).
Motif = Nodes | Sequence[Nodes]


def motif_accuracy(order: Nodes, motif: Motif) -> float:
    """The fraction of nodes that are classified correctly if the first |motif| of an order are taken as the motif.

    With 25 nodes and a motif of 5, the top 5 are taken as the motif: if one of them is wrong, one node is missed and
    one is a false alarm, an accuracy of 23/25. With several motifs the best one counts.

    Args:
        order: a permutation (M,) of the nodes, most important first.
        motif: the motif's nodes, or several alternatives.

    >>> motif_accuracy([4, 0, 3, 1, 2], [3, 4])
    0.6
    >>> motif_accuracy([4, 0, 3, 1, 2], [[3, 4], [0, 4]])
    1.0
    """
    M = length_of(order)
    tops = prefixes(order, M)
    found = []
    for truth in _alternatives(motif, M):
        top = tops[int(truth.sum()) - 1]
        found.append(float((top == truth).double().mean()))
    return max(found)


def motif_auroc(scores: Tensor | Sequence[float], motif: Motif) -> float:
    """The area under the ROC curve of node scores as a detector of the motif.

    It is the probability that a node of the motif scores above a node outside it, with ties counted as one half. With
    several motifs the best one counts. For an order use :func:`~walkwise.evaluation.scores_of_order`.

    Args:
        scores: a score per node, (M,), higher for more important.
        motif: the motif's nodes, or several alternatives; at least one node, and not all.

    >>> motif_auroc([0.9, 0.1, 0.8, 0.3], [0, 3])
    0.75
    """
    expected = "a number for every node, of shape (M,)"
    values = as_tensor(scores, "scores", expected).double()
    if values.dim() != 1:
        raise InputError(argument="scores", expected=expected, got=described(values))
    if bool(values.isnan().any()):
        raise InputError(
            "scores has NaN entries.",
            argument="scores",
            expected="free of NaN",
            remedy="Give a node without a score a number, such as the lowest.",
        )
    return max(_auroc(values, truth) for truth in _alternatives(motif, len(values)))


def _alternatives(motif: Any, num_nodes: int) -> list[Tensor]:
    """The motifs as masks, one or several."""
    listed = isinstance(motif, Sequence | np.ndarray) and len(motif) > 0
    several = motif.dim() == 2 if isinstance(motif, Tensor) else listed and hasattr(motif[0], "__len__")
    masks = [as_mask(one, num_nodes, "motif") for one in (motif if several else [motif])]
    if not masks or any(not bool(mask.any()) for mask in masks):
        raise InputError(argument="motif", expected="at least one node", got=motif)
    return masks


def _auroc(scores: Tensor, truth: Tensor) -> float:
    """The Mann-Whitney statistic divided by its largest value."""
    inside, outside = scores[truth], scores[~truth]
    if len(outside) == 0:
        raise InputError(
            "The motif is the whole graph: there is nothing to distinguish it from.",
            argument="motif",
            expected="a part of the graph",
        )
    wins = (inside[:, None] > outside).double() + 0.5 * (inside[:, None] == outside).double()
    return float(wins.mean())
