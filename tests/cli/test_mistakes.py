"""What the command line says when something does not fit: in its own words, in one line, with an exit code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch

OUTPUTS = """
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(2, 2)

class Pair(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index), x

class Cube(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index)[None]

class Single(Base):
    def forward(self, x, edge_index):
        return self.conv(x, edge_index).sum()

class Lost(Base):
    def forward(self, x, edge_index):
        return {}["lost"]

def path(fill=1.0):
    return Data(torch.full((3, 2), fill), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))

def broken():
    return path(float("nan"))

def two_parts():
    edges = path().edge_index
    return Data(torch.ones(6, 2), torch.cat([edges, edges + 3], dim=1))
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{own}:Pair", "{own}:path"], "got tuple. Wrap the model in one that returns (rows, columns)"),
        (["{own}:Cube", "{own}:path"], "got shape (1, 3, 2). Wrap the model"),
        (["{own}:Single", "{own}:path", "--index", "1"], "{own}:Single has one output for the whole graph"),
        (["{own}:Lost", "{own}:path"], "{own}:Lost does not run on {own}:path 0"),
        (["{own}:Single", "{own}:broken"], "{own}:broken 0: x has NaN or infinite entries"),
        (["{own}:Single", "{own}:two_parts", "--size", "4"], "the largest connected component has 3"),
    ],
)
def test_errors_about_a_model_speak_of_options(run, own, arguments, words):
    Path(f"{own}.py").write_text(OUTPUTS)
    for command in ("explain", "compare") if "--size" not in arguments else ("explain",):
        found = run(command, *(argument.format(own=own) for argument in arguments))
        assert found.code == 1
        assert words.format(own=own) in found.err
        assert not re.search(r"\b(index|target|batch|root|connected)=|lambda|callable", found.err)


def test_a_model_that_returns_one_number_is_followed(run, own):
    Path(f"{own}.py").write_text(OUTPUTS)
    report = run("order", f"{own}:Single", f"{own}:path", "--json").json
    assert report["orders"][0]["curve"][-1] == pytest.approx(report["output"], abs=1e-6)


def test_the_set_that_is_looked_for_fits_a_graph_in_parts(run, own):
    Path(f"{own}.py").write_text(OUTPUTS)
    assert len(run("explain", f"{own}:Single", f"{own}:two_parts", "--json").json["found"]["nodes"]) == 3


def test_weights_that_nobody_named_are_spoken_of(run, own, tmp_path):
    named = (f"{own}:build", f"{own}:load", "--index", 1)
    found = run("explain", *named, "--json")
    assert found.err.startswith(f"Note: {own}:build uses the weights it comes with")
    assert found.err.count("\n") == 1
    assert found.json["index"] == 1
    torch.save(importlib.import_module(own).build().state_dict(), tmp_path / "weights.pt")
    assert run("explain", *named, "--weights", tmp_path / "weights.pt").err == ""


def test_a_missing_data_set_names_the_option(run, tmp_path):
    found = run("explain", "mutag", "graph-sst2", "--data", tmp_path)
    assert found.code == 1
    assert "--data on the command line" in found.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["explain", "ba2motf"], 2, "did you mean 'ba2motif'?"),
        (["explain", "ba2motif", "molcules"], 2, "did you mean 'molecules'?"),
        (["explain", "ba2motif", "--graph", "5000"], 2, "numbered 0 to 999"),
        (["explain", "ba2motif", "--rule", "gama"], 2, "did you mean 'gamma'?"),
        (["explain", "ba2motif", "--alpha", "2"], 2, "less than or equal to 1"),
        (["explain", "ba2motif", "--nodes", "x"], 2, "Expected nodes such as"),
        (["explain", "ba2motif", "--size", "26"], 2, "at most 25, the number of nodes of ba2motif-generated 0"),
        (
            ["explain", "ba2motif", "--nodes", "a=99"],
            1,
            "--nodes a names node 99, but ba2motif-generated 0 has nodes 0",
        ),
        (
            ["explain", "ba2motif", "--target", "7"],
            1,
            "--target must be a column of the output, 0 to 1, or one of 'cycle', 'house', got 7.",
        ),
        (["explain", "ba2motif", "--index", "7"], 1, "ba2motif has one output for the whole graph"),
        (["explain", "mutag", "ba2motif-generated"], 1, "(25x1 and 7x128)"),
        (["explain", "ba2motif", "--weights", "nowhere.pt"], 2, "There is no file nowhere.pt"),
        (["order", "ba2motif", "--mode", "activate"], 2, "did you mean 'activation'?"),
        (["walks", "ba2motif", "--by", "size"], 2, "Expected one of relevance, magnitude"),
        (["interactions", "ba2motif"], 2, "is not a molecule: its nodes are not atoms. Name groups with --nodes."),
        (["explain", "mutag", "--smarts", "NO2=[N"], 1, "cannot read the SMARTS pattern of 'NO2', '[N'"),
        (["explain", "ba2motif", "--index", 0], 1, "leave out --index"),
        (["interactions", "ba2motif", "--nodes", "a=0", "--nodes", "b=0"], 1, "or ask with --query"),
        (["interactions", "ba2motif", "--nodes", "a=0", "--query", "a & b"], 1, "no group is called 'b'"),
        (["interactions", "ba2motif", "--nodes", "a=30"], 1, "--nodes a names node 30"),
        (["interactions", "ba2motif", "--nodes", "0,1", "--query", "0,1 & rest"], 1, "'0,1' is not one"),
        (["interactions", "ba2motif", "--nodes", "rest=0,1"], 1, "'rest' stands for the nodes in no group"),
        (["compare", "ba2motif", "--index", "0"], 1, "leave out --index"),
        (
            ["compare", "ba2motif", "--target", "5"],
            1,
            "--target must be a column of the output, 0 to 1, or one of 'cycle', 'house', got 5.",
        ),
        (["compare", "mutag", "ba2motif-generated"], 1, "mutag does not run on ba2motif-generated"),
        (["compare", "ba2motif", "--method", "sgnn"], 2, "did you mean 'sgnn-lrp'?"),
        (["compare", "ba2motif", "--metric", "auro"], 2, "did you mean 'auroc'?"),
        (["train", "ba2motif-gin9"], 2, "did you mean 'ba2motif-gin"),
        (["train", "ba2motif-gin3", "molecules"], 2, "Unknown data set"),
        (["train", "ba2motif-gin3", "--out", "nowhere/w.safetensors"], 2, "There is no folder nowhere"),
        (["train", "ba2motif-gin3", "--out", "."], 2, ". is a folder. Name the file of weights with --out."),
        (["demo", "--out", __file__], 2, "give a folder"),
        (["reproduce", "table9"], 2, "did you mean 'table3'?"),
        (["explore", "ba2motif", "--rule", "gama"], 2, "did you mean 'gamma'?"),
        (["explian"], 2, "explain"),
        (["explain"], 2, "MODEL"),
        (["explain", "ba2motif", "--nosuch"], 2, "--nosuch"),
    ],
)
def test_mistakes_end_in_one_line_and_an_exit_code(run, arguments, code, words):
    found = run(*arguments, *(["--json"] if arguments[0] in ("explain", "order", "walks") else []))
    assert found.code == code
    assert found.out.count("\n") <= 1  # what is asked is said at once
    assert words in found.err
    assert "Traceback" not in found.err
    points = found.err.rstrip().endswith("^")  # at a place in a formula, which takes two lines more
    if "Usage" not in found.err:
        assert found.err.count("\n") == (3 if points else 1)


@pytest.mark.parametrize(
    "arguments",
    [["--debug", "explain", "ba2motif", "--target", "7"], ["explain", "ba2motif", "--target", "7", "--debug"]],
)
def test_debug_shows_the_traceback(run, arguments):
    found = run(*arguments)
    assert found.code == 1
    assert "Traceback" in found.err
    assert "--target must be a column of the output, 0 to 1, or one of 'cycle', 'house', got 7." in found.err


def test_an_interruption_ends_in_a_line(run, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("walkwise.cli.sources.load_subject", stop)
    found = run("explain", "ba2motif")
    assert (found.code, found.err) == (130, "Interrupted.\n")


def test_an_error_that_nobody_expected_is_one_line_too(run, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("the unforeseen")

    monkeypatch.setattr("walkwise.cli.sources.load_subject", fail)
    found = run("explain", "ba2motif")
    assert (found.code, found.err) == (1, "RuntimeError: the unforeseen (--debug shows where.)\n")
