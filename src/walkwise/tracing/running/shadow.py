"""A shadow of the user's model: the same modules over the same weights, to run and write on instead of the model.

The model itself is never touched: no attribute is set on it, no hook left behind, no mode changed, whatever happens
while the shadow runs, and whoever else runs the model at the same time. A shadow has its own module objects, with
copies of the buffers; parameters, and everything else that modules hold, are the model's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.models import GroupAddRev

from walkwise.tracing.private import (
    BUFFERS,
    COMPILED,
    MODULES,
    PARAMETERS,
    REMEMBERED,
    REMEMBERED_EDGES,
    uncompiled,
    wrapped_in,
)

_HOLDERS = (list, tuple, dict)
_CALLABLES = (MethodType, functools.partial, FunctionType, torch.jit.ScriptFunction)
_LIBRARIES = ("torch", "torch_geometric")
_NO_MODULES = (int, str, bool, float, type(None), torch.Size, torch.dtype)
_EVERY = frozenset(nn.Module().__dict__)  # what every module has


class Scripted(nn.Module):
    """Stands in for a TorchScript module of the model, so that its calls are noticed."""

    def __init__(self, original: Any) -> None:
        """The stand-in of one module."""
        super().__init__()
        object.__setattr__(self, "original", original)  # no module of its own

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module."""
        return self.original(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the module."""
        return getattr(self.__dict__["original"], name)


class Front(nn.Module):
    """Wraps a model, ``model``, to call it in another way; module names remain the model's own."""

    model: nn.Module


@dataclass(frozen=True, eq=False)
class Shadow:
    """A shadow, and the modules in it that are not registered in the model, such as those in plain lists."""

    model: nn.Module
    strays: tuple[tuple[str, nn.Module], ...]
    functions: tuple[str, ...] = ()  # the names of TorchScript functions that modules hold

    @property
    def own(self) -> nn.Module:
        """The shadow of the user's own model, whatever wraps it."""
        return self.model.model if isinstance(self.model, Front) else self.model

    def forget(self) -> None:
        """Empty what layers have cached of earlier graphs, and let them cache no more: they take any graph."""
        for module in (*self.model.modules(), *(stray for _, stray in self.strays)):
            own = module.__dict__
            own.update({name: None for name in (*REMEMBERED, *REMEMBERED_EDGES) if name in own})
            if "cached" in own:
                own["cached"] = False


#: Modules that hold nothing and do the same in training and evaluation: one serves the model and its shadow.
_STATELESS = {
    type(module): frozenset(module.__dict__)
    for module in (nn.ReLU(), nn.Identity(), SumAggregation(), MeanAggregation())
}
_NOTHING: frozenset[str] = frozenset()


def is_shared(module: nn.Module) -> bool:
    """Whether a module of a shadow may be the model's own, on which no hook may be put."""
    return type(module) in _STATELESS


def shadow_of(model: nn.Module) -> Shadow:
    """A shadow of a model, in evaluation mode."""
    if isinstance(model, torch.jit.ScriptModule):
        return Shadow(model, ())
    shadows = _Shadows()
    return Shadow(shadows.of(model), tuple(shadows.strays), tuple(shadows.functions))


@contextmanager
def same_random_numbers() -> Iterator[Callable[[], bool]]:
    """Restore torch's random state at the end; inside, tell whether any random numbers were drawn."""
    generators = [torch.random, torch.cuda] if torch.cuda.is_initialized() else [torch.random]  # type: ignore[no-untyped-call]
    states = [generator.get_rng_state() for generator in generators]
    try:
        yield lambda: not all(torch.equal(s, g.get_rng_state()) for s, g in zip(states, generators, strict=True))
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_rng_state(state)


class _Shadows:
    """The shadows of modules, one for each however often it occurs in the model."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.kept: list[Any] = []  # the originals, so that no identity is used again
        self.strays: list[tuple[str, nn.Module]] = []
        self.functions: list[str] = []

    def of(self, module: Any) -> Any:
        """The shadow of a module."""
        known = self.made.get(id(module))
        if known is not None:
            return known
        if isinstance(module, torch.jit.ScriptModule):  # Python does not hold what is in it
            self.made[id(module)] = Scripted(module)
            self.kept.append(module)
            return self.made[id(module)]
        inner = wrapped_in(module) if module.__dict__[MODULES] else None
        if inner is not None:
            return self.of(inner)
        if module.__dict__.keys() <= _STATELESS.get(type(module), _NOTHING):
            return module
        twin = object.__new__(type(module))
        self.made[id(module)] = twin
        self.kept.append(module)
        own = twin.__dict__
        own.update(module.__dict__)
        own[PARAMETERS] = own[PARAMETERS].copy()
        own[BUFFERS] = {name: self._buffer(buffer) for name, buffer in own[BUFFERS].items()}
        children = own[MODULES].items()
        own[MODULES] = {name: None if child is None else self.of(child) for name, child in children}
        self._rest(own)
        self._speaks_of_itself(type(module), twin)
        own["training"] = False
        own.pop(COMPILED, None)
        if isinstance(module, GroupAddRev):
            own["disable"] = True  # its trick to save memory runs out of sight
        for name in REMEMBERED:
            if own.get(name) is not None:  # SGConv and its kin would ignore their input
                own[name] = None
        return twin

    def _buffer(self, buffer: Tensor | None) -> Tensor | None:
        if buffer is None or is_lazy(buffer):
            return buffer
        if id(buffer) not in self.made:
            self.made[id(buffer)] = buffer.clone() if not buffer.is_inference() else buffer
            self.kept.append(buffer)
        copy: Tensor = self.made[id(buffer)]
        return copy

    def _container(self, value: Any) -> Any:
        """A copy of a list or dictionary, and of those in it: a model may keep there what it has computed."""
        if type(value) not in (list, dict):
            return value
        if id(value) not in self.made:
            made: Any = [] if type(value) is list else {}
            self.made[id(value)] = made
            self.kept.append(value)
            if type(value) is list:
                made += map(self._container, value)
            else:
                made.update((key, self._container(item)) for key, item in value.items())
        return self.made[id(value)]

    def _rest(self, own: dict[str, Any]) -> None:
        """Modules that are held in other ways: in lists, as plain attributes, by their methods."""
        for name in [name for name in own if name not in _EVERY]:
            value = own[name]
            kind = type(value)
            if kind in _NO_MODULES:
                continue
            if kind in _HOLDERS:
                if value and name[0] != "_" and _holds(value):
                    own[name] = self._held(value, name)
                elif kind is not tuple:
                    own[name] = self._container(value)
            elif kind in _CALLABLES or isinstance(value, nn.Module):
                own[name] = self._held(value, name)

    def _held(self, value: Any, name: str) -> Any:
        """A value with the modules in it exchanged for their shadows."""
        if isinstance(value, nn.Module):
            shadow = self.of(value)
            self.strays.append((name, shadow))
            return shadow
        value = uncompiled(value)  # what is compiled runs out of sight
        kind = type(value)
        if kind is list or kind is tuple:
            return kind([self._held(item, f"{name}[{i}]") for i, item in enumerate(value)])
        if kind is dict:
            return {key: self._held(item, f"{name}[{key!r}]") for key, item in value.items()}
        if kind is MethodType and isinstance(value.__self__, nn.Module):
            return MethodType(value.__func__, self.of(value.__self__))
        if kind is functools.partial:
            args = [self._held(item, name) for item in value.args]
            return functools.partial(self._held(value.func, name), *args, **self._held(value.keywords, name))
        if kind is torch.jit.ScriptFunction:
            self.functions.append(value.name)
        return self._rebound(value) if kind is FunctionType else value

    def _rebound(self, function: Any, seen: Callable[[CellType], CellType] | None = None) -> Any:
        """Rebind a function that refers to modules of the model (``model.forward = lambda x: model.conv(x)``)."""
        if function.__module__ is not None and function.__module__.split(".")[0] in _LIBRARIES:
            return function
        cells = tuple(map(seen or self._cell, function.__closure__ or ()))
        names = function.__globals__
        spoken = {name: self._spoken(names[name]) for name in function.__code__.co_names if name in names}
        spoken = {name: new for name, new in spoken.items() if new is not names[name]}
        if not spoken and all(new is old for new, old in zip(cells, function.__closure__ or (), strict=True)):
            return function
        code, space = function.__code__, names | spoken if spoken else names
        twin = FunctionType(code, space, function.__name__, function.__defaults__, cells or None)
        twin.__kwdefaults__, twin.__dict__ = function.__kwdefaults__, function.__dict__.copy()
        return twin

    def _spoken(self, value: Any) -> Any:
        """What a function calls by name: a module's shadow if there is one, and the original of what was compiled."""
        shadow = self.made.get(id(value))
        known = uncompiled(value) if type(value) is FunctionType else value
        return known if shadow is None else shadow

    def _speaks_of_itself(self, kind: type[nn.Module], twin: nn.Module) -> None:
        """Make a ``forward`` that refers to an outside variable, ``model.encode(x)``, refer to the shadow."""
        if type(kind.forward) is FunctionType and "forward" not in twin.__dict__:
            rebound = self._rebound(uncompiled(kind.forward), self._known_cell)
            if rebound is not kind.forward:
                twin.__dict__["forward"] = MethodType(rebound, twin)

    def _known_cell(self, cell: CellType) -> CellType:
        """A variable that a method closes over, with the shadow in it where it held the model or a part of it."""
        known = self.made.get(id(held_in(cell)))
        return cell if known is None else CellType(known)

    def _cell(self, cell: CellType) -> CellType:
        """A variable that a function closes over, with the shadow in it where it held a module of the model."""
        held = held_in(cell)
        if isinstance(held, nn.Module):
            return CellType(self.of(held))
        return CellType(self._held(held, "closure")) if type(held) in _HOLDERS and held and _holds(held) else cell


def held_in(cell: CellType) -> Any:
    """What a variable holds that a function closes over; None before it is set."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _holds(value: Any) -> bool:
    """Whether a list, tuple or dictionary holds modules, or methods of modules, at any depth."""
    for item in value.values() if type(value) is dict else value:
        if isinstance(item, nn.Module) or type(item) in _CALLABLES:
            return True
        if type(item) in _HOLDERS and item and _holds(item):
            return True
    return False
