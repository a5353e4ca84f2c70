"""Other ways to the same numbers: the bare matrix products, and one autograd pass per subgraph."""

from __future__ import annotations

from contextlib import ExitStack

import torch
from cases import TARGET, Case
from torch import Tensor, nn
from torch.nn.functional import linear

import walkwise as ww


def products(case: Case, rows: int) -> list[tuple[Tensor, Tensor]]:
    """The operands of the matrix products that a backward contraction over this many rows cannot do without."""
    weights = [m.weight.detach() for m in case.model.modules() if isinstance(m, nn.Linear)]
    return [(torch.rand(rows, weight.shape[0]), weight) for weight in reversed(weights)]


def multiply(operands: list[tuple[Tensor, Tensor]], times: int = 1) -> None:
    """Those products and nothing else, for one batch of rows after the other."""
    for _ in range(times):
        for message, weight in operands:
            torch.mm(message, weight)


def hooked_relevance(case: Case, subgraph: list[int]) -> float:
    """R(S) by the forward-hook trick: LRP-γ and the subgraph written into the model, then one autograd pass."""
    inside = torch.zeros(len(case.x), 1)
    inside[subgraph] = 1
    convs = list(case.model.convs)
    rules = ww.rules.as_schedule("gamma").rules(len(convs))

    def keep(H: Tensor) -> Tensor:
        return H * inside + (H * (1 - inside)).detach()

    def under(rule: ww.rules.Gamma):
        def hook(module: nn.Linear, args: tuple[Tensor, ...], z: Tensor) -> Tensor:
            p = linear(args[0], rule.lift(module.weight), rule.lift(module.bias))
            return p * ww.rules.divide(z, p).detach()

        return hook

    x = case.x.clone().requires_grad_(True)
    with ExitStack() as hooks:
        for conv, rule in zip(convs, rules, strict=True):
            hooks.callback(conv.register_forward_pre_hook(lambda _, args: (keep(args[0]), *args[1:])).remove)
            for module in conv.modules():
                if isinstance(module, nn.Linear):
                    hooks.callback(module.register_forward_hook(under(rule)).remove)
        hooks.callback(convs[-1].register_forward_hook(lambda *call: keep(call[2])).remove)
        (gradient,) = torch.autograd.grad(case.model(x, case.edge_index)[0, TARGET], x)
    return float((gradient * x.detach()).sum())
