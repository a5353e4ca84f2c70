"""Models of atoms whose blocks hand on rows of edges, put into layers that begin and end at atoms."""

import importlib
from unittest.mock import patch

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn import models

from zoo.models import BATCH, IDIOMS, Entry
from zoo.rest import PLACES


def near(pos, r, batch=None, loop=False, **_):
    """The pairs of points that are no farther apart than r."""
    close = torch.cdist(pos, pos) <= r
    return (close if loop else close & ~torch.eye(len(pos), dtype=torch.bool)).nonzero().t()


def angles(edge_index, num_nodes):
    """Pairs of edges k → j → i."""
    source, target = edge_index
    after, before = ((source[:, None] == target) & (target[:, None] != source)).nonzero().t()
    return target, source, target[after], source[after], source[before], before, after


_FOUND = {"radius_graph": near, "triplets": angles}


class Molecule(nn.Module):
    """A model of atoms and their places, its neighbours found in plain torch and not by another package."""

    def __init__(self, net, home):
        super().__init__()
        self.net, self.home = net, importlib.import_module(f"torch_geometric.nn.models.{home}")

    def forward(self, x, edge_index):
        found = {name: make for name, make in _FOUND.items() if hasattr(self.home, name)}
        with patch.multiple(self.home, **found):
            out = self.net(x[:, 0], PLACES.to(torch.get_default_dtype()), BATCH)
        return (out[0] if isinstance(out, tuple) else out)[:1]


class Layer(pyg.MessagePassing):
    """As the refusal of a model without layers writes it."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x, *rest, **named):
        return self.module(x, *rest, **named)


def force_field(layer=lambda block: block):
    """GNNFF: its node blocks take atoms and give atoms; edges are followed between them.

    Walks begin with what the first block is handed, which is a table of the numbers of atoms.
    """
    net = models.GNNFF(4, 4, 2)
    net.node_emb = nn.Embedding.from_pretrained(net.node_emb(torch.arange(95)).detach())
    net.node_blocks = nn.ModuleList(map(layer, net.node_blocks))
    return Molecule(net, "gnnff")


class Directional(pyg.MessagePassing):
    """DimeNet and DimeNet++ from atoms to atoms: all of their blocks, which hand on rows of edges, in one layer."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, edge_index, pos):
        net = self.net
        i, j, at_i, at_j, at_k, before, after = angles(edge_index, len(x))
        first, second = pos[at_j] - pos[at_i], pos[at_k] - pos[at_i]
        if isinstance(net, models.DimeNetPlusPlus):
            first, second = pos[at_i] - pos[at_j], pos[at_j] - pos[at_k]
        angle = torch.atan2(torch.cross(first, second, dim=1).norm(dim=-1), (first * second).sum(-1))
        far = (pos[i] - pos[j]).norm(dim=-1)
        rbf, sbf, emb = net.rbf(far), net.sbf(far, angle, before), net.emb
        h = emb.act(emb.lin(torch.cat([x[i], x[j], emb.act(emb.lin_rbf(rbf))], -1)))  # (E, F)
        out = net.output_blocks[0](h, rbf, i, num_nodes=len(x))
        for block, ends in zip(net.interaction_blocks, net.output_blocks[1:], strict=True):
            h = block(h, rbf, sbf, before, after)
            out = out + ends(h, rbf, i, num_nodes=len(x))
        return out


class Energy(nn.Module):
    """The sum over atoms of what a layer gives them."""

    def __init__(self, net):
        super().__init__()
        self.net, self.layer = net, Directional(net)

    def forward(self, x, edge_index):
        pos = PLACES.to(torch.get_default_dtype())
        return self.layer(self.net.emb.emb(x[:, 0]), near(pos, self.net.cutoff), pos).sum(0, keepdim=True)


GLOROT = {"output_initializer": "glorot_orthogonal"}


def dimenet():
    return models.DimeNet(4, 1, 1, 2, 2, 2, **GLOROT)


def dimenet_pp():
    return models.DimeNetPlusPlus(4, 1, 1, 3, 2, 4, 2, 2, **GLOROT)


MOLECULES = [
    Entry("GNNFF, its node blocks as layers", IDIOMS, lambda: force_field(Layer), graph="numbers"),
    Entry("DimeNet in one layer", IDIOMS, lambda: Energy(dimenet()), graph="numbers"),
    Entry("DimeNet++ in one layer", IDIOMS, lambda: Energy(dimenet_pp()), graph="numbers"),
]


def same_as_ready_made(net, x):
    """What a model gives as it comes, and with its blocks in one layer."""
    return Molecule(net, "dimenet")(x, None), Energy(net)(x, None)
