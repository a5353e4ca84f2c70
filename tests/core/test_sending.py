"""What was given is checked where it is; what is found is read when all work is queued, or at once."""

import pytest
import torch

import walkwise as ww
from walkwise.core import sending
from walkwise.errors import InputError
from walkwise.tracing import reach

M = 40
ids = torch.tensor
#: What is wrong, and the words that say so.
WRONG = {
    "a table that names no node": (
        lambda c: ww.subgraph_relevance(c, ids([[0, 1], [2, 40]])),
        "Subgraph 1 names node 40",
    ),
    "below all nodes": (lambda c: ww.subgraph_relevance(c, (ids([0, -7]), ids([0, 2])), alpha=0.3), "names node -7"),
    "lists": (lambda c: ww.subgraph_relevance(c, [[0], [1], [2], [3], [4, 99]]), "Subgraph 4 names node 99"),
    "a node twice": (
        lambda c: ww.subgraph_relevance(c, ids([[0, 1], [2, 2]]), alpha=[0.0, 0.5]),
        "node 2 more than once",
    ),
    "a polynomial": (lambda c: ww.subgraph_polynomial(c, ids([[0, 1], [3, 40]])), "Subgraph 1 names node 40"),
    "groups": (lambda c: ww.interactions(c, {"a": [0, 40], "b": [1]}), "names node 40"),
    "walks": (lambda c: ww.walk_relevance(c, [[0, 1, 40]]), "walks names nodes 0 to 40"),
    "walks that pass positions by": (lambda c: ww.walk_relevance(c, [[0, 1, -1]]), "walks names nodes -1 to 1"),
    "edges": (lambda c: ww.edge_relevance(c, edge_index=ids([[0, -1], [1, 40]])), "got ids from -1 to 40"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("later", [set(), {"cpu"}], ids=["at once", "last"])
def test_errors_come_at_once_or_last_but_always_come(net, graph, monkeypatch, name, later):
    chain = ww.trace(net("GCN"), *graph(M), target=0)
    ask, words = WRONG[name]
    monkeypatch.setattr(sending, "_LATER", later)
    with pytest.raises(InputError, match=words):
        ask(chain)


@pytest.mark.parametrize("name", WRONG)
def test_errors_about_one_node_of_a_large_graph_come_too(net, graph, monkeypatch, name):
    monkeypatch.setattr(reach, "_MANY_NODES", 1)
    chain = ww.trace(net("GCN", pooled=False), *graph(M), target=0, index=0)
    assert chain.part is not None
    ask, words = WRONG[name]
    monkeypatch.setattr(sending, "_LATER", {"cpu"})
    with pytest.raises(InputError, match=words):
        ask(chain)


def test_a_verdict_is_read_at_once_in_main_memory():
    heard = []
    verdict = sending.Verdict(torch.tensor([0, 3]), heard.append)
    assert heard == [[0, 3]]
    verdict.read()
    assert heard == [[0, 3], [0, 3]]
