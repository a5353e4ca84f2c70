"""Orders from a table of walks on the chain's device: every step is a few operations on all graphs at once.

An accelerator adds all contributions up anew at every step, which for it is quicker than to keep up with choices
(:mod:`walkwise.search.contributions`), and nothing is waited for until all nodes have been chosen.
"""

from __future__ import annotations

import numpy as np
import torch

from walkwise.core.sending import sent
from walkwise.questions.neighbours import Ints
from walkwise.questions.ties import first_of_the_best_there
from walkwise.questions.walk_tables import ListedWalks
from walkwise.search.contributions import differences, visit_counts
from walkwise.search.greedy import Criterion

#: How many numbers are worth adding up on an accelerator: entries times visits times steps and discounts.
_LEAST_NUMBERS, _MOST_NUMBERS = 1 << 20, 1 << 26


def pays(listed: ListedWalks, criterion: Criterion) -> bool:
    """Whether to add up anew at every step on an accelerator: for many small graphs, not for one."""
    A, _, W = criterion.shape
    return _LEAST_NUMBERS <= listed.numbers * A * W <= _MOST_NUMBERS


def orders_from_table(listed: ListedWalks, criterion: Criterion, device: torch.device) -> list[Ints]:
    """The nodes in the order they are chosen, for every graph: (A, M_g) each, as :func:`greedy_orders` has them.

    Args:
        listed: all walks of the graphs.
        criterion: what is best.
        device: where to compute.
    """
    (A, G, W), graphs, sign = criterion.shape, criterion.graphs, criterion.sign
    visits = sent(listed.visits, device).long()
    times, visited, row, o = visit_counts(visits, sent(graphs.place, device), criterion.adds)
    psi = sent(differences(criterion.alphas, times.shape[1], sign), device)
    lane = torch.arange(A, device=device).view(A, 1, 1)
    place = visited + lane * (G * W)  # (A, T, P) of a node in a graph, for every discount
    row, outside = row + lane * psi[0].numel(), o.repeat(A, 1)  # (A, T, P), (A, T)
    psi, relevance = psi.flatten(), listed.relevance.to(device, torch.float64)
    free = sent(graphs.node >= 0, device).view(1, G, W).repeat(A, 1, 1)
    number = torch.arange(W, device=device)
    shortfall = scale = torch.zeros(A, G, 1, dtype=torch.float64, device=device)
    picks = []
    for _ in range(W):
        each = psi[row + outside.unsqueeze(2)] * relevance.unsqueeze(1)
        change = torch.zeros(A * G * W, dtype=torch.float64, device=device).index_add_(
            0, place.flatten(), each.flatten()
        )
        change = change.view(A, G, W) * free
        scale = torch.maximum(scale, change.abs().amax(2, keepdim=True))
        score = change if criterion.adds else -(shortfall + change).abs()
        score = torch.where(free, score, -torch.inf)
        best = first_of_the_best_there(score, criterion.tolerance * scale)  # (A, G, 1)
        picks.append(best)
        chosen = (number == best) & free  # none in a graph without nodes left
        shortfall = shortfall + (change * chosen).sum(2, keepdim=True)
        free = free & ~chosen
        outside = outside + sign * (chosen.flatten()[place] * times).sum(2)
    found = torch.cat(picks, dim=2).cpu().numpy() + np.arange(G)[:, None] * W  # (A, G, W) places, in order
    return [graphs.node[found[:, g, :size]] for g, size in enumerate(graphs.sizes.tolist())]
