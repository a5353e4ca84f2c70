"""A model run with everything that relevance holds constant detached: then LRP-0 is gradient times input."""

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from walkwise.tracing.recording.spellings import plain_name, writes

_BENT = {
    "sigmoid", "softmax", "exp",
    "tanh", "elu", "gelu", "silu", "softplus", "selu", "mish", "celu", "hardswish", "abs", "log", "log1p", "sqrt",
    "pow", "square", "clamp",
}  # fmt: skip


_STATISTICS = {"mean", "sum", "var", "std", "norm", "scatter_add", "index_add", "scatter_reduce", "scatter"}
_NORMS = (pyg.LayerNorm, pyg.GraphNorm, pyg.PairNorm, pyg.InstanceNorm)


class Held(TorchFunctionMode):
    """Gates and divisors detached, activations as z · [h / z], normalisations with their statistics detached.

    Of a product of two that are neither, each gets half; of several, each the same.
    """

    def __init__(self, model, gates):
        super().__init__()
        self.gates = gates
        self.norms = 0
        self.hooks = []
        for module in model.modules():
            if isinstance(module, _NORMS):
                self.hooks.append(module.register_forward_pre_hook(lambda *_: self._enter(1)))
                self.hooks.append(module.register_forward_hook(lambda *_: self._enter(-1)))

    def _enter(self, by):
        self.norms += by

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, plain_name(func)
        if name in _SEVERAL:
            with torch._C.DisableTorchFunction():
                return _SEVERAL[name](*args, **kwargs)
        bends = name in _BENT and name not in self.gates
        if bends and writes(func) and args[0].requires_grad:  # into its input, which is needed
            with torch._C.DisableTorchFunction():
                return _bent(lambda z: func(z.detach().clone(), *args[1:], **kwargs), args[0])
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor) or not result.requires_grad:
            return result
        with torch._C.DisableTorchFunction():
            if name in self.gates or (self.norms and name in _STATISTICS):
                return result.detach()
            return _held(name, result, args, kwargs)


def _held(name, result, args, kwargs):
    """A function's result with what it holds detached."""
    if name in _BENT and result.shape == args[0].shape:
        z = args[0].detach()
        return args[0] * torch.where(z == 0, 0.0, result.detach() / z)
    if name == "div" and isinstance(args[1], Tensor) and args[1].requires_grad:
        return args[0] / args[1].detach() if isinstance(args[0], Tensor) else result.detach()
    if name in ("mul", "matmul") and all(isinstance(a, Tensor) and a.requires_grad for a in args[:2]):
        return _held_product(name, *args[:2])
    if name == "einsum" and len(args) == 3 and all(a.requires_grad for a in args[1:]):
        return _held_einsum(*args)
    if name == "scatter_reduce" and "prod" in (*args[4:5], kwargs.get("reduce")):
        count = torch.zeros_like(result.detach()).scatter_add(args[1], args[2], torch.ones_like(args[3]).detach())
        return result.detach() + (result - result.detach()) / count.clamp(min=1)
    if name == "log_softmax":
        return args[0] + (result - args[0]).detach()
    if name == "normalize":
        return args[0] * (result.detach() / args[0].detach()).nan_to_num()
    return _WRITTEN[name](*args, **kwargs) if name in _WRITTEN else result


def _held_product(name, a, b):
    """A factor that is broadcast over the other is a gate; of others each gets half."""
    function = torch.mul if name == "mul" else torch.matmul
    whole = torch.broadcast_shapes(a.shape, b.shape).numel() if name == "mul" else 0
    if name == "mul" and (a.numel() < whole) is not (b.numel() < whole):
        return a.detach() * b if a.numel() < whole else a * b.detach()
    return function(a, b.detach()) / 2 + function(a.detach(), b) / 2


def _held_einsum(equation, a, b):
    """As a product: a factor of every row of the other is a gate."""
    first, second, out = equation.replace("->", ",").split(",")
    if set(first) < set(second) == set(out):
        return torch.einsum(equation, a.detach(), b)
    return torch.einsum(equation, a, b.detach()) / 2 + torch.einsum(equation, a.detach(), b) / 2


def held_gru(x, h, w_x, w_h, b_x, b_h):
    """A GRU whose gates are detached."""
    from_x, from_h = F.linear(x, w_x, b_x).chunk(3, 1), F.linear(h, w_h, b_h).chunk(3, 1)
    reset, update = ((a + b).sigmoid().detach() for a, b in zip(from_x[:2], from_h[:2], strict=True))
    new = from_x[2] + reset * from_h[2]
    return (1 - update) * new * (new.tanh() / new).detach() + update * h


def _bent(function, z):
    """z · [h / z]."""
    return z * torch.where(z == 0, 0.0, function(z) / z).detach()


def _held_lstm(x, begun, weights, biased, layers, dropout, train, both_ways, batch_first):
    """An LSTM whose gates are detached."""
    given = biased, layers, dropout, train, both_ways
    if both_ways or not biased:  # just scores are made of it here
        return torch.lstm(x, begun, weights, *given, batch_first)
    if batch_first:
        made, *states = _held_lstm(x.transpose(0, 1), begun, weights, *given, False)
        return made.transpose(0, 1), *states
    steps, last = list(x.unbind(0)), []
    for layer in range(layers):
        on_x, on_memory, bias_x, bias_memory = weights[4 * layer : 4 * layer + 4]
        h, c = begun[0][layer], begun[1][layer]
        for t, step in enumerate(steps):
            parts = F.linear(step, on_x, bias_x) + F.linear(h, on_memory, bias_memory)
            let_in, forget, new, let_out = parts.chunk(4, -1)
            c = forget.sigmoid().detach() * c + let_in.sigmoid().detach() * _bent(torch.tanh, new)
            steps[t] = h = let_out.sigmoid().detach() * _bent(torch.tanh, c)
        last.append((h, c))
    return torch.stack(steps), *(torch.stack(states) for states in zip(*last, strict=True))


def _held_grus(x, begun, weights, biased, layers, dropout, train, both_ways, batch_first):
    """GRUs one on top of the other, whose gates are detached."""
    assert biased
    assert not both_ways
    steps, last = list(x.unbind(1 if batch_first else 0)), []
    for layer in range(layers):
        h = begun[layer]
        for t, step in enumerate(steps):
            steps[t] = h = held_gru(step, h, *weights[4 * layer : 4 * layer + 4])
        last.append(h)
    return torch.stack(steps, 1 if batch_first else 0), torch.stack(last)


def _held_heads(query, key, value, width, heads, weight, bias, *rest, **given):
    """Attention by heads, which is detached; the values pass."""
    asked = given | {"need_weights": True, "average_attn_weights": False}
    _, attention = F.multi_head_attention_forward(
        query.detach(), key.detach(), value.detach(), width, heads, weight, bias, *rest, **asked
    )  # (B, H, L, S)
    out_weight, out_bias = rest[4:6]
    sent = F.linear(value, weight[2 * width :], bias[2 * width :])  # (S, B, E)
    sent = sent.view(*sent.shape[:2], heads, -1).permute(1, 2, 0, 3)  # (B, H, S, D)
    seen = (attention.detach() @ sent).permute(2, 0, 1, 3).flatten(2)  # (L, B, E)
    return F.linear(seen, out_weight, out_bias), None


_SEVERAL = {"lstm": _held_lstm, "gru": _held_grus, "multi_head_attention_forward": _held_heads}


def _held_instance_norm(x, *_, eps=1e-5, **given):
    """Every graph's mean and spread detached."""
    scale = (x.detach().var(tuple(range(2, x.dim())), unbiased=False, keepdim=True) + eps).rsqrt()
    return x * scale + (F.instance_norm(x, eps=eps) - x * scale).detach()


def _held_layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    scale = (x.detach().var(tuple(range(-len(shape), 0)), unbiased=False, keepdim=True) + eps).rsqrt()
    scale = scale if weight is None else scale * weight.detach()
    return x * scale + (F.layer_norm(x, shape, weight, bias, eps) - x * scale).detach()


_WRITTEN = {"gru_cell": held_gru, "instance_norm": _held_instance_norm, "layer_norm": _held_layer_norm}


def gradient_times_input(model, x, edge_index, scalar, gates):
    """x ⊙ ∂y/∂x of the model with all that held; of whole numbers, of the embeddings that they become.  # (M, F)"""
    embedded, hooks = [], []

    def embeds(module, given, made):
        if given[0].data_ptr() == x.data_ptr() and len(made) == len(x):
            embedded.append(made.detach().requires_grad_(True))
            return embedded[-1]
        return None

    if not x.is_floating_point():
        tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
        hooks = [table.register_forward_hook(embeds) for table in tables]
    leaf = x.clone().requires_grad_(True) if x.is_floating_point() else x
    with Held(model, gates):
        output = scalar(model(leaf, edge_index))
    for hook in hooks:
        hook.remove()
    leaves = embedded or [leaf]
    gradients = torch.autograd.grad(output, leaves, materialize_grads=True)
    return torch.cat([gradient * leaf.detach() for gradient, leaf in zip(gradients, leaves, strict=True)], -1)
