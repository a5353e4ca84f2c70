"""The subgraph of a given size with the largest relevance: by looking at all of them, or by growing the best."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain as chained
from itertools import combinations, islice
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.node_types import NodeTypes
from walkwise.display import html_box, html_table
from walkwise.errors import InputError, WalkwiseError, as_count
from walkwise.questions.graphs import PaddedGraphs, as_graphs
from walkwise.questions.neighbours import Ints, edge_neighbours, running_totals
from walkwise.questions.parts import asked_of_part, part_of
from walkwise.questions.progress import bar
from walkwise.questions.subgraphs import as_discount, subgraph_relevance
from walkwise.questions.ties import rounding, tie_runs

Nodes = tuple[int, ...]
Scored = tuple[float, Nodes]
Method = Literal["beam", "greedy", "exact"]

#: How many subgraphs are listed before they are asked for together.
_TOGETHER = 4096


class TooManySubgraphsError(WalkwiseError):
    """Looking at every subgraph of that size would take longer than allowed."""


@dataclass(frozen=True)
class FoundSubgraph:
    """A subgraph, and how far the search for it went."""

    nodes: Nodes  # ascending
    score: float  # R_α
    evaluated: int  # how many subgraphs of this size were compared
    total: int | None  # how many there are, where the search knows
    route: str = field(default="", compare=False)  # how it was found, in words
    types: NodeTypes | None = field(default=None, compare=False, repr=False)  # of a heterogeneous graph

    @property
    def named(self) -> dict[str, list[int]]:
        """The nodes of a heterogeneous graph by type: {type: ids}."""
        return {} if self.types is None else self.types.grouped(self.nodes)

    @property
    def exhaustive(self) -> bool:
        """Whether the search knows that all subgraphs of this size were compared, so that none is better."""
        return self.evaluated == self.total

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        written = map(str, self.nodes if self.types is None else self.types.written(self.nodes))
        rows = [(", ".join(written) or "none", self.score)]
        note = f"{self.route[:1].upper()}{self.route[1:]}."
        return html_box(html_table(["nodes", ">relevance"], rows, title="The best subgraph found", note=note))


def _in_graph(chain: RelevanceChain, found: FoundSubgraph) -> FoundSubgraph:
    """What was found in a part, with the graph's node ids."""
    return replace(found, nodes=tuple(part_of(chain)[1].nodes[list(found.nodes)].tolist()))


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
    """The subgraph S of ``size`` nodes with the largest relevance: argmax over |S| = size of R_α(S).

    Of one node of a large graph, S is sought among the nodes that its output depends on.

    "exact" compares all of them. "beam" grows subgraphs node by node and keeps the best few of every
    size; "greedy" keeps one. Those two may miss the best, unless nothing was dropped on the way: the
    result says how many subgraphs were compared, and whether that was all. Of equal subgraphs (up to a relative
    1e-9 in float64 and 1e-6 in float32, so that rounding does not decide) the one with the lowest node ids is taken.

    Args:
        chain: the traced prediction.
        size: how many nodes; with ``graphs``, also a number for each.
        connected: whether only connected subgraphs count, by the graph's edges in either direction.
        alpha: the discount of R_α.
        method: "beam", "greedy" or "exact".
        beam: how many subgraphs of every size "beam" keeps.
        max_subgraphs: where "exact" would have to compare more, it raises
            :class:`TooManySubgraphsError`, which says how many there are.
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then a list comes
            back with the subgraph of each graph, in the chain's node ids.
        progress: show how many subgraphs have been compared; by default once that has taken two seconds.

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
    if method not in _METHODS:
        raise InputError(argument="method", expected=f"one of {', '.join(map(repr, _METHODS))}", got=method)
    beam = as_count(beam, "beam", "how many subgraphs are kept")
    alpha, separate = as_discount(alpha), as_graphs(chain, graphs)
    searches: list[Search | None] = []
    sizes = list(size) if isinstance(size, Sequence) and graphs is not None else [size] * len(separate)
    if len(sizes) != len(separate):
        raise InputError(argument="size", expected=f"a number for each of the {len(separate)} graphs", got=size)
    for g, near in enumerate(_neighbour_masks(chain, separate)):
        wanted = _checked_size(sizes[g], len(near), "" if graphs is None else f" in graph {g}")
        space = _Space(wanted, connected, near if connected else [(1 << len(near)) - 1] * len(near), chain.dtype)
        if wanted:
            space.check_possible()
        searches.append(_METHODS[method](space, beam, max_subgraphs) if wanted else None)
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
    """What the searches in all graphs find; what they ask in one round is asked of the chain in one call."""
    found = [_NOTHING] * len(searches)
    going = {g: search for g, search in enumerate(searches) if search is not None}
    replies: dict[int, list[float]] = {}
    while going:
        requests: dict[int, list[Nodes]] = {}
        for g, search in going.items():
            try:
                requests[g] = search.send(replies[g]) if replies else next(search)
            except StopIteration as end:  # how a generator returns
                found[g] = replace(end.value, nodes=tuple(members[g][list(end.value.nodes)].tolist()))
        going = {g: going[g] for g in requests}
        if requests:
            ids = np.concatenate([members[g][list(chained(*some))] for g, some in requests.items()])
            sizes = np.array([len(nodes) for some in requests.values() for nodes in some])
            flat = torch.from_numpy(ids), torch.from_numpy(running_totals(sizes))
            scores = iter(subgraph_relevance(chain, flat, alpha=alpha).tolist())
            replies = {g: list(islice(scores, len(some))) for g, some in requests.items()}
            compared(len(sizes))
    return found


@dataclass(frozen=True, eq=False)
class _Space:
    """The subgraphs of one graph among which to search: its nodes count from 0, sets of them are bits of an integer."""

    size: int
    connected: bool
    near: list[int]  # for every node the nodes that may join it
    dtype: torch.dtype  # of the scores

    @property
    def nodes(self) -> int:
        """All of them."""
        return (1 << len(self.near)) - 1

    def check_possible(self) -> None:
        """Refuse a size for which there is no connected subgraph."""
        largest = max(map(int.bit_count, self.components))
        if largest < self.size:
            raise InputError(
                f"There is no connected subgraph of {self.size} nodes: the largest connected component has {largest}.",
                argument="size",
                expected=f"at most {largest}",
                got=self.size,
                remedy="Ask for fewer nodes, or pass connected=False.",
            )

    @property
    def components(self) -> list[int]:
        """The connected components."""
        left, found = self.nodes, []
        while left:
            part, edge = 0, left & -left
            while edge:
                part |= edge
                edge = self.around(edge) & ~part
            left &= ~part
            found.append(part)
        return found

    def around(self, nodes: int) -> int:
        """All nodes that may join any of these."""
        joined = 0
        for node in _members(nodes):
            joined |= self.near[node]
        return joined

    @property
    def total(self) -> int | None:
        """How many subgraphs there are, where that is known without listing them."""
        M = len(self.near)
        return None if self.connected and self.size < M else math.comb(M, self.size)

    def ranked(self, scored: list[Scored]) -> list[Scored]:
        """The best first; of those that fall short of another by rounding only, the one with the lowest ids."""
        by_score = sorted(scored, key=lambda one: -one[0])
        scores = [score for score, _ in by_score]
        runs = tie_runs(scores, rounding(self.dtype), scale=max(map(abs, scores)))
        return [one for _, one in sorted(zip(runs, by_score, strict=True), key=lambda pair: (pair[0], pair[1][1]))]


def _exact(space: _Space, beam: int, max_subgraphs: int) -> Search:
    """The best of all subgraphs."""
    total = _count(space, max_subgraphs)
    best: list[Scored] = []
    subgraphs = _all_subgraphs(space)
    while some := list(islice(subgraphs, _TOGETHER)):
        scores = yield some
        best = space.ranked([*best, *zip(scores, some, strict=True)])[:1]
    ((score, nodes),) = best
    return FoundSubgraph(nodes, score, total, total, f"all {total:,} subgraphs compared")


def _grown(space: _Space, beam: int, max_subgraphs: int) -> Search:
    """The best of those grown from the best of one node fewer."""
    roomy = sum(part for part in space.components if part.bit_count() >= space.size or not space.connected)
    candidates: list[Nodes] = [(node,) for node in _members(roomy)]
    complete = True  # nothing dropped: every subgraph of this size is among the candidates
    for _ in range(1, space.size):
        scores = yield candidates
        kept = space.ranked(list(zip(scores, candidates, strict=True)))[:beam]
        complete = complete and len(kept) == len(candidates)
        candidates = _one_more(space, [nodes for _, nodes in kept])
    scores = yield candidates
    score, nodes = space.ranked(list(zip(scores, candidates, strict=True)))[0]
    route = f"grown node by node from the best {beam:,} of every size; {len(candidates):,} compared at the last"
    return FoundSubgraph(nodes, score, len(candidates), len(candidates) if complete else space.total, route)


def _greedy(space: _Space, beam: int, max_subgraphs: int) -> Search:
    return _grown(space, 1, max_subgraphs)


_NOTHING = FoundSubgraph((), 0.0, 1, 1, "the empty subgraph alone")

_METHODS: dict[str, Callable[[_Space, int, int], Search]] = {
    "beam": _grown,
    "greedy": _greedy,
    "exact": _exact,
}


def _one_more(space: _Space, subgraphs: list[Nodes]) -> list[Nodes]:
    """Every subgraph with one more node, each once."""
    masks = [sum(1 << node for node in nodes) for nodes in subgraphs]
    grown = {mask | (1 << node) for mask in masks for node in _members(space.around(mask) & ~mask)}
    return [tuple(_members(mask)) for mask in grown]


def _count(space: _Space, most: int) -> int:
    """How many subgraphs there are; more than allowed is an error."""
    M, k = len(space.near), space.size
    all_sets = math.comb(M, k)
    total = all_sets
    if space.connected:
        total = sum(1 for _ in islice(_all_subgraphs(space), most + 1))
    if total > most:
        many = f"more than {most} (and at most {all_sets})" if space.connected else str(all_sets)
        raise TooManySubgraphsError(
            f"{many} {'connected ' if space.connected else ''}subgraphs have {k} of the {M} nodes, and "
            f"max_subgraphs is {most}.",
            argument="max_subgraphs",
            expected="at least the number of subgraphs",
            got=most,
            remedy='Raise the limit if you mean it, or use method="beam".',
        )
    return total


def _all_subgraphs(space: _Space) -> Iterator[Nodes]:
    """Every subgraph once."""
    if not space.connected:
        yield from combinations(_members(space.nodes), space.size)
        return
    for root in _members(space.nodes):
        allowed = ~((1 << (root + 1)) - 1)  # the root is the lowest node
        yield from _extensions(space.near, space.size, 1 << root, allowed)


def _extensions(near: list[int], size: int, start: int, allowed: int) -> Iterator[Nodes]:
    """Connected sets that contain the start and otherwise allowed nodes (Wernicke's ESU): each just once.

    Sets grow through their frontier. A node of it is tried and then never again by the sets that follow, so no set is
    met twice; ``seen`` are the nodes and all that have been beside them. Sets that cannot grow enough are left at once,
    so that the work is that of the sets found.
    """
    waiting = [(start, near[start.bit_length() - 1] & allowed, start)]
    while waiting:
        nodes, frontier, seen = waiting.pop()
        if nodes.bit_count() == size:
            yield tuple(_members(nodes))
            continue
        seen |= frontier
        if not _can_grow(near, size, nodes, frontier, allowed & ~seen):
            continue
        while frontier:
            bit = frontier & -frontier
            frontier ^= bit
            new = near[bit.bit_length() - 1] & allowed & ~seen
            waiting.append((nodes | bit, frontier | new, seen))


def _can_grow(near: list[int], size: int, nodes: int, frontier: int, free: int) -> bool:
    """Whether there is a connected set of that size: these nodes, some of the frontier, and free ones beyond."""
    while frontier:
        nodes |= frontier
        if nodes.bit_count() >= size:
            return True
        beyond = 0
        for node in _members(frontier):
            beyond |= near[node]
        frontier = beyond & free & ~nodes
    return False


def _members(mask: int) -> Iterator[int]:
    """The nodes of a set, ascending."""
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


def _neighbour_masks(chain: RelevanceChain, graphs: PaddedGraphs) -> list[list[int]]:
    """For every graph the neighbours of every node, counted within the graph."""
    near = edge_neighbours(chain)
    within = (graphs.place % max(1, graphs.width))[near.nodes].tolist()
    offsets = near.offsets.tolist()
    return [
        [sum(1 << n for n in set(within[offsets[m] : offsets[m + 1]])) for m in graphs.members(g).tolist()]
        for g in range(len(graphs))
    ]


def _checked_size(size: Any, num_nodes: int, where: str) -> int:
    expected = f"from 0 to {num_nodes}, the number of nodes{where}"
    try:
        value = operator.index(size)
    except TypeError:
        raise InputError(argument="size", expected=expected, got=size) from None
    if not 0 <= value <= num_nodes:
        raise InputError(argument="size", expected=expected, got=size)
    return value
