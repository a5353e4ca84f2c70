"""BA-2motif: a random tree with a cycle or a house on it; the published graphs, or newly generated ones."""

from __future__ import annotations

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from walkwise.datasets.graphset import Graphs, GraphSet, offsets, pack
from walkwise.datasets.missing import fetching
from walkwise.datasets.pickles import read_arrays
from walkwise.datasets.registry import register
from walkwise.datasets.splits import set_aside
from walkwise.errors import InputError, as_count
from walkwise.files import write_whole

#: The nodes of the base graph, and after them those of the motif.
BASE, MOTIF = 20, 5

CLASSES = ("cycle", "house")
_CYCLE = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
_HOUSE = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)]

#: Where the set is published.
_ADDRESS = "https://github.com/flyingdoog/PGExplainer/raw/master/dataset/BA-2motif.pkl"

#: SHA-256 of the published adjacency matrices and labels as bytes, so that any pickle of the same graphs will do.
_DIGEST = "423358f8157937641ed7898aa13c9976ee0510692464053ef213c2651a66309c"


def generate(count: int, *, seed: int) -> list[Data]:
    """Generate graphs: the first half with a 5-cycle (y = 0), the rest with a house (y = 1).

    A Barabási–Albert graph of 20 nodes with one edge per new node, and a motif, nodes 20 to 24, on one more edge
    between random nodes of the two. Every feature is 1. `ground_truth` marks the motif's nodes.

    Args:
        count: number of graphs.
        seed: the same seed makes the same graphs.

    >>> graphs = generate(10, seed=0)
    >>> graphs[0]
    Data(x=[25, 1], edge_index=[2, 50], y=[1], ground_truth=[25])
    >>> graphs[9].y, graphs[9].edge_index.shape, graphs[9].ground_truth.nonzero().flatten()
    (tensor([1]), torch.Size([2, 52]), tensor([20, 21, 22, 23, 24]))
    """
    count = as_count(count, "count", "the number of graphs")
    generator = torch.Generator().manual_seed(as_count(seed, "seed", least=0) % (1 << 63))
    return [_graph(int(i >= count / 2), generator) for i in range(count)]


def _graph(label: int, generator: torch.Generator) -> Data:
    base, motif = _tree(generator), [(BASE + i, BASE + j) for i, j in (_CYCLE, _HOUSE)[label]]
    link = (
        int(torch.randint(BASE, (), generator=generator)),
        BASE + int(torch.randint(MOTIF, (), generator=generator)),
    )
    edges = torch.tensor([*base, *motif, link]).t()
    both = torch.cat([edges, edges.flip(0)], dim=1)
    order = (both[0] * (BASE + MOTIF) + both[1]).argsort()
    truth = torch.arange(BASE + MOTIF) >= BASE
    return Data(torch.ones(BASE + MOTIF, 1), both[:, order], y=torch.tensor([label]), ground_truth=truth)


def _tree(generator: torch.Generator) -> list[tuple[int, int]]:
    """Preferential attachment: each new node's one edge goes to an end of an edge drawn at random."""
    edges, ends = [(0, 1)], [0, 1]
    for node in range(2, BASE):
        other = ends[int(torch.randint(len(ends), (), generator=generator))]
        edges.append((other, node))
        ends += [other, node]
    return edges


@register("ba2motif")
def load_published(root: Path) -> GraphSet:
    """The published BA-2motif with constant features 1, as the paper uses it; test graphs 400–499 and 900–999.

    The published file is a pickle. It is read by a reader that makes arrays and nothing else, and its graphs are
    checked against a digest. Forty of its graphs are in two parts, with a self-loop on node 20 in place of the link;
    the loops are left out, since the models here add every node to its own sum.

    Args:
        root: the data root; the file is ROOT/ba2motif/raw/BA-2motif.pkl.
    """
    path = root / "ba2motif" / "raw" / "BA-2motif.pkl"
    if not path.exists():
        _download(path)
    graphs = _published_graphs(read_arrays(path), path)
    return _split("ba2motif", graphs, "40 graphs are in two parts; their self-loops are left out.")


def _download(path: Path) -> None:
    from torch_geometric.data import download_url

    with fetching("BA-2motif", _ADDRESS, path), TemporaryDirectory() as fresh:
        found = Path(download_url(_ADDRESS, fresh, log=False))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, found.read_bytes())


def _published_graphs(found: Any, path: Path) -> Graphs:
    """The graphs, if the arrays are the published ones: adjacency (1000, 25, 25), features, labels (1000, 2)."""
    shapes = [array.shape for array in found] if isinstance(found, tuple) else []
    whole = shapes[:1] + shapes[2:] == [(1000, BASE + MOTIF, BASE + MOTIF), (1000, 2)]
    digest = _digest(found[0], found[2]) if whole else "other shapes"
    if digest != _DIGEST:
        raise InputError(
            f"The graphs in {path} are not those of the published BA-2motif (SHA-256 {digest[:12]}… instead of "
            f"{_DIGEST[:12]}…).",
            expected=_DIGEST,
            got=digest,
            remedy="Remove the file, and it is downloaded again.",
        )
    adjacency, labels = found[0].astype(np.uint8), found[2]
    count, size = adjacency.shape[:2]
    graph, source, target = torch.from_numpy(adjacency).nonzero().t()
    straight = source != target
    graph, edges = graph[straight], torch.stack([source, target])[:, straight]
    truth = (torch.arange(size) >= BASE).repeat(count)
    before = torch.arange(count + 1) * size
    edges_before = offsets(graph.bincount(minlength=count))
    y = torch.from_numpy(labels).argmax(dim=1)
    return Graphs(torch.ones(count * size, 1), edges + before[graph], y, before, edges_before, {"ground_truth": truth})


def _digest(adjacency: np.ndarray, labels: np.ndarray) -> str:
    with np.errstate(invalid="ignore"):  # other numbers than 0 and 1 give another digest
        both = [np.ascontiguousarray(array, dtype=np.uint8).tobytes() for array in (adjacency, labels)]
    return hashlib.sha256(b"".join(both)).hexdigest()


@register("ba2motif-generated")
def load_generated(root: Path) -> GraphSet:
    """Generate a thousand graphs with seed 0, split like the published ones; needs no files.

    Args:
        root: not used.
    """
    return _split("ba2motif-generated", pack(generate(1000, seed=0)), "Generated, seed 0.")


def _split(name: str, graphs: Graphs, remarks: str) -> GraphSet:
    place = torch.arange(len(graphs)) % 500
    train, val = set_aside((place < 400).nonzero().flatten(), graphs.y)
    test: Tensor = (place >= 400).nonzero().flatten()
    return GraphSet(name, graphs, train, val, test, CLASSES, remarks=remarks)
