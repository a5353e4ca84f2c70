"""What the names of torch functions mean for relevance."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

_ALIASES = {
    "radd": "add", "iadd": "add", "isub": "sub", "subtract": "sub", "rmul": "mul", "imul": "mul",
    "multiply": "mul", "truediv": "div", "itruediv": "div", "idiv": "div", "divide": "div",
    "true_divide": "div", "negative": "neg", "mm": "matmul", "imatmul": "matmul", "concat": "cat",
    "concatenate": "cat", "swish": "silu", "log_sigmoid": "logsigmoid", "absolute": "abs",
    "clip": "clamp", "clamp_min": "clamp", "clamp_max": "clamp", "ipow": "pow",
}  # fmt: skip

#: Entry by entry, with h = z · [h / z] and the bracket held constant. The ratio at z = 0 is its limit.
ELEMENTWISE = frozenset({
    "relu", "leaky_relu", "prelu", "rrelu", "elu", "celu", "selu", "gelu", "silu", "mish", "tanh",
    "relu6", "hardtanh", "hardswish", "softsign", "tanhshrink", "hardshrink", "softshrink",
    "threshold", "clamp", "abs", "square", "sqrt", "pow", "sin", "expm1", "log1p", "erf", "atan",
    "sigmoid", "hardsigmoid", "logsigmoid", "softplus", "exp", "log", "cos", "reciprocal", "rsqrt",
    "rdiv", "rtruediv", "rpow",
})  # fmt: skip

#: Of these, the ones whose ratio has no limit (or the limit 0): a zero passes nothing on.
SINGULAR = frozenset({
    "sigmoid", "hardsigmoid", "logsigmoid", "softplus", "exp", "log", "cos", "reciprocal", "rsqrt",
    "sqrt", "pow", "square", "threshold", "rdiv", "rtruediv", "rpow", "div", "clamp", "hardtanh",
})  # fmt: skip

#: Linear with coefficients that are 0 or positive: they move, copy, sum or average entries.
STRUCTURAL = frozenset({
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "t",
    "T", "mT", "swapaxes", "swapdims", "movedim", "view_as", "reshape_as", "expand", "expand_as",
    "broadcast_to", "repeat", "tile", "cat", "stack", "hstack", "vstack", "split", "chunk",
    "tensor_split", "unbind", "getitem", "index_select", "select", "narrow", "gather",
    "take_along_dim", "scatter_add", "index_add", "index_put", "setitem", "index_copy", "sum",
    "mean", "repeat_interleave", "roll", "flip", "pad", "masked_fill", "masked_select", "where",
    "tril", "triu", "cumsum", "scatter", "nan_to_num", "to", "type", "float", "double", "type_as",
    "to_dense_batch", "spmm", "clone", "contiguous", "sparse_mm", "dropout", "trace", "diagonal",
    "rmatmul", "index",
})  # fmt: skip

#: Values picked out of the input: the plain gradient is the winner's share.
SELECTION = frozenset({
    "max", "min", "amax", "amin", "maximum", "minimum", "sort", "topk", "median", "kthvalue",
    "cummax", "cummin", "aminmax", "quantile",
})  # fmt: skip

#: Linear reductions that are selections or products under some of their names.
REDUCE_ARGUMENT = frozenset({"scatter_reduce", "index_reduce", "segment_reduce"})

#: Statistics inside a normalisation module: held constant.
STATISTICS = frozenset({
    "mean", "sum", "var", "std", "norm", "var_mean", "std_mean", "amax", "max", "vector_norm",
    "scatter_add", "scatter_reduce", "index_add", "scatter", "segment_reduce",
})  # fmt: skip

#: Floating-point results that do not depend differentiably on their input.
CONSTANT = frozenset({
    "detach", "data", "zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like",
    "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "sign", "round", "floor", "ceil",
    "trunc", "fix", "floor_divide", "floordiv", "bernoulli", "heaviside", "grad", "rand", "randn",
})  # fmt: skip

#: The same numbers under another tensor.
SAME = frozenset({
    "clone", "contiguous", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
    "dropout1d", "dropout2d", "requires_grad", "alias", "positive",
})  # fmt: skip

#: How much a factor looks like a gate: in a product the higher one is held constant.
GATE_RANK = {"softmax": 2, "exp": 2, "sigmoid": 2, "hardsigmoid": 2, "tanh": 1}


#: Functions of one or two tensors that make a new one, called with nothing but those (and a number).
_PLAIN = frozenset({"linear", "relu", "add", "sub", "mul", "div", "neg", "matmul", "tanh", "elu", "gelu", "silu"})


class Word(NamedTuple):
    """What is known of a torch function by its name."""

    name: str
    writes: bool
    plain: bool


@functools.lru_cache(maxsize=1024)
def word(func: Any) -> Word:
    """What a torch function is called here, and how it may be recorded."""
    name, write = plain_name(func), writes(func)
    return Word(name, write, name in _PLAIN and not write)


def plain_name(func: Any) -> str:
    """The name under which a torch function is known here, the same for all its spellings.

    >>> import torch
    >>> [plain_name(f) for f in (torch.relu_, torch.Tensor.__radd__, torch.Tensor.add_, torch.mm)]
    ['relu', 'add', 'add', 'matmul']
    """
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    name = name.strip("_")
    return _ALIASES.get(name, name)


def positional(name: str, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments given by name in the places they have, as far as they come first."""
    rest = dict(kwargs)
    order = ("input", "weight", "bias") if name == "linear" else ("input", "other")
    args = []
    for key in order:
        if key not in rest:
            break
        args.append(rest.pop(key))
    return tuple(args), rest


def writes(func: Any) -> bool:
    """Whether a function always writes into its first argument.

    >>> import torch
    >>> [writes(f) for f in (torch.relu_, torch.Tensor.__iadd__, torch.relu)]
    [True, True, False]
    """
    name = getattr(func, "__name__", "")
    if name.startswith("__i") and name.endswith("__") and name not in ("__invert__", "__index__", "__int__"):
        return True
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def exchanges(func: Any) -> bool:
    """Whether a function gives a tensor other numbers behind everyone's back: ``h.data = …``.

    >>> import torch
    >>> [exchanges(f) for f in (torch.Tensor.data.__set__, torch.Tensor.requires_grad.__set__)]
    [True, False]
    """
    return getattr(func, "__name__", "") == "__set__" and getattr(func.__self__, "__name__", "") == "data"


def asked_to_write(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an activation was called with inplace=True."""
    if name not in ELEMENTWISE:
        return False
    return kwargs.get("inplace", False) is True or any(arg is True for arg in args[1:])
