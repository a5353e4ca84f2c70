"""Functions composed of others: each is written out, so that it means what its parts mean."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.core.differential import leaves
from walkwise.tracing.meaning.activations import GATES
from walkwise.tracing.meaning.interpreter import Interpreter, gradient, structural
from walkwise.tracing.meaning.stacks import contract_stack
from walkwise.tracing.meaning.weights import multilinear
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.recording.words import handles, named
from walkwise.tracing.stretches.stretch import Flow


class Written:
    """Writes an operation as the functions it consists of, each with its own handler."""

    def __init__(self, run: Interpreter, op: Op) -> None:
        """Nothing written yet."""
        self.run = run
        self.op = op

    def __call__(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """One function of followed tensors and constants; of constants alone it is a constant."""
        return self.run.written(self.op, func, *args, **kwargs)

    def value(self, item: Any) -> Tensor:
        """The value of a followed tensor or a constant."""
        found: Tensor = self.run.values[item.slot] if isinstance(item, Ref) else item
        return found

    def end(self, result: Any) -> None:
        """Take what was written last for what the operation gives; of constants, or held constant, it is constant."""
        if not isinstance(result, Ref) or result.slot in self.run.held:
            return self.run.hold(self.op)
        self.run.write(self.op, self.run.flow(result.slot))


def written_out(write: Callable[..., Any]) -> Callable[[Interpreter, Op], None]:
    """The handler of a function that is written out; if ``write`` returns None, the plain gradient is used.

    ``write`` gets the writer and the function's arguments, followed tensors among them as references.
    """

    @functools.wraps(write)
    def handler(run: Interpreter, op: Op) -> None:
        writer = Written(run, op)
        result = write(writer, *op.args, **op.kwargs) if op.outputs[0] is not None else None
        writer.end(result) if result is not None else gradient(run, op)

    return handler


@handles(F.glu)
@written_out
def _glu(w: Written, input: Any, dim: int = -1) -> Any:
    """One half times the sigmoid of the other, which is a gate."""
    half = w.value(input).shape[dim] // 2
    value, gate = w(torch.narrow, input, dim, 0, half), w(torch.narrow, input, dim, half, half)
    return w(torch.mul, value, w(torch.sigmoid, gate))


@handles(torch.lerp)
@written_out
def _lerp(w: Written, input: Any, end: Any, weight: Any) -> Any:
    """(1 - weight) · input + weight · end."""
    kept = 1 - weight if not isinstance(weight, Ref) else w(torch.rsub, weight, 1)
    return w(torch.add, w(torch.mul, input, kept), w(torch.mul, end, weight))


def _base_and(product: Callable[..., Any]) -> Callable[[Interpreter, Op], None]:
    """The handler of beta · base + alpha · (the product of two); the numbers have other names where there is one."""

    @written_out
    def base_and_product(
        w: Written, base: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1, value: float = 1
    ) -> Any:
        base, part = base if beta == 1 else w(torch.mul, base, beta), product(w, a, b)
        times = alpha * value
        return w(torch.add, base, part if times == 1 else w(torch.mul, part, times))

    return base_and_product


for _func, _product in (
    (torch.addcmul, torch.mul),
    (torch.addcdiv, torch.div),
    (torch.addmm, torch.matmul),
    (torch.addmv, torch.mv),
    (torch.addr, torch.outer),
    (torch.baddbmm, torch.bmm),
):
    handles(_func)(_base_and(lambda w, a, b, product=_product: w(product, a, b)))
handles(*named("sparse_addmm"))(_base_and(lambda w, a, b: w(torch.matmul, a, b)))
handles(torch.addbmm)(_base_and(lambda w, a, b: w(torch.sum, w(torch.bmm, a, b), 0)))


@handles(torch.chain_matmul, torch.linalg.multi_dot)
@written_out
def _chain_matmul(w: Written, *matrices: Any, tensors: Any = ()) -> Any:
    """One product after the other."""
    return functools.reduce(lambda left, right: w(torch.matmul, left, right), leaves((matrices, tensors)))


@handles(torch.einsum)
def _einsum(run: Interpreter, op: Op) -> None:
    """One product after the other."""
    equation, *operands = leaves(op.args)
    if contract_stack(run, op):
        return None
    if len(operands) == 1:
        return structural(run, op)
    if len(operands) < 3 or not isinstance(equation, str):
        return multilinear(run, op)
    w = Written(run, op)
    given, _, out = equation.replace(" ", "").partition("->")
    parts = given.split(",")
    out = out if "->" in equation else "..." * ("..." in given) + "".join(sorted(_once(given)))
    made, letters = operands[0], parts[0]
    for i, (part, operand) in enumerate(zip(parts[1:], operands[1:], strict=True), 2):
        needed = "".join(parts[i:]) + out
        kept = [x for x in dict.fromkeys((letters + part).replace("...", "")) if x in needed]
        after = out if i == len(parts) else "..." * ("..." in letters + part) + "".join(kept)
        made, letters = w(torch.einsum, f"{letters},{part}->{after}", made, operand), after
    w.end(made)


def _once(given: str) -> set[str]:
    """The letters of an equation that stand in it once."""
    return {letter for letter in given if letter.isalpha() and given.count(letter) == 1}


@handles(torch.diff)
@written_out
def _diff(w: Written, input: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """What comes after, less what comes before."""
    size = w.value(input).shape[dim] if isinstance(input, Ref) else 0
    if n != 1 or size < 2 or prepend is not None or append is not None:
        return None
    return w(torch.sub, w(torch.narrow, input, dim, 1, size - 1), w(torch.narrow, input, dim, 0, size - 1))


@handles(F.bilinear)
@written_out
def _bilinear(w: Written, input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """A weight on the first, and its product with the second."""
    if isinstance(weight, Ref):
        return None
    first, second = (input1, input2) if isinstance(input1, Ref) else (input2, input1)
    mixed = w(torch.einsum, "...i,oij->...oj" if first is input1 else "...j,oij->...oi", first, weight.detach())
    result = w(torch.einsum, "...oj,...j->...o", mixed, second)
    return result if bias is None else w(torch.add, result, bias)


@handles(
    torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d
)
def _convolution(run: Interpreter, op: Op) -> None:
    """A weight, and a bias for every channel."""
    args, kwargs = op.args, dict(op.kwargs)
    bias = args[2] if len(args) > 2 else kwargs.pop("bias", None)
    if len(args) < 2 or isinstance(args[1], Ref):
        return gradient(run, op)
    if bias is None:
        return multilinear(run, op)
    w = Written(run, op)
    shape = (-1, *[1] * (w.value(args[1]).dim() - 2))
    w.end(w(torch.add, w(op.func, *args[:2], None, *args[3:], **kwargs), w(torch.reshape, bias, shape)))


@handles(F.embedding)
@written_out
def _embedding(
    w: Written, input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None, *rest: Any,
    **given: Any,
) -> Any:  # fmt: skip
    """Rows picked by number from a table that is followed; torch.embedding has the table first."""
    input, weight = (weight, input) if isinstance(input, Ref) else (input, weight)
    if isinstance(input, Ref) or isinstance(max_norm, float):
        return None
    rows = w(Tensor.index_select, weight, 0, input.flatten().long())
    return w(torch.reshape, rows, (*input.shape, w.value(weight).shape[1]))


@handles(F.embedding_bag)
@written_out
def _embedding_bag(
    w: Written, input: Any, weight: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Any:  # fmt: skip
    """Rows picked by number from a table that is followed, and added up bag by bag."""
    unusual = max_norm is not None or include_last_offset or padding_idx is not None or mode not in ("sum", "mean")
    if unusual or not isinstance(input, Tensor) or not isinstance(weight, Ref) or isinstance(per_sample_weights, Ref):
        return None
    if offsets is None:
        offsets = torch.arange(input.shape[0], device=input.device) * input.shape[1]
    input, sizes = input.flatten().long(), torch.cat([offsets[1:], offsets.new_tensor([input.numel()])]) - offsets
    bag = torch.repeat_interleave(torch.arange(len(offsets), device=offsets.device), sizes)
    rows = w(Tensor.index_select, weight, 0, input)
    if per_sample_weights is not None:
        rows = w(torch.mul, rows, per_sample_weights.reshape(-1, 1))
    total = w(torch.index_add, w.value(weight).new_zeros(len(offsets), w.value(weight).shape[1]), 0, bag, rows)
    return total if mode == "sum" else w(torch.div, total, sizes.clamp(min=1).view(-1, 1))


@handles(F.cosine_similarity)
@written_out
def _cosine_similarity(w: Written, x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """The product of both, over their norms, which are held constant."""
    norms = [w.value(x).norm(dim=dim).clamp(min=eps) for x in (x1, x2)]
    return w(torch.div, w(torch.sum, w(torch.mul, x1, x2), dim), norms[0] * norms[1])


@handles(F.scaled_dot_product_attention)
@written_out
def _attention(
    w: Written, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """The values, mixed by attention, which is held constant."""
    if dropout_p > 0 or enable_gqa or isinstance(attn_mask, Ref):
        return None
    q, k = w.value(query), w.value(key)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    hidden = _hidden(q, k, attn_mask, is_causal)
    scores = scale * (q @ k.transpose(-2, -1))
    scores = scores if hidden is None else scores + hidden
    return w(torch.matmul, scores.softmax(-1), value)


def _hidden(q: Tensor, k: Tensor, mask: Any, causal: bool) -> Tensor | None:
    """What a mask adds to the scores: -∞ where nothing may be seen."""
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is None or mask.dtype != torch.bool:
        return mask  # type: ignore[no-any-return]
    return torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~mask, -math.inf)


@handles(F.multi_head_attention_forward)
def _heads(run: Interpreter, op: Op) -> None:
    """The projected values, mixed by each head's attention, which is held constant, and projected again."""
    names = inspect.signature(F.multi_head_attention_forward).parameters
    given = {name: p.default for name, p in names.items()} | dict(zip(names, op.args, strict=False)) | op.kwargs
    plain = not any(isinstance(leaf, Ref) for name in names for leaf in leaves(given[name]) if name not in _QKV)
    unusual = given["add_zero_attn"] or any(given[name] is not None for name in _EXTRA)
    random = given["training"] and given["dropout_p"] > 0
    if not plain or unusual or random or op.outputs[0] is None:
        return gradient(run, op)
    w = Written(run, op)
    w.end(_mixed(w, given, _attentions(w, given)))
    for slot in op.outputs[1:]:
        if slot is not None:  # the attention itself
            run.flows[slot] = Flow(run.value(slot), run.builder.new_slot(), call=op.call, gate=GATES["softmax"])


_QKV = ("query", "key", "value")
_EXTRA = ("bias_k", "bias_v", "static_k", "static_v")


def _attentions(w: Written, given: dict[str, Any]) -> Tensor:
    """Every head's attention.  # (B · H, L, S)"""
    values = {name: w.value(given[name]) for name in _QKV}
    arguments = given | values | {"need_weights": True, "average_attn_weights": False}
    _, attention = F.multi_head_attention_forward(**arguments)
    assert attention is not None
    return attention.detach().reshape(-1, *attention.shape[-2:])


def _mixed(w: Written, given: dict[str, Any], attention: Tensor) -> Any:
    """The values' way through the heads."""
    value, width, heads = given["value"], given["embed_dim_to_check"], given["num_heads"]
    packed, bias = given["in_proj_weight"], given["in_proj_bias"]
    weight = given["v_proj_weight"] if given["use_separate_proj_weight"] else packed[2 * width :]
    sent = w(F.linear, value, weight, None if bias is None else bias[2 * width :])  # (S, B, E) or (S, E)
    length, across = w.value(value).shape[0], (len(attention), width // heads)
    sent = w(torch.transpose, w(torch.reshape, sent, (length, *across)), 0, 1)  # (B · H, S, D)
    seen = w(torch.transpose, w(torch.matmul, attention, sent), 0, 1)  # (L, B · H, D)
    rows = w(torch.reshape, seen, (-1, width))
    made = w(F.linear, rows, given["out_proj_weight"], given["out_proj_bias"])
    return w(torch.reshape, made, (attention.shape[1], *w.value(value).shape[1:-1], w.value(made).shape[-1]))
