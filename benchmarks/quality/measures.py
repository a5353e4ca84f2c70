"""What an answer is worth: against the truth, and against the model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.stats import rankdata
from torch import Tensor

from walkwise.evaluation import fidelities
from walkwise.evaluation.predictions import Prediction

#: Every measure, and whether more is better; None where neither is.
MEASURES: dict[str, bool | None] = {
    "auroc": True,
    "jaccard": True,
    "fidelity_plus": True,
    "fidelity_minus": False,
    "characterisation": True,
    "magnitude": None,  # Σ|R| / |output|
    "seconds": None,
}


@dataclass(frozen=True)
class Answer:
    """What an explainer says of one prediction."""

    scores: Tensor  # (M,) higher for more important
    nodes: tuple[int, ...] | None = None  # a subgraph, where it names one itself
    magnitude: float | None = None
    seconds: float | None = None  # where it was asked for together with other predictions


def auroc(scores: Tensor, truths: Tensor) -> float:
    """The area under the ROC curve against the best of the alternative truths (K, M).

    From ranks, equal scores sharing theirs: many times faster than scikit-learn's, to which tests compare it.
    """
    values = torch.nan_to_num(scores.double(), nan=-math.inf).clamp(-1e300, 1e300).numpy()
    ranks = rankdata(values)
    inside = truths.numpy().astype(float)
    counts = inside.sum(1)
    return float(((inside @ ranks - counts * (counts + 1) / 2) / (counts * (len(values) - counts))).max())


def top(scores: Tensor, count: int) -> tuple[int, ...]:
    """The nodes with the highest scores; of equal ones the first."""
    return tuple(sorted(scores.argsort(descending=True, stable=True)[:count].tolist()))


def jaccard(pick: Callable[[int], tuple[int, ...]], truths: Tensor) -> float:
    """|S ∩ T| / |S ∪ T| with the best of the alternative truths T (K, M), for S of the size of T."""
    found = []
    for truth in truths:
        wanted = set(truth.nonzero().flatten().tolist())
        named = set(pick(len(wanted)))
        found.append(len(wanted & named) / len(wanted | named))
    return max(found)


def characterisation(plus: float, minus: float) -> float:
    """The harmonic mean of fidelity+ and 1 − fidelity−, both brought between 0 and 1 (Amara et al., 2022).

    >>> characterisation(1.0, 0.0), characterisation(0.5, 0.5), characterisation(-0.2, 0.0)
    (1.0, 0.5, 0.0)
    """
    necessary, sufficient = (min(max(v, 0.0), 1.0) for v in (plus, 1 - minus))
    return 0.0 if necessary * sufficient == 0 else 2 / (1 / necessary + 1 / sufficient)


class Fidelities:
    """Fidelity+ and − of node sets of one prediction; a set that many explainers name is tried once.

    On probabilities; of a number that is predicted, relative to the prediction.
    """

    def __init__(self, prediction: Prediction, number: bool) -> None:
        self.prediction, self.number = prediction, number
        self.known: dict[tuple[int, ...], tuple[float, float]] = {}

    def __call__(self, nodes: tuple[int, ...]) -> tuple[float, float]:
        if nodes not in self.known:
            on = "logit" if self.number else "probability"
            plus, minus = fidelities(self.prediction, list(nodes), on=on)
            unit = abs(self.prediction.value("logit")) or 1.0 if self.number else 1.0
            self.known[nodes] = plus / unit, minus / unit
        return self.known[nodes]


def measured(answer: Answer, truths: Tensor, seen: Tensor, fidelity: Fidelities) -> dict[str, float | None]:
    """Every measure of one answer. Nodes that the output cannot depend on (not seen) do not count."""
    place = seen.nonzero().flatten()
    scores, inside = answer.scores[place].cpu(), truths[:, place]
    inside = inside[inside.any(1)]
    size = int(inside.sum(1).min())
    chosen = answer.nodes or tuple(place[list(top(scores, size))].tolist())

    def pick(count: int) -> tuple[int, ...]:
        if answer.nodes is None:
            return top(scores, count)
        named = torch.zeros(len(seen), dtype=torch.bool)
        named[list(answer.nodes)] = True
        return tuple(named[place].nonzero().flatten().tolist())

    plus, minus = fidelity(chosen)
    return {
        "auroc": auroc(scores, inside),
        "jaccard": jaccard(pick, inside),
        "fidelity_plus": plus,
        "fidelity_minus": minus,
        "characterisation": characterisation(plus, minus),
        "magnitude": answer.magnitude,
    }
