"""The same numbers on an accelerator."""

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
    path = torch.stack([torch.arange(M - 1), torch.arange(1, M)])
    here = ww.trace(model, torch.randn(M, 3, dtype=torch.float64), torch.cat([path, path.flip(0)], 1), target=1)
    there, ids, offsets = here.to("cuda"), torch.arange(M), torch.arange(0, M + 1, 4)
    for query in (
        lambda c: ww.subgraph_relevance(c, (ids, offsets)),
        lambda c: ww.subgraph_relevance(c, (ids.to(c.device), offsets.to(c.device)), alpha=0.3),
        lambda c: ww.subgraph_relevance(c, ids.view(-1, 4), alpha=1.0),
        lambda c: ww.subgraph_polynomial(c, (ids, offsets)),
        lambda c: ww.node_relevance(c, layer="start"),
    ):
        assert torch.allclose(query(there).cpu(), query(here), rtol=1e-9, atol=1e-11)


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
