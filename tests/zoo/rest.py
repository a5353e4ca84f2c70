"""The layers and aggregations of torch_geometric.nn that no other architecture of the zoo has."""

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn.functional import normalize
from torch_geometric.nn import aggr

from zoo.models import EDGE_ATTR, EDGES, KINDS, Entry, M, Stack, pooled, readout, with_types

LAYERS, AGGREGATIONS = "other layers of torch_geometric.nn", "aggregations, in a layer and as a read-out"
GENERATOR = torch.Generator().manual_seed(4)
PLACES = torch.randn(M, 3, generator=GENERATOR)
NORMALS = normalize(torch.randn(M, 3, generator=GENERATOR), dim=-1)
TYPES = torch.arange(M) % 2
MESH = torch.stack([torch.arange(M).repeat_interleave(4), (torch.arange(4 * M) * 5 + 1) % M])
BY_TARGET = EDGES[:, EDGES[1].argsort(stable=True)]


def twice(make, call=lambda conv, x, edges: conv(x, edges)):
    """Two layers of a kind, called in its own way."""

    def run(m, x, edges):
        for conv in (m.a, m.b):
            x = call(conv, x, edges).relu()
        return pooled(m.head(x))

    return lambda: Stack(run=run, a=make(), b=make())


def signed(m, x, edges):
    against = edges[:, ::2]
    return pooled(m.head(m.b(m.a(x, edges, against).relu(), edges, against)))


def by_target(conv, x, edges):
    return conv(x, BY_TARGET)


_IN_LAYERS = {
    "least": aggr.MinAggregation,
    "product": aggr.MulAggregation,
    "variance": aggr.VarAggregation,
    "standard deviation": aggr.StdAggregation,
    "quantile": lambda: aggr.QuantileAggregation(0.3),
    "learned power mean": lambda: aggr.PowerMeanAggregation(p=2.5, learn=True),
    "LSTM": lambda: aggr.LSTMAggregation(4, 4),
    "GRU": lambda: aggr.GRUAggregation(4, 4),
    "perceptron": lambda: aggr.MLPAggregation(4, 4, max_num_elements=6, num_layers=2, hidden_channels=4),
    "set transformer": lambda: aggr.SetTransformerAggregation(4, 1, 1, 1, 2),
    "learnable commutative monoid": lambda: aggr.LCMAggregation(4, 4),
    "variance preserving": aggr.VariancePreservingAggregation,
    "patch transformer": lambda: aggr.PatchTransformerAggregation(4, 4, 2, 4, 1, 1),
    "graph multiset transformer": lambda: aggr.GraphMultisetTransformer(4, 2, 1, 2),
    "attention": lambda: aggr.AttentionalAggregation(nn.Linear(4, 1)),
}
_DIFFERENTIATED = "differentiates something that it computes from node features"


def _aggregations():
    for name, make in _IN_LAYERS.items():
        layer = twice(lambda make=make: pyg.SAGEConv(4, 4, aggr=make()), by_target)
        yield Entry(f"SAGEConv, {name}", AGGREGATIONS, layer)
        yield Entry(f"Read-out: {name}", AGGREGATIONS, readout(make))
    equilibrium = readout(lambda: aggr.EquilibriumAggregation(4, 4, [4], 3))
    yield Entry("Read-out: equilibrium", AGGREGATIONS, equilibrium, refused=_DIFFERENTIATED)


REST = [
    Entry(
        "SignedConv",
        LAYERS,
        lambda: Stack(run=signed, a=pyg.SignedConv(4, 2, True), b=pyg.SignedConv(2, 2, False)),
    ),
    Entry("FastRGCNConv", LAYERS, with_types(pyg.FastRGCNConv)),
    Entry(
        "PPFConv",
        LAYERS,
        twice(lambda: pyg.PPFConv(nn.Linear(8, 4)), lambda c, x, e: c(x, PLACES.to(x), NORMALS.to(x), e)),
    ),
    Entry(
        "PointTransformerConv",
        LAYERS,
        twice(lambda: pyg.PointTransformerConv(4, 4), lambda c, x, e: c(x, PLACES.to(x), e)),
    ),
    Entry(
        "PointGNNConv",
        LAYERS,
        twice(
            lambda: pyg.PointGNNConv(nn.Linear(4, 3), nn.Linear(7, 4), nn.Linear(4, 4)),
            lambda c, x, e: c(x, PLACES.to(x), e),
        ),
    ),
    Entry("WLConvContinuous", LAYERS, twice(pyg.WLConvContinuous)),
    Entry(
        "HEATConv",
        LAYERS,
        twice(lambda: pyg.HEATConv(4, 4, 2, 2, 3, 3, 3), lambda c, x, e: c(x, e, TYPES, KINDS, EDGE_ATTR.to(x))),
    ),
    Entry("MeshCNNConv", LAYERS, twice(lambda: pyg.MeshCNNConv(4, 4), lambda c, x, e: c(x, MESH))),
    *_aggregations(),
]
