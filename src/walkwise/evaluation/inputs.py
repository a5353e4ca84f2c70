"""Read and check the graph of a prediction, or the graphs of a data set, as the caller gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from walkwise.errors import Described, InputError, described
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.binding import given_as, of_graph
from walkwise.tracing.given.inputs import check_dense
from walkwise.tracing.given.misfits import by_name
from walkwise.tracing.given.signatures import parameters_of

#: Attributes of a graph that do not hold for its subgraphs, or that no model computes with.
_OF_THE_WHOLE = ("y", "ptr", "num_nodes")
#: Types of node ids that a model may take as well.
_SHORT = (torch.int32, torch.int16, torch.int8, torch.uint8)


def given_graph(model: nn.Module, graph: tuple[Any, ...], model_kwargs: dict[str, Any]) -> Given:
    """Return the model's arguments, checked: one graph with features and edges."""
    if len(graph) == 2:
        given = given_as(model, *graph, model_kwargs)
    elif len(graph) == 1 and isinstance(graph[0], Data):
        if graph[0].x is None or graph[0].edge_index is None:
            sparse = "adj_t" in graph[0] and graph[0].edge_index is None
            raise InputError(
                "The Data object needs x and edge_index; if there are no features, use ones.",
                argument="graph",
                expected="a Data object with x and edge_index",
                got=str(graph[0]),
                remedy="Subgraphs cannot be taken from adj_t: leave ToSparseTensor out." if sparse else None,
            )
        given = of_graph(model, graph[0], model_kwargs)
    else:
        parts = ", ".join(type(part).__name__ for part in graph)
        more = len(graph) - 2
        remedy = f"Write ({by_name(model, graph[0], more)})." if more > 0 else None
        expected = "one Data object, or x and edge_index, and what else the model takes by name"
        raise InputError(argument="graph", expected=expected, got=Described(f"({parts})"), remedy=remedy)
    if isinstance(given.edge_index, Tensor) and given.edge_index.dtype in _SHORT:
        given = replace(given, edge_index=given.edge_index.long())  # subgraphs are taken by them
    _check_graph(given.x, given.edge_index)
    given = replace(given, arguments=_of_any_part(given))
    _check_single(given.arguments)
    return given


def wants(model: nn.Module, name: str) -> bool:
    """Whether the model's ``forward`` has a parameter of this name."""
    return any(parameter.name == name for parameter in parameters_of(model))


def _of_any_part(given: Given) -> dict[str, Any]:
    """The arguments that subgraphs can have too, with a ``batch`` if the model takes one."""
    whole = given.manner.whole is not None
    arguments = {n: value for n, value in given.arguments.items() if not (whole and n in _OF_THE_WHOLE)}
    if arguments.get("batch") is None and (whole or wants(given.model, "batch")):
        arguments["batch"] = torch.zeros(given.num_nodes, dtype=torch.long, device=given.x.device)
    return arguments


def _check_graph(x: Any, edge_index: Any) -> None:
    if not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] == 0:
        raise InputError(
            argument="x", expected="a tensor with one row per node, and at least one node", got=described(x)
        )
    check_dense({"x": x})
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(
            argument="edge_index",
            expected="a tensor of shape (2, E)",
            got=described(edge_index),
            remedy="Give edges as columns: subgraphs cannot be taken from a sparse adjacency.",
        )
    if edge_index.dtype != torch.long or (edge_index.numel() and not _within(edge_index, x.shape[0])):
        raise InputError(
            argument="edge_index",
            expected=f"node ids from 0 to {x.shape[0] - 1}, of torch.int64",
            got=Described(f"{edge_index.dtype}{_extent(edge_index)}"),
        )


def _check_single(arguments: Mapping[str, Any]) -> None:
    batch = arguments.get("batch")
    if isinstance(batch, Tensor) and batch.numel() and int(batch.max()) > 0:
        raise InputError(
            argument="batch",
            expected="of one graph",
            got=Described(f"{int(batch.max()) + 1} graphs"),
            remedy="Give one graph at a time.",
        )


def _extent(ids: Tensor) -> str:
    return f" from {ids.min().item()} to {ids.max().item()}" if ids.numel() else ""


def _within(ids: Tensor, count: int) -> bool:
    return 0 <= int(ids.min()) <= int(ids.max()) < count


def graph_list(graphs: Iterable[Data | HeteroData], name: str = "graphs") -> list[Data | HeteroData]:
    """The graphs of a data set, at least one.

    >>> graph_list(Data(num_nodes=3))
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: graphs must be a list of graphs, got one Data. Write [data], or data.to_data_list() ...
    """
    if isinstance(graphs, Data | HeteroData):
        raise InputError(
            argument=name,
            expected="a list of graphs",
            got=Described(f"one {type(graphs).__name__}"),
            remedy="Write [data], or data.to_data_list() if it is a batch.",
        )
    scalar = getattr(graphs, "ndim", 1) == 0
    several = not scalar and (hasattr(graphs, "__iter__") or hasattr(graphs, "__getitem__"))  # a Subset has the latter
    listed: list[Any] = list(graphs) if several else [graphs]
    wrong = [described(data) for data in listed if not isinstance(data, Data | HeteroData)]
    if wrong:
        raise InputError(
            argument=name,
            expected="a list of torch_geometric Data or HeteroData objects",
            got=wrong[0],
        )
    if not listed:
        raise InputError(f"{name} is empty; give at least one graph.", argument=name, expected="at least one graph")
    return listed
