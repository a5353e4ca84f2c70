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
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.nodes.sums import added_along, one_by_one
from walkwise.tracing.recording.kinds import (
    ATTENDING,
    ENTRYWISE,
    NORMALISING,
    PRODUCTS,
    READING,
    REDUCING,
    REPEATING,
    RESHAPING,
)
from walkwise.tracing.recording.recorded import Op, Ref, live
from walkwise.tracing.recording.tape import Tape

#: Functions between a sum and what it divides, and those that make a divisor a factor.
_ON_THE_WAY = READING | RESHAPING | REPEATING | {"add", "clamp", "sqrt", "to"}
_TURNING = frozenset({"reciprocal", "rsqrt", "rdiv"})
#: How many rows to inspect one by one, to see which others they depend on.
_LOOKED_AT = 16
#: How often to split rows into two halves, to see whether they depend on each other.
_SPLITS = 3


@dataclass(frozen=True)
class NodeTensors:
    """The tensors with a row for every node, and the sums among them, in order; by slot."""

    nodes: set[int]
    sums: list[int]
    unsure: bool = False  # whether some rows may be something else's, of which there happen to be as many

    def elsewhere(self, slots: Mapping[int, int]) -> NodeTensors:
        """The same tensors by other slots."""
        return NodeTensors({slots[slot] for slot in self.nodes}, [slots[slot] for slot in self.sums])


class ReorderedError(Exception):
    """A model puts nodes into another order."""


def node_tensors(
    tape: Tape, output: int, num_nodes: int, edges: Tensor | None = None, *, certain: bool = False
) -> NodeTensors:
    """The node tensors that an output depends on.

    Args:
        tape: what was recorded.
        output: the slot of the output.
        num_nodes: M.
        edges: those of the graph, (2, E).
        certain: whether there are as many of nothing else, so that every dimension of this size runs over nodes.
            Otherwise it also matters what an operation is.
    """
    begun = {slot: torch.arange(num_nodes, device=tape.values[slot].device) for slot in tape.beginnings}
    identities = Identities(tape, num_nodes, None, begun, edges)
    found = (_SumsByRows if certain else _SumsByName)(live(tape.ops, {output}), identities, tape)
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

    def __init__(self, ops: Sequence[Op], identities: Identities, tape: Tape) -> None:
        """Follow them."""
        self.ops, self.identities = ops, identities
        self.values, self.num_nodes = identities.tape.values, identities.num_nodes
        self.sums: list[int] = []  # slots
        self.unsure = False  # whether rows are read by as many numbers as there are nodes
        self.nodes = {slot for slot in (*tape.features, *tape.beginnings) if self._has_nodes(slot)}  # slots
        self._makers = {s: (op, i) for op in ops for i, s in enumerate(op.outputs) if s is not None}
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
        self.nodes.add(slot)

    def leave_divisors_out(self) -> None:
        """Forget the sums that only divide, as in a softmax: they are held constant."""
        readers: dict[int, list[Op]] = {}
        for op in self.ops:
            for slot in op.inputs:
                readers.setdefault(slot, []).append(op)
        for summed in [*self.sums]:
            seen, todo = {summed}, [summed]
            while todo:
                at = todo.pop()
                reading = readers.get(at, ())
                on = [op for op in reading if not (_divides(op, at) or _shifts(op, at, readers))]
                if at not in readers or any(len(op.inputs) > 1 or op.word.name not in _ON_THE_WAY for op in on):
                    break
                todo += [slot for op in on for slot in op.outputs if slot is not None]
                seen.update(todo)
            else:
                self.sums.remove(summed)
                self.nodes -= seen

    def _has_nodes(self, slot: int) -> bool:
        """Whether a tensor has a row for every node, in order."""
        along = self._along(self.values[slot])
        try:
            if along == 0:
                return self.identities.natural(self.identities.nodes(slot))
            return along == 1 and self.identities.across(slot)
        except UnfollowedError:
            return False

    def _along(self, value: Tensor) -> int | None:
        """The dimension of a tensor that may run over nodes: the first, or the second of three or more."""
        M = self.num_nodes
        if value.dim() < 2 or M < 2:
            return None
        return 0 if value.shape[0] == M else 1 if value.dim() > 2 and value.shape[1] == M else None

    def _cone(self, slot: int) -> tuple[list[Op], dict[int, int]]:
        """What makes a tensor of node tensors, and the slots of these, with the dimensions along which nodes lie."""
        cone, read, todo = dict[int, Op](), dict[int, int](), [slot]
        while todo:
            at = todo.pop()
            if at in self.nodes:
                along = self._along(self.values[at])
                assert along is not None
                read[at] = along
            elif at in self._makers and self._place[id(op := self._makers[at][0])] not in cone:
                cone[self._place[id(op)]] = op
                todo += op.inputs
        return [op for _, op in sorted(cone.items())], read

    def _on_nodes(self, slot: int, dim: int) -> Tensor:
        """Which rows of the node tensors that it is made of rows of a tensor depend on.  # (K, M)"""
        return self._dependence(*self._cone(slot), slot, dim)

    def _made(self, ops: Sequence[Op], read: Mapping[int, int], slot: int) -> tuple[Tensor, list[tuple[Tensor, int]]]:
        """A tensor, made again, and what it was made of, with the dimensions along which nodes lie."""
        begun = {given: self.values[given].detach().clone().requires_grad_() for given in read}
        made: dict[int, Tensor] = dict(begun)
        for op in ops:
            results = op.run(lambda slot: made[slot] if slot in made else self.values[slot].detach())
            made.update({s: t for s, t in zip(op.outputs, results, strict=True) if s is not None})
        return made[slot], [(leaf, read[given]) for given, leaf in begun.items()]

    def _rows_of(self, total: Tensor, begun: Sequence[tuple[Tensor, int]]) -> Tensor:
        """Which rows of some tensors a number depends on.  # (M,)"""
        reached = torch.zeros(self.num_nodes, dtype=torch.bool, device=total.device)
        if total.requires_grad:
            tensors = [leaf for leaf, _ in begun]
            gradients = torch.autograd.grad(total, tensors, retain_graph=True, allow_unused=True)
            for gradient, (_, along) in zip(gradients, begun, strict=True):
                if gradient is not None:
                    reached |= (gradient.transpose(0, along).flatten(1) != 0).any(1)
        return reached

    @torch.enable_grad()
    def _dependence(self, ops: Sequence[Op], read: Mapping[int, int], slot: int, dim: int) -> Tensor:
        """Which rows of tensors some rows of another depend on.  # (K, M)

        Args:
            ops: what makes one of the others.
            read: the slots of the others, with the dimensions along which their rows lie.
            slot: of the tensor.
            dim: the dimension along which its rows lie.
        """
        made, begun = self._made(ops, read, slot)
        rows, found = made.transpose(0, dim), []
        for row in self._looked_at:
            part = rows[row].flatten()
            found.append(self._rows_of((part * torch.linspace(1, 2, len(part)).to(part)).sum(), begun))
        return torch.stack(found)

    @property
    def _looked_at(self) -> range:
        return range(0, self.num_nodes, -(-self.num_nodes // _LOOKED_AT))

    def _any_other(self, depends: Tensor) -> bool:
        """Whether any row that was looked at depends on another than its own."""
        own = torch.tensor([*self._looked_at], device=depends.device)
        return bool(depends.scatter(1, own.view(-1, 1), False).any())


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
        value = self.values[slot]
        return value.dim() - (value.dim() > 2 and value.shape[0] == 1)

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
            self.nodes.add(slot)
        elif not self._mixes(slot, dim):
            if self._any(slot, dim):
                self.nodes.add(slot)
        elif self._dims(slot) <= self._rank:
            depends = self._on_nodes(slot, dim)
            if bool((depends.sum(1) == 1).all()) and bool((depends.sum(0) <= 1).all()):
                raise ReorderedError(op.word.name)
            self._take(slot)

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
        return pooled and all(s in self.nodes or s in self._of_all for s in op.inputs)

    def _mixes(self, slot: int, dim: int) -> bool:
        """Whether rows depend on other rows of node tensors than their own: two halves of them on each other's."""
        generator = torch.Generator().manual_seed(0)
        ids = torch.arange(self.num_nodes)
        halves = [ids % 2 == 0, *(torch.rand(self.num_nodes, generator=generator) < 0.5 for _ in range(_SPLITS))]
        for half in halves:
            for chosen in (half, ~half):
                if bool((self._reached(slot, dim, chosen) & ~chosen).any()):
                    return True
        return False

    def _any(self, slot: int, dim: int) -> bool:
        """Whether rows depend on node tensors at all."""
        return bool(self._reached(slot, dim, torch.ones(self.num_nodes, dtype=torch.bool)).any())

    @torch.enable_grad()
    def _reached(self, slot: int, dim: int, chosen: Tensor) -> Tensor:
        """Which rows of node tensors some rows of a tensor depend on.  # (M,)"""
        made, begun = self._made(*self._cone(slot), slot)
        chosen = chosen.to(made.device)
        part = made.transpose(0, dim)[chosen].flatten()
        return self._rows_of((part * torch.linspace(1, 2, len(part)).to(part)).sum(), begun).cpu()


class _SumsByName(_OwnSums):
    """By what operations are: products, sums, means and so on, of tensors with as many rows as nodes."""

    def _begin(self) -> None:
        self.pairs: set[int] = set()
        self._counts: set[int] = set()  # how many rows of edges there are

    def _follow(self, op: Op, slot: int) -> None:
        if self._has_pairs(op, slot):
            self.pairs.add(slot)
        elif self._is_sum(op, slot):
            self.identities.take_for_nodes(slot)
            self._take(slot)
        elif self._has_nodes(slot):
            self.nodes.add(slot)
        elif op.word.name in READING and self.values[slot].dim() == self.values[op.inputs[0]].dim():
            self._check_order(op, slot)
            self._counts.add(self.values[slot].shape[0])

    def _check_order(self, op: Op, slot: int) -> None:
        """Refuse nodes in another order, if these are not the ends of edges, of which there are as many."""
        if self.identities.are_ends(op.args, self.values[slot]):
            return
        with suppress(UnfollowedError):
            ids = self.identities.nodes(slot)
            if len(ids) == self.num_nodes and torch.equal(ids.sort().values, self.identities.every):
                raise ReorderedError(op.word.name)

    def _has_pairs(self, op: Op, slot: int) -> bool:
        """Whether a tensor has an entry for every pair of nodes."""
        value = self.values[slot]
        if value.shape.count(self.num_nodes) < 2:
            return False
        if any(given in self.pairs for given in op.inputs):
            return True
        dim = self._along(value)
        if dim is None or value.dim() > 2:
            return value.dim() > 2
        return op.word.name in PRODUCTS and any(self._are_pairs(op, slot, dim, given) for given in op.inputs)

    def _is_sum(self, op: Op, slot: int) -> bool:
        """Whether an operation adds up rows at nodes; of rows that are written one by one, the last does."""
        name, value = op.word.name, self.values[slot]
        dim = self._along(value)
        if dim is None or slot in self._written:
            return False
        if one_by_one(op, value, self._makers) or name == "setitem":
            depends = self._on_nodes(slot, dim)
            another_order = bool((depends.sum(1) == 1).all()) and bool((depends.sum(0) <= 1).all())
            return self._any_other(depends) and not another_order
        if added_along(op, value.dim()) == dim:
            return self._any_other(self._on_nodes(slot, dim))
        return name in PRODUCTS | ATTENDING | REDUCING and any(self._adds_up(op, slot, dim, g) for g in op.inputs)

    def _adds_up(self, op: Op, slot: int, dim: int, given: int) -> bool:
        """Whether rows of a result are made of rows of a tensor that are not their own."""
        value, before = self.values[slot], self.values[given]
        if given in self.pairs:
            return True
        if dim == 0 and before.dim() > value.dim() and self.identities.across(given):
            return self._any_other(self._dependence([op], {given: 1}, slot, dim))
        if before.shape[: dim + 1] != value.shape[: dim + 1]:
            return True
        if op.word.name in REDUCING and before.dim() > value.dim() and given not in self.nodes:
            return self.num_nodes not in self._counts  # (M, K, F) of neighbours, and not (E, H, F)
        return self._any_other(self._dependence([op], {given: dim}, slot, dim))

    @torch.enable_grad()
    def _are_pairs(self, op: Op, slot: int, dim: int, given: int) -> bool:
        """Whether a result has rows for nodes, and columns for the nodes of an operand: scores, q kᵀ."""
        leaf, value = self.values[given].detach().clone().requires_grad_(), self.values[slot]
        columns = [d for d in range(dim + 1, value.dim()) if value.shape[d] == self.num_nodes]
        along = [d for d in range(leaf.dim()) if self.identities.along_nodes(given, d)]
        if not columns or len(along) != 1:
            return False
        made = op.run(lambda slot: leaf if slot == given else self.values[slot].detach())[op.outputs.index(slot)]
        for column in columns:
            (gradient,) = torch.autograd.grad(made.select(column, 0).sum(), leaf, retain_graph=True, allow_unused=True)
            if gradient is not None and not bool(gradient.transpose(0, along[0])[1:].any()):
                return True
        return False


def _is_index(item: Any) -> bool:
    """Whether something is numbers of rows."""
    return isinstance(item, Tensor) and item.dtype == torch.long and item.dim() == 1


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
