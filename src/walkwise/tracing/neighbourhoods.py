"""Neighbourhoods: the part of a graph that the outputs of some nodes depend on, cut out of it.

A node's output depends only on nodes within as many steps as message passing takes, plus one if layers read the degrees
of the senders. The graph's edges are sorted once for this, and remembered as long as ``edge_index`` lives. For every
model and graph, a check makes sure that nothing else reaches in (a normalisation over all nodes, a virtual node): each
output is compared with that on the whole graph, on which the model runs once for each input and its weights.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, GINConv, GINEConv, GraphConv, SAGEConv

from walkwise.core.chain import Origin
from walkwise.core.edges import Adjacency, Edges, running_totals
from walkwise.core.lazy import cached_property
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.private import version_of
from walkwise.tracing.recording.tape import Tape
from walkwise.tracing.running.modules import Modules

#: Layers that read no degree of the nodes that send.
_WITHOUT_DEGREES = (GINConv, GINEConv, SAGEConv, GraphConv, GATConv, GATv2Conv)
#: Attributes of a graph with these names are as long as there are nodes or edges.
_COUNTS = {"num_nodes": 0, "num_edges": 1}


class BeyondError(Exception):
    """A node's output cannot be computed from its neighbourhood; the message, if any, is a note that says why."""


@dataclass(frozen=True)
class Reach:
    """How far a model looks from a node, and what it did when that was checked."""

    hops: int
    both_ways: bool = False  # along edges and against them
    rim: bool = False  # whether of the last step just the edges count, which make degrees
    seen: tuple[Any, ...] = ()
    outputs: Any = None  # of all nodes, that it was checked against


@dataclass(frozen=True, eq=False)
class GraphIndex:
    """The edges of a graph by their target nodes, and how far models look in it."""

    arriving: Adjacency
    reaches: weakref.WeakKeyDictionary[nn.Module, Reach | str] = field(default_factory=weakref.WeakKeyDictionary)

    @property
    def num_nodes(self) -> int:
        """M."""
        return len(self.arriving.offsets) - 1

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.arriving.edge)

    @cached_property
    def leaving(self) -> Adjacency:
        """The edges by the nodes they come from."""
        target = torch.repeat_interleave(self.arriving.offsets.diff())
        turned = Edges(target, self.arriving.target_row, self.num_nodes).arriving
        return replace(turned, edge=self.arriving.edge[turned.edge])

    def cut(self, centres: Sequence[int], reach: Reach, most: int | None = None) -> Neighbourhoods | None:
        """The neighbourhoods of some nodes, kept separate; None if they have more than this many rows."""
        M, E, device = self.num_nodes, self.num_edges, self.arriving.offsets.device
        begun = torch.arange(len(centres), device=device) * M + torch.tensor(list(centres), device=device)
        keys = last = begun  # centre · M + node
        edges = [begun[:0]]  # centre · E + edge
        for hop in range(reach.hops):
            found = []
            for way in (self.arriving, self.leaving) if reach.both_ways else (self.arriving,):
                row, at = _spans(way, last % M)
                centre = (last // M)[row]
                edges.append(centre * E + way.edge[at])
                found.append(centre * M + way.target_row[at])
            reached = torch.unique(torch.cat(found))
            last = reached[~_among(reached, keys)]
            if reach.rim and hop == reach.hops - 1:  # one node stands for all
                last = last[torch.searchsorted(last // M, torch.unique(last // M))]
            keys = torch.cat([keys, last]).sort().values
            if most is not None and len(keys) > most:
                return None
        return self._apart(keys, torch.unique(torch.cat(edges)), begun, last if reach.rim else None)

    def examples(self) -> list[int]:
        """Some nodes with incoming edges, from all over the graph."""
        places = [self.num_edges * part // 4 for part in (1, 2, 3)] if self.num_edges > 3 else []
        return [int(self._ends[1, place]) for place in places]

    def _apart(self, keys: Tensor, edges: Tensor, begun: Tensor, rim: Tensor | None) -> Neighbourhoods:
        """The nodes and edges of every neighbourhood, with rows of their own.

        Args:
            keys: centre · M + node, ascending.
            edges: centre · E + edge, ascending.
            begun: the keys of the centres.
            rim: the keys of the nodes that stand for all senders outside the others.
        """
        M, E = self.num_nodes, self.num_edges
        ends = self._ends[:, edges % E] + (edges // E) * M
        if rim is not None and len(rim):
            standing = rim[torch.searchsorted(rim // M, ends[0] // M).clamp_(max=len(rim) - 1)]
            ends[0] = torch.where(_among(ends[0], keys), ends[0], standing)
        origin = Origin(keys % M, keys // M, edges % E)
        return Neighbourhoods(origin, torch.searchsorted(keys, ends), torch.searchsorted(keys, begun).tolist(), M, E)

    @cached_property
    def _ends(self) -> Tensor:
        """The edges in the order of the graph.  # (2, E)"""
        ends = torch.empty(2, self.num_edges, dtype=torch.long, device=self.arriving.edge.device)
        ends[0, self.arriving.edge] = self.arriving.target_row
        ends[1, self.arriving.edge] = torch.repeat_interleave(self.arriving.offsets.diff())
        return ends


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Several neighbourhoods, each with its own rows."""

    origin: Origin
    edge_index: Tensor  # (2, E') between rows
    centres: list[int]  # the rows of the nodes they surround
    num_nodes: int  # of the graph
    num_edges: int

    def of(self, given: Given) -> Given:
        """The model's arguments for the neighbourhoods, from its arguments for the graph."""
        arguments = {name: self._part(given, name, value) for name, value in given.arguments.items()}
        return replace(given, x=self._rows(given.x), edge_index=self.edge_index, arguments=arguments, cut=True)

    def _rows(self, values: Tensor) -> Tensor:
        return values.index_select(0, self.origin.nodes)

    def _part(self, given: Given, name: str, value: Any) -> Any:
        """An argument of the model; if it has a row for every node or edge, only their rows."""
        if name in _COUNTS:
            return len(self.origin.nodes) if name == "num_nodes" else len(self.origin.edges)
        if not isinstance(value, Tensor) or value.dim() == 0:
            return value
        rows = given.rows_of(name, value)
        if rows is not None:
            return self._rows(value) if rows == "nodes" else value.index_select(0, self.origin.edges)
        if value.is_floating_point() and value.layout == torch.strided:
            return value
        raise BeyondError("")  # perhaps it names nodes, such as those of pairs


def kept_index(edge_index: Tensor, num_nodes: int) -> GraphIndex | None:
    """The index of a graph, if there is one and nobody has written into its ``edge_index`` since."""
    if edge_index.is_inference():  # torch does not count writes into it
        return None
    tensor, version, index = _INDEXES.get(id(edge_index), (None, 0, None))
    same = tensor is not None and tensor() is edge_index and version == version_of(edge_index)
    return index if same and index is not None and index.num_nodes == num_nodes else None


def graph_index(edge_index: Tensor, num_nodes: int) -> GraphIndex:
    """The index of a graph, which is kept as long as its ``edge_index`` lives."""
    index = kept_index(edge_index, num_nodes)
    if index is None:
        key = id(edge_index)
        index = GraphIndex(Edges(edge_index[0], edge_index[1], num_nodes).arriving)
        _INDEXES[key] = weakref.ref(edge_index, lambda _: _INDEXES.pop(key, None)), version_of(edge_index), index
    return index


#: By the identity of an edge_index: the tensor itself, weakly, how often it was written into, and its index.
_INDEXES: dict[int, tuple[weakref.ref[Tensor], int, GraphIndex]] = {}


def reads_degrees(modules: Modules) -> bool:
    """Whether layers perhaps read the degrees of the nodes that send."""
    return not all(type(conv) in _WITHOUT_DEGREES for _, conv in modules.convs)


def hops_of(tape: Tape, output: int | None) -> int:
    """How many steps away an output's last contribution can lie: the longest way through message passing."""
    if tape.cut or tape.hidden or output is None:  # perhaps they went on out of sight
        return sum(max(1, call.propagates) for call in tape.calls)
    hops = dict.fromkeys(range(len(tape.values)), 0)
    begun: dict[int, int] = {}
    for op in tape.ops:
        far = max((hops[slot] for slot in op.inputs), default=0)
        if op.call is not None:
            call = tape.calls[op.call]
            before = begun.setdefault(op.call, far)
            if not call.closed:
                far = max(far, before + max(1, call.propagates))
        if op.terms:
            far = max(hops[slot] + (1 if operator.reach is None else operator.reach) for slot, operator in op.terms)
        hops.update({slot: far for slot in op.outputs if slot is not None})
    return hops[output]


def what_ran(tape: Tape) -> tuple[Any, ...]:
    """A summary of what a model did, to compare with another run."""
    return tuple((op.word.name, op.call) for op in tape.ops)


def sends_backward(modules: Modules) -> bool:
    """Whether a layer sends messages against its edges."""
    return any(getattr(conv, "flow", "") != "source_to_target" for _, conv in modules.convs)


def _spans(way: Adjacency, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of some nodes in one list: the node and the place of each.  # (K,) -> (P,), (P,)"""
    first = way.offsets[nodes]
    counts = way.offsets[nodes + 1] - first
    row = torch.repeat_interleave(counts)
    return row, torch.arange(len(row), device=row.device) + (first - running_totals(counts)[:-1])[row]


def _among(some: Tensor, keys: Tensor) -> Tensor:
    """Which of some numbers are among others, which are sorted."""
    at = torch.searchsorted(keys, some).clamp_(max=len(keys) - 1)
    return keys[at] == some
