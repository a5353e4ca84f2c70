"""The published sets among the tasks: BA-2motif, and molecules of graph-attribution, with the nodes that decide."""

from __future__ import annotations

import lzma
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import remove_self_loops


@dataclass(frozen=True)
class Split:
    """A data set in three parts; ``motifs`` of a graph is a boolean mask (K, M), one row per alternative."""

    train: list[Data]
    validation: list[Data]
    test: list[Data]


def ba2motif(folder: Path, seed: int) -> Split:
    """BA-2motif with constant features, its nodes renamed at random: the motif is not always the last five."""
    raw = folder / "ba2motif/raw/BA-2motif.pkl"
    packed = raw.with_suffix(".pkl.xz")
    content = lzma.decompress(packed.read_bytes()) if packed.exists() else raw.read_bytes()
    dense, _, labels = pickle.loads(content)
    motif = torch.arange(25) >= 20
    graphs = [
        renamed(
            torch.ones(25, 1),
            remove_self_loops(torch.as_tensor(adjacency).nonzero().t())[0],
            int(label.argmax()),
            motif[None],
            number,
        )
        for number, (adjacency, label) in enumerate(zip(dense, labels, strict=True))
    ]
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(seed)).tolist()
    graphs = [graphs[i] for i in order]
    return Split(graphs[:800], graphs[800:900], graphs[900:])


def molecules(folder: Path, name: str, most: int, seed: int) -> Split:
    """A set of graph-attribution: its own test part, shuffled, and at most this many of the others for training."""
    with np.load(folder / f"attribution/{name}.npz") as stored:
        table = {key: stored[key] for key in stored.files}
    random = np.random.default_rng(seed)
    learn = random.permutation(table["train_index"])[:most].tolist()
    test = random.permutation(table["test_index"]).tolist()
    cut = len(learn) * 9 // 10

    def taken(numbers: Sequence[int]) -> list[Data]:
        return [molecule(table, i) for i in numbers]

    return Split(taken(learn[:cut]), taken(learn[cut:]), taken(test))


def molecule(table: Mapping[str, np.ndarray], i: int) -> Data:
    """Atoms by element and by how many bonds of each kind they have; bonds as plain edges."""
    atoms = slice(table["node_offsets"][i], table["node_offsets"][i + 1])
    bonds = slice(table["edge_offsets"][i], table["edge_offsets"][i + 1])
    element = torch.from_numpy(table["x"][atoms]).float()
    kind = torch.from_numpy(table["edge_attr"][bonds]).float()
    ends = np.stack([table["senders"][bonds], table["receivers"][bonds]])
    edge_index = torch.from_numpy(ends).long()
    kinds = kind.new_zeros(len(element), kind.shape[1]).index_add(0, edge_index[1], kind)
    truth = torch.from_numpy(table["attribution"][atoms, : table["n_explanations"][i]] > 0.5).t()
    return renamed(torch.cat([element, kinds], dim=1), edge_index, int(table["y"][i]), truth, i)


def renamed(x: Tensor, edge_index: Tensor, y: int, motifs: Tensor, seed: int) -> Data:
    """The graph with its nodes in a random order: ties must not favour anyone by the order of a file."""
    place = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))  # the new row's old node
    return Data(x[place], place.argsort()[edge_index], y=y, motifs=motifs[:, place].contiguous())
