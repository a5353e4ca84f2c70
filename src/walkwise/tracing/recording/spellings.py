"""All the spellings of a torch function: ``torch.add``, ``Tensor.add_``, ``Tensor.__radd__`` and so on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from walkwise.tracing.private import overridable_functions

Function = Callable[..., Any]

#: Names that mean the same operation as another.
_ALIASES = {
    "radd": "add", "iadd": "add", "isub": "sub", "subtract": "sub", "rmul": "mul", "imul": "mul", "dsmm": "matmul",
    "spmm": "matmul",
    "multiply": "mul", "truediv": "div", "idiv": "div", "divide": "div",
    "true_divide": "div", "negative": "neg", "mm": "matmul", "concat": "cat",
    "concatenate": "cat", "log_sigmoid": "logsigmoid", "absolute": "abs",
    "clip": "clamp", "clamp_min": "clamp", "clamp_max": "clamp",
    "moveaxis": "movedim", "swapaxes": "transpose", "swapdims": "transpose", "row_stack": "vstack",
    "special_expit": "sigmoid", "special_softmax": "softmax", "special_log_softmax": "log_softmax",
    "special_expm1": "expm1", "special_log1p": "log1p", "special_erf": "erf", "arctan": "atan",
    "arcsin": "asin", "arccos": "acos", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arctan2": "atan2",
    "special_exp2": "exp2", "special_logit": "logit", "special_erfc": "erfc", "special_erfinv": "erfinv",
    "special_sinc": "sinc", "special_gammaln": "lgamma", "special_digamma": "digamma", "special_psi": "digamma",
    "special_logsumexp": "logsumexp", "special_round": "round", "special_i0": "i0", "special_xlogy": "xlogy",
    "ger": "outer", "linalg_matmul": "matmul", "linalg_diagonal": "diagonal", "unsafe_split_with_sizes":
    "split_with_sizes", "linalg_cross": "cross", "special_polygamma": "polygamma", "conj_physical": "conj",
    "inverse": "linalg_inv", "det": "linalg_det", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne",
}  # fmt: skip


def plain_name(func: Any) -> str:
    """The name of an operation, the same for all its spellings.

    >>> import torch
    >>> [plain_name(f) for f in (torch.relu_, torch.Tensor.__radd__, torch.Tensor.add_, torch.mm)]
    ['relu', 'add', 'add', 'matmul']
    """
    name = getattr(func, "__name__", type(func).__name__)
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    name = name.strip("_")
    return _ALIASES.get(name, name)


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
    """Whether a function silently replaces a tensor's numbers: ``h.data = …``.

    >>> import torch
    >>> [exchanges(f) for f in (torch.Tensor.data.__set__, torch.Tensor.requires_grad.__set__)]
    [True, False]
    """
    return getattr(func, "__name__", "") == "__set__" and getattr(func.__self__, "__name__", "") == "data"


@functools.cache
def by_name() -> dict[str, tuple[Function, ...]]:
    """Every function that torch lets modes intercept, by its plain name."""
    found: dict[str, list[Function]] = {}
    for func in overridable_functions():
        found.setdefault(plain_name(func), []).append(func)
    return {name: tuple(functions) for name, functions in found.items()}


def spellings(func: Function) -> tuple[Function, ...]:
    """The functions that do what this one does, under whatever name.

    >>> import torch
    >>> torch.Tensor.__iadd__ in spellings(torch.add)
    True
    """
    return tuple(dict.fromkeys((func, *by_name().get(plain_name(func), ()))))


#: The names of the arguments that handlers expect by position.
_ORDERS = {
    "linear": ("input", "weight", "bias"), "where": ("condition", "input", "other"), "bmm": ("input", "mat2"),
    "mv": ("input", "vec"), "dot": ("input", "tensor"), "tensordot": ("a", "b", "dims"), "inner": ("input", "other"),
    "outer": ("input", "vec2"), "addmm": ("input", "mat1", "mat2"), "baddbmm": ("input", "batch1", "batch2"),
    "addbmm": ("input", "batch1", "batch2"), "addmv": ("input", "mat", "vec"), "addr": ("input", "vec1", "vec2"),
    "lerp": ("input", "end", "weight"), "addcmul": ("input", "tensor1", "tensor2"),
    "addcdiv": ("input", "tensor1", "tensor2"), "cat": ("tensors", "dim"), "stack": ("tensors", "dim"),
    "index_select": ("input", "dim", "index"), "index_add": ("input", "dim", "index", "source"),
    "scatter_add": ("input", "dim", "index", "src"), "scatter": ("input", "dim", "index", "src"),
    "scatter_reduce": ("input", "dim", "index", "src", "reduce"), "masked_fill": ("input", "mask", "value"),
}  # fmt: skip
#: Other names of the same arguments.
_OTHER_KEYS = {"other": ("mat2",), "input": ("self",), "dim": ("axis",)}


def positional(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn arguments given by name into positional ones, as far as they directly follow the positional ones.

    >>> positional("linear", (1,), {"bias": 3, "weight": 2})
    ((1, 2, 3), {})
    """
    rest, placed = dict(kwargs), list(args)
    for key in _ORDERS.get(name, ("input", "other"))[len(args) :]:
        found = next((k for k in (key, *_OTHER_KEYS.get(key, ())) if k in rest), None)
        if found is None:
            break
        placed.append(rest.pop(found))
    return tuple(placed), rest
