"""Tensors stacked in a new dimension and summed over it: the same as one sum of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from walkwise.core.differential import leaves
from walkwise.tracing.meaning.arithmetic import weighed_together
from walkwise.tracing.meaning.interpreter import Interpreter
from walkwise.tracing.recording.kinds import RESHAPING
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.stretches.expressions import SAME, scaled


def note_stack(run: Interpreter, op: Op, tensors: Sequence[Any], dim: int) -> None:
    """Keep in mind what torch.stack puts together, where no walk stands at it."""
    output = op.outputs[0]
    if output is not None and output not in run.standing and all(isinstance(tensor, Ref) for tensor in tensors):
        run.stacks[output] = dim % run.values[output].dim(), [tensor.slot for tensor in tensors]


def note_joined(run: Interpreter, op: Op, tensors: Sequence[Any], dim: int) -> None:
    """Keep in mind what torch.cat puts together along a dimension that is new in each: ``cat([a[None], b[None]])``."""
    output = op.outputs[0]
    if output is not None and output not in run.standing and all(isinstance(tensor, Ref) for tensor in tensors):
        dim %= run.values[output].dim()
        slots = [_without(run, op, tensor.slot, dim) for tensor in tensors]
        if None not in slots:
            run.stacks[output] = dim, slots  # type: ignore[assignment]


def _without(run: Interpreter, op: Op, slot: int, dim: int) -> int | None:
    """The slot of which a tensor was made by a new dimension of length one, if it was."""
    made = run.made.get(slot)
    if made is None or slot in run.standing or made.call != op.call or len(made.inputs) != 1:
        return None
    name, shape = made.word.name, list(run.shape(slot))
    index = made.args[1] if name == "getitem" else ()
    plain = all(i is None or i is Ellipsis or i == slice(None) for i in (index if type(index) is tuple else [index]))
    if shape.pop(dim) != 1 or list(run.shape(made.inputs[0])) != shape or not plain:
        return None
    return made.inputs[0] if name in RESHAPING or name == "getitem" else None


def reduce_stack(run: Interpreter, op: Op) -> bool:
    """Write the sum or mean of tensors that were put on top of each other; whether that is what is asked for."""
    dim, slots = run.stacks.get(op.inputs[0], (None, ()))
    given = op.given("dim", "keepdim")
    over = given.get("dim")
    over = over[0] if isinstance(over, (list, tuple)) and len(over) == 1 else over
    if dim is None or op.outputs[0] is None or not isinstance(over, int) or given.keys() - {"dim", "keepdim"}:
        return False
    if over % run.values[op.inputs[0]].dim() != dim or given.get("keepdim"):
        return False
    _add_up(run, op, slots, [1 / len(slots) if op.word.name == "mean" else 1.0] * len(slots))
    return True


def contract_stack(run: Interpreter, op: Op) -> bool:
    """Write ``einsum("tnf->nf")`` of a stack, or ``("tnf,t->nf")`` with numbers, as a sum; whether it is one."""
    equation, *operands = leaves(op.args)
    followed = [place for place, operand in enumerate(operands) if isinstance(operand, Ref)]
    if not isinstance(equation, str) or len(followed) != 1 or len(operands) > 2 or op.outputs[0] is None:
        return False
    stack, numbers = operands[followed[0]], operands[1 - followed[0] :][:1] if len(operands) == 2 else []
    dim, slots = run.stacks.get(stack.slot, (None, []))
    parts, _, out = equation.replace(" ", "").partition("->")
    letters = parts.split(",")
    own = letters.pop(followed[0])
    if dim is None or "->" not in equation or len(own) != run.values[stack.slot].dim() or "." in own:
        return False
    if out != own[:dim] + own[dim + 1 :] or len(set(own)) != len(own) or letters not in ([], [own[dim]]):
        return False
    if any(not isinstance(n, Tensor) or run.learned(n) or len(n) != len(slots) for n in numbers):
        return False
    _add_up(run, op, slots, numbers[0].tolist() if numbers else [1.0] * len(slots))
    return True


def _add_up(run: Interpreter, op: Op, slots: Sequence[int], times: Sequence[float]) -> None:
    """Σ times · tensor."""
    within = op.call is not None or weighed_together(run, op, slots)
    flows = [run.read(op, slot, within=within) for slot in slots]
    run.combine(
        op,
        [
            (flow, SAME if number == 1 else scaled(flow.value.new_full((1, 1), number)))
            for flow, number in zip(flows, times, strict=True)
        ],
    )
