"""Heterogeneous graphs in pictures: a shape per type, names, a legend."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection

import walkwise as ww
from typed_graphs import AT, WRITES, Reader, papers
from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError
from walkwise.plotting import activation_curves, graph_heatmap, top_walks, walk_lines
from walkwise.plotting._style import COLOURS

SCORES = {"author": [1.0, -0.5], "paper": [0.25], "venue": [0.0, 0.5]}
EDGES = {WRITES: torch.tensor([[0, 1], [0, 0]]), AT: torch.tensor([[0], [1]])}


def marks(ax):
    """Of the nodes: how many corners their shape has, and how many there are of it."""
    found = [c for c in ax.collections if isinstance(c, PathCollection) and c.get_zorder() == 3]
    return [(len(c.get_paths()[0].vertices), len(c.get_offsets())) for c in found], found


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_each_type_has_a_shape_a_name_and_a_place_in_the_legend(ax):
    graph_heatmap(SCORES, EDGES, ax=ax)
    assert [text.get_text() for text in ax.texts] == ["author 0", "author 1", "paper 0", "venue 0", "venue 1"]
    assert legend(ax) == ["author", "paper", "venue"]
    shapes, drawn = marks(ax)
    assert [count for _, count in shapes] == [2, 1, 2]
    assert len({tuple(c.get_paths()[0].vertices.ravel()) for c in drawn}) == 3
    assert np.allclose(drawn[0].get_facecolors()[1], COLOURS(0.25))  # author 1: half of the way down
    assert np.allclose(drawn[2].get_facecolors()[1], COLOURS(0.75))  # venue 1


def test_edges_band_truth_and_labels_by_type_are_those_of_one_row(ax):
    whole = graph_heatmap(
        [1.0, -0.5, 0.25, 0.0, 0.5], [[0, 1, 2], [2, 2, 4]], edge_scores=[1.0, 2.0, -3.0], subgraph=[1, 2], truth=[4]
    )
    typed = graph_heatmap(
        SCORES,
        EDGES,
        edge_scores={AT: [-3.0], WRITES: [1.0, 2.0]},
        subgraph={"paper": [0], "author": [1]},
        truth={"venue": [1]},
        labels={"author": ["Ann", "Bob"], "paper": ["On Walks"], "venue": ["A", "B"]},
        ax=ax,
    )
    assert [text.get_text() for text in typed.texts] == ["Ann", "Bob", "On Walks", "A", "B"]
    arrows = [[(p.get_edgecolor(), p.get_linewidth() > 1) for p in at.patches] for at in (whole, typed)]
    assert [colour for colour, _ in arrows[0]] == [colour for colour, _ in arrows[1]]
    widths = marks(typed)[1][2].get_linewidths()
    assert widths[1] > 2 * widths[0]  # the truth is ringed


def test_many_nodes_are_drawn_in_part_with_numbers_alone(ax):
    scores = {"user": np.r_[np.ones(10), np.zeros(190)], "item": np.r_[2.0, np.zeros(99)]}
    edges = {("user", "rates", "item"): np.stack([np.arange(200), np.arange(200) // 2])}
    graph_heatmap(scores, edges, ax=ax)
    assert ax.texts[-1].get_text().startswith("285 of 300 nodes")
    assert legend(ax) == ["user", "item"]
    assert [count for _, count in marks(ax)[0]] == [10, 5]
    assert [text.get_text() for text in ax.texts][:12] == [*map(str, range(10)), "0", "1"]


def test_walks_by_type_are_those_by_number():
    data = papers()
    chain = ww.trace(Reader(), data, index=("paper", 1), target=0)
    best = ww.top_walks(chain, 4)
    lines = []
    for walks in (best.named, best.walks):
        ax = top_walks(walks, best.relevance, data)
        assert legend(ax) == ["author", "paper", "venue"]
        assert "author 4" in [text.get_text() for text in ax.texts]
        lines.append([patch.get_path().vertices for patch in ax.patches if patch.get_zorder() >= 5])
    assert all(np.allclose(a, b) for a, b in zip(*lines, strict=True))
    top_walks(best.named, best.relevance, data.edge_index_dict)


def test_lines_of_walks_are_named_by_type():
    named = [[("author", 1), ("paper", 0), ("paper", 0)], [("venue", 0), None, ("paper", 0)]]
    ax = walk_lines(named, [0.5, -0.1])
    texts = [text.get_text() for text in ax.texts]
    assert texts[3:6] == ["author 1", "paper 0", "0.5"]
    assert "venue 0" in texts


def test_orders_of_a_heterogeneous_graph_name_types(ax):
    chain = ww.trace(Reader(), papers(), index=("paper", 1), target=0)
    order = ww.order_nodes(chain)
    activation_curves(np.linspace(0, 1, 13) ** 2, order=order, marks=1, ax=ax)
    assert ax.texts[0].get_text() == chain.types.written([order[-1]])[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"edge_index": torch.tensor([[0], [1]])}, "edge_index must be by type"),
        ({"node_scores": [1.0, 2.0]}, "node_scores must be by type"),
        ({"edge_index": {("author", "knows", "person"): torch.tensor([[0], [0]])}}, "between nodes of types 'author'"),
        ({"edge_index": {WRITES: torch.tensor([[0], [1]])}}, "ids from 0 to 1 above ids from 0 to 0"),
        ({"edge_scores": {WRITES: [1.0, 2.0]}}, "edge_scores must be by the types"),
        ({"subgraph": {"person": [0]}}, "a type of 'author', 'paper', 'venue'"),
        ({"subgraph": {"paper": [1]}}, "There is no node 1 of type 'paper'"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, words, ax):
    with pytest.raises(InputError, match=words):
        graph_heatmap(**{"node_scores": SCORES, "edge_index": EDGES, "ax": ax, **wrong})


def test_types_come_back_from_names():
    types = NodeTypes({"user": 2, "item": 3})
    assert types.numbers([("item", 1), None, ("user", 0)]) == [3, -1, 0]
