"""The questions of a run about every graph, as users write them: ``nodes``, ``walks:10``, ``order:0.1``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from walkwise.errors import InputError
from walkwise.runs.groups import as_groups


@dataclass(frozen=True)
class Question:
    """A question to every graph."""

    kind: str  # nodes, edges, walks, order, subgraph, groups or curves
    number: float = 0.0  # of walks or nodes, or the discount α
    name: str = ""  # as people write it
    groups: Mapping[str, Any] = field(default_factory=dict, hash=False)  # name: what it is made of

    @property
    def folder(self) -> str:
        """The folder of its shards."""
        return self.name.replace(":", "-")


def as_questions(given: Iterable[str] | str) -> tuple[Question, ...]:
    """The questions, each checked.

    Args:
        given: names such as "nodes", "edges", "walks:10", "order:0.1", "subgraph:5", "groups:FILE", "curves".

    >>> [question.folder for question in as_questions(["nodes", "walks:10"])]
    ['nodes', 'walks-10']
    >>> as_questions("walks:none")
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: A question such as walks:10 must have a whole number of at least 1, got 'walks:none'.
    """
    listed = [given] if isinstance(given, str) else list(given)
    questions = tuple(_question(one) for one in listed)
    folders = [question.folder for question in questions]
    twice = next((folder for folder in folders if folders.count(folder) > 1), None)
    if twice is not None or not questions:
        raise InputError(
            "No question is asked." if twice is None else f"The question {twice.replace('-', ':', 1)} is asked twice.",
            argument="questions",
            expected=f"different questions of {', '.join(_KINDS)}",
            got=listed,
            remedy="Ask for example nodes." if twice is None else "Ask it once.",
        )
    return questions


def _question(given: Any) -> Question:
    kind, _, rest = str(given).partition(":")
    if kind not in _KINDS:
        raise InputError(
            f"There is no question {given!r}; the questions are {', '.join(_KINDS)}.",
            argument="questions",
            expected=f"one of {', '.join(_KINDS)}",
            got=given,
        )
    return _KINDS[kind](kind, rest)


def _bare(kind: str, rest: str) -> Question:
    if rest:
        raise InputError(
            f"The question {kind} must have no number, got '{kind}:{rest}'.",
            argument="questions",
            expected=kind,
            got=f"{kind}:{rest}",
        )
    return Question(kind, name=kind)


def _counted(kind: str, rest: str) -> Question:
    try:
        number = int(rest)
    except ValueError:
        number = 0
    if number < 1:
        raise InputError(
            f"A question such as {kind}:10 must have a whole number of at least 1, got '{kind}:{rest}'.",
            argument="questions",
            expected=f"{kind}:NUMBER",
            got=f"{kind}:{rest}",
        )
    return Question(kind, number, f"{kind}:{number}")


def _discounted(kind: str, rest: str) -> Question:
    try:
        number = float(rest or 0)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InputError(
            f"A question such as {kind}:0.1 must have a discount α between 0 and 1, got '{kind}:{rest}'.",
            argument="questions",
            expected=f"{kind}:ALPHA",
            got=f"{kind}:{rest}",
        )
    return Question(kind, number, f"{kind}:{number:g}" if rest else kind)


def _grouped(kind: str, rest: str) -> Question:
    return Question(kind, name=f"{kind}:{Path(rest).stem}", groups=as_groups(rest))


#: The questions for which the model is asked about parts of graphs.
ON_PARTS = frozenset({"subgraph", "groups", "curves"})

_KINDS: dict[str, Callable[[str, str], Question]] = {
    "nodes": _bare,
    "edges": _bare,
    "walks": _counted,
    "order": _discounted,
    "subgraph": _counted,
    "groups": _grouped,
    "curves": _discounted,
}
