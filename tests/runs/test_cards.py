"""Workers of graphics cards, as far as no card is needed: processes that share no memory, seats, cards that fail."""

import os

import pytest
import torch

from small_runs import Pooled, same
from walkwise import runs
from walkwise.errors import InputError
from walkwise.runs import cards, local, work

ASKED = ["nodes", "order:0.1", "walks:3"]


@pytest.fixture
def spawned(monkeypatch):
    """Workers that are new processes, as where this process has used a card itself."""
    monkeypatch.setattr(local, "can_fork", lambda place: False)


def test_processes_that_share_no_memory_give_the_same_rows(model, graphs, tmp_path, spawned, monkeypatch):
    made = runs.run(model, graphs, ASKED, tmp_path / "spawned", workers=1, batch=8)
    monkeypatch.undo()
    same(runs.read(made), runs.read(runs.run(model, graphs, ASKED, tmp_path / "forked", workers=1, batch=8)))


def test_what_cannot_be_sent_to_another_process_is_named(graphs, tmp_path, spawned, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = Pooled().double().eval()
    model.note = lambda: None
    with pytest.raises(InputError, match="cannot be sent to another process"):
        runs.run(model, graphs, "nodes", tmp_path / "out", workers=1)
    assert not list(tmp_path.glob("walkwise-*"))


def test_nothing_is_left_where_workers_read_from(model, graphs, tmp_path, spawned, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert runs.run(model, graphs[:2], "nodes", tmp_path / "whole", workers=1).complete
    monkeypatch.setattr(local.pickle, "dumps", lambda work: None)  # what cannot be written, as on a full disk
    with pytest.raises(TypeError):
        runs.run(model, graphs[:2], "nodes", tmp_path / "broken", workers=1)
    assert not list(tmp_path.glob("walkwise-*"))


def test_workers_that_cannot_even_start_are_not_taken_for_bad_graphs(model, graphs, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_work", lambda *given: os._exit(1))  # as scripts do that start themselves again
    with pytest.raises(local.WorkerError, match='under `if __name__ == "__main__":`'):
        runs.run(model, graphs, "nodes", tmp_path / "out", workers=2)
    assert not list((tmp_path / "out").rglob("*.parquet"))


class Fragile(Pooled):
    """Fails on graphs of eight nodes."""

    def forward(self, x, edge_index, batch=None):
        count = torch.bincount(torch.zeros(len(x), dtype=torch.long) if batch is None else batch)
        if bool((count == 8).any()):
            raise RuntimeError("CUDA error: device-side assert triggered")
        return super().forward(x, edge_index, batch)


def test_a_graph_that_makes_a_card_fail_is_found_and_the_others_are_explained(graphs, tmp_path, monkeypatch):
    def failed(device):
        raise cards.CardLostError("the card has failed")

    monkeypatch.setattr(work, "check_card", failed)
    made = runs.run(Fragile().double().eval(), graphs, "nodes", tmp_path / "out", workers=1, batch=4)
    table = runs.read(made)["graphs"]
    wrong = table["num_nodes"].isna()
    assert [i for i, graph in enumerate(graphs) if graph.num_nodes == 8] == table["graph"][wrong].tolist()
    assert set(table["error"][wrong]) == {
        "The graph could not be explained: the graphics card failed; on the CPU, the error message would say why."
    }
    assert table["error"][~wrong].isna().all()


def test_workers_take_cards_in_turn_and_share_their_memory(monkeypatch):
    shares = {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: shares.update({device: share})
    )
    memory = type("Properties", (), {"total_memory": 10 << 30})()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
    assert [str(cards.seat("cuda", number, 5)) for number in range(5)] == [
        "cuda:0",
        "cuda:1",
        "cuda:0",
        "cuda:1",
        "cuda:0",
    ]
    assert all(share == pytest.approx(1 / 3 - 0.1) for share in shares.values())
    assert str(cards.seat("cuda:1", 0, 1)) == "cuda:1"
    assert shares[torch.device("cuda:1")] == pytest.approx(0.9)
    assert str(cards.seat("cpu", 3, 5)) == "cpu"


def test_workers_by_default(monkeypatch):
    monkeypatch.setattr(cards.os, "cpu_count", lambda: 40)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert cards.workers_by_default("cpu") == 40
    assert cards.workers_by_default("cuda") == 3 * cards.PER_CARD
    assert cards.workers_by_default("cuda:1") == cards.PER_CARD


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_a_card_that_is_not_there_is_refused(model, graphs, tmp_path):
    with pytest.raises(InputError, match="a device that this machine has") as refused:
        runs.run(model, graphs, "nodes", tmp_path / "out", device="cuda")
    assert refused.value.argument == "device"
    with pytest.raises(InputError, match="a device such as"):
        runs.run(model, graphs, "nodes", tmp_path / "out", device="abacus")
    assert not (tmp_path / "out").exists()
