"""What the command line says without torch, which takes seconds to import; and that it says the truth."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import walkwise
from walkwise import baselines, datasets, recipes, rules
from walkwise.baselines.comparison import METRICS
from walkwise.cli import names
from walkwise.errors import InputError
from walkwise.paper.run import EXHIBITS
from walkwise.runs import questions

HELP = '''
import sys
from importlib.util import find_spec
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
WRONG = """
explain mutagg|did you mean 'mutag'?
explain mutag molcules|did you mean 'molecules'?
explain nowhere.safetensors|There is no file nowhere.safetensors
explain ba2motif nowhere.pt|There is no file nowhere.pt
explain ba2motif --weights nowhere.pt|There is no file nowhere.pt
explain ba2motif --rule gama|did you mean 'gamma'?
walks ba2motif --by siz|Expected one of relevance, magnitude
order ba2motif --mode prune|did you mean 'pruning'?
interactions mutag --smarts NO2|Expected a name and a pattern
compare ba2motif --metric auro|did you mean 'auroc'?
explain mutag mutagenicity --data nowhere|There is no folder nowhere.
explore mutagg|did you mean 'mutag'?
train ba2motif-gin9|did you mean 'ba2motif-gin
run ba2motif --ask noodes|did you mean 'nodes'?
run ba2motif --ask walks:none|Expected a question such as walks:10, got 'walks:none'.
run ba2motif molecles|did you mean 'molecules'?
run ba2motif nowhere.csv|There is no file nowhere.csv.
run ba2motif-gin7|ba2motif-gin7 is not trained.
explain ba2motif-gin8|did you mean 'ba2motif-gin7'? Expected a bundled model (ba2motif, mutagenicity, mutag)
explain ba2motif-gin7|Give its --weights, or train it with: walkwise train ba2motif-gin7.
explore mutag-gin3|mutag-gin3 is not trained.
order mutag molecules --smiles CC|Give either graphs (molecules) or --smiles, not both.
report nowhere|There is no run in nowhere
reproduce table9|did you mean 'table3'?
"""
UNREADABLE = """
walks mutag --smiles C((|got 'C((', which RDKit cannot read.
explain mutag --smarts NO2=[N|RDKit cannot read the SMARTS pattern of 'NO2', '[N'.
"""
for line in WRONG.strip().splitlines():
    arguments, words = line.split("|")
    answered = CliRunner().invoke(app, arguments.split())
    assert answered.exit_code == 2 and words in answered.stderr, (arguments, answered.stderr)
    assert not heavy(), (arguments, heavy())
for line in UNREADABLE.strip().splitlines() if find_spec("rdkit") else ():
    arguments, words = line.split("|")
    answered = CliRunner().invoke(app, arguments.split())
    assert answered.exit_code == 1 and words in answered.stderr, (arguments, answered.stderr)
    assert "torch" not in sys.modules, arguments
words = {"_WALKWISE_COMPLETE": "complete_bash", "COMP_WORDS": "walkwise explain mu", "COMP_CWORD": "2"}
assert CliRunner().invoke(app, [], env=words, prog_name="walkwise").stdout.split() == ["mutagenicity", "mutag"]
assert not heavy(), heavy()
'''


def test_help_completion_and_wrong_names_do_not_wait_for_torch():
    variables = {**os.environ, "PYTHONPATH": str(Path(walkwise.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, env=variables, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_names_are_those_of_the_library():
    assert list(names.DATA_SETS) == datasets.names()
    assert set(names.RULES) == set(rules._NAMED)
    assert baselines.available_baselines() == names.METHODS
    assert tuple(METRICS) == names.METRICS
    assert tuple(questions._KINDS) == names.QUESTIONS
    assert tuple(recipes.RECIPES) == names.RECIPES
    assert tuple(EXHIBITS) == names.EXHIBITS
    assert set(names.BUNDLED.values()) <= set(names.GRAPHS)


@pytest.mark.parametrize("rest", ["", ":", ":3", ":0", ":-1", ":0.5", ":1", ":1.5", ":none", ":1e-2", ":nan", ":3 "])
@pytest.mark.parametrize("kind", [kind for kind in names.QUESTIONS if kind != "groups"])
def test_questions_are_taken_and_refused_as_the_library_does(kind, rest):
    def takes(read):
        try:
            return bool(read(kind + rest))
        except InputError:
            return False

    assert takes(names.check_question) == takes(questions.as_questions)


def test_a_busy_port_is_said_in_one_line(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = run("explore", "ba2motif", "--port", port)
    assert found.code == 2
    assert found.err == (
        f"Cannot listen on 127.0.0.1, port {port}: Address already in use. Choose another port with --port, or --port "
        "0 for any that is free.\n"
    )
