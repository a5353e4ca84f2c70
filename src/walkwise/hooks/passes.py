"""The two runs of a copy of the model: one that is watched, and one pass for each choice of node weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from walkwise.errors import InputError, TargetError, TraceError, UnsupportedLayerError, described
from walkwise.hooks.hooked_run import USE_TRACE, HookedRun, Plan
from walkwise.rules import RuleLike, Schedule, as_schedule

Target = int | Sequence[int] | Tensor | Callable[[Any], Tensor] | None


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
            others through GCNConv, GINConv, GraphConv, SAGEConv, SGConv, TAGConv, GATConv, GATv2Conv and linear maps,
            with or without a batch normalisation right after them.
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
    if not isinstance(x, Tensor):
        raise InputError(
            argument="x",
            expected="the node features of one graph, (M, F)",
            got=described(x),
            remedy="For a heterogeneous graph use walkwise.trace.",
        )
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

    def run(self, mode: HookedRun) -> Tensor:
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


def _plan(question: _Question, schedule: Schedule) -> Plan:
    """What the model does, seen in a run of its own."""
    run = HookedRun()
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
        raise TraceError("A message-passing layer ran that the output does not follow from.", remedy=USE_TRACE)
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
    return Plan(
        rules=rules,
        between=tuple(between),
        position=tuple(places[id(H)] for H in run.handed),
        roots=frozenset(roots),
        last=frozenset(i for i, feeding in enumerate(feeds) if not feeding),
    )


def _pass(question: _Question, plan: Plan, weights: Tensor) -> float:
    """Σ over walks of (product of node weights) · relevance: one forward and one backward pass."""
    run = HookedRun(plan, weights)
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
