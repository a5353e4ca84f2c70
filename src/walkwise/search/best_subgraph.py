"""The subgraph of a given size with the largest relevance: by comparing all of them, or by growing the best."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain as chained
from itertools import islice
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.node_types import NodeTypes
from walkwise.display import html_box, html_table
from walkwise.errors import InputError, as_count, as_limit
from walkwise.questions.graphs import PaddedGraphs, as_graphs
from walkwise.questions.neighbours import Ints, running_totals
from walkwise.questions.parts import asked_of_part, part_of
from walkwise.questions.progress import bar
from walkwise.questions.subgraphs import as_discount, subgraph_relevance
from walkwise.questions.ties import rounding, tie_runs
from walkwise.search.candidates import Candidates, Nodes, TooManySubgraphsError, candidates_of

__all__ = ["FoundSubgraph", "TooManySubgraphsError", "find_subgraph"]

Scored = tuple[float, Nodes]
Method = Literal["beam", "greedy", "exact"]

#: How many subgraphs are listed before they are asked for together.
_TOGETHER = 4096


@dataclass(frozen=True, repr=False)
class FoundSubgraph:
    """A subgraph that was found, and how thorough the search was."""

    numbers: Nodes  # of its nodes, ascending; of a heterogeneous graph, in the one row of all types
    score: float  # R_α
    evaluated: int  # how many subgraphs of this size were compared
    total: int | None  # how many there are, if the search knows
    route: str = field(default="", compare=False)  # how it was found, in words
    types: NodeTypes | None = field(default=None, compare=False)  # of a heterogeneous graph

    @property
    def nodes(self) -> Any:
        """Its nodes in the form of a subgraph: ascending numbers, or {type: ids} for a heterogeneous graph."""
        return self.numbers if self.types is None else self.types.grouped(self.numbers)

    @property
    def named(self) -> dict[str, list[int]]:
        """The nodes of a heterogeneous graph by type: {type: ids}."""
        return {} if self.types is None else self.types.grouped(self.numbers)

    @property
    def exhaustive(self) -> bool:
        """Whether all subgraphs of this size were compared for certain, so that none is better."""
        return self.evaluated == self.total

    def __repr__(self) -> str:
        """The nodes, by type if they have types, and how thorough the search was."""
        told = ("nodes", "score", "evaluated", "total", "route")
        return f"FoundSubgraph({', '.join(f'{name}={getattr(self, name)!r}' for name in told)})"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        written = map(str, self.numbers if self.types is None else self.types.written(self.numbers))
        rows = [(", ".join(written) or "none", self.score)]
        note = f"{self.route[:1].upper()}{self.route[1:]}."
        return html_box(html_table(["nodes", ">relevance"], rows, title="The best subgraph found", note=note))


def _in_graph(chain: RelevanceChain, found: FoundSubgraph) -> FoundSubgraph:
    """What was found in a part, with the graph's node ids."""
    return replace(found, numbers=tuple(part_of(chain)[1].nodes[list(found.numbers)].tolist()))


#: A search in one graph: it asks for the scores of subgraphs, round by round, and returns the best.
Search = Generator[list[Nodes], list[float], FoundSubgraph]


@overload
def find_subgraph(
    chain: RelevanceChain,
    size: int,
    *,
    connected: bool = ...,
    alpha: float = ...,
    method: Method = ...,
    beam: int = ...,
    max_subgraphs: int = ...,
    graphs: None = ...,
    progress: bool | None = ...,
) -> FoundSubgraph: ...


@overload
def find_subgraph(
    chain: RelevanceChain,
    size: int | Sequence[int],
    *,
    connected: bool = ...,
    alpha: float = ...,
    method: Method = ...,
    beam: int = ...,
    max_subgraphs: int = ...,
    graphs: Tensor,
    progress: bool | None = ...,
) -> list[FoundSubgraph]: ...


@without_gradients
@asked_of_part(_in_graph)
def find_subgraph(
    chain: RelevanceChain,
    size: int | Sequence[int],
    *,
    connected: bool = True,
    alpha: float = 0.0,
    method: Method = "beam",
    beam: int = 16,
    max_subgraphs: int = 1_000_000,
    graphs: Tensor | None = None,
    progress: bool | None = None,
) -> FoundSubgraph | list[FoundSubgraph]:
    """Find the subgraph S of ``size`` nodes with the largest relevance: argmax over |S| = size of R_α(S).

    If the chain explains one node of a large graph, S is chosen among the nodes that its output depends on.

    "exact" compares all of them. "beam" grows subgraphs node by node and keeps the best few of every
    size; "greedy" keeps one. These two may miss the best, unless nothing was dropped on the way: the result says how
    many subgraphs were compared, and whether these were all. Among equal subgraphs (up to a relative 1e-9 in float64
    and 1e-6 in float32, so that rounding does not decide), the one with the lowest node ids is chosen.

    Args:
        chain: the traced prediction.
        size: the number of nodes; with ``graphs``, optionally one number for each.
        connected: whether only connected subgraphs count, by the graph's edges in either direction.
        alpha: the discount of R_α.
        method: "beam", "greedy" or "exact".
        beam: how many subgraphs of every size "beam" keeps.
        max_subgraphs: if "exact" would have to compare more, it raises :class:`TooManySubgraphsError`, which says how
            many there are.
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then the answer is a
            list with the subgraph of each graph, in the chain's node ids.
        progress: show how many subgraphs have been compared; by default only if that takes more than two seconds.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.search.best_subgraph import find_subgraph
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> chain = ww.trace(model, torch.ones(4, 2), edge_index, index=1)
    >>> found = find_subgraph(chain, 2, method="exact")
    >>> len(found.nodes), found.evaluated, found.exhaustive
    (2, 3, True)
    """
    if not isinstance(method, str) or method not in _METHODS:
        raise InputError(argument="method", expected=f"one of {', '.join(map(repr, _METHODS))}", got=method)
    beam, max_subgraphs = (
        as_count(beam, "beam", "the number of subgraphs kept"),
        as_limit(max_subgraphs, "max_subgraphs"),
    )
    alpha, separate = as_discount(alpha), as_graphs(chain, graphs)
    searches: list[Search | None] = []
    sizes = _checked_sizes(size, separate, several=graphs is not None)
    for candidates in candidates_of(chain, separate, sizes, connected=connected):
        if candidates.size:
            candidates.check_possible()
        search = _METHODS[method](candidates, rounding(chain.dtype), beam, max_subgraphs)
        searches.append(search if candidates.size else None)
    with bar(progress, desc="comparing", unit=" subgraphs") as compared:
        found = _together(chain, alpha, [separate.members(g) for g in range(len(separate))], searches, compared.update)
    found = [replace(each, types=chain.types) for each in found]
    return found[0] if graphs is None else found


def _together(
    chain: RelevanceChain,
    alpha: float,
    members: list[Ints],
    searches: list[Search | None],
    compared: Callable[[int], object],
) -> list[FoundSubgraph]:
    """Run the searches in all graphs; everything they ask in one round becomes one call of the chain."""
    found = [_NOTHING] * len(searches)
    going = {g: search for g, search in enumerate(searches) if search is not None}
    replies: dict[int, list[float]] = {}
    while going:
        requests: dict[int, list[Nodes]] = {}
        for g, search in going.items():
            try:
                requests[g] = search.send(replies[g]) if replies else next(search)
            except StopIteration as end:  # how a generator returns
                found[g] = replace(end.value, numbers=tuple(members[g][list(end.value.numbers)].tolist()))
        going = {g: going[g] for g in requests}
        if requests:
            ids = np.concatenate([members[g][list(chained(*some))] for g, some in requests.items()])
            sizes = np.array([len(nodes) for some in requests.values() for nodes in some])
            flat = torch.from_numpy(ids), torch.from_numpy(running_totals(sizes))
            scores = iter(subgraph_relevance(chain, flat, alpha=alpha).tolist())
            replies = {g: list(islice(scores, len(some))) for g, some in requests.items()}
            compared(len(sizes))
    return found


def _ranked(scored: list[Scored], rounded: float) -> list[Scored]:
    """Sort subgraphs, best first; of those that differ by rounding only, the one with the lowest ids comes first."""
    by_score = sorted(scored, key=lambda one: -one[0])
    scores = [score for score, _ in by_score]
    runs = tie_runs(scores, rounded, scale=max(map(abs, scores)))
    return [one for _, one in sorted(zip(runs, by_score, strict=True), key=lambda pair: (pair[0], pair[1][1]))]


def _exact(candidates: Candidates, rounded: float, beam: int, max_subgraphs: int) -> Search:
    """The best of all subgraphs."""
    total = candidates.count(max_subgraphs)
    best: list[Scored] = []
    subgraphs = candidates.every()
    while some := list(islice(subgraphs, _TOGETHER)):
        scores = yield some
        best = _ranked([*best, *zip(scores, some, strict=True)], rounded)[:1]
    ((score, nodes),) = best
    return FoundSubgraph(nodes, score, total, total, f"all {total:,} subgraphs compared")


def _grown(candidates: Candidates, rounded: float, beam: int, max_subgraphs: int) -> Search:
    """The best of those grown from the best of one node fewer."""
    subgraphs = candidates.single_nodes()
    complete = True  # nothing dropped: every subgraph of this size is among them
    for _ in range(1, candidates.size):
        scores = yield subgraphs
        kept = _ranked(list(zip(scores, subgraphs, strict=True)), rounded)[:beam]
        complete = complete and len(kept) == len(subgraphs)
        subgraphs = candidates.with_one_more([nodes for _, nodes in kept])
    scores = yield subgraphs
    score, nodes = _ranked(list(zip(scores, subgraphs, strict=True)), rounded)[0]
    route = f"grown node by node from the best {beam:,} of every size; {len(subgraphs):,} compared at the end"
    return FoundSubgraph(nodes, score, len(subgraphs), len(subgraphs) if complete else candidates.total, route)


def _greedy(candidates: Candidates, rounded: float, beam: int, max_subgraphs: int) -> Search:
    return _grown(candidates, rounded, 1, max_subgraphs)


_NOTHING = FoundSubgraph((), 0.0, 1, 1, "the empty subgraph alone")

_METHODS: dict[str, Callable[[Candidates, float, int, int], Search]] = {
    "beam": _grown,
    "greedy": _greedy,
    "exact": _exact,
}


def _checked_sizes(size: Any, graphs: PaddedGraphs, *, several: bool) -> list[int]:
    """How many nodes to find in each graph, as the caller says."""
    given = list(size) if several and isinstance(size, Sequence) else [size] * len(graphs)
    if len(given) != len(graphs):
        raise InputError(argument="size", expected=f"a number for each of the {len(graphs)} graphs", got=size)
    counts = graphs.sizes.tolist()
    return [_checked_size(one, counts[g], f" in graph {g}" if several else "") for g, one in enumerate(given)]


def _checked_size(size: Any, num_nodes: int, where: str) -> int:
    expected = f"from 0 to {num_nodes}, the number of nodes{where}"
    try:
        value = operator.index(size)
    except TypeError:
        raise InputError(argument="size", expected=expected, got=size) from None
    if not 0 <= value <= num_nodes:
        raise InputError(argument="size", expected=expected, got=size)
    return value
