"""One prediction of a model for a graph, as a number that can be explained."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from walkwise.core.chain import RelevanceChain
from walkwise.core.lazy import cached_property
from walkwise.core.node_types import TypedNode
from walkwise.errors import InputError
from walkwise.evaluation.adapters import Adapted, adapted
from walkwise.evaluation.inputs import given_graph
from walkwise.evaluation.outputs import as_names, check_names, explained_row, made_by, named_column, table
from walkwise.evaluation.types import AllTypes
from walkwise.rules import RuleLike
from walkwise.tracing import trace
from walkwise.tracing.given.second import graphs_beside
from walkwise.tracing.running.shadow import same_random_numbers, shadow_of

if TYPE_CHECKING:
    from walkwise.evaluation.renumbering import ByNumbers

#: An output column, or a function that makes a scalar from the model's whole output.
Column = int | Callable[[Any], Tensor]


@dataclass(frozen=True, eq=False)
class Prediction:
    """One output of a model on one graph: the number that an explainer explains and a curve follows.

    Made by :func:`predict`, which explains the fields.
    """

    model: nn.Module
    x: Tensor  # (M, F), or (M,) of whatever the model takes in place of features
    edge_index: Tensor  # (2, E)
    arguments: Mapping[str, Any]  # the model's other arguments, by name
    target: Column
    index: int | None
    output: Any  # the model's own answer for the whole graph
    against: int | None = None  # the column subtracted from the explained one
    notes: tuple[str, ...] = ()  # notes on how the model got its graph

    @property
    def num_nodes(self) -> int:
        """M, the nodes of the graph."""
        return self.x.shape[0]

    @property
    def typed(self) -> AllTypes | None:
        """For a heterogeneous graph, the model behind node numbers."""
        return _typed_in(self.model)

    @property
    def features(self) -> list[Tensor]:
        """The node features; for a heterogeneous graph, those of each type in turn.  # (M_t, F_t) each"""
        return [self.x] if self.typed is None else list(self.typed.features.values())

    @property
    def negative(self) -> bool:
        """Whether this is the negative class of a model with one logit, whose output has its sign flipped."""
        return isinstance(self.model, Adapted) and self.model.negative

    @cached_property
    def by_numbers(self) -> ByNumbers | None:
        """Why the model cannot be run on parts of the graph, if it depends on node numbers."""
        from walkwise.evaluation.renumbering import by_numbers

        return by_numbers(self)

    @cached_property
    def beside(self) -> frozenset[int]:
        """The tensors of other graphs among the arguments, by identity: parts of this one leave them as they are."""
        others = graphs_beside(self.arguments, self.x, self.edge_index, self.num_nodes)
        return frozenset(id(tensor) for tensors in others.values() for tensor in tensors)

    @property
    def logits(self) -> Tensor:
        """The explained row of the output, with all columns.  # (C,)"""
        return table(self.output, self.num_nodes if self.index is not None else 1)[self.index or 0]

    def value(self, on: str = "logit") -> float:
        """f(G), the explained number itself."""
        return float(chosen(self, self.output if callable(self.target) else self.logits[None], on)[0])


def predict(
    model: nn.Module,
    *graph: Any,
    target: Any = None,
    against: Any = None,
    index: int | TypedNode | None = None,
    class_names: Sequence[str] | None = None,
    **model_kwargs: Any,
) -> Prediction:
    """Make the model's prediction for one graph, given as ``data`` or as ``x, edge_index``.

    A :class:`~torch_geometric.data.Data` is passed to the model as in :func:`walkwise.trace`: attribute by attribute,
    for the parameters of its ``forward``, or whole. A parameter ``batch`` is filled in if it is not given.

    Args:
        model: a model called as ``model(x, edge_index, **model_kwargs)``.
        *graph: one Data or HeteroData object, or the node features and the edges (2, E).
        target: the output column (default: the largest), or a callable that turns the output into a scalar. For a
            binary model with one logit, "positive" (or 1) and "negative" are its classes, as for
            :func:`walkwise.trace`.
        against: another column: the explained number is the target's output minus this one.
        index: the output row, for node-level models; for a heterogeneous graph, (type, i).
        class_names: names of the output columns, which target and against may use; two for one logit, the negative
            class first.
        **model_kwargs: passed to the model; they take precedence over the attributes of a Data object.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> prediction = predict(GCN(2, 8, 2, out_channels=3), torch.ones(3, 2), edge_index, index=1, target=2)
    >>> prediction.logits.shape
    torch.Size([3])
    """
    if not isinstance(model, nn.Module):
        raise InputError(argument="model", expected="a torch.nn.Module", got=model)
    class_names = as_names(class_names)
    if len(graph) == 1 and isinstance(graph[0], HeteroData):
        typed = AllTypes(model, graph[0], model_kwargs, index)
        said: dict[str, Any] = {"target": target, "against": against, "class_names": class_names}
        return predict(typed, typed.nodes, typed.edges, index=typed.row, **said)
    given = given_graph(model, graph, model_kwargs)
    x, edge_index, arguments = given.x, given.edge_index, given.arguments
    with torch.no_grad(), at_rest(model) as resting:
        given, output = given.taken(lambda way: way.run(resting))
    model = adapted(given.model, given.manner)
    if callable(target):
        if index is not None:
            raise InputError(
                "index does not go with a callable target: select the row inside the callable.",
                argument="index",
                expected="left out where target is callable",
                got=index,
            )
        if against is not None:
            raise InputError(
                "against does not go with a callable target: subtract inside the callable.",
                argument="against",
                expected="left out where target is callable",
                got=against,
            )
        return Prediction(model, x, edge_index, arguments, target, None, output, notes=given.notes)
    if index is not None and isinstance(output, Tensor) and output.dim() == 1 and len(output) != x.shape[0]:
        raise InputError(
            f"The output has {len(output)} scores for {x.shape[0]} nodes. Scores of node pairs cannot be compared "
            "between subgraphs, because a subgraph may lack an end of the pair.",
            argument="output",
            expected="one score per node",
            got=len(output),
            remedy="Trace it, ww.trace(model, data, index=...), or write target=lambda output: output[...].",
        )
    rows = table(output, 1 if index is None else x.shape[0])
    row = explained_row(rows, index)
    check_names(class_names, row)
    column, negative = named_column(target, row, "target", class_names)
    if negative:
        model, output = adapted(given.model, given.manner, negative=True), -output
    other = None if against is None else named_column(against, row, "against", class_names)
    if other == (column, negative):
        raise InputError(
            f"target and against are the same output, {target if target is not None else column!r}.",
            argument="against",
            expected="another output than the target",
            got=against,
            remedy="Name another one, or leave it out.",
        )
    less = other[0] if other is not None and len(row) > 1 else None  # one logit is a difference already
    at = None if index is None else operator.index(index)  # type: ignore[arg-type]
    return Prediction(model, x, edge_index, arguments, column, at, output, less, given.notes)


def call(model: nn.Module, x: Tensor, edge_index: Tensor, arguments: Mapping[str, Any]) -> Any:
    """Run the model in evaluation mode, without caches or gradients, and leave it as it was."""
    with torch.no_grad(), at_rest(model) as resting:
        return resting(x, edge_index, **arguments)


@contextmanager
def at_rest(model: nn.Module) -> Iterator[nn.Module]:
    """A shadow of the model, in evaluation mode and with empty caches; the model itself is not touched."""
    shadow = shadow_of(model)
    shadow.forget()
    with same_random_numbers():
        yield shadow.model


def traced(prediction: Prediction, *, rule: RuleLike = "auto") -> RelevanceChain:
    """The prediction as a relevance chain."""
    chain = _traced(prediction, rule)
    number = chain.explained
    if number is not None and prediction.negative:  # its sign, which the model in the prediction has flipped already
        number = replace(number, target="negative")
    return replace(chain, notes=tuple(dict.fromkeys((*prediction.notes, *chain.notes))), explained=number)


def _traced(prediction: Prediction, rule: RuleLike) -> RelevanceChain:
    arguments, target = dict(prediction.arguments), prediction.target
    one_logit = not callable(target) and len(prediction.logits) == 1
    if (typed := prediction.typed) is not None:
        return trace(
            typed.model,
            typed.data,
            target=("negative" if prediction.negative else "positive") if one_logit else target,
            against=prediction.against,
            index=typed.index,
            rule=rule,
            **typed.arguments,
        )
    return trace(
        prediction.model,
        prediction.x,
        prediction.edge_index,
        target="positive" if one_logit else target,
        against=prediction.against,
        index=prediction.index,
        rule=rule,
        **arguments,
    )


def value_at(prediction: Prediction, features: Sequence[Tensor]) -> float:
    """f at node features other than the prediction's own, given in the same form: one tensor, or one for each type."""
    with torch.no_grad(), at_rest(prediction.model) as model:
        return float(_scalar(prediction, output_at(prediction, model, features)))


def input_gradient(prediction: Prediction, features: Sequence[Tensor]) -> list[Tensor]:
    """∂f/∂x at node features other than the prediction's own: one for each tensor of them, of its shape."""
    wrong = next((x for x in features if not x.is_floating_point()), None)
    if wrong is not None:
        raise InputError(
            f"Node features of {wrong.dtype} have no gradient.",
            argument="x",
            expected="of floating-point numbers",
            got=wrong.dtype,
            remedy="Give floating-point features.",
        )
    with torch.enable_grad(), at_rest(prediction.model) as model:
        leaves = [x.detach().requires_grad_(True) for x in features]
        output = output_at(prediction, model, leaves)
        gradients = torch.autograd.grad(_scalar(prediction, output), leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)]


def output_at(prediction: Prediction, model: nn.Module, features: Sequence[Tensor]) -> Any:
    """The output of a shadow of the prediction's model for the graph with other node features."""
    if (typed := _typed_in(model)) is None:
        return model(features[0], prediction.edge_index, **prediction.arguments)
    typed.data = typed.with_features(features)
    return model(prediction.x, prediction.edge_index)


def _typed_in(model: nn.Module) -> AllTypes | None:
    """For a heterogeneous graph, the model behind node numbers."""
    inner = model.model if isinstance(model, Adapted) else model
    return inner if isinstance(inner, AllTypes) else None


def _scalar(prediction: Prediction, output: Any) -> Tensor:
    """The explained number of the whole graph's output, differentiable."""
    if callable(prediction.target):
        return torch.as_tensor(made_by(prediction.target, output)).reshape(())
    rows = table(output, 1 if prediction.index is None else prediction.num_nodes)
    return difference(prediction, rows[prediction.index or 0])


def chosen(prediction: Prediction, rows: Any, on: str) -> Tensor:
    """The explained column of every row.  # (B,)"""
    if callable(prediction.target):
        if on != "logit":
            raise InputError(
                "A callable target computes its own number from the output.",
                argument="on",
                expected='"logit" where target is callable',
                got=on,
                remedy='Leave on="logit".',
            )
        return torch.as_tensor(made_by(prediction.target, rows)).detach().reshape(1)
    if on == "probability":
        rows = rows.softmax(dim=1) if rows.shape[1] > 1 else rows.sigmoid()
    return difference(prediction, rows)


def difference(prediction: Prediction, rows: Tensor) -> Tensor:
    """The explained column of every row, minus the column of ``against``.  # (...,)"""
    assert isinstance(prediction.target, int)
    wanted: Tensor = rows[..., prediction.target]
    return wanted if prediction.against is None else wanted - rows[..., prediction.against]
