"""Small random models with a sum over nodes, and chains of them, that several test files share."""

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


def walks_of(chain):
    """The relevance of every walk, as the slow twins take it."""
    walks = ww.enumerate_walks(chain)
    return dict(zip(map(tuple, walks.tolist()), ww.walk_relevance(chain, walks).tolist(), strict=True))
