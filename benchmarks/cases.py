"""The graphs and models that are measured, made from seeds: no data files."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GINConv, GraphSAGE, global_add_pool

TARGET = 1


class GIN(nn.Module):
    """The paper's GIN: two-layer perceptrons, one linear map at the end, and a sum over nodes / √20."""

    def __init__(self, num_layers: int, in_channels: int, width: int, out_channels: int = 2) -> None:
        super().__init__()
        widths = [in_channels, *[width] * (num_layers - 1)]
        perceptrons = [
            nn.Sequential(nn.Linear(n, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()) for n in widths[:-1]
        ]
        self.convs = nn.ModuleList([*map(GINConv, perceptrons), GINConv(nn.Linear(widths[-1], out_channels))])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return _pooled(x, batch) / math.sqrt(20)  # (G, 2)


class Pooled(nn.Module):
    """One of PyG's models, and a sum over nodes."""

    def __init__(self, nodes: nn.Module) -> None:
        super().__init__()
        self.nodes = nodes

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return _pooled(self.nodes(x, edge_index), batch)  # (G, 2)


def _pooled(h: Tensor, batch: Tensor | None) -> Tensor:
    return h.sum(dim=0, keepdim=True) if batch is None else global_add_pool(h, batch)


@dataclass(frozen=True, eq=False)
class Case:
    """A model and the graph it is asked about."""

    name: str
    model: nn.Module
    x: Tensor  # (M, F)
    edge_index: Tensor  # (2, E), both directions of every edge
    batch: Tensor | None = None  # (M,) the graph of every node, where there are several

    @property
    def given(self) -> dict[str, Tensor]:
        """What the model is given besides nodes and edges."""
        return {} if self.batch is None else {"batch": self.batch}

    def forward_backward(self) -> None:
        """What everything is compared with: one plain training-style pass."""
        self.model.zero_grad(set_to_none=True)
        self.model(self.x, self.edge_index, **self.given)[:, TARGET].sum().backward()

    def subgraphs(self, count: int, size: int = 5, seed: int = 0) -> list[list[int]]:
        """Sets of nodes drawn at random."""
        generator = np.random.default_rng(seed)
        return [sorted(generator.choice(len(self.x), size, replace=False).tolist()) for _ in range(count)]

    def mask(self, subgraphs: list[list[int]]) -> Tensor:
        """The same sets as a boolean mask.  # (B, M)"""
        mask = torch.zeros(len(subgraphs), len(self.x), dtype=torch.bool)
        for row, ids in enumerate(subgraphs):
            mask[row, ids] = True
        return mask


def mutag(num_layers: int = 3, width: int = 128) -> Case:
    """Acenaphthylene with two nitro groups: 18 atoms, 20 bonds, 7 atom types."""
    carbon = [(i, (i + 1) % 6) for i in range(6)]  # one ring
    carbon += [(1, 6), (6, 7), (7, 8), (8, 9), (9, 0)]  # a second, sharing the bond 0-1
    carbon += [(2, 10), (10, 11), (11, 6)]  # a five-ring across both
    nitro = [(4, 12), (12, 13), (12, 14), (8, 15), (15, 16), (15, 17)]
    atoms = [0] * 12 + [1, 2, 2, 1, 2, 2]  # C, N, O
    return _case(f"MUTAG-like GIN-{num_layers}/{width}", carbon + nitro, torch.eye(7)[atoms], num_layers, width)


def other_layers(case: Case, width: int = 128) -> list[Case]:
    """The same graph with other layers: GCN, GraphSAGE and GAT."""
    cases = []
    for kind in (GCN, GraphSAGE, GAT):
        torch.manual_seed(0)
        model = Pooled(kind(case.x.shape[1], width, num_layers=3, out_channels=2)).eval()
        name = case.name.replace("GIN", kind.__name__.removeprefix("Graph"))
        cases.append(Case(name, model, case.x, case.edge_index, case.batch))
    return cases


def batched(case: Case, count: int) -> Case:
    """This many copies of a graph in one batch."""
    M = len(case.x)
    edges = torch.cat([case.edge_index + i * M for i in range(count)], dim=1)
    graph = torch.arange(count).repeat_interleave(M)
    return Case(f"{count} x {case.name}", case.model, case.x.repeat(count, 1), edges, graph)


def ba2motif(num_layers: int, width: int = 20, seed: int = 0) -> Case:
    """A Barabási-Albert tree of 20 nodes with a house of 5 hung on: 25 nodes, one constant feature."""
    generator = np.random.default_rng(seed)
    edges = _preferential(20, generator)
    edges += [(20, 21), (21, 22), (22, 23), (23, 20), (20, 24), (21, 24), (int(generator.integers(20)), 20)]
    return _case(f"BA-2motif GIN-{num_layers}/{width}", edges, torch.ones(25, 1), num_layers, width)


def reddit(num_layers: int = 5, width: int = 64, seed: int = 0) -> Case:
    """A discussion: 430 users, 500 replies, four hubs, one constant feature."""
    generator = np.random.default_rng(seed)
    hubs, M, E = {0: 130, 1: 90, 2: 70, 3: 50}, 430, 500
    owners = np.repeat(list(hubs), list(hubs.values())).tolist()
    edges = [(0, 1), (1, 2), (2, 3)] + [(hub, 4 + i) for i, hub in enumerate(owners)]
    edges += [(int(generator.integers(4, node)), node) for node in range(4 + len(owners), M)]
    taken = set(edges)
    while len(edges) < E:
        a, b = sorted(generator.integers(4, M, 2).tolist())
        if a != b and (a, b) not in taken:
            taken.add((a, b))
            edges.append((a, b))
    return _case(f"REDDIT-like GIN-{num_layers}/{width}", edges, torch.ones(M, 1), num_layers, width)


def random_graph(num_nodes: int, num_edges: int, num_layers: int = 3, width: int = 64, seed: int = 0) -> Case:
    """A large random graph: this many nodes, this many directed edges, 16 features."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(num_nodes, (2, num_edges // 2), generator=generator)
    x = torch.rand(num_nodes, 16, generator=generator)
    model = _model(num_layers, 16, width)
    return Case(f"random GIN-{num_layers}/{width}", model, x, torch.cat([half, half.flip(0)], dim=1))


def three_regular(num_nodes: int, num_layers: int = 3, width: int = 64, seed: int = 0) -> Case:
    """A ring whose nodes are also paired at random: three neighbours each, however many there are."""
    generator = torch.Generator().manual_seed(seed)
    ring = torch.arange(num_nodes)
    pairs = torch.randperm(num_nodes, generator=generator).view(2, -1)
    half = torch.cat([torch.stack([ring, (ring + 1) % num_nodes]), pairs], dim=1)
    x = torch.rand(num_nodes, 16, generator=generator)
    model = _model(num_layers, 16, width)
    return Case(f"{num_nodes} nodes GIN-{num_layers}/{width}", model, x, torch.cat([half, half.flip(0)], dim=1))


def connected_subgraphs(case: Case, count: int, size: int, seed: int = 0) -> list[list[int]]:
    """Node sets grown from a random node along edges; never more than a few neighbours of a node are looked at."""
    generator = np.random.default_rng(seed)
    source, target = case.edge_index.numpy()
    order = np.argsort(source, kind="stable")
    target = target[order]
    offsets = np.searchsorted(source[order], np.arange(len(case.x) + 1))
    return [_grown(offsets, target, size, generator) for _ in range(count)]


def _grown(offsets: np.ndarray, target: np.ndarray, size: int, generator: np.random.Generator) -> list[int]:
    nodes = [int(generator.integers(len(offsets) - 1))]
    tries = 0
    while len(nodes) < size:
        node, tries = nodes[generator.integers(len(nodes))], tries + 1
        neighbours = target[offsets[node] : offsets[node + 1]]
        stuck = tries > 10 * size or not len(neighbours)
        new = generator.integers(len(offsets) - 1) if stuck else generator.choice(neighbours)
        if int(new) not in nodes:
            nodes.append(int(new))
    return sorted(nodes)


def _preferential(num_nodes: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Barabási-Albert with one edge per new node, as in BA-2motif."""
    edges, ends = [(0, 1)], [0, 1]
    for node in range(2, num_nodes):
        old = ends[generator.integers(len(ends))]
        edges.append((old, node))
        ends += [old, node]
    return edges


def _model(num_layers: int, in_channels: int, width: int) -> GIN:
    torch.manual_seed(0)
    return GIN(num_layers, in_channels, width).eval()


def _case(name: str, edges: list[tuple[int, int]], x: Tensor, num_layers: int, width: int) -> Case:
    one_way = torch.tensor(edges).t()  # (2, E / 2)
    edge_index = torch.cat([one_way, one_way.flip(0)], dim=1)
    return Case(name, _model(num_layers, x.shape[1], width), x, edge_index)
