"""The explainers of torch_geometric.explain, on a copy of the model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explainer
from torch_geometric.explain.algorithm import AttentionExplainer, ExplainerAlgorithm, GNNExplainer, PGExplainer

from walkwise.baselines.attribution import Attribution
from walkwise.baselines.registry import Explain, check_one_kind, register_baseline, register_trained_baseline
from walkwise.errors import InputError
from walkwise.evaluation.predictions import Prediction, at_rest


@register_baseline("gnnexplainer")
def gnn_explainer(prediction: Prediction, *, epochs: int = 200, lr: float = 0.01) -> Attribution:
    """GNNExplainer: a mask on the edges, learned to keep the prediction.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> gnn_explainer(prediction, epochs=2).edges.shape
    torch.Size([4])
    """
    return _explain(prediction, GNNExplainer(epochs=epochs, lr=lr), "phenomenon")


@register_baseline("attention")
def attention(prediction: Prediction) -> Attribution:
    """AttentionExplainer: the largest attention coefficient of every edge, over heads and layers.

    >>> import torch
    >>> from torch_geometric.nn import GAT
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GAT(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> attention(prediction).edges.shape
    torch.Size([4])
    """
    check_one_kind(prediction)
    try:
        return _explain(prediction, AttentionExplainer(), "model")
    except ValueError as error:
        raise InputError(
            f"The baseline 'attention' needs a model with attention layers: {error}",
            argument="model",
            expected="a model with attention layers",
        ) from None


@register_trained_baseline("pgexplainer")
def pg_explainer(predictions: Sequence[Prediction], *, epochs: int = 30, lr: float = 0.003) -> Explain:
    """PGExplainer: a network, trained on the predictions, that gives every edge a mask from its two nodes.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> explain = pg_explainer([prediction], epochs=1)
    >>> explain(prediction).edges.shape
    torch.Size([4])
    """
    if not predictions:
        raise InputError(
            "The baseline 'pgexplainer' is trained first.",
            argument="predictions",
            expected="at least one prediction",
            remedy="Give it predictions to train on.",
        )
    lessons = [prediction for prediction in predictions if prediction.typed is None]
    algorithm = PGExplainer(epochs=epochs, lr=lr).to(predictions[0].x.device)
    if lessons:
        algorithm.mlp.to(lessons[0].x.dtype)
    for epoch in range(epochs):
        for prediction in lessons:
            _train(algorithm, prediction, epoch)
    return lambda prediction: _explain(prediction, algorithm, "phenomenon")


def _train(algorithm: PGExplainer, prediction: Prediction, epoch: int) -> None:
    if prediction.edge_index.shape[1] == 0:
        return
    explainer, target = _explainer(prediction, algorithm, "phenomenon")
    index = prediction.index
    with at_rest(explainer.model), torch.enable_grad():
        arguments = dict(prediction.arguments)
        algorithm.train(
            epoch, explainer.model, prediction.x, prediction.edge_index, target=target, index=index, **arguments
        )


def _explain(prediction: Prediction, algorithm: ExplainerAlgorithm, kind: str) -> Attribution:
    zeros = torch.zeros(prediction.num_nodes, dtype=prediction.logits.dtype, device=prediction.x.device)
    if prediction.edge_index.shape[1] == 0:
        return Attribution(zeros, zeros[:0], prediction.edge_index)
    explainer, target = _explainer(prediction, algorithm, kind)
    given: Any = {} if kind == "model" else {"target": target}
    with at_rest(explainer.model), torch.enable_grad():
        found = explainer(
            prediction.x, prediction.edge_index, index=prediction.index, **given, **dict(prediction.arguments)
        )
    return Attribution(zeros, found.edge_mask.detach().to(zeros.dtype), prediction.edge_index)


def _explainer(prediction: Prediction, algorithm: ExplainerAlgorithm, kind: str) -> tuple[Explainer, Tensor]:
    """PyG's explainer for one prediction, and its target in PyG's terms.

    It works on a copy of the model: it leaves gradients, masks and hooks behind. An output with one column is
    explained as a regression to its own value.
    """
    check_one_kind(prediction)
    if callable(prediction.target) or prediction.against is not None:
        raise InputError(
            "torch_geometric's explainers explain an output column.",
            argument="target",
            expected="a number, without against",
            remedy="Give target as a number.",
        )
    classes = len(prediction.logits) > 1
    rows = 1 if prediction.index is None else prediction.num_nodes
    target = torch.full((rows,), prediction.target, device=prediction.x.device) if classes else prediction.output
    config = {
        "mode": "multiclass_classification" if classes else "regression",
        "task_level": "graph" if prediction.index is None else "node",
        "return_type": "raw",
    }
    model = copy.deepcopy(getattr(prediction.model, "_orig_mod", prediction.model))
    return Explainer(model, algorithm, kind, config, edge_mask_type="object"), target
