"""Orders and areas of many graphs at once against the same for one graph after the other."""

from __future__ import annotations

import pytest
import torch

from paper.cases import gin, small_set
from walkwise.baselines import Attribution, baseline, node_order
from walkwise.baselines.edge_mask import paper_gnn_explainer
from walkwise.datasets import pack
from walkwise.evaluation import activation_along, pruning_along
from walkwise.evaluation.predictions import predict
from walkwise.paper import orderings
from walkwise.paper.bunches import bunch
from walkwise.paper.curves import areas

ALPHAS = [0.0, 0.3, 1.0]


@pytest.fixture(scope="module")
def graphs():
    """Graphs of different sizes: BA-2motif with some nodes cut off the end."""
    found = []
    for cut, graph in enumerate(small_set(8).graphs):
        keep = torch.arange(25 - cut)
        found.append(graph.subgraph(keep))
        del found[-1].ground_truth
        found[-1].x = torch.rand(len(keep), 2, generator=torch.Generator().manual_seed(cut))
    return pack(found)


@pytest.fixture(scope="module")
def model():
    return gin(2, features=2)


def alone(model, graph):
    return predict(model, graph.x.double(), graph.edge_index, target=int(graph.y))


@pytest.mark.parametrize("mode", ["activation", "pruning"])
def test_ours_one_by_one(model, graphs, mode):
    data = bunch(graphs)
    orders = orderings.sgnn_lrp(model, data, data.y)(mode, ALPHAS)
    for g, graph in enumerate(graphs):
        chain = baseline("sgnn-lrp")(alone(model, graph), rule="gamma")
        for order, alpha in zip(orders[g] - data.nodes_before[g], ALPHAS, strict=True):
            assert torch.equal(order, node_order(chain, mode, alpha=alpha))


@pytest.mark.parametrize("name", ["gradient", "cam"])
def test_node_scores_are_those_of_the_baselines(model, graphs, name, unchanged):
    data = bunch(graphs)
    with unchanged(model, data.x):
        scores = {"gradient": orderings.gradient_scores, "cam": orderings.cam_scores}[name](model, data, data.y)
    for g, graph in enumerate(graphs):
        own = baseline(name)(alone(model, graph)).nodes
        assert torch.allclose(scores[data.batch == g], own.double(), rtol=1e-9, atol=1e-12)


def test_sorted_orders_go_down_for_activation_and_up_for_pruning(model, graphs):
    data = bunch(graphs)
    scores = orderings.gradient_scores(model, data, data.y)
    orders = orderings.gradient(model, data, data.y)
    assert all((scores[o[0]].diff() <= 0).all() for o in orders("activation", [0.0]))
    assert all((scores[o[0]].diff() >= 0).all() for o in orders("pruning", [0.0]))


def test_edge_masks_are_those_of_pyg(model, graphs, unchanged):
    for g in (0, 5):
        data = bunch(graphs, [g])
        with unchanged(model, data.x):
            masks = orderings.edge_masks(model, data, data.y, seed=3)
        torch.manual_seed(3)
        theirs = baseline("gnnexplainer")(alone(model, graphs[g]))
        assert torch.allclose(masks, theirs.edges, atol=1e-5)


def test_the_authors_masks_of_many_graphs_are_those_of_each(model, graphs, unchanged):
    data = bunch(graphs)
    with unchanged(model, data.x):
        masks = orderings.descended_masks(model, data, data.y, steps=30)
    assert len(masks) == data.edge_index.shape[1] + len(data.x)
    for g in (0, 5):  # no graph has a say in another's
        one = bunch(graphs, [g])
        own = orderings.descended_masks(model, one, one.y, steps=30)[: one.edge_index.shape[1]]
        assert torch.allclose(masks[slice(*data.edges_before[g : g + 2].tolist())], own, rtol=1e-9, atol=1e-12)


def test_the_authors_mask_descends_as_written(model, graphs):
    data = bunch(graphs, [2])
    edges = data.edge_index.shape[1]
    theta = torch.full((edges + len(data.x),), 2.0, dtype=torch.float64)
    for _ in range(2):  # by hand, with finite differences
        slope = torch.zeros_like(theta)
        for edge in range(len(theta)):
            for sign in (1, -1):
                moved = theta.clone()
                moved[edge] += sign * 1e-6
                slope[edge] += sign * _masked_loss(model, data, moved) / 2e-6
        theta -= 0.5 * slope
    assert torch.allclose(orderings.descended_masks(model, data, data.y, steps=2), theta, atol=1e-6)
    own = paper_gnn_explainer(alone(model, graphs[2]), steps=1).edges  # of the edges alone
    assert torch.allclose(own, orderings.descended_masks(model, data, data.y, steps=1)[:edges], atol=0.5)
    assert own.std() > 0


def _masked_loss(model, data, theta):
    """−f + 0.01 Σ θ², with the messages of the GIN written out, loops included."""
    H, (source, target) = data.x, data.edge_index
    edges = theta.sigmoid()[: len(source), None]
    loops = theta.sigmoid()[len(source) :, None]
    for conv in model.convs:
        H = conv.nn((loops * H).index_add(0, target, edges * H[source]))
    logits = H.sum(0) / 20**0.5
    return float(-logits[data.y[0]] + 0.01 * theta.square().sum())


def test_one_graph_has_no_say_in_another_s_mask(model, graphs):
    both = bunch(graphs, [0, 5])
    masks, other = (orderings.edge_masks(model, both, torch.tensor([0, label]), epochs=20) for label in (0, 1))
    first = slice(0, int(both.edges_before[1]))
    assert torch.allclose(masks[first], other[first], atol=1e-12)
    assert not torch.allclose(masks, other, atol=1e-3)


@pytest.mark.parametrize("mode", ["activation", "pruning"])
def test_an_edge_is_a_walk_of_one_step(model, graphs, mode, monkeypatch):
    data = bunch(graphs)
    weights = torch.rand(data.edge_index.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(orderings, "edge_masks", lambda *args: weights)
    orders = orderings.pyg_explainer(model, data, data.y)(mode, [0.0, 0.3])
    for g in range(len(data)):
        here = slice(*data.edges_before[g : g + 2].tolist())
        edge_index = data.edge_index[:, here] - data.nodes_before[g]
        own = Attribution(torch.zeros(int(data.sizes[g]), dtype=torch.float64), weights[here], edge_index)
        for order, alpha in zip(orders[g] - data.nodes_before[g], [0.0, 0.3], strict=True):
            assert torch.equal(order, node_order(own, mode, alpha=alpha))


@pytest.mark.parametrize("on", ["logit", "probability"])
@pytest.mark.parametrize(("mode", "along"), [("activation", activation_along), ("pruning", pruning_along)])
def test_areas_one_by_one(model, graphs, mode, along, on, monkeypatch):
    monkeypatch.setattr("walkwise.paper.curves._MOST_NODES", 100)  # several passes
    data = bunch(graphs)
    orders = orderings.sgnn_lrp(model, data, data.y)(mode, ALPHAS)
    found = areas(model, data, data.y, orders, mode, on=on)
    assert found.shape == (len(data), len(ALPHAS))
    for g, graph in enumerate(graphs):
        for a in range(len(ALPHAS)):
            own = along(alone(model, graph), orders[g][a] - data.nodes_before[g], on=on).area
            assert float(found[g, a]) == pytest.approx(own, rel=1e-9)
