"""The hooks on a shadow's modules that tell a tape about layers, normalisations and TorchScript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from walkwise.core.differential import leaves
from walkwise.errors import TraceError
from walkwise.tracing.linearize import Affine, ClosedForm, EdgeShelf, PropagateCall, closed_form
from walkwise.tracing.meaning import quantiles
from walkwise.tracing.meaning.weights import propagate as propagation
from walkwise.tracing.private import parameters_of, unwatched
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.calls import Calls, lost_sight, nothing_handed
from walkwise.tracing.running.handed import with_features
from walkwise.tracing.running.modules import Modules, torchscript
from walkwise.tracing.running.native import Native, is_native
from walkwise.tracing.running.stand_ins import dismiss, stand_in

_EMBEDS = "It embeds its nodes itself and sends them more than once: embed them before the layer."


class Watch:
    """Tells the tape where message-passing calls begin and end, through hooks on a shadow's modules."""

    def __init__(self, tape: Tape, modules: Modules, suspects: Sequence[str] = (), closed: bool = True) -> None:
        """Watch the modules of a shadow.

        ``suspects`` are the names of linear modules to check for losing track of their input. Unless ``closed``, only
        layers with a user's own closed form are recorded by one.
        """
        self.tape = tape
        self.modules = modules
        self.shelf = EdgeShelf()
        self.native = Native(tape, self.shelf)
        self.depth = 0
        self.calls = Calls(tape, modules.found)
        for name, conv in modules.convs:
            form = closed_form(conv)
            form = form if closed or form is None or not _is_ours(form) else None
            natively = form is not None and _is_ours(form) and is_native(conv)
            stand_in(conv, "forward", self._forward(name, conv, natively))
            if isinstance(conv, MessagePassing):
                stand_in(conv, "propagate", self._propagate(name, conv, form))
        for _, norm in modules.norms:
            stand_in(norm, "forward", self._normalise(norm))
        for _, quantile in modules.quantiles:
            stand_in(quantile, "forward", quantiles.recorded(tape, quantile))
        for name, script in modules.scripts:
            stand_in(script, "forward", self._scripted(name, script))
        for function in modules.scripted_functions:
            tape.hidden.add(f"perhaps into the TorchScript function {function}")
        for name, linear in modules.linears:
            if name in suspects:
                stand_in(linear, "forward", self._followed(name, linear))

    def release(self) -> None:
        """Break the reference cycle with the shadow's modules."""
        self.calls.given = None
        modules = self.modules
        dismiss([*modules.convs, *modules.norms, *modules.linears, *modules.quantiles, *modules.scripts])

    def unreached(self) -> list[str]:
        """Linear modules of whose weight nothing was seen: not called, or run out of sight."""
        used = {id(argument) for op in self.tape.ops for argument in op.args if argument is not None}
        used |= self.tape.weights_of_constants
        linears = self.modules.linears  # a weight that a parametrization makes is not a parameter: look closer
        return [name for name, linear in linears if id(parameters_of(linear).get("weight")) not in used]

    def _scripted(self, name: str, script: Any) -> Callable[..., Any]:
        """A TorchScript module's ``forward``, which must not get followed tensors."""

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
                with unwatched():  # inspecting tensors is not part of the model
                    self.calls.begin(name, conv, args, kwargs)
                result = self.native.layer(conv, args, kwargs) if natively and not self.calls.beside else None
                result = original(*args, **kwargs) if result is None else result
                with unwatched():
                    self.calls.end(name, conv, result)
                return result
            finally:  # the model may go on after an error
                self.depth -= 1
                if not self.depth:
                    self.tape.active = self.calls.embedding = None
                    self.calls.beside = False

        return forward

    def _propagate(self, name: str, conv: Any, form: ClosedForm | None) -> Callable[..., Any]:
        """A layer's ``propagate`` while it is traced: recorded whole where it has a closed form."""
        original = conv.propagate

        def propagate(edge_index: Any, size: Any = None, **arguments: Any) -> Any:
            if self.calls.beside:
                return original(edge_index, size=size, **arguments)
            if self.calls.embedding is not None:
                with unwatched():
                    self.calls.sending(name, conv, arguments)
            if self.depth == 0 or self.tape.active is None:
                raise TraceError(
                    f"propagate of '{name}' ({type(conv).__name__}) was called directly, not by the layer's forward.",
                    remedy="Call the layer, not its propagate, so that it counts as one.",
                )
            table = self.calls.table
            if table is not None and not any(argument is table for argument in arguments.values()):
                raise nothing_handed(name, conv)
            call = self.tape.calls[self.tape.active]
            if call.embeds and call.propagates:
                raise nothing_handed(name, conv, _EMBEDS)
            call.propagates += 1
            self.tape.follow_looked_up(leaves(arguments))
            with unwatched():
                call.sent += self.calls.sent(conv, arguments)
                self.calls.part(name, conv, edge_index, size, arguments)
            affine = None
            if form is not None:
                with unwatched():
                    affine = form(
                        conv, PropagateCall(conv, edge_index, arguments, self.shelf, self.calls.follows, size)
                    )
                    if affine is not None:
                        return self._closed(form, conv, affine, original, (edge_index, size, arguments))
            call.closed = False
            return original(edge_index, size=size, **arguments)

        return propagate

    def _closed(
        self, form: ClosedForm, conv: Any, affine: Affine, original: Callable[..., Any], given: tuple[Any, Any, Any]
    ) -> Tensor:
        """Record a layer by its closed form; a user's form is checked against what the layer computes."""
        edge_index, size, arguments = given
        if _is_ours(form) and _on_one_node_set(size, arguments):
            result = affine.value()
        else:
            result = original(edge_index, size=size, **arguments)
            _check_affine(form, conv, affine, result, arguments)
        self.tape.record_affine(propagation, affine, result)
        return result

    def _normalise(self, norm: Any) -> Callable[..., Any]:
        """A normalisation's ``forward`` while it is traced."""
        original = norm.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            self.tape.normalising += 1
            try:
                return original(*args, **kwargs)
            finally:
                self.tape.normalising -= 1

        return forward

    def _followed(self, name: str, linear: nn.Module) -> Callable[..., Any]:
        """A linear module's ``forward``, whose output must be followed if its input is."""
        original = linear.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            went_in = any(isinstance(a, Tensor) and self.tape.slot_of(a) is not None for a in args)
            if went_in and self.tape.slot_of(result) is None and torch.is_grad_enabled():
                raise lost_sight(name, linear)
            return result

        return forward


def _check_affine(form: ClosedForm, module: Any, affine: Affine, result: Tensor, arguments: dict[str, Any]) -> None:
    """Check that a closed form registered by a user gives what the layer computes."""
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
            f"The closed form registered for {type(module).__name__} does not match its propagate: it {problem}."
        )


def _on_one_node_set(size: Any, arguments: dict[str, Any]) -> bool:
    """Whether messages go from nodes to those same nodes."""
    pairs = [v for v in arguments.values() if isinstance(v, (tuple, list)) and len(v) == 2]
    same = all(a is b or a is None or b is None or a.shape[0] == b.shape[0] for a, b in pairs)
    return same and (size is None or size[0] == size[1])


def _is_ours(form: ClosedForm) -> bool:
    return (form.__module__ or "").startswith("walkwise.")
