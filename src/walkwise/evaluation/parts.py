"""A model's output on parts of a graph: many induced subgraphs at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkwise.errors import InputError, described
from walkwise.evaluation.outputs import check_on, table
from walkwise.evaluation.predictions import Prediction, call, chosen
from walkwise.questions.progress import shown

#: How many nodes and edges one forward pass of many subgraphs may hold, kept or not.
_MOST_ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class SubgraphValues:
    """f of every subgraph, and how it was computed."""

    values: Tensor  # (B,)
    route: str  # "batched": many subgraphs in one pass; "one by one": a pass for each


def subgraph_values(
    prediction: Prediction,
    masks: Tensor,
    *,
    on: str = "logit",
    most_rows: int = _MOST_ROWS,
    route: str | None = None,
    progress: bool = False,
) -> SubgraphValues:
    """Compute f(S) for every subgraph S: the model's output on the graph that S induces.

    Nodes outside S are removed with their edges and attributes. If the model takes a ``batch`` vector, many subgraphs
    go through it in one pass. First the whole graph is run beside a single node: if its output then differs (a layer
    mixes graphs), or if the output does not have one row per graph, every subgraph gets a pass of its own. The
    explained node of a node-level model always stays. With nothing left, every output column is 0. A model that depends
    on node numbers is refused: once per prediction, it is run on the same graph with its nodes in another order.

    Args:
        prediction: the model, the graph, and which output is f.
        masks: the subgraphs, (B, M) boolean.
        on: "logit" for the output itself, "probability" for its softmax (sigmoid, if it has one column).
        most_rows: the most nodes and edges in one pass.
        route: the route of an earlier answer for subgraphs of this prediction, so that it need not be tried again.
        progress: show a bar.
    """
    check_on(on)
    M = prediction.num_nodes
    if not isinstance(masks, Tensor) or masks.dtype != torch.bool or masks.dim() != 2 or masks.shape[1] != M:
        raise InputError(argument="masks", expected=f"a boolean tensor of shape (B, {M})", got=described(masks))
    check_numbers(prediction)
    masks = masks.to(prediction.x.device)
    if prediction.index is not None:
        masks = masks.clone()
        masks[:, prediction.index] = True
    chunk = max(2, most_rows // (prediction.num_nodes + prediction.edge_index.shape[1]))
    batched = "batch" in prediction.arguments and not callable(prediction.target) and len(masks) > 1
    if batched and (_mixes(prediction) if route is None else route != "batched"):
        batched = False
    parts = shown(torch.split(masks, chunk if batched else 1), bool(progress))
    values = [_values(prediction, part, on) for part in parts]
    empty = torch.zeros(0, dtype=torch.float32, device=masks.device)
    return SubgraphValues(torch.cat(values) if values else empty, "batched" if batched else "one by one")


def subgraph_logits(prediction: Prediction, masks: Tensor) -> Tensor:
    """The explained row of the output on every subgraph, with all columns: (B, C); zeros if nothing is left.

    Args:
        prediction: the model and the graph; its target is a column.
        masks: the subgraphs, (B, M) boolean. The explained node of a node-level model always stays.
    """
    check_numbers(prediction)
    masks = masks.to(prediction.x.device)
    if prediction.index is not None:
        masks = masks.index_fill(1, torch.tensor([prediction.index], device=masks.device), True)
    return torch.cat([_logits(prediction, mask[None]) for mask in masks])


def check_numbers(prediction: Prediction) -> None:
    """Refuse a model, or a target function, that depends on node numbers, which change in a part. Checked once."""
    if prediction.by_numbers is not None:
        raise prediction.by_numbers.error


def _mixes(prediction: Prediction) -> bool:
    """Whether the output for the whole graph changes when a single node is put beside it."""
    masks = torch.zeros(2, prediction.num_nodes, dtype=torch.bool, device=prediction.x.device)
    masks[0] = True
    masks[1, prediction.index or 0] = True
    beside = _rows(prediction, masks)
    if beside is None or beside.shape[1] != prediction.logits.shape[0]:
        return True
    return not torch.allclose(beside[0], prediction.logits, rtol=1e-3, atol=1e-4)


def _values(prediction: Prediction, masks: Tensor, on: str) -> Tensor:
    """f of the subgraphs of one pass.  # (B,)"""
    if callable(prediction.target):
        return chosen(prediction, _alone(prediction, masks), on)
    return chosen(prediction, _logits(prediction, masks), on)


def _logits(prediction: Prediction, masks: Tensor) -> Tensor:
    """The explained row of the output on the subgraphs of one pass, zeros for the empty one.  # (B, C)"""
    full = masks.any(dim=1)
    rows = prediction.logits.new_zeros(len(masks), len(prediction.logits))  # (B, C)
    if bool(full.any()):
        found = _rows(prediction, masks[full])
        if found is None:
            raise InputError(
                f"The model's output for subgraphs must have one row for each; its shape is {tuple(rows.shape)}.",
                argument="model",
                expected="a model with one row of output per graph",
            )
        rows[full] = found
    return rows


def _alone(prediction: Prediction, masks: Tensor) -> Any:
    """The model's whole output for a single subgraph, zeros for the empty one."""
    if not bool(masks.any()):
        return torch.zeros_like(prediction.output)
    x, edge_index, arguments, _ = _union(prediction, masks)
    return call(prediction.model, x, edge_index, arguments)


def _rows(prediction: Prediction, masks: Tensor) -> Tensor | None:
    """The explained output row of every (non-empty) subgraph, or None if there is none.  # (B, C)"""
    x, edge_index, arguments, place = _union(prediction, masks)
    output = call(prediction.model, x, edge_index, arguments)
    count = len(masks) if prediction.index is None else x.shape[0]
    if not isinstance(output, Tensor) or output.dim() > 2:
        return None
    if len(masks) > 1 and (output.dim() == 0 or len(output) != count):
        return None
    rows = table(output, count)
    return rows if prediction.index is None else rows[place[:, prediction.index]]


def _union(prediction: Prediction, masks: Tensor) -> tuple[Tensor, Tensor, dict[str, Any], Tensor]:
    """The induced subgraphs side by side as one graph, and the place of every node in it.  # (B, M)"""
    found = induced(prediction.edge_index, masks)
    arguments = {
        name: carried(prediction, name, value, found.node, found.edge, len(masks))
        for name, value in prediction.arguments.items()
    }
    if "batch" in arguments:
        arguments["batch"] = found.owner
    return prediction.x[found.node], found.edge_index, arguments, found.place


class InducedSubgraphs(NamedTuple):
    """The subgraphs that node sets induce, side by side as one graph."""

    owner: Tensor  # (R,) the node set of every node of the union
    node: Tensor  # (R,) which node of the graph it is
    edge: Tensor  # (Q,) which edge of the graph every edge of the union is
    edge_index: Tensor  # (2, Q)
    place: Tensor  # (B, M) the place of every node of every set


def induced(edge_index: Tensor, masks: Tensor) -> InducedSubgraphs:
    """The subgraphs that node sets (B, M) induce.

    >>> induced(torch.tensor([[0, 1], [1, 2]]), torch.tensor([[True, True, False], [False, True, True]])).edge_index
    tensor([[0, 2],
            [1, 3]])
    """
    source, destination = edge_index
    owner, node = masks.nonzero(as_tuple=True)
    place = masks.flatten().cumsum(0).view_as(masks) - 1
    edge_owner, edge = (masks[:, source] & masks[:, destination]).nonzero(as_tuple=True)
    within = torch.stack([place[edge_owner, source[edge]], place[edge_owner, destination[edge]]])
    return InducedSubgraphs(owner, node, edge, within, place)


def carried(prediction: Prediction, name: str, value: Any, node: Tensor, edge: Tensor, count: int) -> Any:
    """A further argument for the parts: rows of nodes or edges are selected, rows of graphs repeated."""
    if name in ("batch_size", "num_graphs") and isinstance(value, int):
        return count
    if not isinstance(value, Tensor) or value.dim() == 0 or id(value) in prediction.beside:
        return value
    M, E = prediction.num_nodes, prediction.edge_index.shape[1]
    if value.shape[0] == E and (E != M or "edge" in name):
        return value[edge]
    if value.shape[0] == M:
        return value[node]
    return value.expand(count, *value.shape[1:]) if value.shape[0] == 1 else value
