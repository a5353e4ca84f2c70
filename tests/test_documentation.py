"""The documentation: every example runs, every page builds without a warning, and nothing is fetched or left out."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

#: What users import; everything public in these is in the reference.
MODULES = [
    "walkwise",
    *(f"walkwise.{name}" for name in ("errors", "evaluation", "explainer", "models", "plotting", "recipes")),
    *(f"walkwise.{name}" for name in ("reference", "rules", "training", "tracing.linearize")),
    *(f"walkwise.core.{name}" for name in ("blocks", "chain", "contract", "edges", "fan")),
    *(f"walkwise.core.{name}" for name in ("operators", "report", "rows")),
    *(f"walkwise.evaluation.{name}" for name in ("predictions", "tuning")),
    *(f"walkwise.questions.{name}" for name in ("games", "groups", "marginals", "subgraphs", "walks")),
    *(f"walkwise.search.{name}" for name in ("best_subgraph", "orders", "best_walks", "walksearch")),
    *(f"walkwise.baselines.{name}" for name in ("attribution", "comparison", "gradients", "measures", "pgm", "pyg")),
    *(f"walkwise.baselines.{name}" for name in ("registry", "relevance", "subgraphx", "tables")),
    *(f"walkwise.datasets.{name}" for name in ("ba2motif", "graphset", "molecules", "registry", "sentiment", "splits")),
    *(f"walkwise.datasets.{name}" for name in ("tu", "wordvectors")),
    "walkwise.runs",
]


def run(*arguments, **variables):
    """A Python program of its own: pages register layers and data sets, which stay for the rest of a process."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | variables
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_the_list_of_files_is_up_to_date():
    done = run(DOCS / "files.py", "--check")
    assert done.returncode == 0, done.stderr


def test_what_the_map_names_is_there():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src/walkwise"
    named = re.findall(r"`((?:\w+/)*\w+)(?:\.(\w+))?`", text)
    files = {path.relative_to(source).with_suffix("").as_posix() for path in source.rglob("*.py")}
    paths = [(path, name) for path, name in named if "/" in path and path.split("/")[0] not in ("docs", "tests")]
    assert len(paths) > 30
    for path, name in paths:
        there = [file for file in files if file == path or file.endswith(f"/{path}") or file == f"{path}/__init__"]
        assert there, path
        text = (source / there[0]).with_suffix(".py").read_text(encoding="utf-8")
        assert not name or name == "py" or re.search(rf"\b{name}\b", text), (path, name)


def test_every_example_in_the_documentation_runs_and_prints_what_the_page_says():
    pytest.importorskip("matplotlib")
    pytest.importorskip("rdkit")
    done = run(DOCS / "pages.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_a_page_that_says_something_else_is_found_out(tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.md"
    good = "```python\nprint('α', 1.5)\n```\n\n```text\nα 1.25\n```\n"  # numbers may differ
    cases = {
        good: "",
        good.replace("α 1.25", "β 1.25"): "expected",
        good.replace("print", "prnt"): "line 2: NameError",
        good + "![a picture](figures/none.png)\n": "none.png is not both made and shown",
        good + "\n```python\nopen('stray.png', 'w').close()\n```\n": "stray.png is not both made and shown",
    }
    for text, complaint in cases.items():
        page.write_text(text, encoding="utf-8")
        done = run(DOCS / "pages.py", "--check", page)
        assert done.returncode == bool(complaint), done.stderr
        assert complaint in done.stdout


def test_pages_build_without_a_warning_fetch_nothing_and_leave_nothing_out(tmp_path):
    for needed in ("sphinx", "myst_parser", "furo", "latex2mathml"):
        pytest.importorskip(needed)
    built = run("-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", DOCS, tmp_path)  # once for all checks
    assert built.returncode == 0, built.stdout + built.stderr
    check_that_nothing_is_fetched(tmp_path)
    check_that_formulas_are_mathml(tmp_path)
    check_that_nothing_is_left_out(tmp_path)


class Page(HTMLParser):
    """What a page would fetch, and its formulas."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.formulas = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.formulas += tag == "math"
        if tag == "link" and given.get("rel") not in ("canonical", "index", "next", "prev", "search", "author"):
            self.fetched.append(given.get("href"))
        elif tag in ("script", "img", "iframe", "source", "video"):
            self.fetched.append(given.get("src"))


def check_that_nothing_is_fetched(site):
    for path in site.rglob("*.html"):
        fetched = [link for link in Page(path.read_text()).fetched if link and not link.startswith("data:")]
        assert not [link for link in fetched if "//" in link], path
        gone = [link for link in fetched if not (path.parent / link.split("?")[0].split("#")[0]).exists()]
        assert not gone, (path, gone)
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", styles)


def check_that_formulas_are_mathml(site):
    page = (site / "mathematics" / "walks.html").read_text()
    assert Page(page).formulas > 40
    assert "\\sum" not in page


def check_that_nothing_is_left_out(site):
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    kinds = getattr(inventory, "data", inventory)  # a dict in some versions of Sphinx
    named = [name for kind in kinds if kind.startswith("py:") for name in kinds[kind]]
    described = {id(found) for name in named if (found := _object(name)) is not None}
    missing = [name for module in MODULES for name, thing in _public(module) if id(thing) not in described]
    assert not missing


def _object(name):
    """What an entry of the inventory stands for: a function or class, by whatever path it is reached."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found
    return None


def _public(module):
    """Functions and classes without an underscore that a module defines or exports."""
    loaded = importlib.import_module(module)
    exported = getattr(loaded, "__all__", None)
    for name, thing in vars(loaded).items():
        if name.startswith("_") or not (inspect.isfunction(thing) or inspect.isclass(thing)):
            continue
        if name in exported if exported is not None else thing.__module__ == module:
            yield f"{module}.{name}", thing
