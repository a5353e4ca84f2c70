"""What each recorded operation does to flows: the rules, applied operation by operation."""

from __future__ import annotations

import torch
from torch import Tensor

from walkwise.core.operators import Embed, RowMap
from walkwise.tracing import vocabulary
from walkwise.tracing.flow import SignedMap
from walkwise.tracing.reading import NotClosedError
from walkwise.tracing.tape import Op, Ref
from walkwise.tracing.weights import Weights


class Interpreter(Weights):
    """Carries flows through recorded operations; here are those that move entries about."""

    def run(self, op: Op) -> None:
        """Make the flows of an operation's outputs."""
        name = op.name
        if name in vocabulary.ELEMENTWISE:
            return self._elementwise(op)
        handler = getattr(self, "_" + name, None)
        if name in vocabulary.STRUCTURAL and (handler is None or self.builder.graph):
            handler = self._structural
        (handler or self._gradient)(op)

    def _reshape(self, op: Op) -> None:
        """A node's entries in another shape: the flat tensor is the same."""
        slot = op.outputs[0]
        assert slot is not None
        flow = self.read(op, op.inputs[0], within=op.call is not None)
        if self.value(slot).shape != flow.value.shape:
            raise NotClosedError
        self.write(op, flow)

    _view = _flatten = _unflatten = _squeeze = _unsqueeze = _view_as = _reshape_as = _reshape

    def _cat(self, op: Op) -> None:
        """Columns side by side."""
        tensors = op.args[0] if op.args else op.kwargs["tensors"]
        dim = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim", 0)
        ranks = {(self.values[t.slot] if isinstance(t, Ref) else t).dim() for t in tensors}
        if ranks != {2} or dim not in (1, -1):
            raise NotClosedError
        width = self.values[op.outputs[0]].shape[1]  # type: ignore[index]
        start, terms, constant = 0, [], torch.zeros_like(self.values[op.outputs[0]])  # type: ignore[index]
        for t in tensors:
            length = (self.values[t.slot] if isinstance(t, Ref) else t).shape[1]
            if isinstance(t, Ref):
                flow = self.read(op, t.slot, within=op.call is not None)
                terms.append((flow, SignedMap.positive(Embed(start, length, width))))
            else:
                constant[:, start : start + length] = t.detach()
            start += length
        self.combine(op, terms, constant if len(terms) < len(tensors) else None)

    def _within_rows(self, op: Op) -> None:
        """A linear map of every row by itself, found by applying it to unit vectors."""
        if len(op.inputs) != 1:
            raise NotClosedError
        flow = self.read(op, op.inputs[0], within=op.call is not None)
        shape = self.values[op.inputs[0]].shape
        units = torch.eye(flow.value.shape[1], dtype=flow.value.dtype, device=flow.value.device)
        try:
            images = op.run(lambda _: units.view(-1, *shape[1:]))
        except Exception as error:
            raise NotClosedError from error
        for output, slot in enumerate(op.outputs):
            if slot is None:
                continue
            matrix = images[output].reshape(len(units), -1).t()
            value = self.value(slot)
            if matrix.shape[0] != value.shape[1] or not _alike(flow.value @ matrix.t(), value):
                raise NotClosedError
            self.combine(op, [(flow, SignedMap.positive(RowMap(matrix)))], output=output)

    _getitem = _mean = _sum = _split = _chunk = _narrow = _select = _unbind = _within_rows

    def _scatter_reduce(self, op: Op) -> None:
        """Sums and means move entries; maxima and minima select."""
        reduce = op.kwargs.get("reduce", op.args[3] if len(op.args) > 3 else None)
        self._structural(op) if reduce in ("sum", "mean") else self._gradient(op)

    _index_reduce = _segment_reduce = _scatter_reduce


def _alike(a: Tensor, b: Tensor) -> bool:
    """Equal within rounding, whatever their scale."""
    return bool((a - b).abs().max() <= 1e-4 * b.abs().max())
