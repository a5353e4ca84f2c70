"""Colours and numbers that all figures share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from walkwise.errors import InputError
from walkwise.plotting import _style as style

# What is left of linear RGB without one kind of cone (Viénot, Brettel and Mollon 1999).
BLIND = {
    "protan": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    "deutan": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
}


def lab(rgb, blindness=None):
    """CIELAB coordinates, in which equal distances look equally different.  # (..., 3)"""
    rgb = np.asarray(rgb)[..., :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    if blindness:
        linear = np.clip(linear @ BLIND[blindness].T, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    t = linear @ to_xyz.T / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], -1)


@pytest.mark.parametrize("blindness", [None, "protan", "deutan"])
def test_signs_stay_apart_for_the_colour_blind(blindness):
    share = np.linspace(0.2, 1, 9)
    above, below = (lab(style.COLOURS(0.5 + sign * share / 2), blindness) for sign in (1, -1))
    apart = np.linalg.norm(above - below, axis=-1)
    assert (np.diff(apart) > 0).all()
    assert apart[0] > 12  # 2.3 is just noticeable
    assert apart[-1] > 70


def test_colours_darken_on_both_sides_alike():
    light = lab(style.COLOURS(np.linspace(0, 1, 101)))[:, 0]
    assert light.argmax() == 50
    assert (np.diff(light[:51]) > 0).all()
    assert (np.diff(light[50:]) < 0).all()
    assert abs(light[0] - light[-1]) < 16


def test_ends_of_the_colours_are_the_signs():
    assert to_rgb(style.COLOURS(1.0)[:3]) == pytest.approx(to_rgb(style.POSITIVE), abs=0.01)
    assert to_rgb(style.COLOURS(0.0)[:3]) == pytest.approx(to_rgb(style.NEGATIVE), abs=0.01)


@pytest.mark.parametrize(
    ("values", "limit", "end"), [([1.0, -3.0], None, 3), ([1.0], 5.0, 5), ([0.0], None, 1), ([], None, 1)]
)
def test_scales_are_symmetric(values, limit, end):
    norm = style.symmetric(np.array(values), limit)
    assert (norm.vmin, norm.vmax) == (-end, end)
    assert norm(0.0) == 0.5


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_above_zero(limit):
    with pytest.raises(InputError, match="limit"):
        style.symmetric(np.array([1.0]), limit)


def test_ink_reads_on_every_colour():
    for colour in style.COLOURS(np.linspace(0, 1, 21)):
        ink = lab(to_rgb(style.ink_on(colour)))[0]
        assert abs(ink - lab(colour)[0]) > 40


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (-12.345, "−12.3"), (0.0123, "0.012"), (-1e-7, "−1e−07"), (1234.5, "1.23e+03")],
)
def test_numbers_are_short(value, text):
    assert style.short(value) == text


def test_positive_numbers_may_have_a_sign():
    assert [style.short(v, signed=True) for v in (1.0, 0.0, -1.0)] == ["+1", "0", "−1"]


def test_scores_in_all_forms():
    for given in (
        [1, 2],
        (1.0, 2.0),
        np.array([1, 2]),
        torch.tensor([1, 2]),
        torch.tensor([1.0, 2.0], requires_grad=True),
    ):
        assert style.numbers(given, "scores", 2).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("given", [[1.0], [[1.0, 2.0]], 1.0, ["a", "b"], None])
def test_other_scores_are_refused(given):
    with pytest.raises(InputError, match="scores"):
        style.numbers(given, "scores", 2)


def test_nodes_are_ids_or_a_mask():
    wanted = [True, False, True]
    for given in ([0, 2], torch.tensor([2, 0]), wanted, torch.tensor(wanted), (0, 2)):
        assert style.node_mask(given, 3, "subgraph").tolist() == wanted
    assert not style.node_mask(None, 3, "subgraph").any()
    assert not style.node_mask([], 3, "subgraph").any()
    for wrong in ([3], [-1], [0.5], [True, False], [[0, 1]]):
        with pytest.raises(InputError, match="subgraph must be node ids from 0 to 2"):
            style.node_mask(wrong, 3, "subgraph")
