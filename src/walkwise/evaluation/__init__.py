"""How good an explanation is: activation and pruning curves, fidelity, agreement with a known motif."""

from walkwise.evaluation.curves import (
    Curve,
    activation_along,
    activation_curve,
    mean_and_error,
    pruning_along,
    pruning_curve,
)
from walkwise.evaluation.fidelity import fidelities, fidelity_minus, fidelity_plus, sparsity
from walkwise.evaluation.ground_truth import Motif, motif_accuracy, motif_auroc
from walkwise.evaluation.selections import Nodes, as_mask, prefixes, scores_of_order

__all__ = [
    "Curve",
    "Motif",
    "Nodes",
    "activation_along",
    "activation_curve",
    "as_mask",
    "fidelities",
    "fidelity_minus",
    "fidelity_plus",
    "mean_and_error",
    "motif_accuracy",
    "motif_auroc",
    "prefixes",
    "pruning_along",
    "pruning_curve",
    "scores_of_order",
    "sparsity",
]
