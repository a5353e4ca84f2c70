"""Single walks: their relevance, and listing them all where that is possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.contract import all_rows, contract
from walkwise.core.operators import Visit
from walkwise.core.rows import OwnRows, Rows
from walkwise.errors import InputError, TooManyWalksError
from walkwise.questions.nodesets import budget


@without_gradients
def walk_relevance(chain: RelevanceChain, walks: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """The relevance R(m) of every walk: (K,).

        R(m) = H⁰[m_0]ᵀ · (Π_l ∂Hˡ⁺¹[m_{l+1}] / ∂Hˡ[m_l]) · ∂y/∂Hᴸ[m_L],

    the derivatives taken with the rule's constants held: N × N matrices, each from one node of the walk to the next.

    A walk names one node for each position: the input of every layer and what comes out of the last,
    (K, L + 1). In a model with skip or jumping connections a walk may pass positions by; write -1 there.

    Args:
        chain: the traced prediction.
        walks: node ids, (K, L + 1).

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> ww.walk_relevance(chain, [[0, 0, 1], [0, 1, 1]]).shape
    torch.Size([2])
    >>> ww.walk_relevance(chain, [[0, 1, 0]]).tolist()  # the output reads node 1 alone
    [0.0]
    >>> whole = ww.walk_relevance(chain, ww.enumerate_walks(chain)).sum()
    >>> abs(float(whole) - chain.input_relevance) < 1e-6
    True
    """
    table = _checked(chain, walks)
    if len(table) == 0:
        return torch.zeros(0, dtype=chain.dtype, device=chain.device)
    most = max(1, budget(chain) // (chain.width * (table.shape[1] if chain.local else chain.num_nodes)))
    return torch.cat([_relevance(chain, batch) for batch in torch.split(table, most)])


@without_gradients
def enumerate_walks(chain: RelevanceChain, *, max_walks: int = 1_000_000) -> Tensor:
    """Every walk that can carry relevance, in lexicographic order: (K, L + 1), -1 where it passes a position by.

    A walk steps from u to v where a layer's output at v depends on its input at u, and ends where the explained
    output reads.

    Args:
        chain: the traced prediction, of a small graph.
        max_walks: more than this raises :class:`TooManyWalksError`, which says how many there are.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> ww.enumerate_walks(chain).tolist()  # all that end at node 1
    [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1], [1, 2, 1], [2, 1, 1], [2, 2, 1]]
    """
    if chain.num_nodes**2 > 4_000_000:
        raise TooManyWalksError(
            f"The graph has {chain.num_nodes} nodes: listing its walks one by one is for small graphs (up to "
            "2000 nodes). Ask for the relevance of subgraphs instead."
        )
    steps, ends = possible_steps(chain)
    counts = _counts(chain, steps, ends)
    starts = sorted({visit.position for visit in chain.visits if visit.slot in dict(chain.roots)})
    total = sum(int(counts[position].sum()) for position in starts)
    if total > max_walks:
        raise TooManyWalksError(
            f"There are {total} walks, more than max_walks={max_walks}. Raise the limit if you mean it, or ask "
            "for the relevance of subgraphs, which sums over walks without listing them."
        )
    blank = torch.full((chain.num_nodes, chain.num_layers + 1), -1, device=chain.device)
    found: list[Tensor] = []
    for position in starts:
        first = blank.clone()
        first[:, position] = torch.arange(chain.num_nodes, device=chain.device)
        found.extend(_grown(first, position, steps, ends, counts))
    walks = torch.cat(found) if found else blank[:0]
    order = sorted(range(len(walks)), key=walks.tolist().__getitem__)
    return walks[order]


def rounding(dtype: torch.dtype) -> float:
    """How far apart, relative to their size, two numbers may come out that are equal but for rounding."""
    return 1e-9 if dtype == torch.float64 else 1e-6


def ties_in_order(walks: Tensor, score: Tensor) -> Tensor:
    """How to list walks so that, of those that tie, the lexicographically smallest comes first: (K,).

    Walks that a symmetry of the graph makes equal come out of floating-point arithmetic a little apart. A run of walks
    ties where no score is further than :func:`rounding` from that of its first, relative to it; runs stay where they
    are.

    Args:
        walks: the walks in the order of a search, (K, L + 1).
        score: what they were ordered by, (K,).

    >>> import torch
    >>> ties_in_order(torch.tensor([[2, 0], [1, 3], [1, 2], [0, 0]]), torch.tensor([5.0, 3.0, 2.9999999, 1.0]))
    tensor([0, 2, 1, 3])
    """
    near, first = rounding(score.dtype), torch.nan
    runs: list[int] = []  # where the run begins that a walk belongs to
    for i, value in enumerate(score.tolist()):
        ties = abs(value - first) <= near * abs(first)  # not so of the first walk
        first = first if ties else value
        runs.append(runs[-1] if ties else i)
    order = np.lexsort((*walks.cpu().numpy().T[::-1], runs))  # the last key counts most
    return torch.from_numpy(order).to(walks.device)


def _checked(chain: RelevanceChain, walks: Tensor | Sequence[Sequence[int]]) -> Tensor:
    try:
        table = torch.as_tensor(walks, device=chain.device)
    except (TypeError, ValueError) as error:
        raise InputError(f"walks is a table of node ids (K, {chain.num_layers + 1}): {error}.") from None
    if table.numel() == 0:
        return torch.empty(0, chain.num_layers + 1, dtype=torch.long, device=chain.device)
    if table.dim() != 2 or table.shape[1] != chain.num_layers + 1 or table.is_floating_point():
        raise InputError(
            f"A walk of this model names {chain.num_layers + 1} nodes, so walks has shape "
            f"(K, {chain.num_layers + 1}); got {tuple(table.shape)} of {table.dtype}."
        )
    lowest = 0 if chain.straight else -1
    if int(table.min()) < lowest or int(table.max()) >= chain.num_nodes:
        raise InputError(
            f"walks names nodes {int(table.min())} to {int(table.max())}, but the graph has nodes 0 to "
            f"{chain.num_nodes - 1}"
            + (", and no walk of this model passes a position by." if chain.straight else " (-1 passes a position by).")
        )
    return table.long()


def _relevance(chain: RelevanceChain, walks: Tensor) -> Tensor:
    """One batch of walks. Lane d holds what has come through d of a walk's own nodes."""
    K, M = len(walks), chain.num_nodes
    owner = torch.arange(K, device=walks.device)[:, None]
    if chain.local:
        keys = torch.unique((owner * M + walks)[walks >= 0])
        rows: Rows = OwnRows(M, K, keys % M, keys // M)
        # (R, 1, 1, 1) for every position: is this row the walk's node there?
        at = [(walks[keys // M, p] == keys % M).to(chain.dtype)[:, None, None, None] for p in range(walks.shape[1])]
    else:
        rows = all_rows(chain, K)
        nodes = torch.arange(M, device=walks.device)[:, None]
        at = [(walks[:, p] == nodes).to(chain.dtype)[:, :, None, None] for p in range(walks.shape[1])]
    if chain.straight:
        return contract(chain, rows, lambda visit, m: m * at[visit.position])[:, 0]
    lanes = contract(chain, rows, lambda visit, m: pad(m * at[visit.position], (0, 0, 1, 0)))
    visits = (walks >= 0).sum(dim=1)
    lanes = pad(lanes, (0, max(0, walks.shape[1] + 1 - lanes.shape[1])))
    return lanes[torch.arange(K, device=walks.device), visits]


def possible_steps(chain: RelevanceChain) -> tuple[dict[tuple[int, int], Tensor], dict[int, Tensor]]:
    """Which node pairs a walk can step between, for every pair of positions, and where it can end.

    Found by sending a random message down from each node alone and seeing where it arrives.
    """
    M = chain.num_nodes
    ends: dict[int, Tensor] = {}
    steps: dict[tuple[int, int], Tensor] = {}
    widths: dict[int, int] = {}

    def measure(visit: Visit, message: Tensor) -> Tensor:
        widths[visit.slot] = message.shape[-1]
        return message

    def end(visit: Visit, message: Tensor) -> None:
        reads = (message != 0).any(dim=-1)[:, 0, 0]
        ends[visit.position] = ends[visit.position] | reads if visit.position in ends else reads

    contract(chain, all_rows(chain), measure)
    contract(chain, all_rows(chain), end)
    most = max(1, budget(chain) // (chain.width * M))
    generator = torch.Generator().manual_seed(0)
    nowhere = torch.zeros(M, M, dtype=torch.bool, device=chain.device)
    for visit in chain.visits:
        probe = torch.randn(M, widths.get(visit.slot, 0), generator=generator).to(chain.device, chain.dtype)
        for batch in torch.split(torch.arange(M, device=chain.device), most):
            alone = torch.nn.functional.one_hot(batch, M).t().to(chain.dtype)[:, :, None, None]

            def arrive(at: Visit, message: Tensor, batch: Tensor = batch, after: int = visit.position) -> None:
                table = steps.setdefault((at.position, after), nowhere.clone())
                table[:, batch] |= (message != 0).any(dim=-1)[:, :, 0]

            seeds = [(visit.slot, probe[:, None, None, :] * alone)] if visit.slot in widths else []
            contract(chain, all_rows(chain, len(batch)), arrive, seeds=seeds)
    return steps, ends


def _counts(chain: RelevanceChain, steps: dict[tuple[int, int], Tensor], ends: dict[int, Tensor]) -> dict[int, Tensor]:
    """How many walks go on from each node of each position.  # {position: (M,) float64}"""
    counts: dict[int, Tensor] = {}
    for position in range(chain.num_layers, -1, -1):
        total = torch.zeros(chain.num_nodes, dtype=torch.float64, device=chain.device)
        if position in ends:
            total += ends[position]
        for (before, after), table in steps.items():
            if before == position:
                total += table.double() @ counts[after]
        counts[position] = total
    return counts


def _grown(
    walks: Tensor,
    position: int,
    steps: dict[tuple[int, int], Tensor],
    ends: dict[int, Tensor],
    counts: dict[int, Tensor],
) -> list[Tensor]:
    """All completions of partial walks that stand at a position."""
    here = walks[:, position]
    found = [walks[ends[position][here]]] if position in ends else []
    for (before, after), table in sorted(steps.items()):
        if before == position and len(walks):
            which, node = (table[here] & (counts[after] > 0)).nonzero(as_tuple=True)
            longer = walks[which].clone()
            longer[:, after] = node
            found.extend(_grown(longer, after, steps, ends, counts))
    return found
