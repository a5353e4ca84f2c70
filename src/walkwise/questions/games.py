"""Subgraph relevance as a cooperative game: Shapley values and interactions of nodes, and a door to shapiq.

The game v(S) = R(S), the relevance of the walks inside S, is a sum over walks of R(m) times the game that
pays 1 to every S that holds all nodes of m. So its Möbius term a(T) is the relevance of the walks that visit
exactly T, terms of more than L + 1 nodes vanish, and every index that is linear in the game follows.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.display import html_box, html_table, number
from walkwise.errors import InputError, MissingExtraError, SamplingWarning, TooManyWalksError, as_count, described
from walkwise.questions.graphs import PaddedGraphs, as_graphs
from walkwise.questions.neighbours import Floats, Ints, add_up
from walkwise.questions.nodesets import budget
from walkwise.questions.parts import asked_of_part, named, part_of, per_node, rows_of
from walkwise.questions.progress import shown
from walkwise.questions.steps import walk_steps
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.questions.walk_table import distinct, named_once, walk_table, whole_table


@dataclass(frozen=True, eq=False, repr=False)
class ShapleyValues:
    """What each node brings to the relevance of the graph."""

    values: Tensor  # (M,) they sum to R of the whole graph
    standard_error: Tensor  # (M,) zero where the values are exact
    method: str  # "walks" (exact) or "permutations" (sampled)
    nodes: Tensor  # (M,) whose they are: all nodes of the chain, or those of one graph
    route: str  # how they were found, in words
    types: NodeTypes | None = None  # of a heterogeneous graph

    @property
    def named(self) -> dict[TypedNode | None, float]:
        """The values of a heterogeneous graph by node: {(type, i): value}."""
        return {} if self.types is None else dict(zip(self.types.walk(self.nodes), self.values.tolist(), strict=True))

    def __repr__(self) -> str:
        """How many, their sum, and the route."""
        return f"ShapleyValues({len(self.nodes)} nodes, sum {float(self.values.sum()):.4g}; {self.route})"

    def _repr_html_(self) -> str:
        """A table for notebooks: the nodes with the largest values."""
        given = self.nodes[:, None], self.values, self.standard_error, self.route
        return _largest_html("Shapley values", *given, types=self.types)


@dataclass(frozen=True, eq=False)
class ShapleyInteractions:
    """Shapley interaction indices of sets of nodes; sets that no walk visits have none."""

    order: int
    num_nodes: int
    nodes: Tensor  # (P, order) ascending
    values: Tensor  # (P,)
    standard_error: Tensor  # (P,) zero where the values are exact
    method: str  # "walks" (exact) or "permutations" (sampled)

    def dense(self) -> Tensor:
        """The same as a symmetric table, zero where a node would stand twice.  # (M,) * order"""
        table = self.values.new_zeros((self.num_nodes,) * self.order)
        for order in itertools.permutations(range(self.order)):
            table[tuple(self.nodes[:, i] for i in order)] = self.values
        return table

    def _repr_html_(self) -> str:
        """A table for notebooks: the sets with the largest values."""
        route = "exactly, from the walks" if self.method == "walks" else "from sampled orders of the nodes"
        return _largest_html("Shapley interactions", self.nodes, self.values, self.standard_error, route)


def _largest_html(
    title: str, sets: Tensor, values: Tensor, errors: Tensor, route: str, most: int = 20, types: NodeTypes | None = None
) -> str:
    """A table of the sets of nodes with the largest values."""
    best = values.abs().argsort(descending=True, stable=True)[:most]
    sampled = bool((errors > 0).any())
    rows = [
        (
            ", ".join(map(str, sets[i].tolist()) if types is None else types.written(sets[i])),
            float(values[i]),
            *([float(errors[i])] if sampled else []),
        )
        for i in best.tolist()
    ]
    columns = ["node" if sets.shape[1] == 1 else "nodes", ">value", *([">standard error"] if sampled else [])]
    left = len(values) - len(best)
    note = f"{route[:1].upper()}{route[1:]}." + (f" {left:,} of smaller magnitude are not shown." if left else "")
    return html_box(html_table(columns, rows, title=f"{title}, sum {number(float(values.sum()))}", note=note))


def _values_in_graph(chain: RelevanceChain, found: ShapleyValues) -> ShapleyValues:
    """The values of a part's nodes as those of all nodes; the others bring nothing."""
    values, error = per_node(chain, found.values), per_node(chain, found.standard_error)
    nodes = torch.arange(chain.num_nodes, device=chain.device)
    return replace(found, values=values, standard_error=error, nodes=nodes)


def _sets_in_graph(chain: RelevanceChain, found: ShapleyInteractions) -> ShapleyInteractions:
    return replace(found, nodes=named(chain, found.nodes), num_nodes=chain.num_nodes)


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
@asked_of_part(_values_in_graph)
def shapley_values(
    chain: RelevanceChain,
    *,
    graphs: Tensor | None = None,
    max_walks: int = 1_000_000,
    permutations: int = 200,
    seed: int = 0,
    progress: bool | None = None,
) -> ShapleyValues | list[ShapleyValues]:
    """The Shapley value of every node in the game v(S) = R(S): exactly, from the walks, where they can be listed.

        φ_i = Σ over walks m through i of R(m) / (number of distinct nodes of m)

    For the game that pays R to every S ⊇ T gives R / |T| to each node of T (they are interchangeable, and
    all others bring nothing), and v is the sum of these games over all walks. Σ_i φ_i = R of the graph.

    Where there are too many walks, the values are those of :func:`sampled_shapley_values`, with a standard error;
    a SamplingWarning says so, and ``method`` and ``route`` of the answer.

    Args:
        chain: the traced prediction.
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then a list comes
            back with the values of each graph, whose ``nodes`` are the chain's node ids.
        max_walks: from more walks than this on, values are sampled.
        permutations: how many orders of the nodes to sample then, at least 2.
        seed: of the sampling.
        progress: show how many orders have been sampled; by default once that has taken two seconds.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> abs(float(shapley_values(chain).values.sum()) - chain.input_relevance) < 1e-6
    True
    """
    permutations = _checked_permutations(permutations)
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
            found.append(_sampled_values(chain, some.nodes, permutations, seed, progress))
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
    assert table is not None  # no limit was given
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


@without_gradients
@asked_of_part(_values_in_graph)
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
    return _sampled_values(chain, nodes, _checked_permutations(permutations), seed, progress)


def _sampled_values(
    chain: RelevanceChain, nodes: Ints, permutations: int, seed: int, progress: bool | None
) -> ShapleyValues:
    """The values of some nodes that no walk joins to others."""
    M, generator, members = len(nodes), torch.Generator().manual_seed(seed), torch.from_numpy(nodes)
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
@asked_of_part(_sets_in_graph)
def shapley_interactions(chain: RelevanceChain, *, order: int = 2, max_walks: int = 1_000_000) -> ShapleyInteractions:
    """The Shapley interaction index (SII) of every set of nodes of one order, exactly, from the walks.

        SII(S) = Σ over T ⊇ S of a(T) / (|T| − |S| + 1),

    with a(T) the relevance of the walks that visit exactly T: for pairs each walk through both nodes gives
    R(m) / (number of distinct nodes − 1). Order 1 is the Shapley value.

    Args:
        chain: the traced prediction, of a small graph.
        order: the size of S, 2 for pairs.
        max_walks: more than this raises TooManyWalksError; :func:`sampled_pair_interactions` goes further.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> shapley_interactions(chain).dense().shape
    torch.Size([3, 3])
    """
    order = as_count(order, "order", "the number of nodes in a set")
    try:
        return _index(chain, order, max_walks)
    except TooManyWalksError as error:
        if order == 2:
            raise error.advised("Those of chosen pairs can be estimated with sampled_pair_interactions.") from None
        raise


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
    permutations = _checked_permutations(permutations)
    M, generator = chain.num_nodes, torch.Generator().manual_seed(seed)
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


def as_game(chain: RelevanceChain) -> Any:
    """The game v(S) = R(S) as a ``shapiq.Game`` with the nodes as players (needs the package shapiq).

    v(∅) = 0. Coalitions are answered in batches.

    >>> import pytest, torch, walkwise as ww
    >>> shapiq = pytest.importorskip("shapiq")
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> game = as_game(ww.trace(model, torch.ones(3, 2), edge_index, index=1))
    >>> game.n_players, float(game(game.empty_coalition)[0])
    (3, 0.0)
    """
    base: Any = _shapiq().Game

    class WalkGame(base):  # type: ignore[misc]
        """Subgraph relevance as a game."""

        def value_function(self, coalitions: Any) -> Any:
            """R of every coalition.  # (B, M) -> (B,)"""
            masks = torch.as_tensor(coalitions, dtype=torch.bool)
            return subgraph_relevance(chain, masks).double().cpu().numpy()

    return WalkGame(n_players=chain.num_nodes, normalize=True, normalization_value=0.0)


def as_interaction_values(chain: RelevanceChain, *, max_order: int = 2, max_walks: int = 1_000_000) -> Any:
    """The exact SII of orders 1 … max_order as ``shapiq.InteractionValues``, for its plots (needs shapiq).

    SII(S) = Σ over T ⊇ S of a(T) / (|T| − |S| + 1), as in :func:`shapley_interactions`.

    >>> import pytest, torch, walkwise as ww
    >>> shapiq = pytest.importorskip("shapiq")
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> as_interaction_values(ww.trace(model, torch.ones(3, 2), edge_index, index=1)).index
    'SII'
    """
    max_order = as_count(max_order, "max_order", "the number of nodes in the largest sets")
    shapiq = _shapiq()
    values: dict[tuple[int, ...], float] = {(): 0.0}
    for order in range(1, max_order + 1):
        found = shapley_interactions(chain, order=order, max_walks=max_walks)
        values |= dict(zip(map(tuple, found.nodes.tolist()), found.values.double().tolist(), strict=True))
    return shapiq.InteractionValues(
        values,
        index="SII",
        min_order=0,
        max_order=max_order,
        n_players=chain.num_nodes,
        estimated=False,
        baseline_value=0.0,
    )


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


def _worth(chain: RelevanceChain, sets: Tensor) -> Tensor:
    """v of sets of nodes, in double precision.  # (…, M) -> (…)"""
    masks = sets.reshape(-1, chain.num_nodes).to(chain.device)
    return subgraph_relevance(chain, masks).double().cpu().view(sets.shape[:-1])


def _mean(total: Tensor, squares: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The mean of samples and its standard error, given their sum and the sum of their squares."""
    mean = total / count
    variance = (squares - count * mean.square()).clamp(min=0) / (count - 1)
    return mean, (variance / count).sqrt()


def _checked_permutations(permutations: int) -> int:
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


def _shapiq() -> Any:
    try:
        return import_module("shapiq")
    except ImportError:
        raise MissingExtraError(
            "This needs the package shapiq.", remedy="Install it with: pip install shapiq"
        ) from None
