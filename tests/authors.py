"""The paper's authors' models as plain PyG modules in float64, their graphs and their numbers."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from walkwise import datasets, models

ROOT = Path(os.environ.get("WALKWISE_DATA") or Path(__file__).parents[2] / "shared")

needs_golden = pytest.mark.skipif(
    not (ROOT / "golden").is_dir(),
    reason=f"no golden values in {ROOT}: set WALKWISE_DATA to the folder that holds golden/ and data/",
)


def golden(name):
    """What golden/NAME.json says."""
    return json.loads((ROOT / "golden" / f"{name}.json").read_text())


def load(name):
    """One of their models, with their weights."""
    return models.from_arrays(ROOT / "golden/weights", name)


@functools.cache
def mutag():
    """The 188 molecules in their order, with their labels and features."""
    return [_molecule(graph) for graph in golden("graphs-mutag")]


def _molecule(graph):
    x = torch.eye(7, dtype=torch.float64)[graph["feature_index"]]
    edges = torch.tensor(graph["edges"]).t()
    return Data(x, torch.cat([edges, edges.flip(0)], dim=1), y=graph["label"])


@functools.cache
def data_root():
    """Their data sets, laid out once per session for walkwise.datasets."""
    folder = Path(tempfile.mkdtemp(prefix="walkwise-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([ROOT / "data/unpack", folder], check=True, capture_output=True)
    return folder


@functools.cache
def ba2motif():
    """The 1000 graphs of BA-2motif without self-loops, every feature one; nodes 20 to 24 are the motif."""
    graphs = datasets.load("ba2motif", root=data_root()).graphs
    return [Data(graph.x.double(), graph.edge_index, y=int(graph.y)) for graph in graphs]
