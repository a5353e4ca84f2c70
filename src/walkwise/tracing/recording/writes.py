"""In-place operations: what they write, and what else changes with it.

A write makes a new slot for the tensor that is written into. Other tensors may share its memory: the tensor it is a
view of, and other views of that. They are followed as what they now are: the whole with a new part, or a part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from walkwise.core.cast import mapped
from walkwise.tracing.private import transforming
from walkwise.tracing.recording.aliases import memory_of, overlap, place_in, reshapes
from walkwise.tracing.recording.recorded import Ref
from walkwise.tracing.recording.words import Word, word

if TYPE_CHECKING:
    from walkwise.tracing.recording.tape import Tape


@dataclass(frozen=True)
class OutOfPlace:
    """A function that writes into its first argument, made to write into a copy."""

    func: Callable[..., Any]

    def __call__(self, first: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The copy, written into."""
        copy = first.clone()
        result = self.func(copy, *args, **kwargs)
        return copy if result is None else result


class _Sharing(NamedTuple):
    """A tensor that shares memory with one about to be written into."""

    tensor: Tensor
    slot: int | None  # if it is followed
    before: Tensor  # its values


def keep_constants(tape: Tape, written: Any) -> None:
    """Copy constants of recorded operations that are about to be overwritten."""
    if transforming() or not isinstance(written, Tensor):
        return
    place = memory_of(written)
    if place in tape.slots.held:
        for op in tape.ops:
            op.args, op.kwargs = _copied((op.args, op.kwargs), place)
        tape.slots.held.discard(place)


def record_write(tape: Tape, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run and record a function that writes into its first argument."""
    sharing = _sharing(tape, args[0])
    referred = tape.slots.nested(_saved(tape, args), kwargs)
    result = func(*args, **kwargs)
    stale = _stale(tape, args[0], sharing)
    written = args[0] if known.name == "setitem" else result
    if tape.depends(known, written) and not kwargs.get("rounding_mode"):
        tape.append(known, OutOfPlace(func), referred, written)
    else:
        tape.slots.forget(args[0])  # overwritten by a constant, it is one
    _renew(tape, args[0], stale)
    return result


def _sharing(tape: Tape, tensor: Tensor) -> list[_Sharing]:
    """The tensors that share memory with one about to be written into."""
    tape.aliases.check()
    slots = tape.slots
    shared = [other for other in tape.views.sharing(tensor, slots.tensors) if not slots.spoiled(other)]
    pairs = [(other, slots.last(other)) for other in shared]
    return [_Sharing(t, slot, (t if slot is None else slots.values[slot]).clone()) for t, slot in pairs]


def _saved(tape: Tape, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with a copy of the first, which is about to be overwritten."""
    copy = args[0].clone()
    slot = tape.slots.of(args[0])
    if slot is not None:
        tape.values[slot] = copy
    return (copy if slot is None else Ref(slot), *args[1:])


def _stale(tape: Tape, written: Tensor, sharing: list[_Sharing]) -> list[Tensor]:
    """The tensors that a write has reached; their recorded values stay."""
    tape.aliases.renew()
    for other in sharing:
        if other.slot is not None:
            tape.values[other.slot] = other.before
    return [other.tensor for other in sharing if overlap(other.tensor, written)]


def _renew(tape: Tape, written: Tensor, stale: list[Tensor]) -> None:
    """Follow the other tensors that a write into one tensor has changed.

    If it is unknown which slices a view is, the other tensors may not be read again.
    """
    slots, root = tape.slots, tape.views.root(written)
    base = None if root is written else root
    if base is not None and (any(other is base for other in stale) or _begins(tape, base, written)):
        before, part = _constant_or_ref(tape, base), _constant_or_ref(tape, written)
        if reshapes(written, base):
            _rederive(tape, base, Tensor.view, part, tuple(base.shape))
        else:
            _rederive(tape, base, Tensor.__setitem__, before, place_in(written, base), part)
    for other in stale:
        if other is base:
            continue
        if slots.last(root) is None and not slots.spoiled(root):
            slots.forget(other)
        elif reshapes(other, root):
            _rederive(tape, other, Tensor.view, _constant_or_ref(tape, root), tuple(other.shape))
        else:
            _rederive(tape, other, Tensor.__getitem__, _constant_or_ref(tape, root), place_in(other, root))


def _begins(tape: Tape, base: Tensor, written: Tensor) -> bool:
    """Whether a constant has become node features through a write into a view of it."""
    return not tape.slots.any_of([base]) and tape.slots.any_of([written])


def _constant_or_ref(tape: Tape, tensor: Tensor) -> Any:
    """A tensor's stand-in in recorded arguments; None for a spoiled one."""
    if tape.slots.spoiled(tensor):
        return None
    slot = tape.slots.last(tensor)
    return tensor.detach().clone() if slot is None else Ref(slot)


def _rederive(tape: Tape, tensor: Tensor, func: Any, first: Any, place: Any, *others: Any) -> None:
    """Record that a tensor is now the result of a function of another tensor and a place in it."""
    args = first, place, *others
    if any(item is None for item in args):
        tape.slots.spoil(tensor)
        return
    slots = tuple(dict.fromkeys(item.slot for item in args if isinstance(item, Ref)))
    known = word(func)
    tape.append(known, OutOfPlace(func) if known.writes else func, (args, {}, slots), tensor)


def _copied(nested: Any, place: int) -> Any:
    """Recorded arguments with copies of the tensors that lie in one place in memory."""

    def copied(leaf: Any) -> Any:
        return leaf.detach().clone() if isinstance(leaf, Tensor) and memory_of(leaf) == place else leaf

    return mapped(nested, copied)
