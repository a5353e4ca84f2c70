"""Models that are called as ``model(x, edge_index, **arguments)``, whatever their own ``forward`` takes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from walkwise.tracing.given.manners import Manner
from walkwise.tracing.running.shadow import Front


class Adapted(Front):
    """A model behind the usual call; for the negative class of a one-logit model, with the logit's sign flipped."""

    def __init__(self, model: nn.Module, manner: Manner, *, negative: bool = False) -> None:
        super().__init__()
        self.model = model
        self.manner = manner
        self.negative = negative
        self.training = model.training

    def forward(self, x: Tensor, edge_index: Tensor, **arguments: Any) -> Any:
        """The model's output, or the same with its sign flipped."""
        output = self.manner.call(self.model, x, edge_index, arguments)
        return -output if self.negative else output


def adapted(model: nn.Module, manner: Manner, *, negative: bool = False) -> nn.Module:
    """Return the model itself if it is called in the usual way, otherwise an adapted one."""
    return model if manner.ordered and not negative else Adapted(model, manner, negative=negative)
