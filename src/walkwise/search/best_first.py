"""Best-first search for the most relevant walks, from the output down, with bounds on every completion.

The best walk is not found by keeping the best continuation at every node: a maximum over nodes does
not commute with the sum over neurons. What can be kept for a node is, for every neuron n, the range
[lower_n, upper_n] of what a unit message there can bring along any walk up from the input. A partial
walk with message g then brings at most Σ_n max(g_n, 0) upper_n + min(g_n, 0) lower_n.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from walkwise.errors import LongSearchWarning, WalkwiseError
from walkwise.questions.neighbours import Ints
from walkwise.questions.progress import bar
from walkwise.questions.steps import Partials, WalkSteps, descend, openings
from walkwise.search.envelopes import ROOM, Bounds, bounds

#: How many partial walks are continued together: enough to share the work, few enough that a good
#: walk is known, and others are ruled out by it, before most have been looked at.
_BATCH = 128
#: This many numbers of bounds are worth as long a wait as continuing one partial walk.
_NUMBERS_EACH = 1_000_000
#: What a pair of neighbours takes besides its matrix, in numbers.
_NUMBERS_A_PAIR = 20_000
#: After this many seconds a search says how long it may go on, if that is longer than this.
_LOOK_AFTER, _LONG = 2.0, 60.0


class SearchLimitError(WalkwiseError):
    """A search took more steps than allowed."""


def best_first_search(
    steps: WalkSteps,
    k: int,
    by: str,
    max_expansions: int,
    *,
    ends: Ints | None = None,
    room: int = ROOM,
    batch: int = _BATCH,
    progress: bool | None = False,
) -> tuple[Tensor, int]:
    """The k best walks, (k, L + 1) and in no certain order, and how many partial walks were continued.

    Args:
        steps: the steps of a chain's walks.
        k: how many, at most as many as there are.
        by: "relevance" or "magnitude".
        max_expansions: continuing more partial walks raises a SearchLimitError.
        ends: only walks that end at these nodes.
        room: how many numbers the completions may take that are kept one by one.
        batch: how many partial walks are continued together.
        progress: as in :func:`~walkwise.top_walks`.
    """
    _check_work(steps, max_expansions)
    search = _Search(steps, k, by, bounds(steps, room, progress), batch)
    chain = steps.stages.chain
    blank = torch.full((chain.num_nodes, chain.num_layers + 1), -1, device=chain.device)
    for at in openings(steps, ends):
        start = blank[: len(at)].clone()
        start[:, at.position] = at.nodes
        search.admit(at, start)
    label = f"best-first search among {steps.num_walks:,} walks, at most"
    begun, foretold = time.monotonic(), False
    with bar(progress, total=max_expansions, desc=label, unit=" partial walks") as shown:
        while (chosen := search.pop()) is not None:
            if search.expansions + len(chosen.at) > max_expansions:
                _give_up(search, chosen, max_expansions)
            if not foretold and (spent := time.monotonic() - begun) > _LOOK_AFTER:
                foretold = True
                _foretell(search, spent, max_expansions)
            search.expand(chosen)
            shown.set_postfix(found=search.worst, bound=float(chosen.bound.max()), refresh=False)
            shown.update(len(chosen.at))
    return search.found, search.expansions


@dataclass(frozen=True, eq=False)
class _Open:
    """Partial walks that wait to be continued."""

    at: Partials
    walks: Tensor  # (B, L + 1)
    bound: Tensor  # (B,)

    def take(self, which: Tensor) -> _Open:
        at = Partials(self.at.position, self.at.nodes[which], self.at.message[which], self.at.parent[which])
        return _Open(at, self.walks[which], self.bound[which])

    def __add__(self, other: _Open) -> _Open:
        pairs = ((getattr(self.at, name), getattr(other.at, name)) for name in ("nodes", "message", "parent"))
        at = Partials(self.at.position, *(torch.cat(pair) for pair in pairs))
        return _Open(at, torch.cat([self.walks, other.walks]), torch.cat([self.bound, other.bound]))


class _Search:
    """The state of one search: the best walks so far, and the partial walks still open."""

    def __init__(self, steps: WalkSteps, k: int, by: str, known: Bounds, batch: int) -> None:
        self.steps = steps
        self.batch = batch
        self.k = k
        self.score: Callable[[Tensor], Tensor] = torch.abs if by == "magnitude" else lambda r: r
        self.by = by
        self.bounds = known
        self.open: dict[int, _Open] = {}
        self.expansions = 0
        chain = steps.stages.chain
        self.best = torch.zeros(0, dtype=chain.dtype, device=chain.device)
        self.found = torch.zeros(0, chain.num_layers + 1, dtype=torch.long, device=chain.device)

    @property
    def full(self) -> bool:
        return len(self.best) >= self.k

    @property
    def worst(self) -> float:
        """What a walk must exceed to be among the best."""
        return float(self.best[-1]) if self.full and self.k else -torch.inf

    def keep(self, relevance: Tensor, walks: Callable[[Tensor], Tensor]) -> None:
        """Complete walks; ``walks`` gives the walks with these numbers."""
        score = self.score(relevance)
        score, which = score.topk(min(self.k, len(score)))
        good = score > self.worst
        score, which = score[good], which[good]
        merged, order = torch.cat([self.best, score]).sort(descending=True, stable=True)
        self.best = merged[: self.k]
        self.found = torch.cat([self.found, walks(which)])[order[: self.k]]

    def admit(self, at: Partials, walks: Tensor) -> None:
        """New partial walks: completed at once near the input, left open elsewhere."""
        low, high = self.bounds.range(at)
        bound = torch.maximum(high, -low) if self.by == "magnitude" else high
        new = _Open(at, walks, bound[:, 0])
        if at.position in self.bounds.completions:
            self._complete(new)
        else:
            self._leave_open(new)

    def _complete(self, new: _Open) -> None:
        for node in torch.unique(new.at.nodes).tolist():
            completions = self.bounds.completions[new.at.position][node]
            assert completions.walks is not None
            here = (new.at.nodes == node).nonzero()[:, 0]
            for some in torch.split(here, max(1, ROOM // len(completions.walks))):
                good = some[new.bound[some] > self.worst]
                relevance = new.at.message[good, 0] @ completions.functionals.t()  # (C, W)
                self.keep(relevance.flatten(), _Joining(new.walks[good], completions.walks))

    def _leave_open(self, new: _Open) -> None:
        position = new.at.position
        joined = self.open[position] + new if position in self.open else new
        joined = joined.take(joined.bound > self.worst)
        self.open[position] = joined
        if len(joined.at) == 0:
            del self.open[position]

    def pop(self) -> _Open | None:
        """The most promising partial walks: those nearest the input until k walks are known, then by bound."""
        worst = self.worst
        live = {p: o for p, o in self.open.items() if float(o.bound.max()) > worst}
        if not live:
            return None
        position = max(live, key=lambda p: float(live[p].bound.max())) if self.full else min(live)
        waiting = live[position]
        order = waiting.bound.argsort(descending=True)
        batch = min(self.batch, self.steps.stages.batch())
        chosen = waiting.take(order[:batch])
        del self.open[position]
        if len(order) > batch:
            self.open[position] = waiting.take(order[batch:])
        return chosen.take(chosen.bound > worst)

    def expand(self, chosen: _Open) -> None:
        """Continue partial walks by one step."""
        self.expansions += len(chosen.at)
        relevance, below = descend(self.steps, chosen.at)
        if self.steps.stages.begins(chosen.at.position):
            self.keep(relevance[:, 0], lambda which: chosen.walks[which])
        for at in below:
            walks = chosen.walks[at.parent].clone()
            walks[:, at.position] = at.nodes
            self.admit(at, walks)


@dataclass(frozen=True, eq=False)
class _Joining:
    """Walks made of C upper ends and W completions, numbered row by row."""

    upper: Tensor  # (C, L + 1)
    completions: Tensor  # (W, position + 1)

    def __call__(self, which: Tensor) -> Tensor:
        walks = self.upper[which // len(self.completions)].clone()
        walks[:, : self.completions.shape[1]] = self.completions[which % len(self.completions)]
        return walks


def _check_work(steps: WalkSteps, max_expansions: int) -> None:
    """Refuse a search whose bounds alone would take too long: where nearly every node is next to every other."""
    at = steps.stages
    widths = [at.width(position) for position in at.positions]
    numbers = len(at.near.nodes) * sum(after * before + _NUMBERS_A_PAIR for before, after in pairwise(widths))
    if numbers > max_expansions * _NUMBERS_EACH:
        needed = -(-numbers // _NUMBERS_EACH)
        raise SearchLimitError(
            f"There are {steps.num_walks:.4g} walks, and the bounds for a search among them take {numbers:.2g} "
            f"numbers: a matrix for each of {len(at.near.nodes):,} pairs of neighbours in every layer.",
            argument="max_expansions",
            expected=f"at least {needed:,}",
            got=max_expansions,
            remedy=f"Pass max_expansions={needed:,} or more if you mean to wait for minutes, cut the graph, or use "
            "walkwise.search.walksearch.top_walks_amp_ave, which is fast but approximate.",
        )


def _foretell(search: _Search, spent: float, max_expansions: int) -> None:
    """Say how long a search may go on before it gives up, if that is long."""
    left = (max_expansions - search.expansions) * spent / max(1, search.expansions)
    if left > _LONG:
        message = (
            f"The search among {search.steps.num_walks:,} walks may go on for {left / 60:.1f} minutes, until "
            f"max_expansions={max_expansions:,} partial walks have been continued. Lower that limit to stop earlier, "
            "ask for fewer walks, or use walkwise.search.walksearch.top_walks_amp_ave, which is fast but approximate."
        )
        warnings.warn(message, LongSearchWarning, stacklevel=7)


def _give_up(search: _Search, chosen: _Open, max_expansions: int) -> None:
    known = f"the {search.k}th best so far has {search.worst:.4g}" if search.full else "not all k walks are known yet"
    raise SearchLimitError(
        f"The search would continue more than max_expansions={max_expansions} partial walks (of "
        f"{search.steps.num_walks} walks in all): open ones may still reach a {search.by} of "
        f"{float(chosen.bound.max()):.4g}, and {known}.",
        argument="max_expansions",
        expected="large enough to find the best walks",
        got=max_expansions,
        remedy="Raise the limit, ask for fewer walks, or use walkwise.search.walksearch.top_walks_amp_ave, which is "
        "fast but approximate.",
    )
