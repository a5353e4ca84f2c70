"""Architectures as people write them, after the originals, in small sizes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import aggr, pool
from torch_geometric.utils import to_dense_adj, to_dense_batch

from zoo import handmade

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 0, 5]])
KINDS = torch.arange(12) % 2  # types of edges
BATCH = torch.zeros(M, dtype=torch.long)
DEGREES = torch.tensor([0, 0, 6])
METADATA = (["user", "item"], [("user", "to", "item"), ("item", "back", "user"), ("user", "knows", "user")])


@dataclass(frozen=True)
class Entry:
    """One architecture: where it comes from, how it is made, and what is expected."""

    name: str
    origin: str
    build: Callable[[], nn.Module]
    refused: str | None = None  # words of the refusal that is expected
    graph: str = "features"  # or "numbers" for integer features, "hetero"
    gates: tuple[str, ...] = ("sigmoid", "softmax", "exp")  # what is held constant; if not named, it is an activation


class Stack(nn.Module):
    """Layers with something between them, and a read-out."""

    def __init__(self, *layers, between=torch.relu, head=None, run=None, **modules):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        for name, module in modules.items():
            setattr(self, name, module)
        self.between, self.run, self.head = between, run, head or nn.Linear(4, 2)

    def forward(self, x, edge_index, **more):
        if self.run is not None:
            return self.run(self, x, edge_index)
        for layer in self.layers:
            x = self.between(layer(x, edge_index, **more))
        return self.head(x).mean(0, keepdim=True)


def two(kind, *args, **options):
    """Two layers of a kind, 4 to 4."""
    return lambda: Stack(kind(4, 4, *args, **options), kind(4, 4, *args, **options))


def ran(run, **parts):
    """A model whose forward is given."""
    return lambda: Stack(run=run, **{name: make() for name, make in parts.items()})


def gcn():
    return pyg.GCNConv(4, 4)


def lin(i=4, o=4):
    return lambda: nn.Linear(i, o)


def by_hand(kind):
    """Two layers of a kind that somebody wrote."""
    return lambda: Stack(kind(), kind())


def discriminator(m, x, e):
    """Deep Graph Infomax: nodes against a summary of all."""
    h = m.slope(m.conv(x, e))
    summary = torch.sigmoid(h.mean(0))
    return (h @ m.head(summary).view(4, 1)).sum().expand(1, 2)


def covariance(m, x, e):
    h = m.b(m.a(x, e).relu(), e)
    return m.out((h.t() @ h).reshape(1, -1))


def best_nodes(m, x, e):
    h = m.a(x, e).relu()
    chosen = h[m.score(h).squeeze(-1).topk(3).indices]
    return m.head((chosen * torch.sigmoid(m.score(chosen))).sum(0, keepdim=True))


def mlp():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def pooled(h):
    return h.mean(0, keepdim=True)


def graph_level(kind, **options):
    return ran(lambda m, x, e: pooled(m.gnn(x, e)), gnn=lambda: kind(4, 4, num_layers=2, out_channels=2, **options))


def hierarchical(make):
    """A layer, a pooling, a layer, as in PyG's example of hierarchical pooling."""

    def run(m, x, e):
        h = m.first(x, e).relu()
        h, e, *_ = m.pool(h, e, batch=BATCH)
        return pooled(m.head(m.second(h, e).tanh()))

    return ran(run, first=gcn, pool=make, second=gcn)


def dense_pooling(function):
    def run(m, x, e):
        h, _ = to_dense_batch(m.first(x, e).relu(), BATCH)
        s, _ = to_dense_batch(m.assign(x), BATCH)
        h, adj, *_ = function(h, to_dense_adj(e), s)
        return m.head(m.dense(h, adj).mean(1))

    return ran(run, first=gcn, assign=lin(4, 2), dense=lambda: pyg.DenseGCNConv(4, 4))


def readout(make, width=4):
    def run(m, x, e):
        return m.out(m.aggr(m.second(m.first(x, e).relu(), e), BATCH))

    return ran(run, first=gcn, second=gcn, aggr=make, out=lin(width, 2))


def residual(m, x, e):
    h = m.enc(x)
    for conv, norm in ((m.a, m.norm_a), (m.b, m.norm_b)):
        h = h + conv(norm(h).relu(), e)
    return pooled(m.head(h))


def virtual_node(m, x, e):
    h = m.enc(x)
    node = torch.zeros(1, 4, dtype=x.dtype)
    for conv in (m.a, m.b):
        h = conv(h + node, e).relu()
        node = m.update(node + h.sum(0, keepdim=True)).relu()
    return pooled(m.head(h))


def jumping(m, x, e):
    first = m.a(x, e).relu()
    second = m.b(first, e).relu()
    return pooled(m.out(torch.cat([first, second], 1)))


def mpnn(m, x, e):
    h = m.enc(x).relu()
    memory = h
    for _ in range(2):
        memory = m.gru(m.conv(memory, e, EDGE_ATTR.to(x)).relu(), memory)
    return m.out(m.set2set(memory, BATCH))


EDGE_ATTR = torch.linspace(-1, 1, 36).view(12, 3).sin()


def recurrent(m, x, e):
    memory = torch.zeros(M, 4, dtype=x.dtype)
    for step in range(2):
        memory = m.gru(m.conv(x * (1 + step), e), memory)
    return pooled(m.head(memory))


def genie_path(m, x, e):
    memory = cells = torch.zeros(1, M, 4, dtype=x.dtype)
    for conv, deep in ((m.a, m.deep_a), (m.b, m.deep_b)):
        x = conv(x, e).tanh()
        x, (memory, cells) = deep(x[None], (memory, cells))
        x = x[0]
    return pooled(m.head(x))


def dna(m, x, e):
    seen = m.enc(x).relu().view(M, 1, 8)
    for conv in (m.a, m.b):
        seen = torch.cat([seen, conv(seen, e).relu().view(M, 1, 8)], 1)
    return pooled(m.out(seen[:, -1]))


def gcnii(m, x, e):
    first = h = m.enc(x).relu()
    for conv in (m.a, m.b):
        h = conv(h, first, e).relu()
    return pooled(m.head(h))


def link(m, x, e):
    h = m.b(m.a(x, e).relu(), e)
    return (h[0] * h[3]).sum().view(1, 1)


def graph_transformer(m, x, e):
    """Attention over all nodes in plain torch, beside a layer."""
    h = m.a(x, e).relu()
    attention = (m.q(h) @ m.k(h).t() / 2).softmax(-1)
    return pooled(m.head(m.b(h + attention @ m.v(h), e)))


def gated_fusion(m, x, e):
    a, b = m.a(x, e).relu(), m.b(x, e).relu()
    gate = m.gate(torch.cat([a, b], 1)).sigmoid()
    return pooled(m.head(m.c(gate * a + (1 - gate) * b, e)))


def squeeze_excite(m, x, e):
    h = m.a(x, e).relu()
    h = h * m.up(m.down(h.mean(0, keepdim=True)).relu()).sigmoid()
    return pooled(m.head(m.b(h, e).relu()))


def sorted_by_degree(m, x, e):
    order = torch.tensor([3, 1, 0, 5, 2, 4])
    place = order.argsort()
    return pooled(m.head(m.b(m.a(x[order], place[e]).relu(), place[e])))


class EGNN(pyg.MessagePassing):
    """An equivariant layer's feature part: messages see the distance of their ends."""

    def __init__(self):
        super().__init__(aggr="add")
        self.edge, self.node = nn.Linear(9, 4), nn.Linear(8, 4)
        self.register_buffer("pos", torch.linspace(0, 3, 18).view(6, 3).cos())

    def forward(self, x, edge_index):
        apart = (self.pos[edge_index[0]] - self.pos[edge_index[1]]).square().sum(1, keepdim=True)
        return self.node(torch.cat([x, self.propagate(edge_index, x=x, apart=apart)], 1))

    def message(self, x_i, x_j, apart):
        return self.edge(torch.cat([x_i, x_j, apart.to(x_j)], 1)).relu()


class HeteroNet(nn.Module):
    """Two layers over types."""

    def __init__(self, first, second, encoders=False):
        super().__init__()
        self.first, self.second, self.head = first(), second(), nn.Linear(4, 2)
        self.encode = nn.ModuleDict({"user": nn.Linear(4, 4), "item": nn.Linear(3, 4)}) if encoders else None

    def forward(self, x_dict, edge_index_dict):
        if self.encode is not None:
            x_dict = {name: self.encode[name](x).relu() for name, x in x_dict.items()}
        h = {name: h.relu() for name, h in self.first(x_dict, edge_index_dict).items()}
        return self.head(self.second(h, edge_index_dict)["user"]).mean(0, keepdim=True)


def hetero_conv(kind, widths=None):
    widths = widths or {"user": 4, "item": 3}
    return lambda: pyg.HeteroConv({k: kind((widths[k[0]], widths[k[2]]), 4) for k in METADATA[1]})


FOURS = {"user": 4, "item": 4}


def by_type(kind):
    return lambda: HeteroNet(
        lambda: kind(4, 4, METADATA, heads=2), lambda: kind(4, 4, METADATA, heads=2), encoders=True
    )


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), 4), pyg.GraphConv((-1, -1), 2)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class ToHetero(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = pyg.to_hetero(Plain(), METADATA)
        self.net(hetero().x_dict, hetero().edge_index_dict)

    def forward(self, x_dict, edge_index_dict):
        return self.net(x_dict, edge_index_dict)["user"].mean(0, keepdim=True)


def hetero():
    generator = torch.Generator().manual_seed(2)
    data, dtype = HeteroData(), torch.get_default_dtype()
    data["user"].x = torch.randn(4, 4, generator=generator, dtype=torch.float64).to(dtype)
    data["item"].x = torch.randn(3, 3, generator=generator, dtype=torch.float64).to(dtype)
    data["user", "to", "item"].edge_index = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 2]])
    data["item", "back", "user"].edge_index = torch.tensor([[0, 0, 1, 2], [0, 1, 2, 3]])
    data["user", "knows", "user"].edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    return data


class Atoms(nn.Module):
    """An embedding of atom numbers before the layers, as in OGB's molecule models."""

    def __init__(self, inner):
        super().__init__()
        self.atoms, self.inner = nn.Embedding(10, 4), inner()

    def forward(self, x, edge_index):
        return self.inner(self.atoms(x[:, 0]), edge_index)


class AdjacencyMatrix(nn.Module):
    """A GCN in plain torch."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 2)

    def forward(self, x, edge_index):
        return pooled(to_dense_adj(edge_index)[0].to(x) @ self.lin(x))


def line_graph(m, x, e):
    """Directed bonds as nodes, as chemists' message passing has them."""
    bonds = m.enc(x[e[0]]).relu()
    after, before = (e[1][:, None] == e[0][None]).nonzero().t()
    return pooled(m.head(m.conv(bonds, torch.stack([after, before]))))


class BondMessages(pyg.MessagePassing):
    """A directed-bond MPNN as chemists write it, in one layer from atoms to atoms."""

    def __init__(self):
        super().__init__()
        self.begin, self.update, self.end = nn.Linear(7, 4), nn.Linear(4, 4), nn.Linear(8, 4)

    def forward(self, x, edge_index):
        source, target = edge_index
        back = ((source[:, None] == target) & (target[:, None] == source)).nonzero()[:, 1]  # the same bond's other way
        first = bonds = self.begin(torch.cat([x[source], EDGE_ATTR.to(x)], 1)).relu()
        for _ in range(2):
            atoms = torch.zeros(len(x), 4).to(x).index_add(0, target, bonds)
            bonds = (first + self.update(atoms[source] - bonds[back])).relu()
        atoms = torch.zeros(len(x), 4).to(x).index_add(0, target, bonds)
        return self.end(torch.cat([x, atoms], 1)).relu()


class DenseLayer(pyg.MessagePassing):
    """A layer over an adjacency matrix, in one for edges."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def forward(self, x, edge_index):
        return self.dense(x, to_dense_adj(edge_index, max_num_nodes=len(x)).to(x))[0]


class MatrixLayer(pyg.MessagePassing):
    """An adjacency matrix times features."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x, edge_index):
        return to_dense_adj(edge_index)[0].to(x) @ self.lin(x)


POSITIONS = torch.linspace(0, 3, 18).view(6, 3).cos()


def farthest_points(positions, count):
    """Points one by one, each as far as can be from those before."""
    chosen, apart = [0], torch.full((len(positions),), torch.inf).to(positions)
    for _ in range(count - 1):
        apart = torch.minimum(apart, (positions - positions[chosen[-1]]).square().sum(1))
        chosen.append(int(apart.argmax()))
    return torch.tensor(chosen)


class SetAbstraction(nn.Module):
    """Farthest points, and a layer from all points near each of them."""

    def __init__(self, count, radius, wide):
        super().__init__()
        inner = nn.Sequential(nn.Linear(wide + 3, 4), nn.ReLU(), nn.Linear(4, 4))
        self.conv, self.count, self.radius = pyg.PointNetConv(inner, add_self_loops=False), count, radius

    def forward(self, h, positions):
        chosen = farthest_points(positions, self.count)
        target, source = (torch.cdist(positions[chosen], positions) <= self.radius).nonzero().t()
        h = self.conv((h, h[chosen]), (positions, positions[chosen]), torch.stack([source, target]))
        return h, positions[chosen]


def point_net(m, x, e):
    h, positions = m.a(x, POSITIONS.to(x))
    h, positions = m.b(h, positions)
    return m.head(m.last(torch.cat([h, positions], 1)).max(0, keepdim=True).values)


def rank_pooling(m, x, e):
    return pooled(m.head(m.b(m.a(x, e).sort(0).values, e)))


def with_edges(kind, *args, **options):
    """Two layers that take edge features."""

    def run(m, x, e):
        h = m.a(x, e, EDGE_ATTR.to(x)).relu()
        return pooled(m.head(m.b(h, e, EDGE_ATTR.to(x)).relu()))

    return ran(run, a=lambda: kind(*args, **options), b=lambda: kind(*args, **options))


def with_types(kind, **options):
    def run(m, x, e):
        return pooled(m.head(m.b(m.a(x, e, KINDS).relu(), e, KINDS)))

    return ran(run, a=lambda: kind(4, 4, num_relations=2, **options), b=lambda: kind(4, 4, num_relations=2, **options))


class PMLP(pyg.PMLP):
    """A perceptron in training, with message passing afterwards."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options, norm=False)


def powers(m, x, e):
    return pooled(m.out(m.first(torch.cat([x, m.conv(x, e)], dim=1)).relu()))


def adaptive(m, x, e):
    first = m.enc(x).relu()
    return pooled(m.out(m.b(m.a(first, first, e).relu(), first, e)))


def sets():
    return aggr.DeepSetsAggregation(nn.Linear(4, 4), nn.Linear(4, 4))


def scaled_by_degree():
    degrees = torch.tensor([0, 2, 3, 1])
    return pyg.SAGEConv(4, 4, aggr=aggr.DegreeScalerAggregation("mean", "identity", degrees))


def pre_activated(m, x, e):
    h = m.enc(x)
    h = h + m.a(h.relu(), e)
    return pooled(m.out(h + m.b(h.relu(), e)))


def raw_features(m, x, e):
    h = m.b(m.a(m.enc(x).relu(), e).relu(), e)
    return pooled(m.out(torch.cat([h, x], dim=1)))


def edge_gates(m, x, e):
    h = m.a(x, e).relu()
    gate = m.gate(torch.cat([h[e[0]], h[e[1]]], dim=1)).sigmoid()
    h = h + torch.zeros_like(h).index_add(0, e[1], gate * h[e[0]])
    return pooled(m.out(m.b(h, e)))


def deep(block):
    return lambda: Stack(
        pyg.DeepGCNLayer(pyg.GENConv(4, 4, aggr="add"), nn.LayerNorm(4), nn.ReLU(), block=block),
        pyg.DeepGCNLayer(pyg.GENConv(4, 4, aggr="add"), nn.LayerNorm(4), nn.ReLU(), block=block),
        between=lambda h: h,
    )


PYG, EXAMPLES, OGB, IDIOMS, HETERO, OUTSIDE = (
    "PyG models", "PyG layers and examples", "OGB", "idioms", "heterogeneous", "not message passing on nodes",
)  # fmt: skip

ZOO = [
    Entry("GCN", PYG, graph_level(pyg.GCN)),
    Entry("GraphSAGE", PYG, graph_level(pyg.GraphSAGE)),
    Entry("GIN", PYG, graph_level(pyg.GIN)),
    Entry("GAT", PYG, graph_level(pyg.GAT)),
    Entry("GATv2", PYG, graph_level(pyg.GAT, v2=True, heads=2)),
    Entry(
        "PNA",
        PYG,
        graph_level(pyg.PNA, aggregators=["mean", "max", "min"], scalers=["identity", "amplification"], deg=DEGREES),
    ),
    Entry("EdgeCNN", PYG, graph_level(pyg.EdgeCNN)),
    Entry("GCN, jumping knowledge (cat)", PYG, graph_level(pyg.GCN, jk="cat")),
    Entry("GCN, jumping knowledge (max)", PYG, graph_level(pyg.GCN, jk="max")),
    Entry("GCN, jumping knowledge (LSTM)", PYG, graph_level(pyg.GCN, jk="lstm")),
    Entry("GIN, batch norm", PYG, graph_level(pyg.GIN, norm="batch_norm")),
    Entry("GraphSAGE, layer norm", PYG, graph_level(pyg.GraphSAGE, norm="LayerNorm")),
    Entry("GCN, GraphNorm", PYG, graph_level(pyg.GCN, norm="GraphNorm")),
    Entry("GCN, PairNorm", PYG, graph_level(pyg.GCN, norm="PairNorm")),
    Entry("GCN, InstanceNorm", PYG, graph_level(pyg.GCN, norm="InstanceNorm")),
    Entry("GCN, ELU", PYG, graph_level(pyg.GCN, act="elu")),
    Entry("GCN, GELU", PYG, graph_level(pyg.GCN, act="gelu")),
    Entry("Graph U-Net", PYG, ran(lambda m, x, e: pooled(m.net(x, e)), net=lambda: pyg.GraphUNet(4, 4, 2, depth=2))),
    Entry(
        "AttentiveFP",
        PYG,
        ran(lambda m, x, e: m.net(x, e, EDGE_ATTR.to(x), BATCH), net=lambda: pyg.AttentiveFP(4, 4, 2, 3, 2, 2)),
    ),
    Entry("GAE, inner-product decoder", PYG, ran(link, a=gcn, b=gcn)),
    Entry("Deep GCN, res+", PYG, deep("res+")),
    Entry("Deep GCN, res", PYG, deep("res")),
    Entry(
        "Deep GCN, dense",
        PYG,
        lambda: Stack(pyg.DeepGCNLayer(gcn(), nn.LayerNorm(4), nn.ReLU(), block="dense"), head=nn.Linear(8, 2)),
    ),
    Entry(
        "GroupAddRev",
        PYG,
        ran(
            lambda m, x, e: pooled(m.head(m.rev(m.enc(x), e))),
            enc=lin(),
            rev=lambda: pyg.GroupAddRev(pyg.SAGEConv(2, 2), num_groups=2),
        ),
    ),
    Entry("GCNConv", EXAMPLES, two(pyg.GCNConv)),
    Entry("GraphConv", EXAMPLES, two(pyg.GraphConv)),
    Entry("GraphConv, max", EXAMPLES, two(pyg.GraphConv, aggr="max")),
    Entry("SAGEConv, mean", EXAMPLES, two(pyg.SAGEConv)),
    Entry("SAGEConv, max, projected", EXAMPLES, two(pyg.SAGEConv, aggr="max", project=True)),
    Entry("SAGEConv, several aggregations", EXAMPLES, two(pyg.SAGEConv, aggr=["mean", "max", "min"])),
    Entry("GINConv", EXAMPLES, lambda: Stack(pyg.GINConv(mlp()), pyg.GINConv(mlp(), train_eps=True))),
    Entry("GINEConv", EXAMPLES, with_edges(lambda: pyg.GINEConv(mlp(), edge_dim=3))),
    Entry("GATConv, heads and edges", EXAMPLES, with_edges(pyg.GATConv, 4, 2, heads=2, edge_dim=3)),
    Entry("GATv2Conv", EXAMPLES, two(pyg.GATv2Conv)),
    Entry("SimpleConv", EXAMPLES, lambda: Stack(pyg.SimpleConv(aggr="mean", combine_root="self_loop"), gcn())),
    Entry("LGConv", EXAMPLES, lambda: Stack(pyg.LGConv(), gcn())),
    Entry("SIGN-like powers", EXAMPLES, ran(powers, first=lin(8, 4), conv=lambda: pyg.LGConv(), out=lin(4, 2))),
    Entry(
        "FAConv", EXAMPLES, ran(adaptive, enc=lin(), a=lambda: pyg.FAConv(4), b=lambda: pyg.FAConv(4), out=lin(4, 2))
    ),
    Entry("PMLP, with message passing", PYG, graph_level(PMLP)),
    Entry("SAGEConv, softmax aggregation", EXAMPLES, two(pyg.SAGEConv, aggr="softmax")),
    Entry("SAGEConv, median", EXAMPLES, two(pyg.SAGEConv, aggr="median")),
    Entry("SAGEConv, deep sets", EXAMPLES, lambda: Stack(pyg.SAGEConv(4, 4, aggr=sets()), gcn())),
    Entry("SAGEConv, degree scalers", EXAMPLES, lambda: Stack(scaled_by_degree(), gcn())),
    Entry("Pre-activated residuals", IDIOMS, ran(pre_activated, enc=lin(), a=gcn, b=gcn, out=lin(4, 2))),
    Entry("Raw features at the head", IDIOMS, ran(raw_features, enc=lin(), a=gcn, b=gcn, out=lin(8, 2))),
    Entry("Edge gates written by hand", IDIOMS, ran(edge_gates, a=gcn, gate=lin(8, 1), b=gcn, out=lin(4, 2))),
    Entry("TransformerConv", EXAMPLES, two(pyg.TransformerConv)),
    Entry("TransformerConv, beta", EXAMPLES, two(pyg.TransformerConv, heads=2, concat=False, beta=True)),
    Entry("SuperGATConv", EXAMPLES, two(pyg.SuperGATConv)),
    Entry("AGNNConv", EXAMPLES, lambda: Stack(pyg.AGNNConv(), pyg.AGNNConv())),
    Entry("ResGatedGraphConv", EXAMPLES, two(pyg.ResGatedGraphConv)),
    Entry("GENConv, softmax", EXAMPLES, two(pyg.GENConv)),
    Entry("GENConv, power mean", EXAMPLES, two(pyg.GENConv, aggr="powermean")),
    Entry("SGConv", EXAMPLES, two(pyg.SGConv, 2)),
    Entry("SSGConv", EXAMPLES, two(pyg.SSGConv, 0.1, 2)),
    Entry(
        "APPNP",
        EXAMPLES,
        ran(lambda m, x, e: pooled(m.head(m.prop(m.enc(x).relu(), e))), enc=lin(), prop=lambda: pyg.APPNP(3, 0.1)),
    ),
    Entry("TAGConv", EXAMPLES, two(pyg.TAGConv)),
    Entry("ChebConv", EXAMPLES, two(pyg.ChebConv, 3)),
    Entry("ARMAConv", EXAMPLES, two(pyg.ARMAConv, num_stacks=2)),
    Entry("ClusterGCNConv", EXAMPLES, two(pyg.ClusterGCNConv)),
    Entry("MixHopConv", EXAMPLES, lambda: Stack(pyg.MixHopConv(4, 2, [0, 1]), pyg.MixHopConv(4, 2, [0, 2]))),
    Entry(
        "GCNII", EXAMPLES, ran(gcnii, enc=lin(), a=lambda: pyg.GCN2Conv(4, 0.3), b=lambda: pyg.GCN2Conv(4, 0.2, 0.5, 2))
    ),
    Entry("LEConv", EXAMPLES, two(pyg.LEConv)),
    Entry("MFConv", EXAMPLES, two(pyg.MFConv)),
    Entry(
        "EdgeConv (DGCNN on given edges)",
        EXAMPLES,
        lambda: Stack(pyg.EdgeConv(nn.Linear(8, 4)), pyg.EdgeConv(nn.Linear(8, 4))),
    ),
    Entry("FeaStConv", EXAMPLES, two(pyg.FeaStConv, heads=2)),
    Entry("FiLMConv", EXAMPLES, two(pyg.FiLMConv)),
    Entry("EGConv", EXAMPLES, two(pyg.EGConv, num_heads=2, num_bases=2)),
    Entry("GeneralConv", EXAMPLES, two(pyg.GeneralConv)),
    Entry(
        "AntiSymmetricConv",
        EXAMPLES,
        lambda: Stack(pyg.AntiSymmetricConv(4), pyg.AntiSymmetricConv(4), between=lambda h: h),
    ),
    Entry("DirGNNConv", EXAMPLES, lambda: Stack(pyg.DirGNNConv(gcn()), pyg.DirGNNConv(gcn()))),
    Entry("GatedGraphConv", EXAMPLES, lambda: Stack(pyg.GatedGraphConv(4, 2))),
    Entry("NNConv", EXAMPLES, with_edges(lambda: pyg.NNConv(4, 4, nn.Linear(3, 16)))),
    Entry("CGConv (crystals)", EXAMPLES, with_edges(pyg.CGConv, 4, 3)),
    Entry("GMMConv (MoNet)", EXAMPLES, with_edges(pyg.GMMConv, 4, 4, dim=3, kernel_size=2)),
    Entry("PDNConv", EXAMPLES, with_edges(pyg.PDNConv, 4, 4, edge_dim=3, hidden_channels=4)),
    Entry(
        "MPNN with GRU and Set2Set",
        EXAMPLES,
        ran(
            mpnn,
            enc=lin(),
            conv=lambda: pyg.NNConv(4, 4, nn.Linear(3, 16)),
            gru=lambda: nn.GRUCell(4, 4),
            set2set=lambda: aggr.Set2Set(4, 2),
            out=lin(8, 2),
        ),
    ),
    Entry(
        "GeniePath",
        EXAMPLES,
        ran(
            genie_path,
            a=lambda: pyg.GATConv(4, 4),
            b=lambda: pyg.GATConv(4, 4),
            deep_a=lambda: nn.LSTM(4, 4),
            deep_b=lambda: nn.LSTM(4, 4),
        ),
    ),
    Entry(
        "DNA",
        EXAMPLES,
        ran(
            dna,
            enc=lin(4, 8),
            a=lambda: pyg.DNAConv(8, heads=2, groups=2),
            b=lambda: pyg.DNAConv(8, heads=2),
            out=lin(8, 2),
        ),
    ),
    Entry("GPS", EXAMPLES, lambda: Stack(pyg.GPSConv(4, pyg.GINConv(mlp()), heads=2), between=lambda h: h)),
    Entry("RGCN", EXAMPLES, with_types(pyg.RGCNConv)),
    Entry("RGCN, bases", EXAMPLES, with_types(pyg.RGCNConv, num_bases=2)),
    Entry("RGCN, blocks", EXAMPLES, with_types(pyg.RGCNConv, num_blocks=2)),
    Entry("RGAT", EXAMPLES, with_types(pyg.RGATConv)),
    Entry("TopK pooling", EXAMPLES, hierarchical(lambda: pool.TopKPooling(4, 0.7))),
    Entry("SAG pooling", EXAMPLES, hierarchical(lambda: pool.SAGPooling(4, 0.7))),
    Entry("ASAP", EXAMPLES, hierarchical(lambda: pool.ASAPooling(4, 0.7))),
    Entry("Edge pooling", EXAMPLES, hierarchical(lambda: pool.EdgePooling(4))),
    Entry("DiffPool", EXAMPLES, dense_pooling(pyg.dense_diff_pool)),
    Entry("MinCut pooling", EXAMPLES, dense_pooling(pyg.dense_mincut_pool)),
    Entry(
        "Memory pooling",
        EXAMPLES,
        ran(
            lambda m, x, e: m.head(m.mem(m.a(x, e).relu(), BATCH)[0].mean(1)),
            a=gcn,
            mem=lambda: pool.MemPooling(4, 4, heads=2, num_clusters=2),
        ),
    ),
    Entry("Global attention read-out", EXAMPLES, readout(lambda: aggr.AttentionalAggregation(nn.Linear(4, 1)))),
    Entry("Set2Set read-out", EXAMPLES, readout(lambda: aggr.Set2Set(4, 2), 8)),
    Entry("Sort pooling read-out (DGCNN)", EXAMPLES, readout(lambda: aggr.SortAggregation(3), 12)),
    Entry("Max read-out", EXAMPLES, readout(aggr.MaxAggregation)),
    Entry("Softmax read-out", EXAMPLES, readout(lambda: aggr.SoftmaxAggregation(learn=True))),
    Entry(
        "OGB GIN",
        OGB,
        lambda: Atoms(lambda: Stack(pyg.GINConv(mlp()), pyg.GINConv(mlp()))),
        graph="numbers",
    ),
    Entry("OGB GCN", OGB, lambda: Atoms(lambda: Stack(gcn(), gcn())), graph="numbers"),
    Entry(
        "OGB GIN with a virtual node",
        OGB,
        ran(virtual_node, enc=lin(), a=lambda: pyg.GINConv(mlp()), b=lambda: pyg.GINConv(mlp()), update=lin()),
    ),
    Entry(
        "OGB ogbn SAGE, residual",
        OGB,
        ran(
            residual,
            enc=lin(),
            a=lambda: pyg.SAGEConv(4, 4),
            b=lambda: pyg.SAGEConv(4, 4),
            norm_a=lambda: nn.BatchNorm1d(4),
            norm_b=lambda: nn.BatchNorm1d(4),
        ),
    ),
    Entry("OGB DeeperGCN", OGB, deep("plain")),
    Entry(
        "OGB UniMP",
        OGB,
        lambda: Stack(pyg.TransformerConv(4, 2, heads=2, beta=True), pyg.TransformerConv(4, 2, heads=2, beta=True)),
    ),
    Entry("Jumping connections by hand", IDIOMS, ran(jumping, a=gcn, b=gcn, out=lin(8, 2))),
    Entry("Attention over all nodes", IDIOMS, ran(graph_transformer, a=gcn, b=gcn, q=lin(), k=lin(), v=lin())),
    Entry(
        "Gated fusion of branches",
        IDIOMS,
        ran(gated_fusion, a=gcn, b=lambda: pyg.SAGEConv(4, 4), c=gcn, gate=lin(8, 4)),
    ),
    Entry("Squeeze and excitation", IDIOMS, ran(squeeze_excite, a=gcn, b=gcn, down=lin(4, 2), up=lin(2, 4))),
    Entry("Nodes in another order", IDIOMS, ran(sorted_by_degree, a=gcn, b=gcn)),
    Entry("Equivariant layer's features (EGNN)", IDIOMS, lambda: Stack(EGNN(), EGNN())),
    Entry("GRU over time", IDIOMS, ran(recurrent, conv=gcn, gru=lambda: nn.GRUCell(4, 4))),
    Entry(
        "LayerNorm and SiLU between layers",
        IDIOMS,
        lambda: Stack(gcn(), gcn(), between=nn.Sequential(nn.LayerNorm(4), nn.SiLU())),
    ),
    Entry("Hypergraph", IDIOMS, lambda: Stack(pyg.HypergraphConv(4, 4), pyg.HypergraphConv(4, 4))),
    Entry(
        "HeteroConv of SAGE",
        HETERO,
        lambda: HeteroNet(hetero_conv(pyg.SAGEConv), hetero_conv(pyg.SAGEConv, FOURS)),
        graph="hetero",
    ),
    Entry(
        "HeteroConv of GraphConv",
        HETERO,
        lambda: HeteroNet(hetero_conv(pyg.GraphConv), hetero_conv(pyg.GraphConv, FOURS)),
        graph="hetero",
    ),
    Entry(
        "HeteroConv of GAT",
        HETERO,
        lambda: HeteroNet(
            hetero_conv(lambda w, o: pyg.GATConv(w, o, add_self_loops=False)), hetero_conv(pyg.SAGEConv, FOURS)
        ),
        graph="hetero",
    ),
    Entry("HGT", HETERO, by_type(pyg.HGTConv), graph="hetero"),
    Entry("HAN", HETERO, by_type(pyg.HANConv), graph="hetero"),
    Entry("to_hetero", HETERO, ToHetero, graph="hetero"),
    Entry(
        "PointNet++ (farthest points, radius)",
        EXAMPLES,
        ran(
            point_net,
            a=lambda: SetAbstraction(4, 2.0, 4),
            b=lambda: SetAbstraction(2, 3.0, 4),
            last=lin(7, 4),
        ),
    ),
    Entry("Directed bonds in one layer (D-MPNN)", IDIOMS, lambda: Stack(BondMessages(), gcn())),
    Entry("Continuous filters (SchNet)", IDIOMS, by_hand(handmade.ContinuousFilter)),
    Entry("Generalised PageRank (GPRGNN)", IDIOMS, by_hand(handmade.GeneralisedPageRank)),
    Entry("Attention by an edge_updater", IDIOMS, by_hand(handmade.EdgeScores)),
    Entry("Aggregation and update of its own", IDIOMS, by_hand(handmade.OwnAggregate)),
    Entry("A learned matrix for every edge", IDIOMS, by_hand(handmade.BilinearMessages)),
    Entry("Heads before nodes", IDIOMS, by_hand(handmade.HeadsFirst)),
    Entry("Messages against the edges", IDIOMS, by_hand(handmade.AgainstTheEdges)),
    Entry("Messages of edges to edges (DimeNet)", IDIOMS, by_hand(handmade.Triplets)),
    Entry("Gates at edges (GatedGCN)", IDIOMS, by_hand(handmade.GatedEdges)),
    Entry("Circular correlation with relations (CompGCN)", IDIOMS, by_hand(handmade.Compositions)),
    Entry("Complex messages turned by relations (RotatE)", IDIOMS, by_hand(handmade.Rotations)),
    Entry(
        "Places that move (EGNN)",
        IDIOMS,
        lambda: handmade.Geometric(handmade.MovingPlaces, lambda x: handmade.PLACES.to(x)),
    ),
    Entry(
        "Vectors of nodes (PaiNN)",
        IDIOMS,
        lambda: handmade.Geometric(handmade.VectorFeatures, lambda x: x.new_zeros(len(x), 3, handmade.N)),
    ),
    Entry("Deep Graph Infomax", IDIOMS, ran(discriminator, conv=gcn, slope=lambda: nn.PReLU(4), head=lin()), gates=()),
    Entry("Covariance read-out", IDIOMS, ran(covariance, a=gcn, b=gcn, out=lambda: nn.Linear(16, 2))),
    Entry("The best nodes, gated", IDIOMS, ran(best_nodes, a=gcn, score=lin(4, 1))),
    Entry("Adjacency matrix in a layer", IDIOMS, lambda: Stack(MatrixLayer(), MatrixLayer())),
    Entry("GCN as products of matrices, without layers", IDIOMS, AdjacencyMatrix),
    Entry("DenseGCNConv in a layer", IDIOMS, lambda: Stack(*(DenseLayer(pyg.DenseGCNConv(4, 4)) for _ in range(2)))),
    Entry("DenseSAGEConv in a layer", IDIOMS, lambda: Stack(*(DenseLayer(pyg.DenseSAGEConv(4, 4)) for _ in range(2)))),
    Entry("DenseGINConv in a layer", IDIOMS, lambda: Stack(*(DenseLayer(pyg.DenseGINConv(mlp())) for _ in range(2)))),
    Entry("DenseGATConv in a layer", IDIOMS, lambda: Stack(*(DenseLayer(pyg.DenseGATConv(4, 4)) for _ in range(2)))),
    Entry("MLP", OUTSIDE, lambda: nn.Sequential(nn.Linear(4, 2)), refused="no message-passing layer"),
    Entry(
        "Directed bonds as nodes (D-MPNN)", OUTSIDE, ran(line_graph, enc=lin(), conv=gcn), refused="which are not nodes"
    ),
    Entry("Columns sorted between layers", OUTSIDE, ran(rank_pooling, a=gcn, b=gcn), refused="cannot be followed"),
    Entry("Scripted model", OUTSIDE, lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 2))), refused="TorchScript"),
]
