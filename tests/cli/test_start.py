"""What the command line says without torch, which takes seconds to import; and that it says the truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import walkwise
from walkwise import baselines, datasets, recipes, rules
from walkwise.baselines.comparison import METRICS
from walkwise.cli import names
from walkwise.paper.run import EXHIBITS

HELP = """
import sys
from typer.testing import CliRunner
from walkwise.cli import app

def heavy():
    return [name for name in ("torch", "torch_geometric", "numpy", "matplotlib") if name in sys.modules]

for arguments in ["--version"], ["--help"], ["-h"], [], ["nosuch"], ["explain"], ["explain", "--nosuch"]:
    CliRunner().invoke(app, arguments)
    assert not heavy(), (arguments, heavy())
for command in app.registered_commands:
    shown = CliRunner().invoke(app, [command.name, "--help"])
    assert shown.exit_code == 0 and "--debug" in shown.stdout
    assert not heavy(), (command.name, heavy())
words = {"_WALKWISE_COMPLETE": "complete_bash", "COMP_WORDS": "walkwise explain mu", "COMP_CWORD": "2"}
assert CliRunner().invoke(app, [], env=words, prog_name="walkwise").stdout.split() == ["mutag"]
assert not heavy(), heavy()
"""


def test_help_version_and_completion_do_not_wait_for_torch():
    variables = {**os.environ, "PYTHONPATH": str(Path(walkwise.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, env=variables, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_names_are_those_of_the_library():
    assert list(names.DATA_SETS) == datasets.names()
    assert set(names.RULES) == set(rules._NAMED)
    assert baselines.available_baselines() == names.METHODS
    assert tuple(METRICS) == names.METRICS
    assert tuple(recipes.RECIPES) == names.RECIPES
    assert tuple(EXHIBITS) == names.EXHIBITS
    assert set(names.BUNDLED.values()) <= set(names.GRAPHS)
