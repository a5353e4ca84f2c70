"""The most relevant walks, exactly: best-first search from the output with bounds on every completion.

The best walk is not found by keeping the best continuation at every node: a maximum over nodes does
not commute with the sum over neurons. What can be kept for a node is, for every neuron n, the range
[lower_n, upper_n] of what a unit message there can bring along any walk up from the input. A partial
walk with message g then brings at most Σ_n max(g_n, 0) upper_n + min(g_n, 0) lower_n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.errors import InputError, WalkwiseError, as_count
from walkwise.questions.walks import ties_in_order, walk_relevance
from walkwise.search.envelopes import ROOM, bounds
from walkwise.search.partialwalks import Partials, Stages, descend, openings, stages

#: How many partial walks are continued together: enough to share the work, few enough that a good
#: walk is known, and others are ruled out by it, before most have been looked at.
_BATCH = 128


class SearchLimitError(WalkwiseError):
    """A search took more steps than allowed."""


@dataclass(frozen=True, eq=False)
class TopWalks:
    """The k most relevant walks, best first (of ties the lexicographically smallest), and what it took to find them."""

    walks: Tensor  # (k, L + 1), -1 where a walk passes a position by
    relevance: Tensor  # (k,)
    expansions: int  # partial walks continued
    num_walks: int  # how many walks there are


@without_gradients
def top_walks(
    chain: RelevanceChain,
    k: int,
    *,
    by: Literal["relevance", "magnitude"] = "relevance",
    max_expansions: int = 100_000,
    progress: bool = False,
) -> TopWalks:
    """The k walks of largest relevance R(m), or of largest |R(m)|, exactly.

    Partial walks are continued in the order of their bounds,

        max over completions of R ≤ Σ_n max(g_n, 0) upper_n + min(g_n, 0) lower_n,

    until no bound exceeds the k-th best walk found. Near the input, where completions are few, all of
    them are kept and the bound is exact.

    Of walks that tie, the lexicographically smallest comes first: those whose relevance (or magnitude) is equal to
    that of the first of them, up to a relative 1e-9 in float64 and 1e-6 in float32, so that rounding does not decide.
    Where the k-th ties with walks that are left out, which of them are among the k is not defined: to know, all of
    them would have to be found.

    Args:
        chain: the traced prediction, with or without skip connections.
        k: how many walks; fewer come back where there are fewer.
        by: "relevance" (largest first) or "magnitude" (largest absolute value first).
        max_expansions: continuing more partial walks than this raises :class:`SearchLimitError`, which says what
            open ones may still reach.
        progress: show how many partial walks have been continued, the k-th best walk, and what open ones may reach.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=3, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> best = top_walks(chain, k=2)
    >>> best.walks.shape, best.num_walks
    (torch.Size([2, 4]), 17)
    >>> bool(best.relevance[0] == ww.walk_relevance(chain, ww.enumerate_walks(chain)).max())
    True
    """
    k = as_count(k, "k, the number of walks,")
    if by not in ("relevance", "magnitude"):
        raise InputError(f'by is "relevance" or "magnitude", got {by!r}.')
    return _search(stages(chain), k, by, max_expansions, progress=progress)


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

    def __init__(self, walks: Stages, k: int, by: str, room: int, batch: int) -> None:
        self.stages = walks
        self.batch = batch
        self.k = min(k, walks.num_walks)
        self.score: Callable[[Tensor], Tensor] = torch.abs if by == "magnitude" else lambda r: r
        self.by = by
        self.bounds = bounds(walks, room)
        self.open: dict[int, _Open] = {}
        self.expansions = 0
        chain = walks.chain
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
        batch = min(self.batch, self.stages.batch(position))
        chosen = waiting.take(order[:batch])
        del self.open[position]
        if len(order) > batch:
            self.open[position] = waiting.take(order[batch:])
        return chosen.take(chosen.bound > worst)

    def expand(self, chosen: _Open) -> None:
        """Continue partial walks by one step."""
        self.expansions += len(chosen.at)
        relevance, below = descend(self.stages, chosen.at)
        if self.stages.begins(chosen.at.position):
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


def _search(
    walks: Stages,
    k: int,
    by: str,
    max_expansions: int,
    room: int = ROOM,
    batch: int = _BATCH,
    progress: bool = False,
) -> TopWalks:
    from tqdm.auto import tqdm

    search = _Search(walks, k, by, room, batch)
    blank = torch.full((walks.chain.num_nodes, walks.chain.num_layers + 1), -1, device=walks.chain.device)
    for at in openings(walks):
        start = blank[: len(at)].clone()
        start[:, at.position] = at.nodes
        search.admit(at, start)
    with tqdm(unit=" partial walks", disable=not progress, leave=False) as bar:
        while (chosen := search.pop()) is not None:
            if search.expansions + len(chosen.at) > max_expansions:
                _give_up(search, chosen, max_expansions)
            search.expand(chosen)
            bar.set_postfix(found=search.worst, bound=float(chosen.bound.max()), refresh=False)
            bar.update(len(chosen.at))
    relevance = walk_relevance(walks.chain, search.found)
    score, order = search.score(relevance).sort(descending=True, stable=True)
    order = order[ties_in_order(search.found[order], score)]
    return TopWalks(search.found[order], relevance[order], search.expansions, walks.num_walks)


def _give_up(search: _Search, chosen: _Open, max_expansions: int) -> None:
    known = f"the {search.k}th best so far has {search.worst:.4g}" if search.full else "not all k are known yet"
    raise SearchLimitError(
        f"Continuing more than max_expansions={max_expansions} partial walks (of {search.stages.num_walks} walks in "
        f"all): open ones may still reach a {search.by} of {float(chosen.bound.max()):.4g}, and {known}. Raise the "
        "limit, ask for fewer walks, or use walkwise.search.walksearch.top_walks_amp_ave, which is fast but "
        "approximate."
    )
