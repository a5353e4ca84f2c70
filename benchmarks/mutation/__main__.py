"""Mutation testing: small changes of the code, one at a time, each of which some test should notice.

PYTHONPATH=benchmarks python -m mutation [--count 150] [--seed 16] [--rooms core …] [--page]

A first run of all tests records which test runs which lines; it is kept in the folder --out, and repeated only for
tests that are new or were edited. A mutant then meets the tests that run its lines, the quickest of every file first: a
limited number and time of them; what survives meets more. Torch is imported and the tests are collected once; every
trial is a fork. What is done is kept, and a run that is cut short goes on where it stopped. --page writes
docs/mutation.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from mutation.mutants import ROOT, Mutant, digest, files, mutants
from mutation.page import Run, reasons, written
from mutation.recorded import Record, recorded
from mutation.trials import Collected, Outcome, Trial, imported_anew, in_a_child, runs_on_import, trial

ROOMS = ["core", "rules", "tracing", "questions"]
COVERED = [*ROOMS, "search"]

#: How many mutants of each room are tried, and which: another number gives others.
SAMPLE = {"core": 40, "rules": 40, "tracing": 130, "questions": 130}
SEED = 16
_COMMAND = "make mutation"
#: Tests and seconds, as recorded, that a mutant meets at first, and that survivors meet.
BUDGETS = (200, 6.0), (1000, 40.0)

#: The files of tests that a mutant meets for which all is imported anew, which takes longer than most tests do.
_MOST_FILES = 8


def sample(room: str, count: int, seed: int) -> list[Mutant]:
    """Mutants of a room at random; a change elsewhere in the code leaves the choice as it is."""
    every = [mutant for path in files(room) for mutant in mutants(path)]
    return sorted(every, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).hexdigest())[:count]


class Results:
    """What became of mutants, in a file that grows by a line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, str]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                told = json.loads(line)
                self.known[told["name"]] = told

    def get(self, mutant: Mutant) -> str | None:
        """The result, if the file is still the one that was changed."""
        told = self.known.get(mutant.name)
        return told["result"] if told and told["version"] == digest(mutant.path) else None

    def met(self, mutant: Mutant) -> str:
        """A digest of the tests that were tried."""
        return self.known.get(mutant.name, {}).get("met", "")

    def add(self, mutant: Mutant, outcome: Outcome, met: str) -> None:
        told = {"name": mutant.name, **asdict(outcome), "version": digest(mutant.path), "met": met}
        self.known[mutant.name] = told
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def tried(mutants: list[Mutant], record: Record, results: Results, budget: tuple[int, float]) -> Results:
    """Every mutant that no test has noticed so far meets the tests of a budget."""
    waiting = []
    for mutant in mutants:
        if results.get(mutant) in ("killed", "timeout"):
            continue
        given = trial(mutant, record)
        if not given.tests:
            results.add(mutant, Outcome("never run"), "")
        elif results.get(mutant) is None or results.met(mutant) != given.digest(budget):
            waiting.append(given)
    place = {given.mutant.name: number for number, given in enumerate(waiting)}
    aloud = os.dup(2)

    def tell(given: Trial, outcome: Outcome) -> None:
        results.add(given.mutant, outcome, given.digest(budget))
        number = place[given.mutant.name] + 1
        os.write(aloud, f"{number}/{len(waiting)} {outcome.result:9} {given.mutant.name}\n".encode())

    if waiting:
        in_a_child(Collected(waiting, budget, tell).run, 1e9)
        results = Results(results.path)
    for given in waiting:
        done = results.get(given.mutant) is not None and results.met(given.mutant) == given.digest(budget)
        if not done or (results.get(given.mutant) == "survived" and runs_on_import(given.mutant, record)):
            names, seconds = given.affordable(budget, Counter(), _MOST_FILES)
            tell(given, in_a_child(lambda say, m=given.mutant, n=names: imported_anew(m, n, say), 60 + seconds))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, help=f"mutants of each room; otherwise {SAMPLE}")
    parser.add_argument("--seed", type=int, default=SEED, help="another one draws another sample")
    parser.add_argument("--rooms", nargs="*", choices=ROOMS, default=ROOMS)
    parser.add_argument("--files", nargs="*", default=[], help="files of which every mutant is tried: core/rows.py")
    parser.add_argument("--rounds", type=int, default=2, help="1: survivors meet no more tests; 0: nothing is run")
    parser.add_argument("--page", action="store_true", help="write docs/mutation.md")
    parser.add_argument("--note", default="", help="what to say of the run on the page")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutation")
    given = parser.parse_args()
    os.chdir(ROOT)
    import hypothesis.strategies  # noqa: F401  (once, for all children)
    import torch
    import torch_geometric.nn  # noqa: F401

    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    aloud = os.dup(2)
    sources = [path for room in COVERED for path in files(room)]

    def record_tests(_: object) -> int:
        recorded(given.out / "tests.json", sources, lambda text: os.write(aloud, f"{text}\n".encode()))
        return 0

    if given.rounds and in_a_child(record_tests, 1e9).result != "survived":
        sys.exit("The tests could not be recorded.")
    record = Record.read(given.out / "tests.json")
    results = Results(given.out / "mutants.jsonl")
    counts = SAMPLE if given.count is None else dict.fromkeys(ROOMS, given.count)
    samples = {room: sample(room, counts[room], given.seed) for room in given.rooms}
    whole = {path: mutants(f"walkwise/{path}") for path in given.files}
    every = list({mutant.name: mutant for found in [*samples.values(), *whole.values()] for mutant in found}.values())
    for budget in BUDGETS[: given.rounds]:
        results = tried(every, record, results, budget)
        every = [mutant for mutant in every if mutant.name not in reasons()]
    for name, found in [*samples.items(), *whole.items()]:
        lived = [mutant for mutant in found if results.get(mutant) not in ("killed", "timeout")]
        print(f"{name}: {len(found) - len(lived)} of {len(found)} noticed")
        for mutant in lived:
            print(f"  {results.get(mutant)} {mutant.path}:{mutant.lines[0]} {mutant.name}")
    if given.page:
        _write_page(samples, whole, results, record, given.note)


def _write_page(
    samples: dict[str, list[Mutant]], whole: dict[str, list[Mutant]], results: Results, record: Record, note: str
) -> None:
    """The page, of what has been tried."""
    some, files_tried = (
        {name: [mutant for mutant in found if results.get(mutant)] for name, found in given.items()}
        for given in (samples, whole)
    )
    left = sum(map(len, samples.values())) - sum(map(len, some.values()))
    lived = [mutant for found in some.values() for mutant in found if results.get(mutant) == "survived"]
    unsettled = [mutant for mutant in lived if mutant.name not in reasons()]
    deep = all(results.met(mutant) == trial(mutant, record).digest(BUDGETS[1]) for mutant in unsettled)
    print(written(Run(some, files_tried, results.get, record, _COMMAND, BUDGETS, deep, left, note), COVERED))


if __name__ == "__main__":
    main()
