"""Records what a model computes from its node features, operation by operation."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from walkwise.errors import TraceError
from walkwise.tracing.aliases import Aliases, ConstantViews, overlap, place_in, reshapes, unseen_write
from walkwise.tracing.origins import Origins
from walkwise.tracing.private import autocasting, base_of, innermost, transforming, unwatched, version_of
from walkwise.tracing.recorded import Affine, Call, Op, Ref, not_runnable
from walkwise.tracing.spellings import exchanges, positional
from walkwise.tracing.words import Handler, Word, asked_to_write, named, word

_NOT_IN_PLACE = {"inplace": False}
_REDUCE, _OVER = {"sum", "mean"}, {"dim", "keepdim"}
_DETACHING = frozenset({"detach", "data"})
_DERIVATIVES = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)
#: What makes tensors of whatever is in memory: zeros here, until something is written.
_UNWRITTEN = named("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
#: Functions that take the shape or the type of another tensor, but nothing of its values.
_AS_ANOTHER = frozenset({"to", "type_as", "expand_as", "view_as", "reshape_as", "sum_to_size"})


#: Refusals: what is wrong, and what to do.
_TRANSFORMED = (
    "The model runs torch.func (vmap, grad, ...) on node features, which cannot be followed.",
    "Write it with ordinary torch functions, or detach() what is meant to be constant before.",
)
_LOST = (
    "Node features went {}, where they are not followed. Relevance would be wrong without what comes out of it: write "
    "it with ordinary functions of real, dense tensors, or detach() what is meant to be constant."
)
_DIFFERENTIATED = (
    "The model differentiates what it makes of its node features (torch.autograd), which cannot be followed.",
    "Differentiate a copy, h.detach().requires_grad_(): what comes of that is constant.",
)


class Tape(TorchFunctionMode):
    """Follows tensors through every torch function called while it is active, in the thread that entered it.

    A *slot* is one value of one followed tensor; an operation in place makes a new slot. What is not
    followed is constant: weights, edge data, attention over constants, anything detached.
    """

    def __init__(self) -> None:
        """An empty tape."""
        super().__init__()
        self.ops: list[Op] = []
        self.values: list[Tensor] = []  # by slot
        self.calls: list[Call] = []
        self.active: int | None = None  # the message-passing call under way
        self.normalising = 0  # depth of normalisation modules
        self.features: list[int] = []  # the slots of the input features
        self.parameters: frozenset[int] = frozenset()  # where the model's parameters lie in memory
        self.cut = False  # whether the model has detached something
        self.hidden: set[str] = set()  # where followed tensors went out of sight
        self._slot_of: dict[int, int] = {}  # by tensor identity
        self._alive: list[Tensor] = []  # keeps identities from being used again
        self._aliases = Aliases()
        self._views = ConstantViews()
        self.origins = Origins()
        self._held: set[int] = set()  # where the constants of recorded operations lie in memory

    def follow(self, tensor: Tensor) -> int:
        """The tensor's slot; it is followed from now on if it was not."""
        slot = self.slot_of(tensor)
        if slot is None:
            slot = self._new_slot(tensor)
            with unwatched():
                self.values[slot] = self.values[slot].clone()  # it may be a weight, which training may change
        return slot

    def follow_features(self, tensor: Tensor) -> None:
        """Follow the model's input features."""
        self.features.append(self._new_slot(tensor))

    def slot_of(self, tensor: Any) -> int | None:
        """The tensor's slot, or None if it is not followed."""
        slot = self._slot_of.get(id(tensor))
        if slot == -1:
            raise TraceError(
                "A node tensor was changed in place through another that shares its memory (a view) and then read "
                "again, which cannot be followed.",
                remedy="Use the out-of-place operation (y = x + 1 instead of x += 1).",
            )
        return slot

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function, and record it if a followed tensor went in."""
        known = word(func)
        if args and (known.writes or asked_to_write(known, args, kwargs or {})):
            self._keep_constants(args[0])
        if not self.follows(args) and not (kwargs and self.follows(kwargs.values())):
            if transforming() and self.follows(map(innermost, args)):
                raise TraceError(_TRANSFORMED[0], remedy=_TRANSFORMED[1])
            from_constant = args[0] if known.name in _DETACHING and args and not transforming() else None
            result = self._views.add(_ran(func, args, kwargs or {}), from_constant)
            self.origins.passed_on(known, args, result)
            return result
        if transforming():
            raise TraceError(_TRANSFORMED[0], remedy=_TRANSFORMED[1])
        if not torch.is_grad_enabled():
            return self._out_of_sight(func, args, kwargs or {})
        if autocasting():
            self._check_autocast()
        with torch.no_grad():
            if known.simple and (not kwargs or kwargs == _NOT_IN_PLACE):
                return self._record_simple(known, func, args, {})
            if known.name in _REDUCE and args and kwargs and kwargs.keys() <= _OVER and not self.normalising:
                return self._record_simple(known, func, args, kwargs)
            return self._record(known, func, args, kwargs or {})

    @property
    def lost(self) -> str:
        """Where followed tensors went out of sight, and what to do about it; empty where none is known to have."""
        where = " and ".join(sorted(self.hidden))
        return _LOST.format(where) if where else ""

    def _check_autocast(self) -> None:
        """Refuse to follow what is computed in another type than the model's."""
        device = self.values[0].device.type
        if torch.is_autocast_enabled(device):
            raise TraceError(
                f"The model runs under torch.autocast({device!r}), which rounds to {torch.get_autocast_dtype(device)} "
                "between one step and the next; relevance needs one type throughout.",
                remedy="Trace outside of it, with autocast off in the model itself if it turns it on.",
            )

    def record_affine(self, handler: Handler, affine: Affine, result: Tensor) -> None:
        """Record a whole ``propagate`` by its closed form."""
        terms = tuple(
            (slot, operator) for tensor, operator in affine.terms if (slot := self.slot_of(tensor)) is not None
        )
        if not terms:
            return
        op = Op(
            _propagation(handler), not_runnable, (), {}, tuple(slot for slot, _ in terms), (self._new_slot(result),),
            self.active, len(self.calls), terms, affine.constant, affine.activated,
        )  # fmt: skip
        self.ops.append(op)

    def record(self, func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        """Record a function of tensors and numbers whose result is known already."""
        refs, inputs = self._refer_flat(args)
        self.ops.append(Op(word(func), func, refs, {}, inputs, (self._new_slot(result),), self.active, len(self.calls)))

    def follows(self, items: Any) -> bool:
        """Whether any of some arguments is followed."""
        slots = self._slot_of
        for item in items:  # noqa: SIM110  (a generator would cost as much as the rest)
            if id(item) in slots or (type(item) in (list, tuple) and self.follows(item)):
                return True
        return False

    def _keep_constants(self, written: Any) -> None:
        """Copy what recorded operations took for constants, where it is about to be written into."""
        if transforming() or not isinstance(written, Tensor):
            return
        place = _memory(written)
        if place not in self._held and place not in self.parameters:
            return
        for op in self.ops:
            op.args, op.kwargs = _copied((op.args, op.kwargs), place)
        self._held.discard(place)

    def _out_of_sight(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function that is not meant to be followed."""
        self.hidden.add("through torch.no_grad() or a custom autograd.Function")
        known = word(func)
        if (known.writes or asked_to_write(known, args, kwargs)) and id(args[0]) in self._slot_of:
            raise unseen_write("torch.no_grad() or a custom autograd.Function")
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and base_of(result) is not None:
            self._aliases.add(result)
        return result

    def _record_simple(self, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a function that makes a new tensor, those that are followed given in their places."""
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor):
            return result
        refs, inputs = self._refer_flat(args)
        self.ops.append(Op(known, func, refs, kwargs, inputs, (self._new_slot(result),), self.active, len(self.calls)))
        return result

    def _refer_flat(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Like ``_refer``, for arguments that hold no lists."""
        slots: list[int] = []
        refs: list[Any] = []
        for item in args:
            slot = self.slot_of(item) if isinstance(item, Tensor) else None
            if slot is not None:
                slots.append(slot)
                refs.append(Ref(slot))
                continue
            if isinstance(item, Tensor) and not isinstance(item, nn.Parameter):  # where those lie is known
                self._held.add(_memory(item))
            refs.append(item)
        return tuple(refs), tuple(slots) if len(slots) < 2 else tuple(dict.fromkeys(slots))

    def _record(self, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs:
            args, kwargs = positional(known.name, args, kwargs)
        self._check_function(known, func, kwargs)
        if known.writes or asked_to_write(known, args, kwargs):
            return self._record_write(known, func, args, kwargs)
        before = _version(args)
        result = _ran(func, args, kwargs)
        if args and result is args[0]:
            return _unchanged(result, before, known)
        if known.name in _AS_ANOTHER and args:
            if not self.follows(args[:1]):
                return result
            args = (args[0], *map(_constant, args[1:]))  # the result hangs on the first alone
            kwargs = {name: _constant(item) for name, item in kwargs.items()}
        if kwargs.get("rounding_mode") or not self._depends(known, result):
            if known.name in _DETACHING:
                self._aliases.add(result)
            self.origins.cut(known, args, result, self.slot_of)
            return result
        if known.same and isinstance(result, Tensor):
            if "dropout" not in known.name or result is args[0]:
                return self._same(args[0], result)
            kept = torch.where(args[0] == 0, 0.0, result / args[0])  # dropout that is on: a constant mask
            known, func, args, kwargs = word(torch.mul), torch.mul, (args[0], kept), {}
        self._append(known, _plain_function(func, known), self._refer(args, kwargs), result)
        return result

    def _check_function(self, known: Word, func: Any, kwargs: dict[str, Any]) -> None:
        """Refuse, or remember, what cannot be followed."""
        if known.name in ("numpy", "array", "tolist", "item") or getattr(func, "__name__", "") == "__float__":
            self.hidden.add("through NumPy or Python")
        if kwargs.get("out") is not None or exchanges(func):
            raise unseen_write("out=... or h.data = ...")
        if func in _DERIVATIVES:
            raise TraceError(_DIFFERENTIATED[0], remedy=_DIFFERENTIATED[1])

    def _record_write(self, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a function that writes into its first argument."""
        changing = self._changing(args[0])
        referred = self._refer(self._saved(args), kwargs)
        result = func(*args, **kwargs)
        stale = self._stale(args[0], changing)
        written = args[0] if known.name == "setitem" else result
        if self._depends(known, written) and not kwargs.get("rounding_mode"):
            self._append(known, OutOfPlace(func), referred, written)
        else:
            self._slot_of.pop(id(args[0]), None)  # overwritten by a constant, it is one
        self._renew(args[0], stale)
        return result

    def _append(self, known: Word, func: Any, referred: tuple[Any, Any, tuple[int, ...]], result: Any) -> None:
        """Put an operation on the tape, its arguments given as ``_refer`` does."""
        refs, named, inputs = referred
        outputs: tuple[int | None, ...]
        if isinstance(result, Tensor):
            outputs = (self._new_slot(result),)
        else:
            several: tuple[Any, ...] = tuple(result or ())
            floating = [t if isinstance(t, Tensor) and t.is_floating_point() else None for t in several]
            outputs = tuple(None if t is None else self._new_slot(t) for t in floating)
        self.ops.append(Op(known, func, refs, named, inputs, outputs, self.active, len(self.calls)))

    def _depends(self, known: Word, result: Any) -> bool:
        """Whether a result depends differentiably on what went in."""
        if known.name in _DETACHING:
            self.cut = True
        if known.constant or (self.normalising and known.statistic):
            return False
        if isinstance(result, Tensor):
            if result.layout != torch.strided:
                self.hidden.add("into a sparse matrix")
            if result.is_complex():
                self.hidden.add("into complex numbers")
            return result.is_floating_point() and result.layout == torch.strided
        return isinstance(result, (tuple, list)) and any(
            isinstance(t, Tensor) and t.is_floating_point() for t in result
        )

    def _saved(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with a copy of the first, which is about to be overwritten."""
        copy = args[0].clone()
        slot = self.slot_of(args[0])
        if slot is not None:
            self.values[slot] = copy
        return (copy if slot is None else Ref(slot), *args[1:])

    def _same(self, before: Tensor, after: Tensor) -> Tensor:
        slot = self.slot_of(before)
        if after is not before and slot is not None:
            self._slot_of[id(after)] = slot
            self._alive.append(after)
        return after

    def _new_slot(self, tensor: Tensor) -> int:
        slot = len(self.values)
        self.values.append(tensor.detach() if tensor.requires_grad else tensor)
        self._slot_of[id(tensor)] = slot
        self._alive.append(tensor)
        return slot

    def _changing(self, tensor: Tensor) -> list[tuple[Tensor, int | None, Tensor]]:
        """The tensors that share memory with one about to be written into: their slots, if followed, and values."""
        self._aliases.check()
        shared = [(other, self._slot_of.get(id(other))) for other in self._views.sharing(tensor, self._alive)]
        return [
            (other, slot, (other if slot is None else self.values[slot]).clone())
            for other, slot in shared
            if slot != -1
        ]

    def _stale(self, written: Tensor, changing: list[tuple[Tensor, int | None, Tensor]]) -> list[Tensor]:
        """Those that a write has reached; what was recorded of them keeps its values."""
        self._aliases.renew()
        for _, slot, before in changing:
            if slot is not None:
                self.values[slot] = before
        return [other for other, _, _ in changing if overlap(other, written)]

    def _renew(self, written: Tensor, stale: list[Tensor]) -> None:
        """Follow what a write into one tensor has changed besides: the tensor it is a view of, and other views of that.

        Where it cannot be told which slices a view is, the others may not be read again.
        """
        root = self._views.root(written)
        base = None if root is written else root
        if base is not None and (any(other is base for other in stale) or self._begins(base, written)):
            before, part = self._constant_or_ref(base), self._constant_or_ref(written)
            if reshapes(written, base):
                self._rederive(base, Tensor.view, part, tuple(base.shape))
            else:
                self._rederive(base, Tensor.__setitem__, before, place_in(written, base), part)
        for other in stale:
            if other is base:
                continue
            if id(root) not in self._slot_of:
                self._slot_of.pop(id(other), None)
            elif reshapes(other, root):
                self._rederive(other, Tensor.view, self._constant_or_ref(root), tuple(other.shape))
            else:
                self._rederive(other, Tensor.__getitem__, self._constant_or_ref(root), place_in(other, root))

    def _begins(self, base: Tensor, written: Tensor) -> bool:
        """Whether a constant has become node features, by what was written into a view of it."""
        return id(base) not in self._slot_of and id(written) in self._slot_of

    def _constant_or_ref(self, tensor: Tensor) -> Any:
        slot = self._slot_of.get(id(tensor))
        return tensor.detach().clone() if slot is None else Ref(slot)

    def _rederive(self, tensor: Tensor, func: Any, first: Any, place: Any, *others: Any) -> None:
        """Record that a tensor is now what a function makes of another and a place in it."""
        args = first, place, *others
        slots = tuple(dict.fromkeys(item.slot for item in args if isinstance(item, Ref)))
        if place is None or -1 in slots:
            self._slot_of[id(tensor)] = -1
            self._alive.append(tensor)
        else:
            known = word(func)
            self._append(known, OutOfPlace(func) if known.writes else func, (args, {}, slots), tensor)

    def check_aliases(self) -> None:
        """Refuse a model that has written into a followed tensor out of the tape's sight."""
        self._aliases.check()

    def _refer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, tuple[int, ...]]:
        """The arguments with followed tensors replaced by references, and their slots."""
        slots: list[int] = []
        refs = tuple([self._referred(item, slots) for item in args])
        named = {key: self._referred(value, slots) for key, value in kwargs.items()} if kwargs else kwargs
        return refs, named, tuple(slots) if len(slots) < 2 else tuple(dict.fromkeys(slots))

    def _referred(self, item: Any, slots: list[int]) -> Any:
        """One argument, its followed tensors replaced; their slots are added to ``slots``."""
        if id(item) in self._slot_of:
            slot = self.slot_of(item)
            assert slot is not None
            slots.append(slot)
            return Ref(slot)
        kind = type(item)
        if kind is tuple or kind is list:
            return kind([self._referred(i, slots) for i in item])
        if kind is Ref:
            slots.append(item.slot)
        elif isinstance(item, Tensor):
            self._held.add(_memory(item))
        return item


def _constant(item: Any) -> Any:
    """An argument that nothing is followed through."""
    return item.detach() if isinstance(item, Tensor) else item


def _memory(tensor: Tensor) -> int:
    """Where a tensor's numbers lie; 0 where they lie in several places."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def _copied(nested: Any, place: int) -> Any:
    """Recorded arguments with copies of the tensors that lie in one place in memory."""
    if type(nested) in (list, tuple):
        return type(nested)([_copied(item, place) for item in nested])
    if type(nested) is dict:
        return {key: _copied(value, place) for key, value in nested.items()}
    return nested.detach().clone() if isinstance(nested, Tensor) and _memory(nested) == place else nested


def _version(args: tuple[Any, ...]) -> int:
    """How often the first argument has been written into."""
    return version_of(args[0]) if args and isinstance(args[0], Tensor) else 0


def _unchanged(result: Any, before: int, known: Word) -> Any:
    """What a function has returned as it was given, if it has not written into it."""
    if isinstance(result, Tensor) and version_of(result) != before:
        raise unseen_write(f"{known.name}(inplace=True)")
    return result


def _ran(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function makes; memory that nothing has written is 0."""
    result = func(*args, **kwargs)
    if func in _UNWRITTEN or (func is Tensor.new and all(isinstance(size, (int, torch.Size)) for size in args[1:])):
        with torch.no_grad():
            result.zero_()
    return result


def _plain_function(func: Any, known: Word) -> Any:
    """The function that was recorded; an attribute that was read becomes the reading of it."""
    return operator.attrgetter(known.name) if getattr(func, "__name__", "") == "__get__" else func


@dataclass(frozen=True)
class OutOfPlace:
    """A function that writes into its first argument, writing into a copy of it."""

    func: Callable[..., Any]

    def __call__(self, first: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The copy, written into."""
        copy = first.clone()
        result = self.func(copy, *args, **kwargs)
        return copy if result is None else result


@functools.cache
def _propagation(handler: Handler) -> Word:
    return Word("propagate", handler, False, False, False, False, False, False)
