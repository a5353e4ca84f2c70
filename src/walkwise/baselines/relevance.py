"""Explainers by layer-wise relevance propagation, ours among them, and a random one to compare with."""

from __future__ import annotations

import torch

from walkwise.baselines.attribution import Attribution, Walks, of_nodes
from walkwise.baselines.registry import register_baseline
from walkwise.core.chain import RelevanceChain
from walkwise.evaluation.predictions import Prediction, traced
from walkwise.questions.marginals import node_relevance
from walkwise.questions.walks import enumerate_walks, walk_relevance
from walkwise.rules import RuleLike


@register_baseline("sgnn-lrp")
def sgnn_lrp(prediction: Prediction, *, rule: RuleLike = "auto") -> RelevanceChain:
    """The method of the paper: R_α of any node set, without listing walks.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> sgnn_lrp(prediction).num_nodes
    3
    """
    return traced(prediction, rule=rule)


@register_baseline("gnn-lrp")
def gnn_lrp(prediction: Prediction, *, rule: RuleLike = "auto", max_walks: int = 1_000_000) -> Walks:
    """GNN-LRP by listing every walk: the same scores as "sgnn-lrp", at exponential cost.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> gnn_lrp(prediction).walks.shape[1]  # L + 1
    3
    """
    chain = traced(prediction, rule=rule)
    walks = enumerate_walks(chain, max_walks=max_walks)
    return Walks(walks, walk_relevance(chain, walks), chain.num_nodes)


@register_baseline("lrp")
def lrp(prediction: Prediction, *, rule: RuleLike = "auto") -> Attribution:
    """Node-level LRP: the relevance of all walks that begin at a node, with its sign.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> lrp(prediction).nodes.shape
    torch.Size([3])
    """
    chain = traced(prediction, rule=rule)
    relevance = node_relevance(chain)
    return of_nodes(relevance if chain.types is None else chain.types.joined(relevance))


@register_baseline("random")
def random(prediction: Prediction) -> Attribution:
    """Uniform random scores, from torch's own generator.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> random(prediction).nodes.shape
    torch.Size([3])
    """
    return of_nodes(torch.rand(prediction.num_nodes))
