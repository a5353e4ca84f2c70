"""How good an explanation is, by every measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from walkwise.baselines.attribution import Explanation, node_order, node_scores, takes_alpha
from walkwise.core.lazy import cached_property
from walkwise.errors import InputError
from walkwise.evaluation import (
    Motif,
    activation_along,
    fidelities,
    motif_accuracy,
    motif_auroc,
    pruning_along,
    scores_of_order,
)
from walkwise.evaluation.predictions import Prediction


@dataclass(frozen=True, eq=False)
class Explained:
    """One explanation of one prediction, as the measures see it."""

    prediction: Prediction
    explanation: Explanation
    alpha: float
    motif: Motif | None
    on: str
    sparsity: float

    @cached_property
    def activation_order(self) -> Tensor:
        """The nodes, most important first.  # (M,)"""
        return node_order(self.explanation, "activation", alpha=self.alpha)

    @cached_property
    def pruning_order(self) -> Tensor:
        """The nodes, least important first.  # (M,)"""
        return node_order(self.explanation, "pruning", alpha=self.alpha)

    @property
    def scores(self) -> Tensor:
        """A score per node: the method's own, or by the place in the activation order.  # (M,)"""
        own = not takes_alpha(self.explanation)
        return node_scores(self.explanation) if own else scores_of_order(self.activation_order)

    @property
    def top(self) -> list[int]:
        """The most important nodes that the sparsity leaves room for, one at least."""
        keep = max(1, math.floor((1 - self.sparsity) * self.prediction.num_nodes + 1e-9))
        nodes: list[int] = self.activation_order[:keep].tolist()
        return nodes

    @property
    def truth(self) -> Motif:
        """The known motif."""
        if self.motif is None:
            raise InputError(
                "Accuracy and AUROC need the motif of every graph.",
                argument="motif",
                expected="a function of the graph",
                remedy="Give motif=<a function of the graph>.",
            )
        return self.motif


#: A measure of one explanation.
Metric = Callable[[Explained], float]

METRICS: Mapping[str, Metric] = {
    "auac": lambda e: activation_along(e.prediction, e.activation_order, on=e.on).area,
    "aupc": lambda e: pruning_along(e.prediction, e.pruning_order, on=e.on).area,
    "fidelity+": lambda e: fidelities(e.prediction, e.top, on=e.on)[0],
    "fidelity-": lambda e: fidelities(e.prediction, e.top, on=e.on)[1],
    "accuracy": lambda e: motif_accuracy(e.activation_order, e.truth),
    "auroc": lambda e: motif_auroc(e.scores, e.truth),
}
