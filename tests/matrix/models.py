"""The models and graphs of the cells, in PyTorch Geometric, and what is asked of them."""

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional as F

from walkwise import rules

N = 4  # neurons
CLASSES = 3


def _perceptron(i, o, bias):
    return nn.Sequential(nn.Linear(i, 5, bias), nn.ReLU(), nn.Linear(5, o, bias))


CONVS = {
    "GCN": lambda i, o, bias: pyg.GCNConv(i, o, bias=bias),
    "SG": lambda i, o, bias: pyg.SGConv(i, o, K=2, bias=bias),
    "TAG": lambda i, o, bias: pyg.TAGConv(i, o, K=2, bias=bias),
    "Cheb": lambda i, o, bias: pyg.ChebConv(i, o, K=3, bias=bias),
    "GraphConv": lambda i, o, bias: pyg.GraphConv(i, o, bias=bias),
    "GraphConv mean": lambda i, o, bias: pyg.GraphConv(i, o, aggr="mean", bias=bias),
    "GraphConv max": lambda i, o, bias: pyg.GraphConv(i, o, aggr="max", bias=bias),
    "SAGE": lambda i, o, bias: pyg.SAGEConv(i, o, bias=bias),
    "SAGE sum": lambda i, o, bias: pyg.SAGEConv(i, o, aggr="sum", bias=bias),
    "SAGE max": lambda i, o, bias: pyg.SAGEConv(i, o, aggr="max", bias=bias),
    "SAGE mean and max": lambda i, o, bias: pyg.SAGEConv(i, o, aggr=["mean", "max"], bias=bias),
    "GIN": lambda i, o, bias: pyg.GINConv(_perceptron(i, o, bias), eps=0.3),
    "GINE": lambda i, o, bias: pyg.GINEConv(_perceptron(i, o, bias), eps=0.3, edge_dim=2),
    "GAT": lambda i, o, bias: pyg.GATConv(i, o // 2, heads=2, bias=bias),
    "GATv2": lambda i, o, bias: pyg.GATv2Conv(i, o // 2, heads=2, bias=bias),
    "Transformer": lambda i, o, bias: pyg.TransformerConv(i, o // 2, heads=2, bias=bias),
    "ResGated": lambda i, o, bias: pyg.ResGatedGraphConv(i, o, bias=bias),
    "NNConv": lambda i, o, bias: pyg.NNConv(i, o, nn.Linear(2, i * o, bias), bias=bias),
    "LE": lambda i, o, bias: pyg.LEConv(i, o, bias=bias),
    "General": lambda i, o, bias: pyg.GeneralConv(i, o, bias=bias),
    "RGCN": lambda i, o, bias: pyg.RGCNConv(i, o, num_relations=2, bias=bias),
    "APPNP": lambda i, o, bias: pyg.APPNP(K=2, alpha=0.2),
    "LG": lambda i, o, bias: pyg.LGConv(),
    "EdgeConv": lambda i, o, bias: pyg.EdgeConv(nn.Linear(2 * i, o, bias)),
    "CGConv": lambda i, o, bias: pyg.CGConv(i, bias=bias),
}
#: Layers whose output is as wide as their input.
_AS_WIDE = frozenset({"APPNP", "LG", "CGConv"})
#: What layers read of the edges besides their ends.
_READS = {"GINE": "edge_attr", "NNConv": "edge_attr", "RGCN": "edge_type"}

NORMS = {
    "none": lambda width: nn.Identity(),
    "batch": nn.BatchNorm1d,
    "layer": nn.LayerNorm,
    "rms": lambda width: nn.RMSNorm(width, eps=1e-5),
    "instance": pyg.InstanceNorm,
    "graph": pyg.GraphNorm,
    "pair": lambda width: pyg.PairNorm(),
}
_OF_GRAPHS = frozenset({"instance", "graph", "pair"})

_FUNCTIONS = {
    "relu": F.relu,
    "leaky": nn.LeakyReLU(0.1),
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "none": lambda z: z,
}

POOLS = {
    "sum": lambda width, bias: pyg.SumAggregation(),
    "mean": lambda width, bias: pyg.MeanAggregation(),
    "max": lambda width, bias: pyg.MaxAggregation(),
    "attention": lambda width, bias: pyg.AttentionalAggregation(nn.Linear(width, 1, bias)),
    "softmax": lambda width, bias: pyg.SoftmaxAggregation(),
    "none": lambda width, bias: nn.Identity(),
}

#: The rules by name, of a model with so many layers.
RULES = {
    "auto": lambda L: "auto",
    "zero": lambda L: "zero",
    "epsilon": lambda L: rules.Epsilon(0.05),
    "gamma": lambda L: "gamma",
    "Gamma(1.5)": lambda L: rules.Gamma(1.5),
    "GeneralisedGamma(1)": lambda L: rules.GeneralisedGamma(1.0),
    "alphabeta": lambda L: "alphabeta",
    "zplus": lambda L: "zplus",
    "positive": lambda L: "positive",
    "one per layer": lambda L: [rules.Gamma(2.0), rules.AlphaBeta(3.0, 2.0), rules.Epsilon(0.1)][:L],
    "ε in the read-out": lambda L: rules.Schedule.constant(rules.Gamma(1.0), readout=rules.Epsilon(0.1)),
    "generalised γ in the read-out": lambda L: rules.Schedule.constant(
        rules.Zero(), readout=rules.GeneralisedGamma(2.0)
    ),
}


class Net(nn.Module):
    """The model of a cell."""

    def __init__(self, cell):
        super().__init__()
        self.cell, bias = cell, cell.biases == "yes"
        widths, made = [N], []
        for _ in range(cell.depth):
            made.append(widths[-1] if cell.layer in _AS_WIDE else N)
            widths.append(widths[-1] + made[-1] if cell.skip == "concatenated" else made[-1])
        self.encoder = nn.Linear(N, N, bias) if cell.maps == "before" else None
        self.convs = nn.ModuleList(CONVS[cell.layer](i, N, bias) for i in widths[:-1])
        self.norms = nn.ModuleList(NORMS[cell.norm](width) for width in made)
        between = widths[1:-1] if cell.maps == "between" else ()
        self.between = nn.ModuleList(nn.Linear(width, width, bias) for width in between)
        self.gates = nn.ModuleList(nn.Linear(N, N, bias) for _ in range(cell.depth if cell.skip == "gated" else 0))
        kind = cell.skip.removeprefix("jumping ") if cell.skip.startswith("jumping") else None
        self.jump = None if kind is None else pyg.JumpingKnowledge(kind, N, cell.depth)
        width = widths[-1] * (cell.depth if kind == "cat" else 1)
        self.pool = POOLS[cell.pooling](width, bias)
        self.head = nn.Linear(width, 1 if cell.task == "regression" else CLASSES, bias) if cell.task != "link" else None

    def forward(self, x, edge_index, batch=None, pair=None, **edges):
        """Class scores, one number, or the scores of pairs."""
        act, skip = _FUNCTIONS[self.cell.activation], self.cell.skip
        h = first = x if self.encoder is None else act(self.encoder(x))
        seen = []
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            z = conv(h, edge_index, **edges)
            z = act(norm(z, batch) if self.cell.norm in _OF_GRAPHS else norm(z))
            if skip == "residual":
                h = z + h
            elif skip == "initial":
                h = z + 0.5 * first
            elif skip == "concatenated":
                h = torch.cat([h, z], dim=-1)
            elif skip == "gated":
                gate = torch.sigmoid(self.gates[i](h))
                h = gate * z + (1 - gate) * h
            else:
                h = z
            seen.append(h)
            if i < len(self.between):
                h = self.between[i](h)
        h = seen[-1] if self.jump is None else self.jump(seen)
        if pair is not None:
            return (h[pair[0]] * h[pair[1]]).sum(-1)
        h = h if self.cell.pooling == "none" else self.pool(h, batch)
        out = self.head(h)
        return out.log_softmax(-1) if self.cell.task == "log-softmax" else out


DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "float16", "bfloat16")} | {
    "mixed": torch.float64
}


def model_of(cell):
    """The model, with weights of its own."""
    torch.manual_seed(cell.seed)
    model = Net(cell)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.uniform_(-0.3, 0.3)
        for norm in model.norms:
            for name in ("weight", "mean_scale"):
                if getattr(norm, name, None) is not None:
                    getattr(norm, name).normal_()  # of either sign
            if cell.norm == "batch":
                norm.running_mean.normal_(std=0.3)
                norm.running_var.uniform_(0.5, 2.0)
    return model.to(DTYPES[cell.dtype]).eval()


_BASES = {
    "both ways": (5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)]),
    "one way": (5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3), (2, 0), (4, 2)]),
    "self-loops": (4, [(0, 1), (1, 2), (2, 3), (3, 0)]),
    "duplicates": (4, [(0, 1), (1, 2), (2, 3), (1, 3)]),
    "isolated nodes": (5, [(0, 1), (1, 3), (3, 0), (3, 4)]),
    "all of these": (5, [(0, 1), (1, 2), (2, 0), (0, 2), (2, 3)]),
}


def edges_of(kind):
    """How many nodes, and the edges.  # (2, E)"""
    M, edges = _BASES[kind]
    if kind not in ("one way", "all of these"):
        edges = edges + [(b, a) for a, b in edges]
    if kind in ("self-loops", "all of these"):
        edges = [*edges, (1, 1), (3, 3)]
    if kind in ("duplicates", "all of these"):
        edges = [*edges, (0, 1), (0, 1), (2, 3)]
    return M, torch.tensor(edges).t().contiguous()


def _signed(weight, target, turned):
    """The weights, some of them negative, as long as those that come to a node sum to more than 0."""
    weight = weight.clone()
    for e in turned.nonzero()[:, 0].tolist():
        if float(weight[target == target[e]].sum()) > 0.1 + 1.6 * float(weight[e]):
            weight[e] *= -0.6
    return weight


def graph_of(cell, seed, kind=None):
    """x, edge_index and what else the layers read, by name."""
    M, edge_index = edges_of(kind or cell.edges)
    source, E = torch.Generator().manual_seed(seed), edge_index.shape[1]
    x = torch.randn(M, N, generator=source)
    if cell.features == "positive":
        x = x.abs()
    elif cell.features == "ones":
        x = torch.ones_like(x)
    elif cell.features == "equal":
        x[0], x[1] = x[3], 0
    weight = torch.rand(E, generator=source) + 0.2
    if cell.weights == "signed":
        weight = _signed(weight, edge_index[1], torch.rand(E, generator=source) < 0.4)
    if cell.weights == "negative":
        weight = -2 - weight
    every = {
        "edge_attr": torch.randn(E, 2, generator=source),
        "edge_type": torch.arange(E) % 2,
        "edge_weight": weight,
    }
    names = {_READS.get(cell.layer), "edge_weight" if cell.weights != "none" else None}
    dtype = DTYPES[cell.dtype]
    read = {n: v.to(dtype) if v.is_floating_point() else v for n, v in every.items() if n in names}
    return x.to(torch.float32 if cell.dtype == "mixed" else dtype), edge_index, read


PAIRS = torch.tensor([[0, 2, 3], [1, 3, 1]])
#: What is asked: the arguments of trace.
ASKED = {
    "class": {"target": 1},
    "regression": {},
    "log-softmax": {"target": 2},
    "contrast": {"target": 0, "against": 2},
    "node": {"index": 3, "target": 1},
    "link": {"index": 1},
}
