"""The one greedy loop: which node comes next, given the contribution of each (section 7.2.1 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from walkwise.errors import InputError
from walkwise.questions.graphs import PaddedGraphs
from walkwise.questions.neighbours import Bools, Floats, Ints
from walkwise.questions.ties import first_of_the_best, rounding

Mode = Literal["activation", "pruning"]


@dataclass(frozen=True, eq=False)
class Criterion:
    """The criterion for the next node: a mode, A discounts, G graphs."""

    mode: Mode
    alphas: tuple[float, ...]
    graphs: PaddedGraphs
    tolerance: float = 0.0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(A, G, W)."""
        return len(self.alphas), len(self.graphs), self.graphs.width

    @property
    def adds(self) -> bool:
        """Whether choosing a node puts it into the subgraph."""
        return self.mode == "activation"

    @property
    def sign(self) -> int:
        """By how much choosing a node changes the visits outside, for every visit to it."""
        return -1 if self.adds else 1


class Contributions(Protocol):
    """How much each node changes R_α, kept up to date as nodes are chosen."""

    change: Floats  # (A, G · W): R_α once the node is chosen, less R_α now; of no meaning once it has been
    rounding: float  # how far changes may be off, besides what is relative to themselves

    def choose(self, a: Ints, place: Ints) -> None:
        """Nodes were chosen: for every discount and unfinished graph, its place.  # (K,), (K,)"""


def greedy_orders(contributions: Contributions, criterion: Criterion, steps: Iterable[int]) -> list[Ints]:
    """Choose nodes greedily and return them in order, for every graph: (A, M_g) each.

    In an activation step, R_α of the chosen nodes is the same for all candidates, so changes are compared; pruning
    compares |R_α of the remaining nodes − R(G)|. Of candidates that tie, the first is chosen.

    Args:
        contributions: the change by each node.
        criterion: which change is best.
        steps: the numbers 0 … W - 1, perhaps with a progress bar.
    """
    A, G, W = criterion.shape
    graphs, size = criterion.graphs, criterion.graphs.sizes
    shortfall, scale = np.zeros(A * G), np.zeros(A * G)  # R_α of what is left, less R(G); the largest change so far
    picks = np.full((W, A * G), -1)
    contributions.change[:, graphs.node < 0] = np.nan
    change = contributions.change.reshape(A * G, W)
    sizes, begin = np.tile(size, A), np.tile(np.arange(G) * W, A)
    live, a, ends = np.arange(A * G), np.repeat(np.arange(A), G), set(size.tolist())
    for step in steps:
        if step in ends:  # go on with those that have nodes left
            some = sizes[live] > step
            live, a, begin = live[some], a[some], begin[some]
        np.fmax(scale, np.fmax.reduce(np.abs(change), axis=1), out=scale)
        score = change if criterion.adds else -np.abs(shortfall[:, None] + change)
        apart = criterion.tolerance * scale
        if contributions.rounding and criterion.tolerance:
            apart = np.maximum(apart, contributions.rounding)
        best = first_of_the_best(score, apart)[live]
        place = best + begin
        picks[step, live] = graphs.node[place]
        if not criterion.adds:
            shortfall[live] += change[live, best]
        contributions.choose(a, place)
        change = contributions.change.reshape(A * G, W)
        change[live, best] = np.nan
    by_graph = picks.reshape(W, A, G)
    return [np.ascontiguousarray(by_graph[:size, :, g].T) for g, size in enumerate(graphs.sizes)]


def greedy_order(scores: Callable[[Tensor], Tensor], num_nodes: int, mode: str = "activation") -> Tensor:
    """The nodes in the order in which a greedy search takes (or removes) them: (M,), section 7.2.1.

    Activation takes the node with the largest score(chosen + node), most important first; pruning removes
    the one with the smallest |score(rest − node) − score(G)|, least important first. Of nodes that tie, up to
    rounding, the one with the lowest id comes first: symmetric nodes differ by rounding alone.

    Args:
        scores: a score for every node set of a boolean mask (B, M).
        num_nodes: M.
        mode: "activation" or "pruning".

    >>> weights = torch.tensor([0.1, -2.0, 3.0])
    >>> greedy_order(lambda sets: sets.float() @ weights, 3).tolist()
    [2, 0, 1]
    >>> greedy_order(lambda sets: sets.float() @ weights, 3, "pruning").tolist()
    [0, 1, 2]
    """
    criterion = Criterion(as_mode(mode), (0.0,), PaddedGraphs.alone(num_nodes))
    if not num_nodes:
        return torch.zeros(0, dtype=torch.long)
    contributions = _ScoredSets(scores, num_nodes, criterion.adds)
    criterion = Criterion(criterion.mode, (0.0,), criterion.graphs, contributions.tolerance)
    (order,) = greedy_orders(contributions, criterion, range(num_nodes))
    return torch.from_numpy(order[0])


def as_mode(mode: str) -> Mode:
    """The mode, checked."""
    if mode != "activation" and mode != "pruning":
        raise InputError(argument="mode", expected='"activation" or "pruning"', got=mode)
    return mode  # type: ignore[return-value]


class _ScoredSets:
    """Contributions to anything that scores node sets, asked anew at every step."""

    rounding = 0.0

    def __init__(self, scores: Callable[[Tensor], Tensor], num_nodes: int, adds: bool) -> None:
        self.scores, self.adds = scores, adds
        self.chosen: Bools = np.zeros(num_nodes, dtype=bool)
        now = scores(torch.ones(1, num_nodes, dtype=torch.bool))
        self.tolerance = rounding(now.dtype)
        self.now = 0.0 if adds else float(now)
        self.change: Floats = np.full((1, num_nodes), np.nan)
        self._ask()

    def choose(self, a: Ints, place: Ints) -> None:
        """Ask again, with one node more."""
        self.now += float(self.change[0, place[0]])
        self.chosen[place] = True
        self._ask()

    def _ask(self) -> None:
        free = np.flatnonzero(~self.chosen)
        if len(free):
            sets = np.tile(self.chosen, (len(free), 1))  # (B, M), one candidate each
            sets[np.arange(len(free)), free] = True
            answers = self.scores(torch.from_numpy(sets if self.adds else ~sets))
            self.rounding = max(self.rounding, 16 * torch.finfo(answers.dtype).eps * float(answers.abs().max()))
            self.change[:] = np.nan
            self.change[0, free] = answers.double().cpu().numpy() - self.now
