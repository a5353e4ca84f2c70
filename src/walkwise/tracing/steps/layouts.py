"""Steps between rows of some nodes, written with a row for every node.

In a heterogeneous or a pooled graph a tensor has rows for the nodes of one type, or for the remaining nodes. Laid out
by node, with zeros where a node has no row, its steps are steps between nodes as everywhere else, and a question about
a subgraph needs only the rows of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.edges import Edges
from walkwise.core.operators import Aggregate, Columns, Identity, Operator, RowMap, Scale, Step, Visit
from walkwise.core.row_maps import Gather, Scatter, Send

_BY_ROW = (Identity, Scale, RowMap, Columns, Visit)
#: What stands in the place of a map between two slots: maps that are taken one after the other; None where nothing can.
Rewrite = Callable[[Operator, int, int], Sequence[Operator] | None]


def rewritten(steps: Sequence[Step], rewrite: Rewrite, new_slot: Callable[[], int]) -> list[Step] | None:
    """The steps with other maps instead of theirs; None if one of them has no such map."""
    written: list[Step] = []
    for step in steps:
        operators, sources = [], []
        for operator, source in zip(step.operators, step.sources, strict=True):
            maps = rewrite(operator, source, step.target)
            if maps is None:
                return None
            for first in maps[:-1]:
                written.append(Step((first,), (source,), new_slot()))
                source = written[-1].target
            operators.append(maps[-1])
            sources.append(source)
        written.append(Step(tuple(operators), tuple(sources), step.target))
    return written


@dataclass(eq=False)
class Layouts:
    """Which node every row of a slot is, for the slots whose rows are nodes."""

    every: Tensor  # (M,) all nodes in their own order
    nodes: dict[int, Tensor] = field(default_factory=dict)  # by slot, (K,), each node once

    @property
    def num_nodes(self) -> int:
        """M."""
        return len(self.every)

    def laid_out(self, slot: int, value: Tensor) -> Tensor:
        """A slot's value with a row for every node.  # (K, N) -> (M, N)"""
        ids = self.nodes.get(slot)
        if ids is None or self.natural(ids):
            return value
        return value.new_zeros(self.num_nodes, *value.shape[1:]).index_copy_(0, ids, value)

    def places(self, given: Sequence[tuple[int, Tensor]]) -> tuple[tuple[int, Tensor], ...]:
        """Slots and values, those with a layout with a row for every node."""
        return tuple((slot, self.laid_out(slot, value)) for slot, value in given)

    def natural(self, ids: Tensor) -> bool:
        """Whether rows are all nodes in their own order."""
        return ids is self.every

    def mask(self, ids: Tensor, like: Tensor) -> Tensor:
        """1 at the nodes that have a row.  # (M, 1)"""
        return like.new_zeros(self.num_nodes, 1).index_fill_(0, ids, 1)


def layouts(steps: Sequence[Step], num_nodes: int, like: Tensor) -> Layouts:
    """Which node every row is, as known from visits and from maps that pick rows or put them in their places."""
    found = Layouts(torch.arange(num_nodes, device=like.device))
    known = found.nodes
    for step in steps:
        if step.visit is not None:
            known[step.target] = known[step.sources[0]] = found.every
    _spread(steps, known)
    for step in steps:  # rows of sums that are as many as nodes, and that nothing has named, stand for nodes as well
        sums = any(isinstance(o, Scatter) and o.num_rows == num_nodes for o in step.operators)
        if sums and step.target not in known:
            known[step.target] = found.every
            _spread(steps, known)
    return found


def _spread(steps: Sequence[Step], known: dict[int, Tensor]) -> None:
    """Infer the nodes of rows from the known nodes of other rows."""
    before = -1
    while before < len(known):
        before = len(known)
        for step in steps:
            for operator, source in zip(step.operators, step.sources, strict=True):
                _carry(operator, source, step.target, Gather, known)
        for step in reversed(steps):
            for operator, source in zip(step.operators, step.sources, strict=True):
                _carry(operator, step.target, source, Scatter, known)
        if before == len(known):
            _along_edges(steps, known)


def _along_edges(steps: Sequence[Step], known: dict[int, Tensor]) -> None:
    """If nothing else is known about the rows of a sum over edges: the receiving nodes are the sending ones.

    One such sum at a time: there may be as many nodes of another type, to which the next edges lead.
    """
    for step in steps:
        for operator, source in zip(step.operators, step.sources, strict=True):
            if not isinstance(operator, Aggregate) or source not in known or step.target in known:
                continue
            if len(known[source]) == operator.edges.num_nodes:
                known[step.target] = known[source]
                return


def _carry(
    operator: Operator, here: int, there: int, picking: type[Gather | Scatter], known: dict[int, Tensor]
) -> None:
    """Infer the nodes of rows at one end of a map from those at the other.

    From the source to the target, rows that are gathered are picked; from the target back, those that are scattered.
    """
    if here not in known or there in known:
        return
    if isinstance(operator, _BY_ROW):
        known[there] = known[here]
    elif isinstance(operator, picking) and each_once(operator.index):
        known[there] = known[here][operator.index]


def each_once(index: Tensor) -> bool:
    """Whether no row is named twice."""
    return not index.numel() or int(torch.bincount(index).max()) == 1


def by_node(steps: Sequence[Step], found: Layouts, like: Tensor) -> list[Step] | None:
    """The steps with a row for every node in the slots that have a layout; None if some cannot be written so."""
    written = []
    for step in steps:
        operators = [
            _written(operator, found.nodes.get(source), found.nodes.get(step.target), found, like)
            for operator, source in zip(step.operators, step.sources, strict=True)
        ]
        if None in operators:
            return None
        written.append(Step(tuple(o for o in operators if o is not None), step.sources, step.target))
    return written


def _written(
    operator: Operator, source: Tensor | None, target: Tensor | None, found: Layouts, like: Tensor
) -> Operator | None:
    """A map between rows of nodes, or of nodes and others, as one between all nodes, or all nodes and those."""
    if source is None and target is None:
        return operator
    if source is None or target is None:
        return _to_others(operator, source, target, found.num_nodes)
    if isinstance(operator, _BY_ROW):
        return _lifted(operator, source, found) if _same(source, target) else None
    if isinstance(operator, Aggregate):
        if found.natural(source) and found.natural(target):
            return operator
        if operator.root and not _same(source, target):
            return None
    sent = _sent(operator, source, target, found.num_nodes)
    if isinstance(operator, (Gather, Scatter)) and sent is not None and _same(sent.edges.source, sent.edges.target):
        return Scale(found.mask(sent.edges.source, like))
    root = operator.root if isinstance(operator, Aggregate) else 0.0
    return None if sent is None else Aggregate(sent.edges, sent.weight, root)


def _to_others(operator: Operator, source: Tensor | None, target: Tensor | None, num_nodes: int) -> Operator | None:
    """A map between rows of nodes and others, as one between all nodes and those."""
    if isinstance(operator, Gather) and source is not None:
        return Gather(source[operator.index], num_nodes)
    if isinstance(operator, Scatter) and target is not None:
        return Scatter(target[operator.index], num_nodes)
    return None if isinstance(operator, Aggregate) else _sent(operator, source, target, num_nodes)


def _sent(operator: Operator, source: Tensor | None, target: Tensor | None, num_nodes: int) -> Send | None:
    """The same as messages along edges; between all nodes on a side whose rows are nodes."""
    sent = _as_sent(operator)
    if sent is None:
        return None
    here, there = sent.edges.source, sent.edges.target
    here, senders = (here, sent.senders) if source is None else (source[here], num_nodes)
    there, receivers = (there, sent.receivers) if target is None else (target[there], num_nodes)
    return Send(Edges(here, there, max(senders, receivers)), sent.weight, senders, receivers)


def _as_sent(operator: Operator) -> Send | None:
    """A map that picks rows, or adds them up, as messages along edges."""
    if isinstance(operator, Aggregate):
        count = operator.edges.num_nodes
        return Send(operator.edges, operator.weight, count, count)
    if not isinstance(operator, (Gather, Scatter)):
        return operator if isinstance(operator, Send) else None
    index, count = operator.index, len(operator.index)
    each, rows = torch.arange(count, device=index.device), max(count, operator.num_rows)
    if isinstance(operator, Gather):
        return Send(Edges(index, each, rows), None, operator.num_rows, count)
    return Send(Edges(each, index, rows), None, count, operator.num_rows)


def _lifted(operator: Operator, ids: Tensor, found: Layouts) -> Operator:
    if isinstance(operator, Scale) and operator.shape[0] != 1 and not found.natural(ids):
        factor = operator.factor
        return Scale(factor.new_zeros(found.num_nodes, factor.shape[1]).index_copy_(0, ids, factor))
    return operator


def _same(source: Tensor, target: Tensor) -> bool:
    return source is target or torch.equal(source, target)
