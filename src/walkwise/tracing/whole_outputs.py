"""What a model gives the nodes of a whole graph, to compare with what it gives them on their neighbourhoods."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from walkwise.core.differential import leaves
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.neighbourhoods import BeyondError, Neighbourhoods
from walkwise.tracing.private import version_of

#: A tensor, weakly, how often it was written into, and where its memory is.
_State = tuple[Callable[[], Tensor | None], int, int]


@dataclass(frozen=True, eq=False)
class WholeOutputs:
    """The outputs of all nodes, for as long as nobody changes the input or the weights."""

    outputs: Any
    usual: float  # the size of an output
    states: tuple[_State, ...]  # of the input and the weights

    @classmethod
    def of(cls, given: Given, outputs: Any) -> WholeOutputs:
        """The outputs for an input, on the whole graph."""
        _check_rows(outputs, given.num_nodes)
        found = outputs.detach()
        usual = float(found.abs().float().median()) if found.numel() else 0.0
        return cls(found, usual, tuple(map(_state, _tensors(given))))

    def still_hold(self, given: Given) -> bool:
        """Whether the input and the weights are the same as then."""
        tensors = [*_tensors(given)]
        if len(tensors) != len(self.states) or any(tensor.is_inference() for tensor in tensors):
            return False  # torch does not count writes in inference mode
        return all(
            kept() is tensor and (version, memory) == _state(tensor)[1:]
            for (kept, version, memory), tensor in zip(self.states, tensors, strict=True)
        )

    def agree(self, part: Any, hoods: Neighbourhoods) -> bool:
        """Whether the nodes in the middle of neighbourhoods get the same outputs there."""
        _check_rows(part, len(hoods.origin.nodes))
        there, here = self.outputs[hoods.origin.nodes[hoods.centres]], part.detach()[hoods.centres]
        off = torch.finfo(there.dtype).eps ** 0.5 * there.abs().amax().clamp(min=self.usual)
        return there.shape == here.shape and bool(((there - here).abs() <= off).all())


def _check_rows(output: Any, rows: int) -> None:
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.shape[:1] != (rows,):
        raise BeyondError("")  # rows of the output are not nodes


def _tensors(given: Given) -> Iterator[Tensor]:
    """What the output depends on, besides the edges."""
    yield from (item for item in leaves((given.x, given.arguments)) if isinstance(item, Tensor))
    yield from given.model.parameters()
    yield from given.model.buffers()


def _state(tensor: Tensor) -> _State:
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided
    return weakref.ref(tensor), version_of(tensor), tensor.data_ptr() if plain else 0
