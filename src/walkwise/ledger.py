"""All walks of a chain, gathered by the nodes they visit: every R_α(S) is a sum over this ledger.

The relevance of a subgraph asks of a walk only how often it stands at which node, not in which
order. So walks that visit the same nodes equally often are one entry, and while the chain is run
backward, partial walks that stand at the same node with the same past are one message. Shallow
models on sparse graphs have few entries (a molecule of 18 atoms and three layers: about 250), and
then thousands of subgraphs cost less than one contraction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.chain import RelevanceChain, all_rows, contract, without_gradients
from walkwise.neighbours import Neighbours
from walkwise.nodesets import budget
from walkwise.operators import Visit
from walkwise.rows import Rows


@dataclass(frozen=True, eq=False)
class WalkLedger:
    """The relevance of all walks with the same visits, for every way to visit nodes."""

    visits: Tensor  # (T, L + 1) the nodes visited, ascending; -1 first where there are fewer
    relevance: Tensor  # (T,) float64


@dataclass(frozen=True, eq=False)
class _Partial:
    """Walks followed from the read-out down to a visit, those with the same past added up."""

    node: Tensor  # (K,) where they stand
    past: Tensor  # (K, L + 1) what they have visited, that node included, ascending, -1 first
    message: Tensor  # (K, N)


@without_gradients
def walk_ledger(
    chain: RelevanceChain, near: Neighbours, *, max_rows: int, how_often: bool = True, ends: Tensor | None = None
) -> WalkLedger | None:
    """The ledger of all walks, or None where listing them takes more than ``max_rows`` messages.

    Args:
        chain: the traced prediction.
        near: its :func:`~walkwise.neighbours.step_neighbours`.
        max_rows: how many messages at single nodes may be computed.
        how_often: whether to tell apart how often a node is visited; α = 0 need not know, and there are
            fewer entries.
        ends: list only the walks that stand at one of these nodes (K,) when the read-out reads them; by
            default all.
    """
    everyone = torch.arange(chain.num_nodes, device=chain.device)
    return _Follow(chain, near, max_rows, how_often).all_walks(everyone if ends is None else ends)


def count_walks(chain: RelevanceChain, near: Neighbours) -> Tensor:
    """How many walks of L steps end at each node, at most: (M,) float64."""
    there, here = near.of(torch.arange(near.num_nodes, device=near.nodes.device))
    counts = torch.ones(near.num_nodes, dtype=torch.float64, device=near.nodes.device)
    for _ in range(chain.num_layers):
        counts = torch.zeros_like(counts).index_add(0, here, counts[there])
    return counts


class _Follow:
    """Runs the chain backward from visit to visit, with a message for every past."""

    def __init__(self, chain: RelevanceChain, near: Neighbours, max_rows: int, how_often: bool) -> None:
        self.chain = chain
        self.near = near
        self.rows_left = max_rows
        self.how_often = how_often
        reached = {target for step in chain.steps for target in step.targets}
        self.first = {slot: H for slot, H in chain.roots if slot not in reached}  # nothing comes before these
        self.waiting: dict[int, list[_Partial]] = {}
        self.finished: list[tuple[Tensor, Tensor]] = []

    def all_walks(self, ends: Tensor) -> WalkLedger | None:
        M, device = self.chain.num_nodes, self.chain.device
        blank = torch.full((len(ends), self.chain.num_layers + 1), -1, device=device)
        unvisited = contract(self.chain, all_rows(self.chain), lambda v, m: self._arrive(v, m[ends], ends, blank))
        if bool(unvisited.any()):
            return None
        for visit in reversed(self.chain.visits):
            partials = self.waiting.pop(visit.slot, [])
            if partials and not self._extend(visit, _merged(partials, M)):
                return None
        if not self.finished:
            return WalkLedger(blank[:0], torch.zeros(0, dtype=torch.float64, device=device))
        visits = torch.cat([visits for visits, _ in self.finished])
        relevance = torch.cat([relevance for _, relevance in self.finished])
        chosen, same = _distinct(visits, M)
        return WalkLedger(visits[chosen], relevance.new_zeros(len(chosen)).index_add(0, same, relevance))

    def _extend(self, visit: Visit, partial: _Partial) -> bool:
        """Take the walks one step further down; False where that would be too many."""
        counts = self.near.counts(partial.node)
        self.rows_left -= int(counts.sum())
        if self.rows_left < 0:
            return False
        most = max(1, budget(self.chain) // self.chain.width)
        for part in _chunks(counts, most):
            node, past = partial.node[part], partial.past[part]
            nodes, owner = self.near.of(node)
            here = nodes == node[owner]
            seed = partial.message.new_zeros(len(nodes), 1, 1, partial.message.shape[1])
            seed[here, 0, 0] = partial.message[part]
            ended = contract(
                self.chain,
                Rows(self.chain.num_nodes, len(node), nodes, owner),
                lambda v, m, nodes=nodes, past=past[owner]: self._arrive(v, m, nodes, past),  # type: ignore[misc]
                seeds=[(visit.slot, seed)],
            )
            if bool(ended.any()):
                self.finished.append((past, ended[:, 0].double()))
        return True

    def _arrive(self, visit: Visit, message: Tensor, nodes: Tensor, past: Tensor) -> None:
        """Write down the walks that have come to a visit."""
        flat = message[:, 0, 0]
        past = self._with(nodes[:, None], past)
        if visit.slot in self.first:
            H = self.first[visit.slot]
            self.finished.append((past, (flat * H[nodes]).sum(-1).double()))
        else:
            self.waiting.setdefault(visit.slot, []).append(_Partial(nodes, past, flat))

    def _with(self, nodes: Tensor, past: Tensor) -> Tensor:
        """What has been visited once these nodes have been.  # (K, 1), (K, L + 1) -> (K, L + 1)"""
        if not self.how_often:
            nodes = nodes.where((past != nodes).all(dim=1, keepdim=True), -1)
        # The first column is free: there are no more visits than positions.
        return torch.cat([nodes, past[:, 1:]], dim=1).sort(dim=1).values


def _merged(partials: list[_Partial], num_nodes: int) -> _Partial:
    """The walks that stand at the same node with the same past, added up; those without message dropped."""
    node = torch.cat([p.node for p in partials])
    past = torch.cat([p.past for p in partials])
    message = torch.cat([p.message for p in partials])
    alive = (message != 0).any(dim=1)
    if not bool(alive.all()):
        node, past, message = node[alive], past[alive], message[alive]
    if len(partials) == 1 and (past.shape[1] < 3 or not bool((past[:, -3] >= 0).any())):
        return _Partial(node, past, message)  # two visits can be told apart by where the walk stands
    chosen, same = _distinct(torch.cat([node[:, None], past], dim=1), num_nodes)
    total = message.new_zeros(len(chosen), message.shape[1]).index_add(0, same, message)
    return _Partial(node[chosen], past[chosen], total)


def _distinct(table: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """One row of the table for each distinct row, and for every row which one it equals.

    Ids from -1 to M - 1 are digits to base M + 1, and as many columns as fit are read as one number.
    """
    base, bits, width = num_nodes + 1, math.log2(num_nodes + 1), table.shape[1]
    room = 62 - (0 if width * bits <= 62 else math.log2(len(table) + 1))  # left by what was read before
    fit = max(1, int(room / bits))
    same = torch.zeros(len(table), dtype=torch.long, device=table.device)
    for columns in torch.split(table + 1, fit, dim=1):
        powers = torch.tensor([base**i for i in range(columns.shape[1])], device=table.device)
        keys = (columns * powers).sum(dim=1) + same * base ** columns.shape[1]
        distinct, same = torch.unique(keys, return_inverse=True)
    place = torch.arange(len(table), device=table.device)
    chosen = torch.empty(len(distinct), dtype=torch.long, device=table.device).scatter_(0, same, place)
    return chosen, same


def _chunks(counts: Tensor, most: int) -> list[slice]:
    """Consecutive pieces with about so many rows each."""
    ends = counts.cumsum(0).tolist()
    pieces, first, before = [], 0, 0
    for last, end in enumerate(ends):
        if end - before > most and last > first:
            pieces.append(slice(first, last))
            first, before = last, ends[last - 1]
    if first < len(ends):
        pieces.append(slice(first, len(ends)))
    return pieces
