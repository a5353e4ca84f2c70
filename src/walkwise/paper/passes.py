"""Relevance one pass of the model at a time: naive GNN-LRP, and sGNN-LRP by the forward-hook trick.

Nothing here uses a relevance chain. The rule is written into the model by hooks, and every pass weighs the
gradient that arrives at the node representations H⁰ … Hᴸ (section 5 and appendix F of the paper).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch_geometric.nn import GINConv, MessagePassing

from walkwise.errors import InputError, described
from walkwise.paper.bunches import Bunch
from walkwise.rules import Rule, as_schedule, divide

#: Node weights at H⁰ … Hᴸ, (L + 1, M), in; relevance out. One forward and one backward pass.
Pass = Callable[[Tensor], float]


@dataclass(frozen=True)
class Enumerated:
    """What pass after pass came to."""

    relevance: float  # of the walks that were reached
    passes: int
    finished: bool  # False: the time limit came first


@contextmanager
def passes(model: nn.Module, graph: Bunch, target: int) -> Iterator[Pass]:
    """A function from node weights to the relevance of walks so weighted; the hooks are gone afterwards.

    LRP-γ with the paper's schedule: a linear map z is replaced by p ⊙ [z / p], p with lifted weights and the
    bracket held constant. At H the gradient is multiplied by the node weights.
    """
    convs = [module for module in model.modules() if isinstance(module, MessagePassing)]
    rules = as_schedule("gamma").rules(len(convs))
    weights: list[Tensor] = []

    def weigh(position: int, H: Tensor) -> None:
        H.register_hook(lambda gradient: gradient * weights[position])  # type: ignore[no-untyped-call]

    def run(chosen: Tensor) -> float:
        weights[:] = [row[:, None] for row in chosen.to(graph.x)]
        x = graph.x.detach().clone().requires_grad_(True)
        y = model(x, graph.edge_index, graph.batch)[0, target]
        (gradient,) = torch.autograd.grad(y, x)
        return float((gradient * x.detach()).sum())

    with ExitStack() as hooks, torch.enable_grad():
        for position, (conv, rule) in enumerate(zip(convs, rules, strict=True)):
            hooks.callback(conv.register_forward_pre_hook(lambda _, args, p=position: weigh(p, args[0])).remove)
            for module, hook in _surrogates(conv, rule):
                hooks.callback(module.register_forward_hook(hook).remove)
        hooks.callback(convs[-1].register_forward_hook(lambda *call: weigh(len(convs), call[2])).remove)
        yield run


def hooked_relevance(model: nn.Module, graph: Bunch, target: int, subgraph: Sequence[int]) -> float:
    """R(S) by the forward-hook trick: one forward and one backward pass for one subgraph (theorem 2)."""
    inside = torch.zeros(len(graph.x))
    inside[list(subgraph)] = 1
    with passes(model, graph, target) as run:
        return run(inside.expand(_depth(model) + 1, -1))


def naive_relevance(
    model: nn.Module, graph: Bunch, target: int, subgraph: Sequence[int], *, limit: float = 360.0
) -> Enumerated:
    """R(S) by naive GNN-LRP as the authors run it: |S|^L passes, one for every (m₁ … m_L) of S, neighbours or not.

    A pass lets the gradient through at one node of every layer, and is read at all start nodes m₀ in S.

    Args:
        model: the model.
        graph: the graph.
        target: the output column.
        subgraph: the nodes of S.
        limit: seconds of processor time after which it gives up.
    """
    inside = sorted(set(subgraph))

    def weights(ends: tuple[int, ...]) -> Tensor:
        rest = _alone(ends, len(graph.x))
        return torch.cat([torch.zeros(1, len(graph.x)).index_fill_(1, torch.tensor(inside), 1.0), rest])

    ends = product(inside, repeat=_depth(model))
    return _summed(model, graph, target, map(weights, ends), limit)


def walk_by_walk_relevance(
    model: nn.Module, graph: Bunch, target: int, subgraph: Sequence[int], *, limit: float = 360.0
) -> Enumerated:
    """R(S) by a pass for every walk along edges inside S; the arguments of `naive_relevance`.

    Fewer passes than |S|^L where S has few edges, though each is read at one start node only.
    """
    walks = walks_inside(graph.edge_index, subgraph, _depth(model))
    return _summed(model, graph, target, (_alone(walk, len(graph.x)) for walk in walks), limit)


def _alone(nodes: Sequence[int], num_nodes: int) -> Tensor:
    """1 at one node of every position, 0 elsewhere.  # (len(nodes), M)"""
    weights = torch.zeros(len(nodes), num_nodes)
    weights[range(len(nodes)), list(nodes)] = 1
    return weights


def _summed(model: nn.Module, graph: Bunch, target: int, weightings: Iterable[Tensor], limit: float) -> Enumerated:
    """The sum over passes, one for each of these node weights, until the time is up."""
    total, count = 0.0, 0
    deadline = time.process_time() + limit
    with passes(model, graph, target) as run:
        for weights in weightings:
            if time.process_time() > deadline:
                return Enumerated(total, count, finished=False)
            total, count = total + run(weights), count + 1
    return Enumerated(total, count, finished=True)


def walks_inside(edge_index: Tensor, subgraph: Sequence[int], depth: int) -> Iterator[tuple[int, ...]]:
    """Every walk of this many steps inside a node set, one after the other; a step may stay where it is.

    >>> list(walks_inside(torch.tensor([[0, 1], [1, 0]]), [0, 1], 1))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    inside = set(subgraph)
    steps: dict[int, list[int]] = {node: [node] for node in sorted(inside)}
    for source, target in edge_index.t().tolist():
        if source in inside and target in inside and target not in steps[source]:
            steps[source].append(target)

    def grow(walk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(walk) == depth + 1:
            yield walk
            return
        for node in sorted(steps[walk[-1]]):
            yield from grow((*walk, node))

    for node in steps:
        yield from grow((node,))


def _depth(model: nn.Module) -> int:
    return sum(isinstance(module, MessagePassing) for module in model.modules())


def _surrogates(conv: nn.Module, rule: Rule) -> list[tuple[nn.Module, Callable[..., Tensor]]]:
    """The modules of a layer whose output the rule replaces, with the hooks that do it."""
    maps = [module for module in conv.modules() if isinstance(module, nn.Linear)]
    if not isinstance(conv, GINConv):
        raise InputError(
            f"Pass by pass, only GINConv layers can be explained, got {type(conv).__name__}.",
            argument="model",
            expected="a model of GINConv layers",
            got=described(conv),
        )
    return [(module, _lifted_map(rule)) for module in maps]


def _lifted_map(rule: Rule) -> Callable[..., Tensor]:
    def hook(module: nn.Linear, args: tuple[Any, ...], z: Tensor) -> Tensor:
        bias = None if module.bias is None else rule.lift(module.bias.detach())
        p = linear(args[0], rule.lift(module.weight.detach()), bias)
        return p * divide(z, p).detach()

    return hook
