"""Explainers that read the model's gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from walkwise.baselines.attribution import Attribution, of_nodes
from walkwise.baselines.registry import register_baseline
from walkwise.evaluation.predictions import Prediction, input_gradient, traced


@register_baseline("gradient")
def gradient(prediction: Prediction) -> Attribution:
    """The gradient heat map: |Σ_features ∂f/∂x| for every node.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> gradient(prediction).nodes.shape
    torch.Size([3])
    """
    return of_nodes(_per_node(input_gradient(prediction, prediction.features)).abs())


@register_baseline("gradient-x-input")
def gradient_times_input(prediction: Prediction) -> Attribution:
    """Gradient × input: Σ_features x · ∂f/∂x for every node, with its sign.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> gradient_times_input(prediction).nodes.shape
    torch.Size([3])
    """
    return of_nodes(_per_node(_times_input(prediction, 1.0)))


@register_baseline("integrated-gradients")
def integrated_gradients(prediction: Prediction, *, steps: int = 64) -> Attribution:
    """Integrated gradients from x = 0: Σ_features x · ∫₀¹ ∂f/∂x(t x) dt, by the midpoint rule.

    The scores add up to f(x) − f(0), up to the rule's error.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> integrated_gradients(prediction).nodes.shape
    torch.Size([3])
    """
    found = [_per_node(_times_input(prediction, (step + 0.5) / steps)) for step in range(steps)]
    return of_nodes(torch.stack(found).mean(0))


@register_baseline("cam")
def cam(prediction: Prediction) -> Attribution:
    """Class activation map: |a node's share of the output| at the read-out.

    The share is Σ_n H_mn ∂f/∂H_mn for what the read-out reads of node m, which is the term of node m in the
    output if the read-out is linear, and its first-order share otherwise.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> cam(prediction).nodes.shape
    torch.Size([3])
    """
    chain = traced(prediction, rule="zero")
    shares = [(value * seed).sum(-1) for (_, value), (_, seed) in zip(chain.readout, chain.seeds, strict=True)]
    return of_nodes(torch.stack(shares).sum(0).abs())


@register_baseline("grad-cam")
def grad_cam(prediction: Prediction) -> Attribution:
    """Grad-CAM: max(0, Σ_n w_n H_mn) at the read-out, with w_n the mean of ∂f/∂H_mn over the nodes m.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> grad_cam(prediction).nodes.shape
    torch.Size([3])
    """
    chain = traced(prediction, rule="zero")
    maps = [(value * seed.mean(0)).sum(-1) for (_, value), (_, seed) in zip(chain.readout, chain.seeds, strict=True)]
    return of_nodes(torch.stack(maps).sum(0).clamp(min=0))


def _times_input(prediction: Prediction, share: float) -> list[Tensor]:
    """x · ∂f/∂x, the gradient where features are this share of themselves."""
    features = prediction.features
    gradients = input_gradient(prediction, [x * share for x in features])
    return [x * gradient for x, gradient in zip(features, gradients, strict=True)]


def _per_node(values: Sequence[Tensor]) -> Tensor:
    """The sum over features of every node, type after type.  # (M_t, F_t) each -> (M,)"""
    return torch.cat([each.reshape(each.shape[0], -1).sum(dim=1) for each in values])
