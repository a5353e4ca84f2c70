"""Heterogeneous graphs on the command line: files of them are read, the explorer opens them, the rest says so."""

import sys
import types

import pytest
import torch

from typed_graphs import AT, WRITES, Reader, papers
from walkwise.datasets.graph_files import read_graphs
from walkwise.errors import InputError

MODEL, WHOLE = "typed_graphs:Reader", "typed_readers:whole"


@pytest.fixture(autouse=True)
def _whole(monkeypatch):
    """A module that makes a model with one output for the whole graph."""
    module = types.ModuleType("typed_readers")
    module.whole = lambda: Reader(whole=True)
    monkeypatch.setitem(sys.modules, "typed_readers", module)


@pytest.fixture
def saved(tmp_path):
    torch.save([papers(), papers()], tmp_path / "papers.pt")
    return tmp_path / "papers.pt"


@pytest.fixture
def opened(monkeypatch):
    """What the explorer is given."""
    got = {}
    explorer = types.ModuleType("walkwise.explorer")
    explorer.Session = lambda model, graphs, **names: got.update(model=model, graphs=graphs, **names) or got
    explorer.serve = lambda session, **options: got.update(options)
    monkeypatch.setitem(sys.modules, "walkwise.explorer", explorer)
    return got


def test_a_file_holds_what_was_saved(saved, tmp_path):
    torch.save(papers(), tmp_path / "one.pt")
    for path, count in ((saved, 2), (tmp_path / "one.pt", 1)):
        found = read_graphs(path)
        assert len(found) == count
        for graph in found:
            assert graph.metadata() == papers().metadata()
            for kind, edges in papers().edge_index_dict.items():
                assert torch.equal(graph[kind].edge_index, edges)
            for name, x in papers().x_dict.items():
                assert torch.equal(graph[name].x, x)


@pytest.mark.parametrize(
    ("kind", "edges", "words"),
    [
        (WRITES, torch.tensor([[5], [0]]), "edges between the 5 nodes"),
        (WRITES, torch.tensor([[0], [6]]), "edges between the 6 nodes"),
        (AT, torch.tensor([[0], [-1]]), "edges between the 2 nodes"),
        (AT, torch.tensor([[0.0], [1.0]]), "edge_index of whole numbers"),
    ],
)
def test_edges_that_lead_nowhere_are_refused(kind, edges, words, tmp_path):
    data = papers()
    data[kind].edge_index = edges
    torch.save(data, tmp_path / "bad.pt")
    with pytest.raises(InputError, match=words):
        read_graphs(tmp_path / "bad.pt")


def test_the_explorer_opens_a_file_of_them(run, saved, opened):
    assert run("explore", WHOLE, saved, "--port", 0, "--no-browser").code == 0
    assert [graph.node_types for graph in opened["graphs"]] == [["author", "paper", "venue"]] * 2
    assert opened["index"] is None


def test_the_explorer_opens_one_node_of_them(run, saved, opened):
    assert run("explore", MODEL, saved, "--index", 7, "--port", 0, "--no-browser").code == 0
    assert opened["index"] == 7  # paper 2
    beyond = run("explore", MODEL, saved, "--index", 13, "--port", 0, "--no-browser")
    assert beyond.code != 0
    assert "a node of papers.pt 0, 0 to 12, counted from type to type, got 13" in " ".join(beyond.err.split())


@pytest.mark.parametrize("command", ["explain", "walks", "order", "interactions", "compare"])
def test_other_commands_say_that_they_do_not_take_them(run, saved, command):
    more = ["--nodes", "a=0", "--nodes", "b=1"] if command == "interactions" else []
    found = run(command, WHOLE, saved, *more)
    assert found.code != 0
    assert "papers.pt 0 is a heterogeneous graph, which this command does not take" in " ".join(found.err.split())


def test_a_run_reads_a_file_of_them(run, saved, tmp_path):
    pytest.importorskip("pyarrow")
    runs = pytest.importorskip("walkwise.runs")
    command = ("run", WHOLE, saved, "--out", tmp_path / "out", "--ask", "nodes", "--ask", "walks:2", "--workers", 1)
    found = run(*command)
    assert (found.code, "2 graphs of 2; nodes, walks:2" in found.out) == (0, True)
    tables = runs.read(tmp_path / "out")
    assert tables["nodes"].named.tolist()[11:14] == ["venue 0", "venue 1", "author 0"]
    assert all(str(walk[-1]).startswith("paper ") for walk in tables["walks:2"].named)  # papers are added up
    assert run(*command).code == 0  # there is nothing left to do
    assert run("report", tmp_path / "out").code == 0
