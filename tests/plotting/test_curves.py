"""Curves over α, and along an order of the nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from walkwise.errors import InputError
from walkwise.evaluation import Curve
from walkwise.plotting import activation_curves, alpha_curve


def curves(ax):
    """Lines with more than one point, which marks and the line at zero are not."""
    return [line for line in ax.lines if len(line.get_xdata()) > 2]


def marks(ax):
    return {text.get_text(): text.xy for text in ax.texts}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_polynomial_is_evaluated_between_0_and_1(ax):
    alpha_curve(torch.tensor([[1.0, -2.0, 3.0], [0.0, 1.0, 0.0]]), labels=["one", "two"], ax=ax)
    first, second = curves(ax)
    x = first.get_xdata()
    assert (x[0], x[-1]) == (0, 1)
    assert np.allclose(first.get_ydata(), 1 - 2 * x + 3 * x**2)
    assert np.allclose(second.get_ydata(), x)
    assert legend(ax) == ["one", "two"]
    assert "α" in ax.get_xlabel()


def test_values_at_given_discounts(ax):
    alpha_curve([[1.0, 2.0, 4.0]], alphas=[0.0, 0.1, 1.0], ax=ax)
    (line,) = curves(ax)
    assert line.get_xdata().tolist() == [0.0, 0.1, 1.0]
    assert line.get_ydata().tolist() == [1.0, 2.0, 4.0]
    assert ax.get_legend() is None


def test_lines_are_told_apart_without_colour(ax):
    alpha_curve(np.eye(6), ax=ax)
    looks = {(line.get_color(), line.get_linestyle()) for line in curves(ax)}
    assert len(looks) == 6


@pytest.mark.parametrize("alphas", [[0.0], [0.0, 0.5, 1.0]])
def test_as_many_values_as_discounts(ax, alphas):
    with pytest.raises(InputError, match="alphas must be a vector of 2"):
        alpha_curve([[1.0, 2.0]], alphas=alphas, ax=ax)


def test_an_activation_curve_marks_the_node_that_came(ax):
    curve = Curve(torch.tensor([0.0, 0.1, 0.9, 1.0]), "batched")
    activation_curves(curve, order=[3, 1, 0, 2], marks=1, ax=ax)
    (line,) = curves(ax)
    assert line.get_xdata().tolist() == [1, 2, 3, 4]
    assert marks(ax) == {"0": (3, pytest.approx(0.9))}  # the third node of the order
    assert legend(ax) == ["area 0.5"]
    assert "added" in ax.get_xlabel()


def test_a_pruning_curve_marks_the_node_that_went(ax):
    activation_curves([0.0, 0.1, 0.9, 1.0], order=[3, 1, 0, 2], mode="pruning", marks=1, ax=ax)
    assert curves(ax)[0].get_xdata().tolist() == [0, 1, 2, 3]
    assert marks(ax) == {"1": (2, pytest.approx(0.9))}  # after the second node of the order was removed
    assert "removed" in ax.get_xlabel()


def test_nodes_have_names_and_falls_count_too(ax):
    activation_curves([0.0, 1.0, -1.0, -1.0], order=torch.tensor([0, 1, 2, 3]), names=list("abcd"), ax=ax)
    assert set(marks(ax)) == {"b", "c"}  # the last step is none


def test_several_curves_with_their_own_orders(ax):
    values = torch.tensor([[0.0, 5.0, 5.5], [1.0, 1.5, 9.0]])
    activation_curves(values, labels=["x", "y"], order=[[2, 1, 0], [0, 1, 2]], names=list("abc"), marks=1, ax=ax)
    assert marks(ax) == {"b": (2, 5.0), "c": (3, 9.0)}
    assert legend(ax) == ["x (area 3.5)", "y (area 3.83)"]
    rows = [text.get_position()[1] for text in ax.texts]
    assert rows[0] != rows[1]


def test_one_order_serves_all_curves(ax):
    activation_curves([Curve(torch.tensor([0.0, 1.0]), ""), [1.0, 0.0]], order=[1, 0], ax=ax)
    assert [text.get_text() for text in ax.texts] == ["0", "0"]


def test_names_side_by_side_do_not_touch(ax):
    names = [f"carbon {i}" for i in range(6)]
    activation_curves([0.0, 1.0, 3.0, 6.0, 6.0, 6.0], order=range(6), names=names, ax=ax)
    ax.figure.canvas.draw()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.x0)
    # An annotation's extent includes its leader, so compare the middles with the text's own width.
    middles = [ax.transData.transform((text.get_position()[0], 0))[0] for text in ax.texts]
    width = ax.texts[0].get_size() * 0.5 * len(names[0]) * ax.figure.dpi / 72
    assert len(boxes) == 3
    assert np.diff(sorted(middles)).min() > width
    assert max(middles) + width / 2 < ax.figure.bbox.x1 + 2


def test_a_curve_of_one_node(ax):
    activation_curves([0.5], order=[0], ax=ax)
    assert not ax.texts
    ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("curve", "more", "message"),
    [
        ([], {}, "no values"),
        ([0.0, 1.0], {"order": [0, 0]}, "order must name every node of its curve once"),
        ([0.0, 1.0], {"order": [0]}, "order must name every node"),
        ([0.0, 1.0], {"order": [0, 1], "names": ["a"]}, "names has 1 entries for 2"),
        ([0.0, 1.0], {"labels": ["a", "b"]}, "labels has 2 entries for 1"),
        ([0.0, 1.0], {"mode": "insertion"}, "mode must be"),
        ([0.0, 1.0], {"marks": -1}, "marks must be at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(ax, curve, more, message):
    with pytest.raises(InputError, match=message):
        activation_curves(curve, ax=ax, **more)
