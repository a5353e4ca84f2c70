"""Sentences with their words coloured by relevance, the parse tree above and walks below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.textpath import TextPath
from torch import Tensor

from walkwise.errors import InputError
from walkwise.plotting import _style as style
from walkwise.plotting._style import Bools, Nodes, Numbers
from walkwise.plotting.arcs import STEP, Arc, Piece, Words, draw_pieces, highest, pieces_of
from walkwise.plotting.walks import visits_of

#: Font sizes to try, largest first, until all lines fit.
_SIZES = (10.0, 9.0, 8.0, 7.0, 6.5)
_PAD = 2.5


@dataclass(frozen=True, eq=False)
class _Page:
    """A sentence set in lines, in points from the top left."""

    size: float
    words: Words
    above: list[Piece]
    below: list[Piece]
    top: list[float]  # of the words of every line
    bottom: list[float]
    height: float


def sentence_heatmap(
    tokens: Sequence[str],
    scores: Numbers,
    heads: Sequence[int] | Tensor | None = None,
    *,
    walks: Tensor | Sequence[Sequence[int]] | None = None,
    relevances: Numbers | None = None,
    k: int = 5,
    subgraph: Nodes | None = None,
    truth: Nodes | None = None,
    meaning: str = "relevance",
    limit: float | None = None,
    bar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Write a sentence, each word on the colour of its score, and return the axes.

    Long sentences go over several lines. Arcs above lead from each head to its dependent; arcs below are
    the steps of walks, orange above zero, blue below, and wider for more relevance. Arcs between two
    lines leave one at its end and enter the other there.

    Args:
        tokens: the words, (M,).
        scores: a score per word, (M,).
        heads: the head of every word, (M,); the root's is itself or -1.
        walks: word ids (K, L + 1), -1 where a walk bypasses a position.
        relevances: the relevance of every walk, (K,).
        k: how many walks to draw, those of largest magnitude.
        subgraph: words to outline, ids or a boolean mask.
        truth: words to underline.
        meaning: what a score is, for the colour bar.
        limit: the score at the ends of the colours; by default the largest.
        bar: whether to draw the colour bar.
        ax: where to draw, by default a new figure.

    >>> ax = sentence_heatmap(["not", "a", "bad", "film"], [-0.4, 0.0, -0.3, 0.1], [3, 3, 3, 3])
    >>> [text.get_text() for text in ax.texts]
    ['not', 'a', 'bad', 'film']
    >>> len(ax.patches)
    3
    """
    texts = [str(token) for token in tokens]
    M = len(texts)
    values = style.numbers(scores, "scores", M)
    chosen, known = style.node_mask(subgraph, M, "subgraph"), style.node_mask(truth, M, "truth")
    tree, steps = _tree(heads, M), _steps(walks, relevances, k, M)
    norm = style.symmetric(values, limit)
    new = ax is None
    ax = style.axes_for(ax, width=6.5, height=3.0)
    if bar:
        words = style.meaning_of(meaning, float(values.sum()), _remarks(chosen, known, steps))
        style.colour_bar(ax, norm, words, blank=limit is None and not values.any())
    style.settle(ax)
    page = _fitting(ax, texts, tree, steps, any_height=new)
    if new:
        ax.figure.figure.set_figheight(page.height / 72 + 0.75 * bar)
    _frame(ax, page, squeezed=not new and page.height > style.size_in_points(ax)[1])
    draw_pieces(ax, page.above, page.top, up=True)
    draw_pieces(ax, page.below, page.bottom, up=False)
    _write(ax, page, texts, style.COLOURS(norm(values)), chosen, known)
    return ax


def _tree(heads: Any, num_words: int) -> list[Arc]:
    """An arc from every head to its dependent."""
    if heads is None:
        return []
    given = style.numbers(heads, "heads", num_words).astype(int)
    if num_words and (given.min() < -1 or given.max() >= num_words):
        expected = f"the head of every word, 0 to {num_words - 1} (the root: itself, or -1)"
        raise InputError(argument="heads", expected=expected, got=given.tolist())
    return [Arc(int(head), i, style.GREY, 0.8) for i, head in enumerate(given) if head not in (i, -1)]


def _steps(walks: Any, relevances: Numbers | None, k: int, num_words: int) -> list[Arc]:
    """An arc for every step of the k walks of largest magnitude."""
    if walks is None:
        return []
    if relevances is None:
        raise InputError("walks come with their relevances.", argument="relevances", expected="a number for every walk")
    if k < 1:
        raise InputError(argument="k", expected="the number of walks to draw, at least 1", got=k)
    values = style.numbers(relevances, "relevances")
    visits = visits_of(walks, len(values))
    if any(node >= num_words for walk in visits for node in walk):
        last = max(map(max, filter(None, visits)))
        raise InputError(argument="walks", expected=f"numbers of words, 0 to {num_words - 1}", got=last)
    most = float(np.abs(values).max(initial=0)) or 1.0
    arcs = []
    for i in np.argsort(-np.abs(values), kind="stable")[:k]:
        colour = style.POSITIVE if values[i] >= 0 else style.NEGATIVE
        width = 0.6 + 1.8 * abs(values[i]) / most
        arcs += [Arc(a, b, colour, width) for a, b in pairwise(visits[i])]
    return arcs


def _fitting(ax: Axes, texts: list[str], tree: list[Arc], steps: list[Arc], *, any_height: bool) -> _Page:
    """The sentence set in the largest type with which it fits, or in the smallest."""
    width, height = style.size_in_points(ax)
    for size in _SIZES:
        page = _set(texts, tree, steps, size, width)
        if any_height or page.height <= height:
            break
    return page


def _set(texts: list[str], tree: list[Arc], steps: list[Arc], size: float, across: float) -> _Page:
    """The sentence set in lines of a given width."""
    width = np.array([_width(text, size) + 2 * _PAD for text in texts])
    x, line = np.zeros(len(texts)), [0] * len(texts)
    at = row = 0.0
    gap = 0.55 * size
    for i in range(len(texts)):
        if at > 0 and at + width[i] > across:
            at, row = 0.0, row + 1
        x[i], line[i] = at + width[i] / 2, int(row)
        at += width[i] + gap
    words = Words(x, width, line, across)
    above, below = pieces_of(tree, words), pieces_of(steps, words)
    top: list[float] = []
    bottom: list[float] = []
    y = 0.0
    for number in range(int(row) + 1):
        y -= STEP * (highest(above, number) + 1) if above else 0.4 * size
        top.append(y)
        y -= size + 2 * _PAD
        bottom.append(y)
        y -= STEP * (highest(below, number) + 1) if below else 0.4 * size
    return _Page(size, words, above, below, top, bottom, -y)


def _width(text: str, size: float) -> float:
    """The width of a text in points."""
    literal = text.replace("$", r"\$")  # words are not mathematics
    return float(TextPath((0, 0), literal, size=size).get_extents().width) if text.strip() else 0.3 * size


def _frame(ax: Axes, page: _Page, *, squeezed: bool) -> None:
    """Bare axes in points; where there is not enough height, lines come nearer to each other."""
    ax.set_xlim(0, page.words.across)
    ax.set_ylim(-page.height, 0)
    ax.set_aspect("auto" if squeezed else "equal", adjustable="box")
    ax.axis("off")


def _write(ax: Axes, page: _Page, texts: list[str], colours: Any, chosen: Bools, known: Bools) -> None:
    """The words on boxes of their colours."""
    for i, text in enumerate(texts):
        line = page.words.line[i]
        y = (page.top[line] + page.bottom[line]) / 2
        edge, width = ("black", 1.6) if chosen[i] else (style.FAINT, 0.4)
        box = {
            "boxstyle": f"round,pad={_PAD / page.size},rounding_size=0.25",
            "fc": colours[i],
            "ec": edge,
            "lw": width,
        }
        look: dict[str, Any] = {"size": page.size, "color": style.ink_on(colours[i]), "zorder": 3, "bbox": box}
        ax.text(page.words.x[i], y, text, ha="center", va="center_baseline", parse_math=False, **look)
        if known[i]:
            half = page.words.width[i] / 2
            ends = [page.words.x[i] - half, page.words.x[i] + half]
            ax.plot(ends, [page.bottom[line] - 1.5] * 2, color="black", lw=1.8, solid_capstyle="butt", zorder=4)


def _remarks(chosen: Bools, known: Bools, steps: list[Arc]) -> str:
    parts = {
        "outline: the subgraph": chosen.any(),
        "underline: the truth": known.any(),
        "arcs below: the most relevant walks": bool(steps),
    }
    return ", ".join(words for words, there in parts.items() if there)
