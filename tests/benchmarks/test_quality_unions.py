"""Explainers that take all graphs at once say what the registry's say of each."""

import pytest
import torch
from quality import methods, planted, unions
from quality.networks import DESIGNS, Network
from quality.running import prediction_of
from quality.tasks import TASKS, Task
from quality.unions import Union, by_edges

from walkwise.baselines import baseline, edge_mask, node_scores, pyg


def predictions(task, design, count=3):
    torch.manual_seed(0)
    if task.level == "node":
        whole = planted.tree_grids(0)
        graphs = [planted.around(whole, node) for node in (whole.y == 1).nonzero().flatten()[:count].tolist()]
    else:
        graphs = planted.many(planted.two_motifs(planted.tree, planted.house, planted.cycle), count, 0)
    network = Network(DESIGNS[design], task, graphs[0].x.shape[1]).double().eval()
    return network, [prediction_of(network, task, data.update({"x": data.x.double()})) for data in graphs]


LEVELS = pytest.mark.parametrize(
    "task",
    [Task("some", "", "graph", None), Task("some", "", "number", None, 1), TASKS["tree-grids"]],
    ids=lambda task: task.level,
)


@pytest.fixture
def few_steps(monkeypatch):
    """Explainers that take hundreds of steps take twenty, by default."""
    for explain, names in (
        (edge_mask.descended_mask, ("steps",)),
        (edge_mask.paper_gnn_explainer, ("steps",)),
        (pyg.gnn_explainer, ("epochs",)),
    ):
        monkeypatch.setattr(explain, "__kwdefaults__", explain.__kwdefaults__ | dict.fromkeys(names, 20))


@pytest.mark.parametrize("design", ["gin-gelu", "gat-relu"])
@LEVELS
@pytest.mark.parametrize("name", ["integrated-gradients", "gnnexplainer-paper"])
def test_every_graph_is_scored_as_by_itself(name, task, design, few_steps):
    network, given = predictions(task, design)
    together = unions.EXPLAINERS[name](Union.of(network, given))
    for found, prediction in zip(together, given, strict=True):
        alone = node_scores(baseline(name)(prediction))
        assert torch.allclose(found, alone, rtol=1e-9, atol=1e-12)
        assert len(alone.unique()) > 1


@pytest.mark.parametrize("design", ["gin-gelu", "gat-relu"])
@LEVELS
def test_masks_are_those_of_pyg(task, design, few_steps, monkeypatch):
    torch.set_default_dtype(torch.float64)  # PyG's first mask has it
    try:
        network, given = predictions(task, design)
        union = Union.of(network, given)
        first = torch.randn(union.edge_index.shape[1])
        masks = []
        monkeypatch.setattr(unions, "by_edges", lambda union, mask: masks.append(mask) or by_edges(union, mask))
        monkeypatch.setattr(torch, "randn", lambda *_, **__: first.clone())
        together = unions.pyg_gnn_explainer(union)
        counts = [p.edge_index.shape[1] for p in given]
        for found, mask, own, prediction in zip(
            together, masks[0].split(counts), first.split(counts), given, strict=True
        ):
            monkeypatch.setattr(torch, "randn", lambda *_, own=own, **__: own.clone())
            alone = baseline("gnnexplainer")(prediction)
            assert torch.allclose(mask, alone.edges, rtol=1e-9, atol=1e-9)
            assert torch.equal(found, node_scores(alone))
    finally:
        torch.set_default_dtype(torch.float32)


@LEVELS
def test_perturbed_nodes_are_those_of_every_graph(task):
    network, given = predictions(task, "gin-gelu")
    for prediction in given:  # with the same random numbers
        torch.manual_seed(1)
        (found,) = unions.pgm(Union.of(network, [prediction]))
        torch.manual_seed(1)
        assert torch.equal(found, baseline("pgmexplainer")(prediction).nodes)
    torch.manual_seed(1)
    together = unions.pgm(Union.of(network, given))
    begin = 0
    torch.manual_seed(1)
    perturbed = torch.rand(200, sum(p.num_nodes for p in given)) < 0.5
    for found, prediction in zip(together, given, strict=True):
        own = perturbed[:, begin : begin + prediction.num_nodes]
        begin += prediction.num_nodes
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "rand", lambda *_, own=own: torch.where(own, 0.0, 1.0))
            assert torch.equal(found, baseline("pgmexplainer")(prediction).nodes)


def test_they_are_asked_under_the_names_of_the_registry():
    found = {method.name: method for method in methods.all_methods()[0]}
    assert set(unions.EXPLAINERS) <= set(found)
    network, given = predictions(Task("some", "", "graph", None), "gin-gelu")
    together = methods.Together(network, given)
    answer = found["integrated-gradients"].answer(methods.Case(given[1], together, 1, 5))
    assert torch.allclose(answer.scores, node_scores(baseline("integrated-gradients")(given[1])))
    assert answer.seconds is not None
