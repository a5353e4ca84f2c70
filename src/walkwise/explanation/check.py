"""Whether an explanation holds: the model is run again, on a subgraph alone and on all but it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from walkwise.display import number
from walkwise.evaluation.naming import answer_title
from walkwise.evaluation.parts import subgraph_logits, subgraph_values
from walkwise.evaluation.predictions import Prediction


@dataclass(frozen=True)
class Outcome:
    """The model's output for a graph or a part of it."""

    output: float  # the explained number
    says: str = ""  # the predicted class; empty if there are no classes

    def words(self, whole: Outcome | None = None) -> str:
        """The number and the class, with "still" or "now" compared with the whole graph's.

        >>> Outcome(0.25, "safe").words(Outcome(4.0, "toxic"))
        '0.25, now safe'
        """
        scale = abs(self.output) if whole is None else max(abs(self.output), abs(whole.output))
        beside = "" if whole is None else "still " if whole.says == self.says else "now "
        return number(self.output, scale=scale) + (f", {beside}{self.says}" if self.says else "")


@dataclass(frozen=True)
class Check:
    """Whether an explanation holds: the model's output on the best subgraph alone and on all but it."""

    whole: Outcome
    alone: Outcome
    without: Outcome

    @property
    def sufficient(self) -> bool:
        """Whether the subgraph alone gives the same class, or, without classes, at least half of the output."""
        return self._same(self.alone)

    @property
    def necessary(self) -> bool:
        """Whether the graph without it gives another class, or, without classes, less than half of the output."""
        return not self._same(self.without)

    def _same(self, part: Outcome) -> bool:
        if self.whole.says:
            return part.says == self.whole.says
        return part.output * self.whole.output > 0 and abs(part.output) >= abs(self.whole.output) / 2

    def words(self) -> str:
        """The result in a sentence.

        >>> print(Check(Outcome(4.0, "toxic"), Outcome(3.5, "toxic"), Outcome(-1.0, "safe")).words())
        On these nodes alone the model gives 3.5, still toxic; without them −1, now safe.
        """
        alone, without = self.alone.words(self.whole), self.without.words(self.whole)
        return f"On these nodes alone the model gives {alone}; without them {without}."


def whole_outcome(prediction: Prediction, class_names: Sequence[str] | None = None) -> Outcome:
    """The model's output for the whole graph."""
    classes = not callable(prediction.target)
    says = answer_title(prediction.logits, class_names, negative=prediction.negative) if classes else ""
    return Outcome(prediction.value(), says)


def check_subgraph(prediction: Prediction, nodes: Sequence[int], class_names: Sequence[str] | None = None) -> Check:
    """Run the model on the whole graph, on a subgraph alone, and on all but it.

    Nodes are removed with their edges. The explained node of a node-level model always stays.

    Args:
        prediction: the model, the graph, and the explained number.
        nodes: the subgraph.
        class_names: names of the output columns.
    """
    inside = torch.zeros(1, prediction.num_nodes, dtype=torch.bool, device=prediction.x.device)
    inside[0, list(nodes)] = True
    masks = torch.cat([inside, ~inside])
    alone, without = subgraph_values(prediction, masks).values.tolist()
    says = ["", ""]
    if not callable(prediction.target):
        rows = subgraph_logits(prediction, masks)
        says = [answer_title(row, class_names, negative=prediction.negative) for row in rows]
    return Check(whole_outcome(prediction, class_names), *map(Outcome, (alone, without), says))
