"""The paper's models: architecture, the authors' weights, and files of weights."""

import itertools
import json
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from authors import ROOT, golden, load, mutag, needs_golden
from walkwise import datasets, models, training
from walkwise.datasets import ba2motif
from walkwise.errors import InputError


def dense(model, x, edge_index):
    """The definition: Λ = (A + I)/2 before the first linear map of a block, the ½ taken out of its weight again."""
    A = torch.zeros(len(x), len(x), dtype=x.dtype)
    A[edge_index[1], edge_index[0]] = 1
    Λ = (A + torch.eye(len(x), dtype=x.dtype)) / 2
    for conv in model.convs:
        linears = [module for module in conv.nn if isinstance(module, nn.Linear)]
        h = Λ @ x @ (2 * linears[0].weight.t()) + linears[0].bias
        for linear in linears[1:]:
            h = h.clamp(min=0) @ linear.weight.t() + linear.bias
        x = h if conv is model.convs[-1] else h.clamp(min=0)
    return x.sum(dim=0) / 20**0.5


@pytest.mark.parametrize("kind", [models.GIN, models.GCN])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_forward_is_the_papers(graph, kind, depth):
    x, edge_index = graph()
    model = kind(3, 5, 2, depth).double()
    torch.testing.assert_close(model(x, edge_index)[0], dense(model, x, edge_index))
    two = model(torch.cat([x, x]), torch.cat([edge_index, edge_index + 6], dim=1), torch.arange(12) // 6, 3)
    torch.testing.assert_close(two[1], model(x, edge_index)[0])
    assert two[2].tolist() == [0, 0]  # the third graph has no nodes


@pytest.mark.parametrize("name", models.names())
def test_models_have_the_papers_sizes(name):
    data, _, kind = name.rpartition("-")
    model = models.build(name)
    width = {"ba2motif": 20, "mutag": 128, "mutagenicity": 128, "reddit-binary": 64, "graph-sst2": 20}.get(data, 64)
    assert model.sizes["hidden_channels"] == width
    assert len(model.convs) == int(kind[-1])
    per_block = 1 if kind.startswith("gcn") else 2
    assert sum(isinstance(module, nn.Linear) for module in model.modules()) == per_block * (int(kind[-1]) - 1) + 1
    assert all((p < 0).all() for n, p in model.named_parameters() if n.endswith("bias"))


def test_another_width_of_features():
    assert models.build("graph-sst2-gcn3", in_channels=768).convs[0].nn[0].in_features == 768


def test_refusals():
    with pytest.raises(InputError, match="Unknown model 'gin': expected one of ba2motif-gin2, "):
        models.build("gin")
    with pytest.raises(InputError, match="num_layers must be a positive integer, got 0"):
        models.GIN(1, 2, 2, 0)


# -- the authors' arrays ------------------------------------------------------------------------------


@needs_golden
def test_authors_arrays_by_hand():
    """One molecule through their formulas, array by array."""
    folder = ROOT / "golden/weights"
    for path in sorted(folder.glob("*.npz")):
        arrays, meta = np.load(path), golden(f"weights/{path.stem}")
        rng = np.random.default_rng(0)
        A = np.triu(rng.random((8, 8)) < 0.4, 1)
        A = (A | A.T).astype(float)
        h = first = rng.random((8, meta["input_width"]))
        for block in meta["blocks"]:
            for layer in block["layers"]:
                mixed = (A + np.eye(8)).T / 2 @ h if layer["aggregates"] else h
                h = mixed @ arrays[layer["W"]].astype(float) + arrays[layer["b"]]
                h = np.maximum(h, 0) if layer["relu"] else h
        ours = load(path.stem)(torch.from_numpy(first), torch.from_numpy(A).nonzero().t())
        np.testing.assert_allclose(ours[0].detach().numpy(), h.sum(axis=0) / 20**0.5, rtol=1e-10)


@needs_golden
def test_authors_mutag_accuracy():
    """Near the paper's 85 % and above on their own graphs, training graphs included."""
    model = load("gin-3-mutag")
    right = [int(model(data.x, data.edge_index).argmax()) == data.y for data in mutag()]
    assert sum(right) / len(right) > 0.85


def test_unknown_arrays(tmp_path):
    with pytest.raises(InputError, match=r"Expected gin-9\.json and gin-9\.npz in .*: none"):
        models.from_arrays(tmp_path, "gin-9")


# -- files of weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [models.GIN, models.GCN])
def test_a_file_rebuilds_its_model(graph, tmp_path, kind):
    x, edge_index = graph()
    model = kind(3, 5, 2, 3).double()
    models.save_weights(model, tmp_path / "m.safetensors")
    again = models.open_weights(tmp_path / "m.safetensors")
    assert type(again) is kind
    assert again.sizes == model.sizes
    assert not again.training
    assert torch.equal(again(x, edge_index), model(x, edge_index))
    other = models.load_weights(kind(3, 5, 2, 3).double(), tmp_path / "m.safetensors")
    assert torch.equal(other(x, edge_index), model(x, edge_index))


def test_wrong_sizes_are_named(tmp_path):
    models.save_weights(models.GIN(1, 4, 2, 2), tmp_path / "m.safetensors")
    wider = models.GIN(1, 5, 2, 2)
    before = {name: value.clone() for name, value in wider.state_dict().items()}
    with pytest.raises(InputError, match=r"convs\.0\.nn\.0\.weight is \(4, 1\) instead of \(5, 1\).*and 1 more"):
        models.load_weights(wider, tmp_path / "m.safetensors")
    assert all(torch.equal(value, before[name]) for name, value in wider.state_dict().items())
    with pytest.raises(InputError, match=r"convs\.1\.nn\.2\.bias is missing"):
        models.load_weights(models.GIN(1, 4, 2, 3), tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=r"is not in the model"):
        models.load_weights(nn.Linear(1, 1), tmp_path / "m.safetensors")


def test_files_of_other_kinds(tmp_path):
    model = models.GIN(1, 4, 2, 2)
    with pytest.raises(InputError, match="does not exist"):
        models.load_weights(model, tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("weights")
    with pytest.raises(InputError, match="Expected a safetensors file"):
        models.load_weights(model, tmp_path / "text.safetensors")
    save_file(model.state_dict(), tmp_path / "bare.safetensors")
    models.load_weights(model, tmp_path / "bare.safetensors")
    with pytest.raises(InputError, match="load_weights"):
        models.open_weights(tmp_path / "bare.safetensors")
    header = {"model": json.dumps({"kind": "GIN", "in_channels": 1})}
    save_file(model.state_dict(), tmp_path / "half.safetensors", metadata=header)
    with pytest.raises(InputError, match="load_weights"):
        models.open_weights(tmp_path / "half.safetensors")


class Trap:
    def __reduce__(self):
        return print, ("code of a stranger has run",)


def test_torch_files_hold_tensors_or_are_refused(tmp_path, capsys):
    model, other = models.GIN(1, 4, 2, 2), models.GIN(1, 4, 2, 2)
    torch.save(model.state_dict(), tmp_path / "m.pt")
    models.load_weights(other, tmp_path / "m.pt")
    assert torch.equal(other.convs[0].nn[0].weight, model.convs[0].nn[0].weight)
    torch.save({"convs.0.nn.0.weight": Trap()}, tmp_path / "trap.pt")
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(Trap(), protocol=2))
    for name in ("trap.pt", "bare.pt"):
        with pytest.raises(InputError, match="only tensors"):
            models.load_weights(model, tmp_path / name)
    assert capsys.readouterr().out == ""


# -- models that come with the package --------------------------------------------------------------------


@pytest.mark.parametrize(("name", "width"), [("ba2motif", 1), ("mutag", 7), ("mutagenicity", 17)])
def test_bundled_models(name, width):
    model = models.bundled(name)
    assert isinstance(model, models.GIN)
    assert (model.sizes["in_channels"], model.sizes["num_layers"], model.training) == (width, 3, False)
    assert all((p <= 0).all() for n, p in model.named_parameters() if n.endswith("bias"))


def test_bundled_model_knows_motifs():
    model, graphs = models.bundled("ba2motif"), datasets.load("ba2motif-generated")
    assert training.evaluate(model, graphs.graphs, graphs.test)[1] >= 0.98
    fresh = datasets.pack(ba2motif.generate(200, seed=1))
    assert training.evaluate(model, fresh, torch.arange(200))[1] >= 0.97


def test_unknown_bundled_model():
    with pytest.raises(InputError, match="Unknown bundled model 'reddit': expected one of ba2motif, mutag"):
        models.bundled("reddit")


# -- the authors' files ---------------------------------------------------------------------------


def _published(path, monkeypatch, name="GNN", widths=((1,), (1, 20, 20), (20, 2))):
    """A file as the authors publish them: objects of classes in a module that is not there."""
    module = types.ModuleType("modules")
    for kind in ("Block", name):
        setattr(module, kind, type(kind, (), {"__module__": "modules"}))
    monkeypatch.setitem(sys.modules, "modules", module)
    torch.manual_seed(0)
    found = getattr(module, name)()
    found.blocks = []
    for sizes in widths:
        block = module.Block()
        pairs = list(itertools.pairwise(sizes))
        block.W = [torch.nn.Parameter(torch.randn(1, a, b)) for a, b in pairs]
        block.B = [torch.nn.Parameter(torch.randn(1, b)) for _, b in pairs]
        found.blocks.append(block)
    torch.save(found, path)
    monkeypatch.delitem(sys.modules, "modules")
    return found


def test_the_authors_files_are_read_without_running_them(tmp_path, monkeypatch):
    theirs = _published(tmp_path / "gin-2.torch", monkeypatch)
    model = models.load_authors(tmp_path / "gin-2.torch")
    assert (type(model), model.sizes["num_layers"]) == (models.GIN, 2)
    A = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]).double()  # with the diagonal, as they have it
    H = torch.ones(3, 1).double()
    for block in theirs.blocks[1:]:
        for i, (W, b) in enumerate(zip(block.W, block.B, strict=True)):
            z = (A.t() / 2 @ H if i == 0 else H) @ W[0].double() - 0.5 * (1 + (-2 * b[0].double()).exp()).log()
            H = z.clamp(min=0) if W.shape[2] > 10 else z
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    assert torch.allclose(model(torch.ones(3, 1).double(), edges)[0], H.sum(0) / 20**0.5, rtol=1e-10)
    _published(tmp_path / "gcn-2.torch", monkeypatch, widths=((4,), (4, 20), (20, 2)))
    assert type(models.load_authors(tmp_path / "gcn-2.torch")) is models.GCN


def test_other_classes_and_other_files_are_refused(tmp_path, monkeypatch):
    _published(tmp_path / "other.torch", monkeypatch, name="Other")
    with pytest.raises(InputError, match="Expected a model of the paper's authors"):
        models.load_authors(tmp_path / "other.torch")
    torch.save({"a": torch.ones(1)}, tmp_path / "state.torch")
    with pytest.raises(InputError, match="Expected a model of the paper's authors"):
        models.load_authors(tmp_path / "state.torch")
    with pytest.raises(InputError, match="Expected a model of the paper's authors"):
        models.load_authors(tmp_path / "none.torch")
