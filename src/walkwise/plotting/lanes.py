"""The paths of several walks in one drawing: lanes side by side along edges, and petals where walks stay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from walkwise.plotting._style import Floats

# As shares of a usual step's length.
_LANE, _ROAD = 0.08, 0.5  # between two lanes, and between the outermost of an edge at most
_OFF_NODE, _STAGGER = 0.22, 0.08  # from a node to where lanes begin; between the ends of walks in lanes side by side
_HUB, _PETAL, _PETAL_GAP = 0.1, 0.36, 0.035  # from a node to where petals begin, their length, and between them
_TIP = 0.3  # from a node to where walks begin or end in a petal
_NEAR = 1.6  # within which other nodes are in a petal's way
#: How many times as long as the way to the nearest node a petal's unit is at most.
_CLOSE = 1.1
#: Radians: the widest petal, and what is left free on both sides of petals.
_WIDE, _MARGIN = np.radians(50), np.radians(24)

#: A step of a walk: the walk's number, and the position it leaves.
Step = tuple[int, int]
Walks = Sequence[Sequence[int]]


def lines_of(walks: Walks, places: Floats) -> list[Floats]:
    """The line of every walk: its first point, then three per piece, as cubic curves have them.

    On an edge each step has a lane of its own, to the right in its direction, as on a road. Where a walk stays
    it makes a petal, on the side where no other node is near. Pieces are joined by smooth turns around the node.

    Args:
        walks: the nodes that each walk visits, in order.
        places: where the nodes are, (M, 2).

    >>> (line,) = lines_of([[0, 1, 1]], np.array([[0.0, 0.0], [1.0, 0.0]]))
    >>> line.shape  # a lane, a turn, a petal
    (10, 2)
    >>> bool(line[:, 0].max() > 1.2)  # the petal points away from node 0
    True
    """
    unit = usual_step(walks, places)
    pieces = _lanes(walks, places, unit) | _petals(walks, places, unit)
    alone = _spots(walks, places, unit)
    return [
        _joined([pieces[i, at] for at in range(len(walk) - 1)]) if len(walk) > 1 else alone[i]
        for i, walk in enumerate(walks)
    ]


def usual_step(walks: Walks, places: Floats) -> float:
    """The median length of the steps from one node to another, 1 where there are none."""
    lengths = [float(np.hypot(*(places[b] - places[a]))) for walk in walks for a, b in pairwise(walk) if a != b]
    return (float(np.median(lengths)) if lengths else 1.0) or 1.0


def narrowest(walks: Walks, places: Floats) -> float:
    """The room that the lines of the walks have, where it is least, as a share of a usual step's length."""
    lanes = [_lane(len(road)) for road in _roads(walks).values()]
    unit = usual_step(walks, places)
    petals = []
    for node, steps in _stays(walks).items():
        near = _unit_at(places, node, unit)
        petals.append(0.12 * _petal_width(places, node, len(steps), near) * near / unit)
    return min([_LANE, *lanes, *petals])


def _unit_at(places: Floats, node: int, unit: float) -> float:
    """The length by which a node's petals are drawn: a usual step's, or less where another node is much closer."""
    far = np.hypot(*(places - places[node]).T)
    return min(unit, _CLOSE * float(far[far > 0].min(initial=np.inf)))


def _lane(count: int) -> float:
    return min(_LANE, _ROAD / count)


def _roads(walks: Walks) -> dict[tuple[int, int], list[Step]]:
    """The steps that share an edge, whatever their direction, by its nodes, the lower first."""
    found: dict[tuple[int, int], list[Step]] = defaultdict(list)
    for i, walk in enumerate(walks):
        for at, (a, b) in enumerate(pairwise(walk)):
            if a != b:
                found[min(a, b), max(a, b)].append((i, at))
    return found


def _lanes(walks: Walks, places: Floats, unit: float) -> dict[Step, Floats]:
    """A straight piece per step from one node to another.  # (4, 2) each"""
    pieces = {}
    for (low, high), steps in _roads(walks).items():
        along = places[high] - places[low]
        length = float(np.hypot(*along))
        along = along / length if length else np.array([1.0, 0.0])
        left = np.array([-along[1], along[0]])
        for rank, (i, at) in enumerate(_side_by_side(walks, places, steps)):
            aside = (rank - (len(steps) - 1) / 2) * _lane(len(steps)) * unit * left
            forth = walks[i][at] == low
            start, end = (places[low], places[high]) if forth else (places[high], places[low])
            heading = along if forth else -along
            first, last = _ends(walks[i], at, rank, len(steps))
            off = min(unit, length)
            pieces[i, at] = _straight(start + aside + first * off * heading, end + aside - last * off * heading)
    return pieces


def _ends(walk: Sequence[int], at: int, rank: int, lanes: int) -> tuple[float, float]:
    """How far from the nodes a lane begins and ends; walks in lanes side by side begin and end at different places."""
    more = _STAGGER * (rank % 3) * (lanes > 1)
    return _OFF_NODE + more * (at == 0), _OFF_NODE + more * (at == len(walk) - 2)


def _side_by_side(walks: Walks, places: Floats, steps: Sequence[Step]) -> list[Step]:
    """The steps on an edge from the right to the left of its direction, low to high.

    Both directions keep to their right. Of those in one direction, the ones that turn right run rightmost and those
    that turn back run next to the other direction, so that few lines cross at the nodes.
    """

    def turns(step: Step) -> tuple[float, float]:
        walk, at = walks[step[0]], step[1]
        before = [node for node in reversed(walk[:at]) if node != walk[at]][:1]
        after = [node for node in walk[at + 2 :] if node != walk[at + 1]][:1]
        return _turn(places, [*walk[at : at + 2], *after]), _turn(places, [*before, *walk[at : at + 2]])

    forth = [step for step in steps if _leaves(walks, step) < walks[step[0]][step[1] + 1]]
    back = [step for step in steps if _leaves(walks, step) > walks[step[0]][step[1] + 1]]
    return [*sorted(forth, key=turns), *sorted(back, key=turns, reverse=True)]


def _leaves(walks: Walks, step: Step) -> int:
    return walks[step[0]][step[1]]


def _turn(places: Floats, nodes: Sequence[int]) -> float:
    """The angle between two steps, left above zero, π for turning back; 0 where there is one step only."""
    if len(nodes) < 3:
        return 0.0
    a, b, c = nodes
    (x, y), (u, v) = places[b] - places[a], places[c] - places[b]
    return np.pi if a == c else float(np.arctan2(x * v - y * u, x * u + y * v))


def _stays(walks: Walks) -> dict[int, list[Step]]:
    """The steps from a node to itself, by the node."""
    found: dict[int, list[Step]] = defaultdict(list)
    for i, walk in enumerate(walks):
        for at, (a, b) in enumerate(pairwise(walk)):
            if a == b:
                found[a].append((i, at))
    return found


def _petals(walks: Walks, places: Floats, unit: float) -> dict[Step, Floats]:
    """A loop per step from a node to itself, those of a node side by side.  # (4, 2) each"""
    pieces = {}
    for node, steps in _stays(walks).items():
        near = _unit_at(places, node, unit)
        begin, room = _free_sector(places, node, near)
        wide = _petal_width(places, node, len(steps), near)
        hub = float(np.clip(_PETAL_GAP / wide, _HUB, _OFF_NODE))
        for rank, step in enumerate(steps):
            angle = begin + room / 2 + (rank - (len(steps) - 1) / 2) * wide
            ends = step[1] == 0, step[1] == len(walks[step[0]]) - 2
            pieces[step] = _petal(places[node], angle, wide, hub, near, ends=ends)
    return pieces


def _petal_width(places: Floats, node: int, count: int, unit: float) -> float:
    """The angle that each of this many petals has."""
    return min(float(_WIDE), _free_sector(places, node, unit)[1] / count)


def _petal(place: Floats, angle: float, wide: float, hub: float, unit: float, *, ends: tuple[bool, bool]) -> Floats:
    """A loop from near a node and back. Where a walk begins or ends there, it does so farther out, to be seen."""
    near = place + hub * unit * _direction(angle)
    far = near + 4 / 3 * _PETAL * unit * np.array([_direction(angle + side * 0.55 * wide) for side in (-1, 1)])
    tips = [place + _TIP * unit * _direction(angle + side * 0.22 * wide) for side in (-1, 1)]
    start, end = (tip if loose else near for tip, loose in zip(tips, ends, strict=True))
    return np.array([start, *far, end])


def _free_sector(places: Floats, node: int, unit: float) -> tuple[float, float]:
    """The widest sector around a node without another node near: its first angle, and its width."""
    apart = places - places[node]
    far = np.hypot(*apart.T)
    near = apart[(far > 0) & (far < _NEAR * unit)]
    angles = np.sort(np.arctan2(near[:, 1], near[:, 0])) if len(near) else np.array([-np.pi / 2])
    gaps = np.diff(angles, append=angles[0] + 2 * np.pi)
    widest = int(gaps.argmax())
    margin = min(_MARGIN, gaps[widest] / 4)
    return float(angles[widest] + margin), float(gaps[widest] - 2 * margin)


def _spots(walks: Walks, places: Floats, unit: float) -> dict[int, Floats]:
    """A point for every walk that visits one node only, side by side where several do.  # (1, 2) each"""
    here: dict[int, list[int]] = defaultdict(list)
    for i, walk in enumerate(walks):
        for node in walk if len(walk) == 1 else ():
            here[node].append(i)
    spots = {i: np.zeros((0, 2)) for i, walk in enumerate(walks) if not walk}
    for node, numbers in here.items():
        for rank, i in enumerate(numbers):
            off = _HUB * unit * (len(numbers) > 1) * _direction(2 * np.pi * rank / len(numbers))
            spots[i] = (places[node] + off)[None]
    return spots


def _joined(pieces: Sequence[Floats]) -> Floats:
    """Pieces one after the other, with smooth turns between them."""
    points = [pieces[0]]
    for one, other in pairwise(pieces):
        points += [_smooth(one, other)[1:], other[1:]]
    return np.concatenate(points)


def _smooth(one: Floats, other: Floats) -> Floats:
    """The turn from the end of a piece to the beginning of another.  # (4, 2)"""
    start, end = one[3], other[0]
    handle = 0.55 * float(np.hypot(*(end - start)))
    return np.array([start, start + handle * _unit(one[3] - one[2]), end - handle * _unit(other[1] - other[0]), end])


def _straight(start: Floats, end: Floats) -> Floats:
    return start + np.array([[0], [1], [2], [3]]) / 3 * (end - start)


def _unit(vector: Floats) -> Floats:
    length = float(np.hypot(*vector))
    return vector / length if length else vector


def _direction(angle: float) -> Floats:
    return np.array([np.cos(angle), np.sin(angle)])
