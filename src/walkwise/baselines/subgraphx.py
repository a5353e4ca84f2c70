"""SubgraphX: Monte-Carlo tree search for a connected subgraph of large Shapley value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from walkwise.baselines.attribution import Attribution, of_nodes
from walkwise.baselines.registry import register_baseline
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import Prediction
from walkwise.search.candidates import around, nodes_in

#: On how many random node sets it is tried how far a model sees.
_TRIED = 100

NodeSet = int  # bit m says whether node m is in it


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
    """SubgraphX (Yuan et al., 2021), as a score per node: how long the node stayed on the way to the best subgraph.

    From the whole graph the search prunes one node at a time and keeps the largest connected part, until at
    most ``size`` nodes are left. A node set is worth its Shapley value in the game of the nodes within ``hops`` of
    it, estimated from samples of the others. The nodes of the best subgraph found score highest, and those
    pruned first on the way there lowest.

    Args:
        prediction: the prediction to explain.
        size: how many nodes the subgraph may have.
        rollouts: how often the search runs from the whole graph down.
        children: how many nodes, those of lowest degree, are tried for pruning at each step.
        samples: how many coalitions estimate a Shapley value.
        hops: how far the other players of the game may be: the model's layers.
        exploration: how much the search prefers untried steps.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> subgraphx(prediction).nodes.shape
    torch.Size([3])
    """
    search = _SearchTree(prediction, size, children, samples, hops, exploration)
    root = (1 << prediction.num_nodes) - 1
    paths = [search.rollout(root) for _ in range(rollouts)]
    best = max(paths, key=lambda path: search.worth(path[-1]))
    return of_nodes(search.masks(best).sum(0).float())


@dataclass
class _SearchTree:
    """The part of the search tree seen so far."""

    prediction: Prediction
    size: int
    children: int
    samples: int
    hops: int
    exploration: float
    _route: str | None = None
    _outputs: dict[bytes, float] = field(default_factory=dict)
    _coalitions: dict[NodeSet, Tensor] = field(default_factory=dict)  # (samples, M) bool each, without the node set
    _worth: dict[NodeSet, float] = field(default_factory=dict)
    _next: dict[NodeSet, list[NodeSet]] = field(default_factory=dict)
    _visits: dict[NodeSet, int] = field(default_factory=dict)
    _total: dict[NodeSet, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._step = _step(self.prediction)
        self._near = torch.eye(len(self._step))  # [i, j]: whether messages of j arrive at i
        for _ in range(self.hops):
            self._near = (self._near @ self._step).clamp(max=1)
        self._adjacent = _adjacent(self.prediction)
        self._reach = self._found_reach()

    def rollout(self, root: NodeSet) -> list[NodeSet]:
        """One way from the whole graph to a small subgraph, and its worth noted all along it."""
        path = [root]
        while path[-1].bit_count() > self.size and self.after(path[-1]):
            path.append(self._choose(path[-1]))
        gain = self.worth(path[-1])
        for nodes in path:
            self._visits[nodes] = self._visits.get(nodes, 0) + 1
            self._total[nodes] = self._total.get(nodes, 0.0) + gain
        return path

    def _choose(self, nodes: NodeSet) -> NodeSet:
        """The child with the best mean worth so far, plus a bonus for the rarely visited; the first where none was."""
        options = self.after(nodes)
        self._draw(options)
        tried = math.sqrt(sum(self._visits.get(option, 0) for option in options))
        if not tried:  # nobody has a mean or a bonus, so what the options are worth need not be known
            return options[0]
        self._appraise(options)

        def appeal(option: NodeSet) -> float:
            visits = self._visits.get(option, 0)
            mean = self._total[option] / visits if visits else 0.0
            return mean + self.exploration * self.worth(option) * tried / (1 + visits)

        return max(options, key=appeal)

    def after(self, nodes: NodeSet) -> list[NodeSet]:
        """What pruning one node leaves: the largest connected part of the rest, for each of a few nodes."""
        if nodes not in self._next:
            degrees = {m: (self._adjacent[m] & nodes).bit_count() for m in nodes_in(nodes)}
            lowest = sorted(degrees, key=lambda m: (degrees[m], m))[: self.children]
            whole = _largest_part(self._adjacent, nodes) == nodes  # then a node of one neighbour may go without a look
            rest = ((nodes ^ 1 << m, whole and degrees[m] < 2) for m in lowest)
            parts = [left if connected else _largest_part(self._adjacent, left) for left, connected in rest]
            self._next[nodes] = list(dict.fromkeys(part for part in parts if part))
        return self._next[nodes]

    def worth(self, nodes: NodeSet) -> float:
        """The Shapley value of a node set as one player among the nodes around it, by sampling."""
        self._appraise([nodes])
        return self._worth[nodes]

    def _appraise(self, node_sets: list[NodeSet]) -> None:
        """Compute the missing worths of all these node sets in one go."""
        new = [nodes for nodes in node_sets if nodes not in self._worth]
        if not new:
            return
        self._draw(new)
        without_us = torch.cat([self._coalitions[nodes] for nodes in new])
        with_us = without_us | self.masks(new).repeat_interleave(self.samples, 0)
        values = self._values(torch.cat([with_us, without_us])).view(2, len(new), -1)
        self._worth.update(zip(new, (values[0] - values[1]).mean(dim=1).tolist(), strict=True))

    def _values(self, sets: Tensor) -> Tensor:
        """The output for every coalition; the model runs once for coalitions that it cannot distinguish.  # (B,)"""
        sets = sets if self._reach is None else self._seen(sets, self._reach)
        packed = np.packbits(sets.numpy(), axis=1)
        keys = packed.view(f"V{packed.shape[1]}").ravel().tolist()
        new = {key: place for place, key in enumerate(keys) if key not in self._outputs}
        if new:
            asked = sets[list(new.values())]
            found = subgraph_values(self.prediction, asked, on=_scale(self.prediction), route=self._route)
            self._route = found.route if len(new) > 1 else self._route
            self._outputs.update(zip(new, found.values.tolist(), strict=True))
        return torch.tensor([self._outputs[key] for key in keys], dtype=torch.float64)

    def _seen(self, sets: Tensor, reach: int) -> Tensor:
        """Of every coalition the nodes whose messages arrive at the explained one, which stays.  # (B, M) bool"""
        seen = torch.zeros_like(sets)
        seen[:, self.prediction.index] = True
        for _ in range(reach):
            seen = (seen.float() @ self._step > 0) & (sets | seen)
        return seen

    def _found_reach(self) -> int | None:
        """How far the output of a node depends on others, by trying node sets at random; None if it may be anywhere.

        One step more than ``hops`` is tried, too: layers that divide by degrees look as far.
        """
        if self.prediction.index is None:
            return None
        chance = torch.Generator().manual_seed(0)
        share = torch.rand(_TRIED, 1, generator=chance)
        sets = torch.rand(_TRIED, self.prediction.num_nodes, generator=chance) < share
        whole = subgraph_values(self.prediction, sets).values
        for reach in (self.hops, self.hops + 1):
            if torch.allclose(subgraph_values(self.prediction, self._seen(sets, reach)).values, whole, 1e-4, 1e-5):
                return reach
        return None

    def _draw(self, node_sets: list[NodeSet]) -> None:
        """Draw coalitions of the nodes around each of these node sets, where there are none, of every size alike."""
        new = [nodes for nodes in node_sets if nodes not in self._coalitions]
        if not new:
            return
        inside = self.masks(new)  # (B, M)
        others = (inside.float() @ self._near > 0) & ~inside
        drawn = torch.rand(len(new), self.samples * (1 + inside.shape[1]))
        share = drawn[:, : self.samples, None]  # the place of our player in a random order of all
        joined = drawn[:, self.samples :].view(len(new), self.samples, -1) < share
        far = ~(others | inside)  # what is far away stays
        self._coalitions.update(zip(new, joined & others[:, None] | far[:, None], strict=True))

    def masks(self, node_sets: list[NodeSet]) -> Tensor:
        """Every node set as a row.  # (B, M) bool"""
        M = self.prediction.num_nodes
        packed = b"".join(nodes.to_bytes(-(-M // 8), "little") for nodes in node_sets)
        rows = np.frombuffer(packed, dtype=np.uint8).reshape(len(node_sets), -1)
        return torch.from_numpy(np.unpackbits(rows, axis=1, count=M, bitorder="little")).bool()


def _scale(prediction: Prediction) -> str:
    return "logit" if callable(prediction.target) else "probability"


def _step(prediction: Prediction) -> Tensor:
    """For every node, itself and the nodes from which an edge leads to it.  # (M, M) 0 or 1"""
    source, destination = prediction.edge_index.cpu()
    return torch.eye(prediction.num_nodes).index_put((destination, source), torch.ones(()))


def _adjacent(prediction: Prediction) -> list[NodeSet]:
    """The neighbours of every node, in either direction."""
    found = [0] * prediction.num_nodes
    for u, v in prediction.edge_index.t().tolist():
        if u != v:
            found[u] |= 1 << v
            found[v] |= 1 << u
    return found


def _largest_part(adjacent: list[NodeSet], nodes: NodeSet) -> NodeSet:
    """The largest connected part of some nodes; of equal ones, that with the lowest node."""
    best = 0
    while nodes:
        part = new = nodes & -nodes
        while new:
            new = around(adjacent, new) & nodes & ~part
            part |= new
        best = part if part.bit_count() > best.bit_count() else best
        nodes &= ~part
    return best
