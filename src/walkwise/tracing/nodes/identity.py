"""Which node every row of a recorded tensor is, found by going backward from the tensor in question.

Models reorder, drop and combine rows between their layers. A walk stands at nodes of the given graph, so each row is
followed back to its row of the input. Functions of single entries keep rows as they are. Functions that move entries
are run again on numbers that stand for nodes, which shows where each entry went. Sums over nodes belong to the row that
they are written to if rows keep their nodes; otherwise they belong to no node (but to a cluster, a graph, or a virtual
node).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from walkwise.core.node_types import NodeTypes
from walkwise.tracing.nodes.mixing import Mixing
from walkwise.tracing.nodes.moved import NOBODY, SEVERAL, along, moved, upright
from walkwise.tracing.nodes.read_rows import ReadRows, are_at_ends, are_joined
from walkwise.tracing.nodes.sums import added_along, one_by_one
from walkwise.tracing.recording.kinds import (
    AS_FIRST,
    CONVOLVING,
    ENTRYWISE,
    ORDERING,
    OVER_ROWS,
    PRODUCTS,
    RESHAPING,
    SEQUENCES,
)
from walkwise.tracing.recording.recorded import Call, Op, Ref, fitting_dim, makers, references
from walkwise.tracing.recording.tape import Tape

#: Functions that keep the entries of a tensor in their order, or mix those of each row.
_IN_PLACE = RESHAPING | {"fft_of_columns"}
#: Functions that sort their input and tell where each entry was, and what they take after it, in order.
_SORTING = {"sort": ("dim", "descending"), "topk": ("k", "dim")}


class UnfollowedError(Exception):
    """An operation, which is named, has mixed rows beyond recognition."""


class Identities:
    """The node of every row of a tape's tensors."""

    def __init__(
        self,
        tape: Tape,
        num_nodes: int,
        types: NodeTypes | None = None,
        own: dict[int, Tensor] | None = None,
        edges: Tensor | None = None,
    ) -> None:
        """At first it is only known that features have a row for every node, or for every node of their type.

        Args:
            tape: what was recorded.
            num_nodes: M.
            types: of a heterogeneous graph.
            own: the nodes of the rows of tensors that the model computes from whole numbers, by slot, (K,); (1, M) if
                they are along the second dimension.
            edges: those of the graph, (2, E): what is added up at their ends are rows of nodes.
        """
        self.tape = tape
        self.num_nodes = num_nodes
        self.reordered = False  # whether layers run on all nodes in another order
        self._joining = ""  # an operation that has put rows of several nodes together
        self._with_others: dict[int, Tensor] = {}  # ids of rows that are nodes, in order, with those of others beside
        self.edges = edges
        self.every = torch.arange(num_nodes, device=tape.values[0].device)
        self.types = types
        self._counts = {num_nodes} if types is None else set(types.counts.values())
        self._known: dict[int, Tensor] = {}
        self.mixing = Mixing(tape.values, self._known)
        #: Of tensors of the model's own that are several matrices on one static graph, the dimension of the nodes.
        handed = ((call, slot) for call in tape.calls for slot in call.handed if slot not in tape.features)
        lying = ((slot, call.dim_of_nodes(tape.values[slot].shape, num_nodes)) for call, slot in handed)
        self._matrices = {slot: dim for slot, dim in lying if dim}
        for slot, ids in (own or {}).items():
            if ids.dim() == 2:
                self._matrices.setdefault(slot, 1)
            self._known[slot] = self._laid_out(slot, self.every if self.natural(ids.flatten()) else ids)
        for slot, name in zip(tape.features, types.featured, strict=True) if types else ():
            self._known[slot] = upright(self._of_type(name), tape.values[slot].dim())
        self._given = frozenset(self._known)
        self._maker = makers(tape.ops)
        self._call_of = {slot: call for call in tape.calls for slot in call.rows_of}
        self._rows_of = {slot: given for call in tape.calls for slot, given in call.rows_of.items()}
        self._read = ReadRows(tape.values, self._known, self._maker, self._rows_of)
        self._of_edges = {slot for call in tape.calls for slot in call.of_edges}
        #: What layers returned whose edges lead elsewhere, and from where: no nodes (but hyperedges, say) if that is.
        led = (call for call in tape.calls if call.edges_are_not_the_graphs)
        self._led_from = {slot: call.handed[0] for call in led for slot in call.ends}

    def nodes(self, slot: int) -> Tensor:
        """The node of every row of a tensor, NOBODY if it is none or several.  # (K,)"""
        found, rows = self._of(slot), self.tape.values[slot].shape[0]
        if self._is_every(found) or id(found) in self._with_others:  # the first is by far the most common
            return self.every
        if not rows:
            return self.every[:0]
        table = found.expand(rows, *found.shape[1:]).reshape(rows, -1)
        alone = table[:, 0] if table.shape[1] == 1 else _one_of(table)[:, 0]
        if bool((alone == SEVERAL).any()):
            raise UnfollowedError(self._joining)
        in_order = rows == self.num_nodes and bool(((alone == self.every) | (alone == NOBODY)).all())
        return self.every if in_order and bool((alone >= 0).any()) else alone  # a constant stands for its row's node

    def take_for_nodes(self, slot: int) -> None:
        """Learn that a tensor has a row for every node: of (M, …) and of (1, M, …)."""
        shape = self.tape.values[slot].shape
        self._known[slot] = along(self.every, fitting_dim(shape, self.num_nodes) or 0, len(shape))

    def across(self, slot: int) -> int | None:
        """The dimension of several matrices on one static graph that runs over all nodes: of (T, M, …), the second."""
        shape = self.tape.values[slot].shape
        fitting = [dim for dim in range(1, len(shape)) if shape[dim] == self.num_nodes] if len(shape) > 2 else []
        if not fitting:
            return None
        ids = self._of(slot)
        if not bool((ids >= 0).any()):
            return None
        own = ((dim, (ids == along(self.every, dim, len(shape))) | (ids == NOBODY)) for dim in fitting)
        return next((dim for dim, there in own if bool(there.all())), None)  # a constant is its row's node

    def rows_across(self, slot: int, dim: int) -> Tensor:
        """The node of every row of several matrices, along a dimension; NOBODY if it is none or several.  # (K,)"""
        shape = self.tape.values[slot].shape
        rows = self._of(slot).expand(shape).movedim(dim, 0).reshape(shape[dim], -1)
        alone = _one_of(rows)[:, 0] if rows.numel() else rows.flatten()
        if bool((alone == SEVERAL).any()):
            raise UnfollowedError(self._joining)
        return alone

    def along_nodes(self, slot: int, dim: int) -> bool | None:
        """Whether a dimension of a tensor runs over nodes; None if it is unknown which entries are whose."""
        if slot >= len(self.tape.values):
            return None
        try:
            ids = self._of(slot)
        except UnfollowedError:
            return None
        if bool((ids < 0).all()):
            return None
        shape = self.tape.values[slot].shape
        if not shape.numel():
            return None
        if self.num_nodes == 1:  # only a dimension of one entry can be that of the node
            return None if shape[dim] == 1 else False
        ids = ids if ids.dim() == len(shape) else ids.expand(shape)
        return bool((ids != ids.narrow(dim, 0, 1)).any())

    def are_nodes(self, slot: int) -> bool:
        """Whether rows are nodes, and not read from nodes by number, as those of edges are."""
        try:
            return bool((self.nodes(slot) >= 0).all()) and not self._read.are_read(slot)
        except UnfollowedError:
            return False

    def along_another(self, slot: int, dim: int) -> bool:
        """Whether nodes run along other dimensions of a tensor than a given one."""
        others = [d for d in range(self.tape.values[slot].dim()) if d != dim]
        return self.along_nodes(slot, dim) is False and any(self.along_nodes(slot, d) for d in others)

    def _is_every(self, ids: Tensor) -> bool:
        """Whether ids are the very numbers of all nodes, in whatever shape."""
        return ids.numel() == self.num_nodes and ids.data_ptr() == self.every.data_ptr()

    def natural(self, ids: Tensor) -> bool:
        """Whether rows are all nodes in their own order."""
        return ids is self.every or (len(ids) == self.num_nodes and bool((ids == self.every).all()))

    def assumed(self, slot: int) -> bool:
        """Whether a tensor of the model's own is assumed to have a row for every node because the number fits."""
        own = slot not in self._maker and slot not in self._rows_of and slot not in self.tape.features
        return (
            own
            and slot not in self._given
            and self.types is None
            and self.tape.values[slot].shape[:1] == (self.num_nodes,)
        )

    def _of(self, slot: int) -> Tensor:
        """Ids that broadcast against the values of a slot."""
        todo = [slot]
        while todo:  # there may be many operations: no recursion
            at = todo[-1]
            missing = [] if at in self._known else [s for s in self._needed(at) if s not in self._known]
            if not missing:
                todo.pop()
                if at not in self._known:
                    self._known[at] = self._worked_out(at)
            todo += missing
        return self._known[slot]

    def _needed(self, slot: int) -> Sequence[int]:
        if slot in self._rows_of:
            return [self._rows_of[slot]]
        if slot in self._led_from:
            return [self._led_from[slot], *self._maker[slot].inputs]
        return self._maker[slot].inputs if slot in self._maker else ()

    def _worked_out(self, slot: int) -> Tensor:
        value = self.tape.values[slot]
        if slot in self._of_edges:
            return _nobody(value)
        if slot in self._led_from and bool((self._known[self._led_from[slot]] >= 0).any()):
            return _nobody(value)
        if slot in self._rows_of:
            given, lying = self._rows_of[slot], self._call_of[slot].lying
            if slot in lying:
                return along(self.every, lying[slot], value.dim())
            from_nobody = bool((self._known[given] < 0).all())  # hyperedges, say
            at_nodes = from_nobody and are_at_ends((self._call_of[slot].along,), value, self.edges, self.num_nodes)
            return upright(self.every, value.dim()) if at_nodes else self._returned(self._call_of[slot], given, value)
        if slot not in self._maker and self.types is not None:
            return self._own(slot, value)
        if slot not in self._maker:  # a tensor of the model's own
            fits = slot in self._matrices or value.shape[:1] == (self.num_nodes,)
            return self._laid_out(slot, self.every) if fits else _nobody(value)
        return self._made(self._maker[slot], slot, value)

    def _made(self, op: Op, slot: int, value: Tensor) -> Tensor:
        """The nodes of an operation's results."""
        name, output = op.word.name, op.outputs.index(slot)
        if op.word.pointwise and self.tape.values[op.inputs[0]].shape == value.shape:
            return self._known[op.inputs[0]]
        if name == "glu":  # the first half is what is let through
            dim = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", -1)
            whole = self._known[op.inputs[0]].expand(self.tape.values[op.inputs[0]].shape)
            return whole.narrow(dim, 0, value.shape[dim])
        if name in _IN_PLACE and (ids := self._reshaped(op.inputs[0], value)) is not None:
            return ids
        if name in ENTRYWISE:
            return self._merged(op, value)
        if name in AS_FIRST:
            ids = self._remembered(op, value) if name in SEQUENCES and output else self._as_first(op, value)
            return self.mixing.suspect(op, output, ids) if name in OVER_ROWS else ids
        if name in _SORTING and output == 0:
            return self._sorted(op, value)
        if value.dim() > 1 and added_along(op, value.dim()) == 0 and (rows := self._receivers(op, value)) is not None:
            return self.mixing.suspect(op, output, upright(rows, value.dim()))
        there = moved(op, output, value, self.tape.values, self._known, self.num_nodes)
        self._note_others(op, value, there)
        if there is None and name in ORDERING:
            return self._several(op, value)
        if there is not None and self._sends(op, value, there):  # each node to one other: no new order, but messages
            there = None
        return self.mixing.suspect(op, output, self._added_up(op, value)) if there is None else there

    def _convolved(self, op: Op, value: Tensor) -> Tensor | None:
        """Of a convolution along nodes that keeps their number: of the row in the middle, whatever the channel."""
        before = self.tape.values[op.inputs[0]]
        ids = self._known[op.inputs[0]].expand(before.shape)
        alike = before.shape[2:] == value.shape[2:] and bool((ids == ids[:, :1]).all())
        return ids[:, :1] if alike else None

    def _note_others(self, op: Op, value: Tensor, ids: Tensor | None) -> None:
        """Note that a row is its node's, though those of others stand beside it: ``torch.cat([h, h[root]], 1)``.

        Where all are read by number, ``torch.cat([h[i], h[j]], 1)``, these are rows of pairs.
        """
        if op.word.name != "cat" or ids is None or value.dim() != 2 or len(value) != self.num_nodes:
            return
        if not bool(((ids != ids[:, :1]) & (ids >= 0)).any()):
            return
        if any(self._is_every(self._known[slot]) and not self._read.are_read(slot) for slot in op.inputs):
            self._with_others[id(ids)] = ids
            self.mixing.note(op)

    def _receivers(self, op: Op, value: Tensor) -> Tensor | None:
        """The nodes of rows at which others are added up by number, where their numbers or their origin tell."""
        of_nobody = all(bool((self._known[slot] < 0).all()) for slot in op.inputs)  # of pairs of nodes, say
        ends = not self.reordered and self.are_ends(op, value)
        unlike = of_nobody or len(value) not in self._counts
        rows = self.every if ends else self._read.origin(op, len(value)) if unlike else None
        if rows is not None and of_nobody:
            self.mixing.note(op)
        return rows

    def are_ends(self, op: Op, value: Tensor) -> bool:
        """Whether rows of an operation's result are numbered by an end of every edge of the graph."""
        return are_at_ends(op.args, value, self.edges, self.num_nodes)

    def _sorted(self, op: Op, value: Tensor) -> Tensor:
        """The nodes of sorted entries, of which the operation tells where they were, if no row has several."""
        before = self.tape.values[op.inputs[0]].detach()
        _, places = op.run(lambda _: before)
        dim = op.given(*_SORTING[op.word.name]).get("dim", -1)
        ids = self._known[op.inputs[0]].expand(before.shape).gather(dim, places)
        rows = ids.reshape(len(ids), -1) if ids.numel() else ids
        return ids if bool((rows == rows[:, :1]).all()) else self._several(op, value)

    def _laid_out(self, slot: int, ids: Tensor) -> Tensor:
        """Nodes along the dimension of a tensor of the model's own that runs over them: of (T, M, F), the second."""
        return along(ids.flatten(), self._matrices.get(slot, 0), self.tape.values[slot].dim())

    def _returned(self, call: Call, given: int, value: Tensor) -> Tensor:
        """A layer's result has the rows of its input, in as many dimensions or not."""
        across = self.across(given)
        shape = self.tape.values[given].shape
        if across is None and call.takes_matrices(shape) and not self._has_rows_of_nodes(given):
            rows = call.dim_of_rows(shape)
            fits = value.shape[rows : rows + 1] == shape[rows : rows + 1]
            return along(self.rows_across(given, rows), rows, value.dim()) if fits else _nobody(value)
        try:
            ids = self.every if across is not None else self.nodes(given)
        except UnfollowedError:
            if len(value) <= self.num_nodes:  # more than there are nodes: of edges, say
                raise
            return _nobody(value)
        if across is not None and value.dim() == len(shape) and value.shape[across] == self.num_nodes:
            return along(self.every, across, value.dim())
        if self.natural(ids) and (dim := fitting_dim(value.shape, self.num_nodes)):  # (M, F) -> (1, M, F)
            return along(self.every, dim, value.dim())
        return upright(ids, value.dim()) if len(ids) == value.shape[0] else _nobody(value)

    def _has_rows_of_nodes(self, slot: int) -> bool:
        """Whether it is known of rows, the first dimension, that they are nodes."""
        try:
            return bool((self.nodes(slot) >= 0).any())
        except UnfollowedError:
            return False

    def _of_type(self, name: str) -> Tensor:
        """The nodes of a type.  # (M_t,)"""
        assert self.types is not None
        return self.every.narrow(0, self.types.offsets[name], self.types.counts[name])

    def _own(self, slot: int, value: Tensor) -> Tensor:
        """A tensor of the model's own (an embedding): the nodes of the type that has as many, or that is named."""
        assert self.types is not None
        fitting = [name for name, count in self.types.counts.items() if value.shape[:1] == (count,)]
        said = next((call.type_of[slot] for call in self.tape.calls if slot in call.type_of), None)
        if said in fitting:
            fitting = [said]
        if len(fitting) > 1:
            raise UnfollowedError(f"a tensor of its own, which may belong to {' or '.join(fitting)},")
        return upright(self._of_type(fitting[0]), value.dim()) if fitting else _nobody(value)

    def _reshaped(self, before: int, value: Tensor) -> Tensor | None:
        """The rows of a tensor after a change of shape; None if rows may have been split."""
        ids, rows = self._known[before], self.tape.values[before].shape[:1]
        if value.shape[:1] != rows or ids.numel() != ids.shape[:1].numel():
            return None
        return upright(ids.flatten(), value.dim())

    def _merged(self, op: Op, value: Tensor) -> Tensor:
        """Rows combined entry by entry. If they belong to two nodes, the tensor with all nodes in order decides."""
        first = self._known[op.inputs[0]]
        if first.dim() == value.dim() and all(self._is_every(self._known[slot]) for slot in op.inputs):
            return first
        merged = _nobody(value)
        for slot in op.inputs:
            ids = self._known[slot]
            clash = (merged != NOBODY) & (ids != NOBODY) & (merged != ids)
            if bool(clash.any()):
                whole = [rows for s in op.inputs if (rows := self._whole(s)) is not None]
                if whole and not self.reordered:
                    self.mixing.note(op)
                    return upright(whole[0], value.dim())  # h + h[parent]
                self._joining = op.word.name
                merged = torch.where(clash, SEVERAL, merged)
            merged = torch.where(merged == NOBODY, ids, merged)
        return merged

    def _whole(self, slot: int) -> Tensor | None:
        """The nodes of a tensor's rows if these are all, or all of a type, in order; a constant is its row's node."""
        ids = self._known[slot]
        for every in self._all(len(ids)):
            of_row = ids == upright(every, ids.dim())
            own = of_row.flatten(1).any(1) if ids.dim() > 1 else of_row  # most rows, so that it is no accident
            if bool((of_row | (ids == NOBODY)).all()) and 2 * int(own.sum()) > len(ids):
                return every
        return None

    def _all(self, rows: int) -> list[Tensor]:
        """All nodes in order, or all of each type, where there are so many."""
        if self.types is None:
            return [self.every] if rows == self.num_nodes else []
        return [self._of_type(name) for name, count in self.types.counts.items() if count == rows]

    def _as_first(self, op: Op, value: Tensor) -> Tensor:
        """The rows of the first followed tensor, if there are as many."""
        for ref in references(op):
            before, ids = self.tape.values[ref.slot], self._known[ref.slot]
            if before.shape == value.shape and op.word.name != "linear":
                return ids
            if before.shape[:-1] == value.shape[:-1]:
                if id(ids) in self._with_others:
                    return upright(self.every, value.dim())
                return ids if ids.shape[-1] == 1 else _one_of(ids)
        return _nobody(value)

    def _remembered(self, op: Op, value: Tensor) -> Tensor:
        """The rows of a recurrent network's final state, (layers, M, N): those of the sequences, (T, M, F) or so."""
        ids = self._known[op.inputs[0]]
        if ids.dim() != value.dim():
            return _nobody(value)
        in_time = ids.transpose(0, 1) if op.args[-1] is True else ids  # batch_first
        alike = bool((in_time == in_time[:1]).all())
        return _one_of(in_time[:1]) if alike and in_time.shape[1] == value.shape[1] else _nobody(value)

    def _added_up(self, op: Op, value: Tensor) -> Tensor:
        """Several rows in one: the row of its node if rows keep their nodes, or if there are as many as nodes."""
        if op.word.name in CONVOLVING and (there := self._convolved(op, value)) is not None:
            return there
        dim = 0 if one_by_one(op, value, self._maker) else added_along(op, value.dim())
        for slot in op.inputs if dim is None else ():
            before, ids = self.tape.values[slot], self._known[slot]
            if before.shape == value.shape and not self._sums_nodes_up(op, slot):
                return ids
            if before.shape[:-1] == value.shape[:-1] and ids.dim() == value.dim():
                if ids.shape[-1] == 1:
                    return ids
                if slot == op.inputs[0] and bool(((one := _one_of(ids)) >= 0).all()):  # heads first, (H, M, D)
                    return one
        nodes = any(bool((self._known[slot] != NOBODY).any()) for slot in op.inputs)
        if dim == 0 and nodes and value.dim() > 1:  # perhaps of a pooled graph
            rows = self._read.origin(op, len(value))
            if rows is not None:
                return upright(rows, value.dim())
        dim = dim or 0
        fitting = self._all(value.shape[dim]) if value.dim() > 1 and nodes else []
        if len(fitting) != 1:
            return _nobody(value)
        return self._several(op, value) if self.reordered else along(fitting[0], dim, value.dim())

    def _sums_nodes_up(self, op: Op, slot: int) -> bool:
        """Whether a product sums over the nodes of its first operand, which lie along the last dimension."""
        first = op.args[0] if op.word.name in PRODUCTS and op.args else None
        ids = self._known[slot]
        return isinstance(first, Ref) and first.slot == slot and bool((ids != ids[..., :1]).any())

    def _sends(self, op: Op, value: Tensor, ids: Tensor) -> bool:
        """Whether an operation that looks like a reordering is message passing.

        It is if every node receives exactly one other node's row, as in a cycle or a tree.

        Args:
            op: the operation.
            value: its result.
            ids: the node whose row has come to each row of the result.
        """
        listed = one_by_one(op, value, self._maker)
        by_number = listed or added_along(op, value.dim()) == 0
        adds_up = by_number or op.word.name in PRODUCTS
        if not adds_up or value.dim() < 2 or self.reordered:
            return False
        every_node = self._all(value.shape[0])
        if not every_node or ids.shape[:1] != value.shape[:1] or ids.numel() != len(value):
            return False
        rows = ids.flatten()
        left_in_place = not by_number and any(torch.equal(rows, self._known[slot].flatten()) for slot in op.inputs)
        received_by_itself = any(bool(((rows == every) | (rows == NOBODY)).all()) for every in every_node)
        copied_from_one = listed and op.word.name != "setitem" and bool((rows == rows[0]).all())  # times of a node, say
        if left_in_place or received_by_itself or copied_from_one:
            return False
        permuted = any(torch.equal(rows.sort().values, every) for every in every_node)
        given = next((call.edge_index for call in self.tape.calls if call.edge_index is not None), None)
        joined = given is not None and self.types is None and are_joined(rows, given, self.every)
        return not permuted or joined  # by a permutation matrix, or along a cycle

    def sends(self, op: Op) -> bool:
        """Whether an operation adds rows up by number that were read by number, some of them several times."""
        dims = [self.tape.values[slot].dim() for slot in op.outputs if slot is not None]
        if not dims or added_along(op, dims[0]) != 0:
            return False
        for slot in op.inputs:
            if self._read.are_read(slot):
                try:
                    ids = self.nodes(slot)
                except UnfollowedError:
                    continue
                if bool((torch.bincount(ids[ids >= 0]) > 1).any()):
                    return True
        return False

    def mixes(self, op: Op) -> bool:
        """Whether rows of an operation's result are nodes, and depend on nodes other than their own."""
        try:
            found = [self._of(slot) for slot in op.outputs if slot is not None]
        except UnfollowedError:
            return False
        return any(bool((ids >= 0).any()) for ids in found) and bool(self.mixing.among(lambda other: other is op))

    def _several(self, op: Op, value: Tensor) -> Tensor:
        """Rows of several nodes, with no way to tell which belongs to which."""
        self._joining = op.word.name
        return torch.full_like(_nobody(value), SEVERAL)


def _one_of(ids: Tensor) -> Tensor:
    """The only node along the last dimension, apart from constants; NOBODY if there are several.  # (…, N) -> (…, 1)

    Where there are several in some rows, these are rows of pairs of nodes, as of edges: one of a loop is none of its
    node, either.
    """
    highest = ids.amax(-1, keepdim=True)
    lowest = torch.where(ids == NOBODY, highest, ids).amin(-1, keepdim=True)
    alone = (lowest == highest) | (lowest == SEVERAL)
    return lowest if bool(alone.all()) else torch.where(lowest == SEVERAL, SEVERAL, NOBODY)


def _nobody(value: Tensor) -> Tensor:
    return torch.full([1] * value.dim(), NOBODY, device=value.device)
