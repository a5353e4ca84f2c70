"""Explainers that read the model's gradient."""

from __future__ import annotations

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
    return of_nodes(_per_node(input_gradient(prediction, prediction.x)).abs())


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
    return of_nodes(_per_node(prediction.x * input_gradient(prediction, prediction.x)))


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
    total = torch.zeros_like(prediction.x)
    for step in range(steps):
        total += input_gradient(prediction, prediction.x * ((step + 0.5) / steps))
    return of_nodes(_per_node(prediction.x * total / steps))


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


def _per_node(values: Tensor) -> Tensor:
    return values.reshape(values.shape[0], -1).sum(dim=1)
