"""Which node every row of an embedding is.

What a model makes of whole numbers (atom numbers, word numbers, ids) is followed from the first layer on: what it did
to their order before that, ``emb(x[perm])``, is out of sight. So the part of the model before its layers is run a few
times with the numbers of some nodes changed, and the rows that change with them are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from walkwise.errors import TraceError
from walkwise.tracing.tape import Tape

_UNFOLLOWED = (
    "Layer '{}' ({}) is handed an embedding whose rows cannot be followed back to nodes of the graph: with the numbers "
    "of a node, other rows change than its own (nodes sorted by those numbers, say)."
)
_REMEDY = "Bring the graph into that order before it is traced."

#: Runs the model with other numbers in the place of x, and gives the node tensors of every layer up to a call.
Handed = Callable[[Tensor, int], Sequence[Sequence[Tensor]]]


def own_tensors(tape: Tape) -> dict[int, tuple[int, int]]:
    """The slots of tensors that layers are handed and nothing is known of: the call, and which of its tensors."""
    made = {slot for op in tape.ops for slot in op.outputs} | {slot for call in tape.calls for slot in call.rows_of}
    known = made.union(tape.features)
    found: dict[int, tuple[int, int]] = {}
    for number, call in enumerate(tape.calls):
        for place, slot in enumerate(call.handed):
            if slot not in known:
                found.setdefault(slot, (number, place))
    return found


def rows_of_numbers(tape: Tape, x: Tensor, handed: Handed) -> dict[int, Tensor]:
    """By slot, the node of every row of the tensors that a model makes of its numbers x.  # (K,)

    Tensors that do not depend on x (a table of embeddings itself) are left out.
    """
    own, other = own_tensors(tape), _others(x)
    if not own or not bool((other != x).any()):
        return {}
    last = max(number for number, _ in own.values())
    codes = torch.arange(1, len(x) + 1)  # every node has a bit that is set
    try:
        plain, *disturbed = (handed(given, last) for given in (x, *_disturbed(x, other, codes)))
        changed = {
            slot: torch.stack([_differ(plain[call][place], run[call][place]) for run in disturbed])
            for slot, (call, place) in own.items()
        }
    except Exception:  # the model does not run on other numbers: its rows are taken for nodes in their order
        return {}
    found = {slot: _decoded(bits, codes) for slot, bits in changed.items()}
    for slot, ids in found.items():
        if ids is None:
            call = tape.calls[own[slot][0]]
            raise TraceError(_UNFOLLOWED.format(call.name, type(call.module).__name__), remedy=_REMEDY)
    return {slot: ids.to(x.device) for slot, ids in found.items() if ids is not None and len(ids)}


def _others(x: Tensor) -> Tensor:
    """Numbers of which each is another than in x, but one that its column has, where it has several."""
    first = x[:1].expand_as(x)
    differs = x != first
    place = differs.to(torch.uint8).argmax(0, keepdim=True)
    return torch.where(differs, first, x.gather(0, place).expand_as(x))


def _disturbed(x: Tensor, other: Tensor, codes: Tensor) -> Iterator[Tensor]:
    """The numbers with those of some nodes changed, bit by bit of their codes: where it is set, and where it is not."""
    for bit in range(len(x).bit_length()):
        chosen = (codes >> bit & 1).bool().to(x.device).view(-1, *[1] * (x.dim() - 1))
        yield torch.where(chosen, other, x)
        yield torch.where(chosen, x, other)


def _differ(before: Tensor, after: Tensor) -> Tensor:
    """Which rows have changed; all, where there are others.  # (K,)"""
    if before.shape != after.shape:
        return torch.ones(len(before), dtype=torch.bool)
    return (before != after).flatten(1).any(1).cpu()


def _decoded(changed: Tensor, codes: Tensor) -> Tensor | None:
    """The node of every row by which changes change it: none if no row ever does, None where that makes no sense."""
    power = 1 << torch.arange(len(changed) // 2).view(-1, 1)
    every = int(power.sum())
    where, where_not = ((runs.long() * power).sum(0) for runs in (changed[::2], changed[1::2]))  # (K,)
    if not bool((where | where_not).any()):
        return where[:0]
    if bool((where ^ where_not == every).all()) and bool((where <= len(codes)).all()):
        return where - 1  # of two opposite changes one alone changes a row: it is one node's
    if len(where) != len(codes):
        return None
    # Each node's change changes its row: rows are nodes in their order, with something of the others mixed in.
    own = (where & codes == codes) & (where_not & ~codes == every & ~codes)
    return codes - 1 if bool((own | (where | where_not == 0)).all()) else None
