"""Arcs between words on lines: an arc gets its own level if others are in the way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from walkwise.plotting._style import Floats

#: Points between two levels, and between a word and the first of them.
STEP = 6.0


@dataclass(frozen=True)
class Arc:
    """From a word to a word, with an arrowhead at the end."""

    start: int
    end: int
    colour: str
    width: float


@dataclass(frozen=True)
class Piece:
    """The part of an arc that lies on one line; at the end of the line where the other word is elsewhere."""

    arc: Arc
    line: int
    start: float | None  # where it leaves its word, if that is on this line
    end: float | None  # where it arrives at its word, if that is on this line
    left: float
    right: float
    level: int = 0


@dataclass(frozen=True, eq=False)
class Words:
    """Where the words stand, in points."""

    x: Floats  # (M,) their middles
    width: Floats  # (M,)
    line: Sequence[int]  # (M,)
    across: float  # how long a line is


def pieces_of(arcs: Sequence[Arc], words: Words) -> list[Piece]:
    """The arcs cut at the ends of lines, each piece on the lowest level that is free for it."""
    attach = _attachments(arcs, words)
    pieces = []
    for i, arc in enumerate(arcs):
        a, b = attach[i]
        first, last = words.line[arc.start], words.line[arc.end]
        if first == last:
            pieces.append(Piece(arc, first, a, b, min(a, b), max(a, b)))
        else:  # the earlier line is left at its right end, the later one entered at its left
            down = first < last
            pieces.append(Piece(arc, first, a, None, *((a, words.across) if down else (0.0, a))))
            pieces.append(Piece(arc, last, None, b, *((0.0, b) if down else (b, words.across))))
    return _levelled(pieces)


def _attachments(arcs: Sequence[Arc], words: Words) -> list[tuple[float, float]]:
    """The x at which each arc leaves and arrives: the ends at one word stand side by side."""
    at: defaultdict[int, list[tuple[float, int, int]]] = defaultdict(list)
    for i, arc in enumerate(arcs):
        for end, (word, other) in enumerate(((arc.start, arc.end), (arc.end, arc.start))):
            far = words.x[other] + words.across * (words.line[other] - words.line[word])
            toward = far - words.x[word] if other != word else 0.1 * (end - 0.5)
            # The nearer of two arcs to one side lies inside the other.
            at[word].append((float(np.sign(toward)) * (1e6 - abs(float(toward))), i, end))
    places = np.zeros((len(arcs), 2))
    for word, ends in at.items():
        gap = min(3.5, max(words.width[word] - 4, 1.0) / max(len(ends) - 1, 1))
        for rank, (_, i, end) in enumerate(sorted(ends)):
            places[i, end] = words.x[word] + (rank - (len(ends) - 1) / 2) * gap
    return [(float(a), float(b)) for a, b in places]


def _levelled(pieces: list[Piece]) -> list[Piece]:
    taken: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    found = []
    for piece in sorted(pieces, key=lambda p: p.right - p.left):
        level = 1
        while any(piece.left < right and left < piece.right for left, right in taken[piece.line, level]):
            level += 1
        taken[piece.line, level].append((piece.left - 2, piece.right + 2))
        found.append(replace(piece, level=level))
    return found


def highest(pieces: Sequence[Piece], line: int) -> int:
    """The number of levels on a line."""
    return max((piece.level for piece in pieces if piece.line == line), default=0)


def draw_pieces(ax: Axes, pieces: Sequence[Piece], base: Sequence[float], *, up: bool) -> None:
    """Rounded arcs above or below their line, whose edge is at ``base``."""
    for piece in pieces:
        y0 = base[piece.line]
        y1 = y0 + (1 if up else -1) * STEP * (piece.level + 0.3)
        head = "-" if piece.end is None else "-|>"
        arrow = FancyArrowPatch(path=_path(piece, y0, y1), arrowstyle=head, fill=False, zorder=2)
        arrow.set(color=piece.arc.colour, linewidth=piece.arc.width, mutation_scale=4 + 1.6 * piece.arc.width)
        ax.add_patch(arrow)


def _path(piece: Piece, y0: float, y1: float) -> Path:
    """From a word away, along, and back to a word; without the one or the other where the line ends."""
    outer = {piece.left, piece.right} - {piece.start, piece.end}
    start = outer.pop() if piece.start is None else piece.start
    end = outer.pop() if piece.end is None else piece.end
    r = float(np.sign(end - start)) * min(4.0, abs(end - start) / 2)
    points, kinds = [(start, y1)], [Path.MOVETO]
    if piece.start is not None:
        points, kinds = [(start, y0), (start, y1), (start + r, y1)], [Path.MOVETO, Path.CURVE3, Path.CURVE3]
    if piece.end is None:
        return Path([*points, (end, y1)], [*kinds, Path.LINETO])
    return Path([*points, (end - r, y1), (end, y1), (end, y0)], [*kinds, Path.LINETO, Path.CURVE3, Path.CURVE3])
