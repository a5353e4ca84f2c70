"""Other explainers behind one interface, a registry of them, and a comparison on any model and data set.

>>> from walkwise import baselines
>>> baselines.available_baselines()  # doctest: +NORMALIZE_WHITESPACE
('attention', 'cam', 'gnn-lrp', 'gnnexplainer', 'gnnexplainer-paper', 'grad-cam', 'gradient',
 'gradient-x-input', 'integrated-gradients', 'lrp', 'pgexplainer', 'pgmexplainer', 'random', 'sgnn-lrp', 'subgraphx')
"""

from walkwise.baselines import edge_mask, gradients, pgm, pyg, relevance, subgraphx  # they register themselves
from walkwise.baselines.attribution import Attribution, Walks, node_order, node_scores, of_nodes, subgraph_scores
from walkwise.baselines.comparison import compare
from walkwise.baselines.measures import Explained
from walkwise.baselines.registry import available_baselines, baseline, register_baseline, register_trained_baseline
from walkwise.baselines.tables import Row, to_markdown, to_pandas

__all__ = [
    "Attribution",
    "Explained",
    "Row",
    "Walks",
    "available_baselines",
    "baseline",
    "compare",
    "edge_mask",
    "gradients",
    "node_order",
    "node_scores",
    "of_nodes",
    "pgm",
    "pyg",
    "register_baseline",
    "register_trained_baseline",
    "relevance",
    "subgraph_scores",
    "subgraphx",
    "to_markdown",
    "to_pandas",
]
