"""Operations outside the layers that carry something from node to node: walks do not stand at nodes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from walkwise.tracing.dependence import uneven
from walkwise.tracing.nodes.moved import NOBODY, SEVERAL
from walkwise.tracing.nodes.sums import added_along
from walkwise.tracing.recording.recorded import Op, not_runnable

#: Rows of a result that are looked at to see whether nodes are mixed in it.
_LOOKED_AT = 8


class Mixing:
    """The operations that do, and those that may."""

    def __init__(self, values: Sequence[Tensor], known: Mapping[int, Tensor]) -> None:
        """None yet; ``known`` gives the node of every entry of a tensor, by slot, when it is known."""
        self._values, self._known = values, known
        self._sure: list[Op] = []
        self._perhaps: list[tuple[Op, int, Tensor]] = []

    def note(self, op: Op) -> None:
        """Note an operation that does."""
        if op.call is None:
            self._sure.append(op)

    def suspect(self, op: Op, output: int, ids: Tensor) -> Tensor:
        """Note an operation that may, with one of its outputs and the nodes of that; these come back."""
        if op.call is None and op.func is not not_runnable:
            self._perhaps.append((op, output, ids))
        return ids

    def among(self, wanted: Callable[[Op], bool]) -> list[Op]:
        """The operations that do, among those that are wanted."""
        found = [op for op in self._sure if wanted(op)]
        return found + [made[0] for made in self._perhaps if wanted(made[0]) and self._mixes(*made)]

    @torch.enable_grad()
    def _mixes(self, op: Op, output: int, ids: Tensor) -> bool:
        """Whether some rows of a result depend on rows of other nodes than theirs."""
        values = {slot: self._values[slot].detach().clone().requires_grad_() for slot in op.inputs}
        result = op.run(values.__getitem__)[output]
        alone = result.dim() == 0 or (result.dim() == 1 and bool((ids >= 0).any()))  # each entry is a node's
        columns = 1 if alone else result.shape[-1]
        rows, owners = (tensor.reshape(-1, columns) for tensor in (result, ids.expand(result.shape)))
        for row in range(0, len(rows), max(1, len(rows) // _LOOKED_AT)):
            total, leaves = uneven(rows[row] * (owners[row] == owners[row, 0])), list(values.values())
            try:
                found = torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
            except RuntimeError:  # torch has no derivative, so that only its name tells
                return added_along(op, result.dim()) is not None
            reached = [
                self._known[slot].expand(gradient.shape)[gradient != 0]
                for slot, gradient in zip(values, found, strict=True)
                if gradient is not None
            ]
            nodes = torch.cat([*reached, owners[row, :1]])
            nodes = nodes[nodes != NOBODY]
            if bool((nodes != nodes[:1]).any() or (nodes == SEVERAL).any()):
                return True
        return False
