"""List walks from the read-out down, and add up on the way those that are alike for the question.

Partial walks that stand at the same node with the same past are one message.
"""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from walkwise.core.lazy import cached_property
from walkwise.questions.bookkeeping import Book, add_up, ascending, counting, grouped, places, read, rows, stacked
from walkwise.questions.neighbours import Floats, Ints
from walkwise.questions.nodesets import budget
from walkwise.questions.partial_walks import Stages, step_down
from walkwise.questions.progress import bar
from walkwise.questions.steps import WalkSteps, arrives, walk_steps

#: What tells two entries apart: the walk, how often it visits each node, or which nodes it visits.
Detail = Literal["walks", "visits", "nodes"]
#: How many batches of queries are worth taking together: each step has its bookkeeping.
_BATCHES = 8
#: How many numbers the messages of one position may take; what is beyond is followed to its end first.
_ROOM = 1 << 25
#: How many finished walks are gathered before those that are alike are added up.
_MOST_LOOSE = 2_000_000
#: From this many messages on, a bar shows how far the listing is.
_MANY_ROWS = 1_000_000
#: It takes as long to look for so few walks without message as to follow them.
_FEW = 256

#: Node ids in as few bytes as they fit into: there may be millions of walks.
Ids = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False)
class WalkTable:
    """Walks and their relevance, those that are alike added up."""

    visits: Ids  # (T, L + 1) the nodes visited, -1 where a position is passed by; ascending unless entries are walks
    relevance: Floats  # (T,)


@dataclass(frozen=True, eq=False)
class ListedWalks:
    """The same in the books of the walks: arrays in main memory, or tensors on the accelerator that the chain is on."""

    visits: Any  # (T, L + 1)
    relevance: Tensor  # (T,)

    def __len__(self) -> int:
        """T."""
        return len(self.visits)

    @property
    def numbers(self) -> int:
        """How many node ids there are: T · (L + 1)."""
        return len(self.visits) * int(self.visits.shape[1])

    @cached_property
    def here(self) -> WalkTable:
        """The table in main memory: an accelerator is waited for."""
        return WalkTable(read(self.visits), read(self.relevance.double()))


@dataclass(frozen=True, eq=False)
class _Partial:
    """Walks followed from the read-out down to a position, those that are alike so far added up."""

    node: Any  # (K,) where they stand, in the books, as
    past: Any  # (K, L + 1) the node visited at each position, that one included, -1 elsewhere
    message: Tensor  # (K, 1, N)

    def __getitem__(self, some: slice) -> _Partial:
        return _Partial(self.node[some], self.past[some], self.message[some])

    def pieces(self, counts: Any, most: int) -> list[_Partial]:
        """The same walks in pieces of about so many messages; ``counts`` says how many each walk takes."""
        return [self] if counts.sum() <= most else [self[some] for some in _chunks(read(counts), most)]


class WalkListing:
    """Follows all walks from position to position, with a message for every past.

    Who has been where is written in whole numbers (:mod:`walkwise.questions.bookkeeping`).
    """

    def __init__(self, at: Stages, detail: Detail, max_rows: float, max_numbers: float, progress: bool | None) -> None:
        self.at, self.chain, self.detail = at, at.chain, detail
        self.most_entries, self.progress = max_numbers / (at.chain.num_layers + 1), progress
        self.most = max(1, _BATCHES * budget(self.chain) // self.chain.width)  # rows at a time
        self.by_walk = detail == "walks"
        self.steps: WalkSteps | None = walk_steps(at.chain) if self.by_walk and not self._few() else None
        self.rows_left = max_rows
        self.room = max(1, _ROOM // self.chain.width)  # rows that may wait
        self.finished: list[tuple[Any, Tensor]] = []
        self.loose = 0  # rows in them that have not been compared

    def walks(self, ends: Ints | None) -> ListedWalks | None:
        """The walks that end at these nodes."""
        M, at = self.chain.num_nodes, self.at
        blank = at.book(np.full((M, self.chain.num_layers + 1), -1, np.min_scalar_type(-(M + 1))))
        waiting: dict[int, list[_Partial]] = {}
        for position, message in at.opening.items():
            reads = self._reads(position, message)
            nodes = places(reads) if ends is None else at.book(ends)[reads[at.book(ends)]]
            self._arrive(waiting, position, nodes, rows(blank, nodes), message[at.there(nodes)])
        ahead = 0.0 if self.by_walk and self.steps is None else self._ahead(waiting)
        if ahead > self.rows_left * math.factorial(min(20, self.chain.num_layers)):
            return None  # no more walks than that are alike, however they go
        with bar(self.progress if ahead > _MANY_ROWS else False, desc="listing walks", unit=" messages") as self.shown:
            if not self._follow(waiting):
                return None
        self._compare()
        if self._entries() > self.most_entries:
            return None
        visits, relevance = self.finished[0] if self.finished else (blank[:0], torch.zeros(0))
        return ListedWalks(visits if self.by_walk else ascending(visits), relevance)

    def _few(self) -> bool:
        """Whether so few walks are followed that their messages are looked at, to see where they can step."""
        if "walk steps" in self.chain.memo or self.chain.device.type != "cpu":  # an accelerator would be waited for
            return False
        return bool(self.at.most_ending.sum() < self.most)

    def _ahead(self, waiting: dict[int, list[_Partial]]) -> float:
        """How many messages at single nodes all walks take that are still to be followed, each by itself."""
        near = self.at.near
        ahead, total = np.zeros(near.num_nodes), 0.0
        for position in range(1, self.chain.num_layers + 1):
            ahead = add_up(near.here, 1 + ahead[near.nodes], near.num_nodes)
            there = self.at.book(ahead) if position in waiting else None
            total += sum(float(rows(there, partial.node).sum()) for partial in waiting.get(position, ()))
        return total

    def _entries(self) -> int:
        """How many entries there are so far."""
        return sum(len(past) for past, _ in self.finished)

    def _reads(self, position: int, message: Tensor) -> Any:
        """Where walks that carry relevance end.  # (M,)"""
        if self.steps is not None:
            return self.at.book(self.steps.ends[position] & (self.steps.ways[position] > 0))
        return self.at.book(arrives(message))

    def _follow(self, waiting: dict[int, list[_Partial]]) -> bool:
        """Take waiting walks down to the input; False where that would be too many."""
        if not waiting:
            return True
        position = max(waiting)
        partials = self._merged(waiting.pop(position), position)
        counts = [self.at.degree(partial.node) for partial in partials]
        count = int(sum(each.sum() for each in counts))
        self.rows_left -= count
        if self.rows_left < 0 or self._entries() > self.most_entries + _MOST_LOOSE:
            return False
        self.shown.update(count)
        for partial in (p for some, each in zip(partials, counts, strict=True) for p in some.pieces(each, self.most)):
            self._step(waiting, position, partial)
            if sum(len(p.node) for some in waiting.values() for p in some) > self.room:
                if not self._follow(waiting):
                    return False
                waiting = {}
        return self._follow(waiting)

    def _step(self, waiting: dict[int, list[_Partial]], position: int, partial: _Partial) -> None:
        """Take some walks one step further down."""
        arrival = step_down(self.at, position, partial.node, partial.message)
        nodes, owner = self.at.beside(arrival.pairs), arrival.owner
        for before, message in arrival.messages.items():
            can = self._can_step(before, position, arrival.pairs, message) if self.by_walk else None
            if can is None:
                self._arrive(waiting, before, nodes, rows(partial.past, owner), message)
            else:
                past = rows(partial.past, rows(owner, can))
                self._arrive(waiting, before, rows(nodes, can), past, message[self.at.there(can)])

    def _can_step(self, before: int, position: int, pairs: Any, message: Tensor) -> Any:
        """Which rows lead along a step that walks can take; None where all do."""
        if self.steps is None:
            if arrives(message).all():
                return None  # where a message arrives, there is a step
            self.steps = walk_steps(self.chain)
        can = self.steps.lead_on(before, position, pairs)
        return None if can.all() else places(can)

    def _arrive(
        self, waiting: dict[int, list[_Partial]], position: int, nodes: Any, past: Any, message: Tensor
    ) -> None:
        """Write down the walks that have come to a position."""
        past[:, position] = nodes
        if self.at.begins(position):
            relevance = self.at.relevance(position, self.at.there(nodes), message)[:, 0]
            self.finished.append((past, relevance))
            self.loose += len(past)
            if self.loose > _MOST_LOOSE and not self.by_walk:
                self._compare()
        if self.at.goes_on(position) and len(nodes):
            waiting.setdefault(position, []).append(_Partial(nodes, past, message))

    def _compare(self) -> None:
        """Add up finished walks that are alike."""
        if self.finished:
            past, relevance = stacked([walks for walks, _ in self.finished]), _joined_up([r for _, r in self.finished])
            if not self.by_walk:
                first, same = self._alike(past)
                total = add_up(same, self.at.book(relevance.double()), len(first))
                past, relevance = rows(past, first), torch.as_tensor(total)
            self.finished, self.loose = [(past, relevance)], 0

    def _merged(self, partials: list[_Partial], position: int) -> list[_Partial]:
        """The walks that stand at the same node with the same past, added up."""
        if self.by_walk:
            return partials
        partials = [self._with_message(some) if len(some.node) > _FEW else some for some in partials]
        if self.chain.num_layers + 1 - position < 4:
            return partials  # of walks with so few visits too few are alike
        all_of = _joined(partials)
        first, same = self._alike(all_of.past, all_of.node)
        if len(first) == len(same):
            return [all_of]
        total = all_of.message.new_zeros(len(first), *all_of.message.shape[1:])
        total.index_add_(0, self.at.there(same), all_of.message)
        return [_Partial(rows(all_of.node, first), rows(all_of.past, first), total)]

    def _with_message(self, partial: _Partial) -> _Partial:
        """Those that still carry something."""
        alive = arrives(partial.message)
        if alive.all():
            return partial
        some = places(self.at.book(alive))
        return _Partial(rows(partial.node, some), rows(partial.past, some), partial.message[self.at.there(some)])

    def _alike(self, past: Any, node: Any = None) -> tuple[Any, Any]:
        """The first of all walks that have visited the same, and for every walk which of them it equals.

        If nodes are given, only walks that stand at the same one are alike.
        """
        M = self.chain.num_nodes
        digits = self.chain.num_layers + 2 if self.detail == "visits" else 2
        if M * math.log2(digits) + math.log2(M) > 62:
            first, same = distinct(self._visited(past), M)
            return (first, same) if node is None else grouped(same * M + node)
        # How often each node was visited, as the digits of one number.
        digit = np.zeros(M + 1, dtype=np.int64)  # the first for node -1
        digit[1:] = digits ** np.arange(M)
        digit, join = self.at.book(digit), operator.add if self.detail == "visits" else operator.or_
        keys = functools.reduce(join, (rows(digit, column + 1) for column in past.T))
        return grouped(keys if node is None else keys * M + node)

    def _visited(self, past: Any) -> Any:
        """The nodes that walks have visited, whenever that was, ascending.  # (K, L + 1) -> (K, L + 1)"""
        visited = ascending(past)
        return visited if self.detail == "visits" else named_once(visited)


def named_once(visited: Book) -> Book:
    """Nodes, ascending, with -1 in place of those named again, and ascending once more.  # (T, P) -> (T, P)"""
    again = visited[:, 1:] == visited[:, :-1]
    once = visited + 0
    once[:, 1:] -= (visited[:, 1:] + 1) * again
    return ascending(once)


def _joined(partials: list[_Partial]) -> _Partial:
    """Walks from several sides, one after the other."""
    if len(partials) == 1:
        return partials[0]
    message = torch.cat([p.message for p in partials])
    return _Partial(stacked([p.node for p in partials]), stacked([p.past for p in partials]), message)


def distinct(table: Book, num_nodes: int) -> tuple[Book, Book]:
    """The first of each distinct row of the table, and for every row which one it equals.

    Ids from -1 to M - 1 are digits to base M + 1, and as many columns as fit are read as one number.
    """
    base, bits, width = num_nodes + 1, math.log2(num_nodes + 1), table.shape[1]
    room = 62 - (0 if width * bits <= 62 else math.log2(len(table) + 1))  # left by what was read before
    fit = max(1, int(room / bits))
    same = counting(len(table), table) * 0
    first = same[:0]
    for start in range(0, width, fit):
        for column in table[:, start : start + fit].T:
            same *= base
            same += column
        first, same = grouped(same)
    return first, same


def _chunks(counts: Ints, most: int) -> list[slice]:
    """Consecutive pieces with about this many rows each."""
    ends, pieces, first = np.cumsum(counts), [], 0
    while first < len(ends):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        pieces.append(slice(first, last))
        first = last
    return pieces


def _joined_up(parts: list[Tensor]) -> Tensor:
    """Relevance one after the other, in double precision where some has been added up."""
    return parts[0] if len(parts) == 1 else torch.cat([part.double() for part in parts])
