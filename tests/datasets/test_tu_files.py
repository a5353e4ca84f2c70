"""The text files of the TU collection, against PyTorch Geometric's loader and by hand."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.datasets import TUDataset

from authors import data_root, needs_golden
from walkwise.datasets import pack
from walkwise.datasets.tufiles import read_tu
from walkwise.errors import InputError


@needs_golden
@pytest.mark.parametrize("name", ["MUTAG", "Mutagenicity"])
def test_graphs_are_those_of_pyg(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "raw").symlink_to(data_root() / "tu" / name / "raw")
    ours, theirs = read_tu(data_root() / "tu" / name / "raw", name), pack(list(TUDataset(str(tmp_path), name)))
    for part in ("x", "edge_index", "y", "nodes_before", "edges_before"):
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part
    assert ours.edge_data.keys() == theirs.edge_data.keys() == {"edge_attr"}
    assert torch.equal(ours.edge_data["edge_attr"], theirs.edge_data["edge_attr"])


#: Two graphs: a path of three nodes with a self-loop and a repeated edge, and a pair.
SMALL = {
    "A": ["2, 1", "1, 2", "2, 3", "3, 2", "3, 3", "2, 3", "4, 5", "5, 4"],
    "graph_indicator": ["1", "1", "1", "2", "2"],
    "graph_labels": ["1", "-1"],
    "node_labels": ["5", "7", "5", "6", "6"],
    "edge_labels": ["0", "0", "1", "1", "0", "1", "0", "0"],
}


@pytest.fixture
def small(tmp_path):
    """A function that writes the set, some of its files replaced or (None) left out."""

    def write(**changed):
        for part, lines in (SMALL | changed).items():
            path = tmp_path / f"SMALL_{part}.txt"
            path.unlink(missing_ok=True)
            if lines is not None:
                path.write_text("".join(f"{line}\n" for line in lines))
        return tmp_path

    return write


def test_a_small_set_by_hand(small):
    graphs = read_tu(small(), "SMALL")
    assert graphs.x.tolist() == [[1, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert graphs.edge_index.tolist() == [[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]]
    assert graphs.edge_data["edge_attr"].tolist() == [[1, 0], [1, 0], [0, 2], [0, 1], [1, 0], [1, 0]]
    assert graphs.y.tolist() == [1, 0]
    assert graphs.nodes_before.tolist() == [0, 3, 5]
    assert graphs.edges_before.tolist() == [0, 4, 6]


def test_without_labels_every_feature_is_one(small):
    graphs = read_tu(small(node_labels=None, edge_labels=None), "SMALL")
    assert graphs.x.tolist() == [[1]] * 5
    assert graphs.edge_data == {}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"A": ["1, 2", "1, x"]}, "2 whole numbers per line: could not convert string ' x'"),
        ({"A": ["1, 2, 3"]}, "2 whole numbers per line: it has 3"),
        ({"A": ["1, 2", "1"]}, "2 whole numbers per line"),
        ({"A": ["1.5, 2"]}, "2 whole numbers per line"),
        ({"A": []}, "2 whole numbers per line"),
        ({"A": ["0, 1"]}, "edges between the nodes 1 to 5 in .*, got numbers from 0 to 1"),
        ({"A": ["1, 6"]}, "edges between the nodes 1 to 5"),
        ({"A": ["1, 4"]}, "edges inside a graph"),
        ({"A": ["1, 99999999999999999999"]}, "2 whole numbers per line"),
        ({"graph_indicator": ["1", "1", "1", "2", "3"]}, "nodes of the graphs 1 to 2"),
        ({"graph_indicator": ["1", "2", "1", "2", "2"]}, "one graph after the other"),
        ({"graph_indicator": ["2", "2", "2", "2", "2"]}, "nodes of the graphs 1 to 2"),
        ({"graph_labels": ["1"]}, "nodes of the graphs 1 to 1"),
        ({"node_labels": ["1"]}, "a label for each of 5 nodes in .*, got 1"),
        ({"edge_labels": ["1"]}, "a label for each of 8 edges in .*, got 1"),
        ({"node_labels": ["1", "2", "3", "4", "900000000"]}, "labels of a few kinds"),
    ],
)
def test_damaged_files_are_refused_in_words(small, changed, words):
    with pytest.raises(InputError, match=words) as raised:
        read_tu(small(**changed), "SMALL")
    assert "etch" in raised.value.remedy
    assert raised.value.expected
    assert raised.value.got
