"""Complex numbers on a tape, as pairs of real ones.

A complex tensor (K, …) becomes a real one, (K, …, 2), and nothing later meets complex numbers. Sums and products are
written out as those of real numbers. Fourier transforms, conjugates and parts of numbers are linear maps with
coefficients of either sign; these are no weights, so no rule lifts them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.core.cast import mapped
from walkwise.core.differential import leaves
from walkwise.core.operators import RowMap
from walkwise.tracing.meaning.by_row import maps_by_row
from walkwise.tracing.meaning.interpreter import Interpreter, result_at_zero, selection
from walkwise.tracing.recording.aliases import unseen_part
from walkwise.tracing.recording.recorded import Op, Ref, filled
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.recording.words import Word, word
from walkwise.tracing.stretches.expressions import Coefficients, nonnegative_map

#: Functions that take real numbers for complex ones.
_TO_REAL = frozenset({"fft_irfft", "fft_irfft2", "fft_irfftn", "fft_hfft", "fft_hfft2", "fft_hfftn"})
_FOURIER = _TO_REAL | {
    "fft_fft", "fft_ifft", "fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn", "fft_rfft", "fft_rfft2", "fft_rfftn",
    "fft_ihfft", "fft_ihfft2", "fft_ihfftn",
}  # fmt: skip
_LINEAR = _FOURIER | {
    "conj", "real", "imag", "complex", "view_as_complex", "view_as_real", "neg", "H", "mH", "adjoint", "to", "type",
    "cfloat", "cdouble", "float", "double",
}  # fmt: skip
#: One function for every handler of those that move entries or add them up.
_MOVING: tuple[Callable[..., Any], ...] = (
    Tensor.view, Tensor.__getitem__, torch.cat, torch.narrow, torch.sum, torch.stack, torch.scatter_add, torch.flip,
    torch.masked_fill, torch.scatter,
)  # fmt: skip
#: Those whose handlers do not mind that a pair has one dimension more.
_AS_EVER = _MOVING[:2]
_SUMS: dict[str, Callable[..., Any]] = {"add": torch.add, "sub": torch.sub, "rsub": torch.rsub}
#: Functions that are linear in each of two tensors.
_PRODUCTS: dict[str, Callable[..., Any]] = {
    "mul": torch.mul, "matmul": torch.matmul, "bmm": torch.bmm, "mv": torch.mv, "einsum": torch.einsum,
    "linear": F.linear, "tensordot": torch.tensordot, "inner": torch.inner, "outer": torch.outer, "dot": torch.dot,
}  # fmt: skip


def write_pairs(tape: Tape) -> None:
    """Write the complex numbers of a finished tape as pairs."""
    pairs = {slot for slot, value in enumerate(tape.values) if value.is_complex()}
    for slot in pairs:
        tape.values[slot] = _pair_of(tape.values[slot])
    ops, tape.ops = tape.ops, []
    for op in ops:
        real = pairs.isdisjoint(op.inputs) and pairs.isdisjoint(slot for slot in op.outputs if slot is not None)
        if real and op.word.name not in _TO_REAL:
            tape.ops.append(op)
        else:
            _Writer(tape, pairs, op).write()


@dataclass(frozen=True, eq=False)
class _OnPairs:
    """A function of complex numbers as one of pairs."""

    func: Callable[..., Any]
    places: frozenset[int]  # of the pairs among its arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Its result, with pairs for complex numbers."""
        places = iter(range(len(leaves((args, kwargs)))))
        given, named = mapped((args, kwargs), lambda leaf: _whole(leaf) if next(places) in self.places else leaf)
        result = self.func(*given, **named)
        return tuple(map(_pair_of, result)) if isinstance(result, (tuple, list)) else _pair_of(result)


def _linear(run: Interpreter, op: Op) -> None:
    """A linear map with coefficients of either sign that are no weights."""
    found = maps_by_row(run, op)
    if found is None:
        return selection(run, op)
    flows = {slot: run.read(op, slot, within=op.call is not None) for slot in op.inputs}
    for output, by_input in found.items():
        signed = {
            slot: Coefficients(make=RowMap, tensor=each.matrix) if isinstance(each, RowMap) else nonnegative_map(each)
            for slot, each in by_input.items()
        }
        terms = [(flows[slot], each) for slot, each in signed.items()]
        run.combine(op, terms, result_at_zero(run, op, flows, output), output)


class _Writer:
    """Writes one operation onto a tape: as functions of real numbers, or itself as a function of pairs."""

    def __init__(self, tape: Tape, pairs: set[int], op: Op) -> None:
        self.tape, self.pairs, self.op = tape, pairs, op

    def write(self) -> None:
        """Write it out, if it consists of others."""
        op, name = self.op, self.op.word.name
        write: Callable[..., Any] | None = _WRITTEN.get(name, _held if op.word.pointwise else None)
        result = None if write is None or len(op.outputs) > 1 else write(self, *op.args, **op.kwargs)
        if result is None:
            given = enumerate(leaves((op.args, op.kwargs)))
            places = frozenset(place for place, leaf in given if self.is_pair(leaf))
            written = replace(op, func=_OnPairs(op.func, places))
            written.word = self._word(written)
            self.tape.ops.append(written)
            self._check(written.run(self.tape.values.__getitem__))
        else:
            self._check([self.value(result)])
            self.tape.ops[-1].outputs = op.outputs

    def _check(self, results: Sequence[Tensor]) -> None:
        """Refuse numbers that were changed after they were made: torch tells no one when a part is set."""
        for slot, result in zip(self.op.outputs, results, strict=True):
            if slot is None or not result.numel():
                continue
            value = self.tape.values[slot]
            most = 1e-3 * float(value.nan_to_num(0.0, 0.0, 0.0).abs().max()) + 1e-5
            if not torch.allclose(result.to(value), value, 1e-3, most, equal_nan=True):
                raise unseen_part()

    def _word(self, op: Op) -> Word:
        """What is known of a function on pairs; there is no rule for one that is not linear."""
        known, name = op.word, op.word.name
        if name in _FOURIER:
            name = "fft" if self._mixes_rows(op) else "fft_of_columns"
        if op.word.name in _LINEAR:
            return replace(known, name=name, handler=_linear, pointwise=False)
        if known.handler in map(_handler, _AS_EVER):
            return known
        if known.handler in map(_handler, _MOVING):
            return replace(known, handler=_handler(torch.transpose))
        return replace(known, name=f"{name} of complex numbers", handler=None, pointwise=False)

    def _mixes_rows(self, op: Op) -> bool:
        """Whether other rows of a linear function's result hang on the first one of its input."""

        def first_row(slot: int) -> Tensor:
            value = torch.zeros_like(self.tape.values[slot])
            value[:1] = 1
            return value

        made = op.run(first_row)[0]
        return len(made) != len(self.tape.values[op.inputs[0]]) or bool(made[1:].any())

    def __call__(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """One function of real numbers; of constants it is a constant."""
        given, named = filled((args, kwargs), self.tape.values.__getitem__, {})
        inputs = tuple(dict.fromkeys(a.slot for a in leaves(args) if isinstance(a, Ref)))
        value = func(*given, **named)
        if not inputs:
            return value
        slot = len(self.tape.values)
        self.tape.values.append(value.detach())
        made = replace(self.op, word=word(func), func=func, args=args, kwargs=kwargs, inputs=inputs, outputs=(slot,))
        self.tape.ops.append(made)
        return Ref(slot)

    def value(self, item: Any) -> Tensor:
        """The value of an argument, a pair where it is one."""
        return self.tape.values[item.slot] if isinstance(item, Ref) else torch.as_tensor(item)

    def is_pair(self, item: Any) -> bool:
        """Whether an argument is a pair."""
        return isinstance(item, Ref) and item.slot in self.pairs

    def parts(self, item: Any) -> tuple[Any, Any]:
        """The real and the imaginary part of an argument, which is None if it is 0."""
        if self.is_pair(item):
            return self(Tensor.select, item, -1, 0), self(Tensor.select, item, -1, 1)
        with torch.enable_grad():
            return (item.real, item.imag) if self.value(item).is_complex() else (item, None)

    def pair(self, item: Any) -> Any:
        """An argument as a pair."""
        return item if self.is_pair(item) else self.joined(*self.parts(item))

    def joined(self, real: Any, imag: Any) -> Any:
        """Two parts as a pair."""
        new = self.tape.values[self.op.inputs[0]].new_tensor
        parts = [part if isinstance(part, (Ref, Tensor)) else new(part or 0.0) for part in (real, imag)]
        shape = torch.broadcast_shapes(*(self.value(part).shape for part in parts))  # type: ignore[no-untyped-call]
        wide = [part if self.value(part).shape == shape else self(torch.broadcast_to, part, shape) for part in parts]
        return self(torch.stack, wide, -1)


def _sum(w: _Writer, left: Any, right: Any, **given: Any) -> Any:
    return w(_SUMS[w.op.word.name], w.pair(left), w.pair(right), **given)


def _picked(w: _Writer, pair: Any, dim: int, index: Any) -> Any:
    """Rows by number; dimensions are counted from the first."""
    return w(Tensor.index_select, pair, dim % (w.value(pair).dim() - 1), index)


def _added_by_number(w: _Writer, base: Any, dim: int, index: Tensor, source: Any, **given: Any) -> Any:
    """Rows, or entries, added up: those of pairs by the same numbers."""
    base, source, by_entry = w.pair(base), w.pair(source), w.op.word.name == "scatter_add"
    shape = w.value(source).shape
    if given or (by_entry and index.shape != shape[:-1]):
        return None
    index = index.unsqueeze(-1).expand(shape) if by_entry else index
    return w(torch.scatter_add if by_entry else torch.index_add, base, dim % (len(shape) - 1), index, source)


def _product(w: _Writer, *args: Any, bias: Any = None, **given: Any) -> Any:
    """(a + bi)(c + di) = ac - bd + (ad + bc)i."""
    func, items = _PRODUCTS[w.op.word.name], leaves(args) if w.op.word.name == "einsum" else list(args)
    first, bias = int(func is torch.einsum), items.pop() if func is F.linear and len(items) > 2 else bias
    if given or len(items) < first + 2 or (first and len(items) > 3):
        return None
    pair = _multiplied(
        w, items[first], items[first + 1], lambda x, y: w(func, *items[:first], x, y, *items[first + 2 :])
    )
    return pair if bias is None else w(torch.add, pair, w.pair(bias))


def _multiplied(w: _Writer, left: Any, right: Any, times: Callable[[Any, Any], Any] | None = None) -> Any:
    (a, b), (c, d) = w.parts(left), w.parts(right)

    def total(func: Callable[..., Any], *pairs: tuple[Any, Any]) -> Any:
        made = [(times or partial(w, torch.mul))(x, y) for x, y in pairs if x is not None and y is not None]
        return w(func, *made) if len(made) == 2 else made[0] if made else None

    return w.joined(total(torch.sub, (a, c), (b, d)), total(torch.add, (a, d), (b, c)))


def _quotient(w: _Writer, left: Any, right: Any, **given: Any) -> Any:
    """A divisor is held constant."""
    if given or not isinstance(left, Ref):
        return _held(w)
    right = _whole(w.value(right)) if w.is_pair(right) else right
    if not isinstance(right, Ref) and w.value(right).is_complex():
        return _multiplied(w, left, 1 / right)
    return w(torch.div, w.pair(left), w(torch.unsqueeze, right, -1) if w.value(right).dim() else right)


def _held(w: _Writer, *args: Any, **kwargs: Any) -> Any:
    """A function of single entries is h = z · [h / z] with the bracket held constant, as for real numbers."""
    (slot, *others), output = w.op.inputs, w.op.outputs[0]
    if others or slot not in w.pairs or output not in w.pairs:
        return None
    z, h = (_whole(w.tape.values[each]) for each in (slot, output))
    made = _multiplied(w, Ref(slot), torch.where(z == 0, 0, h / z)) if z.shape == h.shape else None
    alone = torch.where(z == 0, h, 0)
    return made if made is None or not bool(alone.any()) else w(torch.add, made, _pair_of(alone))


def _absolute(w: _Writer, pair: Any) -> Any:
    return w(torch.sqrt, w(torch.sum, w(torch.mul, pair, pair), -1))


def _polar(w: _Writer, abs: Any, angle: Any) -> Any:
    return w.joined(*(w(torch.mul, abs, w(func, angle)) for func in (torch.cos, torch.sin)))


_WRITTEN: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_SUMS, _sum),
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(("index_add", "scatter_add"), _added_by_number),
    "index_select": _picked,
    "div": _quotient,
    "abs": _absolute,
    "sgn": _held,
    "polar": _polar,
}


def _handler(func: Callable[..., Any]) -> Any:
    return word(func).handler


def _pair_of(item: Any) -> Any:
    """A complex tensor as a pair; anything else as it is."""
    return torch.view_as_real(item.resolve_conj()) if isinstance(item, Tensor) and item.is_complex() else item


def _whole(pair: Tensor) -> Tensor:
    """A pair as a complex tensor."""
    return torch.view_as_complex(pair.contiguous())
