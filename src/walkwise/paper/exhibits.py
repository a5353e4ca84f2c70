"""The parts of a table or figure of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from walkwise.paper.bench import BenchCase, Effort
from walkwise.paper.units import Row, Unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Workload:
    """Units that need one model and its data set, made when both are there."""

    needs: str  # the model's name
    units: Callable[[BenchCase, Effort], Sequence[Unit]]


@dataclass(frozen=True)
class Finding:
    """What the rows say, in words and in a table."""

    holds: bool | str | None  # whether the paper's claim holds, or how far; None where this run cannot tell
    verdict: str  # one sentence
    table: str = ""  # Markdown
    notes: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """Whether the claim holds, in a word or two."""
        return (
            self.holds if isinstance(self.holds, str) else {True: "yes", False: "no", None: "cannot tell"}[self.holds]
        )


@dataclass(frozen=True)
class Exhibit:
    """One table or figure: how its rows are computed, drawn and judged."""

    name: str  # such as "figure5"
    title: str
    claim: str  # what the paper says
    work: tuple[Workload, ...]
    draw: Callable[[Sequence[Row]], Figure]
    judge: Callable[[Sequence[Row]], Finding]
    rule: str = ""  # when the claim counts as holding


def so_far(claims: Sequence[bool]) -> bool | str:
    """How far a claim of several parts holds: yes if every part does, no if none does, else in part.

    >>> so_far([True, True]), so_far([True, False]), so_far([False])
    (True, 'in part', False)
    """
    return True if all(claims) else "in part" if any(claims) else False
