"""Sentences: words in lines, the tree above, walks below."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.plotting import sentence_heatmap
from walkwise.plotting.arcs import Arc, Words, pieces_of

WORDS = ["this", "is", "not", "a", "bad", "film"]
HEADS = [1, 1, 5, 5, 5, 1]


def heads_and_tails(ax):
    """Where each arc starts and ends, in order of drawing."""
    return [tuple(patch._path_original.vertices[i] for i in (0, -1)) for patch in ax.patches]


def test_words_stand_in_order_on_their_colours(ax):
    sentence_heatmap(WORDS, [0.0, 0.5, -1.0, 0.0, 0.2, 0.1], ax=ax)
    assert [text.get_text() for text in ax.texts] == WORDS
    x = [text.get_position()[0] for text in ax.texts]
    assert x == sorted(x)
    fill = [text.get_bbox_patch().get_facecolor() for text in ax.texts]
    assert fill[2] == pytest.approx(to_rgba(style.NEGATIVE), abs=0.01)
    assert fill[1][0] > fill[1][2]
    assert ax.texts[2].get_color() == "white"
    assert ax.texts[0].get_color() == "black"


def test_words_do_not_overlap(ax):
    words = [*WORDS, "but", "a", "sentence", "that", "goes", "on", "over", "several", "lines", *WORDS]
    sentence_heatmap(words, np.linspace(-1, 1, len(words)), ax=ax)
    ax.figure.canvas.draw()
    boxes = [text.get_bbox_patch().get_window_extent() for text in ax.texts]
    lines = {round(text.get_position()[1], 3) for text in ax.texts}
    assert 1 < len(lines) < len(words)
    for i, one in enumerate(boxes):
        assert ax.figure.bbox.x0 <= one.x0
        assert one.x1 <= ax.figure.bbox.x1
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.parametrize("root", [1, -1])
def test_arcs_lead_from_heads_to_dependents(root):
    figure = plt.figure(figsize=(6.5, 2), layout="constrained")
    ax = sentence_heatmap(WORDS, np.ones(6), [1, root, 5, 5, 5, 1], ax=figure.add_subplot())
    x = np.array([text.get_position()[0] for text in ax.texts])
    nearest = {tuple(int(np.abs(x - end[0]).argmin()) for end in ends) for ends in heads_and_tails(ax)}
    assert nearest == {(head, i) for i, head in enumerate(HEADS) if i != 1}
    word = ax.texts[0].get_position()[1]
    assert all(end[1] > word for ends in heads_and_tails(ax) for end in ends)


def test_walks_are_arcs_below(ax):
    walks = torch.tensor([[0, 1, 1], [4, 5, -1], [2, 3, 2]])
    sentence_heatmap(WORDS, np.ones(6), walks=walks, relevances=[-1.0, 0.5, 0.1], k=2, ax=ax)
    assert len(ax.patches) >= 3  # 0 to 1, 1 to 1, 4 to 5; more where one goes over two lines
    looks = {(patch.get_edgecolor(), round(patch.get_linewidth(), 3)) for patch in ax.patches}
    assert {colour for colour, _ in looks} == {to_rgba(style.NEGATIVE), to_rgba(style.POSITIVE)}
    width = dict(looks)
    assert width[to_rgba(style.NEGATIVE)] > width[to_rgba(style.POSITIVE)]
    lowest = min(text.get_position()[1] for text in ax.texts)
    assert min(end[1] for ends in heads_and_tails(ax) for end in ends) < lowest


def test_subgraph_and_truth(ax):
    sentence_heatmap(WORDS, np.ones(6), subgraph=[2, 4], truth=[5], ax=ax)
    widths = [text.get_bbox_patch().get_linewidth() for text in ax.texts]
    assert [i for i, width in enumerate(widths) if width > 1] == [2, 4]
    (underline,) = ax.lines
    assert np.mean(underline.get_xdata()) == pytest.approx(ax.texts[5].get_position()[0])
    bar = next(other for other in ax.figure.axes if other is not ax)
    assert "outline: the subgraph, underline: the truth" in bar.get_xlabel().replace("\n", " ")


def test_a_new_figure_is_as_high_as_it_needs():
    short = sentence_heatmap(WORDS, np.ones(6)).figure.get_figheight()
    long = sentence_heatmap(WORDS * 8, np.ones(48), [*range(1, 48), 47]).figure.get_figheight()
    assert short < 2 < long


@pytest.mark.parametrize("words", [[], ["one"], ["", " "], ["a$b$", "100%", "x_1", "…"]])
def test_odd_words(ax, words):
    sentence_heatmap(words, np.zeros(len(words)), [0] * len(words), ax=ax)
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == words
    assert not any(text.get_parse_math() for text in ax.texts)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"scores": [1.0]}, "scores must be a vector of 6"),
        ({"heads": [6] * 6}, "heads must be the head of every word"),
        ({"heads": [0]}, "heads must be a vector of 6"),
        ({"walks": [[0, 1]]}, "walks come with their relevances"),
        ({"walks": [[0, 6]], "relevances": [1.0]}, "numbers of words, 0 to 5, got 6"),
    ],
)
def test_what_does_not_fit_is_refused(ax, more, message):
    with pytest.raises(InputError, match=message):
        sentence_heatmap(**{"tokens": WORDS, "scores": np.ones(6), "ax": ax, **more})


# -- arcs -------------------------------------------------------------------------------------


def arcs(*pairs, lines=(0, 0, 0, 0)):
    words = Words(np.array([10.0, 30.0, 50.0, 70.0]), np.full(4, 16.0), lines, 80.0)
    return pieces_of([Arc(a, b, "black", 1.0) for a, b in pairs], words)


def test_arcs_over_others_lie_higher():
    level = {(piece.arc.start, piece.arc.end): piece.level for piece in arcs((0, 3), (1, 2), (2, 3))}
    assert level[1, 2] == 1
    assert level[0, 3] > max(level[1, 2], level[2, 3])


def test_no_two_arcs_on_a_level_overlap():
    pieces = arcs((0, 2), (1, 3), (2, 0), (0, 2), (3, 1), (1, 1))
    for i, one in enumerate(pieces):
        for other in pieces[i + 1 :]:
            assert one.level != other.level or one.right <= other.left or other.right <= one.left


def test_arcs_between_lines_are_cut_at_their_ends():
    down, up = arcs((0, 3), lines=(0, 0, 1, 1)), arcs((3, 0), lines=(0, 0, 1, 1))
    leaves, arrives = sorted(down, key=lambda piece: piece.line)
    assert (leaves.right, leaves.end) == (80.0, None)
    assert (arrives.left, arrives.start) == (0.0, None)
    arrives, leaves = sorted(up, key=lambda piece: piece.line)
    assert (leaves.left, leaves.end) == (0.0, None)
    assert (arrives.right, arrives.start) == (80.0, None)
