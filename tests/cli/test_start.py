"""What the command line says without torch, which takes seconds to import; and that it says the truth."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import walkwise
from walkwise import baselines, datasets, models, recipes, rules
from walkwise.baselines.measures import METRICS
from walkwise.cli import app, names
from walkwise.cli.beforehand import Request
from walkwise.cli.predictions import predicted
from walkwise.cli.sources import load_graphs, load_subject
from walkwise.datasets import ba2motif, sentiment, tu
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
explain ba2motif --graph 1000|There is no graph 1000: ba2motif-generated has 1000, numbered 0 to 999.
walks mutag --graph 8|There is no graph 8: molecules has 8, numbered 0 to 7.
order mutag --smiles CC --graph 1|There is no graph 1: molecules has only one, number 0.
compare mutag --graph 0 --graph 8|There is no graph 8
run graphs:model graphs:load --target house|--target must be a column of the output, or one of predicted, label
"""
MISFITS = """
explain mutag --target toxic|--target must be a column of the output, 0 to 1, or one of 'non-mutagenic', 'mutagenic',
interactions mutag --smiles CC --target 2|0 to 1, or one of 'non-mutagenic', 'mutagenic', got 2.
walks ba2motif --against hose|--against must be a column of the output, 0 to 1, or one of 'cycle', 'house', got hose.
order mutag mutagenicity --target no|or one of 'mutagenic', 'non-mutagenic', got no.
explain mutag --target 1 --against mutagenic|--against must be another output than the target, got mutagenic.
compare ba2motif --target 5|--target must be a column of the output, 0 to 1, or one of 'cycle', 'house', got 5.
run mutagenicity --target toxic|--target must be a column of the output
explain ba2motif --index 3|ba2motif has one output for the whole graph, not one per node: leave out --index.
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
for line in MISFITS.strip().splitlines():
    arguments, words = line.split("|")
    answered = CliRunner().invoke(app, arguments.split())
    assert answered.exit_code == 1 and words in answered.stderr, (arguments, answered.stderr)
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


def test_the_classes_are_those_of_the_models_and_of_the_data_sets():
    made = dict.fromkeys(("ba2motif", "ba2motif-generated"), ba2motif.CLASSES)
    assert {**tu.CLASSES, **made, "graph-sst2": sentiment.CLASSES, "molecules": tu.CLASSES["mutag"]} == names.CLASSES
    assert {name: models.bundled(name).sizes["out_channels"] for name in names.BUNDLED} == dict.fromkeys(
        names.BUNDLED, 2
    )
    assert {models.build(name).sizes["out_channels"] for name in names.RECIPES} == {2}
    assert all(len(classes) == 2 for classes in names.CLASSES.values())
    assert len(datasets.load("ba2motif-generated").graphs) == names.SIZES["ba2motif-generated"]
    pytest.importorskip("rdkit")
    assert len(load_graphs("molecules").graphs) == names.SIZES["molecules"]


@pytest.mark.parametrize(
    "given", [{"target": "toxic"}, {"target": 2}, {"against": "toxic"}, {"target": 1, "against": "house"}, {"index": 3}]
)
def test_what_is_said_beforehand_is_what_the_model_would_say(given):
    with pytest.raises(InputError) as before:
        Request("ba2motif", numbers=[0], **given)
    subject = load_subject("ba2motif")
    with pytest.raises(InputError) as after:
        predicted(subject, 0, **{"target": None, "index": None} | given)
    assert str(before.value) == str(after.value)
    assert (before.value.argument, before.value.got) == (after.value.argument, after.value.got)


def test_the_first_words_come_before_torch(tmp_path):
    """Whatever is asked, the command says so at once; and nothing but the answer where a program reads it."""
    (tmp_path / "manifest.json").write_text("{}")
    commands = {
        "demo": "Which part of this graph made the model say that?",
        "explain mutagenicity --graph 7": "Asking mutagenicity, which says non-mutagenic or mutagenic, about toluene.",
        "order ba2motif --graph 3": "Asking ba2motif, which says cycle or house, about ba2motif-generated 3.",
        "walks mutag --smiles CC --smiles CO": "Asking mutag, which says non-mutagenic or mutagenic, about CC, CO.",
        "interactions own:model own:graphs": "Asking own:model about own:graphs 0.",
        "compare mutag --method cam --metric auac": "Comparing cam by auac: mutag on molecules.",
        "run mutag": "Asking mutag, which says non-mutagenic or mutagenic, about every graph of molecules: nodes.",
        f"report {tmp_path}": f"Reporting on the run in {tmp_path}.",
        "train mutag-gin3": "Training mutag-gin3.",
        "explore --port 0": "Opening ba2motif and ba2motif-generated …",
        f"explore {tmp_path} --port 0": f"Opening the run in {tmp_path} …",
        "reproduce table3": "Reproducing the paper's table3 in paper.",
    }
    assert {words.split()[0] for words in commands} == {
        command.callback.__name__ for command in app.registered_commands
    }
    refusal = "import sys; sys.modules['torch'] = None; from walkwise.cli import app; app()"
    for command, words in commands.items():
        begun = _ends_at_torch(refusal, command)
        assert begun.startswith(words) or " ".join(begun.split()).startswith(words), (command, begun)
    for command in ("explain mutag --json", "run mutag --json", "demo --json"):
        assert _ends_at_torch(refusal, command) == ""


def _ends_at_torch(program: str, command: str) -> str:
    """What a command has printed when it cannot import torch."""
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "torch" in done.stderr) == (1, True), done.stderr
    return done.stdout


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
