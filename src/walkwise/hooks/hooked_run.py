"""One run of a copy of the model, with its maps replaced by surrogates and its gradients weighed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from walkwise.errors import TraceError
from walkwise.hooks.surrogates import Shares, aggregated, carried_whole, gathers_first, of_conv, of_linear, sides
from walkwise.rules import LRP_0, Rule, divide

USE_TRACE = "Use walkwise.trace."

#: Functions whose gradient is what LRP-0 says: linear, positively homogeneous, or picking entries out.
_PLAIN = frozenset({
    "neg", "sum", "mean", "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute",
    "t", "expand", "expand_as", "repeat", "cat", "concat", "stack", "hstack", "vstack", "split", "chunk", "unbind",
    "getitem", "index_select", "select", "narrow", "gather", "scatter_add", "index_add", "index_put", "setitem",
    "clone", "contiguous", "to", "type", "double", "float", "type_as", "dropout", "pad", "repeat_interleave",
    "masked_fill", "where", "get", "requires_grad", "view_as", "new_zeros", "zeros_like", "relu", "leaky_relu",
    "prelu", "abs", "max", "min", "amax", "amin", "maximum", "minimum", "sort", "topk", "scatter", "segment_reduce",
})  # fmt: skip
_SUMS = frozenset({"add", "radd", "iadd", "sub", "rsub", "isub"})
_FACTORS = frozenset({"mul", "rmul", "imul", "div", "truediv", "itruediv"})
_PRODUCTS = frozenset({"matmul", "rmatmul", "mm", "bmm", "einsum", "addmm", "spmm"})
#: Entry by entry, h = z ⊙ [h / z]; of the latter the bracket has no limit at z = 0.
_SMOOTH = frozenset({"elu", "celu", "selu", "gelu", "silu", "mish", "tanh", "softsign"})
_SINGULAR = frozenset({"softplus", "sigmoid", "softmax"})


@dataclass(frozen=True)
class Plan:
    """What the first run said: the rule of every map, and where walks stand."""

    rules: tuple[Rule, ...]  # of the layers' calls
    between: tuple[Rule, ...]  # of the linear maps outside them
    position: tuple[int, ...]  # of what each call is handed
    roots: frozenset[int]  # positions where walks begin
    last: frozenset[int]  # the calls that return the last position


@dataclass(eq=False)
class HookedRun(TorchFunctionMode):
    """One run of the copy. With a plan, maps are replaced and gradients weighed; without, it is only watched."""

    plan: Plan | None = None
    weights: Tensor | None = None  # of the nodes, (M,)
    handed: list[Tensor] = field(default_factory=list)  # to each call
    returned: list[Tensor] = field(default_factory=list)  # by each call
    maps: list[tuple[int, Tensor]] = field(default_factory=list)  # outside layers: calls before, and what came out
    suspects: list[tuple[str, Tensor]] = field(default_factory=list)  # functions that no rule here covers
    open: list[nn.Module] = field(default_factory=list)  # the calls that are running, the outermost first
    weighed: set[int] = field(default_factory=set)  # positions
    parts: tuple[Tensor, Tensor] | None = None  # a GINConv's sums of positive and of negative entries
    attention: Any = None
    latest: tuple[Tensor, Shares | None, bool] | None = None  # what a map gave, of what; whether it is weighed
    folded: list[Tensor] = field(default_factory=list)  # what was normalised: nothing else may read it
    unwatched: bool = False  # while surrogates are made

    def __post_init__(self) -> None:
        """Nothing has been seen yet."""
        super().__init__()

    # -- layers -----------------------------------------------------------------------------------

    def hooks(self, name: str, module: MessagePassing) -> list[Any]:
        """The hooks on one layer of the copy."""
        found = [
            module.register_forward_pre_hook(self._before, with_kwargs=True),
            module.register_forward_hook(self._after(name), with_kwargs=True),
        ]
        if self.plan is not None and carried_whole(module):
            found.append(module.register_edge_update_forward_hook(self._attended))
        return found

    def _attended(self, module: Any, args: Any, attention: Any) -> Any:
        """Attention is held constant."""
        self.attention = attention.detach()
        return self.attention

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.open.append(module)
        if len(self.open) > 1:  # a layer within a layer is part of it
            return
        H = args[0] if args else kwargs.get("x")
        if not isinstance(H, Tensor) or not H.is_floating_point():
            raise TraceError(f"{type(module).__name__} is not handed one tensor of node features.", remedy=USE_TRACE)
        if not H.requires_grad:
            H.requires_grad_(True)
        self.handed.append(H)
        self._read(H, type(module).__name__, H, self.latest)
        self.attention = self.parts = None
        if self.plan is not None:
            position = self.plan.position[len(self.handed) - 1]
            if position not in self.weighed | self.plan.roots:
                self._weigh(H)
            self.weighed.add(position)
            if self.rule.splits and gathers_first(module):
                self.parts = self._alone(aggregated, module, args, kwargs)

    def _after(self, name: str) -> Callable[..., Any]:
        def hook(module: MessagePassing, args: tuple[Any, ...], kwargs: dict[str, Any], returned: Any) -> Any:
            self.open.pop()
            if self.open:
                return None
            z = returned[0] if isinstance(returned, tuple) else returned
            if self.plan is not None:
                call = len(self.handed) - 1
                made = self.latest[1] if self.latest is not None and self.latest[0] is z else None
                if not gathers_first(module) and not self.rule.exact:
                    made = self._alone(of_conv, name, module, self.rule, args, kwargs, self.attention)
                    z = self._alone(made.shared, z)
                last = call in self.plan.last
                if last:
                    z = z.clone()  # a tensor of its own, should the layer return what it was handed
                    self._weigh(z)
                self.latest = None if made is None else (z, made, last)
            self.returned.append(z)
            return (z, *returned[1:]) if isinstance(returned, tuple) else z

        return hook

    def _alone(self, make: Callable[..., Any], *args: Any) -> Any:
        """What a function returns, the functions it calls in turn not being the model's."""
        self.unwatched = True
        try:
            return make(*args)
        finally:
            self.unwatched = False

    def _weigh(self, H: Tensor) -> None:
        assert self.weights is not None
        weights = self.weights.to(H).view(-1, *[1] * (H.dim() - 1))
        H.register_hook(lambda gradient: gradient * weights)  # type: ignore[no-untyped-call]

    # -- functions --------------------------------------------------------------------------------

    @property
    def rule(self) -> Rule:
        """The rule of the layer that is running, or ran last; before all, of the first."""
        return LRP_0 if self.plan is None else self.plan.rules[max(0, len(self.handed) - 1)]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs a function, in its surrogate form where it has one."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", type(func).__name__).strip("_")
        if self.unwatched or (self.open and self.plan is not None and carried_whole(self.open[0])):
            return func(*args, **kwargs)
        latest = self.latest
        result = self._carried(name, func, args, kwargs)
        if isinstance(result, Tensor) and name != "batch_norm":
            lists = (entry for given in args if isinstance(given, list | tuple) for entry in given)
            for given in (*args, *lists, *kwargs.values()):
                self._read(given, name, result, latest)
        return result

    def _read(self, given: Any, name: str, result: Tensor, latest: Any) -> None:
        """What has another reader is not normalised as part of the map before it."""
        if latest is not None and given is latest[0] and self.latest is latest:
            self.latest = None
        if any(given is z for z in self.folded):
            self.suspects.append((f"{name} of what is normalised, too,", result))

    def _carried(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "linear":
            return self._linear(*args, **kwargs)
        if name == "batch_norm" and self.latest is not None and args[0] is self.latest[0]:
            return self._normalised(func, args, kwargs)
        if name == "log_softmax" and self._followed(args):
            return _log_softmax(func(*args, **kwargs), args[0])
        if name in _SMOOTH | _SINGULAR and self._followed(args) and not _in_place(func, args, kwargs):
            return _activated(name, func, args, kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.requires_grad and not self._known(name, args, kwargs):
            self.suspects.append((name, result))
        return result

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        z = nn.functional.linear(x, weight, bias)
        rule = self.rule
        if not self.open:
            self.maps.append((len(self.handed), z))
            rule = LRP_0 if self.plan is None else self.plan.between[len(self.maps) - 1]
        if rule.exact or not x.requires_grad or self.plan is None:
            self.latest = z, None, False
            return z
        parts, self.parts = self.parts, None
        made = of_linear(rule, x if parts is None else parts[0] + parts[1], weight, bias, parts or sides(x))
        surrogate = made.shared(z)
        self.latest = surrogate, made, False
        return surrogate

    def _normalised(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """A batch normalisation right after a linear map is part of it."""
        assert self.latest is not None
        _, made, weighed = self.latest
        names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
        given = {"weight": None, "bias": None, "eps": 1e-5, **dict(zip(names, args, strict=False)), **kwargs}
        z: Tensor = func(*args, **kwargs)
        if given["running_mean"] is None or given.get("training"):  # the statistics of this graph
            self.suspects.append(("batch_norm", z))
        elif made is not None:
            slope = (given["running_var"] + given["eps"]).rsqrt()
            slope = slope if given["weight"] is None else slope * given["weight"]
            shift = -given["running_mean"] * slope
            made = made.normalised(slope, shift if given["bias"] is None else shift + given["bias"])
            z = made.shared(z)
            self.folded.append(args[0])
            if weighed:
                self._weigh(z)
        self.latest = z, made, weighed
        return z

    def _known(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if name in _SUMS:  # a constant that is added would be a bias, which has a share
            return self.rule.exact or sum(isinstance(a, Tensor) and a.requires_grad for a in args[:2]) == 2
        if name in _FACTORS:
            return sum(isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values())) == 1
        if name in _PRODUCTS or name == "batch_norm":
            both = sum(isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values())) > 1
            return self.rule.exact and not both
        if name == "scatter_reduce":
            return "prod" not in (*args, *kwargs.values())
        return name in _PLAIN

    @staticmethod
    def _followed(args: tuple[Any, ...]) -> bool:
        return bool(args) and isinstance(args[0], Tensor) and args[0].requires_grad


def _in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    written = func.__name__.endswith("_") and not func.__name__.endswith("__")
    return written or bool(kwargs.get("inplace")) or any(a is True for a in args[1:])


def _activated(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """h = z ⊙ [h / z]."""
    z = args[0]
    with torch.no_grad():
        h: Tensor = func(*args, **kwargs)
        near = torch.where(z == 0, -1e-6, z)
        ratio = divide(h, z) if name in _SINGULAR else func(near, *args[1:], **kwargs) / near
    return _valued(z * ratio, h)


def _log_softmax(h: Tensor, z: Tensor) -> Tensor:
    """The logit: the normaliser is held constant."""
    return _valued(z, h)


def _valued(surrogate: Tensor, value: Tensor) -> Tensor:
    """A tensor with the surrogate's gradient and this value."""
    return surrogate + (value - surrogate).detach()
