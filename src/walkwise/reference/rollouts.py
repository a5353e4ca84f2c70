"""SubgraphX, as described in its paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from walkwise.reference.questions import reached


def subgraphx(
    value: Callable[[set[int]], float],
    num_nodes: int,
    edges: Sequence[tuple[int, int]],
    *,
    size: int,
    rollouts: int,
    children: int,
    samples: int,
    hops: int,
    exploration: float,
) -> list[int]:
    """SubgraphX (Yuan et al., 2021): on how many steps of the best way each node stayed.

    Every node set is appraised as soon as it is one of the options, and every coalition by itself.
    """
    near = [{m} for m in range(num_nodes)]  # whose messages arrive
    for _ in range(hops):
        near = [those | {u for u, v in edges if v in those} for those in near]
    worth: dict[frozenset[int], float] = {}
    gains: dict[frozenset[int], list[float]] = {}  # of the rollouts that came by

    def appraise(nodes: frozenset[int]) -> None:
        if nodes in worth:
            return
        others = set().union(*(near[m] for m in nodes)) - nodes
        share = torch.rand(samples, 1)
        differences = []
        for joins in (torch.rand(samples, num_nodes) < share).tolist():
            coalition = {m for m in range(num_nodes) if m not in nodes and (joins[m] or m not in others)}
            differences.append(value(coalition | nodes) - value(coalition))
        worth[nodes] = sum(differences) / samples

    def appeal(option: frozenset[int], tried: int) -> float:
        seen = gains.get(option, [])
        mean = sum(seen) / len(seen) if seen else 0.0
        return mean + exploration * worth[option] * math.sqrt(tried) / (1 + len(seen))

    ways = []
    for _ in range(rollouts):
        way = [frozenset(range(num_nodes))]
        while len(way[-1]) > max(size, 1):
            options = _pruned(edges, way[-1], children)
            for option in options:
                appraise(option)
            tried = sum(len(gains.get(option, [])) for option in options)
            way.append(max(options, key=lambda option: appeal(option, tried)))
        appraise(way[-1])
        for nodes in way:
            gains.setdefault(nodes, []).append(worth[way[-1]])
        ways.append(way)
    best = max(ways, key=lambda way: worth[way[-1]])
    return [sum(m in nodes for nodes in best) for m in range(num_nodes)]


def _pruned(edges: Sequence[tuple[int, int]], nodes: frozenset[int], children: int) -> list[frozenset[int]]:
    """The largest connected part that is left without each of the nodes of fewest neighbours."""
    degree = {m: len(reached(edges, nodes, m, 1)) for m in nodes}
    found: list[frozenset[int]] = []
    for m in sorted(nodes, key=lambda m: (degree[m], m))[:children]:
        rest = nodes - {m}
        part = max((reached(edges, rest, k, len(rest)) for k in sorted(rest)), key=len)
        found += [part] if part not in found else []
    return found
