"""Damaged files, put before every reader there is: graphs or weights come out, or an error that says what to do."""

from __future__ import annotations

import json
import pickle
import string
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data, InMemoryDataset

from small_runs import Pooled, same, some_graphs
from walkwise import datasets, models, runs
from walkwise.datasets import molecules
from walkwise.datasets.graph_files import read_graphs
from walkwise.datasets.pickles import read_arrays
from walkwise.datasets.sentiment import _published
from walkwise.datasets.tufiles import read_tu
from walkwise.errors import MissingDataError, WalkwiseError
from walkwise.runs.groups import as_groups
from walkwise.runs.sources import as_source

MANY = settings(max_examples=60)


@st.composite
def damage(draw, content):
    """The bytes with a few of them changed, left out, doubled or put in; or cut off."""
    made = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place, length = draw(st.integers(0, len(made))), draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["change", "remove", "double", "insert", "cut", "number"]))
        if kind == "change" and place < len(made):
            made[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "remove":
            del made[place : place + length]
        elif kind == "double":
            made[place:place] = made[place : place + length]
        elif kind == "insert":
            made[place:place] = draw(st.binary(max_size=8))
        elif kind == "number":
            made[place : place + 1] = draw(
                st.sampled_from([b"-1", b"0", b"99999999999999999999", b"nan", b"1e9", b"\n"])
            )
        elif kind == "cut":
            del made[place:]
    return bytes(made)


@contextmanager
def folder_of(files):
    """A folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield Path(folder)


def refused(action, *arguments):
    """What comes back, or None after an error of ours that says what was expected."""
    try:
        return action(*arguments)
    except WalkwiseError as error:
        raised = error
    assert len(str(raised)) > 20
    assert raised.expected or isinstance(raised, MissingDataError)
    assert raised.remedy
    return None


def check_graphs(graphs):
    """Whatever is read can be used: edges lead to nodes of their own graph."""
    for data in graphs:
        assert data.x.shape[0] == data.num_nodes > 0
        assert data.edge_index.shape[0] == 2
        assert (
            not data.edge_index.numel()
            or 0 <= int(data.edge_index.min()) <= int(data.edge_index.max()) < data.num_nodes
        )


def one_of(files):
    """One of the files by name, and the same set with it damaged."""
    return st.sampled_from(sorted(files)).flatmap(
        lambda name: damage(files[name]).map(lambda bad: {**files, name: bad})
    )


def lines(*rows):
    return "".join(f"{row}\n" for row in rows).encode()


TU = {
    "S_A.txt": lines("1, 2", "2, 1", "2, 3", "3, 2", "4, 5", "5, 4"),
    "S_graph_indicator.txt": lines(1, 1, 1, 2, 2),
    "S_graph_labels.txt": lines(1, -1),
    "S_node_labels.txt": lines(0, 1, 2, 1, 0),
    "S_edge_labels.txt": lines(0, 0, 1, 1, 0, 0),
}


@MANY
@given(one_of(TU))
def test_tu_files(files):
    with folder_of(files) as folder:
        graphs = refused(read_tu, folder, "S")
        if graphs is not None:
            check_graphs(graphs)


SENTENCES = {
    "S_node_features.pkl": pickle.dumps(np.ones((6, 4), dtype=np.float32)),
    "S_node_indicator.txt": lines(1, 1, 2, 3, 3, 3),
    "S_edge_index.txt": lines("0, 1", "0, 0", "4, 3", "4, 5"),
    "S_graph_labels.txt": lines(1, 0, 1),
    "S_split_indices.txt": lines(0, 2, 1),
    "S_sentence_tokens.json": json.dumps({"0": ["so", "good"], "1": ["no"], "2": ["what", "a", "film"]}).encode(),
}


@MANY
@given(one_of(SENTENCES))
def test_published_sentences(files):
    with folder_of(files) as folder:
        found = refused(_published, folder, "S")
        if found is not None:
            check_graphs(found.graphs)


def _npz(**arrays):
    with tempfile.TemporaryFile() as file:
        np.savez(file, **arrays)
        file.seek(0)
        return file.read()


REBUILT = {
    "graph-sst2-rebuilt/graph_sst2_rebuilt.npz": _npz(
        edge_index=np.array([[0, 3], [1, 4]]), offsets=np.array([0, 2, 3, 6]), y=np.array([1, 0, 1]), split=np.arange(3)
    ),
    "graph-sst2-rebuilt/tokens.json": json.dumps({"tokens": [["so", "good"], ["no"], ["what", "a", "film"]]}).encode(),
}


@settings(max_examples=30)
@given(files=one_of(REBUILT))
def test_rebuilt_sentences(files):
    with pytest.MonkeyPatch.context() as patched, folder_of(files) as root:
        patched.setattr("walkwise.datasets.sentiment.word_vectors", lambda words: (torch.ones(len(words), 50), 1.0))
        found = refused(lambda: datasets.load("graph-sst2", root=root))
        if found is not None:
            check_graphs(found.graphs)


PICKLED = [
    pickle.dumps((np.eye(3), np.ones((2, 2), dtype=np.float32), np.arange(4)), protocol)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
]


@MANY
@given(st.sampled_from(PICKLED).flatmap(damage))
def test_pickled_arrays(content):
    with folder_of({"a.pkl": content, "ba2motif/raw/BA-2motif.pkl": content}) as folder:
        found = refused(read_arrays, folder / "a.pkl")
        for array in found if isinstance(found, tuple) else ():
            assert array.dtype.kind in "biuf"
        assert refused(lambda: datasets.load("ba2motif", root=folder)) is None


def _saved(value):
    with tempfile.TemporaryFile() as file:
        torch.save(value, file)
        file.seek(0)
        return file.read()


GRAPH = Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), y=torch.tensor([1]))
JOINED, SLICES = InMemoryDataset.collate([GRAPH, GRAPH])
SAVED = [_saved(GRAPH), _saved([GRAPH, GRAPH]), _saved((JOINED.to_dict(), SLICES, Data))]


@MANY
@given(st.sampled_from(SAVED).flatmap(damage))
def test_graphs_saved_by_torch(content):
    with folder_of({"a.pt": content}) as folder:
        found = refused(read_graphs, folder / "a.pt")
        for data in found or ():
            assert isinstance(data, Data)
            assert data.edge_index is None or data.edge_index.shape[0] == 2


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just(torch.ones(2)) | st.just(GRAPH) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["x", "edge_index", "y", "num_nodes", "q"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@MANY
@given(values)
def test_other_things_saved_by_torch(value):
    with folder_of({"a.pt": _saved(value)}) as folder:
        refused(read_graphs, folder / "a.pt")
        refused(models.load_weights, nn.Linear(2, 1), folder / "a.pt")


@MANY
@given(st.sampled_from(["x", "edge_index"]), values)
def test_graphs_of_odd_parts(name, value):
    graph = GRAPH.clone()
    graph[name] = value
    with folder_of({"a.pt": _saved(graph)}) as folder:
        refused(read_graphs, folder / "a.pt")


def _weights():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "w.safetensors"
        models.save_weights(models.GIN(1, 2, 2, 2), path)
        return path.read_bytes()


SAFETENSORS, STATE = _weights(), _saved(models.GIN(1, 2, 2, 2).state_dict())


@MANY
@given(damage(SAFETENSORS) | damage(SAFETENSORS[:400]))
def test_weights_in_safetensors(content):
    with folder_of({"w.safetensors": content}) as folder:
        opened = refused(models.open_weights, folder / "w.safetensors")
        assert opened is None or opened.sizes["in_channels"] == 1
        refused(models.load_weights, models.GIN(1, 2, 2, 2), folder / "w.safetensors")


@MANY
@given(damage(STATE))
def test_weights_saved_by_torch(content):
    with folder_of({"w.pt": content}) as folder:
        refused(models.load_weights, models.GIN(1, 2, 2, 2), folder / "w.pt")


@given(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["GIN", "GCN", "gin", 3, None]),
            "in_channels": st.sampled_from([1, 0, -1, 10**15, 1.5, "1", None]),
            "hidden_channels": st.sampled_from([2, 10**15, None]),
            "out_channels": st.sampled_from([2, [2]]),
            "num_layers": st.sampled_from([2, 0, 10**15, 1.0, True]),
        }
    )
    | st.lists(st.integers(), max_size=2)
)
def test_a_header_that_promises_too_much(described):
    from safetensors.torch import load, save

    content = save(load(SAFETENSORS), metadata={"model": json.dumps(described)})
    with folder_of({"w.safetensors": content}) as folder:
        refused(models.open_weights, folder / "w.safetensors")


LAYERS = [
    {"out_width": 2, "W": "W0", "b": "b0", "aggregates": True},
    {"out_width": 2, "W": "W1", "b": "b1", "aggregates": False},
    {"out_width": 2, "W": "W2", "b": "b2", "aggregates": True},
]
ARRAYS = {
    "m.json": json.dumps(
        {
            "kind": "gin",
            "input_width": 1,
            "num_classes": 2,
            "L": 2,
            "blocks": [{"layers": LAYERS[:2]}, {"layers": LAYERS[2:]}],
        }
    ).encode(),
    "m.npz": _npz(
        W0=np.ones((1, 2)), b0=np.ones(2), W1=np.ones((2, 2)), b1=np.ones(2), W2=np.ones((2, 2)), b2=np.ones(2)
    ),
}


def test_whole_arrays_are_read():
    with folder_of(ARRAYS) as folder:
        assert models.from_arrays(folder, "m").sizes["num_layers"] == 2


@MANY
@given(one_of(ARRAYS))
def test_arrays_of_models(files):
    with folder_of(files) as folder:
        refused(models.from_arrays, folder, "m")


@MANY
@given(
    st.text(alphabet=string.printable, max_size=30)
    | st.lists(
        st.sampled_from(["C", "c1", "1", "(", ")", "=", "#", "[N+]", "[O-]", "Br", ".", "[H]", "*", "[Xe]", "%"])
    ).map("".join)
)
def test_smiles(text):
    pytest.importorskip("rdkit")
    graph = refused(molecules.from_smiles, text)
    check_graphs([graph] if graph else [])


@pytest.mark.parametrize("given", [None, 3, b"C", ["C"]])
def test_smiles_are_text(given):
    with pytest.raises(WalkwiseError, match="SMILES"):
        molecules.from_smiles(given)


# -- runs over data sets ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_a_run(tmp_path_factory):
    """The files of a run, and what they say."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    made = runs.run(Pooled().double().eval(), some_graphs(6), ["nodes", "walks:2"], folder, workers=1, batch=3)
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: files[name] for name in files if name != ".lock"}, runs.read(made)


@MANY
@given(data=st.data())
def test_the_folder_of_a_run(of_a_run, data):
    """What is read is what was written: a changed byte of a table is noticed by its checksum."""
    files, whole = of_a_run
    with folder_of(data.draw(one_of(files))) as folder:
        tables = refused(runs.read, folder)
        if tables is None and (folder / "manifest.json").read_bytes() != files["manifest.json"]:
            assert refused(runs.run, Pooled().double().eval(), some_graphs(6), ["nodes"], folder) is None
        if tables is not None and tables.keys() == whole.keys():  # or the manifest has another question
            same(tables, whole)


@MANY
@given(
    damage(b"smiles,label,name\nCCO,0,ethanol\nc1ccccc1,1,benzene\nCC(=O)O,0,acid\n"), st.sampled_from(["csv", "tsv"])
)
def test_tables_of_smiles(content, ending):
    with folder_of({f"molecules.{ending}": content}) as folder:
        source = refused(as_source, folder / f"molecules.{ending}")
        for row in range(0 if source is None else len(source)):
            found = refused(source.items, row, row + 1)
            assert found is None or len(found.graphs) == 1


@MANY
@given(damage(json.dumps({"NO2": "[N+](=O)[O-]", "first": [0, 1]}).encode()))
def test_files_of_groups(content):
    with folder_of({"groups.json": content}) as folder:
        groups = refused(as_groups, str(folder / "groups.json"))
        assert groups is None or groups.keys()


@MANY
@given(damage(b"0\n3\n5\n"))
def test_files_of_node_ids(content):
    one = Data(torch.ones(6, 3), torch.tensor([[0, 1], [1, 0]]))
    with folder_of({"ids.txt": content}) as folder:
        found = refused(runs.node_sources.nodes_of, as_source([one]), folder / "ids.txt", 2)
        assert found is None or 0 <= found.nodes.min() <= found.nodes.max() < 6
