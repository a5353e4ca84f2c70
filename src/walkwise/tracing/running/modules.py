"""A model's modules, inspected once, and those among them that tracing looks at."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import QuantileAggregation
from torch_geometric.nn.dense.linear import Linear as PygLinear
from torch_geometric.nn.models import MetaLayer

from walkwise.errors import InputError, TraceError
from walkwise.tracing.private import BUFFERS, MODULES, PARAMETERS, buffers_of, parameters_of, without_pre_hooks
from walkwise.tracing.running.found import Found
from walkwise.tracing.running.shadow import Scripted, Shadow, is_shared

Named = list[tuple[str, Any]]
#: Of torch_geometric's normalisations, that which sums up several, and that which divides by nothing.
_NO_NORMS = frozenset({"DiffGroupNorm", "MeanSubtractionNorm"})
#: Methods of a layer that do not belong to a run of it.
_NOT_RUNNING = ("__init__", "reset_parameters", "__repr__")


_MODE = (
    "'{}' ({}) may do something special when it is switched to evaluation mode, and a trace does not switch it: call "
    "model.eval() first"
)


@dataclass(eq=False, slots=True)
class Modules:
    """The modules of a model by name, in their order, each once; and those that tracing looks at."""

    all: Named = field(default_factory=list)
    convs: Named = field(default_factory=list)  # message passing
    linears: Named = field(default_factory=list)
    norms: Named = field(default_factory=list)  # of torch_geometric, written out in torch functions
    quantiles: Named = field(default_factory=list)  # of messages
    scripts: Named = field(default_factory=list)  # whose attributes Python does not hold
    holders: Named = field(default_factory=list)  # of parameters or buffers
    functions: tuple[str, ...] = ()  # TorchScript functions that modules hold
    found: dict[str, Found] = field(default_factory=dict)  # by name, layers that are no message-passing modules

    @property
    def scripted_functions(self) -> list[str]:
        """The names of the TorchScript functions that modules hold or call."""
        spoken = {name for _, module in self.all for name in _scripted_functions(type(module))}  # type: ignore[arg-type]
        return sorted(spoken.union(self.functions))


def modules_of(shadow: Shadow, layers: Sequence[Found] = ()) -> Modules:
    """The modules that ``named_modules`` yields, and then those that are held in other ways.

    ``layers`` are those that were found in a model without message-passing modules.
    """
    found = Modules(functions=shadow.functions, found={layer.name: layer for layer in layers})
    seen: set[int] = set()
    todo: Named = [*reversed(shadow.strays), ("", shadow.own)]
    while todo:
        name, module = todo.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        named, own = (name, module), module.__dict__
        found.all.append(named)
        for role in _roles(type(module)):  # type: ignore[arg-type]
            getattr(found, role).append(named)
        if isinstance(module, torch.jit.ScriptModule):  # Python does not hold what is in it
            continue
        if own[PARAMETERS] or own[BUFFERS]:
            found.holders.append(named)
        if own[MODULES]:
            prefix = f"{name}." if name else ""
            todo += [(prefix + key, child) for key, child in reversed(own[MODULES].items())]
    found.convs = [(name, conv) for name, conv in found.convs if not _holds_layers(name, conv, found.convs)]
    found.convs += [named for named in found.all if named[0] in found.found]
    return found


def searched(modules: Modules) -> Named:
    """The modules among which to look for layers: custom ones, except the model itself."""
    scripts = {id(script) for _, script in modules.scripts}
    own = [(name, module) for name, module in modules.all[1:] if id(module) not in scripts and not is_shared(module)]
    return [(name, module) for name, module in own if not type(module).__module__.startswith("torch.")]


def has_layers(model: nn.Module) -> bool:
    """Whether a model has registered message-passing modules."""
    return any(isinstance(module, (MessagePassing, MetaLayer)) for module in model.modules())


def modes_of_their_own(model: nn.Module) -> list[str]:
    """Notes on modules in training mode whose ``train(False)`` does more than set a flag."""
    training = ((name, m) for name, m in model.named_modules() if m.training)
    own = [(name or "the model", type(m)) for name, m in training if type(m).train is not nn.Module.train]
    return [_MODE.format(name, kind.__name__) for name, kind in own]


def _holds_layers(name: str, conv: Any, convs: Named) -> bool:
    """Whether a message-passing module only runs others that it holds, which then are the layers."""
    spoken = _spoken_of(type(conv)) if len(convs) > 1 else frozenset()  # type: ignore[arg-type]
    prefix = f"{name}." if name else ""
    others = [n for n, inner in convs if inner is not conv and isinstance(inner, MessagePassing)]
    inside = [other.removeprefix(prefix) for other in others if other.startswith(prefix)]
    return "propagate" not in spoken and any(other.split(".")[0] in spoken for other in inside)


@functools.cache
def _spoken_of(kind: type) -> frozenset[str]:
    """The names used in the methods of a layer's class when it runs."""
    own = kind.__mro__[: kind.__mro__.index(MessagePassing if issubclass(kind, MessagePassing) else nn.Module)]
    return frozenset(name for method in _running(own) for name in method.__code__.co_names)


def _running(owners: Iterable[type]) -> list[FunctionType]:
    """The methods of classes that belong to a run; of those with the same name, the last class's."""
    methods = {name: method for owner in owners for name, method in vars(owner).items()}
    return [m for name, m in methods.items() if isinstance(m, FunctionType) and name not in _NOT_RUNNING]


@functools.cache
def _roles(kind: type) -> tuple[str, ...]:
    """The roles of a module type in tracing: names of fields of Modules."""
    roles = []
    if issubclass(kind, (MessagePassing, MetaLayer)):
        roles.append("convs")
    if issubclass(kind, (nn.Linear, PygLinear, nn.Bilinear)):
        roles.append("linears")
    if kind.__module__.startswith("torch_geometric.nn.norm") and kind.__name__ not in _NO_NORMS:
        roles.append("norms")  # sums and means inside are statistics
    if issubclass(kind, QuantileAggregation) and kind.forward is QuantileAggregation.forward:
        roles.append("quantiles")
    if issubclass(kind, (torch.jit.ScriptModule, Scripted)):
        roles.append("scripts")
    return tuple(roles)


@functools.cache
def _scripted_functions(kind: type) -> tuple[str, ...]:
    """The TorchScript functions that the methods of a class, and what those call, speak of; libraries are left out."""
    owners = [owner for owner in kind.__mro__ if not _is_of(owner.__module__)]
    todo = _running(reversed(owners))
    seen, found = set(todo), dict[str, None]()
    while todo:
        for name, item in _called(todo.pop()):
            if isinstance(item, torch.jit.ScriptFunction):
                found[name] = None
            elif isinstance(item, FunctionType) and item not in seen and not _is_of(item.__module__):
                seen.add(item)
                todo.append(item)
    return tuple(found)


def _called(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function speaks of by name, in its own module and in those that this one knows."""
    spoken = [(name, function.__globals__.get(name)) for name in function.__code__.co_names]
    yield from spoken
    for _, item in spoken:
        if isinstance(item, ModuleType) and not _is_of(item.__name__):
            yield from ((name, vars(item).get(name)) for name, _ in spoken)


def _is_of(module: str | None) -> bool:
    """Whether a module is of the libraries whose functions are known."""
    return module is None or module.split(".")[0] in ("torch", "torch_geometric", "builtins", "numpy", "scipy")


def torchscript(name: str) -> TraceError:
    """The error for a TorchScript model or module, by name."""
    return TraceError(
        f"{name!r} is TorchScript, which Python cannot look into.",
        remedy="Trace the Python model that it was scripted from. For a model built with e3nn, call "
        "e3nn.set_optimization_defaults(jit_script_fx=False) before you build it: then it computes in Python.",
    )


class NoLayersError(TraceError):
    """A model passes no messages, as far as is seen."""


def check_layers(modules: Modules) -> None:
    """Refuse a model without message passing."""
    if modules.convs:
        return
    kind = type(modules.all[0][1]).__name__
    if modules.scripts:
        raise torchscript(modules.scripts[0][0] or kind)
    raise NoLayersError(
        f"{kind} has no message-passing layer: no torch_geometric.nn.MessagePassing, no module that takes edges and "
        "sends messages from node to node along them, and no sum at the nodes in its own code.",
        remedy="Tensors of nodes have a row for every node: (M, F), or (1, M, F). For dense batches, (B, N, F), trace "
        "one graph at a time. A graph without edges shows no layers, nor does one of two nodes if a loop adds up. What "
        "mixes neighbours in another way (a convolution over them, say) belongs into a MessagePassing module.",
    )


class _Unused:
    """A lazy weight of a layer that no input has reached yet; a trace must not be the first to do so."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse to be computed with."""
        try:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[misc]
        except ValueError as error:
            raise InputError(
                "The model runs a layer with lazy parameters that are not initialised.",
                argument="model",
                expected="initialised",
                remedy="Run it on this input first.",
            ) from error


class _UnusedParameter(_Unused, UninitializedParameter):
    pass


class _UnusedBuffer(_Unused, UninitializedBuffer):
    pass


def spare_lazy(modules: Modules) -> None:
    """Put weights that cannot be initialised in the place of a shadow's lazy ones, which are the model's own."""
    for holder, (_, module) in itertools.product((parameters_of, buffers_of), modules.holders):
        held = holder(module)
        for name in [name for name, tensor in held.items() if tensor is not None and is_lazy(tensor)]:
            without_pre_hooks(module)
            held[name] = _UnusedParameter() if isinstance(held[name], nn.Parameter) else _UnusedBuffer()


def a_weight(modules: Modules) -> Tensor | None:
    """The model's first floating-point weight, which tells its device and type."""
    owned = [holder(module) for holder in (parameters_of, buffers_of) for _, module in modules.holders]
    tensors = [t for held in owned for t in held.values() if t is not None and not is_lazy(t)]
    return next((t for t in tensors if t.is_floating_point() and t.numel()), None)


def exchange(modules: Modules, change: Callable[[Tensor], Tensor]) -> None:
    """Give the modules of a shadow other weights and buffers, each converted once however often it is held."""
    made: dict[int, Tensor] = {}
    for _, module in modules.holders:
        for held in (parameters_of(module), buffers_of(module)):
            for name, tensor in held.items():
                if tensor is not None and not is_lazy(tensor):
                    if id(tensor) not in made:
                        made[id(tensor)] = change(tensor)
                    held[name] = made[id(tensor)]


def where_parameters_lie(modules: Modules) -> frozenset[int]:
    """The memory addresses of parameters, whatever shape they are viewed in."""
    owned = [t for _, module in modules.holders for t in parameters_of(module).values() if t is not None]
    laid_out = [t for t in owned if not is_lazy(t) and t.layout == torch.strided]
    return frozenset([t.untyped_storage().data_ptr() for t in laid_out])


def check_weights(modules: Modules) -> None:
    """Refuse weights for which relevance cannot be computed."""
    owned = [(name, holder(module)) for holder in (parameters_of, buffers_of) for name, module in modules.holders]
    held = ((f"{n}.{key}", t) for n, tensors in owned for key, t in tensors.items())
    named = [(key, t) for key, t in held if t is not None and not is_lazy(t)]
    for name, tensor in named:
        if tensor.is_floating_point() and not bool(tensor.detach().isfinite().all()):
            raise InputError(
                f"The weights are not finite: {name.lstrip('.')!r} has NaN or infinite entries.",
                argument="model",
                expected="a model with finite weights",
                got=name.lstrip("."),
            )
