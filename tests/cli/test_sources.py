"""Models and graphs by name, file, import path and SMILES; and files that want to run something."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from walkwise import datasets, models
from walkwise.cli import options
from walkwise.cli.names import BUNDLED, MOLECULES, SourceError
from walkwise.cli.sources import (
    NamedGraphs,
    Subject,
    load_graphs,
    load_model,
    load_subject,
)
from walkwise.datasets.graph_files import read_graphs
from walkwise.errors import InputError


def two_graphs() -> list[Data]:
    edges = torch.tensor([[0, 1], [1, 0]])
    first = Data(torch.ones(2, 1), edges, y=torch.tensor([0]), note="a", symbols=["C", "N"])
    second = Data(torch.zeros(3, 1), edges + 1, y=torch.tensor([1]), note="b", symbols=["C", "N", "O"])
    return [first, second]


def same(one: Data, other: Data) -> bool:
    return (
        torch.equal(one.x, other.x)
        and torch.equal(one.edge_index, other.edge_index)
        and torch.equal(one.y, other.y)
        and (one.note, one.symbols) == (other.note, other.symbols)
    )


def save_whole(path: Path) -> None:
    torch.save(two_graphs(), path)


def save_tuple(path: Path) -> None:
    torch.save(tuple(two_graphs()), path)


def save_as_data_set(path: Path) -> None:
    InMemoryDataset.save(two_graphs(), str(path))


def save_collated(path: Path) -> None:
    """As PyG before 2.4 did: one Data end to end, and slices."""
    joined, slices = InMemoryDataset.collate(two_graphs())
    torch.save((Data.from_dict(joined.to_dict()), slices), path)


def save_after_use(path: Path) -> None:
    """Graphs that were asked for a subgraph: PyG has noted in them which attributes belong to nodes and edges."""
    graphs = two_graphs()
    for graph in graphs:
        graph.subgraph(torch.tensor([0, 1]))
    assert "_cached_attr" in vars(graphs[0]._store)
    torch.save(graphs, path)


@pytest.mark.parametrize("save", [save_whole, save_tuple, save_as_data_set, save_collated, save_after_use])
def test_graphs_come_back_from_a_file(tmp_path, save):
    save(tmp_path / "graphs.pt")
    found = read_graphs(tmp_path / "graphs.pt")
    assert len(found) == 2
    assert all(same(one, other) for one, other in zip(found, two_graphs(), strict=True))
    for one, other in zip(found, two_graphs(), strict=True):
        assert same(one.subgraph(torch.tensor([0, 1])), other.subgraph(torch.tensor([0, 1])))


def test_what_torch_may_make_is_as_before_once_a_file_is_read(tmp_path):
    before = set(torch.serialization.get_safe_globals())
    save_after_use(tmp_path / "graphs.pt")
    read_graphs(tmp_path / "graphs.pt")
    (tmp_path / "bad.pt").write_bytes(b"PK")
    with pytest.raises(InputError):
        read_graphs(tmp_path / "bad.pt")
    assert set(torch.serialization.get_safe_globals()) == before


def test_a_single_graph_comes_back_from_a_file(tmp_path):
    torch.save(two_graphs()[1], tmp_path / "graph.pt")
    (found,) = load_graphs(str(tmp_path / "graph.pt")).graphs
    assert same(found, two_graphs()[1])


class Bad:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "ran")


@pytest.mark.parametrize("saver", ["torch", "legacy", "pickle"])
@pytest.mark.parametrize("wrapped", ["bare", "in a graph"])
def test_a_malicious_file_is_refused_and_does_not_run(tmp_path, saver, wrapped):
    mark = tmp_path / "ran"
    bad = Bad(mark) if wrapped == "bare" else Data(torch.ones(1, 1), secret=Bad(mark))
    file = tmp_path / "bad.pt"
    if saver == "pickle":
        file.write_bytes(pickle.dumps(bad))
    else:
        torch.save(bad, file, _use_new_zipfile_serialization=saver == "torch")
    with pytest.raises(InputError, match="Nothing in it was run"):
        load_graphs(str(file))
    with pytest.raises(InputError, match="which was not run"):
        load_model("ba2motif-gin3", weights=file)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bad(mark)))  # it would have
    assert mark.exists()


@pytest.mark.parametrize("content", [b"", b"not a file of torch", b"PK\x03\x04broken"])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "graphs.pt").write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        read_graphs(tmp_path / "graphs.pt")


@pytest.mark.parametrize("other", [torch.ones(2), {"x": torch.ones(2)}, [torch.ones(2)], []])
def test_other_things_in_a_file_are_no_graphs(tmp_path, other):
    torch.save(other, tmp_path / "graphs.pt")
    with pytest.raises(InputError, match=r"Expected PyG graphs|holds something else"):
        read_graphs(tmp_path / "graphs.pt")


def test_bundled_models_are_those_in_the_package():
    folder = Path(models.__file__).parents[1] / "bundled"
    assert set(BUNDLED) == {path.stem for path in folder.glob("*.safetensors")}


def test_the_bundled_model_knows_the_graphs_that_go_with_it():
    subject = load_subject("ba2motif")
    chosen = [subject.graphs[i] for i in subject.data.held_out[::10]]
    right = [int(subject.model(g.x, g.edge_index).argmax()) == int(g.y) for g in chosen]
    assert sum(right) >= 0.9 * len(right)
    assert subject.data.held_out == tuple(datasets.load("ba2motif-generated").test.tolist())


def test_molecules_have_names_and_symbols():
    pytest.importorskip("rdkit")
    subject = load_subject("mutag")
    assert subject.names == tuple(MOLECULES)
    assert subject.node_labels(7) == [*"CCCCCCC"]
    assert (subject.graph(7).x.shape, load_subject("mutagenicity").graph(7).x.shape) == ((7, 7), (7, 17))
    assert subject.class_name(1) == "mutagenic"
    assert load_subject("mutag", smiles=["CC"]).names == ("CC",)


def test_one_hot_features_name_their_nodes():
    assert load_subject("ba2motif").node_labels(0) == []
    loose = torch.zeros(2, 0, dtype=torch.long)
    for x, names in ((torch.eye(3), ["C", "N", "O"]), (torch.full((3, 3), 0.5), [])):
        graphs = NamedGraphs([Data(x, loose)], "source", ("source 0",), node_names=("C", "N", "O"))
        assert Subject(torch.nn.Identity(), "model", graphs).node_labels(0) == names


def test_an_import_path_names_a_model_and_graphs(own):
    subject = load_subject(f"{own}:build", f"{own}:load")
    assert len(subject.graphs) == 2
    assert not subject.model.training
    module = importlib.import_module(own)
    assert all(torch.equal(a, b) for a, b in zip(subject.model.parameters(), module.build().parameters(), strict=True))


def test_weights_go_into_the_named_model(own, tmp_path):
    model = importlib.import_module(own).build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.25)
    models.save_weights(model, "w.safetensors")
    torch.save(model.state_dict(), "w.pt")
    for file in ("w.safetensors", "w.pt"):
        loaded = load_model(f"{own}:build", weights=Path(file))
        assert all(bool((p == 0.25).all()) for p in loaded.parameters())


def test_a_file_of_weights_may_describe_its_model(tmp_path):
    models.save_weights(models.GIN(1, 4, 2, 2), tmp_path / "small.safetensors")
    assert load_model(str(tmp_path / "small.safetensors")).sizes["hidden_channels"] == 4


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("ba2motf", r"did you mean 'ba2motif'\?"),
        ("ba2motif-gin3", r"is not trained\. Give its --weights"),
        ("nowhere.at:all", "There is no module 'nowhere'"),
        ("weights.safetensors", "There is no file weights.safetensors"),
        ("{own}:buidl", r"has no 'buidl'; did you mean 'build'\?"),
        ("{own}:broken", r"broken\(\) failed: RuntimeError: no luck"),
        ("{own}:number", "callable without arguments, got int"),
        ("{own}:load", r"Expected a torch.nn.Module from \w+:load, got list"),
    ],
)
def test_a_wrong_model_is_refused_with_a_remedy(own, spec, words):
    with pytest.raises(SourceError, match=words):
        load_model(spec.format(own=own))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("molcules", r"did you mean 'molecules'\?"),
        ("grahps.pt", r"There is no file grahps.pt; did you mean 'graphs.pt'\?"),
        ("{own}:build", "Expected PyG graphs"),
        ("{own}:number", "callable without arguments, got int"),
        ("nowhere:at", "There is no module 'nowhere'"),
    ],
)
def test_wrong_graphs_are_refused_with_a_remedy(own, spec, words):
    Path("graphs.pt").touch()
    with pytest.raises(SourceError, match=words):
        load_graphs(spec.format(own=own))


def test_a_module_that_fails_on_import_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("fails_to_load.py").write_text("import not_there_at_all")
    with pytest.raises(SourceError, match="fails_to_load needs the module 'not_there_at_all'"):
        load_model("fails_to_load:build")
    Path("raises_on_load.py").write_text("1 / 0")
    with pytest.raises(SourceError, match="Importing raises_on_load failed: ZeroDivisionError"):
        load_model("raises_on_load:build")


def test_a_model_of_ones_own_needs_graphs(own):
    with pytest.raises(SourceError, match="Which graphs"):
        load_subject(f"{own}:build")
    with pytest.raises(SourceError, match="not both"):
        load_subject("mutag", "molecules", smiles=["C"])


def test_graph_numbers_are_checked():
    subject = load_subject("ba2motif")
    with pytest.raises(SourceError, match="has 1000, numbered 0 to 999"):
        subject.graph(1000)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "3-", "ring=", "-1", "1;2"])
def test_bad_node_lists_are_refused(text):
    with pytest.raises(SourceError, match="Expected nodes such as"):
        options.node_lists([text])


def test_node_lists_have_names_and_ranges():
    assert options.node_lists(["a=2-4,0", " b = 7 "]) == {"a": [2, 3, 4, 0], "b": [7]}
    with pytest.raises(SourceError, match="lower node to the higher"):
        options.node_lists(["4-2"])
    with pytest.raises(SourceError, match="called 'a'"):
        options.node_lists(["a=1", "a=2"])
