"""A model run with everything that relevance holds constant detached: then LRP-0 is gradient times input."""

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from walkwise.tracing.spellings import plain_name

_GATES = {"sigmoid", "softmax", "exp"}
_BENT = {"tanh", "elu", "gelu", "silu", "softplus", "selu", "mish", "celu", "hardswish", "abs", "log", "log1p"}


_STATISTICS = {"mean", "sum", "var", "std", "norm", "scatter_add", "index_add", "scatter_reduce", "scatter"}
_NORMS = (pyg.LayerNorm, pyg.GraphNorm, pyg.PairNorm, pyg.InstanceNorm)


class Held(TorchFunctionMode):
    """Gates and divisors detached, activations as z · [h / z], normalisations with their statistics detached.

    Of a product of two that are neither, each gets half.
    """

    def __init__(self, model):
        super().__init__()
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
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor) or not result.requires_grad:
            return result
        with torch._C.DisableTorchFunction():
            if self.norms and name in _STATISTICS:
                return result.detach()
            if name in _GATES:
                return result.detach()
            if name in _BENT and result.shape == args[0].shape:
                z = args[0].detach()
                return args[0] * torch.where(z == 0, 0.0, result.detach() / z)
            if name == "div" and isinstance(args[1], Tensor) and args[1].requires_grad:
                divided = args[0] / args[1].detach() if isinstance(args[0], Tensor) else result.detach()
                return divided
            if name in ("mul", "matmul") and all(isinstance(a, Tensor) and a.requires_grad for a in args[:2]):
                return _held_product(name, *args[:2])
            if name == "gru_cell":
                return _held_gru(*args)
            if name == "layer_norm":
                return _held_layer_norm(*args, **kwargs)
            if name == "normalize":
                return args[0] * (result.detach() / args[0].detach()).nan_to_num()
        return result


def _held_product(name, a, b):
    """A factor that is broadcast is a gate; of others each gets half."""
    function = torch.mul if name == "mul" else torch.matmul
    if name == "mul" and a.numel() != b.numel():
        return a * b.detach() if a.numel() > b.numel() else a.detach() * b
    return function(a, b.detach()) / 2 + function(a.detach(), b) / 2


def _held_gru(x, h, w_x, w_h, b_x, b_h):
    """A GRU whose gates are detached."""
    from_x, from_h = F.linear(x, w_x, b_x).chunk(3, 1), F.linear(h, w_h, b_h).chunk(3, 1)
    reset, update = ((a + b).sigmoid().detach() for a, b in zip(from_x[:2], from_h[:2], strict=True))
    new = from_x[2] + reset * from_h[2]
    return (1 - update) * new * (new.tanh() / new).detach() + update * h


def _held_layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    scale = (x.detach().var(tuple(range(-len(shape), 0)), unbiased=False, keepdim=True) + eps).rsqrt()
    scale = scale if weight is None else scale * weight.detach()
    return x * scale + (F.layer_norm(x, shape, weight, bias, eps) - x * scale).detach()


def gradient_times_input(model, x, edge_index, scalar):
    """x ⊙ ∂y/∂x of the model with all that held.  # (M, F)"""
    leaf = x.clone().requires_grad_(True)
    with Held(model):
        output = scalar(model(leaf, edge_index))
    (gradient,) = torch.autograd.grad(output, leaf)
    return gradient * x
