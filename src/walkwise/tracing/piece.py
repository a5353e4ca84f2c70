"""Pieces of a recorded model that autograd carries, with copies of all they need: training may go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from walkwise.core.operators import Cast, Jacobian
from walkwise.tracing.flow import Builder, Flow
from walkwise.tracing.meaning import Interpreter
from walkwise.tracing.tape import Op


@dataclass(frozen=True, eq=False)
class Piece:
    """Operations from some slots to others, which can be run again under autograd."""

    ops: Sequence[Op]
    read: Sequence[int]
    wanted: Sequence[int]
    values: dict[int, Tensor]  # of every slot the operations name
    num_nodes: int

    def __call__(self, cast: Cast) -> Jacobian:
        """The piece on cast tensors, with the rules' constants held."""
        moved = Piece(
            [mapped(op, cast, lambda operator: operator.to(cast)) for op in self.ops],
            self.read,
            self.wanted,
            {slot: cast(value) for slot, value in self.values.items()},
            self.num_nodes,
        )
        return Jacobian(*moved.run()[:2], self)

    def run(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], Interpreter]:
        """The inputs as leaves of an autograd graph, its ends, and the interpreter that made it."""
        builder = Builder(self.num_nodes)
        builder.graph = True
        interpreter = Interpreter(builder, self.values)
        leaves = []
        with torch.enable_grad(), _twice_differentiable(self.ops):
            for slot in self.read:
                leaf = self.values[slot].detach().requires_grad_(True)
                interpreter.flows[slot] = Flow(self.values[slot], (leaf,), ())
                leaves.append(leaf)
            for op in self.ops:
                interpreter.run(op)
            ends = [builder.settle(interpreter.flows[slot]).parts[0] for slot in self.wanted]
        return tuple(leaves), tuple(ends), interpreter


def piece_of(
    ops: Sequence[Op], read: Sequence[int], wanted: Sequence[int], values: Sequence[Tensor], num_nodes: int
) -> Piece:
    """The piece made of these operations, which may share its tensors with the model."""
    slots = [*read, *wanted, *(slot for op in ops for slot in (*op.inputs, *op.outputs) if slot is not None)]
    return Piece(ops, read, wanted, {slot: values[slot] for slot in slots}, num_nodes)


def kept(piece: Piece) -> Piece:
    """The piece with copies of the weights and other constants it takes from the model."""
    copies: dict[int, tuple[Tensor, Tensor]] = {}  # by identity of the original, which is kept alive here

    def copy(tensor: Tensor) -> Tensor:
        if tensor.layout != torch.strided:
            return tensor
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor, tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return copies[id(tensor)][1]

    return Piece([mapped(op, copy) for op in piece.ops], piece.read, piece.wanted, piece.values, piece.num_nodes)


def mapped(op: Op, change: Callable[[Tensor], Tensor], move: Callable[[Any], Any] = lambda operator: operator) -> Op:
    """The operation with all its tensors changed, and its operators moved."""
    own = {field.name: getattr(op, field.name) for field in fields(Op)}
    own |= {name: _changed(own[name], change) for name in ("args", "kwargs", "constant", "sign")}
    return Op(**(own | {"terms": tuple((slot, move(operator)) for slot, operator in op.terms)}))


def _changed(item: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Nested arguments with their tensors changed."""
    if isinstance(item, Tensor):
        return change(item)
    if type(item) in (list, tuple):
        return type(item)([_changed(i, change) for i in item])
    if type(item) is dict:
        return {key: _changed(value, change) for key, value in item.items()}
    return item


def _twice_differentiable(ops: Sequence[Op]) -> AbstractContextManager[None]:
    """Attention as plain products where there is any: fused, it has no second derivative."""
    attends = any("attention" in op.name for op in ops)
    return sdpa_kernel(SDPBackend.MATH) if attends else nullcontext()
