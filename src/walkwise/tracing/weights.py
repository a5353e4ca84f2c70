"""Linear maps with weights, where the rules act, and message passing between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.core.differential import MOVING, Differential
from walkwise.core.operators import Aggregate, Operator, RowMap, Scale
from walkwise.core.row_maps import Send
from walkwise.tracing.arithmetic import product
from walkwise.tracing.expressions import SAME, Coefficients, moved, scaled
from walkwise.tracing.interpreter import Interpreter, gradient, leaves, structural
from walkwise.tracing.tape import Op, Ref
from walkwise.tracing.words import handles


@handles(F.linear)
def _linear(run: Interpreter, op: Op) -> None:
    weight, bias = op.args[1], op.args[2] if len(op.args) > 2 else op.kwargs.get("bias")
    if isinstance(weight, Ref) or not isinstance(op.args[0], Ref):
        return product(run, op)
    if isinstance(bias, Ref):
        return gradient(run, op)
    slot, weight = op.args[0].slot, weight if weight.dim() == 2 else weight.view(1, -1)
    make: Callable[[Tensor], Operator] = RowMap if run.values[slot].dim() == 2 else _by_rows(run, op, slot)
    weighted(run, op, slot, weight.detach(), make, bias, by_neuron=True)


def _by_rows(run: Interpreter, op: Op, slot: int) -> Callable[[Tensor], Operator]:
    """A weight on the last of several dimensions."""
    at, shape = run.values[slot].detach(), run.shape(op.outputs[0])  # type: ignore[arg-type]
    return lambda matrix: Differential(F.linear, (MOVING, matrix), {}, at, 0, shape)


def weighted(
    run: Interpreter,
    op: Op,
    slot: int,
    weight: Tensor,
    make: Callable[[Tensor], Operator],
    bias: Tensor | None = None,
    *,
    by_neuron: bool = False,
) -> None:
    """A weight and its bias: where the rule acts. A second weight in a stretch begins a new stretch."""
    flow = run.read(op, slot, within=True)
    if flow.weighted:
        flow = run.flows[slot] = run.builder.settle(flow)
    constant = None if bias is None else bias.detach().reshape(1, -1)
    coefficients = Coefficients(make=make, tensor=weight, learned=True, by_neuron=by_neuron, borrowed=run.lasting)
    run.combine(op, [(flow, coefficients)], _repeated(constant, run, op))


def _repeated(bias: Tensor | None, run: Interpreter, op: Op) -> Tensor | None:
    """A bias on the last of several dimensions, for every one of the others."""
    if bias is None:
        return None
    columns = run.value(op.outputs[0]).shape[1]  # type: ignore[arg-type]
    return bias if columns == bias.shape[1] else bias.repeat(1, columns // bias.shape[1])


@handles(torch.matmul)
def _matmul(run: Interpreter, op: Op) -> None:
    left, right = op.args[0], op.args[1]
    if isinstance(left, Ref) and isinstance(right, Ref):
        return product(run, op)
    if isinstance(right, Ref):
        return _from_the_left(run, op, left, right)
    if not isinstance(right, Tensor) or right.dim() != 2:
        return multilinear(run, op)
    make = RowMap if run.values[left.slot].dim() == 2 else _by_rows(run, op, left.slot)
    weighted(run, op, left.slot, right.detach().t(), make, by_neuron=True)


@handles(Tensor.__rmatmul__)
def _rmatmul(run: Interpreter, op: Op) -> None:
    """other @ self."""
    turned = replace(op, func=torch.matmul, args=(op.args[1], op.args[0]))
    _matmul(run, turned)


def _from_the_left(run: Interpreter, op: Op, left: Any, right: Ref) -> None:
    """A constant matrix that mixes rows: a weight if it is learned, otherwise such as an adjacency."""
    if not isinstance(left, Tensor) or left.layout != torch.strided:
        return structural(run, op)
    at, shape = run.values[right.slot].detach(), run.shape(op.outputs[0])  # type: ignore[arg-type]

    def make(matrix: Tensor) -> Operator:
        return Differential(torch.matmul, (matrix, MOVING), {}, at, 0, shape)

    if left.requires_grad:
        return weighted(run, op, right.slot, left.detach(), make)
    flow = run.read(op, right.slot, within=op.call is not None)
    run.combine(op, [(flow, Coefficients(make=make, tensor=left.detach().clone()))])


@handles(torch.addmm)
def _addmm(run: Interpreter, op: Op) -> None:
    """beta · bias + alpha · left · right; the bias may be a followed tensor, a skip."""
    bias, left, right = op.args[:3]
    beta, alpha = float(op.kwargs.get("beta", 1)), float(op.kwargs.get("alpha", 1))
    if not isinstance(left, Ref) or isinstance(right, Ref):
        return gradient(run, op)
    weight = right.detach().t() * alpha
    if not isinstance(bias, Ref):
        return weighted(run, op, left.slot, weight, RowMap, bias.detach() * beta, by_neuron=True)
    flow = run.read(op, left.slot, within=True)
    if flow.weighted:
        flow = run.flows[left.slot] = run.builder.settle(flow)
    skip = run.read(op, bias.slot, within=op.call is not None)
    times = SAME if beta == 1 else scaled(skip.value.new_full((1, 1), beta))
    if run.shape(bias.slot) != run.shape(op.outputs[0]):  # type: ignore[arg-type]
        return gradient(run, op)
    run.combine(op, [(flow, Coefficients(make=RowMap, tensor=weight, learned=True, by_neuron=True)), (skip, times)])


@handles(
    torch.einsum, torch.bmm, torch.mv, torch.tensordot, torch.inner, torch.dot, torch.vdot, torch.linalg.vecdot,
    torch.outer, torch.kron,
)  # fmt: skip
def multilinear(run: Interpreter, op: Op) -> None:
    """Linear in the one followed argument, the other one a weight; with two followed, a product."""
    tensors = [a for a in leaves((op.args, op.kwargs)) if isinstance(a, (Tensor, Ref))]
    followed = [a for a in tensors if isinstance(a, Ref)]
    if len(followed) != 1 or len(tensors) != 2 or op.outputs[0] is None:
        flat_args = tuple(leaves(op.args)) if op.word.name == "einsum" else op.args
        return product(run, replace(op, args=flat_args)) if len(op.inputs) == 2 else gradient(run, op)
    (ref,) = followed
    weight = next(a for a in tensors if isinstance(a, Tensor))

    def make(coefficients: Tensor) -> Operator:
        return run.derivative(op, ref.slot, swap={id(weight): coefficients})

    weighted(run, op, ref.slot, weight.detach(), make)


def propagate(run: Interpreter, op: Op) -> None:
    """Message passing by its closed form: Σ operator(tensor) + constant."""
    flows = [(run.read(op, slot, within=not op.activated), operator) for slot, operator in op.terms]
    run.combine(op, [(flow, _edge_map(operator)) for flow, operator in flows], op.constant)


def _edge_map(operator: Operator) -> Coefficients:
    if isinstance(operator, Aggregate) and operator.weight is not None:
        edges, root = operator.edges, operator.root
        if root:
            return moved(operator)
        return Coefficients(
            make=lambda w: operator if w is operator.weight else Aggregate(edges, w), tensor=operator.weight
        )
    if isinstance(operator, Send) and operator.weight is not None:
        return Coefficients(make=lambda w: replace(operator, weight=w), tensor=operator.weight)
    if isinstance(operator, Scale):
        return scaled(operator.factor)
    return moved(operator)
