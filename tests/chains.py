"""Small random models with a sum over nodes, and chains of them, that several test files share."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GIN

import walkwise as ww


class Pooled(nn.Module):
    def __init__(self, gnn):
        super().__init__()
        self.gnn = gnn

    def forward(self, x, edge_index):
        return self.gnn(x, edge_index).sum(0, keepdim=True)


def pooled(kind, seed, layers, **kwargs):
    """A float64 model of two features and two outputs."""
    torch.manual_seed(seed)
    model = Pooled(kind(2, 4, num_layers=layers, out_channels=2, **kwargs)).double().eval()
    with torch.no_grad():  # so that not all neurons are off
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(0, 0.5)
    return model


def chain_of(seed, M, layers=3, x=None, edges=None, **kwargs):
    """A chain of GCN (even seeds) or GIN under the γ rule; the graph is a path with some chords unless given."""
    model = pooled([GCN, GIN][seed % 2], seed, layers, **kwargs)
    path = torch.stack([torch.arange(M - 1), torch.arange(1, M)])
    edges = torch.cat([path, path.flip(0), torch.randint(M, (2, 3))], dim=1) if edges is None else edges
    x = torch.rand(M, 2, dtype=torch.float64) if x is None else x
    return ww.trace(model, x, edges, target=0, rule="gamma")


def ring(seed, M=6, layers=2, kind=GCN):
    """A chain of a ring of two kinds of nodes in turn: walks tie with their rotations and reflections.

    Rounding, here made certain by features that are a little apart, tells them apart all the same.
    """
    model = pooled(kind, seed, layers)
    around = torch.stack([torch.arange(M), torch.arange(1, M + 1) % M])
    x = (1 + torch.arange(M, dtype=torch.float64) % 2)[:, None] * torch.tensor([0.3, 0.2], dtype=torch.float64)
    x = x * (1 + 1e-13 * torch.rand(M, 2, dtype=torch.float64))
    return ww.trace(model, x, torch.cat([around, around.flip(0)], dim=1), target=0)


def runs(values):
    """How many neighbours in a list are equal up to rounding, one run after the other."""
    lengths, first = [], None
    for value in values:
        if first is not None and value == pytest.approx(first, rel=1e-9, abs=0):
            lengths[-1] += 1
        else:
            lengths.append(1)
            first = value
    return lengths


def walks_of(chain):
    """The relevance of every walk, as the slow twins take it."""
    walks = ww.enumerate_walks(chain)
    return dict(zip(map(tuple, walks.tolist()), ww.walk_relevance(chain, walks).tolist(), strict=True))
