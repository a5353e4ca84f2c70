"""What holds for all functions that draw."""

from __future__ import annotations

import importlib
import inspect
import io
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from walkwise import plotting
from walkwise.errors import InputError, MissingExtraError
from walkwise.questions.groups import Interactions

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
NAN = float("nan")

# Every function with scores that are given, to draw with good ones and to refuse others.
DRAW = {
    "graph_heatmap": lambda s, **to: plotting.graph_heatmap(s, EDGES, subgraph=[0, 1], truth=[2], **to),
    "molecule_heatmap": lambda s, **to: plotting.molecule_heatmap("CC=O", s, s[:2], subgraph=[0], truth=[2], **to),
    "top_walks": lambda s, **to: plotting.top_walks([[0, 1], [1, 2], [1, 1]], s, EDGES, **to),
    "walk_lines": lambda s, **to: plotting.walk_lines([[0, 1], [1, 2], [1, 1]], s, **to),
    "interaction_bars": lambda s, **to: plotting.interaction_bars(
        Interactions(("a", "b"), {("a",): s[0], ("b",): s[1], ("a", "b"): s[2]}, sum(s)), **to
    ),
    "order_bars": lambda s, **to: plotting.order_bars({"a": s[0], "b": s[1]}, {"a": s[2], "b": 0.1}, **to),
    "mean_bars": lambda s, **to: plotting.mean_bars({"a": s[0], "b": s[1], "c": s[2]}, dict.fromkeys("abc", 0.1), **to),
    "alpha_curve": lambda s, **to: plotting.alpha_curve([s, s], labels=["one", "other"], **to),
    "activation_curves": lambda s, **to: plotting.activation_curves(s, order=[2, 0, 1], labels=["ours"], **to),
    "sentence_heatmap": lambda s, **to: plotting.sentence_heatmap(
        ["a", "fine", "film"], s, [2, 2, 2], walks=[[0, 2]], relevances=[s[0]], subgraph=[1], truth=[2], **to
    ),
}
SCORES = [0.5, -0.2, 0.1]


@pytest.fixture(params=DRAW)
def draw(request):
    if request.param == "molecule_heatmap":
        pytest.importorskip("rdkit")
    return DRAW[request.param]


def test_every_drawing_function_is_tried():
    functions = {name for name in plotting.__all__ if "ax" in inspect.signature(getattr(plotting, name)).parameters}
    assert functions == set(DRAW)
    assert plotting.__all__ == sorted(plotting.__all__)


def test_axes_given_are_axes_returned(draw, ax):
    assert draw(SCORES, ax=ax) is ax
    assert len(plt.get_fignums()) == 1


def test_a_figure_is_made_where_none_is_given(draw):
    made = draw(SCORES)
    assert isinstance(made, Axes)
    made.figure.canvas.draw()


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_figures_are_vectors(draw, ax, kind):
    draw(SCORES, ax=ax)
    saved = io.BytesIO()
    ax.figure.savefig(saved, format=kind)
    assert len(saved.getvalue()) > 1000
    assert not ax.findobj(AxesImage)


def test_settings_are_left_alone_and_nothing_is_shown_or_saved(draw, ax, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("shown"))
    monkeypatch.setattr(mpl.figure.Figure, "savefig", lambda *a, **k: pytest.fail("saved"))
    before = dict(mpl.rcParams)
    draw(SCORES, ax=ax)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("bad", [NAN, float("inf")])
def test_scores_that_are_not_finite_are_refused(draw, ax, bad):
    with pytest.raises(InputError, match="not finite"):
        draw([0.5, bad, 0.1] if draw is not DRAW["sentence_heatmap"] else [bad, 0.0, 0.1], ax=ax)


@pytest.mark.parametrize("layout", [None, "tight", "constrained"])
def test_all_zero_in_any_layout(draw, layout):
    figure = plt.figure(figsize=(6.5, 3), layout=layout)
    axes = draw([0.0, 0.0, 0.0], ax=figure.subplots(1, 2)[1])
    figure.canvas.draw()
    assert axes.figure is figure
    assert axes.get_window_extent().width > 50  # the layout has left room for it


def test_parts_of_figures_will_do(draw):
    figure = plt.figure(figsize=(6.5, 3), layout="constrained")
    part = figure.subfigures(1, 2)[0]
    axes = draw(SCORES, ax=part.subplots())
    figure.canvas.draw()
    assert axes.figure is part
    assert axes.get_window_extent().x1 <= part.bbox.x1


def test_tensors_and_arrays_draw_the_same(draw):
    """Texts are what the numbers say, in whichever form they come."""
    texts = [[t.get_text() for t in draw(make(SCORES)).texts] for make in (list, np.array, torch.tensor)]
    assert texts[0] == texts[1] == texts[2]


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("walkwise.plotting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"walkwise\[viz\]"):
        importlib.import_module("walkwise.plotting")
