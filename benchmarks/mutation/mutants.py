"""Mutants: the code with one operator, comparison, constant, condition or returned value changed."""

from __future__ import annotations

import ast
import hashlib
import importlib.abc
import importlib.util
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

_SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: where it is made, and what stands there before and after."""

    path: str  # from the folder src
    within: str  # the function, or class.function; empty: the module itself
    before: str
    after: str
    repeat: int  # how many changes of the same name stand before this one
    site: int  # its number in the file
    lines: tuple[int, int]  # the first and last line of what a test must run to meet it

    @property
    def name(self) -> str:
        """Its name in the files of a run, and on the page: it stays when other code changes."""
        place = f"{self.path.removeprefix('walkwise/')} {self.within}".strip()
        return f"{place}: {self.before} → {self.after}" + (f" (number {self.repeat + 1})" if self.repeat else "")


@cache
def text_of(path: str) -> str:
    """The text of a source file."""
    return (SOURCE / path).read_text(encoding="utf-8")


@cache
def digest(path: str) -> str:
    """What changes when a file does."""
    return hashlib.sha256(text_of(path).encode()).hexdigest()[:16]


def files(room: str) -> list[str]:
    """The source files of a room: a folder, or one file."""
    place = SOURCE / "walkwise" / room
    found = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return [path.relative_to(SOURCE).as_posix() for path in found]


@cache
def mutants(path: str) -> list[Mutant]:
    """Every mutant of a file, in order."""
    change = _Change(None)
    change.visit(ast.parse(text_of(path)))
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for site, (within, before, after, lines) in enumerate(change.sites):
        found.append(Mutant(path, within, before, after, seen[within, before, after], site, lines))
        seen[within, before, after] += 1
    return found


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """A node with one thing in it changed, once for everything that can be."""
    if isinstance(node, (ast.AugAssign, ast.BinOp, ast.BoolOp)) and type(node.op) in _SWAPS:
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
    """Makes the change with a number; with none, all are listed."""

    def __init__(self, wanted: int | None) -> None:
        self.wanted, self.seen = wanted, 0
        self.sites: list[tuple[str, str, str, tuple[int, int]]] = []
        self.within: list[str] = []
        self.lines = (0, 0)

    def visit(self, node: ast.AST) -> ast.AST:
        if _checks(node) or _only_raises(node) or _for_types(node) or _sets_a_limit(node):
            return node
        outer = self.within, self.lines
        if isinstance(node, ast.stmt):
            self.lines = _own_lines(node)
        changed = self._changed(node)
        if changed is None:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.within = [*self.within, node.name]
            self._children(node)
        self.within, self.lines = outer
        return changed or node

    def _changed(self, node: ast.AST) -> ast.AST | None:
        for changed in _changed(node):
            number, self.seen = self.seen, self.seen + 1
            if self.wanted is None:
                self.sites.append((".".join(self.within), _told(node), _told(changed), self.lines))
            elif number == self.wanted:
                return ast.copy_location(ast.fix_missing_locations(changed), node)
        return None

    def _children(self, node: ast.AST) -> None:
        """Annotations are never run."""
        kept = {name: getattr(node, name) for name in ("annotation", "returns") if getattr(node, name, None)}
        for name in kept:
            setattr(node, name, ast.Constant(None))
        super().generic_visit(node)
        for name, annotation in kept.items():
            setattr(node, name, annotation)


def _told(node: ast.AST) -> str:
    """The code on one line: of a condition its first line alone."""
    return " ".join(ast.unparse(node).splitlines()[0].split()) if isinstance(node, ast.If) else ast.unparse(node)


def _own_lines(node: ast.stmt) -> tuple[int, int]:
    """A statement's lines, or those before its body; a default of a function is met by all that runs the function."""
    body = None if isinstance(node, ast.FunctionDef) else getattr(node, "body", None)
    return node.lineno, max(node.lineno, body[0].lineno - 1) if body else int(node.end_lineno or node.lineno)


def _checks(node: ast.AST) -> bool:
    """Whether it is a check of what is so in any case."""
    return isinstance(node, ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict")


def _only_raises(node: ast.AST) -> bool:
    """Whether all that happens is an error: tests of wrong inputs are apart."""
    return isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise)


def _for_types(node: ast.AST) -> bool:
    """Whether it is never run: imports that only the type checker needs."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _sets_a_limit(node: ast.AST) -> bool:
    """Whether a number is named that decides between equal routes: which of them is quicker is no test's business."""
    if not isinstance(node, ast.Assign) or node.col_offset:
        return False
    return ast.unparse(node.targets[0]).strip("(_, )").isupper()


def compiled(mutant: Mutant | None, path: str) -> CodeType:
    """The code of a module, with the change in it if there is one."""
    tree = ast.parse(text_of(path))
    if mutant is not None:
        tree = _Change(mutant.site).visit(tree)
    return compile(ast.fix_missing_locations(tree), str(SOURCE / path), "exec", dont_inherit=True)


class Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the changed module in the place of the real one."""

    def __init__(self, mutant: Mutant) -> None:
        self.path = SOURCE / mutant.path
        self.name = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.code = compiled(mutant, mutant.path)

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != self.name:
            return None
        places = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=places)

    def exec_module(self, module: object) -> None:
        exec(self.code, module.__dict__)
