"""The commands in the documentation run as they stand, and its keys are those that come out."""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from typed_graphs import papers
from walkwise.models import save_weights

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guides" / "command-line.md").read_text(encoding="utf-8")
COMMANDS = {
    line.partition(" #")[0].strip(): shlex.split(line, comments=True)[1:]
    for line in "".join(re.findall(r"```sh\n(.*?)```", README + GUIDE, flags=re.DOTALL)).splitlines()
    if line.startswith("walkwise ")
}

DATA = """
import torch
from torch_geometric.data import Data

def load():
    return Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
"""
READERS = """
from typed_graphs import Reader

def build():
    return Reader(whole=True)

def per_node():
    return Reader()
"""
MODELS = "from torch_geometric.nn import GCN\n\ndef build():\n    return GCN(2, 8, num_layers=2, out_channels=3)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch, chemist):
    """A folder with what the commands name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mypkg", "mypkg.data", "mypkg.models", "mypkg.readers", "mypkg.solubility"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("mypkg").mkdir()
    Path("mypkg/models.py").write_text(MODELS)
    Path("mypkg/data.py").write_text(DATA)
    Path("mypkg/readers.py").write_text(READERS)
    Path("mypkg/solubility.py").write_text(chemist)
    torch.save(import_module("mypkg.solubility").build().state_dict(), "solubility.pt")
    torch.save([papers()], "papers.pt")
    torch.save([Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))], "graphs.pt")
    save_weights(GCN(2, 8, num_layers=2, out_channels=3), "weights.safetensors")


def test_every_command_runs(run, folder):
    pytest.importorskip("rdkit")
    named = {arguments[0] for arguments in COMMANDS.values()}
    assert named == {
        "demo",
        "explain",
        "order",
        "walks",
        "interactions",
        "compare",
        "report",
        "run",
        "train",
        "explore",
    }
    for arguments in COMMANDS.values():
        if arguments[0] not in (
            "demo",
            "explore",
        ):  # one has its own tests, the other serves a page until it is stopped
            found = run(*arguments)
            own = arguments[1].startswith("mypkg.") and arguments[0] != "run"
            noted = own and "--weights" not in arguments
            assert (found.code, found.err[:5]) == (0, "Note:" if noted else ""), arguments
            assert found.out


def test_the_read_me_has_one_number_for_its_molecule(run):
    """The lines of Python and the command explain the same."""
    pytest.importorskip("rdkit")
    (said,) = re.findall(r"^Prediction: .*? (-?[\d.]+: walks sum to .*)\.$", README, flags=re.MULTILINE)
    (command,) = [
        arguments for line, arguments in COMMANDS.items() if f"{line}\n" in README and arguments[0] == "explain"
    ]
    assert said in " ".join(run(*command).out.split())


def documented(command: str) -> list[str]:
    """The keys that the guide promises, without those in parentheses."""
    row = re.search(rf"^\| `{command}` \| (.*) \|$", GUIDE, flags=re.MULTILINE)
    assert row is not None
    return re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row[1]))


def test_the_keys_are_those_that_come_out(run, tmp_path):
    common = re.search(r"begin with the same keys: (.*?)\. Then", GUIDE, flags=re.DOTALL)
    assert common is not None
    head = re.findall(r"`(\w+)`", common[1])
    asked = {"explain": [], "order": [], "walks": [], "interactions": ["--nodes", "0,1"]}
    for command, arguments in asked.items():
        report = run(command, "ba2motif", *arguments, "--json").json
        assert list(report) == head + documented(command)
    report = run("compare", "ba2motif", "--limit", 1, "--method", "random", "--json").json
    assert list(report) == documented("compare")
    file = tmp_path / "w.safetensors"
    report = run("train", "ba2motif-gin2", "ba2motif-generated", "--epochs", 1, "--out", file, "--json").json
    assert list(report) == documented("train")
