"""What all figures share: colours centred at zero, sizes that fit the axes, words on the colour bar."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from torch import Tensor

from walkwise.display import number
from walkwise.errors import Described, InputError, described

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Numbers, one per node, edge, word, ...
Numbers = Tensor | npt.ArrayLike

#: Node ids, or a boolean mask.
Nodes = Sequence[int] | Tensor | npt.ArrayLike

# Blue and orange stay apart for all common kinds of colour blindness, and differ from grey ink.
NEGATIVE, ZERO, POSITIVE = "#1b5fa6", "#f7f7f7", "#d95300"
#: Diverging, lightest in the middle, equally dark at both ends.
COLOURS = LinearSegmentedColormap.from_list(
    "walkwise", [NEGATIVE, "#6ba0d0", "#bdd6ea", ZERO, "#fbcfa4", "#f2985a", POSITIVE]
)
INK, GREY, FAINT = "#222222", "#6e6e6e", "#b5b5b5"
BAND, BAND_EDGE = "#e7e3da", "#3a3a3a"
#: Distinguishable line styles, in order: dark first, then the Okabe-Ito colours, each with its own dashes.
LINES = (
    ("#222222", "-"),
    (POSITIVE, "-"),
    (NEGATIVE, "--"),
    ("#009e73", "-."),
    ("#b0578d", ":"),
    ("#8c6d1f", (0, (6, 2, 1, 2, 1, 2))),
)
#: Points. The smallest that is read without effort in a column 3.3 inches wide.
SMALL, TEXT = 7.0, 8.0
#: How thick a colour bar is.
_BAR = 6.0


def axes_for(ax: Axes | None, *, width: float = 4.2, height: float = 3.4) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    return plt.figure(figsize=(width, height), layout="constrained").add_subplot()


def settle(ax: Axes) -> None:
    """Lets the figure's layout engine, if it has one, give the axes their place now rather than at drawing."""
    figure = ax.figure.figure  # the figure itself where the axes are in a part of it
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def size_in_points(ax: Axes) -> tuple[float, float]:
    """The width and height of the axes as they stand now; a layout engine may move them later."""
    scale = 72 / ax.figure.dpi
    return ax.bbox.width * scale, ax.bbox.height * scale


def bare(ax: Axes, points: Floats, *, margin: float) -> None:
    """Axes without ticks that show all points, at least so far from their edge, undistorted."""
    low, high = (points.min(0), points.max(0)) if len(points) else (np.zeros(2), np.ones(2))
    ax.set_xlim(low[0] - margin, high[0] + margin)
    ax.set_ylim(low[1] - margin, high[1] + margin)
    ax.set_aspect("equal", adjustable="box")
    ax.axis("off")


def make_room(ax: Axes, points: Floats, margin: float) -> None:
    """Widens the axes where points would be nearer to their edge than the margin."""
    if len(points):
        low, high = points.min(0) - margin, points.max(0) + margin
        (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
        ax.set_xlim(min(left, low[0]), max(right, high[0]))
        ax.set_ylim(min(bottom, low[1]), max(top, high[1]))


def points_per_unit(ax: Axes) -> float:
    """How long one unit of the data will be on paper, axes being undistorted."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    width, height = size_in_points(ax)
    return float(min(width / (right - left), height / (high - low)))


def numbers(values: Numbers, name: str, length: int | None = None) -> Floats:
    """A vector of finite float64 numbers, of a given length if one is named."""
    array = _plain(values, name)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "a vector" if length is None else f"a vector of {length} numbers"
        raise InputError(argument=name, expected=wanted, got=Described(f"shape {array.shape}"))
    return finite(array, name)


def rows(values: Numbers, name: str) -> Floats:
    """A matrix of finite float64 numbers; a vector becomes one row."""
    array = np.atleast_2d(_plain(values, name))
    if array.ndim != 2:
        expected = "a vector or a matrix with one row per line"
        raise InputError(argument=name, expected=expected, got=Described(f"shape {array.shape}"))
    return finite(array, name)


def finite(array: Floats, name: str) -> Floats:
    """The array, if it holds numbers only."""
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        at = ", ".join(map(str, wrong[0]))
        raise InputError(
            f"{name} holds {len(wrong)} numbers that are not finite, the first at [{at}]: NaN has no colour and no "
            "place.",
            argument=name,
            expected="made of finite numbers",
            remedy="Find out where it comes from, or replace it before drawing.",
        )
    return array


def _plain(values: Numbers, name: str) -> Floats:
    given = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        kind = type(values).__name__
        raise InputError(argument=name, expected="numbers", got=Described(kind)) from None


def node_mask(nodes: Nodes | None, num_nodes: int, name: str) -> Bools:
    """A node set as a mask; None is no nodes.  # (M,)"""
    mask = np.zeros(num_nodes, dtype=bool)
    if nodes is None:
        return mask
    given = nodes.cpu().numpy() if isinstance(nodes, Tensor) else np.asarray(nodes)
    if given.dtype == bool and given.shape == (num_nodes,):
        return given
    whole = given.size == 0 or (given.ndim == 1 and given.dtype.kind in "iu")
    if not whole or (given.size and (given.min() < 0 or given.max() >= num_nodes)):
        expected = f"node ids from 0 to {num_nodes - 1}, or a boolean mask of shape ({num_nodes},)"
        raise InputError(argument=name, expected=expected, got=given.tolist())
    mask[given.astype(int)] = True
    return mask


def edges_of(edge_index: Numbers, num_nodes: int, counted: str | None = None) -> Ints:
    """The edges, checked; ``counted`` is the argument that has an entry for each node, for errors.  # (2, E)"""
    given = edge_index.cpu().numpy() if isinstance(edge_index, Tensor) else np.asarray(edge_index)
    if given.size == 0:
        return np.zeros((2, 0), dtype=np.int64)
    if given.ndim != 2 or given.shape[0] != 2 or given.dtype.kind not in "iu":
        raise InputError(argument="edge_index", expected="pairs of node ids, of shape (2, E)", got=described(given))
    if given.min() < 0 or given.max() >= num_nodes:
        missing = counted is not None and given.min() >= 0
        remedy = f"Give {counted} an entry for every node; it has {num_nodes}." if missing else None
        raise InputError(
            argument="edge_index",
            expected=f"node ids from 0 to {num_nodes - 1}",
            got=Described(f"{given.min()} to {given.max()}"),
            remedy=remedy,
        )
    return given.astype(np.int64)


def symmetric(values: Floats, limit: float | None = None) -> Normalize:
    """A scale with zero in the middle, out to the largest magnitude or to the limit given."""
    if limit is not None and not (np.isfinite(limit) and limit > 0):
        raise InputError(argument="limit", expected="a score above zero, at which the colour scale ends", got=limit)
    most = limit or float(np.abs(values).max(initial=0.0)) or 1.0
    return Normalize(-most, most)


def ink_on(colour: Any) -> str:
    """Black or white, whichever reads well on a colour, and on what it becomes where a dark page turns it over."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return "black" if np.dot(linear, [0.2126, 0.7152, 0.0722]) > 0.24 else "white"


def colour_bar(ax: Axes, norm: Normalize, words: str, *, blank: bool = False) -> None:
    """A colour bar below the axes: what the ends and the middle stand for, in words."""
    assert norm.vmin is not None and norm.vmax is not None
    width, height = size_in_points(ax)
    room: dict[str, Any] = {"fraction": min(1.2 * _BAR / height, 0.3), "shrink": 0.8, "pad": 0.03}
    mappable = ScalarMappable(norm, COLOURS)
    bar = ax.figure.colorbar(mappable, ax=ax, location="bottom", aspect=max(0.8 * width / _BAR, 4), **room)
    ends = {} if blank else {norm.vmin: "{} against", norm.vmax: "for {}"}
    ticks = {0.0: "{}", **ends}
    bar.set_ticks(list(ticks), labels=[text.format(short(tick, signed=True)) for tick, text in ticks.items()])
    texts = bar.ax.get_xticklabels()
    if not blank:
        texts[1].set_horizontalalignment("left")
        texts[2].set_horizontalalignment("right")
    bar.ax.tick_params(labelsize=SMALL, length=2, pad=2, colors=INK)
    bar.outline.set_linewidth(0.4)
    lines = [textwrap.fill(line, int(width / (0.52 * SMALL))) for line in words.split("\n")]
    bar.set_label("\n".join(lines), fontsize=SMALL, color=INK, labelpad=2)


def caption(ax: Axes, words: str, *, above: bool) -> None:
    """A line of small text below or above the axes."""
    width = int(size_in_points(ax)[0] / (0.5 * SMALL))
    place: dict[str, Any] = {"transform": ax.transAxes, "ha": "center", "va": "bottom" if above else "top"}
    ax.text(0.5, 1.0 if above else -0.01, textwrap.fill(words, width), size=SMALL, color=INK, **place)


def meaning_of(meaning: str, total: float, *more: str) -> str:
    """The words on a colour bar: what the colours mean and what they add up to; then one line per remark."""
    return "\n".join([f"{meaning}, sums to {short(total)}", *filter(None, more)])


def short(value: float, *, signed: bool = False, scale: float = 0.0) -> str:
    """A number in two or three digits, with a true minus; beside others of a scale, rounding is 0."""
    return number(value, digits=2 if abs(value) < 0.1 else 3, signed=signed, scale=scale)


def names_of(labels: Sequence[Any] | None, count: int, name: str) -> list[str]:
    """Texts as given, one per thing, or the numbers from 0."""
    if labels is None:
        return [str(i) for i in range(count)]
    texts = list(labels)
    if len(texts) != count:
        raise InputError(
            f"{name} has {len(texts)} entries for {count}.",
            argument=name,
            expected=f"{count} texts",
            got=len(texts),
            remedy="Give one text for each.",
        )
    return [str(text) for text in texts]
