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
from walkwise.plotting import graph_heatmap, graph_layout, molecule_layout, top_walks, walk_lines

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])


#: How near its nodes a walk passes, steps being 1 long.
NEAR = 0.4


def curves(ax):
    """The vertices of every walk: a first one, and three per piece."""
    return [patch._path_original.vertices for patch in ax.patches]


def nodes_along(vertices, places):
    """The nodes that a curve passes, in order."""
    t = np.linspace(0, 1, 20)[:, None]
    cubic = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
    pieces = [sum(b * v for b, v in zip(cubic, vertices[at:], strict=False)) for at in range(0, len(vertices) - 1, 3)]
    points = np.concatenate(pieces)
    near = np.hypot(*(points[:, None] - places[None]).transpose(2, 0, 1))  # (points, M)
    passed = [int(row.argmin()) for row in near if row.min() < NEAR]
    return [node for i, node in enumerate(passed) if i == 0 or passed[i - 1] != node]


def test_widths_follow_magnitudes_and_colours_signs(ax):
    top_walks([[0, 1], [1, 2], [2, 3]], [0.2, -1.0, 0.5], PATH, positions=PLACES, ax=ax)
    widths = [patch.get_linewidth() for patch in ax.patches]
    assert widths[0] > widths[1] > widths[2]  # the most relevant comes first
    colours = [np.array(patch.get_edgecolor()) for patch in ax.patches]
    assert np.allclose(colours[0], to_rgba(style.NEGATIVE))
    assert all(red > blue for red, _, blue, _ in colours[1:])  # orange
    assert colours[1].sum() < colours[2].sum()  # paler
    assert [nodes_along(c, PLACES) for c in curves(ax)] == [[1, 2], [2, 3], [0, 1]]


def test_only_k_walks_are_drawn(ax):
    top_walks([[0, 1], [1, 2], [2, 3]], [0.2, -1.0, 0.5], PATH, k=2, ax=ax)
    assert len(ax.patches) == 2
    assert "1 walk of at most ±0.5 not drawn" in ax.texts[-1].get_text().replace("\n", " ")


def test_nothing_left_out_is_not_mentioned(ax):
    top_walks([[0, 1], [1, 2], [2, 3]], [0.2, -1.0, 0.5], PATH, ax=ax)
    assert "not drawn" not in ax.texts[-1].get_text()


def test_a_walk_goes_through_its_nodes_in_order(ax):
    top_walks([[0, 1, 2, 1]], [1.0], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    assert nodes_along(vertices, PLACES) == [0, 1, 2, 1]


def test_positions_passed_by_are_skipped(ax):
    top_walks([[0, -1, 1], [2, -1, -1]], [1.0, 0.5], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    assert len(vertices) == 4  # one step; the other walk is at one place only, a dot
    dots = [c for c in ax.collections if isinstance(c, PathCollection)][-2:]
    assert [tuple(np.round(dot.get_offsets()[0])) for dot in dots] == [(0, 0), (2, 0)]


def heights(vertices):
    """How high above the path a walk's lanes lie, steps that stay left out."""
    pieces = [vertices[at : at + 4] for at in range(0, len(vertices) - 1, 6)]
    return [float(piece[0, 1]) for piece in pieces]


def test_steps_along_an_edge_run_in_lanes_of_their_own(ax):
    top_walks([[0, 1, 2]] * 4 + [[2, 1, 0]] * 3, np.ones(7), PATH, positions=PLACES, ax=ax)
    lanes = np.array([heights(vertices) for vertices in curves(ax)])  # (7, 2)
    for edge in lanes.T:
        assert np.diff(np.sort(edge)).min() > 0.05
        assert max(edge[:4]) < min(edge[4:])  # to the right in their direction: eastward is below westward
        assert abs(edge.mean()) < 1e-9
    assert np.ptp(lanes) <= 0.5 + 1e-9


def test_many_lanes_stay_in_the_same_road(ax):
    top_walks([[0, 1]] * 30, np.ones(30), PATH, positions=PLACES, k=30, ax=ax)
    lanes = [heights(vertices)[0] for vertices in curves(ax)]
    assert len({round(height, 6) for height in lanes}) == 30
    assert np.ptp(lanes) <= 0.5 + 1e-9
    starts = {round(float(vertices[0, 0]), 6) for vertices in curves(ax)}
    assert len(starts) == 3  # dots side by side do not touch


def test_turning_back_changes_to_the_other_side(ax):
    top_walks([[0, 1, 0, 1]], [1.0], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    there, back, again = heights(vertices)
    assert there != again
    assert max(there, again) < back


def test_turns_do_not_cross(ax):
    places = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, -1.0], [2.0, 0.0], [1.0, 1.0]])
    star = torch.tensor([[0, 1, 1, 1, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1, 1, 1]])
    top_walks([[0, 1, 4], [0, 1, 2], [0, 1, 0], [0, 1, 3]], np.ones(4), star, positions=places, ax=ax)
    left, right, back, straight = (heights(vertices)[0] for vertices in curves(ax))
    assert right < straight < left < back


def test_staying_makes_loops_side_by_side_outside(ax):
    top_walks([[0, 0, 0]], [1.0], PATH, positions=PLACES, ax=ax)
    (vertices,) = curves(ax)
    first, second = vertices[:4], vertices[6:]
    for loop in (first, second):
        assert np.hypot(*(loop[0] - loop[3])) < 0.3
        assert 0.1 < np.ptp(Path(loop, [1, 4, 4, 4]).interpolated(9).vertices, 0).max() < 0.8
        assert loop[1:3, 0].mean() < -0.1  # away from node 1
    assert abs(first[1:3, 1].mean() - second[1:3, 1].mean()) > 0.1
    assert np.hypot(*first[0]) > np.hypot(*first[3])  # the dot and the arrowhead stand out,
    assert np.hypot(*second[3]) > np.hypot(*second[0])  # the turn between is near the node


def test_several_walks_at_one_node_only_are_dots_apart(ax):
    top_walks([[2, -1], [2, -1]], [1.0, 0.5], PATH, positions=PLACES, ax=ax)
    one, other = (
        c.get_offsets()[0] for c in ax.collections if isinstance(c, PathCollection) and len(c.get_offsets()) == 1
    )
    assert 0.1 < np.hypot(*(one - other)) < 0.5


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
    assert nodes_along(vertices / 1.5, molecule_layout("CCO") / 1.5) == [0, 1, 2]
    assert ax.texts[0].get_text() == "OH"


def test_walks_over_a_heat_map(ax):
    places = graph_layout(PATH, 4)
    graph_heatmap(np.ones(4), PATH, positions=places, ax=ax)
    before = len(ax.collections)
    top_walks([[0, 1]], [1.0], positions=places, ax=ax)
    assert len(ax.patches) == 1
    assert len(ax.collections) == before + 1  # the dot
    assert nodes_along(curves(ax)[0], places) == [0, 1]


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
        ([[0, 1]], [1.0], {"k": 0}, "k must be the number"),
        ([[0, 4]], [1.0], {"positions": PLACES}, "walks names nodes up to 4"),
        ([[0, 1]], [1.0], {"structure": None}, "Give the structure, or the positions"),
    ],
)
def test_what_does_not_fit_is_refused(ax, walks, relevances, more, message):
    with pytest.raises(InputError, match=message):
        top_walks(walks, relevances, **{"structure": PATH, "ax": ax, **more})


def test_a_line_per_walk_says_where_it_goes_and_what_it_carries():
    walks = torch.tensor([[0, 1, -1, 1], [2, 2, 2, 0], [1, 0, 2, 1]])
    ax = walk_lines(walks, [0.1, -0.2, 0.01], labels=["C", "N", "O"], k=2)
    heads, rest = [t.get_text() for t in ax.texts][:4], [t for t in ax.texts if t.get_text() in ("C", "N", "O")]
    assert heads == ["input", "layer 1", "layer 2", "output"]
    first, second = ([t.get_text() for t in rest if t.get_position()[1] == row] for row in (0, 1))
    assert (first, second) == (["O", "C"], ["C", "N"])  # the largest first, and a node where a walk stays once
    assert [t.get_position()[0] for t in rest if t.get_position()[1] == 0] == [1.0, 3.0]
    long, short = (bar.get_width() for bar in ax.patches if hasattr(bar, "get_width"))
    assert long == pytest.approx(2 * short)
    assert {"\N{MINUS SIGN}0.2", "0.1", "1 walk of at most ±0.1 not drawn"} <= {t.get_text() for t in ax.texts}
    colours = [bar.get_facecolor() for bar in ax.patches if hasattr(bar, "get_width")]
    assert colours[0][2] > colours[0][0]  # blue: against
    assert colours[1][0] > colours[1][2]  # orange: for


def test_no_walks_and_wrong_walks_as_lines():
    walk_lines(torch.zeros(0, 3, dtype=torch.long), [])
    with pytest.raises(InputError, match="at least 1"):
        walk_lines([[0, 1]], [1.0], k=0)
    with pytest.raises(InputError, match="row of node ids"):
        walk_lines([[0.5, 1]], [1.0])


def test_a_part_of_a_long_path_grows_pale_where_the_path_goes_on(ax):
    along = np.arange(19)
    edges = np.stack([along, along + 1])
    places = np.stack([np.arange(20.0), np.zeros(20)], axis=1)
    labels = [str(i) for i in range(20)]
    top_walks([[0, 1, 2], [2, 1, 0]], [1.0, -1.0], edges, positions=places, labels=labels, ax=ax)
    (veil,) = (image.get_array()[..., 3] for image in ax.images)
    assert ax.get_xlim()[1] < 5
    assert veil[32, 0] == 0  # the path begins here
    assert veil[32, -1] == 1
    shades = {text.get_text(): text.get_alpha() for text in ax.texts if text.get_text().isdecimal()}
    assert shades["0"] == 1
    assert shades["19"] == 0


def test_a_structure_that_is_seen_as_a_whole_is_not_paled(ax):
    top_walks([[0, 1, 2, 3]], [1.0], PATH, positions=PLACES, ax=ax)
    assert not ax.images


def test_loops_stay_at_their_node_where_another_is_much_nearer_than_a_step(ax):
    places = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 1.0]])
    edges = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    top_walks([[0, 0], [1, 0]], [1.0, 0.5], edges, positions=places, ax=ax)
    loop = curves(ax)[0]
    assert np.hypot(*loop[[0, -1]].T).max() < 0.5  # half the way to the nearest node
    assert np.hypot(*loop.T).max() < 1.0
