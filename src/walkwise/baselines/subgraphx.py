"""SubgraphX: Monte-Carlo tree search for a connected subgraph of large Shapley value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.baselines.attribution import Attribution, of_nodes
from walkwise.baselines.registry import register_baseline
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import Prediction

NodeSet = frozenset[int]


@register_baseline("subgraphx")
def subgraphx(
    prediction: Prediction,
    *,
    size: int = 5,
    rollouts: int = 20,
    children: int = 12,
    samples: int = 30,
    hops: int = 3,
    exploration: float = 10.0,
) -> Attribution:
    """SubgraphX (Yuan et al., 2021), as a score per node: how long it stayed on the way to the best subgraph.

    From the whole graph the search prunes one node at a time and keeps the largest connected part, until at
    most ``size`` nodes are left. A node set is worth its Shapley value in the game of the nodes within ``hops`` of
    it, estimated from samples of the others. The nodes of the best subgraph found score highest, and those
    pruned first on the way there lowest.

    Args:
        prediction: what to explain.
        size: how many nodes the subgraph may have.
        rollouts: how often the search runs from the whole graph down.
        children: how many nodes, those of lowest degree, are tried for pruning at each step.
        samples: how many coalitions estimate a Shapley value.
        hops: how far the other players of the game may be: the model's layers.
        exploration: how much the search prefers what it has not tried.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> subgraphx(prediction).nodes.shape
    torch.Size([3])
    """
    search = _SearchTree(prediction, size, children, samples, hops, exploration)
    root = frozenset(range(prediction.num_nodes))
    paths = [search.rollout(root) for _ in range(rollouts)]
    best = max(paths, key=lambda path: search.worth(path[-1]))
    stayed = torch.zeros(prediction.num_nodes)
    for nodes in best:
        stayed[sorted(nodes)] += 1
    return of_nodes(stayed)


@dataclass
class _SearchTree:
    """The tree as far as it has been seen."""

    prediction: Prediction
    size: int
    children: int
    samples: int
    hops: int
    exploration: float
    _route: str | None = None
    _outputs: dict[bytes, float] = field(default_factory=dict)
    _worth: dict[NodeSet, float] = field(default_factory=dict)
    _next: dict[NodeSet, list[NodeSet]] = field(default_factory=dict)
    _visits: dict[NodeSet, int] = field(default_factory=dict)
    _total: dict[NodeSet, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._near = _near(self.prediction, self.hops)

    def rollout(self, root: NodeSet) -> list[NodeSet]:
        """One way from the whole graph to a small subgraph, and its worth noted all along it."""
        path = [root]
        while len(path[-1]) > self.size and self.after(path[-1]):
            path.append(self._choose(path[-1]))
        gain = self.worth(path[-1])
        for nodes in path:
            self._visits[nodes] = self._visits.get(nodes, 0) + 1
            self._total[nodes] = self._total.get(nodes, 0.0) + gain
        return path

    def _choose(self, nodes: NodeSet) -> NodeSet:
        """The child with the best mean worth so far, plus a bonus for the rarely visited."""
        options = self.after(nodes)
        self._appraise(options)
        tried = math.sqrt(sum(self._visits.get(option, 0) for option in options))

        def appeal(option: NodeSet) -> float:
            visits = self._visits.get(option, 0)
            mean = self._total[option] / visits if visits else 0.0
            return mean + self.exploration * self.worth(option) * tried / (1 + visits)

        return max(options, key=appeal)

    def after(self, nodes: NodeSet) -> list[NodeSet]:
        """What pruning one node leaves: the largest connected part of the rest, for each of a few nodes."""
        if nodes not in self._next:
            neighbours = _neighbours(self.prediction.edge_index, nodes)
            lowest = sorted(nodes, key=lambda m: (len(neighbours[m]), m))[: self.children]
            parts = [_largest_part(neighbours, nodes - {m}) for m in lowest]
            self._next[nodes] = list(dict.fromkeys(part for part in parts if part))
        return self._next[nodes]

    def worth(self, nodes: NodeSet) -> float:
        """The Shapley value of a node set as one player among the nodes around it, by sampling."""
        self._appraise([nodes])
        return self._worth[nodes]

    def _appraise(self, node_sets: list[NodeSet]) -> None:
        """Find the worth of all these node sets in one go, where it is not known."""
        new = [nodes for nodes in node_sets if nodes not in self._worth]
        if not new:
            return
        with_us, without_us = zip(*(self._games(nodes) for nodes in new), strict=True)
        values = self._values(torch.cat([*with_us, *without_us])).view(2, len(new), -1)
        self._worth.update(zip(new, (values[0] - values[1]).mean(dim=1).tolist(), strict=True))

    def _values(self, sets: Tensor) -> Tensor:
        """The output for every coalition, asked of the model once for each.  # (B,)"""
        keys = [row.tobytes() for row in sets.numpy()]
        new = {key: place for place, key in enumerate(keys) if key not in self._outputs}
        if new:
            asked = sets[list(new.values())]
            found = subgraph_values(self.prediction, asked, on=_scale(self.prediction), route=self._route)
            self._route = found.route if len(new) > 1 else self._route
            self._outputs.update(zip(new, found.values.tolist(), strict=True))
        return torch.tensor([self._outputs[key] for key in keys], dtype=torch.float64)

    def _games(self, nodes: NodeSet) -> tuple[Tensor, Tensor]:
        """Random coalitions with a node set and without it.  # (B, M) bool each"""
        inside = torch.zeros(self.prediction.num_nodes, dtype=torch.bool)
        inside[sorted(nodes)] = True
        others = self._near[inside].any(0) & ~inside
        coalition = _coalitions(others, self.samples) | ~(others | inside)  # what is far away stays
        return coalition | inside, coalition


def _scale(prediction: Prediction) -> str:
    return "logit" if callable(prediction.target) else "probability"


def _coalitions(others: Tensor, samples: int) -> Tensor:
    """Random coalitions of the other players, of every size alike.  # (B, M) bool"""
    share = torch.rand(samples, 1)  # the place of our player in a random order of all
    return (torch.rand(samples, len(others)) < share) & others


def _near(prediction: Prediction, hops: int) -> Tensor:
    """For every node, the nodes from which at most so many edges lead to it.  # (M, M) bool"""
    source, destination = prediction.edge_index.cpu()
    near = torch.eye(prediction.num_nodes)
    step = near.index_put((destination, source), torch.ones(()))
    for _ in range(hops):
        near = (near @ step).clamp(max=1)
    return near > 0


def _neighbours(edge_index: Tensor, nodes: NodeSet) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {m: set() for m in nodes}
    for u, v in edge_index.t().tolist():
        if u in nodes and v in nodes and u != v:
            found[u].add(v)
            found[v].add(u)
    return found


def _largest_part(neighbours: dict[int, set[int]], nodes: NodeSet) -> NodeSet:
    """The largest connected part of some nodes; of equal ones, that with the lowest node."""
    best: NodeSet = frozenset()
    left = set(nodes)
    while left:
        part, frontier = set(), [min(left)]
        while frontier:
            m = frontier.pop()
            if m in left:
                left.remove(m)
                part.add(m)
                frontier.extend(neighbours[m])
        best = frozenset(part) if len(part) > len(best) else best
    return best
