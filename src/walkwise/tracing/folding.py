"""Batch normalisations in evaluation belong to the linear map or the layer right before them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from walkwise.tracing.tape import Call, Op

#: Operations through which a neuron stays a neuron, back to the linear map that made it.
_KEEPS_NEURONS = frozenset({
    "add", "sub", "neg", "mul", "div", "propagate", "view", "reshape", "flatten", "mean", "index_select",
    "expand", "expand_as", "scatter_add", "index_add", "scatter_reduce", "unsqueeze", "squeeze",
})  # fmt: skip


def fold_batch_norms(ops: Sequence[Op], calls: Sequence[Call]) -> None:
    """Give a batch normalisation right after a layer to that layer, and tell its linear maps of turned signs."""
    if not any(op.name == "batch_norm" for op in ops):
        return
    producer = {slot: op for op in ops for slot in op.outputs if slot is not None}
    readers: dict[int, int] = {}
    for op in ops:
        for slot in op.inputs:
            readers[slot] = readers.get(slot, 0) + 1
    for op in ops:
        before = producer.get(op.inputs[0]) if op.name == "batch_norm" else None
        if before is None or readers[op.inputs[0]] > 1:
            continue
        if op.call is None and before.call is not None:
            call = calls[before.call]
            call.outputs = [op.outputs[0] if s == op.inputs[0] else s for s in call.outputs]  # type: ignore[misc]
            op.call = before.call
        _turn_signs(before, op, producer)


def _turn_signs(before: Op, norm: Op, producer: dict[int, Op]) -> None:
    """Tell the linear maps before a batch normalisation which neurons it turns over."""
    weight = norm.args[3] if len(norm.args) > 3 else norm.kwargs.get("weight")
    if weight is None or bool((weight >= 0).all()):
        return
    todo = [before]
    while todo:
        op = todo.pop()
        if op.name in ("linear", "matmul", "addmm"):
            op.sign = torch.where(weight < 0, -1.0, 1.0).to(weight.dtype).detach()
        elif op.name in _KEEPS_NEURONS:
            sources = [producer.get(slot) for slot in op.inputs]
            todo.extend(s for s in sources if s is not None and s.call == before.call)
