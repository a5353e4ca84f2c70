"""Single walks: their relevance, and a list of all walks if there are not too many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.contract import contract
from walkwise.core.sending import Verdict, sent
from walkwise.errors import Described, InputError, as_limit, described
from walkwise.questions.parts import asked_of_part, named, rows_of
from walkwise.questions.standing_rows import at_once, standing_rows
from walkwise.questions.walk_tables import whole_table


@without_gradients
def walk_relevance(chain: RelevanceChain, walks: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """The relevance R(m) of every walk: (K,).

        R(m) = H⁰[m_0]ᵀ · (Π_l ∂Hˡ⁺¹[m_{l+1}] / ∂Hˡ[m_l]) · ∂y/∂Hᴸ[m_L],

    the derivatives taken with the rule's constants held: N × N matrices, each from one node of the walk to the next.

    A walk names one node for each position, the input of every layer and the output of the last: (K, L + 1). In a model
    with skip or jumping connections a walk may bypass positions; write -1 there.

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
    if chain.types is not None and isinstance(walks, (list, tuple)):
        walks = [chain.types.numbers(walk) for walk in walks]
    table = _as_table(chain, walks)
    if len(table) == 0:
        return torch.zeros(0, dtype=chain.dtype, device=chain.device)
    verdict = _verdict(chain, table)
    table = sent(table, chain.device, torch.long).clamp(-1, chain.num_nodes - 1)
    if chain.part is None:
        batches = torch.split(table, at_once(chain, table.shape[1]))
        found = torch.cat([_relevance(chain, batch) for batch in batches])
    else:
        rows = rows_of(chain, table)
        inside = ((rows >= 0) | (table < 0)).all(1)
        found = torch.zeros(len(table), dtype=chain.dtype, device=chain.device)
        found[inside] = walk_relevance(chain.part, rows[inside])
    verdict.read()
    return found


@without_gradients
@asked_of_part(named)
def enumerate_walks(chain: RelevanceChain, *, max_walks: int = 1_000_000) -> Tensor:
    """Every walk that can carry relevance, in lexicographic order: (K, L + 1), -1 where it bypasses a position.

    A walk steps from u to v where a layer's output at v depends on its input at u, and ends where the explained
    output reads.

    Args:
        chain: the traced prediction, of a small graph.
        max_walks: if there are more walks, :class:`TooManyWalksError` is raised and says how many.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> ww.enumerate_walks(chain).tolist()  # all that end at node 1
    [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1], [1, 2, 1], [2, 1, 1], [2, 2, 1]]
    """
    visits = whole_table(chain, "walks", as_limit(max_walks, "max_walks")).visits
    order = np.lexsort(visits.T[::-1])  # the last key counts most
    return torch.from_numpy(visits[order].astype(np.int64)).to(chain.device)


def _as_table(chain: RelevanceChain, walks: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """Return the given walks as one table.  # (K, L + 1)"""
    expected = f"node ids, of shape (K, {chain.num_layers + 1})"
    try:
        single = isinstance(walks, list | tuple) and walks and all(isinstance(walk, Tensor) for walk in walks)
        table = torch.stack(list(walks)) if single else torch.as_tensor(walks)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        rows = [len(row) for row in walks if isinstance(row, list | tuple)] if isinstance(walks, list | tuple) else []
        ragged = len(set(rows)) > 1
        got = Described("rows of different lengths") if ragged else described(walks)
        raise InputError(argument="walks", expected=expected, got=got) from None
    if table.numel() == 0:
        return torch.empty(0, chain.num_layers + 1, dtype=torch.long, device=chain.device)
    whole = not (table.is_floating_point() or table.is_complex() or table.dtype == torch.bool)
    if table.dim() != 2 or table.shape[1] != chain.num_layers + 1 or not whole:
        got = described(table)
        raise InputError(
            f"A walk of this model names {chain.num_layers + 1} nodes, so walks must be {expected}, got {got}.",
            argument="walks",
            expected=expected,
            got=got,
        )
    return table


def _verdict(chain: RelevanceChain, table: Tensor) -> Verdict:
    """Whether walks name nodes of the graph."""

    def judge(found: list[int]) -> None:
        low, high = found
        if low >= (0 if chain.straight else -1) and high < chain.num_nodes:
            return
        passing = ", and no walk of this model bypasses a position" if chain.straight else " (-1 bypasses a position)"
        got, known = Described(f"{low} to {high}"), f"0 to {chain.num_nodes - 1}"
        raise InputError(
            f"walks names nodes {got}, but the graph has nodes {known}{passing}.",
            argument="walks",
            expected=f"node ids from {known}" + ("" if chain.straight else ", or -1"),
            got=got,
        )

    return Verdict(torch.stack(torch.aminmax(table)), judge)


def _relevance(chain: RelevanceChain, walks: Tensor) -> Tensor:
    """One batch of walks. Lane d holds what has come through d of a walk's own nodes."""
    rows, at = standing_rows(chain, walks)
    if chain.straight:
        return contract(chain, rows, lambda visit, m: m * at[visit.position])[:, 0]
    lanes = contract(chain, rows, lambda visit, m: pad(m * at[visit.position], (0, 0, 1, 0)))
    visits = (walks >= 0).sum(dim=1)
    lanes = pad(lanes, (0, max(0, walks.shape[1] + 1 - lanes.shape[1])))
    return lanes[torch.arange(len(walks), device=walks.device), visits]
