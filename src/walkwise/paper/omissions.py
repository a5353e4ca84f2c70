"""What tables and figures leave out, and why: every reason once, however many models it concerns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from walkwise.errors import OTHER_ROOT

#: The end that the reasons of all missing data sets share.
_ELSEWHERE = f", or {OTHER_ROOT}"


@dataclass(frozen=True)
class Omission:
    """Models, or a picture, that were left out for one reason."""

    names: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{', '.join(self.names)}: {self.reason}"


def gathered(omissions: Iterable[Omission]) -> tuple[Omission, ...]:
    """The same with each reason once, and its names sorted.

    >>> [
    ...     str(o)
    ...     for o in gathered([Omission(("b",), "No."), Omission(("c",), "Nor this."), Omission(("a", "b"), "No.")])
    ... ]
    ['a, b: No.', 'c: Nor this.']
    """
    names: dict[str, set[str]] = {}
    for omission in omissions:
        names.setdefault(omission.reason, set()).update(omission.names)
    return tuple(Omission(tuple(sorted(named)), reason) for reason, named in names.items())


def reasons(omissions: Iterable[Omission]) -> list[str]:
    r"""One line for every reason; what all data sets share is said once, at the end.

    >>> end = f"Put it there, or {OTHER_ROOT}"
    >>> print(*reasons([Omission(("a",), f"No A. {end}"), Omission(("b",), f"No B. {end}")]), sep="\n")
    a: No A. Put it there.
    b: No B. Put it there.
    Or name another folder of data sets: root= in Python, --data ..., or the environment variable WALKWISE_ROOT.
    """
    lines, last = [], ""
    for omission in gathered(omissions):
        line = str(omission)
        if line.endswith(_ELSEWHERE):
            line, last = f"{line.removesuffix(_ELSEWHERE)}.", f"Or {OTHER_ROOT}"
        lines.append(line)
    return [*lines, last] if last else lines


def left_out(omissions: Iterable[Omission]) -> str:
    """Everything that is left out, for whatever reason.

    >>> left_out([Omission(("a", "b"), "No."), Omission(("c",), "Nor this.")])
    'a, b, c'
    """
    return ", ".join(dict.fromkeys(name for omission in omissions for name in omission.names))
