"""Activation and pruning curves: a model's output as the nodes of an order are added or removed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from walkwise.core.node_types import TypedNode
from walkwise.errors import InputError
from walkwise.evaluation.naming import explained_title
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import Prediction, predict
from walkwise.evaluation.selections import Nodes, parted, prefixes
from walkwise.search.orders import NodeOrder


@dataclass(frozen=True, eq=False)
class Curve:
    """f along an order of the nodes; made by :func:`activation_curve` and :func:`pruning_curve`."""

    values: Tensor  # (M,)
    route: str  # "batched" or "one by one": how f was evaluated
    target: str = ""  # the name of the number f

    @property
    def area(self) -> float:
        """The mean of the curve: AUAC or AUPC."""
        return float(self.values.double().mean())


def activation_curve(
    model: nn.Module,
    *graph_and_order: Any,
    target: Any = None,
    against: Any = None,
    index: int | TypedNode | None = None,
    on: str = "logit",
    progress: bool = False,
    **model_kwargs: Any,
) -> Curve:
    """f of the first 1, 2, … M nodes of an order; its area is the AUAC (Algorithm 3, higher is better).

    AUAC = 1/M Σ_{i=1…M} f({m⁽¹⁾ … m⁽ⁱ⁾}), where f is the model's output on the subgraph that the nodes
    induce. The last value is f of the whole graph.

    Args:
        model: a model called as ``model(x, edge_index, **model_kwargs)``. All prefixes go through it in a
            few passes if it takes ``batch``, and one by one if not; the curve says which (``route``).
        *graph_and_order: ``data, order`` or ``x, edge_index, order``; the order is a permutation (M,) of the
            nodes, most important first.
        target: the output column, or a callable that turns the output into a scalar. By default, that of the chain
            which made the order (:func:`walkwise.order_nodes`), with its ``against``; for any other order, the largest
            column. ``target`` of the curve says which it is.
        against: another column, whose output is subtracted.
        index: the output row of a node-level model, or (type, i); by default the chain's. That node is there from
            the start.
        on: "logit" for the output itself, "probability" for its softmax.
        progress: show a bar.
        **model_kwargs: passed to the model; for subgraphs, rows of nodes and edges are selected.

    >>> import walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> curve = activation_curve(model, x, edge_index, [1, 0, 2], index=1)
    >>> curve.values.shape
    torch.Size([3])
    >>> bool(curve.values[-1].isclose(model(x, edge_index)[1, 0]))
    True
    """
    graph, order = parted(graph_and_order, "order")
    said = _explained(order, target, against, index)
    prediction = predict(model, *graph, **said, **model_kwargs)
    return activation_along(prediction, order, on=on, progress=progress)


def pruning_curve(
    model: nn.Module,
    *graph_and_order: Any,
    target: Any = None,
    against: Any = None,
    index: int | TypedNode | None = None,
    on: str = "logit",
    progress: bool = False,
    **model_kwargs: Any,
) -> Curve:
    """|f(G) − f(rest)| with the first 0, 1, … M−1 nodes removed; its area is the AUPC (lower is better).

    AUPC = 1/M Σ_{i=0…M−1} |f(G ∖ {m⁽¹⁾ … m⁽ⁱ⁾}) − f(G)|. The paper's formula and its Algorithm 4 sum over
    i = 1 … M instead, and so end with f of the empty graph. The published numbers begin with nothing removed, which
    gives 0 and needs no value for the empty graph. This function does the latter.

    Args:
        model: as for :func:`activation_curve`.
        *graph_and_order: ``data, order`` or ``x, edge_index, order``; the order is a permutation (M,) of the
            nodes, **least** important first.
        target: the output column, or a callable that turns the output into a scalar. By default, that of the chain
            which made the order (:func:`walkwise.order_nodes`), with its ``against``; for any other order, the largest
            column. ``target`` of the curve says which it is.
        against: another column, whose output is subtracted.
        index: the output row of a node-level model, or (type, i); by default the chain's. That node is never removed.
        on: "logit" for the output itself, "probability" for its softmax.
        progress: show a bar.
        **model_kwargs: passed to the model.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> float(pruning_curve(model, x, edge_index, [0, 2, 1], index=1).values[0])
    0.0
    """
    graph, order = parted(graph_and_order, "order")
    said = _explained(order, target, against, index)
    prediction = predict(model, *graph, **said, **model_kwargs)
    return pruning_along(prediction, order, on=on, progress=progress)


def activation_along(prediction: Prediction, order: Nodes, *, on: str = "logit", progress: bool = False) -> Curve:
    """The activation curve of a given prediction; see :func:`activation_curve`.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(model, x, edge_index, index=1)
    >>> activation_along(prediction, [1, 0, 2]).values.shape
    torch.Size([3])
    """
    found = subgraph_values(prediction, prefixes(order, prediction.num_nodes), on=on, progress=progress)
    return Curve(found.values, found.route, explained_title(prediction))


def pruning_along(prediction: Prediction, order: Nodes, *, on: str = "logit", progress: bool = False) -> Curve:
    """The pruning curve of a given prediction; see :func:`pruning_curve`.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(model, x, edge_index, index=1)
    >>> float(pruning_along(prediction, [0, 2, 1]).values[0])
    0.0
    """
    rest = ~prefixes(order, prediction.num_nodes)[:-1]  # (M - 1, M)
    found = subgraph_values(prediction, rest, on=on, progress=progress)
    changes = (found.values - prediction.value(on)).abs()
    return Curve(torch.cat([changes.new_zeros(1), changes]), found.route, explained_title(prediction))


def _explained(order: Any, target: Any, against: Any, index: Any) -> dict[str, Any]:
    """The number that a curve measures: the caller's, or else what the chain that made the order explains."""
    number = order.explained if isinstance(order, NodeOrder) else None
    if number is None:
        return {"target": target, "against": against, "index": index}
    if target is None and number.target is None:
        raise InputError(
            "The order comes from a chain with a callable target.",
            argument="target",
            expected="given: the callable that was traced, or a column of the output",
            remedy="Give it here, too: target=lambda output: ...",
        )
    if target is None:
        target, against = number.target, number.against if against is None else against
    row = number.index if index is None and not callable(target) else index
    return {"target": target, "against": against, "index": row}


def mean_and_error(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over the first axis, and its standard error, which is NaN for a single score.

        standard error = √(Σ_g (s_g − mean)² / (G − 1)) / √G

    >>> mean, error = mean_and_error(torch.tensor([1.0, 2.0, 6.0]))
    >>> float(mean), round(float(error), 4)
    (3.0, 1.5275)
    """
    mean = scores.mean(0)
    if len(scores) < 2:
        return mean, torch.full_like(mean, math.nan)
    return mean, scores.std(0, correction=1) / math.sqrt(len(scores))
