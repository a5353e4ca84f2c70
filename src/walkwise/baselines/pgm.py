"""PGM-Explainer: the nodes whose perturbation goes along with a change of the prediction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from walkwise.baselines.attribution import Attribution, of_nodes
from walkwise.baselines.registry import register_baseline
from walkwise.evaluation.predictions import Prediction, value_at


@register_baseline("pgmexplainer")
def pgm_explainer(prediction: Prediction, *, samples: int = 200, changed: float = 0.125) -> Attribution:
    """PGM-Explainer (Vu and Thai, 2020): the χ² statistic of "node perturbed" against "prediction changed".

    The features of random halves of the nodes are set to 0; of the samples, the given fraction in which the
    output falls most count as changed. The statistic orders nodes as its p-value does. Written here in small
    because torch_geometric.contrib's PGMExplainer needs pgmpy, tests against a node's column instead of
    the change in its first round, and drops ``batch`` there.

    Args:
        prediction: what to explain.
        samples: how many perturbations.
        changed: the fraction of them that counts as a change.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=1), torch.ones(3, 2), edge_index, index=1)
    >>> pgm_explainer(prediction, samples=10).nodes.shape
    torch.Size([3])
    """
    perturbed = torch.rand(samples, prediction.num_nodes) < 0.5  # (B, M)
    values = torch.tensor([value_at(prediction, without(prediction.features, row)) for row in perturbed])
    most = values.argsort()[: max(1, round(samples * changed))]
    fell = torch.zeros(samples, dtype=torch.bool)
    fell[most] = True
    return of_nodes(chi_square(perturbed, fell))


def chi_square(perturbed: Tensor, changed: Tensor) -> Tensor:
    """The χ² statistic of independence of every column from an outcome, 0 where either is constant: (M,).

    >>> perturbed = torch.tensor([[True, True], [True, False], [False, True], [False, False]])
    >>> chi_square(perturbed, torch.tensor([True, True, False, False]))
    tensor([4., 0.], dtype=torch.float64)
    """
    a, b = perturbed.double(), changed.double()
    count = len(a)
    covariance = (a * b[:, None]).mean(0) - a.mean(0) * b.mean()
    spread = a.mean(0) * (1 - a.mean(0)) * b.mean() * (1 - b.mean())
    return torch.where(spread > 0, count * covariance**2 / spread.clamp(min=1e-30), 0.0)


def without(features: Sequence[Tensor], nodes: Tensor) -> list[Tensor]:
    """Features with those of some nodes set to 0; the tensors one after the other have a row for each node."""
    rows = torch.split(nodes, [len(x) for x in features])
    return [x.index_fill(0, gone.nonzero()[:, 0].to(x.device), 0) for x, gone in zip(features, rows, strict=True)]
