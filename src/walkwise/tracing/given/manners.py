"""How a model's ``forward`` takes a graph."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch_geometric.data import Batch
from torch_geometric.data.data import BaseData

from walkwise.tracing.given.outside import run_on
from walkwise.tracing.running.places import renewed

#: Errors of a model that gets its graph in a form it does not take; a layer handed a graph for edges misses packages.
NOT_TAKEN = (TypeError, ValueError, AttributeError, LookupError, AssertionError, ImportError)


@dataclass(frozen=True)
class Manner:
    """How a model's ``forward`` takes a graph: in order (x, edge_index), by name, or whole, as one object."""

    x: str | None = None  # the parameters of these names take the features and the edges ...
    edges: str | None = None
    ordered: bool = True  # ... or the first two do
    whole: BaseData | None = None  # the graph of which the object is a copy
    beside: frozenset[str] = frozenset()  # what the model gets beside the object
    only: frozenset[str] | None = None  # of what else is given, what the model gets
    name: str | None = None  # the object's, where it is given by name
    outside: bool = False  # whether the model takes nothing, and reads the object from a variable

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of a chain should know of it."""
        return ()

    def call(self, model: nn.Module, x: Any, edge_index: Any, arguments: Mapping[str, Any]) -> Any:
        """Run the model. Containers of tensors (another graph, a list) are copied, since the model may change them."""
        arguments = renewed(dict(arguments), lambda tensor: tensor)
        if self.whole is not None:
            graph = self._graph(x, edge_index, arguments)
            if self.outside:
                return run_on(model, self.whole, graph)
            beside = {name: value for name, value in arguments.items() if name in self.beside}
            return model(graph, **beside) if self.name is None else model(**{self.name: graph}, **beside)
        if self.only is not None:
            arguments = {name: value for name, value in arguments.items() if name in self.only}
        if self.ordered:
            return model(x, edge_index, **arguments)
        named = {self.x: x, self.edges: edge_index} | dict(arguments)
        return model(**{name: value for name, value in named.items() if name is not None})

    def _graph(self, x: Any, edge_index: Any, arguments: Mapping[str, Any]) -> Any:
        """The object passed to the model, with these features and edges in it."""
        assert self.whole is not None
        same = "batch" not in arguments or arguments["batch"] is getattr(self.whole, "batch", None)
        graph: Any = copy.copy(self.whole) if same else Batch()  # other nodes, and perhaps other graphs
        held = {self.x: x, self.edges: edge_index} | dict(arguments)
        for name, value in held.items():
            if name is not None and name not in self.beside:
                graph[name] = value
        return graph
