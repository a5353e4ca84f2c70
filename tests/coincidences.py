"""Graphs whose sizes coincide or whose form is special, and the relations that must hold of them all the same.

A chain on such a graph must say of its nodes what the chain says on the graph beside another component, where sizes no
longer coincide, and what it says with nodes and edges in another order. Neither needs to know the right answer.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

import walkwise as ww
from walkwise.errors import WalkwiseError


def sends(name):
    """Whether a message leads from one node to another; if none does, there may be no layer, or no way to tell."""
    return any(u != v for u, v in GRAPHS[name][1])


def _ring(M):
    return [(i, (i + 1) % M) for i in range(M)]


def _both(edges):
    return [*edges, *((j, i) for i, j in edges)]


def _loops(M):
    return [(i, i) for i in range(M)]


def _path(M):
    return [(i, i + 1) for i in range(M - 1)]


#: Numbers of nodes, and edges: as many edges as nodes, or as features, heads, classes; and special forms.
GRAPHS = {
    "a directed cycle": (4, _ring(4)),
    "a cycle in another order": (4, [(2, 3), (0, 1), (3, 0), (1, 2)]),
    "a cycle of six": (6, _ring(6)),
    "a cycle against its numbers": (5, [(b, a) for a, b in _ring(5)]),
    "two cycles": (6, [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]),
    "both ways around": (4, _both(_ring(4))),
    "edge i starts at node i": (5, [(0, 2), (1, 2), (2, 0), (3, 4), (4, 0)]),
    "edge i ends at node i": (5, [(2, 0), (2, 1), (0, 2), (4, 3), (0, 4)]),
    "edge i starts at node i, in pairs": (6, [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]),
    "a tree to its root": (5, [(1, 0), (2, 0), (3, 1), (4, 1)]),
    "a tree from its root": (5, [(0, 1), (0, 2), (1, 3), (1, 4)]),
    "a tree with a loop at its root": (4, [(0, 0), (1, 0), (2, 0), (3, 1)]),
    "a tree both ways": (4, _both([(0, 1), (1, 2), (1, 3)])),
    "a star, inward": (4, [(1, 0), (2, 0), (3, 0)]),
    "a star, outward": (4, [(0, 1), (0, 2), (0, 3)]),
    "a star, both ways": (4, _both([(0, 1), (0, 2), (0, 3)])),
    "a star, both ways, and a loop": (5, [(0, 0), *_both([(0, 1), (0, 2)])]),
    "a path": (3, _path(3)),
    "a path both ways": (3, _both(_path(3))),
    "loops at all nodes": (4, _loops(4)),
    "loops at all nodes of a cycle": (4, [*_loops(4), *_ring(4)]),
    "a cycle, and then loops": (4, [*_ring(4), *_loops(4)]),
    "as many edges as nodes": (4, [(3, 1), (0, 1), (2, 3), (0, 3)]),
    "as many edges as nodes, of eight": (8, [(3, 1), (0, 1), (2, 3), (0, 3), (7, 5), (5, 6), (6, 4), (4, 7)]),
    "one node": (1, []),
    "one node with a loop": (1, [(0, 0)]),
    "two nodes": (2, [(0, 1), (1, 0)]),
    "two nodes, one edge": (2, [(0, 1)]),
    "two nodes, loops": (2, [(0, 0), (1, 1)]),
    "three nodes in a ring, both ways": (3, _both(_ring(3))),
    "one edge": (4, [(2, 1)]),
    "no edge": (4, []),
    "two edges": (4, [(1, 2), (3, 2)]),
    "complete": (4, [(i, j) for i in range(4) for j in range(4) if i != j]),
    "complete, with loops": (3, [(i, j) for i in range(3) for j in range(3)]),
}


@dataclass(frozen=True)
class Laid:
    """A graph laid out for a comparison: which node and edge of the first graph each node and edge is, or -1."""

    edges: Tensor  # (2, E)
    nodes: Tensor  # (M,)
    numbers: Tensor  # (E,)

    @property
    def num_nodes(self):
        return len(self.nodes)

    @property
    def at(self):
        """Where the nodes of the first graph are.  # (M_0,)"""
        return _places(self.nodes)

    @property
    def edges_at(self):
        """Where its edges are.  # (E_0,)"""
        return _places(self.numbers)


def _places(numbers):
    """Where each number from 0 is."""
    where = (numbers >= 0).nonzero()[:, 0]
    return where[numbers[where].argsort()]


def as_edges(pairs):
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous()


def laid_out(name):
    """A graph by its name, as it is."""
    M, pairs = GRAPHS[name]
    return Laid(as_edges(pairs), torch.arange(M), torch.arange(len(pairs)))


#: What can stand beside a graph: nodes, and edges among them.
BESIDE = {
    "two nodes alone": (2, []),
    "a triangle": (3, [(0, 1), (1, 0), (1, 2), (2, 0)]),
    "a part, and nodes alone": (7, [(0, 1), (1, 0), (1, 2), (3, 2), (2, 3)]),
}


def beside(graph, name, before=False):
    """The graph with other nodes after it, or before it."""
    M, pairs = BESIDE[name]
    more = as_edges(pairs) + (0 if before else graph.num_nodes)
    edges = [more, graph.edges + M] if before else [graph.edges, more]
    nodes, numbers = [graph.nodes, torch.full((M,), -1)], [graph.numbers, torch.full((len(pairs),), -1)]
    turn = -1 if before else 1
    return Laid(torch.cat(edges, 1), torch.cat(nodes[::turn]), torch.cat(numbers[::turn]))


def renumbered(graph, seed):
    """The graph with nodes and edges in another order."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(graph.num_nodes, generator=generator)
    edges = torch.randperm(graph.edges.shape[1], generator=generator)
    return Laid(nodes.argsort()[graph.edges[:, edges]], graph.nodes[nodes], graph.numbers[edges])


def spread(values, numbers, seed=11):
    """Rows of the first graph where its nodes or edges are, and others elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    if values.is_floating_point():
        out = torch.randn(len(numbers), *values.shape[1:], generator=generator, dtype=torch.float64).to(values)
    else:
        out = torch.randint(0, 2, (len(numbers), *values.shape[1:]), generator=generator).to(values)
    out[numbers >= 0] = values[numbers[numbers >= 0]]
    return out


def _sets(M):
    generator = torch.Generator().manual_seed(3)
    drawn = [(torch.rand(M, generator=generator) < 0.5).nonzero()[:, 0].tolist() for _ in range(4)]
    return [*([i] for i in range(M)), *drawn, list(range(M))]


def walks_of(chain, most=200):
    """Some of a chain's walks."""
    walks = ww.enumerate_walks(chain)
    return walks[torch.randperm(len(walks), generator=torch.Generator().manual_seed(5))[:most]]


def answers(chain, graph, walks):
    """What a chain says of the nodes, edges and walks of the first graph, in its order."""
    at, edges = graph.at, graph.edges[:, graph.edges_at]
    sets = [at[nodes].tolist() for nodes in _sets(len(at))]
    found = {f"subgraphs, α = {alpha}": ww.subgraph_relevance(chain, sets, alpha=alpha) for alpha in (0.0, 0.4)}
    for layer in ("start", *range(chain.num_layers + 1)):
        found[f"nodes, {layer}"] = ww.node_relevance(chain, layer=layer)[at]
    for layer in range(chain.num_layers):
        found[f"edges, {layer}"] = ww.edge_relevance(chain, edge_index=edges, layer=layer)
        found[f"staying, {layer}"] = ww.edge_relevance(chain, edge_index=at.expand(2, -1), layer=layer)
    found["features"] = ww.feature_relevance(chain)[at]
    if bool((walks < 0).any()) and not bool((ww.enumerate_walks(chain) < 0).any()):
        raise AssertionError("walks pass positions by in one graph, and not in the other")
    found["walks"] = ww.walk_relevance(chain, torch.where(walks < 0, -1, at[walks.clamp(min=0)]))
    found["all"] = torch.tensor([chain.input_relevance, chain.output])
    return found


#: What does not depend on where walks stand on their way.
_WHEREVER = {"nodes, start", "nodes, 0", "features", "all"}
_OUTSIDE = "adds up rows of nodes outside"


def said(chain):
    """A chain's notes; which function it is that adds up outside of layers may differ where it is one of several."""
    return {_OUTSIDE if _OUTSIDE in note else note for note in chain.notes}


def traced(trace):
    """A chain, or the error of its refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return trace()
        except WalkwiseError as error:
            return error


def compared(name, trace, first, others):
    """Hold the chains of other layouts of a graph to that of the first; ``trace`` makes the chain of a layout."""
    told = sends(name)
    chain = traced(lambda: trace(first))
    refused = isinstance(chain, WalkwiseError)
    walks = None if refused else walks_of(chain, 200 if told else 0)
    expected = None if refused else answers(chain, first, walks)
    for other in others:
        found = traced(lambda other=other: trace(other))
        if refused or isinstance(found, WalkwiseError):
            both = refused and isinstance(found, WalkwiseError)
            assert both or not told, f"one of two is refused: {chain}; {found}"
            continue
        if not told and chain.num_layers != found.num_layers:
            continue
        assert [layer.name for layer in chain.layers] == [layer.name for layer in found.layers]
        assert chain.num_layers == found.num_layers
        assert not told or said(found) <= said(chain) <= {*said(found), _OUTSIDE}  # a note too many does no harm
        got = answers(found, other, walks)
        expected = expected if told else {what: value for what, value in expected.items() if what in _WHEREVER}
        scale = max(float(value.abs().max()) for value in expected.values() if value.numel())
        for what, value in expected.items():
            torch.testing.assert_close(got[what], value, rtol=0, atol=1e-9 * scale, msg=lambda m, w=what: f"{w}: {m}")
