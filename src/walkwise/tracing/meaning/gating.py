"""Gates of constants: the product of a gate with features that are given, and constant, is constant.

``(1 - z) * new + z * state`` with a given state holds z in both products; attention α is held in
``α * x_j + α * edge_attr`` as it is in ``α * (x_j + edge_attr)``, and over another graph, ``α @ x_t``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from walkwise.tracing.meaning.activations import GATES, SIGNED
from walkwise.tracing.meaning.interpreter import Interpreter
from walkwise.tracing.recording.recorded import Op, references

#: Functions of one followed tensor between a gate and what it multiplies.
_ON_THE_WAY = frozenset({
    "add", "sub", "rsub", "neg", "mul", "view", "reshape", "unsqueeze", "squeeze", "expand", "expand_as", "to",
    "repeat_interleave", "transpose", "permute", "flatten", "unflatten", "getitem", "index_select", "clamp",
})  # fmt: skip


def gates_constant(run: Interpreter, op: Op, slot: int, constant: Tensor) -> bool:
    """Whether a tensor is a gate of the constant that an operation multiplies it with, entry by entry.

    It is if it gates something followed, too, or has one number where given features have many; and if these are rows
    of nodes, such as the last state of a recurrent cell.
    """
    gate = gate_of(slot, run.made) if constant.numel() > 1 else None
    if gate is None or gate in run.gating:
        return gate is not None
    whole = run.shape(op.outputs[0])  # type: ignore[arg-type]
    broadcast = run.values[slot].numel() < whole.numel()
    return constant.shape == whole and _are_given_features(run, constant) and (broadcast or run.are_nodes(slot))


def attends_to_constant(run: Interpreter, slot: int, constant: Tensor) -> bool:
    """Whether a tensor is attention over rows of given features, as it is multiplied with them as matrices: α @ x_t."""
    return gate_of(slot, run.made) is not None and _are_given_features(run, constant)


def _are_given_features(run: Interpreter, constant: Tensor) -> bool:
    """Whether rows were given, or made of what was; and are no mask, with the same number in all columns."""
    several = constant.layout == torch.strided and constant.dim() > 1 and constant.shape[-1] > 1
    return several and id(constant) in run.data and bool((constant != constant[..., :1]).any())


def gating(ops: Iterable[Op], made: Mapping[int, Op]) -> frozenset[int]:
    """The slots of the gates that multiply something followed that is no gate itself.

    Args:
        ops: those that were recorded.
        made: the operations, by what they made.
    """
    found = set[int]()
    for op in ops:
        if op.word.name == "mul" and len(op.inputs) == 2:
            roots = [root for ref in references(op) if (root := gate_of(ref.slot, made)) is not None]
            found.update(roots if len(roots) == 1 else ())
    return frozenset(found)


def gate_of(slot: int, made: Mapping[int, Op]) -> int | None:
    """The gate that a tensor is, up to constants and the places of its entries; by its slot."""
    while (op := made.get(slot)) is not None:
        if GATES.get(op.word.name, 0) > SIGNED:
            return slot
        if op.word.name == "div":  # by the sum of all, say
            slot, first = next(iter(references(op))).slot, op.args[0]
            if getattr(first, "slot", None) != slot:
                return None
        elif op.word.name in _ON_THE_WAY and len(op.inputs) == 1:
            (slot,) = op.inputs
        else:
            return None
    return None
