"""Heterogeneous graphs on the command line: nodes are named by type, whatever is asked."""

import re
import sys
import types

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import walkwise as ww
from typed_graphs import AT, WRITES, Reader, papers
from walkwise import baselines
from walkwise.datasets.graph_files import read_graphs
from walkwise.errors import InputError
from walkwise.evaluation import activation_curve, pruning_curve

MODEL, WHOLE = "typed_graphs:Reader", "typed_readers:whole"


@pytest.fixture(autouse=True)
def _whole(monkeypatch):
    """A module that makes a model with one output for the whole graph."""
    module = types.ModuleType("typed_readers")
    module.whole = lambda: Reader(whole=True)
    module.plain = lambda: GCN(2, 4, 2, out_channels=2)
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
    assert "such as 'author 0', or its number, 0 to 12, counted on from type to type, got 13" in " ".join(
        beyond.err.split()
    )
    assert run("explore", MODEL, saved, "--index", "paper 2", "--port", 0, "--no-browser").code == 0
    assert opened["index"] == ("paper", 2)


@pytest.fixture
def chain():
    return ww.trace(Reader(whole=True), papers(), target=0)


def test_explain_names_nodes_by_type(run, saved, chain):
    asked = ("explain", WHOLE, saved, "--target", 0, "--nodes", "team=author 0-1, venue 1", "--size", 3)
    report = run(*asked, "--json").json
    assert report["node_types"] == {"author": 5, "paper": 6, "venue": 2}
    assert report["node_labels"] == chain.types.written(range(13))
    assert report["node_relevance"] == pytest.approx(chain.types.joined(ww.node_relevance(chain)).tolist())
    team, found, whole = report["subgraphs"]
    assert team["nodes"] == [0, 1, 12]
    sets = [{"author": [0, 1], "venue": [1]}, ww.find_subgraph(chain, 3).named]
    wanted = ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.5, 1.0])
    assert [team["relevance"], found["relevance"]] == [pytest.approx(row) for row in wanted.tolist()]
    assert whole["relevance"] == pytest.approx([chain.input_relevance] * 3)
    words = " ".join(run(*asked).out.split())
    assert "papers.pt 0: 13 nodes (5 author, 6 paper, 2 venue), 14 edges." in words
    assert "team author 0, author 1, venue 1" in words


def test_one_node_is_named_by_type(run, saved):
    single = ww.trace(Reader(), papers(), index=("paper", 2), target=1)
    report = run("explain", MODEL, saved, "--index", 7, "--target", 1, "--json").json
    assert (report["index"], report["output"]) == (7, pytest.approx(single.output))
    assert run("explain", MODEL, saved, "--index", "paper 2", "--target", 1, "--json").json == report
    for command in ("explain", "walks", "order", "interactions"):
        assert "papers.pt 0, paper 2: 13 nodes" in run(command, MODEL, saved, "--index", "paper 2").out


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("paper 6", "There is no node 6 of type 'paper': it has 6, numbered from 0."),
        ("editor 0", "with a type of 'author', 'paper', 'venue'"),
        (
            "13",
            "--index must be a node such as 'author 0', or its number, 0 to 12, counted on from type to type, got 13.",
        ),
        ("paper", "--index must be a number, or for a heterogeneous graph a type and a number, such as 'paper 2', got"),
        ("-1", "such as 'paper 2', got -1."),
    ],
)
def test_a_node_that_is_not_there_is_refused(run, saved, index, words):
    found = run("explain", MODEL, saved, "--index", index)
    assert (found.code, words in " ".join(found.err.split())) == (
        2 if "a type and" in words or "-1" in words else 1,
        True,
    )


def test_other_graphs_name_nodes_by_number(run, tmp_path):
    torch.save(Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]])), tmp_path / "path.pt")
    found = run("explain", "typed_readers:plain", tmp_path / "path.pt", "--index", "paper 2")
    assert found.code == 1
    words = "--index must be a number, for a graph with one node type, got paper 2."
    assert words in " ".join(found.err.split())


def test_walks_name_nodes_by_type(run, saved, chain):
    best = ww.top_walks(chain, 4)
    report = run("walks", WHOLE, saved, "--target", 0, "-k", 4, "--json").json
    assert [walk["nodes"] for walk in report["walks"]] == best.walks.tolist()
    assert report["ties"][0]["words"] == " → ".join(chain.types.written(best.walks[0]))
    assert report["ties"][0]["words"] in run("walks", WHOLE, saved, "--target", 0, "-k", 4).out


@pytest.mark.parametrize("mode", ["activation", "pruning"])
def test_orders_name_nodes_by_type(run, saved, chain, mode):
    order = ww.order_nodes(chain, mode=mode, alpha=0.1)
    curve = {"activation": activation_curve, "pruning": pruning_curve}[mode]
    asked = ("order", WHOLE, saved, "--target", 0, "--mode", mode, "--alpha", 0.1)
    (found,) = run(*asked, "--json").json["orders"]
    assert found["nodes"] == order.tolist()
    assert found["curve"] == pytest.approx(curve(Reader(whole=True), papers(), order, target=0).values.tolist())
    shown = re.findall(r"(?:author|paper|venue) \d", run(*asked).out.partition("order")[2])
    assert shown == chain.types.written(order)


def test_interactions_are_those_of_types_or_of_groups(run, saved, chain):
    by_type = {name: {name: range(count)} for name, count in chain.types.counts.items()}
    report = run("interactions", WHOLE, saved, "--target", 0, "--query", "paper & ~venue", "--json").json
    terms = {tuple(term["groups"]): term["relevance"] for term in report["terms"]}
    assert terms == pytest.approx(ww.interactions(chain, by_type).terms)
    assert report["queries"][0]["relevance"] == pytest.approx(ww.query(chain, "paper & ~venue", by_type))
    named = run("interactions", WHOLE, saved, "--nodes", "a=paper 0", "--nodes", "b=venue 0-1", "--json").json
    assert named["groups"] == {"a": [5], "b": [11, 12]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nodes", "a=paper 6"], "There is no node 6 of type 'paper': it has 6, numbered from 0."),
        (["--nodes", "a=editor 0"], "with a type of 'author', 'paper', 'venue'"),
        (["--nodes", "a=13"], "--nodes a names node 13, but papers.pt 0 has nodes 0 to 12"),
        (["--smarts", "N=[#7]"], "papers.pt 0 is not a molecule: its nodes are not atoms"),
    ],
)
def test_nodes_that_are_not_there_are_refused(run, saved, options, words):
    found = run("explain", WHOLE, saved, *options)
    assert (found.code, words in " ".join(found.err.split())) == (1 if "smarts" not in options[0] else 2, True)


def test_other_graphs_have_no_types(run):
    found = run("explain", "ba2motif", "--nodes", "a=paper 0")
    assert found.code == 1
    assert "names nodes by type, but ba2motif-generated 0 has only one node type" in " ".join(found.err.split())


def test_compare_takes_them(run, saved):
    rows = run("compare", WHOLE, saved, "--target", 0, "--metric", "auac", "--json").json["rows"]
    wanted = baselines.compare(
        [row["method"] for row in rows], Reader(whole=True), [papers()] * 2, target=0, metrics="auac"
    )
    assert [row["mean"] for row in rows] == pytest.approx([row.mean for row in wanted])
    assert {row["graphs"] for row in rows} == {2}


@pytest.mark.parametrize("index", ["paper 2", "7"])
def test_compare_explains_one_node_of_them(run, saved, index):
    asked = ("--method", "gradient-x-input", "--method", "gnnexplainer", "--metric", "aupc", "--json")
    rows = run("compare", MODEL, saved, "--index", index, *asked).json["rows"]
    (wanted,) = baselines.compare("gradient-x-input", Reader(), [papers()] * 2, index=("paper", 2), metrics="aupc")
    assert rows[0]["mean"] == pytest.approx(wanted.mean)
    assert "masks edges in graphs with one node type" in rows[1]["note"]


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


def test_a_run_explains_single_nodes_of_one(run, tmp_path):
    pytest.importorskip("pyarrow")
    runs = pytest.importorskip("walkwise.runs")
    torch.save(papers(), tmp_path / "papers.pt")
    command = ("run", MODEL, tmp_path / "papers.pt", "--workers", 1, "--out")
    assert run(*command, tmp_path / "one", "--index", "paper 2").code == 0
    assert runs.read(tmp_path / "one")["graphs"]["index"].tolist() == [7]
    assert run(*command, tmp_path / "venues", "--index", "venue").code == 0
    assert runs.read(tmp_path / "venues")["graphs"].name.str.endswith(("venue 0", "venue 1")).tolist() == [True, True]
    assert run("report", tmp_path / "venues").code == 0
