"""The models that are explained, and their training: small, on the processor, seconds each."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool

from quality.planted import LAYERS
from quality.tasks import Split, Task
from walkwise.datasets import pack

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


class Examples:
    """The examples of a split as tensors: graphs in batches, or the nodes of one graph."""

    def __init__(self, split: Split, task: Task) -> None:
        self.task, self.whole = task, split.whole
        parts = (split.train, split.validation, split.test)
        if split.whole is None:
            plain = [Data(d.x, d.edge_index, y=_label(task, d.y)) for part in parts for d in part]
            self.graphs = pack(plain)
            ends = torch.tensor([0, *(len(part) for part in parts)]).cumsum(0).tolist()
            self.parts = [torch.arange(ends[i], ends[i + 1]) for i in range(3)]
        else:
            self.parts = [torch.tensor(part) for part in parts]

    def outputs(self, network: nn.Module, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """What a network says of some examples, and what is right.  # (B, C), (B,)"""
        if self.whole is not None:
            return network(self.whole.x, self.whole.edge_index)[numbers], self.whole.y[numbers]
        batch = self.graphs.batch(numbers)
        return network(batch.x, batch.edge_index, batch.batch), batch.y

    def batches(self) -> list[Tensor]:
        """The numbers of the training examples in a new order, some at a time."""
        train = self.parts[0]
        return [train] if self.whole is not None else list(train[torch.randperm(len(train))].split(64))

    def loss(self, network: nn.Module, numbers: Tensor) -> Tensor:
        found, right = self.outputs(network, numbers)
        if self.task.level == "number":
            return nn.functional.mse_loss(found[:, 0], right)
        return nn.functional.cross_entropy(found, right)

    def accuracy(self, network: nn.Module, numbers: Tensor) -> float:
        with torch.no_grad():
            found, right = self.outputs(network, numbers)
        return float(is_right(self.task, found, right).double().mean())


def is_right(task: Task, found: Tensor, right: Tensor) -> Tensor:
    """Whether every row of the output tells the label, or comes closer than ½ to the number.  # (B,)"""
    return (found[:, 0] - right).abs() < 0.5 if task.level == "number" else found.argmax(1) == right


def _label(task: Task, y: Any) -> Tensor:
    return torch.tensor([float(y)]) if task.level == "number" else torch.tensor([int(y)])


def fit(network: Network, examples: Examples, *, seconds: float, patience: float = 0.3) -> Fit:
    """Adam until the validation loss has not fallen for a while (a share of the time given), or time is up.

    The rate is halved where the loss stays; the weights of the least validation loss are kept.
    """
    begun = time.process_time()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    rate = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=8)
    best, least, fell, epoch = copy.deepcopy(network.state_dict()), math.inf, begun, 0
    while time.process_time() - begun < seconds:
        epoch += 1
        network.train()
        for numbers in examples.batches():
            optimizer.zero_grad()
            examples.loss(network, numbers).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimizer.step()
        network.eval()
        with torch.no_grad():
            now = float(examples.loss(network, examples.parts[1]))
        rate.step(now)
        if now < least:
            best, least, fell = copy.deepcopy(network.state_dict()), now, time.process_time()
        if least < 1e-3 or time.process_time() - fell > patience * seconds:
            break
    network.load_state_dict(best)
    network.eval()
    return Fit(examples.accuracy(network, examples.parts[2]), epoch, time.process_time() - begun)


def build(design: Design, task: Task, split: Split, seed: int) -> Network:
    """The network with the first weights of a seed, in evaluation mode."""
    torch.manual_seed(seed)
    first = split.train[0] if split.whole is None else split.whole
    return Network(design, task, first.x.shape[1]).eval()
