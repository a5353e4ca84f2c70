"""Questions about a chain (orders, interactions, Shapley values, ...), answered from all walks, one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence

Walks = dict[tuple[int, ...], float]


def subgraph_relevance(walks: Walks, nodes: Sequence[int], alpha: float) -> float:
    """R_α of Eqs. (8-9), walk by walk; -1 in a walk is a position it passes by."""
    total = 0.0
    for walk, relevance in walks.items():
        visited = [m for m in walk if m >= 0]
        outside = sum(m not in nodes for m in visited)
        if outside < len(visited):
            total += alpha**outside * relevance
    return total


def starts(walks: Walks, num_nodes: int) -> list[float]:
    """The relevance of the walks that begin at each node, in whatever position they begin."""
    total = [0.0] * num_nodes
    for walk, relevance in walks.items():
        total[next(m for m in walk if m >= 0)] += relevance
    return total


def top_walks(walks: Walks, k: int, by: str = "relevance") -> list[tuple[tuple[int, ...], float]]:
    """The k walks of largest relevance or magnitude: all of them sorted, the smallest walk first of equal ones."""
    key = abs if by == "magnitude" else float
    return sorted(walks.items(), key=lambda item: (-key(item[1]), item[0]))[:k]


def order_scores(
    walks: Walks, nodes: Sequence[int], chosen: Sequence[int], mode: str, alpha: float
) -> dict[int, float]:
    """What section 7.2.1 maximises, for every node that is left, given those that have been chosen."""
    left = [m for m in nodes if m not in chosen]
    if mode == "activation":
        return {m: subgraph_relevance(walks, [*chosen, m], alpha) for m in left}
    whole = subgraph_relevance(walks, nodes, 0.0)
    return {m: -abs(subgraph_relevance(walks, [k for k in left if k != m], alpha) - whole) for m in left}


def order_nodes(walks: Walks, nodes: Sequence[int], mode: str, alpha: float) -> list[int]:
    """The greedy order of section 7.2.1, the lowest index first of equal candidates."""
    order: list[int] = []
    while len(order) < len(nodes):
        scores = order_scores(walks, nodes, order, mode, alpha)
        order.append(max(sorted(scores), key=scores.__getitem__))
    return order


def find_subgraph(
    walks: Walks, nodes: Sequence[int], edges: Sequence[tuple[int, int]] | None, size: int, alpha: float
) -> tuple[tuple[int, ...], float, int]:
    """The best of all node sets of a size, its R_α, and how many there are; with edges, of the connected ones."""
    sets = [
        s for s in itertools.combinations(nodes, size) if edges is None or len(reached(edges, s, s[0], size)) == size
    ]
    scores = [subgraph_relevance(walks, s, alpha) for s in sets]
    best = scores.index(max(scores))
    return sets[best], scores[best], len(sets)


def query(walks: Walks, holds: Callable[[set[str]], bool], groups: Mapping[str, Sequence[int]]) -> float:
    """The relevance of the walks for which a condition on the names of the groups they visit holds."""
    total = 0.0
    for walk, relevance in walks.items():
        visited = {name for name, nodes in groups.items() if set(walk) & set(nodes)}
        total += relevance if holds(visited) else 0.0
    return total


def interactions(walks: Walks, groups: Mapping[str, Sequence[int]]) -> dict[tuple[str, ...], float]:
    """R↔ of appendix A for every set of groups: the walks that visit each of them, and no other node."""
    union = {m for nodes in groups.values() for m in nodes}
    inside = {walk: r for walk, r in walks.items() if {m for m in walk if m >= 0} <= union}
    sets = [s for size in range(1, len(groups) + 1) for s in itertools.combinations(groups, size)]
    return {s: query(inside, lambda visited, s=s: visited == set(s), groups) for s in sets}  # type: ignore[misc]


def shapley_values(walks: Walks, num_nodes: int) -> list[float]:
    """What each node adds to R of those before it, on average over all orders of the nodes."""
    values = [0.0] * num_nodes
    worth = _worth(walks, num_nodes)
    for order in itertools.permutations(range(num_nodes)):
        for i, node in enumerate(order):
            values[node] += worth[frozenset(order[: i + 1])] - worth[frozenset(order[:i])]
    return [value / math.factorial(num_nodes) for value in values]


def shapley_interactions(walks: Walks, num_nodes: int, order: int) -> dict[tuple[int, ...], float]:
    """Σ over T ⊆ N∖S of t! (n − t − s)! / (n − s + 1)! · Δ_S v(T), as Grabisch and Roubens define it."""
    worth, n, found = _worth(walks, num_nodes), num_nodes, {}
    for S in itertools.combinations(range(n), order):
        total = 0.0
        for T in _subsets([m for m in range(n) if m not in S]):
            weight = math.factorial(len(T)) * math.factorial(n - len(T) - order) / math.factorial(n - order + 1)
            total += weight * sum((-1) ** (order - len(K)) * worth[frozenset(T + K)] for K in _subsets(S))
        found[S] = total
    return found


def _worth(walks: Walks, num_nodes: int) -> dict[frozenset[int], float]:
    """The game v(S) = R(S) of every set of nodes."""
    return {frozenset(s): subgraph_relevance(walks, s, 0.0) for s in _subsets(range(num_nodes))}


def _subsets(nodes: Sequence[int]) -> list[tuple[int, ...]]:
    return [s for size in range(len(nodes) + 1) for s in itertools.combinations(nodes, size)]


def reached(edges: Sequence[tuple[int, int]], nodes: Collection[int], m: int, steps: int) -> frozenset[int]:
    """The nodes to which so many steps inside a node set lead from m, in either direction of the edges."""
    found = {m}
    for _ in range(steps):
        found |= {v for e in edges for u, v in (e, e[::-1]) if u in found and v in nodes}
    return frozenset(found)
