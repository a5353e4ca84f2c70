"""Runs over heterogeneous graphs: rows name types, and are what each graph gets alone."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GINConv, global_add_pool

import walkwise as ww
from typed_graphs import AT, BACK, Reader, papers, part_by_hand
from walkwise import runs
from walkwise.errors import InputError
from walkwise.evaluation import activation_curve, pruning_curve
from walkwise.runs.listing import Listing
from walkwise.runs.node_sources import nodes_of
from walkwise.runs.sources import as_source

ASKED = ["nodes", "edges", "walks:3", "order:0.1", "subgraph:3", "curves:0.1"]


class PooledReader(Reader):
    """Two classes for every graph of a batch."""

    def forward(self, x_dict, edge_index_dict, batch_dict=None):
        """The sum over papers and the sum over authors, less than the first."""
        out = super().forward(x_dict, edge_index_dict)
        graphs = 1 + max(int(b.max()) for b in batch_dict.values() if len(b)) if batch_dict else 1
        batch = batch_dict or {name: torch.zeros(len(h), dtype=torch.long) for name, h in out.items()}
        pooled = [global_add_pool(out[name], batch[name], graphs) for name in ("paper", "author")]
        return pooled[0] - 0.5 * pooled[1]


def libraries(count: int) -> list[HeteroData]:
    """Graphs of different sizes, with a label and the papers that are marked."""
    found = []
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        data = papers()
        kept = {"author": range(5 - seed % 3), "paper": range(seed % 2, 6), "venue": range(2)}
        data = data.subgraph({name: torch.tensor(list(ids)) for name, ids in kept.items()})
        for name in data.node_types:
            data[name].x = torch.randn(data[name].x.shape, generator=generator, dtype=torch.float64)
        data["paper"].marked = torch.arange(data["paper"].num_nodes) == 1
        data["author"].called = "words that no model gets"
        data.y = torch.tensor([seed % 2])
        found.append(data)
    return found


@pytest.fixture(scope="module")
def reader():
    return PooledReader().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def tables(reader, tmp_path_factory):
    made = runs.run(reader, libraries(7), ASKED, tmp_path_factory.mktemp("types") / "out", workers=1, batch=4)
    assert (made.complete, made.failed, made.total) == (True, 0, 7)
    return runs.read(made)


def flat(by_type):
    return torch.cat(list(by_type.values())).numpy()


def part_output(model, data, types, nodes):
    """The model's output for some nodes by number."""
    kept = types.grouped(nodes)
    part = data.subgraph({name: torch.tensor(kept.get(name, []), dtype=torch.long) for name in data.node_types})
    return model(part.x_dict, part.edge_index_dict)[0]


def test_every_answer_is_the_one_that_the_graph_gets_alone(tables, reader):
    for g, data in enumerate(libraries(7)):
        logits = reader(data.x_dict, data.edge_index_dict)[0]
        chain = ww.trace(reader, data, target=int(logits.argmax()))
        here = {name: table[table.graph == g] for name, table in tables.items()}
        row = here["graphs"].iloc[0]
        np.testing.assert_allclose(row.outputs, logits.tolist())
        assert (row.num_nodes, row.num_edges, row.label) == (data.num_nodes, data.num_edges, g % 2)
        assert (row.target, row.output) == (int(logits.argmax()), pytest.approx(float(logits.max())))
        assert row.relevance == pytest.approx(chain.input_relevance)

        every = range(chain.num_nodes)
        nodes = here["nodes"]
        np.testing.assert_allclose(nodes.relevance, flat(ww.node_relevance(chain, layer="start")))
        assert nodes.node.tolist() == list(every)
        assert nodes.named.tolist() == chain.types.written(every)
        assert nodes.kind.tolist() == [chain.types.named(node)[0] for node in every]

        edges = here["edges"]
        np.testing.assert_allclose(edges.relevance, flat(ww.edge_relevance(chain)), atol=1e-12)
        wanted = [
            (f"{kind[0]} {u}", kind[1], f"{kind[2]} {v}")
            for kind in data.edge_types
            for u, v in data[kind].edge_index.t().tolist()
        ]
        assert [(n[0], relation, n[1]) for n, relation in zip(edges.named, edges.relation, strict=True)] == wanted
        assert chain.types.written(edges.source) == [source for source, _, _ in wanted]

        best = ww.top_walks(chain, 3)
        assert [walk.tolist() for walk in here["walks:3"].nodes] == best.walks.tolist()
        assert [list(walk) for walk in here["walks:3"].named] == [chain.types.written(walk) for walk in best.walks]
        order = ww.order_nodes(chain, alpha=0.1)
        assert here["order:0.1"].nodes.iloc[0].tolist() == order.tolist()
        assert here["order:0.1"].named.iloc[0].tolist() == chain.types.written(order)

        found, part = ww.find_subgraph(chain, 3), here["subgraph:3"].iloc[0]
        assert part.nodes.tolist() == list(found.numbers)
        assert part.named.tolist() == chain.types.written(found.numbers)
        assert part.kinds.tolist() == [chain.types.named(node)[0] for node in found.numbers]
        assert part.relevance == pytest.approx(found.score)
        rest = part_output(reader, data, chain.types, [n for n in every if n not in found.numbers])
        assert part.effect == pytest.approx(row.output - float(rest[row.target]))
        assert part.alone == int(part_output(reader, data, chain.types, found.numbers).argmax())
        pairs = {(u, v) for u, v in edges[["source", "target"]].to_numpy().tolist() if {u, v} <= set(found.numbers)}
        links = part.links.reshape(-1, 2)
        assert {(int(part.nodes[u]), int(part.nodes[v])) for u, v in links} == pairs
    assert tables["subgraph:3"].pattern.nunique() < 7


def test_curves_are_those_of_the_model_on_the_nodes_that_are_left(tables, reader):
    for g, data in enumerate(libraries(3)):
        target = int(reader(data.x_dict, data.edge_index_dict)[0].argmax())
        chain = ww.trace(reader, data, target=target)
        row = tables["curves:0.1"].set_index("graph").loc[g]
        adding = activation_curve(reader, data, ww.order_nodes(chain, alpha=0.1), target=target)
        taking = pruning_curve(reader, data, ww.order_nodes(chain, alpha=0.1, mode="pruning"), target=target)
        np.testing.assert_allclose(row.activation, adding.values, atol=1e-9)
        np.testing.assert_allclose(row.pruning, taking.values, atol=1e-9)


def test_groups_are_types_and_marks(reader, tmp_path):
    file = tmp_path / "some.json"
    file.write_text(json.dumps({"places": {"kinds": ["venue"]}, "marked": {"marked": "marked"}}))
    table = runs.read(runs.run(reader, libraries(3), [f"groups:{file}"], tmp_path / "out", workers=1))["groups:some"]
    for g, data in enumerate(libraries(3)):
        target = int(reader(data.x_dict, data.edge_index_dict)[0].argmax())
        chain = ww.trace(reader, data, target=target)
        here = table[table.graph == g].set_index("group")
        for name, nodes in (("places", {"venue": [0, 1]}), ("marked", {"paper": [1]})):
            assert here.named[name].tolist() == chain.types.written(chain.types.numbers(nodes))
            assert here.relevance[name] == pytest.approx(float(ww.subgraph_relevance(chain, [nodes])[0]))


def test_a_model_that_knows_no_batches_is_asked_graph_by_graph(tmp_path):
    whole = Reader(whole=True).eval()
    made = runs.run(whole, libraries(4), ["nodes"], tmp_path / "out", workers=1, batch=3)
    assert (made.done, made.failed) == (4, 0)
    table = runs.read(made)["graphs"]
    for data, outputs in zip(libraries(4), table.outputs, strict=True):
        np.testing.assert_allclose(outputs, whole(data.x_dict, data.edge_index_dict)[0].tolist())


class Either(torch.nn.Module):
    """A model of graphs with types and without."""

    def __init__(self):
        super().__init__()
        self.typed = PooledReader()
        self.plain = GINConv(torch.nn.Linear(3, 2)).double()

    def forward(self, data):
        """Two classes."""
        if isinstance(data, HeteroData):
            return self.typed(data.x_dict, data.edge_index_dict, data.batch_dict)
        return global_add_pool(self.plain(data.x, data.edge_index), data.batch)


def test_graphs_of_other_types_stand_beside_them(reader, tmp_path):
    fewer = papers().subgraph({"author": torch.tensor([0, 1])})
    del fewer[AT], fewer[BACK[AT]]
    made = runs.run(reader, [*libraries(2), fewer, *libraries(1)], ["nodes"], tmp_path / "out", workers=1)
    table = runs.read(made)["graphs"]
    assert table.num_nodes.tolist() == [*(data.num_nodes for data in libraries(2)), fewer.num_nodes, 13]
    assert table.error.isna().all()


def test_graphs_without_types_stand_beside_them(tmp_path):
    ring = Data(torch.eye(3, dtype=torch.float64), torch.tensor([[0, 1, 2], [1, 2, 0]]))
    made = runs.run(Either().eval(), [*libraries(2), ring], ["nodes", "edges"], tmp_path / "out", workers=1)
    tables = runs.read(made)
    assert tables["graphs"].error.isna().all()
    plain = tables["nodes"][tables["nodes"].graph == 2]
    assert plain.named.isna().all()
    assert plain.kind.tolist() == ["0", "1", "2"]


def test_a_run_goes_on_with_the_same_graphs_alone(reader, tmp_path):
    runs.run(reader, libraries(3), ["nodes"], tmp_path / "out", workers=1)
    other = libraries(3)
    other[1]["venue"].x[0, 0] += 1
    with pytest.raises(InputError, match="holds another run: data"):
        runs.run(reader, other, ["nodes"], tmp_path / "out", workers=1)


def test_a_folder_of_files_and_a_report(reader, tmp_path):
    (tmp_path / "graphs").mkdir()
    for data in libraries(2):
        torch.save(papers(), tmp_path / "graphs" / f"{data.num_nodes}.pt")
    asked = ["nodes", "subgraph:3"]
    made = runs.run(reader, tmp_path / "graphs", asked, tmp_path / "out", workers=2, batch=1)
    assert runs.read(made)["nodes"].named.tolist() == 2 * runs.read(made)["nodes"].named.tolist()[:13]
    page = runs.report(made.folder).read_text()
    assert "author" in page


def test_the_table_of_a_run_finds_patterns_in_them(reader, tmp_path):
    pytest.importorskip("rdkit")
    graphs = libraries(3)
    made = runs.run(reader, graphs, ["nodes", "subgraph:3"], tmp_path / "out", workers=1)
    listing = Listing(made, graphs)
    assert not listing.molecular
    found = runs.read(made)["subgraph:3"].set_index("graph")
    for g in range(3):
        assert listing.nodes_of(g, ("subgraph:3", found.pattern[g])) == sorted(found.nodes[g].tolist())


@pytest.mark.parametrize("workers", [1, 2])
def test_single_nodes_are_explained_in_the_part_that_they_depend_on(workers, tmp_path):
    model, data = Reader().eval(), papers()
    data["paper"].y = torch.tensor([0, 1, 1, 0, 1, 0])
    nodes = {7: ("paper", 2), 0: ("author", 0), 9: ("paper", 4), 11: ("venue", 0)}
    asked = ["nodes", "walks:3", "order:0.1", "curves:0.1"]
    made = runs.run(model, data, asked, tmp_path / "out", index=[*nodes.values()], workers=workers, target=1)
    assert (made.complete, made.failed) == (True, 0)
    tables = runs.read(made)
    assert tables["graphs"]["index"].tolist() == [0, 7, 9, 11]
    assert tables["graphs"].name.tolist() == [
        f"graph 0, {name}" for name in ("author 0", "paper 2", "paper 4", "venue 0")
    ]
    assert tables["graphs"].label.tolist() == pytest.approx([np.nan, 1, 1, np.nan], nan_ok=True)
    assert tables["graphs"].num_nodes.max() < 13
    for number, node in nodes.items():
        chain = ww.trace(model, data, index=node, target=1)
        here = {name: table[table["index"] == number] for name, table in tables.items()}
        found, relevance = here["nodes"], np.zeros(13)
        relevance[found.node] = found.relevance
        np.testing.assert_allclose(relevance, flat(ww.node_relevance(chain, layer="start")), atol=1e-12)
        assert found.named.tolist() == chain.types.written(found.node)
        assert found.kind.tolist() == [name.split()[0] for name in found.named]
        best = ww.top_walks(chain, 3)
        assert [walk.tolist() for walk in here["walks:3"].nodes] == best.walks.tolist()
        assert [list(walk) for walk in here["walks:3"].named] == [chain.types.written(walk) for walk in best.walks]
        order = here["order:0.1"].nodes.iloc[0].tolist()
        values = [rest(model, data, chain, node, order[: i + 1]) for i in range(len(order))]
        np.testing.assert_allclose(here["curves:0.1"].activation.iloc[0], values, atol=1e-9)


def rest(model, data, chain, node, kept):
    """The output of a node where it and some others are left."""
    part = chain.types.grouped({*kept, chain.types.number(node)})
    part = {name: part.get(name, []) for name in chain.types.counts}
    left = part_by_hand(data, part)
    with torch.no_grad():
        return float(model(left.x_dict, left.edge_index_dict)[node[0]][part[node[0]].index(node[1]), 1])


@pytest.mark.parametrize(
    ("index", "nodes"),
    [
        ("paper", range(5, 11)),
        ("all", range(13)),
        ("paper 2", [7]),
        ("venue 1, 3", [3, 12]),
        (("paper", 2), [7]),
        ([12, ("author", 1)], [1, 12]),
        (torch.tensor([4, 4]), [4]),
    ],
)
def test_nodes_are_named_in_many_ways(index, nodes):
    assert nodes_of(as_source(papers()), index, 1).nodes.tolist() == list(nodes)


def test_a_file_names_nodes(tmp_path):
    (tmp_path / "nodes.txt").write_text("paper 2\n\nauthor 0\n12\n")
    assert nodes_of(as_source(papers()), tmp_path / "nodes.txt", 1).nodes.tolist() == [0, 7, 12]
    assert nodes_of(as_source(papers()), str(tmp_path / "nodes.txt"), 1).nodes.tolist() == [0, 7, 12]
    plain = as_source(Data(torch.ones(4, 1), torch.tensor([[0, 1], [1, 2]])))
    assert nodes_of(plain, "3, 1", 1).nodes.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("editor", "editor"),
        ("paper 6", "There is no node 6 of type 'paper'"),
        ("editor 0", "a type of 'author', 'paper', 'venue'"),
        (13, 'index must be "all", or nodes 0 to 12, got 13. Name a type, or nodes as'),
        ([0.5], "a node id, or (type, i) with a node id, got 0.5"),
    ],
)
def test_nodes_that_are_not_there_are_refused(index, words):
    with pytest.raises(InputError, match=re.escape(words)):
        nodes_of(as_source(papers()), index, 1)


class OfPapers(Reader):
    """A table of papers, and no types."""

    def forward(self, x_dict, edge_index_dict):
        """Two classes for every paper."""
        return super().forward(x_dict, edge_index_dict)["paper"]


def test_a_model_of_one_type_explains_nodes_of_that_type(tmp_path):
    model = OfPapers().eval()
    made = runs.run(model, papers(), ["nodes"], tmp_path / "out", index="paper", workers=1)
    outputs = np.stack(runs.read(made)["graphs"].outputs)
    np.testing.assert_allclose(outputs, model(papers().x_dict, papers().edge_index_dict).detach())


class InOneTensor(Reader):
    """Outputs of several types in one tensor, in some order."""

    def __init__(self, *names):
        super().__init__()
        self.names = names

    def forward(self, x_dict, edge_index_dict):
        out = super().forward(x_dict, edge_index_dict)
        return torch.cat([out[name] for name in self.names])


def test_rows_in_another_order_than_the_nodes_are_refused(tmp_path):
    """They are those of other nodes; in the order of the graph's types they are what a dictionary would give."""
    data, nodes = papers(), [("paper", 1), ("paper", 4)]
    ordered = InOneTensor(*data.node_types).eval()
    found = runs.read(runs.run(ordered, data, ["nodes"], tmp_path / "right", index=nodes, workers=1))
    by_type = runs.read(runs.run(Reader().eval(), data, ["nodes"], tmp_path / "by-type", index=nodes, workers=1))
    assert found["graphs"]["output"].tolist() == pytest.approx(by_type["graphs"]["output"].tolist())
    for names in (data.node_types[::-1], ["venue", "author", "paper"]):
        with pytest.raises(InputError, match=r"Row \d+ of the output is node"):
            runs.run(InOneTensor(*names).eval(), data, ["nodes"], tmp_path / names[0], index=nodes, workers=1)
