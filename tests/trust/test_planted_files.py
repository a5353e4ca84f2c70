"""Files that want to run something, put before every reader there is: nothing runs."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from walkwise import datasets, models
from walkwise.cli.sources import load_graphs, load_model
from walkwise.datasets import wordvectors
from walkwise.datasets.graph_files import read_graphs
from walkwise.datasets.pickles import read_arrays
from walkwise.errors import WalkwiseError
from walkwise.paper.units import Store, Unit


class Trap:
    """Unpickled, it touches a file."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.system, (f"touch '{self.marker}'",)


def traps(marker):
    """The same trap in every wrapping that some reader may open: name and content."""
    trap = Trap(marker)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield f"pickle {protocol}", pickle.dumps(trap, protocol)
    yield "in a tuple", pickle.dumps((np.ones(3), trap, np.ones(3)))
    yield "in an array", pickle.dumps(np.array([trap], dtype=object))
    yield "builtins", b"cbuiltins\neval\n(S'open(%r, \"w\")'\ntR." % str(marker).encode()
    yield "torch", saved(trap)
    yield "torch, in a graph", saved(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), extra=trap))
    yield "torch, in a data set", saved(({"x": trap}, {"x": torch.tensor([0, 1])}, {}, Data))
    yield "torch, old", saved(trap, _use_new_zipfile_serialization=False)
    yield "npz", archive({name: array_of(trap) for name in ("edge_index", "offsets", "y", "split", "W0", "b0")})
    yield "npy", array_of(trap)
    yield "safetensors", odd_header({"__metadata__": {"model": "__import__('os')"}, "a": {"dtype": "pickle"}})
    yield "safetensors, endless", struct.pack("<Q", 2**63 - 1) + b"{}"
    yield "json", json.dumps({"py/reduce": [{"py/function": "os.system"}, [f"touch {marker}"]]}).encode()


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def array_of(trap):
    file = io.BytesIO()
    np.save(file, np.array([trap], dtype=object), allow_pickle=True)
    return file.getvalue()


def archive(members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in members.items():
            made.writestr(f"{name}.npy", content)
    return file.getvalue()


def odd_header(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


#: Every file of a data root, beside which loaders have been known to keep caches.
ROOT_FILES = [
    "ba2motif/raw/BA-2motif.pkl",
    *(f"tu/{name}/raw/{name}_{part}.txt" for name in ("MUTAG", "Mutagenicity", "REDDIT-BINARY") for part in ("A",)),
    "Graph-SST2/raw/Graph-SST2_node_features.pkl",
    "Graph-SST2/raw/Graph-SST2_node_indicator.txt",
    "Graph-SST2/raw/Graph-SST2_sentence_tokens.json",
]
REBUILT_FILES = ["graph-sst2-rebuilt/graph_sst2_rebuilt.npz", "graph-sst2-rebuilt/tokens.json"]
CACHES = [
    f"{folder}/processed/{name}"
    for folder in ("ba2motif", "tu/MUTAG", "Graph-SST2")
    for name in ("data.pt", "pre_filter.pt", "pre_transform.pt")
]

MUTAG = {
    "A": "\n".join(f"{2 * g + 1}, {2 * g + 2}\n{2 * g + 2}, {2 * g + 1}" for g in range(120)),
    "graph_indicator": "\n".join(f"{g + 1}\n{g + 1}" for g in range(120)),
    "graph_labels": "\n".join(str(1 - 2 * (g % 2)) for g in range(120)),
    "node_labels": "\n".join(str(i % 7) for i in range(240)),
}


def whole_mutag(root):
    """A small set in MUTAG's layout."""
    raw = root / "tu/MUTAG/raw"
    raw.mkdir(parents=True)
    for part, lines in MUTAG.items():
        (raw / f"MUTAG_{part}.txt").write_text(lines + "\n")


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def asked(action, *arguments, **options):
    """Whether it was refused by an error of ours; any other is a failure."""
    try:
        action(*arguments, **options)
    except WalkwiseError:
        return True
    return False


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """A file that must not be there at the end; nothing is fetched meanwhile."""

    def offline(*arguments, **options):
        raise OSError("no network")

    monkeypatch.setattr("torch_geometric.data.download_url", offline)
    path = tmp_path / "code has run"
    yield path
    assert not path.exists()


def test_the_traps_do_run_where_nothing_is_checked(tmp_path):
    """Otherwise the tests below would prove nothing."""
    marker = tmp_path / "code has run"
    path = put(tmp_path / "trap.pt", dict(traps(marker))["torch"])
    torch.load(path, weights_only=False)
    assert marker.exists()


def test_every_file_of_a_data_root(tmp_path, marker):
    for kind, content in traps(marker):
        root = tmp_path / kind.replace(" ", "-")
        for name in (*ROOT_FILES, *CACHES):
            put(root / name, content)
        for name in ("ba2motif", "mutag", "mutagenicity", "reddit-binary", "graph-sst2"):
            assert asked(datasets.load, name, root=root), (kind, name)
        alone = tmp_path / f"{kind} rebuilt"
        for name in REBUILT_FILES:
            put(alone / name, content)
        assert asked(datasets.load, "graph-sst2", root=alone), kind
        assert not marker.exists(), kind


def test_a_cache_beside_whole_files_is_not_opened(tmp_path, marker):
    whole_mutag(tmp_path)
    for kind, content in traps(marker):
        for name in CACHES:
            put(tmp_path / name, content)
        assert len(datasets.load("mutag", root=tmp_path).graphs) == 120, kind
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    datasets.load("mutag", root=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before  # and none is written


@pytest.mark.parametrize("ending", [".pt", ".pth", ".safetensors", ".pkl", ".npz", ".json", ""])
def test_files_named_one_by_one(tmp_path, marker, ending):
    for number, (kind, content) in enumerate(traps(marker)):
        path = put(tmp_path / f"{number}{ending}", content)
        assert asked(read_graphs, path), kind
        assert asked(read_arrays, path), kind
        assert asked(load_graphs, str(path)), kind
        assert asked(load_model, str(path)), kind
        assert asked(load_model, "ba2motif-gin3", weights=path), kind
        assert asked(models.open_weights, path), kind
        assert asked(models.load_weights, models.build("ba2motif-gin2"), path), kind
        assert not marker.exists(), kind


def test_arrays_of_models_and_kept_results(tmp_path, marker):
    layer = {"out_width": 1, "W": "W0", "b": "b0", "aggregates": True}
    meta = {"kind": "gin", "input_width": 1, "num_classes": 1, "L": 1, "blocks": [{"layers": [layer]}]}
    unit = Unit("a", {}, list)
    for kind, content in traps(marker):
        put(tmp_path / "m.npz", content)
        put(tmp_path / "m.json", json.dumps(meta).encode())
        assert asked(models.from_arrays, tmp_path, "m"), kind
        put(tmp_path / "m.json", content)
        assert asked(models.from_arrays, tmp_path, "m"), kind
        put(Store(tmp_path).path(unit), content)
        assert asked(Store(tmp_path).read, unit), kind
        assert not marker.exists(), kind


def test_word_vectors(tmp_path, marker, monkeypatch):
    pytest.importorskip("pyarrow")

    class Package:
        ROOT = str(tmp_path)

    real = wordvectors._packages()[1:] if _has_vectors() else None
    if real is None:
        pytest.skip("needs the word vectors' package")
    monkeypatch.setattr(wordvectors, "_packages", lambda: (Package, *real))
    for kind, content in traps(marker):
        put(tmp_path / "glove_6B_50d_emb.npy", content)
        put(tmp_path / "glove_6B_index.parquet", content)
        assert asked(wordvectors.word_vectors, ["good"]), kind
        assert not marker.exists(), kind


def _has_vectors():
    try:
        wordvectors._packages()
    except WalkwiseError:
        return False
    return True


def test_no_code_of_ours_asks_for_an_unchecked_load():
    """Nothing opens a pickle without a check, and no data set goes through a loader that does."""
    source = Path(datasets.__file__).parents[1]
    #: What a process writes for its own workers, in a file that nobody else may write.
    own = (source / "runs" / "local.py").read_text(encoding="utf-8")
    assert own.count("pickle.load") == 1
    assert "tempfile.mkstemp(" in own
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for word in ("weights_only=False", "allow_pickle=True", "pickle.load", "TUDataset", "BA2MotifDataset", "eval("):
            allowed = word == "eval(" and (".eval()" in text or "_eval(" in text)
            allowed |= word == "pickle.load" and text == own
            assert allowed or word not in text, f"{word} in {path.name}"
        assert text.count("torch.load(") == text.count("weights_only=True"), path.name
        assert text.count("np.load(") == text.count("allow_pickle=False"), path.name
