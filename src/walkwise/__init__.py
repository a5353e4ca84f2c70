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

from walkwise import errors, rules
from walkwise.chain import RelevanceChain
from walkwise.marginals import edge_relevance, feature_relevance, node_relevance
from walkwise.subgraphs import subgraph_polynomial, subgraph_relevance
from walkwise.trace import trace
from walkwise.walks import enumerate_walks, walk_relevance

__all__ = [
    "RelevanceChain",
    "edge_relevance",
    "enumerate_walks",
    "errors",
    "feature_relevance",
    "node_relevance",
    "rules",
    "subgraph_polynomial",
    "subgraph_relevance",
    "trace",
    "walk_relevance",
]
