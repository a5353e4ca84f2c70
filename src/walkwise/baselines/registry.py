"""The explainers by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from walkwise.baselines.attribution import Explanation
from walkwise.errors import InputError, taken, unknown
from walkwise.evaluation.predictions import Prediction

#: Explains one prediction.
Explain = Callable[[Prediction], Explanation]

#: Learns from predictions how to explain others.
Train = Callable[[Sequence[Prediction]], Explain]

AnyExplain = TypeVar("AnyExplain", bound=Explain)
AnyTrain = TypeVar("AnyTrain", bound=Train)

_EXPLAINERS: dict[str, Explain] = {}
_TRAINERS: dict[str, Train] = {}


def register_baseline(name: str) -> Callable[[AnyExplain], AnyExplain]:
    """Decorate an explainer to register it under a name; each name can be used once.

    >>> @register_baseline("degree")
    ... def degree(prediction):
    ...     ones = prediction.edge_index[0].new_ones(prediction.edge_index.shape[1], dtype=float)
    ...     return of_nodes(ones.new_zeros(prediction.num_nodes).index_add(0, prediction.edge_index[0], ones))
    >>> from walkwise.baselines.attribution import of_nodes
    >>> "degree" in available_baselines()
    True
    >>> _ = _EXPLAINERS.pop("degree")
    """

    def add(explain: AnyExplain) -> AnyExplain:
        _check_new(name)
        _EXPLAINERS[name] = explain
        return explain

    return add


def register_trained_baseline(name: str) -> Callable[[AnyTrain], AnyTrain]:
    """The same for an explainer that is trained first: predictions in, explainer out.

    >>> @register_trained_baseline("mean degree")
    ... def mean_degree(predictions):
    ...     mean = sum(p.edge_index.shape[1] / p.num_nodes for p in predictions) / len(predictions)
    ...     return lambda prediction: of_nodes([mean] * prediction.num_nodes)
    >>> from walkwise.baselines.attribution import of_nodes
    >>> _ = _TRAINERS.pop("mean degree")
    """

    def add(train: AnyTrain) -> AnyTrain:
        _check_new(name)
        _TRAINERS[name] = train
        return train

    return add


def available_baselines() -> tuple[str, ...]:
    """The names of all explainers, in alphabetical order.

    >>> "sgnn-lrp" in available_baselines()
    True
    """
    return tuple(sorted([*_EXPLAINERS, *_TRAINERS]))


def baseline(name: str, predictions: Sequence[Prediction] = ()) -> Explain:
    """The explainer of that name, trained on the predictions if it learns at all.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> baseline("gradient")(prediction).nodes.shape
    torch.Size([3])
    """
    if name in _EXPLAINERS:
        return _EXPLAINERS[name]
    if name not in _TRAINERS:
        raise unknown("baseline", name, available_baselines())
    return _TRAINERS[name](predictions)


def is_trained(name: str) -> bool:
    """Whether the explainer of that name is trained first.

    >>> is_trained("pgexplainer"), is_trained("gradient")
    (True, False)
    """
    return name in _TRAINERS


def check_one_kind(prediction: Prediction) -> None:
    """Refuse a heterogeneous graph, for explainers that put a mask on the edges of a model's layers."""
    if prediction.typed is not None:
        raise InputError(
            "This explainer masks edges in graphs with one node type, but this graph is heterogeneous.",
            argument="graph",
            expected="a graph with one node type",
            got="HeteroData",
            remedy="Use an explainer that scores nodes or walks, such as sgnn-lrp, gradient-x-input or subgraphx.",
        )


def _check_new(name: str) -> None:
    if name in _EXPLAINERS or name in _TRAINERS:
        raise taken("baseline", name)
