"""A model's arguments: x, edge_index and everything else that the caller gave, as its ``forward`` takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import HypergraphConv, MessagePassing

from walkwise.core.lazy import cached_property
from walkwise.core.node_types import NodeTypes
from walkwise.errors import WalkwiseError
from walkwise.tracing.given.holders import again, in_main_memory
from walkwise.tracing.given.inputs import check_edges, check_given
from walkwise.tracing.given.manners import NOT_TAKEN, Manner
from walkwise.tracing.given.misfits import (
    explain_batch,
    explain_edges,
    explain_kinds,
    explain_precision,
    explain_types,
    refuse_call,
    taken_alone,
)
from walkwise.tracing.given.objects import refuse_whole
from walkwise.tracing.given.second import graphs_beside
from walkwise.tracing.given.signatures import signature_of
from walkwise.tracing.private import EDGE_MASK
from walkwise.tracing.running.found import Found, ends_of, is_edges, joins

#: Attributes of a graph that most models read.
READ = ("edge_attr", "edge_weight", "pos", "batch")
_BESIDE = (
    "{0} is a second graph, not the explained one: its features, and what the model computes from them, count as "
    "constant; to explain it, pass it first and give the other graph by name"
)
_TAKEN = (
    "several dimensions of x have as many entries as there are nodes; number {} is taken for that of the nodes, and "
    "sums along it for layers"
)
_STANDS_IN = (
    "the graph has no {0}, which forward takes first, so the model got x instead; if x is something else, set data.{0}"
)
_MASKED = (
    "an explainer has left edge masks on the model's layers, and these weight the messages; "
    "torch_geometric.explain.algorithm.utils.clear_masks(model) removes them"
)


@dataclass(frozen=True, eq=False)
class Given:
    """One input of a model."""

    model: nn.Module  # whose forward says what it takes
    x: Any  # the features (M, F), or what stands in their place; None of a model that has its own
    edge_index: Any
    arguments: dict[str, Any] = field(default_factory=dict)  # what else the model gets
    manner: Manner = field(default_factory=Manner)
    instead: tuple[Manner, ...] = ()  # what to try, one after the other, if the model does not take that
    data: Any = None  # the graph that all this was taken from
    node_dim: int = 0  # which dimension of x runs over nodes where the model takes it: of (T, M, F), the second
    here: bool = False  # whether it was brought into main memory, where the model is not
    layers: tuple[Found, ...] = ()  # that were found in a model without message-passing modules
    own_code: bool = False  # whether none were found, so that sums in the model's own code count as layers
    cut: bool = False  # whether this is a part of the graph that was given
    missed: str | None = None  # what the model takes and the graph does not have, for which it gets x

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader of a chain."""
        missed = () if self.missed is None else (_STANDS_IN.format(self.missed),)
        several = self.own_code and self.node_dim and self.x.shape.count(self.num_nodes) > 1
        taken = (_TAKEN.format(self.node_dim + 1),) if several else ()
        return (*missed, *taken, *self.manner.notes, *map(_BESIDE.format, self.others))

    @cached_property
    def others(self) -> dict[str, list[Tensor]]:
        """The tensors of graphs other than the explained one, by their names."""
        return graphs_beside(self.arguments, self.x, self.edge_index, self.num_nodes)

    @property
    def outside(self) -> list[Tensor]:
        """The tensors of those graphs."""
        return [tensor for tensors in self.others.values() for tensor in tensors]

    @property
    def masked(self) -> tuple[str, ...]:
        """A note on a model on which an explainer has left its masks."""
        layers = (module for module in self.model.modules() if isinstance(module, MessagePassing))
        return (_MASKED,) if any(getattr(layer, EDGE_MASK, None) is not None for layer in layers) else ()

    @property
    def types(self) -> NodeTypes | None:
        """The node types of a heterogeneous graph."""
        return None

    @property
    def may_be_matrices(self) -> bool:
        """Whether x is perhaps several matrices on one static graph, (T, M, F), and not read as such yet."""
        return not self.node_dim and isinstance(self.x, Tensor) and self.x.is_floating_point() and self.x.dim() == 3

    @property
    def features(self) -> dict[str, Tensor]:
        """The features that relevance is traced to, by name."""
        return {"x": self.x} if isinstance(self.x, Tensor) and self.x.is_floating_point() else {}

    @property
    def has_all_features(self) -> bool:
        """Whether every node has features that relevance is traced to."""
        return sum(map(len, self.features.values())) >= self.num_nodes

    @property
    def num_nodes(self) -> int:
        """M, the nodes of the graph."""
        return self.x.shape[0] if self.x is not None else int((self.data and self.data.num_nodes) or 0)

    @cached_property
    def ends(self) -> Tensor | None:
        """Source and target of every edge, if these are known by their nodes.  # (2, E)"""
        return ends_of(self.edge_index) if joins(self.edge_index, self.num_nodes) else None

    @property
    def num_graphs(self) -> int:
        """G, the graphs of a batch."""
        if (graphs := graphs_of(self.data)) is not None:
            return graphs
        batch = self.arguments.get("batch", getattr(self.data, "batch", None))
        return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1

    def check(self) -> None:
        """Refuse anything that is not a graph."""
        check_given(self)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that the model computes with, by name; for a graph taken whole, those that most models read."""
        read = (
            self.arguments
            if self.manner.whole is None
            else {n: v for n, v in self.arguments.items() if n in self.manner.beside or n in READ}
        )
        named = {"x": self.x, "edge_index": self.edge_index} | read
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}

    def rows_of(self, name: str, value: Any) -> Literal["nodes", "edges"] | None:
        """What an argument has a row for each of, if anything; its name decides where there are as many of both."""
        if not isinstance(value, Tensor) or value.layout != torch.strided or not value.dim():
            return None
        M, E = self.num_nodes, self.edge_index.shape[1] if is_edges(self.edge_index) else None
        if len(value) == E and (M != E or name.startswith("edge")):
            return "edges"
        return "nodes" if len(value) == M else None

    @property
    def has_as_many_edges(self) -> bool:
        """Whether there are as many edges as nodes, so that a number of rows does not tell which they are."""
        return is_edges(self.edge_index) and self.edge_index.shape[1] == self.num_nodes

    def numbers(self) -> list[Tensor]:
        """Whole numbers, a row for every node, that the model computes with: atomic numbers, say."""
        named = {
            n: t for n, t in ({"x": self.x} | self.arguments).items() if n not in ("batch", "ptr") and n[:4] != "edge"
        }
        whole = [t for t in named.values() if isinstance(t, Tensor) and t.dtype == torch.long]
        return [t for t in whole if t.shape[:1] == (self.num_nodes,)]

    def copied(self, dtype: torch.dtype | None = None) -> Given:
        """A copy of the input for one run, since a model may write into it; half precision becomes another type."""
        x = self.x if self.x is None else again(self.x.detach(), dtype)
        x = x.clone() if x is not None and x.data_ptr() == self.x.data_ptr() else x
        arguments = {name: x if value is self.x else again(value, dtype) for name, value in self.arguments.items()}
        edges = self.edge_index
        dense = (
            isinstance(edges, Tensor) and edges.layout == torch.strided and edges.is_floating_point()
        )  # an adjacency
        return replace(self, x=x, edge_index=again(edges, dtype) if dense else edges, arguments=arguments)

    def in_main_memory(self) -> Given:
        """The same input in main memory, wherever the model is."""
        made: dict[int, Any] = {}  # an object in several places stays one object
        whole: Any = in_main_memory(self.manner.whole, made)
        x, edge_index, arguments = (in_main_memory(part, made) for part in (self.x, self.edge_index, self.arguments))
        manner = replace(self.manner, whole=whole)
        return replace(self, x=x, edge_index=edge_index, arguments=arguments, manner=manner, here=True)

    def taken(self, run: Callable[[Given], Any]) -> tuple[Given, Any]:
        """The input in the first manner that ``run`` succeeds with, and the result.

        Each manner is tried by itself. If all fail, the first error is raised.
        """
        wrong: Exception | None = None
        for manner in (self.manner, *self.instead):
            way = replace(self, manner=manner, instead=())
            try:
                return way, run(way)
            except NOT_TAKEN as error:
                wrong = wrong or error
        assert wrong is not None
        raise wrong

    @property
    def count(self) -> int | None:
        """How many nodes the caller has said there are."""
        said = self.data["num_nodes"] if isinstance(self.data, Data) and "num_nodes" in self.data else None
        return said if isinstance(said, int) else None

    def turned(self, node_dim: int = 1) -> Given:
        """The same input, with x read as several matrices on one static graph, whose nodes lie along a dimension."""
        return replace(self, x=self.x.movedim(node_dim, 0), node_dim=node_dim)

    def run(self, model: nn.Module) -> Any:
        """Run the model or its shadow. If the call does not fit its ``forward``, the error explains why."""
        x = self.x.movedim(0, self.node_dim) if self.node_dim else self.x
        try:
            return self.manner.call(model, x, self.edge_index, self.arguments)
        except WalkwiseError:
            raise
        except (*NOT_TAKEN, RuntimeError) as error:
            self._explain(error)
            raise

    def _explain(self, error: Exception) -> None:
        """Raise an error that says which argument the model does not take, and why, if that can be told."""
        alone = self.data is None and self.manner == Manner(self.manner.x, None, False)
        if alone and isinstance(error, NOT_TAKEN):
            raise taken_alone(self.model, self.manner.x, error) from error
        misfit = isinstance(error, TypeError)  # perhaps of the call as a whole
        if misfit:
            self._check_call()
        refuse_whole(error, self.model, self.manner.whole)
        explain_kinds(error, self.edge_index, self.arguments)
        if not misfit:
            explain_batch(error, self.arguments, self.num_nodes)
            explain_edges(error, self.edge_index, self.arguments)
            explain_precision(error, self.model, self.tensors())
        explain_types(error, self.tensors(), self.missed)
        if not misfit:
            self._check_ends()

    def _check_ends(self) -> None:
        """Refuse bad edges that were let through as possible hyperedges of a custom layer."""
        if self.types is None and not any(isinstance(module, HypergraphConv) for module in self.model.modules()):
            check_edges(self.edge_index, self.num_nodes)

    def _check_call(self) -> None:
        """Raise an error about the call, if the call is wrong and not the model."""
        signature = signature_of(self.model)
        if signature is None:
            return
        try:
            self.manner.call(signature.bind, self.x, self.edge_index, self.arguments)  # type: ignore[arg-type]
        except TypeError as error:
            whole = self.manner.whole is not None
            names = ["the graph", *sorted(self.manner.beside)] if whole else ["x", "edge_index", *self.arguments]
            refuse_call(self.model, signature, ", ".join(names), str(error))


def graphs_of(data: Any) -> int | None:
    """How many graphs a Batch holds, or None if it is not a Batch."""
    return int(data.num_graphs) if isinstance(data, Batch) else None
