"""The subgraphs of a given size in one graph, connected or not: how many there are, all of them, and larger ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from walkwise.core.chain import RelevanceChain
from walkwise.errors import InputError, WalkwiseError
from walkwise.questions.components import component_sizes
from walkwise.questions.graphs import PaddedGraphs
from walkwise.questions.neighbours import edge_neighbours

Nodes = tuple[int, ...]


class TooManySubgraphsError(WalkwiseError):
    """There are more subgraphs of that size than a search may compare."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """The subgraphs of one graph to search among: nodes are numbered from 0, and the bits of an integer form a set."""

    size: int
    connected: bool
    near: list[int]  # for every node the nodes that may join it
    joined: list[int]  # for every node how many nodes it can be in one subgraph with, itself included

    def check_possible(self) -> None:
        """Refuse a size for which there is no connected subgraph."""
        largest = max(self.joined)
        if largest < self.size:
            raise InputError(
                f"There is no connected subgraph of {self.size} nodes: the largest connected component has {largest}.",
                argument="size",
                expected=f"at most {largest}",
                got=self.size,
                remedy="Ask for fewer nodes, or pass connected=False.",
            )

    @property
    def total(self) -> int | None:
        """The number of subgraphs, if it is known without listing them."""
        M = len(self.near)
        return None if self.connected and self.size < M else math.comb(M, self.size)

    def count(self, most: int) -> int:
        """The number of subgraphs; more than allowed is an error."""
        M, k = len(self.near), self.size
        all_sets = math.comb(M, k)
        total = sum(1 for _ in islice(self.every(), most + 1)) if self.connected else all_sets
        if total > most:
            many = f"more than {most} (and at most {all_sets})" if self.connected else str(all_sets)
            raise TooManySubgraphsError(
                f"{many} {'connected ' if self.connected else ''}subgraphs have {k} of the {M} nodes, and "
                f"max_subgraphs is {most}.",
                argument="max_subgraphs",
                expected="at least the number of subgraphs",
                got=most,
                remedy='Raise the limit if you mean it, or use method="beam".',
            )
        return total

    def every(self) -> Iterator[Nodes]:
        """Every subgraph once."""
        M = len(self.near)
        if not self.connected:
            yield from combinations(range(M), self.size)
            return
        for root in range(M):
            allowed = ~((1 << (root + 1)) - 1)  # the root is the lowest node
            yield from _extensions(self.near, self.size, 1 << root, allowed)

    def single_nodes(self) -> list[Nodes]:
        """The nodes from which a subgraph of that size can grow."""
        return [(node,) for node, joined in enumerate(self.joined) if joined >= self.size]

    def with_one_more(self, subgraphs: list[Nodes]) -> list[Nodes]:
        """Every subgraph with one more node, each once."""
        masks = [sum(1 << node for node in nodes) for nodes in subgraphs]
        grown = {mask | (1 << node) for mask in masks for node in nodes_in(around(self.near, mask) & ~mask)}
        return [tuple(nodes_in(mask)) for mask in grown]


def candidates_of(
    chain: RelevanceChain, graphs: PaddedGraphs, sizes: list[int], *, connected: bool
) -> Iterator[Candidates]:
    """The candidates of every graph, each with its own size."""
    near = edge_neighbours(chain)
    within = (graphs.place % max(1, graphs.width))[near.nodes].tolist()
    offsets = near.offsets.tolist()
    joined = component_sizes(chain.edge_index, chain.num_nodes)
    for g, size in enumerate(sizes):
        members = graphs.members(g)
        M = len(members)
        if connected:
            beside = [sum(1 << n for n in set(within[offsets[m] : offsets[m + 1]])) for m in members.tolist()]
            yield Candidates(size, True, beside, joined[members].tolist())
        else:
            yield Candidates(size, False, [(1 << M) - 1] * M, [M] * M)


def _extensions(near: list[int], size: int, start: int, allowed: int) -> Iterator[Nodes]:
    """Connected sets of the start and allowed nodes (Wernicke's ESU), each exactly once.

    Sets grow through their frontier. A node of it is tried and then never again by the sets that follow, so no set is
    met twice; ``seen`` holds the nodes and all nodes that have been beside them. Sets that cannot grow enough are
    dropped at once, so the work is proportional to the sets found.
    """
    waiting = [(start, near[start.bit_length() - 1] & allowed, start)]
    while waiting:
        nodes, frontier, seen = waiting.pop()
        if nodes.bit_count() == size:
            yield tuple(nodes_in(nodes))
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
        frontier = around(near, frontier) & free & ~nodes
    return False


def nodes_in(mask: int) -> Iterator[int]:
    """The nodes of a set, ascending."""
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


def around(near: list[int], nodes: int) -> int:
    """All nodes that may join any of these."""
    joined = 0
    for node in nodes_in(nodes):
        joined |= near[node]
    return joined
