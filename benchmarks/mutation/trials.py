"""Trials: a mutant, and the tests that run its lines, until one of them fails."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
import resource
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from mutation.mutants import ROOT, SOURCE, Loader, Mutant, compiled
from mutation.recorded import OPTIONS, TESTS, Record, Repeatable

Swaps = list[tuple[CodeType, CodeType]]

_MEMORY = 8 << 30  # bytes, of one trial


def chosen_tests(mutant: Mutant, record: Record) -> list[str]:
    """The tests that run a mutant's lines: those made for its file, then the quickest of every file, and so on.

    The tests of its own room come three of a file at a time where others come one at a time.

    Lines that run when the module is imported, and in no test, concern every test that runs something of the module.
    """
    running = {name: test for name, test in record.tests.items() if test.runs(mutant.path, *mutant.lines)}
    if not running and runs_on_import(mutant, record):
        running = {name: test for name, test in record.tests.items() if mutant.path in test.lines}
    room, stem = Path(mutant.path).parts[1], Path(mutant.path).stem
    own = f"tests/test_{room}" if room.endswith(".py") else f"tests/{room}/"
    counts: Counter[str] = Counter()
    turns: dict[str, tuple[int, float]] = {}
    for name in sorted(running, key=lambda name: running[name].seconds):
        file = running[name].file.split(" ")[0]
        made_for_it = Path(file).stem in (stem, f"test_{stem}")
        turn = 0 if made_for_it else 1 + counts[file] // (3 if file.startswith(own) else 1)
        turns[name] = turn, running[name].seconds
        counts[file] += 1
    return sorted(running, key=lambda name: turns[name])


def runs_on_import(mutant: Mutant, record: Record) -> bool:
    """Whether its lines run before any test does: when modules are imported and tests collected."""
    first, last = mutant.lines
    return bool(int(record.imported.get(mutant.path, "0"), 16) >> first & ((1 << (last - first + 1)) - 1))


@dataclass(frozen=True)
class Trial:
    """A mutant, and the tests that run its lines."""

    mutant: Mutant
    tests: list[str]
    seconds: list[float]  # that each of them takes, as recorded

    def affordable(
        self, budget: tuple[int, float], liked: Counter[str], most_files: int | None = None
    ) -> tuple[list[str], float]:
        """The tests that a budget allows, one at least, those first that are liked most; and the time they may take."""
        taken: list[str] = []
        total = 0.0
        first = list(dict.fromkeys(name.split("::")[0] for name in self.tests))[:most_files]
        places = [place for place, name in enumerate(self.tests) if name.split("::")[0] in first]
        for place in sorted(places, key=lambda place: -liked[self.tests[place]]):
            total += self.seconds[place]
            if taken and (total > budget[1] or len(taken) == budget[0]):
                total -= self.seconds[place]
                continue  # a quicker one may follow
            taken.append(self.tests[place])
        return taken, 60 + 10 * total

    def digest(self, budget: tuple[int, float]) -> str:
        """What changes when other tests are met."""
        return hashlib.sha256(f"{budget} {sorted(self.tests)}".encode()).hexdigest()[:16]


def trial(mutant: Mutant, record: Record) -> Trial:
    """A mutant with its tests."""
    names = chosen_tests(mutant, record)
    return Trial(mutant, names, [record.tests[name].seconds for name in names])


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: "killed" by a test, "timeout", or "survived"."""

    result: str
    by: str = ""


def in_a_child(work: Callable[[Callable[[str], None]], int], seconds: float) -> Outcome:
    """ "survived" if the work ends with 0, "killed" with anything else, "timeout" if it takes longer.

    The work may say, as it goes, which test it is at.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            code = work(lambda name: print(name, file=os.fdopen(os.dup(writing), "w")))
        finally:
            os._exit(code)
    os.close(writing)
    end = time.monotonic() + seconds
    result, said = "", b""
    while not result and time.monotonic() < end:
        if select.select([reading], [], [], 0.01)[0]:
            said += os.read(reading, 1 << 16)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            result = "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not result:
        os.waitpid(child, 0)
    os.set_blocking(reading, False)
    with contextlib.suppress(BlockingIOError):
        said += os.read(reading, 1 << 16)
    os.close(reading)
    last = said.decode().splitlines()[-1:] if result != "survived" else []
    return Outcome(result or "timeout", "".join(last))


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))


class Collected:
    """All tests collected once; every trial is a fork in which the functions' code is replaced by the mutant's.

    Mutants that change what happens on import are left to `imported_anew`.
    """

    def __init__(self, trials: list[Trial], budget: tuple[int, float], tell: Callable[[Trial, Outcome], None]) -> None:
        self.trials, self.budget, self.tell = trials, budget, tell
        self.liked: dict[str, Counter[str]] = defaultdict(Counter)  # the tests that noticed mutants, by file

    def run(self, _: object) -> int:
        """In a child that has not imported walkwise."""
        return int(pytest.main([*OPTIONS, *[str(ROOT / test) for test in TESTS]], plugins=[self, Repeatable()]))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions = _functions()
        gc.collect()
        gc.freeze()

        def run(names: list[str], swaps: Swaps, seconds: float) -> Outcome:
            def work(say: Callable[[str], None]) -> int:
                _limited()
                for before, after in swaps:
                    for function in functions.get(before, ()):
                        function.__code__ = after
                return _first_failure(session, [items[name] for name in names if name in items], say)

            return in_a_child(work, seconds)

        @functools.cache
        def passes(name: str) -> bool:
            """Whether a test passes without any change; one that does not has noticed nothing."""
            return run([name], [], 600).result == "survived"

        for trial in self.trials:
            path = trial.mutant.path
            swaps = _swaps(compiled(None, path), compiled(trial.mutant, path))
            if not swaps or not functions.keys() & {before for before, _ in swaps}:
                continue
            names, seconds = trial.affordable(self.budget, self.liked[path])
            outcome = run(names, swaps, seconds)
            while outcome.result != "survived" and outcome.by and not passes(outcome.by):
                names.remove(outcome.by)
                outcome = run(names, swaps, seconds)
            self.liked[path][outcome.by] += 1
            self.tell(trial, outcome)
        return True


def _first_failure(session: pytest.Session, items: list[pytest.Item], say: Callable[[str], None]) -> int:
    for item, following in zip_longest(items, items[1:]):
        say(item.nodeid)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _functions() -> dict[CodeType, list[FunctionType]]:
    """The functions of the package that exist, by their code."""
    found: dict[CodeType, list[FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(SOURCE)):
            found[thing.__code__].append(thing)
    return found


def _swaps(before: CodeType, after: CodeType) -> Swaps | None:
    """Pairs of the code of functions, before and after; None where a module or class itself is changed."""
    if before == after:
        return []
    inner, changed = list(_inner(before)), list(_inner(after))
    function = bool(before.co_flags & 0x2)  # it has local names: no module and no class
    if len(inner) != len(changed) or before.co_freevars != after.co_freevars or before.co_cellvars != after.co_cellvars:
        return None
    if not function and before.replace(co_consts=()) != after.replace(co_consts=()):
        return None
    if not function and _outer(before) != _outer(after):
        return None
    found = [(before, after)] if function else []
    for pair in zip(inner, changed, strict=True):
        swaps = _swaps(*pair)
        if swaps is None:
            return None
        found += swaps
    return found


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _outer(code: CodeType) -> list[object]:
    return [(type(constant), constant) for constant in code.co_consts if not isinstance(constant, CodeType)]


def imported_anew(mutant: Mutant, names: list[str], say: Callable[[str], None]) -> int:
    """In a child that has not imported walkwise: the changed module is imported in the place of the real one."""
    _limited()
    loader = Loader(mutant)
    sys.meta_path.insert(0, loader)
    say("the import")
    files = dict.fromkeys(str(ROOT / name.split("::")[0]) for name in names)
    settings = str(ROOT / "tests" / "conftest.py")  # that of all tests, also where examples in docstrings are all
    code = int(pytest.main([*OPTIONS, "-x", settings, *files], plugins=[_Only(names, say, loader), Repeatable()]))
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code


class _Only:
    """The named tests, in that order, with the changed module."""

    def __init__(self, names: list[str], say: Callable[[str], None], loader: Loader) -> None:
        self.names, self.say, self.loader = names, say, loader

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        sys.meta_path.insert(0, self.loader)  # before pytest's own, which reads the files that it is given

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        there = {item.nodeid: item for item in items}
        items[:] = [there[name] for name in self.names if name in there]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.say(nodeid)
