"""Authors, papers and venues, and a model of them, that several tests of heterogeneous graphs share."""

from __future__ import annotations

import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

WRITES, AT = ("author", "writes", "paper"), ("paper", "appears_at", "venue")
BACK = {WRITES: ("paper", "rev_writes", "author"), AT: ("venue", "rev_appears_at", "paper")}


def papers() -> HeteroData:
    """Five authors, six papers, two venues."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    for name, count, width in (("author", 5, 4), ("paper", 6, 6), ("venue", 2, 3)):
        data[name].x = torch.rand(count, width, generator=generator, dtype=torch.float64)
    data[WRITES].edge_index = torch.tensor([[0, 0, 1, 1, 2, 3, 3, 4], [0, 1, 1, 2, 3, 3, 4, 5]])
    data[AT].edge_index = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1]])
    for kind, reverse in BACK.items():
        data[reverse].edge_index = data[kind].edge_index.flip(0)
    return data


class Reader(nn.Module):
    """Two layers; two classes for every node, or one row for the whole graph."""

    def __init__(self, *, whole: bool = False, columns: int = 2) -> None:
        super().__init__()
        torch.manual_seed(1)
        widths = {"author": 4, "paper": 6, "venue": 3}
        kinds = [*BACK, *BACK.values()]
        self.first = HeteroConv({kind: SAGEConv((widths[kind[0]], widths[kind[2]]), 8) for kind in kinds})
        self.second = HeteroConv({kind: SAGEConv((8, 8), columns) for kind in kinds})
        self.whole = whole
        self.double()

    def forward(self, x_dict, edge_index_dict):
        """Outputs by type, or their sum over papers."""
        h = {name: h.relu() for name, h in self.first(x_dict, edge_index_dict).items()}
        out = self.second(h, edge_index_dict)
        return out["paper"].sum(0, keepdim=True) if self.whole else out


def part_by_hand(data, kept):
    """The graph of some nodes, {type: ids}: features picked, edges gone through one by one."""
    part = HeteroData()
    for name in data.node_types:
        part[name].x = data[name].x[kept[name]]
    for kind in data.edge_types:
        pairs = [
            (kept[kind[0]].index(u), kept[kind[2]].index(v))
            for u, v in data[kind].edge_index.t().tolist()
            if u in kept[kind[0]] and v in kept[kind[2]]
        ]
        part[kind].edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return part
