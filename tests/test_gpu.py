"""The same numbers on an accelerator."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.explain import Explainer

import walkwise as ww

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 1, 3], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4, 3, 1]])
SUBGRAPHS = [[0, 1], [2], [0, 2, 3], [], [0, 1, 2, 3, 4], [4, 1]]
LAYERS = {
    "GCN": lambda i, o: pyg.GCNConv(i, o),
    "GIN": lambda i, o: pyg.GINConv(nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(), nn.Linear(o, o))),
    "GAT": lambda i, o: pyg.GATConv(i, o // 2, heads=2),
    "TAG": lambda i, o: pyg.TAGConv(i, o),
    "TransformerConv": lambda i, o: pyg.TransformerConv(i, o),
}


class Net(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.a, self.b, self.head = make(3, 4), make(4, 4), nn.Linear(4, 2)

    def forward(self, x, edge_index):
        return self.head(self.b(self.a(x, edge_index).relu(), edge_index).sum(0, keepdim=True))


@pytest.mark.parametrize("rule", ["gamma", "alphabeta"])
@pytest.mark.parametrize("name", LAYERS)
def test_device_gives_what_the_processor_gives(name, rule):
    torch.manual_seed(0)
    model, x = Net(LAYERS[name]).double().eval(), torch.randn(5, 3, dtype=torch.float64)
    here = ww.trace(model, x, EDGES, target=1, rule=rule)
    moved = here.to("cuda")
    there = ww.trace(model.cuda(), x.cuda(), EDGES.cuda(), target=1, rule=rule)
    for query in (
        lambda c: ww.subgraph_relevance(c, SUBGRAPHS, alpha=[0.0, 0.3, 1.0]),
        lambda c: ww.subgraph_relevance(c, SUBGRAPHS * 100),
        lambda c: ww.subgraph_polynomial(c, SUBGRAPHS),
        lambda c: ww.walk_relevance(c, ww.enumerate_walks(c)),
        lambda c: ww.node_relevance(c, layer=1),
        lambda c: ww.edge_relevance(c),
        lambda c: ww.feature_relevance(c),
    ):
        for chain in (moved, there):
            answer = query(chain)
            assert answer.is_cuda
            assert torch.allclose(answer.cpu(), query(here), rtol=1e-9, atol=1e-11)
    assert there.report().splitlines()[0] == moved.report().splitlines()[0]


def test_balls_around_subgraphs_on_a_device():
    torch.manual_seed(0)
    M, model = 400, Net(LAYERS["GIN"]).double().eval()
    here = ww.trace(model, torch.randn(M, 3, dtype=torch.float64), a_path(M), target=1)
    there, ids, offsets = here.to("cuda"), torch.arange(M), torch.arange(0, M + 1, 4)
    for query in (
        lambda c: ww.subgraph_relevance(c, (ids, offsets)),
        lambda c: ww.subgraph_relevance(c, (ids.to(c.device), offsets.to(c.device)), alpha=0.3),
        lambda c: ww.subgraph_relevance(c, ids.view(-1, 4), alpha=1.0),
        lambda c: ww.subgraph_relevance(c, ids.view(-1, 4).to(c.device), alpha=0.5),
        lambda c: ww.subgraph_relevance(c, [[7, 8, 300]], alpha=0.5),
        lambda c: ww.subgraph_relevance(c, ids.view(-1, 4).repeat(50, 1), alpha=0.5),
        lambda c: ww.subgraph_polynomial(c, (ids, offsets)),
        lambda c: ww.node_relevance(c, layer="start"),
    ):
        assert torch.allclose(query(there).cpu(), query(here), rtol=1e-9, atol=1e-11)


#: What is asked of a chain without waiting for its device, once the chain has answered such a question.
QUIET = {
    "node relevance": lambda c: ww.node_relevance(c),
    "node relevance in the middle": lambda c: ww.node_relevance(c, layer=1),
    "edge relevance": lambda c: ww.edge_relevance(c),
    "edge relevance of pairs": lambda c: ww.edge_relevance(c, edge_index=[[0, 1], [1, 4]]),
    "edge relevance of pairs there": lambda c: ww.edge_relevance(c, edge_index=c.edge_index),
    "feature relevance": lambda c: ww.feature_relevance(c),
    "subgraphs": lambda c: ww.subgraph_relevance(c, [[0, 1], [3, 2, 0], [4, 1]] * 50),
    "subgraphs of one size": lambda c: ww.subgraph_relevance(c, [[0, 1], [3, 2], [4, 1]] * 50),
    "subgraphs, discounted": lambda c: ww.subgraph_relevance(c, [[0, 1], [3, 2], [4, 1]] * 50, alpha=0.3),
    "subgraphs, discounted twice": lambda c: ww.subgraph_relevance(c, [[0, 1], [3, 2]] * 50, alpha=[0.3, 0.7]),
    "one subgraph": lambda c: ww.subgraph_relevance(c, [[0, 1]]),
    "one subgraph, discounted": lambda c: ww.subgraph_relevance(c, [[0, 1]], alpha=0.3),
    "a large subgraph": lambda c: ww.subgraph_relevance(c, [list(range(0, c.num_nodes, 2))] * 3),
    "many subgraphs": lambda c: ww.subgraph_relevance(c, [[0, 1], [3, 2, 0], [4, 1]] * 5_000),
    "a table of subgraphs there": lambda c: ww.subgraph_relevance(c, there(c).view(-1, 2)),
    "a table of subgraphs there, discounted": lambda c: ww.subgraph_relevance(c, there(c).view(-1, 2)[:9], alpha=0.3),
    "subgraphs there, sizes here": lambda c: ww.subgraph_relevance(c, (there(c)[:10], torch.tensor([0, 3, 3, 8, 10]))),
    "masks": lambda c: ww.subgraph_relevance(c, torch.eye(c.num_nodes, dtype=torch.bool)[:5]),
    "walks": lambda c: ww.walk_relevance(c, [[0, 1, 2], [3, 3, 3], [4, 0, 4]]),
    "walks there": lambda c: ww.walk_relevance(c, there(c)[:39].view(-1, 3)),
    "a polynomial": lambda c: ww.subgraph_polynomial(c, [[0, 1], [3, 2], [4, 1]] * 50),
}
#: Sizes that only the device knows: of what surrounds ids that are on it, on a graph that is not carried whole.
WAITED_FOR = {"a table of subgraphs there, discounted"}


def there(chain):
    """Ids of the first five nodes, on the device, none twice in a row of two."""
    return torch.arange(40, device=chain.device) % 5


def a_path(M):
    """Edges both ways."""
    path = torch.stack([torch.arange(M - 1), torch.arange(1, M)])
    return torch.cat([path, path.flip(0)], dim=1)


@pytest.fixture(scope="module", params=["GCN", "GIN", "GAT"])
def chains_there(request):
    """Chains on the device, of a small graph and of one that is not carried whole."""
    torch.manual_seed(0)
    model = Net(LAYERS[request.param]).double().cuda().eval()
    small = ww.trace(model, torch.randn(5, 3, device="cuda").double(), EDGES.cuda(), target=1)
    return small, ww.trace(model, torch.randn(400, 3, device="cuda").double(), a_path(400).cuda(), target=1)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", QUIET)
def test_questions_do_not_wait_for_the_device(chains_there, name, large):
    if large and name in WAITED_FOR:
        pytest.skip("the sizes of what surrounds subgraphs on a device are asked for")
    chain = chains_there[large]
    expected = QUIET[name](chain.to("cpu"))
    QUIET[name](chain)
    torch.cuda.set_sync_debug_mode("error")
    try:
        answer = QUIET[name](chain)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(answer.cpu(), expected, rtol=1e-9, atol=1e-11)


def waits(ask):
    """How often the device is waited for."""
    ask()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            ask()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in seen)


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_sizes_that_are_on_a_device_are_waited_for_once(chains_there, alpha):
    chain = chains_there[0]
    offsets, mask = torch.arange(0, 41, 2).cuda(), torch.rand(50, 5, device="cuda") < 0.5
    for given in ((there(chain), offsets), mask):
        assert waits(lambda: ww.subgraph_relevance(chain, given, alpha=alpha)) == 1  # noqa: B023
    here = ww.subgraph_relevance(chain.to("cpu"), mask.cpu(), alpha=alpha)
    torch.testing.assert_close(ww.subgraph_relevance(chain, mask, alpha=alpha).cpu(), here, rtol=1e-9, atol=1e-11)


def test_what_surrounds_subgraphs_that_are_on_a_device_is_asked_for(chains_there):
    chain = chains_there[1]
    table = torch.arange(400, device="cuda").view(-1, 4)
    # the sizes of all balls, and then of each batch: its nodes, the edges that leave them, and those between them
    assert waits(lambda: ww.subgraph_relevance(chain, table, alpha=0.3)) <= 4


#: Wrong ids, given on the device.
WRONG = {
    "a table": (
        lambda c, ids: ww.subgraph_relevance(c, ids([[0, 1], [2, 1_000_000]])),
        "Subgraph 1 names node 1000000",
    ),
    "below": (lambda c, ids: ww.subgraph_relevance(c, ids([[0, -9]]), alpha=0.3), "Subgraph 0 names node -9"),
    "offsets here": (lambda c, ids: ww.subgraph_relevance(c, (ids([0, 7**9]), torch.tensor([0, 1, 2]))), "Subgraph 1"),
    "offsets there": (lambda c, ids: ww.subgraph_relevance(c, (ids([0, 7**9]), ids([0, 1, 2]))), "Subgraph 1 names"),
    "offsets": (lambda c, ids: ww.subgraph_relevance(c, (ids([0, 1]), ids([0, 2, 1]))), "must ascend"),
    "twice": (lambda c, ids: ww.subgraph_polynomial(c, ids([[0, 1], [2, 2]])), "names node 2 more than once"),
    "walks": (lambda c, ids: ww.walk_relevance(c, ids([[0, 1, 1_000_000]])), "names nodes 0 to 1000000"),
    "edges": (lambda c, ids: ww.edge_relevance(c, edge_index=ids([[0], [1_000_000]])), "from 0 to 1000000"),
    "many here": (lambda c, _: ww.subgraph_relevance(c, [[0, 1], [4, 9**9]] * 9_000), "Subgraph 1 names"),
}


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ids_are_refused_and_the_device_goes_on(chains_there, name, large):
    chain, (ask, words) = chains_there[large], WRONG[name]
    before = ww.subgraph_relevance(chain, [[0, 1]])
    with pytest.raises(ww.errors.InputError, match=words):
        ask(chain, lambda numbers: torch.tensor(numbers, device="cuda"))
    assert torch.equal(ww.subgraph_relevance(chain, [[0, 1]]), before)


@pytest.mark.parametrize("used", [False, True], ids=["forked", "spawned"])
def test_a_run_on_a_device_has_the_rows_of_the_processor(tmp_path, used):
    pytest.importorskip("pyarrow")
    script = tmp_path / "script.py"
    script.write_text(RUN.format(tests=str(Path(__file__).parent), out=str(tmp_path), used=used))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["30", "graphs"]


#: In a process of its own: whether workers share its memory depends on whether it has used the device.
RUN = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
import torch
from small_runs import Pooled, some_graphs
from walkwise import runs

if __name__ == "__main__":
    asked, graphs = ["nodes", "edges", "order:0.1", "walks:3", "subgraph:3"], some_graphs(30)
    model = Pooled().double().eval()
    here = runs.read(runs.run(model, graphs, asked, {out!r} + "/here", workers=1))
    where = dict() if {used} else dict(device="cuda")
    model = model.cuda() if {used} else model
    there = runs.read(runs.run(model, graphs, asked, {out!r} + "/there", workers=2, batch=8, **where))
    assert next(model.parameters()).is_cuda == {used}
    for name, table in there.items():
        for column in table.columns:
            if column in ("relevance", "output", "effect"):
                np.testing.assert_allclose(table[column], here[name][column], rtol=1e-9, atol=1e-11)
            elif column != "outputs":
                assert table[[column]].to_json() == here[name][[column]].to_json(), (name, column)
    print(len(there["graphs"]), "graphs")
"""


def test_actors_of_a_cluster_compute_on_its_cards(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    pytest.importorskip("ray")
    from small_runs import Pooled, some_graphs
    from walkwise import runs

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    graphs, asked = some_graphs(12), ["nodes", "order:0.1"]
    model = OnlyOnCards(Pooled().double()).eval()
    there = runs.read(runs.run(model, graphs, asked, tmp_path / "there", engine="ray", workers=2, batch=4))
    here = runs.read(runs.run(model.inner, graphs, asked, tmp_path / "here", workers=1, device="cpu"))
    assert there["graphs"].error.isna().all()
    assert there["order:0.1"].to_json() == here["order:0.1"].to_json()
    assert torch.allclose(*(torch.tensor(run["nodes"].relevance) for run in (there, here)), rtol=1e-9, atol=1e-11)


class OnlyOnCards(nn.Module):
    """A model that refuses to run on a processor."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index, batch=None):
        assert x.is_cuda
        return self.inner(x, edge_index, batch)


def test_a_graph_that_makes_the_device_fail_is_a_row_with_its_error(tmp_path):
    pytest.importorskip("pyarrow")
    from small_runs import some_graphs
    from walkwise import runs

    graphs = some_graphs(12)
    graphs[5].x = graphs[5].x * 7  # an index that the embedding does not have
    made = runs.run(Embedded().double(), graphs, "nodes", tmp_path / "out", workers=1, batch=4, device="cuda")
    errors = runs.read(made)["graphs"].error
    assert errors.notna().tolist() == [i == 5 for i in range(12)]
    assert "the graphics card failed" in errors[5]


class Embedded(nn.Module):
    """A model of numbered kinds of nodes."""

    def __init__(self):
        super().__init__()
        self.kinds, self.conv = nn.Embedding(3, 4), pyg.GCNConv(4, 2)

    def forward(self, x, edge_index, batch=None):
        h = self.conv(self.kinds((x * torch.arange(3, device=x.device)).sum(1).long()), edge_index)
        return pyg.global_add_pool(h, batch)


def test_mixed_devices_are_refused():
    model, x = Net(LAYERS["GCN"]).cuda(), torch.randn(5, 3)
    with pytest.raises(ww.errors.InputError, match="x is on cpu but the model is on cuda"):
        ww.trace(model, x, EDGES)


@pytest.mark.parametrize("index", [None, 2, torch.tensor([1, 3])])
def test_explainer_on_a_device(index):
    torch.manual_seed(0)
    model, x = pyg.GCN(3, 4, 2, 2), torch.randn(5, 3)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}

    def explain(place):
        explainer = Explainer(
            model.to(place),
            algorithm=ww.SubgraphLRPExplainer(),
            explanation_type="phenomenon",
            node_mask_type="attributes",
            edge_mask_type="object",
            model_config=config,
        )
        return explainer(x.to(place), EDGES.to(place), target=torch.tensor([0, 1, 0, 1, 1]), index=index)

    here, there = explain("cpu"), explain("cuda")
    for name in ("node_mask", "edge_mask", "node_relevance", "feature_relevance", "edge_relevance"):
        assert there[name].is_cuda
        assert torch.allclose(there[name].cpu(), here[name], rtol=1e-3, atol=1e-4)
