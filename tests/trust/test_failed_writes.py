"""Files that are written over: whatever fails, and whenever, what is there is the old file or the new one, whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import walkwise as ww
from faults import REFUSED, at_every_write
from small_runs import Pooled, some_graphs
from walkwise import models, runs
from walkwise.errors import InputError
from walkwise.explanation import Explanation
from walkwise.files import write_whole
from walkwise.paper.tables import write_csv
from walkwise.paper.units import Store, Unit

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks into /proc")

KINDS = pytest.mark.parametrize("kind", ["killed", "full", "read-only"])


def tried(call, folder, kind, refusals, whole, step=1):
    """A fault at every write; ``whole()`` says after each whether what is there is good, and clears it away."""
    codes = []
    for code in at_every_write(call, folder, kind, refusals, step):
        codes.append(code)
        assert whole()
        left = list(folder.rglob(".unfinished-*"))
        assert kind == "killed" or not left or kind == "read-only"
        for path in left:
            path.unlink()
    assert set(codes) <= ({-9} if kind == "killed" else {0, REFUSED})
    assert codes


@KINDS
def test_weights_of_a_training(tmp_path, kind):
    torch.manual_seed(0)
    old, new = models.GIN(1, 4, 2, 2), models.GIN(1, 4, 2, 2)
    path = tmp_path / "weights.safetensors"
    models.save_weights(old, path)

    def whole():
        found = models.load_weights(models.GIN(1, 4, 2, 2), path).state_dict()
        good = any(all(map(torch.equal, found.values(), model.state_dict().values())) for model in (old, new))
        models.save_weights(old, path)
        return good

    tried(lambda: models.save_weights(new, path), tmp_path, kind, (InputError,), whole)


@KINDS
def test_an_explanation(tmp_path, kind):
    graphs, path = some_graphs(2), tmp_path / "explanation.safetensors"
    old, new = (ww.explain(Pooled().double().eval(), graph) for graph in graphs)
    old.save(path)

    def whole():
        good = Explanation.load(path).to_dict() in (old.to_dict(), new.to_dict())
        old.save(path)
        return good

    tried(lambda: new.save(path), tmp_path, kind, (InputError,), whole)


@KINDS
def test_a_unit_of_the_paper_and_its_table(tmp_path, kind):
    unit = Unit("table/a", {}, lambda: [{"value": 1}, {"value": 2}])
    store, table = Store(tmp_path / "units"), tmp_path / "table.csv"

    def call():
        write_csv(store.run(unit).rows, table)

    def whole():
        kept = store.read(unit)
        good = kept is None or kept.rows == ({"value": 1}, {"value": 2})
        good &= not table.exists() or table.read_text() == "value\n1\n2\n"
        for path in (*tmp_path.rglob("*.json"), *tmp_path.glob("*.csv")):
            path.unlink()
        return good

    tried(call, tmp_path, kind, (OSError,), whole)


@KINDS
def test_the_report_on_a_run(tmp_path, kind):
    made = runs.run(Pooled().double().eval(), some_graphs(6), ["nodes"], tmp_path / "run", workers=1)
    page = runs.report(made).read_text()
    to = tmp_path / "report"
    to.mkdir()

    def whole():
        there = to / "report.html"
        good = not there.exists() or len(there.read_text()) == len(page)
        for path in to.iterdir():
            path.unlink()
        return good

    tried(lambda: runs.report(made, out=to), to, kind, (OSError,), whole, step=4)


def test_a_link_stays_one_a_file_keeps_its_mode_and_a_pipe_is_written_into(tmp_path):
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    write_whole(link, "new")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "new", 0o600)
    mask = os.umask(0o077)
    try:
        write_whole(tmp_path / "private", b"mine")
    finally:
        os.umask(mask)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "through")
    assert (os.read(reader, 20), pipe.is_fifo()) == (b"through", True)
    os.close(reader)
    with pytest.raises(InputError, match=r"Cannot write .*: No such file or directory\. Create its folder first"):
        models.save_weights(models.GIN(1, 4, 2, 2), tmp_path / "nowhere" / "w")
