"""Graphs end to end, mini-batches, splits, and graphs made afresh."""

import networkx as nx
import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_networkx

from walkwise import datasets
from walkwise.datasets import ba2motif
from walkwise.datasets.registry import data_root
from walkwise.errors import InputError


@pytest.fixture
def several(graph):
    """Graphs of different sizes; one has no edges, one a single node."""
    made = [graph(size, seed=size) for size in (3, 6, 4)]
    plain = [Data(x, edges, y=i % 2, mark=x[:, 0] > 0) for i, (x, edges) in enumerate(made)]
    alone = torch.ones(1, 3, dtype=torch.float64)
    lonely = Data(alone, torch.empty(2, 0, dtype=torch.long), y=1, mark=alone[:, 0] > 0)
    return [*plain[:2], lonely, plain[2]]


def test_packed_graphs_read_as_they_were(several):
    packed = datasets.pack(several)
    assert len(packed) == 4
    for ours, given in zip(packed, several, strict=True):
        assert torch.equal(ours.x, given.x)
        assert torch.equal(ours.edge_index, given.edge_index)
        assert ours.y.tolist() == [given.y]
        assert torch.equal(ours.mark, given.mark)
    assert torch.equal(packed[-1].x, several[3].x)
    assert len(packed[1:3]) == 2
    assert datasets.pack(packed) is packed
    with pytest.raises(IndexError, match="no graph 4"):
        packed[4]
    with pytest.raises(InputError, match="at least one graph"):
        datasets.pack([])


@pytest.mark.parametrize("index", [[0, 1, 2, 3], [3, 1], [2], [1, 1, 0], [2, 3]])
def test_mini_batches_are_pygs(several, index):
    ours = datasets.pack(several).batch(torch.tensor(index))
    theirs = Batch.from_data_list([several[i] for i in index])
    for name in ("x", "edge_index", "batch", "y"):
        assert torch.equal(ours[name], theirs[name]), name


def test_changing_a_graph_leaves_the_set_alone(several):
    packed = datasets.pack(several)
    packed[0].x[:] = 7
    assert not (packed[0].x == 7).any()


@pytest.mark.parametrize("label", [0, 1])
def test_generated_graphs_are_trees_with_a_motif(label):
    wanted = [nx.cycle_graph(5), nx.house_graph()][label]
    for data in ba2motif.generate(40, seed=3)[label * 20 : label * 20 + 20]:
        assert int(data.y) == label
        whole = to_networkx(data, to_undirected=True)
        assert nx.is_tree(whole.subgraph(range(20)))
        assert nx.is_isomorphic(whole.subgraph(data.ground_truth.nonzero().flatten().tolist()), wanted)
        links = [(i, j) for i, j in whole.edges if (i < 20) != (j < 20)]
        assert len(links) == 1
        assert data.is_undirected()
        assert (data.x == 1).all()


def test_generated_graphs_follow_the_seed():
    first, again, other = (ba2motif.generate(10, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(first, other, strict=True))
    with pytest.raises(InputError, match="number of graphs, must be a whole number of at least 1"):
        ba2motif.generate(0, seed=0)


def test_attachment_is_preferential():
    """The oldest node of such a tree has a far larger degree than a late one."""
    degrees = torch.stack([data.edge_index[0].bincount(minlength=25)[:20] for data in ba2motif.generate(300, seed=0)])
    assert degrees[:, :2].float().mean() > 3 * degrees[:, 15:].float().mean()


def test_names(monkeypatch, tmp_path):
    with pytest.raises(InputError, match="Unknown data set 'nothing': expected one of ba2motif, "):
        datasets.load("nothing")
    with pytest.raises(InputError, match="already"):
        datasets.register("mutag")(lambda root: None)
    monkeypatch.setenv("WALKWISE_ROOT", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root(tmp_path / "other") == tmp_path / "other"
    monkeypatch.delenv("WALKWISE_ROOT")
    assert data_root().name == "walkwise"
