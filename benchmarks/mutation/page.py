"""The page in the documentation: how many mutants tests notice, which survive and why, and how many lines tests run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from mutation.mutants import ROOT, Mutant, files, mutants
from mutation.recorded import Record

PAGE = ROOT / "docs" / "mutation.md"
EQUIVALENT, MISSED = (Path(__file__).with_name(name) for name in ("equivalent.json", "missed.json"))

_HEAD = """# What the tests notice

A test that cannot fail proves nothing. Here small changes are made to the code, one at a time, and the tests must
notice them. A change, a *mutant*, swaps an operator (+ and −, × and ÷, and/or), inverts a comparison or a truth value,
moves a bound (< to ≤), drops a sign, adds 1 to a number, removes a branch, or returns nothing. Not changed are
conditions whose only outcome is an error, checks that always hold (`assert`, `zip(strict=True)`), named numbers (limits
that decide which of two equal routes is faster), and types.

{tried:,} of the {all:,} mutants of four rooms were tried: a random sample of each room, drawn after the tests were
written. **{score} are noticed**, every room counted by its size; {raw} if mutants without a visible effect
(*equivalent*) count as missed. The lists below give the reason for each of these, and for each missed mutant. A mutant
that the sample missed stays missed here, even if a test has been written for it since: another sample,
`--seed`, tells more than the same one repaired.

```sh
{command}
```

A mutant is only run against tests that execute its line; a first run of all tests records which test executes what. The
tests of its file come first, then the fastest of all others: {first[0]} of them, or {first[1]:.0f} seconds' worth.
If none fails, a second round has {second[0]:,}, or {second[1]:.0f} seconds' worth{deep}. So a survivor might still be
noticed by a test that was not run. The tests are those of the core, of questions, searches and tracing, of the
[matrix](matrix.md) (its sample) and the [zoo](coverage.md), and the examples in docstrings. Tests marked slow are left
out, and properties are checked on the same examples every time.{left}
"""


_LEFT = """

When this page was written, {} mutants of the sample were still to be tried."""


@dataclass(frozen=True)
class Run:
    """What was tried, and what became of it."""

    samples: Mapping[str, Sequence[Mutant]]  # by room
    whole: Mapping[str, Sequence[Mutant]]  # by file
    result: Callable[[Mutant], str | None]
    record: Record
    command: str
    budgets: tuple[tuple[int, float], tuple[int, float]]
    deep: bool  # whether all survivors have been through the second round
    left: int  # mutants of the sample that are still to be tried
    note: str = ""  # what else to say of the run

    def noticed(self, mutant: Mutant) -> bool:
        return self.result(mutant) in ("killed", "timeout")

    def survivors(self, tried: Sequence[Mutant]) -> list[Mutant]:
        """Those that no test has noticed, or had when the sample was drawn."""
        missed = reasons(MISSED)
        return [mutant for mutant in tried if not self.noticed(mutant) or mutant.name in missed]


def reasons(file: Path = EQUIVALENT) -> dict[str, str]:
    """Why mutants are equivalent, or were missed, by their names."""
    told: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    return {name: reason for reason, names in told.items() for name in names}


def _percent(part: int, whole: int) -> str:
    """Rounded down: 100.0 % is all of them."""
    return f"{1000 * part // max(1, whole) / 10:.1f} %"


def written(run: Run, covered: Sequence[str]) -> str:
    """Write the page; what to mend in the file of reasons."""
    why = reasons()
    every = list(
        {mutant.name: mutant for found in [*run.samples.values(), *run.whole.values()] for mutant in found}.values()
    )
    parts = [
        _HEAD.format(
            tried=len(every),
            all=sum(len(mutants(path)) for room in run.samples for path in files(room)),
            score=_by_size(run, why),
            raw=_by_size(run, {}),
            command=run.command,
            first=run.budgets[0],
            second=run.budgets[1],
            deep="" if run.deep else "; not all survivors below have been through it",
            left=(_LEFT.format(run.left) if run.left else "") + (f"\n\n{run.note}" if run.note else ""),
        ),
        "## The sample of each room\n\n" + _scores("room", run.samples, run, why),
        *(["## Files of which every mutant was tried\n\n" + _scores("file", run.whole, run, why)] if run.whole else []),
        "## Lines that tests run\n\n" + _lines(covered, run.record),
        "## Survivors\n\n" + _survivors(run.survivors(every), run, why),
    ]
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    there = {mutant.name for room in run.samples for path in files(room) for mutant in mutants(path)}
    noticed = {mutant.name for mutant in every} - {mutant.name for mutant in run.survivors(every)}
    stale = [f"no such mutant any more: {name}" for name in why if name not in there]
    return "\n".join(stale + [f"noticed after all: {name}" for name in why if name in noticed])


def _by_size(run: Run, why: dict[str, str]) -> str:
    """The share that is noticed, every room counted by how many mutants it has."""
    total, noticed = 0, 0.0
    for room, found in run.samples.items():
        lived = run.survivors(found)
        size = sum(len(mutants(path)) for path in files(room))
        total += size
        noticed += size * (len(found) - len(lived)) / max(1, len(found) - sum(mutant.name in why for mutant in lived))
    return _percent(int(noticed), total)


def _scores(what: str, tried: Mapping[str, Sequence[Mutant]], run: Run, why: dict[str, str]) -> str:
    lines = [f"| {what} | mutants | tried | noticed | equivalent | missed | score |", "|---|---|---|---|---|---|---|"]
    for name, found in tried.items():
        if not found:
            continue
        lived = run.survivors(found)
        same = sum(mutant.name in why for mutant in lived)
        score = _percent(len(found) - len(lived), len(found) - same)
        every = sum(len(mutants(path)) for path in files(name.removesuffix(".py")))
        row = [f"`{name}`", f"{every:,}", len(found), len(found) - len(lived), same, len(lived) - same, score]
        lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines) + "\n"


def _lines(rooms: Sequence[str], record: Record) -> str:
    text = "Under the same tests; the lines that could be run are those that hold a statement.\n\n"
    text += "| room | lines | run | share |\n|---|---|---|---|\n"
    for room in rooms:
        counts = [record.covered(path) for path in files(room)]
        lines = sum(count for count, _ in counts)
        run = lines - sum(len(missed) for _, missed in counts)
        text += f"| `{room}` | {lines:,} | {run:,} | {_percent(run, lines)} |\n"
    return text


def _survivors(found: Sequence[Mutant], run: Run, why: dict[str, str]) -> str:
    missed = reasons(MISSED)
    counts = Counter("equivalent" if mutant.name in why else "missed" for mutant in found)
    text = f"{counts['equivalent']} are equivalent, and {counts['missed']} are missed, for the reasons given.\n"
    for path, own in groupby(
        sorted(found, key=lambda mutant: (mutant.path, mutant.site)), key=lambda mutant: mutant.path
    ):
        text += f"\n### `{path.removeprefix('walkwise/')}`\n\n"
        for mutant in own:
            reason = f"equivalent: {why[mutant.name]}" if mutant.name in why else f"missed: {missed.get(mutant.name)}"
            text += f"- {_code(mutant)}: {reason}{'; noticed since' if run.noticed(mutant) else ''}\n"
    return text


def _code(mutant: Mutant) -> str:
    place = f"`{mutant.within}`, " if mutant.within else ""
    number = f" (number {mutant.repeat + 1})" if mutant.repeat else ""
    return f"{place}`{_short(mutant.before)}` → `{_short(mutant.after)}`{number}"


def _short(code: str) -> str:
    text = " ".join(code.split())
    return text if len(text) <= 70 else text[:34] + " … " + text[-33:]
