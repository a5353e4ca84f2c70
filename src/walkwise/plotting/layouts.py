"""Node positions for drawing a graph: distances on paper resemble distances in the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from walkwise.errors import InputError
from walkwise.plotting._style import Floats, Ints, Numbers, edges_of, finite

#: Products of distances that improving a layout may take: all wanted rounds up to 800 nodes, fewer beyond.
_WORK = 2e8
_ROUNDS = 300
#: How far the starts of a layout are shaken; graphs that are not small have only the first.
_SHAKES = (0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4)
_SMALL = 80


def graph_layout(edge_index: Numbers, num_nodes: int, *, seed: int = 0) -> Floats:
    """Lay out a graph: a position for every node, neighbours about 1 apart, longest side horizontal: (M, 2).

    Minimises the stress Σ over pairs of (|p_u − p_v| − d_uv)² / d_uv², with d the number of steps between two
    nodes, by majorisation from a principal-axes start. On small graphs, the best of several starts is kept, the one
    with the fewest crossings. Unconnected parts lie side by side. The direction of edges does not matter, nor do
    self-loops.

    Args:
        edge_index: the edges (2, E).
        num_nodes: M, the number of nodes.
        seed: another seed lays out symmetric parts differently.

    >>> import torch
    >>> places = graph_layout(torch.tensor([[0, 1], [1, 2]]), 3)
    >>> places.shape
    (3, 2)
    >>> bool(abs(places[0, 0] - places[2, 0]) > abs(places[0, 0] - places[1, 0]))
    True
    """
    edges = edges_of(edge_index, num_nodes)
    if num_nodes < 2:
        return np.zeros((num_nodes, 2))
    distance = _steps(edges, num_nodes)  # (M, M)
    start, rng = _principal_axes(distance), np.random.default_rng(seed)
    shakes = _SHAKES if num_nodes <= _SMALL else _SHAKES[:1]
    tries = [_majorise(start + shake * rng.normal(size=start.shape), distance) for shake in shakes]
    return _lying(_spread(min(tries, key=lambda places: _crossings(places, edges)) if len(tries) > 1 else tries[0]))


def places_of(positions: Numbers | None, edges: Ints, num_nodes: int, seed: int) -> Floats:
    """The positions given, checked, or a layout of the graph.  # (M, 2)"""
    if positions is None:
        return graph_layout(edges, num_nodes, seed=seed)
    given = positions.detach().cpu().numpy() if isinstance(positions, torch.Tensor) else np.asarray(positions)
    if given.shape != (num_nodes, 2):
        expected = f"of shape ({num_nodes}, 2), a position for every node"
        raise InputError(argument="positions", expected=expected, got=given.shape)
    return finite(given.astype(np.float64), "positions")


def part_that_matters(weight: Floats, edges: Ints, most: int) -> Ints:
    """The nodes to draw of a graph that is too large: those of most weight, and the nodes on the way between them.

    Nodes are taken in the order of their weight, each with the shortest way to those that are taken already (if there
    is one of at most four steps), until there are enough; room that is left goes to neighbours.

    Args:
        weight: how much each node matters, (M,), at least 0.
        edges: (2, E).
        most: how many nodes at most.

    >>> part_that_matters(np.array([3.0, 0, 2, 0, 0]), np.array([[0, 1, 2, 3], [1, 2, 3, 4]]), 3).tolist()
    [0, 1, 2]
    """
    near: list[list[int]] = [[] for _ in weight]
    for u, v in edges.T.tolist():
        near[u].append(v)
        near[v].append(u)
    order = [int(i) for i in np.argsort(-weight, kind="stable")]
    taken: dict[int, None] = {}
    for node in order:
        if weight[node] <= 0 or len(taken) >= most:
            break
        for step in _way(node, taken, near):
            if len(taken) < most:
                taken[step] = None
    for node in list(taken):
        for other in near[node]:
            if len(taken) < most:
                taken[other] = None
    for node in order[: most - len(taken)] if not taken else []:
        taken[node] = None
    return np.array(sorted(taken), dtype=np.int64)


def _way(node: int, taken: Mapping[int, None], near: Sequence[Sequence[int]], far: int = 4) -> list[int]:
    """The node, and the nodes between it and the nearest one taken, if that is not far."""
    before = {node: node}
    ring = [node]
    for _ in range(far):
        following = []
        for here in ring:
            for other in near[here]:
                if other in taken:
                    way = [here]
                    while way[-1] != node:
                        way.append(before[way[-1]])
                    return way
                if other not in before:
                    before[other] = here
                    following.append(other)
        ring = following
    return [node]


def _steps(edges: Ints, num_nodes: int) -> Floats:
    """The number of steps between any two nodes; parts that are not connected lie side by side.  # (M, M)"""
    size = (num_nodes, num_nodes)
    both = torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1))
    adjacency = torch.sparse_coo_tensor(both, torch.ones(both.shape[1]), size, check_invariants=True).coalesce()
    steps = torch.full(size, torch.inf)
    reached = torch.eye(num_nodes)
    for step in range(num_nodes):
        new = (reached > 0) & steps.isinf()
        if not bool(new.any()):
            break
        steps[new] = step
        reached = torch.sparse.mm(adjacency, new.float())
    inside = torch.where(steps.isinf(), 0.0, steps)
    reach = inside.amax(1).clamp(max=8) / 2 + 0.8  # half of a part's width; long parts need not keep all of it
    return torch.where(steps.isinf(), reach[:, None] + reach[None, :], steps).double().numpy()


def _crossings(places: Floats, edges: Ints) -> int:
    """How many pairs of edges cross."""
    a, b = places[np.unique(np.sort(edges, axis=0), axis=1)]  # (E, 2) each

    def side(p: Floats, q: Floats, r: Floats) -> Floats:
        """On which side of the line from p to q each r lies.  # (E, E)"""
        along, to = (q - p)[:, None], r[None, :] - p[:, None]
        turn: Floats = along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0]
        return np.where(np.abs(turn) < 1e-9, 0.0, turn)  # edges that share a node do not cross

    parted = side(a, b, a) * side(a, b, b) < 0
    return int((parted & parted.T).sum()) // 2


def _principal_axes(distance: Floats) -> Floats:
    """The two main axes of the distances to some nodes far from each other.  # (M, 2)"""
    pivots = [0]
    for _ in range(min(len(distance), 50) - 1):
        pivots.append(int(distance[:, pivots].min(1).argmax()))
    squared = distance[:, pivots] ** 2  # (M, P)
    centred = squared - squared.mean(0) - squared.mean(1, keepdims=True) + squared.mean()
    _, axes = np.linalg.eigh(centred.T @ centred)  # (P, P), the largest last
    places = -centred @ axes[:, :-3:-1] / 2
    if places.shape[1] < 2:
        places = np.pad(places, ((0, 0), (0, 1)))
    scale = np.abs(places).max() or 1.0
    result: Floats = places / scale * distance.max() / 2
    return result


def _majorise(places: Floats, distance: Floats) -> Floats:
    """Places of less stress: each node moves to where the others, weighted by 1/d², would have it."""
    M = len(places)
    weight = 1 / np.maximum(distance, 1) ** 2
    np.fill_diagonal(weight, 0)
    total = weight.sum(1, keepdims=True)
    pull = weight * distance
    for _ in range(int(np.clip(_WORK / M**2, 10, _ROUNDS))):
        squared = (places**2).sum(1)
        apart = np.sqrt(np.maximum(squared[:, None] + squared[None, :] - 2 * places @ places.T, 1e-9))  # (M, M)
        ratio = pull / apart
        moved = (weight @ places + ratio.sum(1, keepdims=True) * places - ratio @ places) / total
        done = np.abs(moved - places).max() < 1e-3
        places = moved
        if done:
            break
    return places


def _spread(places: Floats) -> Floats:
    """The places with those that nearly coincide pushed apart, as far as the number of nodes allows."""
    gap = min(0.75, 4 / len(places) ** 0.5)
    for _ in range(20 if len(places) <= 1000 else 0):
        apart = places[:, None] - places[None, :]  # (M, M, 2)
        length = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-6)
        push = np.maximum(gap - length, 0) / length
        np.fill_diagonal(push, 0)
        if not push.any():
            break
        places = places + 0.3 * (push[..., None] * apart).sum(1)
    return places


def _lying(places: Floats) -> Floats:
    """The places centred and turned so that they spread most from left to right."""
    centred = places - places.mean(0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turned: Floats = centred @ axes[:, ::-1]
    return turned * np.where(turned[np.abs(turned).argmax(0), [0, 1]] < 0, -1, 1)
