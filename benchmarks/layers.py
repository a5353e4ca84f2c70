"""What a question about ten nodes costs as the graph grows, for the layers and aggregations of PyG.

``python benchmarks/layers.py`` prints, for every one that needs no package beside PyG, the processor time of a question
on 1,000 nodes and on 20,000, and their ratio: 1 where the cost does not grow with the graph, 20 where every node is
carried. Names as arguments choose some: ``python benchmarks/layers.py EdgeConv MLPAggregation``.
GPSConv is left out: every node attends to every other, which costs the square of the graph in the model itself.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn import aggr

import walkwise as ww

SIZES, WIDTH, DEGREE, TURNS = (1_000, 20_000), 16, 6, 5
META = (["user", "item"], [("user", "to", "item"), ("item", "back", "user")])


@dataclass(frozen=True)
class Graph:
    """A graph whose nodes have six neighbours each, all of them nearby, and what layers ask for."""

    x: Tensor
    edges: Tensor

    @staticmethod
    def of(num_nodes: int) -> Graph:
        """So many nodes."""
        torch.manual_seed(0)
        source = torch.arange(num_nodes).repeat(DEGREE // 2)
        target = (source + torch.randint(1, 50, source.shape)) % num_nodes
        edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)
        return Graph(torch.randn(num_nodes, WIDTH), edges[:, edges[1].argsort(stable=True)])

    @property
    def attributes(self) -> Tensor:
        """Three numbers for every edge."""
        return torch.rand(self.edges.shape[1], 3)

    @property
    def kinds(self) -> Tensor:
        """The kind of every edge, of two."""
        return torch.randint(0, 2, self.edges.shape[1:])

    @property
    def node_kinds(self) -> Tensor:
        """The kind of every node, of two."""
        return torch.randint(0, 2, self.x.shape[:1])

    @property
    def places(self) -> Tensor:
        """Where every node is."""
        return torch.randn(len(self.x), 3)

    @property
    def four(self) -> Tensor:
        """Four neighbours of every node, in order, as in a mesh of triangles."""
        nodes = torch.arange(len(self.x)).repeat_interleave(4)
        return torch.stack([(nodes + torch.tensor([1, 2, 3, 4]).repeat(len(self.x))) % len(self.x), nodes])


#: A layer, features and edges give other features.
Call = Callable[[nn.Module, Any, Any], Any]


class Two(nn.Module):
    """Two layers of a kind, and the mean over nodes."""

    def __init__(self, make: Callable[[], nn.Module], call: Call) -> None:
        """Of what makes a layer, and how it is called."""
        super().__init__()
        self.first, self.second, self.head, self.call = make(), make(), nn.Linear(WIDTH, 2), call

    def forward(self, x: Any, edges: Any) -> Tensor:
        """Two outputs."""
        h = self.call(self.first, x, edges)
        h = {kind: rows.relu() for kind, rows in h.items()} if isinstance(h, dict) else h.relu()
        h = self.call(self.second, h, edges)
        return self.head((h["user"] if isinstance(h, dict) else h).relu()).mean(0, keepdim=True)


class Aggregated(pyg.MessagePassing):
    """Messages aggregated, and a linear layer."""

    def __init__(self, how: Callable[[], Any], factor: int) -> None:
        """Of what makes an aggregation, and how many times as wide it makes messages."""
        super().__init__(aggr=how())
        self.out = nn.Linear(factor * WIDTH, WIDTH)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Other features."""
        out: Tensor = self.out(self.propagate(edges, x=x))
        return out


class SeenBefore(nn.Module):
    """DNAConv, which attends to what a node was before."""

    def __init__(self) -> None:
        """With two heads."""
        super().__init__()
        self.conv = pyg.DNAConv(WIDTH, heads=2, groups=2)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Other features."""
        out: Tensor = self.conv(torch.stack([x, x.relu()], 1), edges)
        return out


def perceptron(wide: int = WIDTH, out: int = WIDTH) -> nn.Module:
    """Of two matrices."""
    return nn.Sequential(nn.Linear(wide, WIDTH), nn.ReLU(), nn.Linear(WIDTH, out))


def with_more(*after: Tensor, between: tuple[Tensor, ...] = ()) -> Call:
    """A call with more after the edges, or between features and edges."""
    return lambda layer, x, edges: layer(x, *between, edges, *after)


def models(graph: Graph) -> dict[str, Callable[[], nn.Module]]:
    """The models, by the name of their layer or aggregation."""
    N = WIDTH
    attributes, kinds, node_kinds, places, four = (
        graph.attributes, graph.kinds, graph.node_kinds, graph.places, graph.four,
    )  # fmt: skip
    degrees, beginning = torch.arange(6), graph.x.abs()
    plain, with_kinds, with_attributes = with_more(), with_more(kinds), with_more(attributes)
    at_places = with_more(between=(places,))

    layers: dict[str, tuple[Callable[[], nn.Module], Call]] = {
        "SimpleConv": (lambda: pyg.SimpleConv("mean"), plain),
        "GCNConv": (lambda: pyg.GCNConv(N, N), plain),
        "ChebConv": (lambda: pyg.ChebConv(N, N, K=2), plain),
        "SAGEConv": (lambda: pyg.SAGEConv(N, N), plain),
        "GraphConv": (lambda: pyg.GraphConv(N, N), plain),
        "GatedGraphConv": (lambda: pyg.GatedGraphConv(N, 1), plain),
        "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(N, N), plain),
        "GATConv": (lambda: pyg.GATConv(N, N // 2, heads=2), plain),
        "GATv2Conv": (lambda: pyg.GATv2Conv(N, N // 2, heads=2), plain),
        "TransformerConv": (lambda: pyg.TransformerConv(N, N // 2, heads=2), plain),
        "AGNNConv": (lambda: pyg.AGNNConv(), plain),
        "TAGConv": (lambda: pyg.TAGConv(N, N, K=2), plain),
        "GINConv": (lambda: pyg.GINConv(perceptron()), plain),
        "GINEConv": (lambda: pyg.GINEConv(perceptron(), edge_dim=3), with_attributes),
        "ARMAConv": (lambda: pyg.ARMAConv(N, N, num_stacks=2), plain),
        "SGConv": (lambda: pyg.SGConv(N, N, K=2), plain),
        "SSGConv": (lambda: pyg.SSGConv(N, N, alpha=0.1, K=2), plain),
        "APPNP": (lambda: pyg.APPNP(2, 0.1), plain),
        "MFConv": (lambda: pyg.MFConv(N, N), plain),
        "RGCNConv": (lambda: pyg.RGCNConv(N, N, num_relations=2), with_kinds),
        "RGCNConv, blocks": (lambda: pyg.RGCNConv(N, N, num_relations=2, num_blocks=4), with_kinds),
        "FastRGCNConv": (lambda: pyg.FastRGCNConv(N, N, num_relations=2), with_kinds),
        "RGATConv": (lambda: pyg.RGATConv(N, N, num_relations=2), with_kinds),
        "SignedConv": (
            lambda: pyg.SignedConv(N, N // 2, first_aggr=True),
            lambda layer, x, edges: layer(x, edges, edges.flip(0)),
        ),
        "DNAConv": (SeenBefore, plain),
        "PointNetConv": (lambda: pyg.PointNetConv(perceptron(N + 3)), at_places),
        "GMMConv": (lambda: pyg.GMMConv(N, N, dim=3, kernel_size=2), with_attributes),
        "NNConv": (lambda: pyg.NNConv(N, N, nn.Linear(3, N * N)), with_attributes),
        "CGConv": (lambda: pyg.CGConv(N, dim=3), with_attributes),
        "EdgeConv": (lambda: pyg.EdgeConv(perceptron(2 * N)), plain),
        "PPFConv": (
            lambda: pyg.PPFConv(perceptron(N + 4)),
            with_more(between=(places, nn.functional.normalize(places.flip(1)))),
        ),
        "FeaStConv": (lambda: pyg.FeaStConv(N, N, heads=2), plain),
        "PointTransformerConv": (lambda: pyg.PointTransformerConv(N, N), at_places),
        "HypergraphConv": (lambda: pyg.HypergraphConv(N, N), plain),
        "LEConv": (lambda: pyg.LEConv(N, N), plain),
        "PNAConv": (
            lambda: pyg.PNAConv(N, N, ["mean", "max", "std"], ["identity", "amplification"], degrees),
            plain,
        ),
        "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(N, N), plain),
        "GENConv": (lambda: pyg.GENConv(N, N), plain),
        "GCN2Conv": (lambda: pyg.GCN2Conv(N, alpha=0.1), with_more(between=(beginning,))),
        "WLConvContinuous": (lambda: pyg.WLConvContinuous(), plain),
        "FiLMConv": (lambda: pyg.FiLMConv(N, N), plain),
        "SuperGATConv": (lambda: pyg.SuperGATConv(N, N // 2, heads=2), plain),
        "FAConv": (lambda: pyg.FAConv(N), with_more(between=(beginning,))),
        "EGConv": (lambda: pyg.EGConv(N, N, num_heads=4, num_bases=4), plain),
        "PDNConv": (lambda: pyg.PDNConv(N, N, 3, 8), with_attributes),
        "GeneralConv": (lambda: pyg.GeneralConv(N, N, in_edge_channels=3), with_attributes),
        "HGTConv": (lambda: pyg.HGTConv(N, N, META, heads=2), plain),
        "HANConv": (lambda: pyg.HANConv(N, N, META, heads=2), plain),
        "HEATConv": (
            lambda: pyg.HEATConv(N, N // 2, 2, 2, 4, 3, 4, heads=2),
            with_more(node_kinds, kinds, attributes),
        ),
        "LGConv": (lambda: pyg.LGConv(), plain),
        "PointGNNConv": (lambda: pyg.PointGNNConv(perceptron(N, 3), perceptron(N + 3), perceptron()), at_places),
        "AntiSymmetricConv": (lambda: pyg.AntiSymmetricConv(N), plain),
        "DirGNNConv": (lambda: pyg.DirGNNConv(pyg.SAGEConv(N, N)), plain),
        "MixHopConv": (lambda: pyg.MixHopConv(N, N // 4, powers=[0, 1, 2, 2]), plain),
        "MeshCNNConv": (lambda: pyg.MeshCNNConv(N, N), lambda layer, x, edges: layer(x, four)),
    }
    aggregations: dict[str, tuple[Callable[[], Any], int]] = {
        "SumAggregation": (aggr.SumAggregation, 1),
        "MeanAggregation": (aggr.MeanAggregation, 1),
        "MaxAggregation": (aggr.MaxAggregation, 1),
        "MinAggregation": (aggr.MinAggregation, 1),
        "MulAggregation": (aggr.MulAggregation, 1),
        "VarAggregation": (aggr.VarAggregation, 1),
        "StdAggregation": (aggr.StdAggregation, 1),
        "SoftmaxAggregation": (lambda: aggr.SoftmaxAggregation(learn=True), 1),
        "PowerMeanAggregation": (lambda: aggr.PowerMeanAggregation(learn=True), 1),
        "MedianAggregation": (aggr.MedianAggregation, 1),
        "QuantileAggregation": (lambda: aggr.QuantileAggregation([0.25, 0.75]), 2),
        "MultiAggregation": (lambda: aggr.MultiAggregation(["mean", "max", "median"]), 3),
        "LSTMAggregation": (lambda: aggr.LSTMAggregation(N, N), 1),
        "GRUAggregation": (lambda: aggr.GRUAggregation(N, N), 1),
        "Set2Set": (lambda: aggr.Set2Set(N, 2), 2),
        "DegreeScalerAggregation": (lambda: aggr.DegreeScalerAggregation(["mean"], ["linear"], degrees), 1),
        "SortAggregation": (lambda: aggr.SortAggregation(3), 3),
        "GraphMultisetTransformer": (lambda: aggr.GraphMultisetTransformer(N, 2, heads=2), 1),
        "AttentionalAggregation": (lambda: aggr.AttentionalAggregation(nn.Linear(N, 1)), 1),
        "AttentionalAggregation in MultiAggregation": (
            lambda: aggr.MultiAggregation([aggr.AttentionalAggregation(nn.Linear(N, 1)), aggr.MaxAggregation()]),
            2,
        ),
        "MLPAggregation": (lambda: aggr.MLPAggregation(N, N, 24, num_layers=1), 1),
        "DeepSetsAggregation": (lambda: aggr.DeepSetsAggregation(perceptron(), perceptron()), 1),
        "SetTransformerAggregation": (lambda: aggr.SetTransformerAggregation(N, heads=2), 1),
        "LCMAggregation": (lambda: aggr.LCMAggregation(N, N), 1),
        "VariancePreservingAggregation": (aggr.VariancePreservingAggregation, 1),
        "PatchTransformerAggregation": (lambda: aggr.PatchTransformerAggregation(N, N, 4, N, 1, 1), 1),
    }
    aggregated = {name: (partial(Aggregated, how, factor), plain) for name, (how, factor) in aggregations.items()}
    return {name: partial(Two, make, call) for name, (make, call) in {**layers, **aggregated}.items()}


def seconds(name: str, num_nodes: int) -> dict[float, float]:
    """The processor time of one question about ten nodes, by α."""
    graph, half = Graph.of(num_nodes), num_nodes // 2
    model = models(graph)[name]().eval()
    given: tuple[Any, Any] = (graph.x, graph.edges)
    if name in ("HANConv", "HGTConv"):
        edges = graph.edges
        between = edges[:, (edges[0] < half) & (edges[1] >= half)] - torch.tensor([[0], [half]])
        given = {"user": graph.x[:half], "item": graph.x[half:]}, {META[1][0]: between, META[1][1]: between.flip(0)}
    chain = ww.trace(model, *given, target=0)
    asked = [list(range(half - 5, half + 5))]
    took: dict[float, list[float]] = {0.0: [], 0.5: []}
    for alpha, times in took.items():
        for _ in range(TURNS):
            began = time.process_time()
            ww.subgraph_relevance(chain, asked, alpha=alpha)
            times.append(time.process_time() - began)
    return {alpha: min(times) for alpha, times in took.items()}


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    few, many = SIZES
    print(f"| layer | α | {few:,} nodes | {many:,} nodes | ratio |\n|---|---|---|---|---|")
    for name in sys.argv[1:] or models(Graph.of(few)):
        small, large = (seconds(name, size) for size in SIZES)
        for alpha in small:
            before, after = 1e3 * small[alpha], 1e3 * large[alpha]
            print(f"| {name} | {alpha:g} | {before:.2f} ms | {after:.2f} ms | {after / before:.1f} |", flush=True)


if __name__ == "__main__":
    main()
