"""The relevance of subgraphs: walks inside, walks with a discount outside, and all discounts at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.contract import Weigh, all_rows, contract, unweighted
from walkwise.core.operators import Visit
from walkwise.core.sending import sent
from walkwise.errors import Described, InputError
from walkwise.questions.balls import surroundings
from walkwise.questions.degrees import polynomial_nearby
from walkwise.questions.excursions import batches, discounted_nearby, fewer_rows
from walkwise.questions.given_subgraphs import Subgraphs, queued_node_sets
from walkwise.questions.nodesets import NodeSets, budget
from walkwise.questions.parts import asked_of_part, sets_within

#: Up to this many rows in all it is quicker to carry every node than to look up those of S.
_FEW_ROWS = 256


@without_gradients
@asked_of_part(subgraphs=sets_within)
def subgraph_relevance(chain: RelevanceChain, subgraphs: Subgraphs, *, alpha: float | Sequence[float] = 0.0) -> Tensor:
    """The relevance R_α of every subgraph: (B,), or (B, A) for a sequence of α.

    R_α(S) = Σ over walks m that visit S at least once of α^(number of steps outside S) · R(m)
    (Eqs. 8-9); α = 0 keeps only the walks inside S, α = 1 all that touch it.

    Args:
        chain: the traced prediction.
        subgraphs: lists of node ids, or masks (M,); one boolean mask (B, M); or a tuple of two integer tensors
            ``(ids, offsets)``, where subgraph b has the ids from ``offsets[b]`` up to, but not including, ``offsets[b +
            1]``; this form is the fastest for very many subgraphs. (Put two subgraphs that are tensors themselves into
            a list.) An empty subgraph has relevance 0.
        alpha: the discount, or several.

    The cost does not grow with nodes far from S. With α = 0 the contraction carries the nodes of S. With α > 0 it
    carries the nodes within ⌊L / 2⌋ steps of S, after the first such question has computed the messages of the whole
    chain. If those are nearly all nodes, or if a layer reaches beyond neighbours, all nodes are carried.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> ww.subgraph_relevance(chain, [[0], [0, 1]], alpha=[0.0, 0.5]).shape
    torch.Size([2, 2])
    >>> flat = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 3])  # the same two, [0] and [0, 1]
    >>> torch.equal(ww.subgraph_relevance(chain, flat), ww.subgraph_relevance(chain, [[0], [0, 1]]))
    True
    """
    several = isinstance(alpha, (list, tuple)) or getattr(alpha, "ndim", 0) > 0
    given: Iterable[Any] = alpha if several else [alpha]  # type: ignore[assignment]
    alphas = [as_discount(a) for a in given]
    sets = queued_node_sets(chain, subgraphs)
    columns: dict[float, Tensor] = {}
    if 0.0 in alphas:
        columns[0.0] = _inside(chain, sets)
    discounted = sorted(set(alphas) - {0.0})
    if len(discounted) == 1:
        columns[discounted[0]] = _discounted(chain, sets, discounted[0])
    elif discounted:
        polynomial = _polynomial(chain, sets)
        for a in discounted:
            powers = torch.tensor([a**d for d in range(polynomial.shape[1])], dtype=chain.dtype)
            columns[a] = polynomial @ sent(powers, chain.device)
    sets.heed()
    if several:
        nothing = torch.zeros(sets.count, 0, dtype=chain.dtype, device=chain.device)
        return torch.stack([columns[a] for a in alphas], dim=1) if alphas else nothing
    return columns[alphas[0]]


@without_gradients
@asked_of_part(subgraphs=sets_within)
def subgraph_polynomial(chain: RelevanceChain, subgraphs: Subgraphs) -> Tensor:
    """The coefficients of R_α(S) as a polynomial in α, lowest degree first: (B, L + 1).

    Coefficient d is the relevance of all walks that visit S and stand outside it d times, so
    R_α = Σ_d c_d α^d for every α, from one contraction with a degree on every message.

    Args:
        chain: the traced prediction.
        subgraphs: as in :func:`subgraph_relevance`.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> coefficients = ww.subgraph_polynomial(chain, [[0, 1]])
    >>> at_one = ww.subgraph_relevance(chain, [[0, 1]], alpha=1.0)
    >>> bool(coefficients.sum(1).allclose(at_one))
    True
    """
    sets = queued_node_sets(chain, subgraphs)
    coefficients = _polynomial(chain, sets)
    sets.heed()
    return coefficients


def _inside(chain: RelevanceChain, sets: NodeSets) -> Tensor:
    """Walks inside S, Theorem 1: the rows of S suffice, unless finding them costs more than they save."""
    if sets.count * chain.num_nodes <= _FEW_ROWS or chain.hops is None:
        return _inside_everywhere(chain, sets)
    if not chain.local:
        return _inside_nearby(chain, sets, max(chain.hops.between // 2, chain.hops.after))
    most_rows = max(1, budget(chain) // chain.width) if sets.count > 1 else sets.num_nodes
    parts = [
        contract(chain, batch.rows(), unweighted)[:, 0]
        if batch.keys.numel()
        else torch.zeros(batch.count, dtype=chain.dtype, device=chain.device)
        for batch in sets.batches(sets.count, most_rows)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=chain.dtype, device=chain.device)


def _masked(inside: Tensor) -> Weigh:
    """The weight 1 in S and 0 elsewhere."""
    return lambda _, message: message * inside


def _inside_everywhere(chain: RelevanceChain, sets: NodeSets) -> Tensor:
    """Walks inside S, by the rows of all nodes."""
    return _over_all_nodes(chain, sets, 1, _masked).select(1, 0)


def _inside_nearby(chain: RelevanceChain, sets: NodeSets, radius: int) -> Tensor:
    """Walks inside S if a step takes several hops, from the rows of the balls that these hops cannot leave."""
    around = surroundings(chain, radius)
    if not fewer_rows(around, sets):
        return _inside_everywhere(chain, sets)
    parts = []
    for some, balls in batches(chain, sets, 1, around):
        among = sent(torch.isin(balls.keys, some.keys, assume_unique=True), chain.device)
        inside = among.to(chain.dtype).view(-1, 1, 1, 1)
        if len(some.keys):
            parts.append(contract(chain, balls.rows(), _masked(inside))[:, 0])
        else:
            parts.append(inside.new_zeros(some.count))
    return torch.cat(parts)


def _discounted(chain: RelevanceChain, sets: NodeSets, alpha: float) -> Tensor:
    """R_α over balls around the sets where those are small, otherwise over all nodes."""
    return (discounted_nearby if _nearby(chain, sets) else _discounted_everywhere)(chain, sets, alpha)


def _polynomial(chain: RelevanceChain, sets: NodeSets) -> Tensor:
    """The coefficients of R_α, in the same way."""
    return (polynomial_nearby if _nearby(chain, sets) else _polynomial_everywhere)(chain, sets)


def _nearby(chain: RelevanceChain, sets: NodeSets) -> bool:
    """Whether to carry the balls around the sets: where steps lead to neighbours, and where that is less work."""
    if sets.count * chain.num_nodes <= _FEW_ROWS or chain.hops is None:
        return False
    return fewer_rows(surroundings(chain), sets)


def _discounted_everywhere(chain: RelevanceChain, sets: NodeSets, alpha: float) -> Tensor:
    """R_α by Theorem 3, with the walks that have not touched S yet in a lane of their own.

    Lane 0 holds walks wholly outside so far, lane 1 those that have visited S.
    """

    def weights(inside: Tensor) -> Weigh:
        outside = alpha * (1 - inside)

        def weigh(visit: Visit, message: Tensor) -> Tensor:
            untouched, touched = message[:, :, :1], message[:, :, 1:]
            entering = untouched * inside
            if touched.shape[2]:
                entering = entering + touched * (inside + outside)
            return torch.cat([untouched * outside, entering], dim=2)

        return weigh

    lanes = _over_all_nodes(chain, sets, 2, weights)
    return lanes[:, 1] if lanes.shape[1] > 1 else lanes.new_zeros(len(lanes))


def _polynomial_everywhere(chain: RelevanceChain, sets: NodeSets) -> Tensor:
    """R_α with lane d for d steps outside; the walks wholly outside are taken off."""

    def all_walks(inside: Tensor) -> Weigh:
        outside = 1 - inside

        def weigh(visit: Visit, message: Tensor) -> Tensor:
            K, _, D, N = message.shape
            shifted = message.new_empty(K, inside.shape[1], D + 1, N)
            torch.mul(message, inside, out=shifted[:, :, :D])
            shifted[:, :, D] = 0
            shifted[:, :, 1:].addcmul_(message, outside)
            return shifted

        return weigh

    def outside_walks(inside: Tensor) -> Weigh:
        return lambda _, m: pad(m * (1 - inside), (0, 0, 1, 0))

    degrees = chain.num_layers + 1
    coefficients = _padded(_over_all_nodes(chain, sets, degrees + 1, all_walks), degrees)
    if chain.straight:  # a walk wholly outside has left S at all L + 1 positions: just that degree
        return coefficients
    return coefficients - _padded(_over_all_nodes(chain, sets, degrees + 1, outside_walks), degrees)


def _over_all_nodes(chain: RelevanceChain, sets: NodeSets, lanes: int, weights: Callable[[Tensor], Weigh]) -> Tensor:
    """Contractions that carry every node's message; ``weights`` gets S as (M, B, 1, 1)."""
    if sets.count == 0:
        return torch.zeros(0, lanes, dtype=chain.dtype, device=chain.device)
    most_sets = sets.count if sets.count == 1 else max(1, budget(chain) // (chain.width * chain.num_nodes * lanes))
    parts = []
    for batch in sets.batches(most_sets, chain.num_nodes * most_sets) if sets.count > most_sets else [sets]:
        inside = batch.mask(chain.dtype).view(chain.num_nodes, batch.count, 1, 1)
        parts.append(contract(chain, all_rows(chain, batch.count), weights(inside)))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _padded(lanes: Tensor, count: int) -> Tensor:
    """As many lanes as asked for, zeros where there are fewer."""
    return pad(lanes[:, :count], (0, max(0, count - lanes.shape[1])))


def as_discounts(alphas: float | Iterable[float]) -> tuple[float, ...]:
    """One discount or several, checked."""
    several = isinstance(alphas, Iterable) and getattr(alphas, "ndim", 1) > 0
    given: Iterable[Any] = alphas if several else [alphas]  # type: ignore[assignment]
    return tuple(as_discount(alpha) for alpha in given)


def as_discount(alpha: float) -> float:
    """The discount, checked."""
    try:
        value = float(alpha)
    except (TypeError, ValueError):
        expected = "a discount between 0 and 1, or a sequence of them"
        raise InputError(argument="alpha", expected=expected, got=alpha) from None
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise InputError(argument="alpha", expected="a discount between 0 and 1", got=Described(alpha))
    return value
