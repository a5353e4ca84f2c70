"""Check the input of a trace before the model runs, and explain mistakes in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData
from torch_geometric.nn import HypergraphConv
from torch_geometric.utils import is_sparse

from walkwise.errors import Described, InputError, described
from walkwise.tracing.given.in_order import may_be_edges
from walkwise.tracing.given.misfits import by_name
from walkwise.tracing.given.signatures import ordered_names, parameters_of
from walkwise.tracing.precision import check_tensors
from walkwise.tracing.running.found import is_edges
from walkwise.tracing.running.modules import Modules, a_weight, has_layers

if TYPE_CHECKING:
    from walkwise.tracing.given.arguments import Given


_WITHOUT_FEATURES = (
    "For a model without features, write ww.trace(model, Data(edge_index=..., num_nodes=...)), with what else it takes "
    "by name."
)


def check_call(model: Any, x: Any, rest: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Refuse a call whose arguments are in the wrong places."""
    if rest:
        raise InputError(
            f"After x and edge_index, all arguments must be given by name, got {len(rest)} more in order "
            f"({', '.join(_kind(value) for value in rest)}).",
            argument="model_kwargs",
            expected="given by name",
            remedy=f"Write ww.trace({by_name(model, x, len(rest))}), using the names of the model's parameters.",
        )
    if x is ...:
        graph = next((name for name, value in named.items() if isinstance(value, BaseData)), None)
        raise InputError(
            "There is no graph to trace: x was left out." + (f" {graph} was given by name." if graph else ""),
            argument="x",
            expected="given",
            remedy=f"Write ww.trace(model, data), or ww.trace(model, x, edge_index). {_WITHOUT_FEATURES}",
        )


def check_given(given: Given) -> None:
    """Refuse anything that is not a graph."""
    x, edge_index, data = given.x, given.edge_index, given.data
    edges_first = is_edges(x) and x.shape[1] != 2
    if edges_first and isinstance(edge_index, Tensor) and edge_index.is_floating_point():
        raise InputError(
            f"x and edge_index are swapped: x is {x.dtype} {tuple(x.shape)}, edge_index {edge_index.dtype} "
            f"{tuple(edge_index.shape)}.",
            argument="x",
            expected="a tensor with one row per node",
            got=described(x),
            remedy="Write ww.trace(model, x, edge_index).",
        )
    first = ordered_names(parameters_of(given.model))[:1]
    if is_edges(x) and is_edges(edge_index) and any(map(may_be_edges, first)):
        raise InputError(
            f"x is edges, {tuple(x.shape)}, and so is edge_index, {tuple(edge_index.shape)}.",
            argument="x",
            expected="a tensor with one row per node",
            got=described(x),
            remedy=_WITHOUT_FEATURES,
        )
    if (x is not None or data is None) and (not isinstance(x, Tensor) or x.dim() == 0):
        expected, remedy = "a tensor with one row per node", _remedy(x, edge_index)
        raise InputError(argument="x", expected=expected, got=Described(_kind(x)), remedy=remedy)
    check_dense({"x": x})
    if given.num_nodes == 0 and x is None:
        raise _without_features(data)
    check_some(given.num_nodes)
    _check_one(x, edge_index)
    if edge_index is ... or isinstance(edge_index, BaseData):
        expected = "the edges, (2, E), or a sparse adjacency"
        came = "but was left out" if edge_index is ... else f"got {_kind(edge_index)}"
        raise InputError(
            f"edge_index must be {expected}, {came}.",
            argument="edge_index",
            expected=expected,
            got=None if edge_index is ... else Described(_kind(edge_index)),
            remedy=_remedy(edge_index),
        )


def check_some(num_nodes: int) -> None:
    """Refuse a graph without nodes."""
    if not num_nodes:
        raise InputError("x has no nodes: a graph needs at least one.", argument="x", expected="of at least one node")


def _without_features(data: Any) -> InputError:
    """The error for a graph that has neither features nor a number of nodes."""
    has = ", ".join(sorted(data.keys())) or "nothing"
    return InputError(
        f"The graph has neither x nor num_nodes; it has {has}.",
        argument="x",
        expected="a part of the graph",
        got=Described(has),
        remedy="Call its features x and its edges edge_index, in the model as well: ww.trace(model, Data(x=..., "
        "edge_index=...)). For a model without features, give num_nodes=....",
    )


def told_dim(x: Any, edge_index: Any, *, by_layers: bool = False, count: int | None = None) -> int | None:
    """Which dimension of several matrices on one graph runs over its nodes, as told by edges, or by an adjacency.

    The first, if they tell nothing else; None if of four or more no dimension fits, or several do. Message-passing
    layers (``by_layers``) take the last but one, if it has enough entries. ``count`` is how many nodes there are, if
    the caller has said so.

    >>> told_dim(torch.zeros(1, 2, 9, 12), torch.eye(9))
    2
    """
    fitting = _fitting(x, edge_index, count)
    if not fitting:
        return 0 if x.dim() < 4 else None
    if len(fitting) == 1:
        return fitting[0]
    if by_layers and x.dim() - 2 in fitting:
        return int(x.dim() - 2)
    return fitting[0] if x.dim() < 4 else None


def _fitting(x: Any, edge_index: Any, count: int | None) -> list[int]:
    """The dimensions that may run over the nodes."""
    if not isinstance(x, Tensor) or x.dim() < 3:
        return [0]
    count = len(edge_index) if _is_matrix(edge_index) else count
    if count is not None:
        return [dim for dim in range(x.dim()) if x.shape[dim] == count]
    if not names_more(edge_index, len(x)):
        return [0]
    least = int(edge_index.max()) + 1  # some nodes may be at no edge
    return [dim for dim in range(1, x.dim()) if x.shape[dim] >= least]


def check_told(given: Given) -> None:
    """Refuse features of several matrices of which no dimension runs over the nodes, or which of them is unknown."""
    x, edge_index, count = given.x, given.edge_index, given.count
    if given.node_dim or told_dim(x, edge_index, by_layers=has_layers(given.model), count=count) is not None:
        return
    told = "The adjacency joins {} nodes" if _is_matrix(edge_index) else "edge_index names nodes 0 to {}"
    told = told.format(len(edge_index) if _is_matrix(edge_index) else int(edge_index.max()))
    several, shape = len(_fitting(x, edge_index, count)) > 1, tuple(x.shape)
    how = "several dimensions may run over these" if several else "no dimension has as many entries"
    remedy = "Give the adjacency, (M, M), or how many nodes there are: ww.trace(model, Data(x=..., edge_index=..., "
    raise InputError(
        f"{told}, and x has the shape {shape}: {how}.",
        argument="x",
        expected="of one row per node",
        got=Described(f"a tensor of shape {shape}"),
        remedy=f"{remedy}num_nodes=M))."
        if several and not _is_matrix(edge_index) and count is None
        else "Pass other numbers of steps, graphs or channels than nodes, so that it can be told."
        if several
        else "Pass the features as the model takes them, (T, M, F) or (B, F, M, T), and the edges of one graph.",
    )


def _check_one(x: Any, edge_index: Any) -> None:
    """Refuse a dense batch of several graphs, (B, N, F) and (B, N, N), whose nodes are no rows."""
    if not isinstance(x, Tensor) or not isinstance(edge_index, Tensor) or not x.dim() == edge_index.dim() == 3:
        return
    B, N, last = edge_index.shape
    if B == 1 or last != N or x.shape[:2] != (B, N):
        return
    raise InputError(
        f"x, {tuple(x.shape)}, and the adjacency, {tuple(edge_index.shape)}, are a dense batch of {B} graphs.",
        argument="x",
        expected="of one graph",
        got=Described(f"a tensor of shape {tuple(x.shape)}"),
        remedy="For dense batches, (B, N, F), trace one graph at a time: ww.trace(model, x[:1], adjacency[:1]).",
    )


def _is_matrix(edges: Any) -> bool:
    """Whether edges are given by a matrix, (M, M)."""
    return isinstance(edges, Tensor) and edges.dtype != torch.long and edges.dim() == 2 and len(set(edges.shape)) == 1


def names_more(edge_index: Any, num_nodes: int) -> bool:
    """Whether edges name more nodes than there are."""
    dense = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided and edge_index.dtype == torch.long
    return dense and bool((edge_index >= num_nodes).any())


def check_dense(features: Mapping[str, Any]) -> None:
    """Refuse features in a sparse layout, by name."""
    for name, x in features.items():
        if is_sparse(x):
            raise InputError(
                f"{name} is sparse ({getattr(x, 'layout', type(x).__name__)}); relevance needs all features of a node, "
                "including those that are 0.",
                argument=name,
                expected="dense",
                got=Described(str(getattr(x, "layout", type(x).__name__))),
                remedy=f"Give {name}.to_dense().",
            )


def check_input(modules: Modules, given: Given) -> None:
    """Before the model runs, refuse input for which relevance cannot be computed."""
    tensors = given.tensors()
    check_tensors({n: value for n, value in tensors.items() if n[:1] != "x"})  # x: where its effect is seen
    if given.types is None and not any(isinstance(conv, HypergraphConv) for _, conv in modules.convs):
        check_edges(given.edge_index, given.num_nodes, hyper=any(_of_somebody(conv) for _, conv in modules.convs))
    _check_places(a_weight(modules), given.features, tensors)


def _of_somebody(conv: Any) -> bool:
    """Whether a layer is not torch_geometric's: the second row of its edges may name hyperedges."""
    return not type(conv).__module__.startswith("torch_geometric.")


def check_edges(edge_index: Any, num_nodes: int, *, hyper: bool = False) -> None:
    """Refuse edges between nodes that do not exist; where the second row may name hyperedges, from such nodes."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        return
    no_ids = edge_index.is_floating_point() or edge_index.dtype == torch.bool
    if no_ids and edge_index.dim() == 2 and edge_index.shape[0] == 2 != edge_index.shape[1]:
        raise InputError(argument="edge_index", expected="node ids, of torch.long", got=edge_index.dtype)
    if edge_index.dtype != torch.long:
        return
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        expected = "of shape (2, E), one column per edge"
        raise InputError(argument="edge_index", expected=expected, got=tuple(edge_index.shape))
    if wrong := named_outside(edge_index[0] if hyper else edge_index, num_nodes):
        raise InputError(
            f"edge_index names nodes {wrong}, but x has {num_nodes} rows (0 to {num_nodes - 1}).",
            argument="edge_index",
            expected=f"node ids from 0 to {num_nodes - 1}",
            got=wrong,
        )


def named_outside(ids: Tensor, count: int) -> Described | None:
    """From which node to which ids go, if not all are from 0 to ``count - 1``."""
    if not ids.numel():
        return None
    low, high = torch.stack(torch.aminmax(ids)).tolist()
    return Described(f"{low} to {high}") if low < 0 or high >= count else None


def _check_places(parameter: Tensor | None, features: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
    """Refuse tensors on another device or of another type than the model's weights."""
    if parameter is None:
        return
    for name, tensor in tensors.items():
        if tensor.device != parameter.device:
            raise InputError(
                f"{name} is on {tensor.device} but the model is on {parameter.device}; move one of them.",
                argument=name,
                expected=f"on {parameter.device}",
                got=tensor.device,
            )
    for x in features.values():
        if x.dtype != parameter.dtype:
            raise InputError(
                f"x is {x.dtype} but the model's weights are {parameter.dtype}; convert one of them.",
                argument="x",
                expected=f"of {parameter.dtype}",
                got=x.dtype,
            )


def _remedy(value: Any, beside: Any = None) -> str | None:
    """A remedy if the edges were left out, or a graph was given instead of its tensors."""
    if value is ...:
        return (
            "Write ww.trace(model, x, edge_index), or ww.trace(model, data), also for a model that has its edges "
            "itself and takes x alone; for one that finds them, from points say, ww.trace(model, Data(x=..., pos=...))."
        )
    if isinstance(value, BaseData):
        return "Write ww.trace(model, data), or ww.trace(model, data.x, data.edge_index)."
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], BaseData):
        return "Combine several graphs into one: ww.trace(model, Batch.from_data_list(graphs))."
    if beside is ... and isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        return "If forward takes them one by one, write ww.trace(model, *x)."
    if beside is ... and value is not None and not isinstance(value, Tensor):
        return "Write ww.trace(model, Data(x=..., edge_index=...)), or ww.trace(model, x, edge_index)."
    if value is None and beside is not ...:
        return "For a model without features, give the graph: ww.trace(model, Data(edge_index=..., num_nodes=...))."
    return None


def _kind(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else described(value)
