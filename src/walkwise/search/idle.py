"""Nodes on no walk, which change nothing but still have a place in an order of all nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from walkwise.questions.bookkeeping import spans
from walkwise.questions.graphs import PaddedGraphs
from walkwise.questions.neighbours import Floats, Ints
from walkwise.search.greedy import Contributions, Criterion, greedy_orders


class IdleNodes:
    """The nodes of a graph that are not among some, in runs of neighbouring ids.

    A choice that changes nothing leaves the next one as it was, so that once the first node of a run is chosen the rest
    of it follows: a run is one candidate, whose choice never changes R_α.
    """

    def __init__(self, nodes: Ints, num_nodes: int) -> None:
        """The runs between some nodes, which ascend.  # (K,)"""
        self.num_nodes = num_nodes
        before = np.concatenate([[-1], nodes])
        gaps = np.concatenate([nodes, [num_nodes]]) - before - 1
        first, count = np.concatenate([nodes, before[gaps > 0] + 1]), np.ones(len(nodes) + (gaps > 0).sum(), np.int64)
        count[len(nodes) :] = gaps[gaps > 0]
        order = np.argsort(first)
        self.first, self.count = first[order], count[order]  # (C,) of all candidates, by id
        self.row = np.where(order < len(nodes), order, -1)  # (C,) which of the nodes each is
        self.place = np.flatnonzero(self.row >= 0)  # (K,)

    def order(self, contributions: Contributions, criterion: Criterion, shown: Callable[[int], Iterable[int]]) -> Ints:
        """The order of all nodes, given what the others contribute: (A, M).

        Args:
            contributions: of the nodes with rows.
            criterion: what is best.
            shown: the steps, perhaps with a bar, given how many there are.
        """
        beside = _Beside(contributions, self.row, self.place)
        (order,) = greedy_orders(
            beside, replace(criterion, graphs=PaddedGraphs.alone(len(self.row))), shown(len(self.row))
        )
        return np.stack([spans(self.first[chosen], self.count[chosen])[0] for chosen in order])


class _Beside:
    """Contributions of some candidates, and of others that contribute nothing."""

    def __init__(self, some: Contributions, row: Ints, place: Ints) -> None:
        self.some, self.row, self.place = some, row, place
        self.change: Floats = np.zeros((len(some.change), len(row)))
        self.change[:, place] = some.change
        self.rounding = some.rounding

    def choose(self, a: Ints, place: Ints) -> None:
        """Pass on what is chosen of those that contribute."""
        row = self.row[place]
        a, row = a[row >= 0], row[row >= 0]
        if len(row):
            self.some.choose(a, row)
            self.some.change[a, row] = np.nan
            self.change[:, self.place] = self.some.change
            self.rounding = self.some.rounding
