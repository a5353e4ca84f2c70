"""The greedy order of one graph whose walks make a short list: every gain added up anew at every step."""

from __future__ import annotations

import numpy as np

from walkwise.gains import Task, differences, tabled
from walkwise.ledger import WalkLedger
from walkwise.neighbours import Ints

#: The longest list, in entries times visits times nodes, for which this is quicker than keeping gains up to date.
_SHORT = 200_000


def is_short(ledger: WalkLedger, task: Task) -> bool:
    """Whether this is one graph with one discount and few walks."""
    return task.shape[:2] == (1, 1) and ledger.visits.size * task.shape[2] <= _SHORT


def greedy_order(ledger: WalkLedger, task: Task) -> Ints:
    """The nodes in the order they are chosen: (M,).

    The gains are those of :class:`~walkwise.gains.LedgerGains`. Of every entry (T) and node it visits (P) just the
    place of Ψ_v(o) in the table is kept; choosing a node moves the places of the walks through it.
    """
    (T, P), M = ledger.visits.shape, task.layout.width
    times, places, row, outside = tabled(ledger, task)
    table = differences(task.alphas, P, task.sign).ravel()
    at = (row + outside[:, None]).ravel()  # (T · P,)
    moves = np.bincount((places * T + np.arange(T)[:, None]).ravel(), (task.sign * times).ravel(), M * T).astype(
        np.int64
    )
    moves = moves.reshape(M, T).repeat(P, axis=1)  # (M, T · P) how far a node moves every place
    visited, relevance = places.ravel(), ledger.relevance.repeat(P)

    order = np.empty(M, dtype=np.int64)
    taken = np.zeros(M)  # NaN once a node has been chosen
    shortfall = scale = 0.0  # R_α of what is left less R(G), and the largest change of R_α so far
    for step in range(M):
        gain = np.bincount(visited, table.take(at) * relevance, M) + taken
        most, least = np.fmax.reduce(gain), np.fmin.reduce(gain)
        scale = max(scale, most, -least)
        score = gain if task.adds else -np.abs(gain + shortfall)
        enough = (most if task.adds else np.fmax.reduce(score)) - task.tolerance * scale
        best = (score >= enough).argmax()  # the first of equal ones
        order[step] = best
        shortfall += gain[best]
        taken[best] = np.nan
        at += moves[best]
    nodes: Ints = task.layout.node[order]
    return nodes
