"""Whatever write of a run fails, and however, the same call ends with the rows of an undisturbed run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faults import REFUSED, at_every_write
from small_runs import same
from walkwise import runs

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks into /proc")


@pytest.mark.parametrize("kind", ["killed", "full", "read-only"])
def test_a_fault_at_every_write(model, graphs, tmp_path, kind, request):
    """With --full at every one of them, otherwise at one in five."""
    few, out = graphs[:4], tmp_path / "out"

    def run():
        return runs.run(model, few, ["nodes"], out, workers=1, batch=2)

    whole = runs.read(runs.run(model, few, ["nodes"], tmp_path / "whole", workers=1, batch=2))
    codes = []
    step = 1 if request.config.getoption("--full") else 5
    for code in at_every_write(run, out, kind, (runs.UnfinishedWriteError,), step):
        codes.append(code)
        made = run()
        assert made.complete
        same(runs.read(made), whole)
        assert not list(out.rglob(".unfinished-*"))
        shutil.rmtree(out)
    assert set(codes) <= ({-9} if kind == "killed" else {0, REFUSED})
    assert len(codes) * step > 20
