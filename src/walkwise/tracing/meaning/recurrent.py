"""Recurrent cells written out: their gates are sigmoids, held constant as gates are everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkwise.tracing.meaning.composites import Written
from walkwise.tracing.meaning.interpreter import Interpreter, gradient
from walkwise.tracing.recording.recorded import Op, Ref
from walkwise.tracing.recording.words import handles

#: The weights of one cell: on the input and on the state, and their biases.
Weights = tuple[Any, Any, Any, Any]
#: A cell as a function of its input and its state.
Cell = Callable[[Written, Any, Sequence[Any], Weights], list[Any]]


def _parts(w: Written, value: Any, count: int) -> list[Any]:
    """Equal parts of every row."""
    width = w.value(value).shape[-1] // count
    return [w(torch.narrow, value, -1, i * width, width) for i in range(count)]


def _gru(w: Written, x: Any, memory: Sequence[Any], weights: Weights) -> list[Any]:
    """(1 - z) · n + z · h, with n = tanh(W x + r · U h)."""
    on_x, on_memory, bias_x, bias_memory = weights
    reset_x, update_x, new_x = _parts(w, w(F.linear, x, on_x, bias_x), 3)
    reset_h, update_h, new_h = _parts(w, w(F.linear, memory[0], on_memory, bias_memory), 3)
    reset = w(torch.sigmoid, w(torch.add, reset_x, reset_h))
    update = w(torch.sigmoid, w(torch.add, update_x, update_h))
    new = w(torch.tanh, w(torch.add, new_x, _gated(w, reset, new_h)))
    return [w(torch.add, _gated(w, w(torch.rsub, update, 1), new), _gated(w, update, memory[0]))]


def _lstm(w: Written, x: Any, memory: Sequence[Any], weights: Weights) -> list[Any]:
    """o · tanh(c) and c = f · c + i · tanh(W x + U h)."""
    hidden, cell = memory
    let_in, forget, new, let_out = _parts(w, _sum(w, x, hidden, weights), 4)
    let_in, forget, let_out = (w(torch.sigmoid, gate) for gate in (let_in, forget, let_out))
    cell = w(torch.add, _gated(w, forget, cell), _gated(w, let_in, w(torch.tanh, new)))
    return [_gated(w, let_out, w(torch.tanh, cell)), cell]


def _rnn(bend: Callable[..., Any]) -> Cell:
    """The cell tanh(W x + U h), or that with another function."""

    def cell(w: Written, x: Any, memory: Sequence[Any], weights: Weights) -> list[Any]:
        return [w(bend, _sum(w, x, memory[0], weights))]

    return cell


def _sum(w: Written, x: Any, hidden: Any, weights: Weights) -> Any:
    """W x + U h."""
    on_x, on_memory, bias_x, bias_memory = weights
    return w(torch.add, w(F.linear, x, on_x, bias_x), w(F.linear, hidden, on_memory, bias_memory))


def _gated(w: Written, gate: Any, value: Any) -> Any:
    """A value times a gate; of a constant value it is a constant."""
    return w(torch.mul, w.value(gate).detach(), value)


def _ends(w: Written, results: Sequence[Any]) -> None:
    """An operation's results, one by one."""
    for output, result in enumerate(results):
        if isinstance(result, Ref) and output < len(w.op.outputs):
            w.run.write(w.op, w.run.flow(result.slot), output)


#: What a cell gives, by the name of the function: its new states, the first of which it returns.
_CELLS: dict[str, Cell] = {"gru": _gru, "lstm": _lstm, "rnn_tanh": _rnn(torch.tanh), "rnn_relu": _rnn(torch.relu)}


@handles(torch.gru_cell, torch.lstm_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)
def _cell(run: Interpreter, op: Op) -> None:
    w, (x, memory, *weights) = Written(run, op), op.args
    states = memory if isinstance(memory, (list, tuple)) else [memory]
    _ends(w, _CELLS[op.word.name.removesuffix("_cell")](w, x, states, _four(weights)))


def _four(weights: Sequence[Any]) -> Weights:
    given = [*weights, None, None]
    return given[0], given[1], given[2], given[3]


@handles(torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu)
def _sequence(run: Interpreter, op: Op) -> None:
    """Cells along a sequence, layer by layer and direction by direction."""
    if op.kwargs or len(op.args) != 9 or not isinstance(op.args[3], bool) or not isinstance(op.args[2], (list, tuple)):
        return gradient(run, op)  # a packed sequence
    x, begun, weights, biased, layers, _, _, both_ways, batch_first = op.args
    each, cell = 4 if biased else 2, _CELLS[op.word.name]
    if len(weights) != layers * (1 + both_ways) * each:
        return gradient(run, op)  # projections
    w = Written(run, op)
    time = 1 if batch_first and w.value(x).dim() == 3 else 0
    steps = [w(Tensor.select, x, time, t) for t in range(w.value(x).shape[time])]
    begun = begun if isinstance(begun, (list, tuple)) else [begun]
    last: list[list[Any]] = []  # the states in the end, for every layer and way
    for _ in range(layers):
        ways = []
        for way in range(1 + both_ways):
            four = _four(weights[len(last) * each : (len(last) + 1) * each])
            memory = [w(Tensor.select, state, 0, len(last)) for state in begun]
            seen = []
            for step in reversed(steps) if way else steps:
                memory = cell(w, step, memory, four)
                seen.append(memory[0])
            ways.append(seen[::-1] if way else seen)
            last.append(memory)
        steps = [w(torch.cat, list(both), -1) if both_ways else both[0] for both in zip(*ways, strict=True)]
    _ends(w, [w(torch.stack, steps, time), *(w(torch.stack, list(states), 0) for states in zip(*last, strict=True))])
