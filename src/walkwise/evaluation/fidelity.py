"""Fidelity: what a prediction loses without an explanation, or with nothing else; and sparsity."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import Prediction, predict
from walkwise.evaluation.selections import Nodes, as_mask, parted


def fidelity_plus(
    model: nn.Module,
    *graph_and_nodes: Any,
    target: Any = None,
    against: Any = None,
    index: int | None = None,
    on: str = "probability",
    **model_kwargs: Any,
) -> float:
    """f(G) − f(G ∖ S): what the prediction loses without the explanation S (higher is better).

    Args:
        model: as for :func:`~walkwise.evaluation.activation_curve`.
        *graph_and_nodes: ``data, nodes`` or ``x, edge_index, nodes``; node ids or a boolean mask (M,).
        target: the output column (default: the largest), or a callable that turns the output into a scalar.
        against: another column, whose output is subtracted.
        index: the output row of a node-level model; that node is never removed.
        on: "probability" or "logit". If no nodes are left, every logit is 0.
        **model_kwargs: passed to the model.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> fidelity_plus(model, x, edge_index, [], index=1)  # nothing removed
    0.0
    """
    graph, nodes = parted(graph_and_nodes, "nodes")
    prediction = predict(model, *graph, target=target, against=against, index=index, **model_kwargs)
    return fidelities(prediction, nodes, on=on)[0]


def fidelity_minus(
    model: nn.Module,
    *graph_and_nodes: Any,
    target: Any = None,
    against: Any = None,
    index: int | None = None,
    on: str = "probability",
    **model_kwargs: Any,
) -> float:
    """f(G) − f(S): what the prediction loses if only the explanation S is kept (lower is better).

    Args:
        model: as for :func:`~walkwise.evaluation.activation_curve`.
        *graph_and_nodes: ``data, nodes`` or ``x, edge_index, nodes``; node ids or a boolean mask (M,).
        target: the output column (default: the largest), or a callable that turns the output into a scalar.
        against: another column, whose output is subtracted.
        index: the output row of a node-level model; that node is never removed.
        on: "probability" or "logit". If no nodes are left, every logit is 0.
        **model_kwargs: passed to the model.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> fidelity_minus(model, x, edge_index, [0, 1, 2], index=1)  # everything kept
    0.0
    """
    graph, nodes = parted(graph_and_nodes, "nodes")
    prediction = predict(model, *graph, target=target, against=against, index=index, **model_kwargs)
    return fidelities(prediction, nodes, on=on)[1]


def fidelities(prediction: Prediction, nodes: Nodes, *, on: str = "probability") -> tuple[float, float]:
    """Fidelity+ and fidelity− of a given prediction.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(model, x, edge_index, index=1)
    >>> len(fidelities(prediction, [0, 1]))
    2
    """
    inside = as_mask(nodes, prediction.num_nodes)
    without, alone = subgraph_values(prediction, torch.stack([~inside, inside]), on=on).values.tolist()
    whole = prediction.value(on)
    return whole - without, whole - alone


def sparsity(nodes: Nodes, num_nodes: int) -> float:
    """1 − |S| / M: how much of the graph an explanation leaves out.

    >>> sparsity([3, 4], 8)
    0.75
    """
    return 1 - int(as_mask(nodes, num_nodes).sum()) / num_nodes
