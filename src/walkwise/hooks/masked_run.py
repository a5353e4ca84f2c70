"""A run of the recorded model under autograd: maps replaced by surrogates, node tensors masked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.operators import Operator, Visit
from walkwise.hooks.surrogates import Surrogate
from walkwise.tracing.stretches.expressions import UNCHANGED, Term
from walkwise.tracing.stretches.stretch import Builder, Flow


@dataclass(eq=False)
class MaskedRun(Builder):
    """Runs maps as they are written instead of storing them. Values are the recorded run's, gradients the rule's."""

    weights: Tensor = field(default_factory=lambda: torch.ones(0))  # of the nodes, (M,)
    tensors: dict[int, Tensor] = field(default_factory=dict)  # by slot, (K, N): all that follows from H⁰

    def begin(self, roots: Iterable[tuple[int, Tensor]]) -> None:
        """Begin walks here; gradients end."""
        for slot, H in roots:
            self.tensors[slot] = H.detach().clone().requires_grad_(True)

    def emit(self, operators: Sequence[Operator], sources: Sequence[int]) -> int:
        """A slot that holds the sum of the operators' outputs; nothing for constants alone."""
        if len(operators) == 1 and operators[0] is UNCHANGED:
            return sources[0]
        slot, terms = self.new_slot(), zip(operators, sources, strict=True)
        with torch.enable_grad():
            found = [self._run(operator, self.tensors[source]) for operator, source in terms if source in self.tensors]
            if found:
                self.tensors[slot] = sum(found[1:], start=found[0])
        return slot

    def ended(self, flow: Flow, value: Tensor, rectified: bool = False) -> int:
        """The slot of a stretch's surrogate."""
        assert flow.term is not None and flow.rule is not None
        slot = self.new_slot()
        surrogate = Surrogate(flow.rule, self._leaf).of(flow.term, value)
        if surrogate.requires_grad:
            self.tensors[slot] = surrogate
        return slot

    def _run(self, operator: Operator, h: Tensor) -> Tensor:
        if isinstance(operator, Visit):  # m ⊙ h + (1 - m) ⊙ [h]
            mask = self.weights.to(h).unsqueeze(1)
            return mask * h + (1 - mask) * h.detach()
        made = operator.along(h)
        return torch.where(made.isinf(), 0.0, made) if made.isinf().any() else made  # -∞ in place of absent neighbours

    def _leaf(self, term: Term) -> Tensor:
        h = self.tensors.get(term.slot)
        return term.value if h is None else _valued(h, term.value)


def _valued(h: Tensor, value: Tensor) -> Tensor:
    """A tensor with this value, and h's gradient."""
    return value.detach() + (h - h.detach())
