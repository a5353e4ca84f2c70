"""The rows of a run are the answers that each graph gets alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SGConv, global_mean_pool

import walkwise as ww
from small_runs import ATOMS, Pooled, same, some_graphs
from walkwise import runs, smarts
from walkwise.evaluation import activation_curve, pruning_curve
from walkwise.evaluation.predictions import predict
from walkwise.runs.kinds import node_kinds, wl_hash
from walkwise.runs.questions import as_questions
from walkwise.runs.sources import Listed

ASKED = ["nodes", "edges", "walks:3", "order:0.1", "subgraph:3", "curves:0.1"]


@pytest.fixture(scope="module")
def tables(model, graphs, tmp_path_factory):
    made = runs.run(model, graphs, ASKED, tmp_path_factory.mktemp("run") / "out", workers=1, batch=8)
    assert (made.complete, made.failed, made.total) == (True, 0, len(graphs))
    return runs.read(made)


def test_every_answer_is_the_one_that_the_graph_gets_alone(tables, model, graphs):
    for g, data in enumerate(graphs):
        chain = ww.trace(model, data)
        here = {name: table[table.graph == g] for name, table in tables.items()}
        logits = model(data.x, data.edge_index)[0]
        row = here["graphs"].iloc[0]
        np.testing.assert_allclose(row.outputs, logits.tolist())
        assert (row.target, row.prediction, row.label) == (int(logits.argmax()), int(logits.argmax()), float(data.y))
        assert row.output == pytest.approx(float(logits.max()))
        assert row.relevance == pytest.approx(chain.input_relevance)
        assert (row.num_nodes, row.num_edges) == (data.num_nodes, data.num_edges)
        np.testing.assert_allclose(here["nodes"].relevance, ww.node_relevance(chain))
        assert here["nodes"].node.tolist() == list(range(data.num_nodes))
        assert here["nodes"].kind.tolist() == [str(int(column)) for column in data.x.argmax(1)]
        np.testing.assert_allclose(here["edges"].relevance, ww.edge_relevance(chain), atol=1e-12)
        assert here["edges"][["source", "target"]].to_numpy().T.tolist() == data.edge_index.tolist()
        best = ww.top_walks(chain, 3)
        assert [walk.tolist() for walk in here["walks:3"].nodes] == best.walks.tolist()
        np.testing.assert_allclose(here["walks:3"].relevance, best.relevance)
        assert here["order:0.1"].nodes.iloc[0].tolist() == ww.order_nodes(chain, alpha=0.1).tolist()
        found = ww.find_subgraph(chain, 3)
        part = here["subgraph:3"].iloc[0]
        assert part.nodes.tolist() == list(found.nodes)
        assert part.relevance == pytest.approx(found.score)
        rest = [node for node in range(data.num_nodes) if node not in found.nodes]
        left = data.subgraph(torch.tensor(rest)) if rest else None
        without = 0.0 if left is None else float(model(left.x, left.edge_index)[0, row.target])
        assert part.effect == pytest.approx(row.output - without)
        kept = data.subgraph(torch.tensor(found.nodes))
        assert part.alone == int(model(kept.x, kept.edge_index)[0].argmax())
    assert 0 < (tables["subgraph:3"].alone == tables["graphs"].target).sum() < len(graphs)


def test_curves_are_those_of_the_model_on_the_nodes_that_are_left(tables, model, graphs):
    for g, data in enumerate(graphs[:10]):
        chain = ww.trace(model, data)
        row = tables["curves:0.1"][tables["curves:0.1"].graph == g].iloc[0]
        adding = activation_curve(model, data, ww.order_nodes(chain, alpha=0.1))
        taking = pruning_curve(model, data, ww.order_nodes(chain, alpha=0.1, mode="pruning"))
        np.testing.assert_allclose(row.activation, adding.values, atol=1e-9)
        np.testing.assert_allclose(row.pruning, taking.values, atol=1e-9)
        assert (row.auac, row.aupc) == pytest.approx((adding.area, taking.area))


def test_batches_of_any_size_and_any_number_of_workers_give_the_same_rows(tables, model, graphs, tmp_path):
    other = runs.read(runs.run(model, graphs, ASKED, tmp_path / "out", workers=2, batch=5))
    for name, table in tables.items():
        assert list(other[name].columns) == list(table.columns)
        for column in ("graph", "relevance", "output", "effect", "alone"):
            if column in table:
                np.testing.assert_allclose(other[name][column], table[column], atol=1e-9)


def test_groups_are_counted_and_their_relevance_is_that_of_their_nodes(model, graphs, tmp_path):
    file = tmp_path / "some.json"
    marked = [Data(**graph.to_dict(), marks=torch.arange(graph.num_nodes) < 2) for graph in graphs]
    definition = {"N and O": {"kinds": ["N", "O"]}, "first two": {"marked": "marks"}, "one": {"nodes": [1]}}
    file.write_text(json.dumps(definition))
    source = Listed(marked, "marked", (), ATOMS)
    table = runs.read(runs.run(model, source, [f"groups:{file}"], tmp_path / "out", workers=1))["groups:some"]
    for g, data in enumerate(graphs):
        chain = ww.trace(model, data)
        kinds = node_kinds(data, ATOMS)
        wanted = {
            "N and O": [node for node, kind in enumerate(kinds) if kind in ("N", "O")],
            "first two": [0, 1],
            "one": [1],
        }
        here = table[table.graph == g].set_index("group")
        assert set(here.index) == {name for name, nodes in wanted.items() if nodes}
        for name, row in here.iterrows():
            nodes = wanted[name]
            assert row.nodes.tolist() == nodes
            assert row.relevance == pytest.approx(float(ww.subgraph_relevance(chain, [nodes])[0]))
            assert row.node_relevance == pytest.approx(float(ww.node_relevance(chain)[nodes].sum()))
            rest = [node for node in range(data.num_nodes) if node not in nodes]
            left = data.subgraph(torch.tensor(rest, dtype=torch.long))
            logits = model(data.x, data.edge_index)[0]
            without = float(model(left.x, left.edge_index)[0, logits.argmax()]) if rest else 0.0
            assert row.effect == pytest.approx(float(logits.max()) - without)


@pytest.mark.parametrize("target", ["label", 0, 1])
def test_what_is_explained_is_what_was_asked_for(model, graphs, tmp_path, target):
    rows = runs.read(runs.run(model, graphs, ["nodes"], tmp_path / "out", workers=1, target=target))["graphs"]
    wanted = [int(data.y) if target == "label" else target for data in graphs]
    assert rows.target.tolist() == wanted
    outputs = [float(model(data.x, data.edge_index)[0, column]) for data, column in zip(graphs, wanted, strict=True)]
    np.testing.assert_allclose(rows.output, outputs)


def test_labels_of_one_logit_are_its_two_signs(graphs, tmp_path):
    binary = Pooled(out=1).double().eval()
    rows = runs.read(runs.run(binary, graphs, ["nodes"], tmp_path / "out", workers=1, target="label"))["graphs"]
    logits = np.array([float(binary(data.x, data.edge_index)) for data in graphs])
    signs = np.array([1 if int(data.y) else -1 for data in graphs])
    np.testing.assert_allclose(rows.output, logits * signs)
    assert rows.prediction.tolist() == (logits > 0).astype(int).tolist()


class Mixing(nn.Module):
    """Takes the mean of the whole batch off, as some layers do that know nothing of graphs."""

    def __init__(self):
        super().__init__()
        self.inner = Pooled().double()

    def forward(self, x, edge_index, batch):
        x = x - x.mean(dim=0) * 0.5
        return self.inner(x, edge_index, batch)


class Single(nn.Module):
    """Takes one graph."""

    def __init__(self):
        super().__init__()
        self.inner = Pooled().double()

    def forward(self, x, edge_index):
        return self.inner(x, edge_index)


@pytest.mark.parametrize("kind", [Mixing, Single])
def test_a_model_for_which_batches_differ_gets_its_graphs_one_by_one(kind, graphs, tmp_path):
    model = kind().eval()
    tables = runs.read(runs.run(model, graphs[:6], ["nodes"], tmp_path / "out", workers=1, batch=4))
    assert tables["graphs"].error.isna().all()
    for g, data in enumerate(graphs[:6]):
        alone = ww.node_relevance(ww.trace(model, Data(**data.to_dict(), batch=torch.zeros(data.num_nodes).long())))
        np.testing.assert_allclose(tables["nodes"][tables["nodes"].graph == g].relevance, alone, atol=1e-9)


class OwnTable(Single):
    """A vector of its own for every node, by its number."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 3).double()

    def forward(self, x, edge_index):
        return super().forward(x + self.table.weight[: len(x)], edge_index)


def test_a_model_that_goes_by_the_numbers_of_nodes_is_not_asked_about_parts(graphs, tmp_path):
    model = OwnTable().eval()
    walks = runs.read(runs.run(model, graphs[:6], ["walks:3"], tmp_path / "walks", workers=1, batch=1))
    assert walks["graphs"].error.isna().all()
    for asked in ("subgraph:3", "curves"):
        made = runs.run(model, graphs[:6], ["nodes", asked], tmp_path / asked[:3], workers=1, batch=1)
        assert made.failed == 6
        assert runs.read(made)["graphs"].error.str.startswith("The model depends on node numbers").all()


def test_numbers_of_nodes_are_looked_at_once_in_a_run(graphs, monkeypatch):
    from walkwise.runs import work

    seen = []
    monkeypatch.setattr(work, "predict", lambda *args, **said: seen.append(said) or predict(*args, **said))
    for asked, times in (("nodes", 0), ("subgraph:3", 1)):
        seen.clear()
        todo = work.Work(Pooled().double().eval(), Listed(graphs[:9]), as_questions(asked), "predicted", "auto", 3)
        todo.shard(0, 9)
        assert len(seen) == times


class PerNode(nn.Module):
    """An output per node, from two layers that normalise by degree."""

    def __init__(self, conv):
        super().__init__()
        torch.manual_seed(1)
        self.convs = nn.ModuleList([conv(3, 4), conv(4, 2)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("conv", [GCNConv, lambda i, o: SGConv(i, o, K=3)], ids=["GCN", "SG of three steps"])
def test_single_nodes_of_a_large_graph_are_explained_from_their_surroundings(conv, tmp_path):
    ring = torch.arange(40)
    edges = torch.stack([ring, (ring + 1) % 40])
    data = Data(torch.randn(40, 3, dtype=torch.float64), torch.cat([edges, edges.flip(0)], dim=1))
    model = PerNode(conv).double().eval()
    (tmp_path / "nodes.txt").write_text("3\n17\n30\n")
    asked = ["nodes", "order", "curves"]
    made = runs.run(model, data, asked, tmp_path / "out", workers=1, index=tmp_path / "nodes.txt", target=1)
    tables = runs.read(made)
    assert tables["graphs"]["index"].tolist() == [3, 17, 30]
    assert tables["graphs"].graph.tolist() == [0, 0, 0]
    assert tables["graphs"].num_nodes.max() < 40
    for node in (3, 17, 30):
        alone = ww.trace(model, data, index=node, target=1)
        rows = tables["nodes"][tables["nodes"]["index"] == node]
        whole = torch.zeros(40, dtype=torch.float64)
        whole[rows.node.to_numpy()] = torch.tensor(rows.relevance.to_numpy())
        torch.testing.assert_close(whole, ww.node_relevance(alone), atol=1e-9, rtol=1e-9)
        order = tables["order"][tables["order"]["index"] == node].nodes.iloc[0].tolist()
        curve = tables["curves"][tables["curves"]["index"] == node].activation.iloc[0]
        masks = [sorted({node, *order[: i + 1]}) for i in range(len(order))]
        parts = [data.subgraph(torch.tensor(mask)) for mask in masks]
        values = [float(model(p.x, p.edge_index)[m.index(node), 1]) for p, m in zip(parts, masks, strict=True)]
        np.testing.assert_allclose(curve, values, atol=1e-9)


def test_subgraphs_that_look_alike_have_one_name():
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
    kinds = ["C", "C", "N", "O"]
    generator = np.random.default_rng(0)
    name = wl_hash(4, edges, kinds)
    for _ in range(20):
        to = generator.permutation(4)
        moved = [(int(to[u]), int(to[v])) for u, v in edges]
        assert wl_hash(4, moved, [kinds[i] for i in np.argsort(to)]) == name
    assert wl_hash(4, edges[:-1], kinds) != name
    assert wl_hash(4, [(v, u) for u, v in edges], kinds) != name
    assert wl_hash(4, edges, ["C", "N", "C", "O"]) != name


def test_graphs_that_say_their_smiles_are_molecules_whatever_their_features(tmp_path):
    pytest.importorskip("rdkit")
    from torch_geometric.utils import from_smiles

    class ByNumber(nn.Module):  # as molecular models are usually written: integers to embeddings
        def __init__(self):
            super().__init__()
            self.atoms, self.conv, self.head = nn.Embedding(119, 8), GCNConv(8, 8), nn.Linear(8, 2)

        def forward(self, x, edge_index, batch):
            return self.head(global_mean_pool(self.conv(self.atoms(x[:, 0]), edge_index).relu(), batch))

    torch.manual_seed(0)
    graphs = [from_smiles(text) for text in ("OC(=O)c1ccccc1", "NCCO", "CCCC")]
    asked = ["nodes", "subgraph:3", "groups:functional"]
    tables = runs.read(runs.run(ByNumber().eval(), graphs, asked, tmp_path / "out", workers=1))
    kinds = tables["nodes"].groupby("graph").kind.agg("".join).tolist()
    assert kinds == ["OCOCCCCCC", "NCCO", "CCCC"]
    for g, rows in tables["groups:functional"].groupby("graph"):  # in an acid there is no ester, nor an alcohol
        found = {group: nodes.tolist() for group, nodes in zip(rows.group, rows.nodes, strict=True)}
        assert found == smarts.functional_groups(graphs[g])
    assert tables["groups:functional"].group.tolist() == ["COOH", "ring", "NH2", "OH"]
    part = tables["subgraph:3"].iloc[2]
    assert (part.pattern, list(part.kinds)) == ("CCC", ["C", "C", "C"])


def test_molecules_are_named_by_canonical_smiles_and_searched_by_smarts(tmp_path):
    pytest.importorskip("rdkit")
    table = tmp_path / "molecules.csv"
    table.write_text("SMILES,label,name\nO=[N+]([O-])c1ccccc1,1,nitrobenzene\nCCO,0,ethanol\nNc1ccccc1,1,aniline\n")
    mutag = ww.models.bundled("mutag")
    asked = ["subgraph:3", "groups:functional"]
    tables = runs.read(runs.run(mutag, table, asked, tmp_path / "out", workers=1, target=1))
    assert tables["graphs"].name.tolist() == ["nitrobenzene", "ethanol", "aniline"]
    assert tables["graphs"].label.tolist() == [1, 0, 1]
    groups = tables["groups:functional"]
    assert set(groups[groups.graph == 0].group) == {"NO2", "ring"}
    assert set(groups[groups.graph == 1].group) == {"OH"}
    assert set(groups[groups.graph == 2].group) == {"NH2", "ring"}
    assert tables["subgraph:3"].pattern.iloc[1] == "CCO"


def test_floats_and_graphs_without_edges_are_carried(tmp_path):
    torch.manual_seed(0)
    single = Data(torch.ones(1, 3, dtype=torch.float64), torch.empty(2, 0, dtype=torch.long), y=0.25)
    model = Pooled().double().eval()
    tables = runs.read(runs.run(model, [single, *some_graphs(2)], ASKED, tmp_path / "out", workers=1))
    assert tables["graphs"].error.isna().all()
    assert tables["graphs"].label.iloc[0] == 0.25
    assert tables["subgraph:3"].nodes.iloc[0].tolist() == [0]  # there is no larger one


class Dropping(Pooled):
    """Draws random numbers while it is trained."""

    def forward(self, x, edge_index, batch=None):
        return nn.functional.dropout(super().forward(x, edge_index, batch), 0.5, self.training)


def test_a_model_in_training_mode_runs_in_evaluation_mode_and_stays_in_training(graphs, tmp_path):
    model = Dropping().double().train()
    tables = runs.read(runs.run(model, graphs[:6], ["nodes"], tmp_path / "training", workers=1, batch=3))
    assert all(module.training for module in model.modules())
    model.eval()
    same(tables, runs.read(runs.run(model, graphs[:6], ["nodes"], tmp_path / "evaluation", workers=1, batch=3)))
