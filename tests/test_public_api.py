"""The names users see, and the one place where they can add to the library."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch_geometric.nn import MessagePassing

import walkwise as ww
from walkwise.errors import TraceError
from walkwise.tracing.linearize import Affine


def test_there_are_few_names():
    assert len(ww.__all__) <= 27
    assert ww.__all__ == sorted(ww.__all__)
    assert len(set(ww.__all__)) == len(ww.__all__)


def test_the_version_is_told():
    assert ww.__version__[0].isdigit()
    assert "__version__" not in ww.__all__


@pytest.mark.parametrize("name", ww.__all__)
def test_every_name_is_there_and_explained(name):
    thing = getattr(ww, name)
    lines = (inspect.getdoc(thing) or "").splitlines()
    assert lines
    assert not lines[0].startswith("RelevanceChain(")  # what a dataclass makes up by itself
    if inspect.isfunction(thing):
        options = list(inspect.signature(thing).parameters.values())
        required = (inspect.Parameter.empty, ...)  # the latter where we say ourselves that it is missing
        assert all(o.default in required or o.kind is o.KEYWORD_ONLY for o in options)
        if len(options) > 1:
            assert "Args:" in inspect.getdoc(thing)
            missing = [o.name for o in options if f"{o.name}:" not in inspect.getdoc(thing)]
            assert not missing


ROOMS = """
baselines evaluation evaluation.tuning questions.games questions.groups
search.best_subgraph search.orders search.best_walks search.walksearch
"""


def public_functions():
    """Those of the package, and those that its rooms define."""
    found = {name: thing for name in ww.__all__ if inspect.isfunction(thing := getattr(ww, name))}
    for room in ROOMS.split():
        importlib.import_module(f"walkwise.{room}")
        for name, thing in vars(sys.modules[f"walkwise.{room}"]).items():
            own = inspect.isfunction(thing) and thing.__module__.startswith(f"walkwise.{room}")
            if own and not name.startswith("_"):
                found[f"{room}.{name}"] = thing
    return found


@pytest.mark.parametrize(("name", "function"), public_functions().items())
def test_every_public_function_has_an_example(name, function):
    assert ">>>" in inspect.getdoc(function), name


def test_no_name_of_a_folder_hides_one_of_its_modules():
    """``walkwise.runs.report`` is a function or a module, and not one or the other by what was imported before."""
    hidden = []
    for module in pkgutil.walk_packages(ww.__path__, "walkwise."):
        home, _, name = module.name.rpartition(".")
        if home.startswith(("walkwise.cli", "walkwise.explorer")) or name == "__main__":
            continue  # commands and pages need extras, and nobody imports them
        try:
            folder = importlib.import_module(home)
            found = getattr(folder, name, None)
        except ImportError:
            continue
        if found is not None and not isinstance(found, ModuleType):
            hidden.append(module.name)
    assert not hidden


ERRORS = [value for value in vars(ww.errors).values() if inspect.isclass(value) and issubclass(value, BaseException)]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_is_a_walkwise_error(kind):
    assert issubclass(kind, ww.errors.WalkwiseError) or issubclass(kind, Warning)
    assert kind.__doc__


def test_the_documentation_lists_the_errors_and_nothing_else():
    assert ww.errors.__all__ == [kind.__name__ for kind in ERRORS]


OF_USERS = ("InputError", "TargetError", "SourceError", "MissingExtraError")


def raised():
    """Every error about what a user gave, as the source makes it: where, and the call."""
    for file in sorted(Path(ww.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in OF_USERS:
                yield f"{file.name}:{node.lineno}", node


def test_errors_about_what_users_gave_carry_fields():
    found = {where: {keyword.arg for keyword in call.keywords} for where, call in raised()}
    assert len(found) > 200
    assert not [where for where, fields in found.items() if not fields & {"argument", "expected", "remedy"}]


def test_errors_are_worded_alike():
    """Such as "alpha must be between 0 and 1, got 2."."""
    odd = re.compile(r"; got\b|^\S+ (is|has) [^;]*, got\b")
    assert not [where for where, call in raised() for given in call.args if odd.search(ast.unparse(given))]


# -- names that are imported when they are asked for ------------------------------------------


def test_type_checkers_see_the_names_that_are_there():
    tree = ast.parse(Path(ww.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: statement.module.removeprefix("walkwise").removeprefix(".")
        for statement in block.body
        for alias in statement.names
    }
    assert seen == {name: ww._HOME.get(name, "") for name in ww.__all__}


def test_no_module_has_the_name_of_a_function():
    """Importing it would put it where the function belongs. The command line's modules are called as its commands."""
    functions = {name for name in ww.__all__ if not isinstance(getattr(ww, name), ModuleType)}
    found = pkgutil.walk_packages(ww.__path__, "walkwise.", onerror=lambda name: None)
    modules = [module.name for module in found if not module.name.startswith("walkwise.cli.")]
    assert not [name for name in modules if name.rpartition(".")[2] in functions]


def test_no_two_classes_share_a_name():
    """Whoever reads a name knows which class it is; private ones and those inside functions count, too."""
    homes: dict[str, list[str]] = {}
    for file in sorted(Path(ww.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(file.name)
    assert "RelevanceChain" in homes
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_what_is_not_there_is_missed_as_in_any_module():
    assert set(ww.__all__) <= set(dir(ww))
    assert not hasattr(ww, "nosuch")
    with pytest.raises(AttributeError, match="module 'walkwise' has no attribute '_nosuch'"):
        _ = ww._nosuch
    with pytest.raises(ImportError, match="nosuch"):
        exec("from walkwise import nosuch")


ORDERS = """
import sys
import torch, torch_geometric  # once; the rest is forgotten between the orders

ORDERS = [
    "import walkwise",
    "from walkwise.tracing import trace",
    "from walkwise.tracing import linearize",
    "from walkwise.tracing.lowering import Lowering",
    "import walkwise.explainer",
    "import walkwise.cli.sources",
    "from walkwise import trace; assert trace.linearize",
    "from walkwise import interactions; assert interactions.__name__ == 'interactions'",
    "from walkwise import *; assert trace.linearize and callable(interactions)",
    "import walkwise; walkwise.query; import walkwise.questions.groups",
    "import walkwise; walkwise.trace; import walkwise.tracing",
    "import importlib; importlib.import_module('walkwise.tracing')",
    "import walkwise; walkwise.models.load_weights",
    "import importlib, walkwise; walkwise.trace; importlib.reload(walkwise)",
]
import pkgutil, walkwise
modules = [module.name for module in pkgutil.iter_modules(walkwise.__path__) if not module.name.startswith("_")]
ORDERS += [f"import walkwise.{name}" for name in modules]
for order in ORDERS:
    for name in [name for name in sys.modules if name.partition(".")[0] == "walkwise"]:
        del sys.modules[name]
    exec(order, {"sys": sys})
    for _ in range(2):
        ww = sys.modules["walkwise"]
        assert callable(ww.trace) and ww.trace.linearize.register, order
        assert ww.trace is sys.modules["walkwise.tracing"].trace, order
        assert ww.interactions is sys.modules["walkwise.questions.groups"].interactions, order
        assert not [name for name in ww.__all__ if not hasattr(ww, name)], order
"""


THREADS = """
import threading, warnings
import walkwise as ww

warnings.simplefilter("ignore")
together, missing = threading.Barrier(len(ww.__all__)), []

def ask(name):
    together.wait()
    if not hasattr(ww, name):
        missing.append(name)

threads = [threading.Thread(target=ask, args=(name,)) for name in ww.__all__]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not missing, missing
"""


@pytest.mark.parametrize("script", [ORDERS, THREADS], ids=["in any order", "by threads at once"])
def test_the_functions_are_there_however_they_are_imported(script):
    variables = {**os.environ, "PYTHONPATH": str(Path(ww.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=variables, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_module_waits_for_the_names_while_it_is_imported():
    """Another thread might hold the turn and wait for that very module."""
    for file in Path(ww.__file__).parent.rglob("*.py"):
        statements = [s for s in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(s, ast.ImportFrom)]
        names = {alias.name for s in statements if s.module == "walkwise" for alias in s.names}
        assert not names & set(ww.__all__), file.name


# -- layers of one's own ----------------------------------------------------------------------


def narrower(affine):
    """The same without the last column."""
    ((tensor, operator),) = affine.terms
    return Affine([(tensor[:, :-1], operator)])


def weighted_conv():
    """A fresh class every time, since registering is for good."""

    class WeightedConv(MessagePassing):
        def forward(self, x, edge_index, edge_weight):
            return self.propagate(edge_index, x=x, edge_weight=edge_weight)

        def message(self, x_j, edge_weight):
            return (x_j.t() * edge_weight).t()  # transposed, which goes by autograd

    return WeightedConv


@pytest.fixture
def traced(graph):
    """Traces a model of one such layer, between two linear maps."""

    def trace(kind):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.first, self.conv, self.last = torch.nn.Linear(3, 4), kind(), torch.nn.Linear(4, 2)

            def forward(self, x, edge_index, edge_weight):
                return self.last(self.conv(self.first(x), edge_index, edge_weight).relu()).sum(0, keepdim=True)

        x, edge_index = graph()
        weight = torch.linspace(0.5, 2, edge_index.shape[1], dtype=torch.float64)
        return ww.trace(Model().double(), x, edge_index, edge_weight=weight)

    return trace


def test_a_registered_closed_form_is_used(traced):
    kind = weighted_conv()
    by_autograd = traced(kind)

    @ww.trace.linearize.register(kind)
    def form(conv, call):
        return call.sum("x", weight=call["edge_weight"])

    closed = traced(kind)
    assert [layer.route for layer in by_autograd.layers] == ["autograd"]
    assert [layer.route for layer in closed.layers] == ["closed form"]
    assert by_autograd.local
    assert closed.local
    subgraphs = [[0, 1], [2, 3, 5]]
    for alpha in (0.0, 0.5):
        a, b = (ww.subgraph_relevance(chain, subgraphs, alpha=alpha) for chain in (by_autograd, closed))
        assert torch.allclose(a, b)
    assert torch.allclose(ww.edge_relevance(by_autograd), ww.edge_relevance(closed))


def test_a_subclass_is_served_unless_it_changes_the_messages(traced):
    kind = weighted_conv()
    ww.trace.linearize.register(kind)(lambda conv, call: call.sum("x", weight=call["edge_weight"]))

    class Same(kind):
        pass

    class Other(kind):
        def message(self, x_j, edge_weight):
            return (2 * x_j.t() * edge_weight).t()

    assert traced(Same).layers[0].route == "closed form"
    assert traced(Other).layers[0].route == "autograd"


def test_a_closed_form_may_decline(traced):
    kind = weighted_conv()
    ww.trace.linearize.register(kind)(lambda conv, call: None)
    assert traced(kind).layers[0].route == "autograd"


@pytest.mark.parametrize(
    "form",
    [
        lambda conv, call: call.sum("x"),
        lambda conv, call: call.sum("x", weight=call["edge_weight"].flip(0)),
        lambda conv, call: narrower(call.sum("x", weight=call["edge_weight"])),
    ],
    ids=["unweighted", "wrong weights", "wrong width"],
)
def test_a_wrong_closed_form_is_refused(traced, form):
    kind = weighted_conv()
    ww.trace.linearize.register(kind)(form)
    with pytest.raises(TraceError, match="closed form registered for WeightedConv does not match"):
        traced(kind)


def test_a_closed_form_names_the_arguments_of_propagate(traced):
    """A term in a tensor that is not followed would be lost without a word."""
    kind = weighted_conv()

    @ww.trace.linearize.register(kind)
    def form(conv, call):
        ((x, operator),) = call.sum("x", weight=call["edge_weight"] / 2).terms
        return Affine([(x, operator), (x.clone(), operator)])

    with pytest.raises(TraceError, match="closed form registered for WeightedConv"):
        traced(kind)


def test_registering_twice_is_refused():
    kind = weighted_conv()
    register = ww.trace.linearize.register(kind)
    form = register(lambda conv, call: None)
    assert callable(form)
    with pytest.raises(ValueError, match="WeightedConv already has a closed form"):
        register(lambda conv, call: None)
