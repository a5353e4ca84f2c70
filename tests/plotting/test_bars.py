"""Interactions as bars."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_rgba

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.plotting import interaction_bars, order_bars
from walkwise.questions.groups import Interactions

TERMS = {("a",): 0.1, ("b",): -0.6, ("c",): 0.3, ("a", "b"): 0.05, ("a", "c"): -0.2, ("a", "b", "c"): 0.4}


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_bars_by_order_then_magnitude(ax):
    interaction_bars(Interactions(("a", "b", "c"), TERMS, 0.05), ax=ax)
    assert labels(ax) == ["b", "c", "a", "a + c", "a + b", "a + b + c", "all together"]
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx([-0.6, 0.3, 0.1, -0.2, 0.05, 0.4, 0.05])
    colours = [bar.get_facecolor() for bar in ax.patches]
    signs = [style.NEGATIVE if width < 0 else style.POSITIVE for width in widths[:-1]]
    assert colours == [*map(to_rgba, signs), to_rgba(style.GREY)]
    assert [text.get_text() for text in ax.texts][:2] == ["−0.6", "+0.3"]
    low, high = ax.get_ylim()
    assert low > high  # from top to bottom


def test_small_terms_share_a_bar(ax):
    interaction_bars(Interactions(("a", "b", "c"), TERMS, 0.05), max_bars=2, ax=ax)
    assert labels(ax) == ["b", "a + b + c", "4 smaller terms", "all together"]
    assert ax.patches[2].get_width() == pytest.approx(0.1 + 0.3 + 0.05 - 0.2)


def test_orders_that_were_not_asked_for_have_a_bar(ax):
    interaction_bars(Interactions(("a", "b"), {("a",): 1.0, ("b",): 1.0}, 2.5), ax=ax)
    assert labels(ax) == ["a", "b", "higher orders", "all together"]
    assert ax.patches[2].get_width() == pytest.approx(0.5)


def test_all_bars_and_numbers_are_in_sight(ax):
    interaction_bars(Interactions(("a", "b", "c"), TERMS, 0.05), ax=ax)
    ax.figure.canvas.draw()
    inside = ax.figure.bbox
    for text in [*ax.texts, *ax.get_yticklabels()]:
        box = text.get_window_extent()
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1
    low, high = ax.get_xlim()
    assert low < -0.6
    assert high > 0.4


def test_two_bars_per_group(ax):
    order_bars({"C": 0.7, "NO2": -0.1}, {"NO2": 0.8, "C": 0.2}, ax=ax)
    assert labels(ax) == ["C", "NO2"]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.7, -0.1, 0.2, 0.8])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["lower order: nodes", "higher order: walks"]
    low, high = ax.get_xlim()
    assert low < -0.1
    assert high > 0.8


def test_what_does_not_fit_is_refused(ax):
    with pytest.raises(InputError, match="max_bars"):
        interaction_bars(Interactions(("a",), {("a",): 1.0}, 1.0), max_bars=0, ax=ax)
    with pytest.raises(InputError, match="for the same groups as lower"):
        order_bars({"a": 1.0}, {"b": 1.0}, ax=ax)
