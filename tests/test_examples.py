"""The scripts under examples/: each runs as it is, without data or a screen, and draws what it says."""

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
