"""Walks over their structure."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.path import Path

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.plotting import graph_heatmap, graph_layout, molecule_layout, top_walks

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])


def curves(ax):
    """The vertices of every walk, one start and three per step."""
    return [patch._path_original.vertices for patch in ax.patches]


def test_widths_follow_magnitudes_and_colours_signs(ax):
    top_walks([[0, 1], [1, 2], [2, 3]], [0.2, -1.0, 0.5], PATH, positions=PLACES, ax=ax)
    widths = [patch.get_linewidth() for patch in ax.patches]
    assert widths[0] > widths[1] > widths[2]  # the most relevant comes first
    signs = [patch.get_edgecolor() for patch in ax.patches]
    assert signs == [to_rgba(style.NEGATIVE), to_rgba(style.POSITIVE), to_rgba(style.POSITIVE)]
    assert [tuple(np.round(c[0])) for c in curves(ax)] == [(1, 0), (2, 0), (0, 0)]


def test_only_k_walks_are_drawn(ax):
    top_walks([[0, 1], [1, 2], [2, 3]], [0.2, -1.0, 0.5], PATH, k=2, ax=ax)
    assert len(ax.patches) == 2


def test_a_walk_goes_through_its_nodes_in_order(ax):
    top_walks([[0, 1, 2, 1]], [1.0], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    assert vertices[::3].tolist() == PLACES[[0, 1, 2, 1]].tolist()


def test_positions_passed_by_are_skipped(ax):
    top_walks([[0, -1, 1], [2, -1, -1]], [1.0, 0.5], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    assert len(vertices) == 4  # one step; the other walk stands still and is a dot
    dots = [c for c in ax.collections if isinstance(c, PathCollection)][-2:]
    assert [tuple(np.round(dot.get_offsets()[0])) for dot in dots] == [(0, 0), (2, 0)]


def test_repeated_steps_bow_apart(ax):
    top_walks([[0, 1, 0, 1]], [1.0], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    heights = [vertices[1 + 3 * step, 1] for step in range(3)]
    assert len({round(height, 3) for height in heights}) == 3
    assert min(heights) < -0.05
    assert max(heights) > 0.05


def test_staying_makes_a_loop_larger_each_time(ax):
    top_walks([[0, 0, 0]], [1.0], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    assert vertices[::3].tolist() == [[0, 0]] * 3
    sizes = [np.ptp(Path(vertices[s : s + 4], [1, 4, 4, 4]).interpolated(9).vertices, 0).max() for s in (0, 3)]
    assert 0.2 < sizes[0] < sizes[1]
    assert vertices[1, 0] < -0.1  # away from node 1


def test_curves_stay_within_the_axes(ax):
    top_walks([[0, 0, 0, 0, 1], [3, 3, 3, 3, 2]], [1.0, -1.0], PATH, positions=PLACES, ax=ax)
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    for patch in ax.patches:
        box = patch._path_original.get_extents()
        assert left < box.x0 < box.x1 < right
        assert low < box.y0 < box.y1 < high


def test_the_structure_is_drawn_with_its_labels(ax):
    top_walks([[0, 1]], [1.0], PATH, labels=list("abcd"), ax=ax)
    assert [text.get_text() for text in ax.texts][:4] == list("abcd")
    assert "widest ±1" in ax.texts[-1].get_text().replace("\n", " ")


def test_walks_on_a_molecule(ax):
    pytest.importorskip("rdkit")
    top_walks([[0, 1, 2]], [1.0], "CCO", ax=ax)
    (vertices,) = curves(ax)
    assert np.allclose(vertices[::3], molecule_layout("CCO"))
    assert ax.texts[0].get_text() == "O"


def test_walks_over_a_heat_map(ax):
    places = graph_layout(PATH, 4)
    graph_heatmap(np.ones(4), PATH, positions=places, ax=ax)
    before = len(ax.collections)
    top_walks([[0, 1]], [1.0], positions=places, ax=ax)
    assert len(ax.patches) == 1
    assert len(ax.collections) == before + 1  # the dot
    assert np.allclose(curves(ax)[0][::3], places[:2])


def test_no_walks_and_zero_relevances(ax):
    top_walks(np.zeros((0, 3), dtype=int), [], PATH, ax=ax)
    assert not ax.patches
    top_walks([[0, 1]], [0.0], PATH, ax=ax)
    assert len(ax.patches) == 1
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("walks", "relevances", "more", "message"),
    [
        ([[0, 1]], [1.0, 2.0], {}, "for each of the 2 relevances"),
        ([0, 1], [1.0, 2.0], {}, "a row of node ids"),
        ([[0, -2]], [1.0], {}, "a row of node ids"),
        ([[0.0, 1.0]], [1.0], {}, "a row of node ids"),
        ([[0, 1]], [1.0], {"k": 0}, "k is the number"),
        ([[0, 4]], [1.0], {"positions": PLACES}, "walks name nodes up to 4"),
        ([[0, 1]], [1.0], {"structure": None}, "give the structure, or the positions"),
    ],
)
def test_what_does_not_fit_is_refused(ax, walks, relevances, more, message):
    with pytest.raises(InputError, match=message):
        top_walks(walks, relevances, **{"structure": PATH, "ax": ax, **more})
