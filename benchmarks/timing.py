"""Two things timed side by side: a ratio that a busy machine disturbs as little as possible."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

Thunk = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """The median of many paired ratios, their quartiles, and the ratio of the fastest turns of each."""

    median: float
    low: float
    high: float
    best: float
    rounds: int
    top: float  # median seconds of one call of each, for the curious
    bottom: float

    def per(self, count: int) -> Ratio:
        """The same for one of ``count`` things that the top call does."""
        shared = {name: getattr(self, name) / count for name in ("median", "low", "high", "best", "top")}
        return replace(self, **shared)

    def inverted(self) -> Ratio:
        """Bottom over top."""
        return Ratio(1 / self.median, 1 / self.high, 1 / self.low, 1 / self.best, self.rounds, self.bottom, self.top)


def compare(top: Thunk, bottom: Thunk, *, seconds: float, clock: Clock, sample: float = 0.01) -> Ratio:
    """Time of ``top`` over time of ``bottom``.

    The two take turns, and which goes first alternates, so that what slows the machine slows both. A turn
    repeats its call until it lasts about ``sample`` seconds. As many rounds as the time allows, and at least 5 unless
    that would take far longer.
    """
    repeats = [_repeats(top, sample, clock), _repeats(bottom, sample, clock)]
    tops: list[float] = []
    bottoms: list[float] = []
    begun = time.perf_counter()
    while _goes_on(len(tops), time.perf_counter() - begun, seconds):
        if len(tops) % 2:
            b, t = _turn(bottom, repeats[1], clock), _turn(top, repeats[0], clock)
        else:
            t, b = _turn(top, repeats[0], clock), _turn(bottom, repeats[1], clock)
        tops.append(t)
        bottoms.append(b)
    ratios = [t / b for t, b in zip(tops, bottoms, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    best = min(tops) / min(bottoms)
    return Ratio(median, low, high, best, len(ratios), statistics.median(tops), statistics.median(bottoms))


def _goes_on(rounds: int, spent: float, seconds: float) -> bool:
    if rounds < 5:
        return rounds < 2 or spent < 4 * seconds
    return spent < seconds and rounds < 400


def _repeats(call: Thunk, sample: float, clock: Clock) -> int:
    """How many calls last about a sample; finding out warms up caches and lazy initialisation."""
    once = _turn(call, 1, clock)
    if once < 10 * sample:
        once = min(_turn(call, 1, clock) for _ in range(3))
    return max(1, round(sample / once))


def _turn(call: Thunk, repeats: int, clock: Clock) -> float:
    begun = clock()
    for _ in range(repeats):
        call()
    return (clock() - begun) / repeats
