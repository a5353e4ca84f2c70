"""Graph-SST2: sentences as dependency trees; the published graphs, or a copy with new parses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import coalesce, remove_self_loops

from walkwise.datasets import sentences
from walkwise.datasets.graphset import Graphs, GraphSet, offsets
from walkwise.datasets.missing import missing_data
from walkwise.datasets.pickles import read_arrays
from walkwise.datasets.registry import register
from walkwise.datasets.wordvectors import WIDTH, word_vectors
from walkwise.errors import InputError
from walkwise.files import read_integers, read_json, read_npz

_TOGETHER = "The files are damaged or do not belong together: fetch them again."

CLASSES = ("negative", "positive")
_ADDRESS = "the Graph-SST2 link in the documentation of DIG's SentiGraphDataset (github.com/divelab/DIG)"


@register("graph-sst2")
def load_sst2(root: Path) -> GraphSet:
    """Graph-SST2 with its own split: the published set where it is, else the rebuilt one, named "graph-sst2-rebuilt".

    Edges run both ways and self-loops are left out. `tokens` of a graph are its words.

    - Published: ROOT/Graph-SST2/raw/Graph-SST2_*.txt, with the node features in Graph-SST2_node_features.pkl.
    - Rebuilt: ROOT/graph-sst2-rebuilt/graph_sst2_rebuilt.npz and tokens.json: the real sentences, labels and split,
      but new dependency parses. Features are those of a small language model where the folder has them
      (`python -m walkwise.datasets.sentences ROOT` writes them, extra `sentences`), else GloVe's (extra `text`).

    Args:
        root: the data root.
    """
    for folder in (root / "Graph-SST2" / "raw", root / "Graph_SST2" / "raw", root / "graph_sst2" / "raw"):
        for path in sorted(folder.glob("*_node_indicator.txt")):
            return _published(folder, path.name.removesuffix("_node_indicator.txt"))
    rebuilt = root / "graph-sst2-rebuilt"
    if (rebuilt / "graph_sst2_rebuilt.npz").exists():
        return _rebuilt(rebuilt)
    raise missing_data("Graph-SST2", _ADDRESS, root / "Graph-SST2" / "raw", "no loader downloads it")


def _published(folder: Path, prefix: str) -> GraphSet:
    """The layout of DIG's SentiGraphDataset: one line per edge, node, graph; nodes numbered from 0 through all."""

    def column(name: str) -> Tensor:
        return read_integers(folder / f"{prefix}_{name}.txt", columns=1).flatten()

    features = read_arrays(folder / f"{prefix}_node_features.pkl")
    owner, labels = column("node_indicator") - 1, column("graph_labels")
    named = read_json(folder / f"{prefix}_sentence_tokens.json")
    if isinstance(features, tuple) or not isinstance(named, dict):
        raise _apart(folder, "one array of features and the words of sentences by number", "something else")
    if int(owner[0]) < 0 or int(owner[-1]) >= len(labels) or bool((owner.diff() < 0).any()):
        raise _apart(folder, f"nodes of the sentences 1 to {len(labels)}, in order", "something else")
    tokens = [named.get(str(g)) for g in range(len(labels))]
    edges = read_integers(folder / f"{prefix}_edge_index.txt", columns=2).t()
    sizes, x = owner.bincount(minlength=len(labels)), torch.as_tensor(features, dtype=torch.float32)
    return _graph_set(folder, "graph-sst2", x, edges, labels, sizes, column("split_indices"), tokens, "")


def _rebuilt(folder: Path) -> GraphSet:
    arrays = read_npz(folder / "graph_sst2_rebuilt.npz", ("edge_index", "offsets", "y", "split"))
    edges, before, y, split = (torch.from_numpy(array.astype(np.int64)) for array in arrays.values())
    found = read_json(folder / "tokens.json")
    tokens = found.get("tokens") if isinstance(found, dict) else None
    if not isinstance(tokens, list) or not all(map(_is_sentence, tokens)):
        raise _apart(folder, "sentences as lists of words in tokens.json", "something else")
    if any(array.dim() != 1 for array in (before, y, split)) or bool((before.diff() < 0).any()):
        raise _apart(folder, "ascending offsets, and a label and a part per sentence", "something else")
    x, words = _features(folder, tokens)
    remarks = f"Rebuilt: real sentences, labels and split; dependency parses made anew; {words}."
    return _graph_set(folder, "graph-sst2-rebuilt", x, edges, y, before.diff(), split, tokens, remarks)


def _features(folder: Path, tokens: Sequence[Sequence[str]]) -> tuple[Tensor, str]:
    """A row per word, and what it is."""
    if (folder / sentences.FILE).exists():
        read = read_npz(folder / sentences.FILE, ("x",))["x"]
        return torch.from_numpy(
            read.astype(np.float32)
        ), f"contextual features of all-MiniLM-L6-v2 ({read.shape[-1]} wide)"
    x, known = word_vectors([word for sentence in tokens for word in sentence])
    missed = f"zeros for the {1 - known:.1%} of words that have none"
    return x, f"GloVe vectors ({WIDTH} wide) as features, {missed}"


def _is_sentence(words: Any) -> bool:
    return isinstance(words, list) and all(isinstance(word, str) for word in words)


def _misfit(
    x: Tensor, edges: Tensor, y: Tensor, sizes: Tensor, split: Tensor, tokens: Sequence[Any]
) -> tuple[str, str] | None:
    """What was expected of files that belong together, and what is there; None where all is well."""
    nodes, count = int(sizes.sum()), len(sizes)
    if x.dim() != 2 or len(x) != nodes or not bool(x.isfinite().all()):
        return f"a row of finite features for each of {nodes} nodes", str(tuple(x.shape))
    within = edges.dim() == 2 and edges.shape[0] == 2 and bool(((edges >= 0) & (edges < nodes)).all())
    if not within:
        return f"edges between the nodes 0 to {nodes - 1}", str(tuple(edges.shape))
    owner = torch.arange(count).repeat_interleave(sizes)
    if not torch.equal(owner[edges[0]], owner[edges[1]]):
        return "edges inside a sentence", "one between two sentences"
    if len(y) != count or len(split) != count or not set(y.tolist()) <= {0, 1} or not set(split.tolist()) <= {0, 1, 2}:
        return f"for each of {count} sentences a label, 0 or 1, and its part, 0, 1 or 2", "something else"
    named = [len(words) if _is_sentence(words) else -1 for words in tokens]
    return None if named == sizes.tolist() else ("a word for every node", "other numbers of words")


def _apart(folder: Path, expected: str, got: str) -> InputError:
    return InputError(f"Expected {expected} in {folder}, got {got}.", expected=expected, got=got, remedy=_TOGETHER)


def _graph_set(
    folder: Path,
    name: str,
    x: Tensor,
    edges: Tensor,
    y: Tensor,
    sizes: Tensor,
    split: Tensor,
    tokens: Sequence[Any],
    remarks: str,
) -> GraphSet:
    if misfit := _misfit(x, edges, y, sizes, split, tokens):
        raise _apart(folder, *misfit)
    before = offsets(sizes)
    straight, _ = remove_self_loops(torch.cat([edges, edges.flip(0)], dim=1))
    edge_index = coalesce(straight, num_nodes=len(x))  # sorted by node, so by graph
    owner = torch.arange(len(sizes)).repeat_interleave(sizes)
    edges_before = offsets(owner[edge_index[0]].bincount(minlength=len(sizes)))
    graphs = Graphs(x, edge_index, y, before, edges_before, graph_data={"tokens": tokens})
    train, val, test = ((split == part).nonzero().flatten() for part in range(3))
    return GraphSet(name, graphs, train, val, test, CLASSES, remarks=remarks)
