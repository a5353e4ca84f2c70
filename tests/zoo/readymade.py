"""The models, normalisations and poolings of torch_geometric.nn that no other architecture of the zoo has."""

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import attention, models, pool
from torch_geometric.utils import to_dense_adj, to_dense_batch

from zoo.models import (
    BATCH,
    EDGE_ATTR,
    FOURS,
    METADATA,
    OUTSIDE,
    DenseLayer,
    Entry,
    M,
    Stack,
    gcn,
    hetero_conv,
    hierarchical,
    lin,
    mlp,
    pooled,
    ran,
)
from zoo.molecules import Molecule, dimenet, dimenet_pp
from zoo.rest import PLACES

READY, BETWEEN = "models of torch_geometric.nn as they come", "between the layers"


def two_layers():
    return pyg.GCN(4, 4, 2)


class Variational(nn.Module):
    """An encoder of means and spreads."""

    def __init__(self):
        super().__init__()
        self.first, self.mean, self.spread = gcn(), gcn(), gcn()

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        return self.mean(h, edge_index), self.spread(h, edge_index)


def auto_encoder(make):
    """The score of one pair of nodes."""
    return ran(lambda m, x, e: m.net.decode(m.net.encode(x, e), e[:, 3:4], sigmoid=False).view(1, 1), net=make)


def infomax(m, x, e):
    z, _, summary = m.net(x, e)
    return m.net.discriminate(z, summary, sigmoid=False).sum().view(1, 1)


def infomax_model():
    def shuffled(x, e):
        return x.flip(0), e

    return models.DeepGraphInfomax(4, gcn(), lambda z, x, e: z.mean(0).sigmoid(), shuffled)


def schnet():
    return models.SchNet(4, 4, 2, 5)


class EdgeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(11, 4)

    def forward(self, source, target, edge_attr, u, batch):
        return self.lin(torch.cat([source, target, edge_attr], 1)).relu()


class NodeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 4)

    def forward(self, x, edge_index, edge_attr, u, batch):
        received = torch.zeros_like(x).index_add(0, edge_index[1], edge_attr)
        return self.lin(torch.cat([x, received], 1)).relu()


class GraphNetwork(pyg.MessagePassing):
    """A MetaLayer inside a layer, which is the layer then."""

    def __init__(self):
        super().__init__()
        self.net = meta_layer()

    def forward(self, x, edge_index):
        return with_edges(self.net, x, edge_index)


def with_edges(net, x, e):
    return net(x, e, EDGE_ATTR.to(x))[0]


def meta_layer():
    return models.MetaLayer(EdgeModel(), NodeModel())


def meta_layers(m, x, e):
    return pooled(m.head(with_edges(m.b, with_edges(m.a, x, e), e)))


class ByType(Stack):
    """Two layers over types, with something between or after them."""

    def __init__(self, **parts):
        first, second = hetero_conv(pyg.SAGEConv)(), hetero_conv(pyg.SAGEConv, FOURS)()
        super().__init__(first=first, second=second, **parts)

    def forward(self, x_dict, edge_index_dict):
        return self.run(self, x_dict, edge_index_dict)


def hetero_jumping():
    def run(m, x_dict, edges):
        first = {name: h.relu() for name, h in m.first(x_dict, edges).items()}
        second = {name: h.relu() for name, h in m.second(first, edges).items()}
        return pooled(m.head(m.jump({name: [first[name], second[name]] for name in first})["user"]))

    return ByType(run=run, jump=models.HeteroJumpingKnowledge(METADATA[0], "max"))


def hetero_normed(make):
    def run(m, x_dict, edges):
        h = m.first(x_dict, edges)
        users, types = len(h["user"]), torch.arange(2).repeat_interleave(torch.tensor([len(h["user"]), len(h["item"])]))
        both = m.norm(torch.cat([h["user"], h["item"]]), types).relu()
        return pooled(m.head(m.second({"user": both[:users], "item": both[users:]}, edges)["user"]))

    return lambda: ByType(run=run, norm=make())


def between(make, call=lambda part, h: part(h)):
    """Something between two layers."""
    return ran(lambda m, x, e: pooled(m.head(m.b(call(m.part, m.a(x, e)).relu(), e))), a=gcn, b=gcn, part=make)


def of_one_graph(attention, h):
    return attention(h[None])[0]


def message_norm(m, x, e):
    h = m.enc(x)
    for conv in (m.a, m.b):
        h = h + m.norm(h, conv(h, e).relu())
    return pooled(m.head(h))


def dmon(m, x, e):
    h, _ = to_dense_batch(m.first(x, e).relu(), BATCH)
    _, h, adj, *_ = m.pool(h, to_dense_adj(e))
    return m.head(m.dense(h, adj).mean(1))


def coarsened(function):
    """Clusters of two nodes in the place of nodes, with the edges between them."""

    def run(m, x, e):
        data = function(PAIRS, Data(x=m.a(x, e).relu(), edge_index=e, batch=BATCH))
        return pooled(m.head(m.b(data.x, data.edge_index).relu()))

    return ran(run, a=gcn, b=gcn)


def gathered(function):
    """A read-out by clusters of two nodes."""
    return ran(lambda m, x, e: pooled(m.head(function(PAIRS, m.b(m.a(x, e).relu(), e), BATCH)[0])), a=gcn, b=gcn)


def of_neighbours(function):
    def run(m, x, e):
        return pooled(m.head(m.b(function(Data(x=m.a(x, e).relu(), edge_index=e)).x, e)))

    return ran(run, a=gcn, b=gcn)


def timed(m, x, e):
    when = torch.linspace(0, 2, e.size(1)).to(x)
    h = m.a(x, e, m.time(when)).relu()
    return pooled(m.head(m.b(h, e, m.time(when))))


def with_time():
    return pyg.GATConv(4, 4, edge_dim=6)


def polynormer():
    net = models.Polynormer(4, 4, 2, 2, 1)
    net._global = True  # after its first, local rounds of training
    return net


def whole(make, call):
    return ran(lambda m, x, e: call(m.net, x, e), net=make)


PAIRS = torch.arange(M) // 2
LABELS, KNOWN = torch.tensor([0, 1, 0, 1, 0, 1]), torch.tensor([True, False, True, True, False, False])


def as_graph(net, x, e):
    """The whole graph from a model that takes it as one object; it asks for what it is to learn, too."""
    graph = Data(x=x, edge_index=e, batch=BATCH, y=torch.zeros(M, 2), y_graph=torch.zeros(1, 1))
    return net(graph)[0][:1]


def of_pair(net, x, e):
    return net(torch.tensor([[0], [3]]), x, e, torch.full((M, M), 0.2).to_sparse()).view(1, 1)


def with_labels(method, width):
    def run(m, x, e):
        return pooled(m.head(m.b(m.a(m.labels(x, LABELS, KNOWN), e).relu(), e)))

    return ran(run, labels=lambda: models.MaskLabel(2, 4, method), a=lambda: pyg.GCNConv(width, 4), b=gcn)


def with_places(m, x, e):
    return pooled(m.head(m.b(m.a(m.enc(x, PLACES.to(x)), e).relu(), e)))


def nodes(net, x, e):
    return pooled(net(x, e))


def first_node(net, x, e):
    return net(x, e, BATCH)[:1]


_NO_LAYER, _NO_GRADIENTS = "no message-passing layer", "torch.no_grad"

READYMADE = [
    Entry("GAE", READY, auto_encoder(lambda: models.GAE(two_layers()))),
    Entry("VGAE", READY, auto_encoder(lambda: models.VGAE(Variational()))),
    Entry("ARGA", READY, auto_encoder(lambda: models.ARGA(two_layers(), nn.Linear(4, 1)))),
    Entry("ARGVA", READY, auto_encoder(lambda: models.ARGVA(Variational(), nn.Linear(4, 1)))),
    Entry("DeepGraphInfomax", READY, ran(infomax, net=infomax_model), gates=()),
    Entry("SignedGCN", READY, whole(lambda: models.SignedGCN(4, 4, 2), lambda net, x, e: pooled(net(x, e, e[:, ::2])))),
    Entry("RECT_L", READY, whole(lambda: models.RECT_L(4, 4), nodes)),
    Entry("LINKX", READY, whole(lambda: models.LINKX(M, 4, 4, 2, 2), nodes)),
    Entry("LINKX, several layers each", READY, whole(lambda: models.LINKX(M, 4, 4, 2, 2, 2, 2), nodes)),
    Entry(
        "NeuralFingerprint",
        READY,
        whole(lambda: models.NeuralFingerprint(4, 4, 2, 2), lambda net, x, e: net(x, e, BATCH)),
        gates=(),
    ),
    Entry("SGFormer", READY, whole(lambda: models.SGFormer(4, 4, 2, 1, 2, gnn_num_layers=2), first_node)),
    Entry("Polynormer, local", READY, whole(lambda: models.Polynormer(4, 4, 2, 2, 1), first_node)),
    Entry("Polynormer", READY, whole(polynormer, first_node)),
    Entry("LPFormer", READY, whole(lambda: models.LPFormer(4, 4), of_pair)),
    Entry("MaskLabel, added", READY, with_labels("add", 4)),
    Entry("MaskLabel, beside", READY, with_labels("concat", 8)),
    Entry(
        "GPSENodeEncoder",
        READY,
        ran(with_places, enc=lambda: models.GPSENodeEncoder(4, 3, 2, 4, expand_x=True), a=gcn, b=gcn),
    ),
    Entry(
        "GPSE",
        READY,
        whole(
            lambda: models.GPSE(4, 4, 4, layers_mp=2, num_node_targets=2, num_graph_targets=1, virtual_node=False),
            as_graph,
        ),
    ),
    Entry("SchNet", READY, lambda: Molecule(schnet(), "schnet"), graph="numbers"),
    Entry(
        "ViSNet",
        READY,
        lambda: Molecule(models.ViSNet(num_heads=2, num_layers=2, hidden_channels=4, num_rbf=4), "visnet"),
        graph="numbers",
    ),
    Entry("MetaLayer", READY, ran(meta_layers, a=meta_layer, b=meta_layer)),
    Entry("MetaLayer in a layer", READY, lambda: Stack(GraphNetwork(), GraphNetwork())),
    Entry("HeteroJumpingKnowledge", BETWEEN, hetero_jumping, graph="hetero"),
    Entry("HeteroBatchNorm", BETWEEN, hetero_normed(lambda: pyg.HeteroBatchNorm(4, 2)), graph="hetero"),
    Entry("HeteroLayerNorm", BETWEEN, hetero_normed(lambda: pyg.HeteroLayerNorm(4, 2)), graph="hetero"),
    Entry("GraphSizeNorm", BETWEEN, between(pyg.GraphSizeNorm)),
    Entry("MeanSubtractionNorm", BETWEEN, between(pyg.MeanSubtractionNorm)),
    Entry("DiffGroupNorm", BETWEEN, between(lambda: pyg.DiffGroupNorm(4, 2, 0.3))),
    Entry(
        "MessageNorm",
        BETWEEN,
        ran(message_norm, enc=lin(), a=gcn, b=gcn, norm=lambda: pyg.MessageNorm(learn_scale=True)),
    ),
    Entry("ClusterPooling", BETWEEN, hierarchical(lambda: pool.ClusterPooling(4, "sigmoid"))),
    Entry("max_pool", BETWEEN, coarsened(pool.max_pool)),
    Entry("avg_pool", BETWEEN, coarsened(pool.avg_pool)),
    Entry("max_pool_x", BETWEEN, gathered(pool.max_pool_x)),
    Entry("avg_pool_x", BETWEEN, gathered(pool.avg_pool_x)),
    Entry("max_pool_neighbor_x", BETWEEN, of_neighbours(pool.max_pool_neighbor_x)),
    Entry("avg_pool_neighbor_x", BETWEEN, of_neighbours(pool.avg_pool_neighbor_x)),
    Entry(
        "DMoNPooling",
        BETWEEN,
        ran(dmon, first=gcn, pool=lambda: pyg.DMoNPooling(4, 2), dense=lambda: pyg.DenseGCNConv(4, 4)),
    ),
    Entry(
        "DenseGraphConv in a layer", BETWEEN, lambda: Stack(*(DenseLayer(pyg.DenseGraphConv(4, 4)) for _ in range(2)))
    ),
    Entry("TemporalEncoding", BETWEEN, ran(timed, a=with_time, b=with_time, time=lambda: pyg.TemporalEncoding(6))),
    Entry(
        "Reshape", BETWEEN, between(lambda: nn.Sequential(pyg.Reshape(-1, 2, 2), nn.LayerNorm(2), pyg.Reshape(-1, 4)))
    ),
    Entry("PerformerAttention", BETWEEN, between(lambda: attention.PerformerAttention(4, 2), of_one_graph)),
    Entry("QFormer", BETWEEN, between(lambda: attention.QFormer(4, 4, 4, 2, 1), of_one_graph)),
    Entry(
        "GPSConv with PerformerAttention",
        BETWEEN,
        lambda: Stack(pyg.GPSConv(4, pyg.GINConv(mlp()), heads=2, attn_type="performer"), between=lambda h: h),
    ),
    Entry("DimeNet", READY, lambda: Molecule(dimenet(), "dimenet"), graph="numbers"),
    Entry("DimeNet++", READY, lambda: Molecule(dimenet_pp(), "dimenet"), graph="numbers"),
    Entry("ARLinkPredictor", OUTSIDE, whole(lambda: models.ARLinkPredictor(4, 4), nodes), refused=_NO_LAYER),
    Entry("LabelPropagation", OUTSIDE, whole(lambda: models.LabelPropagation(2, 0.5), nodes), refused=_NO_GRADIENTS),
    Entry(
        "CorrectAndSmooth",
        OUTSIDE,
        whole(
            lambda: models.CorrectAndSmooth(2, 0.5, 2, 0.5),
            lambda net, x, e: pooled(net(x, LABELS[KNOWN], KNOWN, e)),
        ),
        refused=_NO_GRADIENTS,
    ),
]
