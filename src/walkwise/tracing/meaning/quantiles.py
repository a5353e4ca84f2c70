"""Quantiles of a node's messages, including the median, as PyG's aggregations compute them.

These sort all messages of the graph, and then sort them by target, so a value equal to a node's median may be any
message of the graph. Recorded as one function, a quantile depends on the node's own messages only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.nn.aggr import QuantileAggregation

from walkwise.core.operators import Columns, Scale
from walkwise.core.row_maps import Scatter
from walkwise.rules import divide
from walkwise.tracing.meaning.interpreter import Interpreter
from walkwise.tracing.meaning.selections import shares
from walkwise.tracing.private import unwatched
from walkwise.tracing.recording.recorded import Op
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.recording.words import handles
from walkwise.tracing.stretches.stretch import Flow


def quantiles(rows: Tensor, index: Tensor, count: int, q: Tensor, between: str, empty: float) -> Tensor:
    """Quantiles of the rows that come to each place, neuron by neuron, one after the other.

    Args:
        rows: (E, N).
        index: (E,) the place that each comes to.
        count: how many places there are.
        q: which quantiles.
        between: how two values are interpolated, as in ``QuantileAggregation``.
        empty: the value where no row comes.

    >>> import torch
    >>> rows, index = torch.tensor([[1.0], [5.0], [2.0]]), torch.tensor([0, 0, 1])
    >>> quantiles(rows, index, 2, torch.tensor([0.5]), "linear", 0.0).view(-1)
    tensor([3., 2.])
    """
    module = QuantileAggregation(q.flatten().tolist(), between, empty).to(device=q.device, dtype=q.dtype)
    result: Tensor = module(rows, index, dim_size=count)
    return result


def recorded(tape: Tape, module: QuantileAggregation) -> Callable[..., Any]:
    """An aggregation's ``forward`` while it is traced."""
    original = module.forward

    def forward(
        x: Tensor, index: Tensor | None = None, ptr: Any = None, dim_size: int | None = None, dim: int = -2
    ) -> Any:
        with unwatched():
            known = index is not None and tape.slot_of(x) is not None and x.dim() == 2 and dim in (-2, 0)
            result = original(x, index, ptr, dim_size, dim) if known else None
        if result is None:
            return original(x, index, ptr, dim_size, dim)
        tape.record(quantiles, (x, index, len(result), module.q, module.interpolation, module.fill_value), result)
        return result

    return forward


@handles(quantiles)
def _quantiles(run: Interpreter, op: Op) -> None:
    """A quantile lies between two of a node's messages, and is a share of each; equal messages split that share."""
    (slot,), (target,) = op.inputs, op.outputs
    assert target is not None
    index, count, q, _, _ = op.args[1:]
    value, given, scatter = run.value(target), run.value(slot), Scatter(index, count)
    flow, N = run.read(op, slot), run.value(slot).shape[1]
    terms = []
    for place, each in enumerate(q.flatten()):
        low, high = (quantiles(given, index, count, each.view(1), end, 0.0) for end in ("lower", "higher"))
        part = divide(value[:, place * N : (place + 1) * N] - low, high - low)  # what lies below the quantile
        weight = shares(given, low, scatter) * (1 - part)[index] + shares(given, high, scatter) * part[index]
        sums = run.builder.emit([scatter], [run.builder.emit([Scale(weight)], [flow.slot])])
        terms.append((Columns.placed(place * N, N, N * q.numel()), sums))
    emitted = run.builder.emit([o for o, _ in terms], [s for _, s in terms]) if q.numel() > 1 else terms[0][1]
    run.flows[target] = Flow(value, emitted, call=op.call)
