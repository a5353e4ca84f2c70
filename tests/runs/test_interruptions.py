"""Whatever is interrupted goes on, and ends with the rows of an undisturbed run; who differs is refused."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from small_runs import Pooled, interrupted, same, some_graphs
from walkwise import runs
from walkwise.errors import InputError
from walkwise.runs.folder import finished

ASKED = ["nodes", "walks:3", "order:0.1"]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


@pytest.fixture(scope="module")
def many():
    return some_graphs(160, seed=3)


class Slow(nn.Module):
    """Takes its time, so that a run can be interrupted."""

    seconds = 0.004

    def __init__(self):
        super().__init__()
        self.inner = Pooled().double()

    def forward(self, x, edge_index, batch):
        time.sleep(self.seconds)
        return self.inner(x, edge_index, batch)


@pytest.fixture(scope="module")
def slow():
    return Slow().eval()


@pytest.fixture(scope="module")
def undisturbed(slow, many, tmp_path_factory):
    return runs.read(runs.run(slow, many, ASKED, tmp_path_factory.mktemp("whole") / "out", workers=2, batch=4))


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_rows(slow, many, undisturbed, tmp_path):
    chance, out = random.Random(0), tmp_path / "out"

    def run():
        Slow.seconds = 0.1  # in this process alone: many times what it takes to see that it is due
        runs.run(slow, many, ASKED, out, workers=2, batch=4)

    for more in (0, 1, 3, 2, 1):
        before = len(finished(out))

        def is_due(wanted=before + more):
            due = len(finished(out)) >= wanted
            time.sleep(due * chance.uniform(0, 0.1))  # so that it is in the middle of something
            return due

        assert interrupted(run, is_due) == -signal.SIGKILL
        assert before + more <= len(finished(out)) < len(many) / 4
    made = runs.run(slow, many, ASKED, out, workers=2, batch=4)
    assert made.complete
    same(runs.read(made), undisturbed)
    assert not list(out.rglob(".unfinished-*"))


def test_a_worker_that_is_killed_is_replaced_and_its_graphs_are_done_again(slow, many, undisturbed, tmp_path):
    def run_and_lose_workers():
        import multiprocessing
        import threading

        def kill():
            out = tmp_path / "out"
            while len(lost) < 2:
                time.sleep(0.01)
                if len(finished(out)) > len(lost):  # the workers are at work
                    for child in multiprocessing.active_children()[:1]:
                        os.kill(child.pid, signal.SIGKILL)
                        lost.append(child.pid)

        threading.Thread(target=kill, daemon=True).start()
        return runs.run(slow, many, ASKED, tmp_path / "out", workers=2, batch=4)

    lost: list[int] = []
    made = run_and_lose_workers()
    assert (made.complete, made.failed, len(lost)) == (True, 0, 2)
    same(runs.read(made), undisturbed)


def test_ctrl_c_finishes_the_batches_under_way(slow, many, undisturbed, tmp_path):
    out = tmp_path / "out"

    def run():
        made = runs.run(slow, many, ASKED, out, workers=2, batch=4)
        os._exit(7 if not made.complete else 0)

    assert interrupted(run, lambda: list(out.rglob("*.parquet")), signal.SIGINT) == 7
    assert sum(last - first for first, last in finished(out)) > 0
    same(runs.read(runs.run(slow, many, ASKED, out, workers=2, batch=4)), undisturbed)


def test_a_full_disk_stops_the_run_and_loses_nothing(model, graphs, tmp_path):
    whole = runs.read(runs.run(model, graphs, ASKED, tmp_path / "whole", workers=1, batch=4))
    out = tmp_path / "out"
    runs.run(model, graphs, ["nodes"], tmp_path / "other", workers=1)  # what a manifest takes

    def run():
        smallest = max(path.stat().st_size for path in (tmp_path / "whole").rglob("*.parquet")) - 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (smallest, smallest))
        try:
            runs.run(model, graphs, ASKED, out, workers=1, batch=4)
        except runs.UnfinishedWriteError as error:
            os._exit(9 if "Free some space" in str(error) else 8)

    child = os.fork()
    if child == 0:
        try:
            run()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not list(out.rglob(".unfinished-*"))
    same(runs.read(runs.run(model, graphs, ASKED, out, workers=1, batch=4)), whole)


# -- graphs that fail ---------------------------------------------------------------------------------------------


def bad_graphs(graphs):
    """Graphs of which four cannot be explained, and which they are."""
    made = list(graphs)
    made[3] = Data(torch.ones(4, 5, dtype=torch.float64), made[3].edge_index[:, :0])  # too many features
    made[9] = Data(torch.full((2, 3), torch.nan, dtype=torch.float64), torch.tensor([[0], [1]]))
    made[10] = Data(torch.ones(2, 3, dtype=torch.float64), torch.tensor([[0], [7]]))  # an edge to nowhere
    made[29] = "no graph"
    return made, [3, 9, 10, 29]


def test_a_graph_that_fails_is_a_row_with_its_error_and_stops_nobody(model, graphs, tmp_path):
    made, bad = bad_graphs(graphs)
    found = runs.run(model, made, ASKED, tmp_path / "out", workers=2, batch=8)
    assert (found.complete, found.failed) == (True, len(bad))
    tables = runs.read(found)
    rows = tables["graphs"]
    assert rows[rows.error.notna()].graph.tolist() == bad
    assert rows.error[9] == "x has NaN or infinite entries; relevance needs finite numbers." or "NaN" in rows.error[9]
    assert "shape" in rows.error[3] or "mat1" in rows.error[3]
    whole = runs.read(runs.run(model, graphs, ASKED, tmp_path / "whole", workers=1, batch=8))
    for name in ("nodes", "walks:3"):
        well = whole[name][~whole[name].graph.isin(bad)]
        assert tables[name].graph.tolist() == well.graph.tolist()
        np.testing.assert_allclose(tables[name].relevance, well.relevance, atol=1e-12)


def test_a_run_in_which_every_graph_fails_alike_is_refused_at_once(graphs, tmp_path):
    model = Pooled().eval()  # in float32, which does not fit
    with pytest.raises(
        InputError, match=r"All of the first 8 graphs fail in the same way: x is torch.float64 but .* torch.float32"
    ):
        runs.run(model, graphs, ["nodes"], tmp_path / "out", workers=1, batch=8)


class Deadly(nn.Module):
    """Ends its process on a graph of eleven nodes, as a fault in a library would."""

    def __init__(self):
        super().__init__()
        self.inner = Pooled().double()

    def forward(self, x, edge_index, batch):
        if 11 in torch.bincount(batch).tolist():
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.inner(x, edge_index, batch)


def test_a_graph_that_kills_its_process_is_found_and_the_others_are_explained(graphs, tmp_path):
    made = [*graphs[:9], *some_graphs(1, seed=9, most=11), *graphs[9:12]]
    made[9] = Data(torch.ones(11, 3, dtype=torch.float64), torch.tensor([[0], [1]]))
    found = runs.run(Deadly().eval(), made, ["nodes"], tmp_path / "out", workers=2, batch=4)
    rows = runs.read(found)["graphs"]
    assert (found.complete, found.failed) == (True, 1)
    assert rows.error[9] == "The graph could not be explained: its process was ended by SIGSEGV."


# -- what differs is refused --------------------------------------------------------------------------------------


def test_a_changed_model_rule_or_data_set_is_refused_with_what_differs(model, graphs, tmp_path):
    out = tmp_path / "out"
    runs.run(model, graphs, ["nodes"], out, workers=1)
    other = Pooled().double().eval()
    with torch.no_grad():
        other.head.weight[0, 0] += 1e-6
    changed = [graph.clone() for graph in graphs]
    changed[5].x[0, 0] += 1
    cases = {
        "model": {"model": other},
        "rule: auto before, zero now": {"rule": "zero"},
        "data set": {"graphs": changed},
        "questions: nodes before, edges now": {"questions": ["edges"]},
        "target: predicted before, 1 now": {"target": 1},
        "batch: 128 before, 7 now": {"batch": 7},
        "number of graphs: 30 before, 29 now": {"graphs": graphs[:29]},
    }
    for said, given in cases.items():
        asked = {"model": model, "graphs": graphs, "questions": ["nodes"], "out": out, "workers": 1} | given
        with pytest.raises(InputError, match=said.replace("(", r"\(")):
            runs.run(**asked)
    assert runs.run(model, graphs, ["nodes"], out, workers=1).complete


def test_a_folder_with_something_else_in_it_is_refused(model, graphs, tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty and holds no run"):
        runs.run(model, graphs, ["nodes"], tmp_path, workers=1)
    with pytest.raises(InputError, match="There is no run in"):
        runs.read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "walkwise run", "schema": 99}')
    with pytest.raises(InputError, match="schema 99"):
        runs.open_run(tmp_path)


def test_two_at_once_do_not_write_the_same_folder(slow, many, tmp_path):
    out = tmp_path / "out"
    child = os.fork()
    if child == 0:
        try:
            runs.run(slow, many, ASKED, out, workers=1, batch=4)
            os._exit(0)
        finally:
            os._exit(1)
    time.sleep(0.3)
    made = runs.run(slow, many, ASKED, out, workers=1, batch=4)  # waits, and finds all of it done
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ranges = finished(out)
    assert made.complete
    assert all(last == first for (_, last), (first, _) in itertools.pairwise(ranges))


def test_where_no_folder_can_be_is_said(model, graphs, tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    for wrong in ("letter.txt", "letter.txt/run"):
        with pytest.raises(InputError, match=r"cannot be made: .* Name another folder") as refusal:
            runs.run(model, graphs, ["nodes"], tmp_path / wrong, workers=1)
        assert refusal.value.argument == "out"
    with pytest.raises(InputError, match="is not a folder, and none can be created there"):
        runs.report(runs.run(model, graphs[:2], ["nodes"], tmp_path / "run", workers=1), out=tmp_path / "letter.txt")


@pytest.mark.parametrize("target", [np.int64(1), torch.tensor(1)])
def test_a_target_may_be_a_number_of_numpy_or_torch(model, graphs, tmp_path, target):
    made = runs.run(model, graphs[:2], ["nodes"], tmp_path / "out", workers=1, target=target)
    assert (made.manifest["target"], made.failed) == (1, 0)
