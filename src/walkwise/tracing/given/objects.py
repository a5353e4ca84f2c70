"""Graphs in the caller's own form: a tuple, a dictionary or an object, which a model takes as one argument."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

from walkwise.errors import Described, InputError, described
from walkwise.tracing.given.holders import EDGES
from walkwise.tracing.given.manners import Manner
from walkwise.tracing.given.signatures import parameters_of, signature_of, written
from walkwise.tracing.running.found import is_edges
from walkwise.tracing.running.places import parts_of, with_parts

_FIRST = "the model takes a {0}, in which part {1} is taken for the node features; {2} ({3}) counts as constant"


@dataclass(frozen=True)
class InObject(Manner):
    """A ``forward(inputs)``: it gets a tuple, a dictionary or an object like the one that was given."""

    passed: tuple[str, ...] = ()  # parts that might be the features as well as those that were taken for them

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken for the features, where it cannot be told."""
        parts = parts_of(self.whole) or {}
        shapes = {str(name): tuple(getattr(part, "shape", ())) for name, part in parts.items()}
        return tuple(_FIRST.format(type(self.whole).__name__, self.x, name, shapes[name]) for name in self.passed)

    def _graph(self, x: Any, edge_index: Any, arguments: Mapping[str, Any]) -> Any:
        held = {self.x: x, self.edges: edge_index} | dict(arguments)
        parts = parts_of(self.whole) or {}
        return with_parts(self.whole, {name: held.get(str(name), part) for name, part in parts.items()})


def taken_apart(
    model: nn.Module, graph: Any, given: Mapping[str, Any]
) -> tuple[Any, Any, dict[str, Any], Manner] | None:
    """x, edge_index and the rest of an object that a model takes as it is, and how; None for anything else.

    Its features and edges are known by their names, x and edge_index (or adj_t), or by being the only ones; the
    features of a tuple are the first that may be them.
    """
    parts = None if isinstance(graph, (Tensor, BaseData)) else parts_of(graph)
    if not parts or not _takes_one(model, given) or not any(isinstance(part, Tensor) for part in parts.values()):
        return None
    edges = next((n for n in EDGES if n in parts), None) or _only(
        [n for n, p in parts.items() if is_edges(p) or is_sparse(p)]
    )
    in_order = isinstance(graph, (list, tuple)) and not hasattr(graph, "_fields")
    others = {n: p for n, p in parts.items() if n != edges and isinstance(p, Tensor)}
    matrices = {n: p for n, p in others.items() if p.is_floating_point() and p.dim() > 1}
    features = _of_nodes(matrices, parts.get(edges)) or list(matrices) or (in_order and list(others))
    x = "x" if "x" in parts else None if not features else features[0] if in_order else _only(features)
    if edges is None and isinstance(graph, dict) and all(_is_matrix(part) for part in parts.values()):
        return None  # features by type
    if edges is None or x is None:
        raise _untold(model, graph, parts)
    rest = {str(name): part for name, part in parts.items() if name not in (x, edges)} | dict(given)
    passed = (
        [n for n in features or () if n != x and x in matrices and len(parts[n]) == len(parts[x])] if in_order else []
    )
    manner = InObject(str(x), str(edges), False, graph, frozenset(given), passed=tuple(map(str, passed)))
    return parts[x], parts[edges], rest, manner


def _of_nodes(matrices: Mapping[Any, Tensor], edges: Any) -> list[Any]:
    """The matrices that may have a row for each node: as many as edges name, and not a row for each edge."""
    if not isinstance(edges, Tensor) or edges.dtype != torch.long or not edges.numel():
        return []
    named, per_edge = int(edges.max()) + 1, edges.shape[1]
    return [n for n, p in matrices.items() if len(p) == named or (len(p) > named and len(p) != per_edge)]


def unpacks(model: nn.Module) -> int | None:
    """Into how many parts a ``forward(inputs)`` unpacks its argument (``x, edge_index = inputs``), if it does."""
    forward = getattr(getattr(model, "forward", None), "__func__", None)
    names = [parameter.name for parameter in parameters_of(model)]
    if type(forward) is not FunctionType or not names:
        return None
    steps = list(dis.get_instructions(forward))
    for step, following in pairwise(steps):
        if following.opname == "UNPACK_SEQUENCE" and step.opname.startswith("LOAD_FAST") and step.argval == names[0]:
            return following.argval if isinstance(following.argval, int) else None
    return None


def refuse_whole(error: Exception, model: nn.Module, graph: Any) -> None:
    """Say that a model takes a tuple if it was given a graph."""
    signature, count = signature_of(model), unpacks(model)
    if signature is None or count is None or not isinstance(graph, BaseData):
        return
    name, more = parameters_of(model)[0].name, "" if count == 2 else ", ..."
    raise InputError(
        f"{type(model).__name__}.forward{written(signature)} unpacks {name} into {count} parts, but a "
        f"{type(graph).__name__} does not consist of as many ({error}).",
        argument="x",
        expected=f"a tuple of {count}, for this model",
        got=described(graph),
        remedy=f"Write ww.trace(model, (data.x, data.edge_index{more})).",
    ) from error


def _takes_one(model: nn.Module, given: Mapping[str, Any]) -> bool:
    """Whether a ``forward`` takes one object beside what is given by name."""
    left = [p for p in parameters_of(model) if p.name not in given]
    return bool(left) and left[0].name not in ("x", *EDGES) and all(p.default is not p.empty for p in left[1:])


def _untold(model: nn.Module, graph: Any, parts: Mapping[Any, Any]) -> InputError:
    """The error for an object whose features and edges cannot be identified."""
    has = ", ".join(map(str, parts))
    return InputError(
        f"Cannot tell which parts of this {type(graph).__name__} are the features and the edges; it has {has}.",
        argument="x",
        expected="an object with one x and one edge_index",
        got=Described(f"{type(graph).__name__} of {has}"),
        remedy="Call them x and edge_index there, or write ww.trace(model, Data(x=..., edge_index=...)); "
        'the model can read the parts of a Data as in a dictionary, data["x"], or as in an object, data.x.',
    )


def _only(names: list[Any]) -> Any:
    return names[0] if len(names) == 1 else None


def _is_matrix(part: Any) -> bool:
    return isinstance(part, Tensor) and part.is_floating_point()
