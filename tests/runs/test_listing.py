"""The table of a run: sorted, filtered and paged as a slow look at all rows would have it."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
import torch

from small_runs import ATOMS, Pooled, some_graphs
from walkwise import runs
from walkwise.errors import InputError
from walkwise.runs.listing import COLUMNS, Listing, Wanted
from walkwise.runs.sources import GraphsOf, Listed, as_source


@pytest.fixture(scope="module")
def listing(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("listed")
    (out / "some.json").write_text(json.dumps({"nitrogen": {"kinds": ["N"]}, "first": {"nodes": [0]}}))
    graphs = some_graphs(60, seed=5)
    graphs[7] = graphs[7].clone()
    graphs[7].x = torch.full_like(graphs[7].x, torch.nan)
    del graphs[9].y
    source = Listed(graphs, "some", ("inert", "active"), ATOMS)
    asked = ["nodes", "subgraph:3", f"groups:{out / 'some.json'}"]
    return Listing(runs.run(model, source, asked, out / "run", workers=1, batch=16), GraphsOf(source))


@pytest.fixture(scope="module")
def tables(listing):
    return runs.read(listing.run)


def value(tables, row, column, pattern):
    """What a row is sorted by, from the run's tables: None where there is nothing."""
    here = tables["graphs"].set_index("graph").loc[row]
    if column == "graph":
        return row
    if column == "name":
        return here["name"]
    if not pd.isna(here.error):
        return None
    if column == "pattern":
        found = tables[pattern[0]]
        some = found[
            (found.graph == row) & (found["group" if pattern[0].startswith("groups") else "pattern"] == pattern[1])
        ]
        return float(some.relevance.iloc[0]) if len(some) else None
    if column == "error":
        if math.isnan(here.label):
            return None
        own, other = here.outputs[int(here.label)], here.outputs[1 - int(here.label)]
        return float(other - own)
    found = {"nodes": here.num_nodes, "prediction": (here.prediction, here.output)}.get(column)
    found = getattr(here, column) if found is None else found
    return None if isinstance(found, float) and math.isnan(found) else found


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("column", COLUMNS)
def test_rows_are_sorted_as_plain_sorting_does_and_missing_values_come_last(listing, tables, column, falling):
    pattern = next(found[:2] for found in listing.patterns if found[0] == "groups:some" and found[1] == "nitrogen")
    wanted = Wanted(column, falling, pattern=pattern if column == "pattern" else None)
    values = {row: value(tables, row, column, pattern) for row in range(60)}
    known = sorted((row for row in values if values[row] is not None), key=lambda row: values[row], reverse=falling)
    expected = known + [row for row in values if values[row] is None]
    assert listing.order(wanted).tolist() == expected
    rows = [row.graph for first in range(0, 60, 25) for row in listing.rows(wanted, first, 25)]
    assert rows == expected
    assert column != "pattern" or 0 < len(known) < 60


def test_only_wrong_ones_only_failures_and_words(listing, tables):
    graphs = tables["graphs"]
    wrong = [row.graph for row in listing.rows(Wanted(kind="wrong"), 0, 60)]
    assert wrong == [g for g in range(60) if g not in (7, 9) and graphs.label[g] != graphs.prediction[g]]
    assert all(
        row.wrong and row.error > 0 and row.label != row.prediction for row in listing.rows(Wanted(kind="wrong"))
    )
    (failed,) = listing.rows(Wanted(kind="failed"))
    assert (failed.graph, failed.output, failed.failure) == (7, None, graphs.error[7])
    named = listing.rows(Wanted(text="Active some 1"), 0, 60)
    assert named
    assert {row.graph for row in named} == {
        g for g in range(60) if "1" in str(g) and g != 7 and 1 in (graphs.label[g], graphs.prediction[g])
    }


def test_patterns_are_those_of_the_tables_with_their_nodes(listing, tables):
    parts = tables["subgraph:3"]
    offered = [(name, count) for question, name, count in listing.patterns if question == "subgraph:3"]
    assert dict(offered) == parts.pattern.value_counts().to_dict()
    sums = [parts[parts.pattern == name].relevance.sum() for name, _ in offered]
    assert sums == sorted(sums, reverse=True)
    row = parts.iloc[4]
    assert listing.nodes_of(4, ("subgraph:3", row.pattern)) == sorted(row.nodes)
    assert listing.nodes_of(4, ("subgraph:3", "another")) == []
    assert listing.row(4, listing.relevance_of(("subgraph:3", row.pattern))).pattern == row.relevance
    with pytest.raises(InputError, match="no patterns of walks:3"):
        listing.relevance_of(("walks:3", "?"))


def test_smarts_sum_the_relevance_of_the_atoms_that_match(model, tmp_path):
    pytest.importorskip("rdkit")
    from torch_geometric.data import Data

    from walkwise.datasets.molecules import from_smiles

    def graph_of(text):  # of the three atoms that the model knows
        data = from_smiles(text)
        return Data(data.x[:, :3].double(), data.edge_index, symbols=data.symbols, bond_orders=data.bond_orders)

    smiles = ["CCO", "CC", "OCCN", "CCl", "NCCN"]
    table = tmp_path / "some.csv"
    table.write_text("smiles\n" + "\n".join(smiles))
    made = runs.run(model, str(table), ["nodes"], tmp_path / "run", workers=1, featurise=graph_of)
    nodes = runs.read(made)["nodes"].set_index(["graph", "node"]).relevance
    expected = [nodes[0, 1] + nodes[0, 2], None, nodes[2, 0] + nodes[2, 1], None, None]
    for listing in (Listing(made), Listing(made, GraphsOf(as_source(str(table), featurise=graph_of)))):
        assert listing.molecular
        found = listing.relevance_of(("smarts", "CO")).tolist()
        assert [None if math.isnan(v) else v for v in found] == pytest.approx(expected)
        assert listing.nodes_of(2, ("smarts", "CO")) == [0, 1]
        assert [row.graph for row in listing.rows(Wanted("pattern", pattern=("smarts", "CO")), 0, 2)] == (
            [0, 2] if expected[0] < expected[2] else [2, 0]
        )
        with pytest.raises(InputError, match="RDKit cannot read"):
            listing.relevance_of(("smarts", "C("))
    graphs = [graph_of(text) for text in smiles]  # without SMILES: by their graphs
    other = Listing(runs.run(model, graphs, ["nodes"], tmp_path / "graphs", workers=1), graphs)
    assert [None if math.isnan(v) else v for v in other.relevance_of(("smarts", "CO")).tolist()] == pytest.approx(
        expected
    )


def test_one_logit_and_regression_have_their_own_errors(tmp_path):
    model = Pooled(out=1).double().eval().requires_grad_(False)
    graphs = some_graphs(12, seed=2)
    logit = Listing(runs.run(model, graphs, ["nodes"], tmp_path / "logit", workers=1))
    for row in logit.rows(Wanted()):
        f = float(model(graphs[row.graph].x, graphs[row.graph].edge_index)[0, 0])
        right = (f > 0) == bool(graphs[row.graph].y)
        assert row.error == pytest.approx(-abs(f) if right else abs(f))
        assert row.wrong is not right
    for graph in graphs:
        graph.y = torch.tensor([2.5])
    amount = Listing(runs.run(model, graphs, ["nodes"], tmp_path / "amount", workers=1))
    assert not amount.classified
    assert len(amount.order(Wanted(kind="wrong"))) == 0
    for row in amount.rows(Wanted()):
        f = float(model(graphs[row.graph].x, graphs[row.graph].edge_index)[0, 0])
        assert (row.error, row.label, row.prediction) == (pytest.approx(abs(f - 2.5)), "2.5", None)


def test_nodes_of_one_graph_are_rows(tmp_path):
    from torch_geometric.nn import GCN

    torch.manual_seed(0)
    model = GCN(3, 4, num_layers=2, out_channels=2).double().eval()
    made = runs.run(model, some_graphs(1), ["nodes"], tmp_path / "run", index="all", workers=1)
    listing = Listing(made)
    assert [row.index for row in listing.rows(Wanted())] == listing.explained_nodes.tolist()
    assert {row.graph for row in listing.rows(Wanted())} == {0}
    assert not listing.molecular


def test_what_cannot_be_asked_is_named():
    with pytest.raises(InputError, match="sort"):
        Wanted("size")
    with pytest.raises(InputError, match="kind"):
        Wanted(kind="right")
