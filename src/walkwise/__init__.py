"""Walkwise: which part of this graph made the model say that?

A traced prediction is a :class:`RelevanceChain`; everything else is a function of one.

>>> import torch, walkwise as ww
>>> from torch_geometric.nn import GCN
>>> _ = torch.manual_seed(0)
>>> model = GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=3)
>>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
>>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
>>> ww.subgraph_relevance(chain, [[0, 1], [1, 2]]).shape
torch.Size([2])
"""

from importlib.metadata import PackageNotFoundError, version

from walkwise import baselines, errors, evaluation, rules
from walkwise.chain import RelevanceChain
from walkwise.evaluation import activation_curve, pruning_curve
from walkwise.explainer import SubgraphLRPExplainer
from walkwise.games import as_game, shapley_interactions, shapley_values
from walkwise.interactions import interactions, query
from walkwise.marginals import edge_relevance, feature_relevance, node_relevance
from walkwise.ordering import order_nodes
from walkwise.search import find_subgraph
from walkwise.subgraphs import subgraph_polynomial, subgraph_relevance
from walkwise.topwalks import top_walks
from walkwise.trace import trace
from walkwise.tuning import tune_alpha
from walkwise.walks import enumerate_walks, walk_relevance

try:
    __version__ = version("walkwise")
except PackageNotFoundError:  # run from its sources
    __version__ = "0+unknown"

__all__ = [
    "RelevanceChain",
    "SubgraphLRPExplainer",
    "activation_curve",
    "as_game",
    "baselines",
    "edge_relevance",
    "enumerate_walks",
    "errors",
    "evaluation",
    "feature_relevance",
    "find_subgraph",
    "interactions",
    "node_relevance",
    "order_nodes",
    "pruning_curve",
    "query",
    "rules",
    "shapley_interactions",
    "shapley_values",
    "subgraph_polynomial",
    "subgraph_relevance",
    "top_walks",
    "trace",
    "tune_alpha",
    "walk_relevance",
]
