"""The one loop that contracts a chain, with whatever node weights a question puts at the positions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.operators import Jacobian, Step, Visit
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
    total = functools.reduce(add_lanes, totals)
    return total if len(total) == rows.num_queries else total.expand(rows.num_queries, -1)


def run_backward(
    chain: RelevanceChain,
    rows: Rows,
    weigh: Weigh,
    *,
    seeds: Iterable[tuple[int, Tensor]] | None = None,
    tap: Callable[[int, Tensor], None] | None = None,
) -> dict[int, Tensor]:
    """The messages that come down to where walks begin, by slot.

    Args:
        chain: the traced prediction.
        rows: which nodes' messages are carried.
        weigh: called with each visit and the message (K, B, D, N) there; returns the message with
            node weights, possibly with more queries or lanes, or None to let it end there.
        seeds: the slots and messages (K, B, D, N) to start from; by default the read-out's.
        tap: called with every slot and the complete message that arrived there.
    """
    messages: dict[int, Tensor] = {}
    for slot, seed in seeds if seeds is not None else [(slot, rows.take(seed)) for slot, seed in chain.seeds]:
        _arrive(messages, [slot], [seed], rows)
    for step in reversed(chain.steps):
        if messages.keys().isdisjoint(step.targets):
            continue
        arrived = [messages.pop(target, None) for target in step.targets]
        if tap is not None:
            _tell(tap, step.targets, arrived)
        _arrive(messages, step.sources, _pull(step, arrived, rows, weigh), rows)
    if tap is not None:
        _tell(tap, list(messages), list(messages.values()))
    return messages


def _tell(tap: Callable[[int, Tensor], None], slots: Sequence[int], arrived: Sequence[Tensor | None]) -> None:
    for slot, message in zip(slots, arrived, strict=True):
        if message is not None:
            tap(slot, message)


def _pull(step: Step, arrived: list[Tensor | None], rows: Rows, weigh: Weigh) -> Sequence[Tensor | None]:
    """The messages at a step's sources."""
    operators = step.operators
    if isinstance(operators, Jacobian):
        return operators.pull_all(arrived)
    (message,) = arrived
    assert message is not None
    first = operators[0]
    if type(first) is Visit:
        return (weigh(first, message),)
    if len(operators) == 1:
        return (first.pull(message, rows),)
    return [operator.pull(message, rows) for operator in operators]


def _arrive(messages: dict[int, Tensor], slots: Sequence[int], arriving: Sequence[Tensor | None], rows: Rows) -> None:
    """Add messages to what has arrived at slots."""
    for slot, message in zip(slots, arriving, strict=True):
        if message is not None:
            waiting = messages.get(slot)
            messages[slot] = message if waiting is None else rows.add(waiting, message)


def unweighted(visit: Visit, message: Tensor) -> Tensor:
    """The weight 1 for every node."""
    return message


def all_rows(chain: RelevanceChain, num_queries: int = 1) -> Rows:
    """Every node's row, shared by all queries."""
    return AllNodes(chain.num_nodes, num_queries)


def tapped_messages(
    chain: RelevanceChain, seeds: Iterable[tuple[int, Tensor]] | None = None, weigh: Weigh = unweighted
) -> Mapping[int, Tensor]:
    """The complete message at every slot, by default with all node weights 1.  # {slot: (M, 1, 1, N)}"""
    seen: dict[int, Tensor] = {}
    contract(chain, all_rows(chain), weigh, seeds=seeds, tap=lambda slot, m: seen.update({slot: m}))
    return seen
