"""Sort the operations of a run into three parts: before the first layer, up to the last layer, and after.

Before that, an operation right after a layer may be given to the layer: a batch normalisation in evaluation, a ReLU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from walkwise.rules import Rule
from walkwise.tracing.recording.recorded import Call, Op, live, makers

_FOLDED = frozenset({"batch_norm", "relu"})


@dataclass(frozen=True, eq=False)
class Parts:
    """The encoder before the first message-passing layer, the chain proper, and the read-out."""

    encoder: list[Op]
    chain: list[Op]
    readout: list[Op]
    roots: list[int]  # the positions that depend on no other: where walks begin
    own: list[int]  # tensors that layers take and that no operation made: embeddings, parts of them
    before: list[Op]  # the encoder and the chain, as they ran

    def put_under(self, rules: dict[int, Rule], readout: Rule) -> None:
        """Give operations the rules of their layers, by call, or that of the read-out."""
        for op in (*self.encoder, *self.chain):
            op.rule = _rule(op, rules)
        for op in self.readout:
            op.rule = readout if op.call is None else _rule(op, rules)

    def where(self, op: Op, calls: Sequence[Call]) -> str:
        """The place of an operation, in words."""
        if op.call is None:
            after = "the read-out" if op in self.readout else "the code between layers"
            return "the code before the first layer" if op in self.encoder or not op.era else after
        call = calls[op.call]
        return f"layer '{call.name}' ({type(call.module).__name__})"

    def read_around(self, read: Sequence[int], begins: Callable[[int], bool | None]) -> tuple[list[int], Parts]:
        """The slots read around the first layer at which walks begin, and the parts that follow from this.

        A tensor without a row for each node (the mean of all, say) is computed again in the chain, from one that has.
        ``begins`` says whether walks can begin at a slot, or None if they stand there anyway.
        """
        inside = {None, *(op.call for op in self.chain)}
        makers = {slot: op for op in self.encoder if op.call in inside for slot in op.outputs}
        todo, seen = [*reversed(read)], set[int]()
        again, begun = set(map(id, self.chain)), list[int]()
        while todo:
            slot = todo.pop()
            possible = None if slot in seen else begins(slot)
            seen.add(slot)
            if possible:
                begun.append(slot)
            elif possible is False and slot in makers:
                again.add(id(makers[slot]))
                todo += makers[slot].inputs
        return begun, replace(self, chain=[op for op in self.before if id(op) in again])


def sorted_ops(
    ops: Sequence[Op], calls: Sequence[tuple[int, Call]], positions: Collection[int], features: Sequence[int]
) -> Parts:
    """Sort operations; the read-out is everything that no later position depends on."""
    before = live(ops, set(positions))  # encoder and chain
    made = {slot for op in ops for slot in op.outputs}.union(features)
    own = [slot for _, call in calls for slot in call.handed if slot not in made]
    after_first: set[int] = {*positions, *own}
    inner: list[Op] = []
    for op in before:
        if not after_first.isdisjoint(op.inputs):
            after_first.update(slot for slot in op.outputs if slot is not None)
            inner.append(op)
    reached = {slot for op in inner for slot in op.outputs}
    inner_set, before_set = set(map(id, inner)), set(map(id, before))
    return Parts(
        encoder=[op for op in before if id(op) not in inner_set],
        chain=inner,
        readout=[op for op in ops if id(op) not in before_set],
        roots=[slot for slot in positions if slot not in reached],
        own=own,
        before=before,
    )


def fold_into_layers(ops: Sequence[Op], calls: Sequence[Call]) -> None:
    """Give an operation right after a layer to that layer, if nothing else reads the layer's result.

    A normalisation's weights become the layer's. With a ReLU, a negative sum passes nothing on, so the rule need not
    say how to share it.
    """
    producer = makers(ops)
    readers = Counter(slot for op in ops for slot in op.inputs)
    for op in ops:
        before = producer.get(op.inputs[0]) if op.call is None and op.word.name in _FOLDED else None
        if before is None or before.call is None or readers[op.inputs[0]] > 1:
            continue
        call = calls[before.call]
        call.outputs = [op.outputs[0] if slot == op.inputs[0] else slot for slot in call.outputs]  # type: ignore[misc]
        op.call = before.call


def _rule(op: Op, rules: dict[int, Rule]) -> Rule:
    """The rule of an operation's layer, or of the layer before it."""
    if op.call is not None:
        return rules[op.call]
    begun = [index for index in rules if index < op.era]
    return rules[begun[-1] if begun else next(iter(rules))]
