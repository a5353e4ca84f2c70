"""GNNExplainer as the paper's authors run it: plain descent on a mask of the edges."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import set_masks

from walkwise.baselines.attribution import Attribution
from walkwise.baselines.registry import check_one_kind, register_baseline
from walkwise.errors import InputError
from walkwise.evaluation.predictions import Prediction, at_rest


def descended_mask(
    model: nn.Module,
    edge_index: Tensor,
    loss: Callable[[nn.Module], Tensor],
    dtype: torch.dtype,
    *,
    steps: int = 500,
    rate: float = 0.5,
    l2: float = 0.01,
) -> Tensor:
    """What the descent makes of every edge: (E,).

    θ ← θ − rate · ∂/∂θ (loss + l2 · Σ θ²) with σ(θ) on the messages, from θ = 2, as in the authors' notebook; θ itself
    is the score of an edge.

    Args:
        model: a copy of it is masked.
        edge_index: the edges: (2, E).
        loss: of the masked copy, summed over graphs; no graph has a say in another's mask.
        dtype: of the scores.
        steps: how many.
        rate: of the descent.
        l2: the weight of the squares of θ.
    """
    masked = copy.deepcopy(getattr(model, "_orig_mod", model)).requires_grad_(False)
    theta = nn.Parameter(torch.full((edge_index.shape[1],), 2.0, dtype=dtype, device=edge_index.device))
    set_masks(masked, theta, edge_index, apply_sigmoid=True)
    with at_rest(masked), torch.enable_grad():
        for _ in range(steps):
            (slope,) = torch.autograd.grad(loss(masked) + l2 * theta.square().sum(), theta)
            theta.data -= rate * slope
    return theta.detach()


@register_baseline("gnnexplainer-paper")
def paper_gnn_explainer(
    prediction: Prediction, *, steps: int = 500, rate: float = 0.5, l2: float = 0.01
) -> Attribution:
    """GNNExplainer as in the paper's figure 6: a mask of the edges by 500 plain steps, scored with α (appendix K).

    The authors mask self-loops too, which PyG's layers do not hand over as edges; they stay unmasked here.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=2), torch.ones(3, 2), edge_index, index=1)
    >>> paper_gnn_explainer(prediction, steps=2).edges.shape
    torch.Size([4])
    """
    check_one_kind(prediction)
    if callable(prediction.target) or prediction.against is not None:
        raise InputError(
            "The baseline 'gnnexplainer-paper' explains an output column.",
            argument="target",
            expected="a number, without against",
            remedy="Give target as a number.",
        )
    wanted, column, row = prediction.logits.detach(), prediction.target, prediction.index or 0

    def loss(model: nn.Module) -> Tensor:
        """The negative of the target's logit."""
        output = model(prediction.x, prediction.edge_index, **dict(prediction.arguments))
        logits: Tensor = output.reshape(-1, len(wanted))[row]
        return -logits[column]

    steps = steps if prediction.edge_index.shape[1] else 0
    mask = descended_mask(prediction.model, prediction.edge_index, loss, wanted.dtype, steps=steps, rate=rate, l2=l2)
    return Attribution(mask.new_zeros(prediction.num_nodes), mask, prediction.edge_index)
