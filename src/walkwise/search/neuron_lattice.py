"""All neurons of all positions, the factors between them, and the best products of factors from the output down."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.questions.partial_walks import Stages
from walkwise.questions.steps import Partials, WalkSteps, descend, openings


@dataclass(frozen=True, eq=False)
class NeuronMaps:
    """The maps between two positions, one for each pair of nodes that a walk can step between."""

    lower: Tensor  # (R,)
    upper: Tensor  # (R,)
    block: Tensor  # (R, N above, N below)


@dataclass(frozen=True, eq=False)
class NeuronLattice:
    """All neurons of all positions, with the largest and smallest product of factors from the output down."""

    H: Tensor  # (M, N) where walks begin
    layers: tuple[NeuronMaps, ...]
    high: tuple[Tensor, ...]  # for each position (M, N)
    low: tuple[Tensor, ...]
    reached: Tensor  # (M,) nodes of position 0 that the output reaches

    def begin(self, k: int) -> list[tuple[float, float, int, int]]:
        """The k most promising first neurons: bound, factor so far, node, neuron."""
        nodes = self.reached.nonzero()[:, 0]
        return self._best(self.H[nodes], nodes, 0, k)

    def step(self, position: int, factor: float, node: int, neuron: int, k: int) -> list[tuple[float, float, int, int]]:
        """The k most promising neurons after one at a position."""
        layer = self.layers[position]
        here = layer.lower == node
        return self._best(factor * layer.block[here, :, neuron], layer.upper[here], position + 1, k)

    def onward(self, walk: tuple[int, ...], products: Tensor) -> list[tuple[float, int, Tensor]]:
        """A node walk with one more node: bound, node, and the products that lead to its neurons (2, N)."""
        layer = self.layers[len(walk) - 1]
        here = layer.lower == walk[-1]
        steps = layer.block[here].unsqueeze(1) * products.unsqueeze(1)  # (R, 2, N above, N below)
        more = torch.stack([steps.amax((1, 3)), steps.amin((1, 3))], dim=1)  # (R, 2, N above)
        nodes = layer.upper[here]
        return list(zip(self.most(more, nodes, len(walk)), nodes.tolist(), more, strict=True))

    def most(self, products: Tensor, nodes: Tensor, position: int) -> list[float]:
        """The largest product of any completion, given the largest and smallest so far.  # (R, 2, N) -> R"""
        ways = [products * onward[position][nodes].unsqueeze(1) for onward in (self.high, self.low)]
        most: list[float] = torch.maximum(*ways).amax((1, 2)).tolist()
        return most

    def _best(self, factors: Tensor, nodes: Tensor, position: int, k: int) -> list[tuple[float, float, int, int]]:
        bound = torch.maximum(factors * self.high[position][nodes], factors * self.low[position][nodes]).flatten()
        best, which = bound.topk(min(k, len(bound)))
        row, neuron = which // factors.shape[1], which % factors.shape[1]
        picked = zip(
            best.tolist(), factors.flatten()[which].tolist(), nodes[row].tolist(), neuron.tolist(), strict=True
        )
        return list(picked)


def lattice_of(steps: WalkSteps) -> NeuronLattice:
    """The layers' maps and the max-product messages, from the output down."""
    M = steps.stages.chain.num_nodes
    (top,) = openings(steps)
    seed = top.message.new_zeros(M, steps.stages.width(top.position)).index_copy(0, top.nodes, top.message[:, 0])
    high, low, nodes = [seed], [seed], top.nodes
    layers: list[NeuronMaps] = []
    for position in range(steps.stages.chain.num_layers, 0, -1):
        layer = _maps(steps, position, nodes)
        up, down = high[0][layer.upper, :, None], low[0][layer.upper, :, None]
        most = torch.maximum(layer.block * up, layer.block * down).amax(1)  # (R, N below)
        least = torch.minimum(layer.block * up, layer.block * down).amin(1)
        index = layer.lower[:, None].expand_as(most)
        blank = most.new_zeros(M, most.shape[1])
        high.insert(0, blank.scatter_reduce(0, index, most, "amax", include_self=False))
        low.insert(0, blank.scatter_reduce(0, index, least, "amin", include_self=False))
        layers.insert(0, layer)
        nodes = torch.unique(layer.lower)
    reached = torch.zeros(M, dtype=torch.bool, device=nodes.device).index_fill(0, nodes, True)
    return NeuronLattice(values_at(steps.stages)[0], tuple(layers), tuple(high), tuple(low), reached)


def _maps(steps: WalkSteps, position: int, nodes: Tensor) -> NeuronMaps:
    """The maps from a few nodes of a position down to the one below."""
    N, below = steps.stages.width(position), steps.stages.width(position - 1)
    parts = [
        NeuronMaps(nodes[:0], nodes[:0], torch.zeros(0, N, below, dtype=steps.stages.chain.dtype, device=nodes.device))
    ]
    for batch in torch.split(nodes, steps.stages.batch(lanes=N)):
        unit = torch.eye(N, dtype=steps.stages.chain.dtype, device=nodes.device).expand(len(batch), N, N)
        _, arrived = descend(steps, Partials(position, batch, unit, batch))
        parts += [NeuronMaps(at.nodes, batch[at.parent], at.message) for at in arrived]
    return NeuronMaps(*(torch.cat([getattr(part, name) for part in parts]) for name in ("lower", "upper", "block")))


def values_at(stages: Stages) -> list[Tensor]:
    """H at every position.  # (M, N) each"""
    chain = stages.chain
    known = dict(chain.roots) | {slot: H for layer in chain.layers for slot, H in (*layer.ends, *layer.starts)}
    after = {step.visit: step.target for step in chain.steps if step.visit is not None}
    return [
        torch.cat([known[v.slot] if v.slot in known else known[after[v]] for v in stages.visits[position]], dim=-1)
        for position in stages.positions
    ]
