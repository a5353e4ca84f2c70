"""Where graphs come from, who else reads the answers, and what is asked in words nobody knows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import walkwise as ww
from walkwise import runs
from walkwise.errors import InputError
from walkwise.runs.answers import COLUMNS, SCHEMA
from walkwise.runs.sources import as_source


@pytest.fixture(scope="module")
def folder(model, graphs, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    runs.run(model, graphs, ["nodes", "walks:3"], out, workers=1, batch=8)
    return out


def test_a_folder_of_files_is_read_as_it_is_needed(model, graphs, tmp_path):
    files = tmp_path / "graphs"
    graphs = [Data(**graph.to_dict()) for graph in graphs]
    (files / "more").mkdir(parents=True)
    torch.save(graphs[:4], files / "a.pt")
    torch.save(graphs[4], files / "b.pt")
    (files / "c.pt").write_bytes(b"no graph")
    torch.save(graphs[5:8], files / "more" / "d.pt")
    tables = runs.read(runs.run(model, files, ["nodes"], tmp_path / "out", workers=2, batch=3))
    rows = tables["graphs"]
    assert rows.name.tolist() == [
        *(f"a.pt {i}" for i in range(4)),
        "b.pt",
        "c.pt",
        *(f"more/d.pt {i}" for i in range(3)),
    ]
    assert rows[rows.error.notna()].graph.tolist() == [5]
    assert "c.pt was not opened" in rows.error[5]
    for place, g in zip([0, 1, 2, 3, 4, 6, 7, 8], range(8), strict=True):
        relevance = tables["nodes"][tables["nodes"].graph == place].relevance
        np.testing.assert_allclose(relevance, ww.node_relevance(ww.trace(model, graphs[g])), atol=1e-12)


def test_tables_of_smiles_are_read_in_every_form(tmp_path):
    pytest.importorskip("rdkit")
    import pandas as pd

    table = pd.DataFrame({"smiles": ["CCO", "not a molecule", "c1ccccc1"], "y": [0, 1, 1]})
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    table.to_parquet(tmp_path / "a.parquet")
    found = []
    for name in ("a.csv", "a.tsv", "a.parquet"):
        made = runs.run(ww.models.bundled("mutag"), tmp_path / name, "nodes", tmp_path / f"{name}-out", workers=1)
        rows = runs.read(made)["graphs"]
        assert rows.smiles.iloc[[0, 2]].tolist() == ["CCO", "c1ccccc1"]
        assert "which RDKit cannot read" in rows.error[1]
        assert rows.label.iloc[[0, 2]].tolist() == [0, 1]
        found.append(rows.output.fillna(0).tolist())
    assert found[0] == found[1] == found[2]
    (tmp_path / "b.csv").write_text("molecule\nCCO\n")
    with pytest.raises(InputError, match="no column smiles"):
        as_source(tmp_path / "b.csv")


def test_graphs_made_by_a_function_of_ones_own(model, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("smiles\nCC\nCCC\n")

    def featurise(text):
        count = len(text)
        return Data(torch.eye(3, dtype=torch.float64)[[0] * count], torch.tensor([[0], [1]]))

    rows = runs.read(runs.run(model, table, "nodes", tmp_path / "out", workers=1, featurise=featurise))["graphs"]
    assert rows.num_nodes.tolist() == [2, 3]


def test_the_tables_have_the_columns_of_the_schema_and_the_manifest_says_what_it_was(folder):
    tables = runs.read(folder)
    for name, table in tables.items():
        assert list(table.columns) == ["graph", *COLUMNS[name.partition(":")[0]]]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema"] == SCHEMA
    assert (manifest["questions"], manifest["rule"], manifest["target"]) == (["nodes", "walks:3"], "auto", "predicted")
    assert manifest["versions"]["torch"] == torch.__version__
    assert len(manifest["model_hash"]) == len(manifest["data_hash"]) == 32


def test_pandas_polars_and_duckdb_read_the_shards_at_once(folder):
    import pandas as pd

    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    whole = runs.read(folder)["nodes"]
    assert pd.read_parquet(folder / "nodes").relevance.sum() == pytest.approx(whole.relevance.sum())
    assert polars.scan_parquet(folder / "nodes" / "*.parquet").collect().height == len(whole)
    asked = f"select kind, sum(relevance) from '{folder}/nodes/*.parquet' group by kind order by kind"
    found = dict(duckdb.sql(asked).fetchall())
    assert found == pytest.approx(whole.groupby("kind").relevance.sum().to_dict())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([], "No question is asked"),
        (["nodes", "nodes"], "nodes is asked twice"),
        (["nods"], "There is no question 'nods'"),
        (["walks"], "a whole number"),
        (["walks:0"], "a whole number"),
        (["order:2"], "between 0 and 1"),
        (["nodes:3"], "must have no number"),
        (["groups:nowhere.json"], "no file of groups"),
    ],
)
def test_questions_that_nobody_can_answer_are_refused_before_the_run(model, graphs, tmp_path, asked, said):
    with pytest.raises(InputError, match=said):
        runs.run(model, graphs, asked, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("made", ["[1]", '{"a": 3}', '{"a": {"kinds": 3}}', '{"a": "[("}', "{}"])
def test_files_of_groups_that_name_no_groups_are_refused(tmp_path, made):
    pytest.importorskip("rdkit")
    (tmp_path / "groups.json").write_text(made)
    with pytest.raises(InputError):
        runs.run(torch.nn.Linear(1, 1), [Data(num_nodes=1)], [f"groups:{tmp_path / 'groups.json'}"], tmp_path / "out")


def test_other_arguments_are_checked(model, graphs, tmp_path):
    for given, said in [
        ({"engine": "hamster"}, "engine"),
        ({"workers": 0}, "workers"),
        ({"batch": 0}, "batch"),
        ({"graphs": []}, "graphs"),
        ({"graphs": tmp_path / "none.csv"}, "There is no file"),
        ({"index": "all"}, "one graph"),
        ({"model": 3}, "model"),
        ({"rule": "gama"}, "gama"),
    ]:
        asked = {"model": model, "graphs": graphs, "questions": "nodes", "out": tmp_path / "out"} | given
        with pytest.raises(InputError, match=said):
            runs.run(**asked)
