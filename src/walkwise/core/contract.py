"""The one loop that contracts a chain, with the node weights that a question puts at the positions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.operators import Step, Visit
from walkwise.core.rows import AllNodes, Rows, add_lanes

#: Puts node weights on the message that arrives at a visit; None drops the message.
Weigh = Callable[[Visit, Tensor], Tensor | None]


def contract(
    chain: RelevanceChain,
    rows: Rows,
    weigh: Weigh,
    *,
    seeds: Iterable[tuple[int, Tensor]] | None = None,
    tap: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Σ over walks of (product of node weights) · relevance, for every query and lane: (B, D).

    Messages are gradients of the explained output, so a walk's relevance is the message that comes down
    along it, times H at its first node (Theorems 1–4). The arguments are those of :func:`run_backward`.
    """
    messages = run_backward(chain, rows, weigh, seeds=seeds, tap=tap)
    totals = [rows.total(messages[slot], H) for slot, H in chain.roots if slot in messages]
    if not totals:
        return torch.zeros(rows.num_queries, 1, dtype=chain.dtype, device=chain.device)
    return functools.reduce(add_lanes, totals).expand(rows.num_queries, -1)


def run_backward(
    chain: RelevanceChain,
    rows: Rows,
    weigh: Weigh,
    *,
    seeds: Iterable[tuple[int, Tensor]] | None = None,
    tap: Callable[[int, Tensor], None] | None = None,
) -> dict[int, Tensor]:
    """Return the messages that arrive where walks begin, by slot.

    Args:
        chain: the traced prediction.
        rows: which nodes' messages are carried.
        weigh: called with each visit and the message (K, B, D, N) there; returns the message with
            node weights, possibly with more queries or lanes, or None to drop it there.
        seeds: the slots and messages (K, B, D, N) to start from; by default the read-out's.
        tap: called with every slot and the complete message that arrived there.
    """
    begin = seeds if seeds is not None else [(slot, rows.take(seed)) for slot, seed in chain.seeds]
    return pull_back(chain.steps, begin, rows, weigh, tap)


def pull_back(
    steps: Sequence[Step],
    seeds: Iterable[tuple[int, Tensor]],
    rows: Rows,
    weigh: Weigh,
    tap: Callable[[int, Tensor], None] | None = None,
) -> dict[int, Tensor]:
    """Pull messages back over all steps, last to first, and return those that no step takes further, by slot."""
    messages: dict[int, Tensor] = {}
    for slot, seed in seeds:
        _arrive(messages, slot, seed, rows)
    for step in reversed(steps):
        message = messages.pop(step.target, None)
        if message is None:
            continue
        if tap is not None:
            tap(step.target, message)
        first = step.operators[0]
        if type(first) is Visit:
            _arrive(messages, step.sources[0], weigh(first, message), rows)
        else:
            for source, operator in zip(step.sources, step.operators, strict=True):
                _arrive(messages, source, operator.pull(message, rows), rows)
    if tap is not None:
        for slot, message in messages.items():
            tap(slot, message)
    return messages


def _arrive(messages: dict[int, Tensor], slot: int, message: Tensor | None, rows: Rows) -> None:
    """Add a message to what has arrived at a slot."""
    if message is not None:
        waiting = messages.get(slot)
        messages[slot] = message if waiting is None else rows.add(waiting, message)


def unweighted(visit: Visit, message: Tensor) -> Tensor:
    """The weight 1 for every node."""
    return message


def all_rows(chain: RelevanceChain, num_queries: int = 1) -> Rows:
    """Every node's row, shared by all queries."""
    return AllNodes(chain.num_nodes, num_queries)


def tapped_messages(chain: RelevanceChain) -> Mapping[int, Tensor]:
    """The complete message at every slot, with all node weights 1.  # {slot: (M, 1, 1, N)}"""
    seen: dict[int, Tensor] = {}
    contract(chain, all_rows(chain), unweighted, tap=lambda slot, m: seen.update({slot: m}))
    return seen
