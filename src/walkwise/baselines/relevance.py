"""Explainers by layer-wise relevance propagation, ours among them, and a random one to compare with."""

from __future__ import annotations

import torch

from walkwise.baselines.attribution import Attribution, Walks, of_nodes
from walkwise.baselines.registry import register_baseline
from walkwise.chain import RelevanceChain
from walkwise.marginals import node_relevance
from walkwise.predictions import Prediction, traced
from walkwise.rules import RuleLike
from walkwise.walks import enumerate_walks, walk_relevance


@register_baseline("sgnn-lrp")
def sgnn_lrp(prediction: Prediction, *, rule: RuleLike = "gamma") -> RelevanceChain:
    """The method of the paper: R_α of any node set, without listing walks."""
    return traced(prediction, rule=rule)


@register_baseline("gnn-lrp")
def gnn_lrp(prediction: Prediction, *, rule: RuleLike = "gamma", max_walks: int = 1_000_000) -> Walks:
    """GNN-LRP by listing every walk: the same scores as "sgnn-lrp", at exponential cost."""
    chain = traced(prediction, rule=rule)
    walks = enumerate_walks(chain, max_walks=max_walks)
    return Walks(walks, walk_relevance(chain, walks), chain.num_nodes)


@register_baseline("lrp")
def lrp(prediction: Prediction, *, rule: RuleLike = "gamma") -> Attribution:
    """Node-level LRP: the relevance of all walks that begin at a node, with its sign."""
    return of_nodes(node_relevance(traced(prediction, rule=rule)))


@register_baseline("random")
def random(prediction: Prediction) -> Attribution:
    """Uniform random scores, from torch's own generator."""
    return of_nodes(torch.rand(prediction.num_nodes))
