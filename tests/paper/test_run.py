"""The whole way: units, CSV, pictures, report and the command line."""

from __future__ import annotations

import csv
import importlib
import json
import re
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from authors import ROOT, data_root, needs_golden
from paper.cases import TINY, case
from walkwise.cli import app
from walkwise.datasets.missing import missing_data
from walkwise.errors import InputError, MissingDataError, MissingExtraError
from walkwise.models import save_weights
from walkwise.paper import bench as benches
from walkwise.paper import figure5
from walkwise.paper.bench import AUTHORS, FULL, QUICK, UNTRAINED, Bench
from walkwise.paper.exhibits import Exhibit, Finding, Workload
from walkwise.paper.omissions import Omission
from walkwise.paper.published import FIGURE_6
from walkwise.paper.report import report
from walkwise.paper.run import EXHIBITS, chosen, reproduce
from walkwise.paper.units import Unit

RUNNER = CliRunner()


class FakeBench(Bench):
    """Hands out small models, and has no REDDIT-BINARY."""

    def case(self, name):
        if name.startswith("reddit"):
            raise MissingDataError("REDDIT-BINARY is not in data/tu. Put it there.")
        return case(name)


def counted(calls, stop_at=None):
    """An exhibit of three units, one of which may be interrupted."""

    def units(one, effort):
        def compute(i):
            if i == stop_at:
                raise KeyboardInterrupt
            calls.append((one.name, i))
            return [{"model": one.name, "i": i}]

        return [Unit(f"counted/{one.name}/{i}", {"i": i}, lambda i=i: compute(i)) for i in range(3)]

    def draw(rows):
        return figure5.draw([{"alpha": i, "accuracy": i, "auroc": i} for i in range(3)])

    works = tuple(Workload(name, units) for name in ("ba2motif-gin3", "reddit-binary-gin5"))
    return Exhibit("counted", "Figure 0: counting", "It counts.", works, draw, _judge)


def _judge(rows):
    return Finding(len(rows) == 3, f"Counted |S| = {len(rows)}.", "| a |\n|---|", ("A note.",))


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    bench, calls = FakeBench(TINY, out=tmp_path), []
    with pytest.raises(KeyboardInterrupt):
        reproduce([counted(calls, stop_at=2)], bench, skip_missing=True, progress=False)
    assert [i for _, i in calls] == [0, 1]
    assert not (tmp_path / "counted.csv").exists()
    (result,) = reproduce([counted(calls)], bench, skip_missing=True, progress=False)
    assert [i for _, i in calls] == [0, 1, 2]
    assert (result.units, result.resumed) == (3, 2)
    with (tmp_path / "counted.csv").open() as file:
        assert [row["i"] for row in csv.DictReader(file)] == ["0", "1", "2"]
    assert (tmp_path / "counted.png").read_bytes().startswith(b"\x89PNG")
    reproduce([counted(calls)], bench, skip_missing=True, progress=False)
    assert len(calls) == 3


def test_what_is_missing_is_skipped_or_raised(tmp_path):
    bench = FakeBench(TINY, out=tmp_path)
    with pytest.raises(MissingDataError, match="Put it there"):
        reproduce([counted([])], bench, skip_missing=False, progress=False)
    (result,) = reproduce([counted([])], bench, skip_missing=True, progress=False)
    assert result.skipped == (Omission(("reddit-binary-gin5",), "REDDIT-BINARY is not in data/tu. Put it there."),)
    text = report([result], bench, "walkwise reproduce all")
    assert "**Skipped:** reddit-binary-gin5 ([why](#what-is-missing))." in text
    assert "## What is missing\n\n- reddit-binary-gin5: REDDIT-BINARY is not in data/tu. Put it there." in text


def test_what_is_missing_is_said_once(monkeypatch, tmp_path):
    def load(name, root=None):
        raise missing_data(name.upper(), "https://example.org", tmp_path / name, "there is no network")

    monkeypatch.setattr(benches.datasets, "load", load)
    shown = run("all", "--quick", "--out", tmp_path)
    assert shown.exit_code == 0
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    for text in (" ".join(shown.output.split()), report):
        assert text.count("Or name another folder of data sets: root= in Python, --data on the command line") == 1
        for name in ("ba2motif", "mutag", "mutagenicity", "reddit-binary", "graph-sst2"):
            assert text.count(f"{name.upper()} is not in {tmp_path / name}, and there is no network. Get it") == 1
        assert "mutag-gin3: MUTAG" in text
        assert re.search(r"\bba2motif-gin1, ba2motif-gin2, .*ba2motif-gin7: BA2MOTIF", text)
    assert "| Figure 6: model activation and pruning | skipped | without mutag-gin3, graph-sst2-gcn3 |" in report
    found = json.loads(run("all", "--quick", "--out", tmp_path, "--json").stdout)["results"]
    assert found[-1]["skipped"][0].startswith("mutag-gin3: MUTAG is not in")
    assert found[-1]["skipped"][0].endswith("or the environment variable WALKWISE_ROOT.")


def test_the_report_sets_claim_and_finding_side_by_side(tmp_path):
    bench = FakeBench(QUICK, out=tmp_path)
    results = reproduce([counted([])], bench, skip_missing=True, progress=False)
    text = report(results, bench, "walkwise reproduce all --quick")
    assert "```sh\nwalkwise reproduce all --quick\n```" in text
    assert "This is a quick run: 3 graphs per data set" in text
    assert "| [Figure 0: counting](#figure-0-counting) | yes | Counted \\|S\\| = 3. |" in text
    assert "**The paper:** It counts.\n\n**Here:** Counted |S| = 3.\n\n![Figure 0: counting](counted.png)" in text
    assert "- A note.\n\nNumbers: [counted.csv](counted.csv)." in text


def test_nothing_done_is_a_skipped_section(tmp_path):
    bench = FakeBench(TINY, out=tmp_path)
    exhibit = counted([])
    only = Exhibit(*(getattr(exhibit, name) for name in ("name", "title", "claim")), exhibit.work[1:], None, None)
    (result,) = reproduce([only], bench, skip_missing=True, progress=False)
    assert result.finding is None
    assert "| Figure 0: counting | skipped | without reddit-binary-gin5 |" in report([result], bench, "")


def test_a_picture_that_needs_more_packages_is_skipped_or_raised(tmp_path):
    def draw(rows):
        raise MissingExtraError("Molecules need RDKit: pip install 'walkwise[chem]'")

    exhibit, bench = replace(counted([]), draw=draw), FakeBench(TINY, out=tmp_path)
    (result,) = reproduce([exhibit], bench, skip_missing=True, progress=False)
    assert not result.drawn
    text = report([result], bench, "")
    assert "**Skipped:** reddit-binary-gin5, the picture (" in text
    assert "- the picture: Molecules need RDKit" in text
    assert "![" not in text
    exhibit = replace(exhibit, work=exhibit.work[:1])
    with pytest.raises(MissingExtraError, match="RDKit"):
        reproduce([exhibit], bench, skip_missing=False, progress=False)


# -- models -----------------------------------------------------------------------------------


@pytest.fixture
def small_bench(monkeypatch, tmp_path):
    """A bench whose data sets are all a small one."""
    monkeypatch.setattr(benches.datasets, "load", lambda name, root=None: case().graphs)
    return lambda effort, weights=None: Bench(effort, None, weights, tmp_path / "out")


@pytest.mark.parametrize("negative", [True, False])
def test_a_model_is_trained_by_its_recipe(small_bench, monkeypatch, negative):
    recipe = replace(benches.RECIPES["ba2motif-gin3"], negative_biases=negative, lr=0.02, batch_size=5, patience=7)
    monkeypatch.setitem(benches.RECIPES, "ba2motif-gin3", recipe)
    asked = {}
    monkeypatch.setattr("walkwise.recipes.train", lambda model, graphs, **options: asked.update(options))
    small_bench(TINY).case("ba2motif-gin3")
    wanted = {"negative_biases": negative, "lr": 0.02, "batch_size": 5, "patience": 7}
    assert {name: asked[name] for name in wanted} == wanted


def test_a_model_is_trained_once_and_kept(small_bench, monkeypatch, tmp_path):
    first = small_bench(TINY).case("ba2motif-gin3")
    assert first.origin.startswith("trained here for up to 2 epochs, test accuracy ")
    assert (tmp_path / "out/models-tiny/ba2motif-gin3.safetensors").is_file()
    monkeypatch.setattr("walkwise.recipes.train", None)  # would fail if it were called
    assert small_bench(TINY).case("ba2motif-gin3").digest == first.digest
    with pytest.raises(TypeError):
        small_bench(FULL).case("ba2motif-gin3")  # a full run does not take a quick run's model


def test_weights_come_from_a_folder(small_bench, tmp_path):
    model = case().model
    save_weights(model.float(), tmp_path / "ba2motif-gin3.safetensors")
    found = small_bench(TINY, tmp_path).case("ba2motif-gin3")
    assert found.origin.startswith("weights from ba2motif-gin3.safetensors")
    assert next(found.model.parameters()).dtype.itemsize == 8
    assert small_bench(TINY).case(UNTRAINED).origin == "untrained"


# -- the command line -------------------------------------------------------------------------


def run(*arguments):
    return RUNNER.invoke(app, ["reproduce", *map(str, arguments)])


def test_unknown_names_list_the_valid_ones(tmp_path):
    assert list(EXHIBITS) == ["table3", "figure1", "figure4", "figure5", "figure6"]
    assert len(chosen("all")) == 5
    with pytest.raises(InputError, match="expected one of table3, figure1, figure4, figure5, figure6, all"):
        chosen("figure7")
    result = run("figure7", "--out", tmp_path)
    assert result.exit_code == 2
    assert "Unknown table or figure 'figure7'; did you mean 'figure6'? Expected one of table3, figure1" in " ".join(
        result.output.split()
    )


def test_weights_must_be_a_folder(tmp_path):
    result = run("figure5", "--weights", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "is not a folder" in " ".join(result.output.replace("│", " ").split())


def test_missing_data_say_where_they_belong(tmp_path):
    """Graph-SST2 is never downloaded, so this does not wait for a network."""
    only_sentences = [Exhibit("figure6", "", "", EXHIBITS["figure6"].work[1:], None, None)]
    with pytest.raises(MissingDataError, match="Graph-SST2 is not in"):
        reproduce(only_sentences, Bench(QUICK, tmp_path, None, tmp_path), skip_missing=False, progress=False)


def test_an_out_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("figure5", "--out", tmp_path / "file" / "out")
    assert result.exit_code == 1
    assert "Choose another folder with --out" in " ".join(result.output.split())


def test_an_interruption_says_how_to_go_on(monkeypatch, tmp_path):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("walkwise.paper.run.reproduce", stop)
    result = run("figure5", "--out", tmp_path)
    assert result.exit_code == 130
    assert "resumes where it stopped" in result.output


def test_without_typer_the_command_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("walkwise.cli")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit, match=r"pip install 'walkwise\[cli\]'"):
        importlib.import_module("walkwise.cli")


@needs_golden
def test_figure_5_from_the_command_line(tmp_path):
    arguments = ["figure5", "--quick", "--data", data_root(), "--weights", ROOT / "golden/weights", "--out", tmp_path]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.md").read_text()
    assert "ours round to 9 of the 9 published numbers" in text
    assert "Computed in" in text
    with (tmp_path / "figure5.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 21
    assert rows[0]["weights"] == AUTHORS


@needs_golden
@pytest.mark.slow
def test_everything_quickly(tmp_path):
    """All tables and figures with the authors' weights; about three minutes."""
    weights = ROOT / "golden/weights"
    result = run("all", "--quick", "--data", data_root(), "--weights", weights, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.md").read_text()
    assert "skipped" not in text.lower()
    assert "ours round to 9 of the 9 published numbers" in text
    for name in EXHIBITS:
        assert (tmp_path / f"{name}.csv").stat().st_size > 500
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert _worst_difference(tmp_path) < 1e-6
    assert _farthest_from_published(tmp_path) <= 0.03


def _worst_difference(folder):
    """Of naive GNN-LRP from the chain, wherever it finished."""
    found = []
    for name in ("table3", "figure4"):
        with (folder / f"{name}.csv").open() as file:
            rows = [
                row for row in csv.DictReader(file) if row["method"] == "naive GNN-LRP" and row["failed"] == "False"
            ]
        assert rows
        found += [float(row["difference"]) for row in rows]
    return max(found)


def _farthest_from_published(folder):
    with (folder / "figure6.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["set"], row["method"]) == ("mutag", "sGNN-LRP")]
    found = []
    for row in rows:
        values = FIGURE_6[row["set"], row["mode"], row["graphs"]]
        if float(row["alpha"]) in values:
            found.append(abs(float(row["mean"]) - values[float(row["alpha"])]))
    assert len(found) == 2 * 2 * 3
    return max(found)
