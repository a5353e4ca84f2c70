"""Records what a model computes from its node features, operation by operation."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from walkwise.core.differential import leaves
from walkwise.errors import TraceError
from walkwise.tracing.linearize import Affine
from walkwise.tracing.private import autocasting, base_of, innermost, transforming, unwatched, version_of
from walkwise.tracing.recording.aliases import Aliases, ComplexConstants, ConstantViews, unseen_write
from walkwise.tracing.recording.numbers import Numbers
from walkwise.tracing.recording.origins import Origins
from walkwise.tracing.recording.recorded import Call, Made, Op, floating, not_runnable
from walkwise.tracing.recording.slots import Referred, Slots
from walkwise.tracing.recording.spellings import exchanges, positional
from walkwise.tracing.recording.words import Handler, Word, asked_to_write, named, word
from walkwise.tracing.recording.writes import keep_constants, record_write

_NOT_IN_PLACE = {"inplace": False}
_REDUCE, _OVER = {"sum", "mean"}, {"dim", "keepdim"}
_DETACHING = frozenset({"detach", "data"})
#: The modules of functions that lie between the one that is followed and its caller: ours and those of torch.
_BETWEEN = ("walkwise.tracing.", "torch.")
_DERIVATIVES = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)
#: Functions that return uninitialised memory, which counts as zeros until something is written.
_UNWRITTEN = named("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
#: Functions that take the shape or the type of another tensor, but nothing of its values.
_AS_ANOTHER = frozenset({"to", "type_as", "expand_as", "view_as", "reshape_as", "sum_to_size"})


#: Refusals: what is wrong, and what to do.
_TRANSFORMED = (
    "The model runs torch.func (vmap, grad, ...) on node features, which cannot be followed.",
    "Write it with ordinary torch functions, or first detach() what should be constant.",
)
_LOST = (
    "Node features went {}, where they are not followed. Without the result, relevance would be wrong: write it with "
    "ordinary functions of dense tensors, or detach() what should be constant."
)
_DIFFERENTIATED = (
    "The model differentiates something that it computes from node features (torch.autograd), which cannot be "
    "followed.",
    "Differentiate a copy, h.detach().requires_grad_(): its derivatives are constant.",
)


class Tape(TorchFunctionMode):
    """Follows tensors through every torch function called while it is active, in the thread that entered it.

    A *slot* is one value of one followed tensor. Everything that is not followed is constant: weights, edge data,
    attention over constants, anything detached.
    """

    def __init__(self) -> None:
        """An empty tape."""
        super().__init__()
        self.ops: list[Op] = []
        self.slots = Slots()
        self.values = self.slots.values  # by slot
        self.slot_of, self.follows = self.slots.of, self.slots.any_of
        self.calls: list[Call] = []
        self.active: int | None = None  # the message-passing call under way
        self.normalising = 0  # depth of normalisation modules
        self.features: list[int] = []  # the slots of the input features
        self.parameters: frozenset[int] = frozenset()  # where the model's parameters lie in memory
        self.weights_of_constants: set[int] = set()  # weights that functions of constants were given, by identity
        self.cut = False  # whether the model has detached something, other than what a softmax subtracts
        self.hidden: set[str] = set()  # where followed tensors went out of sight
        self.own: list[Tensor] = []  # tensors about which nothing was known when a layer took them
        self.made: list[Made] = []  # what was made of constants outside of layers, if that is asked for
        self.making = False  # whether it is
        self.numbers = Numbers()  # whole numbers of all nodes, in order
        self.looked_up: dict[int, Tensor] = {}  # rows of embeddings, a row for every node, that layers have looked up
        self.sent: set[int] = set()  # the slots of those that they sent
        #: Constants that functions outside of layers read, by identity, and where those were; if that is asked for.
        self.read: dict[int, tuple[Tensor, list[tuple[int, str, int]]]] = {}
        self.early: dict[tuple[int, str, int], int | None] = {}  # constants to follow, by that place: their slots
        self.data: dict[int, Tensor] = {}  # numbers that the model was given besides features, and what is made of them
        self.given: frozenset[int] = frozenset()  # which of them it was given, by identity
        self.outer: dict[int, Tensor] = {}  # tensors of other graphs than the explained one, and what is made of them
        self.beside: set[int] = set()  # the slots of those that a layer is handed together with nodes
        self._outside = 0  # how many functions were called outside of layers
        self.aliases = Aliases()
        self.views = ConstantViews()
        self.complex = ComplexConstants()
        self.origins = Origins()

    def follow(self, tensor: Tensor) -> int:
        """The tensor's slot; follow the tensor from now on."""
        slot = self.slot_of(tensor)
        if slot is None:
            self.own.append(tensor)
            slot = self.slots.new(tensor)
            self.beside |= {slot} if id(tensor) in self.outer else set()
            with unwatched():
                self.values[slot] = self.values[slot].clone()  # it may be a weight, which training may change
        return slot

    def follow_looked_up(self, sent: Iterable[Any]) -> None:
        """Follow what a layer has looked up for its nodes, from where it sends it."""
        for tensor in sent:
            if id(tensor) in self.looked_up:
                self.sent.add(self.follow(tensor))

    def follow_features(self, tensor: Tensor) -> None:
        """Follow the model's input features."""
        self.features.append(self.slots.new(tensor))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the function, and record it if an argument is followed."""
        known = word(func)
        if known.asks:
            return func(*args, **(kwargs or {}))
        if not self.complex:
            return self._run(known, func, args, kwargs)
        with unwatched():
            self.complex.check(self.values)
        result = self._run(known, func, args, kwargs)
        self.complex.renew()
        return result

    def _run(self, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        if self.active is None:
            self._begin_outside(known.name, args, kwargs)
        if args and (known.writes or asked_to_write(known, args, kwargs or {})):
            keep_constants(self, args[0])
        if not self.follows(args) and not (kwargs and self.follows(kwargs.values())):
            return self._of_constants(known, func, args, kwargs or {})
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
    def beginnings(self) -> list[int]:
        """The slots of the constants that were followed from where they are first read."""
        return [slot for slot in self.early.values() if slot is not None]

    def _begin_outside(self, name: str, *given: Any) -> None:
        """Count a function outside layers, and follow its arguments if that was requested."""
        self._outside += 1
        if self.early or self.making:
            with unwatched():
                for place, tensor in floating(given):
                    key = self._outside, name, place
                    if key in self.early:
                        self.early[key] = self.follow(tensor)
                    elif self.making and self.slots.last(tensor) is None and id(tensor) not in self.outer:
                        self.read.setdefault(id(tensor), (tensor, []))[1].append(key)

    def _of_constants(self, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function without followed arguments."""
        self.weights_of_constants.update(id(item) for item in args if type(item) is Parameter)
        if transforming() and self.follows(map(innermost, args)):
            raise TraceError(_TRANSFORMED[0], remedy=_TRANSFORMED[1])
        from_constant = args[0] if known.name in _DETACHING and args and not transforming() else None
        result = self.views.add(_ran(func, args, kwargs), from_constant)
        if isinstance(result, Tensor) and result.is_complex():
            self.complex.add(result)
        self.origins.passed_on(known, args, result)
        if self.data and any(id(item) in self.data for item in leaves((args, kwargs))):
            self.data.update((id(item), item) for item in leaves(result) if isinstance(item, Tensor))
        if self.outer and self.hangs_outside((args, kwargs)):
            self.keep_outside((result, args[:1] if known.writes else ()))
        if self.active is not None and known.name == "embedding" and isinstance(result, Tensor):
            with unwatched():
                if any(
                    self.numbers.hold(item) for item in args if isinstance(item, Tensor) and item.dtype == torch.long
                ):
                    self.looked_up[id(result)] = result
        if self.making and self.active is None:
            with unwatched():
                self.numbers.note(known, args, kwargs, result)
                tensors = list(floating((args, kwargs)))
                results = [t for _, t in floating(result) if not any(t is given for _, given in tensors)]
            if results:
                numbers = [t for t in leaves((args, kwargs)) if isinstance(t, Tensor) and t.dtype == torch.long]
                self.made.append(Made(self._outside, known, tensors, numbers, results))
        return result

    def hangs_outside(self, nested: Any) -> bool:
        """Whether an argument belongs to another graph, or was computed from one that does."""
        return any(id(item) in self.outer for item in leaves(nested))

    def keep_outside(self, nested: Any) -> None:
        """Remember that tensors belong to another graph than the one that is explained."""
        self.outer.update((id(item), item) for item in leaves(nested) if isinstance(item, Tensor))

    @property
    def lost(self) -> str:
        """Where followed tensors went out of sight, with a remedy; empty if none is known to have."""
        where = " and ".join(sorted(self.hidden))
        return _LOST.format(where) if where else ""

    def _check_autocast(self) -> None:
        """Refuse computations in a type other than the model's."""
        device = self.values[0].device.type
        if torch.is_autocast_enabled(device):
            raise TraceError(
                f"The model runs under torch.autocast({device!r}), which rounds to {torch.get_autocast_dtype(device)} "
                "between one step and the next; relevance needs one type throughout.",
                remedy="Trace outside autocast; if the model itself turns it on, switch it off there.",
            )

    def record_affine(self, handler: Handler, affine: Affine, result: Tensor) -> None:
        """Record a whole ``propagate`` by its closed form."""
        terms = tuple(
            (slot, operator) for tensor, operator in affine.terms if (slot := self.slot_of(tensor)) is not None
        )
        if not terms:
            return
        op = Op(
            _propagation(handler), not_runnable, (), {}, tuple(slot for slot, _ in terms), (self.slots.new(result),),
            self.active, len(self.calls), terms, affine.constant, affine.activated,
        )  # fmt: skip
        self.ops.append(op)

    def record(self, func: Any, args: tuple[Any, ...], result: Tensor) -> None:
        """Record a function of tensors and numbers whose result is known already."""
        refs, inputs = self.slots.flat(args)
        self.ops.append(Op(word(func), func, refs, {}, inputs, (self.slots.new(result),), self.active, len(self.calls)))

    def _out_of_sight(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function that is not meant to be followed."""
        self.hidden.add("through torch.no_grad() or a custom autograd.Function")
        known = word(func)
        if (known.writes or asked_to_write(known, args, kwargs)) and self.follows(args[:1]):
            raise unseen_write("torch.no_grad() or a custom autograd.Function")
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and base_of(result) is not None:
            self.aliases.add(result)
        return result

    def _record_simple(self, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a function that makes a new tensor and takes its followed arguments by position."""
        result = func(*args, **kwargs)
        if not isinstance(result, Tensor):
            return result
        refs, inputs = self.slots.flat(args)
        self.ops.append(Op(known, func, refs, kwargs, inputs, (self.slots.new(result),), self.active, len(self.calls)))
        return result

    def _record(self, known: Word, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs:
            args, kwargs = positional(known.name, args, kwargs)
        self._check_function(known, func, kwargs)
        if known.writes or asked_to_write(known, args, kwargs):
            return record_write(self, known, func, args, kwargs)
        before = _version(args)
        result = _ran(func, args, kwargs)
        if args and result is args[0]:
            return _unchanged(result, before, known)
        if known.name in _AS_ANOTHER and args:
            if not self.follows(args[:1]):
                return result
            args = (args[0], *map(_constant, args[1:]))  # the result hangs on the first alone
            kwargs = {name: _constant(item) for name, item in kwargs.items()}
        if kwargs.get("rounding_mode") or not self.depends(known, result):
            if known.name in _DETACHING:
                self.aliases.add(result)
            self.origins.cut(known, args, result, self.slot_of)
            return result
        if known.same and isinstance(result, Tensor):
            if "dropout" not in known.name or result is args[0]:
                return self.slots.share(args[0], result)
            kept = torch.where(args[0] == 0, 0.0, result / args[0])  # dropout that is on: a constant mask
            known, func, args, kwargs = word(torch.mul), torch.mul, (args[0], kept), {}
        self.append(known, _plain_function(func, known), self.slots.nested(args, kwargs), result)
        return result

    def _check_function(self, known: Word, func: Any, kwargs: dict[str, Any]) -> None:
        """Refuse, or note, what cannot be followed."""
        if known.name in ("numpy", "array", "tolist", "item") or getattr(func, "__name__", "") == "__float__":
            self.hidden.add("through NumPy or Python")
        if kwargs.get("out") is not None or exchanges(func):
            raise unseen_write("out=... or h.data = ...")
        if func in _DERIVATIVES:
            raise TraceError(_DIFFERENTIATED[0], remedy=_DIFFERENTIATED[1])

    def append(self, known: Word, func: Any, referred: Referred, result: Any) -> None:
        """Put an operation on the tape, with followed tensors among its arguments replaced by references."""
        refs, named, inputs = referred
        outputs: tuple[int | None, ...]
        if isinstance(result, Tensor):
            outputs = (self.slots.new(result),)
        else:
            several: tuple[Any, ...] = tuple(result or ())
            outputs = tuple(self.slots.new(t) if _is_numbers(t) else None for t in several)
        self.ops.append(Op(known, func, refs, named, inputs, outputs, self.active, len(self.calls)))

    def depends(self, known: Word, result: Any) -> bool:
        """Whether a result depends differentiably on the arguments."""
        if known.name in _DETACHING and not _within_utilities():
            self.cut = True
        turned = known.name == "sgn" and isinstance(result, Tensor) and result.is_complex()  # z / |z|
        if (known.constant and not turned) or (self.normalising and known.statistic):
            return False
        if isinstance(result, Tensor):
            if result.layout != torch.strided:
                self.hidden.add("into a nested tensor" if result.is_nested else "into a sparse matrix")
            return _is_numbers(result) and result.layout == torch.strided
        return isinstance(result, (tuple, list)) and any(map(_is_numbers, result))


def _is_numbers(item: Any) -> bool:
    """Whether an item is a tensor of real or complex numbers."""
    return isinstance(item, Tensor) and (item.is_floating_point() or item.is_complex())


def _within_utilities() -> bool:
    """Whether the function under way was called by a utility of PyG, not by the model.

    Its softmax detaches the maximum that it subtracts, which does not matter to the result.
    """
    frame, place = inspect.currentframe(), ""
    while frame is not None and (place := str(frame.f_globals.get("__name__"))).startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and place.startswith("torch_geometric.utils.")


def _constant(item: Any) -> Any:
    """An argument through which nothing is followed."""
    return item.detach() if isinstance(item, Tensor) else item


def _version(args: tuple[Any, ...]) -> int:
    """How often the first argument has been written into."""
    return version_of(args[0]) if args and isinstance(args[0], Tensor) else 0


def _unchanged(result: Any, before: int, known: Word) -> Any:
    """The argument that a function returned unchanged, if it did not write into it."""
    if isinstance(result, Tensor) and version_of(result) != before:
        raise unseen_write(f"{known.name}(inplace=True)")
    return result


def _ran(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function; memory that nothing has written counts as 0."""
    result = func(*args, **kwargs)
    if func in _UNWRITTEN or (func is Tensor.new and all(isinstance(size, (int, torch.Size)) for size in args[1:])):
        with torch.no_grad():
            result.zero_()
    return result


def _plain_function(func: Any, known: Word) -> Any:
    """The recorded function; reading an attribute becomes a function that reads it."""
    return operator.attrgetter(known.name) if getattr(func, "__name__", "") == "__get__" else func


@functools.cache
def _propagation(handler: Handler) -> Word:
    return Word("propagate", handler, False, False, False, False, False, False)
