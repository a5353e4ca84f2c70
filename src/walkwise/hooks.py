"""The method of the paper by its name: one subgraph per pass, by hooks on a copy of the model (Theorems 2 and 4).

Nothing here knows a chain. A first run of the copy says which layers ran on what; a second one replaces every linear
map z by its surrogate p ⊙ [z / p], the bracket held constant, and multiplies the gradient that arrives at each
position Hˡ by its node weights. What cannot be carried so is refused by name; `walkwise.trace` carries more, and
answers any number of questions after one run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from walkwise.errors import InputError, TargetError, TraceError, UnsupportedLayerError, described
from walkwise.rules import LRP_0, Rule, RuleLike, Schedule, as_schedule, divide
from walkwise.surrogates import aggregated, carried_whole, conv_surrogate, gathers_first, linear_surrogate, sides

Target = int | Sequence[int] | Tensor | Callable[[Any], Tensor] | None

_TRACE = "Use walkwise.trace."

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


def subgraph_relevance(
    model: nn.Module,
    x: Tensor,
    edge_index: Any,
    nodes: Sequence[int],
    *,
    alpha: float = 0.0,
    target: Target = None,
    index: int | None = None,
    rule: RuleLike = "gamma",
    **model_kwargs: Any,
) -> float:
    """R_α(S) of one subgraph by the forward-hook trick: the number that ``walkwise.subgraph_relevance`` gives.

    With α = 0, Algorithm 1: the gradient is let through at the nodes of S only, at H⁰ … Hᴸ, and
    R(S) = ⟨M ⊙ ∂y/∂H⁰, H⁰⟩. With α > 0, Algorithm 2 with the mask on H⁰ that Theorem 4 asks for: a pass with weight 1
    inside S and α outside, less a pass with 0 inside and α outside (the walks that never visit S).

    Args:
        model: a model with torch_geometric message-passing layers. A copy of it runs, in evaluation mode.
        x: the node features: (M, F).
        edge_index: the edges.
        nodes: the nodes of S.
        alpha: what every step outside S counts, from 0 to 1.
        target: the output column (default: the largest), one per graph, or a callable that makes a scalar.
        index: the output row, for node-level models.
        rule: as for `walkwise.trace`. LRP-0 goes through any layer that is linear but for ReLU and its like; the
            others through GCNConv, GINConv, GraphConv, SAGEConv, SGConv, TAGConv, GATConv, GATv2Conv and linear maps.
        **model_kwargs: passed to the model.

    >>> import walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model, x = GCN(2, 8, 2, out_channels=3).double(), torch.ones(3, 2).double()
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> hooked = subgraph_relevance(model, x, edge_index, [0, 1], index=1, alpha=0.5)
    >>> chain = ww.trace(model, x, edge_index, index=1, rule="gamma")
    >>> abs(hooked - float(ww.subgraph_relevance(chain, [[0, 1]], alpha=0.5)[0])) < 1e-12
    True
    """
    schedule = as_schedule(rule)
    inside = _inside(nodes, x)
    if not 0 <= alpha <= 1:
        raise InputError(argument="alpha", expected="a discount between 0 and 1", got=alpha)
    original = getattr(model, "_orig_mod", model)
    question = _Question(
        copy.deepcopy(original).eval().requires_grad_(False), x, edge_index, target, index, model_kwargs
    )
    plan = _plan(question, schedule)
    outside = alpha * (1 - inside)
    relevance = _pass(question, plan, inside + outside)
    return relevance if alpha == 0 else relevance - _pass(question, plan, outside)


def _inside(nodes: Sequence[int], x: Tensor) -> Tensor:
    """1 on S, 0 elsewhere.  # (M,)"""
    chosen = torch.as_tensor(nodes, device=x.device)
    if chosen.numel() and (chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.dim() != 1):
        raise InputError(argument="nodes", expected="node ids such as [0, 3, 4]", got=described(chosen))
    wrong = [node for node in chosen.tolist() if not 0 <= node < len(x)]
    if wrong:
        raise InputError(
            f"Node {wrong[0]} is not in the graph, whose {len(x)} nodes are 0 to {len(x) - 1}.",
            argument="nodes",
            expected=f"node ids from 0 to {len(x) - 1}",
            got=wrong[0],
        )
    weights = torch.zeros(len(x), device=x.device, dtype=torch.float64)
    weights[chosen.long()] = 1
    return weights


@dataclass(frozen=True, eq=False)
class _Question:
    """A copy of the model, what it is called with, and which scalar of its output is explained."""

    model: nn.Module
    x: Tensor
    edge_index: Any
    target: Target
    index: int | None
    arguments: dict[str, Any]

    def run(self, mode: _Run) -> Tensor:
        """The explained scalar, with the model run under a mode and its hooks."""
        features = self.x.detach().clone()
        if features.is_floating_point():
            features.requires_grad_(True)
        with ExitStack() as hooks, torch.inference_mode(False), torch.enable_grad():
            for name, module in self.model.named_modules():
                if isinstance(module, MessagePassing):
                    for handle in mode.hooks(name, module):
                        hooks.callback(handle.remove)
            with mode:
                output = self.model(features, self.edge_index, **self.arguments)
            return self._scalar(output)

    def _scalar(self, output: Any) -> Tensor:
        if callable(self.target):
            chosen: Tensor = self.target(output)
            return chosen.sum()
        if not isinstance(output, Tensor) or output.dim() > 2:
            raise TargetError(
                "The model's output is no table of rows and columns.",
                argument="output",
                expected="of shape (rows, columns)",
                got=described(output),
                remedy="Give target=lambda output: ...",
            )
        batch = self.arguments.get("batch")
        graphs = 1 if batch is None or not batch.numel() else int(batch.max()) + 1
        per_row = output.dim() == 2 or (output.dim() == 1 and len(output) in (graphs, len(self.x)))
        table = output.reshape(len(output), -1) if per_row else output.reshape(1, -1)
        rows = list(range(len(table))) if self.index is None else [self.index]
        if self.index is None and len(rows) != graphs:
            raise TargetError(
                f"The output has {len(rows)} rows for {graphs} graph(s).",
                argument="index",
                expected=f"a row of the output, 0 to {len(rows) - 1}",
                remedy="Give index=<the row to explain>.",
            )
        target = table[rows].argmax(dim=1).tolist() if self.target is None else self.target
        if table.shape[1] == 1 and (target == 1 or target in ("positive", "negative")):  # the classes of one logit
            return table[rows].sum() * (-1 if target == "negative" else 1)
        columns = torch.as_tensor(target, device=table.device).expand(len(rows))
        return table[rows].gather(1, columns[:, None]).sum()


@dataclass(frozen=True)
class _Plan:
    """What the first run said: the rule of every map, and where walks stand."""

    rules: tuple[Rule, ...]  # of the layers' calls
    between: tuple[Rule, ...]  # of the linear maps outside them
    position: tuple[int, ...]  # of what each call is handed
    roots: frozenset[int]  # positions where walks begin
    last: frozenset[int]  # the calls that return the last position


@dataclass(eq=False)
class _Run(TorchFunctionMode):
    """One run of the copy. With a plan, maps are replaced and gradients weighed; without, it is only watched."""

    plan: _Plan | None = None
    weights: Tensor | None = None  # of the nodes, (M,)
    handed: list[Tensor] = field(default_factory=list)  # to each call
    returned: list[Tensor] = field(default_factory=list)  # by each call
    maps: list[tuple[int, Tensor]] = field(default_factory=list)  # outside layers: calls before, and what came out
    suspects: list[tuple[str, Tensor]] = field(default_factory=list)  # functions that no rule here covers
    open: list[nn.Module] = field(default_factory=list)  # the calls that are running, the outermost first
    weighed: set[int] = field(default_factory=set)  # positions
    parts: tuple[Tensor, Tensor] | None = None  # a GINConv's sums of positive and of negative entries
    attention: Any = None
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
            raise TraceError(f"{type(module).__name__} is not handed one tensor of node features.", remedy=_TRACE)
        if not H.requires_grad:
            H.requires_grad_(True)
        self.handed.append(H)
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
                if not gathers_first(module) and not self.rule.exact:
                    z = self._alone(conv_surrogate, name, module, self.rule, z, args, kwargs, self.attention)
                if call in self.plan.last:
                    z = z.clone()  # a tensor of its own, should the layer return what it was handed
                    self._weigh(z)
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
        if name == "linear":
            return self._linear(*args, **kwargs)
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
            return z
        parts, self.parts = self.parts, None
        return linear_surrogate(rule, z, x if parts is None else parts[0] + parts[1], weight, bias, parts or sides(x))

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


# -- the two runs ---------------------------------------------------------------------------------


def _plan(question: _Question, schedule: Schedule) -> _Plan:
    """What the model does, seen in a run of its own."""
    run = _Run()
    y = question.run(run)
    if not run.handed:
        raise TraceError(
            f"{type(question.model).__name__} has no message-passing layer of torch_geometric.",
            argument="model",
            expected="a model of torch_geometric.nn.MessagePassing layers",
        )
    live = [i for i, H in enumerate(run.returned) if _depends(y, H)]
    if not live:
        raise TraceError(
            "The explained output does not depend on any message-passing layer.",
            argument="target",
            expected="a part of the output that depends on the layers",
        )
    if len(live) < len(run.returned):
        raise TraceError("A message-passing layer ran that the output does not follow from.", remedy=_TRACE)
    positions = list({id(H): H for H in run.handed}.values())
    wrong = [H for H in positions if H.shape[0] != len(question.x)]
    if wrong:
        raise TraceError(f"Every layer must run on the {len(question.x)} nodes; one is handed {tuple(wrong[0].shape)}.")
    places = {id(H): place for place, H in enumerate(positions)}
    rules = schedule.rules(len(run.handed))
    feeds = [any(_depends(H, out) for H in positions) for out in run.returned]
    roots = [p for p, H in enumerate(positions) if not any(_depends(H, K) for K in positions if K is not H)]
    between = [
        rules[max(0, begun - 1)] if any(_depends(H, out) for H in positions) else schedule.readout
        for begun, out in run.maps
    ]
    return _Plan(
        rules=rules,
        between=tuple(between),
        position=tuple(places[id(H)] for H in run.handed),
        roots=frozenset(roots),
        last=frozenset(i for i, feeding in enumerate(feeds) if not feeding),
    )


def _pass(question: _Question, plan: _Plan, weights: Tensor) -> float:
    """Σ over walks of (product of node weights) · relevance: one forward and one backward pass."""
    run = _Run(plan, weights)
    y = question.run(run)
    roots = list({place: H for place, H in zip(plan.position, run.handed, strict=True) if place in plan.roots}.values())
    for name, out in run.suspects:
        if _depends(y, out) and any(_depends(out, H) for H in roots):
            raise UnsupportedLayerError(
                f"By hooks, {name} cannot be carried under this rule ({plan.rules[0]} in the first layer).",
                remedy="Use walkwise.trace, which can.",
            )
    gradients = torch.autograd.grad(y, roots)
    rows = [(g.detach() * H.detach()).flatten(1).sum(dim=1) for g, H in zip(gradients, roots, strict=True)]
    return float(sum((row * weights.to(row)).sum() for row in rows))


def _depends(result: Tensor, source: Tensor) -> bool:
    """Whether a tensor follows from another, or is it."""
    if result is source:
        return True
    if not result.requires_grad or not source.requires_grad:
        return False
    (found,) = torch.autograd.grad(result.sum(), source, retain_graph=True, allow_unused=True)
    return found is not None
