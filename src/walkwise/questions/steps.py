"""Between which nodes walks can step, and how many walks there are: the library's only count of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.lazy import cached_property
from walkwise.questions.bookkeeping import add_up, places, rows
from walkwise.questions.neighbours import Bools, Floats, Ints
from walkwise.questions.partial_walks import Stages, stages, step_down


@dataclass(frozen=True, eq=False)
class WalkSteps:
    """Which of the pairs of neighbours walks can step between, and where they end."""

    stages: Stages
    possible: Mapping[tuple[int, int], Bools]  # {(before, after): (P,)} by pair: after at the node, before beside it
    ends: Mapping[int, Bools]  # {position: (M,)} where the read-out reads

    @cached_property
    def ways(self) -> Mapping[int, Floats]:
        """How many walks come up to each node of each position from the input.  # {position: (M,)}"""
        near = self.stages.near
        ways: dict[int, Floats] = {}
        for position in self.stages.positions:
            total = np.full(near.num_nodes, float(self.stages.begins(position)))
            for before, below in ways.items():
                if (before, position) in self.possible:
                    can = self.possible[before, position]
                    total = total + add_up(near.here[can], below[near.nodes[can]], near.num_nodes)
            ways[position] = total
        return ways

    @cached_property
    def ending(self) -> Floats:
        """How many walks end at each node.  # (M,)"""
        total = np.zeros(self.stages.chain.num_nodes)
        for position, reads in self.ends.items():
            total += np.where(reads, self.ways[position], 0.0)
        return total

    @cached_property
    def num_walks(self) -> int:
        """How many walks there are."""
        return int(self.ending.sum())

    @cached_property
    def leading(self) -> Mapping[tuple[int, int], Bools]:
        """The possible steps that come from the input.  # {(before, after): (P,)}"""
        beside = self.stages.near.nodes
        return {
            (before, after): can & (self.ways[before][beside] > 0) for (before, after), can in self.possible.items()
        }

    @cached_property
    def _books(self) -> dict[tuple[int, int], Any]:
        return {step: self.stages.book(can) for step, can in self.leading.items()}

    def lead_on(self, before: int, after: int, pairs: Any) -> Any:
        """Which pairs are possible steps that come from the input.  # (R,) in the books of the walks -> (R,)"""
        return rows(self._books[before, after], pairs)

    def above(self, position: int, node: int) -> list[int]:
        """The nodes of a position that a walk can go on to from a node of the position before, ascending."""
        near = self.stages.near
        pairs = np.flatnonzero(self.possible[position - 1, position] & (near.nodes == node))
        upper: list[int] = (np.searchsorted(near.offsets, pairs, side="right") - 1).tolist()
        return upper


@dataclass(frozen=True, eq=False)
class Partials:
    """B partial walks whose lowest node is at the same position; a message has a lane for each neuron that is asked."""

    position: int
    nodes: Tensor  # (B,)
    message: Tensor  # (B, D, N)
    parent: Tensor  # (B,) the partial walk that each one continues

    def __len__(self) -> int:
        """B."""
        return len(self.nodes)


def openings(steps: WalkSteps, ends: Ints | None = None) -> list[Partials]:
    """The partial walks of one node: what the read-out sends to each node it reads, or to those of them (K,)."""
    found = []
    for position, message in steps.stages.opening.items():
        reads = np.flatnonzero(steps.ends[position] & (steps.ways[position] > 0))
        nodes = steps.stages.there(reads if ends is None else np.intersect1d(reads, ends))
        found.append(Partials(position, nodes, message[nodes], torch.zeros_like(nodes)))
    return found


def descend(steps: WalkSteps, at: Partials) -> tuple[Tensor, list[Partials]]:
    """The relevance of the walks that begin at the partial walks' lowest nodes, and all that go on.

    Returns:
        (B, D), zero where no walk can begin, and the continuations by position: one partial walk for each
        node that can be stepped to and from which the input can be reached.
    """
    stages = steps.stages
    relevance = stages.relevance(at.position, at.nodes, at.message)
    if len(at) == 0 or not stages.goes_on(at.position):
        return relevance, []
    arrival = step_down(stages, at.position, stages.book(at.nodes), at.message)
    below = []
    for position, message in arrival.messages.items():
        can = places(steps.lead_on(position, at.position, arrival.pairs))
        nodes, owner = stages.beside(rows(arrival.pairs, can)), rows(arrival.owner, can)
        below.append(Partials(position, stages.there(nodes), message[stages.there(can)], stages.there(owner)))
    return relevance, below


def walk_steps(chain: RelevanceChain) -> WalkSteps:
    """The possible steps of a chain's walks, worked out once for a chain.

    Found by sending a random message down from each node alone and seeing where it arrives.
    """
    memo = chain.memo
    if "walk steps" not in memo:
        memo["walk steps"] = without_gradients(_walk_steps)(stages(chain))
    known: WalkSteps = memo["walk steps"]
    return known


def _walk_steps(at: Stages) -> WalkSteps:
    generator = torch.Generator(at.chain.device).manual_seed(0)
    widths = {p: message.shape[-1] for p, message in at.opening.items()}  # of the positions that a message reaches
    probed: list[tuple[tuple[int, int], slice]] = []  # steps, and for which pairs they are tried
    reached = [arrives(message) for message in at.opening.values()]
    for position in reversed(at.positions):
        if position in widths and at.goes_on(position):
            for before, pairs, message in _probe(at, position, random_messages(at, widths[position], generator)):
                widths[before] = message.shape[-1]
                probed.append(((before, position), pairs))
                reached.append(arrives(message))
    read: Bools = torch.cat(reached).cpu().numpy()  # all at once: an accelerator is waited for
    found = np.split(read, np.cumsum([len(part) for part in reached])[:-1])
    ends = dict(zip(at.opening, found, strict=False))
    possible: dict[tuple[int, int], Bools] = {}
    for (step, pairs), can in zip(probed, found[len(ends) :], strict=True):
        possible.setdefault(step, np.zeros(len(at.near.nodes), dtype=bool))[pairs] = can
    return WalkSteps(at, possible, ends)


def _probe(at: Stages, position: int, probe: Tensor) -> Iterator[tuple[int, slice, Tensor]]:
    """Where messages from every node of a position arrive: the position, the pairs, and the messages."""
    nodes, offsets = at.book(np.arange(at.chain.num_nodes)), at.near.offsets
    for first in range(0, len(nodes), batch := at.batch()):
        some = slice(first, min(first + batch, len(nodes)))
        arrival = step_down(at, position, nodes[some], probe[some])
        pairs = slice(offsets[some.start], offsets[some.stop])  # one after the other, as the nodes are
        yield from ((before, pairs, message) for before, message in arrival.messages.items())


def random_messages(at: Stages, width: int, generator: torch.Generator) -> Tensor:
    """A message for every node, such that none is lost on its way by chance.  # (M, 1, N)"""
    return torch.randn(at.chain.num_nodes, 1, width, generator=generator, device=at.chain.device).to(at.chain.dtype)


def arrives(message: Tensor) -> Tensor:
    """Which rows have a message.  # (K, D, N) -> (K,)"""
    rows = message.flatten(1)
    if not rows.shape[1]:
        return rows.new_zeros(len(rows), dtype=torch.bool)
    return (rows.amax(1) != 0).logical_or_(rows.amin(1) != 0)  # several times as fast as any()
