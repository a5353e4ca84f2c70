"""The table of torch functions: what each means for relevance, keyed by the function itself.

A function is *handled* (a handler says of which linear maps it consists), *constant* (its result does not depend
differentiably on its arguments), or *the same* (its result is its input). For any other function the plain gradient is
used, and the chain says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from walkwise.tracing.recording.spellings import Function, by_name, plain_name, spellings, writes

if TYPE_CHECKING:
    from walkwise.tracing.meaning.interpreter import Interpreter
    from walkwise.tracing.recording.recorded import Op

Handler = Callable[["Interpreter", "Op"], None]

_HANDLERS: dict[Function, Handler] = {}


def handles(*functions: Function) -> Callable[[Handler], Handler]:
    """Decorate a handler to register it for functions, in all their spellings."""

    def add(handler: Handler) -> Handler:
        for func in functions:
            for spelling in spellings(func):
                if _HANDLERS.setdefault(spelling, handler) is not handler:
                    raise ValueError(f"{spelling} already has a handler: {_HANDLERS[spelling].__qualname__}.")
        return handler

    return add


def named(*names: str) -> frozenset[Function]:
    """The functions with these names, in all their spellings."""
    return frozenset(func for name in names for func in by_name().get(name, ()))


#: Floating-point results that do not depend differentiably on their input.
CONSTANT = named(
    "detach", "detach_copy", "data", "zeros_like", "ones_like", "full_like", "empty_like", "rand_like",
    "randn_like", "randint_like", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "new", "sign", "sgn",
    "signbit", "round", "floor", "ceil", "trunc", "fix", "floor_divide", "floordiv", "rfloordiv", "ifloordiv",
    "bernoulli", "heaviside", "grad", "rand", "randn", "isfinite", "isnan", "isinf", "nonzero", "argmax", "argmin",
    "argsort", "bincount", "histc", "poisson", "new_empty_strided", "zero", "normal", "uniform", "exponential",
    "geometric", "cauchy", "log_normal", "random", "binomial", "nextafter",
)  # fmt: skip

#: Functions whose results do not involve the tensor's numbers.
ASKING = named(
    "size", "dim", "shape", "dtype", "device", "ndim", "ndimension", "numel", "nelement", "len", "is_floating_point",
    "is_complex", "is_contiguous", "is_sparse", "is_cuda", "is_quantized", "layout", "stride", "storage_offset",
    "element_size", "get_device", "is_nested", "is_mkldnn", "is_inference", "is_signed", "itemsize", "nbytes",
)  # fmt: skip

#: The same numbers under another tensor.
SAME = named(
    "clone", "contiguous", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "native_dropout",
    "dropout1d", "dropout2d", "dropout3d", "requires_grad", "alias", "positive", "pos", "cpu", "cuda", "alias_copy",
    "pin_memory", "share_memory", "resolve_conj", "resolve_neg", "as_subclass", "xpu", "ipu", "mtia",
)  # fmt: skip

#: What a normalisation module computes of its input in the first place: its statistics, held constant.
STATISTICS = named(
    "mean", "sum", "var", "std", "norm", "var_mean", "std_mean", "amax", "max", "linalg_vector_norm",
    "scatter_add", "scatter_reduce", "index_add", "scatter", "segment_reduce",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Word:
    """What is known of a torch function."""

    name: str
    handler: Handler | None
    writes: bool  # into its first argument
    constant: bool
    same: bool
    statistic: bool
    pointwise: bool  # an activation, which may be asked to write (inplace=True)
    simple: bool  # of tensors and numbers alone, into a new tensor
    asks: bool = False  # its result does not involve the tensor's numbers


#: Functions that take only tensors and numbers, by position, as most operations of a model do.
_SIMPLE = frozenset({"linear", "relu", "add", "sub", "mul", "div", "neg", "matmul", "tanh", "elu", "gelu", "silu"})


@functools.lru_cache(maxsize=4096)
def word(func: Function) -> Word:
    """Look up what is known of a function; one that torch does not list is looked up by name."""
    name, write = plain_name(func), writes(func)
    kin: Iterable[Function] = (func, *by_name().get(name, ()))
    handler = next((_HANDLERS[f] for f in kin if f in _HANDLERS), None)

    def among(functions: frozenset[Function]) -> bool:
        return any(f in functions for f in kin)

    return Word(
        name=name,
        handler=handler,
        writes=write,
        constant=among(CONSTANT),
        same=among(SAME),
        statistic=among(STATISTICS),
        pointwise=getattr(handler, "pointwise", False),
        simple=name in _SIMPLE and not write,
        asks=func in ASKING and not write,
    )


def asked_to_write(word: Word, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an activation was called with inplace=True."""
    return word.pointwise and (kwargs.get("inplace", False) is True or any(arg is True for arg in args[1:]))
