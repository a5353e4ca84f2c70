"""Walks by the definition: every layer's propagation matrix T written out, for stacks of layers under any rule.

T of Eq. (3) is found by feeding the layer one entry of H at a time, and walks are enumerated one by one.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from walkwise.reference.questions import Walks
from walkwise.rules import AlphaBeta, Epsilon, Gamma, GeneralisedGamma, PositivePart, Rule, Zero, ZPlus


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
