"""Small molecules, a model for them, and runs that are interrupted."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, global_add_pool

ATOMS = ("C", "N", "O")


class Pooled(nn.Module):
    """Two layers and a sum over the nodes of every graph."""

    def __init__(self, width=4, out=2):
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(GINConv(nn.Sequential(nn.Linear(i, width), nn.ReLU())) for i in (3, width))
        self.head = nn.Linear(width, out)

    def forward(self, x, edge_index, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(global_add_pool(x, batch))


def some_graphs(count, *, seed=0, most=9):
    """Random trees with a few rings and one-hot features, edges both ways, labels 0 and 1."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high, size=()):
        return torch.randint(high, size, generator=generator)

    graphs = []
    for _ in range(count):
        n = 3 + int(draw(most - 2))
        pairs = {(int(draw(i)), i) for i in range(1, n)} | {(0, n - 1)}
        edges = torch.tensor(sorted(pairs)).t()
        x = torch.eye(3, dtype=torch.float64)[draw(3, (n,))]
        graphs.append(Data(x, torch.cat([edges, edges.flip(0)], dim=1), y=draw(2, (1,))))
    return graphs


def same(one, other):
    """Whether two runs have the same rows."""
    assert one.keys() == other.keys()
    for name, table in one.items():
        assert table.to_json(orient="values") == other[name].to_json(orient="values"), name
        assert table.equals(other[name]), name


def interrupted(call, when, number=signal.SIGKILL):
    """Calls in a process of its own, which gets a signal; its exit code, negative for a signal.

    The signal comes after ``when`` seconds, or once ``when()`` is true.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            call()
            os._exit(0)
        finally:
            os._exit(1)
    if callable(when):
        end = time.monotonic() + 60
        while not when() and time.monotonic() < end:
            time.sleep(0.01)
    else:
        time.sleep(when)
    os.kill(child, number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
