"""Batch normalisations in evaluation belong to the layer right before them."""

from __future__ import annotations

from collections.abc import Sequence

from walkwise.tracing.tape import Call, Op


def fold_batch_norms(ops: Sequence[Op], calls: Sequence[Call]) -> None:
    """Give a batch normalisation right after a layer to that layer, if nothing else reads what the layer gave."""
    if not any(op.word.name == "batch_norm" for op in ops):
        return
    producer = {slot: op for op in ops for slot in op.outputs if slot is not None}
    readers: dict[int, int] = {}
    for op in ops:
        for slot in op.inputs:
            readers[slot] = readers.get(slot, 0) + 1
    for op in ops:
        before = producer.get(op.inputs[0]) if op.word.name == "batch_norm" else None
        if before is None or before.call is None or op.call is not None or readers[op.inputs[0]] > 1:
            continue
        call = calls[before.call]
        call.outputs = [op.outputs[0] if s == op.inputs[0] else s for s in call.outputs]  # type: ignore[misc]
        op.call = before.call
