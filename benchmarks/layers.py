"""What a question about ten nodes costs as the graph grows, for layers that work on edges or reshape their tensors.

``python benchmarks/layers.py`` prints, for every layer, the processor time of one question on 1,000 nodes and on
20,000, and their ratio: 1 where the cost does not grow with the graph, 20 where every node is carried.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import walkwise as ww

SIZES, WIDTH, DEGREE, TURNS = (1_000, 20_000), 16, 6, 9
META = (["user", "item"], [("user", "to", "item"), ("item", "back", "user")])


class Two(nn.Module):
    """Two layers of a kind, and the mean over nodes."""

    def __init__(self, make: Callable[[], nn.Module], *more: Tensor) -> None:
        """Of what makes a layer, and what it takes beside features and edges."""
        super().__init__()
        self.first, self.second, self.head, self.more = make(), make(), nn.Linear(WIDTH, 2), more

    def forward(self, x: Any, edges: Any) -> Tensor:
        """Two outputs."""
        h = self.first(x, edges, *self.more)
        h = {kind: rows.relu() for kind, rows in h.items()} if isinstance(h, dict) else h.relu()
        h = self.second(h, edges, *self.more)
        return self.head((h["user"] if isinstance(h, dict) else h).relu()).mean(0, keepdim=True)


def perceptron() -> nn.Module:
    """Of two nodes' features."""
    return nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def models(attributes: Tensor, kinds: Tensor) -> dict[str, Callable[[], nn.Module]]:
    """The layers, by name."""
    N = WIDTH
    return {
        "GCNConv (for comparison)": lambda: Two(lambda: pyg.GCNConv(N, N)),
        "EdgeConv": lambda: Two(lambda: pyg.EdgeConv(perceptron())),
        "NNConv": lambda: Two(lambda: pyg.NNConv(N, N, nn.Linear(3, N * N)), attributes),
        "GMMConv": lambda: Two(lambda: pyg.GMMConv(N, N, dim=3, kernel_size=2), attributes),
        "RGATConv": lambda: Two(lambda: pyg.RGATConv(N, N, num_relations=2), kinds),
        "FiLMConv": lambda: Two(lambda: pyg.FiLMConv(N, N)),
        "EGConv": lambda: Two(lambda: pyg.EGConv(N, N, num_heads=4, num_bases=4)),
        "ARMAConv": lambda: Two(lambda: pyg.ARMAConv(N, N, num_stacks=2)),
        "MFConv": lambda: Two(lambda: pyg.MFConv(N, N)),
        "RGCNConv, blocks": lambda: Two(lambda: pyg.RGCNConv(N, N, num_relations=2, num_blocks=4), kinds),
        "HANConv": lambda: Two(lambda: pyg.HANConv(N, N, META, heads=2)),
        "HGTConv": lambda: Two(lambda: pyg.HGTConv(N, N, META, heads=2)),
        "SAGEConv, median": lambda: Two(lambda: pyg.SAGEConv(N, N, aggr="median")),
    }


def seconds(name: str, num_nodes: int, alpha: float) -> float:
    """The processor time of one question about ten nodes."""
    torch.manual_seed(0)
    source = torch.arange(num_nodes).repeat(DEGREE // 2)
    target = (source + torch.randint(1, 50, source.shape)) % num_nodes
    edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)
    x, count, half = torch.randn(num_nodes, WIDTH), edges.shape[1], num_nodes // 2
    model = models(torch.rand(count, 3), torch.randint(0, 2, (count,)))[name]().eval()
    given: tuple[Any, Any] = (x, edges)
    if name in ("HANConv", "HGTConv"):
        between = edges[:, (edges[0] < half) & (edges[1] >= half)] - torch.tensor([[0], [half]])
        given = {"user": x[:half], "item": x[half:]}, {META[1][0]: between, META[1][1]: between.flip(0)}
    chain = ww.trace(model, *given, target=0)
    asked = [list(range(half - 5, half + 5))]
    took = []
    for _ in range(TURNS):
        began = time.process_time()
        ww.subgraph_relevance(chain, asked, alpha=alpha)
        took.append(time.process_time() - began)
    return min(took)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    few, many = SIZES
    print(f"| layer | α | {few:,} nodes | {many:,} nodes | ratio |\n|---|---|---|---|---|")
    for name in models(torch.empty(0), torch.empty(0)):
        for alpha in (0.0, 0.5):
            small, large = (seconds(name, size, alpha) for size in SIZES)
            print(
                f"| {name} | {alpha:g} | {1e3 * small:.2f} ms | {1e3 * large:.2f} ms | {large / small:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
