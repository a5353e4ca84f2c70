"""The graphs of a batch, whose nodes may be consecutive in a chain or mixed: which node belongs to which graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from walkwise.core.chain import RelevanceChain
from walkwise.errors import InputError, SeveralGraphsWarning, described
from walkwise.questions.neighbours import Floats, Ints, Neighbours, running_totals, step_neighbours


@dataclass(frozen=True, eq=False)
class PaddedGraphs:
    """Graphs side by side, each padded to W places: node m stands at ``place[m]`` of G · W places."""

    sizes: Ints  # (G,)
    width: int  # W, the size of the largest graph
    place: Ints  # (M,)
    node: Ints  # (G · W,) the node at each place, -1 where there is none

    @staticmethod
    def alone(num_nodes: int) -> PaddedGraphs:
        """One graph."""
        nodes = np.arange(num_nodes)
        return PaddedGraphs(np.array([num_nodes]), num_nodes, nodes, nodes)

    @staticmethod
    def of(graph: Ints) -> PaddedGraphs:
        """The graphs of nodes that say which is theirs.  # (M,)"""
        sizes = np.bincount(graph, minlength=1)
        width = int(sizes.max())
        by_graph = np.argsort(graph, kind="stable")
        within = np.arange(len(graph)) - running_totals(sizes)[:-1].repeat(sizes)
        place = np.empty(len(graph), dtype=np.int64)
        place[by_graph] = graph[by_graph] * width + within
        node = np.full(len(sizes) * width, -1)
        node[place] = np.arange(len(graph))
        return PaddedGraphs(sizes, width, place, node)

    def __len__(self) -> int:
        """G."""
        return len(self.sizes)

    @property
    def nodes(self) -> Ints:
        """All nodes of the graphs.  # (M,)"""
        return self.node[self.node >= 0]

    def members(self, graph: int) -> Ints:
        """The nodes of one graph, ascending.  # (M_g,)"""
        return self.node[graph * self.width :][: self.sizes[graph]]

    def graph(self, nodes: Ints) -> Ints:
        """The graph that each node is in."""
        return self.place[nodes] // max(1, self.width)

    def some(self, first: int, last: int) -> PaddedGraphs:
        """Some of the graphs alone; the places of other nodes have no meaning."""
        if last - first == len(self):
            return self
        width = int(self.sizes[first:last].max())
        node = self.node.reshape(-1, self.width)[first:last, :width].ravel()
        place = np.zeros_like(self.place)
        place[node[node >= 0]] = np.flatnonzero(node >= 0)
        return PaddedGraphs(self.sizes[first:last], width, place, node)

    def parts(self, walks: Floats, most: int) -> Iterator[PaddedGraphs]:
        """Consecutive graphs, as many at a time as have no more than this many walks together.

        Args:
            walks: how many walks end at each node, (M,).
            most: how many walks a part may have; a graph with more is alone.
        """
        nodes = self.nodes
        per_graph = np.bincount(self.graph(nodes), walks[nodes], len(self))
        first = 0
        while first < len(self):
            fit = int(np.searchsorted(np.cumsum(per_graph[first:]), most, side="right"))
            last = first + max(1, fit)
            yield self.some(first, last)
            first = last


def as_graphs(chain: RelevanceChain, given: Any, *, level: int = 5) -> PaddedGraphs:
    """Read the graphs as the caller gives them: None for one, or the number of every node's graph.

    A chain of several graphs may be treated as one; a warning, raised this many frames up, then says so.
    """
    num_nodes = chain.num_nodes
    if given is None:
        if len(chain.outputs) > 1:
            wanted = "batch" if chain.origin is None else "chain.origin.graphs"
            message = (
                f"The chain explains the sum over {len(chain.outputs)} graphs, which are treated as one. Pass "
                f"graphs={wanted}, the graph of every node, to get an answer for each."
            )
            warnings.warn(message, SeveralGraphsWarning, stacklevel=level)
        return PaddedGraphs.alone(num_nodes)
    expected = f"the number of each node's graph, whole numbers from 0, of shape ({num_nodes},)"
    remedy = "Pass the vector `batch` of a torch_geometric Batch."
    try:
        graphs = torch.as_tensor(given).cpu()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(argument="graphs", expected=expected, got=given, remedy=remedy) from None
    wrong = graphs.shape != (num_nodes,) or graphs.is_floating_point() or graphs.dtype == torch.bool
    if wrong or (num_nodes and int(graphs.min()) < 0):
        raise InputError(argument="graphs", expected=expected, got=described(graphs), remedy=remedy)
    found = PaddedGraphs.of(graphs.long().numpy())
    near = step_neighbours(chain)
    if near is not None:
        _check_separate(found, near)
    return found


def _check_separate(graphs: PaddedGraphs, near: Neighbours) -> None:
    """Refuse edges between graphs, whose relevance could not be separated."""
    ends, starts = near.of(np.arange(near.num_nodes))
    across = graphs.graph(starts) != graphs.graph(ends)
    if across.any():
        e = int(across.argmax())
        raise InputError(
            f"graphs puts nodes {starts[e]} and {ends[e]} into different graphs, but an edge joins them.",
            argument="graphs",
            expected="the same for nodes that an edge joins",
            got=(int(starts[e]), int(ends[e])),
        )
