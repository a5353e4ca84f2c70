"""Every command's JSON against the library, its tables, and its exit codes."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import walkwise as ww
from walkwise import models
from walkwise.cli import app
from walkwise.cli.sources import open_session
from walkwise.evaluation import activation_along, pruning_along
from walkwise.paper.exhibits import Finding
from walkwise.paper.run import EXHIBITS, Result
from walkwise.predictions import predict

GRAPH = 950

HEAD = {
    "command": str,
    "model": str,
    "data": str,
    "graph": int,
    "name": str,
    "num_nodes": int,
    "num_edges": int,
    "num_layers": int,
    "node_labels": list,
    "target": int,
    "class_name": str,
    "index": (int, type(None)),
    "rule": str,
    "outputs": list,
    "output": float,
    "input_relevance": float,
    "bias_leak": float,
    "notes": list,
}


@pytest.fixture(scope="module")
def chain():
    session = open_session("ba2motif")
    graph = session.graph(GRAPH)
    return ww.trace(session.model, graph.x, graph.edge_index)


def check_head(report: dict, chain: ww.RelevanceChain) -> None:
    assert {name: type(report[name]) for name in HEAD if not isinstance(report[name], HEAD[name])} == {}
    assert report["output"] == pytest.approx(chain.output)
    assert report["input_relevance"] == pytest.approx(chain.input_relevance)
    assert report["bias_leak"] == pytest.approx(chain.bias_leak)
    assert (report["num_nodes"], report["num_layers"]) == (chain.num_nodes, chain.num_layers)


def test_explain(run, chain):
    found = run("explain", "ba2motif", "--graph", GRAPH, "--alpha", 0, "--alpha", 0.4, "--nodes", "a=0-3", "--json")
    assert (found.code, found.err) == (0, "")
    report = found.json
    check_head(report, chain)
    assert report["node_relevance"] == pytest.approx(ww.node_relevance(chain).tolist())
    assert [s["name"] for s in report["subgraphs"]] == ["a", "known motif", "found 5", "whole graph"]
    sets = [s["nodes"] for s in report["subgraphs"]]
    assert sets[:2] == [[0, 1, 2, 3], [20, 21, 22, 23, 24]]
    values = torch.tensor([s["relevance"] for s in report["subgraphs"]])
    torch.testing.assert_close(values, ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.4]))
    best = ww.find_subgraph(chain, 5)
    assert report["found"] == {
        "nodes": list(best.nodes),
        "relevance": pytest.approx(best.score),
        "exhaustive": best.exhaustive,
    }
    assert report["truth"]["found"] == len(set(best.nodes) & set(range(20, 25)))


def test_explain_in_words(run):
    found = run("explain", "ba2motif", "--graph", GRAPH, "--size", 4)
    assert found.code == 0
    assert "explained is house" in found.out
    assert "found 4" in found.out
    assert "α = 0.5" in found.out
    assert "Of the 5 nodes of the known motif" in found.out
    assert "\x1b" not in found.out


@pytest.mark.parametrize("mode", ["activation", "pruning"])
def test_order(run, chain, mode):
    report = run("order", "ba2motif", "--graph", GRAPH, "--mode", mode, "--alpha", 0, "--alpha", 0.2, "--json").json
    check_head(report, chain)
    session = open_session("ba2motif")
    prediction = predict(session.model, session.graph(GRAPH))
    along = activation_along if mode == "activation" else pruning_along
    for found, alpha in zip(report["orders"], (0.0, 0.2), strict=True):
        order = ww.order_nodes(chain, mode=mode, alpha=alpha)
        curve = along(prediction, order)
        assert (found["alpha"], found["nodes"]) == (alpha, order.tolist())
        assert found["curve"] == pytest.approx(curve.values.tolist(), abs=1e-6)
        assert found["area"] == pytest.approx(curve.area)
    words = run("order", "ba2motif", "--graph", GRAPH, "--mode", mode).out
    assert f"{mode.capitalize()} order, α = 0" in words


def test_walks(run, chain):
    report = run("walks", "ba2motif", "--graph", GRAPH, "-k", 4, "--by", "magnitude", "--json").json
    check_head(report, chain)
    best = ww.top_walks(chain, 4, by="magnitude")
    assert report["num_walks"] == best.num_walks
    assert [w["relevance"] for w in report["walks"]] == pytest.approx(best.relevance.tolist())
    walks = torch.tensor([w["nodes"] for w in report["walks"]])
    torch.testing.assert_close(ww.walk_relevance(chain, walks), best.relevance)
    words = run("walks", "ba2motif", "--graph", GRAPH, "-k", 2).out
    assert "→" in words
    assert "in the known motif" in words


def test_walks_that_pass_positions_by_have_null(run, own):
    Path(f"{own}.py").write_text(Path(f"{own}.py").read_text().replace("num_layers=2,", "num_layers=2, jk='cat',"))
    report = run("walks", f"{own}:build", f"{own}:load", "--index", 1, "-k", 100, "--json").json
    assert any(None in walk["nodes"] for walk in report["walks"])
    assert "–" in run("walks", f"{own}:build", f"{own}:load", "--index", 1, "-k", 100).out


def test_interactions(run, chain):
    groups = {"motif": list(range(20, 25)), "tree": list(range(20))}
    arguments = ["--nodes", "motif=20-24", "--nodes", "tree=0-19", "--query", "motif & tree", "--query", "~motif"]
    report = run("interactions", "ba2motif", "--graph", GRAPH, *arguments, "--json").json
    check_head(report, chain)
    terms = ww.interactions(chain, groups)
    assert {tuple(t["groups"]): pytest.approx(t["relevance"]) for t in report["terms"]} == dict(terms.terms)
    assert report["union"] == pytest.approx(chain.input_relevance, rel=1e-5)
    wanted = [ww.query(chain, formula, groups) for formula in ("motif & tree", "~motif")]
    assert [q["relevance"] for q in report["queries"]] == pytest.approx(wanted)
    words = run("interactions", "ba2motif", "--graph", GRAPH, *arguments, "--max-order", 1).out
    assert "higher orders" in words
    assert "motif & tree" in words


def test_formulas_may_speak_of_groups_that_overlap(run, chain):
    groups = {"motif": list(range(20, 25)), "near": [3, 20, 21]}
    arguments = ["--nodes", "motif=20-24", "--nodes", "near=3,20,21", "--query", "motif & near"]
    report = run("interactions", "ba2motif", "--graph", GRAPH, *arguments, "--json").json
    assert report["queries"][0]["relevance"] == pytest.approx(ww.query(chain, "motif & near", groups))
    assert report["terms"] == []
    assert "motif & near" in run("interactions", "ba2motif", "--graph", GRAPH, *arguments).out


def test_a_formula_that_is_wrong_is_pointed_at(run):
    error = run("interactions", "ba2motif", "--nodes", "a=0", "--query", "a & (").err
    assert any(line.strip() == "^" for line in error.splitlines())


def test_compare(run):
    methods = ["--method", "random", "--method", "sgnn-lrp"]
    metrics = ["--metric", "auac", "--metric", "auroc"]
    report = run("compare", "ba2motif", "--limit", 4, *methods, *metrics, "--json").json
    assert report["graphs"] == [400, 450, 900, 950]
    session = open_session("ba2motif")
    rows = ww.baselines.compare(
        ["random", "sgnn-lrp"],
        session.model,
        [session.graph(number) for number in report["graphs"]],
        metrics=["auac", "auroc"],
        motif=lambda data: data.ground_truth.nonzero().flatten().tolist(),
    )
    keys = ("method", "alpha", "metric", "mean", "standard_error", "graphs", "note")
    wanted = [{key: getattr(row, key) for key in keys} for row in rows]
    assert [{key: row[key] for key in keys} for row in report["rows"]] == wanted
    words = run("compare", "ba2motif", "--graph", 900, *methods).out
    assert "sgnn-lrp" in words
    assert "auac" in words


def test_compare_reports_what_a_method_cannot_do_as_null(run):
    report = run("compare", "ba2motif", "--graph", 900, "--method", "attention", "--json").json
    assert {row["mean"] for row in report["rows"]} == {None}
    assert "left out" in run("compare", "ba2motif", "--graph", 900, "--method", "attention").out


def test_train_and_explain_what_was_trained(run, tmp_path):
    file = tmp_path / "trained.safetensors"
    report = run("train", "ba2motif-gin2", "ba2motif-generated", "--epochs", 1, "--out", file, "--json").json
    assert (report["epochs"], report["weights"]) == (1, str(file))
    assert 0 <= report["test_accuracy"] <= 1
    explained = run("explain", file, "ba2motif-generated", "--json").json
    model = models.open_weights(file)
    graph = open_session("ba2motif").graph(0)
    assert explained["outputs"] == pytest.approx(model(graph.x, graph.edge_index)[0].tolist())


TRAINABLE = """
import torch
from typer.testing import CliRunner
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = GCNConv(1, 4), nn.Linear(4, 2)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))

def graphs():
    edges = torch.tensor([[0, 1], [1, 0]])
    return [Data(torch.full((2, 1), float(i % 2)), edges, y=torch.tensor([i % 2])) for i in range(40)]

def unlabelled():
    return [Data(torch.ones(2, 1), torch.tensor([[0, 1], [1, 0]]))]
"""


def test_train_a_model_of_ones_own(run, own):
    Path(f"{own}.py").write_text(TRAINABLE)
    found = run("train", f"{own}:Small", f"{own}:graphs", "--epochs", 3)
    assert (found.code, Path("Small.safetensors").exists()) == (0, True)
    assert "3 epochs" in found.out
    arguments = [f"{own}:Small", f"{own}:graphs", "--weights", "Small.safetensors"]
    explained = run("explain", *arguments, "--target", 1, "--graph", 1, "--json").json
    model = models.load_weights(importlib.import_module(own).Small(), "Small.safetensors").eval()
    graph = importlib.import_module(own).graphs()[1]
    outputs = model(graph.x, graph.edge_index, torch.zeros(2, dtype=torch.long))[0]
    assert explained["outputs"] == pytest.approx(outputs.tolist())
    assert explained["target"] == 1
    assert run("train", f"{own}:Small", f"{own}:unlabelled").code == 2
    assert run("train", f"{own}:Small").code == 2


def test_a_node_level_model_by_import_path(run, own):
    report = run("explain", f"{own}:build", f"{own}:load", "--graph", 1, "--index", 2, "--target", 0, "--json").json
    module = importlib.import_module(own)
    graph = module.load()[1]
    chain = ww.trace(module.build(), graph.x, graph.edge_index, index=2, target=0)
    check_head(report, chain)
    assert (report["index"], report["truth"]) == (2, None)
    assert report["node_relevance"] == pytest.approx(ww.node_relevance(chain).tolist())
    missing = run("explain", f"{own}:build", f"{own}:load")
    assert missing.code == 1
    assert "node-level model" in missing.err


def test_molecules_given_as_smiles(run):
    pytest.importorskip("rdkit")
    nitro = "O=[N+]([O-])c1ccccc1"
    report = run("explain", "mutag", "--smiles", "CC", "--smiles", nitro, "--graph", 1, "--json").json
    assert (report["name"], report["node_labels"]) == (nitro, ["O", "N", "O", *"CCCCCC"])
    assert "0 O" in run("explain", "mutag", "--smiles", nitro).out
    wrong = run("explain", "mutag", "--smiles", "xyz")
    assert wrong.code == 1
    assert "RDKit cannot read" in wrong.err


def test_a_saved_file_of_graphs(run, tmp_path):
    session = open_session("ba2motif")
    torch.save([session.graph(3), session.graph(GRAPH)], tmp_path / "graphs.pt")
    report = run("explain", "ba2motif", tmp_path / "graphs.pt", "--graph", 1, "--json").json
    direct = run("explain", "ba2motif", "--graph", GRAPH, "--json").json
    assert report["node_relevance"] == direct["node_relevance"]
    assert report["name"] == "graphs.pt 1"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["explain", "ba2motf"], 2, "did you mean 'ba2motif'?"),
        (["explain", "ba2motif", "molcules"], 2, "did you mean 'molecules'?"),
        (["explain", "ba2motif", "--graph", "5000"], 2, "numbered 0 to 999"),
        (["explain", "ba2motif", "--rule", "gama"], 2, "did you mean 'gamma'?"),
        (["explain", "ba2motif", "--alpha", "2"], 2, "less than or equal to 1"),
        (["explain", "ba2motif", "--nodes", "x"], 2, "Expected nodes such as"),
        (["explain", "ba2motif", "--size", "26"], 2, "at most 25"),
        (["explain", "ba2motif", "--nodes", "99"], 1, "99"),
        (["explain", "ba2motif", "--target", "7"], 1, "target=7 is out of range"),
        (["explain", "ba2motif", "--index", "7"], 1, "out of range"),
        (["explain", "mutag", "ba2motif-generated"], 1, "(25x1 and 7x128)"),
        (["explain", "ba2motif", "--weights", "nowhere.pt"], 2, "There is no file nowhere.pt"),
        (["order", "ba2motif", "--mode", "activate"], 2, "did you mean 'activation'?"),
        (["walks", "ba2motif", "--by", "size"], 2, "Expected one of relevance, magnitude"),
        (["interactions", "ba2motif"], 2, "Which groups?"),
        (["explain", "ba2motif", "--index", 0], 1, "leave out --index"),
        (["interactions", "ba2motif", "--nodes", "a=0", "--nodes", "b=0"], 1, "share node 0"),
        (["interactions", "ba2motif", "--nodes", "a=0", "--query", "a & b"], 1, "no group is called 'b'"),
        (["compare", "ba2motif", "--method", "sgnn"], 2, "did you mean 'sgnn-lrp'?"),
        (["compare", "ba2motif", "--metric", "auro"], 2, "did you mean 'auroc'?"),
        (["train", "ba2motif-gin9"], 2, "did you mean 'ba2motif-gin"),
        (["train", "ba2motif-gin3", "molecules"], 2, "Unknown data set"),
        (["train", "ba2motif-gin3", "--out", "nowhere/w.safetensors"], 2, "There is no folder nowhere"),
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
    assert found.out == ""
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
    assert "target=7 is out of range" in found.err


def test_an_interruption_ends_in_a_line(run, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("walkwise.cli.sources.open_session", stop)
    found = run("explain", "ba2motif")
    assert (found.code, found.err) == (130, "Interrupted.\n")


def test_an_error_that_nobody_expected_is_one_line_too(run, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("the unforeseen")

    monkeypatch.setattr("walkwise.cli.sources.open_session", fail)
    found = run("explain", "ba2motif")
    assert (found.code, found.err) == (1, "RuntimeError: the unforeseen (--debug shows where.)\n")


def test_reproduce_reports_in_json(run, monkeypatch, tmp_path):
    finding = Finding(True, "It holds: f(x) ≥ 0.")
    results = [Result(EXHIBITS["figure5"], finding, True, (), 1.5, 0, 3)]
    results.append(Result(EXHIBITS["figure6"], None, False, ("no data",), 0.0, 0, 0))
    monkeypatch.setattr("walkwise.paper.run.reproduce", lambda *arguments, **options: results)
    monkeypatch.setattr("walkwise.paper.report.write_report", lambda *arguments: tmp_path / "report.md")
    report = run("reproduce", "all", "--out", tmp_path, "--json").json
    assert report["report"] == str(tmp_path / "report.md")
    assert [(r["name"], r["holds"], r["skipped"]) for r in report["results"]] == [
        ("figure5", True, []),
        ("figure6", None, ["no data"]),
    ]
    assert "no data" in run("reproduce", "all", "--out", tmp_path).out


def test_the_explorer_gets_the_model_and_the_graphs(run, monkeypatch):
    got = {}
    explorer = types.ModuleType("walkwise.explorer")
    explorer.Session = lambda model, graphs, **names: got.update(model=model, graphs=graphs, **names) or got
    explorer.serve = lambda session, **options: got.update(options)
    monkeypatch.setitem(sys.modules, "walkwise.explorer", explorer)
    assert run("explore", "ba2motif", "--port", 0, "--no-browser").code == 0
    assert (got["host"], got["port"], got["open_browser"]) == ("127.0.0.1", 0, False)
    assert (len(got["graphs"]), got["class_names"], got["rule"]) == (1000, ("cycle", "house"), "gamma")


def test_without_its_extra_the_explorer_says_so(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "walkwise.explorer", None)
    found = run("explore")
    assert found.code == 1
    assert "pip install 'walkwise[explore]'" in found.err


def test_every_command_has_help_and_the_version_shows(run):
    assert run("--version").out == f"walkwise {ww.__version__}\n"
    listed = run("--help").out
    for name in ("demo", "explain", "order", "walks", "interactions", "compare", "train", "reproduce", "explore"):
        assert name in listed
        found = run(name, "--help")
        assert found.code == 0
        assert "--debug" in found.out
    assert "runs that module" in " ".join(run("explain", "--help").out.replace("│", " ").split())


def test_the_shell_completes_names():
    words = {"_WALKWISE_COMPLETE": "complete_bash", "COMP_WORDS": "walkwise explain mu", "COMP_CWORD": "2"}
    assert CliRunner().invoke(app, [], env=words, prog_name="walkwise").stdout.split() == ["mutag"]


def test_json_everywhere_but_where_a_page_is_served(run):
    for command in app.registered_commands:
        name = command.name
        assert ("--json" in run(name, "--help").out) == (name != "explore")
