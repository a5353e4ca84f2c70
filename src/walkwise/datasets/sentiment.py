"""Graph-SST2: sentences as dependency trees; the published graphs, or a copy with the parses made anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops

from walkwise.datasets.graphset import Graphs, GraphSet, offsets
from walkwise.datasets.missing import missing
from walkwise.datasets.pickles import read_arrays
from walkwise.datasets.registry import register
from walkwise.datasets.wordvectors import WIDTH, word_vectors
from walkwise.errors import InputError

CLASSES = ("negative", "positive")
_ADDRESS = "the Graph-SST2 link in the documentation of DIG's SentiGraphDataset (github.com/divelab/DIG)"


@register("graph-sst2")
def load_sst2(root: Path) -> GraphSet:
    """Graph-SST2 with its own split: the published set where it is, else the rebuilt one, named "graph-sst2-rebuilt".

    Edges run both ways and self-loops are left out. `tokens` of a graph are its words.

    - Published: ROOT/Graph-SST2/raw/Graph-SST2_*.txt, with the node features in Graph-SST2_node_features.pkl.
    - Rebuilt: ROOT/graph-sst2-rebuilt/graph_sst2_rebuilt.npz and tokens.json: the real sentences, labels and split,
      but dependency parses made anew, and GloVe word vectors as features (extra `text`).

    Args:
        root: the data root.
    """
    for folder in (root / "Graph-SST2" / "raw", root / "Graph_SST2" / "raw", root / "graph_sst2" / "raw"):
        for path in sorted(folder.glob("*_node_indicator.txt")):
            return _published(folder, path.name.removesuffix("_node_indicator.txt"))
    rebuilt = root / "graph-sst2-rebuilt"
    if (rebuilt / "graph_sst2_rebuilt.npz").exists():
        return _rebuilt(rebuilt)
    raise missing("Graph-SST2", _ADDRESS, root / "Graph-SST2" / "raw", "no loader downloads it")


def _published(folder: Path, prefix: str) -> GraphSet:
    """The layout of DIG's SentiGraphDataset: one line per edge, node, graph; nodes numbered from 0 through all."""

    def column(name: str) -> Tensor:
        text = (folder / f"{prefix}_{name}.txt").read_text().replace(",", " ")
        return torch.from_numpy(np.fromstring(text, dtype=np.int64, sep=" "))

    x = torch.as_tensor(read_arrays(folder / f"{prefix}_node_features.pkl"), dtype=torch.float32)
    sizes = (column("node_indicator") - 1).bincount()
    named = json.loads((folder / f"{prefix}_sentence_tokens.json").read_text())
    tokens = [named[str(g)] for g in range(len(sizes))]
    if len(x) != int(sizes.sum()):
        raise InputError(
            f"Expected a row of features for each of {int(sizes.sum())} nodes in {folder}, got {len(x)}. "
            "The files do not belong together: fetch them again."
        )
    edges = column("edge_index").reshape(-1, 2).t()
    return _graph_set("graph-sst2", x, edges, column("graph_labels"), sizes, column("split_indices"), tokens, "")


def _rebuilt(folder: Path) -> GraphSet:
    with np.load(folder / "graph_sst2_rebuilt.npz", allow_pickle=False) as arrays:
        edges, before, y, split = (
            torch.from_numpy(arrays[name]).long() for name in ("edge_index", "offsets", "y", "split")
        )
    tokens = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))["tokens"]
    x, known = word_vectors([word for sentence in tokens for word in sentence])
    remarks = (
        "Rebuilt: real sentences, labels and split; dependency parses made anew; GloVe vectors "
        f"({WIDTH} wide) as features, zeros for the {1 - known:.1%} of words that have none."
    )
    return _graph_set("graph-sst2-rebuilt", x, edges, y, before.diff(), split, tokens, remarks)


def _graph_set(
    name: str,
    x: Tensor,
    edges: Tensor,
    y: Tensor,
    sizes: Tensor,
    split: Tensor,
    tokens: Sequence[Any],
    remarks: str,
) -> GraphSet:
    before = offsets(sizes)
    straight, _ = remove_self_loops(torch.cat([edges, edges.flip(0)], dim=1))
    edge_index = coalesce(straight, num_nodes=len(x))  # sorted by node, so by graph
    owner = torch.arange(len(sizes)).repeat_interleave(sizes)
    edges_before = offsets(owner[edge_index[0]].bincount(minlength=len(sizes)))
    graphs = Graphs(x, edge_index, y, before, edges_before, graph_data={"tokens": tokens})
    train, val, test = ((split == part).nonzero().flatten() for part in range(3))
    return GraphSet(name, graphs, train, val, test, CLASSES, remarks=remarks)
