"""The scripts under examples/: each runs as it is, without data or a screen, and draws what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PICTURES = {
    "molecules": ["molecules.png", "molecules_parts.png"],
    "social_graph": ["social_graph.png", "social_graph_curves.png"],
    "text": ["text_1.png", "text_2.png", "text_3.png", "text_negation.png"],
}


@pytest.mark.parametrize("name", PICTURES)
def test_an_example_runs_and_draws_its_pictures(name, tmp_path):
    pytest.importorskip("matplotlib")
    if name == "molecules":
        pytest.importorskip("rdkit")
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "WALKWISE_ROOT": str(tmp_path)}
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == PICTURES[name]
    assert all(f"out/{picture}" in done.stdout for picture in PICTURES[name])


def test_the_notebooks_run_and_show_what_they_hold():
    for needed in ("matplotlib", "rdkit", "pandas"):
        pytest.importorskip(needed)
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "notebooks.py"), "--check"],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_a_notebook_that_shows_something_else_is_found_out(tmp_path):
    pytest.importorskip("matplotlib")
    cell = {"cell_type": "code", "source": ["print('α', 1.5)\n", "2"], "outputs": [], "execution_count": None}
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    command = [sys.executable, str(ROOT / "docs" / "notebooks.py"), str(path)]
    assert subprocess.run([*command, "--check"], capture_output=True, check=False).returncode == 1  # nothing is held
    subprocess.run(command, check=True)
    assert subprocess.run([*command, "--check"], capture_output=True, check=False).returncode == 0
    path.write_text(path.read_text(encoding="utf-8").replace("α 1.5", "β 1.5"), encoding="utf-8")
    assert subprocess.run([*command, "--check"], capture_output=True, check=False).returncode == 1
