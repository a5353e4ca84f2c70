"""PyG's own metrics and plots on our explanations, and what they say of a trained model."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch_geometric.explain import (
    DummyExplainer,
    Explainer,
    characterization_score,
    fidelity,
    fidelity_curve_auc,
    groundtruth_metrics,
    unfaithfulness,
)
from torch_geometric.nn import GCNConv, GraphConv, global_mean_pool

import walkwise as ww

CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "log_probs"}


class Net(nn.Module):
    """A graph classifier that ends in log-probabilities."""

    def __init__(self, conv=GraphConv):
        super().__init__()
        self.convs = nn.ModuleList([conv(3, 8, bias=False), conv(8, 8, bias=False)])
        self.head = nn.Linear(8, 2, bias=False)

    def forward(self, x, edge_index, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch)).log_softmax(dim=-1)


def planted(label, generator):
    """A ring with chords in which three neighbours carry the feature of their class: x, edge_index, truth."""
    nodes = torch.arange(12)
    chords = torch.randint(12, (2, 3), generator=generator)
    edges = torch.cat([torch.stack([nodes, (nodes + 1) % 12]), chords[:, chords[0] != chords[1]]], dim=1)
    truth = torch.zeros(12, dtype=torch.bool)
    truth[(int(torch.randint(12, (), generator=generator)) + torch.arange(3)) % 12] = True
    x = 0.3 * torch.rand(12, 3, generator=generator)
    x[truth, 1 + label] += 1
    return x, torch.cat([edges, edges.flip(0)], dim=1), truth


@pytest.fixture(scope="module")
def trained():
    """A model that tells the two classes apart, and graphs that it has not seen."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Net()
        graphs = [(*planted(i % 2, generator), i % 2) for i in range(60)]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        x = torch.cat([graph[0] for graph in graphs])
        edges = torch.cat([graph[1] + 12 * i for i, graph in enumerate(graphs)], dim=1)
        batch, labels = torch.arange(60).repeat_interleave(12), torch.arange(60) % 2
        for _ in range(60):
            optimizer.zero_grad()
            nn.functional.nll_loss(model(x, edges, batch), labels).backward()
            optimizer.step()
    model.eval().requires_grad_(False)
    fresh = [(*planted(i % 2, generator), i % 2) for i in range(20)]
    assert all(int(model(x, edges).argmax()) == label for x, edges, _, label in fresh)
    return model, fresh


def explained(model, algorithm, x, edge_index, *, nodes="object", edges=None, threshold=None, **config):
    explainer = Explainer(
        model,
        algorithm=algorithm,
        explanation_type="model",
        node_mask_type=nodes,
        edge_mask_type=edges,
        model_config=CONFIG | config,
        threshold_config=threshold,
    )
    return explainer, explainer(x, edge_index)


def scores(model, graphs, algorithm, size):
    """Mean fidelity+ and fidelity- of explanations of this many nodes."""
    both = [
        fidelity(*explained(model, algorithm, x, edges, threshold=("topk_hard", size))) for x, edges, _, _ in graphs
    ]
    return torch.tensor(both).mean(dim=0)


def test_fidelity_beats_random_masks(trained):
    model, graphs = trained
    sizes = [2, 3, 4]
    ours = torch.stack([scores(model, graphs, ww.SubgraphLRPExplainer(), size) for size in sizes])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        random = torch.stack([scores(model, graphs, DummyExplainer(), size) for size in sizes])
    assert bool((ours[:, 0] > random[:, 0]).all())  # taking it away changes the prediction
    assert bool((ours[:, 1] < random[:, 1]).all())  # keeping it alone does not
    assert ours[1, 0] > random[1, 0] + 0.2
    assert characterization_score(*ours[1]) > characterization_score(*random[1])
    areas = [fidelity_curve_auc(s[:, 0], s[:, 1], torch.tensor(sizes)) for s in (ours, random)]
    assert areas[0] > areas[1]


def test_ground_truth_is_found(trained):
    pytest.importorskip("torchmetrics")
    model, graphs = trained
    found = []
    for x, edges, truth, _ in graphs:
        _, explanation = explained(model, ww.SubgraphLRPExplainer(), x, edges)
        found.append(groundtruth_metrics(explanation.node_mask, truth[:, None], metrics=["accuracy", "auroc"]))
    accuracy, auroc = torch.tensor(found).mean(dim=0)
    assert auroc > 0.95
    assert accuracy > 0.9


@pytest.mark.parametrize("mask", ["positive", "magnitude"])
@pytest.mark.parametrize(
    ("nodes", "edges"),
    [(n, e) for n in ("object", "common_attributes", "attributes", None) for e in ("object", None) if n or e],
)
def test_metrics_run_for_every_mask(trained, nodes, edges, mask):
    model, graphs = trained
    x, edge_index, _, _ = graphs[0]
    explainer, explanation = explained(
        model, ww.SubgraphLRPExplainer(mask=mask), x, edge_index, nodes=nodes, edges=edges
    )
    masks = explanation.get("node_mask"), explanation.get("edge_mask")
    assert explainer.get_masked_prediction(x, edge_index, *masks).isfinite().all()
    values = [*fidelity(explainer, explanation), unfaithfulness(explainer, explanation)]
    if nodes in ("attributes", "common_attributes"):
        values.append(unfaithfulness(explainer, explanation, top_k=1))
    assert all(math.isfinite(value) and -1e-6 <= value <= 1 for value in values)
    again = explainer(x, edge_index)  # PyG has put masks on the model and taken them off
    for before, after in zip(masks, (again.get("node_mask"), again.get("edge_mask")), strict=True):
        assert before is after is None or torch.allclose(before, after)
    assert all(layer.route == "closed form" for layer in again.chain.layers)


def test_subgraph_and_complement_share_out_the_nodes(trained):
    model, graphs = trained
    x, edge_index, truth, _ = graphs[1]
    _, explanation = explained(
        model, ww.SubgraphLRPExplainer(), x, edge_index, edges="object", threshold=("topk_hard", 3)
    )
    inside, outside = explanation.get_explanation_subgraph(), explanation.get_complement_subgraph()
    assert (inside.num_nodes, outside.num_nodes) == (3, 9)
    assert inside.node_relevance.min() > 0
    assert inside.edge_relevance.shape == inside.edge_mask.shape == (inside.num_edges,)
    assert torch.equal(inside.x, x[explanation.node_mask[:, 0] > 0])
    assert inside.validate()
    assert outside.validate()
    assert inside.chain.num_nodes == 12
    assert ww.subgraph_relevance(inside.chain, truth[None]).shape == (1,)


def test_plots(trained, tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    model, graphs = trained
    x, edge_index, _, _ = graphs[0]
    _, explanation = explained(model, ww.SubgraphLRPExplainer(), x, edge_index, nodes="attributes", edges="object")
    explanation.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")
    explanation.visualize_feature_importance(str(tmp_path / "features.png"), feat_labels=["noise", "one", "two"])
    assert (tmp_path / "graph.png").stat().st_size > 1000
    assert (tmp_path / "features.png").stat().st_size > 1000


def test_self_loops_under_masks():
    """GCN adds its own loops; PyG leaves them unmasked, and so the shapes fit."""
    torch.manual_seed(0)
    model = Net(GCNConv)
    x, edge_index, _ = planted(0, torch.Generator().manual_seed(0))
    edge_index = torch.cat([edge_index, torch.tensor([[4], [4]])], dim=1)
    explainer, explanation = explained(model, ww.SubgraphLRPExplainer(), x, edge_index, edges="object")
    assert explanation.edge_mask.shape == (edge_index.shape[1],)
    assert all(0 <= value <= 1 for value in fidelity(explainer, explanation))
