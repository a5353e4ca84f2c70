"""How good an explanation is: activation and pruning curves, fidelity, agreement with a known motif."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from walkwise.errors import InputError
from walkwise.evaluation.predictions import Prediction, predict, subgraph_values

#: Node ids, or a boolean mask (M,).
Nodes = Sequence[int] | Tensor

#: A node set, or several alternatives: a list of node sets, or a boolean mask (K, M).
Motif = Nodes | Sequence[Nodes]


@dataclass(frozen=True, eq=False)
class Curve:
    """f along an order of the nodes; made by :func:`activation_curve` and :func:`pruning_curve`."""

    values: Tensor  # (M,)
    route: str  # "batched" or "one by one": how f was evaluated

    @property
    def area(self) -> float:
        """The mean of the curve: AUAC or AUPC."""
        return float(self.values.double().mean())


def activation_curve(
    model: nn.Module,
    *graph_and_order: Any,
    target: Any = None,
    index: int | None = None,
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
        target: the output column (default: the largest), or a callable that makes a scalar of the output.
        index: the output row of a node-level model; that node is there from the start.
        on: "logit" for the output itself, "probability" for its softmax.
        progress: show a bar.
        **model_kwargs: passed to the model; rows of nodes and edges are carried along.

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
    graph, order = _parted(graph_and_order, "order")
    prediction = predict(model, *graph, target=target, index=index, **model_kwargs)
    return activation_along(prediction, order, on=on, progress=progress)


def pruning_curve(
    model: nn.Module,
    *graph_and_order: Any,
    target: Any = None,
    index: int | None = None,
    on: str = "logit",
    progress: bool = False,
    **model_kwargs: Any,
) -> Curve:
    """|f(G) − f(rest)| with the first 0, 1, … M−1 nodes removed; its area is the AUPC (lower is better).

    AUPC = 1/M Σ_{i=0…M−1} |f(G ∖ {m⁽¹⁾ … m⁽ⁱ⁾}) − f(G)|. The paper's formula and its Algorithm 4 sum over
    i = 1 … M instead, and so end with f of no nodes at all; the published numbers begin with nothing
    removed, which is 0 and needs no value for the empty graph. This is the latter.

    Args:
        model: as for :func:`activation_curve`.
        *graph_and_order: ``data, order`` or ``x, edge_index, order``; the order is a permutation (M,) of the
            nodes, **least** important first.
        target: the output column (default: the largest), or a callable that makes a scalar of the output.
        index: the output row of a node-level model; that node is never removed.
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
    graph, order = _parted(graph_and_order, "order")
    prediction = predict(model, *graph, target=target, index=index, **model_kwargs)
    return pruning_along(prediction, order, on=on, progress=progress)


def activation_along(prediction: Prediction, order: Nodes, *, on: str = "logit", progress: bool = False) -> Curve:
    """The activation curve of a prediction already made: :func:`activation_curve`.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(model, x, edge_index, index=1)
    >>> activation_along(prediction, [1, 0, 2]).values.shape
    torch.Size([3])
    """
    found = subgraph_values(prediction, prefixes(order, prediction.num_nodes), on=on, progress=progress)
    return Curve(found.values, found.route)


def pruning_along(prediction: Prediction, order: Nodes, *, on: str = "logit", progress: bool = False) -> Curve:
    """The pruning curve of a prediction already made: :func:`pruning_curve`.

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
    return Curve(torch.cat([changes.new_zeros(1), changes]), found.route)


def fidelity_plus(
    model: nn.Module,
    *graph_and_nodes: Any,
    target: Any = None,
    index: int | None = None,
    on: str = "probability",
    **model_kwargs: Any,
) -> float:
    """f(G) − f(G ∖ S): what the prediction loses without the explanation S (higher is better).

    Args:
        model: as for :func:`activation_curve`.
        *graph_and_nodes: ``data, nodes`` or ``x, edge_index, nodes``; node ids or a boolean mask (M,).
        target: the output column (default: the largest), or a callable that makes a scalar of the output.
        index: the output row of a node-level model; that node is never removed.
        on: "probability" or "logit". Of no nodes at all, every logit is 0.
        **model_kwargs: passed to the model.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> fidelity_plus(model, x, edge_index, [], index=1)  # nothing removed
    0.0
    """
    graph, nodes = _parted(graph_and_nodes, "nodes")
    prediction = predict(model, *graph, target=target, index=index, **model_kwargs)
    return fidelities(prediction, nodes, on=on)[0]


def fidelity_minus(
    model: nn.Module,
    *graph_and_nodes: Any,
    target: Any = None,
    index: int | None = None,
    on: str = "probability",
    **model_kwargs: Any,
) -> float:
    """f(G) − f(S): what the prediction loses if only the explanation S is kept (lower is better).

    Args:
        model: as for :func:`activation_curve`.
        *graph_and_nodes: ``data, nodes`` or ``x, edge_index, nodes``; node ids or a boolean mask (M,).
        target: the output column (default: the largest), or a callable that makes a scalar of the output.
        index: the output row of a node-level model; that node is never removed.
        on: "probability" or "logit". Of no nodes at all, every logit is 0.
        **model_kwargs: passed to the model.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=2)
    >>> x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> fidelity_minus(model, x, edge_index, [0, 1, 2], index=1)  # everything kept
    0.0
    """
    graph, nodes = _parted(graph_and_nodes, "nodes")
    prediction = predict(model, *graph, target=target, index=index, **model_kwargs)
    return fidelities(prediction, nodes, on=on)[1]


def fidelities(prediction: Prediction, nodes: Nodes, *, on: str = "probability") -> tuple[float, float]:
    """Fidelity+ and fidelity− of a prediction already made.

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


def motif_accuracy(order: Nodes, motif: Motif) -> float:
    """The fraction of all nodes that the first |motif| of an order tell rightly as motif or not.

    Of 25 nodes with a motif of 5, the top 5 are taken for the motif: one wrong among them is one node
    missed and one named in vain, an accuracy of 23/25. With several motifs the best one counts.

    Args:
        order: a permutation (M,) of the nodes, most important first.
        motif: the motif's nodes, or several alternatives.

    >>> motif_accuracy([4, 0, 3, 1, 2], [3, 4])
    0.6
    >>> motif_accuracy([4, 0, 3, 1, 2], [[3, 4], [0, 4]])
    1.0
    """
    M = _length(order)
    tops = prefixes(order, M)
    found = []
    for truth in _alternatives(motif, M):
        top = tops[int(truth.sum()) - 1]
        found.append(float((top == truth).double().mean()))
    return max(found)


def motif_auroc(scores: Tensor | Sequence[float], motif: Motif) -> float:
    """The area under the ROC curve of node scores as a detector of the motif.

    It is the chance that a node of the motif scores above one that is not in it, ties counting one half.
    With several motifs the best one counts. For an order take :func:`scores_of_order`.

    Args:
        scores: a score per node, (M,), higher for more important.
        motif: the motif's nodes, or several alternatives; neither no node nor all of them.

    >>> motif_auroc([0.9, 0.1, 0.8, 0.3], [0, 3])
    0.75
    """
    values = _tensor(scores, "scores holds a number for every node, (M,)").double()
    if values.dim() != 1:
        raise InputError(f"scores holds a number for every node, (M,); got {tuple(values.shape)}.")
    if bool(values.isnan().any()):
        raise InputError("scores has NaN entries; a node without a score needs a number, such as the lowest.")
    return max(_auroc(values, truth) for truth in _alternatives(motif, len(values)))


def scores_of_order(order: Nodes) -> Tensor:
    """Scores with which the nodes sort into an order: M for the first, 1 for the last.  # (M,)

    >>> scores_of_order([2, 0, 1]).tolist()
    [2.0, 1.0, 3.0]
    """
    places = _permutation(order, _length(order))
    scores = torch.empty(len(places), dtype=torch.float64)
    scores[places] = torch.arange(len(places), 0, -1, dtype=torch.float64)
    return scores


def mean_and_error(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over the first axis, and its standard error: not a number for a single score.

        standard error = √(Σ_g (s_g − mean)² / (G − 1)) / √G

    >>> mean, error = mean_and_error(torch.tensor([1.0, 2.0, 6.0]))
    >>> float(mean), round(float(error), 4)
    (3.0, 1.5275)
    """
    mean = scores.mean(0)
    if len(scores) < 2:
        return mean, torch.full_like(mean, math.nan)
    return mean, scores.std(0, correction=1) / math.sqrt(len(scores))


def prefixes(order: Nodes, num_nodes: int) -> Tensor:
    """The first 1 … M nodes of an order as node sets.  # (M, M) bool

    >>> prefixes([2, 0, 1], 3).int().tolist()
    [[0, 0, 1], [1, 0, 1], [1, 1, 1]]
    """
    places = _permutation(order, num_nodes)
    rank = torch.empty_like(places)
    rank[places] = torch.arange(num_nodes)
    return rank[None, :] <= torch.arange(num_nodes)[:, None]


def as_mask(nodes: Nodes, num_nodes: int) -> Tensor:
    """A node set as a boolean mask.  # (M,)

    >>> as_mask([3, 0], 4).tolist()
    [True, False, False, True]
    """
    given = _tensor(nodes, f"A node set names nodes 0 to {num_nodes - 1}, or is a boolean mask ({num_nodes},)")
    if given.dtype == torch.bool:
        if given.shape != (num_nodes,):
            raise InputError(f"A boolean mask of nodes has shape ({num_nodes},), got {tuple(given.shape)}.")
        return given
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    if given.numel() == 0:
        return mask
    if given.is_floating_point() or given.dim() != 1 or int(given.min()) < 0 or int(given.max()) >= num_nodes:
        raise InputError(f"A node set names nodes 0 to {num_nodes - 1}, got {given.tolist()}.")
    mask[given] = True
    return mask


def _parted(given: tuple[Any, ...], last: str) -> tuple[tuple[Any, ...], Any]:
    """The graph, and what comes after it."""
    if len(given) == 3 or (len(given) == 2 and isinstance(given[0], Data)):
        return given[:-1], given[-1]
    kinds = ", ".join(type(part).__name__ for part in given)
    raise InputError(
        f"After the model comes the graph, as one Data object or as x and edge_index, and then {last}; got ({kinds})."
    )


def _tensor(given: Any, expected: str) -> Tensor:
    """What the caller gave as a tensor, on the processor."""
    try:
        return torch.as_tensor(given).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{expected}; got {given!r}.") from None


def _length(order: Any) -> int:
    """How many nodes an order names, without a look at them."""
    return _tensor(order, "order names every node once, as in [2, 0, 1]").numel()


def _permutation(order: Nodes, num_nodes: int) -> Tensor:
    places = _tensor(order, f"order names each of the {num_nodes} nodes once")
    if places.shape != (num_nodes,) or places.is_floating_point() or places.dtype == torch.bool:
        raise InputError(f"order names each of the {num_nodes} nodes once; got {places.dtype} {tuple(places.shape)}.")
    if not torch.equal(places.sort().values, torch.arange(num_nodes)):
        raise InputError(f"order names each of the nodes 0 to {num_nodes - 1} once; got {places.tolist()}.")
    return places.long()


def _alternatives(motif: Any, num_nodes: int) -> list[Tensor]:
    """The motifs as masks, one or several."""
    listed = isinstance(motif, Sequence | np.ndarray) and len(motif) > 0
    several = motif.dim() == 2 if isinstance(motif, Tensor) else listed and hasattr(motif[0], "__len__")
    masks = [as_mask(one, num_nodes) for one in (motif if several else [motif])]
    if not masks or any(not bool(mask.any()) for mask in masks):
        raise InputError("A motif has at least one node.")
    return masks


def _auroc(scores: Tensor, truth: Tensor) -> float:
    """The Mann-Whitney statistic over its largest value."""
    inside, outside = scores[truth], scores[~truth]
    if len(outside) == 0:
        raise InputError("The motif is the whole graph: there is nothing to tell it from.")
    wins = (inside[:, None] > outside).double() + 0.5 * (inside[:, None] == outside).double()
    return float(wins.mean())
