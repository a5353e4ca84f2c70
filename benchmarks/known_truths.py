"""Graphs whose deciding nodes are known, and models trained to tell their labels."""

from __future__ import annotations

import copy
import lzma
import math
import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import remove_self_loops
from tqdm.auto import tqdm

from walkwise.evaluation import motif_auroc

ENOUGH = 1e-3  # the validation loss at which training is done


class Classifier(nn.Module):
    """An ordinary GIN: three layers of two linear maps each, a sum over nodes, a linear head."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        widths = [features, width, width, width]
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Linear(after, after), nn.ReLU()))
            for before, after in pairwise(widths)
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(global_add_pool(x, batch))


@dataclass(frozen=True)
class Split:
    """A data set in three parts; ``motifs`` of a graph is a boolean mask (K, M), one row per alternative."""

    train: list[Data]
    validation: list[Data]
    test: list[Data]


@dataclass(frozen=True)
class Fit:
    """A trained model and how good it is on the test graphs."""

    model: Classifier
    epochs: int
    seconds: float
    accuracy: float
    auroc: float
    majority: float  # the accuracy of always naming the more frequent label


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
    """A set of graph-attribution: its own test part, shuffled, and at most so many of the others for training."""
    with np.load(folder / f"attribution/{name}.npz") as stored:
        table = {key: stored[key] for key in stored.files}
    random = np.random.default_rng(seed)
    learn = random.permutation(table["train_index"])[:most].tolist()
    test = random.permutation(table["test_index"]).tolist()
    cut = len(learn) * 9 // 10

    def taken(numbers: Sequence[int]) -> list[Data]:
        return [molecule(table, i) for i in tqdm(numbers, desc=f"{name}: molecules", leave=False)]

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


def loader(graphs: list[Data], size: int, shuffle: bool = False) -> DataLoader:
    return DataLoader(graphs, size, shuffle=shuffle, exclude_keys=["motifs"])


def outputs(model: nn.Module, graphs: list[Data]) -> Tensor:
    """Both logits of every graph.  # (G, 2)"""
    with torch.no_grad():
        return torch.cat([model(b.x, b.edge_index, b.batch) for b in loader(graphs, 256)])


def fit(name: str, split: Split, width: int, epochs: int, patience: int, seed: int) -> Fit:
    """Adam on mini-batches, until the loss on the validation graphs has not fallen for a while."""
    torch.manual_seed(seed)
    begun = time.perf_counter()
    model = Classifier(split.train[0].x.shape[1], width)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    known = torch.tensor([data.y for data in split.validation])
    best, best_loss, best_epoch = copy.deepcopy(model.state_dict()), math.inf, -1
    bar = tqdm(range(epochs), desc=f"{name}: training", leave=False)
    for epoch in bar:
        for batch in loader(split.train, 64, shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)
            loss.backward()
            optimizer.step()
        now = float(nn.functional.cross_entropy(outputs(model, split.validation), known))
        bar.set_postfix(validation=f"{now:.4f}")
        if now < best_loss:
            best, best_loss, best_epoch = copy.deepcopy(model.state_dict()), now, epoch
        if epoch - best_epoch >= patience or best_loss < ENOUGH:
            break
    model.load_state_dict(best)
    model.eval()
    labels = torch.tensor([data.y for data in split.test])
    logits = outputs(model, split.test)
    return Fit(
        model,
        best_epoch + 1,
        time.perf_counter() - begun,
        float((logits.argmax(1) == labels).double().mean()),
        motif_auroc(logits[:, 1] - logits[:, 0], labels.bool()),
        float(torch.bincount(labels).max() / len(labels)),
    )
