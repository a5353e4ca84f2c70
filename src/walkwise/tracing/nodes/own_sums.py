"""The sums at nodes in a model's own code: operations that add up rows of edges, of pairs or of other nodes.

A tensor is one of nodes if it has a row for every node, in order. It stays one through operations that map every row by
itself. A sum at the nodes makes such a tensor of rows that are not theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walkwise.core.differential import leaves
from walkwise.tracing.dependence import dependence, gradients, is_along, mixes, reached, rerun
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.nodes.sums import added_along, one_by_one
from walkwise.tracing.recording.kinds import (
    ATTENDING,
    BY_NUMBER,
    ENTRYWISE,
    NORMALISING,
    PRODUCTS,
    READING,
    REDUCING,
    REPEATING,
    RESHAPING,
    TRANSPOSING,
)
from walkwise.tracing.recording.recorded import Op, Ref, fitting_dim, live, makers
from walkwise.tracing.recording.tape import Tape

#: Functions between a sum and what it divides, and those that make a divisor a factor.
_ON_THE_WAY = READING | RESHAPING | REPEATING | {"add", "clamp", "sqrt", "to"}
_TURNING = frozenset({"reciprocal", "rsqrt", "rdiv"})


@dataclass(frozen=True)
class NodeTensors:
    """The tensors with a row for every node, and the sums among them, in order; by slot."""

    nodes: Mapping[int, int]  # and the dimension along which nodes lie
    sums: list[int]
    unsure: bool = False  # whether some rows may be something else's, of which there happen to be as many

    def elsewhere(self, slots: Mapping[int, int]) -> NodeTensors:
        """The same tensors by other slots."""
        return NodeTensors({slots[s]: dim for s, dim in self.nodes.items()}, [slots[slot] for slot in self.sums])


class ReorderedError(Exception):
    """A model puts nodes into another order."""


class ColumnsError(Exception):
    """A model keeps nodes along columns, (F, M), and adds them up there several times in a row."""


def node_tensors(
    tape: Tape,
    output: int,
    num_nodes: int,
    edges: Tensor | None = None,
    *,
    certain: bool = False,
    last_dim: int = 1,
    num_graphs: int = 1,
) -> NodeTensors:
    """The node tensors that an output depends on.

    Args:
        tape: what was recorded.
        output: the slot of the output.
        num_nodes: M.
        edges: those of the graph, (2, E).
        certain: whether there are as many of nothing else, so that every dimension of this size runs over nodes.
            Otherwise it also matters what an operation is.
        last_dim: if it is not certain, the last dimension along which nodes may lie in tensors of two or three.
        num_graphs: G, those of a batch.
    """
    begun = {slot: torch.arange(num_nodes, device=tape.values[slot].device) for slot in tape.beginnings}
    identities = Identities(tape, num_nodes, None, begun, edges)
    ops = live(tape.ops, {output})
    if certain:
        found: _OwnSums = _SumsByRows(ops, identities, tape, num_graphs=num_graphs)
    else:
        found = _SumsByName(ops, identities, tape, last_dim)
    found.leave_divisors_out()
    return NodeTensors(found.nodes, found.sums, found.unsure)


def same_slots(tapes: tuple[Tape, Tape], outputs: tuple[int, int]) -> dict[int, int]:
    """The slots of two runs of a model that did the same, by those of the first; it is an error if they did not."""
    ran, again = (live(tape.ops, {output}) for tape, output in zip(tapes, outputs, strict=True))
    begun, begun_again = ([*tape.features, *tape.beginnings] for tape in tapes)
    slots = dict(zip(begun, begun_again, strict=True))
    for op, other in zip(ran, again, strict=True):
        if op.word.name != other.word.name:
            raise ValueError(op.word.name)
        slots.update({s: t for s, t in zip(op.outputs, other.outputs, strict=True) if s is not None and t is not None})
    return slots


def is_of_more_nodes(tapes: tuple[Tape, Tape], slots: Mapping[int, int], counts: tuple[int, int]) -> bool:
    """Whether a run shows which tensors of another, of fewer nodes, have a row for every node.

    It does not if there are as many of something else, or if the model has edges of its own: new nodes are then at no
    end of any, and sums of as many rows as the largest number at an end has are as long as before.
    """
    lengths = {
        t: (len(tapes[0].values[s]), len(tapes[1].values[t])) for s, t in slots.items() if tapes[1].values[t].dim()
    }
    if any(more == counts[0] and fewer != counts[1] for more, fewer in lengths.values()):
        return False
    has_others = any(more not in (counts[0], fewer) for more, fewer in lengths.values())
    added = [slot for op in tapes[1].ops for slot in op.outputs if added_along(op, 2) == 0 and slot in lengths]
    return has_others or all(lengths[slot] != (counts[1], counts[1]) for slot in added)


class _OwnSums:
    """Follows the node tensors of a run through operations, from features and embeddings on, and finds the sums."""

    def __init__(
        self,
        ops: Sequence[Op],
        identities: Identities,
        tape: Tape,
        last_dim: int | None = None,
        num_graphs: int = 1,
    ) -> None:
        """Follow them, along any dimension or up to one."""
        self._last_dim, self._num_graphs = last_dim, num_graphs
        self.ops, self.identities = ops, identities
        self.values, self.num_nodes = identities.tape.values, identities.num_nodes
        self.sums: list[int] = []  # slots
        self.unsure = False  # whether rows are read by as many numbers as there are nodes
        self.nodes: dict[int, int] = {}  # by slot, the dimension along which nodes lie
        for begun in (*tape.features, *tape.beginnings):
            if self._has_nodes(begun):
                self._take_nodes(begun)
        self._maker = makers(ops)
        self._place = {id(op): place for place, op in enumerate(ops)}
        self._written = {op.args[0].slot for op in ops if op.word.name == "setitem" and isinstance(op.args[0], Ref)}
        self._begin()
        for op in ops:
            for slot in op.outputs:
                if slot is not None:
                    self._follow(op, slot)

    def _begin(self) -> None:
        """Prepare what is special to a way of looking."""

    def _follow(self, op: Op, slot: int) -> None:
        """Say of a result whether it is a sum, or one of nodes."""
        raise NotImplementedError

    def _take(self, slot: int) -> None:
        """Remember a sum."""
        self.sums.append(slot)
        self._take_nodes(slot)

    def _take_nodes(self, slot: int) -> None:
        """Remember a node tensor."""
        along = self._along(self.values[slot])
        assert along is not None
        self.nodes[slot] = along

    def leave_divisors_out(self) -> None:
        """Forget the sums that only divide, as in a softmax: they are held constant."""
        readers: dict[int, list[Op]] = {}
        for op in self.ops:
            for slot in op.inputs:
                readers.setdefault(slot, []).append(op)
        for summed in [*self.sums]:
            made = _made_to_divide(summed, readers)
            if made is not None:
                self.sums.remove(summed)
                self.nodes = {slot: dim for slot, dim in self.nodes.items() if slot not in made}

    def _has_nodes(self, slot: int) -> bool:
        """Whether a tensor has a row for every node, in order."""
        along = self._along(self.values[slot])
        try:
            if along == 0:
                return self.identities.natural(self.identities.nodes(slot))
            return along is not None and self.identities.across(slot) == along
        except UnfollowedError:
            return False

    def _along(self, value: Tensor) -> int | None:
        """The dimension of a tensor that may run over nodes: the first, or of three or more another."""
        found = None if value.dim() < 2 or self.num_nodes < 2 else fitting_dim(value.shape, self.num_nodes)
        limited = self._last_dim is not None and value.dim() < 4
        return None if limited and found is not None and found > self._last_dim else found  # type: ignore[operator]

    def _cone(self, slot: int) -> tuple[list[Op], dict[int, int]]:
        """What makes a tensor of node tensors, and the slots of these, with the dimensions along which nodes lie."""
        cone, read, todo = dict[int, Op](), dict[int, int](), [slot]
        while todo:
            at = todo.pop()
            if at in self.nodes:
                read[at] = self.nodes[at]
            elif at in self._maker and self._place[id(op := self._maker[at])] not in cone:
                cone[self._place[id(op)]] = op
                todo += op.inputs
        return [op for _, op in sorted(cone.items())], read

    def _again(self, ops: Sequence[Op], read: Mapping[int, int], slot: int, dim: int) -> tuple[Tensor, list[Tensor]]:
        """A tensor, made again, and the tensors that it is made of; each with its rows first.

        Args:
            ops: what makes one of the others.
            read: the slots of the others, with the dimensions along which their rows lie.
            slot: of the tensor.
            dim: the dimension along which its rows lie.
        """
        given = {s: self.values[s].detach().transpose(0, along) for s, along in read.items()}
        leaves = {s: rows.clone().requires_grad_() for s, rows in given.items()}
        made = rerun(ops, self.values, {s: leaf.transpose(0, read[s]) for s, leaf in leaves.items()})
        return made[slot].transpose(0, dim), list(leaves.values())

    @torch.enable_grad()
    def _dependence(self, ops: Sequence[Op], read: Mapping[int, int], slot: int, dim: int) -> tuple[Tensor, Tensor]:
        """Some rows of a tensor, and which rows of others each depends on.  # (K,), (K, M)"""
        return dependence(*self._again(ops, read, slot, dim))


class _SumsByRows(_OwnSums):
    """Whatever an operation is: a node tensor whose rows are made of other rows of node tensors is a sum.

    This takes a run in which there are as many of nothing else as of nodes. What has more dimensions than the features
    (lists of neighbours, pairs, heads) lies within a layer. What all nodes get of all of them together (a mean that is
    subtracted, a virtual node, the divisor of a softmax over all) is no message of one to another.
    """

    def _begin(self) -> None:
        self._rank = max((self._dims(slot) for slot in self.nodes), default=2)
        self._of_all: set[int] = set()  # slots of what is made of all nodes together, or of all of a graph

    def _dims(self, slot: int) -> int:
        return max(2, sum(size != 1 for size in self.values[slot].shape))

    def _follow(self, op: Op, slot: int) -> None:
        value = self.values[slot]
        dim = self._along(value)
        if self.num_nodes not in value.shape and self._is_of_all(op, value):
            self._of_all.add(slot)
        if dim is None or value.shape.count(self.num_nodes) > 1 or slot in self._written:
            return
        if op.word.name in READING:
            self.unsure |= any(_is_index(item) and len(item) == self.num_nodes for item in leaves(op.args))
        if self._is_row_by_row(op, slot):
            self._take_nodes(slot)
        else:
            self._look_at(op, slot, dim)

    @torch.enable_grad()
    def _look_at(self, op: Op, slot: int, dim: int) -> None:
        """Say the same of a result by the rows that it is made of."""
        made, given = self._again(*self._cone(slot), slot, dim)
        if not mixes(made, given):
            if bool(reached(made, given).any()):
                self._take_nodes(slot)
        elif self._dims(slot) <= self._rank or self._adds_in_place(op, slot):
            if _is_order(dependence(made, given)[1]):
                raise ReorderedError(op.word.name)
            if sum(map(self._adds_columns_up, self._cone(slot)[0])) > 1:  # several layers, where one is seen
                raise ColumnsError(op.word.name)
            self._take(slot)

    def _adds_in_place(self, op: Op, slot: int) -> bool:
        """Whether an operation adds rows of a node tensor up at nodes, in as many dimensions: steps in time, say."""
        (given, *more) = op.inputs
        alone = not more and given in self.nodes and op.word.name in PRODUCTS
        return alone and self.values[given].dim() == self.values[slot].dim() > 3

    def _adds_columns_up(self, op: Op) -> bool:
        """Whether columns that stand for nodes, (F, M), are made of columns of other nodes."""
        slot = op.outputs[0]
        across = [s for s in (slot, *op.inputs) if s is not None and self._are_columns(self.values[s])]
        if slot not in across:
            return False
        if op.word.name in BY_NUMBER:
            return op.given("dim").get("dim") in (1, -1)
        products = op.word.name in PRODUCTS
        return products and any(_on_others(*self._dependence([op], {given: 1}, slot, 1)) for given in across[1:])

    def _are_columns(self, value: Tensor) -> bool:
        """Whether a tensor may have a column for every node, (F, M)."""
        return value.dim() == 2 and value.shape[1] == self.num_nodes != value.shape[0]

    def _is_row_by_row(self, op: Op, slot: int) -> bool:
        """Whether an operation is known to map every row of node tensors by itself."""
        value, given = self.values[slot], [self.values[s] for s in op.inputs]
        if op.word.name in NORMALISING or any(s in self._of_all for s in op.inputs):
            return all(s in self.nodes or s in self._of_all for s in op.inputs)
        by_entry = op.word.pointwise or op.word.name in ENTRYWISE or op.word.name == "linear"
        alike = all(t.dim() == value.dim() and t.shape[:-1] == value.shape[:-1] for t in given)
        return by_entry and alike and all(s in self.nodes for s in op.inputs)

    def _is_of_all(self, op: Op, value: Tensor) -> bool:
        """Whether a tensor without rows of nodes is a sum or mean of them, or made of one."""
        if all(s in self._of_all for s in op.inputs):
            return True
        pooled = op.word.name in REDUCING or added_along(op, value.dim()) == 0
        graphs = value.dim() > 1 and len(value) == self._num_graphs  # at which edges, say, are added up
        return pooled and all(s in self.nodes or s in self._of_all or graphs for s in op.inputs)


class _SumsByName(_OwnSums):
    """By what operations are: products, sums, means and so on, of tensors with as many rows as nodes."""

    def _begin(self) -> None:
        self.pairs: set[int] = set()
        self.lists: set[int] = set()  # neighbours of every node, (M, K, F)
        self._counts: set[int] = set()  # how many rows of edges there are

    def _follow(self, op: Op, slot: int) -> None:
        if self._has_neighbours(op, slot):
            self.lists.add(slot)
        elif self._has_pairs(op, slot):
            self.pairs.add(slot)
        elif self._is_sum(op, slot):
            self.identities.take_for_nodes(slot)
            self._take(slot)
        elif self._has_nodes(slot):
            self._take_nodes(slot)
        elif op.word.name in READING and self.values[slot].dim() == self.values[op.inputs[0]].dim():
            self._check_order(op, slot)
            self._counts.add(self.values[slot].shape[0])

    def _check_order(self, op: Op, slot: int) -> None:
        """Refuse nodes in another order, if these are not the ends of edges, of which there are as many."""
        if self.identities.are_ends(op, self.values[slot]):
            return
        with suppress(UnfollowedError):
            ids = self.identities.nodes(slot)
            if len(ids) == self.num_nodes and torch.equal(ids.sort().values, self.identities.every):
                raise ReorderedError(op.word.name)

    def _has_neighbours(self, op: Op, slot: int) -> bool:
        """Whether a tensor has a list of rows that were read for every node, or is made of one, list by list."""
        value = self.values[slot]
        if value.dim() < 3 or len(value) != self.num_nodes or slot in self._written:
            return False
        if op.word.name in READING and op.inputs[0] in self.nodes:
            tables = [item for item in leaves(op.args) if isinstance(item, Tensor) and item.dtype == torch.long]
            lists = [t for t in tables if t.dim() == 2 and len(t) == self.num_nodes]
            return len(lists) == 1 and not self.identities.are_ends(op, value)
        return bool(op.inputs) and all(given in self.lists for given in op.inputs)

    def _has_pairs(self, op: Op, slot: int) -> bool:
        """Whether a tensor has an entry for every pair of nodes."""
        value = self.values[slot]
        if value.shape.count(self.num_nodes) < 2:
            return False
        if any(given in self.pairs for given in op.inputs):
            return True
        dim = self._along(value)
        if dim is None:
            return value.dim() > 2
        if op.word.name in PRODUCTS and not _only_moves(op):
            return any(self._are_pairs(op, slot, dim, given) for given in op.inputs)
        if value.dim() == 2 or (_only_moves(op) and op.inputs[0] in self.nodes and self._has_nodes(slot)):
            return False
        alike = all(self.nodes.get(given) == dim for given in op.inputs)
        return not (alike and self._is_within_rows(op, slot, dim))

    def _is_within_rows(self, op: Op, slot: int, dim: int) -> bool:
        """Whether an operation maps rows one by one, along a dimension, as a convolution over times does."""
        return not any(_on_others(*self._dependence([op], {given: dim}, slot, dim)) for given in op.inputs)

    def _is_sum(self, op: Op, slot: int) -> bool:
        """Whether an operation adds up rows at nodes; of rows that are written one by one, the last does."""
        name, value = op.word.name, self.values[slot]
        dim = self._along(value)
        if dim is None or slot in self._written:
            return False
        if one_by_one(op, value, self._maker) or name == "setitem":
            rows, depends = self._dependence(*self._cone(slot), slot, dim)
            return _on_others(rows, depends) and (self._is_along_edges(rows, depends) or not _is_order(depends))
        if added_along(op, value.dim()) == dim:
            return _on_others(*self._dependence(*self._cone(slot), slot, dim))
        if value.dim() == 2 and any(given in self.lists for given in op.inputs):
            return _on_others(*self._dependence(*self._cone(slot), slot, dim))
        return name in PRODUCTS | ATTENDING | REDUCING and any(self._adds_up(op, slot, dim, g) for g in op.inputs)

    def _is_along_edges(self, rows: Tensor, depends: Tensor) -> bool:
        """Whether rows depend only on those that edges of the graph join them to.  # (K,), (K, M)"""
        return self.identities.edges is not None and is_along(rows, depends, self.identities.edges)

    def _adds_up(self, op: Op, slot: int, dim: int, given: int) -> bool:
        """Whether rows of a result are made of rows of a tensor that are not their own."""
        value, before = self.values[slot], self.values[given]
        if given in self.pairs:
            return True
        if given in self.nodes and before.shape[: dim + 1] != value.shape[: dim + 1]:
            return _on_others(*self._dependence([op], {given: self.nodes[given]}, slot, dim))
        if dim == 0 and before.dim() > value.dim() and (across := self.identities.across(given)):
            return _on_others(*self._dependence([op], {given: across}, slot, dim))
        if before.shape[: dim + 1] != value.shape[: dim + 1]:
            return True
        if op.word.name in REDUCING and before.dim() > value.dim() and given not in self.nodes:
            return self.num_nodes not in self._counts  # (M, K, F) of neighbours, and not (E, H, F)
        return _on_others(*self._dependence([op], {given: dim}, slot, dim))

    @torch.enable_grad()
    def _are_pairs(self, op: Op, slot: int, dim: int, given: int) -> bool:
        """Whether a result has rows for nodes, and columns for the nodes of an operand: scores, q kᵀ."""
        leaf, value = self.values[given].detach().clone().requires_grad_(), self.values[slot]
        columns = [d for d in range(dim + 1, value.dim()) if value.shape[d] == self.num_nodes]
        along = [d for d in range(leaf.dim()) if self.identities.along_nodes(given, d)]
        if not columns or len(along) != 1:
            return False
        made = rerun([op], self.values, {given: leaf})[slot]
        for column in columns:
            for gradient in gradients(made.select(column, 0).sum(), [leaf]):
                if not bool(gradient.transpose(0, along[0])[1:].any()):
                    return True
        return False


def _only_moves(op: Op) -> bool:
    """Whether an operation has one tensor, whose dimensions it puts into another order."""
    tensors = [item for item in leaves((op.args, op.kwargs)) if isinstance(item, (Tensor, Ref))]
    return len(tensors) == 1 and (op.word.name in TRANSPOSING or op.word.name == "einsum")


def _on_others(rows: Tensor, depends: Tensor) -> bool:
    """Whether any of some rows depends on another than its own.  # (K,), (K, M)"""
    return bool(depends.scatter(1, rows.view(-1, 1), False).any())


def _is_order(depends: Tensor) -> bool:
    """Whether every row depends on a single one, and no two on the same: an order.  # (K, M)"""
    return bool((depends.sum(1) == 1).all()) and bool((depends.sum(0) <= 1).all())


def _is_index(item: Any) -> bool:
    """Whether something is numbers of rows."""
    return isinstance(item, Tensor) and item.dtype == torch.long and item.dim() == 1


def _made_to_divide(slot: int, readers: Mapping[int, Sequence[Op]]) -> set[int] | None:
    """A slot, and those made of it on the way to where they divide, or shift exponents; None if it does more."""
    found, todo = {slot}, [slot]
    while todo:
        at = todo.pop()
        on = [op for op in readers.get(at, ()) if not (_divides(op, at) or _shifts(op, at, readers))]
        if at not in readers or any(len(op.inputs) > 1 or op.word.name not in _ON_THE_WAY for op in on):
            return None
        todo += [output for op in on for output in op.outputs if output is not None]
        found.update(todo)
    return found


def _divides(op: Op, slot: int) -> bool:
    """Whether an operation divides by a tensor."""
    divisor = op.args[1] if op.word.name == "div" and len(op.args) > 1 else None
    return op.word.name in _TURNING or (isinstance(divisor, Ref) and divisor.slot == slot and op.args[0] != divisor)


def _shifts(op: Op, slot: int, readers: Mapping[int, Sequence[Op]]) -> bool:
    """Whether a tensor is subtracted from exponents alone, as the largest is in a softmax."""
    if op.word.name != "sub" or not isinstance(op.args[1], Ref) or op.args[1].slot != slot or op.args[0] == op.args[1]:
        return False
    made = op.outputs[0]
    return made is not None and all(reader.word.name == "exp" for reader in readers.get(made, ()))
