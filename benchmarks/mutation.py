"""Mutation testing: small changes of the code, one at a time, each of which some test should notice.

python benchmarks/mutation.py [--count 200] [--seed 0] [--rooms core questions …] [--out out/mutation]

A mutant is one changed operator, comparison, constant or condition. For each of a random sample of them the tests of
its room run until one fails. Torch is imported once; every mutant is a forked child that imports the changed module in
the place of the real one. What is done is kept in the folder --out, and a run that is cut short goes on where it
stopped. The score is the share of mutants that a test noticed; survivors are listed with their lines.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"

#: The rooms that are mutated, and the tests that must notice, the quickest to notice first.
ROOMS = {
    "core": ["tests/core", "tests/questions", "tests/matrix", "tests/test_golden.py"],
    "rules": [
        "tests/tracing/test_sensitive.py",
        "tests/tracing/test_generalised.py",
        "tests/matrix",
        "tests/tracing/test_layers.py",
        "tests/core",
    ],
    "tracing": ["tests/matrix", "tests/core", "tests/tracing"],
    "questions": ["tests/questions", "tests/core", "tests/search"],
    "search": ["tests/search"],
}

_SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the place in its syntax tree, and the line as it was and as it becomes."""

    room: str
    path: str  # from the folder src
    site: int
    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """Its name in the files of a run."""
        return f"{self.path}:{self.line}:{self.site}"


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """A node with one thing in it changed, once for everything that can be."""
    if isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in _SWAPS:
        yield _with(node, op=_SWAPS[type(node.op)]())
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        yield _with(node, ops=[_SWAPS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield node.orelse
        yield node.body
    elif isinstance(node, ast.If):
        yield _with(node, test=ast.Constant(False))
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield ast.Return(ast.Constant(None))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = type(node)(**{name: getattr(node, name) for name in node._fields} | fields)
    return ast.copy_location(made, node)


class _Change(ast.NodeTransformer):
    """Makes the change with a number; the others are only counted."""

    def __init__(self, wanted: int | None) -> None:
        self.wanted, self.seen, self.sites = wanted, 0, []  # type: ignore[var-annotated]

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, (ast.AnnAssign, ast.arg)) and getattr(node, "annotation", None) is not None:
            annotation, node.annotation = node.annotation, ast.Constant(None)  # type: ignore[assignment]
            node = self._visited(node)
            node.annotation = annotation  # type: ignore[attr-defined]
            return node
        return self._visited(node)

    def _visited(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Assert) or _only_raises(node) or _sets_a_limit(node):
            return node
        for changed in _changed(node):
            number, self.seen = self.seen, self.seen + 1
            if self.wanted is None:
                self.sites.append((getattr(node, "lineno", 0), ast.unparse(node), ast.unparse(changed)))
            elif number == self.wanted:
                return ast.copy_location(ast.fix_missing_locations(changed), node)
        return super().generic_visit(node)


def _only_raises(node: ast.AST) -> bool:
    """Whether all that happens is an error: tests of wrong inputs are apart."""
    return isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise)


def _sets_a_limit(node: ast.AST) -> bool:
    """Whether a number is named that decides between equal routes: which of them is quicker is no test's business."""
    if not isinstance(node, ast.Assign) or node.col_offset:
        return False
    return ast.unparse(node.targets[0]).strip("(_, )").isupper()


def mutants(rooms: list[str]) -> list[Mutant]:
    """Every mutant of the rooms, in the order of the files."""
    found = []
    for room in rooms:
        place = SOURCE / "walkwise" / room
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
            change = _Change(None)
            change.visit(ast.parse(path.read_text(encoding="utf-8")))
            name = path.relative_to(SOURCE).as_posix()
            found += [Mutant(room, name, site, *told) for site, told in enumerate(change.sites)]
    return found


class _Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the changed module in the place of the real one."""

    def __init__(self, mutant: Mutant) -> None:
        self.path = SOURCE / mutant.path
        self.name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        tree = _Change(mutant.site).visit(ast.parse(self.path.read_text(encoding="utf-8")))
        self.code = compile(ast.fix_missing_locations(tree), str(self.path), "exec")

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != self.name:
            return None
        places = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=places)

    def exec_module(self, module: object) -> None:
        exec(self.code, module.__dict__)


def noticed(mutant: Mutant | None, tests: list[str], seconds: float) -> str:
    """ "killed", "survived" or "timeout"; with no mutant, whether the tests pass at all ("survived")."""
    child = os.fork()
    if child == 0:
        os.setsid()
        _run_tests(mutant, tests)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _run_tests(mutant: Mutant | None, tests: list[str]) -> None:
    """In the child: never returns."""
    import pytest

    code = 1
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if mutant is not None:
            sys.meta_path.insert(0, _Loader(mutant))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "-m", "not slow"]
        code = int(pytest.main([*options, *[str(ROOT / test) for test in tests]]))
    finally:
        os._exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="mutants in all, the same number from every room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutation")
    parser.add_argument("--seconds", type=float, default=600, help="after which a mutant counts as noticed: it hangs")
    given = parser.parse_args()
    os.chdir(ROOT)
    import torch
    import torch_geometric.nn  # noqa: F401  (once, for all children)

    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    log = given.out / "mutants.jsonl"
    known = {}
    if log.exists():
        known = {told["name"]: told["result"] for told in map(json.loads, log.read_text().splitlines())}
    chosen = []
    for room in given.rooms:
        every = mutants([room])
        chosen += random.Random(f"{given.seed} {room}").sample(every, min(len(every), given.count // len(given.rooms)))
    for room in given.rooms:
        if noticed(None, ROOMS[room], 10 * given.seconds) != "survived":
            sys.exit(f"The tests of {room} fail without any mutant: {' '.join(ROOMS[room])}")
    for number, mutant in enumerate(chosen):
        if mutant.name not in known:
            known[mutant.name] = noticed(mutant, ROOMS[mutant.room], given.seconds)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(mutant) | {"name": mutant.name, "result": known[mutant.name]}) + "\n")
        print(f"{number + 1}/{len(chosen)} {known[mutant.name]:9}{mutant.name}", file=sys.stderr)
    survived = [mutant for mutant in chosen if known[mutant.name] == "survived"]
    for room in given.rooms:
        own = [mutant for mutant in chosen if mutant.room == room]
        lived = sum(mutant in survived for mutant in own)
        print(f"{room:10} {len(own) - lived} of {len(own)} noticed")
    print(f"{1 - len(survived) / max(1, len(chosen)):.1%} of {len(chosen)} mutants noticed; survivors:")
    for mutant in survived:
        print(f"  {mutant.name}\n    - {mutant.before}\n    + {mutant.after}")


if __name__ == "__main__":
    main()
