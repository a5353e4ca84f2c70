"""Linear maps with weights, where the rules act, and message passing between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.core.differential import MOVING, Differential, leaves
from walkwise.core.edges import Edges
from walkwise.core.operators import Aggregate, Operator, RowMap, Scale
from walkwise.core.row_maps import Send
from walkwise.tracing.meaning.arithmetic import flat_constant, product, scale, without_nan
from walkwise.tracing.meaning.contractions import contraction
from walkwise.tracing.meaning.gating import attends_across, attends_to_constant
from walkwise.tracing.meaning.interpreter import Interpreter, gradient, selection, structural
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.recording.words import handles, word
from walkwise.tracing.stretches.expressions import Coefficients, nonnegative_map, scaled


@handles(F.linear)
def _linear(run: Interpreter, op: Op) -> None:
    weight, bias = op.args[1], op.args[2] if len(op.args) > 2 else op.kwargs.get("bias")
    if isinstance(weight, Ref) or not isinstance(op.args[0], Ref):
        return product(run, op)
    if isinstance(bias, Ref):
        return gradient(run, op)
    if bias is None and not is_weight(run, weight, op.args[0].slot, (-1,)):
        return multilinear(run, op)
    slot, weight = op.args[0].slot, weight if weight.dim() == 2 else weight.view(1, -1)
    make: Callable[[Tensor], Operator] = RowMap if run.values[slot].dim() == 2 else _by_rows(run, op, slot)
    weighted(run, op, slot, weight.detach(), make, bias, by_neuron=True)


def is_weight(run: Interpreter, constant: Tensor, slot: int, summed: Sequence[int]) -> bool:
    """Whether a constant that sums over dimensions of a tensor is a weight: learned, or mixing no nodes.

    If it is unknown what the rows are, neurons are assumed to come last.
    """
    if run.learned(constant):
        return True
    dims = run.values[slot].dim()
    along = [run.along_nodes(slot, dim) for dim in summed]
    return True not in along and (None not in along or any(dim in (-1, dims - 1) for dim in summed))


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
        flow = run.builder.settle(flow)
    constant = None if bias is None else flat_constant(bias, run.values[op.outputs[0]])  # type: ignore[index]
    coefficients = Coefficients(make=make, tensor=weight, learned=True, by_neuron=by_neuron, borrowed=run.lasting)
    run.combine(op, [(flow, coefficients)], constant)
    if op.outputs[0] is not None and run.learned(weight):  # what the model's weights have mixed is no gate any more
        run.flows[op.outputs[0]].gate = 0


@handles(torch.matmul)
def _matmul(run: Interpreter, op: Op) -> None:
    left, right = op.args[0], op.args[1]
    if isinstance(left, Ref) and isinstance(right, Ref):
        return product(run, op)
    if isinstance(right, Ref):
        return _from_the_left(run, op, left, right)
    if isinstance(right, Tensor) and attends_to_constant(run, left.slot, right):
        return run.hold(op)
    if not isinstance(right, Tensor) or right.dim() != 2 or not is_weight(run, right, left.slot, (-1,)):
        return multilinear(run, op)
    right = right if right.layout == torch.strided else right.to_dense()
    make = RowMap if run.values[left.slot].dim() == 2 else _by_rows(run, op, left.slot)
    weighted(run, op, left.slot, right.detach().t(), make, by_neuron=True)


@handles(Tensor.__rmatmul__)
def _rmatmul(run: Interpreter, op: Op) -> None:
    """other @ self."""
    turned = replace(op, func=torch.matmul, args=(op.args[1], op.args[0]))
    _matmul(run, turned)


def _from_the_left(run: Interpreter, op: Op, left: Any, right: Ref) -> None:
    """A constant matrix that mixes rows: a weight if it is learned, otherwise such as an adjacency."""
    if isinstance(left, Tensor) and left.dim() == 2 and attends_across(run, left, right.slot):
        return run.hold(op)
    sparse = isinstance(left, Tensor) and left.layout != torch.strided
    _adjacency(run, op, left, right.slot) if sparse else multilinear(run, op)


def _data(run: Interpreter, op: Op, slot: int, coefficients: Coefficients) -> None:
    """A linear map with coefficients that are no weights: they have signs, but no rule lifts them."""
    run.combine(op, [(run.read(op, slot, within=op.call is not None), coefficients)])


@handles(torch.sparse.mm)
def _sparse_product(run: Interpreter, op: Op) -> None:
    left, right = op.args[:2]
    reduce = op.given("mat2", "reduce").get("reduce", "sum")
    if reduce in ("amax", "amin", "max", "min"):  # a value that was picked gets it all
        return selection(run, op)
    if isinstance(left, Ref) or not isinstance(right, Ref) or reduce not in ("sum", "mean"):
        return gradient(run, op)
    if reduce == "mean":
        left = _mean_of_rows(left, left.to_sparse_csr().crow_indices())
    _from_the_left(run, op, left, right)


def _mean_of_rows(matrix: Tensor, offsets: Tensor) -> Tensor:
    """A sparse matrix, each entry over the number of those in its row, those in one place counted one by one."""
    entries = matrix.detach().to_sparse().coalesce()
    row, values = entries.indices()[0], entries.values()
    return torch.sparse_coo_tensor(entries.indices(), values / offsets.diff()[row].to(values.dtype), matrix.shape)


def _of_torch_sparse(run: Interpreter, op: Op) -> None:
    """torch_sparse's own product of a sparse matrix, given in parts, with node features."""
    *_, features = op.args
    offsets, columns, values = op.args[1:4]
    if not isinstance(features, Ref) or isinstance(values, Ref):
        return gradient(run, op)
    rows = run.values[features.slot].shape[-2]
    values = torch.ones_like(columns, dtype=run.values[features.slot].dtype) if values is None else values.detach()
    row = torch.repeat_interleave(offsets.diff(), output_size=len(columns))
    matrix = torch.sparse_coo_tensor(torch.stack([row, columns]), values, (len(offsets) - 1, rows))
    matrix = _mean_of_rows(matrix, offsets) if op.word.name == "spmm_mean" else matrix
    known = word(torch.matmul)
    _from_the_left(run, replace(op, word=known, func=torch.matmul, args=(matrix, features)), matrix, features)


for _name in ("spmm_sum", "spmm_mean"):  # where torch_sparse is installed
    if hasattr(torch.ops.torch_sparse, _name):
        handles(getattr(torch.ops.torch_sparse, _name))(_of_torch_sparse)


def _adjacency(run: Interpreter, op: Op, matrix: Tensor, slot: int) -> None:
    """A sparse matrix that mixes rows: sums over edges."""
    if run.values[slot].dim() != 2:
        return multilinear(run, replace(op, args=(matrix.to_dense(), *op.args[1:])))
    entries = matrix.detach().to_sparse().coalesce()
    (target, source), receivers, senders = entries.indices(), *matrix.shape
    edges = Edges(source.contiguous(), target.contiguous(), max(senders, receivers))
    weight = entries.values().to(run.values[slot].dtype)
    square = senders == receivers
    operator = Aggregate(edges, weight) if square else Send(edges, weight, senders, receivers)
    _data(run, op, slot, _edge_map(operator))


@handles(
    torch.bmm, torch.mv, torch.tensordot, torch.inner, torch.dot, torch.vdot, torch.linalg.vecdot,
    torch.outer, torch.kron,
)  # fmt: skip
def multilinear(run: Interpreter, op: Op) -> None:
    """Linear in the one followed argument, with the other as weight; if both are followed, a product."""
    tensors = [a for a in leaves((op.args, op.kwargs)) if isinstance(a, (Tensor, Ref))]
    followed = [a for a in tensors if isinstance(a, Ref)]
    if len(tensors) == 1 and op.inputs:
        return structural(run, op)
    if len(followed) != 1 or len(tensors) != 2 or op.outputs[0] is None:
        flat_args = tuple(leaves(op.args)) if op.word.name == "einsum" else op.args
        return product(run, replace(op, args=flat_args))
    (ref,) = followed
    constant = next(a for a in tensors if isinstance(a, Tensor))
    if op.word.name in ("bmm", "einsum") and tensors[0] is ref and attends_to_constant(run, ref.slot, constant):
        return run.hold(op)
    shapes = run.shape(ref.slot), constant.shape
    found = contraction(op.word.name, (*op.args, *op.kwargs.values()), *shapes, first=tensors[0] is ref)

    def make(coefficients: Tensor) -> Operator:
        return run.derivative(op, ref.slot, swap={id(constant): coefficients})

    if found is None or (not found.entrywise and is_weight(run, constant, ref.slot, found.summed)):
        return weighted(run, op, ref.slot, _known(constant), make)
    if found.entrywise and found.in_order and shapes[0] == run.shape(op.outputs[0]):
        return scale(run, op, ref.slot, op.run(lambda slot: torch.ones_like(run.values[slot]))[0])
    _data(run, op, ref.slot, Coefficients(make=make, tensor=without_nan(constant.detach())))


def _known(constant: Tensor) -> Tensor:
    """A constant, itself if all its entries are numbers."""
    return without_nan(constant.detach()) if bool(constant.isnan().any()) else constant.detach()


def of_product(run: Interpreter, op: Op) -> bool:
    """Write the sum of a product with what is learned, ``(x * w).sum(-1)``, as the product ``x @ w``; whether it is."""
    slot, factor = run.factors.get(op.inputs[0], (-1, None))
    if factor is None or op.outputs[0] is None or op.word.name != "sum":
        return False
    given = op.given("dim", "keepdim")
    whole = run.shape(op.inputs[0])
    over = given.get("dim", given.get("axis"))
    over = [over] if isinstance(over, int) else list(over or range(len(whole)))
    wide = [1] * (len(whole) - factor.dim()) + list(factor.shape)
    if not over or any(wide[dim] == 1 or dim % len(whole) == 0 for dim in over):
        return False
    at, shape, keepdim = run.values[slot].detach(), run.shape(op.outputs[0]), bool(given.get("keepdim", False))

    def make(coefficients: Tensor) -> Operator:
        return Differential(_summed, (MOVING, coefficients, tuple(over), keepdim), {}, at, 0, shape)

    weighted(run, op, slot, factor.detach(), make)
    return True


def _summed(x: Tensor, factor: Tensor, dim: tuple[int, ...], keepdim: bool) -> Tensor:
    return (x * factor).sum(dim, keepdim)


def propagate(run: Interpreter, op: Op) -> None:
    """Message passing by its closed form: Σ operator(tensor) + constant."""
    flows = [(run.read(op, slot, within=not op.activated), operator) for slot, operator in op.terms]
    run.combine(op, [(flow, _edge_map(operator)) for flow, operator in flows], op.constant)


def _edge_map(operator: Operator) -> Coefficients:
    if isinstance(operator, Aggregate) and operator.weight is not None:
        edges, root = operator.edges, operator.root
        if root:
            return nonnegative_map(operator)
        return Coefficients(
            make=lambda w: operator if w is operator.weight else Aggregate(edges, w), tensor=operator.weight
        )
    if isinstance(operator, Send) and operator.weight is not None:
        return Coefficients(make=lambda w: replace(operator, weight=w), tensor=operator.weight)
    if isinstance(operator, Scale):
        return scaled(operator.factor)
    return nonnegative_map(operator)
