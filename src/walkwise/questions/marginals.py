"""Sums over walks with one node, one step or one input feature fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.contract import all_rows, contract, pull_back, unweighted
from walkwise.core.edges import Edges
from walkwise.core.node_types import NodeValues
from walkwise.core.operators import Visit
from walkwise.core.rows import Rows
from walkwise.core.sending import Verdict, sent
from walkwise.errors import Described, InputError, as_whole, described
from walkwise.questions.parts import asked_of_part, part_of, per_node, rows_of
from walkwise.questions.standing_rows import at_once, standing_rows
from walkwise.questions.standings import Standing, standings_of


@without_gradients
@asked_of_part(per_node)
def node_relevance(chain: RelevanceChain, *, layer: int | Literal["start"] = 0) -> NodeValues:
    """The relevance of all walks that stand at a node in one position, for every node: (M,), or {type: (M_t,)}.

        R_l(i) = Σ over walks m with m_l = i of R(m)

    If every walk stands at a node in every position (no skip connections), each position sums to R of the graph. If a
    model reads new input on the way (a sequence of graphs, a virtual node's own features), walks also begin at later
    positions; ``layer="start"`` assigns every walk to its first node, wherever it begins, and always sums to R of the
    graph.

    Args:
        chain: the traced prediction.
        layer: the position, from 0 (where a walk through all layers begins, at the input) to L (where it ends), or
            "start" for the first node of every walk.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> parts = ww.node_relevance(chain)
    >>> abs(float(parts.sum()) - chain.input_relevance) < 1e-6
    True
    >>> ww.node_relevance(chain, layer=2)[[0, 2]].tolist()  # all walks end at node 1
    [0.0, 0.0]
    >>> torch.equal(ww.node_relevance(chain, layer="start"), parts)  # all walks begin at the input
    True
    """
    found = at_nodes(chain, layer=layer)
    return found if chain.types is None else chain.types.split(found)


@without_gradients
@asked_of_part(per_node)
def at_nodes(chain: RelevanceChain, *, layer: int | Literal["start"] = 0) -> Tensor:
    """The same for nodes of all types in one row: (M,)."""
    if layer == "start":
        return _begun(chain, range(chain.num_layers + 1))
    layer = _checked_layer(layer, '"start", or a position', chain.num_layers)
    if layer == 0:
        return _begun(chain, [0])
    total = torch.zeros(chain.num_nodes, dtype=chain.dtype, device=chain.device)
    for standing in standings_of(chain):
        if standing.visit.position == layer:
            total += (standing.backward * standing.forward).sum(-1)
    return total


def _begun(chain: RelevanceChain, positions: Sequence[int]) -> Tensor:
    """The walks that begin in these positions, by their first node: ⟨message, H⟩ where they begin, from one pass."""
    slots = {visit.slot for visit in chain.visits if visit.position in positions}
    total = torch.zeros(chain.num_nodes, dtype=chain.dtype, device=chain.device)
    for slot, H in chain.roots:
        if slot in chain.arrivals and slot in slots:
            total += torch.einsum("mn,mn->m", chain.arrivals[slot], H)
    return total


@without_gradients
@asked_of_part(per_node)
def feature_relevance(chain: RelevanceChain) -> NodeValues:
    """The relevance of every input feature of every node: (M, F), or {type: (M_t, F_t)}.

        R[i, f] = x[i, f] · ∂y/∂x[i, f],

    the derivative taken with the rule's constants held. Without an encoder, a row sums to its node's relevance.

    If there is an encoder before the first message-passing layer, relevance passes through it to the features that the
    model was given. If those are not numbers (atom types in an embedding), the features are those of the first layer's
    input, without what bypasses that layer.

    Args:
        chain: the traced prediction.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> features = ww.feature_relevance(chain)
    >>> features.shape
    torch.Size([3, 2])
    >>> torch.allclose(features.sum(1), ww.node_relevance(chain))
    True
    """
    arrived = chain.arrivals
    if not chain.features and chain.types is None:
        slot, H = chain.roots[0]
        return arrived[slot] * H if slot in arrived else torch.zeros_like(H)
    begun = [(root, message.unsqueeze(1).unsqueeze(1)) for root, message in arrived.items()]
    messages = pull_back(chain.encoder, begun, all_rows(chain), unweighted)
    found = [torch.zeros_like(x) if slot not in messages else messages[slot][:, 0, 0] * x for slot, x in chain.features]
    return found[0] if chain.types is None else dict(zip(chain.types.featured, found, strict=True))


@without_gradients
def edge_relevance(chain: RelevanceChain, *, layer: int | None = None, edge_index: Tensor | None = None) -> NodeValues:
    """The relevance of all walks that step along an edge, for every edge: (E,), or {edge type: (E_t,)}.

        R(u, v) = Σ over layers l, Σ over walks m with m_l = u and m_{l+1} = v of R(m)

    The relevance of an edge (u, v) in a layer is that of the partial walk with u at the layer's input
    and v at its output. Duplicate edges share it equally, and so do edges of several types between the same two nodes.

    Args:
        chain: the traced prediction.
        layer: one message-passing step, 0 to L - 1; by default the sum over all of them.
        edge_index: the pairs (2, E) to ask about, by default the model's edges. A pair (u, u) stands for the walks that
            stay at u, by a self-loop, a root weight or a skip connection.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> ww.edge_relevance(chain).shape
    torch.Size([4])
    >>> last = ww.edge_relevance(chain, layer=1, edge_index=torch.tensor([[0, 1, 2], [1, 1, 1]]))
    >>> torch.allclose(last, ww.node_relevance(chain, layer=1))  # the last step leads to node 1 from anywhere
    True
    """
    if layer is not None:
        layer = _checked_layer(layer, "a step", chain.num_layers - 1)
    if edge_index is None:
        found = _along(chain, chain.edge_index, layer, every=True)
        return found if chain.types is None else chain.types.split_edges(found)
    pairs = _as_pairs(chain, edge_index)
    verdict = _verdict(chain, pairs)
    found = _along(chain, pairs.clamp(0, chain.num_nodes - 1), layer, every=False)
    verdict.read()
    return found


def _along(chain: RelevanceChain, pairs: Tensor, layer: int | None, every: bool) -> Tensor:
    """The relevance of pairs of nodes, all edges of the graph or others.  # (E,)"""
    if chain.part is not None:
        return _of_part(chain, pairs, layer, every)
    known, total = standings_of(chain), torch.zeros(pairs.shape[1], dtype=chain.dtype, device=chain.device)
    for step in range(chain.num_layers) if layer is None else [layer]:
        total += _step_relevance(chain, known, step, *pairs)
    place = Edges(pairs[0], pairs[1], chain.num_nodes).pairs[1]
    copies = torch.zeros_like(total).index_add_(0, place, torch.ones_like(total))
    return total / copies[place]


def _of_part(chain: RelevanceChain, pairs: Tensor, layer: int | None, every: bool) -> Tensor:
    """The relevance of the graph's edges, all of them or those asked for: zero beyond the part.  # (E,)"""
    part, origin = part_of(chain)
    if every and len(origin.edges):
        among, rows = origin.edges, part.edge_index
    else:
        rows = rows_of(chain, pairs)
        among = (rows >= 0).all(0).nonzero()[:, 0]
        rows = rows[:, among]
    found = torch.zeros(pairs.shape[1], dtype=chain.dtype, device=chain.device)
    return found.index_copy_(0, among, _along(part, rows, layer, every=False))


def _checked_layer(layer: Any, kind: str, last: int) -> int:
    try:
        number = as_whole(layer)
    except TypeError:
        number = -1
    if not 0 <= number <= last:
        raise InputError(argument="layer", expected=f"{kind} from 0 to {last}", got=layer)
    return number


def _as_pairs(chain: RelevanceChain, edge_index: Any) -> Tensor:
    """The pairs as they were given, where the chain is.  # (2, E)"""
    expected = "pairs of node ids, of shape (2, E)"
    try:
        pairs = torch.as_tensor(edge_index)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(argument="edge_index", expected=expected, got=edge_index) from None
    if pairs.dim() != 2 or pairs.shape[0] != 2 or pairs.is_floating_point() or pairs.dtype == torch.bool:
        raise InputError(argument="edge_index", expected=expected, got=described(pairs))
    return sent(pairs, chain.device, torch.long)


def _verdict(chain: RelevanceChain, pairs: Tensor) -> Verdict:
    """Whether pairs name nodes of the graph."""

    def judge(found: list[int]) -> None:
        low, high = found
        if low < 0 or high >= chain.num_nodes:
            ends = Described(f"ids from {low} to {high}")
            raise InputError(argument="edge_index", expected=f"node ids from 0 to {chain.num_nodes - 1}", got=ends)

    return Verdict(torch.stack(torch.aminmax(pairs) if pairs.numel() else [pairs.new_zeros(())] * 2), judge)


def _step_relevance(chain: RelevanceChain, known: list[Standing], layer: int, before: Tensor, after: Tensor) -> Tensor:
    """The relevance of stepping from ``before`` at a layer's input to ``after`` at its output: (P,)."""
    if len(before) == 0:
        return torch.zeros(0, dtype=chain.dtype, device=chain.device)
    flows = {s.visit.slot: s.forward for s in known if s.visit.position == layer}
    sources = [s for s in known if s.visit.position == layer + 1]
    most, parts = at_once(chain, 2), []
    for u, v in zip(torch.split(before, most), torch.split(after, most), strict=True):
        rows, (is_u, is_v) = standing_rows(chain, torch.stack([u, v], dim=1))
        arrived: list[Tensor] = []

        def weigh(visit: Visit, message: Tensor, rows: Rows = rows, is_u: Tensor = is_u) -> None:
            if visit.slot in flows:
                arrived.append(rows.total(message * is_u, flows[visit.slot])[:, 0])  # noqa: B023

        seeds = [(s.visit.slot, rows.take(s.backward) * is_v) for s in sources]
        contract(chain, rows, weigh, seeds=seeds)
        parts.append(torch.stack(arrived).sum(0) if arrived else before.new_zeros(len(u), dtype=chain.dtype))
    return torch.cat(parts)
