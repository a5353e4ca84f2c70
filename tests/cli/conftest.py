"""The command line in this process, and what it is asked about."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from walkwise import datasets
from walkwise.cli import app


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What came out, which must be JSON and nothing else."""
        return json.loads(self.out)


@pytest.fixture
def run() -> Callable[..., Ran]:
    """Runs ``walkwise`` with these arguments; an exception that comes out is a failure."""

    def call(*arguments: Any) -> Ran:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return call


OWN = """
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])

def build():
    torch.manual_seed(0)
    return GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=3)

def load():
    return [Data(torch.ones(4, 2), edges), Data(torch.arange(8.0).view(4, 2), edges)]

def broken():
    raise RuntimeError("no luck")

number = 3
"""


CHEMIST = """
import torch
from torch import nn
from torch_geometric.nn import GCN, global_add_pool
from torch_geometric.utils import from_smiles as graph_of

class Solubility(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms, self.gnn = nn.Embedding(119, 8), GCN(8, 8, num_layers=2, out_channels=2)

    def forward(self, x, edge_index, batch):
        return global_add_pool(self.gnn(self.atoms(x[:, 0]), edge_index), batch)

def build():
    torch.manual_seed(0)
    return Solubility().eval()

def broken(smiles):
    return smiles[10_000]

names = graph_of.__name__
"""


@pytest.fixture
def chemist():
    """The code of a model that takes molecules as PyG makes them."""
    return CHEMIST


@pytest.fixture
def own(tmp_path, monkeypatch, request):
    """A module of the user's, in the current folder; its name comes back."""
    name = f"own_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


_kept = functools.cache(datasets.load)


@pytest.fixture(autouse=True)
def _made_once(monkeypatch):
    """A data set is made once for all tests; nothing changes it."""
    monkeypatch.setattr(datasets, "load", _kept)


@pytest.fixture(autouse=True)
def _few_threads():
    """Graphs this small are slower with more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
