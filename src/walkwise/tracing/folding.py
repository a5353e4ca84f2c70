"""Operations that belong to the layer before them: a batch normalisation in evaluation, and the ReLU after a layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from walkwise.tracing.recording.recorded import Call, Op, makers

_FOLDED = frozenset({"batch_norm", "relu"})


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
