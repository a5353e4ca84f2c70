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

import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walkwise import baselines, errors, evaluation, rules
    from walkwise.core.chain import RelevanceChain
    from walkwise.evaluation import activation_curve, pruning_curve
    from walkwise.evaluation.tuning import tune_alpha
    from walkwise.explainer import SubgraphLRPExplainer
    from walkwise.explanation import Explanation, explain
    from walkwise.questions.games import as_game, shapley_interactions, shapley_values
    from walkwise.questions.groups import interactions, query
    from walkwise.questions.marginals import edge_relevance, feature_relevance, node_relevance
    from walkwise.questions.subgraphs import subgraph_polynomial, subgraph_relevance
    from walkwise.questions.walks import enumerate_walks, walk_relevance
    from walkwise.search.best_subgraph import find_subgraph
    from walkwise.search.best_walks import top_walks
    from walkwise.search.orders import order_nodes
    from walkwise.tracing import trace

try:
    __version__ = version("walkwise")
except PackageNotFoundError:  # run from its sources
    __version__ = "0+unknown"

__all__ = [
    "Explanation",
    "RelevanceChain",
    "SubgraphLRPExplainer",
    "activation_curve",
    "as_game",
    "baselines",
    "edge_relevance",
    "enumerate_walks",
    "errors",
    "evaluation",
    "explain",
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

#: The modules of these names; they are imported when a name is first used.
_HOMES = {
    "core.chain": ["RelevanceChain"],
    "evaluation": ["activation_curve", "pruning_curve"],
    "evaluation.tuning": ["tune_alpha"],
    "explainer": ["SubgraphLRPExplainer"],
    "explanation": ["Explanation", "explain"],
    "questions.games": ["as_game", "shapley_interactions", "shapley_values"],
    "questions.groups": ["interactions", "query"],
    "questions.marginals": ["edge_relevance", "feature_relevance", "node_relevance"],
    "questions.subgraphs": ["subgraph_polynomial", "subgraph_relevance"],
    "questions.walks": ["enumerate_walks", "walk_relevance"],
    "search.best_subgraph": ["find_subgraph"],
    "search.orders": ["order_nodes"],
    "search.best_walks": ["top_walks"],
    "tracing": ["trace"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
#: Threads that ask for their first names at the same time take turns: PyTorch Geometric's modules, which import each
#: other in circles, cannot be imported by two at once. No module may import one of these names from the package.
_TURN = RLock()


def __getattr__(name: str) -> Any:
    """Import names only when they are used, so that ``walkwise --help`` need not wait for torch."""
    if name in __all__:
        with _TURN:
            module = import_module(f"walkwise.{_HOME.get(name, name)}")
            found = globals()[name] = getattr(module, name) if name in _HOME else module
        return found
    if not name.startswith("_") and find_spec(f"walkwise.{name}") is not None:
        return import_module(f"walkwise.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    modules = [name for name in globals() if f"walkwise.{name}" in sys.modules]
    return sorted({*(name for name in globals() if name.startswith("__")), *modules, *__all__})
