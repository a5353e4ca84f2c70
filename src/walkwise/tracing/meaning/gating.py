"""Gates of constants: the product of a gate with features that are given, and constant, is constant.

``(1 - z) * new + z * state`` with a given state holds z in both products; attention α is held in
``α * x_j + α * edge_attr`` as it is in ``α * (x_j + edge_attr)``, and over another graph, ``α @ x_t``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import torch
from torch import Tensor

from walkwise.tracing.meaning.activations import GATES, SIGNED
from walkwise.tracing.meaning.interpreter import Interpreter
from walkwise.tracing.recording.kinds import CASTING, PRODUCTS, READING, REPEATING, RESHAPING, TRANSPOSING
from walkwise.tracing.recording.recorded import Op, references

#: Functions of one followed tensor between a gate and what it multiplies.
_ON_THE_WAY = (
    RESHAPING
    | TRANSPOSING
    | REPEATING
    | CASTING
    | {"add", "sub", "rsub", "neg", "mul", "clamp", "chunk", "split", "narrow", "T", "mT", "H", "mH", "adjoint"}
)


def gates_constant(run: Interpreter, op: Op, slot: int, constant: Tensor) -> bool:
    """Whether a tensor is a gate of a constant that an operation multiplies it with, entry by entry.

    It is if it gates something followed, too, as an update gate does. One number where given features have many is a
    gate, and so is what is multiplied with given features of nodes, such as the last state of a recurrent cell. What
    weights or layers read is features.
    """
    gate, whole = gate_of(slot, run.made), run.shape(op.outputs[0])  # type: ignore[arg-type]
    gates = gate is not None and gate not in run.weighed and constant.numel() > 1
    if gates and (gate in run.gating or not bool(constant.any())):
        return True
    if constant.shape != whole or not _are_given_features(run, constant):
        return False
    if run.values[slot].numel() < whole.numel():
        return gate_of(slot, run.made, read=True) is not None
    return gates and run.are_nodes(slot)


def attends_to_constant(run: Interpreter, slot: int, constant: Tensor) -> bool:
    """Whether a tensor is attention over rows of given features, as it is multiplied with them as matrices: α @ x_t."""
    gate = gate_of(slot, run.made)
    return gate is not None and gate not in run.weighed and _are_given_features(run, constant)


def attends_across(run: Interpreter, constant: Tensor, slot: int) -> bool:
    """The same, turned round: ``x.t() @ α``, with α normalised over the nodes. An adjacency there holds no features."""
    gate = gate_of(slot, run.made)
    if gate is None or gate in run.weighed or run.shape(gate) != run.shape(slot) or len(run.shape(slot)) != 2:
        return False
    made = run.made[gate]
    over_nodes = made.word.name == "softmax" and made.given("dim").get("dim") in (0, -2)
    features = constant.shape[0] != constant.shape[1] or _is_turned(run, constant)
    return over_nodes and features and _are_given_features(run, constant)


def _is_turned(run: Interpreter, constant: Tensor) -> bool:
    """Whether a matrix is one that was given, turned round by the model."""
    matrices = (run.data[number] for number in run.given if number in run.data and run.data[number].dim() == 2)
    there = (given for given in matrices if given.data_ptr() == constant.data_ptr())
    return any(given.t().stride() == constant.stride() for given in there)


def _are_given_features(run: Interpreter, constant: Tensor) -> bool:
    """Whether rows were given, or made of what was and no mask, which has the same number in all columns."""
    several = constant.layout == torch.strided and constant.dim() > 1 and constant.shape[-1] > 1
    if not several or id(constant) not in run.data:
        return False
    return id(constant) in run.given or bool((constant != constant[..., :1]).any())


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


def weighed(ops: Iterable[Op], made: Mapping[int, Op], handed: Iterable[int], given: Container[int]) -> frozenset[int]:
    """The slots of what looks like a gate, but weights or layers read it as it is: features.

    Args:
        ops: those that were recorded.
        made: the operations, by what they made.
        handed: the slots that layers are handed.
        given: the identities of constants that were given, or made of what was.
    """
    read = [op.inputs[0] for op in ops if op.word.name in ("linear", "propagate") or _has_weights(op, given)]
    roots = (gate_of(slot, made, read=True, whole=False) for slot in (*read, *handed))
    return frozenset(root for root in roots if root is not None)


def _has_weights(op: Op, given: Container[int]) -> bool:
    """Whether an operation is a product with a matrix that is learned, and not features that were given."""
    matrices = (item for item in op.args if isinstance(item, Tensor) and item.requires_grad)
    return op.word.name in PRODUCTS and len(op.inputs) == 1 and any(id(item) not in given for item in matrices)


def gate_of(slot: int, made: Mapping[int, Op], *, read: bool = False, whole: bool = True) -> int | None:
    """The gate that a tensor is, up to constants and the places of its entries; by its slot.

    Args:
        slot: of the tensor.
        made: the operations, by what they made.
        read: whether its rows may have been read by number, as those of nodes are at edges.
        whole: whether it may have been multiplied with a number for each of its entries.
    """
    while (op := made.get(slot)) is not None:
        if GATES.get(op.word.name, 0) > SIGNED:
            return slot
        if not whole and op.word.name in ("mul", "div") and _has_number_for_each(op):
            return None
        if op.word.name == "div":  # by the sum of all, say
            slot, first = next(iter(references(op))).slot, op.args[0]
            if getattr(first, "slot", None) != slot:
                return None
        elif len(op.inputs) == 1 and (op.word.name in _ON_THE_WAY or (op.word.name in READING and _reads(op, read))):
            (slot,) = op.inputs
        else:
            return None
    return None


def _reads(op: Op, read: bool) -> bool:
    """Whether an operation picks columns, or rows by number where this is allowed."""
    index = op.args[1] if op.word.name == "getitem" and len(op.args) > 1 else None
    first = index[0] if isinstance(index, tuple) and index else index
    return read or (op.word.name == "getitem" and not isinstance(first, Tensor))


def _has_number_for_each(op: Op) -> bool:
    """Whether a factor has several columns, or is followed; what is the same in memory counts once."""
    factors = [item for item in op.args if isinstance(item, Tensor) and item.layout == torch.strided and item.dim() > 1]
    return len(op.inputs) > 1 or any(item.shape[-1] > 1 and item.stride(-1) for item in factors)
