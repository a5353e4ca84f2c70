"""Partial walks: those that have come down from the output to a node, and every step they can take next.

A search over walks asks the chain one thing only: given the message at the lowest node of a partial
walk, which nodes can it go on to, and what message does each of them get? That is one contraction
which stops at the next position, for as many partial walks at once as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import all_rows, contract
from walkwise.core.operators import Visit
from walkwise.core.rows import OwnRows, Rows
from walkwise.errors import TooManyWalksError
from walkwise.questions.nodesets import budget
from walkwise.questions.walks import possible_steps


@dataclass(frozen=True, eq=False)
class Partials:
    """B partial walks whose lowest node is at the same position.

    A message has D lanes: one for a walk, one for each neuron where maps are asked for. Where a
    position has several tensors their neurons stand one after the other.
    """

    position: int
    nodes: Tensor  # (B,)
    message: Tensor  # (B, D, N)
    parent: Tensor  # (B,) the partial walk that each one continues

    def __len__(self) -> int:
        """B."""
        return len(self.nodes)


@dataclass(frozen=True, eq=False)
class Stages:
    """Where the walks of a chain can stand, and between which nodes they can step."""

    chain: RelevanceChain
    visits: Mapping[int, tuple[Visit, ...]]  # by position
    widths: Mapping[int, tuple[int, ...]]  # neurons of each of them
    steps: Mapping[tuple[int, int], Tensor]  # {(before, after): (M, M)}
    ends: Mapping[int, Tensor]  # {position: (M,)} where the read-out reads

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """The positions that a message reaches, ascending."""
        return tuple(sorted(self.visits))

    def width(self, position: int) -> int:
        """N at a position."""
        return sum(self.widths[position])

    def begins(self, position: int) -> bool:
        """Whether walks begin at a position."""
        roots = dict(self.chain.roots)
        return any(visit.slot in roots for visit in self.visits[position])

    @cached_property
    def counts(self) -> Mapping[int, Tensor]:
        """How many walks come up to each node of each position.  # {position: (M,) float64}"""
        counts: dict[int, Tensor] = {}
        for position in self.positions:
            total = torch.full((self.chain.num_nodes,), float(self.begins(position)), dtype=torch.float64)
            total = total.to(self.chain.device)
            for before in counts:
                if (before, position) in self.steps:
                    total = total + self.steps[before, position].t().double() @ counts[before]
            counts[position] = total
        return counts

    @cached_property
    def num_walks(self) -> int:
        """How many walks there are."""
        return sum(int(self.counts[position][ends].sum()) for position, ends in self.ends.items())

    @cached_property
    def near(self) -> Mapping[int, Tensor]:
        """For each node of a position the nodes that a walk can come from, and itself.  # {position: (M, M)}"""
        eye = torch.eye(self.chain.num_nodes, dtype=torch.bool, device=self.chain.device)
        near = {position: eye.clone() for position in self.positions}
        for (_, after), table in self.steps.items():
            if after in near:
                near[after] |= table.t()
        return near

    def batch(self, position: int, lanes: int = 1) -> int:
        """How many partial walks at a position can be continued at once."""
        M = self.chain.num_nodes
        rows = max(1, int(self.near[position].sum()) // M) if self.chain.local else M
        return max(1, budget(self.chain) // (rows * lanes * self.chain.width))


def stages(chain: RelevanceChain) -> Stages:
    """Where the walks of a chain can stand and step."""
    if chain.num_nodes**2 > 4_000_000:
        raise TooManyWalksError(
            f"The graph has {chain.num_nodes} nodes: searching among its walks is for small graphs (up to 2000 "
            "nodes). Ask for the relevance of subgraphs instead, or cut the graph to the node's neighbourhood."
        )
    reached: dict[Visit, int] = {}

    def measure(visit: Visit, message: Tensor) -> Tensor:
        reached[visit] = message.shape[-1]
        return message

    contract(chain, all_rows(chain), measure)
    steps, ends = possible_steps(chain)
    positions = sorted({visit.position for visit in reached})
    visits = {p: tuple(v for v in chain.visits if v.position == p and v in reached) for p in positions}
    widths = {p: tuple(reached[visit] for visit in visits[p]) for p in positions}
    return Stages(chain, visits, widths, steps, ends)


def openings(walks: Stages) -> list[Partials]:
    """The partial walks of one node: what the read-out sends to each node it reads."""
    arrived: dict[Visit, Tensor] = {}

    def stop(visit: Visit, message: Tensor) -> None:
        arrived[visit] = message

    contract(walks.chain, all_rows(walks.chain), stop)
    found = []
    for position, reads in walks.ends.items():
        message = _joined(walks, position, arrived)
        if message is not None:
            nodes = (reads & (walks.counts[position] > 0)).nonzero()[:, 0]
            found.append(Partials(position, nodes, message[nodes, 0], torch.zeros_like(nodes)))
    return found


def descend(walks: Stages, at: Partials) -> tuple[Tensor, list[Partials]]:
    """The relevance of the walks that begin at the partial walks' lowest nodes, and all that go on.

    Returns:
        (B, D), zero where no walk can begin, and the continuations by position: one partial walk for each
        node that can be stepped to and from which the input can be reached.
    """
    B, D, _ = at.message.shape
    if B == 0:
        return at.message.new_zeros(0, D), []
    rows, owner, nodes, seed = _seeded(walks, at)
    arrived: dict[Visit, Tensor] = {}

    def stop(visit: Visit, message: Tensor) -> None:
        arrived[visit] = message

    visits, widths = walks.visits[at.position], list(walks.widths[at.position])
    seeds = [(visit.slot, part) for visit, part in zip(visits, torch.split(seed, widths, dim=-1), strict=True)]
    relevance = contract(walks.chain, rows, stop, seeds=seeds)
    below = []
    for position in walks.positions:
        message = _joined(walks, position, arrived)
        if message is not None:
            can = walks.steps[position, at.position][nodes, at.nodes[owner]] & (walks.counts[position][nodes] > 0)
            flat = message.flatten(0, 1)[can]  # (R, D, N)
            below.append(Partials(position, nodes[can], flat, owner[can]))
    return relevance.expand(B, D), below


def _seeded(walks: Stages, at: Partials) -> tuple[Rows, Tensor, Tensor, Tensor]:
    """The rows that the partial walks need, whose and which node each is, and their messages there."""
    chain, (B, D, N) = walks.chain, at.message.shape
    M, each = chain.num_nodes, torch.arange(B, device=chain.device)
    if chain.local:
        owner, nodes = walks.near[at.position][at.nodes].nonzero(as_tuple=True)
        seed = at.message.new_zeros(len(nodes), 1, D, N)
        seed[nodes == at.nodes[owner], 0] = at.message
        return OwnRows(M, B, nodes, owner), owner, nodes, seed
    seed = at.message.new_zeros(M, B, D, N)
    seed[at.nodes, each] = at.message
    nodes = torch.arange(M, device=chain.device).repeat_interleave(B)
    return all_rows(chain, B), each.repeat(M), nodes, seed


def _joined(walks: Stages, position: int, arrived: Mapping[Visit, Tensor]) -> Tensor | None:
    """The messages at a position's tensors side by side.  # (K, B, D, N)"""
    parts = [arrived.get(visit) for visit in walks.visits[position]]
    like = next((part for part in parts if part is not None), None)
    if like is None:
        return None
    shape = like.shape[:-1]
    pairs = zip(parts, walks.widths[position], strict=True)
    return torch.cat([like.new_zeros(*shape, N) if part is None else part for part, N in pairs], dim=-1)
