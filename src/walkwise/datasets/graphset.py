"""A data set in memory: its graphs end to end in a few tensors, its split and its names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import torch
from torch import Tensor
from torch_geometric.data import Data

from walkwise.errors import Described, InputError, described


@dataclass(frozen=True)
class Graphs(Sequence[Data]):
    """Many graphs in a few tensors; reads as a sequence of PyG's `Data`, and makes mini-batches without a loop.

    Args:
        x: node features of all graphs, one graph after the other: (ΣM, F).
        edge_index: edges, numbered through all graphs and in the graphs' order: (2, ΣE).
        y: labels: (G,).
        nodes_before: where each graph's nodes begin, and the end of all: (G + 1,).
        edges_before: the same for edges: (G + 1,).
        node_data: further attributes with a row per node, such as `ground_truth`.
        edge_data: further attributes with a row per edge.
        graph_data: further attributes with an entry per graph, such as `tokens`.

    >>> cycle = Data(torch.ones(3, 1), torch.tensor([[0, 1, 2], [1, 2, 0]]), y=0)
    >>> graphs = pack([cycle, cycle])
    >>> len(graphs), graphs[1]
    (2, Data(x=[3, 1], edge_index=[2, 3], y=[1]))
    >>> graphs.batch(torch.tensor([1, 0])).batch
    tensor([0, 0, 0, 1, 1, 1])
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    nodes_before: Tensor
    edges_before: Tensor
    node_data: Mapping[str, Tensor] = field(default_factory=dict)
    edge_data: Mapping[str, Tensor] = field(default_factory=dict)
    graph_data: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    @overload
    def __getitem__(self, index: int) -> Data: ...

    @overload
    def __getitem__(self, index: slice) -> list[Data]: ...

    def __getitem__(self, index: int | slice) -> Data | list[Data]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are {len(self)} graphs; there is no graph {index}.")
        g = int(index) % len(self)
        first, last = self.nodes_before[g : g + 2].tolist()
        edges = slice(*self.edges_before[g : g + 2].tolist())
        data = Data(self.x[first:last].clone(), self.edge_index[:, edges] - first, y=self.y[g : g + 1])
        for name, rows in self.node_data.items():
            data[name] = rows[first:last].clone()
        for name, rows in self.edge_data.items():
            data[name] = rows[edges].clone()
        for name, entries in self.graph_data.items():
            data[name] = entries[g]
        return data

    def __iter__(self) -> Iterator[Data]:
        return (self[g] for g in range(len(self)))

    def batch(self, index: Tensor) -> Data:
        """The graphs of these numbers as one graph, with `batch` (node → graph) and `y`.

        Args:
            index: numbers of graphs: (B,).
        """
        if not isinstance(index, Tensor) or index.dim() != 1 or index.dtype != torch.long:
            expected = "numbers of graphs, a torch.int64 tensor of shape (B,)"
            raise InputError(argument="index", expected=expected, got=described(index))
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < len(self):
            ends = [int(index.min()), int(index.max())]
            raise InputError(argument="index", expected=f"numbers of graphs from 0 to {len(self) - 1}", got=ends)
        nodes, sizes = _rows(self.nodes_before, index)
        edges, edge_counts = _rows(self.edges_before, index)
        shift = self.nodes_before[index] - (sizes.cumsum(0) - sizes)  # (B,) from numbers of all to numbers here
        edge_index = self.edge_index[:, edges] - shift.repeat_interleave(edge_counts)
        owner = torch.arange(len(index)).repeat_interleave(sizes)
        return Data(self.x[nodes], edge_index, y=self.y[index], batch=owner)


def _rows(before: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that belong to these graphs, in their order, and how many each has: (R,), (B,)."""
    sizes = before[index + 1] - before[index]
    shift = before[index] - (sizes.cumsum(0) - sizes)
    return torch.arange(int(sizes.sum())) + shift.repeat_interleave(sizes), sizes


def pack(graphs: Sequence[Data]) -> Graphs:
    """The same graphs end to end, with those of their tensors that have a row per node or per edge.

    Args:
        graphs: at least one graph, each with x, edge_index, one label y, and the attributes of the first.
    """
    if isinstance(graphs, Graphs):
        return graphs
    graphs = _checked(graphs)
    before = offsets(torch.tensor([data.num_nodes for data in graphs]))
    edges_before = offsets(torch.tensor([data.num_edges for data in graphs]))
    edges = [data["edge_index"] + start for data, start in zip(graphs, before, strict=False)]
    y = torch.cat([torch.as_tensor(data.y).reshape(1) for data in graphs])
    first = graphs[0]
    node_names = [n for n in first.node_attrs() if n not in ("y", "batch") and isinstance(first[n], Tensor)]
    edge_names = [n for n in first.edge_attrs() if n not in ("y", "edge_index") and isinstance(first[n], Tensor)]
    node_data, edge_data = (
        {name: torch.cat([data[name] for data in graphs]) for name in names} for names in (node_names, edge_names)
    )
    return Graphs(node_data.pop("x"), torch.cat(edges, dim=1), y, before, edges_before, node_data, edge_data)


def _checked(graphs: Any) -> list[Data]:
    """The graphs, if all have what the first has: x and edge_index, one label, and tensors of one width."""
    wanted = "a list of torch_geometric Data objects with x, edge_index and one label y"
    listed = list(graphs) if isinstance(graphs, Iterable) and not isinstance(graphs, str | Data | Tensor) else [graphs]
    if not listed:
        raise InputError(argument="graphs", expected="at least one graph", got=Described("none"))
    for place, data in enumerate(listed):
        if not isinstance(data, Data) or not isinstance(data.x, Tensor) or not isinstance(data.edge_index, Tensor):
            got = Described(f"{data if isinstance(data, Data) else described(data)} as graph {place}")
            raise InputError(argument="graphs", expected=wanted, got=got)
        if data.y is None or torch.as_tensor(data.y).numel() != 1:
            raise InputError(argument="graphs", expected=wanted, got=Described(f"y={data.y} of graph {place}"))
        if data.x.dim() != 2 or data.x.shape[1:] != listed[0].x.shape[1:]:
            expected = f"graphs with the same features, as x {tuple(listed[0].x.shape)} of graph 0"
            got = Described(f"x {tuple(data.x.shape)} of graph {place}")
            raise InputError(argument="graphs", expected=expected, got=got)
    return listed


def offsets(counts: Tensor) -> Tensor:
    """Where each of consecutive runs begins, and where the last ends: (G + 1,)."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


@dataclass(frozen=True)
class Statistics:
    """The statistics of the paper's table 4, and how many graphs each class has."""

    graphs: int
    nodes: float
    edges: float
    classes: tuple[int, ...]


@dataclass(frozen=True)
class GraphSet:
    """A data set: graphs, the paper's split, and the names of node kinds and classes.

    Args:
        name: the set's name; a copy that is not the published one says so here.
        graphs: the graphs.
        train: numbers of the graphs to train on: (T,).
        val: numbers of the graphs that decide when to stop; the paper counts them among the training graphs: (V,).
        test: numbers of the paper's test graphs: (U,).
        class_names: the meaning of the labels 0, 1, ….
        node_names: the meaning of the columns of one-hot features, or None.
        remarks: what a reader of results should know about these data.
    """

    name: str
    graphs: Graphs
    train: Tensor
    val: Tensor
    test: Tensor
    class_names: tuple[str, ...]
    node_names: tuple[str, ...] | None = None
    remarks: str = ""

    def __repr__(self) -> str:
        split = f"{len(self.train)} train, {len(self.val)} val, {len(self.test)} test"
        return f"GraphSet({self.name}: {len(self.graphs)} graphs, {split})"

    def statistics(self) -> Statistics:
        """Number of graphs, mean numbers of nodes and of undirected edges, graphs per class; self-loops do not count.

        >>> from walkwise import datasets
        >>> datasets.load("ba2motif-generated").statistics()
        Statistics(graphs=1000, nodes=25.0, edges=25.5, classes=(500, 500))
        """
        count = len(self.graphs)
        straight = int((self.graphs.edge_index[0] != self.graphs.edge_index[1]).sum())
        classes = self.graphs.y.bincount(minlength=len(self.class_names)).tolist()
        return Statistics(count, len(self.graphs.x) / count, straight / 2 / count, tuple(classes))
