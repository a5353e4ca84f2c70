"""Messages through simple read-outs under LRP-0, written out: what autograd gives, without its overhead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from walkwise.tracing.tape import Op, Ref

#: The messages at an operation's inputs, (slot, message), or None where it is not as simple as it looks.
Pulled = Iterable[tuple[int, Tensor]] | None


def pulled(ops: Sequence[Op], output: int, direction: Tensor, values: Sequence[Tensor]) -> dict[int, Tensor] | None:
    """The message at every slot the read-out reads, or None if autograd must find it.

    Under LRP-0 a message is the gradient, and a ReLU passes on where it is positive.
    """
    messages = {output: direction}
    for op in reversed(ops):
        pull = _PULLS.get(op.name)
        arrived = messages.pop(op.outputs[0], None) if len(op.outputs) == 1 else None  # type: ignore[arg-type]
        before = None if pull is None or arrived is None else pull(op, arrived, values)
        if before is None:
            return None
        for slot, message in before:
            if message.dtype != values[slot].dtype:  # a constant of another type has changed it on the way
                return None
            messages[slot] = messages[slot] + message if slot in messages else message
    return messages


def _linear(op: Op, message: Tensor, values: Sequence[Tensor]) -> Pulled:
    """Message · W."""
    weight = op.args[1]
    if len(op.inputs) != 1 or not isinstance(op.args[0], Ref) or not isinstance(weight, Tensor) or weight.dim() != 2:
        return None
    return [(op.inputs[0], message @ weight.detach())]


def _relu(op: Op, message: Tensor, values: Sequence[Tensor]) -> Pulled:
    return [(op.inputs[0], message * (values[op.outputs[0]] > 0))]  # type: ignore[index]


def _scaled(factor: Callable[[float], float]) -> Callable[[Op, Tensor, Sequence[Tensor]], Pulled]:
    """A followed tensor times, or divided by, a number."""

    def pull(op: Op, message: Tensor, values: Sequence[Tensor]) -> Pulled:
        number = op.args[1] if len(op.args) == 2 and not op.kwargs else None  # a division may be asked to round
        if type(number) not in (int, float) or number == 0:
            return None
        return [(op.inputs[0], message * factor(number))]  # type: ignore[arg-type]

    return pull


def _add(op: Op, message: Tensor, values: Sequence[Tensor]) -> Pulled:
    """Sums of equal shapes; what is not followed is a bias."""
    if op.kwargs or any(values[slot].shape != message.shape for slot in op.inputs):
        return None
    return [(item.slot, message) for item in op.args if isinstance(item, Ref)]


def _reshaped(op: Op, message: Tensor, values: Sequence[Tensor]) -> Pulled:
    return [(op.inputs[0], message.reshape(values[op.inputs[0]].shape))]


def _reduced(mean: bool) -> Callable[[Op, Tensor, Sequence[Tensor]], Pulled]:
    """A sum or mean over the nodes, the first of two dimensions."""

    def pull(op: Op, message: Tensor, values: Sequence[Tensor]) -> Pulled:
        given: dict[str, Any] = dict(zip(("dim", "keepdim"), op.args[1:], strict=False)) | op.kwargs
        shape = values[op.inputs[0]].shape
        if len(shape) != 2 or given.get("dim") not in (0, -2, (0,), [0]) or "dtype" in given or len(op.args) > 3:
            return None
        share = message / shape[0] if mean else message
        return [(op.inputs[0], share.view(1, shape[1]).expand(shape))]

    return pull


def _scatter_add(op: Op, message: Tensor, values: Sequence[Tensor]) -> Pulled:
    """A sum over the nodes of every graph: each node hears what its graph hears."""
    if op.kwargs or len(op.args) != 4 or isinstance(op.args[0], Ref) or not isinstance(op.args[3], Ref):
        return None
    if op.args[2].shape != values[op.args[3].slot].shape:  # what the index does not reach is left out
        return None
    return [(op.args[3].slot, message.gather(op.args[1], op.args[2]))]


_PULLS: dict[str, Callable[[Op, Tensor, Sequence[Tensor]], Pulled]] = {
    "linear": _linear,
    "relu": _relu,
    "add": _add,
    "mul": _scaled(float),
    "div": _scaled(lambda number: 1 / number),
    "sum": _reduced(mean=False),
    "mean": _reduced(mean=True),
    "scatter_add": _scatter_add,
    **dict.fromkeys(("view", "reshape", "flatten", "squeeze", "unsqueeze"), _reshaped),
}
