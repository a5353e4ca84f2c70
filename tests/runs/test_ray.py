"""The same rows from a Ray cluster, also where one of its two nodes is lost."""

from __future__ import annotations

import threading

import pytest

from small_runs import same, some_graphs
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


def test_without_ray_the_extra_is_named(model, graphs, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"walkwise\[ray\]"):
        runs.run(model, graphs, ["nodes"], tmp_path / "out", engine="ray")
