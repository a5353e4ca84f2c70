"""Train a small GIN to tell houses from cycles, then ask which part of one graph made it say "house".

make demo                                              # or: python examples/demo.py
python examples/demo.py --picture docs/walkwise.png    # the picture in the README

Nothing is downloaded. The graphs are those of the BA-2motif data set, made afresh: a random tree of 20 nodes
(Barabási-Albert, one edge per new node) with a motif of 5 nodes hung on by one edge.
"""

import argparse
import random
import time
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import torch
from torch import nn
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import to_networkx, to_undirected

import walkwise as ww
from walkwise import plotting

CYCLE = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
HOUSE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)]  # four walls; node 4 is the roof
TREE, MOTIF = list(range(20)), list(range(20, 25))
ALPHAS = [0.0, 0.3, 1.0]


class GIN(nn.Module):
    """Three GIN layers, a sum over nodes and a linear head: an ordinary PyG model."""

    def __init__(self, width=32):
        super().__init__()
        self.convs = nn.ModuleList(GINConv(self.perceptron(i, width)) for i in (1, width, width))
        self.head = nn.Linear(width, 2)

    @staticmethod
    def perceptron(i, o):
        return nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(), nn.Linear(o, o), nn.ReLU())

    def forward(self, x, edge_index, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(global_add_pool(x, batch) / 5)  # / 5, the root of 25 nodes: training starts evenly


def make_graph(label):
    """A random tree with a cycle (label 0) or a house (label 1); every node's feature is 1."""
    tree = nx.barabasi_albert_graph(len(TREE), 1, seed=random.randrange(2**32))
    motif = [(MOTIF[u], MOTIF[v]) for u, v in (HOUSE if label else CYCLE)]
    edges = [*tree.edges, *motif, (random.choice(TREE), random.choice(MOTIF))]
    edge_index = to_undirected(torch.tensor(edges).t())  # (2, E)
    return Data(x=torch.ones(len(TREE + MOTIF), 1), edge_index=edge_index, y=torch.tensor([label]))


def train(model, graphs, epochs=20):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for _ in range(epochs):
        for batch in DataLoader(graphs, batch_size=25, shuffle=True):
            scores = model(batch.x, batch.edge_index, batch.batch)
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores, batch.y).backward()
            optimizer.step()
    model.eval()


def random_connected_sets(graph, count):
    """Connected sets as large as the motif, each grown from a node of the tree by random neighbours."""
    neighbours = nx.to_dict_of_lists(to_networkx(graph, to_undirected=True))
    sets = [[random.choice(TREE)] for _ in range(count)]
    for nodes in sets:
        while len(nodes) < len(MOTIF):
            nodes.append(random.choice([v for u in nodes for v in neighbours[u] if v not in nodes]))
    return sets


def print_subgraphs(chain, others):
    relevance = ww.subgraph_relevance(chain, [MOTIF, TREE + MOTIF, *others], alpha=ALPHAS)  # (2 + 1000, 3)
    rows = {
        "the house": relevance[0],
        "random set, mean": relevance[2:].mean(dim=0),
        "random set, highest": relevance[2:].amax(dim=0),
        "the whole graph": relevance[1],
    }
    print("\nRelevance of node sets" + "".join(f"{f'α = {a:g}':>12}" for a in ALPHAS))
    for name, values in rows.items():
        print(f"  {name:<20}" + "".join(f"{v:12.3f}" for v in values.tolist()))
    print(
        f"  α = 0: walks that never leave the set; α = 1: all that touch it. Random: {len(others)} connected sets of 5."
    )
    c = ww.subgraph_polynomial(chain, [MOTIF])[0]  # (L + 1,)
    print(f"  The house, for every α at once: {c[0]:.3f} {c[1]:+.3f} α {c[2]:+.3f} α² {c[3]:+.3f} α³")


def print_walks_and_nodes(chain):
    walks = ww.enumerate_walks(chain)  # (K, L + 1)
    relevance = ww.walk_relevance(chain, walks)  # (K,)
    print(f"\nThe five most relevant of {len(walks)} walks (the house is nodes {MOTIF[0]} to {MOTIF[-1]})")
    for i in relevance.argsort(descending=True)[:5].tolist():
        print(f"  {' → '.join(map(str, walks[i].tolist()))}   {relevance[i]:.3f}")
    nodes = ww.node_relevance(chain)  # (M,)
    ranks = nodes.argsort(descending=True).argsort() + 1
    print(f"\nNodes of the house by relevance, ranked among all {chain.num_nodes}")
    print("  " + "   ".join(f"{n}: {nodes[n]:.3f} (rank {ranks[n]})" for n in MOTIF))


def print_all_held_out(model, graphs):
    """Does the one graph stand for the others?"""
    print(
        "\nOver all held-out graphs: how many of 100 random connected sets have less relevance than the motif (α = 0)?"
    )
    for label, name in enumerate(("cycles", "houses")):
        shares = []
        for graph in (graph for graph in graphs if graph.y == label):
            chain = ww.trace(model, graph.x, graph.edge_index, target=label)
            relevance = ww.subgraph_relevance(chain, [MOTIF, *random_connected_sets(graph, 100)])
            shares.append((relevance[1:] < relevance[0]).float().mean())
        print(f"  {name}: {100 * torch.stack(shares).mean():.0f}")
    print("  (To tell two classes apart, a model may look for one motif and take the other class for what is left.)")


def fastest(func, turns=7):
    """The seconds of the fastest turn."""
    times = [time.perf_counter()]
    for _ in range(turns):
        func()
        times.append(time.perf_counter())
    return min(after - before for before, after in pairwise(times))


def print_times(model, graph, chain, others):
    weights = list(model.parameters())
    one_pass = fastest(lambda: torch.autograd.grad(model(graph.x, graph.edge_index)[0, 1], weights))
    batch = fastest(lambda: ww.subgraph_relevance(chain, others))
    print(f"\n{len(others)} node sets in one call: {1e3 * batch:.1f} ms, or {1e6 * batch / len(others):.1f} µs each.")
    print(f"One forward and backward pass of the model: {1e3 * one_pass:.1f} ms.")


def draw_discounts(axes, chain, others):
    alpha = torch.linspace(0, 1, 101)
    powers = alpha ** torch.arange(chain.num_layers + 1)[:, None]  # (L + 1, 101)
    polynomials = ww.subgraph_polynomial(chain, [MOTIF, *others])  # (1 + 1000, L + 1)
    low, high = (polynomials[1:] @ powers).quantile(torch.tensor([0.05, 0.95]), dim=0)
    apart = next(i for i, nodes in enumerate(others, start=1) if not set(nodes) & set(MOTIF))
    axes.fill_between(alpha, low, high, color="0.88", label="random connected sets, 90 %")
    plotting.alpha_curve(polynomials[[0, apart]], labels=["the true motif", "a set that does not touch it"], ax=axes)
    axes.set_title("Every α from one polynomial", loc="left", size=9)


def draw(graph, chain, others, path):
    """The graph coloured by node relevance, and how the relevance of sets grows with α."""
    figure = plt.figure(figsize=(7, 3), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.2, 1])  # apart, so that the colour bar does not squeeze both
    axes, meaning = left.subplots(), 'relevance for "house"'
    plotting.graph_heatmap(ww.node_relevance(chain), graph.edge_index, truth=MOTIF, meaning=meaning, ax=axes)
    axes.set_title('Which nodes made the model say "house"?', size=9)
    draw_discounts(right.subplots(), chain, others)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=220)
    print(f"\nThe picture is in {path}.")


def main():
    parser = argparse.ArgumentParser(description="Which part of this graph made the model say that?")
    parser.add_argument("--picture", type=Path, default=Path("out/demo.png"), help="where the picture goes")
    parser.add_argument("--seed", type=int, default=0, help="other graphs, another model")
    options = parser.parse_args()
    torch.set_num_threads(1)  # tensors this small gain nothing from more
    seed_everything(options.seed)

    start = time.perf_counter()
    graphs = [make_graph(label=i % 2) for i in range(600)]
    held_out, model = graphs[500:], GIN()
    train(model, graphs[:500])
    with torch.no_grad():
        right = [graph for graph in held_out if model(graph.x, graph.edge_index).argmax() == graph.y]
    print(f"A GIN, trained in {time.perf_counter() - start:.1f} s, tells ", end="")
    print(f"{len(right)} of {len(held_out)} held-out graphs right.")

    graph = next(graph for graph in right if graph.y == 1)
    chain = ww.trace(model, graph.x, graph.edge_index, target=1)
    print("\nA held-out house, traced. How each layer was covered, and where its relevance went:\n")
    print(chain)
    others = random_connected_sets(graph, 1000)
    print_subgraphs(chain, others)
    print_walks_and_nodes(chain)
    print_all_held_out(model, held_out)
    print_times(model, graph, chain, others)
    draw(graph, chain, others, options.picture)
    print('\nTry next: --seed 1, another model; target=0 in ww.trace above, what speaks for "cycle"; rule="zero";')
    print("or a model of your own: chain = walkwise.trace(model, x, edge_index); print(chain).")


if __name__ == "__main__":
    main()
