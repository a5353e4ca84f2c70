"""What the explorer shows: a model, graphs, and their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn
from torch_geometric.data import Data, HeteroData

from walkwise.core.node_types import TypedNode
from walkwise.errors import InputError
from walkwise.rules import NAMES, RuleLike

if TYPE_CHECKING:
    from walkwise.runs.listing import Listing


@dataclass(frozen=True, eq=False)
class Session:
    """A model and the graphs that the explorer shows.

    Nodes are called by a graph's own ``symbols`` (atoms: the graph is drawn as a molecule) or ``tokens`` (words), or
    by ``node_names``, or else by number; in a heterogeneous graph by type and number, and each type has a shape. A
    graph's ``ground_truth`` (M,), where it has one, becomes a first group; so does each node type.

    Args:
        model: a model called as ``model(x, edge_index, ...)``; it is only read.
        graphs: at least one graph, each with x and edge_index; heterogeneous ones (HeteroData) with these by type.
        names: what the graphs are called; by default their numbers.
        rule: the LRP rule, as for :func:`walkwise.trace`.
        class_names: what the output columns are called; by default their numbers. Two for a model with one logit, the
            negative class first.
        node_names: what the columns of one-hot node features mean, as in ``GraphSet.node_names``. If all are chemical
            symbols, graphs are drawn as molecules.
        index: the explained row, for node-level models; of heterogeneous graphs, (type, i).
        listing: the table of a run over these graphs, which the page then shows; see :meth:`of_run`.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> graph = Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    >>> Session(GCN(2, 8, num_layers=2, out_channels=3), [graph], names=["path"], index=1).title(0)
    'path'
    """

    model: nn.Module
    graphs: Sequence[Data | HeteroData]
    names: Sequence[str] | None = None
    rule: RuleLike = "auto"
    class_names: Sequence[str] | None = None
    node_names: Sequence[str] | None = None
    index: int | TypedNode | None = None
    listing: Listing | None = None

    @classmethod
    def of_run(
        cls,
        folder: str | Path,
        model: nn.Module,
        graphs: Any,
        *,
        rule: RuleLike | None = None,
        featurise: Callable[[str], Data] | None = None,
    ) -> Session:
        """The session of a run: the page shows a table of its graphs, and each opens as the run explained it.

        Needs the extra ``runs``. Another model, or other graphs, are refused.

        Args:
            folder: of the run, finished or not.
            model: the model that it was made with.
            graphs: its graphs, as :func:`walkwise.runs.run` takes them.
            rule: its rule, where that has no name.
            featurise: what makes a graph of a SMILES string, where the run was given that.
        """
        from walkwise.runs import open_run
        from walkwise.runs.listing import Listing
        from walkwise.runs.manifest import check_origin
        from walkwise.runs.node_sources import nodes_of
        from walkwise.runs.sources import GraphsOf, as_source

        run, source = open_run(folder), as_source(graphs, featurise=featurise)
        listing = Listing(run, GraphsOf(source))
        known = run.manifest["rule"]
        if rule is None and known not in NAMES:
            raise InputError(
                f"The run's rule, {known}, has no name.", argument="rule", expected="the rule itself", remedy="Give it."
            )
        explained = listing.explained_nodes
        if explained is None:
            check_origin(run.manifest, model, source.fingerprint())
        else:
            check_origin(run.manifest, model, nodes_of(source, explained, 1).fingerprint() if run.complete else None)
        return cls(
            model,
            GraphsOf(source),
            names=[source.name(graph) for graph in range(len(source))],
            rule=known if rule is None else rule,
            class_names=tuple(run.manifest["class_names"]) or None,
            node_names=tuple(run.manifest["node_names"]) or None,
            index=None if explained is None else int(explained[0]),
            listing=listing,
        )

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
