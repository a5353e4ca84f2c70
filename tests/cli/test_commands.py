"""Every command's JSON against the library, its tables, and its exit codes."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
import types
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

import walkwise as ww
from walkwise import runs
from walkwise.cli import app
from walkwise.cli.names import MOLECULES
from walkwise.cli.sources import load_subject
from walkwise.evaluation import activation_along, pruning_along
from walkwise.evaluation.predictions import predict
from walkwise.paper.exhibits import Finding
from walkwise.paper.omissions import Omission
from walkwise.paper.run import EXHIBITS, Result

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
    subject = load_subject("ba2motif")
    graph = subject.graph(GRAPH)
    return ww.trace(subject.model, graph.x, graph.edge_index)


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
    assert "Prediction: house. Explaining its output, " in found.out
    assert "The set “found 4”: on these nodes alone the model gives" in found.out
    assert "found 4" in found.out
    assert "α = 0.5" in found.out
    assert "of the 5 nodes of the known motif" in found.out
    assert "\x1b" not in found.out


@pytest.mark.parametrize("mode", ["activation", "pruning"])
def test_order(run, chain, mode):
    report = run("order", "ba2motif", "--graph", GRAPH, "--mode", mode, "--alpha", 0, "--alpha", 0.2, "--json").json
    check_head(report, chain)
    subject = load_subject("ba2motif")
    prediction = predict(subject.model, subject.graph(GRAPH))
    along = activation_along if mode == "activation" else pruning_along
    for found, alpha in zip(report["orders"], (0.0, 0.2), strict=True):
        order = ww.order_nodes(chain, mode=mode, alpha=alpha)
        curve = along(prediction, order)
        assert (found["alpha"], found["nodes"]) == (alpha, order.tolist())
        assert found["curve"] == pytest.approx(curve.values.tolist(), abs=1e-6)
        assert found["area"] == pytest.approx(curve.area)
    words = run("order", "ba2motif", "--graph", GRAPH, "--mode", mode).out
    assert f"{mode.capitalize()} order, α = {'0.5' if mode == 'activation' else '0'}:" in words


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
    subject = load_subject("ba2motif")
    rows = ww.baselines.compare(
        ["random", "sgnn-lrp"],
        subject.model,
        [subject.graph(number) for number in report["graphs"]],
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


def test_compare_tells_the_time_of_training(run):
    asked = ("compare", "ba2motif", "--graph", 900, "--method", "pgexplainer", "--metric", "auac")
    assert re.search(r"pgexplainer: trained first, \S+ s on 1 graph", run(*asked).out)
    assert all(row["training_seconds"] > 0 for row in run(*asked, "--json").json["rows"])


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
    assert "--index" in missing.err


ONE_LOGIT = """
from torch_geometric.nn import Linear, Sequential, GCNConv, global_add_pool

def binary():
    torch.manual_seed(0)
    layers = [(GCNConv(2, 4), "x, edge_index -> x"), (global_add_pool, "x, batch -> x"), Linear(4, 1)]
    return Sequential("x, edge_index, batch", layers)
"""


def test_both_classes_of_one_logit(run, own):
    with Path(f"{own}.py").open("a") as file:
        file.write(ONE_LOGIT)
    asked = ("explain", f"{own}:binary", f"{own}:load", "--json", "--target")
    positive, one, zero, negative = (run(*asked, target).json for target in ("positive", 1, 0, "negative"))
    assert positive["output"] == one["output"] == zero["output"] == -negative["output"]
    assert positive["node_relevance"] == pytest.approx([-r for r in negative["node_relevance"]])
    assert (positive["class_name"], negative["class_name"]) == ("output 0", "the opposite of output 0")
    wrong = run(*asked, "neither")
    assert wrong.code == 1
    assert (
        "--target must be a column of the output, 0 alone, or one of 'positive', 'negative', got neither." in wrong.err
    )
    rows = run("compare", f"{own}:binary", f"{own}:load", "--graph", 1, "--target", "negative", "--json").json["rows"]
    assert {row["graphs"] for row in rows} == {1}


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([[0, 1, 1, 2], [1, 0, 2, 1]], "3 nodes, 2 edges."),
        ([[0, 1], [1, 0]], "3 nodes, 1 edge."),
        ([[0, 1, 1, 2], [1, 0, 1, 2]], "3 nodes, 3 edges."),  # a loop is one edge
        ([[0, 1], [1, 2]], "3 nodes, 2 directed edges."),
        ([[0], [1]], "3 nodes, 1 directed edge."),
    ],
)
def test_the_headline_counts_an_edge_and_its_reverse_once(run, own, tmp_path, edges, words):
    torch.save(Data(torch.ones(3, 2), torch.tensor(edges)), tmp_path / "graph.pt")
    assert words in run("walks", f"{own}:build", tmp_path / "graph.pt", "--index", 0).out


def test_one_graph_has_no_standard_error(run):
    words = run("compare", "ba2motif", "--graph", 900, "--method", "random").out
    assert "on 1 graph of" in words
    assert "nan" not in words


def test_molecules_given_as_smiles(run):
    pytest.importorskip("rdkit")
    nitro = "O=[N+]([O-])c1ccccc1"
    report = run("explain", "mutag", "--smiles", "CC", "--smiles", nitro, "--graph", 1, "--json").json
    assert (report["name"], report["node_labels"]) == (nitro, ["O", "N", "O", *"CCCCCC"])
    assert "0 O" in run("explain", "mutag", "--smiles", nitro).out
    wrong = run("explain", "mutag", "--smiles", "xyz")
    assert wrong.code == 1
    assert "RDKit cannot read" in wrong.err


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("explain", ["--functional-groups"]),
        ("order", []),
        ("walks", []),
        ("interactions", []),
        ("compare", ["--method", "random"]),
    ],
)
def test_molecules_as_the_features_of_ones_own_model(run, chemist, tmp_path, monkeypatch, command, more):
    pytest.importorskip("rdkit")
    (tmp_path / "chemist.py").write_text(chemist)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    asked = [command, "chemist:build", *more, "--smiles", "CCC(=O)OC"]
    found = run(*asked, "--featurise", "chemist:graph_of")
    assert found.code == 0, found.err
    assert "mutagenic" not in found.out  # which nobody said that this model predicts
    if command == "explain":
        assert "ester" in found.out
        report = run(*asked, "--featurise", "chemist:graph_of", "--json").json
        assert report["node_labels"] == ["C", "C", "C", "O", "O", "C"]
        assert "chemist:broken('CCC(=O)OC') failed: IndexError" in run(*asked, "--featurise", "chemist:broken").err
        assert "must be a function of a SMILES string, got str" in run(*asked, "--featurise", "chemist:names").err
    without = run(command, "mutag", *more, "--featurise", "chemist:graph_of")
    assert without.code == 2
    assert "Give molecules with --smiles" in without.err


@pytest.mark.parametrize(
    ("command", "more"), [("explain", []), ("order", []), ("walks", []), ("interactions", ["--nodes", "a=0,1"])]
)
def test_several_molecules_are_answered_in_turn(run, command, more):
    pytest.importorskip("rdkit")
    molecules = ["CC", "O=[N+]([O-])c1ccccc1", "CC"]
    asked = [command, "mutag", *more, *(word for text in molecules for word in ("--smiles", text))]
    together = run(*asked, "--json")
    assert (together.code, together.err) == (0, "")
    assert list(together.json) == ["command", "model", "data", "reports"]
    assert (together.json["command"], together.json["model"], together.json["data"]) == (command, "mutag", "molecules")
    reports = together.json["reports"]
    assert [report["graph"] for report in reports] == [0, 1, 2]
    for i, text in enumerate(molecules):
        assert reports[i] == run(*asked, "--graph", i, "--json").json
        assert reports[i] | {"graph": 0} == run(command, "mutag", *more, "--smiles", text, "--json").json
    parts = [run(*asked, "--graph", i).out.partition("\n")[2] for i in range(3)]  # without the first words
    answers = "\n".join(f"Molecule {i} of 3\n{part}" for i, part in enumerate(parts, start=1))
    words = "Asking mutag, which says non-mutagenic or mutagenic, about CC, O=[N+]([O-])c1ccccc1, CC."
    assert run(*asked).out == f"{words}\n{answers}"


def test_a_molecule_that_does_not_fit_is_named_before_anything_is_answered(run):
    pytest.importorskip("rdkit")
    found = run("explain", "mutag", "--smiles", "Cc1ccccc1", "--smiles", "CC", "--nodes", "a=4")
    assert (found.code, found.out.count("\n")) == (1, 1)
    assert "--nodes a names node 4, but CC has nodes 0 to 1" in found.err


def test_a_saved_file_of_graphs(run, tmp_path):
    subject = load_subject("ba2motif")
    torch.save([subject.graph(3), subject.graph(GRAPH)], tmp_path / "graphs.pt")
    report = run("explain", "ba2motif", tmp_path / "graphs.pt", "--graph", 1, "--json").json
    direct = run("explain", "ba2motif", "--graph", GRAPH, "--json").json
    assert report["node_relevance"] == direct["node_relevance"]
    assert report["name"] == "graphs.pt 1"


def test_reproduce_reports_in_json(run, monkeypatch, tmp_path):
    finding = Finding(True, "It holds: f(x) ≥ 0.")
    results = [Result(EXHIBITS["figure5"], finding, True, (), 1.5, 0, 3)]
    omitted = Omission(("mutag-gin3",), "no data")
    results.append(Result(EXHIBITS["figure6"], None, False, (omitted,), 0.0, 0, 0))
    monkeypatch.setattr("walkwise.paper.run.reproduce", lambda *arguments, **options: results)
    monkeypatch.setattr("walkwise.paper.report.write_report", lambda *arguments: tmp_path / "report.md")
    report = run("reproduce", "all", "--out", tmp_path, "--json").json
    assert report["report"] == str(tmp_path / "report.md")
    assert [(r["name"], r["holds"], r["skipped"]) for r in report["results"]] == [
        ("figure5", True, []),
        ("figure6", None, ["mutag-gin3: no data"]),
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
    assert (len(got["graphs"]), got["class_names"], got["rule"]) == (1000, ("cycle", "house"), "auto")


def test_the_explorer_opens_a_run_with_what_it_was_made_of(run, own, monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    got = {}

    def of_run(folder, model, graphs, *, featurise):
        got.update(folder=folder, model=model, graphs=graphs, featurise=featurise)
        return got

    explorer = types.ModuleType("walkwise.explorer")
    explorer.Session = types.SimpleNamespace(of_run=of_run)
    explorer.serve = lambda session, **options: got.update(options)
    monkeypatch.setitem(sys.modules, "walkwise.explorer", explorer)
    (tmp_path / "a.csv").write_text("smiles\nCCO\n")
    made = run("run", "mutag", tmp_path / "a.csv", "--out", tmp_path / "my run", "--workers", 1)
    assert f"walkwise explore '{tmp_path / 'my run'}'" in made.out
    assert run("explore", tmp_path / "my run", "--port", 0, "--no-browser").code == 0
    assert (got["folder"], got["graphs"], type(got["model"]).__name__) == (
        tmp_path / "my run",
        str(tmp_path / "a.csv"),
        "GIN",
    )
    asked = ["run", f"{own}:build", f"{own}:load", "--index", "all", "--ask", "nodes", "--out", "theirs"]
    (tmp_path / "one.py").write_text(f"from {own} import load as several\ndef load():\n    return several()[0]\n")
    asked[2] = "one:load"
    assert run(*asked).code == 0
    found = run("explore", "theirs", "--port", 0, "--no-browser")  # a folder may come from anybody: its code is not run
    assert found.code == 2
    assert f"names code to run, {own}:build, so name them yourself: walkwise explore MODEL GRAPHS --run theirs" in (
        " ".join(found.err.split())
    )
    assert run("explore", f"{own}:build", "one:load", "--run", "theirs", "--port", 0, "--no-browser").code == 0
    assert (got["folder"], type(got["model"]).__name__) == (Path("theirs"), "GCN")


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
    assert CliRunner().invoke(app, [], env=words, prog_name="walkwise").stdout.split() == ["mutagenicity", "mutag"]


@pytest.mark.parametrize("width", [80, 120])
def test_help_fills_its_lines(width):
    """A paragraph breaks where the next word does not fit, not where the source has a line end."""
    for command in app.registered_commands:
        shown = CliRunner().invoke(app, [command.name, "--help"], env={"COLUMNS": str(width)}).stdout
        text = [line.strip() for line in shown.partition("╭")[0].splitlines()]
        assert max(map(len, shown.splitlines())) == width
        for line, after in itertools.pairwise(text):
            if line and after:
                assert len(line) + 1 + len(after.split()[0]) > width - 3, (command.name, line)


def test_one_walk_is_no_walks(run):
    assert "The walk of largest relevance, of" in run("walks", "ba2motif", "-k", 1).out


def test_json_everywhere_but_where_a_page_is_served(run):
    for command in app.registered_commands:
        name = command.name
        assert ("--json" in run(name, "--help").out) == (name != "explore")


def test_a_model_that_goes_by_the_numbers_of_nodes_is_not_asked_about_parts(run, own):
    with Path(f"{own}.py").open("a") as file:
        file.write(
            "class Table(GCN):\n"
            "    def forward(self, x, edge_index):\n"
            "        return super().forward(x + torch.arange(len(x))[:, None], edge_index)\n\n"
            "def table():\n"
            "    torch.manual_seed(0)\n"
            "    return Table(2, 8, 2, 3)\n"
        )
    asked = ("explain", f"{own}:table", f"{own}:load", "--index", 1, "--size", 2)
    report = run(*asked, "--json").json
    assert report["check"] is None
    assert "depends on node numbers" in report["unchecked"]
    assert "was not checked: the model was not run on parts" in " ".join(run(*asked).out.split())


def test_a_class_against_another(run):
    asked = ("explain", "ba2motif", "--graph", GRAPH, "--json")
    house, cycle = (run(*asked, "--target", name).json for name in ("house", "cycle"))
    both = run(*asked, "--target", "house", "--against", "cycle").json
    assert both["output"] == pytest.approx(house["output"] - cycle["output"], rel=1e-5)
    assert (both["target"], both["against"], both["class_name"]) == (1, 0, "house, not cycle")
    check = both["check"]
    assert check["whole"]["output"] == pytest.approx(both["output"], rel=1e-5)
    assert check["whole"]["says"] == "house"


def test_groups_by_patterns_and_functional_groups(run):
    pytest.importorskip("rdkit")
    molecule = ("--smiles", "O=[N+]([O-])c1ccc(C)cc1", "--json")
    offered = run("interactions", "mutag", *molecule).json
    assert offered["groups"] == {"NO2": [0, 1, 2], "ring": [3, 4, 5, 6, 8, 9]}
    named = run("interactions", "mutag", *molecule, "--smarts", "nitro=[N+](=O)[O-]", "--nodes", "methyl=7").json
    assert named["groups"] == {"nitro": [0, 1, 2], "methyl": [7]}
    sets = run("explain", "mutag", *molecule, "--functional-groups", "--smarts", "Cl=Cl").json["subgraphs"]
    assert [one["name"] for one in sets] == ["NO2", "ring", "found 5", "whole graph"]


def test_a_run_goes_on_and_says_what_it_did(run, own, tmp_path):
    asked = ["run", f"{own}:build", f"{own}:load", "--index", "all", "--ask", "nodes", "--out", tmp_path / "out"]
    refused = run(*asked)
    assert refused.code == 1
    assert "--index must be left out if there are several graphs (2 here), got all." in refused.err
    asked = ["run", "ba2motif", "--ask", "nodes", "--ask", "walks:2", "--out", tmp_path / "out", "--workers", 1]
    first = run(*asked)
    assert (first.code, first.err) == (0, "")
    assert "1,000 graphs of 1,000; nodes, walks:2." in first.out
    again = run(*asked, "--json").json
    assert again == {
        "command": "run",
        "folder": str(tmp_path / "out"),
        "graphs": 1000,
        "done": 1000,
        "failed": 0,
        "questions": ["nodes", "walks:2"],
    }
    other = run(*asked, "--rule", "zero")
    assert other.code == 1
    assert "holds another run: rule: auto before, zero now." in " ".join(other.err.split())


def test_a_run_of_molecules_in_a_table(run, tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "a.csv").write_text("smiles\nCCO\nrubbish\n")
    found = run("run", "mutag", tmp_path / "a.csv", "--ask", "groups:functional", "--out", tmp_path / "out")
    assert found.code == 0
    assert "1 graph failed; the column error of the table graphs says why." in found.out
    assert run("run", "mutag", tmp_path / "b.csv", "--out", tmp_path / "out").code == 2


@pytest.mark.parametrize("model", ["mutagenicity", "mutag"])
def test_a_run_gives_bundled_models_the_features_that_they_take(run, tmp_path, model):
    pytest.importorskip("rdkit")
    asked = ["--ask", "nodes", "--workers", 1, "--json", "--out"]
    found = run("run", model, "--target", "mutagenic", *asked, tmp_path / "own").json
    assert (found["done"], found["failed"]) == (8, 0)
    rows = runs.read(tmp_path / "own")["graphs"]
    assert rows.name.tolist() == list(MOLECULES)
    assert set(rows.target) == {1}
    (tmp_path / "a.csv").write_text("smiles\nCCO\nc1ccccc1[N+](=O)[O-]\n", encoding="utf-8")
    found = run("run", model, tmp_path / "a.csv", *asked, tmp_path / "table").json
    assert (found["done"], found["failed"]) == (2, 0)
