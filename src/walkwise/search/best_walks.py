"""The most relevant walks, exactly: from a table of all walks if there are few, by best-first search otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.core.sending import sent
from walkwise.display import arrows, count, html_box, html_table
from walkwise.errors import InputError, as_count, as_limit
from walkwise.questions.bookkeeping import (
    counted,
    counting,
    largest,
    places,
    places_ascending,
    read,
    repeated,
    row_maximum,
    rows,
    stacked,
)
from walkwise.questions.graphs import PaddedGraphs, as_graphs
from walkwise.questions.neighbours import Ints
from walkwise.questions.partial_walks import Stages, stages
from walkwise.questions.parts import asked_of_part, named
from walkwise.questions.steps import WalkSteps, walk_steps
from walkwise.questions.ties import order_of_ties, rounding, tie_runs, ties_in_order
from walkwise.questions.walk_tables import FEW_WALKS, ListedWalks, listed_walks
from walkwise.questions.walks import walk_relevance
from walkwise.search.best_first import SearchLimitError, best_first_search

__all__ = ["SearchLimitError", "TopWalks", "top_walks"]

By = Literal["relevance", "magnitude"]


@dataclass(frozen=True, eq=False)
class TiedWalks:
    """Walks that have the same relevance, which are common in symmetric graphs."""

    walks: Tensor  # (T, L + 1)
    relevance: float  # of each
    complete: bool  # whether these are all: more walks may tie with the last one that was asked for
    types: NodeTypes | None = None  # of a heterogeneous graph

    @property
    def amount(self) -> str:
        """How many they are.

        >>> TiedWalks(torch.zeros(8, 4), 0.071, complete=False).amount
        '8 walks or more'
        """
        return count(len(self.walks), "walk") + ("" if self.complete else " or more")

    def words(self, labels: Sequence[str] = (), *, most: int = 1) -> str:
        """The first of the walks, from input to output, and how many more there are.

        Args:
            labels: names of the nodes, shown beside their numbers; none for numbers alone.
            most: the number of walks to write out.

        >>> TiedWalks(torch.tensor([[0, 1, -1], [2, 1, -1]]), 0.5, complete=True).words(["O", "N", "O"])
        '0 O → 1 N → – and 1 more'
        """
        named = [f"{i} {label}".strip() for i, label in enumerate(labels)]
        written = [
            arrows("–" if i < 0 else named[i] if named else str(i) for i in walk)
            if self.types is None
            else arrows(self.types.written(walk))
            for walk in self.walks[:most].tolist()
        ]
        left = len(self.walks) - len(written)
        return "; ".join(written) + (f" and {left} more" if left else "")


@dataclass(frozen=True, eq=False, repr=False)
class TopWalks:
    """The k most relevant walks, best first (ties in lexicographic order), and how they were found."""

    walks: Tensor  # (k, L + 1), -1 where a walk bypasses a position
    relevance: Tensor  # (k,)
    expansions: int  # partial walks continued by a search, 0 where all walks were listed
    num_walks: int  # how many walks there are
    route: str = ""  # how they were found, in words
    types: NodeTypes | None = None  # of a heterogeneous graph

    @property
    def named(self) -> list[list[TypedNode | None]]:
        """The walks of a heterogeneous graph by the types of their nodes: (type, i), or None where one passes by."""
        return [] if self.types is None else [self.types.walk(walk) for walk in self.walks]

    @property
    def tied(self) -> list[TiedWalks]:
        """The same walks, those that follow each other with the same relevance together, best first."""
        scores, rounded = self.relevance.tolist(), rounding(self.relevance.dtype)
        runs = tie_runs(scores, rounded)
        starts = sorted(set(runs))
        ends = [*starts[1:], len(runs)][: len(starts)]
        whole = len(self.walks) == self.num_walks
        return [
            TiedWalks(self.walks[a:b], scores[a], whole or b < len(runs), self.types)
            for a, b in zip(starts, ends, strict=True)
        ]

    def __repr__(self) -> str:
        """How many, the best, and the route."""
        first = self.walks[:1].tolist() if self.types is None else self.named[:1]
        best = f", the first {first[0]} with {float(self.relevance[0]):.4g}" if first else ""
        return f"TopWalks({len(self.walks)} of {self.num_walks:,} walks{best}; {self.route})"

    def _repr_html_(self) -> str:
        """A table for notebooks: walks that tie share a line."""
        rows = [(tie.words(), tie.amount, tie.relevance) for tie in self.tied]
        title = f"{count(len(self.walks), 'walk')} of {self.num_walks:,}"
        note = f"A walk is written from input to output. {self.route.capitalize()}."
        return html_box(html_table(["walk", ">how many", ">relevance of each"], rows, title=title, note=note))


@overload
def top_walks(
    chain: RelevanceChain,
    k: int,
    *,
    by: By = ...,
    graphs: None = ...,
    max_expansions: int = ...,
    progress: bool | None = ...,
) -> TopWalks: ...


@overload
def top_walks(
    chain: RelevanceChain,
    k: int,
    *,
    by: By = ...,
    graphs: Tensor,
    max_expansions: int = ...,
    progress: bool | None = ...,
) -> list[TopWalks]: ...


@without_gradients
@asked_of_part(lambda chain, found: replace(found, walks=named(chain, found.walks)))
def top_walks(
    chain: RelevanceChain,
    k: int,
    *,
    by: By = "relevance",
    graphs: Tensor | None = None,
    max_expansions: int = 100_000,
    progress: bool | None = None,
) -> TopWalks | list[TopWalks]:
    """Return the k walks of largest relevance R(m), or of largest |R(m)|, exactly.

    Up to half a million walks are listed. If there are more, partial walks are continued in the order of their bounds,

        max over completions of R ≤ Σ_n max(g_n, 0) upper_n + min(g_n, 0) lower_n,

    until no bound exceeds the k-th best walk found. Near the input, where completions are few, all of them are kept and
    the bound is exact. ``route`` of the result says which way was taken.

    Of walks that tie, the lexicographically smallest comes first. Walks tie if their relevance (or magnitude) equals
    that of the first of them up to a relative 1e-9 in float64 and 1e-6 in float32, so that rounding does not decide. If
    the k-th walk ties with walks that are left out, it is not defined which of them are among the k: that would require
    finding all of them.

    Args:
        chain: the traced prediction, with or without skip connections.
        k: the number of walks; fewer are returned if there are fewer.
        by: "relevance" (largest first) or "magnitude" (largest absolute value first).
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then the answer is a
            list with the walks of each graph, in the chain's node ids.
        max_expansions: if the search continues more partial walks than this, it raises :class:`SearchLimitError`, which
            says what the open ones may still reach.
        progress: show how many partial walks have been continued, the k-th best walk, and what the open ones may reach;
            by default only if a search takes more than two seconds.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=3, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> best = top_walks(chain, k=2)
    >>> best.walks.shape, best.num_walks, best.route
    (torch.Size([2, 4]), 17, 'all 17 walks listed')
    >>> bool(torch.isclose(best.relevance[0], ww.walk_relevance(chain, ww.enumerate_walks(chain)).max()))
    True
    """
    k, max_expansions = as_count(k, "k", "the number of walks"), as_limit(max_expansions, "max_expansions")
    if by not in ("relevance", "magnitude"):
        raise InputError(argument="by", expected='"relevance" or "magnitude"', got=by)
    separate, ending = as_graphs(chain, graphs), stages(chain).most_ending
    if ending.sum() > FEW_WALKS:  # counted exactly, it may be less
        ending = walk_steps(chain).ending
    found: list[TopWalks] = []
    for some in separate.parts(ending, FEW_WALKS):
        if ending[some.nodes].sum() <= FEW_WALKS:
            found += _from_table(chain, k, by, some)
        else:
            found.append(_searched(walk_steps(chain), k, by, max_expansions, ends=some.nodes, progress=progress))
    if chain.types is not None:
        found = [replace(best, types=chain.types) for best in found]
    return found[0] if graphs is None else found


def _from_table(chain: RelevanceChain, k: int, by: str, graphs: PaddedGraphs) -> list[TopWalks]:
    """The best of all walks of every graph."""
    nodes = graphs.nodes
    listed = listed_walks(chain, "walks", ends=nodes if len(nodes) < chain.num_nodes else None)
    assert listed is not None  # no limit was given
    best, totals = _best(stages(chain), listed, k, by, graphs)
    visits, relevance = read(rows(listed.visits, best)), read(listed.relevance[stages(chain).there(best)].double())
    sizes = [min(k, total) for total in totals]
    order = order_of_ties(visits, np.abs(relevance) if by == "magnitude" else relevance, rounding(chain.dtype), sizes)
    walks = sent(visits.take(order, axis=0).astype(np.int64), chain.device)
    parts = torch.split(walks, sizes), torch.split(sent(relevance.take(order), chain.device, chain.dtype), sizes)
    return [TopWalks(w, r, 0, total, f"all {total:,} walks listed") for w, r, total in zip(*parts, totals, strict=True)]


def _best(at: Stages, listed: ListedWalks, k: int, by: str, graphs: PaddedGraphs) -> tuple[Any, list[int]]:
    """The k largest of every graph, graph after graph, best first; and how many walks each graph has."""
    score = at.book(listed.relevance.abs() if by == "magnitude" else listed.relevance)
    if len(graphs) == 1:
        return largest(score, k), [len(score)]
    graph = rows(at.book(graphs.graph(np.arange(len(graphs.place)))), row_maximum(listed.visits))
    totals = counted(graph, len(graphs))
    if not at.elsewhere:  # the few that are kept of each are sorted alone
        each = np.split(places_ascending(graph), totals.cumsum()[:-1])
        return stacked([some[largest(score[some], k)] for some in each]), totals.tolist()
    order = places_ascending(-score)
    order = rows(order, places_ascending(rows(graph, order)))
    rank = counting(len(order), order) - repeated(totals.cumsum(0) - totals, totals)
    return rows(order, places(rank < k)), totals.tolist()


def _searched(
    steps: WalkSteps, k: int, by: str, max_expansions: int, *, ends: Ints, progress: bool | None = False, **room: int
) -> TopWalks:
    """The best of the walks that end at some nodes, by search."""
    total = int(steps.ending[ends].sum())
    walks, expanded = best_first_search(steps, min(k, total), by, max_expansions, ends=ends, progress=progress, **room)
    relevance = walk_relevance(steps.stages.chain, walks)
    return _ranked(walks, relevance, by, expanded, total, f"best-first search, {expanded:,} partial walks continued")


def _ranked(walks: Tensor, relevance: Tensor, by: str, expansions: int, total: int, route: str) -> TopWalks:
    """Walks that have been found, the best first."""
    score, order = (relevance.abs() if by == "magnitude" else relevance).sort(descending=True, stable=True)
    order = order[ties_in_order(walks[order], score)]
    return TopWalks(walks[order], relevance[order], expansions, total, route)
