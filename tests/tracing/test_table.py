"""Every function that torch lets itself be watched at has been decided on, by name.

What was decided stands in decided.txt. A function that a new torch brings fails this test until someone has said what
it means for relevance: give it a handler, or put its name where it belongs. Names that an older torch lacks do not
matter.
"""

import importlib
import pkgutil
from pathlib import Path

import pytest
import torch
from torch.overrides import get_overridable_functions

from walkwise import tracing
from walkwise.tracing.private import overridable_functions
from walkwise.tracing.recording import spellings
from walkwise.tracing.recording.spellings import by_name, plain_name, writes
from walkwise.tracing.recording.words import word

#: Kinds of functions that no handler speaks for: what is made of them is not followed, or by the plain gradient.
UNHANDLED = {"no floating-point tensor", "plain gradient"}


def decided():
    """The names of every kind."""
    kinds, kind = {}, None
    for line in (Path(__file__).parent / "decided.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
            assert kind not in kinds
            kinds[kind] = []
        elif line and not line.startswith("#"):
            kinds[kind] += line.split()
    return kinds


#: Names of what is recorded in a function's place: a layer's ``propagate``, transforms of pairs, and quantiles.
OURS = {"propagate", "fft", "fft_of_columns", "quantiles"}
#: Where names are those of functions.
RUNNING = ("running.calls", "running.sides")
ROOMS = ("recording", "meaning", *RUNNING, "nodes", "coverage", "sorting", "precision")

DECIDED = decided()


def sets_of_names():
    """The sets of functions by name, and where they stand."""
    for found in pkgutil.walk_packages(tracing.__path__, "walkwise.tracing."):
        for name, value in vars(importlib.import_module(found.name)).items():
            if isinstance(value, frozenset) and value and all(isinstance(item, str) for item in value):
                yield f"{found.name}.{name}", value


def kinds_of(name):
    """What the table says of all the spellings of a name."""
    found = set()
    for known in map(word, by_name()[name]):
        handler = "unhandled" if known.handler is None else known.handler.__name__.strip("_")
        found.add("constant" if known.constant else "same" if known.same else handler)
    return found


def watched():
    """The names that a model may call: those torch lists, and public ones that are written in C."""
    listed = {plain_name(func) for functions in get_overridable_functions().values() for func in functions}
    return sorted(name for name, functions in by_name().items() if name in listed or any(map(_public, functions)))


def _public(func):
    name = getattr(func, "__name__", "")
    return type(func).__name__ != "function" and (not name.startswith("_") or name.startswith("__"))


def test_every_function_has_been_decided_on():
    known = {name for kind, names in DECIDED.items() if kind != "writes" for name in names}
    new = [name for name in watched() if name not in known]
    assert not new, f"say in decided.txt what these mean for relevance: {' '.join(new)}"


def test_every_function_is_decided_on_once():
    names = [name for kind, found in DECIDED.items() if kind != "writes" for name in found]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("kind", sorted(set(DECIDED) - {"writes"}))
def test_the_table_says_what_was_decided(kind):
    expected = {"unhandled"} if kind in UNHANDLED else {kind}
    found = {name: kinds_of(name) for name in DECIDED[kind] if name in by_name()}
    assert {name: kinds for name, kinds in found.items() if kinds != expected} == {}


def test_every_kind_of_functions_holds_names_that_torch_has():
    rooms = tuple(f"walkwise.tracing.{room}." for room in ROOMS)
    unknown = {kind: names - by_name().keys() - OURS for kind, names in sets_of_names() if kind.startswith(rooms)}
    assert len(unknown) > 20
    assert {kind: names for kind, names in unknown.items() if names} == {}


def test_every_other_name_is_that_of_a_function():
    known = {getattr(func, "__name__", "").strip("_") for func in overridable_functions()}
    assert sorted(spellings._ALIASES.keys() - known - {"spmm"}) == []  # torch.spmm equals torch.mm


def test_the_functions_that_write_are_known():
    """A spelling that writes changes tensors that were recorded: the tape must know each of them."""
    writing = {name for name in watched() if any(map(writes, by_name()[name]))}
    assert sorted(writing - set(DECIDED["writes"])) == []
    gone = {name for name in DECIDED["writes"] if name in by_name()} - writing
    assert sorted(gone) == []


@pytest.mark.filterwarnings("ignore")
def test_what_does_not_say_that_it_writes_does_not():
    """Public methods of one tensor, called: the tensor stays as it was unless the name says that it is written into."""
    wrong = []
    for func in overridable_functions():
        name = getattr(func, "__name__", "_")
        if not isinstance(func, type(torch.Tensor.add)) or name.startswith("_") or writes(func):
            continue
        before = torch.tensor([[0.3, -0.7], [0.2, 0.9]], dtype=torch.float64)
        given = before.clone()
        try:
            func(given)
        except Exception:  # it takes other arguments
            continue
        if not torch.equal(given, before):
            wrong.append(name)
    assert wrong == []
