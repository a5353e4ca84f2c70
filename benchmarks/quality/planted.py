"""Graphs made from seeds with a motif planted in them: the nodes that decide are known."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph

Random = np.random.Generator
Base = Callable[[Random], nx.Graph]

DEGREES = 7  # columns of one-hot degrees, the last for this many and more
LAYERS = 3  # of every model here: how far a node's output sees


def seed_of(random: Random) -> int:
    return int(random.integers(2**31))


def tree(random: Random) -> nx.Graph:
    """Preferential attachment with one edge per new node."""
    return nx.barabasi_albert_graph(int(random.integers(15, 26)), 1, seed=seed_of(random))


def regular_tree(random: Random) -> nx.Graph:
    """A binary tree of depth 4 without some of its lowest leaves."""
    graph = nx.balanced_tree(2, 4)
    graph.remove_nodes_from(random.choice(np.arange(15, 31), int(random.integers(0, 9)), replace=False).tolist())
    return nx.convert_node_labels_to_integers(graph)


def random_graph(random: Random) -> nx.Graph:
    """Erdős–Rényi, 2.4 edges per node on average; nodes that are alone get one."""
    size = int(random.integers(15, 26))
    graph = nx.gnp_random_graph(size, 2.4 / size, seed=seed_of(random))
    for node in list(nx.isolates(graph)):
        graph.add_edge(node, (node + 1 + int(random.integers(size - 1))) % size)
    return graph


def small_world(random: Random) -> nx.Graph:
    """A ring with neighbours of neighbours, one edge in ten led elsewhere."""
    return nx.watts_strogatz_graph(int(random.integers(15, 26)), 4, 0.1, seed=seed_of(random))


def house(random: Random) -> nx.Graph:
    return nx.house_graph()


def cycle(random: Random) -> nx.Graph:
    return nx.cycle_graph(5)


def grid(random: Random) -> nx.Graph:
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3))


def ring_with_chords(random: Random) -> nx.Graph:
    """As many nodes and edges as the grid has, in a ring with three chords at random."""
    graph = nx.cycle_graph(9)
    while graph.number_of_edges() < 12:
        a, b = random.choice(9, 2, replace=False).tolist()
        graph.add_edge(a, b)
    return graph


def star(random: Random) -> nx.Graph:
    return nx.star_graph(6)


def path(random: Random) -> nx.Graph:
    return nx.path_graph(7)


def planted(base: nx.Graph, motifs: list[nx.Graph], random: Random) -> tuple[nx.Graph, Tensor]:
    """The base with every motif on one more edge, and the number of the motif that a node is in, or −1."""
    graph, owner = base, [-1] * len(base)
    anchors = random.integers(len(base), size=len(motifs)).tolist()
    for number, (motif, anchor) in enumerate(zip(motifs, anchors, strict=True)):
        first = len(graph)
        graph = nx.disjoint_union(graph, motif)
        graph.add_edge(anchor, first + int(random.integers(len(motif))))
        owner += [number] * len(motif)
    return graph, torch.tensor(owner)


def edges_of(graph: nx.Graph) -> Tensor:
    edges = torch.tensor(list(graph.edges()), dtype=torch.long).reshape(-1, 2).t()
    return torch.cat([edges, edges.flip(0)], dim=1)


def degrees(edge_index: Tensor, count: int) -> Tensor:
    """One column per degree: mean aggregation and attention see nothing in constant features."""
    degree = edge_index[0].bincount(minlength=count).clamp(max=DEGREES - 1)
    return torch.eye(DEGREES)[degree]


def renamed(x: Tensor, edge_index: Tensor, y: float, motifs: Tensor, random: Random) -> Data:
    """The graph with its nodes in a random order: ties must not favour anyone by the order they were made in."""
    place = torch.from_numpy(random.permutation(len(x)))  # the new row's old node
    return Data(x[place], place.argsort()[edge_index], y=y, motifs=motifs[:, place].contiguous())


def two_motifs(base: Base, positive: Base, negative: Base) -> Callable[[Random, int], Data]:
    """A maker of graphs: label 1 has the positive motif, label 0 the negative one; the motif is the truth."""

    def make(random: Random, number: int) -> Data:
        label = number % 2
        graph, owner = planted(base(random), [(negative, positive)[label](random)], random)
        edge_index = edges_of(graph)
        return renamed(degrees(edge_index, len(graph)), edge_index, label, (owner == 0)[None], random)

    return make


def coloured_chain(random: Random, number: int) -> Data:
    """Random colours, green on two nodes; label 1 has red – green – blue in a row, once, and label 0 has not.

    In its place label 0 has red – green – red or blue – green – blue.
    """
    label, red, green, blue = number % 2, 0, 1, 2
    while True:
        graph = random_graph(random)
        colour = random.choice([red, blue, 3, 4], len(graph), p=[0.15, 0.15, 0.35, 0.35])
        chain, twin = _some_chain(graph, random), int(random.choice([red, blue]))
        colour[int(random.integers(len(graph)))] = green
        colour[chain] = (red, green, blue) if label else (twin, green, twin)
        if len(chains(graph, colour)) == label:
            truth = torch.zeros(1, len(graph), dtype=torch.bool)
            truth[0, chain] = True
            return renamed(torch.eye(5)[torch.from_numpy(colour)], edges_of(graph), label, truth, random)


def _some_chain(graph: nx.Graph, random: Random) -> list[int]:
    middle = int(random.choice([node for node, degree in graph.degree() if degree >= 2]))
    first, last = random.choice(sorted(graph[middle]), 2, replace=False).tolist()
    return [first, middle, last]


def chains(graph: nx.Graph, colour: np.ndarray) -> list[tuple[int, int, int]]:
    """Every red – green – blue in a row."""
    return [
        (a, m, b)
        for m in graph
        if colour[m] == 1
        for a in graph[m]
        if colour[a] == 0
        for b in graph[m]
        if colour[b] == 2
    ]


def count_houses(random: Random, number: int) -> Data:
    """Three motifs, each a house or a 5-cycle; y is the number of houses, and their nodes are the truth."""
    houses = number % 4
    motifs = [house(random) if i < houses else cycle(random) for i in range(3)]
    graph, owner = planted(tree(random), motifs, random)
    edge_index = edges_of(graph)
    truth = ((owner >= 0) & (owner < houses))[None]
    return renamed(degrees(edge_index, len(graph)), edge_index, float(houses), truth, random)


def sum_of_marks(random: Random, number: int) -> Data:
    """Stars and paths, some nodes marked; y is the number of marks in stars: these nodes and the hubs are the truth."""
    stars = number % 3
    motifs = [star(random) if i < stars else path(random) for i in range(2)]
    graph, owner = planted(random_graph(random), motifs, random)
    edge_index, marked = edges_of(graph), torch.from_numpy(random.random(len(graph)) < 0.3)
    inside = (owner >= 0) & (owner < stars)
    hubs = torch.zeros(len(graph), dtype=torch.bool)
    for star_number in range(stars):
        hubs[int((owner == star_number).nonzero()[0])] = True  # networkx begins a star at its hub
    x = torch.cat([degrees(edge_index, len(graph)), marked[:, None].float()], dim=1)
    y = float((inside & marked).sum())
    return renamed(x, edge_index, y, (hubs | (inside & marked))[None], random)


def many(make: Callable[[Random, int], Data], count: int, seed: int) -> list[Data]:
    random = np.random.default_rng(seed)
    return [make(random, number) for number in range(count)]


def around(graph: Data, node: int) -> Data:
    """What a node's output can depend on, as a graph of its own.

    One hop more than layers are kept, since degrees count in GCN; ``seen`` marks the nodes that walks can begin at.
    """
    nodes, edge_index, place, _ = k_hop_subgraph(node, LAYERS + 1, graph.edge_index, True, num_nodes=len(graph.x))
    near, _, _, _ = k_hop_subgraph(node, LAYERS, graph.edge_index, num_nodes=len(graph.x))
    truth = (graph.owner[nodes] == graph.owner[node])[None]
    label = int(graph.y[node])
    return Data(graph.x[nodes], edge_index, y=label, motifs=truth, seen=torch.isin(nodes, near), index=int(place))


def motif_nodes(base: nx.Graph, motif: Base, count: int, labels: list[int], random: Random) -> Data:
    """One graph with many motifs; base nodes have label 0, and the nodes of a motif the labels given."""
    graph, owner = planted(base, [motif(random) for _ in range(count)], random)
    edge_index = edges_of(graph)
    y = torch.cat([torch.zeros(len(base), dtype=torch.long), torch.tensor(labels).repeat(count)])
    place = torch.from_numpy(random.permutation(len(graph)))
    x = degrees(edge_index, len(graph))
    return Data(x[place], place.argsort()[edge_index], y=y[place], owner=owner[place])


def tree_cycles(seed: int) -> Data:
    random = np.random.default_rng(seed)
    return motif_nodes(nx.balanced_tree(2, 7), lambda r: nx.cycle_graph(6), 50, [1] * 6, random)


def tree_grids(seed: int) -> Data:
    random = np.random.default_rng(seed)
    return motif_nodes(nx.balanced_tree(2, 7), grid, 40, [1] * 9, random)


def ba_shapes(seed: int) -> Data:
    """BA-Shapes with a smaller and sparser base; the labels are base, middle, bottom and roof."""
    random = np.random.default_rng(seed)
    base = nx.barabasi_albert_graph(200, 2, seed=seed_of(random))
    return motif_nodes(base, house, 40, [2, 2, 1, 1, 3], random)  # networkx begins a house at its bottom
