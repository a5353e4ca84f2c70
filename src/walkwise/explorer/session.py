"""What the explorer shows: a model, graphs, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn
from torch_geometric.data import Data

from walkwise.errors import InputError
from walkwise.rules import RuleLike


@dataclass(frozen=True, eq=False)
class Session:
    """A model and the graphs that the explorer shows.

    Nodes are called by a graph's own ``symbols`` (atoms: the graph is drawn as a molecule) or ``tokens`` (words), or
    by ``node_names``, or else by number. A graph's ``ground_truth`` (M,), where it has one, becomes a first group.

    Args:
        model: a model called as ``model(x, edge_index, ...)``; it is only read.
        graphs: at least one graph, each with x and edge_index.
        names: what the graphs are called; by default their numbers.
        rule: the LRP rule, as for :func:`walkwise.trace`.
        class_names: what the output columns are called; by default their numbers. Two for a model with one logit, the
            negative class first.
        node_names: what the columns of one-hot node features mean, as in ``GraphSet.node_names``. If all are chemical
            symbols, graphs are drawn as molecules.
        index: the explained row, for node-level models.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> graph = Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> Session(GCN(2, 8, num_layers=2, out_channels=3), [graph], names=["path"], index=1).title(0)
    'path'
    """

    model: nn.Module
    graphs: Sequence[Data]
    names: Sequence[str] | None = None
    rule: RuleLike = "auto"
    class_names: Sequence[str] | None = None
    node_names: Sequence[str] | None = None
    index: int | None = None

    def __post_init__(self) -> None:
        if not len(self.graphs):
            raise InputError(
                "The explorer needs at least one graph, got none.", argument="graphs", expected="at least one graph"
            )
        if self.names is not None and len(self.names) != len(self.graphs):
            raise InputError(
                f"names has {len(self.names)} entries for {len(self.graphs)} graphs: give one for each.",
                argument="names",
                expected=f"a name for each of {len(self.graphs)} graphs",
                got=len(self.names),
            )

    def title(self, graph: int) -> str:
        """What a graph is called."""
        return f"graph {graph}" if self.names is None else str(self.names[graph])

    def classes(self, columns: int) -> tuple[str, ...]:
        """What the classes are called: one per output column, or two that share one logit."""
        names = tuple(map(str, self.class_names or ()))
        if columns == 1 and len(names) == 2:
            return names
        return tuple(names[column] if column < len(names) else f"class {column}" for column in range(columns))
