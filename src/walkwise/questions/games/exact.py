"""Shapley values and interactions exactly, from the table of walks."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from typing import overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.errors import SamplingWarning, TooManyWalksError, as_count, as_limit
from walkwise.questions.bookkeeping import add_up
from walkwise.questions.games.sampled import as_permutations, as_seed, sampled_values
from walkwise.questions.games.values import ShapleyInteractions, ShapleyValues, values_in_graph
from walkwise.questions.graphs import PaddedGraphs, as_graphs
from walkwise.questions.neighbours import Floats
from walkwise.questions.parts import asked_of_part, named
from walkwise.questions.steps import walk_steps
from walkwise.questions.walk_listing import distinct, named_once
from walkwise.questions.walk_tables import walk_table, whole_table


@overload
def shapley_values(
    chain: RelevanceChain,
    *,
    graphs: None = ...,
    max_walks: int = ...,
    permutations: int = ...,
    seed: int = ...,
    progress: bool | None = ...,
) -> ShapleyValues: ...


@overload
def shapley_values(
    chain: RelevanceChain,
    *,
    graphs: Tensor,
    max_walks: int = ...,
    permutations: int = ...,
    seed: int = ...,
    progress: bool | None = ...,
) -> list[ShapleyValues]: ...


@without_gradients
@asked_of_part(values_in_graph)
def shapley_values(
    chain: RelevanceChain,
    *,
    graphs: Tensor | None = None,
    max_walks: int = 1_000_000,
    permutations: int = 200,
    seed: int = 0,
    progress: bool | None = None,
) -> ShapleyValues | list[ShapleyValues]:
    """Return the Shapley value of every node in the game v(S) = R(S), exactly if its walks can be listed.

        φ_i = Σ over walks m through i of R(m) / (number of distinct nodes of m)

    The reason: the game that pays R to every S ⊇ T gives R / |T| to each node of T (they are interchangeable, and all
    others contribute nothing), and v is the sum of these games over all walks. Σ_i φ_i = R of the graph.

    If there are too many walks, the values are those of :func:`sampled_shapley_values`, with a standard error. A
    SamplingWarning says so, and so do ``method`` and ``route`` of the result.

    Args:
        chain: the traced prediction.
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then the answer is a
            list with the values of each graph, whose ``nodes`` are the chain's node ids.
        max_walks: if there are more walks, values are sampled.
        permutations: how many node orders to sample in that case, at least 2.
        seed: of the sampling.
        progress: show how many orders have been sampled; by default only if that takes more than two seconds.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> abs(float(shapley_values(chain).values.sum()) - chain.input_relevance) < 1e-6
    True
    """
    permutations, max_walks = as_permutations(permutations), as_limit(max_walks, "max_walks")
    seed = as_seed(seed)
    found: list[ShapleyValues] = []
    separate, walks = as_graphs(chain, graphs), _ending(chain)
    for some in separate.parts(walks, max_walks):
        total = walks[some.nodes].sum()
        if total <= max_walks:
            found += _values_from_table(chain, some, walks)
        else:
            message = (
                f"There are {total:.15g} walks, more than max_walks={max_walks}. The Shapley values are estimated from "
                f"{permutations} sampled orders of the nodes instead."
            )
            warnings.warn(message, SamplingWarning, stacklevel=4)
            found.append(sampled_values(chain, some.nodes, permutations, seed, progress))
    found = [replace(each, types=chain.types) for each in found]
    return found[0] if graphs is None else found


def _ending(chain: RelevanceChain) -> Floats:
    """How many walks end at each node: beyond all limits where they cannot be counted.  # (M,)"""
    try:
        return walk_steps(chain).ending
    except TooManyWalksError:
        return np.full(chain.num_nodes, np.inf)


def _values_from_table(chain: RelevanceChain, graphs: PaddedGraphs, walks: Floats) -> list[ShapleyValues]:
    """The values of every graph, each walk's relevance shared by the nodes it visits."""
    nodes = graphs.nodes
    table = walk_table(chain, "nodes", ends=nodes if len(nodes) < chain.num_nodes else None)
    visited = named_once(np.sort(table.visits, axis=1))  # (T, L + 1)
    named = visited >= 0
    share = np.broadcast_to((table.relevance / np.maximum(1, named.sum(1)))[:, None], visited.shape)
    values = torch.from_numpy(add_up(visited[named], share[named], chain.num_nodes)).to(chain.device, chain.dtype)
    found = []
    for g in range(len(graphs)):
        members = graphs.members(g)
        whose = torch.from_numpy(members).to(chain.device)
        route = f"all {int(walks[members].sum()):,} walks listed"
        found.append(ShapleyValues(values[whose], torch.zeros_like(values[whose]), "walks", whose, route))
    return found


def _sets_in_graph(chain: RelevanceChain, found: ShapleyInteractions) -> ShapleyInteractions:
    return replace(found, nodes=named(chain, found.nodes), num_nodes=chain.num_nodes)


@without_gradients
@asked_of_part(_sets_in_graph)
def shapley_interactions(chain: RelevanceChain, *, order: int = 2, max_walks: int = 1_000_000) -> ShapleyInteractions:
    """The Shapley interaction index (SII) of every set of nodes of one order, exactly, from the walks.

        SII(S) = Σ over T ⊇ S of a(T) / (|T| − |S| + 1),

    with a(T) the relevance of the walks that visit exactly T: for pairs each walk through both nodes gives
    R(m) / (number of distinct nodes − 1). Order 1 is the Shapley value.

    Args:
        chain: the traced prediction, of a small graph.
        order: the size of S, 2 for pairs.
        max_walks: if there are more walks, TooManyWalksError is raised; :func:`sampled_pair_interactions` goes further.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> shapley_interactions(chain).dense().shape
    torch.Size([3, 3])
    """
    order, max_walks = as_count(order, "order", "the number of nodes in a set"), as_limit(max_walks, "max_walks")
    try:
        return _index(chain, order, max_walks)
    except TooManyWalksError as error:
        if order == 2:
            raise error.advised("For chosen pairs, sampled_pair_interactions can estimate them.") from None
        raise


def _index(chain: RelevanceChain, order: int, max_walks: int) -> ShapleyInteractions:
    """SII of one order from the Möbius terms: the table's entries, and the nodes that each visits."""
    table = whole_table(chain, "nodes", max_walks)
    sets = named_once(np.sort(table.visits, axis=1)).astype(np.int64)  # (T, L + 1) ascending, -1 first
    sizes, keys, shares = (sets >= 0).sum(1), [np.zeros((0, order), dtype=np.int64)], [np.zeros(0)]
    for columns in itertools.combinations(range(sets.shape[1]), order):
        held = sets[:, columns[0]] >= 0
        keys.append(sets[held][:, columns])
        shares.append(table.relevance[held] / (sizes[held] - order + 1))
    named = np.concatenate(keys)
    first, which = distinct(named, chain.num_nodes)
    values = torch.from_numpy(add_up(which, np.concatenate(shares), len(first))).to(chain.device, chain.dtype)
    nodes = torch.from_numpy(named[first]).to(chain.device)
    return ShapleyInteractions(order, chain.num_nodes, nodes, values, torch.zeros_like(values), "walks")
