"""The user's model as it is, with every gradient that arrives at a position multiplied by the node weights there.

For any model whose LRP-0 is its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


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
