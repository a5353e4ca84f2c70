"""Runs a shadow of the user's model with a tape on it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from walkwise.errors import TraceError
from walkwise.tracing.linearize import Affine, ClosedForm, EdgeShelf, PropagateCall, closed_form
from walkwise.tracing.meaning import quantiles
from walkwise.tracing.meaning.weights import propagate as propagation
from walkwise.tracing.private import parameters_of, unwatched
from walkwise.tracing.recording.recorded import Call
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.handed import (
    about_integers,
    after_integers,
    edge_index_of,
    handed_nodes,
    is_edges,
    node_tensors,
    opened,
    own_table,
    types_said,
    with_features,
)
from walkwise.tracing.running.modules import Modules, torchscript
from walkwise.tracing.running.native import Native, is_native

_FEATURELESS = "Give it node features: an embedding, say, or one-hot ones, torch.eye(num_nodes)."
_EMBEDS = "It embeds its nodes itself, and sends them more than once: embed them before the layer."
_OUT_OF_SIGHT = (
    "Something computes in TorchScript, a custom autograd.Function, NumPy or under torch.no_grad(). Relevance "
    "would be wrong without it: write it with ordinary torch functions, or detach() what is meant to be constant."
)


class Watch:
    """Tells the tape where message-passing calls begin and end, by what it puts on a shadow's modules."""

    def __init__(self, tape: Tape, modules: Modules, suspects: Sequence[str] = (), closed: bool = True) -> None:
        """Watch the modules of a shadow.

        ``suspects`` are the names of linear modules to be checked for losing sight of what they take in. Unless
        ``closed``, no layer but those of a user's own closed form is recorded by one.
        """
        self.tape = tape
        self.modules = modules
        self.shelf = EdgeShelf()
        self.native = Native(tape, self.shelf)
        self.depth = 0
        self.given: Any = None  # what the call under way was handed: a node tensor, a pair or a dictionary of them
        self.table: Any = None  # the layer's own, where it was handed edges alone
        self.num_edges: int | None = None  # that the call under way was given, if they were an edge index
        self.embedding: tuple[Any, ...] | None = None  # what a call under way was given that embeds its nodes itself
        self.before = 0  # how many slots there were before the call under way
        self.fresh: list[int] = []  # later calls that were handed a tensor nothing is known of
        for name, conv in modules.convs:
            form = closed_form(conv)
            form = form if closed or form is None or not _is_ours(form) else None
            natively = form is not None and _is_ours(form) and is_native(conv)
            conv.__dict__["forward"] = self._forward(name, conv, natively)
            if isinstance(conv, MessagePassing):
                conv.__dict__["propagate"] = self._propagate(name, conv, form)
        for _, norm in modules.norms:
            norm.__dict__["forward"] = self._normalise(norm)
        for _, quantile in modules.quantiles:
            quantile.__dict__["forward"] = quantiles.recorded(tape, quantile)
        for name, script in modules.scripts:
            script.__dict__["forward"] = self._scripted(name, script)
        for function in modules.scripted_functions:
            tape.hidden.add(f"perhaps into the TorchScript function {function}")
        for name, linear in modules.linears:
            if name in suspects:
                _after(linear, self._followed(name, linear))

    def release(self) -> None:
        """Let go of the shadow's modules, which hold on to this and it to them."""
        self.given = None
        modules = self.modules
        for _, module in (
            *modules.convs, *modules.norms, *modules.linears, *modules.quantiles, *modules.scripts,
        ):  # fmt: skip
            for name in ("forward", "propagate"):
                module.__dict__.pop(name, None)

    def unreached(self) -> list[str]:
        """Linear modules whose weight met no followed tensor: not called, on constants, or out of sight."""
        used = {id(argument) for op in self.tape.ops for argument in op.args if argument is not None}
        linears = self.modules.linears  # a weight that a parametrization makes is not a parameter: look closer
        return [name for name, linear in linears if id(parameters_of(linear).get("weight")) not in used]

    def _scripted(self, name: str, script: Any) -> Callable[..., Any]:
        """A TorchScript module's ``forward``, which must not be given what is followed."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self.tape.follows((*args, *kwargs.values())):
                raise torchscript(name)
            return script.original(*args, **kwargs)

        return forward

    def _forward(self, name: str, conv: Any, natively: bool) -> Callable[..., Any]:
        """A layer's ``forward`` while it is traced."""
        original = conv.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            try:
                if self.depth > 1:
                    return original(*args, **kwargs)
                args, kwargs = with_features(conv, args, kwargs)
                with unwatched():  # looks at tensors are nothing that the model does
                    self._begin(name, conv, args, kwargs)
                result = self.native.layer(conv, args, kwargs) if natively else None
                result = original(*args, **kwargs) if result is None else result
                self._end(name, conv, result)
                return result
            finally:  # the model may go on after an error
                self.depth -= 1
                if not self.depth:
                    self.tape.active = self.embedding = None

        forward.__wrapped__ = original  # type: ignore[attr-defined]  # a model may look at its signature
        return forward

    def _begin(self, name: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell the tape that a message-passing call begins."""
        layer = self.modules.found.get(name)
        if layer is not None:
            given = layer.nodes((args, kwargs), self._follows)
            if given is None:
                raise _nothing(name, module)
            self._call(name, module, given, args, kwargs)
            return
        args = opened(args)
        place = _place_of_x(type(module))  # type: ignore[arg-type]
        first = kwargs["x"] if "x" in kwargs else next(iter(args[place:]), None)
        known = self.tape.slot_of(first)
        given = self._before_edges(args) if known is None else first
        self.table = own_table(module, args, kwargs) if given is None else None
        given = self.table if given is None else given
        given = handed_nodes(args, kwargs) if given is None else given
        tensors = node_tensors(given) if known is None else [given]
        if known is None and not self.tape.follows(tensors) and after_integers(args, kwargs):
            self.embedding = (args, kwargs)  # it embeds its nodes itself: they are what it sends
            return
        if not tensors:
            raise _nothing(name, module, about_integers((*args, *kwargs.values())))
        self._call(name, module, given, args, kwargs)

    def _call(self, name: str, module: Any, given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A message-passing call that is given these nodes."""
        tensors = node_tensors(given) if self.tape.slot_of(given) is None else [given]
        own = any(self.tape.slot_of(tensor) is None for tensor in tensors)
        if self.tape.calls and own:
            self.fresh.append(len(self.tape.calls))
        slots = [self.tape.follow(tensor) for tensor in tensors]
        handed = tuple(dict.fromkeys(slots))
        layer = self.modules.found.get(name)
        edges = edge_index_of(args, kwargs) if layer is None else layer.edge_index((args, kwargs))
        first = None if any(call.edge_index is not None for call in self.tape.calls) else edges
        call = Call(name, module, handed, edge_index=first, type_of=types_said(name, given, slots))
        call.beside = (*args, *kwargs.values(), edges) if own else ()
        call.found = layer is not None
        self.num_edges = None if edges is None else edges.shape[1]
        self.tape.calls.append(call)
        self.tape.active = len(self.tape.calls) - 1
        self.before = len(self.tape.values)
        self.given = given

    def _begin_sending(self, name: str, module: Any, arguments: dict[str, Any]) -> None:
        """Tell the tape that a call begins which has embedded its nodes itself, with what it sends."""
        assert self.embedding is not None
        (args, kwargs), self.embedding = self.embedding, None
        given = handed_nodes((), arguments)
        known = {id(item) for item in (*args, *kwargs.values())}
        rows = [(t.shape[:1], id(t)) for item in arguments.values() for t in node_tensors(item)]
        sent = {number for count, number in rows if number not in known and count == rows[0][0]}
        if given is None or len(sent) > 1:  # of several, none is where all walks begin
            raise _nothing(name, module, about_integers((*args, *kwargs.values())))
        self._call(name, module, given, args, kwargs)
        self.tape.calls[-1].embeds = True

    def _before_edges(self, args: tuple[Any, ...]) -> Tensor | None:
        """What is followed and stands before a call's edges, where a weight may come first: ``conv(W, x, edges)``."""
        edges = next((i for i, item in enumerate(args) if is_edges(item)), 0)
        known = (item for item in args[:edges] if isinstance(item, Tensor) and self.tape.slot_of(item) is not None)
        return next(known, None)

    def _end(self, name: str, module: Any, result: Any) -> None:
        """Tell the tape what a message-passing call returned."""
        if self.embedding is not None:  # it has sent nothing
            args, kwargs = self.embedding
            raise _nothing(name, module, about_integers((*args, *kwargs.values())))
        call = self.tape.calls[-1]
        layer = self.modules.found.get(name)
        by_type = isinstance(result, dict) and layer is None
        if by_type:
            keyed = [(self.tape.slot_of(tensor), self._rows_for(key)) for key, tensor in result.items()]
        else:
            several = result if isinstance(result, (tuple, list)) else (result,)
            tensors = opened(several) if layer is None else layer.results(result)
            slots = [self.tape.slot_of(tensor) for tensor in tensors if isinstance(tensor, Tensor)]
            target = self._target(module)
            targets = (target, *(target if self._has_rows_of(target, slot) else None for slot in slots[1:]))
            keyed = list(zip(slots, targets, strict=False))
        known = [slot for slot, _ in keyed if slot is not None]
        call.outputs = [
            slot for slot in known if slot >= self.before
        ] or known  # not what it was handed, and gives back
        call.by_type = by_type
        made = [(slot, rows) for slot, rows in keyed if slot is not None and slot >= self.before]
        call.rows_of = {slot: rows for slot, rows in made if rows is not None}
        if not call.outputs:
            raise _lost(name, module)

    def _has_rows_of(self, target: int | None, slot: int | None) -> bool:
        """Whether a further tensor that a layer returned has a row for every node, and not for every edge."""
        if target is None or slot is None:
            return False
        rows, values = len(self.tape.values[target]), self.tape.values[slot]
        return values.dim() > 1 and len(values) == rows and self.num_edges not in (None, rows)

    def _target(self, module: Any) -> int | None:
        """The slot of the tensor whose rows a layer's output has; None where no tensor says."""
        given = self.given
        if isinstance(given, (tuple, list)):
            to_first = len(given) < 2 or getattr(module, "flow", "") == "target_to_source"
            given = given[0 if to_first else 1]
        return self.tape.slot_of(given)

    def _rows_for(self, key: Any) -> int | None:
        """The slot of what was handed under the key of a result."""
        return self.tape.slot_of(self.given.get(key)) if isinstance(self.given, dict) else None

    def _propagate(self, name: str, conv: Any, form: ClosedForm | None) -> Callable[..., Any]:
        """A layer's ``propagate`` while it is traced: recorded whole where it has a closed form."""
        original = conv.propagate

        def propagate(edge_index: Any, size: Any = None, **arguments: Any) -> Any:
            if self.embedding is not None:
                with unwatched():
                    self._begin_sending(name, conv, arguments)
            if self.depth == 0 or self.tape.active is None:
                raise TraceError(
                    f"propagate of '{name}' ({type(conv).__name__}) was called past the module itself.",
                    remedy="Call the layer, not its propagate, so that it counts as one.",
                )
            if self.table is not None and not any(argument is self.table for argument in arguments.values()):
                raise _nothing(name, conv)
            call = self.tape.calls[self.tape.active]
            if call.embeds and call.propagates:
                raise _nothing(name, conv, _EMBEDS)
            call.propagates += 1
            with unwatched():
                call.sent += self._sent(conv, arguments)
            affine = None
            if form is not None:
                with unwatched():
                    affine = form(conv, PropagateCall(conv, edge_index, arguments, self.shelf, self._follows, size))
                    if affine is not None:
                        return self._closed(form, conv, affine, original, (edge_index, size, arguments))
            call.closed = False
            return original(edge_index, size=size, **arguments)

        return propagate

    def _closed(
        self, form: ClosedForm, conv: Any, affine: Affine, original: Callable[..., Any], given: tuple[Any, Any, Any]
    ) -> Tensor:
        """What a closed form says, recorded; a user's is checked against what the layer computes."""
        edge_index, size, arguments = given
        if _is_ours(form) and _on_one_node_set(size, arguments):
            result = affine.value()
        else:
            result = original(edge_index, size=size, **arguments)
            _check_affine(form, conv, affine, result, arguments)
        self.tape.record_affine(propagation, affine, result)
        return result

    def _sent(self, conv: Any, arguments: dict[str, Any]) -> list[tuple[int, int]]:
        """The tensors of three or more dimensions that are read at the ends of edges, and along which dimension."""
        names = [name[:-2] for name in inspect.signature(conv.message).parameters if name.endswith(("_i", "_j"))]
        tensors = [t for name in dict.fromkeys(names) for t in node_tensors(arguments.get(name)) if t.dim() > 2]
        slots = [(self.tape.slot_of(tensor), conv.node_dim % tensor.dim()) for tensor in tensors]
        return [(slot, dim) for slot, dim in slots if slot is not None]

    def _follows(self, tensor: Any) -> bool:
        return self.tape.slot_of(tensor) is not None

    def _normalise(self, norm: Any) -> Callable[..., Any]:
        """A normalisation's ``forward`` while it is traced."""
        original = norm.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.tape.normalising += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.tape.normalising -= 1

        forward.__wrapped__ = original  # type: ignore[attr-defined]
        return forward

    def _followed(self, name: str, module: nn.Module) -> Callable[..., None]:
        """Check that a linear module's output is followed if its input is."""

        def seen(args: tuple[Any, ...], result: Any) -> None:
            went_in = any(isinstance(a, Tensor) and self.tape.slot_of(a) is not None for a in args)
            if went_in and self.tape.slot_of(result) is None and torch.is_grad_enabled():
                raise _lost(name, module)

        return seen


@functools.cache
def _place_of_x(kind: type) -> int:
    """The place of ``x`` among what a layer's ``forward`` takes: a weight may come before it."""
    names = list(inspect.signature(kind.forward).parameters)[1:]  # type: ignore[attr-defined]
    return names.index("x") if "x" in names else 0


def _after(module: Any, seen: Callable[..., None]) -> None:
    """Have something look at what a shadow's module was given and has returned."""
    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        seen(args, result)
        return result

    forward.__wrapped__ = original  # type: ignore[attr-defined]
    module.__dict__["forward"] = forward


def check_fresh(watch: Watch, handed: Callable[[bool], list[list[Tensor]]]) -> None:
    """Refuse a model in which a later layer's input depends on an earlier layer out of the tape's sight.

    ``handed`` runs the model again, with the first layer's output disturbed or not, and gives what every layer is
    handed; that must then change only if it was followed.
    """
    undisturbed, disturbed = handed(False), handed(True)
    for call in watch.fresh:
        if not all(map(torch.equal, undisturbed[call], disturbed[call])):
            name, module = watch.tape.calls[call].name, watch.tape.calls[call].module
            raise TraceError(
                f"Layer '{name}' ({type(module).__name__}) was handed node features that depend on an earlier layer "
                "but cannot be traced back to it.",
                remedy=watch.tape.lost or _OUT_OF_SIGHT,
            )


def _check_affine(form: ClosedForm, module: Any, affine: Affine, result: Tensor, arguments: dict[str, Any]) -> None:
    """A closed form that a user registered must give what the layer computes."""
    if _is_ours(form):
        return
    given = [t for value in arguments.values() for t in (value if isinstance(value, (tuple, list)) else (value,))]
    problem = None
    if not all(any(t is g for g in given) for t, _ in affine.terms):
        problem = "names a tensor that is not among propagate's arguments"
    else:
        total = sum(op.push(t.detach().flatten(1)) for t, op in affine.terms)
        total = total if affine.constant is None else total + affine.constant
        expected = result.detach().flatten(1)
        if total.shape != expected.shape:  # type: ignore[union-attr]
            problem = f"gives shape {tuple(total.shape)} instead of {tuple(expected.shape)}"  # type: ignore[union-attr]
        elif not torch.allclose(total, expected, rtol=1e-3, atol=1e-5):  # type: ignore[arg-type]
            problem = f"is off by up to {float((total - expected).abs().max()):.3g}"
    if problem:
        raise TraceError(
            f"The closed form registered for {type(module).__name__} does not give what its propagate returned: "
            f"it {problem}."
        )


def _on_one_node_set(size: Any, arguments: dict[str, Any]) -> bool:
    """Whether messages go from nodes to those same nodes."""
    pairs = [v for v in arguments.values() if isinstance(v, (tuple, list)) and len(v) == 2]
    same = all(a is b or a is None or b is None or a.shape[0] == b.shape[0] for a, b in pairs)
    return same and (size is None or size[0] == size[1])


def _is_ours(form: ClosedForm) -> bool:
    return (form.__module__ or "").startswith("walkwise.")


def _nothing(name: str, module: Any, remedy: str | None = None) -> TraceError:
    """The refusal of a layer that was handed no nodes."""
    return TraceError(
        f"Layer '{name}' ({type(module).__name__}) was handed no floating-point node tensor, so there is nothing a "
        "walk could begin with.",
        remedy=remedy or _FEATURELESS,
    )


def _lost(name: str, module: Any) -> TraceError:
    return TraceError(
        f"'{name}' ({type(module).__name__}) took in node features, but what it returned cannot be traced back "
        "to them.",
        remedy=_OUT_OF_SIGHT,
    )
