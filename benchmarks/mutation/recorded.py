"""Which test runs which lines, and how long it takes: one run of all tests under a tracer, kept in a file."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

import coverage
import pytest

from mutation.mutants import ROOT, SOURCE, digest, text_of

#: The tests that must notice.
TESTS = [
    "tests/core",
    "tests/questions",
    "tests/search",
    "tests/tracing",
    "tests/matrix",
    "tests/zoo",
    "tests/test_rules.py",
    "tests/test_golden.py",
    "tests/test_explainer.py",
    "tests/test_explanation.py",
    "tests/test_public_api.py",
    "tests/trust/test_bad_inputs.py",
    "src/walkwise/rules.py",
    "src/walkwise/core",
    "src/walkwise/questions",
    "src/walkwise/search",
    "src/walkwise/tracing",
]
OPTIONS = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "-m", "not slow"]


@dataclass
class Test:
    """One test that passes: its time, and the lines of every source file that it runs, as bits of a number."""

    file: str  # and what changes when that file does
    seconds: float
    lines: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # of the source files

    def runs(self, path: str, first: int, last: int) -> bool:
        """Whether a line between two is run."""
        return bool(int(self.lines.get(path, "0"), 16) >> first & ((1 << (last - first + 1)) - 1))

    def current(self) -> bool:
        """Whether the files are those it was recorded with."""
        return self.file == version(self.file.split(" ")[0]) and all(
            (SOURCE / path).exists() and digest(path) == told for path, told in self.versions.items()
        )


@dataclass
class Record:
    """All tests by name; the lines that run when modules are imported; the lines that could be run."""

    tests: dict[str, Test]
    imported: dict[str, str]
    statements: dict[str, str]
    texts: dict[str, str] = field(default_factory=dict)  # of the source files

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Record:
        """The record that was kept, or an empty one."""
        if not path.exists():
            return Record({}, {}, {})
        told = json.loads(path.read_text(encoding="utf-8"))
        tests = {name: Test(**test) for name, test in told["tests"].items()}
        return Record(tests, told["imported"], told["statements"], told.get("texts", {}))

    def carry_over(self) -> None:
        """Lines of source files as they are now: a test that ran what stood around a change runs what is new there."""
        for path, before in self.texts.items():
            after = (SOURCE / path).read_text(encoding="utf-8") if (SOURCE / path).exists() else ""
            if after == before:
                continue
            moves = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).get_opcodes()
            for test in self.tests.values():
                if path in test.lines:
                    test.lines[path] = _carried(test.lines[path], moves)
                    test.versions[path] = digest(path) if after else ""

    def covered(self, path: str) -> tuple[int, list[int]]:
        """How many lines of a file can be run, and which of them no test runs."""
        run = int(self.imported.get(path, "0"), 16)
        for test in self.tests.values():
            run |= int(test.lines.get(path, "0"), 16)
        lines = _unpacked(self.statements.get(path, "0"))
        return len(lines), [line for line in lines if not run >> line & 1]


def version(path: str) -> str:
    """A file's name, and what changes when it does."""
    place = ROOT / path
    return f"{path} {hashlib.sha256(place.read_bytes()).hexdigest()[:16] if place.exists() else ''}"


def _packed(lines: list[int]) -> str:
    return hex(sum(1 << line for line in set(lines)))


def _unpacked(text: str) -> list[int]:
    bits = bin(int(text, 16))[2:][::-1]
    return [line for line, bit in enumerate(bits) if bit == "1"]


def _carried(lines: str, moves: list[tuple[str, int, int, int, int]]) -> str:
    """Lines, counted from 1, after the moves that lead from one text to another, counted from 0."""
    run, found = set(_unpacked(lines)), []
    for kind, first, last, new_first, new_last in moves:
        if kind == "equal":
            found += [line + new_first - first for line in range(first + 1, last + 1) if line in run]
        elif not run.isdisjoint(range(first, last + 2)):
            found += range(new_first + 1, new_last + 1)
    return _packed(found)


class Repeatable:
    """Every run of a property makes the same examples, and a failing one is not made smaller."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutation",
            settings.get_profile("walkwise"),
            derandomize=True,
            database=None,
            print_blob=False,
            phases=[Phase.explicit, Phase.generate],
            report_multiple_bugs=False,
        )
        settings.load_profile("mutation")


class _Recorder:
    """Tells the tracer which test runs; tests that are known already are left out."""

    def __init__(self, tracer: coverage.Coverage, known: dict[str, Test]) -> None:
        self.tracer, self.known = tracer, known
        self.seconds: dict[str, float] = {}
        self.files: dict[str, str] = {}
        self.other: set[str] = set()  # failed or skipped

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        there = {item.nodeid for item in items}
        for name in self.known.keys() - there:
            del self.known[name]
        items[:] = [item for item in items if item.nodeid not in self.known]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.tracer.switch_context(item.nodeid)
        tracing, start = sys.gettrace(), time.process_time()
        yield
        self.seconds[item.nodeid] = time.process_time() - start  # whatever else the machine does
        self.files[item.nodeid] = item.path.relative_to(ROOT).as_posix()
        if sys.gettrace() is not tracing:  # the test has traced lines itself
            self.tracer.stop()
            self.tracer.start()
        self.tracer.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.other.add(report.nodeid)


def recorded(path: Path, sources: list[str], tell: Callable[[str], None]) -> None:
    """Run the tests that are new or were edited, and write the record; in a process that has not imported walkwise."""
    record = Record.read(path)
    record.carry_over()
    record.tests = {name: test for name, test in record.tests.items() if test.current()}
    tracer = coverage.Coverage(data_file=None, source=[str(SOURCE / "walkwise")], config_file=False)
    tracer.exclude("if TYPE_CHECKING:")
    tracer.start()
    recorder = _Recorder(tracer, record.tests)
    pytest.main([*OPTIONS, *[str(ROOT / test) for test in TESTS]], plugins=[recorder, Repeatable()])
    tracer.stop()
    data = tracer.get_data()
    lines: dict[str, dict[str, list[int]]] = {}
    for source in sources:
        name = str(SOURCE / source)
        record.texts[source] = text_of(source)
        record.statements[source] = _packed(tracer.analysis2(name)[1])
        for line, tests in data.contexts_by_lineno(name).items():
            for test in tests:
                lines.setdefault(test, {}).setdefault(source, []).append(line)
    imported = lines.pop("", {})
    record.imported = {source: _packed(found) for source, found in imported.items()}
    for name, seconds in recorder.seconds.items():
        if name in recorder.other:
            tell(f"left out, failed or skipped: {name}")
            continue
        run = {source: _packed(found) for source, found in lines.get(name, {}).items()}
        record.tests[name] = Test(
            version(recorder.files[name]), seconds, run, {source: digest(source) for source in run}
        )
    record.write(path)
