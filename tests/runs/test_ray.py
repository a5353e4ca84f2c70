"""The same rows from a Ray cluster, also where one of its two nodes is lost."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from small_runs import Pooled, same, some_graphs
from waiting import eventually
from walkwise import runs
from walkwise.errors import MissingExtraError
from walkwise.runs.folder import finished

ASKED = ["nodes", "walks:3"]


@pytest.mark.slow
def test_a_cluster_of_two_nodes_of_which_one_is_lost_gives_the_rows_of_one_machine(model, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    graphs = some_graphs(240, seed=4)
    here = runs.read(runs.run(model, graphs, ASKED, tmp_path / "here", workers=1, batch=4))
    soon = {"health_check_period_ms": 500}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": soon}  # so that the loss is noticed at once
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        lost = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        out = tmp_path / "there"

        def lose() -> None:
            eventually(lambda: (out / "graphs").is_dir() and bool(finished(out)))
            cluster.remove_node(lost, allow_graceful=False)

        thread = threading.Thread(target=lose, daemon=True)
        thread.start()
        made = runs.run(model, graphs, ASKED, out, engine="ray", batch=4)
        thread.join()
        assert (made.complete, made.failed) == (True, 0)
        same(runs.read(made), here)
        eventually(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)  # the cluster notices the loss by and by
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def one_node(monkeypatch):
    """Ray on this machine, with one processor; other tests of the same process start their own."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def sizes_of(batch):
    return torch.bincount(batch).tolist()


class Deadly(nn.Module):
    """Ends its process on a graph of eleven nodes, as a fault in a library would."""

    def __init__(self):
        super().__init__()
        self.inner = Pooled().double()

    def forward(self, x, edge_index, batch):
        if 11 in sizes_of(batch):
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.inner(x, edge_index, batch)


@pytest.mark.full
def test_a_graph_that_kills_its_process_is_a_row_with_its_error(one_node, model, tmp_path):
    graphs = some_graphs(6)
    here = runs.read(runs.run(model, graphs, ASKED, tmp_path / "here", workers=1, batch=2))
    graphs[3] = Data(torch.ones(11, 3, dtype=torch.float64), torch.tensor([[0], [1]]))
    made = runs.run(Deadly().eval(), graphs, ASKED, tmp_path / "there", engine="ray", batch=2)
    assert (made.complete, made.failed) == (True, 1)
    there = runs.read(made)
    assert there["graphs"].error[3] == "The graph could not be explained: its process was ended by SIGSEGV."
    for name in ASKED:
        assert there[name].equals(here[name][here[name].graph != 3].reset_index(drop=True))


class Noting(nn.Module):
    """Takes its time, and notes the size of every graph that it is asked about."""

    def __init__(self, notes):
        super().__init__()
        self.inner = Pooled().double()
        self.notes = str(notes)

    def forward(self, x, edge_index, batch):
        with open(self.notes, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.writelines(f"{size}\n" for size in sizes_of(batch))
        time.sleep(0.05)
        return self.inner(x, edge_index, batch)


@pytest.mark.full
def test_ctrl_c_finishes_what_is_under_way(one_node, tmp_path):
    graphs = [some_graphs(1)[0] for _ in range(120)]
    for number, graph in enumerate(graphs):  # a size of its own for each
        graph.x = torch.ones(9 + number, 3, dtype=torch.float64)
    model, late = Noting(tmp_path / "notes").eval(), []
    before = signal.signal(signal.SIGINT, lambda number, frame: late.append(number))  # not to end the tests

    def interrupt():
        eventually((tmp_path / "notes").exists, within=300)  # the first graph is under way, and the rest takes long
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        made = runs.run(model, graphs, ["nodes"], tmp_path / "out", engine="ray", batch=1)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert late == []  # the run has taken it
    assert 0 < made.done < len(graphs)
    begun = {int(line) for line in (tmp_path / "notes").read_text().split()}
    assert set(runs.read(made)["graphs"].num_nodes) == begun  # all of it, nothing dropped


def test_without_ray_the_extra_is_named(model, graphs, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"walkwise\[ray\]"):
        runs.run(model, graphs, ["nodes"], tmp_path / "out", engine="ray")
