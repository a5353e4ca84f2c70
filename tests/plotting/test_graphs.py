"""Graph heat maps and layouts: what is drawn where, in which colour."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Ellipse, FancyArrowPatch, Polygon

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.plotting import graph_heatmap, graph_layout
from walkwise.plotting.layouts import part_that_matters
from walkwise.plotting.structures import small_rings

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


def scatters(ax):
    return [c for c in ax.collections if isinstance(c, PathCollection)]


def lines(ax):
    """The edges: of the line collections the last, since the band comes first."""
    return [c for c in ax.collections if isinstance(c, LineCollection)][-1]


def bar(ax):
    return next(other for other in ax.figure.axes if other is not ax)


def test_colours_have_the_sign_of_the_scores(ax):
    graph_heatmap([2.0, -1.0, 0.0, 1.0], PATH, ax=ax)
    fill = scatters(ax)[-1].get_facecolors()
    assert fill[0] == pytest.approx(to_rgba(style.POSITIVE), abs=0.01)  # the largest magnitude: the end of the colours
    assert fill[1, 2] > fill[1, 0]  # blue above red
    assert fill[3, 0] > fill[3, 2]
    assert fill[2] == pytest.approx(to_rgba(style.ZERO), abs=0.01)


def test_a_limit_is_shared_between_panels(ax):
    graph_heatmap([1.0, 0.0, 0.0, -1.0], PATH, limit=2.0, ax=ax)
    assert scatters(ax)[-1].get_facecolors()[0] == pytest.approx(style.COLOURS(0.75), abs=0.01)
    assert [t.get_text() for t in bar(ax).get_xticklabels()] == ["0", "−2 against", "for +2"]


def test_the_bar_says_what_it_means(ax):
    graph_heatmap([2.0, -1.0, 0.0, 1.5], PATH, meaning='relevance for "house"', subgraph=[0], truth=[1], ax=ax)
    assert bar(ax).get_xlabel() == 'relevance for "house", sums to 2.5\nband: the subgraph, ring: the truth'
    assert [t.get_text() for t in bar(ax).get_xticklabels()] == ["0", "−2 against", "for +2"]


def test_the_bar_can_be_left_out(ax):
    graph_heatmap([2.0, -1.0, 0.0, 1.5], PATH, bar=False, ax=ax)
    assert ax.figure.axes == [ax]


def test_edges_in_both_directions_are_one_line_with_the_sum(ax):
    scores = torch.tensor([1.0, 2.0, -0.5, -0.5, 0.0, 0.0])
    graph_heatmap(torch.zeros(4), PATH, edge_scores=scores, ax=ax)
    assert len(lines(ax).get_segments()) == 3
    widths = lines(ax).get_linewidths()
    assert widths[0] > widths[1] > widths[2]
    colour = lines(ax).get_colors()
    assert colour[0] == pytest.approx(to_rgba(style.POSITIVE), abs=0.01)
    assert colour[1, 2] > colour[1, 0]
    assert "edges: ±3" in bar(ax).get_xlabel()


def test_one_way_edges_are_arrows_and_loops_are_rings(ax):
    graph_heatmap([1.0, 2.0, 3.0], [[0, 1, 1, 2], [1, 0, 2, 2]], ax=ax)
    assert len(lines(ax).get_segments()) == 1
    (arrow,) = [p for p in ax.patches if isinstance(p, FancyArrowPatch)]
    places = scatters(ax)[-1].get_offsets()
    assert np.allclose(arrow._posA_posB, places[[1, 2]])  # from 1 to 2, not back
    assert len([p for p in ax.patches if isinstance(p, Ellipse)]) == 1


def test_an_arrow_against_the_numbering(ax):
    graph_heatmap([1.0, 2.0], [[1], [0]], ax=ax)
    (arrow,) = ax.patches
    assert np.allclose(arrow._posA_posB, scatters(ax)[-1].get_offsets()[[1, 0]])


def test_the_band_encloses_the_subgraph_and_its_edges(ax):
    graph_heatmap([1.0, 2.0, 3.0, 4.0], PATH, subgraph=[1, 2], ax=ax)
    dark, light, nodes = scatters(ax)
    places = nodes.get_offsets()
    assert np.allclose(dark.get_offsets(), places[[1, 2]])
    assert dark.get_sizes()[0] > light.get_sizes()[0] > nodes.get_sizes()[0]
    assert dark.zorder < light.zorder < nodes.zorder
    bands = [c for c in ax.collections if isinstance(c, LineCollection)][:2]
    assert all(np.allclose(band.get_segments(), [places[[1, 2]]]) for band in bands)


def test_the_truth_is_ringed(ax):
    graph_heatmap([1.0, 2.0, 3.0, 4.0], PATH, truth=torch.tensor([False, True, False, False]), ax=ax)
    widths = scatters(ax)[-1].get_linewidths()
    assert np.argmax(widths) == 1
    assert len(set(widths)) == 2


def test_labels(ax):
    graph_heatmap([1.0, 2.0], [[0], [1]], labels=["C", "Cl"], ax=ax)
    assert [t.get_text() for t in ax.texts] == ["C", "Cl"]
    assert [t.get_position() for t in ax.texts] == [tuple(p) for p in scatters(ax)[-1].get_offsets()]


def test_no_labels(ax):
    graph_heatmap([1.0, 2.0], [[0], [1]], labels=[], ax=ax)
    assert not ax.texts


def test_of_large_graphs_the_part_that_matters_is_drawn(ax):
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(1, 400), rng.integers(0, np.arange(1, 400))])
    scores = np.where(np.arange(400) % 10 == 0, rng.normal(size=400), 0.0)
    graph_heatmap(scores, np.concatenate([edges, edges[::-1]], 1), subgraph=[0, 1, 2], ax=ax)
    (words,) = (text.get_text() for text in ax.texts)
    assert words == "280 of 400 nodes, of no relevance, are not drawn"
    assert len(scatters(ax)[-1].get_offsets()) == 120
    ax.clear()
    graph_heatmap(scores, edges, positions=rng.normal(size=(400, 2)), ax=ax)  # places that are given are kept
    assert not ax.texts


def test_the_nodes_of_a_part_keep_their_ids():
    path = np.stack([np.arange(199), np.arange(1, 200)])
    scores = np.where(np.arange(200) >= 190, 1.0, 0.0)
    labels = [f"n{i}" for i in range(200)]
    for given, names in ((None, [str(i) for i in range(190, 200)]), (labels, labels[190:])):
        ax = graph_heatmap(scores, path, labels=given)
        assert [text.get_text() for text in ax.texts][-11:-1] == names


def test_the_part_that_matters_is_joined():
    path = np.stack([np.arange(9), np.arange(1, 10)])
    weight = np.array([5.0, 0, 0, 4, 0, 0, 0, 0, 0, 3])
    assert part_that_matters(weight, path, 4).tolist() == [0, 1, 2, 3]
    assert part_that_matters(weight, path, 5).tolist() == [0, 1, 2, 3, 9]  # six steps away: on its own
    assert part_that_matters(np.zeros(10), path, 3).tolist() == [0, 1, 2]


def test_small_rings_have_no_light_between_their_sides(ax):
    triangle = np.array([[0, 1, 2], [1, 2, 0]])
    graph_heatmap(np.ones(3), triangle, subgraph=[0, 1, 2], ax=ax)
    assert len([patch for patch in ax.patches if isinstance(patch, Polygon)]) == 1
    assert small_rings(np.array([[0, 1], [1, 2], [2, 3], [3, 0]])) == [[0, 1, 2, 3]]
    assert small_rings(np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]])) == []


def test_a_band_is_not_cut(ax):
    places = np.array([[0.0, 0.0], [1.0, 0.0]])
    graph_heatmap(np.ones(2), np.array([[0], [1]]), positions=places, subgraph=[0, 1], ax=ax)
    band = ax.collections[0]
    reach = band.get_sizes().max() ** 0.5 / 2 / style.points_per_unit(ax)
    assert ax.get_xlim()[0] <= -reach
    assert ax.get_xlim()[1] >= 1 + reach


@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_graphs_without_edges(ax, num_nodes):
    graph_heatmap(np.zeros(num_nodes), torch.zeros(2, 0, dtype=torch.long), subgraph=[0][:num_nodes], ax=ax)
    assert len(scatters(ax)[-1].get_offsets()) == num_nodes
    assert [t.get_text() for t in bar(ax).get_xticklabels()] == ["0"]  # no scale to speak of
    ax.figure.canvas.draw()


def test_positions_given_are_used(ax):
    places = torch.tensor([[0.0, 0.0], [1.0, 5.0]])
    graph_heatmap([1.0, 2.0], [[0], [1]], positions=places, ax=ax)
    assert scatters(ax)[-1].get_offsets().tolist() == places.tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"node_scores": [1.0, 2.0]}, "node ids from 0 to 1"),
        ({"edge_scores": [1.0]}, "edge_scores must be a vector of 6"),
        ({"positions": [[0.0, 0.0]]}, r"positions must be of shape \(4, 2\)"),
        ({"labels": ["a"]}, "labels has 1 entries for 4"),
        ({"edge_index": [[0, 1]]}, "edge_index must be pairs of node ids"),
        ({"edge_index": [[0.5], [1.0]]}, "edge_index must be pairs of node ids"),
        ({"subgraph": [4]}, "subgraph must be node ids"),
    ],
)
def test_what_does_not_fit_is_refused(ax, wrong, message):
    with pytest.raises(InputError, match=message):
        graph_heatmap(**{"node_scores": np.ones(4), "edge_index": PATH, "ax": ax, **wrong})


# -- layouts ----------------------------------------------------------------------------------


def test_a_cycle_is_laid_out_as_a_cycle():
    ring = np.arange(6)
    places = graph_layout(np.stack([ring, np.roll(ring, -1)]), 6)
    assert np.hypot(*(places - places.mean(0)).T) == pytest.approx(np.full(6, 1.1), abs=0.25)
    steps = np.hypot(*(places - np.roll(places, -1, axis=0)).T)
    assert steps == pytest.approx(np.full(6, steps.mean()), rel=0.05)


def test_a_layout_depends_on_the_seed_alone():
    rng = np.random.default_rng(1)
    edges = np.stack([np.arange(1, 30), rng.integers(0, np.arange(1, 30))])
    assert np.array_equal(graph_layout(edges, 30), graph_layout(edges, 30))
    assert not np.allclose(graph_layout(edges, 30), graph_layout(edges, 30, seed=1))


def test_the_longest_side_lies():
    chain = np.stack([np.arange(19), np.arange(1, 20)])
    wide, high = np.ptp(graph_layout(chain, 20), axis=0)
    assert wide > 3 * high


def test_parts_are_kept_apart():
    places = graph_layout(np.array([[0, 1, 3, 4], [1, 2, 4, 5]]), 7)
    apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    assert apart[np.triu_indices(7, 1)].min() > 0.5
    assert apart[0, 3] > apart[0, 1]


def test_twins_do_not_coincide():
    star = np.stack([np.zeros(12, dtype=int), np.arange(1, 13)])
    places = graph_layout(star, 13)
    apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) + 9 * np.eye(13)
    assert apart.min() > 0.4


def test_small_trees_do_not_cross_themselves():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        edges = np.stack([np.arange(1, 20), rng.integers(0, np.arange(1, 20))])
        assert crossings(graph_layout(edges, 20), edges) <= 1


def crossings(places, edges):
    """By asking of every pair of edges whether each parts the ends of the other."""
    count = 0
    for one, other in itertools.combinations(edges.T, 2):
        (a, b), (c, d) = places[one], places[other]
        if not {*one} & {*other}:
            count += turn(a, b, c) * turn(a, b, d) < 0 and turn(c, d, a) * turn(c, d, b) < 0
    return count


def turn(p, q, r):
    return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
