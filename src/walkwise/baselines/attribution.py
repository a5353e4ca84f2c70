"""The common form of explanations: scores of node sets, whatever a method scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.evaluation import scores_of_order
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.questions.ties import ties_in_order
from walkwise.search.greedy import as_mode, greedy_order
from walkwise.search.orders import DISCOUNTS, order_nodes


@dataclass(frozen=True, eq=False)
class Attribution:
    """A method's scores of nodes, of edges, or of both.

    A scored edge counts as a walk of one step, and a node set S has the score Σ_{m in S} nodes_m + Σ_e g_α(e) edges_e
    with g_α = 1 for edges inside S, α for edges with one end in S, and 0 for the rest (appendix K).
    """

    nodes: Tensor  # (M,)
    edges: Tensor | None = None  # (E,)
    edge_index: Tensor | None = None  # (2, E)


@dataclass(frozen=True, eq=False)
class Walks:
    """Walks listed one by one, with their relevance."""

    walks: Tensor  # (K, L + 1), -1 where a walk bypasses a position
    relevance: Tensor  # (K,)
    num_nodes: int


#: What an explainer may return. A chain stands for the relevance of all its walks.
Explanation = Attribution | Walks | RelevanceChain


@singledispatch
def subgraph_scores(explanation: Any, sets: Tensor, *, alpha: float = 0.0) -> Tensor:
    """The score of every node set: (B,).

    Args:
        explanation: an attribution, walks, or a relevance chain.
        sets: the node sets, (B, M) boolean.
        alpha: the weight of a step outside the set, if the explanation has steps.

    >>> along = Attribution(torch.zeros(3), torch.tensor([1.0, 2.0]), torch.tensor([[0, 1], [1, 2]]))
    >>> subgraph_scores(along, torch.tensor([[True, True, False]]), alpha=0.5)
    tensor([2.])
    """
    raise TypeError(f"explanation must be an Attribution, Walks or a RelevanceChain, got {type(explanation).__name__}.")


@subgraph_scores.register
def _(explanation: Attribution, sets: Tensor, *, alpha: float = 0.0) -> Tensor:
    sets = sets.to(explanation.nodes.device)
    scores = sets.to(explanation.nodes.dtype) @ explanation.nodes
    if explanation.edges is None or explanation.edge_index is None:
        return scores
    source, destination = explanation.edge_index
    ends = sets[:, source].long() + sets[:, destination].long()  # (B, E), how many of an edge's ends are in S
    weight = torch.tensor([0.0, alpha, 1.0], dtype=scores.dtype, device=scores.device)[ends]
    return scores + weight @ explanation.edges


@subgraph_scores.register
def _(explanation: Walks, sets: Tensor, *, alpha: float = 0.0) -> Tensor:
    sets = sets.to(explanation.walks.device)
    visits = explanation.walks >= 0  # (K, L + 1)
    outside = (~sets[:, explanation.walks.clamp(min=0)] & visits).sum(dim=2)  # (B, K)
    weight = torch.tensor(float(alpha), dtype=explanation.relevance.dtype) ** outside
    weight[outside == visits.sum(dim=1)] = 0.0
    return weight @ explanation.relevance


@subgraph_scores.register
def _(explanation: RelevanceChain, sets: Tensor, *, alpha: float = 0.0) -> Tensor:
    return subgraph_relevance(explanation, sets, alpha=alpha)


def node_order(explanation: Explanation, mode: str = "activation", *, alpha: float | None = None) -> Tensor:
    """The nodes in the greedy order by the explanation's own scores of node sets: (M,).

    In activation mode the most important node comes first, in pruning mode the least important (section 7.2.1). Node
    scores alone, if none is negative, are simply sorted. The default α is that of `walkwise.order_nodes`.

    >>> node_order(Attribution(torch.tensor([0.2, 0.9, 0.4]))).tolist()
    [1, 2, 0]
    >>> node_order(Attribution(torch.tensor([0.3, 0.3 + 1e-7, 0.4]))).tolist()  # equal but for rounding
    [2, 0, 1]
    """
    if isinstance(explanation, RelevanceChain):
        return order_nodes(explanation, mode=mode, alpha=alpha)
    if isinstance(explanation, Attribution) and explanation.edges is None and mode == "activation":
        scores, order = explanation.nodes.cpu().sort(descending=True, stable=True)
        return order[ties_in_order(order[:, None], scores)]
    count = explanation.num_nodes if isinstance(explanation, Walks) else len(explanation.nodes)
    at = DISCOUNTS[as_mode(mode)] if alpha is None else alpha
    return greedy_order(lambda sets: subgraph_scores(explanation, sets, alpha=at).cpu(), count, mode)


def node_scores(explanation: Explanation, *, alpha: float | None = None) -> Tensor:
    """A score per node, higher for more important: (M,).

    If the method scores nodes, these are its scores. If it scores steps or walks, they are M for the first node of the
    activation order down to 1 for the last.

    >>> node_scores(of_nodes([0.2, 0.9, 0.4]))
    tensor([0.2000, 0.9000, 0.4000])
    """
    if isinstance(explanation, Attribution) and explanation.edges is None:
        return explanation.nodes
    return scores_of_order(node_order(explanation, alpha=alpha))


def takes_alpha(explanation: Explanation) -> bool:
    """Whether steps outside a node set can count, which they cannot if only nodes are scored."""
    return not (isinstance(explanation, Attribution) and explanation.edges is None)


def of_nodes(scores: Tensor | Sequence[float]) -> Attribution:
    """Scores of nodes alone.

    >>> of_nodes([0.2, 0.9]).edges is None
    True
    """
    return Attribution(torch.as_tensor(scores).detach())
