"""The tasks: what is planted is what the truth says, and node-level graphs hold all that an output depends on."""

import json

import networkx as nx
import numpy as np
import pytest
import torch
from quality import planted
from quality.networks import DESIGNS, Network, bends
from quality.tasks import TASKS, Task, UnavailableError, frozen_split, has_truth
from torch_geometric.utils import subgraph


def edges_inside(data, nodes):
    return subgraph(nodes, data.edge_index, num_nodes=len(data.x))[0].shape[1] // 2


def test_every_task_is_validation_or_test():
    parts = frozen_split()
    assert len(parts["validation"]) >= 7
    assert len(parts["test"]) >= 7
    assert not set(parts["validation"]) & set(parts["test"])


@pytest.mark.parametrize("change", ["missing", "twice", "third part"])
def test_a_split_that_is_not_one_is_refused(tmp_path, change):
    parts = frozen_split()
    if change == "missing":
        parts["test"].pop()
    elif change == "twice":
        parts["test"].append(parts["validation"][0])
    else:
        parts["other"] = [parts["test"].pop()]
    (tmp_path / "split.json").write_text(json.dumps(parts))
    with pytest.raises(ValueError, match="names every task once"):
        frozen_split(tmp_path / "split.json")


def test_the_same_seed_makes_the_same_graphs():
    make = planted.two_motifs(planted.random_graph, planted.grid, planted.ring_with_chords)
    first, again, other = (planted.many(make, 4, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a.edge_index, b.edge_index) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("positive", "negative", "sizes", "edges"),
    [
        (planted.house, planted.cycle, (5, 5), (6, 5)),
        (planted.grid, planted.ring_with_chords, (9, 9), (12, 12)),
        (planted.star, planted.path, (7, 7), (6, 6)),
    ],
)
@pytest.mark.parametrize("base", [planted.tree, planted.regular_tree, planted.random_graph, planted.small_world])
def test_the_truth_is_the_motif(base, positive, negative, sizes, edges):
    for data in planted.many(planted.two_motifs(base, positive, negative), 6, 0):
        motif = data.motifs[0]
        assert int(motif.sum()) == sizes[1 - data.y]
        assert edges_inside(data, motif) == edges[1 - data.y]
        crossing = motif[data.edge_index[0]] != motif[data.edge_index[1]]
        assert int(crossing.sum()) == 2  # one edge, both ways


def test_one_chain_of_colours_or_none():
    for data in planted.many(planted.coloured_chain, 10, 0):
        colour = data.x.argmax(1).numpy()
        graph = nx.Graph(data.edge_index.t().tolist())
        found = planted.chains(graph, colour)
        assert len(found) == data.y
        if data.y:
            assert sorted(found[0]) == data.motifs[0].nonzero().flatten().tolist()


def test_numbers_are_those_of_the_truth():
    for data in planted.many(planted.count_houses, 8, 0):
        assert int(data.motifs.sum()) == 5 * data.y
        assert edges_inside(data, data.motifs[0]) == 6 * data.y
    for number, data in enumerate(planted.many(planted.sum_of_marks, 9, 0)):
        marked = data.x[:, -1] > 0
        hubs = data.motifs[0] & (data.x[:, planted.DEGREES - 1] > 0)
        assert int((data.motifs[0] & marked).sum()) == data.y
        assert int(hubs.sum()) == number % 3


@pytest.mark.parametrize("make", [planted.tree_cycles, planted.tree_grids, planted.ba_shapes])
def test_a_node_is_explained_on_all_that_it_depends_on(make):
    whole = make(0)
    task = Task("any", "", "node", load=None, classes=4)
    torch.manual_seed(0)
    network = Network(DESIGNS["gcn-gelu"], task, whole.x.shape[1]).eval()
    everywhere = network(whole.x, whole.edge_index)
    for node in np.random.default_rng(0).choice((whole.y > 0).nonzero().flatten(), 5).tolist():
        data = planted.around(whole, node)
        torch.testing.assert_close(network(data.x, data.edge_index)[data.index], everywhere[node])
        assert data.y == whole.y[node]
        assert data.seen[data.index]


def test_house_labels_are_places():
    data = planted.ba_shapes(0)
    inside = data.owner >= 0
    own = data.owner[data.edge_index[0]] == data.owner[data.edge_index[1]]
    degree = data.edge_index[0][own & inside[data.edge_index[0]]].bincount(minlength=len(data.x))
    assert degree[data.y == 1].unique().tolist() == [3]  # middle
    assert degree[data.y >= 2].unique().tolist() == [2]  # bottom and roof


def test_molecules_match_their_patterns():
    Chem = pytest.importorskip("rdkit.Chem", exc_type=ImportError)
    from quality import molecules

    for data in planted.many(molecules.Rule(*molecules.AMIDE), 6, 0):
        if data.y:
            elements = data.x[data.motifs[0], : len(molecules.ELEMENTS)].sum(0).int().tolist()
            assert elements == [1, 1, 1, 0, 0]  # C, N, O
            assert edges_inside(data, data.motifs[0]) == 2
        else:
            assert not data.motifs.any() or len(molecules.AMIDE) > 1
    assert all(Chem.MolFromSmiles("C" + part + "C") for part in molecules.MIDDLES)


def test_published_sets_say_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("WALKWISE_DATA", str(tmp_path))
    for name in ("ba2motif", "benzene", "logic7", "logic8"):
        with pytest.raises(UnavailableError, match="WALKWISE_DATA"):
            TASKS[name].load(0, True)


def test_only_examples_with_a_truth_are_explained():
    make = planted.two_motifs(planted.tree, planted.house, planted.cycle)
    negative, positive = planted.many(make, 2, 0)
    task = TASKS["house-on-tree"]
    assert has_truth(task, positive)
    assert not has_truth(task, negative)
    positive.motifs[:] = True
    assert not has_truth(task, positive)


def test_a_layer_without_activation_is_told():
    task = TASKS["house-on-tree"]
    assert bends(Network(DESIGNS["gcn-relu"], task, 3)) == (True, True, False)
    assert bends(Network(DESIGNS["gin-gelu"], task, 3)) == (True, True, True)
