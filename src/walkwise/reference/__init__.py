"""The library's quantities by the paper's definitions, slow and obvious. The tests' oracle.

Nothing here knows a chain. `transitions` and `hooks` are two independent ways to relevance; `questions` answers what
people ask from all walks, one by one; `rollouts` is another explainer's search.
"""

from walkwise.reference.hooks import hooked_relevance, hooked_subgraph_relevance
from walkwise.reference.questions import (
    find_subgraph,
    interactions,
    order_nodes,
    order_scores,
    query,
    shapley_interactions,
    shapley_values,
    starts,
    subgraph_relevance,
    top_walks,
)
from walkwise.reference.rollouts import subgraphx
from walkwise.reference.transitions import all_walks, frozen_conv, frozen_linear, transition

__all__ = [
    "all_walks",
    "find_subgraph",
    "frozen_conv",
    "frozen_linear",
    "hooked_relevance",
    "hooked_subgraph_relevance",
    "interactions",
    "order_nodes",
    "order_scores",
    "query",
    "shapley_interactions",
    "shapley_values",
    "starts",
    "subgraph_relevance",
    "subgraphx",
    "top_walks",
    "transition",
]
