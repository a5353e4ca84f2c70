"""The numbers of a chain: in single precision at least, and all finite."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from walkwise.core.chain import RelevanceChain
from walkwise.errors import InputError, TraceError
from walkwise.tracing.private import parameters_of
from walkwise.tracing.recording.recorded import Op
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.modules import Modules, check_weights

#: The half-precision types, in which relevance is not computed.
HALVES = (torch.float16, torch.bfloat16)
WIDENED = "the model is in {}; it was run, and its relevance computed, in torch.float32, with the same weights"
CAST = "the model computes in {}; the relevance of that part is in torch.float32"

#: This many numbers are put together faster than each tensor is added up by itself.
_FEW = 1 << 16
#: Maps that make no infinite number on purpose, as a mask before a softmax does.
_LINEAR = frozenset({"linear", "matmul", "bmm", "addmm", "baddbmm", "propagate", "batch_norm"})
#: A stabiliser swallows features smaller than this, and relevance this small counts as none.
_TINY, _NOTHING = 1e-8, 1e-6
_SWALLOWED = (
    "no relevance is left at the input: biases, the rule's stabiliser or rounding swallow node features of at most "
    "{:.3g}. Scale them. {}"
)


def half_of(model: nn.Module, features: Mapping[str, Tensor]) -> torch.dtype | None:
    """The half-precision type that all of a model's weights are in (its features, if it has none), or None."""
    weights = (t for module in model.modules() for t in parameters_of(module).values() if t is not None)
    first = next(weights, None)  # looking at all of them takes time
    tensors = features.values() if first is None else itertools.chain([first], weights)
    floating = (t.dtype for t in tensors if t.is_floating_point())
    kind = next(floating, None)
    return kind if kind in HALVES and all(other == kind for other in floating) else None


def widened(tensor: Tensor) -> Tensor:
    """A weight in single precision at least."""
    if tensor.dtype not in HALVES:
        return tensor
    wide = tensor.detach().float()
    return nn.Parameter(wide, requires_grad=False) if isinstance(tensor, nn.Parameter) else wide


def in_one_type(chain: RelevanceChain, ops: Sequence[Op], values: Sequence[Tensor]) -> RelevanceChain:
    """The chain in the widest of the types in it, float32 at least, because messages pass all of it.

    Args:
        chain: the chain.
        ops: the operations that it was made of.
        values: the recorded values, by slot.
    """
    passed = [place for layer in chain.layers for place in (*layer.starts, *layer.ends)]
    kinds = {values.dtype for _, values in (*chain.roots, *chain.seeds, *passed)}
    kinds |= {values[slot].dtype for op in ops for slot in op.inputs if values[slot].is_floating_point()}
    if len(kinds) == 1 and not kinds & set(HALVES):
        return chain
    return chain.to(dtype=functools.reduce(torch.promote_types, kinds, torch.float32))


def check_finite(tape: Tape, outputs: Tensor, modules: Modules, given: Mapping[str, Tensor]) -> None:
    """Refuse features, weights and outputs that are not finite; look closely only if something is wrong.

    A weight that is not finite shows in the result computed with it, before an activation may hide it. A non-finite
    input of a product with a weight matrix shows in the output: infinity times 0 is NaN.
    """
    seen, places = [outputs], list(tape.features)
    shown: set[int] = set()
    for op in tape.ops:
        constants = [a for a in (*op.args, *op.kwargs.values()) if isinstance(a, Tensor) and a.is_floating_point()]
        if constants or op.word.name == "propagate":
            places += [slot for slot in op.outputs if slot is not None]
        if op.word.name == "linear" and constants and constants[0].numel():
            shown.update(op.inputs)
        if "norm" in op.word.name:  # an infinite variance shows nowhere
            seen += constants
    seen += [tape.values[slot] for slot in places if slot not in shown]
    if _all_finite(seen, outputs.dtype):
        return
    check_tensors(given)
    check_weights(modules)
    overflown = next((op for op in tape.ops if op.word.name in _LINEAR and not _finite(tape, op)), None)
    if overflown is not None:
        name = "the read-out" if overflown.call is None else f"layer '{tape.calls[overflown.call].name}'"
        made = torch.cat([tape.values[slot].reshape(-1) for slot in overflown.outputs if slot is not None])
        what, remedy = _unfinished(made)
        raise InputError(f"The result of {overflown.word.name} in {name} is not finite: {what}.", remedy=remedy)
    if not bool(outputs.isfinite().all()):
        raise InputError(
            f"The model's output is not finite ({outputs.tolist()}); there is nothing to explain.",
            argument="output",
            expected="finite",
            got=outputs.tolist(),
        )


def _unfinished(made: Tensor) -> tuple[str, str]:
    """The error for numbers that are not finite, with a remedy."""
    if bool(made.isnan().any()) and not bool(made.isinf().any()):
        return (
            "NaN, as from 0 / 0 or the root of a negative number",
            "Look at the edge weights and other inputs there.",
        )
    wider = "" if made.dtype == torch.float64 else "Trace the model and its input in float64, or scale the features."
    return f"numbers become too large for {made.dtype}", wider or "Scale the features."


def _finite(tape: Tape, op: Op) -> bool:
    return all(bool(tape.values[slot].isfinite().all()) for slot in op.outputs if slot is not None)


def _all_finite(tensors: Sequence[Tensor], dtype: torch.dtype) -> bool:
    """Whether the sum of everything is finite; if it is, so is everything."""
    if sum(t.numel() for t in tensors) <= _FEW:
        total = torch.cat([t.reshape(-1) for t in tensors]).sum()
    else:
        total = torch.stack([t.sum().to(dtype) for t in tensors]).sum()
    return math.isfinite(total.item())


def check_tensors(given: Mapping[str, Tensor]) -> None:
    """Refuse dense tensors with entries that are not finite."""
    for name, tensor in given.items():
        dense = tensor.is_floating_point() and tensor.layout == torch.strided
        if dense and not bool(tensor.isfinite().all()):
            raise InputError(
                f"{name} has NaN or infinite entries; relevance needs finite numbers.",
                argument=name,
                expected="made of finite numbers",
            )


def check_chain(chain: RelevanceChain) -> RelevanceChain:
    """Return the chain if its relevance is finite, with a note if relevance is lost in numbers that are too small."""
    features, bound = _bounds(chain)
    if bound < torch.finfo(chain.dtype).max and not 0 < features < _TINY:
        return chain  # sure without a pass through it
    remedy = _remedy(chain)
    if not math.isfinite(chain.input_relevance):
        where = next((name for name, pairs in _parts(chain) if not all(_whole(t) for _, t in pairs)), None)
        reason = f"{where} is not finite" if where else "on the way to the input it becomes too large, or 0 / 0"
        raise TraceError(
            f"The relevance of the walks is {chain.input_relevance}, for an output of {chain.output:.6g}: {reason}.",
            remedy=remedy,
        )
    if 0 < features < _TINY and abs(chain.input_relevance) <= _NOTHING * abs(chain.output) != 0.0:
        return replace(chain, notes=(*chain.notes, _SWALLOWED.format(features, remedy)))
    return chain


def _bounds(chain: RelevanceChain) -> tuple[float, float]:
    """The largest entry where walks begin, and an upper bound on any sum of relevance, often a loose one."""
    largest = _Sizes()
    for _, value in (*chain.roots, *chain.seeds):
        largest.note(value)
    for step in chain.steps:
        for operator in step.operators:
            operator.growth(largest.note)
    largest.read()
    bounds: dict[int, float] = defaultdict(float)  # of the messages, by slot
    for slot, seed in chain.seeds:
        bounds[slot] += largest.of(seed)
    for step in reversed(chain.steps):
        for operator, source in zip(step.operators, step.sources, strict=True):
            growth = operator.growth(largest.of)
            bounds[source] += bounds[step.target] * (math.inf if growth is None else growth)
    relevance = sum([bounds[slot] * largest.of(H) * H.numel() for slot, H in chain.roots])
    return max([largest.of(H) for _, H in chain.roots], default=0.0), max(relevance, *bounds.values())


class _Sizes:
    """The largest entries of many tensors, read from the device at once."""

    def __init__(self) -> None:
        self.ends: dict[int, tuple[Tensor, Tensor]] = {}  # by the identity of the tensor, which lives on in the chain
        self.known: dict[int, float] = {}

    def note(self, tensor: Tensor) -> float:
        """Queue a tensor; its size is not known yet."""
        if id(tensor) not in self.ends and tensor.numel():
            self.ends[id(tensor)] = torch.aminmax(tensor)
        return 1.0

    def read(self) -> None:
        """Read the sizes of all queued tensors."""
        ends = [end for pair in self.ends.values() for end in pair]
        kinds = {end.dtype for end in ends}
        read = torch.stack(ends if len(kinds) == 1 else [end.double() for end in ends]).tolist()
        self.known = {key: max(-low, high) for key, low, high in zip(self.ends, read[::2], read[1::2], strict=True)}

    def of(self, tensor: Tensor) -> float:
        """The size of the largest entry of a queued tensor; 0 if it has none."""
        return self.known.get(id(tensor), 0.0)


def _parts(chain: RelevanceChain) -> tuple[tuple[str, Sequence[tuple[int, Tensor]]], ...]:
    return ("the input of the first layer", chain.roots), ("the gradient of the read-out", chain.seeds)


def _whole(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _remedy(chain: RelevanceChain) -> str:
    other = 'another rule (rule="auto", rule="zero").'
    widest = chain.dtype == torch.float64
    return f"Take {other}" if widest else f"Trace the model and its input in float64, or with {other}"
