"""The library's quantities by the paper's definitions, slow and obvious. The tests' oracle.

Two independent twins stand here, and neither knows a chain:

* *transitions*: every layer's propagation matrix T written out by Eq. (3), by feeding the layer one
  entry of H at a time, and walks enumerated one by one (for stacks of layers under any rule);
* *hooks*: the user's model as it is, with every gradient that arrives at a position multiplied by the
  node weights there (for any model whose LRP-0 is its gradient).

What people ask of a chain (orders, interactions, Shapley values, ...) is answered from all walks, one by one.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from walkwise.rules import AlphaBeta, Epsilon, Gamma, GeneralisedGamma, PositivePart, Rule, Zero, ZPlus

Walks = dict[tuple[int, ...], float]


def transition(affine: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor], H: Tensor, rule: Rule) -> Tensor:
    """T of Eq. (3) for one affine map at H: (M, N, M', N').

    ``affine(H, lift)`` applies the map with every weight (and bias) lifted.
    """

    def contributions(lift: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        bias = affine(torch.zeros_like(H), lift)
        entries = []
        for m, n in itertools.product(range(H.shape[0]), range(H.shape[1])):
            alone = torch.zeros_like(H)
            alone[m, n] = H[m, n]
            entries.append(affine(alone, lift) - bias)
        return torch.stack(entries).view(*H.shape, *bias.shape), bias

    def share(part: Tensor, bias: Tensor, epsilon: float = 0.0) -> Tensor:
        total = part.sum((0, 1)) + bias
        total = total + epsilon * torch.where(total < 0, -1.0, 1.0)
        return torch.where(total == 0, 0.0, part / total)

    if isinstance(rule, GeneralisedGamma):
        c, b = contributions(lambda w: w)
        up = share(c + rule.gamma * c.clamp(min=0), b + rule.gamma * b.clamp(min=0))
        down = share(c + rule.gamma * c.clamp(max=0), b + rule.gamma * b.clamp(max=0))
        return torch.where(c.sum((0, 1)) + b >= 0, up, down)
    if isinstance(rule, PositivePart):
        z, b = contributions(lambda w: w)
        return share(z.clamp(min=0), b.abs())
    if isinstance(rule, (AlphaBeta, ZPlus)):
        alpha, beta = (rule.alpha, rule.beta) if isinstance(rule, AlphaBeta) else (1.0, 0.0)
        z, b = contributions(lambda w: w)
        return alpha * share(z.clamp(min=0), b.clamp(min=0)) - beta * share(z.clamp(max=0), b.clamp(max=0))
    gamma = rule.gamma if isinstance(rule, Gamma) else 0.0
    assert isinstance(rule, (Zero, Epsilon, Gamma))
    z, b = contributions(lambda w: w + gamma * w.clamp(min=0))
    return share(z, b, rule.epsilon if isinstance(rule, Epsilon) else 0.0)


def frozen_conv(conv: MessagePassing, H: Tensor, *args: Any, **kwargs: Any) -> Callable[..., Tensor]:
    """A message-passing layer as an affine map of H: attention as it is at H, weights to be lifted."""
    attention: list[Any] = []

    def remember(module: Any, inputs: tuple[dict[str, Any]]) -> None:
        attention.append(inputs[0].get("alpha"))

    handle = conv.register_message_forward_pre_hook(remember)
    conv(H, *args, **kwargs)
    handle.remove()

    def recall(module: Any, inputs: tuple[dict[str, Any]]) -> dict[str, Any]:
        return inputs[0] if attention[0] is None else inputs[0] | {"alpha": attention[0]}

    copies: dict[int, tuple[Any, nn.Module]] = {}

    def apply(values: Tensor, lift: Callable[[Tensor], Tensor]) -> Tensor:
        if id(lift) not in copies:
            lifted = copy.deepcopy(conv)
            for name, parameter in lifted.named_parameters():
                if not name.startswith(("att", "lin_edge")):
                    parameter.data = lift(parameter.data)
            lifted.register_message_forward_pre_hook(recall)
            copies[id(lift)] = lift, lifted
        result: Tensor = copies[id(lift)][1](values, *args, **kwargs)
        return result

    return apply


def frozen_linear(linear: nn.Linear) -> Callable[..., Tensor]:
    """A linear layer as an affine map."""

    def apply(values: Tensor, lift: Callable[[Tensor], Tensor]) -> Tensor:
        bias = None if linear.bias is None else lift(linear.bias)
        return nn.functional.linear(values, lift(linear.weight), bias)

    return apply


def all_walks(transitions: Sequence[Tensor], last: Tensor) -> Walks:
    """The relevance of every sequence of nodes, one product of matrices each (Eq. 6).

    Args:
        transitions: T of every layer, (M, N, M, N').
        last: the relevance at the last position, (M, N).
    """
    M = last.shape[0]
    relevance: Walks = {}
    for walk in itertools.product(range(M), repeat=len(transitions) + 1):
        r = last[walk[-1]]
        for T, m, after in zip(reversed(transitions), walk[-2::-1], walk[:0:-1], strict=True):
            r = T[m, :, after, :] @ r
        relevance[walk] = float(r.sum())
    return relevance


def subgraph_relevance(walks: Walks, nodes: Sequence[int], alpha: float) -> float:
    """R_α of Eqs. (8-9), walk by walk; -1 in a walk is a position it passes by."""
    total = 0.0
    for walk, relevance in walks.items():
        visited = [m for m in walk if m >= 0]
        outside = sum(m not in nodes for m in visited)
        if outside < len(visited):
            total += alpha**outside * relevance
    return total


def starts(walks: Walks, num_nodes: int) -> list[float]:
    """The relevance of the walks that begin at each node, in whatever position they begin."""
    total = [0.0] * num_nodes
    for walk, relevance in walks.items():
        total[next(m for m in walk if m >= 0)] += relevance
    return total


def top_walks(walks: Walks, k: int, by: str = "relevance") -> list[tuple[tuple[int, ...], float]]:
    """The k walks of largest relevance or magnitude: all of them sorted, the smallest walk first of equal ones."""
    key = abs if by == "magnitude" else float
    return sorted(walks.items(), key=lambda item: (-key(item[1]), item[0]))[:k]


def order_scores(
    walks: Walks, nodes: Sequence[int], chosen: Sequence[int], mode: str, alpha: float
) -> dict[int, float]:
    """What section 7.2.1 maximises, for every node that is left, given those that have been chosen."""
    left = [m for m in nodes if m not in chosen]
    if mode == "activation":
        return {m: subgraph_relevance(walks, [*chosen, m], alpha) for m in left}
    whole = subgraph_relevance(walks, nodes, 0.0)
    return {m: -abs(subgraph_relevance(walks, [k for k in left if k != m], alpha) - whole) for m in left}


def order_nodes(walks: Walks, nodes: Sequence[int], mode: str, alpha: float) -> list[int]:
    """The greedy order of section 7.2.1, the lowest index first of equal candidates."""
    order: list[int] = []
    while len(order) < len(nodes):
        scores = order_scores(walks, nodes, order, mode, alpha)
        order.append(max(sorted(scores), key=scores.__getitem__))
    return order


def find_subgraph(
    walks: Walks, nodes: Sequence[int], edges: Sequence[tuple[int, int]] | None, size: int, alpha: float
) -> tuple[tuple[int, ...], float, int]:
    """The best of all node sets of a size, its R_α, and how many there are; with edges, of the connected ones."""
    sets = [
        s for s in itertools.combinations(nodes, size) if edges is None or len(_reached(edges, s, s[0], size)) == size
    ]
    scores = [subgraph_relevance(walks, s, alpha) for s in sets]
    best = scores.index(max(scores))
    return sets[best], scores[best], len(sets)


def query(walks: Walks, holds: Callable[[set[str]], bool], groups: Mapping[str, Sequence[int]]) -> float:
    """The relevance of the walks for which a condition on the names of the groups they visit holds."""
    total = 0.0
    for walk, relevance in walks.items():
        visited = {name for name, nodes in groups.items() if set(walk) & set(nodes)}
        total += relevance if holds(visited) else 0.0
    return total


def interactions(walks: Walks, groups: Mapping[str, Sequence[int]]) -> dict[tuple[str, ...], float]:
    """R↔ of appendix A for every set of groups: the walks that visit each of them, and no other node."""
    union = {m for nodes in groups.values() for m in nodes}
    inside = {walk: r for walk, r in walks.items() if {m for m in walk if m >= 0} <= union}
    sets = [s for size in range(1, len(groups) + 1) for s in itertools.combinations(groups, size)]
    return {s: query(inside, lambda visited, s=s: visited == set(s), groups) for s in sets}  # type: ignore[misc]


def shapley_values(walks: Walks, num_nodes: int) -> list[float]:
    """What each node adds to R of those before it, on average over all orders of the nodes."""
    values = [0.0] * num_nodes
    worth = _worth(walks, num_nodes)
    for order in itertools.permutations(range(num_nodes)):
        for i, node in enumerate(order):
            values[node] += worth[frozenset(order[: i + 1])] - worth[frozenset(order[:i])]
    return [value / math.factorial(num_nodes) for value in values]


def shapley_interactions(walks: Walks, num_nodes: int, order: int) -> dict[tuple[int, ...], float]:
    """Σ over T ⊆ N∖S of t! (n − t − s)! / (n − s + 1)! · Δ_S v(T), as Grabisch and Roubens define it."""
    worth, n, found = _worth(walks, num_nodes), num_nodes, {}
    for S in itertools.combinations(range(n), order):
        total = 0.0
        for T in _subsets([m for m in range(n) if m not in S]):
            weight = math.factorial(len(T)) * math.factorial(n - len(T) - order) / math.factorial(n - order + 1)
            total += weight * sum((-1) ** (order - len(K)) * worth[frozenset(T + K)] for K in _subsets(S))
        found[S] = total
    return found


def _worth(walks: Walks, num_nodes: int) -> dict[frozenset[int], float]:
    """The game v(S) = R(S) of every set of nodes."""
    return {frozenset(s): subgraph_relevance(walks, s, 0.0) for s in _subsets(range(num_nodes))}


def _subsets(nodes: Sequence[int]) -> list[tuple[int, ...]]:
    return [s for size in range(len(nodes) + 1) for s in itertools.combinations(nodes, size)]


def subgraphx(
    value: Callable[[set[int]], float],
    num_nodes: int,
    edges: Sequence[tuple[int, int]],
    *,
    size: int,
    rollouts: int,
    children: int,
    samples: int,
    hops: int,
    exploration: float,
) -> list[int]:
    """SubgraphX (Yuan et al., 2021): on how many steps of the best way each node stayed.

    Every node set is appraised as soon as it is one of the options, and every coalition by itself.
    """
    near = [{m} for m in range(num_nodes)]  # whose messages arrive
    for _ in range(hops):
        near = [reached | {u for u, v in edges if v in reached} for reached in near]
    worth: dict[frozenset[int], float] = {}
    gains: dict[frozenset[int], list[float]] = {}  # of the rollouts that came by

    def appraise(nodes: frozenset[int]) -> None:
        if nodes in worth:
            return
        others = set().union(*(near[m] for m in nodes)) - nodes
        share = torch.rand(samples, 1)
        differences = []
        for joins in (torch.rand(samples, num_nodes) < share).tolist():
            coalition = {m for m in range(num_nodes) if m not in nodes and (joins[m] or m not in others)}
            differences.append(value(coalition | nodes) - value(coalition))
        worth[nodes] = sum(differences) / samples

    def appeal(option: frozenset[int], tried: int) -> float:
        seen = gains.get(option, [])
        mean = sum(seen) / len(seen) if seen else 0.0
        return mean + exploration * worth[option] * math.sqrt(tried) / (1 + len(seen))

    ways = []
    for _ in range(rollouts):
        way = [frozenset(range(num_nodes))]
        while len(way[-1]) > max(size, 1):
            options = _pruned(edges, way[-1], children)
            for option in options:
                appraise(option)
            tried = sum(len(gains.get(option, [])) for option in options)
            way.append(max(options, key=lambda option: appeal(option, tried)))
        appraise(way[-1])
        for nodes in way:
            gains.setdefault(nodes, []).append(worth[way[-1]])
        ways.append(way)
    best = max(ways, key=lambda way: worth[way[-1]])
    return [sum(m in nodes for nodes in best) for m in range(num_nodes)]


def _pruned(edges: Sequence[tuple[int, int]], nodes: frozenset[int], children: int) -> list[frozenset[int]]:
    """The largest connected part that is left without each of the nodes of fewest neighbours."""
    degree = {m: len(_reached(edges, nodes, m, 1)) for m in nodes}
    found: list[frozenset[int]] = []
    for m in sorted(nodes, key=lambda m: (degree[m], m))[:children]:
        rest = nodes - {m}
        part = max((_reached(edges, rest, k, len(rest)) for k in sorted(rest)), key=len)
        found += [part] if part not in found else []
    return found


def _reached(edges: Sequence[tuple[int, int]], nodes: Collection[int], m: int, steps: int) -> frozenset[int]:
    """The nodes to which so many steps inside a node set lead from m, in either direction of the edges."""
    reached = {m}
    for _ in range(steps):
        reached |= {v for e in edges for u, v in (e, e[::-1]) if u in reached and v in nodes}
    return frozenset(reached)


def hooked_relevance(
    model: nn.Module, run: Callable[[], Tensor], weights: Callable[[int], Tensor], num_positions: int
) -> float:
    """Σ over walks of (product of node weights) · relevance, under LRP-0, by tensor hooks.

    ``run`` calls the model and returns the explained scalar; ``weights(position)`` gives the node
    weights (M,). The tensor handed to each message-passing call is a position, and so is what comes
    out of the last call. The first is where relevance is read off.
    """
    calls: list[Tensor] = []
    leaves: dict[int, Tensor] = {}

    def weigh(tensor: Tensor, position: int) -> None:
        hook = lambda g: g * weights(position).view(-1, *[1] * (g.dim() - 1))  # noqa: E731
        tensor.register_hook(hook)  # type: ignore[no-untyped-call]

    def before(module: Any, args: tuple[Any, ...]) -> Any:
        H = args[0]
        if not H.requires_grad:
            H = leaves.setdefault(id(H), H.detach().requires_grad_(True))
        if not any(H is seen for seen in calls):
            calls.append(H)
            if len(calls) > 1:
                weigh(H, len(calls) - 1)
        return (H, *args[1:])

    def after(module: Any, args: Any, result: Tensor) -> None:
        if len(calls) == num_positions - 1:
            weigh(result, num_positions - 1)

    handles = [m.register_forward_pre_hook(before) for m in model.modules() if isinstance(m, MessagePassing)]
    handles += [m.register_forward_hook(after) for m in model.modules() if isinstance(m, MessagePassing)]
    try:
        scalar = run()
        (gradient,) = torch.autograd.grad(scalar, calls[0])
    finally:
        for handle in handles:
            handle.remove()
    first = weights(0).view(-1, *[1] * (gradient.dim() - 1))
    return float((first * gradient * calls[0].detach()).sum())


def hooked_subgraph_relevance(
    model: nn.Module, run: Callable[[], Tensor], nodes: Sequence[int], alpha: float, M: int, num_positions: int
) -> float:
    """R_α as all walks discounted, less the walks wholly outside (Eq. 10, Algorithm 2)."""
    inside = torch.zeros(M, dtype=torch.get_default_dtype())
    inside[list(nodes)] = 1

    def total(node_weights: Tensor) -> float:
        return hooked_relevance(model, run, lambda position: node_weights, num_positions)

    return total(inside + alpha * (1 - inside)) - total(alpha * (1 - inside))
