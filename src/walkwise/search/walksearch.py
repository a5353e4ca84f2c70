"""The walk searches of "Relevant Walk Search for Explaining Graph Neural Networks" (Xiong et al., ICML 2023).

EMP-neu finds the most relevant *neuron* walks, which name a neuron at every node; EMP-neu* the node walks
with the best neuron walks; AMP-ave finds relevant node walks fast, without a guarantee. For the most relevant node
walks see :mod:`walkwise.search.best_walks`.

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
from walkwise.questions.parts import asked_of_part, named
from walkwise.questions.steps import Partials, WalkSteps, descend, openings, walk_steps
from walkwise.questions.ties import ties_in_order
from walkwise.questions.walks import walk_relevance
from walkwise.search.neuron_lattice import lattice_of, values_at


@dataclass(frozen=True, eq=False)
class NeuronWalks:
    """The k most relevant neuron walks, best first."""

    walks: Tensor  # (k, L + 1) the nodes they pass
    neurons: Tensor  # (k, L + 1) the neurons at those nodes
    relevance: Tensor  # (k,) of the neuron walks


@dataclass(frozen=True, eq=False)
class FoundWalks:
    """k walks in the order of an approximate search (of ties the smallest first), with their true relevance."""

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
    lattice = lattice_of(walk_steps(chain))
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
    from the input keeps for every neuron the largest and the smallest product that leads there; with the largest and
    smallest products from the output down, its bound is attained, so best-first search continues no walk in vain.

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
    lattice = lattice_of(walk_steps(chain))
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


def _best_continuations(steps: WalkSteps) -> list[dict[int, int]]:
    """For every node of a position the next node of its best continuation; at the last, itself."""
    values = values_at(steps.stages)
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
