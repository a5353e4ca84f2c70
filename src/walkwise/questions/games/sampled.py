"""Shapley values and interactions estimated from sampled node orders, for when there are too many walks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.errors import InputError, as_count, described
from walkwise.questions.games.values import ShapleyInteractions, ShapleyValues, values_in_graph
from walkwise.questions.neighbours import Ints
from walkwise.questions.nodesets import budget
from walkwise.questions.parts import asked_of_part, part_of, rows_of
from walkwise.questions.progress import shown
from walkwise.questions.subgraphs import subgraph_relevance


@without_gradients
@asked_of_part(values_in_graph)
def sampled_shapley_values(
    chain: RelevanceChain, *, permutations: int = 200, seed: int = 0, progress: bool | None = None
) -> ShapleyValues:
    """Estimates of the Shapley values by sampling orders of the nodes, with standard errors.

        φ_i = E over orders of [ v(nodes up to and with i) − v(nodes before i) ]

    Each order takes M subgraphs of one batched query. The estimates sum to R of the graph exactly.

    Args:
        chain: the traced prediction, of a graph of any size.
        permutations: how many orders to sample, at least 2.
        seed: of the sampling.
        progress: as in :func:`shapley_values`.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> found = sampled_shapley_values(chain, permutations=50)
    >>> found.method, found.standard_error.shape
    ('permutations', torch.Size([3]))
    """
    nodes = np.arange(chain.num_nodes)
    return sampled_values(chain, nodes, as_permutations(permutations), seed, progress)


def sampled_values(
    chain: RelevanceChain, nodes: Ints, permutations: int, seed: int, progress: bool | None
) -> ShapleyValues:
    """The values of some nodes that no walk joins to others."""
    M, generator, members = len(nodes), torch.Generator().manual_seed(as_seed(seed)), torch.from_numpy(nodes)
    total = torch.zeros(M, dtype=torch.float64)
    squares = torch.zeros(M, dtype=torch.float64)
    most = max(1, budget(chain) // max(1, M * chain.num_nodes))
    for first in shown(range(0, permutations, most), progress, desc="sampled orders", unit_scale=most):
        count = min(most, permutations - first)
        orders = torch.stack([torch.randperm(M, generator=generator) for _ in range(count)])  # (P, M)
        rank = torch.argsort(orders, dim=1)
        prefixes = torch.zeros(count, M, chain.num_nodes, dtype=torch.bool)
        prefixes[:, :, members] = rank[:, None, :] <= torch.arange(M)[None, :, None]  # the first 1 … M nodes
        worth = _worth(chain, prefixes)  # (P, M)
        steps = torch.diff(worth, dim=1, prepend=torch.zeros(count, 1, dtype=torch.float64))
        brought = torch.zeros_like(steps).scatter(1, orders, steps)  # (P, M) by node
        total += brought.sum(0)
        squares += brought.square().sum(0)
    mean, error = (number.to(chain.device, chain.dtype) for number in _mean(total, squares, permutations))
    return ShapleyValues(mean, error, "permutations", members.to(chain.device), f"{permutations} sampled orders")


@without_gradients
def sampled_pair_interactions(
    chain: RelevanceChain,
    pairs: Sequence[tuple[int, int]] | Tensor,
    *,
    permutations: int = 200,
    seed: int = 0,
    progress: bool | None = None,
) -> ShapleyInteractions:
    """Estimates of the Shapley interaction index of chosen pairs by sampling, with standard errors.

        SII(i, j) = E over orders of [ v(T ∪ {i, j}) − v(T ∪ {i}) − v(T ∪ {j}) + v(T) ],

    T the nodes before the pair, in orders of the nodes in which the two come one after the other. Each order
    takes four subgraphs of one batched query.

    Args:
        chain: the traced prediction, of a graph of any size.
        pairs: the pairs of nodes, (P, 2).
        permutations: how many orders to sample for each pair, at least 2.
        seed: of the sampling.
        progress: as in :func:`shapley_values`.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.questions.games import sampled_pair_interactions
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> sampled_pair_interactions(chain, [(0, 1), (1, 2)]).values.shape
    torch.Size([2])
    """
    permutations = as_permutations(permutations)
    M, generator = chain.num_nodes, torch.Generator().manual_seed(as_seed(seed))
    nodes = _as_pairs(pairs, M)  # (P, 2)
    if chain.part is not None:
        return _sampled_in_part(chain, nodes.to(chain.device), permutations=permutations, seed=seed, progress=progress)
    P, most = len(nodes), max(1, budget(chain) // (4 * M * max(1, len(nodes))))
    total, squares = torch.zeros(P, dtype=torch.float64), torch.zeros(P, dtype=torch.float64)
    for first in shown(range(0, permutations, most), progress, desc="sampled orders", unit_scale=most):
        count = min(most, permutations - first)
        rank = torch.rand(count, P, M, generator=generator).scatter_(2, nodes.expand(count, P, 2), 2.0)
        # Where the pair comes: with each number of the other nodes before it equally often.
        before = rank.sort(dim=2).values.gather(2, torch.randint(M - 1, (count, P, 1), generator=generator))
        sets = (rank < before)[:, :, None].repeat(1, 1, 4, 1)  # (C, P, 4, M) with neither, i, j and both
        for which, joined in ((0, (1, 3)), (1, (2, 3))):
            for place in joined:
                sets[:, :, place].scatter_(2, nodes[:, which, None].expand(count, P, 1), True)
        neither, i, j, both = _worth(chain, sets).unbind(-1)
        gained = both - i - j + neither
        total += gained.sum(0)
        squares += gained.square().sum(0)
    mean, error = (number.to(chain.device, chain.dtype) for number in _mean(total, squares, permutations))
    return ShapleyInteractions(2, M, nodes.to(chain.device), mean, error, "permutations")


def _sampled_in_part(chain: RelevanceChain, nodes: Tensor, **options: Any) -> ShapleyInteractions:
    """The pairs of which both nodes are in the part; no walk visits the others."""
    rows = rows_of(chain, nodes)
    inside = (rows >= 0).all(1)
    found = sampled_pair_interactions(part_of(chain)[0], rows[inside], **options)
    values, error = (torch.zeros(len(nodes), dtype=chain.dtype, device=chain.device) for _ in range(2))
    values[inside], error[inside] = found.values, found.standard_error
    return ShapleyInteractions(2, chain.num_nodes, nodes, values, error, found.method)


def _worth(chain: RelevanceChain, sets: Tensor) -> Tensor:
    """v of sets of nodes, in double precision.  # (…, M) -> (…)"""
    masks = sets.reshape(-1, chain.num_nodes).to(chain.device)
    return subgraph_relevance(chain, masks).double().cpu().view(sets.shape[:-1])


def _mean(total: Tensor, squares: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The mean of samples and its standard error, given their sum and the sum of their squares."""
    mean = total / count
    variance = (squares - count * mean.square()).clamp(min=0) / (count - 1)
    return mean, (variance / count).sqrt()


def as_permutations(permutations: int) -> int:
    """How many orders to sample: one alone has no standard error."""
    return as_count(permutations, "permutations", "the number of orders to sample", least=2)


def _as_pairs(pairs: Sequence[tuple[int, int]] | Tensor, num_nodes: int) -> Tensor:
    """Pairs of nodes as the caller gives them, each ascending.  # (P, 2)"""
    nodes = torch.as_tensor(pairs).cpu()
    if nodes.dim() != 2 or nodes.shape[1] != 2 or nodes.is_floating_point():
        raise InputError(argument="pairs", expected="pairs of node ids, of shape (P, 2)", got=described(nodes))
    nodes = nodes.long().sort(dim=1).values
    wrong = (nodes[:, 0] < 0) | (nodes[:, 1] >= num_nodes) | (nodes[:, 0] == nodes[:, 1])
    if wrong.any():
        i, j = nodes[wrong][0].tolist()
        expected = f"pairs of different nodes from 0 to {num_nodes - 1}"
        raise InputError(argument="pairs", expected=expected, got=(i, j))
    return nodes


def as_seed(seed: int) -> int:
    """The seed of the orders to sample, as torch takes it."""
    return as_count(seed, "seed", least=0) % (1 << 63)
