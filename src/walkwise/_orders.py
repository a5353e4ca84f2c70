"""Greedy node orders by the plainest loop over :func:`subgraph_relevance`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from walkwise.chain import RelevanceChain
from walkwise.errors import InputError
from walkwise.subgraphs import subgraph_relevance


def order_nodes(chain: RelevanceChain, mode: str = "activation", alpha: float | Sequence[float] = 0.0) -> Tensor:
    """The greedy order of the nodes: (M,), or (A, M) for a sequence of α (section 7.2.1).

    Activation takes the node with the largest R_α(chosen + node), pruning the one with the smallest
    |R_α(rest − node) − R(G)|.
    """
    if mode not in ("activation", "pruning"):
        raise InputError(f'mode is "activation" or "pruning", got {mode!r}.')
    if isinstance(alpha, Sequence):
        orders = [order_nodes(chain, mode, a) for a in alpha]
        return torch.stack(orders) if orders else torch.empty(0, chain.num_nodes, dtype=torch.long)
    M = chain.num_nodes
    chosen = torch.zeros(M, dtype=torch.bool, device=chain.device)
    order = []
    for _ in range(M):
        free = (~chosen).nonzero()[:, 0]
        sets = chosen.repeat(len(free), 1)
        sets[torch.arange(len(free)), free] = True
        if mode == "activation":
            best = subgraph_relevance(chain, sets, alpha=alpha).argmax()
        else:
            best = (subgraph_relevance(chain, ~sets, alpha=alpha) - chain.input_relevance).abs().argmin()
        order.append(int(free[best]))
        chosen[order[-1]] = True
    return torch.tensor(order, device=chain.device)
