"""Read graphs from files saved by torch, without running any code in them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.separate import separate
from torch_geometric.data.storage import AttrType, BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from walkwise.errors import InputError


def _forgotten(*given: Any) -> dict[Any, Any]:
    """A plain dictionary instead of PyG's cache of which attributes belong to nodes and edges, which is rebuilt."""
    return {}


#: What saved graphs are made of besides tensors and plain values. Nothing else in a file is looked up; where it says
#: collections.defaultdict, as graphs that were asked for a subgraph do, a plain dictionary is made.
_CONTAINERS: list[Any] = [
    Data,
    DataEdgeAttr,
    DataTensorAttr,
    EdgeAttr,
    EdgeLayout,
    TensorAttr,
    HeteroData,
    BaseStorage,
    GlobalStorage,
    NodeStorage,
    EdgeStorage,
    AttrType,
    (_forgotten, "collections.defaultdict"),
]
_LOCK = threading.Lock()

Graph = Data | HeteroData


def read_graphs(path: Path) -> list[Any]:
    """Read the graphs in a file: one Data or HeteroData, a list of them, or what PyG's `InMemoryDataset.save` wrote.

    Unpickling can run any code; here only tensors, plain values and PyG's own graphs are made, and a file that asks for
    anything else is refused. (PyG's own loader then opens it without that check.) Graphs whose edges lead nowhere are
    refused too.

    Args:
        path: a file saved with `torch.save`.
    """
    try:
        with _nothing_else(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old formats; what is wrong with the file is said below
            found = torch.load(path, map_location="cpu", weights_only=True)
        graphs = _graphs(found)
        for graph in graphs:
            for store in graph.stores:
                store.__dict__.pop("_cached_attr", None)
        misfit = next(filter(None, map(_misfit, graphs)), None)
    except Exception as error:  # a damaged file fails in more ways than can be listed
        raise InputError(
            f"{path} was not opened: it holds something other than PyG graphs, or is damaged. Nothing in it was run.",
            expected="a file of PyG graphs",
            got=str(path),
            remedy="Save a Data object or a list of them with torch.save, or load the file in your own code and name "
            "that by import path.",
        ) from error
    if misfit or not graphs:
        expected, got = misfit or ("PyG graphs", type(found).__name__)
        raise InputError(
            f"Expected {expected} in {path}, got {got}.",
            expected=expected,
            got=got,
            remedy="Save them with torch.save.",
        )
    return graphs


@contextmanager
def _nothing_else() -> Iterator[None]:
    """Lets torch make our containers and no others: other libraries have put theirs on its list, a defaultdict too."""
    with _LOCK:
        before = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        try:
            with torch.serialization.safe_globals(_CONTAINERS):
                yield
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(before)


def _misfit(data: Graph) -> tuple[str, str] | None:
    """What was expected of a graph, and what came; None where all is well."""
    stores = data.stores
    kinds = [(key, type(store[key]).__name__) for store in stores for key in ("x", "edge_index") if key in store]
    if wrong := next((f"{kind} as {key}" for key, kind in kinds if kind not in ("Tensor", "NoneType")), None):
        return "tensors as x and edge_index", wrong
    if isinstance(data, Data):
        return _misled(data.edge_index, data.num_nodes or 0, data.num_nodes or 0)
    ends = {kind: (data[kind[0]].num_nodes or 0, data[kind[2]].num_nodes or 0) for kind in data.edge_types}
    return next(filter(None, (_misled(data[kind].get("edge_index"), *sizes) for kind, sizes in ends.items())), None)


def _misled(edges: Tensor | None, sources: int, targets: int) -> tuple[str, str] | None:
    """The same of edges between so many nodes."""
    if edges is None:
        return None
    if edges.dim() != 2 or edges.shape[0] != 2 or edges.dtype != torch.long:
        return "edge_index of whole numbers, (2, E)", f"{edges.dtype} {tuple(edges.shape)}"
    for end, count in zip(edges, (sources, targets), strict=True):
        if end.numel() and not 0 <= int(end.min()) <= int(end.max()) < count:
            return f"edges between the {count} nodes of a graph", f"an edge to node {int(end.max())}"
    return None


def _graphs(found: Any) -> list[Graph]:
    """The graphs in what was read; none where it is something else."""
    if isinstance(found, Graph):
        return [found]
    if isinstance(found, list | tuple) and all(isinstance(graph, Graph) for graph in found):
        return list(found)
    if isinstance(found, tuple) and len(found) >= 2 and isinstance(found[0], dict | Data):
        return list(_sliced(found[0], found[1]))
    return []


def _sliced(joined: Any, slices: Any) -> list[Data]:
    """The graphs of an in-memory data set: all of them end to end, and where each begins."""
    whole = joined if isinstance(joined, Data) else Data.from_dict(joined)
    if slices is None:
        return [whole]
    if not isinstance(slices, dict) or not all(isinstance(cuts, Tensor) for cuts in slices.values()) or not slices:
        return []
    count = len(next(iter(slices.values()))) - 1
    return [separate(Data, whole, idx=i, slice_dict=slices, decrement=False) for i in range(count)]
