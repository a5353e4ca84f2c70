"""The command as a process of its own: pipes and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import walkwise


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(walkwise.__file__).parents[1])
    variables = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "walkwise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300, check=False)


def test_a_pipe_gets_json_alone_and_no_progress(tmp_path):
    arguments = ["ba2motif-gin2", "ba2motif-generated", "--epochs", "1", "--out", str(tmp_path / "w.safetensors")]
    done = start("train", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["epochs"] == 1


def test_an_error_goes_to_the_other_stream_in_plain_text(tmp_path):
    done = start("explain", "ba2motf")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Unknown model 'ba2motf'; did you mean 'ba2motif'?")
    assert "\x1b" not in done.stderr
    assert done.stderr.count("\n") == 1
