"""The usual questions about one prediction, asked in one call."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Batch

from walkwise.core.chain import RelevanceChain
from walkwise.core.node_types import TypedNode
from walkwise.errors import CoverageWarning, TooManyWalksError, as_count
from walkwise.evaluation.naming import explained_title, node_labels
from walkwise.evaluation.outputs import as_names
from walkwise.evaluation.predictions import Prediction, predict, traced
from walkwise.explanation.answer import Explanation
from walkwise.explanation.check import check_subgraph, whole_outcome
from walkwise.questions.components import largest_component
from walkwise.questions.marginals import edge_relevance, feature_relevance, node_relevance
from walkwise.rules import RuleLike
from walkwise.search.best_subgraph import find_subgraph
from walkwise.search.best_walks import SearchLimitError, TopWalks, top_walks

#: The default number of nodes in the best subgraph.
SIZE = 5


def explain(
    model: nn.Module,
    *graph: Any,
    target: Any = None,
    against: Any = None,
    index: int | TypedNode | None = None,
    class_names: Sequence[str] | None = None,
    rule: RuleLike = "auto",
    size: int | None = None,
    walks: int = 20,
    **model_kwargs: Any,
) -> Explanation:
    """Explain one prediction: ``explain(model, data)``, or ``explain(model, x, edge_index)``.

    This traces the prediction (:func:`walkwise.trace`), computes the relevance of nodes, edges and features, and finds
    the most relevant connected subgraph and the top walks. Then it runs the model again, on that subgraph alone and on
    the graph without it: if the explanation holds, the first changes the output little and the second much. A model
    that depends on node numbers is not run again, because these change in a part; a note says so.

    Args:
        model: a model with torch_geometric message-passing layers. It is not changed.
        *graph: one Data object with x and edge_index, a HeteroData with these by type, or the node features and the
            edges (2, E).
        target: the output column to explain (default: the largest), its name, or a callable that turns the output into
            a scalar. For a single logit, "positive" or "negative".
        against: another column or name: the explanation is of what speaks for the target and not for this one.
        index: the output row to explain, for node-level models; for a heterogeneous graph, (type, i).
        class_names: names of the output columns; two for a model with one logit, the negative class first.
        rule: the LRP rule, as for :func:`walkwise.trace`.
        size: the number of nodes in the best subgraph; by default 5, or fewer if no connected part has as many.
        walks: the number of top walks to find.
        **model_kwargs: passed to the model; they take precedence over the attributes of a Data object.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=2)
    >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    >>> explanation = ww.explain(model, torch.ones(4, 2), edge_index, index=1, class_names=["safe", "toxic"], size=2)
    >>> explanation.node_relevance.shape, len(explanation.subgraph.nodes), explanation.check.whole.says
    (torch.Size([4]), 2, 'safe')
    >>> contrast = ww.explain(model, torch.ones(4, 2), edge_index, index=1, target=1, against=0)
    >>> contrast.target
    'output 1, not output 0'
    """
    as_count(walks, "walks", "the number of top walks")
    graph, class_names = tuple(_alone(part) for part in graph), as_names(class_names)
    prediction = predict(
        model, *graph, target=target, against=against, index=index, class_names=class_names, **model_kwargs
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # the notes say it
        chain = traced(prediction, rule=rule)
    found = find_subgraph(chain, _size(size, prediction))
    reason = prediction.by_numbers
    check = None if reason else check_subgraph(prediction, found.numbers, class_names)
    data = graph[0] if len(graph) == 1 else None
    edges = prediction.edge_index
    best, notes = _walks(chain, walks)
    row = () if callable(prediction.target) else prediction.logits.tolist()
    nodes, features = node_relevance(chain, layer="start"), feature_relevance(chain)
    types = chain.types
    if types is not None:
        nodes = types.joined(nodes)
        features = {name: part.cpu() for name, part in features.items()}
    return Explanation(
        target=explained_title(prediction, class_names),
        prediction=whole_outcome(prediction, class_names),
        outputs=tuple(-value if prediction.negative else value for value in row),
        index=prediction.index,
        relevance=chain.input_relevance,
        node_relevance=nodes.cpu(),
        edge_index=edges.cpu(),
        edge_relevance=edge_relevance(chain, edge_index=edges).cpu(),
        feature_relevance=features if types is not None else features.cpu(),
        subgraph=found,
        check=check,
        walks=best,
        notes=(*chain.notes, *chain.cautions, *notes, *([reason.note] if reason else [])),
        node_labels=tuple(types.written(range(types.num_nodes))) if types else node_labels(data, chain.num_nodes),
        smiles=smiles if isinstance(smiles := getattr(data, "smiles", None), str) else None,
        types=types,
        normaliser=chain.normaliser,
        chain=chain,
    )


def _alone(given: Any) -> Any:
    """The graph itself, if a loader made a batch of it alone, where its names are in lists."""
    return given.get_example(0) if isinstance(given, Batch) and given.num_graphs == 1 else given


def _size(size: int | None, prediction: Prediction) -> int:
    return min(SIZE, largest_component(prediction.edge_index, prediction.num_nodes)) if size is None else size


def _walks(chain: RelevanceChain, number_of_walks: int) -> tuple[TopWalks, list[str]]:
    """The top walks; none, with a note, if there are too many to search."""
    try:
        return top_walks(chain, number_of_walks, progress=False), []
    except (SearchLimitError, TooManyWalksError) as error:
        none = torch.zeros(0, chain.num_layers + 1, dtype=torch.long)
        return TopWalks(none, torch.zeros(0), 0, 0, "not found"), [f"the top walks were not computed: {error}"]
