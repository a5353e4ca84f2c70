"""The models that are explained, and their training: small, seconds each."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool

from quality.planted import LAYERS
from quality.tasks import Split, Task

ENOUGH = 0.95  # the accuracy on test examples below which a model is dropped
WIDTH = 32


@dataclass(frozen=True)
class Design:
    """A kind of layer and what stands around it."""

    name: str
    layer: str
    activation: type[nn.Module]
    norm: bool = False
    linear_last: bool = False  # no activation after the last layer, as in the paper
    deep_head: bool = False  # two linear maps in the read-out
    mean: bool = False  # nodes are averaged, not summed (not where numbers are predicted)


DESIGNS = {
    design.name: design
    for design in (
        Design("gin-relu", "gin", nn.ReLU),
        Design("gin-gelu", "gin", nn.GELU),
        Design("gin-relu-norm", "gin", nn.ReLU, norm=True, deep_head=True),
        Design("gcn-relu", "gcn", nn.ReLU, linear_last=True, deep_head=True, mean=True),
        Design("gcn-gelu", "gcn", nn.GELU, linear_last=True, deep_head=True, mean=True),
        Design("sage-relu", "sage", nn.ReLU, deep_head=True),
        Design("sage-gelu", "sage", nn.GELU, deep_head=True),
        Design("sage-gelu-norm", "sage", nn.GELU, norm=True),
        Design("gat-relu", "gat", nn.ReLU),
        Design("gat-gelu", "gat", nn.GELU),
    )
}


def conv(kind: str, before: int, after: int, activation: type[nn.Module]) -> nn.Module:
    if kind == "gin":
        return GINConv(nn.Sequential(nn.Linear(before, after), activation(), nn.Linear(after, after)))
    if kind == "gat":
        return GATConv(before, after // 4, heads=4)
    return {"gcn": GCNConv, "sage": SAGEConv}[kind](before, after)


class Network(nn.Module):
    """Three layers, a sum or mean over nodes unless nodes are classified, and a head."""

    def __init__(self, design: Design, task: Task, features: int) -> None:
        super().__init__()
        widths = [features, *[WIDTH] * LAYERS]
        self.convs = nn.ModuleList(
            conv(design.layer, widths[i], widths[i + 1], design.activation) for i in range(LAYERS)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) if design.norm else nn.Identity() for _ in range(LAYERS))
        self.activations = nn.ModuleList(
            nn.Identity() if design.linear_last and i == LAYERS - 1 else design.activation() for i in range(LAYERS)
        )
        head = [nn.Linear(WIDTH, WIDTH), design.activation()] if design.deep_head else []
        self.head = nn.Sequential(*head, nn.Linear(WIDTH, task.classes))
        self.level = task.level
        self.mean = design.mean and task.level == "graph"

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for layer, norm, activation in zip(self.convs, self.norms, self.activations, strict=True):
            x = activation(norm(layer(x, edge_index)))
        if self.level != "node":
            x = global_mean_pool(x, batch) if self.mean else global_add_pool(x, batch)
        return self.head(x)


def bends(network: Network) -> tuple[bool, ...]:
    """For every layer, whether what comes out of it passes a non-linearity."""
    return tuple(not isinstance(activation, nn.Identity) for activation in network.activations)


@dataclass(frozen=True)
class Fit:
    """How a training went."""

    accuracy: float  # on test examples; of numbers, the share that is right when rounded
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Packed:
    """Graphs end to end, of which any run of consecutive ones is a batch."""

    x: Tensor  # (M, F)
    edge_index: Tensor  # (2, E)
    y: Tensor  # (G,)
    graph: Tensor  # (M,) the graph of every node
    nodes: tuple[int, ...]  # where every graph's nodes begin, and where the last ends
    edges: tuple[int, ...]

    def shuffled(self) -> Packed:
        """The same graphs in a new order."""
        order = torch.randperm(len(self.y))
        node_counts, edge_counts = (torch.tensor(ends).diff()[order] for ends in (self.nodes, self.edges))
        nodes, edges = ([0, *counts.cumsum(0).tolist()] for counts in (node_counts, edge_counts))
        old = torch.tensor(self.nodes)[order] - torch.tensor(nodes[:-1])
        rows = torch.arange(nodes[-1]) + old.repeat_interleave(node_counts)
        shift = (torch.tensor(self.edges)[order] - torch.tensor(edges[:-1])).repeat_interleave(edge_counts)
        where = (torch.arange(edges[-1]) + shift).to(self.x.device)
        ends = self.edge_index[:, where] - old.repeat_interleave(edge_counts).to(self.x.device)
        graph = torch.arange(len(order)).repeat_interleave(node_counts).to(self.x.device)
        device = self.x.device
        return Packed(self.x[rows.to(device)], ends, self.y[order.to(device)], graph, tuple(nodes), tuple(edges))

    def output(self, network: nn.Module, first: int, end: int) -> tuple[Tensor, Tensor]:
        """What a network says of the graphs first ≤ i < end, and what is right.  # (B, C), (B,)"""
        a, b = self.nodes[first], self.nodes[end]
        ends = self.edge_index[:, self.edges[first] : self.edges[end]] - a
        return network(self.x[a:b], ends, self.graph[a:b] - first), self.y[first:end]


def packed(task: Task, graphs: Sequence[Data]) -> Packed:
    """Graphs end to end."""
    nodes = torch.tensor([0, *(len(d.x) for d in graphs)]).cumsum(0)
    edges = torch.tensor([0, *(d.edge_index.shape[1] for d in graphs)]).cumsum(0)
    y = torch.tensor([float(d.y) if task.level == "number" else int(d.y) for d in graphs])
    ends = torch.cat([d.edge_index + start for d, start in zip(graphs, nodes, strict=False)], 1)
    graph = torch.arange(len(graphs)).repeat_interleave(nodes.diff())
    return Packed(torch.cat([d.x for d in graphs]), ends, y, graph, tuple(nodes.tolist()), tuple(edges.tolist()))


class Examples:
    """The examples of a split as tensors: graphs in batches, or the nodes of one graph."""

    BATCH = 128

    def __init__(self, split: Split, task: Task, device: str = "cpu") -> None:
        self.task, self.whole = task, split.whole if split.whole is None else split.whole.to(device)
        self.parts: dict[str, Any] = {}
        for part in ("train", "validation", "test"):
            given = getattr(split, part)
            self.parts[part] = torch.tensor(given) if self.whole is not None else moved(packed(task, given), device)

    def outputs(self, network: nn.Module, part: str) -> tuple[Tensor, Tensor]:
        """What a network says of the examples of a part, and what is right.  # (B, C), (B,)"""
        given = self.parts[part]
        if self.whole is not None:
            return network(self.whole.x, self.whole.edge_index)[given], self.whole.y[given]
        return given.output(network, 0, len(given.y))

    def batches(self, network: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
        """What a network says of the training examples in a new order, some at a time."""
        if self.whole is not None:
            yield self.outputs(network, "train")
            return
        train = self.parts["train"].shuffled()
        for first in range(0, len(train.y), self.BATCH):
            yield train.output(network, first, min(first + self.BATCH, len(train.y)))

    def loss(self, found: Tensor, right: Tensor) -> Tensor:
        if self.task.level == "number":
            return nn.functional.mse_loss(found[:, 0], right)
        return nn.functional.cross_entropy(found, right)

    def accuracy(self, network: nn.Module, part: str) -> float:
        with torch.no_grad():
            return float(is_right(self.task, *self.outputs(network, part)).double().mean())


def moved(graphs: Packed, device: str) -> Packed:
    """The same graphs on another device."""
    tensors = (t.to(device) for t in (graphs.x, graphs.edge_index, graphs.y, graphs.graph))
    return Packed(*tensors, graphs.nodes, graphs.edges)


def is_right(task: Task, found: Tensor, right: Tensor) -> Tensor:
    """Whether every row of the output tells the label, or comes closer than ½ to the number.  # (B,)"""
    return (found[:, 0] - right).abs() < 0.5 if task.level == "number" else found.argmax(1) == right


def fit(network: Network, examples: Examples, *, epochs: int, device: str = "cpu") -> Fit:
    """Adam until the validation loss has not fallen for three tenths of the epochs given, or these are over.

    The rate is halved where the loss stays; the weights of the least validation loss are kept. A task whose
    examples are the nodes of one graph has one step an epoch, and so twenty times as many epochs.
    """
    begun = time.process_time()
    epochs *= 20 if examples.whole is not None else 1
    network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    rate = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=max(8, epochs // 12))
    best, least, fell, epoch = copy.deepcopy(network.state_dict()), math.inf, 0, 0
    for epoch in range(1, epochs + 1):
        network.train()
        for found, right in examples.batches(network):
            optimizer.zero_grad()
            examples.loss(found, right).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimizer.step()
        network.eval()
        with torch.no_grad():
            now = float(examples.loss(*examples.outputs(network, "validation")))
        rate.step(now)
        if now < least:
            best, least, fell = copy.deepcopy(network.state_dict()), now, epoch
        if least < 1e-3 or epoch - fell > 0.3 * epochs:
            break
    network.load_state_dict(best)
    network.eval()
    accuracy = examples.accuracy(network, "test")
    network.to("cpu")
    return Fit(accuracy, epoch, time.process_time() - begun)


def build(design: Design, task: Task, split: Split, seed: int) -> Network:
    """The network with the first weights of a seed, in evaluation mode."""
    torch.manual_seed(seed)
    first = split.train[0] if split.whole is None else split.whole
    return Network(design, task, first.x.shape[1]).eval()
