"""Greedy node orders: which node to add, or to take away, next (section 7.2.1 of the paper)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast, overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.errors import InputError
from walkwise.questions.subgraphs import as_discount
from walkwise.questions.walks import rounding
from walkwise.search import shortlist
from walkwise.search.gains import AskedGains, Gains, Layout, LedgerGains, Mode, Task, check_separate
from walkwise.search.neighbours import Floats, Ints, Neighbours, step_neighbours
from walkwise.search.walk_table import WalkLedger, count_walks, walk_ledger

#: What one pass over the operators of a layer costs besides its arithmetic, in messages of one node.
_ROWS_PER_CALL = 1000
#: The most messages that are worth following to list all walks, for one graph and for several together: up to 4 GiB.
_MOST_ROWS = 24_000_000
_MOST_TOGETHER = 4_000_000
#: The longest ledger that stays with its chain for the next order, in numbers.
_MOST_KEPT = 1_000_000


@overload
def order_nodes(
    chain: RelevanceChain,
    *,
    mode: str = ...,
    alpha: float | Sequence[float] = ...,
    graphs: None = ...,
    tolerance: float | None = ...,
    progress: bool = ...,
) -> Tensor: ...


@overload
def order_nodes(
    chain: RelevanceChain,
    *,
    mode: str = ...,
    alpha: float | Sequence[float] = ...,
    graphs: Tensor,
    tolerance: float | None = ...,
    progress: bool = ...,
) -> list[Tensor]: ...


@without_gradients
def order_nodes(
    chain: RelevanceChain,
    *,
    mode: str = "activation",
    alpha: float | Sequence[float] = 0.0,
    graphs: Tensor | None = None,
    tolerance: float | None = None,
    progress: bool = False,
) -> Tensor | list[Tensor]:
    r"""The nodes in greedy order, most relevant first (activation) or last (pruning): (M,).

    Each node is the best one given those before it (section 7.2.1):

    activation: m⁽ⁱ⁾ = argmax_m R_α({m⁽¹⁾, …, m⁽ⁱ⁻¹⁾, m}),
    pruning: m⁽ⁱ⁾ = argmin_m |R_α(G \ {m⁽¹⁾, …, m⁽ⁱ⁻¹⁾, m}) − R(G)|.

    Of equal candidates the lowest index comes first. Nodes that a symmetry of the graph makes equal come
    out of floating-point arithmetic a little apart; within the tolerance they count as equal, so that
    rounding does not decide the order.

    All walks are listed once, gathered by the nodes they visit, and choosing a node updates only what
    shares a walk with it; a list that is not too long serves further orders of the same chain. Where there
    are too many walks for that (more than about 24 million), every step asks for the candidates that can have
    changed, as one batch of subgraphs: deep models on large graphs with hubs may then take minutes.

    Args:
        chain: the traced prediction.
        mode: "activation" or "pruning".
        alpha: the discount of the generalized relevance, or several: (A, M).
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then a
            list comes back with the order within each graph, (M_g,) or (A, M_g), in the chain's node ids.
        tolerance: candidates that fall short of the best by no more than this, relative to the largest change
            of R_α met so far, count as equal to it; by default 1e-9 in float64 and 1e-6 in float32. So do those
            within the rounding of R_α itself, where changes are differences of it. With 0 rounding decides, as in
            a plain argmax.
        progress: show how many nodes have been chosen, where every step is asked.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.search.orders import order_nodes
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> sorted(order_nodes(chain).tolist())
    [0, 1, 2]
    >>> order_nodes(chain, mode="pruning", alpha=[0.0, 0.5]).shape
    torch.Size([2, 3])
    """
    if mode != "activation" and mode != "pruning":
        raise InputError(f'mode must be "activation" or "pruning", got {mode!r}.')
    several = isinstance(alpha, Sequence) or getattr(alpha, "ndim", 0) > 0
    given: Any = alpha if several else [alpha]
    if tolerance is None:
        tolerance = rounding(chain.dtype)
    alphas, layout = tuple(as_discount(a) for a in given), _layout(chain.num_nodes, graphs)
    task = Task(cast(Mode, mode), alphas, layout, tolerance, progress)
    if not 0 <= tolerance < 1:
        raise InputError(f"tolerance is a small fraction, 0 for none; got {tolerance}.")
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
    orders: list[Ints] = []
    for part in _parts(chain, near, task):
        ledger = _ledger(chain, near, part)
        if ledger is not None and shortlist.is_short(ledger, part):
            orders.append(shortlist.greedy_order(ledger, part)[None])
            continue
        gains = AskedGains(chain, part, near) if ledger is None else LedgerGains(ledger, part)
        orders.extend(_greedy(gains, part))
    return orders


def _ledger(chain: RelevanceChain, near: Neighbours, task: Task) -> WalkLedger | None:
    """The walks of the graphs, listed where that is worth it; a short list of the whole chain is kept with it."""
    how_often = any(task.alphas)
    if len(task.layout.nodes) < chain.num_nodes:
        return walk_ledger(chain, near, max_rows=_worth(chain, task), how_often=how_often, ends=task.layout.nodes)
    kept: WalkLedger | None = chain.memo.get((WalkLedger, how_often))
    if kept is not None:
        return kept
    ledger = walk_ledger(chain, near, max_rows=_worth(chain, task), how_often=how_often)
    if ledger is not None and ledger.visits.size <= _MOST_KEPT:
        chain.memo[WalkLedger, how_often] = ledger
    return ledger


def _parts(chain: RelevanceChain, near: Neighbours, task: Task) -> Iterator[Task]:
    """Graphs that follow each other, as many at a time as have not too many walks together."""
    if len(task.layout.sizes) == 1:
        yield task
        return
    walks = count_walks(chain, near)
    graph = task.layout.graph(task.layout.place)  # (M,)
    per_graph = np.bincount(graph, walks, len(task.layout.sizes))
    first = 0
    while first < len(per_graph):
        fit = int(np.searchsorted(np.cumsum(per_graph[first:]), _MOST_TOGETHER, side="right"))
        last = first + max(1, fit)
        yield replace(task, layout=task.layout.some(first, last))
        first = last


def _layout(num_nodes: int, given: Any) -> Layout:
    """Where the nodes of each graph stand, after a look at what the caller gave: anything that makes a tensor."""
    if given is None:
        return Layout.alone(num_nodes)
    try:
        graphs = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"graphs holds the number of every node's graph, ({num_nodes},); got {given!r}.") from None
    wrong = graphs.shape != (num_nodes,) or graphs.is_floating_point() or graphs.dtype == torch.bool
    if wrong or (num_nodes and int(graphs.min()) < 0):
        raise InputError(
            f"graphs says for each of the {num_nodes} nodes which graph it is in, counted from 0; got "
            f"{tuple(graphs.shape)} of {graphs.dtype}. Pass the vector `batch` of a torch_geometric Batch."
        )
    return Layout.of(graphs.cpu().long().numpy())


def _worth(chain: RelevanceChain, task: Task) -> int:
    """How many messages listing all walks may take before asking step by step is cheaper."""
    sizes = task.layout.sizes.tolist()
    # With a discount, every query carries all nodes of the chain; without, those of its subgraph.
    carried = [chain.num_nodes if any(task.alphas) else size / 3 for size in sizes]
    queries = sum(size**2 / 2 * rows for size, rows in zip(sizes, carried, strict=True))
    by_steps = len(task.alphas) * (_ROWS_PER_CALL * max(sizes) + queries)
    return int(min(_MOST_ROWS, by_steps * chain.num_layers))


def _greedy(gains: Gains, task: Task) -> list[Ints]:
    """The nodes in the order they are chosen, for every graph: (A, M_g)."""
    A, G, W = task.shape
    shortfall = np.zeros(A * G)  # R_α of what is left, less R(G)
    scale = np.zeros(A * G)  # the largest change of R_α so far
    picks = np.full((W, A * G), -1)
    gains.gain[:, task.layout.node < 0] = np.nan
    gain = gains.gain.reshape(A * G, W)
    sizes, begin = np.tile(task.layout.sizes, A), np.tile(np.arange(G) * W, A)
    live, a, ends = np.arange(A * G), np.repeat(np.arange(A), G), set(task.layout.sizes.tolist())
    for step in _told(W) if task.progress and isinstance(gains, AskedGains) else range(W):
        if step in ends:
            live = np.flatnonzero(sizes > step)  # those with nodes left
        best = _best(gain, shortfall, scale, task, gains.rounding if task.tolerance else 0.0)[live]
        place = best + begin[live]
        picks[step, live] = task.layout.node[place]
        shortfall[live] += gain[live, best]
        gains.choose(a[live], place)
        gain[live, best] = np.nan
    by_graph = picks.reshape(W, A, G)
    return [np.ascontiguousarray(by_graph[:size, :, g].T) for g, size in enumerate(task.layout.sizes)]


def _told(steps: int) -> Iterable[int]:
    """So many steps, with a bar that shows how far they are."""
    from tqdm.auto import tqdm

    told: Iterable[int] = tqdm(range(steps), unit="node", leave=False)
    return told


def _best(gain: Floats, shortfall: Floats, scale: Floats, task: Task, rounding: float) -> Ints:
    """The best of the W places of every discount and graph, the first of equal ones: (A · G,).

    R_α of what has been chosen is the same for all candidates of an activation step: compare the gains.
    Places that cannot be chosen have no gain (NaN).
    """
    score = gain if task.adds else -np.abs(shortfall[:, None] + gain)
    np.fmax(scale, np.fmax.reduce(np.abs(gain), axis=1), out=scale)
    enough = np.fmax.reduce(score, axis=1) - np.maximum(task.tolerance * scale, rounding)
    first: Ints = (score >= enough[:, None]).argmax(axis=1)
    return first
