"""Partial walks: those that have come down from the output to a node, and every step they can take next.

Listing walks and searching among them need only one thing from the chain: given the message at the lowest node of a
partial walk, to which nodes can it continue, and what message does each of them get? This is one contraction that stops
at the next position, for any number of partial walks at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import all_rows, contract, run_backward
from walkwise.core.edges import DENSE, Edges
from walkwise.core.fan import Fan
from walkwise.core.lazy import cached_property
from walkwise.core.operators import Visit
from walkwise.core.rows import OwnRows, Rows
from walkwise.core.sending import sent
from walkwise.errors import TooManyWalksError
from walkwise.questions.bookkeeping import add_up, read, rows, spans
from walkwise.questions.neighbours import Floats, Ints, Neighbours, as_array, step_neighbours
from walkwise.questions.nodesets import budget

#: The largest graph of which every pair of nodes is looked at, where walks may step anywhere.
_MOST_NODES = 2000


@dataclass(frozen=True, eq=False)
class Stages:
    """Where the walks of a chain can stand. If a position has several tensors, their neurons are put side by side."""

    chain: RelevanceChain
    near: Neighbours  # where a walk that stands at a node can have come from
    nearby: bool = True  # whether that is known
    _weights: dict[tuple[int, int, float], tuple[Edges, Tensor | None, Tensor | None]] = field(default_factory=dict)

    @cached_property
    def visits(self) -> Mapping[int, tuple[Visit, ...]]:
        """The visits of every position, ascending."""
        visits = self.chain.visits
        return {p: tuple(v for v in visits if v.position == p) for p in sorted({v.position for v in visits})}

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """The positions, ascending."""
        return tuple(self.visits)

    @cached_property
    def _widths(self) -> Mapping[Visit, int]:
        """The neurons of every visit that a message reaches."""
        widths: dict[Visit, int] = {}

        def measure(visit: Visit, message: Tensor) -> Tensor:
            widths[visit] = message.shape[-1]
            return message

        contract(self.chain, self._a_row, measure)
        return widths

    @property
    def _a_row(self) -> Rows:
        """The fewest rows that a message can have."""
        if self.chain.hops is None or self.chain.num_nodes <= DENSE:
            return all_rows(self.chain)
        first = torch.zeros(1, dtype=torch.long, device=self.chain.device)
        return OwnRows(self.chain.num_nodes, 1, first, first)

    @cached_property
    def opening(self) -> dict[int, Tensor]:
        """What the read-out sends to every node, by position.  # {position: (M, 1, N)}"""
        arrived: dict[Visit, Tensor] = {}
        run_backward(self.chain, all_rows(self.chain), lambda visit, message: _stop(arrived, visit, message))
        found = ((position, self.joined(position, arrived)) for position in reversed(self.positions))
        return {position: message[:, 0] for position, message in found if message is not None}

    def width(self, position: int) -> int:
        """N at a position, 0 where no message reaches it."""
        return sum(self._widths.get(visit, 0) for visit in self.visits[position])

    def begins(self, position: int) -> bool:
        """Whether walks begin at a position."""
        return position in self._first

    def goes_on(self, position: int) -> bool:
        """Whether walks can have come to a position from another."""
        return position in self._later

    @cached_property
    def _first(self) -> frozenset[int]:
        return frozenset(visit.position for visit in self.chain.visits if visit.slot in self._roots)

    @cached_property
    def _later(self) -> frozenset[int]:
        return frozenset(visit.position for visit in self.chain.visits if visit.slot not in self._roots)

    @cached_property
    def _roots(self) -> dict[int, Tensor]:
        return dict(self.chain.roots)

    @cached_property
    def most_ending(self) -> Floats:
        """An upper bound on the number of walks that end at each node, from the neighbours of nodes alone.  # (M,)"""
        near = self.near
        below, ending = np.zeros(near.num_nodes), np.zeros(near.num_nodes)
        for position in self.positions:
            ways = add_up(near.here, below.take(near.nodes), near.num_nodes)
            if self.begins(position):
                ways += 1
            below += ways  # they may go on from any position to any later one
            if position in self.opening:
                ending += ways
        return ending

    def batch(self, lanes: int = 1) -> int:
        """How many partial walks can be continued at once."""
        rows = max(1, len(self.near.nodes) // max(1, self.chain.num_nodes))
        return max(1, budget(self.chain) // (rows * lanes * self.chain.width))

    def there(self, ids: Ints | Tensor) -> Tensor:
        """Node ids where the chain is."""
        return sent(ids, self.chain.device)

    @cached_property
    def elsewhere(self) -> bool:
        """Whether the chain, and with it the bookkeeping of its walks, is on an accelerator."""
        return self.chain.device.type != "cpu"

    def book(self, ids: NDArray[Any] | Tensor) -> Any:
        """Numbers as the books have them: tensors on an accelerator, arrays otherwise."""
        return self.there(ids) if self.elsewhere else read(ids)

    @cached_property
    def _books(self) -> tuple[Any, Any, Any]:
        """The neighbours of nodes, where each node's begin, and how many there are."""
        near = self.near
        return self.book(near.nodes), self.book(near.offsets[:-1]), self.book(near.degree)

    def degree(self, nodes: Any) -> Any:
        """How many neighbours nodes have.  # (K,)"""
        return rows(self._books[2], nodes)

    def beside(self, pairs: Any) -> Any:
        """The nodes that pairs lead to.  # (R,)"""
        return rows(self._books[0], pairs)

    def pairs(self, nodes: Any) -> tuple[Any, Any]:
        """The pairs of some nodes one after the other, and whose each is.  # (K,) -> (R,), (R,)"""
        _, first, counts = self._books
        return spans(rows(first, nodes), rows(counts, nodes))

    def joined(self, position: int, arrived: Mapping[Visit, Tensor]) -> Tensor | None:
        """The messages at a position's tensors side by side; None where none has arrived."""
        visits = self.visits[position]
        if len(visits) == 1:
            return arrived.get(visits[0])
        like = next((arrived[visit] for visit in visits if visit in arrived), None)
        if like is None:
            return None
        parts = [arrived.get(v, like.new_zeros(*like.shape[:-1], self._widths.get(v, 0))) for v in visits]
        return torch.cat(parts, dim=-1)

    def parted(self, position: int, message: Tensor) -> Iterator[tuple[Visit, Tensor]]:
        """A message at a position as the messages at its tensors."""
        visits = self.visits[position]
        if len(visits) == 1:
            yield visits[0], message
        else:
            widths = [self._widths.get(visit, 0) for visit in visits]
            yield from zip(visits, torch.split(message, widths, dim=-1), strict=True)

    def relevance(self, position: int, nodes: Tensor, message: Tensor) -> Tensor:
        """The relevance of the walks that begin at these nodes; 0 where none do.  # (K,), (K, D, N) -> (K, D)"""
        total = message.new_zeros(message.shape[:2])
        for visit, part in self.parted(position, message):
            if visit.slot in self._roots:
                total = total + (part * self._roots[visit.slot].index_select(0, nodes)[:, None]).sum(-1)
        return total

    def pair_weights(self, pairs: Ints | Tensor) -> Callable[[Edges, Tensor | None, float], Tensor | None]:
        """What the edges behind pairs of neighbours weigh in all, as a Fan asks: (K,) or (K, H), or None for 1 each."""
        here = self.there(pairs)

        def weights(edges: Edges, weight: Tensor | None, root: float) -> Tensor | None:
            key = id(edges), id(weight), root
            known = self._weights.get(key)
            if known is None or known[0] is not edges or known[1] is not weight:
                known = self._weights[key] = edges, weight, self._per_pair(edges, weight, root)
            return None if known[2] is None else known[2].index_select(0, here)

        return weights

    def _per_pair(self, edges: Edges, weight: Tensor | None, root: float) -> Tensor | None:
        """What the edges of every pair of neighbours weigh in all, and the root at a node and itself."""
        near = self.near
        if weight is None and root == 1 and near.once is edges:
            return None
        pair = np.searchsorted(near.keys, as_array(edges.target) * near.num_nodes + as_array(edges.source))
        if weight is None:
            counts = np.bincount(pair, minlength=len(near.keys)) + root * near.own
            return torch.from_numpy(counts).to(self.chain.device, self.chain.dtype)
        own = torch.from_numpy(near.own).to(weight).view(-1, *[1] * (weight.dim() - 1))
        total = weight.new_zeros(len(near.keys), *weight.shape[1:]).index_add_(0, self.there(pair), weight)
        return total.add_(own, alpha=root)


class Arrival(NamedTuple):
    """The continuations of some partial walks: R rows, one for each neighbour of each."""

    pairs: Any  # (R,) of neighbours, in the books of the walks, as
    owner: Any  # (R,) the partial walk that each row continues
    messages: Mapping[int, Tensor]  # {position: (R, D, N)}


def stages(chain: RelevanceChain) -> Stages:
    """Where the walks of a chain can stand, computed once for a chain."""
    memo = chain.memo
    if "stages" not in memo:
        near = step_neighbours(chain)
        if near is None and chain.num_nodes > _MOST_NODES:
            raise TooManyWalksError(
                f"The graph has {chain.num_nodes} nodes, and walks of this model may step between any two of them: "
                f"listing them is for small graphs (up to {_MOST_NODES} nodes).",
                argument="chain",
                expected=f"of at most {_MOST_NODES} nodes",
                got=chain.num_nodes,
                remedy="Ask for the relevance of subgraphs instead, or cut the graph to the node's neighbourhood.",
            )
        known = near is not None
        memo["stages"] = Stages(chain, Neighbours.everywhere(chain.num_nodes) if near is None else near, known)
    found: Stages = memo["stages"]
    return found


def step_down(at: Stages, position: int, nodes: Any, message: Tensor) -> Arrival:
    """The continuations of partial walks at these nodes of a position.  # (B,) in the books, (B, D, N)"""
    pairs, owner = at.pairs(nodes)
    arrived: dict[Visit, Tensor] = {}
    several_hops = at.nearby and not at.chain.local
    step = _hop_around if several_hops else _fan_out if at.chain.local else _reach_anywhere
    step(at, position, nodes, message, pairs, owner, arrived)
    found = ((p, at.joined(p, arrived)) for p in at.positions if p < position) if arrived else ()
    return Arrival(pairs, owner, {p: message for p, message in found if message is not None})


def _fan_out(
    at: Stages, position: int, nodes: Any, message: Tensor, pairs: Any, owner: Any, arrived: dict[Visit, Tensor]
) -> None:
    """One row for every neighbour of every partial walk."""
    going = at.there(at.beside(pairs))
    fan = Fan(at.chain.num_nodes, at.there(nodes), going, at.there(owner), at.pair_weights(pairs))
    run_backward(
        at.chain,
        fan,
        lambda visit, m: _stop(arrived, visit, fan.spread(m)[:, 0]),
        seeds=[(visit.slot, part.unsqueeze(1)) for visit, part in at.parted(position, message)],
    )


def _hop_around(
    at: Stages, position: int, nodes: Any, message: Tensor, pairs: Any, owner: Any, arrived: dict[Visit, Tensor]
) -> None:
    """One row for every node that a partial walk can step to; messages pass no other nodes on their way."""
    going, whose = at.there(at.beside(pairs)), at.there(owner)
    rows = OwnRows(at.chain.num_nodes, len(message), going, whose)
    here = (going == at.there(nodes)[whose]).nonzero().view(-1)
    seed = message.new_zeros(len(going), 1, *message.shape[1:]).index_copy_(0, here, message.unsqueeze(1))
    run_backward(
        at.chain,
        rows,
        lambda visit, m: _stop(arrived, visit, m[:, 0]),
        seeds=[(visit.slot, part) for visit, part in at.parted(position, seed)],
    )


def _reach_anywhere(
    at: Stages, position: int, nodes: Any, message: Tensor, pairs: Any, owner: Any, arrived: dict[Visit, Tensor]
) -> None:
    """Every node's row for every partial walk."""
    B, D, N = message.shape
    seed = message.new_zeros(at.chain.num_nodes, B, D, N)
    seed[at.there(nodes), torch.arange(B, device=seed.device)] = message
    run_backward(
        at.chain,
        all_rows(at.chain, B),
        lambda visit, m: _stop(arrived, visit, m.transpose(0, 1).expand(B, -1, -1, -1).flatten(0, 1)),
        seeds=[(visit.slot, part) for visit, part in at.parted(position, seed)],
    )


def _stop(arrived: dict[Visit, Tensor], visit: Visit, message: Tensor) -> None:
    """Keep a message, and let it end there."""
    arrived[visit] = message
