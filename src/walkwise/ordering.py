"""Greedy node orders: which node to add, or to take away, next (section 7.2.1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.chain import RelevanceChain
from walkwise.errors import InputError
from walkwise.gains import AskedGains, Floats, Gains, Ints, Layout, LedgerGains, Mode, Task, check_separate
from walkwise.ledger import walk_ledger
from walkwise.neighbours import step_neighbours
from walkwise.subgraphs import as_discount

#: What one pass over the operators of a chain costs besides its arithmetic, in messages of one node.
_ROWS_PER_CALL = 1000
#: The most messages that are worth keeping to list all walks.
_MOST_ROWS = 4_000_000


@torch.no_grad()
def order_nodes(
    chain: RelevanceChain,
    *,
    mode: Mode = "activation",
    alpha: float | Sequence[float] = 0.0,
    graphs: Tensor | None = None,
) -> Tensor | list[Tensor]:
    r"""The nodes in greedy order, most relevant first (activation) or last (pruning): (M,).

    Each node is the best one given those before it (section 7.2.1):

    activation: m⁽ⁱ⁾ = argmax_m R_α({m⁽¹⁾, …, m⁽ⁱ⁻¹⁾, m}),
    pruning: m⁽ⁱ⁾ = argmin_m |R_α(G \ {m⁽¹⁾, …, m⁽ⁱ⁻¹⁾, m}) − R(G)|.

    Of equal candidates the lowest index comes first. Nodes that a symmetry of the graph makes equal
    are compared as they come out of floating-point arithmetic, so rounding decides between them.

    All walks are listed once, gathered by the nodes they visit, and choosing a node updates only what
    shares a walk with it. Where there are too many walks for that, every step asks for the candidates
    that can have changed, as one batch of subgraphs.

    Args:
        chain: the traced prediction.
        mode: "activation" or "pruning".
        alpha: the discount of the generalized relevance, or several: (A, M).
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then a
            list comes back with the order within each graph, (M_g,) or (A, M_g), in the chain's node ids.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.ordering import order_nodes
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> sorted(order_nodes(chain).tolist())
    [0, 1, 2]
    >>> order_nodes(chain, mode="pruning", alpha=[0.0, 0.5]).shape
    torch.Size([2, 3])
    """
    if mode not in ("activation", "pruning"):
        raise InputError(f'mode must be "activation" or "pruning", got {mode!r}.')
    several = isinstance(alpha, Sequence) or getattr(alpha, "ndim", 0) > 0
    given: Any = alpha if several else [alpha]
    task = Task(mode, tuple(as_discount(a) for a in given), _layout(chain.num_nodes, graphs))
    orders = [torch.from_numpy(o if several else o[0]).to(chain.device) for o in _orders(chain, task)]
    return orders[0] if graphs is None else orders


def _orders(chain: RelevanceChain, task: Task) -> list[Ints]:
    """The order within every graph: (A, M_g)."""
    if not task.alphas or not chain.num_nodes:
        return [np.zeros((len(task.alphas), size), dtype=np.int64) for size in task.layout.sizes]
    near = step_neighbours(chain)
    if near is None:
        return _greedy(AskedGains(chain, task, None), task)
    check_separate(task.layout, near)
    ledger = walk_ledger(chain, near, max_rows=_worth(task), how_often=any(task.alphas))
    return _greedy(AskedGains(chain, task, near) if ledger is None else LedgerGains(ledger, task), task)


def _layout(num_nodes: int, graphs: Tensor | None) -> Layout:
    """Where the nodes of each graph stand, after a look at what the caller gave."""
    if graphs is None:
        return Layout.of(np.zeros(num_nodes, dtype=np.int64))
    wrong = graphs.shape != (num_nodes,) or graphs.is_floating_point() or graphs.dtype == torch.bool
    if wrong or (num_nodes and int(graphs.min()) < 0):
        raise InputError(
            f"graphs says for each of the {num_nodes} nodes which graph it is in, counted from 0; got "
            f"{tuple(graphs.shape)} of {graphs.dtype}. Pass the vector `batch` of a torch_geometric Batch."
        )
    return Layout.of(graphs.cpu().long().numpy())


def _worth(task: Task) -> int:
    """How many messages listing all walks may take before asking step by step is cheaper."""
    sizes = task.layout.sizes.astype(np.float64)
    by_steps = len(task.alphas) * (_ROWS_PER_CALL * sizes.max() + (sizes**3).sum() / 6)
    return int(min(_MOST_ROWS, by_steps))


def _greedy(gains: Gains, task: Task) -> list[Ints]:
    """The nodes in the order they are chosen, for every graph: (A, M_g)."""
    A, G, W = task.shape
    shortfall = np.zeros((A, G))  # R_α of what is left, less R(G)
    picks = np.full((A, W, G), -1)
    gains.gain[:, task.layout.node < 0] = -np.inf
    for step in range(W):
        if step == 0 or (task.layout.sizes == step).any():
            a, graph = np.nonzero(np.broadcast_to(task.layout.sizes > step, (A, G)))  # those with nodes left
        place = _best(gains.gain, shortfall, task)[a, graph]
        picks[a, step, graph] = task.layout.node[place]
        shortfall[a, graph] += gains.gain[a, place]
        gains.choose(a, place)
        gains.gain[a, place] = -np.inf
    return [np.ascontiguousarray(picks[:, :size, g]) for g, size in enumerate(task.layout.sizes)]


def _best(gain: Floats, shortfall: Floats, task: Task) -> Ints:
    """The best place of every discount and graph, the first of equal ones: (A, G).

    R_α of what has been chosen is the same for all candidates of an activation step: compare the gains.
    Those of -∞ cannot be chosen.
    """
    gain = gain.reshape(task.shape)
    score = gain if task.adds else -np.abs(shortfall[:, :, None] + gain)
    # numpy's argmax returns the first of equal maxima; torch's does not promise to.
    place: Ints = score.argmax(axis=2)
    return place + np.arange(task.shape[1]) * task.layout.width
