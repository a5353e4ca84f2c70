"""The walk searches of "Relevant Walk Search for Explaining Graph Neural Networks" (Xiong et al., ICML 2023).

EMP-neu finds the most relevant *neuron* walks, which name a neuron at every node; EMP-neu* the node walks
with the best neuron walks; AMP-ave finds relevant node walks fast, without promise. For the most relevant
node walks see :mod:`walkwise.search.best_walks`.

All three list ties as :func:`~walkwise.search.best_walks.top_walks` does: of neighbours in the list whose scores are
equal up to rounding, the lexicographically smallest walk first. Which of the walks that tie with the k-th are among the
k is not defined.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.errors import InputError, as_count
from walkwise.questions.partial_walks import Stages
from walkwise.questions.parts import asked_of_part, named
from walkwise.questions.steps import Partials, WalkSteps, descend, openings, walk_steps
from walkwise.questions.ties import ties_in_order
from walkwise.questions.walks import walk_relevance


@dataclass(frozen=True, eq=False)
class NeuronWalks:
    """The k most relevant neuron walks, best first."""

    walks: Tensor  # (k, L + 1) the nodes they pass
    neurons: Tensor  # (k, L + 1) the neurons at those nodes
    relevance: Tensor  # (k,) of the neuron walks


@dataclass(frozen=True, eq=False)
class FoundWalks:
    """k walks in the order an approximate search found them (of ties the smallest first), with their true relevance."""

    walks: Tensor  # (k, L + 1)
    relevance: Tensor  # (k,)


def _in_graph(chain: RelevanceChain, found: Any) -> Any:
    """Walks of a part, with the graph's node ids."""
    return replace(found, walks=named(chain, found.walks))


@without_gradients
@asked_of_part(_in_graph)
def top_walks_emp_neu(chain: RelevanceChain, k: int) -> NeuronWalks:
    """The k neuron walks of largest relevance (EMP-neu), exactly.

    A neuron walk n = ((m_0, n_0), …, (m_L, n_L)) has relevance

        R(n) = H⁰[m_0, n_0] · Π_l ∂Hˡ⁺¹[m_{l+1}, n_{l+1}] / ∂Hˡ[m_l, n_l] · ∂y/∂Hᴸ[m_L, n_L],

    a product of numbers, so the best completion at a neuron is known from max-product messages; the
    largest and the smallest product are kept, since factors may be negative. R(m) is the sum of R(n)
    over the neurons along the node walk m: a relevant neuron walk need not lie on a relevant node walk.

    Args:
        chain: the traced prediction of a model without skip connections.
        k: how many neuron walks.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> best = top_walks_emp_neu(chain, k=3)
    >>> best.walks.shape, best.neurons.shape
    (torch.Size([3, 3]), torch.Size([3, 3]))
    """
    k = _checked(chain, k, "EMP-neu")
    lattice = _lattice(walk_steps(chain))
    waiting: list[tuple[float, int, float, tuple[int, ...], tuple[int, ...]]] = []
    done: list[tuple[float, tuple[int, ...], tuple[int, ...]]] = []
    order = 0
    for bound, factor, node, neuron in lattice.begin(k):
        heapq.heappush(waiting, (-bound, order := order + 1, factor, (node,), (neuron,)))
    while waiting and len(done) < k:
        bound, _, factor, nodes, neurons = heapq.heappop(waiting)
        if len(nodes) == chain.num_layers + 1:
            done.append((-bound, nodes, neurons))
            continue
        for bound, more, node, neuron in lattice.step(len(nodes) - 1, factor, nodes[-1], neurons[-1], k):
            heapq.heappush(waiting, (-bound, order := order + 1, more, (*nodes, node), (*neurons, neuron)))
    walks = _table(chain, [nodes for _, nodes, _ in done])
    neurons_along = _table(chain, [neurons for _, _, neurons in done])
    relevance = _numbers(chain, [relevance for relevance, _, _ in done])
    listed = ties_in_order(torch.cat([walks, neurons_along], dim=1), relevance)
    return NeuronWalks(walks[listed], neurons_along[listed], relevance[listed])


@without_gradients
@asked_of_part(_in_graph)
def top_walks_emp_neu_star(chain: RelevanceChain, k: int) -> FoundWalks:
    """The k node walks whose best neuron walks are the most relevant (EMP-neu*), in that order.

    Node walks m are ranked by max over neurons of R(n), n along m, which stands in for their sum R(m): exact
    for that ranking, and approximate for R(m), which is what comes back as their relevance. A partial walk up
    from the input keeps for every neuron the largest and the smallest product that leads there; with the
    largest and smallest products from the output down, its bound is attained, and best-first search continues
    no walk in vain.

    Args:
        chain: the traced prediction of a model without skip connections.
        k: how many walks.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> top_walks_emp_neu_star(chain, k=3).walks.shape
    torch.Size([3, 3])
    """
    k = _checked(chain, k, "EMP-neu*")
    lattice = _lattice(walk_steps(chain))
    waiting: list[tuple[float, tuple[int, ...], Tensor]] = []
    found: list[tuple[float, tuple[int, ...]]] = []
    nodes = lattice.reached.nonzero()[:, 0]
    begun = lattice.H[nodes].unsqueeze(1).repeat(1, 2, 1)  # (K, 2, N) the largest and the smallest product
    for bound, node, products in zip(lattice.most(begun, nodes, 0), nodes.tolist(), begun, strict=True):
        heapq.heappush(waiting, (-bound, (node,), products))
    while waiting and len(found) < k:
        best, walk, products = heapq.heappop(waiting)
        if len(walk) == chain.num_layers + 1:
            found.append((-best, walk))
            continue
        for bound, node, more in lattice.onward(walk, products):
            heapq.heappush(waiting, (-bound, (*walk, node), more))
    walks = _table(chain, [walk for _, walk in found])
    walks = walks[ties_in_order(walks, _numbers(chain, [best for best, _ in found]))]
    return FoundWalks(walks, walk_relevance(chain, walks))


@without_gradients
@asked_of_part(_in_graph)
def top_walks_amp_ave(chain: RelevanceChain, k: int) -> FoundWalks:
    """k walks of large relevance by approximate max-product (AMP-ave): fast, and not always the best ones.

    Every node of a position keeps one message, that of its best continuation towards the output, judged
    by the relevance ⟨g, Hˡ⟩ = Σ_n g_n Hˡ_n that the message carries there:

        g(l, m) = the message from g(l + 1, m*) down to m,  m* = argmax over m' of its ⟨·, Hˡ[m]⟩.

    After the best walk, the next ones are found by leaving the walks found so far at one position and
    following the best continuations from there; walks are compared by their true relevance R(m).

    Args:
        chain: the traced prediction of a model without skip connections.
        k: how many walks.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> top_walks_amp_ave(chain, k=3).walks.shape
    torch.Size([3, 3])
    """
    k = _checked(chain, k, "AMP-ave")
    steps = walk_steps(chain)
    onward = _best_continuations(steps)
    seen: set[tuple[int, ...]] = set()  # beginnings of walks that have been considered
    waiting: list[tuple[float, int, tuple[int, ...]]] = []
    found: list[tuple[float, tuple[int, ...]]] = []
    last: tuple[int, ...] = ()
    while len(found) < k:
        new = [_followed(start, onward) for start in _departures(steps, onward, last) if start not in seen]
        for relevance, walk in zip(walk_relevance(chain, new).tolist(), new, strict=True):
            heapq.heappush(waiting, (-relevance, len(seen), walk))
            seen.update(walk[: i + 1] for i in range(len(walk)))
        if not waiting:
            break
        relevance, _, last = heapq.heappop(waiting)
        found.append((-relevance, last))
    walks, relevances = _table(chain, [walk for _, walk in found]), _numbers(chain, [value for value, _ in found])
    listed = ties_in_order(walks, relevances)
    return FoundWalks(walks[listed], relevances[listed])


def _table(chain: RelevanceChain, rows: Sequence[tuple[int, ...]]) -> Tensor:
    """Walks, or the neurons along them.  # (K, L + 1)"""
    return torch.tensor(rows, dtype=torch.long, device=chain.device).view(len(rows), chain.num_layers + 1)


def _numbers(chain: RelevanceChain, values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=chain.dtype, device=chain.device)


def _checked(chain: RelevanceChain, k: int, name: str) -> int:
    """k, after a look at it and at the chain."""
    k = as_count(k, "k", "the number of walks")
    if not chain.straight:
        raise InputError(
            f"{name} is defined for models whose walks stand at a node in every position; this one has skip or "
            "jumping connections.",
            argument="chain",
            expected="of a model without skip or jumping connections",
            remedy="walkwise.search.best_walks.top_walks finds the best walks of any model.",
        )
    return k


# -- EMP-neu ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Layer:
    """The maps between two positions, one for each pair of nodes that a walk can step between."""

    lower: Tensor  # (R,)
    upper: Tensor  # (R,)
    block: Tensor  # (R, N above, N below)


@dataclass(frozen=True, eq=False)
class _Lattice:
    """All neurons of all positions, with the largest and smallest product of factors from the output down."""

    H: Tensor  # (M, N) where walks begin
    layers: tuple[_Layer, ...]
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


def _lattice(steps: WalkSteps) -> _Lattice:
    """The layers' maps and the max-product messages, from the output down."""
    M = steps.stages.chain.num_nodes
    (top,) = openings(steps)
    seed = top.message.new_zeros(M, steps.stages.width(top.position)).index_copy(0, top.nodes, top.message[:, 0])
    high, low, nodes = [seed], [seed], top.nodes
    layers: list[_Layer] = []
    for position in range(steps.stages.chain.num_layers, 0, -1):
        layer = _layer(steps, position, nodes)
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
    return _Lattice(_values(steps.stages)[0], tuple(layers), tuple(high), tuple(low), reached)


def _layer(steps: WalkSteps, position: int, nodes: Tensor) -> _Layer:
    """The maps from a few nodes of a position down to the one below."""
    N, below = steps.stages.width(position), steps.stages.width(position - 1)
    parts = [
        _Layer(nodes[:0], nodes[:0], torch.zeros(0, N, below, dtype=steps.stages.chain.dtype, device=nodes.device))
    ]
    for batch in torch.split(nodes, steps.stages.batch(lanes=N)):
        unit = torch.eye(N, dtype=steps.stages.chain.dtype, device=nodes.device).expand(len(batch), N, N)
        _, arrived = descend(steps, Partials(position, batch, unit, batch))
        parts += [_Layer(at.nodes, batch[at.parent], at.message) for at in arrived]
    return _Layer(*(torch.cat([getattr(part, name) for part in parts]) for name in ("lower", "upper", "block")))


# -- AMP-ave ------------------------------------------------------------------------------------------


def _best_continuations(steps: WalkSteps) -> list[dict[int, int]]:
    """For every node of a position the next node of its best continuation; at the last, itself."""
    values = _values(steps.stages)
    (at,) = openings(steps)
    onward = [{node: node for node in at.nodes.tolist()}]
    while at.position > 0:
        parts = []
        for some in torch.split(torch.arange(len(at), device=at.nodes.device), steps.stages.batch()):
            partials = Partials(at.position, at.nodes[some], at.message[some], at.nodes[some])
            parts += [(below, partials.nodes[below.parent]) for below in descend(steps, partials)[1]]
        position = at.position - 1
        nodes = torch.cat([at.nodes[:0], *(below.nodes for below, _ in parts)])
        message = torch.cat([below.message for below, _ in parts]) if parts else at.message[:0]
        after = torch.cat([at.nodes[:0], *(upper for _, upper in parts)])
        score = (message[:, 0] * values[position][nodes]).sum(-1) if parts else message.sum((1, 2))
        best: dict[int, int] = {}
        for i in score.argsort(descending=True, stable=True).tolist():
            best.setdefault(int(nodes[i]), i)
        chosen = torch.tensor(list(best.values()), dtype=torch.long, device=nodes.device)
        onward.insert(0, {node: int(after[i]) for node, i in best.items()})
        at = Partials(position, nodes[chosen], message[chosen], chosen)
    return onward


def _departures(steps: WalkSteps, onward: list[dict[int, int]], walk: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every beginning that follows a walk for a while and then goes one step of its own."""
    starts: list[tuple[int, ...]] = [(node,) for node in sorted(onward[0])]
    for position in range(1, len(walk)):
        above = steps.above(position, walk[position - 1])
        starts += [(*walk[:position], node) for node in above if node in onward[position]]
    return starts


def _followed(start: tuple[int, ...], onward: list[dict[int, int]]) -> tuple[int, ...]:
    """A beginning with its best continuation."""
    walk = list(start)
    for position in range(len(start) - 1, len(onward) - 1):
        walk.append(onward[position][walk[-1]])
    return tuple(walk)


def _values(stages: Stages) -> list[Tensor]:
    """H at every position.  # (M, N) each"""
    chain = stages.chain
    known = dict(chain.roots) | {slot: H for layer in chain.layers for slot, H in (*layer.ends, *layer.starts)}
    after = {step.visit: step.target for step in chain.steps if step.visit is not None}
    return [
        torch.cat([known[v.slot] if v.slot in known else known[after[v]] for v in stages.visits[position]], dim=-1)
        for position in stages.positions
    ]
