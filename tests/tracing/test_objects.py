"""Graphs as models of one argument take them: a tuple, a dictionary, an object, or names alone."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import walkwise as ww
from walkwise.errors import InputError

X, EDGES, WEIGHT = torch.arange(12.0).view(4, 3) / 9, torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.rand(4)


class Named(NamedTuple):
    x: torch.Tensor
    edge_index: torch.Tensor
    edge_weight: torch.Tensor


@dataclass(frozen=True)
class Graph:
    nodes: torch.Tensor
    edges: torch.Tensor
    weight: torch.Tensor


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.last = GCNConv(3, 4), nn.Linear(4, 2)

    def made(self, x, edge_index, weight=None):
        h = self.conv(x, edge_index, weight).relu()
        x.zero_()  # the caller's stay as they are
        return self.last(h)


class Tuple(Base):
    def forward(self, inputs):
        x, edge_index, weight = inputs
        return self.made(x, edge_index, weight)


class Dictionary(Base):
    def forward(self, inputs):
        return self.made(inputs["features"], inputs["edges"], inputs["weight"])


class Object(Base):
    def forward(self, graph, scale=1.0):
        return self.made(graph.nodes, graph.edges, graph.weight) * scale


class Names(Base):
    def forward(self, **named):
        return self.made(named["x"], named["edge_index"], named["edge_weight"])


class Plain(Base):
    def forward(self, x, edge_index, edge_weight=None):
        return self.made(x, edge_index, edge_weight)


class Pair(Base):
    def forward(self, inputs):
        x, edge_index = inputs
        return self.made(x, edge_index)


CASES = {
    "tuple": (Tuple, (X, EDGES, WEIGHT)),
    "list": (Tuple, [X, EDGES, WEIGHT]),
    "named tuple": (Tuple, Named(X, EDGES, WEIGHT)),
    "dictionary": (Dictionary, {"features": X, "edges": EDGES, "weight": WEIGHT, "label": "a"}),
    "object": (Object, Graph(X, EDGES, WEIGHT)),
    "names": (Names, Data(X, EDGES, edge_weight=WEIGHT, y=torch.ones(1))),
}


@pytest.mark.parametrize("name", CASES)
def test_one_object_is_taken_as_it_is(name):
    kind, graph = CASES[name]
    kept = X.clone()
    chain = ww.trace(kind(), graph, index=1, target=0)
    expected = ww.trace(Plain(), X, EDGES, edge_weight=WEIGHT, index=1, target=0)
    torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(expected))
    torch.testing.assert_close(chain.edge_index, EDGES)
    assert torch.equal(X, kept)


def test_what_is_given_beside_an_object_stays_beside_it():
    one, two = (
        ww.trace(Object(), Graph(X, EDGES, WEIGHT), index=1, target=0, rule="zero", **more)
        for more in ({}, {"scale": torch.tensor(2.0)})
    )
    assert two.output == pytest.approx(2 * one.output)


def test_names_alone_for_what_wraps_another_model():
    class Wraps(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Plain()

        def forward(self, **named):
            return self.inner(**named)

    expected = ww.node_relevance(ww.trace(Plain(), X, EDGES, index=1, target=0))
    for graph in ((X, EDGES), (Data(X, EDGES, y=torch.ones(1), edge_attr=torch.ones(4, 1)),)):
        torch.testing.assert_close(ww.node_relevance(ww.trace(Wraps(), *graph, index=1, target=0)), expected)


@pytest.mark.parametrize(
    ("kind", "graph", "words"),
    [
        (Pair, Data(X, EDGES), r"unpacks inputs into 2 parts, .* a Data .*ww\.trace\(model, \(data\.x, data\.edge_i"),
        (Dictionary, Data(features=X, edges=EDGES), r"neither x nor num_nodes; it has edges, features\. Call its"),
        (Dictionary, {"a": X, "b": X, "edges": EDGES}, r"which parts of this dict .*a, b, edges.*data\[\"x\"\]"),
        (Dictionary, {"a": X}, r"dictionaries by type.*Data\(x=\.\.\., edge_index=\.\.\.\)"),
        (Plain, [X, EDGES], r"got list\. If forward takes them one by one, write ww\.trace\(model, \*x\)"),
        (Plain, Graph(X, EDGES, WEIGHT), r"got Graph\. Write ww\.trace\(model, Data\(x=\.\.\., edge_index=\.\.\.\)\)"),
        (Plain, {"x": X, "edge_index": EDGES}, r"got dict and no edges.*Data\(x=\.\.\., edge_index=\.\.\.\)"),
    ],
    ids=["pair", "no x", "untold", "no edges", "one by one", "no object", "no dictionary"],
)
def test_what_cannot_be_taken_is_refused_with_what_to_write(kind, graph, words):
    with pytest.raises(InputError, match=words):
        ww.trace(kind(), graph, index=1, target=0)


class Own(nn.Module):
    """Has no layers that say which dimension they take."""

    def forward(self, x, adj):
        return x


def test_features_have_a_dimension_for_the_nodes():
    with pytest.raises(InputError, match=r"names nodes 0 to 3, .* \(1, 2, 2, 1\): no dimension has as many"):
        ww.trace(Plain(), torch.rand(1, 2, 2, 1), EDGES)
    with pytest.raises(InputError, match=r"The adjacency joins 3 nodes, .* \(1, 2, 5, 4\): no dimension has as many"):
        ww.trace(Plain(), torch.rand(1, 2, 5, 4), torch.eye(3))  # as models of traffic have it
    with pytest.raises(InputError, match=r"\(1, 3, 5, 3\): several dimensions .* Pass other numbers of steps"):
        ww.trace(Own(), torch.rand(1, 3, 5, 3), torch.eye(3))
    with pytest.raises(InputError, match=r"\(1, 2, 5, 4\): several dimensions .* Data\(x=.*num_nodes=M\)"):
        ww.trace(Own(), torch.rand(1, 2, 5, 4), EDGES)


MORE = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 1]])


class InAnyOrder(Base):
    """Takes the places of features and edges in what it is given from outside."""

    def __init__(self, x, edges):
        super().__init__()
        self.places = x, edges

    def forward(self, inputs):
        x, edges = (inputs[place] for place in self.places)
        return self.made(x, edges)


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ((torch.rand(5, 3), X, MORE), (1, 2)),
        ({"bonds": torch.rand(5, 3), "atoms": X, "ends": MORE}, ("atoms", "ends")),
        ((torch.rand(2, 3), EDGES, X), (2, 1)),
    ],
)  # fmt: skip
def test_features_of_edges_are_not_those_of_nodes(given, places):
    """Whichever comes first."""
    chain = ww.trace(InAnyOrder(*places), given, index=1, target=0, rule="zero")
    alone = ww.trace(InAnyOrder(0, 1), (X, given[places[1]]), index=1, target=0, rule="zero")
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(alone))
    assert not any("counts as constant" in note for note in chain.notes)


def test_which_of_two_matrices_is_taken_for_the_features_is_said():
    chain = ww.trace(InAnyOrder(0, 2), (X, torch.rand(4, 2), EDGES), index=1, target=0)
    assert "part 0 is taken for the node features; 1 ((4, 2)) counts as constant" in " ".join(chain.notes)
