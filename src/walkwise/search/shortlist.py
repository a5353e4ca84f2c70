"""The greedy order of one graph whose walks make a short list: every gain added up anew at every step."""

from __future__ import annotations

import numpy as np

from walkwise.search.gains import Task, differences, tabled
from walkwise.search.neighbours import Ints
from walkwise.search.walk_table import WalkLedger

#: The longest list, in entries times visits times nodes, for which this is quicker than keeping gains up to date.
_SHORT = 200_000


def is_short(ledger: WalkLedger, task: Task) -> bool:
    """Whether this is one graph with one discount and few walks."""
    return task.shape[:2] == (1, 1) and ledger.visits.size * task.shape[2] <= _SHORT


def greedy_order(ledger: WalkLedger, task: Task) -> Ints:
    """The nodes in the order they are chosen: (M,).

    The gains are those of :class:`~walkwise.search.gains.LedgerGains`. Of every entry (T) and node it visits (P) just
    the place of Ψ_v(o) in the table is kept; choosing a node moves the places of the walks through it.
    """
    (T, P), M = ledger.visits.shape, task.layout.width
    times, places, row, outside = tabled(ledger, task)
    psi = differences(task.alphas, P, task.sign).reshape(-1, P + 1)  # Ψ_v of n visits for every o
    change = (psi.take(row // (P + 1), axis=0) * ledger.relevance[:, None, None]).ravel()
    at = (np.arange(0, len(change), P + 1).reshape(T, P) + outside[:, None]).ravel()  # (T · P,)
    moves = np.bincount((places * T + np.arange(T)[:, None]).ravel(), (task.sign * times).ravel(), M * T)
    moves = moves.astype(np.int64).reshape(M, T).repeat(P, axis=1)  # (M, T · P) how far a node moves every place
    visited = places.ravel()

    order, free = [], list(range(M))
    adds, tolerance = task.adds, task.tolerance
    shortfall = scale = 0.0  # R_α of what is left less R(G), and the largest change of R_α so far
    while free:
        gains = np.bincount(visited, change.take(at), M).tolist()
        gain = [gains[m] for m in free]
        scale = max(scale, max(gain), -min(gain))
        score = gain if adds else [-abs(g + shortfall) for g in gain]
        enough = max(score) - tolerance * scale
        first = [s >= enough for s in score].index(True)  # of equal ones
        shortfall += gain[first]
        best = free.pop(first)
        order.append(best)
        at += moves[best]
    nodes: Ints = task.layout.node[order]
    return nodes
