"""Whether a model depends on node numbers, found by running it on the same graph with its nodes in another order.

The nodes of a part are renumbered. A model with a table row for each node, or one that reads the node named by an
argument, would use the wrong nodes there, and nothing would show it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkwise.core.lazy import cached_property
from walkwise.display import number
from walkwise.errors import Described, InputError
from walkwise.evaluation.edge_orders import edge_orders
from walkwise.evaluation.inputs import wants
from walkwise.evaluation.outputs import made_by, table
from walkwise.evaluation.parts import carried
from walkwise.evaluation.predictions import Prediction, at_rest, call, output_at
from walkwise.evaluation.types import WITHOUT_PARTS

#: How much features are changed to see what rounding does, in units of their last digit; and how much more may come.
_UNITS, _TIMES = 16, 16
#: So many orders are tried where the explained row is the same but others are not, or where there are few nodes.
_ORDERS, _FEW = 6, 10
#: Arguments that are rebuilt for parts.
_OF_PARTS = ("batch", "batch_size", "num_graphs")
_TABLE = (
    "If it has a row of its own for every node, pass these rows in with the features x, or as an argument with a row "
    "for each node."
)
_NAMED = (
    "It gets {}, which is not renumbered with the nodes. If nodes are named there, ask the chain instead: "
    "ww.trace(model, ..., index=...) for the pair or the row, then ww.subgraph_relevance(chain, nodes)."
)
_PICKED = "Name the node by index=, and the column by target=: then the node is followed."


class ByNumbers(NamedTuple):
    """Why a model cannot be run on parts of a graph."""

    argument: str  # "model", "target" where it is the target function, or "graph" where that lacks features
    problem: str
    got: str
    remedy: str

    @property
    def error(self) -> InputError:
        """The same as an error."""
        expected = "one whose output does not depend on node numbers, to be run on parts of a graph"
        expected = "a HeteroData with features x of every type" if self.argument == "graph" else expected
        got, problem = Described(self.got), f"{self.problem}."
        return InputError(problem, argument=self.argument, expected=expected, got=got, remedy=self.remedy)

    @property
    def note(self) -> str:
        """The same as a note."""
        problem = self.problem[0].lower() + self.problem[1:]
        return f"the model was not run on parts of the graph: {problem}. {self.remedy}"


def by_numbers(prediction: Prediction) -> ByNumbers | None:
    """Why the model cannot be run on parts of the graph; None if its output does not depend on node numbers.

    A model that draws random numbers, or whose answer depends on the last digits of the features, is let through,
    because the test cannot tell.

    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> model, edge_index = GCN(2, 8, 2, out_channels=2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> by_numbers(predict(model, torch.rand(3, 2), edge_index, index=1)) is None
    True
    >>> picked = predict(model, torch.rand(3, 2), edge_index, target=lambda output: output[1, 0])
    >>> by_numbers(picked).argument
    'target'
    """
    typed = prediction.typed
    if typed is not None and typed.bare is not None:
        return ByNumbers("graph", typed.lacking, f"{typed.bare!r} without x", WITHOUT_PARTS)
    for seed in range(_ORDERS):
        order = _other_order(prediction, seed)
        if bool((order == torch.arange(len(order), device=order.device)).all()):
            return None
        asked = _Asked(prediction, order)
        tries = asked.tries()
        first = next(tries)
        agreed = first if asked.agrees(first) else None
        if agreed is None and asked.wavers(first):
            return None
        agreed = agreed or next((other for other in tries if asked.agrees(other)), None)
        if agreed is None:
            return asked.reason(first)
        if prediction.index is None or (_are_many(prediction) and asked.moves_along(agreed.output)):
            return None  # otherwise it may be chance that this row is the same
    return None


def _are_many(prediction: Prediction) -> bool:
    """Whether there are so many nodes, of every type, that it is no chance if all are where they should be."""
    typed = prediction.typed
    return min([prediction.num_nodes] if typed is None else typed.types.counts.values()) > _FEW


def _other_order(prediction: Prediction, seed: int) -> Tensor:
    """Which node gets every number: another node of its type, if there is one; the same in every run.  # (M,)"""
    typed = prediction.typed
    counts = [prediction.num_nodes] if typed is None else list(typed.types.counts.values())
    generator = torch.Generator().manual_seed(seed)
    first, orders = 0, []
    for count in counts:
        cycle = torch.randperm(count, generator=generator)
        order = torch.empty_like(cycle)
        order[cycle] = cycle.roll(1)
        orders.append(order + first)
        first += count
    return torch.cat(orders).to(prediction.x.device)


class _Answer(NamedTuple):
    """The model's answer for the renumbered graph: its output, and the explained numbers."""

    output: Any
    values: Tensor | None = None  # (C,), in double precision; None where it failed
    error: Exception | None = None


class _Asked:
    """A prediction, and its model's answers for the renumbered graph."""

    def __init__(self, prediction: Prediction, order: Tensor) -> None:
        self.prediction = prediction
        self.order = order  # (M,) which node has each number now
        self.place = order.argsort()  # (M,) the number of each node
        self.expected = self._values(prediction.output, prediction.index)

    def _values(self, output: Any, row: int | None) -> Tensor:
        """The explained row of an output, with all columns, or the result of a callable target.  # (C,)"""
        prediction = self.prediction
        if callable(prediction.target):
            return torch.as_tensor(made_by(prediction.target, output)).detach().reshape(1).double()
        rows = table(output, 1 if row is None else prediction.num_nodes)
        return rows[row or 0].double()

    def tries(self) -> Iterator[_Answer]:
        """The model's answers with the edges in one order after another."""
        prediction, place = self.prediction, self.place
        source, target = prediction.edge_index
        moved = torch.stack([place[source], place[target]])
        typed = prediction.typed is not None  # its edges follow from the nodes
        for edges in itertools.islice(edge_orders(prediction.edge_index, moved), 1 if typed else None):
            try:
                arguments = {
                    name: carried(prediction, name, value, self.order, edges, 1)
                    for name, value in prediction.arguments.items()
                }
                output = call(prediction.model, prediction.x[self.order], moved[:, edges], arguments)
                row = None if prediction.index is None else int(place[prediction.index])
                yield _Answer(output, self._values(output, row))
            except (MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # of the user's model, which did not fail before
                yield _Answer(None, None, error)

    @cached_property
    def _off(self) -> float:
        """The relative difference allowed between answers that are equal up to rounding."""
        weights = (weight.dtype for weight in self.prediction.model.parameters() if weight.is_floating_point())
        given = [x.dtype for x in (*self.prediction.features, self.prediction.output) if isinstance(x, Tensor)]
        kinds = {kind for kind in (*given, *weights) if kind.is_floating_point}
        return math.sqrt(max([torch.finfo(kind).eps for kind in kinds], default=torch.finfo(torch.double).eps))

    def _apart(self, values: Tensor) -> Tensor:
        """How far the explained numbers differ from those of the graph; NaN in both counts as equal."""
        same = (values == self.expected) | (values.isnan() & self.expected.isnan())
        return torch.where(same, 0.0, (values - self.expected).abs().nan_to_num(nan=float("inf")))

    def agrees(self, answer: _Answer) -> bool:
        """Whether an answer equals that of the graph itself, up to rounding."""
        values, expected = answer.values, self.expected
        if values is None or values.shape != expected.shape:
            return False
        size = torch.cat([values, expected]).abs()
        scale = size[size.isfinite()].amax() if bool(size.isfinite().any()) else 0.0
        return bool((self._apart(values) <= self._off * scale).all())

    def wavers(self, answer: _Answer) -> bool:
        """Whether chance, or the last digits of the features, change the output as much as renumbering does."""
        features = self.prediction.features
        if not self.agrees(self._again(features)):
            return True
        near = self._again([_nearby(x) for x in features]).values
        if any(values is None or values.shape != self.expected.shape for values in (answer.values, near)):
            return False
        return bool(self._apart(answer.values).amax() <= _TIMES * self._apart(near).amax())  # type: ignore[arg-type]

    def _again(self, features: list[Tensor]) -> _Answer:
        """The model's answer for the graph as it is, with other random numbers and these features."""
        with torch.no_grad(), at_rest(self.prediction.model) as resting:
            torch.manual_seed(1)
            output = output_at(self.prediction, resting, features)
        return _Answer(output, self._values(output, self.prediction.index))

    def reason(self, answer: _Answer) -> ByNumbers:
        """The words about a model, or a target function, that depends on node numbers."""
        argument = "target" if callable(self.prediction.target) and self.moves_along(answer.output) else "model"
        whose = "target function" if argument == "target" else "model"
        if answer.values is None:
            raised = f"{type(answer.error).__name__}: {answer.error}".splitlines()[0][:200]
            got, said = raised, f"it fails ({raised})"
        else:
            column = int(self._apart(answer.values).argmax()) if answer.values.shape == self.expected.shape else 0
            scale = float(max(abs(answer.values[column]), abs(self.expected[column])))
            there, here = (number(float(v[column]), scale=scale) for v in (answer.values, self.expected))
            got, said = there, f"it gives {there} instead of {here}"
        problem = (
            f"The {whose} depends on node numbers, which change in a part of the graph: with all nodes in another "
            f"order {said}"
        )
        return ByNumbers(argument, problem, got, _PICKED if argument == "target" else self._remedy())

    def moves_along(self, output: Any) -> bool:
        """Whether the rows of the whole output follow the nodes into their new order."""
        typed = self.prediction.typed
        orders = [self.order]
        if typed is not None:
            first = typed.types.offsets.values()
            parts = torch.split(self.order, list(typed.types.counts.values()))
            orders = [part - offset for part, offset in zip(parts, first, strict=True)]
        before, after = (list(_tensors(whole)) for whole in (self.prediction.output, output))
        return len(before) == len(after) > 0 and all(map(lambda a, b: self._follows(a, b, orders), before, after))

    def _follows(self, before: Tensor, after: Tensor, orders: list[Tensor]) -> bool:
        """Whether a tensor is what it was, but for the order of its rows."""
        if before.shape != after.shape:
            return False
        off = self._off * before.abs().amax()
        fitting = [order for order in orders if before.dim() and len(order) == len(before)]
        return any(bool(((rows - after).abs() <= off).all()) for rows in (before, *(before[o] for o in fitting)))

    def _remedy(self) -> str:
        """What to do about a model."""
        named = _unmoved(self.prediction)
        return _NAMED.format(" and ".join(named)) if named else _TABLE


def _nearby(x: Tensor) -> Tensor:
    """Features changed in their last digits."""
    if not x.is_floating_point():
        return x
    generator = torch.Generator().manual_seed(0)
    factors = 1 + _UNITS * torch.finfo(x.dtype).eps * torch.randn(x.shape, generator=generator, dtype=torch.double)
    return (x.double() * factors.to(x.device)).to(x.dtype)


def _tensors(nested: Any) -> Iterator[Tensor]:
    """The tensors of floating-point numbers in an output."""
    if isinstance(nested, Tensor) and nested.is_floating_point() and nested.numel():
        yield nested
    elif isinstance(nested, Mapping):
        yield from _tensors(list(nested.values()))
    elif isinstance(nested, list | tuple):
        for item in nested:
            yield from _tensors(item)


def _unmoved(prediction: Prediction) -> list[str]:
    """The whole-number arguments that have no row for each node, edge or graph."""
    typed = prediction.typed
    if typed is None:
        sizes = (prediction.num_nodes, prediction.edge_index.shape[1])
        whole = [name for name, value in prediction.arguments.items() if _is_whole(value) and name not in _OF_PARTS]
        return [name for name in whole if _length(prediction.arguments[name]) not in sizes]
    named = {name: value for name, value in typed.arguments.items() if _is_whole(value)}
    for store in typed.data.stores:
        named |= {n: v for n, v in store.items() if n != "edge_index" and _is_whole(v) and not _has_rows(store, n)}
    return [name for name in named if wants(typed.model, name) or typed.whole.manner.whole is not None]


def _is_whole(value: Any) -> bool:
    """Whether something is a number, or a tensor of numbers, that may name nodes."""
    if isinstance(value, Tensor):
        return value.dtype in (torch.int64, torch.int32)
    return isinstance(value, int) and not isinstance(value, bool)


def _has_rows(store: Any, name: str) -> bool:
    """Whether an attribute has a row for every node, or every edge, of a type."""
    return any(getattr(store, f"is_{what}_attr", lambda _: False)(name) for what in ("node", "edge"))


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, Tensor) and value.dim() else None
