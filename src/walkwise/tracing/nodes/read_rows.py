"""Rows that were read by number, ``h[index]``: from where they were, and at which nodes they are added up."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walkwise.tracing.nodes.sums import reads_rows
from walkwise.tracing.recording.recorded import Op


@dataclass(frozen=True, eq=False)
class ReadRows:
    """Goes back from tensors to those that their rows were read from."""

    values: Sequence[Tensor]  # by slot
    known: Mapping[int, Tensor]  # the nodes of their entries
    maker: Mapping[int, Op]  # what has made them
    returned: Mapping[int, int]  # what layers returned: here it ends

    def are_read(self, slot: int) -> bool:
        """Whether rows were read from others by number, and mapped one by one since."""
        rows, todo, seen = len(self.values[slot]), [slot], set[int]()
        while todo:
            at = todo.pop()
            op = self.maker.get(at)
            if at in seen or op is None or at in self.returned:
                continue
            if reads_rows(op):
                return True
            seen.add(at)
            todo += [s for s in op.inputs if self.values[s].shape[:1] == (rows,)]
        return False

    def origin(self, op: Op, rows: int) -> Tensor | None:
        """The nodes of the rows, so many, from which those were read that an operation adds up.

        These are nodes of a pooled graph, say, or such of which pairs send messages; None if they are not.  # (rows,)
        """
        found: list[Tensor] = []
        todo, seen = [*op.inputs], set[int]()
        while todo:
            slot = todo.pop()
            made = self.maker.get(slot)
            if slot in seen or made is None or slot in self.returned:
                continue
            seen.add(slot)
            fitting = [s for s in made.inputs[:1] if reads_rows(made) and self.values[s].shape[:1] == (rows,)]
            found += [self.known[s] for s in fitting]
            todo += () if fitting else made.inputs  # the last read counts: the rows may have been put in order before
        alone = [ids.flatten() for ids in found if ids.numel() == rows]
        if not found or len(alone) < len(found) or any(not torch.equal(ids, alone[0]) for ids in alone):
            return None
        each_once = bool((alone[0] >= 0).all()) and int(torch.bincount(alone[0]).max()) == 1
        return alone[0] if each_once else None


def are_at_ends(given: Sequence[Any], value: Tensor, edges: Tensor | None, num_nodes: int) -> bool:
    """Whether rows of a result are numbered by an end of every edge of the graph.

    Args:
        given: the arguments of the operation.
        value: its result.
        edges: those of the graph, (2, E).
        num_nodes: M.
    """
    if edges is None or not edges.numel() or value.dim() < 2 or len(value) != num_nodes:
        return False
    for item in itertools.chain.from_iterable(g if isinstance(g, tuple) else (g,) for g in given):
        if isinstance(item, Tensor) and item.dtype == torch.long and item.numel():
            rows = item[1:] if item.shape == edges.shape else item.reshape(len(item), -1)[:, :1].t()
            if any(rows[0].shape == end.shape and bool((rows[0] == end).all()) for end in edges):
                return True
    return False


def are_joined(ids: Tensor, edges: Tensor, every: Tensor) -> bool:
    """Whether edges of the graph join every row to the node that it holds.

    Args:
        ids: the node that each row holds.
        edges: those of the graph, (2, E).
        every: all nodes, in order.
    """
    if not edges.numel():
        return False
    joined = torch.zeros(len(every), dtype=torch.bool, device=ids.device)
    here = (edges < len(every)).all(0)
    for sender, receiver in (edges[:, here], edges[:, here].flip(0)):
        joined[receiver[ids[receiver] == sender]] = True
    return bool((joined | (ids == every)).all())
